//! What a micro-kernel is: a few sizes and one function. And how each element type is packed for it.

use half::{bf16, f16};

use super::isa::Isa;
use super::portable;
#[cfg(target_arch = "x86_64")]
use super::x86;
use crate::element::{Arith, Element};

/// Elements of the largest tile of C that any micro-kernel makes.
pub const MAX_TILE: usize = 8 * 48;

/// `C ← alpha·A·B + beta·C` for one MR×NR tile of C and `steps` packed steps of k.
///
/// Arguments: steps, alpha, A, B, beta, C, and the distance between rows of C. A holds MR values a step and B holds NR; C has
/// NR adjacent elements a row.
///
/// # Safety
/// The machine has the kernel's instruction set. A and B can be read to their ends; C can be written, and read unless `beta` is 0.
pub type Micro<S> = unsafe fn(usize, S, *const S, *const S, S, *mut S, isize);

/// A micro-kernel, with the blocking it likes (BLIS names; all in elements of C, or of k).
#[derive(Clone, Copy)]
pub struct Kernel<S> {
    /// Rows of C in registers.
    pub mr: usize,
    /// Columns of C in registers.
    pub nr: usize,
    /// Rows of A that stay in the second-level cache; a multiple of MR.
    pub mc: usize,
    /// Steps of k between two visits to C; even.
    pub kc: usize,
    /// Columns of B that are packed at a time; a multiple of NR.
    pub nc: usize,
    /// The function.
    pub run: Micro<S>,
}

/// A type that sums are kept in, with the arithmetic that the plain loop does: rounded for floats, wrapping for integers.
pub trait Sum: Arith + bytemuck::Pod {
    /// The product.
    fn times(self, other: Self) -> Self;
    /// The sum.
    fn plus(self, other: Self) -> Self;
}

macro_rules! sum {
    ($($t:ty, $times:expr, $plus:expr;)*) => {$(impl Sum for $t {
        #[inline(always)]
        fn times(self, other: Self) -> Self { let f: fn($t, $t) -> $t = $times; f(self, other) }
        #[inline(always)]
        fn plus(self, other: Self) -> Self { let f: fn($t, $t) -> $t = $plus; f(self, other) }
    })*};
}

sum! {
    f64, |x, y| x * y, |x, y| x + y;
    f32, |x, y| x * y, |x, y| x + y;
    i32, i32::wrapping_mul, i32::wrapping_add;
}

/// An element type that has micro-kernels.
///
/// Whatever the element type, packed values have the size of a sum: 16-bit floats are widened when they are packed, and `i8`
/// goes two steps of k to a packed `i32`, 16 bits each, which is what the processor's pairwise multiply-add takes.
pub trait Operand: Element<Acc: Sum> {
    /// Steps of k in one packed value: 1 or 2.
    const DEPTH: usize;
    /// This element, and for a depth of 2 the one at the next k, as a packed value.
    fn pack(self, next: Self) -> Self::Acc;
    /// `sum` plus the product of two packed values, for the portable kernel.
    fn step(a: Self::Acc, b: Self::Acc, sum: Self::Acc) -> Self::Acc;
    /// The micro-kernel for an instruction set that this machine has.
    fn kernel(isa: Isa) -> Kernel<Self::Acc>;
}

/// Implements [`Operand`] for a type packed one step at a time.
macro_rules! operand {
    ($t:ty, $sums:ty, $portable:expr, $avx2:ident, $avx512:ident) => {
        impl Operand for $t {
            const DEPTH: usize = 1;
            #[inline(always)]
            fn pack(self, _: Self) -> $sums {
                self.widen()
            }
            #[inline(always)]
            fn step(a: $sums, b: $sums, sum: $sums) -> $sums {
                a.times(b).plus(sum)
            }
            operand!(kernel $sums, $portable, $avx2, $avx512);
        }
    };
    (kernel $sums:ty, $portable:expr, $avx2:ident, $avx512:ident) => {
        fn kernel(isa: Isa) -> Kernel<$sums> {
            match isa {
                #[cfg(target_arch = "x86_64")]
                Isa::Avx2 => x86::$avx2,
                #[cfg(target_arch = "x86_64")]
                Isa::Avx512 => x86::$avx512,
                _ => $portable,
            }
        }
    };
}

operand!(f64, f64, portable::kernel::<f64, 4, 4>(), AVX2_F64, AVX512_F64);
operand!(f32, f32, portable::kernel::<f32, 4, 8>(), AVX2_F32, AVX512_F32);
operand!(f16, f32, portable::kernel::<f32, 4, 8>(), AVX2_F32, AVX512_F32);
operand!(bf16, f32, portable::kernel::<f32, 4, 8>(), AVX2_F32, AVX512_F32);
operand!(i32, i32, portable::kernel::<i32, 4, 8>(), AVX2_I32, AVX512_I32);

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
    operand!(kernel i32, portable::kernel::<i8, 4, 8>(), AVX2_I8, AVX512_I8);
}
