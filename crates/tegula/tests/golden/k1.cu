// naive_f32_16
// C = alpha A B + beta C, f32 elements, naive_f32_16
//
// Grid: ((c_cols + 15) / 16, min((c_rows + 15) / 16, 65535), min(c_batches, 65535)) blocks
// Block: (16, 16, 1) threads, 0 bytes of shared memory
//
// a[batch * a_batch_stride + row * lda + col]: f32, is read
// b[batch * b_batch_stride + row * ldb + col]: f32, is read
// c[batch * c_batch_stride + row * ldc + col]: f32, is read and written
// Strides count elements.
// fma(a, b, c) rounds a * b + c once. Compile without --use_fast_math, which rounds otherwise.

extern "C" __global__ void __launch_bounds__(256, 8)
naive_f32_16(
    const float* __restrict__ a, unsigned a_cols, long long a_batch_stride, long long lda,
    const float* __restrict__ b, long long b_batch_stride, long long ldb,
    float* c, unsigned c_batches, unsigned c_rows, unsigned c_cols, long long c_batch_stride, long long ldc,
    float alpha, float beta) {
    for (unsigned batch = blockIdx.z; batch < c_batches; batch += gridDim.z) {
        for (unsigned block_row = blockIdx.y; block_row < (c_rows + 15) / 16; block_row += gridDim.y) {
            const unsigned col = blockIdx.x * 16 + threadIdx.x;
            const unsigned row = block_row * 16 + threadIdx.y;
            if (row < c_rows && col < c_cols) {
                float sum = 0.0f;
                for (unsigned p = 0; p < a_cols; ++p) {
                    sum =
                        fmaf(a[batch * a_batch_stride + row * lda + p], b[batch * b_batch_stride + p * ldb + col], sum);
                }
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
