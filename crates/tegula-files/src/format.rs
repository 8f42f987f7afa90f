//! The formats: which one a file has, by its name or else by how it starts, and what each can hold.

use std::ffi::OsStr;
use std::path::Path;

use crate::dtype::Dtype;
use crate::{Refusal, safetensors};

/// What tells the formats apart needs no more bytes.
pub(crate) const START: usize = 64;
/// What is taken, for those who gave something else.
pub(crate) const KNOWN: &str = ".npy, .npz, .safetensors, .mtx or .csv";

/// A file format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Npy,
    Npz,
    Safetensors,
    Mtx,
    Csv,
}

impl Format {
    /// By the extension of a path.
    pub fn of_path(path: &Path) -> Option<Format> {
        let extension = path.extension().and_then(OsStr::to_str)?.to_ascii_lowercase();
        Some(match extension.as_str() {
            "npy" => Format::Npy,
            "npz" => Format::Npz,
            "safetensors" => Format::Safetensors,
            "mtx" => Format::Mtx,
            "csv" => Format::Csv,
            _ => return None,
        })
    }

    /// By the first bytes, [`START`] of them. Comma-separated numbers are only told by being nothing but text.
    pub fn of_content(start: &[u8]) -> Option<Format> {
        let is_text = |byte: &u8| byte.is_ascii_graphic() || byte.is_ascii_whitespace();
        // What editors on Windows put first.
        let text = start.strip_prefix(b"\xef\xbb\xbf").unwrap_or(start);
        if start.starts_with(b"\x93NUMPY") {
            Some(Format::Npy)
        } else if start.starts_with(b"PK") {
            Some(Format::Npz)
        } else if start.len() >= 14 && start[..14].eq_ignore_ascii_case(b"%%MatrixMarket") {
            Some(Format::Mtx)
        } else if safetensors::starts_so(start) {
            Some(Format::Safetensors)
        } else if !text.is_empty() && text.iter().all(is_text) {
            Some(Format::Csv)
        } else {
            None
        }
    }

    /// Whether a file holds several arrays by name.
    pub fn is_container(self) -> bool {
        matches!(self, Format::Npz | Format::Safetensors)
    }

    /// The usual extension.
    pub const fn extension(self) -> &'static str {
        match self {
            Format::Npy => ".npy",
            Format::Npz => ".npz",
            Format::Safetensors => ".safetensors",
            Format::Mtx => ".mtx",
            Format::Csv => ".csv",
        }
    }

    /// Refuses what the format cannot hold.
    pub fn check(self, dtype: Dtype, dimensions: usize) -> Result<(), Refusal> {
        let extension = self.extension();
        match self {
            Format::Mtx | Format::Csv if !(1..=2).contains(&dimensions) => {
                Err(format!("{extension} holds no {dimensions}-D array; choose .npy, .npz or .safetensors"))
            }
            Format::Mtx | Format::Csv | Format::Safetensors => Ok(()),
            Format::Npy | Format::Npz if dimensions > 64 => {
                Err(format!("{extension} holds no {dimensions}-D array; choose .safetensors"))
            }
            Format::Npy | Format::Npz if matches!(dtype, Dtype::F8E4M3 | Dtype::F8E5M2) => {
                Err(format!("{extension} holds no {dtype}; choose .safetensors"))
            }
            Format::Npy | Format::Npz => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_tells_formats_apart() {
        let of = |start: &[u8]| Format::of_content(start);
        assert_eq!(of(b"\x93NUMPY\x01\x00"), Some(Format::Npy));
        assert_eq!(of(b"PK\x03\x04"), Some(Format::Npz));
        assert_eq!(of(b"%%matrixmarket matrix array"), Some(Format::Mtx));
        assert_eq!(of(b"\x40\0\0\0\0\0\0\0{\"a\":"), Some(Format::Safetensors));
        assert_eq!(of(b"1.5, -2e3\r\n"), Some(Format::Csv));
        assert_eq!(of(b"\xef\xbb\xbfa;b\n"), Some(Format::Csv));
        for unknown in [&b""[..], b"\x89HDF\r\n\x1a\n", b"\xff\xff\xff\xff\xff\xff\xff\xff{", b"\x1f\x8b\x08"] {
            assert_eq!(of(unknown), None);
        }
    }
}
