/*
C = A B on Tensor Cores. Bug: line 22 declares B as column-major, but its rows are contiguous: every
tile of B is read transposed. The correct version is ../matmul_wmma.cu.

    tegula check examples/cuda/bugs/matmul_wmma_layout.cu --kernel matmul_wmma --grid 3,3 \
        --block 32 --arg 'A=f16[48,48]' --arg 'B=f16[48,48]' --arg 'C=out:f32[48,48]' --arg m=48 \
        --arg n=48 --arg k=48 --expect 'C = A @ B'
*/
#include <mma.h>

using namespace nvcuda;

constexpr int TILE = 16;

__global__ void matmul_wmma(const half* A, const half* B, float* C, int m, int n, int k) {
    const int row = blockIdx.y * TILE;
    const int col = blockIdx.x * TILE;
    if (row >= m || col >= n) {
        return;
    }
    wmma::fragment<wmma::matrix_a, TILE, TILE, TILE, half, wmma::row_major> a;
    wmma::fragment<wmma::matrix_b, TILE, TILE, TILE, half, wmma::col_major> b;
    wmma::fragment<wmma::accumulator, TILE, TILE, TILE, float> sum;

    wmma::fill_fragment(sum, 0.0f);
    for (int step = 0; step < k; step += TILE) {
        wmma::load_matrix_sync(a, A + row * k + step, k);
        wmma::load_matrix_sync(b, B + step * n + col, n);
        wmma::mma_sync(sum, a, b, sum);
    }
    wmma::store_matrix_sync(C + row * n + col, sum, n, wmma::mem_row_major);
}
