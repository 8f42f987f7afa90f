/*
C = A B, tiled. Bug: the launch rounds the grid and the steps up for an n that is not a multiple of
the tile, but nothing guards the accesses of lines 21, 22 and 30. The correct version is
../matmul_floor.cu.

    tegula check examples/cuda/bugs/matmul_no_guards.cu --kernel matmul_floor --grid 2,2 \
        --block 16,16 --arg 'A=f32[21,21]' --arg 'B=f32[21,21]' --arg 'C=out:f32[21,21]' \
        --arg n=21
*/
constexpr int TILE = 16;

__global__ void matmul_floor(const float* A, const float* B, float* C, int n) {
    __shared__ float As[TILE][TILE];
    __shared__ float Bs[TILE][TILE];

    const int row = blockIdx.y * TILE + threadIdx.y;
    const int col = blockIdx.x * TILE + threadIdx.x;

    float sum = 0.0f;
    for (int step = 0; step < (n + TILE - 1) / TILE; ++step) {
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
