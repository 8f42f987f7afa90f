/*
A convolution in one dimension. Bug: the window of line 16 is one element too small: the last one is
out of bounds where it is stored (line 21) and read (line 29). The correct version is
../convolution_1d.cu.

    tegula check examples/cuda/bugs/convolution_window_too_small.cu --kernel convolution_1d \
        --grid 4 --block 64 --arg 'x=f32[250]' --arg 'y=out:f32[250]' --arg n=250 \
        --arg 'weights=f32[7]'
*/
constexpr int RADIUS = 3;
constexpr int BLOCK = 64;

__constant__ float weights[2 * RADIUS + 1];

__global__ void convolution_1d(const float* x, float* y, int n) {
    __shared__ float window[BLOCK + 2 * RADIUS - 1];

    const int first = blockIdx.x * BLOCK - RADIUS;
    for (int j = threadIdx.x; j < BLOCK + 2 * RADIUS; j += BLOCK) {
        const int i = first + j;
        window[j] = i >= 0 && i < n ? x[i] : 0.0f;
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
