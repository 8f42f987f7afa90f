/*
Every 100th element of a and b is added. Bug: the index of line 13 is an unsigned short, which
overflows at 65,536: from there on, the first elements are added again. The correct version is
../vector_add.cu.

    tegula check examples/cuda/bugs/vector_add_short_index.cu --kernel vector_add --grid 8 \
        --block 128 --arg 'a=f32[100000]' --arg 'b=f32[100000]' --arg 'c=out:f32[1000]' \
        --arg n=1000
*/
__global__ void vector_add(const float* a, const float* b, float* c, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        const unsigned short from = 100 * i;
        c[i] = a[from] + b[from];
    }
}
