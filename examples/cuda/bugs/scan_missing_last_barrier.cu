/*
The exclusive scan of each block's 128 elements. Bug: no barrier after the last step, so that line
42 reads prefixes while other threads still store them (lines 35 and 36). The correct version is
../scan_blelloch.cu.

    tegula check examples/cuda/bugs/scan_missing_last_barrier.cu --kernel scan_blelloch --grid 3 \
        --block 64 --arg 'x=i32[300]' --arg 'y=out:i32[300]' --arg n=300
*/
constexpr int COUNT = 128;  // elements per block, two per thread

__global__ void scan_blelloch(const int* x, int* y, int n) {
    __shared__ int tree[COUNT];

    const int tid = threadIdx.x;
    const int first = blockIdx.x * COUNT;
    for (int i = tid; i < COUNT; i += COUNT / 2) {
        tree[i] = first + i < n ? x[first + i] : 0;
    }

    for (int stride = 1; stride < COUNT; stride *= 2) {
        __syncthreads();
        const int at = 2 * stride * (tid + 1) - 1;
        if (at < COUNT) {
            tree[at] += tree[at - stride];
        }
    }
    if (tid == 0) {
        tree[COUNT - 1] = 0;
    }
    for (int stride = COUNT / 2; stride > 0; stride /= 2) {
        __syncthreads();
        const int at = 2 * stride * (tid + 1) - 1;
        if (at < COUNT) {
            const int left = tree[at - stride];
            tree[at - stride] = tree[at];
            tree[at] += left;
        }
    }

    for (int i = tid; i < COUNT; i += COUNT / 2) {
        if (first + i < n) {
            y[first + i] = tree[i];
        }
    }
}
