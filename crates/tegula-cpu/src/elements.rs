//! The element types: packing, rounding, and the micro-kernels of each instruction set.

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use tegula_core::element::Element;

use super::isa::Isa;
use super::micro_kernel::{Accumulate, CpuElement, MicroKernel};
use super::portable;
#[cfg(target_arch = "x86_64")]
use super::{amx, x86};

/// Implements [`CpuElement::micro_kernel`] and [`CpuElement::micro_kernel_isa`].
///
/// Each instruction set has its own micro-kernel, shared by those listed after it. The others use
/// the portable one.
macro_rules! micro_kernels {
    ($portable:expr, $($isa:ident $($also:ident)*: $micro_kernel:expr),*) => {
        fn micro_kernel(isa: Isa) -> &'static MicroKernel<Self> {
            match isa {
                $(#[cfg(target_arch = "x86_64")]
                Isa::$isa $(| Isa::$also)* => const { &$micro_kernel },)*
                _ => const { &$portable },
            }
        }
        fn micro_kernel_isa(isa: Isa) -> Isa {
            match isa {
                $(Isa::$isa $(| Isa::$also)* => Isa::$isa,)*
                _ => Isa::Portable,
            }
        }
    };
}

/// Implements [`CpuElement`] for a type packed one step at a time.
macro_rules! cpu_element {
    ($t:ty, $acc:ty, [$($conversion:item)*], $($isa:ident $($also:ident)*: $micro_kernel:expr),*) => {
        impl CpuElement for $t {
            $($conversion)*
            const K_PACK: usize = 1;
            #[inline(always)]
            fn pack(self, _: Self) -> $acc {
                Element::widen(self)
            }
            #[inline(always)]
            fn multiply_add(a: $acc, b: $acc, sum: $acc) -> $acc {
                a.times(b).plus(sum)
            }
            micro_kernels!(portable::micro_kernel(), $($isa $($also)*: $micro_kernel),*);
        }
    };
}

cpu_element!(f64, f64, [], Avx2: x86::avx2_f64(), Avx512 Vnni Avx512Bf16 Amx: x86::avx512_f64());
cpu_element!(f32, f32, [], Avx2: x86::avx2_f32(), Avx512 Vnni Avx512Bf16 Amx: x86::avx512_f32());
cpu_element!(f16, f32, [
    fn pack_slice(from: &[f16], to: &mut [f32]) { from.convert_to_f32_slice(to); }
    fn narrow_slice(from: &[f32], to: &mut [f16]) { to.convert_from_f32_slice(from); }
], Avx2: x86::avx2_f32(), Avx512 Vnni Avx512Bf16 Amx: x86::avx512_f16());
cpu_element!(bf16, f32, [
    #[inline(always)]
    fn narrow_slice(from: &[f32], to: &mut [bf16]) { from.iter().zip(to).for_each(|(&from, to)| *to = round_to_bf16(from)); }
], Avx2: x86::avx2_f32(), Avx512 Vnni: x86::avx512_bf16(), Avx512Bf16: x86::avx512bf16(), Amx: amx::of_bf16());
cpu_element!(i32, i32, [], Avx2: x86::avx2_i32(), Avx512 Vnni Avx512Bf16: x86::avx512_i32(), Amx: amx::of_i32());

impl CpuElement for i8 {
    const K_PACK: usize = 2;
    #[inline(always)]
    fn pack(self, next: Self) -> i32 {
        i32::from(next) << 16 | i32::from(self) & 0xFFFF
    }
    /// Both halves fit: the largest magnitude is 2·128·128.
    #[inline(always)]
    fn multiply_add(a: i32, b: i32, sum: i32) -> i32 {
        let (low, high) = (|x: i32| i32::from(x as i16), |x: i32| x >> 16);
        sum.wrapping_add(low(a) * low(b) + high(a) * high(b))
    }
    micro_kernels!(portable::micro_kernel(), Avx2: x86::avx2_i8(), Avx512: x86::avx512_bytes(), Vnni Avx512Bf16: x86::vnni_bytes(), Amx: amx::of_i8());
}

/// Rounds to nearest, ties to even, in a few operations that the compiler vectorizes.
#[inline(always)]
fn round_to_bf16(x: f32) -> bf16 {
    let bits = x.to_bits();
    let nearest = bits.wrapping_add(0x7FFF + (bits >> 16 & 1)) >> 16;
    bf16::from_bits(if x.is_nan() { bits >> 16 | 0x40 } else { nearest } as u16)
}
