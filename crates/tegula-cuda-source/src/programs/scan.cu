#include <iostream>
#include <vector>
#include <cuda_runtime.h>
#define BLOCK_SIZE 1024
#define gpuErrchk(ans) { gpuAssert((ans), __FILE__, __LINE__); }
inline void gpuAssert(cudaError_t code, const char *file, int line, bool abort=true)
{
   if (code != cudaSuccess)
   {
      fprintf(stderr,"GPUassert: %s %s %d\n", cudaGetErrorString(code), file, line);
      if (abort) exit(code);
   }
}

inline int ceil_div(int a, int b) { return (a + b - 1) / b; }

__global__ void scan_block(int *data, int *sums, int n);
__global__ void add_sums(int *data, const int *sums, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (blockIdx.x > 0 && i < n) data[i] += sums[blockIdx.x - 1];
}

void scan(int *data, int n)
{
    const int blocks = ceil_div(n, BLOCK_SIZE);
    int *sums;
    gpuErrchk( cudaMalloc(&sums, blocks * sizeof(int)) );
    scan_block<<<blocks, BLOCK_SIZE>>>(data, sums, n);
    if (blocks > 1) { scan(sums, blocks); add_sums<<<blocks, BLOCK_SIZE>>>(data, sums, n); }
    gpuErrchk( cudaPeekAtLastError() );
}

int main(int argc, char **argv)
{
    int n = argc > 1 ? atoi(argv[1]) : 5000;
    std::vector<int> host(n, 1);
    int *data;
    gpuErrchk(cudaMalloc(&data, n * sizeof(int)));
    gpuErrchk(cudaMemcpy(data, host.data(), n * sizeof(int), cudaMemcpyHostToDevice));
    scan_block<<<ceil_div(n, BLOCK_SIZE), BLOCK_SIZE>>>(data, nullptr, n);
    scan(data, n);
    for (auto v : host) std::cout << v << ' ';
}

__global__ void scan_block(int *data, int *sums, int n)
{
    __shared__ int temp[2][BLOCK_SIZE];
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t, in = 0;
    temp[0][t] = i < n ? data[i] : 0;
    __syncthreads();
    for (int o = 1; o < BLOCK_SIZE; o *= 2) {
        temp[1 - in][t] = temp[in][t] + (t >= o ? temp[in][t - o] : 0);
        in = 1 - in;
        __syncthreads();
    }
    if (i < n) data[i] = temp[in][t];
    if (sums && t == BLOCK_SIZE - 1) sums[blockIdx.x] = temp[in][t];
}
