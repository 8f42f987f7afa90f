#include <cooperative_groups.h>
#include <cuda_fp16.h>
#include <iostream>

namespace cg = cooperative_groups;
using namespace cooperative_groups;
using namespace std;

__device__ int sum_group(thread_group g, int* temp, int value)
{
    int lane = g.thread_rank();
    for (int i = g.size() / 2; i > 0; i /= 2) {
        temp[lane] = value;
        g.sync();
        if (lane < i) value += temp[lane + i];
        g.sync();
    }
    return value;
}

__global__ void sum_kernel(int* sum, const int* input, int n)
{
    extern __shared__ int temp[];
    auto g = this_thread_block();
    int mine = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) mine += input[i];
    int block_sum = sum_group(g, temp, mine);
    cg::thread_block_tile<32> tile = cg::tiled_partition<32>(g);
    if (g.thread_rank() == 0 && tile.meta_group_rank() == 0) atomicAdd(sum, block_sum);
}

__global__ void halves(__half2* x, half alpha, int n)
{
    int i = threadIdx.x;
    if (i < n) x[i] = __hmul2(x[i], __half2half2(alpha));
}

int main()
{
    int n = 1 << 16, blockSize = 256;
    int nBlocks = (n + blockSize - 1) / blockSize;
    size_t sharedBytes = blockSize * sizeof(int);
    int *sum, *data;
    cudaMallocManaged(&sum, sizeof(int));
    cudaMallocManaged(&data, n * sizeof(int));
    fill_n(data, n, 1);
    void* args[] = {&sum, &data, &n};
    cudaLaunchCooperativeKernel((void*)sum_kernel, nBlocks, blockSize, args, sharedBytes, 0);
    sum_kernel<<<nBlocks, blockSize, sharedBytes>>>(sum, data, n);
    halves<<<1, 32>>>(nullptr, __float2half(2.0f), 32);
    cout << *sum << endl;
}
