/*
The sum of all n elements: a grid-stride loop, shuffles within each warp, and one atomic addition a
warp. The total must be zero before the launch.

    tegula check examples/cuda/reduce_atomic.cu --kernel reduce_atomic --grid 3 --block 96 \
        --arg 'x=f32[1000]' --arg 'total=zero:f32[1]' --arg n=1000
*/
__global__ void reduce_atomic(const float* x, float* total, int n) {
    float sum = 0.0f;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        sum += x[i];
    }
    for (int offset = 16; offset > 0; offset /= 2) {
        sum += __shfl_down_sync(0xffffffffu, sum, offset);
    }
    if (threadIdx.x % 32 == 0) {
        atomicAdd(total, sum);
    }
}
