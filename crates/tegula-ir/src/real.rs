//! Values of a kernel as real numbers, for activations (`tegula_core::epilogue`).

use tegula_core::real::{Precision, Real};

use super::types::{Pred, Val};

macro_rules! real {
    ($($t:ident $bits:ident $precision:ident;)*) => {$(impl<'k> Real for Val<'k, $t> {
        type Truth = Pred<'k>;
        const PRECISION: Precision = Precision::$precision;
        fn number(self, value: f64) -> Self {
            self.k.constant(value as $t)
        }
        fn fused(self, b: Self, c: Self) -> Self {
            self.mul_add(b, c)
        }
        fn size_up_to(self, most: f64) -> Self {
            self.abs().min(most as $t)
        }
        fn is_less(self, than: f64) -> Pred<'k> {
            self.lt(than as $t)
        }
        fn select(which: Pred<'k>, yes: Self, no: Self) -> Self {
            which.select(yes, no)
        }
        fn power(self, more: u64) -> Self {
            const POINT: u32 = $t::MANTISSA_DIGITS - 1;
            let one = (1.0 as $t).to_bits();
            ((self.bitcast::<$bits>() << $bits::from(POINT)) + (one + ((more as $bits) << POINT))).bitcast()
        }
        fn times_power(self, integer: Self) -> Self {
            const POINT: u32 = $t::MANTISSA_DIGITS - 1;
            (self.bitcast::<$bits>() + (integer.bitcast::<$bits>() << $bits::from(POINT))).bitcast()
        }
    })*};
}
real! { f32 u32 Single; f64 u64 Double; }
