//! Array files: readers for arrays as stored, and atomic writers.
//!
//! [`read()`] reads the array at an [`ArrayPath`], [`write()`] writes one. Formats are `.npy`,
//! `.npz`, `.safetensors`, `.mtx` and `.csv`. Readers treat files as untrusted: they check the
//! claims of a header before they allocate memory for it. An error is one line with the file, the
//! problem and the remedy. The crate depends on formats and dtypes, not on matrix products.
//!
//! ```
//! use tegula_files::{AnyArray, ArrayPath, ReadOptions, WriteOptions, read, write};
//!
//! let folder = tempfile::tempdir()?;
//! let array_path = ArrayPath::parse(folder.path().join("model.safetensors:weights"));
//! write(&array_path, &[2, 3], &[1f32, 2., 3., 4., 5., 6.], &WriteOptions::default())?;
//!
//! let AnyArray::F32(weights) = read(&array_path, &ReadOptions::default())? else {
//!     panic!("unexpected dtype")
//! };
//! assert_eq!(weights.layout.shape, [2, 3]);
//! assert_eq!(weights.data[5], 6.);
//! assert!(weights.data.is_mapped());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![deny(unsafe_code)]

mod array;
mod array_path;
mod atomic_replace;
mod cast;
pub mod csv;
mod decimal;
mod display;
mod dtype;
mod elements;
mod file_map;
mod format;
mod header;
mod literal;
pub mod mtx;
mod npy;
mod npz;
pub mod number;
mod options;
mod read;
mod report;
mod safetensors;
mod select;
#[cfg(unix)]
mod signals;
mod stdout;
mod storage_types;
mod text;
mod write;

pub use array::{AnyArray, Array, Data};
pub use array_path::ArrayPath;
pub use dtype::Dtype;
pub use number::Number;
pub use options::ReadOptions;
pub use read::read;
pub use report::ReportFile;
pub use stdout::check_standard_output;
pub use write::{WriteOptions, check_writable, write};

/// Message of an [`Error`], without the name of the file.
pub type ErrorMessage = String;

/// Error of reading or writing a file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}: {message}")]
pub struct Error {
    /// File as named by the user, on one line.
    pub file: String,
    /// Description of the problem, on one line.
    pub message: ErrorMessage,
}

/// Result of reading or writing a file.
pub type Result<T, E = Error> = std::result::Result<T, E>;
