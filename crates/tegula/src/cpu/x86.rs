//! Micro-kernels for x86-64, by the vector instructions of `std::arch`.
//!
//! All are one loop: hold an MR×NR tile of C in registers, and for each step of k load a row of B and multiply it by each value
//! of a column of A. They differ in the vector type, the tile that fits its registers, and the instruction that multiplies and adds.

use std::arch::x86_64::*;

use super::kernel::Kernel;

/// A kernel of `$rows` rows by `$vectors` vectors. `$step` multiplies two vectors and adds a third.
macro_rules! kernel {
    ($(#[$doc:meta])* $name:ident: $features:literal, $t:ty as $vector:ty, $rows:literal x $vectors:literal, mc $mc:literal, kc $kc:literal;
     $splat:ident, $mul:ident, $add:ident, $step:ident) => {
        $(#[$doc])*
        pub const $name: Kernel<$t> = {
            const LANES: usize = size_of::<$vector>() / size_of::<$t>();
            const NR: usize = $vectors * LANES;

            /// # Safety
            /// As [`super::kernel::Micro`] asks.
            #[target_feature(enable = $features)]
            unsafe fn run(steps: usize, alpha: $t, a: *const $t, b: *const $t, beta: $t, c: *mut $t, stride: isize) {
                let mut sums = [[$splat(0 as $t); $vectors]; $rows];
                for step in 0..steps {
                    // SAFETY: the caller says that A holds as many values a step as the tile has rows, and B as it has columns.
                    unsafe {
                        let (a, b) = (a.add(step * $rows), b.add(step * NR).cast::<$vector>());
                        let b: [$vector; $vectors] = std::array::from_fn(|v| b.add(v).read_unaligned());
                        for i in 0..$rows {
                            let a = $splat(*a.add(i));
                            for v in 0..$vectors {
                                sums[i][v] = $step(a, b[v], sums[i][v]);
                            }
                        }
                    }
                }
                let (scale, keep) = ($splat(alpha), $splat(beta));
                for (i, sums) in sums.into_iter().enumerate() {
                    for (v, sum) in sums.into_iter().enumerate() {
                        let sum = $mul(scale, sum);
                        // SAFETY: the caller says that C has that many rows of NR adjacent elements, readable unless beta is 0.
                        unsafe {
                            let c = c.offset(i as isize * stride).add(v * LANES).cast::<$vector>();
                            let sum = if beta == 0 as $t { sum } else { $add(sum, $mul(keep, c.read_unaligned())) };
                            c.write_unaligned(sum);
                        }
                    }
                }
            }
            Kernel { mr: $rows, nr: NR, mc: $mc, kc: $kc, nc: 4080, run }
        };
    };
}

/// `sum + a·b` of 32-bit integers, wrapping.
#[inline]
#[target_feature(enable = "avx2")]
fn step_i32(a: __m256i, b: __m256i, sum: __m256i) -> __m256i {
    _mm256_add_epi32(sum, _mm256_mullo_epi32(a, b))
}

/// `sum + a₀·b₀ + a₁·b₁` of the 16-bit halves of each 32-bit lane.
#[inline]
#[target_feature(enable = "avx2")]
fn step_i8(a: __m256i, b: __m256i, sum: __m256i) -> __m256i {
    _mm256_add_epi32(sum, _mm256_madd_epi16(a, b))
}

/// As [`step_i32`].
#[inline]
#[target_feature(enable = "avx512f")]
fn wide_step_i32(a: __m512i, b: __m512i, sum: __m512i) -> __m512i {
    _mm512_add_epi32(sum, _mm512_mullo_epi32(a, b))
}

/// As [`step_i8`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn wide_step_i8(a: __m512i, b: __m512i, sum: __m512i) -> __m512i {
    _mm512_add_epi32(sum, _mm512_madd_epi16(a, b))
}

// 16 registers hold 12 sums, 2 vectors of B and 1 value of A.
kernel! {
    /// f32 with AVX2, and 16-bit floats widened to it.
    AVX2_F32: "avx2,fma", f32 as __m256, 6 x 2, mc 144, kc 320;
    _mm256_set1_ps, _mm256_mul_ps, _mm256_add_ps, _mm256_fmadd_ps
}
kernel! {
    /// f64 with AVX2.
    AVX2_F64: "avx2,fma", f64 as __m256d, 6 x 2, mc 96, kc 256;
    _mm256_set1_pd, _mm256_mul_pd, _mm256_add_pd, _mm256_fmadd_pd
}
kernel! {
    /// i32 with AVX2.
    AVX2_I32: "avx2", i32 as __m256i, 6 x 2, mc 144, kc 320;
    _mm256_set1_epi32, _mm256_mullo_epi32, _mm256_add_epi32, step_i32
}
kernel! {
    /// i8 with AVX2.
    AVX2_I8: "avx2", i32 as __m256i, 6 x 2, mc 144, kc 640;
    _mm256_set1_epi32, _mm256_mullo_epi32, _mm256_add_epi32, step_i8
}

// 32 registers hold 24 sums, 3 vectors of B and 1 value of A.
kernel! {
    /// f32 with AVX-512, and 16-bit floats widened to it.
    AVX512_F32: "avx512f", f32 as __m512, 8 x 3, mc 240, kc 256;
    _mm512_set1_ps, _mm512_mul_ps, _mm512_add_ps, _mm512_fmadd_ps
}
kernel! {
    /// f64 with AVX-512.
    AVX512_F64: "avx512f", f64 as __m512d, 8 x 3, mc 120, kc 256;
    _mm512_set1_pd, _mm512_mul_pd, _mm512_add_pd, _mm512_fmadd_pd
}
kernel! {
    /// i32 with AVX-512.
    AVX512_I32: "avx512f", i32 as __m512i, 8 x 3, mc 240, kc 256;
    _mm512_set1_epi32, _mm512_mullo_epi32, _mm512_add_epi32, wide_step_i32
}
kernel! {
    /// i8 with AVX-512.
    AVX512_I8: "avx512f,avx512bw", i32 as __m512i, 8 x 3, mc 240, kc 512;
    _mm512_set1_epi32, _mm512_mullo_epi32, _mm512_add_epi32, wide_step_i8
}
