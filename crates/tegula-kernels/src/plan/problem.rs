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

/// The properties of an operand's layout that kernels depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OperandLayout {
    /// Storage order.
    pub order: Order2d,
    /// Whether 16-byte vector accesses are possible: address, strides and contiguous extent are
    /// multiples of 16 bytes.
    pub aligned_16: bool,
    /// Whether TMA can address its tiles, if `aligned_16`: the other strides are positive.
    pub tma_compatible: bool,
}

impl Default for OperandLayout {
    fn default() -> Self {
        OperandLayout::new(Order2d::default(), false)
    }
}

impl OperandLayout {
    /// The layout of a matrix with positive strides.
    pub const fn new(order: Order2d, aligned_16: bool) -> Self {
        OperandLayout { order, aligned_16, tma_compatible: true }
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
        let unit = 16 / ty.size();
        let is_aligned = |stride: isize, extent: usize| extent <= 1 || stride.unsigned_abs().is_multiple_of(unit);
        let is_positive = |stride: isize, extent: usize| extent <= 1 || stride > 0;
        let aligned_16 = contiguous.is_multiple_of(unit)
            && is_aligned(stride, extent)
            && is_aligned(batch, layout.shape.batches)
            && address.is_multiple_of(16);
        let tma_compatible = !aligned_16 || is_positive(stride, extent) && is_positive(batch, layout.shape.batches);
        OperandLayout { order, aligned_16, tma_compatible }
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
