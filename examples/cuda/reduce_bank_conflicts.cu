/*
The sum of each block's 128 elements: a tree whose active threads stay in the first warps. Correct,
but slow: threads read at a stride of 2, 4, 8, ... elements, with bank conflicts that grow with the
stride (line 22). Compare reduce_tree.cu.

    tegula check examples/cuda/reduce_bank_conflicts.cu --kernel reduce_bank_conflicts --grid 4 \
        --block 128 --arg 'x=f32[500]' --arg 'sums=out:f32[4]' --arg n=500
*/
constexpr int BLOCK = 128;

__global__ void reduce_bank_conflicts(const float* x, float* sums, int n) {
    __shared__ float partial[BLOCK];

    const int tid = threadIdx.x;
    const int i = blockIdx.x * BLOCK + tid;
    partial[tid] = i < n ? x[i] : 0.0f;
    __syncthreads();

    for (int stride = 1; stride < BLOCK; stride *= 2) {
        const int at = 2 * stride * tid;
        if (at < BLOCK) {
            partial[at] += partial[at + stride];
        }
        __syncthreads();
    }
    if (tid == 0) {
        sums[blockIdx.x] = partial[0];
    }
}
