//! Caches of this CPU.

use std::sync::OnceLock;

/// Bytes of a cache line.
pub const LINE: usize = 64;

/// The data caches of a core: sizes in bytes, and whether they need prefetches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caches {
    /// L1 cache.
    pub l1: usize,
    /// L2 cache, or the L1 cache where a core has no L2 cache.
    pub l2: usize,
    /// Whether rows that are far apart are read faster with prefetches. Measured on Zen 5; on
    /// Sapphire Rapids, which fetches 32 such rows ahead by itself, they gain nothing.
    pub need_prefetch: bool,
    /// Costs of data that several cores use.
    pub sharing: Sharing,
}

/// Costs of data that several cores use. Measured with two threads of a Zen 4, where cores of
/// different L3 caches may share data, and with 16 of a Sapphire Rapids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sharing {
    /// Bytes per cycle that a core reads of what another has just written.
    pub written_rate: usize,
    /// Cycles to write to a cache line that another core writes to as well.
    pub line: usize,
}

impl Sharing {
    const AMD: Sharing = Sharing { written_rate: 3, line: 200 };
    pub const INTEL: Sharing = Sharing { written_rate: 8, line: 40 };
}

impl Caches {
    /// The sizes where the CPU does not report any.
    const DEFAULT: Caches = Caches { l1: 32 << 10, l2: 512 << 10, need_prefetch: false, sharing: Sharing::INTEL };

    /// The cache sizes of this CPU, detected once.
    pub fn detect() -> Caches {
        static DETECTED: OnceLock<Caches> = OnceLock::new();
        *DETECTED.get_or_init(|| {
            let found =
                [1, 2].map(|level| cpuid_caches().into_iter().find(|cache| cache.0 == level).map(|cache| cache.1));
            match found {
                [Some(l1), l2] => {
                    let (amd, l2) = (is_amd(), l2.unwrap_or(l1).max(l1));
                    Caches { l1, l2, need_prefetch: amd, sharing: if amd { Sharing::AMD } else { Sharing::INTEL } }
                }
                _ => Caches::DEFAULT,
            }
        })
    }
}

/// Level and size in bytes of each data cache, by CPUID (Intel SDM, leaf 4; AMD APM, leaf
/// 8000_001D).
#[cfg(all(target_arch = "x86_64", not(miri)))]
fn cpuid_caches() -> Vec<(u32, usize)> {
    use std::arch::x86_64::{__cpuid, __cpuid_count};
    let amd = is_amd();
    let leaf = if amd { 0x8000_001D } else { 4 };
    if !amd && __cpuid(0).eax < 4 {
        return Vec::new();
    }
    let cache = |i| {
        let regs = __cpuid_count(leaf, i);
        let field = |word: u32, low: u32, bits: u32| (word >> low & ((1 << bits) - 1)) as usize + 1;
        let bytes =
            field(regs.ebx, 0, 12) * field(regs.ebx, 12, 10) * field(regs.ebx, 22, 10) * (regs.ecx as usize + 1);
        // Cache types: 0 ends the list, 2 is an instruction cache.
        (regs.eax & 31, regs.eax >> 5 & 7, bytes)
    };
    let list = (0..16).map(cache).take_while(|cache| cache.0 != 0);
    list.filter(|cache| cache.0 != 2).map(|(_, level, bytes)| (level, bytes)).collect()
}

#[cfg(any(not(target_arch = "x86_64"), miri))]
fn cpuid_caches() -> Vec<(u32, usize)> {
    Vec::new()
}

/// Whether this is an AMD CPU, by its leaf for caches.
#[cfg(all(target_arch = "x86_64", not(miri)))]
fn is_amd() -> bool {
    use std::arch::x86_64::__cpuid;
    __cpuid(0x8000_0000).eax >= 0x8000_001D && __cpuid(0x8000_0001).ecx >> 22 & 1 == 1
}

#[cfg(any(not(target_arch = "x86_64"), miri))]
fn is_amd() -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn detected_sizes_are_plausible() {
        let Caches { l1, l2, .. } = Caches::detect();
        assert!((8 << 10..=1 << 20).contains(&l1), "{l1}");
        assert!((l1..=64 << 20).contains(&l2), "{l2}");
    }
}
