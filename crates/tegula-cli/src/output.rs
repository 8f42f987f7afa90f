//! Standard output: all that is printed goes through here, so that one that takes nothing is an error instead of a loss.

use std::io::{self, Stdout, Write};

use crate::failure::Result;
use crate::progress::Meter;

/// Standard output, for whoever is about to write there.
///
/// # Errors
/// Where it is closed, or open only for reading: the standard library would take each write for done.
pub fn stdout() -> Result<Stdout> {
    tegula_files::check_standard_output()?;
    Ok(io::stdout())
}

/// Runs before the standard library, which opens the null device for writing in place of a standard stream that is closed; then
/// nobody knows. This opens it for reading only.
#[cfg(unix)]
#[ctor::ctor(unsafe)]
fn keep_closed_streams_closed() {
    use std::os::fd::{AsRawFd, IntoRawFd};
    // A file gets the lowest number that is free.
    while let Ok(null) = std::fs::File::open("/dev/null") {
        if null.as_raw_fd() > 2 {
            break;
        }
        let _ = null.into_raw_fd();
    }
}

/// Where a table goes line by line: to standard output, or, where a report goes there that is to stand alone, to standard error.
#[derive(Clone, Copy)]
pub enum Table<'a> {
    Standard,
    Beside(&'a Meter),
}

impl Table<'_> {
    /// Writes a line, at once.
    ///
    /// # Errors
    /// As [`stdout`], and where it cannot be written.
    pub fn line(self, text: &str) -> Result<()> {
        match self {
            Table::Standard => {
                let mut out = stdout()?.lock();
                writeln!(out, "{text}")?;
                out.flush()?;
            }
            Table::Beside(meter) => meter.line(text),
        }
        Ok(())
    }
}
