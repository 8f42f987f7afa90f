/*
The inclusive scan of each block's 128 elements, after Hillis and Steele: log2(128) steps, each from
one half of a double buffer to the other, so that one barrier a step is enough.

    tegula check examples/cuda/scan_hillis_steele.cu --kernel scan_hillis_steele --grid 3 \
        --block 128 --arg 'x=i32[300]' --arg 'y=out:i32[300]' --arg n=300
*/
constexpr int BLOCK = 128;

__global__ void scan_hillis_steele(const int* x, int* y, int n) {
    __shared__ int buffer[2][BLOCK];

    const int tid = threadIdx.x;
    const int i = blockIdx.x * BLOCK + tid;
    int from = 0;
    buffer[from][tid] = i < n ? x[i] : 0;
    for (int offset = 1; offset < BLOCK; offset *= 2) {
        __syncthreads();
        int sum = buffer[from][tid];
        if (tid >= offset) {
            sum += buffer[from][tid - offset];
        }
        from = 1 - from;
        buffer[from][tid] = sum;
    }
    if (i < n) {
        y[i] = buffer[from][tid];
    }
}
