/*
C = A B with register tiles. Bug: launched with k = 18 and n = 42, whose rows are not multiples of
16 bytes: the float4 accesses of lines 16 and 59 are misaligned, and some pass the ends of rows. The
correct version is ../matmul_register.cu.

    tegula check examples/cuda/bugs/matmul_register_ragged.cu --kernel matmul_register \
        --grid 2,2 --block 8,8 --arg 'A=f32[50,18]' --arg 'B=f32[18,42]' \
        --arg 'C=out:f32[50,42]' --arg m=50 --arg n=42 --arg k=18
*/
constexpr int TILE = 32;  // rows and columns of C per block
constexpr int DEPTH = 8;  // extent of a tile along k
constexpr int MICRO = 4;  // rows and columns of C per thread
constexpr int PAD = 4;    // padding of a row of A's tile, in floats

__device__ float4 load4(const float* from, bool inside) {
    return inside ? *reinterpret_cast<const float4*>(from) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
}

__global__ void matmul_register(const float* A, const float* B, float* C, int m, int n, int k) {
    __shared__ __align__(16) float As[DEPTH][TILE + PAD];
    __shared__ __align__(16) float Bs[DEPTH][TILE];

    const int tid = threadIdx.y * blockDim.x + threadIdx.x;
    const int a_row = tid / 2, a_col = tid % 2 * 4;  // this thread's float4 of A's tile
    const int b_row = tid / 8, b_col = tid % 8 * 4;  // and of B's
    const int row = blockIdx.y * TILE, col = blockIdx.x * TILE;

    float sum[MICRO][MICRO] = {};
    for (int step = 0; step < k; step += DEPTH) {
        const bool a_inside = row + a_row < m && step + a_col < k;
        const float4 a = load4(&A[(row + a_row) * k + step + a_col], a_inside);
        As[a_col + 0][a_row] = a.x;
        As[a_col + 1][a_row] = a.y;
        As[a_col + 2][a_row] = a.z;
        As[a_col + 3][a_row] = a.w;
        const bool b_inside = step + b_row < k && col + b_col < n;
        const float4 b = load4(&B[(step + b_row) * n + col + b_col], b_inside);
        *reinterpret_cast<float4*>(&Bs[b_row][b_col]) = b;
        __syncthreads();

        for (int i = 0; i < DEPTH; ++i) {
            const float4 x = *reinterpret_cast<const float4*>(&As[i][MICRO * threadIdx.y]);
            const float4 y = *reinterpret_cast<const float4*>(&Bs[i][MICRO * threadIdx.x]);
            const float xs[MICRO] = {x.x, x.y, x.z, x.w};
            const float ys[MICRO] = {y.x, y.y, y.z, y.w};
            for (int r = 0; r < MICRO; ++r) {
                for (int c = 0; c < MICRO; ++c) {
                    sum[r][c] += xs[r] * ys[c];
                }
            }
        }
        __syncthreads();
    }

    const int first_row = row + MICRO * threadIdx.y, first_col = col + MICRO * threadIdx.x;
    for (int r = 0; r < MICRO; ++r) {
        if (first_row + r < m && first_col < n) {
            const float4 values = make_float4(sum[r][0], sum[r][1], sum[r][2], sum[r][3]);
            *reinterpret_cast<float4*>(&C[(first_row + r) * n + first_col]) = values;
        }
    }
}
