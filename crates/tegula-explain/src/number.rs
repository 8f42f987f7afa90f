//! Values as bits, and their decimal form.

use tegula_core::element::Type;

/// The value of a type's bits; 64-bit integers may be rounded.
pub fn value(ty: Type, bits: u64) -> f64 {
    ty.to_f64(bits)
}

/// Formats a value in about seven characters: exactly if that is short, else to four digits.
pub fn format_value(ty: Type, bits: u64) -> String {
    format_number(value(ty, bits))
}

/// Formats a number as [`format_value`] does.
pub fn format_number(value: f64) -> String {
    let exact = if value == 0.0 { "0".into() } else { format!("{value}") };
    if exact.len() <= 6 || !value.is_finite() {
        exact
    } else if (1e-3..1e6).contains(&value.abs()) {
        let digits = (3 - value.abs().log10().floor() as i32).max(0) as usize;
        format!("{value:.digits$}")
    } else {
        format!("{value:.2e}")
    }
}

#[cfg(test)]
mod tests {
    use tegula_core::element::f16;

    use super::*;

    #[test]
    fn format_value_is_short_and_rounds_to_four_digits() {
        let f32 = |x: f32| format_value(Type::F32, x.to_bits().into());
        assert_eq!([0.0, -0.0, 1.0, -2.5, 90.0, 1234.5].map(f32), ["0", "0", "1", "-2.5", "90", "1234.5"]);
        assert_eq!([1.0 / 3.0, 123456.78, 1e9, 1.5e-7].map(f32), ["0.3333", "123457", "1.00e9", "1.50e-7"]);
        assert_eq!([f32::NAN, f32::INFINITY].map(f32), ["NaN", "inf"]);
        assert_eq!(format_value(Type::I32, (-7i32) as u32 as u64), "-7");
        assert_eq!(format_value(Type::I8, 0xff), "-1");
        assert_eq!(format_value(Type::F16, f16::from_f32(0.5).to_bits().into()), "0.5");
        assert_eq!(format_value(Type::F64, 0.1f64.to_bits()), "0.1");
    }
}
