//! Numbers as decimals: the fewest digits that read back as the same number.

use std::io::{self, Write};

use tegula_core::element::to_odd;

use crate::Dtype;
use crate::number::{Number, bf16, f16};

/// Writes a number in as few digits as read back to it in its type. NaN is `NaN`, infinities are `inf` and `-inf`,
/// truth values 0 and 1.
pub(crate) fn write<T: Number>(sink: &mut impl Write, value: T) -> io::Result<()> {
    match T::DTYPE {
        Dtype::F16 => write!(sink, "{:?}", shortest(value.to_f64(), |x| f16::from_f32(to_odd(x)).into())),
        Dtype::BF16 => write!(sink, "{:?}", shortest(value.to_f64(), |x| bf16::from_f32(to_odd(x)).into())),
        Dtype::Bool => write!(sink, "{}", value.to_f64()),
        // Rust prints its own types so.
        Dtype::F64 | Dtype::F32 | Dtype::F8E4M3 | Dtype::F8E5M2 => write!(sink, "{value:?}"),
        Dtype::I64 | Dtype::I32 | Dtype::I16 | Dtype::I8 => write!(sink, "{value:?}"),
        Dtype::U64 | Dtype::U32 | Dtype::U16 | Dtype::U8 => write!(sink, "{value:?}"),
    }
}

/// The value correctly rounded to the fewest decimal digits that are rounded back to it. Of 16 bits five digits tell all.
fn shortest(value: f64, round: fn(f64) -> f64) -> f64 {
    let decimal = |digits: usize| format!("{value:.digits$e}").parse().unwrap_or(value);
    (0..5).map(decimal).find(|&decimal| round(decimal) == value).unwrap_or(value)
}

/// Whether a type is written without a fraction.
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
    fn decimals_are_short() {
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
    fn every_16_bit_float_comes_back() {
        for bits in 0..=u16::MAX {
            let read = |text: String| to_odd(text.parse().unwrap());
            let (half, brain) = (f16::from_bits(bits), bf16::from_bits(bits));
            assert!(half.is_nan() || f16::from_f32(read(text(half))).to_bits() == bits, "{bits:#x}");
            assert!(brain.is_nan() || bf16::from_f32(read(text(brain))).to_bits() == bits, "{bits:#x}");
        }
    }
}
