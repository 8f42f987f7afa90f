/*
A histogram of bytes. Bug: launched with as many bytes of shared memory as there are bins, not 4
times as many, so that the accesses of lines 15, 20 and 25 are out of bounds. The correct version is
../histogram_dynamic.cu.

    tegula check examples/cuda/bugs/histogram_shared_too_small.cu --kernel histogram_dynamic \
        --grid 2 --block 96 --shared 40 --arg 'data=u8[700]' --arg 'counts=zero:u32[40]' \
        --arg bins=40 --arg n=700
*/
__global__ void histogram_dynamic(const unsigned char* data, unsigned int* counts, int bins,
                                  int n) {
    extern __shared__ unsigned int block_counts[];

    for (int bin = threadIdx.x; bin < bins; bin += blockDim.x) {
        block_counts[bin] = 0;
    }
    __syncthreads();

    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        atomicAdd(&block_counts[data[i] % bins], 1u);
    }
    __syncthreads();

    for (int bin = threadIdx.x; bin < bins; bin += blockDim.x) {
        atomicAdd(&counts[bin], block_counts[bin]);
    }
}
