//! Element types of arguments: their names, their bits, and the numbers that they represent.

use tegula_files::Dtype;
use tegula_files::number::{bf16, f16};
use tegula_ptx::ast::ScalarType::{self, *};

/// Element types by name. Messages use the first name of a type.
const NAMES: [(&str, ScalarType); 16] = [
    ("f64", F64),
    ("f32", F32),
    ("f16", F16),
    ("bf16", Bf16),
    ("i64", S64),
    ("i32", S32),
    ("i16", S16),
    ("i8", S8),
    ("u64", U64),
    ("u32", U32),
    ("u16", U16),
    ("u8", U8),
    ("s64", S64),
    ("s32", S32),
    ("s16", S16),
    ("s8", S8),
];

/// The type of a name such as `f32`.
pub fn named(name: &str) -> Option<ScalarType> {
    NAMES.iter().find(|(known, _)| *known == name).map(|&(_, ty)| ty)
}

/// The name of a type.
pub fn name(ty: ScalarType) -> &'static str {
    NAMES.iter().find(|&&(_, known)| known == ty).map_or_else(|| ty.name(), |&(name, _)| name)
}

/// The names of all types, for messages.
pub fn names() -> String {
    NAMES[..12].iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
}

/// The type of an element in memory: the element of a packed type; unsigned for untyped bits.
pub fn of_memory(ty: ScalarType) -> ScalarType {
    match ty {
        F16x2 => F16,
        Bf16x2 => Bf16,
        Tf32 => F32,
        Pred | B8 => U8,
        B16 => U16,
        B32 => U32,
        B64 | B128 => U64,
        other => other,
    }
}

/// The untyped type (`b8` to `b64`) of the size of an integer type.
pub fn untyped(ty: ScalarType) -> ScalarType {
    match ty.size() {
        1 => B8,
        2 => B16,
        4 => B32,
        _ => B64,
    }
}

/// Whether memory of type `given` can be passed to a pointer to `declared`: equal types, or
/// integers of the same size. Half-precision numbers are often declared as `unsigned short`.
pub fn is_compatible(declared: ScalarType, given: ScalarType) -> bool {
    let (declared, given) = (of_memory(declared), of_memory(given));
    let integers = !declared.is_float() && !given.is_float();
    declared == given || declared.size() == given.size() && (integers || declared == U16)
}

/// The type of a file's elements.
pub fn of_file(dtype: Dtype) -> ScalarType {
    match dtype {
        Dtype::F64 => F64,
        Dtype::F32 => F32,
        Dtype::F16 => F16,
        Dtype::BF16 => Bf16,
        Dtype::I64 => S64,
        Dtype::I32 => S32,
        Dtype::I16 => S16,
        Dtype::I8 => S8,
        Dtype::U64 => U64,
        Dtype::U32 => U32,
        Dtype::U16 => U16,
        Dtype::U8 | Dtype::Bool | Dtype::F8E4M3 | Dtype::F8E5M2 => U8,
    }
}

/// The type of elements in a file.
pub fn to_file(ty: ScalarType) -> Dtype {
    match of_memory(ty) {
        F64 => Dtype::F64,
        F32 => Dtype::F32,
        F16 => Dtype::F16,
        Bf16 => Dtype::BF16,
        S64 => Dtype::I64,
        S32 => Dtype::I32,
        S16 => Dtype::I16,
        S8 => Dtype::I8,
        U64 => Dtype::U64,
        U32 => Dtype::U32,
        U16 => Dtype::U16,
        _ => Dtype::U8,
    }
}

/// A number, independent of an element type.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    Integer(i128),
    Real(f64),
}

impl Number {
    /// Parses `3`, `-0x1F`, `0b101`, `1e-3`, `inf`, `nan`, `true` and `false`.
    pub fn parse(text: &str) -> Option<Number> {
        match text {
            "true" => return Some(Number::Integer(1)),
            "false" => return Some(Number::Integer(0)),
            _ => {}
        }
        let (negative, digits) = match text.strip_prefix('-') {
            Some(digits) => (true, digits),
            None => (false, text),
        };
        let lower = digits.to_ascii_lowercase();
        let based =
            [("0x", 16), ("0b", 2)].into_iter().find_map(|(prefix, base)| Some((lower.strip_prefix(prefix)?, base)));
        let magnitude = match based {
            Some((digits, base)) if !digits.starts_with(['+', '-']) => i128::from_str_radix(digits, base).ok()?,
            Some(_) => return None,
            None if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) => match digits.parse() {
                Ok(magnitude) => magnitude,
                Err(_) => return text.parse().ok().map(Number::Real),
            },
            None => return text.parse().ok().map(Number::Real),
        };
        Some(Number::Integer(if negative { -magnitude } else { magnitude }))
    }

    pub fn to_f64(self) -> f64 {
        match self {
            Number::Integer(value) => value as f64,
            Number::Real(value) => value,
        }
    }

    /// Returns the number; without a type, it must be an integer.
    ///
    /// # Errors
    /// What is wrong, without the value.
    pub fn whole(self, ty: Option<ScalarType>) -> Result<Number, String> {
        match self {
            Number::Real(value) if ty.is_none() && value.fract() != 0.0 => {
                Err("not a whole number; a float needs a type, such as f32:0.5".into())
            }
            number => Ok(number),
        }
    }

    /// The little-endian bytes of the number in a type. Floats are rounded to nearest.
    ///
    /// # Errors
    /// A reason, without the value, if the value is out of the range of the type.
    pub fn encode(self, ty: ScalarType) -> Result<Vec<u8>, String> {
        if ty.is_float() {
            let value = self.to_f64();
            return Ok(match of_memory(ty) {
                F64 => value.to_le_bytes().to_vec(),
                F16 => f16::from_f64(value).to_le_bytes().to_vec(),
                Bf16 => bf16::from_f64(value).to_le_bytes().to_vec(),
                _ => (value as f32).to_le_bytes().to_vec(),
            });
        }
        let value = match self {
            Number::Integer(value) => value,
            Number::Real(value) if value.fract() == 0.0 && value.abs() < 1e30 => value as i128,
            // Untyped bits in PTX can be those of a floating-point number.
            Number::Real(value) if matches!(ty, B16 | B32 | B64) => {
                let float = [F16, F32, F64].into_iter().find(|float| float.size() == ty.size()).unwrap_or(F64);
                return Number::Real(value).encode(float);
            }
            Number::Real(_) => return Err(format!("not a value of {}, which is an integer type", name(ty))),
        };
        let (low, high) = range(ty);
        if !(low..=high).contains(&value) {
            let bits = format!("{} bits", 8 * ty.size());
            let ty = if matches!(ty, B8 | B16 | B32 | B64) { &bits } else { name(ty) };
            return Err(format!("not a value of {ty}, whose range is {low} to {high}"));
        }
        Ok(value.to_le_bytes()[..ty.size() as usize].to_vec())
    }

    /// The number that bytes represent in a type.
    pub fn decode(ty: ScalarType, bytes: &[u8]) -> Number {
        let mut all = [0; 8];
        let size = bytes.len().min(8);
        all[..size].copy_from_slice(&bytes[..size]);
        let bits = u64::from_le_bytes(all);
        match of_memory(ty) {
            F64 => Number::Real(f64::from_bits(bits)),
            F32 => Number::Real(f32::from_bits(bits as u32).into()),
            F16 => Number::Real(f16::from_bits(bits as u16).to_f64()),
            Bf16 => Number::Real(bf16::from_bits(bits as u16).to_f64()),
            signed if signed.is_signed() => {
                let unused = 64 - 8 * signed.size();
                Number::Integer(((bits << unused) as i64 >> unused).into())
            }
            _ => Number::Integer(bits.into()),
        }
    }
}

/// The range of an integer type. For untyped bits, it has signed and unsigned values.
fn range(ty: ScalarType) -> (i128, i128) {
    let bits = 8 * ty.size().min(8);
    let untyped = matches!(ty, B8 | B16 | B32 | B64);
    let low = if ty.is_signed() || untyped { -(1i128 << (bits - 1)) } else { 0 };
    let high = if ty.is_signed() { (1i128 << (bits - 1)) - 1 } else { (1i128 << bits) - 1 };
    (low, high)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_forms_are_parsed() {
        for (text, number) in [
            ("3", Some(Number::Integer(3))),
            ("-0x1F", Some(Number::Integer(-31))),
            ("0b101", Some(Number::Integer(5))),
            ("1e-3", Some(Number::Real(1e-3))),
            ("-inf", Some(Number::Real(f64::NEG_INFINITY))),
            ("true", Some(Number::Integer(1))),
            ("", None),
            ("-", None),
            ("0x", None),
            ("0x-1", None),
            ("1.5.2", None),
            ("a.npy", None),
        ] {
            assert_eq!(Number::parse(text), number, "{text}");
        }
    }

    #[test]
    fn encode_checks_the_range_of_the_type() {
        assert_eq!(Number::Integer(-1).encode(S16), Ok(vec![0xff, 0xff]));
        assert_eq!(Number::Real(1e6).encode(U32), Ok(1_000_000u32.to_le_bytes().to_vec()));
        assert_eq!(Number::Integer(1).encode(F16), Ok(vec![0x00, 0x3c]));
        assert_eq!(Number::Integer(-1).encode(B32), Ok(vec![0xff; 4]));
        assert_eq!(Number::Integer(0xffff_ffff).encode(B32), Ok(vec![0xff; 4]));
        assert_eq!(Number::Real(0.5).encode(B32), Ok(0.5f32.to_le_bytes().to_vec()));
        let error = Number::Integer(256).encode(U8).unwrap_err();
        assert_eq!(error, "not a value of u8, whose range is 0 to 255");
        assert!(Number::Integer(-1).encode(U8).is_err() && Number::Real(0.5).encode(S32).is_err());
    }

    #[test]
    fn decode_is_the_inverse_of_encode() {
        for (number, ty) in [
            (Number::Integer(-5), S8),
            (Number::Integer(-5), S64),
            (Number::Integer(250), U8),
            (Number::Integer(u64::MAX.into()), U64),
            (Number::Real(-1.5), F16),
            (Number::Real(1.5), Bf16),
            (Number::Real(0.1f32.into()), F32),
            (Number::Real(0.1), F64),
        ] {
            assert_eq!(Number::decode(ty, &number.encode(ty).unwrap()), number, "{ty:?}");
        }
    }

    #[test]
    fn types_are_compatible_by_class_and_size() {
        assert!(is_compatible(S32, U32) && is_compatible(F16x2, F16) && is_compatible(U16, Bf16));
        assert!(!is_compatible(F32, S32) && !is_compatible(F32, F64) && !is_compatible(S32, F32));
    }
}
