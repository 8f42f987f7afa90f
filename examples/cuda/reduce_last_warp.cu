/*
The sum of each block's 128 elements: a tree in shared memory whose last 64 elements are added by
one warp. __syncwarp orders the lanes; that all of them run in lockstep is not guaranteed.

    tegula check examples/cuda/reduce_last_warp.cu --kernel reduce_last_warp --grid 4 \
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
        float sum = partial[tid] + partial[tid + 32];
        for (int half = 16; half > 0; half /= 2) {
            partial[tid] = sum;
            __syncwarp();
            sum += partial[tid + half];
            __syncwarp();
        }
        if (tid == 0) {
            sums[blockIdx.x] = sum;
        }
    }
}
