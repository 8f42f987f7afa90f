/*
The inclusive scan of each block's 128 elements. Bug: one buffer and one barrier a step, so that a
thread stores its sum (line 23) before its right neighbor has read the old one (line 21). The
correct version is ../scan_hillis_steele.cu.

    tegula check examples/cuda/bugs/scan_single_buffer.cu --kernel scan_hillis_steele --grid 3 \
        --block 128 --arg 'x=i32[300]' --arg 'y=out:i32[300]' --arg n=300
*/
constexpr int BLOCK = 128;

__global__ void scan_hillis_steele(const int* x, int* y, int n) {
    __shared__ int buffer[BLOCK];

    const int tid = threadIdx.x;
    const int i = blockIdx.x * BLOCK + tid;
    buffer[tid] = i < n ? x[i] : 0;
    for (int offset = 1; offset < BLOCK; offset *= 2) {
        __syncthreads();
        int sum = buffer[tid];
        if (tid >= offset) {
            sum += buffer[tid - offset];
        }
        buffer[tid] = sum;
    }
    if (i < n) {
        y[i] = buffer[tid];
    }
}
