//! Types of the elements of matrices.

use crate::ast::ScalarType;

/// The type of the elements of a matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Element {
    F64,
    F32,
    F16,
    Bf16,
    Tf32,
    E4m3,
    E5m2,
    S32,
    S8,
    U8,
    S4,
    U4,
    B1,
}

use Element::*;

impl Element {
    /// Every type with its name in PTX, its bits in memory, and the bits of a part of a register.
    ///
    /// A part is the unit of the mapping to registers: one element, or 32 elements of type `b1`.
    const ALL: [(Element, &str, u32, u32); 13] = [
        (F64, "f64", 64, 64),
        (F32, "f32", 32, 32),
        (F16, "f16", 16, 16),
        (Bf16, "bf16", 16, 16),
        (Tf32, "tf32", 32, 32),
        (E4m3, "e4m3", 8, 8),
        (E5m2, "e5m2", 8, 8),
        (S32, "s32", 32, 32),
        (S8, "s8", 8, 8),
        (U8, "u8", 8, 8),
        (S4, "s4", 4, 4),
        (U4, "u4", 4, 4),
        (B1, "b1", 1, 32),
    ];

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|known| known.1 == name).map(|known| known.0)
    }

    fn properties(self) -> (Element, &'static str, u32, u32) {
        Self::ALL[self as usize]
    }

    pub fn name(self) -> &'static str {
        self.properties().1
    }

    /// Bits of an element in memory.
    pub fn bits(self) -> u32 {
        self.properties().2
    }

    /// Bits of a part of a register.
    pub fn part_bits(self) -> u32 {
        self.properties().3
    }

    /// Parts of a register.
    pub fn parts(self) -> u32 {
        (32 / self.part_bits()).max(1)
    }

    /// Elements of a part.
    pub fn per_part(self) -> u32 {
        self.part_bits() / self.bits()
    }

    /// The type of its registers.
    pub fn register(self) -> ScalarType {
        match self {
            F64 => ScalarType::F64,
            F32 => ScalarType::F32,
            S32 => ScalarType::S32,
            _ => ScalarType::B32,
        }
    }

    /// Converts a part of a register to an operand of a multiplication.
    ///
    /// Integers are sign-extended. Elements of 8-bit floating-point formats become f16, exactly.
    pub fn widen(self, bits: u64) -> u64 {
        match self {
            S8 => bits as i8 as u64,
            S4 => ((bits << 4) as i8 >> 4) as u64,
            E5m2 => bits << 8,
            E4m3 => e4m3_to_f16(bits as u8).into(),
            _ => bits,
        }
    }
}

/// Converts e4m3, which has no infinities and one NaN of each sign, to f16.
fn e4m3_to_f16(bits: u8) -> u16 {
    let (sign, magnitude) = (u16::from(bits & 0x80) << 8, u16::from(bits & 0x7f));
    let rest = match magnitude {
        0x7f => 0x7fff,
        // The exponent's bias is 7 instead of 15.
        8.. => (magnitude << 7) + (8 << 10),
        0 => 0,
        // A subnormal m · 2^-9 is normal in f16: its leading bit becomes the implicit one.
        _ => {
            let leading = magnitude.ilog2();
            ((leading as u16 + 6) << 10) + ((magnitude << (10 - leading)) & 0x3ff)
        }
    };
    sign | rest
}

#[cfg(test)]
mod tests {
    use half::f16;

    use super::*;

    #[test]
    fn table_of_elements_is_in_the_order_of_the_enum() {
        for (at, (element, name, ..)) in Element::ALL.into_iter().enumerate() {
            assert_eq!((element as usize, element.name()), (at, name));
            assert_eq!(Element::from_name(name), Some(element));
        }
        assert_eq!(Element::from_name("e2m1"), None);
    }

    #[test]
    fn e4m3_converts_to_the_same_value_in_f16() {
        for bits in 0..=255u8 {
            let (exponent, fraction) = (i32::from(bits >> 3 & 15), f64::from(bits & 7));
            let magnitude = match (exponent, bits & 7) {
                (15, 7) => f64::NAN,
                (0, _) => fraction / 8.0 * 2f64.powi(-6),
                _ => (1.0 + fraction / 8.0) * 2f64.powi(exponent - 7),
            };
            let got = f16::from_bits(E4m3.widen(bits.into()) as u16);
            assert_eq!(got.is_sign_negative(), bits >= 128);
            assert!(got.to_f64().abs() == magnitude || got.is_nan() && magnitude.is_nan(), "{bits:#x}");
        }
    }

    #[test]
    fn integers_are_sign_extended() {
        assert_eq!([0xff, 0x7f].map(|bits| S8.widen(bits) as i64), [-1, 127]);
        assert_eq!([0xf, 0x8, 0x7].map(|bits| S4.widen(bits) as i64), [-1, -8, 7]);
        assert_eq!([U8.widen(0xff), U4.widen(0xf)], [255, 15]);
    }
}
