/*
A histogram of bytes: each block counts in shared memory, then adds its counts to the total. The
counts must be zero before the launch.

    tegula check examples/cuda/histogram.cu --kernel histogram --grid 3 --block 128 \
        --arg 'data=u8[1500]' --arg 'counts=zero:u32[256]' --arg n=1500
*/
#include <cstdio>

constexpr int BINS = 256;

__global__ void histogram(const unsigned char* data, unsigned int* counts, int n) {
    __shared__ unsigned int bins[BINS];

    for (int bin = threadIdx.x; bin < BINS; bin += blockDim.x) {
        bins[bin] = 0;
    }
    __syncthreads();

    const int stride = gridDim.x * blockDim.x;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) {
        atomicAdd(&bins[data[i]], 1u);
    }
    __syncthreads();

    for (int bin = threadIdx.x; bin < BINS; bin += blockDim.x) {
        atomicAdd(&counts[bin], bins[bin]);
    }
}

// Host program: compares with a loop on the CPU.
int main() {
    const int n = 1 << 20;
    unsigned char* data;
    unsigned int* counts;
    cudaMallocManaged(&data, n);
    cudaMallocManaged(&counts, BINS * sizeof(unsigned int));
    unsigned int want[BINS] = {};
    for (int i = 0; i < n; ++i) {
        data[i] = (i * 7919u >> 5) % BINS;
        ++want[data[i]];
    }
    cudaMemset(counts, 0, BINS * sizeof(unsigned int));

    histogram<<<120, 256>>>(data, counts, n);
    const cudaError_t status = cudaDeviceSynchronize();
    if (status != cudaSuccess) {
        std::printf("%s\n", cudaGetErrorString(status));
        return 1;
    }

    int wrong = 0;
    for (int bin = 0; bin < BINS; ++bin) wrong += counts[bin] != want[bin];
    std::printf("%d of %d counts are wrong\n", wrong, BINS);
    return wrong != 0;
}
