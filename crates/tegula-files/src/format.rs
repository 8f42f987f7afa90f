//! File formats, by extension or content, and the arrays that each supports.

use std::ffi::OsStr;
use std::path::Path;

use crate::dtype::Dtype;
use crate::{ErrorMessage, safetensors};

/// Bytes at the start that identify a format.
pub(crate) const START: usize = 64;
/// Supported extensions, for messages.
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
    /// Format by extension.
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

    /// Format by the first [`START`] bytes. CSV is recognized as plain text only.
    pub fn of_content(start: &[u8]) -> Option<Format> {
        let is_text = |byte: &u8| byte.is_ascii_graphic() || byte.is_ascii_whitespace();
        // UTF-8 byte order mark.
        let text = start.strip_prefix(b"\xef\xbb\xbf").unwrap_or(start);
        if start.starts_with(b"\x93NUMPY") {
            Some(Format::Npy)
        } else if start.starts_with(b"PK") {
            Some(Format::Npz)
        } else if start.len() >= 14 && start[..14].eq_ignore_ascii_case(b"%%MatrixMarket") {
            Some(Format::Mtx)
        } else if safetensors::matches_start(start) {
            Some(Format::Safetensors)
        } else if !text.is_empty() && text.iter().all(is_text) {
            Some(Format::Csv)
        } else {
            None
        }
    }

    /// Whether files of the format contain named arrays.
    pub fn is_container(self) -> bool {
        matches!(self, Format::Npz | Format::Safetensors)
    }

    /// Usual extension.
    pub const fn extension(self) -> &'static str {
        match self {
            Format::Npy => ".npy",
            Format::Npz => ".npz",
            Format::Safetensors => ".safetensors",
            Format::Mtx => ".mtx",
            Format::Csv => ".csv",
        }
    }

    /// Rejects arrays that the format does not support.
    pub fn check(self, dtype: Dtype, dimensions: usize) -> Result<(), ErrorMessage> {
        let extension = self.extension();
        match self {
            Format::Mtx | Format::Csv if !(1..=2).contains(&dimensions) => {
                Err(format!("{extension} does not support {dimensions}-D arrays; use .npy, .npz or .safetensors"))
            }
            Format::Mtx | Format::Csv | Format::Safetensors => Ok(()),
            Format::Npy | Format::Npz if dimensions > 64 => {
                Err(format!("{extension} does not support {dimensions}-D arrays; use .safetensors"))
            }
            Format::Npy | Format::Npz if matches!(dtype, Dtype::F8E4M3 | Dtype::F8E5M2) => {
                Err(format!("{extension} does not support {dtype}; use .safetensors"))
            }
            Format::Npy | Format::Npz => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn format_is_detected_by_content() {
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
