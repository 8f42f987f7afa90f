//! Random operands in scratch memory, in place of a caller's: of the same shape, strides and
//! alignment.
//!
//! The host generates a block of random elements, which repeats through the memory: copies within a
//! GPU are faster than random numbers. The block's length is prime, so that rows differ.

use super::data::normal;
use super::operand_sets::{ALIGNMENT, OperandCopies, OperandSets, pitch, sets_beyond_cache};
use crate::cuda::Gpu;
use crate::element::{Element, Scalar};
use crate::error::Result;
use crate::matrix::{Layout, Matrix, Memory, Shape, View};

/// Maximum length of the block in elements, a prime.
pub(super) const BLOCK: usize = 262_139;

/// The layout of an operand within memory of `len` elements that is aligned as an allocation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScratchLayout {
    layout: Layout,
    len: usize,
}

impl ScratchLayout {
    /// The layout of a matrix, as kernels read it: on a GPU the copy of a host matrix.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) and [`Error::Layout`](crate::Error::Layout) for
    /// elements that cannot be addressed.
    pub fn of<T: Scalar>(view: View<'_, T>) -> Result<Self> {
        match view.memory() {
            Memory::Host(_) => Self::aligned(view.layout().packed()?.to),
            Memory::Device(memory) => {
                let (layout, size) = (view.layout(), size_of::<T>());
                let (low, _) = layout.span()?.unwrap_or_default();
                let misalignment = (memory.address() + (low * size) as u64) % ALIGNMENT as u64;
                Self::new(layout, misalignment as usize / size)
            }
        }
    }

    /// This layout, its lowest element aligned.
    ///
    /// # Errors
    /// As for [`of`](Self::of).
    pub fn aligned(layout: Layout) -> Result<Self> {
        Self::new(layout, 0)
    }

    /// This layout, with `skipped` elements from an aligned address to the lowest element.
    fn new(layout: Layout, skipped: usize) -> Result<Self> {
        let (low, high) = layout.span()?.unwrap_or_default();
        let layout = Layout { offset: (layout.offset - low).saturating_add(skipped), ..layout };
        Ok(ScratchLayout { layout, len: (high - low).saturating_add(skipped + 1) })
    }

    /// The shape.
    pub fn shape(&self) -> Shape {
        self.layout.shape
    }

    /// Bytes of a copy.
    fn bytes<T>(&self) -> u128 {
        pitch::<T>(self.len) as u128 * size_of::<T>() as u128
    }
}

/// Random operands on a GPU, in more sets than its cache holds.
#[derive(Debug)]
pub struct Scratch<T: Element> {
    /// The operands.
    pub sets: OperandSets<T>,
    /// The elements that repeat through A and B.
    blocks: [Matrix<T>; 2],
}

impl<T: Element> Scratch<T> {
    /// Allocates A, B and C with these layouts, and fills A and B.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory) and errors of the driver.
    pub fn new(gpu: &Gpu, [a, b, c]: [ScratchLayout; 3], seed: u64) -> Result<Self> {
        let bytes = a.bytes::<T>().saturating_add(b.bytes::<T>()).saturating_add(c.bytes::<T::Out>());
        let count = sets_beyond_cache(bytes, gpu.info().l2_bytes);
        // All memory is allocated before it is filled.
        let [mut a, mut b] = [Self::copies(gpu, a, count)?, Self::copies(gpu, b, count)?];
        let c = OperandCopies::uninit(gpu, c.layout, c.len, count)?;
        let fill = |copies: &mut OperandCopies<T>, seed| {
            let block = normal(Shape::new(1, copies.buffer.len().min(BLOCK)), seed)?;
            copies.buffer.upload_at(0, block.view())?;
            copies.buffer.repeat(block.cols()).map(|()| block)
        };
        let blocks = [fill(&mut a, seed.wrapping_mul(2))?, fill(&mut b, seed.wrapping_mul(2).wrapping_add(1))?];
        Ok(Scratch { sets: OperandSets::new(gpu, [a, b], c, count), blocks })
    }

    fn copies(gpu: &Gpu, operand: ScratchLayout, count: usize) -> Result<OperandCopies<T>> {
        OperandCopies::uninit(gpu, operand.layout, operand.len, count)
    }

    /// An element of A (operand 0) or B (operand 1) of the first set.
    pub fn element(&self, operand: usize, [batch, row, col]: [usize; 3]) -> T {
        let block = self.blocks[operand].as_slice();
        block[self.sets.layouts()[operand].at(batch, row, col) % block.len()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scratch_layout_keeps_strides_and_drops_unused_memory() {
        let shape = Shape { batches: 2, rows: 3, cols: 4 };
        let layout = Layout { shape, offset: 1000, strides: [-100, 10, 1] };
        let scratch = ScratchLayout::aligned(layout).unwrap();
        assert_eq!(scratch, ScratchLayout { layout: Layout { offset: 100, ..layout }, len: 124 });
        let skipping = ScratchLayout::new(layout, 3).unwrap();
        assert_eq!(skipping, ScratchLayout { layout: Layout { offset: 103, ..layout }, len: 127 });
        // One matrix for the whole batch.
        let broadcast = Layout { shape, offset: 0, strides: [0, 4, 1] };
        assert_eq!(ScratchLayout::aligned(broadcast).unwrap().len, 12);
    }

    #[test]
    fn scratch_layout_of_a_host_matrix_is_that_of_its_copy() {
        let columns = Matrix::<f32>::zeros(100, 80).unwrap();
        let view = columns.view().cols(3..70).unwrap().t();
        let expected = Layout { shape: Shape::new(67, 100), offset: 0, strides: [6700, 1, 67] };
        assert_eq!(ScratchLayout::of(view).unwrap(), ScratchLayout { layout: expected, len: 6700 });
    }
}
