//! Lines of a text file in one buffer of fixed size, and how messages quote what a file holds. It knows no format.

use std::io::{self, BufRead};

use memchr::memchr;

use crate::{Refusal, show};

/// The longest line or cell, in bytes. A number with every digit that matters takes less than 800.
pub(crate) const LONGEST: usize = 4096;

/// The lines of a source, in order.
pub(crate) struct Lines<'a> {
    source: &'a mut dyn BufRead,
    line: Vec<u8>,
    number: u64,
}

impl<'a> Lines<'a> {
    pub fn new(source: &'a mut dyn BufRead) -> Self {
        Lines { source, line: Vec::new(), number: 0 }
    }

    /// Reads the next line; `false` after the last.
    ///
    /// # Errors
    /// Where the source cannot be read or the line is too long for the buffer.
    pub fn advance(&mut self) -> Result<bool, Refusal> {
        self.line.clear();
        let mut bytes = fill(self.source)?;
        if bytes.is_empty() {
            return Ok(false);
        }
        self.number += 1;
        while !bytes.is_empty() {
            let end = memchr(b'\n', bytes);
            let taken = end.unwrap_or(bytes.len());
            if self.line.len() + taken > LONGEST {
                return Err(at(
                    self.number,
                    format_args!("is longer than {LONGEST} bytes, which no line of numbers is"),
                ));
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

    /// The line that was read last, without its end.
    pub fn line(&self) -> &[u8] {
        &self.line
    }

    /// Its number, from 1.
    pub fn number(&self) -> u64 {
        self.number
    }
}

/// The bytes that the source has ready; none at its end.
pub(crate) fn fill(source: &mut dyn BufRead) -> Result<&[u8], Refusal> {
    let refuse = |error: io::Error| format!("cannot be read: {}", show::error(&error));
    while let Err(error) = source.fill_buf() {
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(refuse(error));
        }
    }
    // What was read is still there.
    source.fill_buf().map_err(refuse)
}

/// What is wrong at a line.
pub(crate) fn at(line: u64, why: impl std::fmt::Display) -> Refusal {
    format!("line {line}: {why}")
}

/// A piece of a file as a message shows it: in quotes, on one line, not too long.
pub(crate) fn quoted(piece: &[u8]) -> String {
    const SHOWN: usize = 32;
    let text = String::from_utf8_lossy(&piece[..piece.len().min(4 * SHOWN)]);
    let shown: String = text.chars().take(SHOWN).collect();
    let rest = if shown.len() < piece.len() && text.chars().count() > SHOWN { "…" } else { "" };
    format!("'{}{rest}'", show::name(&shown))
}

/// Rows and columns of an array that a text format can write: a matrix, or a vector as one column.
///
/// # Errors
/// [`io::ErrorKind::InvalidInput`] for other shapes, and where the elements are not as many as the shape has.
pub(crate) fn rows_and_cols(shape: &[usize], elements: usize) -> io::Result<(usize, usize)> {
    let refuse = |why: String| Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    let (rows, cols) = match *shape {
        [rows] => (rows, 1),
        [rows, cols] => (rows, cols),
        _ => {
            let (dimensions, shape) = (shape.len(), tegula_core::nd::display(shape));
            return refuse(format!("a {dimensions}-D array ({shape}) has no place in a text file; write a .npy file"));
        }
    };
    if rows.checked_mul(cols) != Some(elements) {
        return refuse(format!("{rows}×{cols} elements are to be written, {elements} are there"));
    }
    Ok((rows, cols))
}

#[cfg(test)]
mod tests {
    use std::io::{BufReader, Read};

    use super::*;

    #[test]
    fn lines_are_numbered_whatever_the_buffer_holds_of_them() {
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
    fn an_endless_line_takes_no_memory() {
        let mut source = BufReader::new("1\n".as_bytes().chain(io::repeat(b'7')));
        let mut lines = Lines::new(&mut source);
        assert!(lines.advance().unwrap());
        assert_eq!(lines.advance().unwrap_err(), "line 2: is longer than 4096 bytes, which no line of numbers is");
    }

    #[test]
    fn quotes_are_short_and_stay_on_their_line() {
        assert_eq!(quoted(b"a\n\"b\"\xff"), r#"'a\n"b"�'"#);
        assert_eq!(quoted(&[b'x'; 1000]), format!("'{}…'", "x".repeat(32)));
        assert_eq!(quoted("é".repeat(32).as_bytes()), format!("'{}'", "é".repeat(32)));
        assert_eq!(quoted("é".repeat(33).as_bytes()), format!("'{}…'", "é".repeat(32)));
    }

    #[test]
    fn vectors_are_columns_and_stacks_are_refused() {
        assert_eq!(rows_and_cols(&[3], 3).unwrap(), (3, 1));
        assert_eq!(rows_and_cols(&[2, 3], 6).unwrap(), (2, 3));
        assert!(rows_and_cols(&[2, 3], 5).is_err());
        assert!(rows_and_cols(&[usize::MAX, 2], usize::MAX - 1).is_err());
        assert!(rows_and_cols(&[1, 2, 3], 6).unwrap_err().to_string().contains("3-D array (1×2×3)"));
    }
}
