//! The types of PTX.

/// A fundamental type of PTX.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // The names are PTX's.
pub enum ScalarType {
    Pred,
    B8,
    B16,
    B32,
    B64,
    B128,
    U8,
    U16,
    U32,
    U64,
    S8,
    S16,
    S32,
    S64,
    F16,
    F16x2,
    Bf16,
    Bf16x2,
    Tf32,
    F32,
    F64,
}

impl ScalarType {
    /// Every type with its name in PTX, without the dot.
    pub const ALL: [(ScalarType, &'static str); 21] = {
        use ScalarType::*;
        [
            (Pred, "pred"),
            (B8, "b8"),
            (B16, "b16"),
            (B32, "b32"),
            (B64, "b64"),
            (B128, "b128"),
            (U8, "u8"),
            (U16, "u16"),
            (U32, "u32"),
            (U64, "u64"),
            (S8, "s8"),
            (S16, "s16"),
            (S32, "s32"),
            (S64, "s64"),
            (F16, "f16"),
            (F16x2, "f16x2"),
            (Bf16, "bf16"),
            (Bf16x2, "bf16x2"),
            (Tf32, "tf32"),
            (F32, "f32"),
            (F64, "f64"),
        ]
    };

    /// The type of a name such as `f32`, without the dot.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, known)| *known == name).map(|&(ty, _)| ty)
    }

    /// The name in PTX, without the dot.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|&&(ty, _)| ty == self).map_or("", |&(_, name)| name)
    }

    /// Size in bytes; a predicate counts as one.
    #[inline]
    pub const fn size(self) -> u32 {
        use ScalarType::*;
        match self {
            Pred | B8 | U8 | S8 => 1,
            B16 | U16 | S16 | F16 | Bf16 => 2,
            B32 | U32 | S32 | F16x2 | Bf16x2 | Tf32 | F32 => 4,
            B64 | U64 | S64 | F64 => 8,
            B128 => 16,
        }
    }

    /// Whether it is a signed integer.
    #[inline]
    pub const fn is_signed(self) -> bool {
        matches!(self, ScalarType::S8 | ScalarType::S16 | ScalarType::S32 | ScalarType::S64)
    }

    /// Whether it is a floating-point type.
    #[inline]
    pub const fn is_float(self) -> bool {
        use ScalarType::*;
        matches!(self, F16 | F16x2 | Bf16 | Bf16x2 | Tf32 | F32 | F64)
    }
}
