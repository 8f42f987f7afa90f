//! [`Real`] for values of a kernel: activations of `tegula_core::epilogue` in kernels.

use tegula_core::real::{Precision, Real};

use super::types::{Pred, Val};

macro_rules! real {
    ($($t:ident $bits:ident $precision:ident;)*) => {$(impl<'k> Real for Val<'k, $t> {
        type Predicate = Pred<'k>;
        const PRECISION: Precision = Precision::$precision;
        fn number(self, value: f64) -> Self {
            self.k.constant(value as $t)
        }
        fn fma(self, b: Self, c: Self) -> Self {
            self.mul_add(b, c)
        }
        fn abs_min(self, max: f64) -> Self {
            self.abs().min(max as $t)
        }
        fn is_less(self, bound: f64) -> Pred<'k> {
            self.lt(bound as $t)
        }
        fn select(condition: Pred<'k>, yes: Self, no: Self) -> Self {
            condition.select(yes, no)
        }
        fn exp2_bits(self, bias: u64) -> Self {
            const MANTISSA_BITS: u32 = $t::MANTISSA_DIGITS - 1;
            let one = (1.0 as $t).to_bits();
            ((self.bitcast::<$bits>() << $bits::from(MANTISSA_BITS)) + (one + ((bias as $bits) << MANTISSA_BITS))).bitcast()
        }
        fn scale_exp2(self, integer: Self) -> Self {
            const MANTISSA_BITS: u32 = $t::MANTISSA_DIGITS - 1;
            (self.bitcast::<$bits>() + (integer.bitcast::<$bits>() << $bits::from(MANTISSA_BITS))).bitcast()
        }
    })*};
}
real! { f32 u32 Single; f64 u64 Double; }
