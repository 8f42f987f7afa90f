//! Failures of a command: a one-line message and an exit code.

use std::io::{self, Write};
use std::process::ExitCode;

/// The result type of the program.
pub type Result<T, E = Failure> = std::result::Result<T, E>;

/// Escapes control characters: text from files must not start a line, move the cursor or set
/// colors.
pub fn one_line(text: &str) -> String {
    // Besides control characters: line separators, and marks of the writing direction.
    let harmless = |c: char| !c.is_control() && !matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let mut line = String::with_capacity(text.len());
    for c in text.chars() {
        if harmless(c) { line.push(c) } else { line.extend(c.escape_debug()) }
    }
    line
}

/// The reason why a command ends early.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The command line is invalid.
    #[error("{0}")]
    Usage(String),
    /// The command line is valid and the work failed.
    #[error("{0}")]
    Failed(String),
    /// No command was given, and help was shown.
    #[error("no command given")]
    HelpShown,
    /// The reader of standard output closed it, as in `tegula … | head`.
    #[error("standard output was closed")]
    OutputClosed,
}

impl Failure {
    /// A failure with a one-line message.
    pub fn new(message: impl Into<String>) -> Self {
        Failure::Failed(message.into())
    }

    /// Prints the message on standard error.
    pub fn print(&self) {
        if let Failure::Usage(_) | Failure::Failed(_) = self {
            let style = clap::builder::Styles::default().get_error().to_owned();
            let message = one_line(&self.to_string());
            let _ = writeln!(anstream::stderr(), "{style}error:{style:#} {message}");
        }
    }

    /// 0 success, 1 failure, 2 usage.
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            Failure::Usage(_) | Failure::HelpShown => 2,
            Failure::Failed(_) => 1,
            Failure::OutputClosed => 0,
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

/// Only writes to standard output fail with a bare `io::Error`; errors of files name the file.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Failure::OutputClosed,
            _ => Failure::Failed(format!("standard output cannot be written: {error}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(one_line("a\nb\r\t\x1b[31m\u{202e}.npy"), "a\\nb\\r\\t\\u{1b}[31m\\u{202e}.npy");
        for kept in ["it's \"quoted\\n\"", "Grüße, 矩陣, e\u{301}"] {
            assert_eq!(one_line(kept), kept);
        }
    }
}
