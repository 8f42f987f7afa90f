//! From `matmul` to the micro-kernel on the CPU are eight functions at most, none of them long.
//!
//! A lies in memory that may not be read. The micro-kernel is the first to read it, so the signal that follows stops there; the
//! handler notes the stack, lets the memory be read, and returns to the micro-kernel.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

mod stack;

use std::backtrace::Backtrace;
use std::ptr::{null_mut, without_provenance_mut};
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

use tegula::{View, matmul};

/// The memory that may not be read, its bytes, and the thread whose stack is wanted.
static GUARDED: AtomicPtr<f32> = AtomicPtr::new(null_mut());
static BYTES: AtomicUsize = AtomicUsize::new(0);
static THREAD: AtomicI32 = AtomicI32::new(0);
/// Its stack when it read that memory.
static STACK: Mutex<Option<Backtrace>> = Mutex::new(None);

fn stack_of_reader() -> MutexGuard<'static, Option<Backtrace>> {
    STACK.lock().unwrap()
}

fn protect(memory: *mut f32, bytes: usize, protection: i32) {
    // SAFETY: the memory is mapped, and nobody reads what may not be read but the micro-kernel.
    assert_eq!(unsafe { libc::mprotect(memory.cast(), bytes, protection) }, 0);
}

extern "C" fn on_fault(signal: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    let (memory, bytes) = (GUARDED.load(Ordering::Relaxed), BYTES.load(Ordering::Relaxed));
    // SAFETY: the system gives this signal with its information.
    let at = unsafe { (*info).si_addr() }.addr();
    // SAFETY: no pointer is passed.
    let thread = unsafe { libc::gettid() };
    if !(memory.addr()..memory.addr() + bytes).contains(&at) {
        // SAFETY: a fault that is not ours ends the process, as it would have.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    } else if thread == THREAD.load(Ordering::Relaxed) {
        *stack_of_reader() = Some(Backtrace::force_capture());
        protect(memory, bytes, libc::PROT_READ);
    } else {
        // Another worker was first: it tries again until the caller has come.
        std::thread::yield_now();
    }
}

/// The functions on the caller's stack when the micro-kernel reads A, for a product of two n×n matrices.
fn path(n: usize) -> Vec<String> {
    let bytes = (n * n * size_of::<f32>()).next_multiple_of(4096);
    let (read, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: new memory, of zeros.
    let memory = unsafe { libc::mmap(without_provenance_mut(0), bytes, read, flags, -1, 0) }.cast::<f32>();
    assert_ne!(memory.cast(), libc::MAP_FAILED);
    // SAFETY: it holds as many numbers, and nobody writes to them.
    let a = View::new(unsafe { std::slice::from_raw_parts(memory, n * n) }, n, n).unwrap();
    let ones = vec![1f32; n * n];
    let b = View::new(&ones, n, n).unwrap();
    GUARDED.store(memory, Ordering::Relaxed);
    BYTES.store(bytes, Ordering::Relaxed);
    // SAFETY: no pointer is passed.
    THREAD.store(unsafe { libc::gettid() }, Ordering::Relaxed);
    // SAFETY: a structure of zeros is one without flags.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = on_fault as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO;
    // SAFETY: the handler has the signature that SA_SIGINFO asks for.
    assert_eq!(unsafe { libc::sigaction(libc::SIGSEGV, &action, null_mut()) }, 0);
    protect(memory, bytes, libc::PROT_NONE);
    let c = matmul(a, b).unwrap();
    assert!(c.as_slice().iter().all(|&x| x == 0.0));
    // SAFETY: nobody reads it any more.
    assert_eq!(unsafe { libc::munmap(memory.cast(), bytes) }, 0);
    let stack = stack_of_reader().take().expect("the micro-kernel read A");
    let frames = stack::frames(&stack);
    stack::names(&frames).into_iter().map(str::to_owned).collect()
}

#[test]
fn path_from_matmul_to_the_micro_kernel_is_eight_functions() {
    let all = ["tile", "add_packed", "share", "run", "run", "gemm_told", "run", "matmul"];
    let small = ["tile", "add_as_it_lies", "run", "run", "gemm_told", "run", "matmul"];
    // Outside a pool of rayon the crew shares the work, in one of a single thread nobody does.
    assert_eq!(path(512), all);
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    assert_eq!(pool.install(|| path(512)), all);
    assert_eq!(path(32), small);
}
