//! Writing a file whole or not at all.
//!
//! Linux: what is written has no name until it is complete and safe on the disk, so whatever ends the process leaves nothing; then
//! it gets the name. Where something of that name is there, it first gets another, `.NAME.tegula-` and letters and `.tmp`, and is
//! renamed over the old file; only a SIGKILL or power cut between these two steps leaves that name, with all of the content. On
//! file systems and systems without unnamed files it has that other name from the start. Unix: whoever writes such a file holds
//! a lock on it, which ends with the process, so the next write of the same name knows what was left behind, and removes it.
//!
//! What was there is not changed but replaced: its permissions are kept, links to it are followed, but the new file belongs to
//! who wrote it, has no extended attributes, and other hard links keep the old content. So an output may be one of the inputs,
//! even if that is mapped. It knows files, not formats.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use tempfile::{Builder, NamedTempFile};

use crate::{Refusal, show};

/// Bytes written at a time; signals are looked for in between.
const CHUNK: usize = 8 << 20;
/// Links to links that are followed.
const MOST_LINKS: usize = 40;
/// Bytes that are kept of a name in that of its temporary file: names have at most 255.
const MOST_NAME: usize = 200;
const SUFFIX: &str = ".tmp";

/// Who is told how many bytes are written, of how many; 0 of those where their number is not known.
pub(crate) type Progress<'a> = &'a dyn Fn(u64, u64);

/// Where a file goes.
#[derive(Debug)]
pub(crate) struct Target {
    /// The name to take, with symbolic links followed: the link stays, the file it points to is replaced or made.
    path: PathBuf,
    /// The permissions to keep, where a file is replaced.
    permissions: Option<fs::Permissions>,
    /// A device or a pipe, such as `/dev/stdout`: written to, never replaced.
    pub special: bool,
}

impl Target {
    /// Looks at what is there.
    pub fn of(path: &Path) -> Result<Target, Refusal> {
        let refuse = |why: &str| Err(format!("cannot be written: {why}"));
        if path.as_os_str().as_encoded_bytes().ends_with(b"/") {
            return refuse("it names a directory; name a file in it");
        }
        let unknown = |error: io::Error| format!("cannot be written: {}", show::error(&error));
        let path = follow(path).map_err(unknown)?.ok_or("cannot be written: too many symbolic links")?;
        match fs::metadata(&path) {
            Ok(found) if found.is_dir() => refuse("it is a directory; name a file in it"),
            Ok(found) if !found.is_file() || is_open_file(&path) => {
                Ok(Target { path, permissions: None, special: true })
            }
            Ok(found) if found.permissions().readonly() => refuse("the file that is there is read-only"),
            Ok(found) => Ok(Target { path, permissions: Some(found.permissions()), special: false }),
            Err(_) if path.file_name().is_none() => refuse("it names no file"),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Ok(Target { path, permissions: None, special: false })
            }
            // A file of which nothing is known may be there, and is not to be replaced.
            Err(error) => Err(unknown(error)),
        }
    }

    /// The file that would be replaced, if it can be read and there is anything in it.
    pub fn existing(&self) -> Option<io::Result<File>> {
        let len = fs::metadata(&self.path).ok().filter(|_| self.permissions.is_some())?.len();
        (len > 0).then(|| File::open(&self.path))
    }

    /// Finds out whether a file can be made there. Leaves nothing.
    pub fn check(&self) -> Result<(), Refusal> {
        if self.special {
            return Ok(());
        }
        self.draft().map(drop).map_err(|error| self.explain(error, 0))
    }

    /// Makes the file of what `write` writes, or leaves all as it is. That will be `size` bytes or a little more, so less space is
    /// refused; 0 where nobody knows.
    pub fn replace(
        &self,
        size: u64,
        progress: Progress,
        write: impl FnOnce(&mut Sink) -> io::Result<()>,
    ) -> Result<(), Refusal> {
        let done = if self.special {
            // Whoever reads the pipe may keep the writer waiting, so signals do what they always do.
            // What is opened again may be a file that the shell appends to, or that others have written to: it grows.
            let file = OpenOptions::new().append(true).open(&self.path);
            file.and_then(|file| Sink::write_through(&file, size, progress, || false, write))
        } else {
            self.check_space(size)?;
            #[cfg(unix)]
            let _kept = crate::signals::Kept::new();
            self.write_beside(size, progress, write)
        };
        done.map_err(|error| self.explain(error, size))
    }

    fn write_beside(
        &self,
        size: u64,
        progress: Progress,
        write: impl FnOnce(&mut Sink) -> io::Result<()>,
    ) -> io::Result<()> {
        #[cfg(unix)]
        self.remove_abandoned();
        let draft = self.draft()?;
        let file = draft.file();
        Sink::write_through(file, size, progress, stop_asked, write)?;
        if let Some(permissions) = &self.permissions {
            file.set_permissions(permissions.clone())?;
        }
        file.sync_all()?;
        // The last moment for a signal: from here on the file is as good as there.
        if stop_asked() {
            return Err(stopped());
        }
        self.publish(draft)?;
        self.sync_directory();
        Ok(())
    }

    /// The file before it has its name.
    fn draft(&self) -> io::Result<Draft> {
        #[cfg(target_os = "linux")]
        if let Some(file) = linux::unnamed(self.directory()) {
            return file.map(Draft::Unnamed);
        }
        loop {
            let file = self.temporary(|builder| {
                allow_as_usual(builder);
                builder.tempfile_in(self.directory())
            })?;
            // Before it was locked, another write may have taken it for abandoned.
            if !lock(file.as_file()) || file.path().exists() {
                return Ok(Draft::Named(file));
            }
        }
    }

    fn publish(&self, draft: Draft) -> io::Result<()> {
        // Kept until it is renamed, and with it the lock.
        let named = match draft {
            Draft::Named(file) => file,
            #[cfg(target_os = "linux")]
            Draft::Unnamed(file) => {
                if self.permissions.is_none() {
                    match linux::link(&file, &self.path) {
                        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                        done => return done,
                    }
                }
                lock(&file);
                let linked =
                    self.temporary(|builder| builder.make_in(self.directory(), |path| linux::link(&file, path)))?;
                return linked.into_temp_path().persist(&self.path).map_err(|error| error.error);
            }
        };
        named.persist(&self.path).map(drop).map_err(|error| error.error)
    }

    /// What `make` makes of the names of this target's temporary files.
    fn temporary<R>(&self, make: impl FnOnce(&mut Builder<'_, '_>) -> R) -> R {
        make(Builder::new().prefix(&self.prefix()).suffix(SUFFIX))
    }

    /// How the names of this target's temporary files begin.
    fn prefix(&self) -> OsString {
        let name = self.path.file_name().unwrap_or_default();
        let mut prefix = OsString::from(".");
        if name.len() <= MOST_NAME {
            prefix.push(name);
        } else {
            let text = name.to_string_lossy();
            prefix.push(&text[..text.floor_char_boundary(MOST_NAME)]);
        }
        prefix.push(".tegula-");
        prefix
    }

    /// Removes temporary files of this name that a process has left behind. What cannot be removed does no harm.
    #[cfg(unix)]
    fn remove_abandoned(&self) {
        use rustix::fs::{Mode, OFlags};
        let prefix = self.prefix();
        for entry in fs::read_dir(self.directory()).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let name = name.as_encoded_bytes();
            if !name.starts_with(prefix.as_encoded_bytes()) || !name.ends_with(SUFFIX.as_bytes()) {
                continue;
            }
            // Neither a link nor a pipe is one of ours.
            let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            let file = rustix::fs::open(entry.path(), flags, Mode::empty()).map(File::from);
            let file = file.ok().filter(|file| file.metadata().is_ok_and(|found| found.is_file()));
            if file.is_some_and(|file| file.try_lock().is_ok()) {
                let _ = fs::remove_file(entry.path());
            }
        }
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

    /// Refuses what has no space before any of it is written.
    fn check_space(&self, size: u64) -> Result<(), Refusal> {
        match free_space(self.directory()) {
            Some(free) if free < size => Err(format!("{}, {free} are free", self.no_space(size))),
            _ => Ok(()),
        }
    }

    fn no_space(&self, size: u64) -> Refusal {
        let (directory, needed) = (show::path(self.directory()), needed(size));
        format!("cannot be written: no space left on the device holding '{directory}'{needed}")
    }

    /// Why nothing was written: `size` bytes were to be.
    fn explain(&self, error: io::Error, size: u64) -> Refusal {
        // An error of a temporary file names it, which nobody knows; the one inside does not.
        let inner = error.get_ref().and_then(|outer| outer.source()).and_then(|inner| inner.downcast_ref());
        let error: &io::Error = inner.unwrap_or(&error);
        let why = match error.kind() {
            io::ErrorKind::StorageFull => return self.no_space(size),
            io::ErrorKind::NotFound => "its directory does not exist".into(),
            io::ErrorKind::FileTooLarge => format!("the limit on the size of files is too low{}", needed(size)),
            io::ErrorKind::QuotaExceeded => format!("the disk quota is used up{}", needed(size)),
            _ => show::error(error),
        };
        format!("cannot be written: {why}")
    }
}

/// Shows that a temporary file's process is still there; whether it could.
fn lock(file: &File) -> bool {
    cfg!(unix) && file.lock().is_ok()
}

fn needed(size: u64) -> String {
    if size == 0 { String::new() } else { format!("; {size} bytes are needed") }
}

/// The path behind symbolic links, whether or not something is there; `None` for links in a circle.
fn follow(path: &Path) -> io::Result<Option<PathBuf>> {
    let mut path = path.to_owned();
    for _ in 0..MOST_LINKS {
        if is_open_file(&path) || fs::metadata(&path).is_ok_and(|found| !found.is_file()) {
            return Ok(Some(path));
        }
        let target = match fs::read_link(&path) {
            Ok(target) => target,
            // No link, or nothing at all.
            Err(error) if matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::NotFound) => {
                return Ok(Some(path));
            }
            Err(error) => return Err(error),
        };
        // A relative one starts where the link is.
        path = path.parent().unwrap_or(Path::new("")).join(target);
    }
    Ok(None)
}

/// Whether a path stands for a file that the process has open, as `/dev/stdout` does: it is written to, whatever name it has.
fn is_open_file(path: &Path) -> bool {
    cfg!(target_os = "linux") && path.starts_with("/proc")
}

/// A file that is not there yet.
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

    /// A new file without a name, with the permissions of any new file; `None` where there are no such files, or no way to name
    /// them later.
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

    /// Gives the file a name that nothing has.
    pub fn link(file: &File, path: &Path) -> io::Result<()> {
        Ok(rustix::fs::linkat(CWD, entry(file), CWD, path, AtFlags::SYMLINK_FOLLOW)?)
    }

    fn entry(file: &File) -> PathBuf {
        format!("/proc/self/fd/{}", file.as_raw_fd()).into()
    }
}

/// What a file's content is written to, a piece at a time.
///
/// After a failure nothing is written and nothing fails any more, for the sake of writers that tidy up when they are dropped; the
/// first failure counts.
pub(crate) struct Sink<'a> {
    file: &'a File,
    /// Where the next byte goes, or would.
    position: u64,
    /// The largest of those.
    end: u64,
    done: u64,
    total: u64,
    progress: Progress<'a>,
    stop: fn() -> bool,
    failed: Option<io::Error>,
}

impl Sink<'_> {
    /// Runs `write` on the file.
    pub fn write_through(
        file: &File,
        total: u64,
        progress: Progress,
        stop: fn() -> bool,
        write: impl FnOnce(&mut Sink) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut sink = Sink { file, position: 0, end: 0, done: 0, total, progress, stop, failed: None };
        let done = write(&mut sink);
        sink.failed.map_or(done, Err)
    }

    fn fail(&mut self, error: io::Error) -> io::Error {
        let kind = error.kind();
        self.failed = Some(error);
        // One that fails while it goes back to a header believes that it is behind what it has written.
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
            return Err(self.fail(stopped()));
        }
        let count = match self.file.write(&bytes[..bytes.len().min(CHUNK)]) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(self.fail(error)),
            count => count?,
        };
        self.position += count as u64;
        self.end = self.end.max(self.position);
        self.done += count as u64;
        (self.progress)(self.done, self.total);
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

fn stopped() -> io::Error {
    io::Error::other("a signal stopped the write")
}

#[cfg(unix)]
use crate::signals::pending as stop_asked;

#[cfg(not(unix))]
fn stop_asked() -> bool {
    false
}

/// Bytes that this user may still write there, where the file system tells.
#[cfg(unix)]
fn free_space(directory: &Path) -> Option<u64> {
    let found = rustix::fs::statvfs(directory).ok().filter(|found| found.f_blocks > 0)?;
    let blocks = if rustix::process::geteuid().is_root() { found.f_bfree } else { found.f_bavail };
    blocks.checked_mul(found.f_frsize)
}

#[cfg(not(unix))]
fn free_space(_: &Path) -> Option<u64> {
    None
}

/// A new file gets the permissions that any new file gets, less the process's umask; a temporary file would be private.
#[cfg(unix)]
fn allow_as_usual(builder: &mut Builder<'_, '_>) {
    use std::os::unix::fs::PermissionsExt;
    builder.permissions(fs::Permissions::from_mode(0o666));
}

#[cfg(not(unix))]
fn allow_as_usual(_: &mut Builder<'_, '_>) {}
