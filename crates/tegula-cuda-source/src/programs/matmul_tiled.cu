#include <algorithm>
#include <cassert>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <random>
#include <string>
#include <vector>

#include "cuda_runtime.h"
#include "device_launch_parameters.h"

#define TILE 16
#define CUDA_CHECK(call)                                                             \
    do {                                                                             \
        cudaError_t status_ = (call);                                                \
        if (status_ != cudaSuccess) {                                                \
            std::cerr << __FILE__ << ":" << __LINE__ << ": "                         \
                      << cudaGetErrorString(status_) << std::endl;                   \
            std::exit(1);                                                            \
        }                                                                            \
    } while (0)

// C = A * B with A of M x K and B of K x N.
__global__ void matmul(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C,
                       int M, int N, int K)
{
    __shared__ float As[TILE][TILE];
    __shared__ float Bs[TILE][TILE];
    const int row = blockIdx.y * TILE + threadIdx.y;
    const int col = blockIdx.x * TILE + threadIdx.x;
    float sum = 0.f;
    for (int t = 0; t < (K + TILE - 1) / TILE; ++t) {
        As[threadIdx.y][threadIdx.x] = row < M && t * TILE + threadIdx.x < K ? A[row * K + t * TILE + threadIdx.x] : 0.f;
        Bs[threadIdx.y][threadIdx.x] = col < N && t * TILE + threadIdx.y < K ? B[(t * TILE + threadIdx.y) * N + col] : 0.f;
        __syncthreads();
        for (int k = 0; k < TILE; ++k) sum += As[threadIdx.y][k] * Bs[k][threadIdx.x];
        __syncthreads();
    }
    if (row < M && col < N) C[row * N + col] = sum;
}

static void reference(const std::vector<float>& a, const std::vector<float>& b, std::vector<float>& c, int M, int N, int K)
{
    for (int i = 0; i < M; ++i)
        for (int j = 0; j < N; ++j) {
            double s = 0;
            for (int k = 0; k < K; ++k) s += a[i * K + k] * b[k * N + j];
            c[i * N + j] = static_cast<float>(s);
        }
}

class Timer {
public:
    Timer() : start_(std::chrono::steady_clock::now()) {}
    double milliseconds() const
    {
        return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start_).count();
    }

private:
    std::chrono::steady_clock::time_point start_;
};

int main(int argc, char** argv)
{
    int M = 512;
    const int N = 256, K = 128;
    if (argc > 1) M = std::atoi(argv[1]);
    std::vector<float> a(M * K), b(K * N), c(M * N), expected(M * N);
    std::mt19937 rng(1);
    std::uniform_real_distribution<float> uniform(-1.f, 1.f);
    std::generate(a.begin(), a.end(), [&] { return uniform(rng); });
    std::generate(b.begin(), b.end(), [&]() -> float { return uniform(rng); });
    float *dA, *dB, *dC;
    CUDA_CHECK(cudaMalloc(&dA, a.size() * sizeof(float)));
    CUDA_CHECK(cudaMalloc(&dB, b.size() * sizeof(float)));
    CUDA_CHECK(cudaMalloc(&dC, c.size() * sizeof(float)));
    CUDA_CHECK(cudaMemcpy(dA, a.data(), a.size() * sizeof(float), cudaMemcpyHostToDevice));
    CUDA_CHECK(cudaMemcpy(dB, b.data(), b.size() * sizeof(float), cudaMemcpyHostToDevice));
    dim3 block(TILE, TILE);
    dim3 grid((N + TILE - 1) / TILE, (M + TILE - 1) / TILE);
    Timer timer;
    matmul<<<grid, block>>>(dA, dB, dC, M, N, K);
    CUDA_CHECK(cudaGetLastError());
    CUDA_CHECK(cudaDeviceSynchronize());
    std::cout << "time: " << timer.milliseconds() << " ms\n";
    CUDA_CHECK(cudaMemcpy(c.data(), dC, c.size() * sizeof(float), cudaMemcpyDeviceToHost));
    reference(a, b, expected, M, N, K);
    float worst = 0;
    for (size_t i = 0; i < c.size(); ++i) worst = std::max(worst, std::abs(c[i] - expected[i]));
    std::cout << (worst < 1e-3f ? "PASS" : "FAIL") << std::endl;
    cudaFree(dA);
    cudaFree(dB);
    cudaFree(dC);
    return worst < 1e-3f ? EXIT_SUCCESS : EXIT_FAILURE;
}
