// The greatest rate at which a GPU reads each level of its memory, and at which it multiplies and adds, for a roofline.
//
//     nvcc -O3 -std=c++17 -arch=native roofs.cu -o roofs && ./roofs
//
// Each level is read 16 bytes a lane by every thread, many loads ahead; the best of several runs counts. A line of JSON.

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#define OK(call)                                                                    \
    do {                                                                            \
        cudaError_t error = (call);                                                 \
        if (error != cudaSuccess) {                                                 \
            std::fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(error));     \
            std::exit(1);                                                           \
        }                                                                           \
    } while (0)

// Everybody reads all of a buffer, `times` over, in steps of the whole grid.
__global__ void __launch_bounds__(1024) global(const uint4 *from, size_t count, int times, unsigned *to) {
    uint4 sum = {0, 0, 0, 0};
    const size_t all = size_t(gridDim.x) * blockDim.x, own = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    for (int time = 0; time < times; time++) {
        // Another block's part each time, so that a multiprocessor's own cache does not have it.
        const size_t start = (own + size_t(time) * 7 * blockDim.x) % all;
#pragma unroll 8
        for (size_t i = start; i < count; i += all) {
            uint4 value;
            asm volatile("ld.global.cg.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w) : "l"(from + i));
            sum.x ^= value.x, sum.y ^= value.y, sum.z ^= value.z, sum.w ^= value.w;
        }
    }
    if ((sum.x ^ sum.y ^ sum.z ^ sum.w) == 1) *to = 1;
}

// Every lane reads its own 16 bytes of shared memory: four wavefronts a request, no conflict.
__global__ void __launch_bounds__(1024) shared(int times, unsigned *to) {
    __shared__ uint4 tile[1024];
    tile[threadIdx.x] = make_uint4(threadIdx.x, 2, 3, 4);
    __syncthreads();
    uint4 sum = {0, 0, 0, 0};
    const unsigned base = unsigned(__cvta_generic_to_shared(tile)) + threadIdx.x % 32 * 16;
    for (int time = 0; time < times; time++) {
#pragma unroll
        for (int i = 0; i < 16; i++) {
            uint4 value;
            asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w) : "r"(base + i * 512));
            sum.x ^= value.x, sum.y ^= value.y, sum.z ^= value.z, sum.w ^= value.w;
        }
    }
    if ((sum.x ^ sum.y ^ sum.z ^ sum.w) == 1) *to = 1;
}

template <class T> __global__ void __launch_bounds__(1024) multiply(int times, T by, T *to) {
    T sums[16];
#pragma unroll
    for (int i = 0; i < 16; i++) sums[i] = T(i);
    for (int time = 0; time < times; time++) {
#pragma unroll
        for (int i = 0; i < 16; i++) sums[i] = sums[i] * by + by;
    }
    T sum = 0;
#pragma unroll
    for (int i = 0; i < 16; i++) sum += sums[i];
    if (sum == T(1)) *to = sum;
}

template <class Launch> double seconds(Launch launch) {
    cudaEvent_t start, end;
    OK(cudaEventCreate(&start));
    OK(cudaEventCreate(&end));
    double best = 1e30;
    for (int run = 0; run < 12; run++) {
        OK(cudaEventRecord(start));
        launch();
        OK(cudaGetLastError());
        OK(cudaEventRecord(end));
        OK(cudaEventSynchronize(end));
        float milliseconds;
        OK(cudaEventElapsedTime(&milliseconds, start, end));
        best = std::min(best, milliseconds / 1e3);
    }
    return best;
}

int main() {
    cudaDeviceProp device;
    OK(cudaGetDeviceProperties(&device, 0));
    const int units = device.multiProcessorCount, blocks = units * 2, threads = 1024;
    const size_t large = size_t(4) << 30, small = size_t(16) << 20;
    uint4 *memory;
    OK(cudaMalloc(&memory, large));
    OK(cudaMemset(memory, 0, large));
    unsigned *to = reinterpret_cast<unsigned *>(memory);
    const double dram = large / seconds([&] { global<<<blocks, threads>>>(memory, large / 16, 1, to); });
    const int again = 200;
    const double l2 = double(small) * again / seconds([&] { global<<<blocks, threads>>>(memory, small / 16, again, to); });
    const int times = 20000;
    const double bytes = double(blocks) * threads * times * 16 * 16;
    const double banks = bytes / seconds([&] { shared<<<blocks, threads>>>(times, to); });
    const double products = double(blocks) * threads * times * 16;
    const double f32 = products / seconds([&] { multiply<float><<<blocks, threads>>>(times, 0.5f, reinterpret_cast<float *>(to)); });
    const double f64 = products / seconds([&] { multiply<double><<<blocks, threads>>>(times, 0.5, reinterpret_cast<double *>(to)); });
    const double i32 = products / seconds([&] { multiply<int><<<blocks, threads>>>(times, int(reinterpret_cast<size_t>(memory) >> 20) | 3, reinterpret_cast<int *>(to)); });
    std::printf("{\"device\": \"%s\", \"unit\": \"per second\", \"dram_bytes\": %.4g, \"l2_bytes\": %.4g, \"shared_bytes\": %.4g, "
                "\"f32_fma\": %.4g, \"f64_fma\": %.4g, \"i32_fma\": %.4g}\n",
                device.name, dram, l2, banks, f32, f64, i32);
}
