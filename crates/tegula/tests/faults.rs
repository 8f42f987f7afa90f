//! What the system refuses: memory at the n-th allocation, and threads from the n-th on, for every n.
//!
//! The test is a program of its own. Its allocator refuses, and its `pthread_create` stands before the C library's, which the standard library calls for
//! every thread; `sched_getaffinity` says that there are eight processors. Rayon's pool is made once in a process, so each number of threads has one.
//!
//! Refused are allocations of [`LEAST`] bytes and more, all whose size depends on the caller's matrices. Below that are bookkeeping and messages of a fixed
//! size, for which Rust ends the process when memory is gone: a system that has not so little left cannot say so either.
#![cfg(target_os = "linux")]

use std::alloc::{GlobalAlloc, Layout as Block, System};
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

/// Bytes of the smallest allocation that is refused.
const LEAST: usize = 4096;

/// Allocations that succeed before the first that is refused; a negative number refuses none.
static BEFORE: AtomicIsize = AtomicIsize::new(-1);
/// How many are refused then.
static REFUSED: AtomicUsize = AtomicUsize::new(0);
/// How many have been.
static SO_FAR: AtomicUsize = AtomicUsize::new(0);

struct Scarce;

fn refuses(bytes: usize) -> bool {
    if bytes < LEAST || BEFORE.load(SeqCst) < 0 {
        return false;
    }
    let refuse = BEFORE.fetch_update(SeqCst, SeqCst, |left| if left > 0 { Some(left - 1) } else { None }).is_err();
    refuse && SO_FAR.fetch_add(1, SeqCst) < REFUSED.load(SeqCst)
}

// SAFETY: what is granted is the system's.
unsafe impl GlobalAlloc for Scarce {
    unsafe fn alloc(&self, block: Block) -> *mut u8 {
        // SAFETY: the caller's promise.
        if refuses(block.size()) { std::ptr::null_mut() } else { unsafe { System.alloc(block) } }
    }

    unsafe fn dealloc(&self, at: *mut u8, block: Block) {
        // SAFETY: the caller's promise; all memory is the system's.
        unsafe { System.dealloc(at, block) }
    }

    unsafe fn realloc(&self, at: *mut u8, block: Block, bytes: usize) -> *mut u8 {
        // SAFETY: as above.
        if refuses(bytes) { std::ptr::null_mut() } else { unsafe { System.realloc(at, block, bytes) } }
    }
}

#[global_allocator]
static MEMORY: Scarce = Scarce;

/// Threads that are granted; a negative number is any.
static THREADS: AtomicIsize = AtomicIsize::new(-1);
/// The variable that says how many to a process of its own.
const GRANTED: &str = "TEGULA_TEST_THREADS";

type Create = unsafe extern "C" fn(*mut c_void, *const c_void, *const c_void, *mut c_void) -> c_int;

/// Stands before the C library's.
///
/// # Safety
/// As that asks.
#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_create(
    thread: *mut c_void,
    how: *const c_void,
    start: *const c_void,
    with: *mut c_void,
) -> c_int {
    if THREADS.fetch_update(SeqCst, SeqCst, |left| if left == 0 { None } else { Some((left - 1).max(-1)) }).is_err() {
        return libc::EAGAIN;
    }
    // SAFETY: the next definition is the C library's, and the arguments are as it asks.
    unsafe {
        let next = libc::dlsym(libc::RTLD_NEXT, c"pthread_create".as_ptr());
        std::mem::transmute::<*mut c_void, Create>(next)(thread, how, start, with)
    }
}

/// Eight processors, whatever there are.
///
/// # Safety
/// `set` has room for `bytes`.
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
    if let Some(granted) = std::env::var(GRANTED).ok().and_then(|text| text.parse().ok()) {
        with_threads(granted);
        return ExitCode::SUCCESS;
    }
    let filter = std::env::args().skip(1).find(|argument| !argument.starts_with('-')).unwrap_or_default();
    let tests: [(&str, fn()); 2] =
        [("allocation_that_fails_is_a_typed_error", memory), ("thread_that_fails_is_done_without", every_count)];
    for (name, test) in tests.into_iter().filter(|(name, _)| name.contains(&filter)) {
        test();
        println!("test {name} ... ok");
    }
    ExitCode::SUCCESS
}

// Threads.

/// Products, a reference and a kernel with so many threads granted.
fn with_threads(granted: isize) {
    THREADS.store(granted, SeqCst);
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
    let few = a.view().rows(..40).unwrap();
    let few = few.cols(..8).unwrap();
    let mut again = Matrix::<f32>::zeros(40, 40).unwrap();
    Gemm::new(few, few.t(), again.view_mut()).on(&Device::interp()).run().unwrap();
    assert_eq!(matmul(few, few.t()).unwrap(), again);
    // A caller in a thread of its own, where one can be had.
    THREADS.store(-1, SeqCst);
    std::thread::scope(|scope| scope.spawn(|| assert_eq!(matmul(&a, a.view().t()).unwrap(), c)).join().unwrap());
}

fn every_count() {
    let program = std::env::current_exe().unwrap();
    for granted in 0..=9 {
        for asked in if granted < 9 { vec![None, Some("3")] } else { vec![None, Some("5000")] } {
            let mut run = Command::new(&program);
            run.env(GRANTED, granted.to_string()).env_remove("RAYON_NUM_THREADS");
            asked.iter().for_each(|asked| _ = run.env("RAYON_NUM_THREADS", asked));
            let output = run.output().unwrap();
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{granted} granted, {asked:?} asked: {}\n{errors}", output.status);
        }
    }
}

// Memory.

/// Products that were refused for want of memory.
static ERRORS: AtomicUsize = AtomicUsize::new(0);

/// Runs `work` again and again, each time with the next allocation refused, alone or with all behind it, until none is refused any more.
/// What threads keep from product to product is not asked for again.
fn every_allocation<R>(name: &str, mut work: impl FnMut() -> Result<R>) {
    let mut errors = 0;
    for refused in [1, usize::MAX] {
        for before in 0.. {
            assert!(before < 10_000, "{name}: no end");
            SO_FAR.store(0, SeqCst);
            REFUSED.store(refused, SeqCst);
            BEFORE.store(before, SeqCst);
            let result = work();
            BEFORE.store(-1, SeqCst);
            let refusals = SO_FAR.load(SeqCst);
            match result {
                Ok(_) if refusals == 0 => break,
                // What can be done without is.
                Ok(_) => {}
                Err(Error::OutOfMemory { .. }) => {
                    assert!(refusals > 0, "{name}: refused with memory for all");
                    errors += 1;
                }
                Err(other) => panic!("{name}, allocation {before}: {other}"),
            }
        }
    }
    println!("{name}: {errors} errors");
    ERRORS.fetch_add(errors, SeqCst);
}

fn of_type<T: Element>() {
    let name = |what: &str| format!("{} {what}", T::TYPE);
    let filled = |batches, rows, cols| {
        Matrix::from_shape_fn(Shape { batches, rows, cols }, |b, i, j| T::from_bits(((b + 2 * i + j) % 3) as u64))
            .unwrap()
    };
    let (a, b) = (filled(1, 90, 300), filled(1, 300, 70));
    every_allocation(&name("matmul"), || matmul(&a, &b));
    let one = T::Acc::ONE;
    let mut c = Matrix::<T::Out>::zeros(180, 140).unwrap();
    let bias = Matrix::<T::Out>::zeros(1, 70).unwrap();
    every_allocation(&name("Gemm with strides, beta, bias and ReLU"), || {
        let c = c.view_mut().step_by(2, 2)?.flip_rows();
        let product = Gemm::new(a.view().flip_cols(), b.view().flip_rows(), c).alpha(one).beta(one);
        product.bias(bias.view()).activation(Activation::Relu).on(&Device::cpu()).run()
    });
    let long = filled(1, 40, 9000);
    every_allocation(&name("long sums"), || matmul(&long, long.view().t()));
    let many = filled(70, 30, 31);
    every_allocation(&name("batch"), || matmul(&many, many.view().t()));
    every_allocation(&name("prepack"), || {
        let packed = Gemm::prepack(b.view())?;
        let mut c = Matrix::zeros(90, 70)?;
        Gemm::with_prepacked(a.view(), &packed, c.view_mut()).on(&Device::cpu()).run()
    });
    let experts = filled(5, 300, 40);
    every_allocation(&name("Grouped"), || {
        let mut c = Matrix::zeros(90, 40)?;
        Grouped::new(a.view(), experts.view(), c.view_mut(), &[10, 0, 50, 30, 0]).on(&Device::cpu()).run()
    });
    let sizes = vec![0; 3000];
    let none = a.view().rows(..0).unwrap();
    let weights = filled(1, 300, 1);
    every_allocation(&name("Grouped of many"), || {
        let weights = weights.view().broadcast(Shape { batches: sizes.len(), rows: 300, cols: 1 })?;
        let mut c = Matrix::zeros(0, 1)?;
        Grouped::new(none, weights, c.view_mut(), &sizes).on(&Device::cpu()).run()
    });
    let stack = NdArray::from_vec(&[3, 2, 90, 300], a.as_slice().repeat(6)).unwrap();
    every_allocation(&name("nd"), || nd::matmul(&stack, b.view()));
    every_allocation(&name("NdGemm"), || {
        let mut c = NdArray::zeros(&[3, 2, 90, 70])?;
        NdGemm::new(stack.view(), b.view().into(), c.view_mut()).alpha(one).on(&Device::cpu()).run()
    });
    every_allocation(&name("copy"), || stack.view().t().to_array());
    let (a, b) = (filled(1, 40, 64), filled(1, 64, 30));
    let c = matmul(&a, &b).unwrap();
    every_allocation(&name("reference"), || {
        oracle::product(one, a.view(), b.view(), T::Acc::ZERO, None)?;
        oracle::errors(one, a.view(), b.view(), T::Acc::ZERO, None, c.view())?;
        oracle::check(one, a.view(), b.view(), one, Some(c.view()), c.view())
    });
}

fn memory() {
    // One that lasts, so that what is counted is the same each time: the pool is made, and what the library asks once is asked.
    threads::count();
    tegula_core::host::available();
    for ty in Type::OPERANDS {
        let before = ERRORS.load(SeqCst);
        with_operand_type!(ty, T => of_type::<T>(), ty => panic!("no products of {ty}"));
        assert!(ERRORS.load(SeqCst) > before, "nothing was refused");
    }
}
