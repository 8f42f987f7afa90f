//! Dtypes of files: names, sizes, and the operand types that products accept.

use std::fmt;

use tegula_core::element::Type;

/// Calls a macro with all dtypes: variant, Rust type, name, bytes, description.
macro_rules! for_each_dtype {
    ($each:ident) => {
        $each! {
            F64, f64, "f64", 8, "64-bit floats";
            F32, f32, "f32", 4, "32-bit floats";
            F16, ::tegula_core::element::f16, "f16", 2, "IEEE half precision";
            BF16, ::tegula_core::element::bf16, "bf16", 2, "bfloat16, the upper half of a 32-bit float";
            F8E4M3, $crate::storage_types::F8E4M3, "f8e4m3", 1, "8-bit floats of the OCP with 4 bits of exponent and no infinities (E4M3FN)";
            F8E5M2, $crate::storage_types::F8E5M2, "f8e5m2", 1, "8-bit floats of the OCP with 5 bits of exponent";
            I64, i64, "i64", 8, "64-bit integers";
            I32, i32, "i32", 4, "32-bit integers";
            I16, i16, "i16", 2, "16-bit integers";
            I8, i8, "i8", 1, "8-bit integers";
            U64, u64, "u64", 8, "unsigned 64-bit integers";
            U32, u32, "u32", 4, "unsigned 32-bit integers";
            U16, u16, "u16", 2, "unsigned 16-bit integers";
            U8, u8, "u8", 1, "unsigned 8-bit integers";
            Bool, $crate::storage_types::Bool, "bool", 1, "booleans, one byte each";
        }
    };
}
pub(crate) use for_each_dtype;

macro_rules! define {
    ($($tag:ident, $rust:ty, $name:literal, $size:literal, $doc:literal;)*) => {
        /// Dtype of an array in a file.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Dtype {
            $(#[doc = $doc] $tag,)*
        }

        impl Dtype {
            /// All dtypes.
            pub const ALL: &[Dtype] = &[$(Dtype::$tag),*];

            /// Name on the command line and in messages, such as `f32` or `f8e4m3`.
            pub const fn name(self) -> &'static str {
                match self { $(Dtype::$tag => $name,)* }
            }

            /// Bytes per element.
            pub const fn size(self) -> usize {
                match self { $(Dtype::$tag => $size,)* }
            }
        }
    };
}
for_each_dtype!(define);

impl Dtype {
    /// Operand type of products, or `None` if unsupported.
    pub fn product(self) -> Option<Type> {
        Type::OPERANDS.into_iter().find(|&ty| Dtype::from(ty) == self)
    }

    /// Message for a dtype without products, with a suitable `--cast`; `None` for operand types.
    pub const fn no_product(self) -> Option<&'static str> {
        Some(match self {
            Dtype::F8E4M3 => "f8e4m3 cannot be multiplied: use --cast f16 (exact) or f32",
            Dtype::F8E5M2 => "f8e5m2 cannot be multiplied: use --cast f16 (exact) or f32",
            Dtype::I64 => "i64 cannot be multiplied: use --cast f64 (exact up to 2^53) or i32",
            Dtype::I16 => "i16 cannot be multiplied: use --cast i32 (exact) or f32",
            Dtype::U64 => "u64 cannot be multiplied: use --cast f64 (exact up to 2^53) or i32",
            Dtype::U32 => "u32 cannot be multiplied: use --cast f64 (exact) or i32",
            Dtype::U16 => "u16 cannot be multiplied: use --cast i32 (exact) or f32",
            Dtype::U8 => "u8 cannot be multiplied: use --cast i32 (exact) or f32",
            Dtype::Bool => "bool cannot be multiplied: use --cast i8 or f32 (both exact)",
            Dtype::F64 | Dtype::F32 | Dtype::F16 | Dtype::BF16 | Dtype::I32 | Dtype::I8 => return None,
        })
    }

    /// Whether this is an integer type.
    pub const fn is_int(self) -> bool {
        use Dtype::*;
        matches!(self, I64 | I32 | I16 | I8 | U64 | U32 | U16 | U8)
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl std::str::FromStr for Dtype {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = || Dtype::ALL.iter().map(|dtype| dtype.name()).collect::<Vec<_>>().join(", ");
        let found = Dtype::ALL.iter().find(|dtype| dtype.name() == text);
        found.copied().ok_or_else(|| format!("unknown dtype; use one of {}", known()))
    }
}

impl From<Type> for Dtype {
    fn from(ty: Type) -> Dtype {
        match ty {
            Type::F64 => Dtype::F64,
            Type::F32 => Dtype::F32,
            Type::F16 => Dtype::F16,
            Type::BF16 => Dtype::BF16,
            Type::I64 => Dtype::I64,
            Type::I32 => Dtype::I32,
            Type::I8 => Dtype::I8,
            Type::U64 => Dtype::U64,
            Type::U32 => Dtype::U32,
            Type::U8 => Dtype::U8,
            Type::Pred => Dtype::Bool,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dtype_without_product_suggests_a_cast() {
        for dtype in Dtype::ALL {
            assert_ne!(dtype.product().is_some(), dtype.no_product().is_some(), "{dtype}");
            assert!(dtype.no_product().is_none_or(|message| message.starts_with(dtype.name())));
            assert!(dtype.product().is_none_or(|ty| ty.name() == dtype.name() && Dtype::from(ty) == *dtype));
            assert_eq!(dtype.name().parse(), Ok(*dtype));
        }
        assert!("f8".parse::<Dtype>().unwrap_err().contains("f8e4m3"));
    }
}
