// The part of CUDA's half that kernels use, for machines without CUDA.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

struct __half {
    uint16_t bits;
    __half() = default;
    // nearbyint rounds to nearest, ties to even. Halves are multiples of 2^(exponent - 10), and of
    // 2^-24 near 0.
    __half(float value) {
        const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
        if (value != value) {
            bits = 0x7fff;
            return;
        }
        const float size = std::fabs(value);
        const int exponent = size < 0x1p-14f ? -14 : std::min(std::ilogb(size), 16);
        if (exponent == 16) {
            bits = sign | 0x7c00;
            return;
        }
        // The addition carries into the exponent, and from the largest number to infinity.
        const int places = int(std::nearbyint(std::ldexp(size, 10 - exponent)));
        bits = sign | uint16_t(((exponent + 14) << 10) + places);
    }
};

inline float __half2float(__half x) {
    const int exponent = x.bits >> 10 & 31, fraction = x.bits & 1023;
    const float size = exponent == 31  ? (fraction ? NAN : INFINITY)
                       : exponent == 0 ? std::ldexp(float(fraction), -24)
                                       : std::ldexp(float(1024 + fraction), exponent - 25);
    return x.bits & 0x8000 ? -size : size;
}
inline __half __float2half_rn(float x) { return {x}; }
