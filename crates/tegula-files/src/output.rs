//! Writing a file whole or not at all: to a temporary file beside it, which then takes its name.
//!
//! A failure leaves what was there untouched and nothing beside it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use tempfile::{Builder, NamedTempFile};

use crate::{Error, Result};

/// Finds out whether a file can be written before work is spent on what goes into it.
///
/// # Errors
/// Where it cannot.
pub fn check(path: &Path) -> Result<()> {
    let target = Target::of(path)?;
    target.attempt(|| if target.special { Ok(()) } else { target.temporary().map(drop) })
}

/// Replaces a file's content by what `write` writes, or leaves it as it is.
///
/// # Errors
/// Where the file cannot be written.
pub fn replace(path: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<()> {
    let target = Target::of(path)?;
    target.attempt(|| if target.special { target.write_through(write) } else { target.write_beside(write) })
}

/// Where a file goes.
struct Target {
    /// The name to take, with symbolic links followed: the link stays, the file it points to is replaced.
    path: PathBuf,
    /// The permissions to keep, where a file is replaced.
    permissions: Option<fs::Permissions>,
    /// A device or a pipe, such as `/dev/stdout`: written to, never replaced.
    special: bool,
}

impl Target {
    fn of(path: &Path) -> Result<Target> {
        let link = path.is_symlink().then(|| fs::canonicalize(path).ok()).flatten();
        let path = link.unwrap_or_else(|| path.to_owned());
        let refuse =
            |why: &str| Err(Error { file: path.display().to_string(), why: format!("cannot be written: {why}") });
        match fs::metadata(&path) {
            Ok(found) if found.is_dir() => refuse("it is a directory; name a file in it"),
            Ok(found) if !found.is_file() => Ok(Target { path, permissions: None, special: true }),
            Ok(found) if found.permissions().readonly() => refuse("the file that is there is read-only"),
            Ok(found) => Ok(Target { path, permissions: Some(found.permissions()), special: false }),
            Err(_) if path.file_name().is_none() => refuse("it names no file"),
            Err(_) => Ok(Target { path, permissions: None, special: false }),
        }
    }

    fn attempt(&self, work: impl FnOnce() -> io::Result<()>) -> Result<()> {
        work().map_err(|error| {
            let why = match error.kind() {
                io::ErrorKind::NotFound => "its directory does not exist".into(),
                // The inner message alone: the outer one names the temporary file, which nobody knows.
                _ => error.get_ref().and_then(|e| e.source()).map_or_else(|| error.to_string(), ToString::to_string),
            };
            Error { file: self.path.display().to_string(), why: format!("cannot be written: {why}") }
        })
    }

    fn write_through(&self, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
        write(&mut OpenOptions::new().write(true).open(&self.path)?)
    }

    fn write_beside(&self, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
        let mut file = self.temporary()?;
        write(file.as_file_mut())?;
        if let Some(permissions) = &self.permissions {
            file.as_file().set_permissions(permissions.clone())?;
        }
        file.as_file().sync_all()?;
        file.persist(&self.path).map_err(|error| error.error)?;
        self.sync_directory();
        Ok(())
    }

    fn temporary(&self) -> io::Result<NamedTempFile> {
        let mut builder = Builder::new();
        builder.prefix(".tegula-");
        allow_as_usual(&mut builder);
        builder.tempfile_in(self.directory())
    }

    fn directory(&self) -> &Path {
        self.path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
    }

    /// Makes the new name last through a power cut, where the system can; the data is safe either way.
    fn sync_directory(&self) {
        if cfg!(unix) {
            let _ = File::open(self.directory()).and_then(|directory| directory.sync_all());
        }
    }
}

/// A new file gets the permissions that any new file gets, less the process's umask; a temporary file would be private.
#[cfg(unix)]
fn allow_as_usual(builder: &mut Builder<'_, '_>) {
    use std::os::unix::fs::PermissionsExt;
    builder.permissions(fs::Permissions::from_mode(0o666));
}

#[cfg(not(unix))]
fn allow_as_usual(_: &mut Builder<'_, '_>) {}
