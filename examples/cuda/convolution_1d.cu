/*
A convolution in one dimension with 7 weights in constant memory; elements outside count as 0. Each
block copies its elements and RADIUS more on each side to shared memory.

    tegula check examples/cuda/convolution_1d.cu --kernel convolution_1d --grid 4 --block 64 \
        --arg 'x=f32[250]' --arg 'y=out:f32[250]' --arg n=250 --arg 'weights=f32[7]'
*/
#include <cmath>
#include <cstdio>

constexpr int RADIUS = 3;
constexpr int BLOCK = 64;

__constant__ float weights[2 * RADIUS + 1];

__global__ void convolution_1d(const float* x, float* y, int n) {
    __shared__ float window[BLOCK + 2 * RADIUS];

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

// Host program: compares with a loop on the CPU.
int main() {
    const int n = 100000;
    const float host_weights[2 * RADIUS + 1] = {-1.0f, 2.0f, 0.5f, 4.0f, 0.25f, -3.0f, 1.0f};
    float *x, *y;
    cudaMallocManaged(&x, n * sizeof(float));
    cudaMallocManaged(&y, n * sizeof(float));
    for (int i = 0; i < n; ++i) x[i] = i % 100 - 50;
    cudaMemcpyToSymbol(weights, host_weights, sizeof(host_weights));

    convolution_1d<<<(n + BLOCK - 1) / BLOCK, BLOCK>>>(x, y, n);
    const cudaError_t status = cudaDeviceSynchronize();
    if (status != cudaSuccess) {
        std::printf("%s\n", cudaGetErrorString(status));
        return 1;
    }

    int wrong = 0;
    for (int i = 0; i < n; ++i) {
        float sum = 0.0f;
        for (int j = 0; j < 2 * RADIUS + 1; ++j) {
            const int at = i + j - RADIUS;
            sum += at >= 0 && at < n ? host_weights[j] * x[at] : 0.0f;
        }
        wrong += !(std::fabs(y[i] - sum) <= 1e-3f);
    }
    std::printf("%d of %d elements are wrong\n", wrong, n);
    return wrong != 0;
}
