//! Standard output as a file, without the buffer and the forgiveness of the standard library: that takes writes to one that is
//! closed, or open only for reading, for done.

use std::fs::File;
use std::io::{self, stdout};

use crate::{Error, Result, show};

/// How messages name it.
pub(crate) const NAME: &str = "standard output";

impl Error {
    pub(crate) fn of_standard_output(error: &io::Error) -> Error {
        Error { file: NAME.into(), why: format!("cannot be written: {}", show::error(error)) }
    }
}

/// Refuses a standard output that takes nothing, before work is spent on what goes there.
///
/// Unix: a process that is started with standard output closed gets the null device there before `main`, open to be written. A
/// program that wants it refused puts something read-only there before.
///
/// # Errors
/// Where it is open only for reading.
pub fn check_standard_output() -> Result<()> {
    #[cfg(unix)]
    {
        use rustix::fs::OFlags;
        let flags = rustix::fs::fcntl_getfl(stdout());
        if flags.is_ok_and(|flags| flags & OFlags::RWMODE == OFlags::RDONLY) {
            let why = "cannot be written: it is closed, or open only for reading".into();
            return Err(Error { file: NAME.into(), why });
        }
    }
    Ok(())
}

/// Standard output without a buffer.
pub(crate) fn standard_output() -> io::Result<File> {
    #[cfg(unix)]
    let handle = std::os::fd::AsFd::as_fd(&stdout()).try_clone_to_owned()?;
    #[cfg(windows)]
    let handle = std::os::windows::io::AsHandle::as_handle(&stdout()).try_clone_to_owned()?;
    Ok(handle.into())
}
