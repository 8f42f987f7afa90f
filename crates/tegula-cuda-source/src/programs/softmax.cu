#include <cmath>
#include <cfloat>
#include <climits>
#include <ctime>

// A row a block; online maximum and sum.
__global__ void softmax(const float* x, float* y, int rows, int cols) {
    extern __shared__ float shared[];
    int row = blockIdx.x;
    if (row >= rows) return;
    float m = -INFINITY, s = 0.f;
    for (int c = threadIdx.x; c < cols; c += blockDim.x) {
        float v = x[row * cols + c];
        float bigger = std::max(m, v);
        s = s * std::exp(m - bigger) + expf(v - bigger);
        m = bigger;
    }
    shared[threadIdx.x] = m;
    __syncthreads();
    for (int o = blockDim.x / 2; o > 0; o >>= 1) {
        if (threadIdx.x < o) shared[threadIdx.x] = fmaxf(shared[threadIdx.x], shared[threadIdx.x + o]);
        __syncthreads();
    }
    float all = shared[0];
    __syncthreads();
    shared[threadIdx.x] = m == -FLT_MAX ? 0.f : s * expf(m - all);
    __syncthreads();
    for (int o = blockDim.x / 2; o > 0; o >>= 1) {
        if (threadIdx.x < o) shared[threadIdx.x] += shared[threadIdx.x + o];
        __syncthreads();
    }
    for (int c = threadIdx.x; c < cols; c += blockDim.x) y[row * cols + c] = expf(x[row * cols + c] - all) / shared[0];
}

__global__ void angles(double* a, int n) { if (threadIdx.x < n) a[threadIdx.x] = M_PI * threadIdx.x / INT_MAX; }

extern "C" void solve(const float* x, float* y, int rows, int cols) {
    int threads = 256;
    softmax<<<rows, threads, threads * sizeof(float)>>>(x, y, rows, cols);
    cudaDeviceSynchronize();
}
