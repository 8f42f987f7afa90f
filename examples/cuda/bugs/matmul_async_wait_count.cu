/*
C = A B with cp.async. Bug: the last step starts no copy and, unlike the others, commits no group
(line 42), so that line 44 leaves the last tile in flight. The correct version is
../matmul_async.cu.

    tegula check examples/cuda/bugs/matmul_async_wait_count.cu --kernel matmul_async --grid 2,2 \
        --block 16,16 --arg 'A=f32[21,35]' --arg 'B=f32[35,20]' --arg 'C=out:f32[21,20]' \
        --arg m=21 --arg n=20 --arg k=35
*/
#include <cuda_pipeline.h>

constexpr int TILE = 16;

__global__ void matmul_async(const float* A, const float* B, float* C, int m, int n, int k) {
    __shared__ float As[2][TILE][TILE];
    __shared__ float Bs[2][TILE][TILE];

    const int row = blockIdx.y * TILE + threadIdx.y;
    const int col = blockIdx.x * TILE + threadIdx.x;
    const int steps = (k + TILE - 1) / TILE;

    // Issues the copies of one step as one group.
    const auto start = [&](int step) {
        const int a_col = step * TILE + threadIdx.x;
        const int b_row = step * TILE + threadIdx.y;
        const bool a_inside = row < m && a_col < k;
        const bool b_inside = b_row < k && col < n;
        const float* a = a_inside ? &A[row * k + a_col] : A;
        const float* b = b_inside ? &B[b_row * n + col] : B;
        float* a_to = &As[step % 2][threadIdx.y][threadIdx.x];
        float* b_to = &Bs[step % 2][threadIdx.y][threadIdx.x];
        __pipeline_memcpy_async(a_to, a, sizeof(float), a_inside ? 0 : sizeof(float));
        __pipeline_memcpy_async(b_to, b, sizeof(float), b_inside ? 0 : sizeof(float));
    };

    float sum = 0.0f;
    start(0);
    __pipeline_commit();
    for (int step = 0; step < steps; ++step) {
        if (step + 1 < steps) {
            start(step + 1);
            __pipeline_commit();
        }
        __pipeline_wait_prior(1);
        __syncthreads();

        for (int i = 0; i < TILE; ++i) {
            sum += As[step % 2][threadIdx.y][i] * Bs[step % 2][i][threadIdx.x];
        }
        __syncthreads();
    }
    if (row < m && col < n) {
        C[row * n + col] = sum;
    }
}
