//! Detection of AMX.

use std::arch::asm;
use std::arch::x86_64::*;
use std::sync::OnceLock;

/// Whether the CPU has AMX for bf16 and bytes, and the system permits this process to use it. The
/// first call requests the permission.
pub fn is_available() -> bool {
    static AVAILABLE: OnceLock<bool> = OnceLock::new();
    *AVAILABLE.get_or_init(|| {
        let bits = |word: u32, bits: &[u32]| bits.iter().all(|bit| word >> bit & 1 == 1);
        // AMX-TILE, AMX-BF16 and AMX-INT8; and OSXSAVE.
        let has = __cpuid(0).eax >= 7 && bits(__cpuid_count(7, 0).edx, &[22, 24, 25]) && bits(__cpuid(1).ecx, &[27]);
        // Every CPU with AMX has these features, for packing, rounding, and a few rows.
        let has = has
            && is_x86_feature_detected!("avx512vbmi")
            && is_x86_feature_detected!("avx512bf16")
            && is_x86_feature_detected!("avx512vnni");
        has && os_saves_tiles() && request_permission()
    })
}

/// Whether the operating system saves tile registers at a context switch (XCR0, bits 17 and 18).
fn os_saves_tiles() -> bool {
    let low: u32;
    // SAFETY: OSXSAVE says that the operating system has enabled this instruction.
    unsafe { asm!("xgetbv", in("ecx") 0, out("eax") low, out("edx") _, options(nomem, nostack)) };
    low >> 17 & 3 == 3
}

/// Requests permission for tile data, as Linux requires (its documentation, x86/xstate).
#[cfg(target_os = "linux")]
fn request_permission() -> bool {
    const ARCH_REQ_XCOMP_PERM: libc::c_long = 0x1023;
    const XFEATURE_XTILEDATA: libc::c_long = 18;
    // SAFETY: the call takes two numbers and accesses no memory.
    unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0 }
}

#[cfg(not(target_os = "linux"))]
fn request_permission() -> bool {
    false
}
