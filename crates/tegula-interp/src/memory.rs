//! Memory of a kernel: matrices in global memory, and the shared arrays of a block.
//!
//! A [`Buffer`] is built from bytes and a layout. It stores its elements densely, whatever the
//! strides. Coordinates select the element; strides only determine the modeled address. Elements
//! are atomic cells, so blocks may run on several cores.

use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64};

use tegula_core::element::{Scalar, Type};
use tegula_core::error::{Error, Result};
use tegula_core::host;
use tegula_core::matrix::{Layout, Shape};
use tegula_ir::SharedArray;
use tegula_ir::launch::BoundArgument;

use super::access_summary::SUMMARY_BYTES;

/// Alignment in bytes of the start of each matrix, that of the driver's allocator.
const BASE_ALIGNMENT: u64 = 256;

#[derive(Debug)]
enum Cells {
    B1(Vec<AtomicU8>),
    B2(Vec<AtomicU16>),
    B4(Vec<AtomicU32>),
    B8(Vec<AtomicU64>),
}

/// Name of an allocation, for out-of-memory messages.
const COPY: &str = "the interpreter's copy of a matrix";

/// States of an element: uninitialized, input, written by the kernel.
const EMPTY: u8 = 0;
const INPUT: u8 = 1;
const WRITTEN: u8 = 2;

/// A matrix in the interpreter's global memory.
#[derive(Debug)]
pub struct Buffer {
    ty: Type,
    layout: Layout,
    cells: Cells,
    /// State of each element. Read-only inputs are fully initialized and have none.
    states: Vec<AtomicU8>,
}

/// Bytes that a matrix needs while a kernel runs.
///
/// These are its elements; of a written matrix, also the state and the access summary of each
/// element.
pub fn footprint(ty: Type, elements: usize, written: bool) -> u128 {
    let of_each = ty.size() + if written { size_of::<AtomicU8>() + SUMMARY_BYTES } else { 0 };
    elements as u128 * of_each as u128
}

impl Buffer {
    /// Creates a read-only matrix: a copy of the elements that a layout selects from host bytes.
    ///
    /// The bytes are in the byte order of the host.
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
    /// [`Error::Layout`] if the layout exceeds the bytes or they end within an element,
    /// [`Error::OutOfMemory`] if the copy cannot be allocated.
    pub fn input(ty: Type, bytes: &[u8], layout: Layout) -> Result<Self> {
        let size = ty.size();
        if !bytes.len().is_multiple_of(size) {
            let why =
                format!("{} bytes are not a multiple of {size}, the size of an element of type {ty}", bytes.len());
            return Err(Error::Layout(why));
        }
        layout.check(bytes.len() / size)?;
        Self::of_bits(ty, layout, |batch, row, col| bits_of(&bytes[layout.at(batch, row, col) * size..][..size]))
    }

    /// Creates a matrix to read and write, otherwise as [`Buffer::input`].
    ///
    /// # Errors
    /// Those of [`Buffer::input`].
    pub fn in_out(ty: Type, bytes: &[u8], layout: Layout) -> Result<Self> {
        Self::input(ty, bytes, layout)?.writable()
    }

    /// Creates a read-only matrix from the elements of a slice, as [`Buffer::input`].
    ///
    /// # Errors
    /// [`Error::Layout`] if the layout exceeds the slice, [`Error::OutOfMemory`] if the copy cannot
    /// be allocated.
    pub fn from_slice<T: Scalar>(slice: &[T], layout: Layout) -> Result<Self> {
        layout.check(slice.len())?;
        Self::from_fn(layout, |batch, row, col| slice[layout.at(batch, row, col)])
    }

    /// Creates a read-only matrix whose element (batch, row, col) is `f(batch, row, col)`.
    ///
    /// The layout's strides and offset determine the modeled addresses.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if the elements cannot be allocated.
    pub fn from_fn<T: Scalar>(layout: Layout, mut f: impl FnMut(usize, usize, usize) -> T) -> Result<Self> {
        Self::of_bits(T::TYPE, layout, |batch, row, col| f(batch, row, col).to_bits())
    }

    fn of_bits(ty: Type, layout: Layout, mut bits: impl FnMut(usize, usize, usize) -> u64) -> Result<Self> {
        let Shape { batches, rows, cols } = layout.shape;
        // An empty shape may have any number of rows; the loop must not count them.
        let batches = if layout.shape.is_empty() { 0 } else { batches };
        let positions = (0..batches).flat_map(|b| (0..rows).flat_map(move |r| (0..cols).map(move |c| (b, r, c))));
        let cells = Cells::collect(ty, layout.shape, positions.map(|(b, r, c)| bits(b, r, c)))?;
        Ok(Buffer { ty, layout, cells, states: Vec::new() })
    }

    /// Makes the matrix writable.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if the states of its elements cannot be allocated.
    pub fn writable(self) -> Result<Self> {
        Ok(Buffer { states: states(self.layout.shape.len()?, INPUT)?, ..self })
    }

    /// Creates an uninitialized matrix to write, with this layout.
    ///
    /// Reading an element before it is written is an error.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if the elements cannot be allocated.
    pub fn output(ty: Type, layout: Layout) -> Result<Self> {
        let len = layout.shape.len()?;
        let cells = Cells::collect(ty, layout.shape, std::iter::repeat_n(0, len))?;
        Ok(Buffer { ty, layout, cells, states: states(len, EMPTY)? })
    }

    /// Creates a matrix of zeros, to read and write.
    ///
    /// # Errors
    /// Those of [`Buffer::output`].
    pub fn zeros(ty: Type, layout: Layout) -> Result<Self> {
        Self::of_bits(ty, layout, |_, _, _| 0)?.writable()
    }

    /// Type of the elements.
    pub fn ty(&self) -> Type {
        self.ty
    }

    /// Extents, and strides as passed to the kernel.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// Whether the kernel wrote the element.
    pub fn written(&self, batch: usize, row: usize, col: usize) -> bool {
        let state = self.index(batch as u64, row as u64, col as u64).and_then(|i| self.states.get(i));
        state.is_some_and(|s| s.load(Relaxed) == WRITTEN)
    }

    /// Bits of an element, zero-extended; `None` outside the matrix.
    pub fn bits(&self, batch: usize, row: usize, col: usize) -> Option<u64> {
        self.index(batch as u64, row as u64, col as u64).map(|index| self.load(index))
    }

    /// Returns the elements, batch by batch in row-major order; uninitialized elements are 0.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if `T` is not the buffer's type, [`Error::OutOfMemory`] if the copy
    /// cannot be allocated.
    pub fn to_vec<T: Scalar>(&self) -> Result<Vec<T>> {
        self.same_type::<T>()?;
        let len = self.layout.shape.len()?;
        let mut elements = try_vec(len)?;
        elements.extend((0..len).map(|index| T::from_bits(self.cells.load(index))));
        Ok(elements)
    }

    /// Returns the bytes of the elements, in the order of [`Buffer::to_vec`].
    ///
    /// Each element is in the byte order of the host.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if the copy cannot be allocated.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let (len, size) = (self.layout.shape.len()?, self.ty.size());
        let mut bytes = host::try_vec(&[len, size], || COPY.into())?;
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

    /// The argument for binding to a launch.
    pub(super) fn bound(&self) -> BoundArgument {
        BoundArgument::Matrix { ty: self.ty, layout: self.layout, address: 0 }
    }

    /// Whether the kernel may write the matrix.
    pub(super) fn is_writable(&self) -> bool {
        !self.states.is_empty() || self.layout.shape.is_empty()
    }

    /// Index of an element in the dense storage; `None` outside the matrix.
    pub(super) fn index(&self, batch: u64, row: u64, col: u64) -> Option<usize> {
        let Shape { batches, rows, cols } = self.layout.shape;
        if batch < batches as u64 && row < rows as u64 && col < cols as u64 {
            Some(((batch * rows as u64 + row) * cols as u64 + col) as usize)
        } else {
            None
        }
    }

    /// Coordinates of an element of the dense storage.
    pub(super) fn coordinates(&self, index: usize) -> Vec<u64> {
        let Shape { batches, rows, cols } = self.layout.shape;
        let (row, col) = (index / cols.max(1), index % cols.max(1));
        let (batch, row) = (row / rows.max(1), row % rows.max(1));
        let full = [batch as u64, row as u64, col as u64];
        full[usize::from(batches == 1)..].to_vec()
    }

    /// Modeled byte address of an element; each matrix has its own address region.
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

    /// Loads element `first + e` of each lane of a mask.
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

    /// Whether the element is initialized.
    pub(super) fn is_initialized(&self, index: usize) -> bool {
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

/// Range of the lowest `size` bytes of a `u64` in host byte order.
fn host_order(size: usize) -> Range<usize> {
    if cfg!(target_endian = "big") { size_of::<u64>() - size..size_of::<u64>() } else { 0..size }
}

/// Bits of one element, zero-extended.
fn bits_of(bytes: &[u8]) -> u64 {
    let mut whole = [0; size_of::<u64>()];
    whole[host_order(bytes.len())].copy_from_slice(bytes);
    u64::from_ne_bytes(whole)
}

fn states(len: usize, state: u8) -> Result<Vec<AtomicU8>> {
    let mut states = try_vec(len)?;
    states.resize_with(len, || AtomicU8::new(state));
    Ok(states)
}

fn try_vec<T>(len: usize) -> Result<Vec<T>> {
    host::try_vec(&[len], || COPY.into())
}

impl Cells {
    fn collect(ty: Type, shape: Shape, bits: impl Iterator<Item = u64>) -> Result<Self> {
        let len = shape.len()?;
        Ok(match ty.size() {
            1 => {
                let mut cells = try_vec(len)?;
                cells.extend(bits.map(|b| AtomicU8::new(b as u8)));
                Cells::B1(cells)
            }
            2 => {
                let mut cells = try_vec(len)?;
                cells.extend(bits.map(|b| AtomicU16::new(b as u16)));
                Cells::B2(cells)
            }
            4 => {
                let mut cells = try_vec(len)?;
                cells.extend(bits.map(|b| AtomicU32::new(b as u32)));
                Cells::B4(cells)
            }
            _ => {
                let mut cells = try_vec(len)?;
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

/// The shared memory of one block: the elements of each array, as bits.
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
    fn buffer_input_strided_layout_selects_elements() {
        let memory: Vec<i32> = (0..20).collect();
        let bytes: Vec<u8> = memory.iter().flat_map(|x| x.to_ne_bytes()).collect();
        // Columns in reverse order, and a gap between rows.
        let layout = Layout { shape: Shape { batches: 2, rows: 2, cols: 3 }, offset: 3, strides: [10, 5, -1] };
        let wanted = [3, 2, 1, 8, 7, 6, 13, 12, 11, 18, 17, 16];
        let buffer = Buffer::input(Type::I32, &bytes, layout).unwrap();
        assert_eq!(buffer.to_vec::<i32>().unwrap(), wanted);
        assert_eq!(buffer.to_bytes().unwrap(), wanted.iter().flat_map(|x| x.to_ne_bytes()).collect::<Vec<_>>());
        assert_eq!(Buffer::from_slice(&memory, layout).unwrap().to_vec::<i32>().unwrap(), wanted);
        assert_eq!((buffer.bits(1, 0, 2), buffer.bits(2, 0, 0), buffer.layout()), (Some(11), None, layout));
        assert!(matches!(buffer.to_vec::<u32>(), Err(Error::Unsupported { .. })));

        let halves = [1.5, -2.0].map(bf16::from_f32);
        let bytes: Vec<u8> = halves.iter().flat_map(|x| x.to_ne_bytes()).collect();
        let row = Layout::row_major(Shape::new(1, 2)).unwrap();
        let buffer = Buffer::input(Type::BF16, &bytes, row).unwrap();
        assert_eq!((buffer.to_vec::<bf16>().unwrap(), buffer.to_bytes().unwrap()), (halves.to_vec(), bytes));
    }

    #[test]
    fn buffer_layout_out_of_bounds_is_rejected() {
        let row = |cols| Layout::row_major(Shape::new(1, cols)).unwrap();
        assert!(Buffer::input(Type::I32, &[0; 8], row(2)).is_ok());
        for refused in [
            Buffer::input(Type::I32, &[0; 8], row(3)),
            Buffer::input(Type::I32, &[0; 7], row(1)),
            Buffer::in_out(Type::I32, &[0; 8], Layout { offset: 1, ..row(2) }),
            Buffer::from_slice(&[0i32; 2], row(3)),
        ] {
            assert!(matches!(refused, Err(Error::Layout(_))), "{refused:?}");
        }
        // The maximum number of rows, without columns.
        let empty = Layout { shape: Shape::new(usize::MAX, 0), offset: 0, strides: [0; 3] };
        assert!(Buffer::in_out(Type::F32, &[], empty).unwrap().to_bytes().unwrap().is_empty());
    }

    #[test]
    fn buffer_store_marks_element_written() {
        let row = Layout::row_major(Shape::new(1, 2)).unwrap();
        let [input, in_out, output] =
            [Buffer::from_slice(&[1u8, 2], row), Buffer::in_out(Type::U8, &[1, 2], row), Buffer::output(Type::U8, row)]
                .map(Result::unwrap);
        assert_eq!([&input, &in_out, &output].map(Buffer::is_writable), [false, true, true]);
        assert_eq!([&input, &in_out, &output].map(|b| b.is_initialized(0)), [true, true, false]);
        in_out.store(1, 7);
        assert_eq!((in_out.written(0, 0, 0), in_out.written(0, 0, 1)), (false, true));
        assert_eq!(in_out.to_bytes().unwrap(), [1, 7]);
    }
}
