// The tiled kernel in CUDA C++, for comparison: one element a thread, 32x32 tiles, guards, alpha and beta.
// nvcc -arch=sm_90 -O3 -ptx tiled.cu -o tiled.ptx
template <typename T, int TILE>
__device__ void tiled(const T* __restrict__ a, const T* __restrict__ b, T* __restrict__ c, int m, int n, int k,
                      T alpha, T beta) {
    __shared__ T tile_a[TILE][TILE], tile_b[TILE][TILE];
    const int tx = threadIdx.x, ty = threadIdx.y;
    const int row = blockIdx.y * TILE + ty, col = blockIdx.x * TILE + tx;
    T sum = 0;
    for (int step = 0; step < k; step += TILE) {
        tile_a[ty][tx] = row < m && step + tx < k ? a[(size_t)row * k + step + tx] : T(0);
        tile_b[ty][tx] = step + ty < k && col < n ? b[(size_t)(step + ty) * n + col] : T(0);
        __syncthreads();
#pragma unroll
        for (int p = 0; p < TILE; p++) sum += tile_a[ty][p] * tile_b[p][tx];
        __syncthreads();
    }
    if (row < m && col < n) {
        T* to = c + (size_t)row * n + col;
        *to = beta == T(0) ? alpha * sum : alpha * sum + beta * *to;
    }
}

#define ENTRY(NAME, T)                                                                                              \
    extern "C" __global__ void __launch_bounds__(1024) NAME(const T* a, const T* b, T* c, int m, int n, int k,       \
                                                            T alpha, T beta) {                                      \
        tiled<T, 32>(a, b, c, m, n, k, alpha, beta);                                                                \
    }
ENTRY(tiled_f32, float)
ENTRY(tiled_f64, double)
ENTRY(tiled_i32, int)
