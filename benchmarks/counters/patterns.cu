// A warp accesses memory by a pattern: which lanes are active, and the address of each.
//
//     nvcc -O3 -std=c++17 -arch=sm_90 patterns.cu -o patterns
//     ./patterns TABLE FIRST LAST count     launches rows FIRST to LAST of the table for Nsight Compute
//     ./patterns TABLE FIRST LAST time      prints cycles a request of each, of 32 warps at once
//
// A row of the table: kind; how inactive lanes are kept out (p: predicate, b: branch); mask in hex;
// 32 offsets in bytes. A pattern is a kernel parameter, so that no other instruction accesses memory.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

constexpr int REPEATS = 16;
constexpr int TIMED = 64;
constexpr int TIMED_WARPS = 32;

struct Pattern {
    uint32_t mask;
    uint32_t offset[32];
};

#define CHECK(call)                                                                            \
    do {                                                                                       \
        cudaError_t error = (call);                                                            \
        if (error != cudaSuccess) {                                                            \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(error));     \
            exit(1);                                                                           \
        }                                                                                      \
    } while (0)

// Kind and instruction. %0 to %3: results; %4: address; %5 to %8: operands, different in every lane.
#define SHARED_KINDS(X)                                                                        \
    X(ld1, "ld.shared.u8 %0, [%4];")                                                           \
    X(ld2, "ld.shared.u16 %0, [%4];")                                                          \
    X(ld4, "ld.shared.b32 %0, [%4];")                                                          \
    X(ld8, "ld.shared.v2.b32 {%0, %1}, [%4];")                                                 \
    X(ld16, "ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];")                                        \
    X(st1, "st.shared.u8 [%4], %5;")                                                           \
    X(st2, "st.shared.u16 [%4], %5;")                                                          \
    X(st4, "st.shared.b32 [%4], %5;")                                                          \
    X(st8, "st.shared.v2.b32 [%4], {%5, %6};")                                                 \
    X(st16, "st.shared.v4.b32 [%4], {%5, %6, %7, %8};")                                        \
    X(add_u32, "atom.relaxed.cta.shared.add.u32 %0, [%4], %5;")                                \
    X(red_u32, "red.relaxed.cta.shared.add.u32 [%4], %5;")                                     \
    X(min_u32, "atom.relaxed.cta.shared.min.u32 %0, [%4], %5;")                                \
    X(xor_b32, "atom.relaxed.cta.shared.xor.b32 %0, [%4], %5;")                                \
    X(exch_b32, "atom.relaxed.cta.shared.exch.b32 %0, [%4], %5;")                              \
    X(cas_b32, "atom.relaxed.cta.shared.cas.b32 %0, [%4], %6, %5;")                            \
    X(exch_b64, "{.reg .b64 o, a; mov.b64 a, {%5, %6}; atom.relaxed.cta.shared.exch.b64 o, [%4], a; mov.b64 {%0, %1}, o;}")       \
    X(cas_b64, "{.reg .b64 o, a, b; mov.b64 a, {%5, %6}; mov.b64 b, {%7, %8}; atom.relaxed.cta.shared.cas.b64 o, [%4], b, a; mov.b64 {%0, %1}, o;}") \
    X(add_f32, "{.reg .f32 o, a; mov.b32 a, %5; atom.relaxed.cta.shared.add.f32 o, [%4], a; mov.b32 %0, o;}")                     \
    X(add_u64, "{.reg .b64 o, a; mov.b64 a, {%5, %6}; atom.relaxed.cta.shared.add.u64 o, [%4], a; mov.b64 {%0, %1}, o;}")         \
    X(add_f64, "{.reg .b64 o, a; .reg .f64 p, q; mov.b64 a, {%5, %6}; mov.b64 q, a; atom.relaxed.cta.shared.add.f64 p, [%4], q; mov.b64 o, p; mov.b64 {%0, %1}, o;}") \
    X(min_u64, "{.reg .b64 o, a; mov.b64 a, {%5, %6}; atom.relaxed.cta.shared.min.u64 o, [%4], a; mov.b64 {%0, %1}, o;}")

#define GLOBAL_KINDS(X)                                                                        \
    X(gld4, "ld.global.b32 %0, [%4];")                                                         \
    X(gld8, "ld.global.v2.b32 {%0, %1}, [%4];")                                                \
    X(gld16, "ld.global.v4.b32 {%0, %1, %2, %3}, [%4];")                                       \
    X(gst4, "st.global.b32 [%4], %5;")                                                         \
    X(gst16, "st.global.v4.b32 [%4], {%5, %6, %7, %8};")                                       \
    X(gadd_u32, "atom.relaxed.gpu.global.add.u32 %0, [%4], %5;")                               \
    X(gred_u32, "red.relaxed.gpu.global.add.u32 [%4], %5;")                                    \
    X(gadd_f32, "{.reg .f32 o, a; mov.b32 a, %5; atom.relaxed.gpu.global.add.f32 o, [%4], a; mov.b32 %0, o;}")                    \
    X(gred_f32, "{.reg .f32 a; mov.b32 a, %5; red.relaxed.gpu.global.add.f32 [%4], a;}")                                          \
    X(gexch_b32, "atom.relaxed.gpu.global.exch.b32 %0, [%4], %5;")                             \
    X(gcas_b32, "atom.relaxed.gpu.global.cas.b32 %0, [%4], %6, %5;")                           \
    X(gadd_u64, "{.reg .b64 o, a; mov.b64 a, {%5, %6}; atom.relaxed.gpu.global.add.u64 o, [%4], a; mov.b64 {%0, %1}, o;}")        \
    X(gred_u64, "{.reg .b64 a; mov.b64 a, {%5, %6}; red.relaxed.gpu.global.add.u64 [%4], a;}")                                    \
    X(gadd_f64, "{.reg .b64 o, a; .reg .f64 p, q; mov.b64 a, {%5, %6}; mov.b64 q, a; atom.relaxed.gpu.global.add.f64 p, [%4], q; mov.b64 o, p; mov.b64 {%0, %1}, o;}") \
    X(gcas_b64, "{.reg .b64 o, a, b; mov.b64 a, {%5, %6}; mov.b64 b, {%7, %8}; atom.relaxed.gpu.global.cas.b64 o, [%4], b, a; mov.b64 {%0, %1}, o;}")

enum Kind {
#define NAME(name, text) k_##name,
    SHARED_KINDS(NAME) GLOBAL_KINDS(NAME)
#undef NAME
    KINDS
};
constexpr const char *NAMES[KINDS] = {
#define NAME(name, text) #name,
    SHARED_KINDS(NAME) GLOBAL_KINDS(NAME)
#undef NAME
};

// The access of one lane.
template <int KIND>
__device__ __forceinline__ void access(uint32_t (&r)[4], uint32_t shared, uint64_t global, const uint32_t (&v)[4]) {
#define SHARED_CASE(name, text)                                                                \
    if constexpr (KIND == k_##name)                                                            \
        asm volatile(text                                                                      \
                     : "+r"(r[0]), "+r"(r[1]), "+r"(r[2]), "+r"(r[3])                          \
                     : "r"(shared), "r"(v[0]), "r"(v[1]), "r"(v[2]), "r"(v[3])                 \
                     : "memory");
#define GLOBAL_CASE(name, text)                                                                \
    if constexpr (KIND == k_##name)                                                            \
        asm volatile(text                                                                      \
                     : "+r"(r[0]), "+r"(r[1]), "+r"(r[2]), "+r"(r[3])                          \
                     : "l"(global), "r"(v[0]), "r"(v[1]), "r"(v[2]), "r"(v[3])                 \
                     : "memory");
    SHARED_KINDS(SHARED_CASE)
    GLOBAL_KINDS(GLOBAL_CASE)
}

extern __shared__ __align__(1024) uint8_t memory[];

// `step` is 0, unknown to the compiler, so that no access moves out of the loop. BRANCH: inactive lanes
// branch around the loop; otherwise they are predicated off in it.
template <int KIND, bool BRANCH, bool TIME>
__global__ void run(const __grid_constant__ Pattern pattern, int repeats, uint32_t step, uint8_t *data, uint32_t *sink,
                    long long *cycles) {
    const uint32_t lane = threadIdx.x % 32;
    const bool active = pattern.mask >> lane & 1;
    uint32_t shared = (uint32_t)__cvta_generic_to_shared(memory) + pattern.offset[lane];
    uint64_t global = (uint64_t)__cvta_generic_to_global(data) + pattern.offset[lane];
    uint32_t r[4] = {lane, 1, 2, 3}, v[4] = {lane + 1, lane + 2, lane + 3, lane + 4}, all = 0;
    long long begin = 0;
    if constexpr (TIME) {
        __syncthreads();
        begin = clock64();
    }
    if constexpr (BRANCH) {
        if (active) {
#pragma unroll 1
            for (int i = 0; i < repeats; i++) {
                access<KIND>(r, shared, global, v);
                all ^= r[0] ^ r[1] ^ r[2] ^ r[3];
                shared += step, global += step;
            }
        }
    } else {
#pragma unroll(TIME ? 4 : 1)
        for (int i = 0; i < repeats; i++) {
            if (active) access<KIND>(r, shared, global, v);
            all ^= r[0] ^ r[1] ^ r[2] ^ r[3];
            shared += step, global += step;
        }
    }
    // Keeps the results alive.
    if (step && all == 0x12345678) sink[lane] = all;
    if constexpr (TIME) {
        __syncthreads();
        const long long end = clock64();
        if (threadIdx.x == 0) *cycles = end - begin;
    }
}

using Launch = void (*)(const Pattern, int, uint32_t, uint8_t *, uint32_t *, long long *);

template <bool BRANCH, bool TIME>
Launch kernel(int kind) {
    switch (kind) {
#define CASE(name, text) \
    case k_##name: return run<k_##name, BRANCH, TIME>;
        SHARED_KINDS(CASE)
        GLOBAL_KINDS(CASE)
    }
    return nullptr;
}

int main(int argc, char **argv) {
    if (argc != 5) return fprintf(stderr, "patterns TABLE FIRST LAST count|time\n"), 2;
    const bool time = !strcmp(argv[4], "time");
    FILE *file = fopen(argv[1], "r");
    if (!file) return perror(argv[1]), 1;
    struct Row {
        int kind;
        bool branch;
        Pattern pattern;
    };
    std::vector<Row> rows;
    char name[32], how[2];
    Row row;
    while (fscanf(file, "%31s %1s %x", name, how, &row.pattern.mask) == 3) {
        for (row.kind = 0; row.kind < KINDS && strcmp(name, NAMES[row.kind]);) row.kind++;
        if (row.kind == KINDS) return fprintf(stderr, "no kind %s\n", name), 1;
        row.branch = *how == 'b';
        for (auto &offset : row.pattern.offset)
            if (fscanf(file, "%u", &offset) != 1) return fprintf(stderr, "short line\n"), 1;
        rows.push_back(row);
    }
    size_t first = atol(argv[2]), last = atol(argv[3]);
    last = last < rows.size() ? last : rows.size();

    const size_t shared = 48 << 10, global = 4 << 20;
    uint8_t *data;
    uint32_t *sink;
    long long *cycles;
    CHECK(cudaMalloc(&data, global));
    CHECK(cudaMemset(data, 0, global));
    CHECK(cudaMalloc(&sink, 128));
    CHECK(cudaMalloc(&cycles, (rows.size() + 1) * sizeof *cycles));
    for (size_t i = first; i < last; i++) {
        const Row &row = rows[i];
        if (time) {
            kernel<false, true>(row.kind)<<<1, 32 * TIMED_WARPS, shared>>>(row.pattern, TIMED, 0, data, sink, cycles + i);
        } else {
            Launch launch = row.branch ? kernel<true, false>(row.kind) : kernel<false, false>(row.kind);
            launch<<<1, 32, shared>>>(row.pattern, REPEATS, 0, data, sink, cycles);
        }
        CHECK(cudaGetLastError());
    }
    CHECK(cudaDeviceSynchronize());
    if (time) {
        std::vector<long long> took(rows.size());
        CHECK(cudaMemcpy(took.data(), cycles, rows.size() * sizeof *cycles, cudaMemcpyDeviceToHost));
        for (size_t i = first; i < last; i++) printf("%zu %.3f\n", i, (double)took[i] / (TIMED * TIMED_WARPS));
    }
    return 0;
}
