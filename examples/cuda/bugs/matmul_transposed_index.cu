/*
C = A B, tiled. Bug: line 26 reads the tile of A with row and column exchanged. The correct version
is ../matmul_tiled.cu.

    tegula check examples/cuda/bugs/matmul_transposed_index.cu --kernel 'matmul_tiled<16>' \
        --grid 2,2 --block 16,16 --arg 'A=f32[21,19]' --arg 'B=f32[19,30]' \
        --arg 'C=out:f32[21,30]' --arg m=21 --arg n=30 --arg k=19 --expect 'C = A @ B'
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
            sum += As[i][threadIdx.y] * Bs[i][threadIdx.x];
        }
        __syncthreads();
    }
    if (row < m && col < n) {
        C[row * n + col] = sum;
    }
}
