#include <cstdio>

namespace vision {
namespace {
__device__ __forceinline__ int clampi(int v, int lo, int hi) { return v < lo ? lo : (v > hi ? hi : v); }

__global__ void blur(const unsigned char* in, unsigned char* out, int width, int height)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height) return;
    int sum = 0;
    for (int dy = -1; dy <= 1; ++dy)
        for (int dx = -1; dx <= 1; ++dx) sum += in[clampi(y + dy, 0, height - 1) * width + clampi(x + dx, 0, width - 1)];
    out[y * width + x] = sum / 9;
}
} // namespace

inline namespace v2 {
template <class Pixel>
__global__ void invert(Pixel* image, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) image[i] = Pixel(255) - image[i];
}
}

struct Image {
    int width = 640, height = 480;
    unsigned char* data = nullptr;
    Image() { cudaMallocManaged(&data, width * height); }
    ~Image() { cudaFree(data); }
    void process()
    {
        dim3 threads(32, 8);
        dim3 blocks;
        blocks.x = (640 + threads.x - 1) / threads.x;
        blocks.y = (480 + threads.y - 1) / threads.y;
        blur<<<blocks, threads>>>(data, data, width, height);
        invert<unsigned char><<<1200, 256>>>(data, width * height);
    }
};
} // namespace vision

namespace a::b { extern "C" __global__ void plain_name(int* p) { *p = 1; } static __global__ void hidden(int* p) { *p = 2; } }

// Overloads.
__global__ void put(float* p, float v) { p[threadIdx.x] = v; }
__global__ void put(int* p, int v)
{
    p[threadIdx.x] = v;
}

int main()
{
    vision::Image image;
    image.process();
    a::b::plain_name<<<1, 1>>>(nullptr);
    a::b::hidden<<<1, 1>>>(nullptr);
    put<<<1, 32>>>((int*)nullptr, 3);
    printf("%s\n", cudaGetErrorString(cudaDeviceSynchronize()));
    return 0;
}
