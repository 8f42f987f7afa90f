//! Casts of arrays between dtypes, for `--cast`.
//!
//! The semantics are those of NumPy's `astype`, defined for all values. Casts to narrower floats
//! round once to nearest, ties to even, and overflow to infinity. Casts to integers truncate
//! fractions, saturate values out of range, and map NaN to 0.

use bytemuck::Pod;
use tegula_core::element::round_to_odd;
use tegula_core::nd::NdLayout;

use crate::dtype::Dtype;
use crate::number::{Bool, F8E4M3, F8E5M2, Number, bf16, f16};
use crate::{AnyArray, Array, ErrorMessage};

/// Elements that are widened at once, and stay in the cache until they are rounded.
const CHUNK: usize = 512;

/// A type to cast from.
pub(crate) trait Source: Number {
    /// The type that holds all its values.
    type Wide: Wide;
    fn widen(self) -> Self::Wide;
}

/// A type to cast to, rounded once.
pub(crate) trait Target: Number {
    fn round_f64(value: f64) -> Self;
    fn round_i32(value: i32) -> Self;
    fn round_i64(value: i64) -> Self;
    fn round_u64(value: u64) -> Self;
}

/// A type between both, so that a cast need not be compiled for each pair of dtypes.
pub(crate) trait Wide: Pod {
    fn round<T: Target>(self) -> T;
}

macro_rules! wide {
    ($($t:ty, $round:ident;)*) => {$(
        impl Wide for $t {
            fn round<T: Target>(self) -> T {
                T::$round(self)
            }
        }
    )*};
}

wide! {
    f64, round_f64;
    i32, round_i32;
    i64, round_i64;
    u64, round_u64;
}

macro_rules! sources {
    ($($t:ty, $wide:ty, $widen:expr;)*) => {$(
        impl Source for $t {
            type Wide = $wide;
            fn widen(self) -> $wide {
                let widen: fn($t) -> $wide = $widen;
                widen(self)
            }
        }
    )*};
}

sources! {
    f64, f64, |x| x;
    f32, f64, f64::from;
    f16, f64, f64::from;
    bf16, f64, f64::from;
    F8E4M3, f64, F8E4M3::to_f64;
    F8E5M2, f64, F8E5M2::to_f64;
    i64, i64, |x| x;
    i32, i32, |x| x;
    i16, i32, i32::from;
    i8, i32, i32::from;
    u64, u64, |x| x;
    u32, i64, i64::from;
    u16, i32, i32::from;
    u8, i32, i32::from;
    Bool, i32, |x| x.is_true().into();
}

macro_rules! targets {
    // Rust's casts to these round once to nearest.
    (wide $($t:ty)*) => {$(
        impl Target for $t {
            fn round_f64(value: f64) -> Self { value as $t }
            fn round_i32(value: i32) -> Self { value as $t }
            fn round_i64(value: i64) -> Self { value as $t }
            fn round_u64(value: u64) -> Self { value as $t }
        }
    )*};
    (half $($t:ty)*) => {$(
        impl Target for $t {
            fn round_f64(value: f64) -> Self { <$t>::from_f32(round_to_odd(value)) }
            fn round_i32(value: i32) -> Self { Self::round_f64(value.into()) }
            fn round_i64(value: i64) -> Self { Self::round_f64(round_u64_to_odd(value.unsigned_abs()).copysign(if value < 0 { -1.0 } else { 1.0 })) }
            fn round_u64(value: u64) -> Self { Self::round_f64(round_u64_to_odd(value)) }
        }
    )*};
    // Rust's casts from floats saturate.
    (int $($t:ty)*) => {$(
        impl Target for $t {
            fn round_f64(value: f64) -> Self { value as $t }
            fn round_i32(value: i32) -> Self { <$t>::try_from(value).unwrap_or(if value < 0 { <$t>::MIN } else { <$t>::MAX }) }
            fn round_i64(value: i64) -> Self { <$t>::try_from(value).unwrap_or(if value < 0 { <$t>::MIN } else { <$t>::MAX }) }
            fn round_u64(value: u64) -> Self { <$t>::try_from(value).unwrap_or(<$t>::MAX) }
        }
    )*};
}

targets! { wide f64 f32 }
targets! { half f16 bf16 }
targets! { int i64 i32 i16 i8 u64 u32 u16 u8 }

/// Rounds to odd: an inexact value becomes the neighbor with an odd last bit.
///
/// Rounding the result again gives the same as rounding once. See [`round_to_odd`].
fn round_u64_to_odd(value: u64) -> f64 {
    let excess = 11u32.saturating_sub(value.leading_zeros());
    let truncated = value >> excess;
    let sticky = u64::from(truncated << excess != value);
    (truncated | sticky) as f64 * (1u64 << excess) as f64
}

/// Casts an array, in the same order.
pub(crate) fn array<S: Source>(array: Array<S>, dtype: Dtype) -> Result<AnyArray, ErrorMessage> {
    let mut chunks = array.data.chunks(CHUNK);
    let next: NextChunk<S::Wide> = &mut |wide| {
        let chunk = chunks.next().unwrap_or_default();
        wide.iter_mut().zip(chunk).for_each(|(wide, &x)| *wide = x.widen());
    };
    let (len, layout) = (array.data.len(), array.layout);
    match dtype {
        Dtype::F64 => round::<_, f64>(len, layout, next),
        Dtype::F32 => round::<_, f32>(len, layout, next),
        Dtype::F16 => round::<_, f16>(len, layout, next),
        Dtype::BF16 => round::<_, bf16>(len, layout, next),
        Dtype::I64 => round::<_, i64>(len, layout, next),
        Dtype::I32 => round::<_, i32>(len, layout, next),
        Dtype::I16 => round::<_, i16>(len, layout, next),
        Dtype::I8 => round::<_, i8>(len, layout, next),
        Dtype::U64 => round::<_, u64>(len, layout, next),
        Dtype::U32 => round::<_, u32>(len, layout, next),
        Dtype::U16 => round::<_, u16>(len, layout, next),
        Dtype::U8 => round::<_, u8>(len, layout, next),
        Dtype::F8E4M3 | Dtype::F8E5M2 | Dtype::Bool => Err(format!("cannot be cast to {dtype}: the type is read-only")),
    }
}

/// Fills a chunk with the next elements, widened; the last chunk in part.
type NextChunk<'a, W> = &'a mut dyn FnMut(&mut [W; CHUNK]);

fn round<W: Wide, T: Target>(len: usize, layout: NdLayout, next: NextChunk<W>) -> Result<AnyArray, ErrorMessage> {
    let what = || format!("{} {} in addition to the original", tegula_core::nd::display(&layout.shape), T::DTYPE);
    let mut data: Vec<T> =
        tegula_core::host::try_vec(&[len], what).map_err(|_| format!("does not fit in memory: {}", what()))?;
    let mut wide = [W::zeroed(); CHUNK];
    while data.len() < len {
        next(&mut wide);
        data.extend(wide[..CHUNK.min(len - data.len())].iter().map(|x| x.round::<T>()));
    }
    Ok(T::into_any(Array { data: data.into(), layout }))
}

#[cfg(test)]
mod tests {
    use super::*;

    trait Cast: Source {
        fn cast<T: Target>(self) -> T {
            self.widen().round()
        }
    }

    impl<S: Source> Cast for S {}

    #[test]
    fn cast_to_16_bits_rounds_once() {
        let above_tie = 1.0 + 2f64.powi(-11) + 2f64.powi(-40);
        assert_eq!(above_tie.cast::<f16>(), f16::from_bits(0x3c01));
        assert_eq!((1.0 + 2f64.powi(-11)).cast::<f16>(), f16::ONE);
        assert_eq!((1.0 + 2f64.powi(-11) - 2f64.powi(-40)).cast::<f16>(), f16::ONE);
        assert_eq!((-above_tie).cast::<f16>(), f16::from_bits(0xbc01));
        assert_eq!((1.0 + 2f64.powi(-8) + 2f64.powi(-40)).cast::<bf16>(), bf16::from_bits(0x3f81));
        assert_eq!((1.0 + 2f64.powi(-8)).cast::<bf16>(), bf16::ONE);
    }

    #[test]
    fn cast_of_64_bit_integers_rounds_once() {
        // One above a tie of bf16 (8 bits) and f32 (24 bits): rounding to f64 first would lose it.
        let (tie8, tie24) = ((1u64 << 63) + (1 << 55), (1u64 << 63) + (1 << 39));
        assert_eq!(tie8.cast::<bf16>().to_f64(), 2f64.powi(63));
        assert_eq!((tie8 + 1).cast::<bf16>().to_f64(), 2f64.powi(63) + 2f64.powi(56));
        assert_eq!((tie24 + 1).cast::<f32>().to_f64(), 2f64.powi(63) + 2f64.powi(40));
        let negative = -(((tie8 + 1) >> 1) as i64) - 1;
        assert_eq!(negative.cast::<bf16>().to_f64(), -(2f64.powi(62) + 2f64.powi(55)));
        assert_eq!(i64::MIN.cast::<bf16>().to_f64(), -(2f64.powi(63)));
        assert_eq!(u64::MAX.cast::<f64>(), 2f64.powi(64));
        assert_eq!(u64::MAX.cast::<f16>(), f16::INFINITY);
        assert_eq!((0u64.cast::<f16>().to_bits(), 0i64.cast::<f16>().to_bits()), (0, 0));
        assert_eq!(2049i64.cast::<f16>().to_f64(), 2048.0);
    }

    #[test]
    fn round_to_odd_keeps_exact_values() {
        assert_eq!(
            [0, 1, 1 << 53, u64::MAX << 11].map(round_u64_to_odd),
            [0.0, 1.0, 2f64.powi(53), (u64::MAX << 11) as f64]
        );
        assert_eq!(round_u64_to_odd((1 << 53) + 1).to_bits() & 1, 1);
        assert_eq!(round_u64_to_odd(u64::MAX).to_bits() & 1, 1);
    }

    #[test]
    fn cast_to_float_overflows_to_infinity() {
        assert_eq!(1e300.cast::<f16>(), f16::INFINITY);
        assert_eq!(f64::NEG_INFINITY.cast::<bf16>(), bf16::NEG_INFINITY);
        assert!(f64::NAN.cast::<f16>().is_nan());
        assert_eq!((-1e-300).cast::<f16>().to_bits(), 0x8000);
        assert_eq!(65_519.999_999.cast::<f16>(), f16::MAX);
        assert_eq!(65520.0.cast::<f16>(), f16::INFINITY);
    }

    #[test]
    fn cast_to_integer_truncates_and_saturates() {
        assert_eq!((-2.9).cast::<i32>(), -2);
        assert_eq!(3e9.cast::<i32>(), i32::MAX);
        assert_eq!(f64::NEG_INFINITY.cast::<i8>(), -128);
        assert_eq!(f64::NAN.cast::<i8>(), 0);
        assert_eq!((-1.5f32).cast::<u8>(), 0);
        assert_eq!((300u16.cast::<i8>(), (-300i16).cast::<i8>(), (-1i64).cast::<u64>()), (127, -128, 0));
        assert_eq!((u64::MAX.cast::<i64>(), i64::MIN.cast::<u32>()), (i64::MAX, 0));
        assert_eq!((Bool(7).cast::<i8>(), Bool(0).cast::<f32>()), (1, 0.0));
        assert_eq!((F8E4M3(0x7e).cast::<i32>(), F8E4M3(0x7f).cast::<i32>(), F8E5M2(0x7c).cast::<i8>()), (448, 0, 127));
    }
}
