//! Storage of global memory, which blocks access concurrently, and of local memory. Each byte has
//! an initialized flag.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

/// The memory of an allocation, in words of four bytes.
///
/// Blocks of a launch run on several cores of the host, so words are atomic: a race of the kernel
/// yields an unspecified value, but no undefined behavior of the interpreter.
#[derive(Debug)]
pub(crate) struct Storage {
    words: Vec<AtomicU32>,
    /// One bit for each byte; `None` if all bytes are initialized.
    initialized: Option<Vec<AtomicU32>>,
    pub len: u64,
}

impl Storage {
    /// Creates a storage of initialized or uninitialized bytes; `None` if out of memory.
    pub fn new(bytes: &[u8], initialized: bool) -> Option<Self> {
        let word = |chunk: &[u8]| {
            let mut word = [0; 4];
            word[..chunk.len()].copy_from_slice(chunk);
            AtomicU32::new(u32::from_le_bytes(word))
        };
        let mut words = Vec::new();
        words.try_reserve_exact(bytes.len().div_ceil(4)).ok()?;
        words.extend(bytes.chunks(4).map(word));
        let mut flags = Vec::new();
        if !initialized {
            flags.try_reserve_exact(bytes.len().div_ceil(32)).ok()?;
            flags.resize_with(bytes.len().div_ceil(32), || AtomicU32::new(0));
        }
        Some(Storage { words, initialized: (!initialized).then_some(flags), len: bytes.len() as u64 })
    }

    /// A copy of the bytes.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes: Vec<u8> = self.words.iter().flat_map(|word| word.load(Relaxed).to_le_bytes()).collect();
        bytes.truncate(self.len as usize);
        bytes
    }

    /// Loads 1, 2, 4 or 8 bytes at an aligned offset in bounds.
    #[inline]
    pub fn load(&self, offset: u64, size: u32) -> u64 {
        let at = (offset / 4) as usize;
        let word = |at: usize| u64::from(self.words[at].load(Relaxed));
        match size {
            8 => word(at) | word(at + 1) << 32,
            4 => word(at),
            _ => word(at) >> (8 * (offset % 4)) & ((1 << (8 * size)) - 1),
        }
    }

    /// Stores 1, 2, 4 or 8 bytes at an aligned offset in bounds; returns whether they change.
    #[inline]
    pub fn store(&self, offset: u64, size: u32, bits: u64) -> bool {
        self.mark_initialized(offset, size);
        let at = (offset / 4) as usize;
        let put = |at: usize, bits: u32| {
            let old = self.words[at].load(Relaxed);
            self.words[at].store(bits, Relaxed);
            old != bits
        };
        match size {
            8 => put(at, bits as u32) | put(at + 1, (bits >> 32) as u32),
            4 => put(at, bits as u32),
            _ => {
                let shift = 8 * (offset % 4) as u32;
                let mask = ((1u32 << (8 * size)) - 1) << shift;
                let insert = |old: u32| Some(old & !mask | (bits as u32) << shift & mask);
                let old = self.words[at].fetch_update(Relaxed, Relaxed, insert).unwrap_or_default();
                old & mask != (bits as u32) << shift & mask
            }
        }
    }

    #[inline]
    fn mark_initialized(&self, offset: u64, size: u32) {
        if let Some(flags) = &self.initialized {
            let mask = (((1u64 << size) - 1) as u32) << (offset % 32);
            flags[(offset / 32) as usize].fetch_or(mask, Relaxed);
        }
    }

    /// Whether all bytes of an aligned access are initialized.
    #[inline]
    pub fn is_initialized(&self, offset: u64, size: u32) -> bool {
        self.initialized.as_ref().is_none_or(|flags| {
            let mask = (((1u64 << size) - 1) as u32) << (offset % 32);
            flags[(offset / 32) as usize].load(Relaxed) & mask == mask
        })
    }
}

/// Bytes of one thread, each with an initialized flag.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bytes {
    bytes: Vec<u8>,
    initialized: Vec<bool>,
}

impl Bytes {
    /// Extends the memory to at least `len` bytes, with uninitialized bytes.
    pub fn reserve(&mut self, len: usize) {
        if self.bytes.len() < len {
            self.bytes.resize(len, 0);
            self.initialized.resize(len, false);
        }
    }

    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Loads up to 8 bytes in bounds.
    #[inline]
    pub fn load(&self, offset: usize, size: u32) -> u64 {
        let mut bits = [0; 8];
        bits[..size as usize].copy_from_slice(&self.bytes[offset..offset + size as usize]);
        u64::from_le_bytes(bits)
    }

    /// Stores up to 8 bytes in bounds; returns whether they change.
    #[inline]
    pub fn store(&mut self, offset: usize, size: u32, bits: u64) -> bool {
        let range = offset..offset + size as usize;
        let (new, old) = (&bits.to_le_bytes()[..size as usize], &mut self.bytes[range.clone()]);
        let changes = old != new;
        old.copy_from_slice(new);
        self.initialized[range].fill(true);
        changes
    }

    pub fn is_initialized(&self, offset: usize, size: u32) -> bool {
        self.initialized[offset..offset + size as usize].iter().all(|&byte| byte)
    }

    /// Marks all bytes from an offset on as uninitialized, as the frame of a new call is.
    pub fn forget_from(&mut self, offset: usize) {
        let from = offset.min(self.initialized.len());
        self.initialized[from..].fill(false);
    }

    pub fn copy_within(&mut self, from: usize, to: usize, len: usize) {
        self.bytes.copy_within(from..from + len, to);
        self.initialized.copy_within(from..from + len, to);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn storage_of_narrow_accesses_keeps_neighboring_bytes() {
        let storage = Storage::new(&[0xff; 10], true).unwrap();
        assert!(storage.store(5, 1, 0x12));
        assert!(!storage.store(5, 1, 0x12));
        assert_eq!(storage.load(4, 4), 0xffff_12ff);
        assert!(storage.store(0, 8, 0x0807_0605_0403_0201));
        assert_eq!(storage.load(6, 2), 0x0807);
        assert_eq!(storage.bytes()[8..], [0xff; 2]);
    }

    #[test]
    fn storage_tracks_initialized_bytes() {
        let storage = Storage::new(&[0; 16], false).unwrap();
        storage.store(8, 4, 1);
        assert!(storage.is_initialized(8, 4) && !storage.is_initialized(8, 8) && !storage.is_initialized(4, 4));
    }
}
