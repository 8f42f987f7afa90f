//! Atomic replacement of files: a write is complete or has no effect.
//!
//! - Linux: a draft has no name until it is complete and synced, so a killed process leaves
//!   nothing. Then it is linked. To replace a file, the draft is first linked as
//!   `.NAME.tegula-RANDOM.tmp` and then renamed over the old file. Only SIGKILL or a power failure
//!   between the two leaves that name, with the complete content. Without unnamed files the draft
//!   has that name from the start.
//! - Unix: the writer of a draft holds a lock on it, which ends with the process. So the next write
//!   to the same path recognizes stale drafts and removes them.
//!
//! A file is replaced, not modified. Permissions are kept and symbolic links are followed. The new
//! file belongs to the user who writes it and has no extended attributes. Other hard links keep the
//! old content. So an output may be one of the inputs, even if memory-mapped. The module depends on
//! files, not on formats.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use tempfile::{Builder, NamedTempFile};

use crate::{ErrorMessage, display};

/// Bytes per system call; signals are checked in between.
const CHUNK: usize = 8 << 20;
/// Limit of chained symbolic links.
const MAX_LINKS: usize = 40;
/// Bytes of a name that its temporary name keeps; names have at most 255.
const MAX_NAME_BYTES: usize = 200;
const SUFFIX: &str = ".tmp";

/// Progress callback with bytes written and total bytes, 0 if unknown.
pub(crate) type Progress<'a> = &'a dyn Fn(u64, u64);

/// Destination of a write.
#[derive(Debug)]
pub(crate) struct Target {
    /// Path with symbolic links resolved: the link stays, its target is replaced or created.
    path: PathBuf,
    /// Permissions of the file to be replaced.
    permissions: Option<fs::Permissions>,
    /// Whether this is a device or a pipe, such as `/dev/stdout`: written to, never replaced.
    pub is_stream: bool,
}

impl Target {
    /// Resolves links and inspects the existing file.
    pub fn resolve(path: &Path) -> Result<Target, ErrorMessage> {
        let reject = |message: &str| Err(format!("cannot be written: {message}"));
        if path.as_os_str().as_encoded_bytes().ends_with(b"/") {
            return reject("it is a directory; use a file in it");
        }
        let unknown = |error: io::Error| format!("cannot be written: {}", display::error(&error));
        let path = follow_links(path).map_err(unknown)?.ok_or("cannot be written: too many symbolic links")?;
        match fs::metadata(&path) {
            Ok(metadata) if metadata.is_dir() => reject("it is a directory; use a file in it"),
            Ok(metadata) if !metadata.is_file() || is_open_file(&path) => {
                Ok(Target { path, permissions: None, is_stream: true })
            }
            Ok(metadata) if metadata.permissions().readonly() => reject("the existing file is read-only"),
            Ok(metadata) => Ok(Target { path, permissions: Some(metadata.permissions()), is_stream: false }),
            Err(_) if path.file_name().is_none() => reject("the path has no file name"),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Ok(Target { path, permissions: None, is_stream: false })
            }
            // An unknown file may exist and must not be replaced.
            Err(error) => Err(unknown(error)),
        }
    }

    /// Opens the file to be replaced, if it is not empty.
    pub fn existing(&self) -> Option<io::Result<File>> {
        let len = fs::metadata(&self.path).ok().filter(|_| self.permissions.is_some())?.len();
        (len > 0).then(|| File::open(&self.path))
    }

    /// Checks whether a file can be created, without leaving one.
    pub fn check(&self) -> Result<(), ErrorMessage> {
        if self.is_stream {
            return Ok(());
        }
        self.draft().map(drop).map_err(|error| self.error_message(error, 0))
    }

    /// Replaces the file by the output of `write`, or leaves it unchanged.
    ///
    /// The output has `size` bytes or slightly more, 0 if unknown. It is rejected if less space is
    /// free.
    pub fn replace(
        &self,
        size: u64,
        progress: Progress,
        write: impl FnOnce(&mut Sink) -> io::Result<()>,
    ) -> Result<(), ErrorMessage> {
        let result = if self.is_stream {
            // The reader of a pipe may block the writer, so signals keep their default effect. A
            // reopened path may be a file that the shell appends to, or that other processes write:
            // append.
            let file = OpenOptions::new().append(true).open(&self.path);
            file.and_then(|file| Sink::write_through(&file, size, progress, || false, write))
        } else {
            self.check_space(size)?;
            #[cfg(unix)]
            let _deferred_signals = crate::signals::DeferredSignals::new();
            self.write_draft(size, progress, write)
        };
        result.map_err(|error| self.error_message(error, size))
    }

    fn write_draft(
        &self,
        size: u64,
        progress: Progress,
        write: impl FnOnce(&mut Sink) -> io::Result<()>,
    ) -> io::Result<()> {
        #[cfg(unix)]
        self.remove_stale_drafts();
        let draft = self.draft()?;
        let file = draft.file();
        Sink::write_through(file, size, progress, stop_requested, write)?;
        if let Some(permissions) = &self.permissions {
            file.set_permissions(permissions.clone())?;
        }
        file.sync_all()?;
        // Last check for signals: afterwards the file is published.
        if stop_requested() {
            return Err(interrupted());
        }
        self.publish(draft)?;
        self.sync_directory();
        Ok(())
    }

    /// Creates the file without its final name.
    fn draft(&self) -> io::Result<Draft> {
        #[cfg(target_os = "linux")]
        if let Some(file) = linux::unnamed(self.directory()) {
            return file.map(Draft::Unnamed);
        }
        loop {
            let file = self.with_temporary_name(|builder| {
                set_default_mode(builder);
                builder.tempfile_in(self.directory())
            })?;
            // Before the lock, another write may have removed it as stale.
            if !lock(file.as_file()) || file.path().exists() {
                return Ok(Draft::Named(file));
            }
        }
    }

    fn publish(&self, draft: Draft) -> io::Result<()> {
        // The draft, and its lock, live until the rename.
        let named = match draft {
            Draft::Named(file) => file,
            #[cfg(target_os = "linux")]
            Draft::Unnamed(file) => {
                if self.permissions.is_none() {
                    match linux::link(&file, &self.path) {
                        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                        result => return result,
                    }
                }
                lock(&file);
                let linked = self.with_temporary_name(|builder| {
                    builder.make_in(self.directory(), |path| linux::link(&file, path))
                })?;
                return linked.into_temp_path().persist(&self.path).map_err(|error| error.error);
            }
        };
        named.persist(&self.path).map(drop).map_err(|error| error.error)
    }

    /// Calls `make` with a builder of temporary names for this target.
    fn with_temporary_name<R>(&self, make: impl FnOnce(&mut Builder<'_, '_>) -> R) -> R {
        make(Builder::new().prefix(&self.prefix()).suffix(SUFFIX))
    }

    /// Prefix of temporary names of this target.
    fn prefix(&self) -> OsString {
        let name = self.path.file_name().unwrap_or_default();
        let mut prefix = OsString::from(".");
        if name.len() <= MAX_NAME_BYTES {
            prefix.push(name);
        } else {
            let text = name.to_string_lossy();
            prefix.push(&text[..text.floor_char_boundary(MAX_NAME_BYTES)]);
        }
        prefix.push(".tegula-");
        prefix
    }

    /// Removes drafts that terminated processes have left. Errors are harmless.
    #[cfg(unix)]
    fn remove_stale_drafts(&self) {
        use rustix::fs::{Mode, OFlags};
        let prefix = self.prefix();
        for entry in fs::read_dir(self.directory()).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let name = name.as_encoded_bytes();
            if !name.starts_with(prefix.as_encoded_bytes()) || !name.ends_with(SUFFIX.as_bytes()) {
                continue;
            }
            // Drafts are regular files, not links or pipes.
            let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            let file = rustix::fs::open(entry.path(), flags, Mode::empty()).map(File::from);
            let file = file.ok().filter(|file| file.metadata().is_ok_and(|metadata| metadata.is_file()));
            if file.is_some_and(|file| file.try_lock().is_ok()) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }

    fn directory(&self) -> &Path {
        self.path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
    }

    /// Syncs the directory, so that the new name survives a power failure.
    ///
    /// The data is synced already.
    fn sync_directory(&self) {
        if cfg!(unix) {
            let _ = File::open(self.directory()).and_then(|directory| directory.sync_all());
        }
    }

    /// Rejects writes larger than the free space.
    fn check_space(&self, size: u64) -> Result<(), ErrorMessage> {
        match free_space(self.directory()) {
            Some(free) if free < size => Err(format!("{}, {free} are free", self.no_space(size))),
            _ => Ok(()),
        }
    }

    fn no_space(&self, size: u64) -> ErrorMessage {
        let (directory, needed) = (display::path(self.directory()), needed(size));
        format!("cannot be written: no space left on the device holding '{directory}'{needed}")
    }

    /// Message for an error of a write of `size` bytes.
    fn error_message(&self, error: io::Error, size: u64) -> ErrorMessage {
        // Errors of temporary files name them; the inner error does not.
        let inner = error.get_ref().and_then(|outer| outer.source()).and_then(|inner| inner.downcast_ref());
        let error: &io::Error = inner.unwrap_or(&error);
        let message = match error.kind() {
            io::ErrorKind::StorageFull => return self.no_space(size),
            io::ErrorKind::NotFound => "its directory does not exist".into(),
            io::ErrorKind::FileTooLarge => format!("the limit on the size of files is too low{}", needed(size)),
            io::ErrorKind::QuotaExceeded => format!("the disk quota is used up{}", needed(size)),
            _ => display::error(error),
        };
        format!("cannot be written: {message}")
    }
}

/// Locks a draft as owned by a live process; returns whether that is possible.
fn lock(file: &File) -> bool {
    cfg!(unix) && file.lock().is_ok()
}

fn needed(size: u64) -> String {
    if size == 0 { String::new() } else { format!("; {size} bytes are needed") }
}

/// Resolves symbolic links of a path that need not exist; `None` for a cycle.
fn follow_links(path: &Path) -> io::Result<Option<PathBuf>> {
    let mut path = path.to_owned();
    for _ in 0..MAX_LINKS {
        if is_open_file(&path) || fs::metadata(&path).is_ok_and(|metadata| !metadata.is_file()) {
            return Ok(Some(path));
        }
        let target = match fs::read_link(&path) {
            Ok(target) => target,
            // Not a link, or nothing exists.
            Err(error) if matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::NotFound) => {
                return Ok(Some(path));
            }
            Err(error) => return Err(error),
        };
        // Relative links start at their directory.
        path = path.parent().unwrap_or(Path::new("")).join(target);
    }
    Ok(None)
}

/// Whether a path denotes an open file of the process, which is not replaced.
///
/// Example: `/dev/stdout`.
fn is_open_file(path: &Path) -> bool {
    cfg!(target_os = "linux") && path.starts_with("/proc")
}

/// A file before publication.
enum Draft {
    #[cfg(target_os = "linux")]
    Unnamed(File),
    Named(NamedTempFile),
}

impl Draft {
    fn file(&self) -> &File {
        match self {
            #[cfg(target_os = "linux")]
            Draft::Unnamed(file) => file,
            Draft::Named(file) => file.as_file(),
        }
    }
}

#[cfg(target_os = "linux")]
mod linux {
    use std::fs::{File, OpenOptions};
    use std::io;
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::OpenOptionsExt;
    use std::path::{Path, PathBuf};

    use rustix::fs::{AtFlags, CWD, OFlags};
    use rustix::io::Errno;

    /// Creates an unnamed file with default permissions.
    ///
    /// `None` if the file system has no unnamed files or they cannot be linked.
    pub fn unnamed(directory: &Path) -> Option<io::Result<File>> {
        let flags = OFlags::TMPFILE.bits() as i32;
        let file = OpenOptions::new().write(true).mode(0o666).custom_flags(flags).open(directory);
        match file {
            Ok(file) => entry(&file).exists().then_some(Ok(file)),
            Err(error) => match Errno::from_io_error(&error) {
                Some(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => None,
                _ => Some(Err(error)),
            },
        }
    }

    /// Links a file under a name that does not exist.
    pub fn link(file: &File, path: &Path) -> io::Result<()> {
        Ok(rustix::fs::linkat(CWD, entry(file), CWD, path, AtFlags::SYMLINK_FOLLOW)?)
    }

    fn entry(file: &File) -> PathBuf {
        format!("/proc/self/fd/{}", file.as_raw_fd()).into()
    }
}

/// Writer of a file's content, in chunks.
///
/// After an error all writes succeed without effect, for writers that finish when dropped. The
/// first error is returned.
pub(crate) struct Sink<'a> {
    file: &'a File,
    /// Position of the next byte.
    position: u64,
    /// Largest position so far.
    end: u64,
    written: u64,
    total: u64,
    progress: Progress<'a>,
    stop: fn() -> bool,
    failed: Option<io::Error>,
}

impl Sink<'_> {
    /// Runs `write` on a sink for `file`.
    pub fn write_through(
        file: &File,
        total: u64,
        progress: Progress,
        stop: fn() -> bool,
        write: impl FnOnce(&mut Sink) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut sink = Sink { file, position: 0, end: 0, written: 0, total, progress, stop, failed: None };
        let result = write(&mut sink);
        sink.failed.map_or(result, Err)
    }

    fn fail(&mut self, error: io::Error) -> io::Error {
        let kind = error.kind();
        self.failed = Some(error);
        // A writer that fails at a header expects the position after its content.
        self.position = self.end;
        kind.into()
    }
}

impl Write for Sink<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.failed.is_some() {
            self.position += bytes.len() as u64;
            return Ok(bytes.len());
        }
        if (self.stop)() {
            return Err(self.fail(interrupted()));
        }
        let count = match self.file.write(&bytes[..bytes.len().min(CHUNK)]) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(self.fail(error)),
            count => count?,
        };
        self.position += count as u64;
        self.end = self.end.max(self.position);
        self.written += count as u64;
        (self.progress)(self.written, self.total);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for Sink<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let position = match to {
            SeekFrom::Start(position) if self.failed.is_some() => position,
            SeekFrom::Current(by) | SeekFrom::End(by) if self.failed.is_some() => {
                self.position.saturating_add_signed(by)
            }
            to => match self.file.seek(to) {
                Ok(position) => position,
                Err(error) => return Err(self.fail(error)),
            },
        };
        self.position = position;
        Ok(position)
    }
}

fn interrupted() -> io::Error {
    io::Error::other("a signal interrupted the write")
}

#[cfg(unix)]
use crate::signals::pending as stop_requested;

#[cfg(not(unix))]
fn stop_requested() -> bool {
    false
}

/// Free bytes for this user, if the file system reports them.
#[cfg(unix)]
fn free_space(directory: &Path) -> Option<u64> {
    let stats = rustix::fs::statvfs(directory).ok().filter(|stats| stats.f_blocks > 0)?;
    let blocks = if rustix::process::geteuid().is_root() { stats.f_bfree } else { stats.f_bavail };
    blocks.checked_mul(stats.f_frsize)
}

#[cfg(not(unix))]
fn free_space(_: &Path) -> Option<u64> {
    None
}

/// Sets the mode of a new file before umask; temporary files are private by default.
#[cfg(unix)]
fn set_default_mode(builder: &mut Builder<'_, '_>) {
    use std::os::unix::fs::PermissionsExt;
    builder.permissions(fs::Permissions::from_mode(0o666));
}

#[cfg(not(unix))]
fn set_default_mode(_: &mut Builder<'_, '_>) {}
