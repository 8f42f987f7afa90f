//! Fault injection: memory fails at the n-th allocation, thread creation from the n-th on, for
//! every n.
//!
//! The test has its own `main`. Its allocator fails, and its `pthread_create` replaces the C
//! library's, which the standard library calls for every thread. `sched_getaffinity` reports eight
//! processors. Rayon's pool is created once per process, so each number of threads has a process.
//!
//! Allocations of [`MIN_FAILING_BYTES`] bytes and more fail, which are all whose size depends on
//! the caller's matrices. Smaller ones are bookkeeping and messages of a fixed size, for which Rust
//! aborts the process when memory is exhausted. A system without that little memory cannot report
//! an error either.
#![cfg(target_os = "linux")]

use std::alloc::{GlobalAlloc, Layout as MemoryLayout, System};
use std::ffi::{c_int, c_void};
use std::process::{Command, ExitCode};
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicIsize, AtomicUsize};

use tegula::element::{Element, Scalar, Type, with_operand_type};
use tegula::epilogue::Activation;
use tegula::nd::{self, NdArray, NdGemm};
use tegula::{Device, Error, Gemm, Grouped, Matrix, Result, Shape, matmul};
use tegula_bench::oracle;
use tegula_core::threads;

/// Size of the smallest allocation that fails, in bytes.
const MIN_FAILING_BYTES: usize = 4096;

/// Allocations that succeed before the first failure; negative for no failure.
static ALLOCATIONS_BEFORE_FAILURE: AtomicIsize = AtomicIsize::new(-1);
/// Number of consecutive failures.
static FAILURES: AtomicUsize = AtomicUsize::new(0);
/// Number of failures so far.
static FAILED: AtomicUsize = AtomicUsize::new(0);

struct FailingAllocator;

fn fails(bytes: usize) -> bool {
    if bytes < MIN_FAILING_BYTES || ALLOCATIONS_BEFORE_FAILURE.load(SeqCst) < 0 {
        return false;
    }
    let fail = ALLOCATIONS_BEFORE_FAILURE
        .fetch_update(SeqCst, SeqCst, |left| if left > 0 { Some(left - 1) } else { None })
        .is_err();
    fail && FAILED.fetch_add(1, SeqCst) < FAILURES.load(SeqCst)
}

// SAFETY: all allocations are those of `System`.
unsafe impl GlobalAlloc for FailingAllocator {
    unsafe fn alloc(&self, layout: MemoryLayout) -> *mut u8 {
        // SAFETY: the caller's promise.
        if fails(layout.size()) { std::ptr::null_mut() } else { unsafe { System.alloc(layout) } }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: MemoryLayout) {
        // SAFETY: the caller's promise; all memory is from `System`.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: MemoryLayout, bytes: usize) -> *mut u8 {
        // SAFETY: as above.
        if fails(bytes) { std::ptr::null_mut() } else { unsafe { System.realloc(at, layout, bytes) } }
    }
}

#[global_allocator]
static ALLOCATOR: FailingAllocator = FailingAllocator;

/// Threads that may be created; negative for no limit.
static THREADS_GRANTED: AtomicIsize = AtomicIsize::new(-1);
/// Environment variable that sets the limit in a child process.
const THREADS_VARIABLE: &str = "TEGULA_TEST_THREADS";

type Create = unsafe extern "C" fn(*mut c_void, *const c_void, *const c_void, *mut c_void) -> c_int;

/// Replaces the C library's function.
///
/// # Safety
/// As for the C library's function.
#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_create(
    thread: *mut c_void,
    how: *const c_void,
    start: *const c_void,
    with: *mut c_void,
) -> c_int {
    if THREADS_GRANTED
        .fetch_update(SeqCst, SeqCst, |left| if left == 0 { None } else { Some((left - 1).max(-1)) })
        .is_err()
    {
        return libc::EAGAIN;
    }
    // SAFETY: the next definition is the C library's, and the arguments are the caller's.
    unsafe {
        let next = libc::dlsym(libc::RTLD_NEXT, c"pthread_create".as_ptr());
        std::mem::transmute::<*mut c_void, Create>(next)(thread, how, start, with)
    }
}

/// Reports eight processors, regardless of the machine.
///
/// # Safety
/// `set` points to `bytes` writable bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn sched_getaffinity(_: c_int, bytes: usize, set: *mut u8) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        set.write_bytes(0, bytes);
        set.write(0xFF);
    }
    0
}

fn main() -> ExitCode {
    if let Some(granted) = std::env::var(THREADS_VARIABLE).ok().and_then(|text| text.parse().ok()) {
        check_with_threads(granted);
        return ExitCode::SUCCESS;
    }
    let filter = std::env::args().skip(1).find(|argument| !argument.starts_with('-')).unwrap_or_default();
    let tests: [(&str, fn()); 2] = [
        ("allocation_failure_is_an_out_of_memory_error", allocation_failures),
        ("thread_creation_failure_reduces_the_pool", every_thread_count),
    ];
    for (name, test) in tests.into_iter().filter(|(name, _)| name.contains(&filter)) {
        test();
        println!("test {name} ... ok");
    }
    ExitCode::SUCCESS
}

// Threads.

/// Checks products, a reference and a kernel with a limit on threads.
fn check_with_threads(granted: isize) {
    THREADS_GRANTED.store(granted, SeqCst);
    let asked: usize = std::env::var("RAYON_NUM_THREADS").ok().and_then(|text| text.parse().ok()).unwrap_or(usize::MAX);
    // A quota of the control group may leave fewer processors than eight.
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let expected = (granted as usize).min(asked).min(processors).max(1);
    assert_eq!(threads::count(), expected, "{granted} granted");
    let a = Matrix::from_fn(130, 140, |i, j| (i * 3 + j) as f32 % 7.0 - 3.0).unwrap();
    let c = matmul(&a, a.view().t()).unwrap();
    let large =
        Matrix::from_shape_fn(Shape { batches: 400, rows: 16, cols: 16 }, |b, i, j| ((b + i * j) % 5) as f32).unwrap();
    matmul(&large, &large).unwrap();
    let report = oracle::check::<f32>(1.0, a.view(), a.view().t(), 0.0, None, c.view()).unwrap();
    assert!(report.within(oracle::bound::<f32>(140)), "{report:?}");
    let block = a.view().rows(..40).unwrap();
    let block = block.cols(..8).unwrap();
    let mut again = Matrix::<f32>::zeros(40, 40).unwrap();
    Gemm::new(block, block.t(), again.view_mut()).on(&Device::interp()).run().unwrap();
    assert_eq!(matmul(block, block.t()).unwrap(), again);
    // A caller in another thread, with no limit.
    THREADS_GRANTED.store(-1, SeqCst);
    std::thread::scope(|scope| scope.spawn(|| assert_eq!(matmul(&a, a.view().t()).unwrap(), c)).join().unwrap());
}

fn every_thread_count() {
    let program = std::env::current_exe().unwrap();
    for granted in 0..=9 {
        for asked in if granted < 9 { vec![None, Some("3")] } else { vec![None, Some("5000")] } {
            let mut run = Command::new(&program);
            run.env(THREADS_VARIABLE, granted.to_string()).env_remove("RAYON_NUM_THREADS");
            asked.iter().for_each(|asked| _ = run.env("RAYON_NUM_THREADS", asked));
            let output = run.output().unwrap();
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{granted} granted, {asked:?} asked: {}\n{errors}", output.status);
        }
    }
}

// Memory.

/// Number of out-of-memory errors.
static OUT_OF_MEMORY_ERRORS: AtomicUsize = AtomicUsize::new(0);

/// Runs `work` repeatedly, each time with the next allocation failing, alone or with all later
/// ones, until none fails. Memory that threads keep between products is not allocated again.
fn fail_every_allocation<R>(name: &str, mut work: impl FnMut() -> Result<R>) {
    let mut errors = 0;
    for failures in [1, usize::MAX] {
        for before in 0.. {
            assert!(before < 10_000, "{name}: still failing after 10,000 allocations");
            FAILED.store(0, SeqCst);
            FAILURES.store(failures, SeqCst);
            ALLOCATIONS_BEFORE_FAILURE.store(before, SeqCst);
            let result = work();
            ALLOCATIONS_BEFORE_FAILURE.store(-1, SeqCst);
            let failed = FAILED.load(SeqCst);
            match result {
                Ok(_) if failed == 0 => break,
                // A failed allocation may have a fallback.
                Ok(_) => {}
                Err(Error::OutOfMemory { .. }) => {
                    assert!(failed > 0, "{name}: out of memory although no allocation failed");
                    errors += 1;
                }
                Err(other) => panic!("{name}, allocation {before}: {other}"),
            }
        }
    }
    println!("{name}: {errors} errors");
    OUT_OF_MEMORY_ERRORS.fetch_add(errors, SeqCst);
}

fn check_type<T: Element>() {
    let name = |what: &str| format!("{} {what}", T::TYPE);
    let filled = |batches, rows, cols| {
        Matrix::from_shape_fn(Shape { batches, rows, cols }, |b, i, j| T::from_bits(((b + 2 * i + j) % 3) as u64))
            .unwrap()
    };
    let (a, b) = (filled(1, 90, 300), filled(1, 300, 70));
    fail_every_allocation(&name("matmul"), || matmul(&a, &b));
    let one = T::Acc::ONE;
    let mut c = Matrix::<T::Out>::zeros(180, 140).unwrap();
    let bias = Matrix::<T::Out>::zeros(1, 70).unwrap();
    fail_every_allocation(&name("Gemm with strides, beta, bias and ReLU"), || {
        let c = c.view_mut().step_by(2, 2)?.flip_rows();
        let product = Gemm::new(a.view().flip_cols(), b.view().flip_rows(), c).alpha(one).beta(one);
        product.bias(bias.view()).activation(Activation::Relu).on(&Device::cpu()).run()
    });
    let long = filled(1, 40, 9000);
    fail_every_allocation(&name("long k"), || matmul(&long, long.view().t()));
    let batch = filled(70, 30, 31);
    fail_every_allocation(&name("batch"), || matmul(&batch, batch.view().t()));
    fail_every_allocation(&name("prepack"), || {
        let packed = Gemm::prepack(b.view())?;
        let mut c = Matrix::zeros(90, 70)?;
        Gemm::with_prepacked(a.view(), &packed, c.view_mut()).on(&Device::cpu()).run()
    });
    let experts = filled(5, 300, 40);
    fail_every_allocation(&name("Grouped"), || {
        let mut c = Matrix::zeros(90, 40)?;
        Grouped::new(a.view(), experts.view(), c.view_mut(), &[10, 0, 50, 30, 0]).on(&Device::cpu()).run()
    });
    let sizes = vec![0; 3000];
    let none = a.view().rows(..0).unwrap();
    let weights = filled(1, 300, 1);
    fail_every_allocation(&name("Grouped of 3000"), || {
        let weights = weights.view().broadcast(Shape { batches: sizes.len(), rows: 300, cols: 1 })?;
        let mut c = Matrix::zeros(0, 1)?;
        Grouped::new(none, weights, c.view_mut(), &sizes).on(&Device::cpu()).run()
    });
    let stack = NdArray::from_vec(&[3, 2, 90, 300], a.as_slice().repeat(6)).unwrap();
    fail_every_allocation(&name("nd"), || nd::matmul(&stack, b.view()));
    fail_every_allocation(&name("NdGemm"), || {
        let mut c = NdArray::zeros(&[3, 2, 90, 70])?;
        NdGemm::new(stack.view(), b.view().into(), c.view_mut()).alpha(one).on(&Device::cpu()).run()
    });
    fail_every_allocation(&name("copy"), || stack.view().t().to_array());
    let (a, b) = (filled(1, 40, 64), filled(1, 64, 30));
    let c = matmul(&a, &b).unwrap();
    fail_every_allocation(&name("reference"), || {
        oracle::reference(one, a.view(), b.view(), T::Acc::ZERO, None)?;
        oracle::errors(one, a.view(), b.view(), T::Acc::ZERO, None, c.view())?;
        oracle::check(one, a.view(), b.view(), one, Some(c.view()), c.view())
    });
}

fn allocation_failures() {
    // Create the pool and run one-time queries first, so that every run has the same allocations.
    threads::count();
    tegula_core::host::available();
    for ty in Type::OPERANDS {
        let before = OUT_OF_MEMORY_ERRORS.load(SeqCst);
        with_operand_type!(ty, T => check_type::<T>(), ty => panic!("no products of {ty}"));
        assert!(OUT_OF_MEMORY_ERRORS.load(SeqCst) > before, "no product ran out of memory");
    }
}
