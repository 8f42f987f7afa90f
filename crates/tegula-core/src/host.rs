//! Host memory: free memory, and allocations that fail before the system does.
//!
//! Linux overcommits: an allocation succeeds, and the process is killed when it uses the memory.
//! Allocations are therefore checked against the memory that is free. This module counts bytes;
//! their use does not matter here.
//!
//! [`try_vec`] computes every allocation size from extents, with checked multiplication. No caller
//! multiplies extents itself.

pub use crate::available::available;
use crate::error::{Error, Result};

/// Allocations up to this size skip the check, which takes longer than a small product.
const SMALL: u128 = 256 << 20;

/// Checks that an allocation fits in free memory.
///
/// # Errors
/// [`Error::OutOfMemory`] with the numbers.
pub fn check(bytes: u128, what: impl FnOnce() -> String) -> Result<()> {
    let available = if bytes > SMALL { available() } else { None };
    match available {
        Some(free) if bytes > free => Err(Error::out_of_memory(what(), bytes, "the host".into(), available)),
        _ => Ok(()),
    }
}

/// The number of elements of the given extents; `None` where it exceeds `isize::MAX`.
///
/// It is 0 where one extent is 0, however large the others are.
#[inline]
pub fn count(extents: &[usize]) -> Option<usize> {
    match extents.iter().try_fold(1usize, |count, &extent| count.checked_mul(extent)) {
        Some(count) => isize::try_from(count).is_ok().then_some(count),
        None => extents.contains(&0).then_some(0),
    }
}

/// The bytes of elements of type `T` with the given extents, saturating; for messages.
pub fn bytes<T>(extents: &[usize]) -> u128 {
    if extents.contains(&0) {
        return 0;
    }
    extents.iter().fold(size_of::<T>() as u128, |bytes, &extent| bytes.saturating_mul(extent as u128))
}

/// Allocates an empty vector with capacity for elements of the given extents.
///
/// `what` describes the data in the error.
///
/// # Errors
/// [`Error::OutOfMemory`] where they do not fit, also where their number exceeds `usize`.
pub fn try_vec<T>(extents: &[usize], what: impl Fn() -> String) -> Result<Vec<T>> {
    try_vec_of(extents, &what)
}

/// [`try_vec`], compiled once for each `T`.
fn try_vec_of<T>(extents: &[usize], what: &dyn Fn() -> String) -> Result<Vec<T>> {
    let bytes = bytes::<T>(extents);
    check(bytes, what)?;
    let mut vec = Vec::new();
    let reserved = count(extents).is_some_and(|len| vec.try_reserve_exact(len).is_ok());
    if reserved { Ok(vec) } else { Err(out_of_memory(bytes, what)) }
}

/// The out-of-memory error, with the memory that is free now.
pub fn out_of_memory(bytes: u128, what: impl FnOnce() -> String) -> Error {
    Error::out_of_memory(what(), bytes, "the host".into(), available())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_os = "linux")]
    #[test]
    fn allocation_beyond_free_memory_is_rejected_with_numbers() {
        let free = available().expect("Linux reports free memory");
        assert!(free > 1 << 20);
        assert!(check(SMALL, || unreachable!()).is_ok());
        let Err(Error::OutOfMemory { what, bytes, available, .. }) = check(1 << 60, || "it".into()) else {
            panic!("2^60 bytes were granted")
        };
        assert_eq!((what.as_str(), bytes), ("it", 1 << 60));
        assert!(available.is_some_and(|free| free < 1 << 60));
        assert!(try_vec::<u64>(&[1 << 50], || "it".into()).is_err());
        assert!(try_vec::<u64>(&[usize::MAX], || "it".into()).is_err());
        assert!(try_vec::<u64>(&[100], || unreachable!()).unwrap().capacity() >= 100);
    }

    #[test]
    fn extents_with_an_overflowing_product_are_rejected() {
        for extents in
            [[usize::MAX; 3], [1 << 32, 1 << 32, 1], [1 << 62, 2, 1], [1 << 61, 1, 4], [3, usize::MAX / 2, 1]]
        {
            assert_eq!(count(&extents), None, "{extents:?}");
            let Err(Error::OutOfMemory { bytes, .. }) = try_vec::<u64>(&extents, || "it".into()) else {
                panic!("{extents:?}")
            };
            assert!(bytes > 1 << 63, "{bytes}");
        }
        assert_eq!(count(&[usize::MAX, 0, usize::MAX]), Some(0));
        assert_eq!(try_vec::<u64>(&[usize::MAX, usize::MAX, 0], || unreachable!()).unwrap().capacity(), 0);
        assert_eq!((count(&[3, 5, 7]), count(&[]), bytes::<u32>(&[3, 5])), (Some(105), Some(1), 60));
        // Zero-sized elements need no memory, but their number is bounded as well.
        assert!(try_vec::<()>(&[usize::MAX, 2], || "it".into()).is_err());
    }
}
