#include <iostream>
#include <stdexcept>
#include <type_traits>

template <int BLOCK, typename T>
__global__ void tiled(const T* a, T* out, int n)
{
    __shared__ T tile[BLOCK];
    int i = blockIdx.x * BLOCK + threadIdx.x;
    tile[threadIdx.x] = i < n ? a[i] : T(0);
    __syncthreads();
    if (i < n) out[i] = tile[BLOCK - 1 - threadIdx.x];
}

template <unsigned int blockSize, bool exact>
__global__ void reduce(const float* in, float* out, unsigned int n)
{
    extern __shared__ float sdata[];
    unsigned int tid = threadIdx.x;
    unsigned int i = blockIdx.x * blockSize * 2 + tid;
    float sum = (exact || i < n) ? in[i] : 0;
    if (exact || i + blockSize < n) sum += in[i + blockSize];
    sdata[tid] = sum;
    __syncthreads();
    if (blockSize >= 512) { if (tid < 256) sdata[tid] += sdata[tid + 256]; __syncthreads(); }
    if (blockSize >= 256) { if (tid < 128) sdata[tid] += sdata[tid + 128]; __syncthreads(); }
    if (tid == 0) out[blockIdx.x] = sdata[0];
}

template <typename T>
__global__ void scale(T* data, T factor, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) data[i] *= factor;
}

template <typename T, int N = 4>
__global__ void fill(T* data) { data[blockIdx.x * N + threadIdx.x] = T(N); }

template <int BLOCK>
void run(const float* a, float* out, int n)
{
    using index_t = int;
    fill<index_t, BLOCK><<<1, BLOCK>>>(nullptr);
    const int grid = (n + BLOCK - 1) / BLOCK;
    tiled<BLOCK, float><<<grid, BLOCK>>>(a, out, n);
}

void dispatch(const float* in, float* out, unsigned int n, int threads)
{
    const size_t bytes = 512 * sizeof(float);
    switch (threads) {
    case 512: reduce<512, true><<<dim3(n / 1024), dim3(512), bytes>>>(in, out, n); break;
    case 256: reduce<256, false><<<8, 256, bytes>>>(in, out, n); break;
    default: throw std::runtime_error("block size");
    }
}

int main()
{
    constexpr int TS = 8 * 4;
    float *a, *b;
    double* d;
    cudaMalloc(&a, 4096 * sizeof(float));
    cudaMalloc(&b, 4096 * sizeof(float));
    cudaMalloc(&d, 4096 * sizeof(double));
    tiled<TS, double><<<4096 / TS, TS>>>(d, d, 4096);
    run<16>(a, b, 4096);
    run<64>(a, b, 4096);
    scale<<<16, 256>>>(a, 2.0f, 4096);
    scale<<<16, 256>>>(d, 2.0, 4096);
    fill<int><<<1, 4>>>(nullptr);
    dispatch(a, b, 4096, 256);
    std::cout << std::is_same<int, int>::value << cudaGetErrorString(cudaDeviceSynchronize()) << "\n";
}
