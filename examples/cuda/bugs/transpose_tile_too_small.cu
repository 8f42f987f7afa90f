/*
out = transpose of in, through a tile. Bug: the tile of line 14 has one row too few, so that its
last row is out of bounds where it is stored (line 20) and read (line 29). The correct version is
../transpose_padded.cu.

    tegula check examples/cuda/bugs/transpose_tile_too_small.cu --kernel transpose_padded \
        --grid 2,2 --block 32,8 --arg 'in=f32[64,64]' --arg 'out=out:f32[64,64]' --arg rows=64 \
        --arg cols=64
*/
constexpr int TILE = 32;
constexpr int ROWS = 8;  // rows that a block copies at once

__global__ void transpose_padded(const float* in, float* out, int rows, int cols) {
    __shared__ float tile[TILE - 1][TILE + 1];

    const int col = blockIdx.x * TILE + threadIdx.x;
    for (int y = threadIdx.y; y < TILE; y += ROWS) {
        const int row = blockIdx.y * TILE + y;
        if (row < rows && col < cols) {
            tile[y][threadIdx.x] = in[row * cols + col];
        }
    }
    __syncthreads();

    const int out_col = blockIdx.y * TILE + threadIdx.x;
    for (int y = threadIdx.y; y < TILE; y += ROWS) {
        const int out_row = blockIdx.x * TILE + y;
        if (out_row < cols && out_col < rows) {
            const float value = tile[threadIdx.x][y];
            out[out_row * rows + out_col] = value;
        }
    }
}
