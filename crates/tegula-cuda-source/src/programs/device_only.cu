// Written for NVRTC: types of its own, no host code.
typedef unsigned int uint32_t;
typedef long int64_t;

extern "C" {
__global__ void saxpy(float a, const float* x, float* y, int64_t n)
{
    for (int64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) y[i] += a * x[i];
}
}
