//! The problem of a plan: extents, types and layouts of a product.

use tegula_core::element::{Accuracy, Type};
use tegula_core::matrix::Layout;
use tegula_ir::Order2d;

/// The properties of a product that a plan depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Problem {
    /// Element type of A and B.
    pub ty: Type,
    /// The required accuracy; always full for types other than f32.
    pub accuracy: Accuracy,
    /// Rows of A and C.
    pub m: usize,
    /// Columns of B and C.
    pub n: usize,
    /// Columns of A and rows of B.
    pub k: usize,
    /// Matrices in the batch.
    pub batches: usize,
    /// Layouts of A, B and C in the kernel's memory.
    pub layouts: [OperandLayout; 3],
}

impl Problem {
    /// Floating-point operations; a multiply-add counts as two.
    pub fn flops(&self) -> f64 {
        [self.m, self.n, self.k, self.batches].into_iter().fold(2.0, |flops, extent| flops * extent as f64)
    }
}

/// The bytes of the widest vector access.
pub const MAX_ALIGNMENT: u8 = 16;

/// The properties of an operand's layout that kernels depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OperandLayout {
    /// Storage order.
    pub order: Order2d,
    /// The widest vector accesses that are possible, in bytes: a power of two up to 16, of which
    /// address, strides and contiguous extent are multiples. One if only elements can be accessed.
    pub alignment: u8,
    /// Whether TMA can address its tiles, if aligned to 16 bytes: the other strides are positive.
    pub tma_compatible: bool,
}

impl Default for OperandLayout {
    fn default() -> Self {
        OperandLayout::new(Order2d::default(), false)
    }
}

impl OperandLayout {
    /// The layout of a matrix with positive strides, aligned to 16 bytes or not at all.
    pub const fn new(order: Order2d, aligned_16: bool) -> Self {
        OperandLayout { order, alignment: if aligned_16 { MAX_ALIGNMENT } else { 1 }, tma_compatible: true }
    }

    /// Whether 16-byte vector accesses are possible: address, strides and contiguous extent are
    /// multiples of 16 bytes.
    pub const fn aligned_16(&self) -> bool {
        self.alignment == MAX_ALIGNMENT
    }

    /// Elements of the widest vector access.
    pub(crate) fn vector_width(&self, ty: Type) -> u32 {
        (u32::from(self.alignment) / ty.size() as u32).max(1)
    }

    /// The layout of a matrix whose element (0, 0, 0) has this address.
    pub fn of(layout: &Layout, ty: Type, address: u64) -> Self {
        let order = order_of(layout);
        let [batch, row, col] = layout.strides;
        let (contiguous, stride, extent) = match order {
            Order2d::RowMajor => (layout.shape.cols, row, layout.shape.rows),
            Order2d::ColMajor => (layout.shape.rows, col, layout.shape.cols),
            Order2d::Strided => return OperandLayout::new(order, false),
        };
        let is_positive = |stride: isize, extent: usize| extent <= 1 || stride > 0;
        let is_aligned = |stride: isize, extent: usize, unit| extent <= 1 || stride.unsigned_abs().is_multiple_of(unit);
        let is_divisor = |&bytes: &usize| {
            let unit = bytes / ty.size();
            contiguous.is_multiple_of(unit)
                && is_aligned(stride, extent, unit)
                && is_aligned(batch, layout.shape.batches, unit)
                && address.is_multiple_of(bytes as u64)
        };
        let alignment = [16, 8, 4].into_iter().filter(|&bytes| bytes > ty.size()).find(is_divisor);
        let alignment = alignment.map_or(1, |bytes| bytes as u8);
        let tma_compatible =
            alignment < MAX_ALIGNMENT || is_positive(stride, extent) && is_positive(batch, layout.shape.batches);
        OperandLayout { order, alignment, tma_compatible }
    }

    /// The layout of the transposed matrix.
    #[must_use]
    pub fn transposed(self) -> Self {
        let order = match self.order {
            Order2d::RowMajor => Order2d::ColMajor,
            Order2d::ColMajor => Order2d::RowMajor,
            Order2d::Strided => Order2d::Strided,
        };
        OperandLayout { order, ..self }
    }
}

/// The storage order that a kernel can assume for a layout.
fn order_of(layout: &Layout) -> Order2d {
    let [_, row, col] = layout.strides;
    match (row, col) {
        (_, 1) => Order2d::RowMajor,
        (1, _) => Order2d::ColMajor,
        _ => Order2d::Strided,
    }
}
