//! The helper kernel before a grouped GEMM: writes the ends of the groups, which are its arguments,
//! to a matrix on the GPU.
//!
//! Kernel arguments are copied when a launch is enqueued or captured. So the host may drop the ends
//! at once, and work enqueued earlier keeps its own.

use std::fmt;

use tegula_ir::prelude::*;

/// Ends per launch; more take several launches.
const ENDS: u32 = 128;
/// Ends per vector store.
const WIDTH: usize = 4;

/// The kernel that writes the ends of groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GroupEnds;

impl GroupEnds {
    /// Ends per launch; the columns of `ends` are a multiple of this.
    pub const PER_LAUNCH: usize = ENDS as usize;

    /// Builds the kernel: parameters `ends` (a row vector), the first column, and the ends.
    pub fn build(&self) -> Kernel {
        kernel(&self.to_string(), Block::d1(1), |k| {
            k.note("ends(0, first..) = end0..");
            let ends = k.matrix::<u32>("ends", Access::Write, Order2d::RowMajor, WIDTH as u32);
            let first = k.scalar::<u32>("first");
            k.grid([k.constant(1); 3]);
            let values: Vec<_> = (0..ENDS).map(|i| k.scalar::<u32>(&format!("end{i}"))).collect();
            for (i, values) in (0..).step_by(WIDTH).zip(values.chunks_exact(WIDTH)) {
                ends.store_vec((0u32, first + i), [values[0], values[1], values[2], values[3]]);
            }
        })
    }
}

impl fmt::Display for GroupEnds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ends_{ENDS}")
    }
}
