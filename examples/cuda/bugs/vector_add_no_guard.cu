/*
Vector addition, one element a thread. Bug: line 10 has no guard, so that the last threads of the
last block are out of bounds. The correct version is ../vector_add.cu.

    tegula check examples/cuda/bugs/vector_add_no_guard.cu --kernel vector_add --grid 16 \
        --block 64 --arg 'a=f32[1000]' --arg 'b=f32[1000]' --arg 'c=out:f32[1000]'
*/
__global__ void vector_add(const float* a, const float* b, float* c) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    c[i] = a[i] + b[i];
}
