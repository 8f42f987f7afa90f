// Launches the kernels of this folder and compares the final memory with the interpreter's, bit for
// bit.
//
//     nvcc -std=c++17 -arch=native driver.cu -o run && ./run
//     c++ -std=c++20 -O1 -ffp-contract=off -Wno-unknown-pragmas -pthread -I host -x c++ driver.cu -o run && ./run
//
// It prints a line per product and exits with 1 if one differs.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <vector>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#ifdef __CUDACC__
#define LAUNCH(kernel, grid, block, ...) kernel<<<grid, block>>>(__VA_ARGS__)
#else
#include "host.h"
#define LAUNCH(kernel, grid, block, ...) on_threads(grid, block, [&] { kernel(__VA_ARGS__); })
#endif

#include "kernels.inc"

static std::vector<char> before, expected, after;
static char* memory;
static size_t first, last;
static const char* name = "memory";
static int different = 0;

static std::vector<char> read(const char* path) {
    std::ifstream file(path, std::ios::binary);
    if (!file) {
        std::printf("%s is not here; run this in its folder\n", path);
        std::exit(2);
    }
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

#ifdef __CUDACC__
static void must(cudaError_t error, const char* what) {
    if (error == cudaSuccess) return;
    std::printf("%s: %s: %s\n", name, what, cudaGetErrorString(error));
    std::exit(2);
}

static void upload() {
    must(cudaMalloc(&memory, before.size()), "cudaMalloc");
    must(cudaMemcpy(memory, before.data(), before.size(), cudaMemcpyHostToDevice), "cudaMemcpy");
}

static void download() {
    must(cudaGetLastError(), "launch");
    must(cudaMemcpy(after.data(), memory, after.size(), cudaMemcpyDeviceToHost), "cudaMemcpy");
}
#else
static void upload() { memory = before.data(); }
static void download() { after = before; }
#endif

// An address in the memory of the kernels, convertible to any pointer type.
struct Address {
    char* pointer;
    template <typename T>
    operator T*() const { return reinterpret_cast<T*>(pointer); }
};

static Address at(size_t offset) { return {memory + offset}; }

// A number given by its bits.
struct Bits {
    unsigned long long bits;
    template <typename T>
    operator T() const {
        T number;
        std::memcpy(&number, &bits, sizeof number);
        return number;
    }
};

// Starts a product whose matrices are at offsets `from` to `to`.
static void begin(const char* product, size_t from, size_t to) { name = product, first = from, last = to; }

static void end() {
    download();
    size_t wrong = 0, where = 0;
    for (size_t i = first; i < last; ++i) {
        if (after[i] != expected[i] && wrong++ == 0) where = i - first;
    }
    if (wrong) {
        std::printf("DIFFERENT %s: %zu of %zu bytes, the first at %zu\n", name, wrong, last - first, where);
        ++different;
    } else {
        std::printf("same      %s\n", name);
    }
}

int main() {
    before = read("before.bin"), expected = read("after.bin"), after = before;
    if (before.size() != expected.size()) return 2;
    upload();
#include "launches.inc"
    // Memory of other products must be unchanged.
    for (size_t i = 0; i < after.size(); ++i) {
        if (after[i] != expected[i] && different == 0) {
            std::printf("DIFFERENT byte %zu, after it had been right\n", i);
            ++different;
        }
    }
    std::printf(different ? "%d differ\n" : "all the same\n", different);
    return different != 0;
}
