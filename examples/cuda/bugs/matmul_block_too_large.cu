/*
C = A B, tiled. Bug: launched with blocks of 32x32 threads for tiles of 16x16, so that lines 22 and
23 store past the ends of both arrays, and past the ends of their rows into the next ones; line 27
reads past the end of Bs. The correct version is ../matmul_tiled.cu.

    tegula check examples/cuda/bugs/matmul_block_too_large.cu --kernel 'matmul_tiled<16>' \
        --grid 1,1 --block 32,32 --arg 'A=f32[20,19]' --arg 'B=f32[19,30]' \
        --arg 'C=out:f32[20,30]' --arg m=20 --arg n=30 --arg k=19
*/
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
