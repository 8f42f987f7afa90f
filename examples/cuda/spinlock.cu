/*
Every thread adds its element to the total inside a lock. Since sm_70 the lanes of a warp make
progress independently, so a lane can hold the lock while other lanes of its warp wait for it. For
sums, prefer atomicAdd: this shows what a lock needs.

    tegula check examples/cuda/spinlock.cu --kernel locked_sum --grid 2 --block 40 \
        --arg 'x=i32[70]' --arg 'total=zero:i32[1]' --arg 'lock=zero:i32[1]' --arg n=70
*/
__global__ void locked_sum(const int* x, int* total, int* lock, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        while (atomicCAS(lock, 0, 1) != 0) {
        }
        __threadfence();
        *total += x[i];
        __threadfence();
        atomicExch(lock, 0);
    }
}
