//! The problem that a plan solves: sizes, types and layouts of a product.

use tegula_core::element::{Accuracy, Type};
use tegula_core::matrix::Layout;
use tegula_ir::Order2d;

/// A product, as far as a plan depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Problem {
    /// Element type of A and B.
    pub ty: Type,
    /// How exact the product has to be; of a type other than f32, in full.
    pub accuracy: Accuracy,
    /// Rows of A and C.
    pub m: usize,
    /// Columns of B and C.
    pub n: usize,
    /// Columns of A and rows of B.
    pub k: usize,
    /// Matrices in the batch.
    pub batches: usize,
    /// How A, B and C lie where the kernel meets them.
    pub lies: [Lie; 3],
}

/// How a matrix lies, as far as kernels differ by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Lie {
    /// What is known of its strides.
    pub order: Order2d,
    /// Whether it may be read or written 16 bytes at once: the address and all other strides are multiples of that, and so is the length of
    /// the rows or columns that lie side by side.
    pub vectors: bool,
    /// Whether the copy engine finds its tiles as well, where there are such accesses: the other strides go forwards.
    pub forwards: bool,
}

impl Default for Lie {
    fn default() -> Self {
        Lie::new(Order2d::default(), false)
    }
}

impl Lie {
    /// Of a matrix whose strides go forwards.
    pub const fn new(order: Order2d, vectors: bool) -> Self {
        Lie { order, vectors, forwards: true }
    }

    /// Of a matrix whose element (0, 0, 0) has this address.
    pub fn of(layout: &Layout, ty: Type, address: u64) -> Self {
        let order = order_of(layout);
        let [batch, row, col] = layout.strides;
        let (side_by_side, other, others) = match order {
            Order2d::RowMajor => (layout.shape.cols, row, layout.shape.rows),
            Order2d::ColMajor => (layout.shape.rows, col, layout.shape.cols),
            Order2d::Strided => return Lie::new(order, false),
        };
        let unit = 16 / ty.size();
        let fits = |stride: isize, extent: usize| extent <= 1 || stride.unsigned_abs().is_multiple_of(unit);
        let goes_on = |stride: isize, extent: usize| extent <= 1 || stride > 0;
        let vectors = side_by_side.is_multiple_of(unit)
            && fits(other, others)
            && fits(batch, layout.shape.batches)
            && address.is_multiple_of(16);
        let forwards = !vectors || goes_on(other, others) && goes_on(batch, layout.shape.batches);
        Lie { order, vectors, forwards }
    }

    /// Of the transposed matrix.
    #[must_use]
    pub fn transposed(self) -> Self {
        let order = match self.order {
            Order2d::RowMajor => Order2d::ColMajor,
            Order2d::ColMajor => Order2d::RowMajor,
            Order2d::Strided => Order2d::Strided,
        };
        Lie { order, ..self }
    }
}

/// What a kernel may assume of a layout.
fn order_of(layout: &Layout) -> Order2d {
    let [_, row, col] = layout.strides;
    match (row, col) {
        (_, 1) => Order2d::RowMajor,
        (1, _) => Order2d::ColMajor,
        _ => Order2d::Strided,
    }
}
