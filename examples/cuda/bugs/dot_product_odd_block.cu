/*
The dot product of x and y. Bug: launched with 96 threads a block, but the tree of line 21 drops an
element wherever it halves an odd number. The correct version is ../dot_product.cu.

    tegula check examples/cuda/bugs/dot_product_odd_block.cu --kernel dot_product --grid 3 \
        --block 96 --arg 'x=f32[1000]' --arg 'y=f32[1000]' --arg 'result=zero:f32[1]' \
        --arg n=1000
*/
constexpr int BLOCK = 128;

__global__ void dot_product(const float* x, const float* y, float* result, int n) {
    __shared__ float partial[BLOCK];

    float sum = 0.0f;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        sum += x[i] * y[i];
    }
    partial[threadIdx.x] = sum;
    __syncthreads();

    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) {
            partial[threadIdx.x] += partial[threadIdx.x + half];
        }
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        atomicAdd(result, partial[0]);
    }
}
