/*
The sum of each block's 128 elements. Bug: no barrier at the end of a step of the tree, so that line
20 reads sums that other threads have not stored yet. The correct version is ../reduce_tree.cu.

    tegula check examples/cuda/bugs/reduce_missing_barrier.cu --kernel reduce_tree --grid 4 \
        --block 128 --arg 'x=f32[500]' --arg 'sums=out:f32[4]' --arg n=500
*/
constexpr int BLOCK = 128;

__global__ void reduce_tree(const float* x, float* sums, int n) {
    __shared__ float partial[BLOCK];

    const int tid = threadIdx.x;
    const int i = blockIdx.x * BLOCK + tid;
    partial[tid] = i < n ? x[i] : 0.0f;
    __syncthreads();

    for (int half = BLOCK / 2; half > 0; half /= 2) {
        if (tid < half) {
            partial[tid] += partial[tid + half];
        }
    }
    if (tid == 0) {
        sums[blockIdx.x] = partial[0];
    }
}
