//! `.csv` files.

use std::io::{self, BufRead, Write};

use crate::number::Number;
use crate::{AnyArray, Refusal};

/// Reads a matrix.
///
/// # Errors
/// Always, as yet.
pub fn read(_source: &mut dyn BufRead, _room: u64) -> Result<AnyArray, Refusal> {
    Err("is a .csv file, which Tegula does not read yet".into())
}

/// Writes a matrix.
///
/// # Errors
/// Always, as yet.
pub fn write<T: Number>(_sink: &mut dyn Write, _shape: &[usize], _data: &[T]) -> io::Result<()> {
    Err(io::Error::new(io::ErrorKind::Unsupported, ".csv files are not written yet"))
}
