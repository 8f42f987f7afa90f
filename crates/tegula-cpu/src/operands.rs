//! The element types: how each is packed, and its micro-kernels of every instruction set.

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use tegula_core::element::Element;

use super::isa::Isa;
use super::kernel::{Operand, Sum, Tiles};
use super::portable;
#[cfg(target_arch = "x86_64")]
use super::{amx, x86};

/// [`Operand::tiles`] and [`Operand::own`]: the portable ones, and what each instruction set has, also for those named after it.
macro_rules! tiles {
    ($portable:expr, $($isa:ident $($also:ident)*: $tiles:expr),*) => {
        fn tiles(isa: Isa) -> Tiles<Self> {
            match isa {
                $(#[cfg(target_arch = "x86_64")]
                Isa::$isa $(| Isa::$also)* => $tiles,)*
                _ => $portable,
            }
        }
        fn own(isa: Isa) -> Isa {
            match isa {
                $(Isa::$isa $(| Isa::$also)* => Isa::$isa,)*
                _ => Isa::Portable,
            }
        }
    };
}

/// Implements [`Operand`] for a type packed one step at a time.
macro_rules! operand {
    ($t:ty, $sums:ty, [$($conversion:item)*], $($isa:ident $($also:ident)*: $tiles:expr),*) => {
        impl Operand for $t {
            $($conversion)*
            const DEPTH: usize = 1;
            #[inline(always)]
            fn pack(self, _: Self) -> $sums {
                self.widen()
            }
            #[inline(always)]
            fn step(a: $sums, b: $sums, sum: $sums) -> $sums {
                a.times(b).plus(sum)
            }
            tiles!(portable::tiles(), $($isa $($also)*: $tiles),*);
        }
    };
}

operand!(f64, f64, [], Avx2: x86::avx2_f64(), Avx512 Vnni Amx: x86::avx512_f64());
operand!(f32, f32, [], Avx2: x86::avx2_f32(), Avx512 Vnni Amx: x86::avx512_f32());
operand!(f16, f32, [
    fn pack_all(from: &[f16], to: &mut [f32]) { from.convert_to_f32_slice(to); }
    fn narrow_all(from: &[f32], to: &mut [f16]) { to.convert_from_f32_slice(from); }
], Avx2: x86::avx2_f32(), Avx512 Vnni Amx: x86::avx512_f16());
operand!(bf16, f32, [
    #[inline(always)]
    fn narrow_all(from: &[f32], to: &mut [bf16]) { from.iter().zip(to).for_each(|(&from, to)| *to = rounded(from)); }
], Avx2: x86::avx2_f32(), Avx512 Vnni: x86::avx512_bf16(), Amx: amx::of_bf16());
operand!(i32, i32, [], Avx2: x86::avx2_i32(), Avx512 Vnni: x86::avx512_i32(), Amx: amx::of_i32());

impl Operand for i8 {
    const DEPTH: usize = 2;
    #[inline(always)]
    fn pack(self, next: Self) -> i32 {
        i32::from(next) << 16 | i32::from(self) & 0xFFFF
    }
    /// Both halves fit: the largest magnitude is 2·128·128.
    #[inline(always)]
    fn step(a: i32, b: i32, sum: i32) -> i32 {
        let (low, high) = (|x: i32| i32::from(x as i16), |x: i32| x >> 16);
        sum.wrapping_add(low(a) * low(b) + high(a) * high(b))
    }
    tiles!(portable::tiles(), Avx2: x86::avx2_i8(), Avx512: x86::avx512_bytes(), Vnni: x86::vnni_bytes(), Amx: amx::of_i8());
}

/// To the nearest, ties to even, in a few operations that the compiler makes vectors of.
#[inline(always)]
fn rounded(x: f32) -> bf16 {
    let bits = x.to_bits();
    let nearest = bits.wrapping_add(0x7FFF + (bits >> 16 & 1)) >> 16;
    bf16::from_bits(if x.is_nan() { bits >> 16 | 0x40 } else { nearest } as u16)
}
