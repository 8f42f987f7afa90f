#include <cstdio>
#include <cuda.h>

#define CEIL_DIV(a, b) (((a) + (b) - 1) / (b))
#define INDEX(row, col, ld) \
    ((row) * (ld) +         \
     (col))

#define DEFINE_BINARY(name, type, op)                                              \
    __global__ void name##_##type(const type* a, const type* b, type* c, int n)    \
    {                                                                              \
        int i = blockIdx.x * blockDim.x + threadIdx.x;                             \
        if (i < n) c[INDEX(0, i, n)] = a[i] op b[i];                               \
    }                                                                              \
    void launch_##name##_##type(const type* a, const type* b, type* c, int n)      \
    {                                                                              \
        name##_##type<<<CEIL_DIV(n, 256), 256>>>(a, b, c, n);                      \
    }

DEFINE_BINARY(add, float, +)
DEFINE_BINARY(mul, int, *)

typedef float REAL;
#define VLOAD(p) (*reinterpret_cast<const float4*>(p))

__global__ void vectorized(const REAL* __restrict__ in, float4* __restrict__ out)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    float4 v = VLOAD(&in[4 * i]);
    v.x += 1; v.y += 2; v.z += 3; v.w += 4;
    out[i] = v;
}

int main()
{
    const int n = 10'000;
    launch_add_float(nullptr, nullptr, nullptr, n);
    vectorized<<<CEIL_DIV(n / 4, 100), 100>>>(nullptr, nullptr);
    return 0;
}
