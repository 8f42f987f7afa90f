/*
out = transpose of in, through a tile whose rows are padded by one float: the elements of a column
are in 32 different banks, so neither step has a bank conflict.

    tegula check examples/cuda/transpose_padded.cu --kernel transpose_padded --grid 3,2 \
        --block 32,8 --arg 'in=f32[45,70]' --arg 'out=out:f32[70,45]' --arg rows=45 \
        --arg cols=70
*/
#include <cstdio>

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

    const int out_col = blockIdx.y * TILE + threadIdx.x;
    for (int y = threadIdx.y; y < TILE; y += ROWS) {
        const int out_row = blockIdx.x * TILE + y;
        if (out_row < cols && out_col < rows) {
            const float value = tile[threadIdx.x][y];
            out[out_row * rows + out_col] = value;
        }
    }
}

// Host program: compares with a loop on the CPU.
int main() {
    const int rows = 1000, cols = 700;
    float *in, *out;
    cudaMallocManaged(&in, rows * cols * sizeof(float));
    cudaMallocManaged(&out, rows * cols * sizeof(float));
    for (int i = 0; i < rows * cols; ++i) in[i] = i;

    const dim3 grid((cols + TILE - 1) / TILE, (rows + TILE - 1) / TILE);
    transpose_padded<<<grid, dim3(TILE, ROWS)>>>(in, out, rows, cols);
    const cudaError_t status = cudaDeviceSynchronize();
    if (status != cudaSuccess) {
        std::printf("%s\n", cudaGetErrorString(status));
        return 1;
    }

    int wrong = 0;
    for (int row = 0; row < rows; ++row) {
        for (int col = 0; col < cols; ++col) {
            wrong += out[col * rows + row] != in[row * cols + col];
        }
    }
    std::printf("%d of %d elements are wrong\n", wrong, rows * cols);
    return wrong != 0;
}
