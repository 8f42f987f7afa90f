//! The memory a kernel sees: matrices in global memory, which all blocks share, and the arrays of a block's shared memory.
//!
//! A [`Buffer`] keeps its elements densely, whatever the strides of the matrix it stands for: coordinates find the element,
//! strides only say what address the access would have had. Elements are atomic cells, so blocks may run on several cores.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64};

use tegula_core::element::{Scalar, Type};
use tegula_core::error::{Error, Result};
use tegula_core::host;
use tegula_core::matrix::{Layout, Matrix, Memory, Shape, View, ViewMut};
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
    /// For each element, whether it was given, written by the kernel, or neither. Inputs are given whole and keep none.
    states: Vec<AtomicU8>,
}

/// Bytes that a matrix takes while a kernel runs: its elements, and of one that is written the state of each and who uses it.
pub fn footprint(ty: Type, elements: usize, written: bool) -> u128 {
    let of_each = ty.size() + if written { size_of::<AtomicU8>() + OWNERS_BYTES } else { 0 };
    elements as u128 * of_each as u128
}

impl Buffer {
    /// A matrix to read: a copy of a view on the host.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a view of GPU memory, [`Error::OutOfMemory`] where the host has no room.
    pub fn input<T: Scalar>(view: View<'_, T>) -> Result<Self> {
        let Memory::Host(_) = view.memory() else { return Err(on_gpu::<T>()) };
        let layout = view.layout();
        let Shape { batches, rows, cols } = layout.shape;
        let positions = (0..batches).flat_map(|b| (0..rows).flat_map(move |r| (0..cols).map(move |c| (b, r, c))));
        let bits = positions.map(|(b, r, c)| view.get(b, r, c).map_or(0, T::to_bits));
        let cells = Cells::collect(T::TYPE, layout.shape, bits)?;
        Ok(Buffer { ty: T::TYPE, layout, cells, states: Vec::new() })
    }

    /// A matrix to write, laid out so, with nothing in it yet: reading an element before it is written is an error.
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
        Ok(Buffer { states: states(layout.shape.len()?, GIVEN)?, ..Self::output(ty, layout)? })
    }

    /// A matrix to read and write that holds a copy of the view's elements.
    ///
    /// # Errors
    /// As [`Buffer::input`].
    pub fn in_out<T: Scalar>(view: View<'_, T>) -> Result<Self> {
        let buffer = Self::input(view)?;
        Ok(Buffer { states: states(buffer.layout.shape.len()?, GIVEN)?, ..buffer })
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

    /// The elements as a matrix; those that were never written are 0.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where `T` is not the buffer's type, [`Error::OutOfMemory`] where the host has no room.
    pub fn to_matrix<T: Scalar>(&self) -> Result<Matrix<T>> {
        self.same_type::<T>()?;
        let mut index = 0..;
        Matrix::from_fn(self.layout.shape, |_, _, _| T::from_bits(self.cells.load(index.next().unwrap_or(0))))
    }

    /// Copies what the kernel wrote into a view of the same shape; elements it left alone keep their value.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for another type or for GPU memory, [`Error::Shape`] for another shape.
    pub fn copy_to<T: Scalar>(&self, mut view: ViewMut<'_, T>) -> Result<()> {
        self.same_type::<T>()?;
        let shape = view.shape();
        if shape != self.layout.shape {
            return Err(Error::Shape(format!("{} does not fit into {shape}", self.layout.shape)));
        }
        let Memory::Host(_) = view.memory() else { return Err(on_gpu::<T>()) };
        let Shape { batches, rows, cols } = shape;
        let mut index = 0;
        for batch in 0..batches {
            for row in 0..rows {
                for col in 0..cols {
                    if self.states.get(index).is_some_and(|s| s.load(Relaxed) == WRITTEN)
                        && let Some(element) = view.get_mut(batch, row, col)
                    {
                        *element = T::from_bits(self.cells.load(index));
                    }
                    index += 1;
                }
            }
        }
        Ok(())
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

fn on_gpu<T: Scalar>() -> Error {
    Error::Unsupported {
        what: "memory of a GPU".into(),
        ty: T::TYPE,
        device: "the interpreter; download the matrix first".into(),
    }
}

fn states(len: usize, state: u8) -> Result<Vec<AtomicU8>> {
    let mut states = room(len)?;
    states.resize_with(len, || AtomicU8::new(state));
    Ok(states)
}

fn room<T>(len: usize) -> Result<Vec<T>> {
    host::room(&[len], || "the interpreter's copy of a matrix".into())
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
