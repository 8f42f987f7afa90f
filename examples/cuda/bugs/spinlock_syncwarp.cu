/*
Every thread adds its element to the total inside a lock. Bug: the lane that holds the lock waits at
line 15 for its whole warp, whose other lanes wait at line 12 for the lock. The correct version is
../spinlock.cu.

    tegula check examples/cuda/bugs/spinlock_syncwarp.cu --kernel locked_sum --grid 2 --block 32 \
        --arg 'x=i32[64]' --arg 'total=zero:i32[1]' --arg 'lock=zero:i32[1]' --arg n=64
*/
__global__ void locked_sum(const int* x, int* total, int* lock, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        while (atomicCAS(lock, 0, 1) != 0) {
        }
        __threadfence();
        __syncwarp();
        *total += x[i];
        __threadfence();
        atomicExch(lock, 0);
    }
}
