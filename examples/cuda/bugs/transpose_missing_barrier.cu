/*
out = transpose of in, through a tile. Bug: no barrier between the stores to the tile (line 19) and
the loads by other threads (line 27). The correct version is ../transpose_padded.cu.

    tegula check examples/cuda/bugs/transpose_missing_barrier.cu --kernel transpose_padded \
        --grid 3,2 --block 32,8 --arg 'in=f32[45,70]' --arg 'out=out:f32[70,45]' --arg rows=45 \
        --arg cols=70
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

    const int out_col = blockIdx.y * TILE + threadIdx.x;
    for (int y = threadIdx.y; y < TILE; y += ROWS) {
        const int out_row = blockIdx.x * TILE + y;
        if (out_row < cols && out_col < rows) {
            const float value = tile[threadIdx.x][y];
            out[out_row * rows + out_col] = value;
        }
    }
}
