//! Element types of files: dtype, value as f64, and conversion to and from [`AnyArray`].

use std::fmt;

use bytemuck::Pod;
pub use tegula_core::element::{bf16, f16};

use crate::dtype::Dtype;
pub use crate::storage_types::{Bool, F8E4M3, F8E5M2};
use crate::{AnyArray, Array};

/// An element type of files.
pub trait Number: Pod + PartialEq + fmt::Debug + Send + Sync {
    /// Run-time dtype.
    const DTYPE: Dtype;
    /// Value as f64; exact, except for i64 and u64 beyond 2⁵³, which round to nearest.
    fn to_f64(self) -> f64;
    /// Wraps an array of this type.
    fn into_any(array: Array<Self>) -> AnyArray;
    /// Unwraps an array of this type.
    ///
    /// # Errors
    /// Returns the array if it has another type.
    fn downcast(any: AnyArray) -> Result<Array<Self>, AnyArray>;
    /// Borrows an array of this type; `None` if it has another type.
    fn downcast_ref(any: &AnyArray) -> Option<&Array<Self>>;
}

macro_rules! number {
    ($($tag:ident, $t:ty, $to_f64:expr;)*) => {$(
        impl Number for $t {
            const DTYPE: Dtype = Dtype::$tag;
            fn to_f64(self) -> f64 {
                let to_f64: fn($t) -> f64 = $to_f64;
                to_f64(self)
            }
            fn into_any(array: Array<Self>) -> AnyArray {
                AnyArray::$tag(array)
            }
            fn downcast(any: AnyArray) -> Result<Array<Self>, AnyArray> {
                match any {
                    AnyArray::$tag(array) => Ok(array),
                    other => Err(other),
                }
            }
            fn downcast_ref(any: &AnyArray) -> Option<&Array<Self>> {
                match any {
                    AnyArray::$tag(array) => Some(array),
                    _ => None,
                }
            }
        }
    )*};
}

number! {
    F64, f64, |x| x;
    F32, f32, f64::from;
    F16, f16, f64::from;
    BF16, bf16, f64::from;
    F8E4M3, F8E4M3, |x| x.to_f32().into();
    F8E5M2, F8E5M2, |x| x.to_f32().into();
    I64, i64, |x| x as f64;
    I32, i32, f64::from;
    I16, i16, f64::from;
    I8, i8, f64::from;
    U64, u64, |x| x as f64;
    U32, u32, f64::from;
    U16, u16, f64::from;
    U8, u8, f64::from;
    Bool, Bool, |x| x.is_true().into();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_sizes_match_dtypes() {
        fn check<T: Number>() {
            assert_eq!(T::DTYPE.size(), size_of::<T>(), "{}", T::DTYPE);
        }
        macro_rules! all {
            ($($tag:ident, $t:ty, $name:literal, $size:literal, $doc:literal;)*) => {$(check::<$t>();)*};
        }
        crate::dtype::for_each_dtype!(all);
    }
}
