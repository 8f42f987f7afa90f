/*
out = transpose of in, through a tile. Bug: lines 24 and 26 exchange the threads of a block but not
the blocks: each tile is transposed in place. The correct version is ../transpose_padded.cu.

    tegula check examples/cuda/bugs/transpose_same_block.cu --kernel transpose_padded --grid 2,2 \
        --block 32,8 --arg 'in=f32[64,64]' --arg 'out=out:f32[64,64]' --arg rows=64 \
        --arg cols=64
*/
constexpr int TILE = 32;
constexpr int ROWS = 8;  // rows that a block copies at once

__global__ void transpose_padded(const float* in, float* out, int rows, int cols) {
    __shared__ float tile[TILE][TILE + 1];

    const int col = blockIdx.x * TILE + threadIdx.x;
    for (int y = threadIdx.y; y < TILE; y += ROWS) {
        const int row = blockIdx.y * TILE + y;
        if (row < rows && col < cols) {
            tile[y][threadIdx.x] = in[row * cols + col];
        }
    }
    __syncthreads();

    const int out_col = blockIdx.x * TILE + threadIdx.x;
    for (int y = threadIdx.y; y < TILE; y += ROWS) {
        const int out_row = blockIdx.y * TILE + y;
        if (out_row < cols && out_col < rows) {
            const float value = tile[threadIdx.x][y];
            out[out_row * rows + out_col] = value;
        }
    }
}
