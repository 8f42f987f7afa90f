#include <mma.h>
#include <cuda_fp16.h>
#include <vector>
using namespace nvcuda;

const int WMMA_M = 16;
const int WMMA_N = 16;
const int WMMA_K = 16;

__global__ void wmma_example(half *a, half *b, float *c, int M, int N, int K, float alpha)
{
    int warpM = (blockIdx.x * blockDim.x + threadIdx.x) / warpSize;
    int warpN = (blockIdx.y * blockDim.y + threadIdx.y);
    wmma::fragment<wmma::matrix_a, WMMA_M, WMMA_N, WMMA_K, half, wmma::row_major> a_frag;
    wmma::fragment<wmma::matrix_b, WMMA_M, WMMA_N, WMMA_K, half, wmma::col_major> b_frag;
    wmma::fragment<wmma::accumulator, WMMA_M, WMMA_N, WMMA_K, float> acc;
    wmma::fill_fragment(acc, 0.0f);
    for (int i = 0; i < K; i += WMMA_K) {
        wmma::load_matrix_sync(a_frag, a + warpM * WMMA_M * K + i, K);
        wmma::load_matrix_sync(b_frag, b + warpN * WMMA_N * K + i, K);
        wmma::mma_sync(acc, a_frag, b_frag, acc);
    }
    for (int i = 0; i < acc.num_elements; i++) acc.x[i] *= alpha;
    wmma::store_matrix_sync(c + warpM * WMMA_M * N + warpN * WMMA_N, acc, N, wmma::mem_row_major);
}

int main()
{
    const int M = 64, N = 64, K = 64;
    dim3 gridDim, blockDim;
    blockDim.x = 128;
    blockDim.y = 4;
    gridDim.x = (M + (WMMA_M * blockDim.x / 32 - 1)) / (WMMA_M * blockDim.x / 32);
    gridDim.y = (N + WMMA_N * blockDim.y - 1) / (WMMA_N * blockDim.y);
    std::vector<float> c(M * N);
    wmma_example<<<gridDim, blockDim>>>(nullptr, nullptr, nullptr, M, N, K, 2.0f);
    return 0;
}
