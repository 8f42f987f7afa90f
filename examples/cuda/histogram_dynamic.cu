/*
A histogram of bytes in any number of bins; the launch sets the size of the array in shared memory
to 4 bytes a bin. The counts must be zero before the launch.

    tegula check examples/cuda/histogram_dynamic.cu --kernel histogram_dynamic --grid 2 \
        --block 96 --shared 160 --arg 'data=u8[700]' --arg 'counts=zero:u32[40]' --arg bins=40 \
        --arg n=700
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
