//! Converting a matrix from one number type to another, for `--cast`.
//!
//! What NumPy's `astype` does, made total: a float is rounded to the nearest of a narrower type, ties to even, and overflows to
//! an infinity; a fraction is cut off on the way to an integer, a value outside the integer's range becomes its nearest end,
//! and NaN becomes 0. Every type here fits in f64 exactly, so all conversions pass through it and round once.

use bytemuck::Pod;
use tegula::element::{Scalar, Type, bf16, f16, to_odd};

use crate::{AnyArray, Array, Refusal};

/// A number type that files hold.
pub trait Number: Scalar + Pod {
    /// The value, exactly.
    fn to_f64(self) -> f64;
    /// The value rounded once, by this module's rules.
    fn rounded(value: f64) -> Self;
    /// An array of this type among all.
    fn hold(array: Array<Self>) -> AnyArray;
    /// The array, if it is of this type.
    ///
    /// # Errors
    /// Gives the array back otherwise.
    fn open(any: AnyArray) -> Result<Array<Self>, AnyArray>;
}

macro_rules! number {
    ($($t:ty, $tag:ident, $to:expr, $from:expr;)*) => {$(
        impl Number for $t {
            fn to_f64(self) -> f64 {
                let to: fn($t) -> f64 = $to;
                to(self)
            }
            fn rounded(value: f64) -> Self {
                let from: fn(f64) -> $t = $from;
                from(value)
            }
            fn hold(array: Array<Self>) -> AnyArray {
                AnyArray::$tag(array)
            }
            fn open(any: AnyArray) -> Result<Array<Self>, AnyArray> {
                match any {
                    AnyArray::$tag(array) => Ok(array),
                    other => Err(other),
                }
            }
        }
    )*};
}

number! {
    f64, F64, |x| x, |x| x;
    f32, F32, f64::from, |x| x as f32;
    f16, F16, f64::from, |x| f16::from_f32(to_odd(x));
    bf16, BF16, f64::from, |x| bf16::from_f32(to_odd(x));
    i32, I32, f64::from, |x| x as i32;
    i8, I8, f64::from, |x| x as i8;
}

/// The array in another type, in the same order.
pub(crate) fn array<S: Number>(array: &Array<S>, ty: Type) -> Result<AnyArray, Refusal> {
    match ty {
        Type::F64 => convert::<S, f64>(array),
        Type::F32 => convert::<S, f32>(array),
        Type::F16 => convert::<S, f16>(array),
        Type::BF16 => convert::<S, bf16>(array),
        Type::I32 => convert::<S, i32>(array),
        Type::I8 => convert::<S, i8>(array),
        other => Err(format!("cannot be cast to {other}")),
    }
}

fn convert<S: Number, T: Number>(array: &Array<S>) -> Result<AnyArray, Refusal> {
    let mut data = Vec::new();
    data.try_reserve_exact(array.data.len()).map_err(|_| {
        let shape = tegula::nd::display(&array.layout.shape);
        format!("does not fit in memory: {shape} {} beside the original", T::TYPE)
    })?;
    data.extend(array.data.iter().map(|&x| T::rounded(x.to_f64())));
    Ok(T::hold(Array { data, layout: array.layout.clone() }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sixteen_bit_types_are_rounded_once() {
        let above_tie = 1.0 + 2f64.powi(-11) + 2f64.powi(-40);
        assert_eq!(f16::rounded(above_tie), f16::from_bits(0x3c01));
        assert_eq!(f16::rounded(1.0 + 2f64.powi(-11)), f16::ONE);
        assert_eq!(f16::rounded(1.0 + 2f64.powi(-11) - 2f64.powi(-40)), f16::ONE);
        assert_eq!(f16::rounded(-above_tie), f16::from_bits(0xbc01));
        assert_eq!(bf16::rounded(1.0 + 2f64.powi(-8) + 2f64.powi(-40)), bf16::from_bits(0x3f81));
        assert_eq!(bf16::rounded(1.0 + 2f64.powi(-8)), bf16::ONE);
    }

    #[test]
    fn the_ends_of_the_range_are_kept() {
        assert_eq!(f16::rounded(1e300), f16::INFINITY);
        assert_eq!(bf16::rounded(f64::NEG_INFINITY), bf16::NEG_INFINITY);
        assert!(f16::rounded(f64::NAN).is_nan());
        assert_eq!(f16::rounded(-1e-300).to_bits(), 0x8000);
        assert_eq!(f16::rounded(65_519.999_999), f16::MAX);
        assert_eq!(f16::rounded(65520.0), f16::INFINITY);
    }

    #[test]
    fn integers_cut_saturate_and_turn_nan_to_zero() {
        assert_eq!(i32::rounded(-2.9), -2);
        assert_eq!(i32::rounded(3e9), i32::MAX);
        assert_eq!(i8::rounded(f64::NEG_INFINITY), -128);
        assert_eq!(i8::rounded(f64::NAN), 0);
    }
}
