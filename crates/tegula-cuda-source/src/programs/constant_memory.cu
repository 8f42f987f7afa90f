#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cmath>

#define RADIUS 3
#define WIDTH (2 * RADIUS + 1)
#define THREADS 128

__constant__ float coefficients[WIDTH];
__constant__ int limits[2] = {0, 1 << 20};
__device__ unsigned long long counter = 0;
__device__ __managed__ int managed_flag = 7;

static const float host_coefficients[WIDTH] = {0.1f, 0.2f, 0.3f, 0.4f, 0.3f, 0.2f, 0.1f};
static float* host_buffer;
int verbose = 1;

__global__ void stencil(const double *in, double *out, const int n)
{
    __shared__ double tile[THREADS + 2 * RADIUS];
    int g = threadIdx.x + blockIdx.x * THREADS, l = threadIdx.x + RADIUS;
    tile[l] = g < n ? in[g] : 0;
    if (threadIdx.x < RADIUS) {
        tile[l - RADIUS] = g >= RADIUS ? in[g - RADIUS] : 0;
        tile[l + THREADS] = g + THREADS < n ? in[g + THREADS] : 0;
    }
    __syncthreads();
    double sum = 0;
#pragma unroll
    for (int o = -RADIUS; o <= RADIUS; o++) sum += coefficients[o + RADIUS] * tile[l + o];
    if (g < n && g < limits[1]) {
        out[g] = sum;
        atomicAdd(&counter, 1ULL);
    }
}

#define HANDLE_ERROR(err) (HandleError(err, __FILE__, __LINE__))
static void HandleError(cudaError_t err, const char *file, int line)
{
    if (err != cudaSuccess) {
        printf("%s in %s at line %d\n", cudaGetErrorString(err), file, line);
        exit(EXIT_FAILURE);
    }
}

int main()
{
    const int n = 1000;
    double *in, *out;
    host_buffer = (float*)malloc(n);
    HANDLE_ERROR(cudaMalloc((void **)&in, n * sizeof(double)));
    HANDLE_ERROR(cudaMalloc((void **)&out, n * sizeof(double)));
    HANDLE_ERROR(cudaMemcpyToSymbol(coefficients, host_coefficients, sizeof(host_coefficients)));
    stencil<<<ceil(n / (float)THREADS), THREADS>>>(in, out, n);
    if (verbose) { printf("%d '\"' { \n", managed_flag); }
    return 0;
}
