//! The choice: what the problem is and what the device can do, to a [`Plan`].

use super::limits;
use crate::element::Type;
use crate::error::{Error, Result};
use crate::ir::Order2d;
use crate::kernels::{Family, Variant};
use crate::matrix::Layout;

/// A product, as far as a plan depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Problem {
    /// Element type of A and B.
    pub ty: Type,
    /// Rows of A and C.
    pub m: usize,
    /// Columns of B and C.
    pub n: usize,
    /// Columns of A and rows of B.
    pub k: usize,
    /// Matrices in the batch.
    pub batches: usize,
    /// What is known of the strides of A, B and C.
    pub orders: [Order2d; 3],
}

/// What a device can do, as far as a plan depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Caps {
    /// The processor.
    Cpu,
    /// The interpreter.
    Interp,
    /// A GPU of this compute capability.
    Gpu {
        /// Major and minor.
        compute: (u32, u32),
    },
}

impl Caps {
    /// Whether kernels run there.
    pub fn runs_kernels(&self) -> bool {
        match *self {
            Caps::Cpu => false,
            Caps::Interp => true,
            Caps::Gpu { compute } => compute >= OLDEST,
        }
    }
}

/// How to make a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Plan {
    /// The processor's own loops.
    Cpu,
    /// A kernel.
    Gpu(Variant),
}

/// The oldest GPU for which plain kernels are printed.
const OLDEST: (u32, u32) = (7, 5);

/// Chooses.
///
/// The plain kernels differ by their tile alone, and a measurement on an H200 (all three types of the articles, 1024³ to 8192³)
/// has 32 ahead of 16 throughout by 7 to 15 %. A tile that is mostly outside the matrix wastes its threads, so the tile is the
/// largest that the shorter side of C fills, 8 at least.
///
/// # Errors
/// [`Error::Unsupported`] for a GPU too old for the kernels, [`Error::Shape`] beyond their [limits].
pub fn choose(problem: &Problem, caps: &Caps) -> Result<Plan> {
    match *caps {
        Caps::Cpu => Ok(Plan::Cpu),
        Caps::Gpu { compute } if !caps.runs_kernels() => Err(Error::Unsupported {
            what: "a product".into(),
            ty: problem.ty,
            device: format!("a GPU of compute capability {}.{} (7.5 is the oldest)", compute.0, compute.1),
        }),
        Caps::Gpu { compute } if problem.ty == Type::BF16 && compute < (8, 0) => Err(Error::Unsupported {
            what: "a product".into(),
            ty: problem.ty,
            device: format!("a GPU of compute capability {}.{} (bf16 needs 8.0)", compute.0, compute.1),
        }),
        Caps::Gpu { .. } | Caps::Interp => {
            limits::check_kernel(problem)?;
            let side = problem.m.min(problem.n);
            let tile = if side > 16 {
                32
            } else if side > 8 {
                16
            } else {
                8
            };
            Ok(Plan::Gpu(Variant { orders: problem.orders, ..Variant::new(Family::Tiled, problem.ty, tile) }))
        }
    }
}

/// What a kernel may assume of a layout.
pub(crate) fn order_of(layout: &Layout) -> Order2d {
    let [_, row, col] = layout.strides;
    match (row, col) {
        (_, 1) => Order2d::RowMajor,
        (1, _) => Order2d::ColMajor,
        _ => Order2d::Strided,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tile_is_no_larger_than_it_must() {
        let orders = [Order2d::RowMajor; 3];
        let tile = |m, n| {
            let problem = Problem { ty: Type::F32, m, n, k: 64, batches: 1, orders };
            match choose(&problem, &Caps::Gpu { compute: (9, 0) }).unwrap() {
                Plan::Gpu(variant) => variant.tile,
                Plan::Cpu => 0,
            }
        };
        assert_eq!((tile(4096, 4096), tile(16, 4096), tile(4096, 1)), (32, 16, 8));
        let problem = Problem { ty: Type::F32, m: 1, n: 1, k: 1, batches: 1, orders };
        assert_eq!(choose(&problem, &Caps::Cpu).unwrap(), Plan::Cpu);
        assert!(choose(&problem, &Caps::Gpu { compute: (6, 1) }).is_err());
    }
}
