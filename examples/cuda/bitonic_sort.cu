/*
Sorts up to 128 keys in shared memory with a bitonic network; one block, one thread per key. Missing
keys are filled with the largest int, which stays at the end.

    tegula check examples/cuda/bitonic_sort.cu --kernel bitonic_sort --grid 1 --block 128 \
        --arg 'in=i32[100]' --arg 'out=out:i32[100]' --arg n=100
*/
constexpr int COUNT = 128;

__global__ void bitonic_sort(const int* in, int* out, int n) {
    __shared__ int keys[COUNT];

    const int tid = threadIdx.x;
    keys[tid] = tid < n ? in[tid] : 0x7fffffff;
    __syncthreads();

    for (int size = 2; size <= COUNT; size *= 2) {
        for (int stride = size / 2; stride > 0; stride /= 2) {
            const int other = tid ^ stride;
            if (tid < other) {
                const bool ascending = (tid & size) == 0;
                const int low = keys[tid];
                const int high = keys[other];
                if ((low > high) == ascending) {
                    keys[tid] = high;
                    keys[other] = low;
                }
            }
            __syncthreads();
        }
    }
    if (tid < n) {
        out[tid] = keys[tid];
    }
}
