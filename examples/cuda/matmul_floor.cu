/*
C = A B for square matrices whose size is a multiple of the tile: no guards, and the number of steps
is rounded down, as is the grid. See bugs/matmul_floor_launch.cu for any other size.

    tegula check examples/cuda/matmul_floor.cu --kernel matmul_floor --grid 2,2 --block 16,16 \
        --arg 'A=f32[32,32]' --arg 'B=f32[32,32]' --arg 'C=out:f32[32,32]' --arg n=32 \
        --expect 'C = A @ B'
*/
constexpr int TILE = 16;

__global__ void matmul_floor(const float* A, const float* B, float* C, int n) {
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
        }
        __syncthreads();
    }
    C[row * n + col] = sum;
}
