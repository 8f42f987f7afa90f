//! Element types of operands, accumulators and results.
//!
//! The types are the rows of one table (`element/table.rs`). This is the bottom layer: it does not
//! depend on matrices, kernels or devices.

mod table;

use std::fmt;

pub use half::{bf16, f16};

pub use crate::{for_each_operand_type, with_operand_type};

/// The class of a type's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TypeKind {
    /// Floating-point numbers.
    Float(FloatFormat),
    /// Two's complement integers.
    Signed,
    /// Unsigned integers.
    Unsigned,
    /// Booleans.
    Predicate,
}

/// A binary floating-point format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FloatFormat {
    /// Bits of the significand, including the implicit bit.
    pub precision: i32,
    /// Least exponent of a normal number.
    pub min_exponent: i32,
    /// Greatest exponent.
    pub max_exponent: i32,
}

impl FloatFormat {
    /// The unit roundoff: the greatest relative error of rounding to nearest.
    pub fn unit_roundoff(self) -> f64 {
        2f64.powi(-self.precision)
    }

    /// The overflow threshold: the least number that rounds to infinity.
    pub fn overflow(self) -> f64 {
        (2.0 - self.unit_roundoff()) * 2f64.powi(self.max_exponent)
    }
}

macro_rules! kind {
    (float($bits:ty, $precision:literal, $min:literal, $max:literal)) => {
        TypeKind::Float(FloatFormat { precision: $precision, min_exponent: $min, max_exponent: $max })
    };
    (signed($bits:ty)) => {
        TypeKind::Signed
    };
    (unsigned($bits:ty)) => {
        TypeKind::Unsigned
    };
    (predicate($bits:ty)) => {
        TypeKind::Predicate
    };
}

/// The conversion of a value to f64 (`to`), or of an f64 to the nearest value (`of`).
macro_rules! number {
    (to float $t:ty) => {
        <f64 as From<$t>>::from
    };
    (of float $t:ty) => {
        <$t as Round<f64>>::round
    };
    (to predicate $t:ty) => {
        |x: $t| f64::from(u8::from(x))
    };
    (of predicate $t:ty) => {
        |x: f64| x != 0.0
    };
    (to $int:ident $t:ty) => {
        |x: $t| x as f64
    };
    (of signed $t:ty) => {
        |x: f64| x as i64 as $t
    };
    (of unsigned $t:ty) => {
        |x: f64| x as u64 as $t
    };
}

macro_rules! define {
    (
        []
        operands { $($tag:ident $name:literal [$rust:ty] $kind:ident $format:tt [$acc:ty] [$out:ty] $doc:literal;)* }
        others { $($tag_2:ident $name_2:literal [$rust_2:ty] $kind_2:ident $format_2:tt $doc_2:literal;)* }
    ) => {
        /// A number type at run time: the tag in files, kernels and plans.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "lowercase"))]
        pub enum Type {
            $(#[doc = $doc] $tag,)*
            $(#[doc = $doc_2] $tag_2,)*
        }

        impl Type {
            /// Every type.
            pub const ALL: &[Type] = &[$(Type::$tag,)* $(Type::$tag_2,)*];

            /// The types that the operands A and B can have.
            pub const OPERANDS: [Type; [$($name),*].len()] = [$(Type::$tag),*];

            /// The class of the type's values.
            pub const fn kind(self) -> TypeKind {
                match self {
                    $(Type::$tag => kind!($kind $format),)*
                    $(Type::$tag_2 => kind!($kind_2 $format_2),)*
                }
            }

            /// Bytes of a value in memory. Predicates are never stored; their size counts as 1.
            pub const fn size(self) -> usize {
                match self {
                    $(Type::$tag => size_of::<$rust>(),)*
                    $(Type::$tag_2 => size_of::<$rust_2>(),)*
                }
            }

            /// The name in messages and on the command line: `f32`, `bf16`, …
            pub const fn name(self) -> &'static str {
                match self {
                    $(Type::$tag => $name,)*
                    $(Type::$tag_2 => $name_2,)*
                }
            }

            /// The accumulator type for operands of this type; alpha and beta have it, too.
            ///
            /// A type that operands cannot have is its own accumulator.
            pub const fn accumulator(self) -> Type {
                match self {
                    $(Type::$tag => <$acc as Scalar>::TYPE,)*
                    $(Type::$tag_2 => self,)*
                }
            }

            /// The type of C for operands of this type.
            ///
            /// A type that operands cannot have is its own output.
            pub const fn output(self) -> Type {
                match self {
                    $(Type::$tag => <$out as Scalar>::TYPE,)*
                    $(Type::$tag_2 => self,)*
                }
            }

            /// The value of a bit pattern. Exact, except that 64-bit integers beyond 2⁵³ are
            /// rounded to nearest.
            #[inline]
            pub fn to_f64(self, bits: u64) -> f64 {
                match self {
                    $(Type::$tag => (number!(to $kind $rust))(<$rust as Scalar>::from_bits(bits)),)*
                    $(Type::$tag_2 => (number!(to $kind_2 $rust_2))(<$rust_2 as Scalar>::from_bits(bits)),)*
                }
            }

            /// The bit pattern of a number.
            ///
            /// Floats are rounded once, to nearest even. For integers the fraction is truncated and
            /// the low bits are kept.
            #[inline]
            pub fn round(self, value: f64) -> u64 {
                match self {
                    $(Type::$tag => Scalar::to_bits((number!(of $kind $rust))(value)),)*
                    $(Type::$tag_2 => Scalar::to_bits((number!(of $kind_2 $rust_2))(value)),)*
                }
            }
        }

        $(scalar! { $kind $format $rust, $tag })*
        $(scalar! { $kind_2 $format_2 $rust_2, $tag_2 })*

        $(impl Element for $rust {
            type Acc = $acc;
            type Out = $out;
            #[inline(always)]
            fn widen(self) -> $acc {
                <$acc>::from(self)
            }
            #[inline(always)]
            fn narrow(accumulator: $acc) -> $out {
                <$out as Round<$acc>>::round(accumulator)
            }
            #[inline(always)]
            fn widen_out(out: $out) -> $acc {
                <$acc>::from(out)
            }
        })*
    };
}

macro_rules! scalar {
    // The exponent of 1 is 0, stored as `1 - min_exponent` above the significand.
    (float($bits:ty, $precision:literal, $min:literal, $max:literal) $rust:ty, $tag:ident) => {
        scalar! {
            $rust, $tag, $bits, <$rust>::from_bits(0), <$rust>::from_bits((1i32 - $min) as $bits << ($precision - 1)),
            <$rust>::to_bits, <$rust>::from_bits
        }
    };
    (predicate($bits:ty) $rust:ty, $tag:ident) => {
        scalar! { $rust, $tag, $bits, false, true, u8::from, |bits| bits & 1 == 1 }
    };
    ($int:ident($bits:ty) $rust:ty, $tag:ident) => {
        scalar! { $rust, $tag, $bits, 0, 1, |x| x as $bits, |bits| bits as $rust }
    };
    ($rust:ty, $tag:ident, $bits:ty, $zero:expr, $one:expr, $to:expr, $from:expr) => {
        impl Scalar for $rust {
            const TYPE: Type = Type::$tag;
            const ZERO: Self = $zero;
            const ONE: Self = $one;
            fn to_bits(self) -> u64 {
                let to: fn($rust) -> $bits = $to;
                u64::from(to(self))
            }
            fn from_bits(bits: u64) -> Self {
                let from: fn($bits) -> $rust = $from;
                from(bits as $bits)
            }
        }
    };
}

crate::element_types! { [define] }

impl Type {
    /// The operand type with the given [`name`](Type::name).
    pub fn operand_named(name: &str) -> Option<Type> {
        Type::OPERANDS.into_iter().find(|ty| ty.name() == name)
    }

    /// The names of the operand types, for messages: `f64, f32, … i32 or i8`.
    pub fn operand_names() -> String {
        let names = Type::OPERANDS.map(Type::name);
        let (last, init) = names.split_last().unwrap_or((&"", &[]));
        format!("{} or {last}", init.join(", "))
    }

    /// Whether the operands A and B can have this type.
    pub fn is_operand(self) -> bool {
        Type::OPERANDS.contains(&self)
    }

    /// The format of a floating-point type; `None` for other types.
    pub const fn float_format(self) -> Option<FloatFormat> {
        match self.kind() {
            TypeKind::Float(format) => Some(format),
            TypeKind::Signed | TypeKind::Unsigned | TypeKind::Predicate => None,
        }
    }

    /// Whether this is a floating-point type.
    pub const fn is_float(self) -> bool {
        matches!(self.kind(), TypeKind::Float(_))
    }

    /// Whether this is a 16-bit floating-point type.
    pub const fn is_half_float(self) -> bool {
        self.is_float() && self.size() == 2
    }

    /// Whether this is an integer type.
    pub const fn is_int(self) -> bool {
        matches!(self.kind(), TypeKind::Signed | TypeKind::Unsigned)
    }

    /// Whether this is a signed integer type.
    pub const fn is_signed(self) -> bool {
        matches!(self.kind(), TypeKind::Signed)
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A Rust type that a register of a kernel can hold.
///
/// Engines exchange values as bits, right-aligned in a `u64`.
pub trait Scalar: Copy + PartialEq + fmt::Debug + Send + Sync + 'static {
    /// The run-time tag.
    const TYPE: Type;
    /// The value 0 (false for predicates).
    const ZERO: Self;
    /// The value 1 (true for predicates).
    const ONE: Self;
    /// The bit pattern, zero-extended.
    fn to_bits(self) -> u64;
    /// The value of a bit pattern; bits above the type's width are ignored.
    fn from_bits(bits: u64) -> Self;
}

/// Rounds an f64 to f32 by round-to-odd: an inexact value becomes the neighbor whose last bit is 1.
///
/// Rounding the result to a 16-bit float equals rounding the value once. Rounding to the nearest
/// f32 first would not (Boldo and Melquiond, "Emulation of a FMA and correctly rounded sums: proved
/// algorithms using rounding to odd", 2008).
pub fn round_to_odd(value: f64) -> f32 {
    let nearest = value as f32;
    let bits = nearest.to_bits();
    if value.is_nan() || f64::from(nearest) == value || bits & 1 == 1 {
        return nearest;
    }
    let outward = f64::from(nearest).abs() < value.abs();
    f32::from_bits(if outward { bits + 1 } else { bits - 1 })
}

/// Conversion with one rounding, to nearest even.
trait Round<From> {
    /// The nearest value.
    fn round(value: From) -> Self;
}

macro_rules! round {
    ($($t:ty, $from:ty, $round:expr;)*) => {$(impl Round<$from> for $t {
        #[inline(always)]
        fn round(value: $from) -> Self {
            let round: fn($from) -> $t = $round;
            round(value)
        }
    })*};
}

// The conversions of f64 to every float, and of an accumulator to every type of C.
round! {
    f64, f64, |x| x;
    f32, f64, |x| x as f32;
    f32, f32, |x| x;
    f16, f64, |x| f16::from_f32(round_to_odd(x));
    f16, f32, f16::from_f32;
    bf16, f64, |x| bf16::from_f32(round_to_odd(x));
    bf16, f32, bf16::from_f32;
    i32, i32, |x| x;
}

/// A type that kernels compute in.
pub trait Arith: Scalar {
    /// The value of an f64: rounded to nearest for floats, `None` where an integer type cannot hold
    /// it.
    fn from_f64(value: f64) -> Option<Self>;
}

macro_rules! arith {
    (float $($t:ty)*) => {$(impl Arith for $t {
        fn from_f64(value: f64) -> Option<Self> { Some(<Self as Round<f64>>::round(value)) }
    })*};
    (int $($t:ty)*) => {$(impl Arith for $t {
        fn from_f64(value: f64) -> Option<Self> {
            let cast = value as $t;
            (cast as f64 == value).then_some(cast)
        }
    })*};
}
arith! { float f64 f32 f16 bf16 }
arith! { int i32 u32 i64 u64 }

/// The required accuracy of a product. An engine can always compute more accurately.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Accuracy {
    /// The accuracy of the plain loop in the accumulator type.
    #[default]
    Full,
    /// f32 operands may be rounded to tf32 (10 fraction bits) before multiplication; f32
    /// accumulators.
    ///
    /// Other types have no such mode.
    Tf32,
}

impl Accuracy {
    /// The accuracy that applies to operands of the type `ty`.
    #[must_use]
    pub fn of(self, ty: Type) -> Self {
        if ty == Type::F32 { self } else { Accuracy::Full }
    }

    /// The name in messages and on the command line: `full`, `tf32`.
    pub const fn name(self) -> &'static str {
        match self {
            Accuracy::Full => "full",
            Accuracy::Tf32 => "tf32",
        }
    }
}

/// A type of the operands A and B, with its accumulator type and the type of C.
///
/// | A, B | accumulator, alpha, beta | C |
/// |---|---|---|
/// | f64 | f64 | f64 |
/// | f32 | f32 | f32 |
/// | f16, bf16 | f32 | the same 16-bit type |
/// | i32 | i32, wrapping mod 2³² | i32 |
/// | i8 | i32, wrapping mod 2³² | i32 |
pub trait Element: Scalar + bytemuck::Pod {
    /// The type of the accumulator, alpha and beta.
    type Acc: Arith + bytemuck::Pod;
    /// The type of C.
    type Out: Scalar + bytemuck::Pod;
    /// Converts an operand to the accumulator type, exactly.
    fn widen(self) -> Self::Acc;
    /// Converts an accumulator to the type of C, rounded to nearest even where C is narrower.
    fn narrow(accumulator: Self::Acc) -> Self::Out;
    /// Converts an element of C to the accumulator type, exactly, for scaling by beta.
    fn widen_out(out: Self::Out) -> Self::Acc;
}

#[cfg(test)]
mod tests;
