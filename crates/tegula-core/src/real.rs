//! Real arithmetic as activations need it, written once for numbers and for values of kernels.

use std::ops::{Add, Mul, Neg, Sub};

/// The two formats that activations are computed in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precision {
    /// f32.
    Single,
    /// f64.
    Double,
}

/// A type that activations are computed in: f32 or f64, as a number or as a value of a kernel that
/// is being built.
pub trait Real: Copy + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self> + Neg<Output = Self> {
    /// A truth value.
    type Truth: Copy;
    /// The format.
    const PRECISION: Precision;
    /// The nearest value to a number.
    fn number(self, value: f64) -> Self;
    /// self·b + c, rounded once.
    fn fused(self, b: Self, c: Self) -> Self;
    /// The lesser of |self| and a number; the number where self is NaN.
    fn size_up_to(self, most: f64) -> Self;
    /// Whether self is less than a number; not where it is NaN.
    fn is_less(self, than: f64) -> Self::Truth;
    /// One of two.
    fn select(which: Self::Truth, yes: Self, no: Self) -> Self;
    /// 2^(n + more), for a self whose last bits are the integer n. The exponent must be one of
    /// normal numbers.
    fn power(self, more: u64) -> Self;
    /// self·2^n, for an `integer` whose last bits are the integer n. The result must be a normal
    /// number.
    fn times_power(self, integer: Self) -> Self;
}

macro_rules! real {
    ($($t:ident $bits:ident $precision:ident;)*) => {$(impl Real for $t {
        type Truth = bool;
        const PRECISION: Precision = Precision::$precision;
        #[inline(always)]
        fn number(self, value: f64) -> Self {
            value as $t
        }
        #[inline(always)]
        fn fused(self, b: Self, c: Self) -> Self {
            self.mul_add(b, c)
        }
        #[inline(always)]
        fn size_up_to(self, most: f64) -> Self {
            self.abs().min(most as $t)
        }
        #[inline(always)]
        fn is_less(self, than: f64) -> bool {
            self < than as $t
        }
        #[inline(always)]
        fn select(which: bool, yes: Self, no: Self) -> Self {
            if which { yes } else { no }
        }
        #[inline(always)]
        fn power(self, more: u64) -> Self {
            const POINT: u32 = $t::MANTISSA_DIGITS - 1;
            let one = (1.0 as $t).to_bits();
            $t::from_bits((self.to_bits() << POINT).wrapping_add(one.wrapping_add((more as $bits) << POINT)))
        }
        #[inline(always)]
        fn times_power(self, integer: Self) -> Self {
            const POINT: u32 = $t::MANTISSA_DIGITS - 1;
            $t::from_bits(self.to_bits().wrapping_add(integer.to_bits() << POINT))
        }
    })*};
}
real! { f32 u32 Single; f64 u64 Double; }
