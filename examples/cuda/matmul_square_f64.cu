/*
C = A B for square matrices of double: tiled, with a guard on every load and zero fill, so that n
need not be a multiple of the tile.

    tegula check examples/cuda/matmul_square_f64.cu --kernel matmul_square --grid 3,3 \
        --block 8,8 --arg 'A=f64[21,21]' --arg 'B=f64[21,21]' --arg 'C=out:f64[21,21]' \
        --arg n=21 --expect 'C = A @ B'
*/
constexpr int TILE = 8;

__global__ void matmul_square(const double* A, const double* B, double* C, int n) {
    __shared__ double As[TILE][TILE];
    __shared__ double Bs[TILE][TILE];

    const int row = blockIdx.y * TILE + threadIdx.y;
    const int col = blockIdx.x * TILE + threadIdx.x;

    double sum = 0.0;
    for (int step = 0; step < n; step += TILE) {
        const int a_col = step + threadIdx.x;
        const int b_row = step + threadIdx.y;
        As[threadIdx.y][threadIdx.x] = row < n && a_col < n ? A[row * n + a_col] : 0.0;
        Bs[threadIdx.y][threadIdx.x] = b_row < n && col < n ? B[b_row * n + col] : 0.0;
        __syncthreads();

        for (int i = 0; i < TILE; ++i) {
            sum += As[threadIdx.y][i] * Bs[i][threadIdx.x];
        }
        __syncthreads();
    }
    if (row < n && col < n) {
        C[row * n + col] = sum;
    }
}
