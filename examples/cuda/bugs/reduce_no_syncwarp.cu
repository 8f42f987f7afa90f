/*
The sum of each block's 128 elements. Bug: the last warp relies on its lanes running in lockstep, as
code from before 2017 does: without __syncwarp, lines 28 to 32 race. `volatile` keeps
the values out of registers, but orders nothing. The correct version is ../reduce_last_warp.cu.

    tegula check examples/cuda/bugs/reduce_no_syncwarp.cu --kernel reduce_last_warp --grid 4 \
        --block 128 --arg 'x=f32[500]' --arg 'sums=out:f32[4]' --arg n=500
*/
constexpr int BLOCK = 128;

__global__ void reduce_last_warp(const float* x, float* sums, int n) {
    __shared__ float partial[BLOCK];

    const int tid = threadIdx.x;
    const int i = blockIdx.x * BLOCK + tid;
    partial[tid] = i < n ? x[i] : 0.0f;
    __syncthreads();

    for (int half = BLOCK / 2; half > 32; half /= 2) {
        if (tid < half) {
            partial[tid] += partial[tid + half];
        }
        __syncthreads();
    }
    if (tid < 32) {
        volatile float* lanes = partial;
        lanes[tid] += lanes[tid + 32];
        lanes[tid] += lanes[tid + 16];
        lanes[tid] += lanes[tid + 8];
        lanes[tid] += lanes[tid + 4];
        lanes[tid] += lanes[tid + 2];
        lanes[tid] += lanes[tid + 1];
        if (tid == 0) {
            sums[blockIdx.x] = lanes[0];
        }
    }
}
