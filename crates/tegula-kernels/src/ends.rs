//! The pass before a product of groups: writes where each group ends, as the launch's parameters have it, to a matrix on the GPU.
//!
//! Parameters are copied when a launch is queued or recorded. So the host may forget the numbers at once, and work that is queued before keeps
//! its own.

use std::fmt;

use tegula_ir::prelude::*;

/// Numbers of a launch. More take several.
const NUMBERS: u32 = 128;
/// Numbers that are stored at once.
const WIDTH: usize = 4;

/// The kernel that writes numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ends;

impl Ends {
    /// Numbers that a launch writes: the columns of `ends` are a multiple of them.
    pub const NUMBERS: usize = NUMBERS as usize;

    /// Builds the kernel: a row `ends`, the column to begin at, and the numbers.
    pub fn build(&self) -> Kernel {
        kernel(&self.to_string(), Block::d1(1), |k| {
            k.note("ends(0, first..) = end0..");
            let ends = k.matrix::<u32>("ends", Access::Write, Order2d::RowMajor, WIDTH as u32);
            let first = k.scalar::<u32>("first");
            k.grid([k.constant(1); 3]);
            let numbers: Vec<_> = (0..NUMBERS).map(|i| k.scalar::<u32>(&format!("end{i}"))).collect();
            for (i, numbers) in (0..).step_by(WIDTH).zip(numbers.chunks_exact(WIDTH)) {
                ends.store_vec((0u32, first + i), [numbers[0], numbers[1], numbers[2], numbers[3]]);
            }
        })
    }
}

impl fmt::Display for Ends {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ends_{NUMBERS}")
    }
}
