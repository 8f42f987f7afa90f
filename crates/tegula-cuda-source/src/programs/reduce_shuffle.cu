#include <cstdio>
#include <numeric>
#include <vector>
#include <helper_cuda.h>

constexpr int kBlock = 256;
constexpr unsigned kFull = 0xffffffffu;

constexpr int warps(int threads) { return threads / 32; }

template <typename T>
__inline__ __device__ T warpReduceSum(T value)
{
#pragma unroll
    for (int offset = warpSize / 2; offset > 0; offset >>= 1) value += __shfl_down_sync(kFull, value, offset);
    return value;
}

__device__ float blockReduceSum(float value)
{
    static __shared__ float partial[warps(kBlock)];
    const int lane = threadIdx.x % warpSize;
    const int warp = threadIdx.x / warpSize;
    value = warpReduceSum(value);
    if (lane == 0) partial[warp] = value;
    __syncthreads();
    value = threadIdx.x < blockDim.x / warpSize ? partial[lane] : 0.0f;
    if (warp == 0) value = warpReduceSum(value);
    return value;
}

__global__ void __launch_bounds__(kBlock) reduce(const float* in, float* out, size_t n)
{
    float sum = 0;
    for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < n; i += size_t(blockDim.x) * gridDim.x) sum += in[i];
    sum = blockReduceSum(sum);
    if (threadIdx.x == 0) atomicAdd(out, sum);
}

int main()
{
    const size_t n = 1 << 20;
    std::vector<float> host(n, 1.0f);
    float *in = nullptr, *out = nullptr;
    checkCudaErrors(cudaMalloc(&in, n * sizeof(float)));
    checkCudaErrors(cudaMalloc(&out, sizeof(float)));
    checkCudaErrors(cudaMemset(out, 0, sizeof(float)));
    checkCudaErrors(cudaMemcpy(in, host.data(), n * sizeof(float), cudaMemcpyHostToDevice));
    const int blocks = std::min<int>((n + kBlock - 1) / kBlock, 1024);
    reduce<<<blocks, kBlock, 0, 0>>>(in, out, n);
    float sum;
    checkCudaErrors(cudaMemcpy(&sum, out, sizeof(float), cudaMemcpyDeviceToHost));
    std::printf("%g, expected %g\n", sum, std::accumulate(host.begin(), host.end(), 0.0));
}
