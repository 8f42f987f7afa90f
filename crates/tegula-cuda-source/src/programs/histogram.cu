#include <array>
#include <atomic>
#include <cstdint>
#include <thread>
#include <unordered_map>
#include "common/missing_helper.h"

using byte = unsigned char;
static constexpr std::size_t BINS = 256;
const char* const kName = "histogram";

__global__ void histogram(const byte* __restrict__ data, std::uint32_t n, unsigned int* bins)
{
    __shared__ unsigned int local[BINS];
    for (unsigned i = threadIdx.x; i < BINS; i += blockDim.x) local[i] = 0;
    __syncthreads();
    const std::uint32_t stride = blockDim.x * gridDim.x;
    for (std::uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) atomicAdd(&local[data[i]], 1u);
    __syncthreads();
    for (unsigned i = threadIdx.x; i < BINS; i += blockDim.x)
        if (const unsigned int v = local[i]; v != 0) atomicAdd(&bins[i], v);
}

template <class... Args> void log(const char* format, Args&&... args) { std::printf(format, std::forward<Args>(args)...); }

int main()
try {
    std::unordered_map<std::string, std::array<int, 4>> table{{"a", {1, 2, 3, 4}}};
    std::thread worker([&table] { table.clear(); });
    worker.join();
    constexpr auto threads = 1u << 7;
    std::uint32_t n = 1'000'000;
    auto launch = histogram;
    launch<<<80, threads>>>(nullptr, n, nullptr);
    log("%s\n", kName);
    return 0;
} catch (const std::exception& e) {
    return 1;
}
