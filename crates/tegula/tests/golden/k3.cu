// tiled_i32_16_x_row
// C = alpha A B + beta C, i32 elements, tiled_i32_16_x_row
//
// Grid: ((c_rows + 15) / 16, min((c_cols + 15) / 16, 65535), min(c_batches, 65535)) blocks
// Block: (16, 16, 1) threads, 2048 bytes of shared memory
//
// a[batch * a_batch_stride + row * lda + col]: i32, is read
// b[batch * b_batch_stride + row * ldb + col]: i32, is read
// c[batch * c_batch_stride + row * ldc + col]: i32, is read and written
// Strides count elements.

// Modulo 2^32: an int must not overflow, an unsigned may.
static __device__ int wrapping_mul(int a, int b) { return int(unsigned(a) * unsigned(b)); }
static __device__ int wrapping_mul_add(int a, int b, int c) { return int(unsigned(a) * unsigned(b) + unsigned(c)); }

extern "C" __global__ void __launch_bounds__(256, 8)
tiled_i32_16_x_row(
    const int* __restrict__ a, unsigned a_cols, long long a_batch_stride, long long lda,
    const int* __restrict__ b, long long b_batch_stride, long long ldb,
    int* c, unsigned c_batches, unsigned c_rows, unsigned c_cols, long long c_batch_stride, long long ldc,
    int alpha, int beta) {
    __shared__ int tile_a[16][16];
    __shared__ int tile_b[16][16];

    const unsigned tx = threadIdx.x;
    const unsigned ty = threadIdx.y;
    for (unsigned batch = blockIdx.z; batch < c_batches; batch += gridDim.z) {
        for (unsigned block_col = blockIdx.y; block_col < (c_cols + 15) / 16; block_col += gridDim.y) {
            const unsigned row = blockIdx.x * 16 + tx;
            const unsigned col = block_col * 16 + ty;
            int sum = 0;
            for (unsigned step = 0; step < (a_cols + 15) / 16; ++step) {
                const unsigned a_col = step * 16 + ty;
                const unsigned b_row = step * 16 + tx;
                tile_a[tx][ty] =
                    row < c_rows && a_col < a_cols ? a[batch * a_batch_stride + row * lda + a_col] : 0;
                tile_b[tx][ty] =
                    b_row < a_cols && col < c_cols ? b[batch * b_batch_stride + b_row * ldb + col] : 0;
                __syncthreads();
                #pragma unroll
                for (unsigned p = 0; p < 16; ++p) {
                    sum = wrapping_mul_add(tile_a[tx][p], tile_b[p][ty], sum);
                }
                __syncthreads();
            }
            if (row < c_rows && col < c_cols) {
                const int scaled = wrapping_mul(alpha, sum);
                if (beta == 0) {
                    c[batch * c_batch_stride + row * ldc + col] = scaled;
                } else {
                    c[batch * c_batch_stride + row * ldc + col] =
                        wrapping_mul_add(beta, c[batch * c_batch_stride + row * ldc + col], scaled);
                }
            }
        }
    }
}
