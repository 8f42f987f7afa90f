//! Scratch memory for packed operands and accumulators.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::mem::MaybeUninit;

use tegula_core::element::Scalar;
use tegula_core::error::Result;
use tegula_core::host;

/// A cache line.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
struct Line([u8; 64]);

/// Uninitialized scratch memory for packed operands and accumulators, aligned to cache lines.
/// Vectors straddle two lines only where the width of a panel requires it.
///
/// A thread keeps a few small buffers: for new memory the system would clear pages again for the
/// next product.
///
/// In tests, [`GUARD`] lines behind a buffer have a value that nothing may overwrite.
#[derive(Debug)]
pub struct ScratchBuffer<S> {
    memory: Vec<Line>,
    /// Lines of the buffer; the memory may be larger.
    lines: usize,
    of: PhantomData<S>,
}

/// Lines behind a buffer that tests watch.
const GUARD: usize = if cfg!(test) { 4 } else { 0 };
/// Their bytes.
const GUARD_BYTE: u8 = 0xA5;

/// Most buffers that a thread keeps.
const MAX_FREE_BUFFERS: usize = 3;
/// Most bytes of a buffer that a thread keeps.
pub const MAX_FREE_BYTES: usize = 4 << 20;

thread_local! {
    static FREE_LIST: RefCell<Vec<Vec<Line>>> = const { RefCell::new(Vec::new()) };
}

impl<S: Scalar> ScratchBuffer<S> {
    /// Allocates the product of `extents` values.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`](tegula_core::Error::OutOfMemory) where they do not fit in memory, or
    /// their number overflows `usize`.
    pub fn new(what: &str, extents: &[usize]) -> Result<Self> {
        let lines = host::count(extents).map(|len| len.div_ceil(size_of::<Line>() / size_of::<S>()));
        let reuse = |free: &RefCell<Vec<Vec<Line>>>, lines| {
            let mut free = free.borrow_mut();
            let fits = free.iter().position(|memory| memory.capacity() >= lines)?;
            Some(free.swap_remove(fits))
        };
        let memory = match lines {
            Some(0) => Vec::new(),
            Some(lines) => match FREE_LIST.try_with(|free| reuse(free, lines + GUARD)).ok().flatten() {
                Some(memory) => memory,
                None => host::try_vec(&[lines + GUARD], || what.into())?,
            },
            None => return Err(host::out_of_memory(host::bytes::<S>(extents), || what.into())),
        };
        let mut buffer = ScratchBuffer { memory, lines: lines.unwrap_or(0), of: PhantomData };
        buffer.guard().iter_mut().for_each(|line| *line = MaybeUninit::new(Line([GUARD_BYTE; 64])));
        Ok(buffer)
    }

    /// Bytes of a buffer for the product of `extents` values.
    pub fn bytes(extents: &[usize]) -> u128 {
        host::bytes::<S>(extents).next_multiple_of(size_of::<Line>() as u128)
    }

    /// The address of the first value, to write.
    pub fn start_mut(&mut self) -> SharedPtr<S> {
        SharedPtr(self.memory.as_mut_ptr().cast())
    }

    /// The address of the first value, to read.
    pub fn start(&self) -> SharedPtr<S> {
        SharedPtr(self.memory.as_ptr().cast_mut().cast())
    }
}

impl<S> ScratchBuffer<S> {
    /// The lines behind the buffer that tests watch.
    fn guard(&mut self) -> &mut [MaybeUninit<Line>] {
        let behind = if self.lines == 0 { 0..0 } else { self.lines..self.lines + GUARD };
        &mut self.memory.spare_capacity_mut()[behind]
    }
}

impl<S> Drop for ScratchBuffer<S> {
    fn drop(&mut self) {
        for line in self.guard() {
            // SAFETY: `new` has written it.
            let Line(bytes) = unsafe { line.assume_init_read() };
            assert!(bytes == [GUARD_BYTE; 64] || std::thread::panicking(), "a write behind a scratch buffer");
        }
        let memory = std::mem::take(&mut self.memory);
        // None under Miri, which would miss an access beyond the requested size of a larger buffer.
        let kept = 0..=if cfg!(miri) { 0 } else { MAX_FREE_BYTES };
        if memory.capacity() == 0 || !kept.contains(&(memory.capacity() * size_of::<Line>())) {
            return;
        }
        // Fails on a thread that is exiting.
        _ = FREE_LIST.try_with(|free| {
            let mut free = free.borrow_mut();
            if free.len() == MAX_FREE_BUFFERS {
                free.remove(0);
            }
            free.push(memory);
        });
    }
}

/// A pointer that several threads use, each for disjoint values.
#[derive(Clone, Copy)]
pub struct SharedPtr<S>(*mut S);

// SAFETY: it is a pointer. Threads that write through it write disjoint values.
unsafe impl<S: Send> Send for SharedPtr<S> {}
// SAFETY: as above.
unsafe impl<S: Send> Sync for SharedPtr<S> {}

impl<S> SharedPtr<S> {
    /// The pointer to the value `index`.
    pub fn offset(self, index: usize) -> Self {
        SharedPtr(self.at(index))
    }

    /// The same address, for values of another type.
    pub fn cast<U>(self) -> SharedPtr<U> {
        SharedPtr(self.0.cast())
    }

    /// The address of the value `index`.
    pub fn at(self, index: usize) -> *mut S {
        self.0.wrapping_add(index)
    }
}
