//! How a command ends when it does not succeed: one line for the user and an exit code.

use std::io;
use std::process::ExitCode;

/// The result of everything in this program.
pub type Result<T, E = Failure> = std::result::Result<T, E>;

/// Why a command stops early.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The command line asks for something that cannot be.
    #[error("{0}")]
    Usage(String),
    /// The work was understood and could not be done.
    #[error("{0}")]
    Failed(String),
    /// Whoever reads standard output has gone away, which is their right: `tegula … | head`.
    #[error("standard output was closed")]
    ReaderLeft,
}

impl Failure {
    /// A failure told in one line.
    pub fn new(message: impl Into<String>) -> Self {
        Failure::Failed(message.into())
    }

    /// 0 done, 1 failed, 2 usage.
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            Failure::Usage(_) => 2,
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
