/*
Every thread adds its element to the total inside a lock. Bug: without fences, the lock orders
nothing: the loads and stores of line 13 race. The correct version is ../spinlock.cu.

    tegula check examples/cuda/bugs/spinlock_no_fence.cu --kernel locked_sum --grid 2 --block 40 \
        --arg 'x=i32[70]' --arg 'total=zero:i32[1]' --arg 'lock=zero:i32[1]' --arg n=70
*/
__global__ void locked_sum(const int* x, int* total, int* lock, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        while (atomicCAS(lock, 0, 1) != 0) {
        }
        *total += x[i];
        atomicExch(lock, 0);
    }
}
