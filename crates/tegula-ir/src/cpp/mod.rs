//! Kernels as CUDA C++, to be read: beside the Rust that built them, and beside the PTX that runs.
//!
//! Products do not go this way; the driver assembles what [`crate::ptx`] prints. This text computes the same bits, which is tested by
//! compiling it. It is for kernels of the plain kind: loops, branches, loads and stores of single elements, shared arrays, barriers
//! and arithmetic. A kernel with more than that is refused by the name of what it has.
//!
//! | file | |
//! |---|---|
//! | `lower` | operations as statements: what is used once stands where it is used |
//! | `index` | bounds of indices, and the coordinates of elements of shared arrays |
//! | `roll` | copies that a Rust loop left behind, as a loop again |
//! | `names` | what values are called, by how they are used |
//! | `tree` | statements and expressions |
//! | `text` | how they are spelled |
//!
//! * **The same numbers.** Integers wrap, indices have 32 bits until a stride multiplies them, a float operation rounds once. Where nvcc
//!   would fuse a product and a sum, the product is spelled `__fmul_rn`.
//! * **The same memory.** What a guard leaves out is not read; the strides that a declaration fixes are not passed.
//! * **A loop is shown where it is proven.** Copies are rolled only if putting its number into the loop's body gives back each of them.

mod index;
mod lower;
mod names;
mod roll;
mod text;
mod tree;

use std::panic::Location;

use tegula_core::error::Result;

use crate::launch::Field;
use crate::{Checked, Kernel, Site};

/// A kernel in CUDA C++.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// The name of the function, which is `extern "C"`.
    pub entry: String,
    /// The text, a whole translation unit.
    pub text: String,
    /// For each line of the text, where the statement on it was written; `None` for what no statement is behind. The lines that open
    /// and close a loop or branch have its site; those of a loop that was rolled up have the site of its first statement.
    pub lines: Vec<Option<Site>>,
    /// For each line of the text, where else it was written that memory is read for it: what is used once is loaded where it is used.
    pub reads: Vec<Vec<&'static Location<'static>>>,
    /// The function's parameters in order: those of [`Kernel::fields`] that it uses. Unlike there, strides count elements.
    pub parameters: Vec<Field>,
    /// Threads of a block along x, y and z.
    pub block: [u32; 3],
}

/// Prints a kernel.
///
/// # Errors
/// [`tegula_core::Error::NotPrintable`] naming the first operation that has no plain spelling.
pub fn print(kernel: &Checked<Kernel>) -> Result<Source> {
    let body = roll::roll(lower::lower(kernel)?);
    let names = names::Names::new(kernel, &body);
    Ok(text::write(kernel, &body, &names))
}
