//! Arrays in files: read as they are stored, written whole or not at all.
//!
//! [`read()`] reads the array at a [`Place`], [`write()`] writes one; `.npy`, `.npz`, `.safetensors`, `.mtx` and `.csv` are known. Every
//! reader treats its file as hostile: what a header claims is checked before anybody allocates by it, and a refusal is one line
//! that names the file and says what to do. The crate knows formats and number types; it multiplies nothing.
//!
//! ```
//! use tegula_files::{AnyArray, Place, Reading, Writing, read, write};
//!
//! let folder = tempfile::tempdir()?;
//! let place = Place::parse(folder.path().join("model.safetensors:weights"));
//! write(&place, &[2, 3], &[1f32, 2., 3., 4., 5., 6.], &Writing::default())?;
//!
//! let AnyArray::F32(weights) = read(&place, &Reading::default())? else { panic!("another number type") };
//! assert_eq!(weights.layout.shape, [2, 3]);
//! assert_eq!(weights.data[5], 6.);
//! assert!(weights.data.is_mapped());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![deny(unsafe_code)]

mod array;
mod cast;
mod choose;
pub mod csv;
mod decimal;
mod dtype;
mod elements;
mod format;
mod header;
mod literal;
mod map;
pub mod mtx;
mod npy;
mod npz;
pub mod number;
mod output;
mod place;
mod read;
mod reading;
mod report;
mod safetensors;
mod show;
#[cfg(unix)]
mod signals;
mod standard;
mod stored;
mod text;
mod write;

pub use array::{AnyArray, Array, Data};
pub use dtype::Dtype;
pub use number::Number;
pub use place::Place;
pub use read::read;
pub use reading::Reading;
pub use report::ReportFile;
pub use standard::check_standard_output;
pub use write::{Writing, check, write};

/// Why a file is refused: the half of a sentence that follows the file's name.
pub type Refusal = String;

/// A file that cannot be read or written, and why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}: {why}")]
pub struct Error {
    /// The file as the user named it, on one line.
    pub file: String,
    /// The rest of the sentence.
    pub why: Refusal,
}

/// The result of reading or writing a file.
pub type Result<T, E = Error> = std::result::Result<T, E>;
