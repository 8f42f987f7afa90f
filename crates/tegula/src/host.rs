//! Memory of the host: how much is free, and vectors that are refused rather than promised.
//!
//! Linux grants nearly any amount and ends the process when it is used, so that an allocation which succeeds says nothing; what is free
//! has to be asked for. It knows bytes, not what they are for.

use sysinfo::{MemoryRefreshKind, Pid, ProcessRefreshKind, ProcessesToUpdate, System};

use crate::error::{Error, Result};

/// Up to so many bytes nobody asks what is free: asking takes longer than a small product.
const SMALL: u128 = 256 << 20;

/// Refuses what does not fit in the memory that is free.
///
/// # Errors
/// [`Error::OutOfMemory`] with the numbers.
pub(crate) fn check(bytes: u128, what: impl FnOnce() -> String) -> Result<()> {
    let available = if bytes > SMALL { available() } else { None };
    match available {
        Some(free) if bytes > free => Err(out_of_memory(bytes, what, available)),
        _ => Ok(()),
    }
}

/// An empty vector with room for `len` elements; `what` says what it is for.
///
/// # Errors
/// [`Error::OutOfMemory`] where there is none.
pub fn room<T>(len: usize, what: impl Fn() -> String) -> Result<Vec<T>> {
    let bytes = len as u128 * size_of::<T>() as u128;
    check(bytes, &what)?;
    let mut room = Vec::new();
    room.try_reserve_exact(len).map_err(|_| out_of_memory(bytes, what, available()))?;
    Ok(room)
}

fn out_of_memory(bytes: u128, what: impl FnOnce() -> String, available: Option<u128>) -> Error {
    Error::OutOfMemory { what: what(), bytes, device: "the host".into(), available }
}

/// Bytes that can be had without swapping, within the limits of the control group that the process is in; `None` where the system does
/// not tell.
pub fn available() -> Option<u128> {
    let mut system = System::new().ok()?;
    system.refresh_memory_specifics(MemoryRefreshKind::nothing().with_ram());
    let free = Some(system.available_memory()).filter(|&free| free > 0)?;
    let own = Pid::from_u32(std::process::id());
    system.refresh_processes_specifics(ProcessesToUpdate::Some(&[own]), false, ProcessRefreshKind::nothing());
    let limits = system.process(own).and_then(|process| process.cgroup_limits());
    // What the group's files take in the page cache would be given back.
    let within = limits.map_or(u64::MAX, |limits| limits.total_memory.saturating_sub(limits.rss));
    Some(free.min(within).into())
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert!(room::<u64>(1 << 50, || "it".into()).is_err());
        assert!(room::<u64>(usize::MAX, || "it".into()).is_err());
        assert!(room::<u64>(100, || unreachable!()).unwrap().capacity() >= 100);
    }
}
