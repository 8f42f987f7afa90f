//! Shortest decimal representations of numbers.

use std::io::{self, Write};

use tegula_core::element::round_to_odd;

use crate::Dtype;
use crate::number::{Number, bf16, f16};

/// Writes the shortest decimal that reads back as the same number in its type.
///
/// NaN is `NaN`, infinities are `inf` and `-inf`, booleans are 0 and 1.
pub(crate) fn write<T: Number>(sink: &mut impl Write, value: T) -> io::Result<()> {
    match T::DTYPE {
        Dtype::F16 => write!(sink, "{:?}", shortest(value.to_f64(), |x| f16::from_f32(round_to_odd(x)).into())),
        Dtype::BF16 => write!(sink, "{:?}", shortest(value.to_f64(), |x| bf16::from_f32(round_to_odd(x)).into())),
        Dtype::Bool => write!(sink, "{}", value.to_f64()),
        // Rust's `Debug` is the shortest for these types.
        Dtype::F64 | Dtype::F32 | Dtype::F8E4M3 | Dtype::F8E5M2 => write!(sink, "{value:?}"),
        Dtype::I64 | Dtype::I32 | Dtype::I16 | Dtype::I8 => write!(sink, "{value:?}"),
        Dtype::U64 | Dtype::U32 | Dtype::U16 | Dtype::U8 => write!(sink, "{value:?}"),
    }
}

/// Rounds a value to the fewest decimal digits that round back to it.
///
/// Five digits are sufficient for 16-bit types.
fn shortest(value: f64, round: fn(f64) -> f64) -> f64 {
    let decimal = |digits: usize| format!("{value:.digits$e}").parse().unwrap_or(value);
    (0..5).map(decimal).find(|&decimal| round(decimal) == value).unwrap_or(value)
}

/// Whether values of a dtype have no fraction.
pub(crate) const fn is_integer(dtype: Dtype) -> bool {
    dtype.is_int() || matches!(dtype, Dtype::Bool)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text<T: Number>(value: T) -> String {
        let mut bytes = Vec::new();
        write(&mut bytes, value).unwrap();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn decimal_is_shortest() {
        assert_eq!(text(0.1f64), "0.1");
        assert_eq!(text(-1e300f64), "-1e300");
        assert_eq!(text(0.1f32), "0.1");
        assert_eq!(text(f16::from_f64(0.1)), "0.1");
        assert_eq!(text(f16::MAX), "65500.0");
        assert_eq!(text(bf16::from_f64(0.1)), "0.1");
        assert_eq!(text(-0f64), "-0.0");
        assert_eq!(text(f16::NEG_ZERO), "-0.0");
        assert_eq!((text(f32::NAN), text(f16::NEG_INFINITY)), ("NaN".into(), "-inf".into()));
        assert_eq!((text(i8::MIN), text(i32::MIN)), ("-128".into(), i32::MIN.to_string()));
    }

    #[test]
    fn decimal_of_16_bit_floats_round_trips() {
        for bits in 0..=u16::MAX {
            let read = |text: String| round_to_odd(text.parse().unwrap());
            let (half, brain) = (f16::from_bits(bits), bf16::from_bits(bits));
            assert!(half.is_nan() || f16::from_f32(read(text(half))).to_bits() == bits, "{bits:#x}");
            assert!(brain.is_nan() || bf16::from_f32(read(text(brain))).to_bits() == bits, "{bits:#x}");
        }
    }
}
