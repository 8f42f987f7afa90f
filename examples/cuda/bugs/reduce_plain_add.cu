/*
The sum of all n elements. Bug: line 17 adds to the total with +=, a load and a store, between which
other warps and blocks store their sums. The correct version is ../reduce_atomic.cu.

    tegula check examples/cuda/bugs/reduce_plain_add.cu --kernel reduce_atomic --grid 3 \
        --block 96 --arg 'x=f32[1000]' --arg 'total=zero:f32[1]' --arg n=1000
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
        *total += sum;
    }
}
