/*
The sum of all n elements in one launch: each block stores its sum, and the block that finishes last
adds them. The fences order the sums with the counter, before and after its increment.

    tegula check examples/cuda/reduce_last_block.cu --kernel reduce_last_block --grid 5 \
        --block 64 --arg 'x=f32[1000]' --arg 'sums=out:f32[5]' --arg 'total=out:f32[1]' \
        --arg n=1000
*/
constexpr int BLOCK = 64;

__device__ unsigned int finished = 0;  // number of finished blocks; wraps to 0 for the next launch

__device__ float block_sum(float value) {
    __shared__ float partial[BLOCK];

    partial[threadIdx.x] = value;
    __syncthreads();
    for (int half = BLOCK / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) {
            partial[threadIdx.x] += partial[threadIdx.x + half];
        }
        __syncthreads();
    }
    return partial[0];
}

__global__ void reduce_last_block(const float* x, float* sums, float* total, int n) {
    __shared__ bool is_last;

    float value = 0.0f;
    for (int i = blockIdx.x * BLOCK + threadIdx.x; i < n; i += gridDim.x * BLOCK) {
        value += x[i];
    }
    const float sum = block_sum(value);

    if (threadIdx.x == 0) {
        sums[blockIdx.x] = sum;
        __threadfence();  // the sum before the count
        is_last = atomicInc(&finished, gridDim.x - 1) == gridDim.x - 1;
        __threadfence();  // the count before the sums of the other blocks
    }
    __syncthreads();

    if (is_last) {
        value = 0.0f;
        for (int block = threadIdx.x; block < gridDim.x; block += BLOCK) {
            value += sums[block];
        }
        value = block_sum(value);
        if (threadIdx.x == 0) {
            *total = value;
        }
    }
}
