/*
C = A B, tiled, for multiples of the tile. Bug: launched for n = 21 with n / 16 = 1 block along x
and y. The last rows and columns of C are never stored, and line 20 drops the last products. The
correct version is ../matmul_floor.cu.

    tegula check examples/cuda/bugs/matmul_floor_launch.cu --kernel matmul_floor --grid 1,1 \
        --block 16,16 --arg 'A=f32[21,21]' --arg 'B=f32[21,21]' --arg 'C=out:f32[21,21]' \
        --arg n=21 --expect 'C = A @ B'
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
