/*
A five-point stencil. Bug: no barrier between the stores to the tile (line 22) and the loads of
neighbors (lines 33 and 34). The correct version is ../stencil_2d.cu.

    tegula check examples/cuda/bugs/stencil_missing_barrier.cu --kernel stencil --grid 4,3 \
        --block 8,8 --arg 'in=f32[21,30]' --arg 'out=out:f32[21,30]' --arg rows=21 --arg cols=30
*/
constexpr int TILE = 8;

__device__ float element(const float* in, int row, int col, int rows, int cols) {
    const bool inside = row >= 0 && row < rows && col >= 0 && col < cols;
    return inside ? in[row * cols + col] : 0.0f;
}

__global__ void stencil(const float* in, float* out, int rows, int cols) {
    __shared__ float tile[TILE + 2][TILE + 2];

    const int row = blockIdx.y * TILE + threadIdx.y;
    const int col = blockIdx.x * TILE + threadIdx.x;
    const int y = threadIdx.y + 1;
    const int x = threadIdx.x + 1;
    tile[y][x] = element(in, row, col, rows, cols);
    if (threadIdx.y == 0) {
        tile[0][x] = element(in, row - 1, col, rows, cols);
        tile[TILE + 1][x] = element(in, row + TILE, col, rows, cols);
    }
    if (threadIdx.x == 0) {
        tile[y][0] = element(in, row, col - 1, rows, cols);
        tile[y][TILE + 1] = element(in, row, col + TILE, rows, cols);
    }

    if (row < rows && col < cols) {
        const float vertical = tile[y - 1][x] + tile[y][x] + tile[y + 1][x];
        const float horizontal = tile[y][x - 1] + tile[y][x + 1];
        out[row * cols + col] = (vertical + horizontal) / 5.0f;
    }
}
