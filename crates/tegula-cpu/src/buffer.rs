//! Memory for packed values and sums.

use std::cell::RefCell;
use std::marker::PhantomData;

use tegula_core::element::Scalar;
use tegula_core::error::Result;
use tegula_core::host;

/// 64 bytes on a cache line of their own.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
struct Line([u8; 64]);

/// Memory for packed values and sums, so aligned that no vector of them straddles two cache lines more than its panel's width makes it. Nothing is in it yet.
///
/// A thread keeps a little of what it used, since the system would clear it again for the next product.
#[derive(Debug)]
pub struct Buffer<S>(Vec<Line>, PhantomData<S>);

/// Buffers that a thread keeps, and bytes of each, at most. Miri would not see what lies beyond a buffer that is larger than it was asked for.
const KEPT: (usize, usize) = (3, if cfg!(miri) { 0 } else { 4 << 20 });

thread_local! {
    static SPARE: RefCell<Vec<Vec<Line>>> = const { RefCell::new(Vec::new()) };
}

impl<S: Scalar> Buffer<S> {
    /// Room for values of such extents.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`](tegula_core::Error::OutOfMemory) where the host has no room, also where their number is no `usize`.
    pub fn new(what: &str, extents: &[usize]) -> Result<Self> {
        let lines = host::count(extents).map(|len| len.div_ceil(size_of::<Line>() / size_of::<S>()));
        let spare = |spare: &RefCell<Vec<Vec<Line>>>, lines| {
            let mut spare = spare.borrow_mut();
            let fits = spare.iter().position(|memory| memory.capacity() >= lines)?;
            Some(spare.swap_remove(fits))
        };
        let memory = match lines {
            Some(0) => Vec::new(),
            Some(lines) => match SPARE.try_with(|kept| spare(kept, lines)).ok().flatten() {
                Some(memory) => memory,
                None => host::room(&[lines], || what.into())?,
            },
            None => return Err(host::out_of_memory(host::bytes::<S>(extents), || what.into())),
        };
        Ok(Buffer(memory, PhantomData))
    }

    /// Bytes that room for values of such extents takes.
    pub fn bytes(extents: &[usize]) -> u128 {
        host::bytes::<S>(extents).next_multiple_of(size_of::<Line>() as u128)
    }

    /// Where the first value goes.
    pub fn start(&mut self) -> Shared<S> {
        Shared(self.0.as_mut_ptr().cast())
    }

    /// Where the first value is, to be read.
    pub fn shared(&self) -> Shared<S> {
        Shared(self.0.as_ptr().cast_mut().cast())
    }
}

impl<S> Drop for Buffer<S> {
    fn drop(&mut self) {
        let (count, bytes) = KEPT;
        let memory = std::mem::take(&mut self.0);
        if memory.capacity() == 0 || memory.capacity() * size_of::<Line>() > bytes {
            return;
        }
        // A thread that ends keeps nothing.
        _ = SPARE.try_with(|spare| {
            let mut spare = spare.borrow_mut();
            if spare.len() == count {
                spare.remove(0);
            }
            spare.push(memory);
        });
    }
}

/// An address that several threads use, each for values of its own.
#[derive(Clone, Copy)]
pub struct Shared<S>(*mut S);

// SAFETY: it is an address. Those who write through it write to disjoint places.
unsafe impl<S: Send> Send for Shared<S> {}
// SAFETY: as above.
unsafe impl<S: Send> Sync for Shared<S> {}

impl<S> Shared<S> {
    /// Where nothing is.
    pub const NOWHERE: Shared<S> = Shared(std::ptr::null_mut());

    /// From a value on.
    pub fn from(self, index: usize) -> Self {
        Shared(self.at(index))
    }

    /// The same address, of values of another type.
    pub fn cast<U>(self) -> Shared<U> {
        Shared(self.0.cast())
    }

    /// The address of a value.
    pub fn at(self, index: usize) -> *mut S {
        self.0.wrapping_add(index)
    }
}
