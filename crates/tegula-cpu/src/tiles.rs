//! Whether this machine offers the tiles of AMX.

use std::arch::asm;
use std::arch::x86_64::*;
use std::sync::OnceLock;

/// Whether the processor has AMX for bf16 and bytes, and the system lets this program use it: it is asked the first time.
pub fn is_available() -> bool {
    static HERE: OnceLock<bool> = OnceLock::new();
    *HERE.get_or_init(|| {
        let bits = |word: u32, bits: &[u32]| bits.iter().all(|bit| word >> bit & 1 == 1);
        // Tiles, of bf16 and of bytes; and that the system saves registers.
        let has = __cpuid(0).eax >= 7 && bits(__cpuid_count(7, 0).edx, &[22, 24, 25]) && bits(__cpuid(1).ecx, &[27]);
        // Every processor with tiles has these, for packing, rounding, and a few rows of bytes.
        let has = has
            && is_x86_feature_detected!("avx512vbmi")
            && is_x86_feature_detected!("avx512bf16")
            && is_x86_feature_detected!("avx512vnni");
        has && system_saves_tiles() && may_use_tiles()
    })
}

/// Whether the system keeps the tiles of a thread while others run.
fn system_saves_tiles() -> bool {
    let low: u32;
    // SAFETY: the processor said that the system has switched this instruction on.
    unsafe { asm!("xgetbv", in("ecx") 0, out("eax") low, out("edx") _, options(nomem, nostack)) };
    low >> 17 & 3 == 3
}

/// Linux gives tiles to programs that ask (its documentation, x86/xstate).
#[cfg(target_os = "linux")]
fn may_use_tiles() -> bool {
    const REQUEST: libc::c_long = 0x1023;
    const TILE_DATA: libc::c_long = 18;
    // SAFETY: the call takes two numbers and touches no memory.
    unsafe { libc::syscall(libc::SYS_arch_prctl, REQUEST, TILE_DATA) == 0 }
}

#[cfg(not(target_os = "linux"))]
fn may_use_tiles() -> bool {
    false
}
