//! 8-bit floats and booleans, as stored in files.

use std::fmt;

use bytemuck::{Pod, Zeroable};
use tegula_core::element::f16;

/// OCP 8-bit float with 4 exponent bits (E4M3FN): finite up to 448, NaN, no infinities.
#[derive(Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
#[repr(transparent)]
pub struct F8E4M3(
    /// The bits as stored.
    pub u8,
);

/// OCP 8-bit float with 5 exponent bits: the upper half of an f16.
#[derive(Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
#[repr(transparent)]
pub struct F8E5M2(
    /// The bits as stored.
    pub u8,
);

/// Boolean as stored: any byte other than 0 is true.
#[derive(Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
#[repr(transparent)]
pub struct Bool(
    /// The byte as stored.
    pub u8,
);

impl F8E4M3 {
    /// Exact value.
    pub fn to_f32(self) -> f32 {
        let magnitude = u32::from(self.0 & 0x7f);
        if magnitude == 0x7f {
            return f32::NAN;
        }
        // Move exponent and fraction to their f32 positions, then scale by the difference of the
        // biases, 127 - 7. This is also correct for subnormals.
        let value = f32::from_bits(magnitude << 20) * 2f32.powi(120);
        if self.0 & 0x80 == 0 { value } else { -value }
    }
}

impl F8E5M2 {
    /// Exact value.
    pub fn to_f32(self) -> f32 {
        f16::from_bits(u16::from(self.0) << 8).to_f32()
    }
}

impl Bool {
    /// Whether the value is true.
    pub fn is_true(self) -> bool {
        self.0 != 0
    }
}

impl fmt::Debug for F8E4M3 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.to_f32(), f)
    }
}

impl fmt::Debug for F8E5M2 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.to_f32(), f)
    }
}

impl fmt::Debug for Bool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&u8::from(self.is_true()), f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Value by definition: sign, biased exponent, fraction.
    fn defined(bits: u8, fraction_bits: i32, bias: i32) -> f64 {
        let fraction = f64::from(bits & ((1 << fraction_bits) - 1)) / 2f64.powi(fraction_bits);
        let exponent = i32::from((bits & 0x7f) >> fraction_bits);
        let magnitude = match exponent {
            0 => fraction * 2f64.powi(1 - bias),
            _ => (1.0 + fraction) * 2f64.powi(exponent - bias),
        };
        if bits & 0x80 == 0 { magnitude } else { -magnitude }
    }

    #[test]
    fn float8_values_match_the_definition() {
        for bits in 0..=255u8 {
            let (e4m3, e5m2) = (f64::from(F8E4M3(bits).to_f32()), f64::from(F8E5M2(bits).to_f32()));
            match bits & 0x7f {
                0x7f => assert!(e4m3.is_nan()),
                _ => assert_eq!(e4m3.to_bits(), defined(bits, 3, 7).to_bits(), "{bits:#x}"),
            }
            match bits & 0x7f {
                0x7c => assert_eq!(e5m2, f64::INFINITY.copysign(defined(bits, 2, 15))),
                0x7d.. => assert!(e5m2.is_nan()),
                _ => assert_eq!(e5m2.to_bits(), defined(bits, 2, 15).to_bits(), "{bits:#x}"),
            }
        }
        assert_eq!(F8E4M3(0x7e).to_f32(), 448.0);
    }
}
