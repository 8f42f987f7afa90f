/*
A histogram of bytes. Bug: no barrier after the counts are set to zero (line 14), so that a slow
thread clears what a fast one has counted (line 19). The correct version is ../histogram.cu.

    tegula check examples/cuda/bugs/histogram_missing_barrier.cu --kernel histogram --grid 3 \
        --block 128 --arg 'data=u8[1500]' --arg 'counts=zero:u32[256]' --arg n=1500
*/
constexpr int BINS = 256;

__global__ void histogram(const unsigned char* data, unsigned int* counts, int n) {
    __shared__ unsigned int bins[BINS];

    for (int bin = threadIdx.x; bin < BINS; bin += blockDim.x) {
        bins[bin] = 0;
    }

    const int stride = gridDim.x * blockDim.x;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) {
        atomicAdd(&bins[data[i]], 1u);
    }
    __syncthreads();

    for (int bin = threadIdx.x; bin < BINS; bin += blockDim.x) {
        atomicAdd(&counts[bin], bins[bin]);
    }
}
