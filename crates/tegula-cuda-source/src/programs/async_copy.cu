#include <cuda_pipeline.h>
#include <cuda_bf16.h>
#include <cassert>
#define NDEBUG_NOT 1

struct __align__(16) Params {
    const float* in;
    float* out;
    int n;
    float scale[2];
};

__global__ void copy_async(Params p)
{
    __shared__ __align__(16) float buffer[2][256];
    assert(p.n >= 0 && "size");
    int t = threadIdx.x;
    __pipeline_memcpy_async(&buffer[0][t * 4], &p.in[t * 4], 16);
    __pipeline_commit();
    __pipeline_wait_prior(0);
    __syncthreads();
    p.out[t] = buffer[0][t] * p.scale[0];
    if (t == 0) printf("block %d\n", blockIdx.x);
}

__global__ void to_bf16(const float* in, __nv_bfloat16* out, long long n, bool round)
{
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = round ? __float2bfloat16_rn(in[i]) : __float2bfloat16_rz(in[i]);
}

void host()
{
    Params p{};
    copy_async<<<1, 64>>>(p);
    cudaStream_t stream;
    cudaStreamCreate(&stream);
    to_bf16<<<(4096 + 127) / 128, 128, 0, stream>>>(p.in, nullptr, 4096, true);
}
