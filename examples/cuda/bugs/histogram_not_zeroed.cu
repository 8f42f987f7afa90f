/*
A histogram of bytes. Bug: nothing sets the counts in shared memory to zero before line 15. The
correct version is ../histogram.cu.

    tegula check examples/cuda/bugs/histogram_not_zeroed.cu --kernel histogram --grid 3 \
        --block 128 --arg 'data=u8[1500]' --arg 'counts=zero:u32[256]' --arg n=1500
*/
constexpr int BINS = 256;

__global__ void histogram(const unsigned char* data, unsigned int* counts, int n) {
    __shared__ unsigned int bins[BINS];

    const int stride = gridDim.x * blockDim.x;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) {
        atomicAdd(&bins[data[i]], 1u);
    }
    __syncthreads();

    for (int bin = threadIdx.x; bin < BINS; bin += blockDim.x) {
        atomicAdd(&counts[bin], bins[bin]);
    }
}
