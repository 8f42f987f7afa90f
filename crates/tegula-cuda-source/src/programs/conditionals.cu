#ifndef N
#define N 4096
#endif
#define USE_SHARED 1
#if defined(_WIN32) && !defined(__CUDACC_RTC__)
#include <windows.h>
#elif defined(__linux__)
#include <sys/time.h>
#include <unistd.h>
#else
#include <time.h>
#endif
#ifdef __CUDACC__
#define HD __host__ __device__
#define KERNEL extern "C" __global__
#else
#define HD
#define KERNEL static
#endif

#if 0
it's not code: { { {
#endif

static double seconds()
{
#ifdef _WIN32
    if (1) {
        return 0;
#else
    {
        struct timeval t;
        gettimeofday(&t, 0);
        return t.tv_sec + 1e-6 * t.tv_usec;
#endif
    }
}

HD static inline int index_of(int x, int y)
{
#ifdef __CUDA_ARCH__
    return y * N + x;
#else
    return seconds() > 0 ? 1 : 0;
#endif
}

#if USE_SHARED
KERNEL void transpose(float *out, const float *in)
{
    __shared__ float tile[32][33];
    tile[threadIdx.y][threadIdx.x] = in[index_of(blockIdx.x * 32 + threadIdx.x, blockIdx.y * 32 + threadIdx.y)];
    __syncthreads();
    out[index_of(blockIdx.y * 32 + threadIdx.x, blockIdx.x * 32 + threadIdx.y)] = tile[threadIdx.x][threadIdx.y];
}
#else
KERNEL void transpose_naive(float *out, const float *in)
{
    out[0] = in[0];
}
#endif

#if __CUDA_ARCH__ >= 600 || !defined(__CUDA_ARCH__)
__global__ void modern(double *sum, double x) { atomicAdd(sum, x); }
#else
__global__ void old(double *sum, double x) { }
#endif

int main()
{
    double start = seconds();
    transpose<<<dim3(N / 32, N / 32), dim3(32, 32)>>>(0, 0);
    modern<<<1, N / 64>>>(0, 1.5);
#ifdef VERBOSE
    for (;;) { printf("%f\n", seconds() - start);
#endif
    return start < 0;
}
