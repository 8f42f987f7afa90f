//! Memory of a GPU as views carry it: plain data, so that everything but `cuda` can reason about it and none needs a driver.

use std::marker::PhantomData;

/// The queue of work that a piece of GPU memory belongs to: what was queued there on the memory is done before what is
/// queued there later, the release of the memory included. Work on another stream has to be ordered with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Home {
    /// The context's handle.
    pub context: u64,
    /// The stream's handle; it lives at least as long as the borrow of the memory.
    pub stream: u64,
}

/// Memory of a GPU: an address with a length, borrowed from whoever owns the allocation.
///
/// Made by the `cuda` module; the fields are plain data so that everything else can reason about them.
#[derive(Clone, Copy, Debug)]
pub struct DeviceMemory<'a> {
    /// Device address of the first element.
    pub address: u64,
    /// Elements from there on.
    pub len: usize,
    /// Which GPU.
    pub ordinal: usize,
    /// Where work on it is queued.
    pub home: Home,
    /// What the memory is borrowed from.
    pub owner: PhantomData<&'a ()>,
}

impl DeviceMemory<'_> {
    /// Device address of the first element.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Number of elements from there on.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no element.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The GPU's ordinal.
    pub fn ordinal(&self) -> usize {
        self.ordinal
    }

    /// The queue of work it belongs to.
    pub fn home(&self) -> Home {
        self.home
    }
}
