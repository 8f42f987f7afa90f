//! Packing: copies of parts of A and B in the order in which a micro-kernel reads them.
//!
//! A panel is a few rows of A, or columns of B: its lanes. Within it lies step after step of k, each with one value for every lane.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::ops::Range;

use tegula_core::element::Scalar;
use tegula_core::error::Result;
use tegula_core::host;
use tegula_core::matrix::{Layout, Shape};

use super::kernel::Operand;

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

/// One of the two inputs as its packing sees it: a lane is a row of A or a column of B.
#[derive(Clone, Copy)]
pub struct Source<'a, T> {
    start: *const T,
    lanes: usize,
    depth: usize,
    /// From one matrix to the next, in elements.
    batch: isize,
    /// From one lane to the next, in elements.
    lane: isize,
    /// From one k to the next, in elements.
    step: isize,
    borrowed: PhantomData<&'a T>,
}

// SAFETY: it stands for a shared borrow of its elements.
unsafe impl<T: Sync> Send for Source<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Source<'_, T> {}

impl<T: Scalar> Source<'_, T> {
    /// The rows of the first matrix of a batch; `memory` is position 0 of its layout.
    ///
    /// # Safety
    /// Every element of the layout is borrowed to be read for the lifetime of the source.
    pub unsafe fn rows(memory: *const T, layout: Layout) -> Self {
        let ([batch, lane, step], Shape { rows: lanes, cols: depth, .. }) = (layout.strides, layout.shape);
        let start = memory.wrapping_add(layout.offset);
        Source { start, lanes, depth, batch, lane, step, borrowed: PhantomData }
    }

    /// Another matrix of the batch.
    pub fn batch(self, batch: usize) -> Self {
        // Nothing bounds the strides of an empty matrix.
        Source { start: self.start.wrapping_offset((batch as isize).wrapping_mul(self.batch)), ..self }
    }

    /// From one lane to the next, and from one k to the next, in elements.
    pub fn strides(&self) -> [isize; 2] {
        [self.lane, self.step]
    }

    /// Only elements of the matrix are read.
    pub fn contains(&self, lanes: &Range<usize>, k: &Range<usize>) {
        assert!(
            lanes.end <= self.lanes && k.end <= self.depth,
            "{lanes:?} and {k:?} of {} and {}",
            self.lanes,
            self.depth
        );
    }

    /// The address of an element. It may be read if it lies in the matrix.
    pub fn at(&self, lane: usize, k: usize) -> *const T {
        self.start.wrapping_offset(lane as isize * self.lane + k as isize * self.step)
    }
}

/// Packs rows: `lanes` of a source for the given range of k, each lane `width` values after the one before. What lies between is left alone.
///
/// # Safety
/// As [`pack`].
#[inline(always)]
pub unsafe fn pack_rows<T: Operand>(
    from: Source<T>,
    lanes: Range<usize>,
    k: Range<usize>,
    width: usize,
    to: *mut T::Acc,
) {
    from.contains(&lanes, &k);
    let whole = k.len() / T::DEPTH;
    for (i, lane) in lanes.enumerate() {
        let to = to.wrapping_add(i * width);
        // SAFETY: the caller's promise: these are elements of the matrix, and there is room for all steps.
        unsafe {
            if from.step == 1 {
                let row = std::slice::from_raw_parts(from.at(lane, k.start), whole * T::DEPTH);
                T::pack_all(row, std::slice::from_raw_parts_mut(to, whole));
            } else {
                for step in 0..whole {
                    let read = |d| from.at(lane, k.start + step * T::DEPTH + d).read();
                    to.add(step).write(read(0).pack(read(T::DEPTH - 1)));
                }
            }
            if !k.len().is_multiple_of(T::DEPTH) {
                to.add(whole).write(from.at(lane, k.end - 1).read().pack(T::ZERO));
            }
        }
    }
}

/// Packs a panel: `lanes` of a source, for the given range of k, each step `width` values after the one before. What lies between is left alone.
///
/// # Safety
/// The lanes and steps are in the matrix. `to` has room for all steps, and is ours alone.
#[inline(always)]
pub unsafe fn pack<T: Operand>(from: Source<T>, lanes: Range<usize>, k: Range<usize>, width: usize, to: *mut T::Acc) {
    from.contains(&lanes, &k);
    // SAFETY: the caller's promise.
    unsafe {
        match lanes.len() {
            _ if from.lane == 1 => pack_steps(from, lanes, k, width, to),
            4 if from.step == 1 => pack_lanes::<T, 4>(from, lanes.start, k, width, to),
            8 if from.step == 1 => pack_lanes::<T, 8>(from, lanes.start, k, width, to),
            16 if from.step == 1 => pack_lanes::<T, 16>(from, lanes.start, k, width, to),
            24 if from.step == 1 => pack_lanes::<T, 24>(from, lanes.start, k, width, to),
            48 if from.step == 1 => pack_lanes::<T, 48>(from, lanes.start, k, width, to),
            _ => pack_any(from, lanes, k, width, to),
        }
    }
}

/// A panel from any strides.
///
/// # Safety
/// As [`pack`].
unsafe fn pack_any<T: Operand>(from: Source<T>, lanes: Range<usize>, k: Range<usize>, width: usize, to: *mut T::Acc) {
    for (step, first) in k.clone().step_by(T::DEPTH).enumerate() {
        // SAFETY: the caller's promise.
        let read = |lane, k| unsafe { from.at(lane, k).read() };
        let next = |lane| if T::DEPTH == 2 && first + 1 < k.end { read(lane, first + 1) } else { T::ZERO };
        for (i, lane) in lanes.clone().enumerate() {
            // SAFETY: as above.
            unsafe { to.add(step * width + i).write(read(lane, first).pack(next(lane))) };
        }
    }
}

/// A panel where the lanes of a step are neighbours in memory.
///
/// # Safety
/// As [`pack`].
#[inline(always)]
unsafe fn pack_steps<T: Operand>(from: Source<T>, lanes: Range<usize>, k: Range<usize>, width: usize, to: *mut T::Acc) {
    for (step, first) in k.clone().step_by(T::DEPTH).enumerate() {
        // SAFETY: the caller's promise: these are elements of the matrix, and there is room for them.
        let (row, to) = unsafe {
            let row = |k| std::slice::from_raw_parts(from.at(lanes.start, k), lanes.len());
            (row, std::slice::from_raw_parts_mut(to.add(step * width), lanes.len()))
        };
        if T::DEPTH == 1 {
            T::pack_all(row(first), to);
        } else if first + 1 < k.end {
            to.iter_mut().zip(row(first)).zip(row(first + 1)).for_each(|((to, x), next)| *to = x.pack(*next));
        } else {
            to.iter_mut().zip(row(first)).for_each(|(to, x)| *to = x.pack(T::ZERO));
        }
    }
}

/// A panel of `W` lanes where the steps of a lane are neighbours in memory.
///
/// # Safety
/// As [`pack`].
unsafe fn pack_lanes<T: Operand, const W: usize>(
    from: Source<T>,
    lane: usize,
    k: Range<usize>,
    width: usize,
    to: *mut T::Acc,
) {
    // SAFETY: the caller's promise: each lane is `k.len()` neighbours, all of the matrix.
    let row = |i| unsafe { std::slice::from_raw_parts(from.at(lane + i, k.start), k.len()) };
    let lanes: [&[T]; W] = std::array::from_fn(row);
    for step in 0..k.len().div_ceil(T::DEPTH) {
        let first = step * T::DEPTH;
        let next = |lane: &[T]| if T::DEPTH == 2 && first + 1 < k.len() { lane[first + 1] } else { T::ZERO };
        let values: [T::Acc; W] = std::array::from_fn(|i| lanes[i][first].pack(next(lanes[i])));
        // SAFETY: there is room for all steps.
        unsafe { to.add(step * width).cast::<[T::Acc; W]>().write(values) };
    }
}
