/*
The softmax of each row, one warp a row. The maximum and the sum of exponentials are found in one
pass ("online"): when the maximum grows, the sum so far is scaled down.

    tegula check examples/cuda/softmax.cu --kernel softmax --grid 4 --block 32,4 \
        --arg 'x=f32[13,45]' --arg 'y=out:f32[13,45]' --arg rows=13 --arg cols=45
*/
#include <cmath>
#include <cstdio>

constexpr float LOWEST = -3.4e38f;

__global__ void softmax(const float* x, float* y, int rows, int cols) {
    const int row = blockIdx.x * blockDim.y + threadIdx.y;
    const int lane = threadIdx.x;
    if (row >= rows) {
        return;
    }
    x += row * cols;
    y += row * cols;

    float largest = LOWEST;
    float sum = 0.0f;
    for (int col = lane; col < cols; col += 32) {
        const float larger = fmaxf(largest, x[col]);
        sum = sum * expf(largest - larger) + expf(x[col] - larger);
        largest = larger;
    }
    for (int mask = 16; mask > 0; mask /= 2) {
        const float other_largest = __shfl_xor_sync(0xffffffffu, largest, mask);
        const float other_sum = __shfl_xor_sync(0xffffffffu, sum, mask);
        const float larger = fmaxf(largest, other_largest);
        sum = sum * expf(largest - larger) + other_sum * expf(other_largest - larger);
        largest = larger;
    }
    for (int col = lane; col < cols; col += 32) {
        y[col] = expf(x[col] - largest) / sum;
    }
}

// Host program: each row must sum to 1, and be largest where x is.
int main() {
    const int rows = 100, cols = 1000;
    float *x, *y;
    cudaMallocManaged(&x, rows * cols * sizeof(float));
    cudaMallocManaged(&y, rows * cols * sizeof(float));
    for (int i = 0; i < rows * cols; ++i) x[i] = (i * 7919u >> 3) % 997 * 0.01f;

    softmax<<<(rows + 3) / 4, dim3(32, 4)>>>(x, y, rows, cols);
    const cudaError_t status = cudaDeviceSynchronize();
    if (status != cudaSuccess) {
        std::printf("%s\n", cudaGetErrorString(status));
        return 1;
    }

    int wrong = 0;
    for (int row = 0; row < rows; ++row) {
        double sum = 0.0;
        for (int col = 0; col < cols; ++col) sum += std::exp(double(x[row * cols + col]));
        for (int col = 0; col < cols; ++col) {
            const double want = std::exp(double(x[row * cols + col])) / sum;
            wrong += !(std::fabs(y[row * cols + col] - want) <= 1e-5 * want);
        }
    }
    std::printf("%d of %d elements are wrong\n", wrong, rows * cols);
    return wrong != 0;
}
