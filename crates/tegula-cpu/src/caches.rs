//! How large the caches of this machine are.

use std::sync::OnceLock;

/// Bytes of the data caches of a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caches {
    /// The first.
    pub l1: usize,
    /// The second; as the first where there is no other.
    pub l2: usize,
}

impl Caches {
    /// Of a machine that does not say.
    const USUAL: Caches = Caches { l1: 32 << 10, l2: 512 << 10 };

    /// Those of this machine; asked once.
    pub fn here() -> Caches {
        static HERE: OnceLock<Caches> = OnceLock::new();
        *HERE.get_or_init(|| {
            let found = [1, 2].map(|level| listed().into_iter().find(|cache| cache.0 == level).map(|cache| cache.1));
            match found {
                [Some(l1), l2] => Caches { l1, l2: l2.unwrap_or(l1).max(l1) },
                _ => Caches::USUAL,
            }
        })
    }
}

/// Level and bytes of each cache for data, as the processor lists them (Intel SDM, CPUID leaf 4; AMD APM, leaf 8000_001D).
#[cfg(all(target_arch = "x86_64", not(miri)))]
fn listed() -> Vec<(u32, usize)> {
    use std::arch::x86_64::{__cpuid, __cpuid_count};
    let amd = __cpuid(0x8000_0000).eax >= 0x8000_001D && __cpuid(0x8000_0001).ecx >> 22 & 1 == 1;
    let leaf = if amd { 0x8000_001D } else { 4 };
    if !amd && __cpuid(0).eax < 4 {
        return Vec::new();
    }
    let cache = |i| {
        let told = __cpuid_count(leaf, i);
        let field = |word: u32, low: u32, bits: u32| (word >> low & ((1 << bits) - 1)) as usize + 1;
        let bytes =
            field(told.ebx, 0, 12) * field(told.ebx, 12, 10) * field(told.ebx, 22, 10) * (told.ecx as usize + 1);
        // Kinds: 0 ends the list, 2 is for instructions.
        (told.eax & 31, told.eax >> 5 & 7, bytes)
    };
    let list = (0..16).map(cache).take_while(|cache| cache.0 != 0);
    list.filter(|cache| cache.0 != 2).map(|(_, level, bytes)| (level, bytes)).collect()
}

#[cfg(any(not(target_arch = "x86_64"), miri))]
fn listed() -> Vec<(u32, usize)> {
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn caches_are_of_a_size_that_caches_have() {
        let Caches { l1, l2 } = Caches::here();
        assert!((8 << 10..=1 << 20).contains(&l1), "{l1}");
        assert!((l1..=64 << 20).contains(&l2), "{l2}");
    }
}
