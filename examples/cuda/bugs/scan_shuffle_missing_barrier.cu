/*
The inclusive scan of each block's 128 elements. Bug: no barrier between the stores of the warps'
sums (line 25) and their loads (line 29). The correct version is ../scan_shuffle.cu.

    tegula check examples/cuda/bugs/scan_shuffle_missing_barrier.cu --kernel scan_shuffle \
        --grid 3 --block 128 --arg 'x=i32[300]' --arg 'y=out:i32[300]' --arg n=300
*/
constexpr int WARPS = 4;

__global__ void scan_shuffle(const int* x, int* y, int n) {
    __shared__ int warp_sums[WARPS];

    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    const int lane = threadIdx.x % 32;
    const int warp = threadIdx.x / 32;

    int sum = i < n ? x[i] : 0;
    for (int offset = 1; offset < 32; offset *= 2) {
        const int left = __shfl_up_sync(0xffffffffu, sum, offset);
        if (lane >= offset) {
            sum += left;
        }
    }
    if (lane == 31) {
        warp_sums[warp] = sum;
    }

    for (int before = 0; before < warp; ++before) {
        sum += warp_sums[before];
    }
    if (i < n) {
        y[i] = sum;
    }
}
