//! Views' GPU memory as plain data, usable without a driver. Only `cuda` creates it.

use std::marker::PhantomData;

/// The stream that orders the work on a piece of GPU memory.
///
/// Work queued there, including the release of the memory, runs in order. Work on another stream
/// must be synchronized with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HomeStream {
    /// The handle of the context.
    pub context: u64,
    /// The handle of the stream, valid at least as long as the memory is borrowed.
    pub stream: u64,
}

/// GPU memory: an address and a length, borrowed from the owner of the allocation.
///
/// The `cuda` module creates it. The fields are plain data, so all other modules can inspect them.
#[derive(Clone, Copy, Debug)]
pub struct DeviceMemory<'a> {
    /// The device address of the first element.
    pub address: u64,
    /// The number of elements.
    pub len: usize,
    /// The ordinal of the GPU.
    pub ordinal: usize,
    /// The stream that orders the work on the memory.
    pub home: HomeStream,
    /// The lifetime of the owner.
    pub owner: PhantomData<&'a ()>,
}

impl DeviceMemory<'_> {
    /// The device address of the first element.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the memory has no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The ordinal of the GPU.
    pub fn ordinal(&self) -> usize {
        self.ordinal
    }

    /// The stream that orders the work on the memory.
    pub fn home(&self) -> HomeStream {
        self.home
    }
}
