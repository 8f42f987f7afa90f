//! Standard output as an unbuffered file.
//!
//! The standard library ignores errors of a standard output that is closed or read-only.

use std::fs::File;
use std::io::{self, stdout};

use crate::{Error, Result, display};

/// Name in messages.
pub(crate) const NAME: &str = "standard output";

impl Error {
    pub(crate) fn of_standard_output(error: &io::Error) -> Error {
        Error { file: NAME.into(), message: format!("cannot be written: {}", display::error(error)) }
    }
}

/// Rejects a standard output that is not writable, before the work for its content.
///
/// Unix: if a process starts with standard output closed, the runtime opens the null device for
/// writing before `main`. To have it rejected, a program must replace it by a read-only file before
/// that.
///
/// # Errors
/// If standard output is open for reading only.
pub fn check_standard_output() -> Result<()> {
    #[cfg(unix)]
    {
        use rustix::fs::OFlags;
        let flags = rustix::fs::fcntl_getfl(stdout());
        if flags.is_ok_and(|flags| flags & OFlags::RWMODE == OFlags::RDONLY) {
            let message = "cannot be written: it is closed, or open only for reading".into();
            return Err(Error { file: NAME.into(), message });
        }
    }
    Ok(())
}

/// Unbuffered standard output.
pub(crate) fn standard_output() -> io::Result<File> {
    #[cfg(unix)]
    let handle = std::os::fd::AsFd::as_fd(&stdout()).try_clone_to_owned()?;
    #[cfg(windows)]
    let handle = std::os::windows::io::AsHandle::as_handle(&stdout()).try_clone_to_owned()?;
    Ok(handle.into())
}
