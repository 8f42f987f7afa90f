//! Files mapped into memory: the one module with unsafe code, since there is no other way to map.
//!
//! A map shows the file as it is at each moment. Another process that writes into the file changes the elements under the
//! reader; one that shortens it makes the system raise SIGBUS where the missing part is read. Unix: the first map installs a
//! handler for the latter, which says so and ends the process with exit code 1. It knows bytes and types, no formats.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

use bytemuck::Pod;
use memmap2::Mmap;

/// A whole file, mapped to be read.
#[derive(Clone, Debug)]
pub struct FileMap(Arc<Mmap>);

/// Some elements of a mapped file.
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
    /// Where the system cannot map it, as with pipes and devices.
    pub fn new(file: &File) -> io::Result<FileMap> {
        #[cfg(unix)]
        shrinking::explain();
        // SAFETY: the map is read-only and lives as long as whatever borrows from it. What remains is that the file may be
        // changed from outside while it is read. Its bytes are then read as numbers, for which every bit pattern is valid, and
        // nothing is ever derived from them that memory safety rests on; headers are copied before they are looked at.
        unsafe { Mmap::map(file) }.map(|map| FileMap(Arc::new(map)))
    }

    /// The file's content.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// `len` elements from `start` bytes on, or `None` where they are not all there or not aligned. The system is told that they
    /// will be needed.
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

/// What is said and done where a mapped file gets shorter while it is read.
#[cfg(unix)]
mod shrinking {
    use std::sync::Once;

    use libc::{c_int, c_void, siginfo_t};

    const LINE: &[u8] = b"error: an input file shrank while it was read\n";

    /// Installs the handler, once.
    pub fn explain() {
        static ONCE: Once = Once::new();
        // SAFETY: `handler` has the signature that SA_SIGINFO asks for and calls async-signal-safe functions only; the structure
        // is plain data for which zero is valid, and lives through the call.
        ONCE.call_once(|| unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handler as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            libc::sigemptyset(&mut action.sa_mask);
            libc::sigaction(libc::SIGBUS, &action, std::ptr::null_mut());
        });
    }

    /// Ends the process with a line where the address has no file behind it, and as by default where SIGBUS means something else.
    extern "C" fn handler(signal: c_int, info: *mut siginfo_t, _: *mut c_void) {
        // SAFETY: the system hands over a valid `info`; write, _exit and signal are async-signal-safe.
        unsafe {
            if (*info).si_code == libc::BUS_ADRERR {
                libc::write(libc::STDERR_FILENO, LINE.as_ptr().cast(), LINE.len());
                libc::_exit(1);
            }
            // The access is repeated when the handler returns, and then ends the process.
            libc::signal(signal, libc::SIG_DFL);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn elements_are_whole_aligned_and_within_the_file() {
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
