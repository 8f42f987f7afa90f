// The part of CUDA's bf16 that kernels use, for machines without CUDA.
#pragma once

#include <cstdint>
#include <cstring>

struct __nv_bfloat16 {
    uint16_t bits;
    __nv_bfloat16() = default;
    // Rounds to nearest, ties to even: adds half an ulp, minus one if the lower neighbor is even.
    __nv_bfloat16(float value) {
        uint32_t wide;
        std::memcpy(&wide, &value, sizeof wide);
        bits = value != value ? 0x7fff : uint16_t((wide + 0x7fff + (wide >> 16 & 1)) >> 16);
    }
};

inline float __bfloat162float(__nv_bfloat16 x) {
    const uint32_t wide = uint32_t(x.bits) << 16;
    float value;
    std::memcpy(&value, &wide, sizeof value);
    return value;
}
inline __nv_bfloat16 __float2bfloat16_rn(float x) { return {x}; }
