/*
C = A B, one thread an element of C: the baseline that tiling is measured against. Each thread reads
a row of A and a column of B from global memory, 2 k elements in all.

    tegula check examples/cuda/matmul_naive.cu --kernel matmul_naive --grid 2,3 --block 16,16 \
        --arg 'A=f32[37,23]' --arg 'B=f32[23,29]' --arg 'C=out:f32[37,29]' --arg m=37 --arg n=29 \
        --arg k=23 --expect 'C = A @ B'
*/
#include <cmath>
#include <cstdio>

__global__ void matmul_naive(const float* A, const float* B, float* C, int m, int n, int k) {
    const int row = blockIdx.y * blockDim.y + threadIdx.y;
    const int col = blockIdx.x * blockDim.x + threadIdx.x;
    if (row < m && col < n) {
        float sum = 0.0f;
        for (int i = 0; i < k; ++i) {
            sum += A[row * k + i] * B[i * n + col];
        }
        C[row * n + col] = sum;
    }
}

// Host program: compares with a loop on the CPU.
int main() {
    const int m = 100, n = 50, k = 70;
    float *A, *B, *C;
    cudaMallocManaged(&A, m * k * sizeof(float));
    cudaMallocManaged(&B, k * n * sizeof(float));
    cudaMallocManaged(&C, m * n * sizeof(float));
    for (int i = 0; i < m * k; ++i) A[i] = i % 13 - 6;
    for (int i = 0; i < k * n; ++i) B[i] = i % 7 - 3;

    const dim3 block(16, 16);
    const dim3 grid((n + block.x - 1) / block.x, (m + block.y - 1) / block.y);
    matmul_naive<<<grid, block>>>(A, B, C, m, n, k);
    const cudaError_t status = cudaDeviceSynchronize();
    if (status != cudaSuccess) {
        std::printf("%s\n", cudaGetErrorString(status));
        return 1;
    }

    int wrong = 0;
    for (int row = 0; row < m; ++row) {
        for (int col = 0; col < n; ++col) {
            float sum = 0.0f;
            for (int i = 0; i < k; ++i) sum += A[row * k + i] * B[i * n + col];
            wrong += !(std::fabs(C[row * n + col] - sum) <= 1e-4f);
        }
    }
    std::printf("%d of %d elements are wrong\n", wrong, m * n);
    return wrong != 0;
}
