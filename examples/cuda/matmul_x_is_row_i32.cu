/*
C = A B for matrices of int: tiled, with x as the row of C. Correct, but slow: adjacent threads
read adjacent rows, so each request for A or B touches 16 sectors (lines 23 and 24), and the
stores to shared memory have 8-way bank conflicts.

    tegula check examples/cuda/matmul_x_is_row_i32.cu --kernel matmul_x_is_row --grid 2,2 \
        --block 16,16 --arg 'A=i32[21,19]' --arg 'B=i32[19,30]' --arg 'C=out:i32[21,30]' \
        --arg m=21 --arg n=30 --arg k=19 --expect 'C = A @ B'
*/
constexpr int TILE = 16;

__global__ void matmul_x_is_row(const int* A, const int* B, int* C, int m, int n, int k) {
    __shared__ int As[TILE][TILE];
    __shared__ int Bs[TILE][TILE];

    const int row = blockIdx.x * TILE + threadIdx.x;
    const int col = blockIdx.y * TILE + threadIdx.y;

    int sum = 0;
    for (int step = 0; step < k; step += TILE) {
        const int a_col = step + threadIdx.y;
        const int b_row = step + threadIdx.x;
        As[threadIdx.x][threadIdx.y] = row < m && a_col < k ? A[row * k + a_col] : 0;
        Bs[threadIdx.x][threadIdx.y] = b_row < k && col < n ? B[b_row * n + col] : 0;
        __syncthreads();

        for (int i = 0; i < TILE; ++i) {
            sum += As[threadIdx.x][i] * Bs[i][threadIdx.y];
        }
        __syncthreads();
    }
    if (row < m && col < n) {
        C[row * n + col] = sum;
    }
}
