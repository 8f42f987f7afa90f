//! Memory of the host: how much is free, and vectors that are refused rather than promised.
//!
//! Linux grants nearly any amount and ends the process when it is used, so that an allocation which succeeds says nothing; what is free
//! has to be asked for. It knows bytes, not what they are for.
//!
//! Every size that reaches an allocation is a product of extents that [`room`] multiplies itself, checked; no caller multiplies them.

pub use crate::available::available;
use crate::error::{Error, Result};

/// Up to so many bytes nobody asks what is free: asking takes longer than a small product.
const SMALL: u128 = 256 << 20;

/// Refuses what does not fit in the memory that is free.
///
/// # Errors
/// [`Error::OutOfMemory`] with the numbers.
pub fn check(bytes: u128, what: impl FnOnce() -> String) -> Result<()> {
    let available = if bytes > SMALL { available() } else { None };
    match available {
        Some(free) if bytes > free => {
            Err(Error::OutOfMemory { what: what(), bytes, device: "the host".into(), available })
        }
        _ => Ok(()),
    }
}

/// The number of elements of such extents: 0 where one is 0, however large the others are, and `None` where it exceeds `isize::MAX`.
pub fn count(extents: &[usize]) -> Option<usize> {
    if extents.contains(&0) {
        return Some(0);
    }
    let count = extents.iter().try_fold(1usize, |count, &extent| count.checked_mul(extent));
    count.filter(|&count| isize::try_from(count).is_ok())
}

/// The bytes of elements of type `T` of such extents, for messages: the largest number where there are more.
pub fn bytes<T>(extents: &[usize]) -> u128 {
    if extents.contains(&0) {
        return 0;
    }
    extents.iter().fold(size_of::<T>() as u128, |bytes, &extent| bytes.saturating_mul(extent as u128))
}

/// An empty vector with capacity for elements of such extents; `what` says what it is for.
///
/// # Errors
/// [`Error::OutOfMemory`] where they do not fit, also where their number is no `usize`.
pub fn room<T>(extents: &[usize], what: impl Fn() -> String) -> Result<Vec<T>> {
    let bytes = bytes::<T>(extents);
    check(bytes, &what)?;
    let mut room = Vec::new();
    let reserved = count(extents).is_some_and(|len| room.try_reserve_exact(len).is_ok());
    if reserved { Ok(room) } else { Err(out_of_memory(bytes, what)) }
}

/// The error, with what is free now.
pub fn out_of_memory(bytes: u128, what: impl FnOnce() -> String) -> Error {
    Error::OutOfMemory { what: what(), bytes, device: "the host".into(), available: available() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_os = "linux")]
    #[test]
    fn what_is_not_there_is_refused_with_numbers() {
        let free = available().expect("this system tells");
        assert!(free > 1 << 20);
        assert!(check(SMALL, || unreachable!()).is_ok());
        let Err(Error::OutOfMemory { what, bytes, available, .. }) = check(1 << 60, || "it".into()) else {
            panic!("nobody has so much")
        };
        assert_eq!((what.as_str(), bytes), ("it", 1 << 60));
        assert!(available.is_some_and(|free| free < 1 << 60));
        assert!(room::<u64>(&[1 << 50], || "it".into()).is_err());
        assert!(room::<u64>(&[usize::MAX], || "it".into()).is_err());
        assert!(room::<u64>(&[100], || unreachable!()).unwrap().capacity() >= 100);
    }

    #[test]
    fn extents_whose_product_overflows_are_refused() {
        for extents in
            [[usize::MAX; 3], [1 << 32, 1 << 32, 1], [1 << 62, 2, 1], [1 << 61, 1, 4], [3, usize::MAX / 2, 1]]
        {
            assert_eq!(count(&extents), None, "{extents:?}");
            let Err(Error::OutOfMemory { bytes, .. }) = room::<u64>(&extents, || "it".into()) else {
                panic!("{extents:?}")
            };
            assert!(bytes > 1 << 63, "{bytes}");
        }
        assert_eq!(count(&[usize::MAX, 0, usize::MAX]), Some(0));
        assert_eq!(room::<u64>(&[usize::MAX, usize::MAX, 0], || unreachable!()).unwrap().capacity(), 0);
        assert_eq!((count(&[3, 5, 7]), count(&[]), bytes::<u32>(&[3, 5])), (Some(105), Some(1), 60));
        // No element of a type without size needs memory, but their number is bounded as any other.
        assert!(room::<()>(&[usize::MAX, 2], || "it".into()).is_err());
    }
}
