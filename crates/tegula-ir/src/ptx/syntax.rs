//! PTX syntax of types, constants, parameters and comparisons.

use tegula_core::element::Type;
use tegula_core::error::{Error, Result};

use crate::Compare;
use crate::launch::Field;

/// The type for moves and bit operations.
pub(super) fn bit_type(ty: Type) -> &'static str {
    match ty {
        Type::Pred => "pred",
        Type::F16 | Type::BF16 => "b16",
        Type::I8 | Type::U8 | Type::I32 | Type::U32 | Type::F32 => "b32",
        Type::I64 | Type::U64 | Type::F64 => "b64",
    }
}

/// The type for arithmetic.
pub(super) fn arithmetic_type(ty: Type) -> Result<&'static str> {
    Ok(match ty {
        Type::F64 => "f64",
        Type::F32 => "f32",
        Type::F16 => "f16",
        Type::BF16 => "bf16",
        Type::I32 => "s32",
        Type::U32 => "u32",
        Type::I64 => "s64",
        Type::U64 => "u64",
        Type::I8 | Type::U8 | Type::Pred => {
            return Err(Error::Unsupported { what: "arithmetic".into(), ty, device: "PTX".into() });
        }
    })
}

/// The type for memory accesses. Loading an 8-bit integer extends it.
pub(super) fn memory_type(ty: Type) -> &'static str {
    match ty {
        Type::F64 => "f64",
        Type::F32 => "f32",
        Type::F16 | Type::BF16 => "b16",
        Type::I8 => "s8",
        Type::U8 | Type::Pred => "u8",
        Type::I32 => "s32",
        Type::U32 => "u32",
        Type::I64 => "s64",
        Type::U64 => "u64",
    }
}

/// The declaration of a parameter.
pub(super) fn param_declaration(field: Field, name: &str) -> String {
    let ty = match field {
        // A CUtensorMap: 128 bytes, aligned to 64, passed by value.
        Field::Tensor(_) => return format!("\t.param .align 64 .b8 {name}[128]"),
        Field::Address(_) => "u64",
        Field::Extent(..) => "u32",
        Field::Stride(..) => "s64",
        Field::Scalar(_, ty) => memory_type(ty),
    };
    format!("\t.param .{ty} {name}")
}

/// A constant in instruction syntax.
pub(super) fn immediate(ty: Type, value: u64) -> String {
    match ty {
        Type::F64 => format!("0d{value:016X}"),
        Type::F32 => format!("0f{:08X}", value as u32),
        Type::F16 | Type::BF16 => format!("{:#06x}", value as u16),
        Type::I8 => (value as i8).to_string(),
        Type::U8 => (value as u8).to_string(),
        Type::I32 => (value as i32).to_string(),
        Type::U32 => (value as u32).to_string(),
        Type::I64 => (value as i64).to_string(),
        Type::U64 => value.to_string(),
        Type::Pred => (value & 1).to_string(),
    }
}

/// A comparison of integers, or of floats where NaN makes it false.
pub(super) fn comparison(how: Compare) -> &'static str {
    match how {
        Compare::Eq => "eq",
        Compare::Ne => "ne",
        Compare::Lt => "lt",
        Compare::Le => "le",
        Compare::Gt => "gt",
        Compare::Ge => "ge",
    }
}
