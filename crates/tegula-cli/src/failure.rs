//! How a command ends when it does not succeed: one line for the user and an exit code.

use std::io::{self, Write};
use std::process::ExitCode;

/// The result of everything in this program.
pub type Result<T, E = Failure> = std::result::Result<T, E>;

/// A text in which nothing moves the cursor: what files and their names hold must not become a second line or a colour.
pub fn one_line(text: &str) -> String {
    // Beside the control characters: separators of lines, and marks that turn the direction of writing.
    let harmless = |c: char| !c.is_control() && !matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let mut line = String::with_capacity(text.len());
    for c in text.chars() {
        if harmless(c) { line.push(c) } else { line.extend(c.escape_debug()) }
    }
    line
}

/// Why a command stops early.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The command line asks for something that cannot be.
    #[error("{0}")]
    Usage(String),
    /// The work was understood and could not be done.
    #[error("{0}")]
    Failed(String),
    /// No command was given and help was shown.
    #[error("no command given")]
    HelpInstead,
    /// Whoever reads standard output has gone away, which is their right: `tegula … | head`.
    #[error("standard output was closed")]
    ReaderLeft,
}

impl Failure {
    /// A failure told in one line.
    pub fn new(message: impl Into<String>) -> Self {
        Failure::Failed(message.into())
    }

    /// Says why on standard error, where there is something left to say.
    pub fn tell(&self) {
        if let Failure::Usage(_) | Failure::Failed(_) = self {
            let style = clap::builder::Styles::default().get_error().to_owned();
            let why = one_line(&self.to_string());
            let _ = writeln!(anstream::stderr(), "{style}error:{style:#} {why}");
        }
    }

    /// 0 done, 1 failed, 2 usage.
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            Failure::Usage(_) | Failure::HelpInstead => 2,
            Failure::Failed(_) => 1,
            Failure::ReaderLeft => 0,
        })
    }
}

impl From<tegula::Error> for Failure {
    fn from(error: tegula::Error) -> Self {
        Failure::Failed(error.to_string())
    }
}

impl From<tegula_files::Error> for Failure {
    fn from(error: tegula_files::Error) -> Self {
        Failure::Failed(error.to_string())
    }
}

/// Only writing to standard output fails with a bare `io::Error`; whoever opens a file names it.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Failure::ReaderLeft,
            _ => Failure::Failed(format!("standard output cannot be written: {error}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_moves_the_cursor() {
        assert_eq!(one_line("a\nb\r\t\x1b[31m\u{202e}.npy"), "a\\nb\\r\\t\\u{1b}[31m\\u{202e}.npy");
        for kept in ["it's \"quoted\\n\"", "Grüße, 矩陣, e\u{301}"] {
            assert_eq!(one_line(kept), kept);
        }
    }
}
