/*
C = A B with square tiles in shared memory; the tile size is a template parameter. The form to start
from: any m, n, k, and x is the column, so that warps read whole sectors.

    tegula check examples/cuda/matmul_tiled.cu --kernel 'matmul_tiled<16>' --grid 2,2 \
        --block 16,16 --arg 'A=f32[21,19]' --arg 'B=f32[19,30]' --arg 'C=out:f32[21,30]' \
        --arg m=21 --arg n=30 --arg k=19 --expect 'C = A @ B'
*/
#include <cmath>
#include <cstdio>

template <int TILE>
__global__ void matmul_tiled(const float* A, const float* B, float* C, int m, int n, int k) {
    __shared__ float As[TILE][TILE];
    __shared__ float Bs[TILE][TILE];

    const int row = blockIdx.y * TILE + threadIdx.y;
    const int col = blockIdx.x * TILE + threadIdx.x;

    float sum = 0.0f;
    for (int step = 0; step < k; step += TILE) {
        const int a_col = step + threadIdx.x;
        const int b_row = step + threadIdx.y;
        As[threadIdx.y][threadIdx.x] = row < m && a_col < k ? A[row * k + a_col] : 0.0f;
        Bs[threadIdx.y][threadIdx.x] = b_row < k && col < n ? B[b_row * n + col] : 0.0f;
        __syncthreads();

        for (int i = 0; i < TILE; ++i) {
            sum += As[threadIdx.y][i] * Bs[i][threadIdx.x];
        }
        __syncthreads();
    }
    if (row < m && col < n) {
        C[row * n + col] = sum;
    }
}

// Host program: compares both tile sizes with a loop on the CPU.
template <int TILE>
int count_wrong(const float* A, const float* B, float* C, int m, int n, int k) {
    const dim3 block(TILE, TILE);
    const dim3 grid((n + TILE - 1) / TILE, (m + TILE - 1) / TILE);
    matmul_tiled<TILE><<<grid, block>>>(A, B, C, m, n, k);
    const cudaError_t status = cudaDeviceSynchronize();
    if (status != cudaSuccess) {
        std::printf("%s\n", cudaGetErrorString(status));
        return m * n;
    }
    int wrong = 0;
    for (int row = 0; row < m; ++row) {
        for (int col = 0; col < n; ++col) {
            float sum = 0.0f;
            for (int i = 0; i < k; ++i) sum += A[row * k + i] * B[i * n + col];
            wrong += !(std::fabs(C[row * n + col] - sum) <= 1e-4f);
        }
    }
    std::printf("tile %d: %d of %d elements are wrong\n", TILE, wrong, m * n);
    return wrong;
}

int main() {
    const int m = 100, n = 50, k = 70;
    float *A, *B, *C;
    cudaMallocManaged(&A, m * k * sizeof(float));
    cudaMallocManaged(&B, k * n * sizeof(float));
    cudaMallocManaged(&C, m * n * sizeof(float));
    for (int i = 0; i < m * k; ++i) A[i] = i % 13 - 6;
    for (int i = 0; i < k * n; ++i) B[i] = i % 7 - 3;
    return count_wrong<16>(A, B, C, m, n, k) + count_wrong<32>(A, B, C, m, n, k) != 0;
}
