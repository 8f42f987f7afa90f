// tiled_f32_32
// C = alpha A B + beta C, f32 elements, tiled_f32_32
//
// Grid: ((c_cols + 31) / 32, min((c_rows + 31) / 32, 65535), min(c_batches, 65535)) blocks
// Block: (32, 32, 1) threads, 8192 bytes of shared memory
//
// a[batch * a_batch_stride + row * lda + col]: f32, is read
// b[batch * b_batch_stride + row * ldb + col]: f32, is read
// c[batch * c_batch_stride + row * ldc + col]: f32, is read and written
// Strides count elements.
// fma(a, b, c) rounds a * b + c once. Compile without --use_fast_math, which rounds otherwise.

extern "C" __global__ void __launch_bounds__(1024, 2)
tiled_f32_32(
    const float* __restrict__ a, unsigned a_cols, long long a_batch_stride, long long lda,
    const float* __restrict__ b, long long b_batch_stride, long long ldb,
    float* c, unsigned c_batches, unsigned c_rows, unsigned c_cols, long long c_batch_stride, long long ldc,
    float alpha, float beta) {
    __shared__ float tile_a[32][32];
    __shared__ float tile_b[32][32];

    const unsigned tx = threadIdx.x;
    const unsigned ty = threadIdx.y;
    for (unsigned batch = blockIdx.z; batch < c_batches; batch += gridDim.z) {
        for (unsigned block_row = blockIdx.y; block_row < (c_rows + 31) / 32; block_row += gridDim.y) {
            const unsigned row = block_row * 32 + ty;
            const unsigned col = blockIdx.x * 32 + tx;
            float sum = 0.0f;
            for (unsigned step = 0; step < (a_cols + 31) / 32; ++step) {
                const unsigned a_col = step * 32 + tx;
                const unsigned b_row = step * 32 + ty;
                tile_a[ty][tx] =
                    row < c_rows && a_col < a_cols ? a[batch * a_batch_stride + row * lda + a_col] : 0.0f;
                tile_b[ty][tx] =
                    b_row < a_cols && col < c_cols ? b[batch * b_batch_stride + b_row * ldb + col] : 0.0f;
                __syncthreads();
                #pragma unroll
                for (unsigned p = 0; p < 32; ++p) {
                    sum = fmaf(tile_a[ty][p], tile_b[p][tx], sum);
                }
                __syncthreads();
            }
            if (row < c_rows && col < c_cols) {
                const float scaled = alpha * sum;
                if (beta == 0.0f) {
                    c[batch * c_batch_stride + row * ldc + col] = scaled;
                } else {
                    c[batch * c_batch_stride + row * ldc + col] =
                        fmaf(beta, c[batch * c_batch_stride + row * ldc + col], scaled);
                }
            }
        }
    }
}
