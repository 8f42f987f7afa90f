//! The CPU call path from `matmul` to the micro-kernel has at most eight functions, none of them
//! long.
//!
//! A is in protected memory. The micro-kernel is the first to read it, so the signal is raised
//! there. The handler records the stack, unprotects the memory, and returns to the micro-kernel.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

mod stack;

use std::backtrace::Backtrace;
use std::ptr::{null_mut, without_provenance_mut};
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

use tegula::{View, matmul};

/// The protected memory, its size, and the thread whose stack is recorded.
static GUARDED: AtomicPtr<f32> = AtomicPtr::new(null_mut());
static BYTES: AtomicUsize = AtomicUsize::new(0);
static THREAD: AtomicI32 = AtomicI32::new(0);
/// Stack of the thread at its first read of that memory.
static STACK: Mutex<Option<Backtrace>> = Mutex::new(None);

fn reader_stack() -> MutexGuard<'static, Option<Backtrace>> {
    STACK.lock().unwrap()
}

fn protect(memory: *mut f32, bytes: usize, protection: i32) {
    // SAFETY: the memory is mapped, and only the micro-kernel reads it while it is protected.
    assert_eq!(unsafe { libc::mprotect(memory.cast(), bytes, protection) }, 0);
}

extern "C" fn on_fault(signal: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    let (memory, bytes) = (GUARDED.load(Ordering::Relaxed), BYTES.load(Ordering::Relaxed));
    // SAFETY: the system passes valid signal information.
    let at = unsafe { (*info).si_addr() }.addr();
    // SAFETY: no pointer is passed.
    let thread = unsafe { libc::gettid() };
    if !(memory.addr()..memory.addr() + bytes).contains(&at) {
        // SAFETY: any other fault ends the process, as by default.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    } else if thread == THREAD.load(Ordering::Relaxed) {
        *reader_stack() = Some(Backtrace::force_capture());
        protect(memory, bytes, libc::PROT_READ);
    } else {
        // Another worker read first: it retries until the caller has read.
        std::thread::yield_now();
    }
}

/// Functions on the caller's stack when the micro-kernel reads A, for n×n matrices.
fn call_path(n: usize) -> Vec<String> {
    let bytes = (n * n * size_of::<f32>()).next_multiple_of(4096);
    let (read, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping, zero-filled.
    let memory = unsafe { libc::mmap(without_provenance_mut(0), bytes, read, flags, -1, 0) }.cast::<f32>();
    assert_ne!(memory.cast(), libc::MAP_FAILED);
    // SAFETY: it holds n² elements, which are never written.
    let a = View::new(unsafe { std::slice::from_raw_parts(memory, n * n) }, n, n).unwrap();
    let ones = vec![1f32; n * n];
    let b = View::new(&ones, n, n).unwrap();
    GUARDED.store(memory, Ordering::Relaxed);
    BYTES.store(bytes, Ordering::Relaxed);
    // SAFETY: no pointer is passed.
    THREAD.store(unsafe { libc::gettid() }, Ordering::Relaxed);
    // SAFETY: a zeroed structure is valid and has no flags.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = on_fault as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO;
    // SAFETY: the handler has the signature that SA_SIGINFO requires.
    assert_eq!(unsafe { libc::sigaction(libc::SIGSEGV, &action, null_mut()) }, 0);
    protect(memory, bytes, libc::PROT_NONE);
    let c = matmul(a, b).unwrap();
    assert!(c.as_slice().iter().all(|&x| x == 0.0));
    // SAFETY: the memory is no longer used.
    assert_eq!(unsafe { libc::munmap(memory.cast(), bytes) }, 0);
    let stack = reader_stack().take().expect("the micro-kernel read A");
    let frames = stack::frames(&stack);
    stack::names(&frames).into_iter().map(str::to_owned).collect()
}

#[test]
fn path_from_matmul_to_the_micro_kernel_is_eight_functions() {
    let all = ["micro_kernel", "macro_kernel", "parallel_phases", "run", "run", "gemm_with_options", "run", "matmul"];
    let unblocked =
        ["micro_kernel", "run_micro_tiles", "run", "run_in_steps", "run", "gemm_with_options", "run", "matmul"];
    let small = ["micro_kernel", "run_micro_tiles", "run", "multiply_small", "small_as", "gemm_small", "run", "matmul"];
    // Outside a rayon pool the global thread pool shares the work; a pool of one thread runs it
    // alone.
    let all_of = |path: Vec<String>| {
        let names = path.iter().map(|name| if name == "macro_kernel_first_rows" { "macro_kernel" } else { name });
        assert_eq!(names.collect::<Vec<_>>(), all);
    };
    all_of(call_path(512));
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    all_of(pool.install(|| call_path(512)));
    assert_eq!(call_path(65), unblocked);
    assert_eq!(call_path(64), small);
}
