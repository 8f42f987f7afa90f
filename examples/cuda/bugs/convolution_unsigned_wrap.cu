/*
A convolution in one dimension that repeats the first and last elements outside. Bug: the index of
line 19 is unsigned, so that in the first block it wraps to 4294967293 instead of becoming negative,
and line 20 clamps it to the last element. The correct version is ../convolution_1d.cu.

    tegula check examples/cuda/bugs/convolution_unsigned_wrap.cu --kernel convolution_1d \
        --grid 4 --block 64 --arg 'x=f32[250]' --arg 'y=out:f32[250]' --arg n=250 \
        --arg 'weights=f32[7]'
*/
constexpr int RADIUS = 3;
constexpr int BLOCK = 64;

__constant__ float weights[2 * RADIUS + 1];

__global__ void convolution_1d(const float* x, float* y, int n) {
    __shared__ float window[BLOCK + 2 * RADIUS];

    for (int j = threadIdx.x; j < BLOCK + 2 * RADIUS; j += BLOCK) {
        const unsigned int i = blockIdx.x * BLOCK + j - RADIUS;
        window[j] = x[min(max(i, 0u), n - 1u)];
    }
    __syncthreads();

    const int i = blockIdx.x * BLOCK + threadIdx.x;
    if (i < n) {
        float sum = 0.0f;
        for (int j = 0; j < 2 * RADIUS + 1; ++j) {
            sum += weights[j] * window[threadIdx.x + j];
        }
        y[i] = sum;
    }
}
