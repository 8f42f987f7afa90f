//! Numbers as decimals: the fewest digits that read back as the same number.

use std::io::{self, Write};

use tegula::element::{Scalar, Type, bf16, f16};

use crate::cast::Number;

/// Writes a number in as few digits as read back to it in its type. NaN is `NaN`, infinities are `inf` and `-inf`.
pub(crate) fn write<T: Scalar>(sink: &mut impl Write, value: T) -> io::Result<()> {
    let bits = value.to_bits();
    match T::TYPE {
        Type::F64 => write!(sink, "{:?}", f64::from_bits(bits)),
        Type::F32 => write!(sink, "{:?}", f32::from_bits(bits as u32)),
        Type::F16 => write!(sink, "{:?}", shortest(f16::from_bits(bits as u16))),
        Type::BF16 => write!(sink, "{:?}", shortest(bf16::from_bits(bits as u16))),
        Type::I64 => write!(sink, "{}", bits as i64),
        Type::I32 => write!(sink, "{}", bits as i32),
        Type::I8 => write!(sink, "{}", bits as i8),
        Type::U64 | Type::U32 | Type::U8 | Type::Pred => write!(sink, "{bits}"),
    }
}

/// The value correctly rounded to the fewest decimal digits from which its 16 bits come back.
fn shortest<T: Number>(value: T) -> f64 {
    let exact = value.to_f64();
    let rounded = |digits: usize| format!("{exact:.digits$e}").parse().unwrap_or(exact);
    (0..5).map(rounded).find(|&decimal| T::rounded(decimal).to_bits() == value.to_bits()).unwrap_or(exact)
}

/// Whether a type is written without a fraction.
pub(crate) fn is_integer(ty: Type) -> bool {
    !matches!(ty, Type::F64 | Type::F32 | Type::F16 | Type::BF16)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text<T: Scalar>(value: T) -> String {
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
        assert_eq!(
            (text(i8::MIN), text(i32::MIN), text(i64::MIN)),
            ("-128".into(), i32::MIN.to_string(), i64::MIN.to_string())
        );
    }

    #[test]
    fn every_16_bit_float_comes_back() {
        fn all<T: Number>() {
            for bits in 0..=u64::from(u16::MAX) {
                let value = T::from_bits(bits);
                let back = T::rounded(text(value).parse().unwrap());
                assert!(back.to_bits() == bits || value.to_f64().is_nan() && back.to_f64().is_nan(), "{bits:#x}");
            }
        }
        all::<f16>();
        all::<bf16>();
    }
}
