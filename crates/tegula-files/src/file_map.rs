//! Memory-mapped files: the only module with unsafe code, which mapping requires.
//!
//! A map shows the current content of the file. If another process writes to the file, the elements
//! change. If it truncates the file, reading the missing part raises SIGBUS. Unix: the first map
//! installs a handler that reports this and terminates the process with exit code 1. The module
//! depends on bytes and types, not on formats.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

use bytemuck::Pod;
use memmap2::Mmap;

/// A read-only memory map of a whole file.
#[derive(Clone, Debug)]
pub struct FileMap(Arc<Mmap>);

/// Elements of a memory-mapped file.
#[derive(Clone, Debug)]
pub struct Mapped<T> {
    map: FileMap,
    bytes: Range<usize>,
    elements: PhantomData<T>,
}

impl FileMap {
    /// Maps a file.
    ///
    /// # Errors
    /// If the system cannot map the file, such as a pipe or device.
    pub fn new(file: &File) -> io::Result<FileMap> {
        #[cfg(unix)]
        truncation::install_handler();
        // SAFETY: the map is read-only and lives as long as its borrows. Another process may still
        // modify the file while it is read. Its bytes are read as numbers, for which every bit
        // pattern is valid. Memory safety never depends on them; headers are copied before they are
        // parsed.
        unsafe { Mmap::map(file) }.map(|map| FileMap(Arc::new(map)))
    }

    /// Content of the file.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Maps `len` elements at byte `start`, and advises the system to prefetch them.
    ///
    /// `None` if they are out of bounds or unaligned.
    pub fn elements<T: Pod>(&self, start: usize, len: usize) -> Option<Mapped<T>> {
        let bytes = start..start.checked_add(len.checked_mul(size_of::<T>())?)?;
        bytemuck::try_cast_slice::<u8, T>(self.0.get(bytes.clone())?).ok()?;
        #[cfg(unix)]
        let _ = self.0.advise_range(memmap2::Advice::WillNeed, bytes.start, bytes.len());
        Some(Mapped { map: self.clone(), bytes, elements: PhantomData })
    }
}

impl<T: Pod> Mapped<T> {
    /// The elements.
    pub fn as_slice(&self) -> &[T] {
        bytemuck::cast_slice(&self.map.0[self.bytes.clone()])
    }
}

/// Handler for a memory-mapped file that is truncated while it is read.
#[cfg(unix)]
mod truncation {
    use std::sync::Once;

    use libc::{c_int, c_void, siginfo_t};

    const MESSAGE: &[u8] = b"error: an input file shrank while it was read\n";

    /// Installs the handler once per process.
    pub fn install_handler() {
        static ONCE: Once = Once::new();
        // SAFETY: `handler` has the signature for SA_SIGINFO and calls async-signal-safe functions
        // only. Zero is valid for the structure, which lives through the call.
        ONCE.call_once(|| unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handler as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            libc::sigemptyset(&mut action.sa_mask);
            libc::sigaction(libc::SIGBUS, &action, std::ptr::null_mut());
        });
    }

    /// Terminates with a message if the address is beyond the end of a file, else as by default.
    extern "C" fn handler(signal: c_int, info: *mut siginfo_t, _: *mut c_void) {
        // SAFETY: the system passes a valid `info`; write, _exit and signal are async-signal-safe.
        unsafe {
            if (*info).si_code == libc::BUS_ADRERR {
                libc::write(libc::STDERR_FILENO, MESSAGE.as_ptr().cast(), MESSAGE.len());
                libc::_exit(1);
            }
            // The access is repeated when the handler returns, and then terminates the process.
            libc::signal(signal, libc::SIG_DFL);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn file_map_elements_are_aligned_and_in_bounds() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[1, 0, 2, 0, 3]).unwrap();
        let map = FileMap::new(&file).unwrap();
        assert_eq!(map.elements::<u16>(0, 2).unwrap().as_slice(), [1u16.to_le(), 2u16.to_le()]);
        assert_eq!(map.elements::<u8>(1, 4).unwrap().as_slice(), [0, 2, 0, 3]);
        for (start, len) in [(1, 1), (0, 3), (4, 1), (6, 0), (usize::MAX, 1), (2, usize::MAX)] {
            assert!(map.elements::<u16>(start, len).is_none(), "{len} from {start}");
        }
        drop(file);
        assert_eq!(map.as_bytes().len(), 5);
    }
}
