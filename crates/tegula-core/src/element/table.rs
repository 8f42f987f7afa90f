//! The table of element types, and the macros that expand it.
//!
//! Every property of a type's representation derives from its row. Properties that a row cannot
//! express are exhaustive matches over [`Type`](super::Type), which a new row breaks at compile
//! time. ARCHITECTURE.md lists them under "Adding an element type".

/// Expands the macro `each` with the table, after the tokens `given`.
///
/// A row is: variant, name, Rust type, kind, and a line of documentation. The kind names the
/// unsigned integer of the same size. For a float it also gives the precision (bits of the
/// significand, including the implicit bit), and the exponent range of its normal numbers. The rows
/// of operand types also give the accumulator type and the type of C.
#[doc(hidden)]
#[macro_export]
macro_rules! element_types {
    ([$($each:tt)*] $($given:tt)*) => {
        $($each)*! {
            [$($given)*]
            operands {
                F64 "f64" [f64] float(u64, 53, -1022, 1023) [f64] [f64] "IEEE double precision.";
                F32 "f32" [f32] float(u32, 24, -126, 127) [f32] [f32] "IEEE single precision.";
                F16 "f16" [$crate::element::f16] float(u16, 11, -14, 15) [f32] [$crate::element::f16]
                    "IEEE half precision.";
                BF16 "bf16" [$crate::element::bf16] float(u16, 8, -126, 127) [f32] [$crate::element::bf16]
                    "The upper half of a 32-bit float.";
                I32 "i32" [i32] signed(u32) [i32] [i32] "32-bit integers.";
                I8 "i8" [i8] signed(u8) [i32] [i32] "8-bit integers.";
            }
            others {
                U8 "u8" [u8] unsigned(u8) "Unsigned 8-bit integers.";
                U32 "u32" [u32] unsigned(u32) "Unsigned 32-bit integers.";
                I64 "i64" [i64] signed(u64) "64-bit integers.";
                U64 "u64" [u64] unsigned(u64) "Unsigned 64-bit integers.";
                Pred "pred" [bool] predicate(u8)
                    "A Boolean; held in predicate registers only, never in memory.";
            }
        }
    };
}

/// Evaluates an expression with `T` as the Rust type of an operand type.
///
/// Usage: `with_operand_type!(ty, T => f::<T>(x), other => reject(other))`. The second expression
/// is for types that operands cannot have.
#[macro_export]
macro_rules! with_operand_type {
    ($ty:expr, $T:ident => $body:expr, $other:pat => $otherwise:expr) => {
        $crate::element_types! { [$crate::__match_operand_type] ($ty) $T ($body) ($other) ($otherwise) }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __match_operand_type {
    (
        [($ty:expr) $T:ident ($body:expr) ($other:pat) ($otherwise:expr)]
        operands { $($tag:ident $name:literal [$rust:ty] $kind:ident $format:tt [$acc:ty] [$out:ty] $doc:literal;)* }
        $others:ident $rest:tt
    ) => {
        match $ty {
            $($crate::element::Type::$tag => {
                type $T = $rust;
                $body
            })*
            $other => $otherwise,
        }
    };
}

/// Expands the macro `each` once with the Rust types of the operands: `each! { f64; f32; … }`.
#[macro_export]
macro_rules! for_each_operand_type {
    ($each:ident) => {
        $crate::element_types! { [$crate::__list_operand_types] $each }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __list_operand_types {
    (
        [$each:ident]
        operands { $($tag:ident $name:literal [$rust:ty] $kind:ident $format:tt [$acc:ty] [$out:ty] $doc:literal;)* }
        $others:ident $rest:tt
    ) => {
        $each! { $($rust;)* }
    };
}
