// The part of CUDA C++ that kernels use, for machines without CUDA: a CPU thread per thread of a
// block, and blocks one after the other.
#pragma once

#include <barrier>
#include <cmath>
#include <cstring>
#include <thread>
#include <vector>

#include <unistd.h>

struct dim3 {
    unsigned x, y, z;
};

inline thread_local dim3 threadIdx, blockIdx, gridDim;
inline std::barrier<>* block_barrier;

#define __global__
#define __device__
#define __shared__ static
#define __launch_bounds__(...)

inline void __syncthreads() { block_barrier->arrive_and_wait(); }

template <typename T, typename F>
T bits_as(F from) {
    static_assert(sizeof(T) == sizeof(F));
    T to;
    std::memcpy(&to, &from, sizeof to);
    return to;
}

inline unsigned __float_as_uint(float x) { return bits_as<unsigned>(x); }
inline float __uint_as_float(unsigned x) { return bits_as<float>(x); }
inline long long __double_as_longlong(double x) { return bits_as<long long>(x); }
inline double __longlong_as_double(long long x) { return bits_as<double>(x); }
inline float __fmul_rn(float a, float b) { return a * b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline unsigned min(unsigned a, unsigned b) { return a < b ? a : b; }
inline unsigned max(unsigned a, unsigned b) { return a > b ? a : b; }

template <typename Kernel>
void on_threads(dim3 grid, dim3 block, Kernel kernel) {
    const unsigned count = block.x * block.y * block.z;
    std::barrier<> barrier(count);
    block_barrier = &barrier;
    // A deadlock of a kernel ends the program.
    alarm(60);
    std::vector<std::thread> threads;
    for (unsigned t = 0; t < count; ++t) {
        threads.emplace_back([&, t] {
            threadIdx = {t % block.x, t / block.x % block.y, t / block.x / block.y};
            gridDim = grid;
            for (unsigned z = 0; z < grid.z; ++z)
                for (unsigned y = 0; y < grid.y; ++y)
                    for (unsigned x = 0; x < grid.x; ++x) {
                        blockIdx = {x, y, z};
                        kernel();
                        // The next block reuses shared memory.
                        barrier.arrive_and_wait();
                    }
        });
    }
    for (std::thread& thread : threads) thread.join();
    alarm(0);
}
