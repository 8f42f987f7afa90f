/*
C = A B for 4x4 matrices in 2x2 tiles: small enough to follow every thread by hand. The barrier
inside the inner loop (line 27) is one too many, correct but wasteful: a block waits (TILE + 1) * n
/ TILE = 6 times, where 2 * n / TILE = 4 would do.

    tegula check examples/cuda/matmul_teaching_2x2.cu --kernel matmul_teaching --grid 2,2 \
        --block 2,2 --arg 'A=f32[4,4]' --arg 'B=f32[4,4]' --arg 'C=out:f32[4,4]' --arg n=4 \
        --expect 'C = A @ B'
*/
constexpr int TILE = 2;

__global__ void matmul_teaching(const float* A, const float* B, float* C, int n) {
    __shared__ float As[TILE][TILE];
    __shared__ float Bs[TILE][TILE];

    const int row = blockIdx.y * TILE + threadIdx.y;
    const int col = blockIdx.x * TILE + threadIdx.x;

    float sum = 0.0f;
    for (int step = 0; step < n / TILE; ++step) {
        As[threadIdx.y][threadIdx.x] = A[row * n + step * TILE + threadIdx.x];
        Bs[threadIdx.y][threadIdx.x] = B[(step * TILE + threadIdx.y) * n + col];
        __syncthreads();

        for (int i = 0; i < TILE; ++i) {
            sum += As[threadIdx.y][i] * Bs[i][threadIdx.x];
            __syncthreads();
        }
    }
    C[row * n + col] = sum;
}
