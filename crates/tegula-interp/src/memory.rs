//! The memory a kernel sees: matrices in global memory, which all blocks share, and the arrays of a
//! block's shared memory.
//!
//! A [`Buffer`] is made of bytes and a layout. It keeps its elements densely, whatever the strides:
//! coordinates find the element, strides only say what address the access would have had. Elements
//! are atomic cells, so blocks may run on several cores.

use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64};

use tegula_core::element::{Scalar, Type};
use tegula_core::error::{Error, Result};
use tegula_core::host;
use tegula_core::matrix::{Layout, Shape};
use tegula_ir::SharedArray;
use tegula_ir::launch::Bound;

use super::owners::OWNERS_BYTES;

/// Bytes to which the interpreter aligns the start of each matrix, as the driver's allocator does.
const BASE_ALIGNMENT: u64 = 256;

#[derive(Debug)]
enum Cells {
    B1(Vec<AtomicU8>),
    B2(Vec<AtomicU16>),
    B4(Vec<AtomicU32>),
    B8(Vec<AtomicU64>),
}

/// What runs out of memory, for messages.
const COPY: &str = "the interpreter's copy of a matrix";

/// Whether an element holds anything.
const EMPTY: u8 = 0;
const GIVEN: u8 = 1;
const WRITTEN: u8 = 2;

/// A matrix in the interpreter's global memory.
#[derive(Debug)]
pub struct Buffer {
    ty: Type,
    layout: Layout,
    cells: Cells,
    /// For each element, whether it was given, written by the kernel, or neither. Inputs are given
    /// whole and keep none.
    states: Vec<AtomicU8>,
}

/// Bytes that a matrix takes while a kernel runs: its elements, and of one that is written the
/// state of each and who uses it.
pub fn footprint(ty: Type, elements: usize, written: bool) -> u128 {
    let of_each = ty.size() + if written { size_of::<AtomicU8>() + OWNERS_BYTES } else { 0 };
    elements as u128 * of_each as u128
}

impl Buffer {
    /// A matrix to read: a copy of the elements that the layout names in some memory, which is
    /// given as bytes in the order of the host.
    ///
    /// ```
    /// use tegula_core::element::Type;
    /// use tegula_core::{Layout, Shape};
    /// use tegula_interp::Buffer;
    ///
    /// // Two columns of two elements.
    /// let columns = Layout { shape: Shape::new(2, 2), offset: 0, strides: [0, 1, 2] };
    /// let buffer = Buffer::input(Type::I8, &[1, 2, 3, 4], columns)?;
    /// assert_eq!(buffer.to_vec::<i8>()?, [1, 3, 2, 4]);
    /// # Ok::<(), tegula_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Layout`] where the layout reaches outside the bytes or they end within an element,
    /// [`Error::OutOfMemory`] where the copy does not fit in memory.
    pub fn input(ty: Type, bytes: &[u8], layout: Layout) -> Result<Self> {
        let size = ty.size();
        if !bytes.len().is_multiple_of(size) {
            let why = format!("{} bytes are no whole number of {ty} elements, of {size} bytes each", bytes.len());
            return Err(Error::Layout(why));
        }
        layout.check(bytes.len() / size)?;
        Self::of_bits(ty, layout, |batch, row, col| bits_of(&bytes[layout.at(batch, row, col) * size..][..size]))
    }

    /// A matrix to read and write, otherwise as [`Buffer::input`].
    ///
    /// # Errors
    /// As [`Buffer::input`].
    pub fn in_out(ty: Type, bytes: &[u8], layout: Layout) -> Result<Self> {
        Self::input(ty, bytes, layout)?.writable()
    }

    /// [`Buffer::input`] of the elements of a slice.
    ///
    /// # Errors
    /// [`Error::Layout`] where the layout reaches outside the slice, [`Error::OutOfMemory`] where
    /// the copy does not fit in memory.
    pub fn of_slice<T: Scalar>(slice: &[T], layout: Layout) -> Result<Self> {
        layout.check(slice.len())?;
        Self::from_fn(layout, |batch, row, col| slice[layout.at(batch, row, col)])
    }

    /// A matrix to read whose element (batch, row, col) is `f(batch, row, col)`. The layout's
    /// strides and offset say what addresses the elements have.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] where the elements do not fit in memory.
    pub fn from_fn<T: Scalar>(layout: Layout, mut f: impl FnMut(usize, usize, usize) -> T) -> Result<Self> {
        Self::of_bits(T::TYPE, layout, |batch, row, col| f(batch, row, col).to_bits())
    }

    fn of_bits(ty: Type, layout: Layout, mut bits: impl FnMut(usize, usize, usize) -> u64) -> Result<Self> {
        let Shape { batches, rows, cols } = layout.shape;
        // An empty shape may have any number of rows, and no loop should count them.
        let batches = if layout.shape.is_empty() { 0 } else { batches };
        let positions = (0..batches).flat_map(|b| (0..rows).flat_map(move |r| (0..cols).map(move |c| (b, r, c))));
        let cells = Cells::collect(ty, layout.shape, positions.map(|(b, r, c)| bits(b, r, c)))?;
        Ok(Buffer { ty, layout, cells, states: Vec::new() })
    }

    /// The same matrix, to read and write.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] where the state of each element does not fit in memory.
    pub fn writable(self) -> Result<Self> {
        Ok(Buffer { states: states(self.layout.shape.len()?, GIVEN)?, ..self })
    }

    /// A matrix to write, laid out so, with nothing in it yet: reading an element before it is
    /// written is an error.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] where the host has no room.
    pub fn output(ty: Type, layout: Layout) -> Result<Self> {
        let len = layout.shape.len()?;
        let cells = Cells::collect(ty, layout.shape, std::iter::repeat_n(0, len))?;
        Ok(Buffer { ty, layout, cells, states: states(len, EMPTY)? })
    }

    /// A matrix to read and write whose elements are 0.
    ///
    /// # Errors
    /// As [`Buffer::output`].
    pub fn zeros(ty: Type, layout: Layout) -> Result<Self> {
        Self::of_bits(ty, layout, |_, _, _| 0)?.writable()
    }

    /// Type of the elements.
    pub fn ty(&self) -> Type {
        self.ty
    }

    /// Extents, and strides as the kernel is told.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// Whether the kernel wrote the element.
    pub fn written(&self, batch: usize, row: usize, col: usize) -> bool {
        let state = self.index(batch as u64, row as u64, col as u64).and_then(|i| self.states.get(i));
        state.is_some_and(|s| s.load(Relaxed) == WRITTEN)
    }

    /// The bits of an element, zero-extended; `None` outside the matrix.
    pub fn bits(&self, batch: usize, row: usize, col: usize) -> Option<u64> {
        self.index(batch as u64, row as u64, col as u64).map(|index| self.load(index))
    }

    /// The elements, matrix after matrix, row after row; those that were never written are 0.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where `T` is not the buffer's type, [`Error::OutOfMemory`] where the
    /// copy does not fit in memory.
    pub fn to_vec<T: Scalar>(&self) -> Result<Vec<T>> {
        self.same_type::<T>()?;
        let len = self.layout.shape.len()?;
        let mut elements = room(len)?;
        elements.extend((0..len).map(|index| T::from_bits(self.cells.load(index))));
        Ok(elements)
    }

    /// The bytes of the elements, in the order of [`Buffer::to_vec`]; each element's are in the
    /// order of the host.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] where the copy does not fit in memory.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let (len, size) = (self.layout.shape.len()?, self.ty.size());
        let mut bytes = host::room(&[len, size], || COPY.into())?;
        for index in 0..len {
            bytes.extend_from_slice(&self.cells.load(index).to_ne_bytes()[host_order(size)]);
        }
        Ok(bytes)
    }

    fn same_type<T: Scalar>(&self) -> Result<()> {
        if T::TYPE == self.ty {
            return Ok(());
        }
        Err(Error::Unsupported {
            what: format!("a buffer of {}", self.ty),
            ty: T::TYPE,
            device: "the interpreter; ask for the same type".into(),
        })
    }

    /// The argument that a launch is bound with.
    pub(super) fn bound(&self) -> Bound {
        Bound::Matrix { ty: self.ty, layout: self.layout, address: 0 }
    }

    /// Whether the kernel may write it.
    pub(super) fn is_writable(&self) -> bool {
        !self.states.is_empty() || self.layout.shape.is_empty()
    }

    /// Where an element is kept, or `None` outside the matrix.
    pub(super) fn index(&self, batch: u64, row: u64, col: u64) -> Option<usize> {
        let Shape { batches, rows, cols } = self.layout.shape;
        if batch < batches as u64 && row < rows as u64 && col < cols as u64 {
            Some(((batch * rows as u64 + row) * cols as u64 + col) as usize)
        } else {
            None
        }
    }

    /// Coordinates of a kept element.
    pub(super) fn coordinates(&self, index: usize) -> Vec<u64> {
        let Shape { batches, rows, cols } = self.layout.shape;
        let (row, col) = (index / cols.max(1), index % cols.max(1));
        let (batch, row) = (row / rows.max(1), row % rows.max(1));
        let full = [batch as u64, row as u64, col as u64];
        full[usize::from(batches == 1)..].to_vec()
    }

    /// The byte address the element would have: each matrix lies in a region of its own.
    pub(super) fn address(&self, region: usize, batch: u64, row: u64, col: u64) -> u64 {
        let [b, r, c] = self.layout.strides.map(|s| s as i64);
        let elements = (batch as i64).wrapping_mul(b).wrapping_add((row as i64).wrapping_mul(r));
        let elements = elements.wrapping_add((col as i64).wrapping_mul(c));
        let base = ((region as u64 + 1) << 48) & !(BASE_ALIGNMENT - 1);
        base.wrapping_add(elements.wrapping_mul(self.ty.size() as i64) as u64)
    }

    pub(super) fn load(&self, index: usize) -> u64 {
        self.cells.load(index)
    }

    /// The elements `first + e` of the lanes of a mask.
    pub(super) fn gather(&self, first: &[usize; 32], e: usize, lanes: u32, bits: &mut [u64; 32]) {
        match &self.cells {
            Cells::B1(cells) => gather(cells, first, e, lanes, bits, |c| c.load(Relaxed).into()),
            Cells::B2(cells) => gather(cells, first, e, lanes, bits, |c| c.load(Relaxed).into()),
            Cells::B4(cells) => gather(cells, first, e, lanes, bits, |c| c.load(Relaxed).into()),
            Cells::B8(cells) => gather(cells, first, e, lanes, bits, |c| c.load(Relaxed)),
        }
    }

    pub(super) fn store(&self, index: usize, bits: u64) {
        self.cells.store(index, bits);
        if let Some(state) = self.states.get(index) {
            state.store(WRITTEN, Relaxed);
        }
    }

    /// Whether the element holds anything.
    pub(super) fn is_initialised(&self, index: usize) -> bool {
        self.states.get(index).is_none_or(|s| s.load(Relaxed) != EMPTY)
    }
}

fn gather<T>(cells: &[T], first: &[usize; 32], e: usize, lanes: u32, bits: &mut [u64; 32], load: impl Fn(&T) -> u64) {
    for lane in 0..32 {
        if lanes >> lane & 1 == 1 {
            bits[lane] = load(&cells[first[lane] + e]);
        }
    }
}

/// Where the lowest `size` bytes of a u64 are in the order of the host.
fn host_order(size: usize) -> Range<usize> {
    if cfg!(target_endian = "big") { size_of::<u64>() - size..size_of::<u64>() } else { 0..size }
}

/// The bits of one element, zero-extended.
fn bits_of(bytes: &[u8]) -> u64 {
    let mut whole = [0; size_of::<u64>()];
    whole[host_order(bytes.len())].copy_from_slice(bytes);
    u64::from_ne_bytes(whole)
}

fn states(len: usize, state: u8) -> Result<Vec<AtomicU8>> {
    let mut states = room(len)?;
    states.resize_with(len, || AtomicU8::new(state));
    Ok(states)
}

fn room<T>(len: usize) -> Result<Vec<T>> {
    host::room(&[len], || COPY.into())
}

impl Cells {
    fn collect(ty: Type, shape: Shape, bits: impl Iterator<Item = u64>) -> Result<Self> {
        let len = shape.len()?;
        Ok(match ty.size() {
            1 => {
                let mut cells = room(len)?;
                cells.extend(bits.map(|b| AtomicU8::new(b as u8)));
                Cells::B1(cells)
            }
            2 => {
                let mut cells = room(len)?;
                cells.extend(bits.map(|b| AtomicU16::new(b as u16)));
                Cells::B2(cells)
            }
            4 => {
                let mut cells = room(len)?;
                cells.extend(bits.map(|b| AtomicU32::new(b as u32)));
                Cells::B4(cells)
            }
            _ => {
                let mut cells = room(len)?;
                cells.extend(bits.map(AtomicU64::new));
                Cells::B8(cells)
            }
        })
    }

    fn load(&self, index: usize) -> u64 {
        match self {
            Cells::B1(cells) => u64::from(cells[index].load(Relaxed)),
            Cells::B2(cells) => u64::from(cells[index].load(Relaxed)),
            Cells::B4(cells) => u64::from(cells[index].load(Relaxed)),
            Cells::B8(cells) => cells[index].load(Relaxed),
        }
    }

    fn store(&self, index: usize, bits: u64) {
        match self {
            Cells::B1(cells) => cells[index].store(bits as u8, Relaxed),
            Cells::B2(cells) => cells[index].store(bits as u16, Relaxed),
            Cells::B4(cells) => cells[index].store(bits as u32, Relaxed),
            Cells::B8(cells) => cells[index].store(bits, Relaxed),
        }
    }
}

/// The shared memory of one block: each array's elements as bits.
#[derive(Debug)]
pub(super) struct SharedMemory {
    pub arrays: Vec<Vec<u64>>,
}

impl SharedMemory {
    pub fn new(arrays: &[SharedArray]) -> Self {
        SharedMemory { arrays: arrays.iter().map(|a| vec![0; a.len() as usize]).collect() }
    }
}

#[cfg(test)]
mod tests {
    use tegula_core::element::bf16;

    use super::*;

    #[test]
    fn buffer_of_bytes_reads_the_elements_that_the_layout_names() {
        let memory: Vec<i32> = (0..20).collect();
        let bytes: Vec<u8> = memory.iter().flat_map(|x| x.to_ne_bytes()).collect();
        // The columns backwards, and a gap between rows.
        let layout = Layout { shape: Shape { batches: 2, rows: 2, cols: 3 }, offset: 3, strides: [10, 5, -1] };
        let wanted = [3, 2, 1, 8, 7, 6, 13, 12, 11, 18, 17, 16];
        let buffer = Buffer::input(Type::I32, &bytes, layout).unwrap();
        assert_eq!(buffer.to_vec::<i32>().unwrap(), wanted);
        assert_eq!(buffer.to_bytes().unwrap(), wanted.iter().flat_map(|x| x.to_ne_bytes()).collect::<Vec<_>>());
        assert_eq!(Buffer::of_slice(&memory, layout).unwrap().to_vec::<i32>().unwrap(), wanted);
        assert_eq!((buffer.bits(1, 0, 2), buffer.bits(2, 0, 0), buffer.layout()), (Some(11), None, layout));
        assert!(matches!(buffer.to_vec::<u32>(), Err(Error::Unsupported { .. })));

        let halves = [1.5, -2.0].map(bf16::from_f32);
        let bytes: Vec<u8> = halves.iter().flat_map(|x| x.to_ne_bytes()).collect();
        let row = Layout::row_major(Shape::new(1, 2)).unwrap();
        let buffer = Buffer::input(Type::BF16, &bytes, row).unwrap();
        assert_eq!((buffer.to_vec::<bf16>().unwrap(), buffer.to_bytes().unwrap()), (halves.to_vec(), bytes));
    }

    #[test]
    fn buffer_layout_outside_its_bytes_is_refused() {
        let row = |cols| Layout::row_major(Shape::new(1, cols)).unwrap();
        assert!(Buffer::input(Type::I32, &[0; 8], row(2)).is_ok());
        for refused in [
            Buffer::input(Type::I32, &[0; 8], row(3)),
            Buffer::input(Type::I32, &[0; 7], row(1)),
            Buffer::in_out(Type::I32, &[0; 8], Layout { offset: 1, ..row(2) }),
            Buffer::of_slice(&[0i32; 2], row(3)),
        ] {
            assert!(matches!(refused, Err(Error::Layout(_))), "{refused:?}");
        }
        // As many rows as there are numbers, of nothing.
        let empty = Layout { shape: Shape::new(usize::MAX, 0), offset: 0, strides: [0; 3] };
        assert!(Buffer::in_out(Type::F32, &[], empty).unwrap().to_bytes().unwrap().is_empty());
    }

    #[test]
    fn buffer_is_written_where_it_may_be() {
        let row = Layout::row_major(Shape::new(1, 2)).unwrap();
        let [input, in_out, output] =
            [Buffer::of_slice(&[1u8, 2], row), Buffer::in_out(Type::U8, &[1, 2], row), Buffer::output(Type::U8, row)]
                .map(Result::unwrap);
        assert_eq!([&input, &in_out, &output].map(Buffer::is_writable), [false, true, true]);
        assert_eq!([&input, &in_out, &output].map(|b| b.is_initialised(0)), [true, true, false]);
        in_out.store(1, 7);
        assert_eq!((in_out.written(0, 0, 0), in_out.written(0, 0, 1)), (false, true));
        assert_eq!(in_out.to_bytes().unwrap(), [1, 7]);
    }
}
