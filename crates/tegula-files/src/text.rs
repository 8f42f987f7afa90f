//! Lines of text files in a fixed buffer, and quotes of files in messages.
//!
//! The module does not depend on a format.

use std::io::{self, BufRead};

use memchr::memchr;

use crate::{ErrorMessage, display};

/// Limit of a line or cell in bytes. A number with all significant digits takes less than 800.
pub(crate) const MAX_LINE_BYTES: usize = 4096;

/// Lines of a source, in order.
pub(crate) struct Lines<'a> {
    source: &'a mut dyn BufRead,
    line: Vec<u8>,
    number: u64,
}

impl<'a> Lines<'a> {
    pub fn new(source: &'a mut dyn BufRead) -> Self {
        Lines { source, line: Vec::new(), number: 0 }
    }

    /// Reads the next line; `false` at the end.
    ///
    /// # Errors
    /// If the source cannot be read or the line exceeds the buffer.
    pub fn advance(&mut self) -> Result<bool, ErrorMessage> {
        self.line.clear();
        let mut bytes = fill(self.source)?;
        if bytes.is_empty() {
            return Ok(false);
        }
        self.number += 1;
        while !bytes.is_empty() {
            let end = memchr(b'\n', bytes);
            let taken = end.unwrap_or(bytes.len());
            if self.line.len() + taken > MAX_LINE_BYTES {
                return Err(at(self.number, format_args!("longer than the limit of {MAX_LINE_BYTES} bytes")));
            }
            self.line.extend_from_slice(&bytes[..taken]);
            self.source.consume(taken + usize::from(end.is_some()));
            if end.is_some() {
                break;
            }
            bytes = fill(self.source)?;
        }
        Ok(true)
    }

    /// Current line without its terminator.
    pub fn line(&self) -> &[u8] {
        &self.line
    }

    /// Number of the current line, from 1.
    pub fn number(&self) -> u64 {
        self.number
    }
}

/// Buffered bytes of the source; empty at the end.
pub(crate) fn fill(source: &mut dyn BufRead) -> Result<&[u8], ErrorMessage> {
    let reject = |error: io::Error| format!("cannot be read: {}", display::error(&error));
    while let Err(error) = source.fill_buf() {
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(reject(error));
        }
    }
    // The buffer is filled already.
    source.fill_buf().map_err(reject)
}

/// Error message with a line number.
pub(crate) fn at(line: u64, message: impl std::fmt::Display) -> ErrorMessage {
    format!("line {line}: {message}")
}

/// Quotes part of a file for a message: on one line, at most 32 characters.
pub(crate) fn quoted(piece: &[u8]) -> String {
    const SHOWN: usize = 32;
    let text = String::from_utf8_lossy(&piece[..piece.len().min(4 * SHOWN)]);
    let shown: String = text.chars().take(SHOWN).collect();
    let rest = if shown.len() < piece.len() && text.chars().count() > SHOWN { "…" } else { "" };
    format!("'{}{rest}'", display::name(&shown))
}

/// Rows and columns of an array in a text format: a matrix, or a vector as one column.
///
/// # Errors
/// [`io::ErrorKind::InvalidInput`] for other shapes, and if the number of elements does not match.
pub(crate) fn rows_and_cols(shape: &[usize], elements: usize) -> io::Result<(usize, usize)> {
    let reject = |message: String| Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    let (rows, cols) = match *shape {
        [rows] => (rows, 1),
        [rows, cols] => (rows, cols),
        _ => {
            let (dimensions, shape) = (shape.len(), tegula_core::nd::display(shape));
            return reject(format!("a {dimensions}-D array ({shape}) cannot be written as text; use a .npy file"));
        }
    };
    if rows.checked_mul(cols) != Some(elements) {
        return reject(format!("shape {rows}×{cols} does not match {elements} elements"));
    }
    Ok((rows, cols))
}

#[cfg(test)]
mod tests {
    use std::io::{BufReader, Read};

    use super::*;

    #[test]
    fn lines_are_independent_of_buffer_size() {
        let text = "a\n\nlonger than three\r\nlast";
        for capacity in 1..30 {
            let mut source = BufReader::with_capacity(capacity, text.as_bytes());
            let mut lines = Lines::new(&mut source);
            let mut found = Vec::new();
            while lines.advance().unwrap() {
                found.push(String::from_utf8(lines.line().to_vec()).unwrap());
            }
            assert_eq!(found, ["a", "", "longer than three\r", "last"]);
            assert_eq!(lines.number(), 4);
        }
    }

    #[test]
    fn lines_longer_than_the_limit_are_rejected() {
        let mut source = BufReader::new("1\n".as_bytes().chain(io::repeat(b'7')));
        let mut lines = Lines::new(&mut source);
        assert!(lines.advance().unwrap());
        assert_eq!(lines.advance().unwrap_err(), "line 2: longer than the limit of 4096 bytes");
    }

    #[test]
    fn quoted_text_is_short_and_on_one_line() {
        assert_eq!(quoted(b"a\n\"b\"\xff"), r#"'a\n"b"�'"#);
        assert_eq!(quoted(&[b'x'; 1000]), format!("'{}…'", "x".repeat(32)));
        assert_eq!(quoted("é".repeat(32).as_bytes()), format!("'{}'", "é".repeat(32)));
        assert_eq!(quoted("é".repeat(33).as_bytes()), format!("'{}…'", "é".repeat(32)));
    }

    #[test]
    fn rows_and_cols_accepts_matrices_and_vectors_only() {
        assert_eq!(rows_and_cols(&[3], 3).unwrap(), (3, 1));
        assert_eq!(rows_and_cols(&[2, 3], 6).unwrap(), (2, 3));
        assert!(rows_and_cols(&[2, 3], 5).is_err());
        assert!(rows_and_cols(&[usize::MAX, 2], usize::MAX - 1).is_err());
        assert!(rows_and_cols(&[1, 2, 3], 6).unwrap_err().to_string().contains("3-D array (1×2×3)"));
    }
}
