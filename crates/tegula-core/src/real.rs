//! Real arithmetic for activations, implemented by CPU numbers and by values of kernels.

use std::ops::{Add, Mul, Neg, Sub};

/// The floating-point formats in which activations are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precision {
    /// f32.
    Single,
    /// f64.
    Double,
}

/// f32 or f64, as a number on the CPU or as a value of a kernel under construction.
pub trait Real: Copy + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self> + Neg<Output = Self> {
    /// A Boolean.
    type Predicate: Copy;
    /// The format.
    const PRECISION: Precision;
    /// The nearest value to `value`.
    fn number(self, value: f64) -> Self;
    /// self·b + c, rounded once.
    fn fma(self, b: Self, c: Self) -> Self;
    /// min(|self|, max); `max` where self is NaN.
    fn abs_min(self, max: f64) -> Self;
    /// self < bound; false where self is NaN.
    fn is_less(self, bound: f64) -> Self::Predicate;
    /// `yes` where the condition holds, else `no`.
    fn select(condition: Self::Predicate, yes: Self, no: Self) -> Self;
    /// 2^(n + bias), where the last bits of self are the integer n.
    ///
    /// The exponent must be that of a normal number.
    fn exp2_bits(self, bias: u64) -> Self;
    /// self·2^n, where the last bits of `integer` are the integer n.
    ///
    /// The result must be a normal number.
    fn scale_exp2(self, integer: Self) -> Self;
}

macro_rules! real {
    ($($t:ident $bits:ident $precision:ident;)*) => {$(impl Real for $t {
        type Predicate = bool;
        const PRECISION: Precision = Precision::$precision;
        #[inline(always)]
        fn number(self, value: f64) -> Self {
            value as $t
        }
        #[inline(always)]
        fn fma(self, b: Self, c: Self) -> Self {
            self.mul_add(b, c)
        }
        #[inline(always)]
        fn abs_min(self, max: f64) -> Self {
            self.abs().min(max as $t)
        }
        #[inline(always)]
        fn is_less(self, bound: f64) -> bool {
            self < bound as $t
        }
        #[inline(always)]
        fn select(condition: bool, yes: Self, no: Self) -> Self {
            if condition { yes } else { no }
        }
        #[inline(always)]
        fn exp2_bits(self, bias: u64) -> Self {
            const MANTISSA_BITS: u32 = $t::MANTISSA_DIGITS - 1;
            let one = (1.0 as $t).to_bits();
            $t::from_bits((self.to_bits() << MANTISSA_BITS).wrapping_add(one.wrapping_add((bias as $bits) << MANTISSA_BITS)))
        }
        #[inline(always)]
        fn scale_exp2(self, integer: Self) -> Self {
            const MANTISSA_BITS: u32 = $t::MANTISSA_DIGITS - 1;
            $t::from_bits(self.to_bits().wrapping_add(integer.to_bits() << MANTISSA_BITS))
        }
    })*};
}
real! { f32 u32 Single; f64 u64 Double; }
