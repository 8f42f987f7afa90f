//! Number types: what a matrix may hold, what its products are summed in, and what comes out.
//!
//! Types are rows of one table (`element/table.rs`). This is the bottom layer: it knows nothing of
//! matrices, kernels or devices.

mod table;

use std::fmt;

pub use half::{bf16, f16};

pub use crate::{for_each_operand_type, with_operand_type};

/// What the values of a type are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Floating-point numbers.
    Float(FloatFormat),
    /// Integers in two's complement.
    Signed,
    /// Integers from 0.
    Unsigned,
    /// Truth values.
    Predicate,
}

/// A binary floating-point format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FloatFormat {
    /// Bits of the significand, with the implicit one.
    pub precision: i32,
    /// Least exponent of a normal number.
    pub min_exponent: i32,
    /// Greatest exponent.
    pub max_exponent: i32,
}

impl FloatFormat {
    /// The greatest relative error of rounding a number to nearest.
    pub fn unit_roundoff(self) -> f64 {
        2f64.powi(-self.precision)
    }

    /// The least number that rounds to infinity.
    pub fn overflow(self) -> f64 {
        (2.0 - self.unit_roundoff()) * 2f64.powi(self.max_exponent)
    }
}

macro_rules! kind {
    (float($bits:ty, $precision:literal, $min:literal, $max:literal)) => {
        Kind::Float(FloatFormat { precision: $precision, min_exponent: $min, max_exponent: $max })
    };
    (signed($bits:ty)) => {
        Kind::Signed
    };
    (unsigned($bits:ty)) => {
        Kind::Unsigned
    };
    (predicate($bits:ty)) => {
        Kind::Predicate
    };
}

/// A function from a value to f64 (`to`), and from f64 to the nearest value (`of`).
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
        /// A number type at run time: the tag that files, kernels and plans carry.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "lowercase"))]
        pub enum Type {
            $(#[doc = $doc] $tag,)*
            $(#[doc = $doc_2] $tag_2,)*
        }

        impl Type {
            /// Every type.
            pub const ALL: &[Type] = &[$(Type::$tag,)* $(Type::$tag_2,)*];

            /// The types that A and B of a product may have.
            pub const OPERANDS: [Type; [$($name),*].len()] = [$(Type::$tag),*];

            /// What its values are.
            pub const fn kind(self) -> Kind {
                match self {
                    $(Type::$tag => kind!($kind $format),)*
                    $(Type::$tag_2 => kind!($kind_2 $format_2),)*
                }
            }

            /// Bytes of a value in memory. A predicate is never stored; its size counts as 1.
            pub const fn size(self) -> usize {
                match self {
                    $(Type::$tag => size_of::<$rust>(),)*
                    $(Type::$tag_2 => size_of::<$rust_2>(),)*
                }
            }

            /// The name used on the command line and in messages: `f32`, `bf16`, …
            pub const fn name(self) -> &'static str {
                match self {
                    $(Type::$tag => $name,)*
                    $(Type::$tag_2 => $name_2,)*
                }
            }

            /// The type of the accumulator, alpha and beta where A and B have this type. A type
            /// that A and B do not have is its own.
            pub const fn accumulator(self) -> Type {
                match self {
                    $(Type::$tag => <$acc as Scalar>::TYPE,)*
                    $(Type::$tag_2 => self,)*
                }
            }

            /// The type of C where A and B have this type. A type that A and B do not have is its
            /// own.
            pub const fn output(self) -> Type {
                match self {
                    $(Type::$tag => <$out as Scalar>::TYPE,)*
                    $(Type::$tag_2 => self,)*
                }
            }

            /// The value of a bit pattern. It is exact, but 64-bit integers beyond 2⁵³ are
            /// rounded to nearest.
            #[inline]
            pub fn to_f64(self, bits: u64) -> f64 {
                match self {
                    $(Type::$tag => (number!(to $kind $rust))(<$rust as Scalar>::from_bits(bits)),)*
                    $(Type::$tag_2 => (number!(to $kind_2 $rust_2))(<$rust_2 as Scalar>::from_bits(bits)),)*
                }
            }

            /// The bit pattern of a number. Floats are rounded once, to nearest even. Of integers
            /// the fraction is cut off, and the lower bits are kept.
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
            fn narrow(sum: $acc) -> $out {
                <$out as Round<$acc>>::round(sum)
            }
            #[inline(always)]
            fn widen_out(out: $out) -> $acc {
                <$acc>::from(out)
            }
        })*
    };
}

macro_rules! scalar {
    // The exponent of 1 is 0, stored as `1 - min_exponent` above the bits of the significand.
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
    /// The type of A and B that has this [`name`](Type::name).
    pub fn operand_named(name: &str) -> Option<Type> {
        Type::OPERANDS.into_iter().find(|ty| ty.name() == name)
    }

    /// The names of the types of A and B in a sentence: `f64, f32, … i32 or i8`.
    pub fn operand_names() -> String {
        let names = Type::OPERANDS.map(Type::name);
        let (last, others) = names.split_last().unwrap_or((&"", &[]));
        format!("{} or {last}", others.join(", "))
    }

    /// Whether A and B of a product may have this type.
    pub fn is_operand(self) -> bool {
        Type::OPERANDS.contains(&self)
    }

    /// Its format, if it is a floating-point type.
    pub const fn float_format(self) -> Option<FloatFormat> {
        match self.kind() {
            Kind::Float(format) => Some(format),
            Kind::Signed | Kind::Unsigned | Kind::Predicate => None,
        }
    }

    /// Whether this is one of the floating-point types.
    pub const fn is_float(self) -> bool {
        matches!(self.kind(), Kind::Float(_))
    }

    /// Whether this is one of the 16-bit floating-point types.
    pub const fn is_half_float(self) -> bool {
        self.is_float() && self.size() == 2
    }

    /// Whether this is one of the integer types.
    pub const fn is_int(self) -> bool {
        matches!(self.kind(), Kind::Signed | Kind::Unsigned)
    }

    /// Whether this is a signed integer type.
    pub const fn is_signed(self) -> bool {
        matches!(self.kind(), Kind::Signed)
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A Rust type that a kernel can hold in a register.
///
/// Values travel between engines as bits, right-aligned in a `u64`.
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

/// Rounds to odd: a value that is no f32 goes to the neighbour whose last bit is 1.
///
/// Rounding that to a 16-bit float gives the same as rounding the value itself once, which rounding to the nearest f32 first does
/// not (Boldo and Melquiond, "Emulation of a FMA and correctly rounded sums: proved algorithms using rounding to odd", 2008).
pub fn to_odd(value: f64) -> f32 {
    let near = value as f32;
    let bits = near.to_bits();
    if value.is_nan() || f64::from(near) == value || bits & 1 == 1 {
        return near;
    }
    let outward = f64::from(near).abs() < value.abs();
    f32::from_bits(if outward { bits + 1 } else { bits - 1 })
}

/// Rounding to a type: once, to nearest even.
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

// From f64 every float, from an accumulator every type of C.
round! {
    f64, f64, |x| x;
    f32, f64, |x| x as f32;
    f32, f32, |x| x;
    f16, f64, |x| f16::from_f32(to_odd(x));
    f16, f32, f16::from_f32;
    bf16, f64, |x| bf16::from_f32(to_odd(x));
    bf16, f32, bf16::from_f32;
    i32, i32, |x| x;
}

/// A type that plain kernels do arithmetic in.
pub trait Arith: Scalar {
    /// The value of a decimal number, rounded to nearest for floats.
    /// `None` where an integer type cannot hold it exactly.
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

/// How exact a product has to be. A product may always be more exact than asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Accuracy {
    /// As the plain loop of the type.
    #[default]
    Full,
    /// f32 may be rounded to tf32, to 10 bits behind the point, before it is multiplied; sums are of f32. Other types have no such mode.
    Tf32,
}

impl Accuracy {
    /// The same for products of elements of that type.
    #[must_use]
    pub fn of(self, ty: Type) -> Self {
        if ty == Type::F32 { self } else { Accuracy::Full }
    }

    /// The name used on the command line and in messages: `full`, `tf32`.
    pub const fn name(self) -> &'static str {
        match self {
            Accuracy::Full => "full",
            Accuracy::Tf32 => "tf32",
        }
    }
}

/// An element type of A and B, with the type its products are summed in and the type of C.
///
/// | A, B | sum (and alpha, beta) | C |
/// |---|---|---|
/// | f64 | f64 | f64 |
/// | f32 | f32 | f32 |
/// | f16, bf16 | f32 | the same 16-bit type |
/// | i32 | i32, wrapping mod 2³² | i32 |
/// | i8 | i32, wrapping mod 2³² | i32 |
pub trait Element: Scalar + bytemuck::Pod {
    /// The type that sums, alpha and beta have.
    type Acc: Arith + bytemuck::Pod;
    /// The type of C.
    type Out: Scalar + bytemuck::Pod;
    /// An element as a summand factor, exactly.
    fn widen(self) -> Self::Acc;
    /// A result as C stores it, rounded to nearest even where C is narrower.
    fn narrow(sum: Self::Acc) -> Self::Out;
    /// A stored element of C as `beta` scales it, exactly.
    fn widen_out(out: Self::Out) -> Self::Acc;
}

#[cfg(test)]
mod tests;
