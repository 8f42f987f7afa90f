//! The CUDA C++ printer: kernels as readable source, beside the Rust that builds them and the PTX.
//!
//! Products do not use this text; the driver assembles the PTX of [`crate::ptx`]. The text computes
//! the same bits, which a test verifies by compiling it. It covers plain kernels: loops, branches,
//! loads and stores of single elements, shared arrays, barriers and arithmetic. A kernel with other
//! operations is rejected with the name of the first one.
//!
//! | file | |
//! |---|---|
//! | `lower` | operations to statements: a value with one use is inlined at its use |
//! | `index` | bounds of indices, and the coordinates of elements of shared arrays |
//! | `reroll` | loop rerolling: repeated statements become a loop again |
//! | `names` | names of values, by their use |
//! | `ast` | statements and expressions |
//! | `printer` | their text |
//!
//! * **Same arithmetic.** Integers wrap, and indices have 32 bits until multiplied by a stride. A
//!   floating-point operation rounds once: a product that nvcc would contract into an FMA is
//!   printed as `__fmul_rn`.
//! * **Same memory.** Elements that a guard excludes are not read. Strides that a declaration fixes
//!   are not parameters.
//! * **Proven loops.** Statements are rerolled only if expanding the loop gives back every one of
//!   them.

mod ast;
mod index;
mod lower;
mod names;
mod printer;
mod reroll;

use std::panic::Location;

use tegula_core::error::Result;

use crate::launch::Field;
use crate::{Checked, Kernel, Site};

/// A kernel in CUDA C++.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// The name of the function, which is `extern "C"`.
    pub entry: String,
    /// The text, a complete translation unit.
    pub text: String,
    /// The source location of the statement behind each line of the text, if any.
    ///
    /// The lines that open and close a loop or branch have its location. The lines of a rerolled
    /// loop have the location of its first statement.
    pub lines: Vec<Option<Site>>,
    /// For each line of the text, further source locations of its memory reads, from inlined
    /// values.
    pub reads: Vec<Vec<&'static Location<'static>>>,
    /// The function's parameters in order: the used entries of [`Kernel::fields`].
    ///
    /// Strides are in elements.
    pub parameters: Vec<Field>,
    /// Threads of a block along x, y and z.
    pub block: [u32; 3],
}

/// Prints a kernel.
///
/// # Errors
/// [`tegula_core::Error::NotPrintable`] with the first unsupported operation.
pub fn print(kernel: &Checked<Kernel>) -> Result<Source> {
    let body = reroll::reroll(lower::lower(kernel)?);
    let names = names::Names::new(kernel, &body);
    Ok(printer::write(kernel, &body, &names))
}
