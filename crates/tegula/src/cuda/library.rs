//! Checks of the driver library before cudarc opens it: the loader's error, and a truncated file.
//!
//! An interrupted copy leaves such a file. The loader maps it, and an access past its end kills the
//! process.

use std::error::Error as _;

use cudarc::driver::sys;

/// The library's file name, for messages.
const LIBRARY_NAME: &str = if cfg!(windows) { "nvcuda.dll" } else { "libcuda.so.1" };

/// Opens the library for the rest of the process.
///
/// # Errors
/// The reason why it cannot be opened, for the user.
pub(super) fn open() -> Result<(), String> {
    let mut reason = None;
    // The names that cudarc tries, in its order; cudarc panics where none opens.
    for name in ["cuda", "nvcuda"].into_iter().flat_map(cudarc::get_lib_name_candidates) {
        #[cfg(target_os = "linux")]
        elf::check(&name)?;
        // SAFETY: opening the library runs its initializers; no other check detects a driver.
        match unsafe { libloading::Library::new(&name) } {
            Ok(_open) => {
                // SAFETY: as above. The library is open, so this finds it, and it is never closed.
                unsafe { sys::culib() };
                return Ok(());
            }
            Err(error) => {
                let why = error.source().map_or_else(|| error.to_string(), ToString::to_string);
                // Most names have no file, and the loader's error names the library itself then.
                if !why.starts_with(&format!("{name}: cannot open shared object file: No such file")) {
                    reason = reason.or(Some(why));
                }
            }
        }
    }
    // On Windows the error is the same for every name.
    let reason = reason.filter(|_| cfg!(unix));
    Err(reason.map_or_else(|| format!("{LIBRARY_NAME} not found"), |why| format!("the loader failed: {why}")))
}

/// Detection of truncated ELF files by their program headers.
#[cfg(target_os = "linux")]
mod elf {
    use std::ffi::OsStr;
    use std::fs::{self, File};
    use std::io;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::FileExt;
    use std::path::{Path, PathBuf};

    /// The loader's cache of libraries in system directories. Its paths are C strings.
    const CACHE: &str = "/etc/ld.so.cache";
    /// The directories that the loader searches last.
    const DIRECTORIES: [&str; 4] = ["/lib64", "/usr/lib64", "/lib", "/usr/lib"];
    /// The first bytes of a 64-bit ELF file in native byte order.
    const START: [u8; 6] = [0x7f, b'E', b'L', b'F', 2, if cfg!(target_endian = "little") { 1 } else { 2 }];

    /// Refuses a truncated file that the loader would find by this name.
    pub fn check(name: &str) -> Result<(), String> {
        let path = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
        let cache = fs::read(CACHE).unwrap_or_default();
        candidates(name, &path, &cache).find_map(|path| check_complete(&path)).unwrap_or(Ok(()))
    }

    /// The paths that the loader searches for a name, in its order.
    fn candidates(name: &str, path: &OsStr, cache: &[u8]) -> impl Iterator<Item = PathBuf> {
        let own = path.as_bytes().split(|byte| b":;".contains(byte)).filter(|own| !own.is_empty());
        let own: Vec<PathBuf> = own.map(|directory| Path::new(OsStr::from_bytes(directory)).join(name)).collect();
        let listed = cache.split(|byte| *byte == 0).map(|text| PathBuf::from(OsStr::from_bytes(text)));
        let listed: Vec<PathBuf> =
            listed.filter(|path| path.is_absolute() && path.file_name() == Some(name.as_ref())).collect();
        own.into_iter().chain(listed).chain(DIRECTORIES.map(|directory| Path::new(directory).join(name)))
    }

    /// Checks that a file is complete. `None` where the loader skips the file, or refuses it with
    /// its own error.
    fn check_complete(path: &Path) -> Option<Result<(), String>> {
        let file = File::open(path).ok().filter(|file| file.metadata().is_ok_and(|found| found.is_file()))?;
        let mut start = [0; START.len()];
        file.read_exact_at(&mut start, 0).ok().filter(|()| start == START)?;
        let (found, needed) = (file.metadata().ok()?.len(), needed(&file).unwrap_or(u64::MAX));
        let why = || match needed {
            u64::MAX => format!("{} is truncated in its headers, at {found} bytes", path.display()),
            _ => format!("{} is truncated: it has {found} of at least {needed} bytes", path.display()),
        };
        Some(if found < needed { Err(why()) } else { Ok(()) })
    }

    /// The end of the last segment of an ELF file.
    fn needed(file: &File) -> io::Result<u64> {
        let mut header = [0; 64];
        file.read_exact_at(&mut header, 0)?;
        let (table, size, count) = (u64_at(&header, 32), u16_at(&header, 54), u16_at(&header, 56));
        (0..u64::from(count)).try_fold(header.len() as u64, |end, i| {
            let mut segment = [0; 56];
            file.read_exact_at(&mut segment, table.saturating_add(i * u64::from(size)))?;
            Ok(end.max(u64_at(&segment, 8).saturating_add(u64_at(&segment, 32))))
        })
    }

    fn u64_at(bytes: &[u8], at: usize) -> u64 {
        u64::from_ne_bytes(std::array::from_fn(|i| bytes[at + i]))
    }

    fn u16_at(bytes: &[u8], at: usize) -> u16 {
        u16::from_ne_bytes([bytes[at], bytes[at + 1]])
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn elf_file_truncated_before_its_last_segment_is_refused() {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("libcuda.so.1");
            // Any ELF file, such as the test itself.
            let whole_file = fs::read(std::env::current_exe().unwrap()).unwrap();
            fs::write(&path, &whole_file).unwrap();
            assert_eq!(check_complete(&path), Some(Ok(())));
            let end = needed(&File::open(&path).unwrap()).unwrap();
            assert!(end > 4096 && end <= whole_file.len() as u64);
            let file = File::options().write(true).open(&path).unwrap();
            file.set_len(end).unwrap();
            assert_eq!(check_complete(&path), Some(Ok(())), "what follows the segments is not mapped");
            for length in [end - 1, end / 2, 4096] {
                file.set_len(length).unwrap();
                let why = check_complete(&path).unwrap().unwrap_err();
                assert!(why.ends_with(&format!("is truncated: it has {length} of at least {end} bytes")), "{why}");
            }
            for length in [100, 64, 63, 6] {
                file.set_len(length).unwrap();
                let why = check_complete(&path).unwrap().unwrap_err();
                assert!(why.ends_with(&format!("is truncated in its headers, at {length} bytes")), "{why}");
            }
            file.set_len(5).unwrap();
            assert_eq!(check_complete(&path), None, "the loader reports this file");
            assert_eq!(check_complete(folder.path()), None);
        }

        #[test]
        fn elf_candidates_follow_the_order_of_the_loader() {
            let cache = b"glibc-ld.so.cache1.1\0libx.so.1\0/usr/lib/a/libx.so.1\0/usr/lib/a/libxx.so.1\0/b/libx.so.1\0";
            let found: Vec<_> = candidates("libx.so.1", "/own::rel;/last".as_ref(), cache).take(6).collect();
            let expected = ["/own", "rel", "/last", "/usr/lib/a", "/b", "/lib64"];
            assert_eq!(found, expected.map(|directory| Path::new(directory).join("libx.so.1")));
        }
    }
}
