//! Standard output: every write goes through here, so that a closed one is an error, not a loss.

use std::io::{self, Stdout, Write};

use crate::failure::Result;
use crate::progress::ProgressDisplay;

/// Standard output, checked to be open for writing.
///
/// # Errors
/// Where it is closed, or open for reading only: the standard library would ignore each write.
pub fn stdout() -> Result<Stdout> {
    tegula_files::check_standard_output()?;
    Ok(io::stdout())
}

/// Opens the null device for reading in place of a closed standard stream, before the standard
/// library opens it for writing, which would hide that the stream is closed.
#[cfg(unix)]
#[ctor::ctor(unsafe)]
fn keep_closed_streams_closed() {
    use std::os::fd::{AsRawFd, IntoRawFd};
    // A file gets the lowest free descriptor.
    while let Ok(null) = std::fs::File::open("/dev/null") {
        if null.as_raw_fd() > 2 {
            break;
        }
        let _ = null.into_raw_fd();
    }
}

/// The destination of a table: standard output, or standard error where a report takes the former.
#[derive(Clone, Copy)]
pub enum Table<'a> {
    StandardOutput,
    StandardError(&'a ProgressDisplay),
}

impl Table<'_> {
    /// Writes a line and flushes it.
    ///
    /// # Errors
    /// As [`stdout`], and where the write fails.
    pub fn line(self, text: &str) -> Result<()> {
        match self {
            Table::StandardOutput => {
                let mut out = stdout()?.lock();
                writeln!(out, "{text}")?;
                out.flush()?;
            }
            Table::StandardError(progress) => progress.line(text),
        }
        Ok(())
    }
}
