//! The driver library, before cudarc opens it: the loader's reason where it cannot be opened, and a file that was cut short,
//! such as by a copy that was interrupted. The loader maps such a file, and reading past its end kills the process.

use std::error::Error as _;

use cudarc::driver::sys;

/// What the user is told to look for.
const USUAL_NAME: &str = if cfg!(windows) { "nvcuda.dll" } else { "libcuda.so.1" };

/// Opens the library for good.
///
/// # Errors
/// Why it cannot be opened, for the user.
pub(super) fn open() -> Result<(), String> {
    let mut reason = None;
    // The names that cudarc tries, in its order: it panics where none can be opened.
    for name in ["cuda", "nvcuda"].into_iter().flat_map(cudarc::get_lib_name_candidates) {
        #[cfg(target_os = "linux")]
        elf::check(&name)?;
        // SAFETY: opening the library runs its initializers; nothing else tells whether a driver can be had.
        match unsafe { libloading::Library::new(&name) } {
            Ok(_open) => {
                // SAFETY: as above. The library is open, so that this finds it, and it is never closed again.
                unsafe { sys::culib() };
                return Ok(());
            }
            Err(error) => {
                let why = error.source().map_or_else(|| error.to_string(), ToString::to_string);
                // Of most names there is no file, and the loader says so of the name itself.
                if !why.starts_with(&format!("{name}: cannot open shared object file: No such file")) {
                    reason = reason.or(Some(why));
                }
            }
        }
    }
    // Windows says the same of every name.
    let reason = reason.filter(|_| cfg!(unix));
    Err(reason.map_or_else(|| format!("{USUAL_NAME} was not found"), |why| format!("the loader refuses it: {why}")))
}

/// Whether a file is as long as its program headers say.
#[cfg(target_os = "linux")]
mod elf {
    use std::ffi::OsStr;
    use std::fs::{self, File};
    use std::io;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::FileExt;
    use std::path::{Path, PathBuf};

    /// The loader's list of the libraries in the system's directories. Its paths are C strings.
    const CACHE: &str = "/etc/ld.so.cache";
    /// Where the loader looks last.
    const DIRECTORIES: [&str; 4] = ["/lib64", "/usr/lib64", "/lib", "/usr/lib"];
    /// The start of an ELF file of 64 bits in this machine's byte order.
    const START: [u8; 6] = [0x7f, b'E', b'L', b'F', 2, if cfg!(target_endian = "little") { 1 } else { 2 }];

    /// Refuses a library whose file is cut short, where the loader would find it by this name.
    pub fn check(name: &str) -> Result<(), String> {
        let path = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
        let cache = fs::read(CACHE).unwrap_or_default();
        candidates(name, &path, &cache).find_map(|path| whole(&path)).unwrap_or(Ok(()))
    }

    /// The paths at which the loader looks for a name, in its order.
    fn candidates(name: &str, path: &OsStr, cache: &[u8]) -> impl Iterator<Item = PathBuf> {
        let own = path.as_bytes().split(|byte| b":;".contains(byte)).filter(|own| !own.is_empty());
        let own: Vec<PathBuf> = own.map(|directory| Path::new(OsStr::from_bytes(directory)).join(name)).collect();
        let listed = cache.split(|byte| *byte == 0).map(|text| PathBuf::from(OsStr::from_bytes(text)));
        let listed: Vec<PathBuf> =
            listed.filter(|path| path.is_absolute() && path.file_name() == Some(name.as_ref())).collect();
        own.into_iter().chain(listed).chain(DIRECTORIES.map(|directory| Path::new(directory).join(name)))
    }

    /// Whether a file is whole; `None` where the loader goes on to the next one, or refuses it with a reason of its own.
    fn whole(path: &Path) -> Option<Result<(), String>> {
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

    /// Where the last segment of an ELF file ends.
    fn needed(file: &File) -> io::Result<u64> {
        let mut header = [0; 64];
        file.read_exact_at(&mut header, 0)?;
        let (table, size, count) = (long(&header, 32), short(&header, 54), short(&header, 56));
        (0..u64::from(count)).try_fold(header.len() as u64, |end, i| {
            let mut segment = [0; 56];
            file.read_exact_at(&mut segment, table.saturating_add(i * u64::from(size)))?;
            Ok(end.max(long(&segment, 8).saturating_add(long(&segment, 32))))
        })
    }

    fn long(bytes: &[u8], at: usize) -> u64 {
        u64::from_ne_bytes(std::array::from_fn(|i| bytes[at + i]))
    }

    fn short(bytes: &[u8], at: usize) -> u16 {
        u16::from_ne_bytes([bytes[at], bytes[at + 1]])
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn elf_file_cut_short_is_refused_at_every_length_that_lacks_a_segment() {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("libcuda.so.1");
            // Any ELF file does; the test itself is one.
            let whole_file = fs::read(std::env::current_exe().unwrap()).unwrap();
            fs::write(&path, &whole_file).unwrap();
            assert_eq!(whole(&path), Some(Ok(())));
            let end = needed(&File::open(&path).unwrap()).unwrap();
            assert!(end > 4096 && end <= whole_file.len() as u64);
            let file = File::options().write(true).open(&path).unwrap();
            file.set_len(end).unwrap();
            assert_eq!(whole(&path), Some(Ok(())), "what follows the segments is not mapped");
            for length in [end - 1, end / 2, 4096] {
                file.set_len(length).unwrap();
                let why = whole(&path).unwrap().unwrap_err();
                assert!(why.ends_with(&format!("is truncated: it has {length} of at least {end} bytes")), "{why}");
            }
            for length in [100, 64, 63, 6] {
                file.set_len(length).unwrap();
                let why = whole(&path).unwrap().unwrap_err();
                assert!(why.ends_with(&format!("is truncated in its headers, at {length} bytes")), "{why}");
            }
            file.set_len(5).unwrap();
            assert_eq!(whole(&path), None, "the loader says what this is");
            assert_eq!(whole(folder.path()), None);
        }

        #[test]
        fn elf_candidates_are_in_the_order_of_the_loader() {
            let cache = b"glibc-ld.so.cache1.1\0libx.so.1\0/usr/lib/a/libx.so.1\0/usr/lib/a/libxx.so.1\0/b/libx.so.1\0";
            let found: Vec<_> = candidates("libx.so.1", "/own::rel;/last".as_ref(), cache).take(6).collect();
            let expected = ["/own", "rel", "/last", "/usr/lib/a", "/b", "/lib64"];
            assert_eq!(found, expected.map(|directory| Path::new(directory).join("libx.so.1")));
        }
    }
}
