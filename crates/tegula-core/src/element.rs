//! Number types: what a matrix may hold, what its products are summed in, and what comes out.
//!
//! This is the bottom layer: it knows nothing of matrices, kernels or devices.

use std::fmt;

pub use half::{bf16, f16};

/// A number type at run time: the tag that files, kernels and plans carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "lowercase"))]
#[allow(missing_docs, reason = "the variants are the types of the same name")]
pub enum Type {
    F64,
    F32,
    F16,
    BF16,
    I8,
    U8,
    I32,
    U32,
    I64,
    U64,
    /// A truth value; lives in predicate registers only, never in memory.
    Pred,
}

impl Type {
    /// Bytes one value takes in memory. A predicate never lies in memory; its size is counted as 1.
    pub const fn size(self) -> usize {
        match self {
            Type::F64 | Type::I64 | Type::U64 => 8,
            Type::F32 | Type::I32 | Type::U32 => 4,
            Type::F16 | Type::BF16 => 2,
            Type::I8 | Type::U8 | Type::Pred => 1,
        }
    }

    /// Whether this is one of the floating-point types.
    pub const fn is_float(self) -> bool {
        matches!(self, Type::F64 | Type::F32 | Type::F16 | Type::BF16)
    }

    /// Whether this is one of the integer types.
    pub const fn is_int(self) -> bool {
        !self.is_float() && !matches!(self, Type::Pred)
    }

    /// Whether this is a signed integer type.
    pub const fn is_signed(self) -> bool {
        matches!(self, Type::I8 | Type::I32 | Type::I64)
    }

    /// The name used on the command line and in messages: `f32`, `bf16`, …
    pub const fn name(self) -> &'static str {
        match self {
            Type::F64 => "f64",
            Type::F32 => "f32",
            Type::F16 => "f16",
            Type::BF16 => "bf16",
            Type::I8 => "i8",
            Type::U8 => "u8",
            Type::I32 => "i32",
            Type::U32 => "u32",
            Type::I64 => "i64",
            Type::U64 => "u64",
            Type::Pred => "pred",
        }
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

macro_rules! scalar {
    ($($rust:ty, $tag:ident, $unsigned:ty, $zero:expr, $one:expr, $to:expr, $from:expr;)*) => {$(
        impl Scalar for $rust {
            const TYPE: Type = Type::$tag;
            const ZERO: Self = $zero;
            const ONE: Self = $one;
            fn to_bits(self) -> u64 {
                let to: fn($rust) -> $unsigned = $to;
                u64::from(to(self))
            }
            fn from_bits(bits: u64) -> Self {
                let from: fn($unsigned) -> $rust = $from;
                from(bits as $unsigned)
            }
        }
    )*};
}

scalar! {
    f64, F64, u64, 0.0, 1.0, f64::to_bits, f64::from_bits;
    f32, F32, u32, 0.0, 1.0, f32::to_bits, f32::from_bits;
    f16, F16, u16, f16::ZERO, f16::ONE, f16::to_bits, f16::from_bits;
    bf16, BF16, u16, bf16::ZERO, bf16::ONE, bf16::to_bits, bf16::from_bits;
    i8, I8, u8, 0, 1, |x| x as u8, |x| x as i8;
    u8, U8, u8, 0, 1, |x| x, |x| x;
    i32, I32, u32, 0, 1, |x| x as u32, |x| x as i32;
    u32, U32, u32, 0, 1, |x| x, |x| x;
    i64, I64, u64, 0, 1, |x| x as u64, |x| x as i64;
    u64, U64, u64, 0, 1, |x| x, |x| x;
}

impl Scalar for bool {
    const TYPE: Type = Type::Pred;
    const ZERO: Self = false;
    const ONE: Self = true;
    fn to_bits(self) -> u64 {
        u64::from(self)
    }
    fn from_bits(bits: u64) -> Self {
        bits & 1 == 1
    }
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

/// A type that plain kernels do arithmetic in.
pub trait Arith: Scalar {
    /// The value of a decimal number, rounded to nearest for floats.
    /// `None` where an integer type cannot hold it exactly.
    fn from_f64(value: f64) -> Option<Self>;
}

macro_rules! arith {
    (float $($t:ty, $from:expr;)*) => {$(impl Arith for $t {
        fn from_f64(value: f64) -> Option<Self> { let from: fn(f64) -> $t = $from; Some(from(value)) }
    })*};
    (int $($t:ty)*) => {$(impl Arith for $t {
        fn from_f64(value: f64) -> Option<Self> {
            let cast = value as $t;
            (cast as f64 == value).then_some(cast)
        }
    })*};
}
arith! { float f64, |x| x; f32, |x| x as f32; f16, |x| f16::from_f32(to_odd(x)); bf16, |x| bf16::from_f32(to_odd(x)); }
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

macro_rules! element {
    ($($t:ty => $acc:ty => $out:ty, $widen:expr, $narrow:expr, $widen_out:expr;)*) => {$(
        impl Element for $t {
            type Acc = $acc;
            type Out = $out;
            #[inline(always)]
            fn widen(self) -> $acc { let f: fn($t) -> $acc = $widen; f(self) }
            #[inline(always)]
            fn narrow(sum: $acc) -> $out { let f: fn($acc) -> $out = $narrow; f(sum) }
            #[inline(always)]
            fn widen_out(out: $out) -> $acc { let f: fn($out) -> $acc = $widen_out; f(out) }
        }
    )*};
}

element! {
    f64 => f64 => f64, |x| x, |x| x, |x| x;
    f32 => f32 => f32, |x| x, |x| x, |x| x;
    f16 => f32 => f16, f16::to_f32, f16::from_f32, f16::to_f32;
    bf16 => f32 => bf16, bf16::to_f32, bf16::from_f32, bf16::to_f32;
    i32 => i32 => i32, |x| x, |x| x, |x| x;
    i8 => i32 => i32, i32::from, |x| x, |x| x;
}
