/*
The sum of each block's elements. Bug: the mask of line 10 has all 32 lanes, but in the last
warp only the lanes with an element execute it. The correct version is ../reduce_shuffle.cu.

    tegula check examples/cuda/bugs/reduce_shuffle_partial_mask.cu --kernel reduce_shuffle \
        --grid 3 --block 160 --arg 'x=f32[450]' --arg 'sums=out:f32[3]' --arg n=450
*/
__device__ float warp_sum(float value) {
    for (int offset = 16; offset > 0; offset /= 2) {
        value += __shfl_down_sync(0xffffffffu, value, offset);
    }
    return value;  // complete in lane 0
}

// blockDim.x must be a multiple of 32.
__global__ void reduce_shuffle(const float* x, float* sums, int n) {
    __shared__ float partial[32];

    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    const int lane = threadIdx.x % 32;
    const int warp = threadIdx.x / 32;

    float sum = 0.0f;
    if (i < n) {
        sum = warp_sum(x[i]);
    }
    if (lane == 0) {
        partial[warp] = sum;
    }
    __syncthreads();

    if (warp == 0) {
        const float total = warp_sum(lane < blockDim.x / 32 ? partial[lane] : 0.0f);
        if (lane == 0) {
            sums[blockIdx.x] = total;
        }
    }
}
