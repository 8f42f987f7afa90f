//! Fault injection: the driver fails at its n-th call, for every n until a run sees no failure.
//! Each run ends in success or an error of the right kind, and frees all device memory. The handle
//! works again after the driver recovers.
//!
//! The driver is `fake_driver/cuda.c`, compiled here. The loader reads `LD_LIBRARY_PATH` when a
//! process starts, so a test runs its scenario in a child process. This also separates crashes and
//! hangs from failures. Without a C compiler the tests are skipped; `TEGULA_REQUIRE_CXX=1` makes
//! that a failure. `CXX` selects the compiler.
#![cfg(all(feature = "cuda", target_os = "linux"))]

mod stack;

use std::backtrace::Backtrace;
use std::ffi::{CStr, c_char, c_int, c_long};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{LazyLock, Mutex};
use std::time::{Duration, Instant};
use std::{env, fs};

use libloading::{Library, Symbol};
use tegula::cuda::{self, DeviceMatrix, ForeignLaunch, ForeignParam, Gpu};
use tegula::element::{Element, Scalar, bf16, f16};
use tegula::epilogue::Activation;
use tegula::tune::graph_timer::GraphTimer;
use tegula::tune::interleave::Timed;
use tegula::tune::operand_sets::OperandSets;
use tegula::tune::scratch::ScratchLayout;
use tegula::tune::search::TuneEffort;
use tegula::tune::tune;
use tegula::{Accuracy, Device, Error, Gemm, Grouped, Layout, Matrix, Result, Shape};
use tegula_ir::{self as ir, ptx};
use tegula_kernels::Plain;

/// Environment variable of the child process.
const CHILD: &str = "TEGULA_TEST_FAKE_DRIVER";

/// File name of the driver.
const LIBRARY: &str = "libcuda.so.1";

/// Time limit of a child process, longer than any test takes.
const TIMEOUT: Duration = Duration::from_secs(300);

/// Failure of the driver.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    /// Once, with an unspecified error.
    Once,
    /// Once, out of memory.
    OutOfMemory,
    /// Once, as during stream capture.
    Capture,
    /// At this and all later calls: the context is lost.
    ContextLost,
}

impl Fault {
    const ALL: [Fault; 4] = [Fault::Once, Fault::OutOfMemory, Fault::Capture, Fault::ContextLost];

    fn code(self) -> c_int {
        match self {
            Fault::Once => 999,
            Fault::OutOfMemory => 2,
            Fault::Capture => 901,
            Fault::ContextLost => 700,
        }
    }
}

/// Test interface of the fake driver.
struct Fake(Library);

impl Fake {
    fn open() -> Fake {
        // SAFETY: the library is the fake driver; its constructor only reads the environment.
        Fake(unsafe { Library::new(LIBRARY) }.expect("the fake driver"))
    }

    /// Resets to a device of this compute capability, with or without memory pools, whose driver
    /// fails at the n-th call.
    fn start(&self, n: c_long, fault: Fault, [capability, pools]: [c_int; 2]) {
        // SAFETY: the function has this signature. No other thread calls the driver.
        unsafe {
            let start: Symbol<'_, unsafe extern "C" fn(c_long, c_int, c_int, c_int, c_int)> =
                self.0.get(b"fake_cuda_start").unwrap();
            start(n, fault.code(), c_int::from(fault == Fault::ContextLost), capability, pools);
        }
    }

    fn stop(&self) {
        // SAFETY: as above.
        unsafe { self.0.get::<unsafe extern "C" fn()>(b"fake_cuda_stop").unwrap()() };
    }

    /// The number of calls since the start.
    fn calls(&self) -> c_long {
        // SAFETY: as above.
        unsafe { self.0.get::<unsafe extern "C" fn() -> c_long>(b"fake_cuda_calls").unwrap()() }
    }

    /// The name of the failed call, if any failed.
    fn failed(&self) -> Option<String> {
        // SAFETY: as above; the text is the library's own.
        let name = unsafe {
            CStr::from_ptr(self.0.get::<unsafe extern "C" fn() -> *const c_char>(b"fake_cuda_failed").unwrap()())
        };
        Some(name.to_string_lossy().into_owned()).filter(|name| !name.is_empty())
    }

    /// Live allocations, except modules and contexts, which built-in kernels keep.
    fn live(&self) -> Vec<(&'static str, c_long)> {
        let names = ["device memory", "page-locked memory", "streams", "events", "graphs", "executable graphs"];
        // SAFETY: as above.
        let count =
            |kind| unsafe { self.0.get::<unsafe extern "C" fn(c_int) -> c_long>(b"fake_cuda_live").unwrap()(kind) };
        names.into_iter().zip(0..).map(|(name, kind)| (name, count(kind))).filter(|(_, count)| *count != 0).collect()
    }
}

/// Work on a GPU.
type Scenario = fn(&Gpu) -> Result<()>;

/// Whether every call is made to fail, instead of every fourth.
fn full() -> bool {
    env::var("TEGULA_FULL").is_ok_and(|full| full == "1")
}

/// Runs a scenario in a child process with every fault at every n-th call, or every fourth. `name`
/// is the test's.
fn fail_every_call(name: &str, gpus: &[[c_int; 2]], scenario: Scenario) {
    // In the quick run each of the four faults covers another quarter of the calls.
    let step = if full() { 1 } else { 4 };
    in_child(name, || {
        gpus.iter().for_each(|gpu| Fault::ALL.iter().for_each(|fault| run(*gpu, *fault, step, |n| n + step, scenario)));
    });
}

/// [`fail_every_call`] for a scenario that repeats calls many times: the failing call's number
/// grows by 4 and a `density`-th of itself, in the full run too.
fn fail_many_calls(name: &str, density: c_long, gpus: &[[c_int; 2]], scenario: Scenario) {
    in_child(name, || {
        let next = |n| n + 4 + n / density;
        gpus.iter().for_each(|gpu| Fault::ALL.iter().for_each(|fault| run(*gpu, *fault, 4, next, scenario)));
    });
}

/// Runs `body` in a child process that loads the fake driver. `name` is the test's.
fn in_child(name: &str, body: impl FnOnce()) {
    if env::var_os(CHILD).is_some() {
        return body();
    }
    let Some(driver) = driver() else { return };
    let cache = tempfile::tempdir().unwrap();
    let mut child = Command::new(env::current_exe().unwrap());
    child.args(["--exact", name, "--nocapture"]).env(CHILD, "1").env("LD_LIBRARY_PATH", driver);
    // With one thread, the n-th call is the same in each run.
    child.env("TEGULA_CACHE_DIR", cache.path()).env("TEGULA_NUM_THREADS", "1").stdout(Stdio::inherit());
    let (mut child, start) = (child.spawn().unwrap(), Instant::now());
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if start.elapsed() > TIMEOUT {
            child.kill().unwrap();
            panic!("{name}: no end after {TIMEOUT:?}");
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    assert!(status.success(), "{name}: {status}");
}

/// The folder of the fake driver, which the first call compiles; `None` if no compiler is found and
/// none is required.
fn driver() -> Option<&'static Path> {
    static DRIVER: LazyLock<Option<PathBuf>> = LazyLock::new(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
        // Other processes may be loading the driver that an earlier run compiled.
        let new = tempfile::tempdir_in(folder).unwrap();
        let folder = folder.join("fake_driver");
        compile(new.path()).then(|| {
            fs::create_dir_all(&folder).unwrap();
            fs::rename(new.path().join(LIBRARY), folder.join(LIBRARY)).unwrap();
            folder
        })
    });
    DRIVER.as_deref()
}

/// Compiles the fake driver. Returns `false` if no compiler is found and none is required.
fn compile(folder: &Path) -> bool {
    let compiler = env::var_os("CXX").unwrap_or_else(|| "c++".into());
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fake_driver/cuda.c");
    let mut command = Command::new(&compiler);
    command.args("-x c -O1 -Wall -Werror -shared -fPIC -pthread -o".split(' '));
    match command.arg(folder.join(LIBRARY)).arg(source).status() {
        Ok(status) => {
            assert!(status.success(), "{command:?}: {status}");
            true
        }
        Err(why) => {
            let required = env::var("TEGULA_REQUIRE_CXX").is_ok_and(|required| required == "1");
            assert!(!required, "{}: {why}; TEGULA_REQUIRE_CXX=1 requires a compiler", compiler.display());
            eprintln!("skipped: {}: compiler not found", compiler.display());
            false
        }
    }
}

/// Runs a scenario in the child until no call fails: of the first `step` calls that of the fault,
/// then the `next` ones.
fn run(gpu: [c_int; 2], fault: Fault, step: c_long, next: impl Fn(c_long) -> c_long, scenario: Scenario) {
    let fake = Fake::open();
    // Symbols are looked up once per process, so look them up first.
    fake.start(0, fault, gpu);
    cuda::devices().unwrap();
    for n in std::iter::successors(Some(1 + fault as c_long % step), |n| Some(next(*n))) {
        fake.start(n, fault, gpu);
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            let gpu = Gpu::open(0)?;
            let outcome = scenario(&gpu);
            if outcome.is_err() && fault != Fault::ContextLost {
                fake.stop();
                assert_recovers(&gpu, scenario);
            }
            outcome
        }));
        let failed = fake.failed();
        let at = format!("gpu {gpu:?}, {fault:?} at call {n}, {failed:?}");
        let outcome = outcome.unwrap_or_else(|_| panic!("{at}: panicked"));
        if let Err(error) = &outcome {
            let typed = matches!(
                error,
                Error::Driver { .. } | Error::Capture { .. } | Error::OutOfMemory { .. } | Error::Assemble { .. }
            );
            assert!(typed && failed.is_some(), "{at}: {error:?}");
        }
        // A lost context cannot free memory.
        assert!(
            fault == Fault::ContextLost || fake.live().is_empty(),
            "{at}: not released: {:?}; {outcome:?}",
            fake.live()
        );
        if failed.is_none() {
            outcome.unwrap();
            println!("gpu {gpu:?}, {fault:?}: fewer than {n} calls");
            return;
        }
    }
}

/// Checks that the handle works again. cudarc reports an error of a destructor at its next call, so
/// the first runs may fail.
fn assert_recovers(gpu: &Gpu, scenario: Scenario) {
    let last = (0..3).map(|_| scenario(gpu)).find(Result::is_ok);
    assert!(last.is_some(), "the handle does not recover: {:?}", scenario(gpu));
}

/// An H100 with memory pools, an A100 without.
const H100_AND_A100: [[c_int; 2]; 2] = [[90, 1], [80, 0]];

fn zeros<T: Scalar>(rows: usize, cols: usize) -> Result<Matrix<T>> {
    Matrix::zeros(rows, cols)
}

fn gemm<T: Element>(gpu: &Gpu, [m, n, k]: [usize; 3], accuracy: Accuracy) -> Result<()> {
    let (a, b, mut c) = (zeros::<T>(m, k)?, zeros::<T>(k, n)?, zeros::<T::Out>(m, n)?);
    let product = Gemm::new(a.view(), b.view(), c.view_mut()).accuracy(accuracy);
    product.on(&Device::from(gpu.clone())).run().map(drop)
}

// One product a test: each failing call costs a run of the whole scenario.
#[test]
fn driver_failing_at_any_call_of_a_product_is_an_error() {
    fail_every_call("driver_failing_at_any_call_of_a_product_is_an_error", &H100_AND_A100, |gpu| {
        gemm::<f32>(gpu, [40, 30, 20], Accuracy::Full)?;
        // The handle and the kernel are used again.
        gemm::<f32>(gpu, [40, 30, 20], Accuracy::Full)
    });
}

#[test]
fn driver_failing_at_any_call_of_a_split_product_is_an_error() {
    fail_every_call("driver_failing_at_any_call_of_a_split_product_is_an_error", &H100_AND_A100, |gpu| {
        // Small C and large k: split-K with a workspace and a reduction kernel.
        gemm::<f64>(gpu, [8, 8, 4000], Accuracy::Full)
    });
}

#[test]
fn driver_failing_at_any_call_of_a_packed_product_is_an_error() {
    fail_every_call("driver_failing_at_any_call_of_a_packed_product_is_an_error", &H100_AND_A100, |gpu| {
        gemm::<i32>(gpu, [65, 33, 70], Accuracy::Full)
    });
}

#[test]
fn driver_failing_at_any_call_of_a_tf32_product_is_an_error() {
    fail_every_call("driver_failing_at_any_call_of_a_tf32_product_is_an_error", &H100_AND_A100, |gpu| {
        gemm::<f32>(gpu, [65, 33, 71], Accuracy::Tf32)
    });
}

#[test]
fn driver_failing_at_any_call_of_an_epilogue_is_an_error() {
    fail_every_call("driver_failing_at_any_call_of_an_epilogue_is_an_error", &H100_AND_A100, |gpu| {
        let (a, b, bias) = (zeros::<f16>(64, 128)?, zeros::<f16>(128, 72)?, zeros::<f16>(1, 72)?);
        let mut c = zeros::<f16>(64, 72)?;
        let product = Gemm::new(a.view(), b.view(), c.view_mut()).beta(2.0).bias(bias.view());
        product.activation(Activation::Relu).on(&Device::from(gpu.clone())).run().map(drop)
    });
}

#[test]
fn driver_failing_at_any_call_of_groups_is_an_error() {
    fail_every_call("driver_failing_at_any_call_of_groups_is_an_error", &H100_AND_A100, |gpu| {
        let a = DeviceMatrix::upload(gpu, zeros::<bf16>(100, 64)?.view())?;
        let b = DeviceMatrix::upload(
            gpu,
            Matrix::<bf16>::zeros_of_shape(Shape { batches: 3, rows: 64, cols: 64 })?.view(),
        )?;
        let mut c = DeviceMatrix::zeros(gpu, Shape::new(100, 64))?;
        Grouped::new(a.view(), b.view(), c.view_mut(), &[50, 0, 50]).on(&Device::from(gpu.clone())).run()?;
        c.download().map(drop)
    });
}

#[test]
fn driver_failing_at_any_call_of_copies_is_an_error() {
    /// More than one half of the staging buffer.
    static LONG: LazyLock<Matrix<f64>> = LazyLock::new(|| zeros(3, 300_000).unwrap());
    fail_every_call("driver_failing_at_any_call_of_copies_is_an_error", &H100_AND_A100, |gpu| {
        // An upload through both halves of the staging buffer, and a download.
        let long = DeviceMatrix::upload(gpu, LONG.view())?;
        long.download()?;
        let mut other = DeviceMatrix::uninit(gpu, Shape::new(3, 5))?;
        // The driver has no 64-bit memset.
        other.fill(1.5f64)?;
        let mut third = cuda::Buffer::zeroed(gpu, 15)?;
        third.copy_from(other.buffer())?;
        cuda::Buffer::<f16>::zeroed(gpu, 9)?;
        cuda::Buffer::<i8>::zeroed(gpu, 9)?;
        // Dropped before the buffers copied from it.
        drop(long);
        gpu.synchronize()
    });
}

#[test]
fn driver_failing_at_any_call_of_graphs_is_an_error() {
    fail_every_call("driver_failing_at_any_call_of_graphs_is_an_error", &H100_AND_A100, |gpu| {
        let shape = Shape::new(48, 48);
        let (a, b) = (DeviceMatrix::<f32>::zeros(gpu, shape)?, DeviceMatrix::<f32>::zeros(gpu, shape)?);
        let mut c = DeviceMatrix::<f32>::zeros(gpu, shape)?;
        let device = Device::from(gpu.clone());
        let mut multiply = || Gemm::new(a.view(), b.view(), c.view_mut()).on(&device).run().map(drop);
        multiply()?;
        let graph = gpu.capture(multiply)?;
        // SAFETY: all operands are alive.
        unsafe { graph.launch() }?;
        c.download()?;
        // The graph outlives its operands.
        drop((a, b, c));
        drop(graph);
        Ok(())
    });
}

#[test]
fn driver_failing_at_any_call_on_two_streams_is_an_error() {
    fail_every_call("driver_failing_at_any_call_on_two_streams_is_an_error", &H100_AND_A100[..1], |gpu| {
        let fork = gpu.context().new_stream();
        let other = gpu.with_stream(fork.map_err(|_| driver_error())?)?;
        let shape = Shape::new(33, 33);
        let (a, b) = (DeviceMatrix::<f32>::zeros(gpu, shape)?, DeviceMatrix::<f32>::zeros(&other, shape)?);
        let mut c = DeviceMatrix::<f32>::zeros(gpu, shape)?;
        Gemm::new(a.view(), b.view(), c.view_mut()).on(&Device::from(other.clone())).run()?;
        gpu.wait_for(&other)?;
        // The stream is dropped first.
        drop(other);
        c.download().map(drop)
    });
}

/// An error for cudarc's own error type, which has no conversion.
fn driver_error() -> Error {
    Error::Capture { why: "stream creation failed".into() }
}

#[test]
fn driver_failing_at_any_call_of_a_user_kernel_is_an_error() {
    fail_every_call("driver_failing_at_any_call_of_a_user_kernel_is_an_error", &H100_AND_A100, |gpu| {
        let kernel = ir::check(Plain::named("K6")?.build()?)?;
        let (function, _) = gpu.load(&ptx::print(&kernel)?)?;
        function.blocks_per_multiprocessor()?;
        drop(function);
        Ok(())
    });
}

#[test]
fn driver_failing_at_any_call_of_a_foreign_kernel_is_an_error() {
    fail_every_call("driver_failing_at_any_call_of_a_foreign_kernel_is_an_error", &H100_AND_A100, |gpu| {
        let launch = ForeignLaunch {
            image: ptx::print(&ir::check(Plain::named("K6")?.build()?)?)?,
            grid: [2, 1, 1],
            params: vec![ForeignParam::Buffer { index: 1, offset: 4 }, ForeignParam::Bytes(vec![1, 2, 3, 4])],
            variables: vec![("scale".into(), vec![1; 8])],
        };
        let mut buffers = [vec![1; 40], vec![2; 20]];
        // SAFETY: kernels do nothing on the fake device.
        let outcome = unsafe { gpu.run_foreign(&launch, &mut buffers) };
        assert_eq!(buffers, [vec![1; 40], vec![2; 20]]);
        outcome
    });
}

#[test]
fn driver_failing_at_any_call_of_a_benchmark_is_an_error() {
    fail_every_call("driver_failing_at_any_call_of_a_benchmark_is_an_error", &H100_AND_A100, |gpu| {
        let (a, b, c) = (zeros::<f32>(20, 30)?, zeros::<f32>(30, 40)?, zeros::<f32>(20, 40)?);
        let operands = OperandSets::upload(gpu, [a.view(), b.view()], [false; 2], c.view(), 2)?;
        let device = Device::from(gpu.clone());
        let mut repeat = GraphTimer::new(&operands, |a, b, c| Gemm::new(a, b, c).on(&device).run().map(drop));
        repeat.time(2, 3)?;
        operands.c().map(drop)
    });
}

#[test]
fn driver_failing_at_any_call_of_a_search_is_an_error() {
    fail_many_calls("driver_failing_at_any_call_of_a_search_is_an_error", 6, &H100_AND_A100[..1], |gpu| {
        let shapes = [Shape::new(64, 128), Shape::new(128, 96), Shape::new(64, 96)];
        let layouts = shapes.map(|shape| Layout::row_major(shape).and_then(ScratchLayout::aligned));
        let [a, b, c] = layouts;
        let effort = TuneEffort { seed: 1, candidates: 4, seconds: 0.01 };
        match tune::<f64>(gpu, [a?, b?, c?], Accuracy::Full, &effort) {
            // Kernels do nothing on the fake device.
            Err(Error::Launch { why, .. }) if why.contains("is NaN; the CPU computes") => Ok(()),
            other => other.map(|report| panic!("{report:?}")),
        }
    });
}

/// Operands of a product that this process has not run: each has another m.
struct NewProduct {
    a: DeviceMatrix<f32>,
    b: DeviceMatrix<f32>,
    c: DeviceMatrix<f32>,
}

impl NewProduct {
    fn new(gpu: &Gpu) -> Result<Self> {
        Self::of(gpu, [640, 768])
    }

    fn of(gpu: &Gpu, [n, k]: [usize; 2]) -> Result<Self> {
        static ROWS: AtomicUsize = AtomicUsize::new(512);
        let m = ROWS.fetch_add(1, Ordering::Relaxed);
        let matrix = |rows, cols| DeviceMatrix::zeros(gpu, Shape::new(rows, cols));
        Ok(NewProduct { a: matrix(m, k)?, b: matrix(k, n)?, c: matrix(m, n)? })
    }

    /// Runs the product. Returns the number of its driver calls.
    fn run(&mut self, device: &Device) -> Result<c_long> {
        let fake = Fake::open();
        let before = fake.calls();
        Gemm::new(self.a.view(), self.b.view(), self.c.view_mut()).on(device).run()?;
        Ok(fake.calls() - before)
    }
}

fn autotuned(gpu: &Gpu) -> Device {
    Device::from(gpu.clone()).autotune(Duration::from_millis(10))
}

/// Calls of a product whose kernel is loaded.
const CALLS_OF_A_PRODUCT: [&str; 3] = ["cuCtxGetCurrent", "cuLaunchKernel", "cuLaunchKernelEx"];

#[test]
fn driver_failing_at_any_call_of_an_autotuned_product_fails_the_search_only() {
    fail_many_calls(
        "driver_failing_at_any_call_of_an_autotuned_product_fails_the_search_only",
        6,
        &H100_AND_A100,
        |gpu| {
            // Small, since each search fills A and B with random numbers.
            let (mut product, fake) = (NewProduct::of(gpu, [256, 64])?, Fake::open());
            product.run(&Device::from(gpu.clone()))?;
            let failed_before = fake.failed().is_some();
            let outcome = product.run(&autotuned(gpu));
            if let (false, Err(error), Some(failed)) = (failed_before, &outcome, fake.failed())
                && !matches!(error, Error::Driver { code: 700, .. })
            {
                assert!(CALLS_OF_A_PRODUCT.contains(&&*failed), "{failed}: {error}");
            }
            outcome?;
            // The search is on other matrices.
            assert!(product.c.download()?.as_slice().iter().all(|element| *element == 0.0));
            Ok(())
        },
    );
}

#[test]
fn autotune_measures_a_problem_once_and_not_under_capture() {
    in_child("autotune_measures_a_problem_once_and_not_under_capture", || {
        let fake = Fake::open();
        fake.start(0, Fault::Once, H100_AND_A100[0]);
        let gpu = Gpu::open(0).unwrap();
        let (plain, device) = (Device::from(gpu.clone()), autotuned(&gpu));
        let mut first = NewProduct::new(&gpu).unwrap();
        first.run(&plain).unwrap();
        let alone = first.run(&plain).unwrap();
        assert_eq!(first.run(&device.clone().autotune(Duration::ZERO)).unwrap(), alone, "no time for a search");
        let searched = first.run(&device).unwrap();
        assert!(searched > 100 * alone, "{searched} calls");
        // Kernels do nothing on the fake device, so none is kept, and the search is not repeated.
        assert_eq!(first.run(&device).unwrap(), alone);
        let other_handle = first.run(&autotuned(&Gpu::open(0).unwrap())).unwrap();
        assert!(other_handle < 10 * alone, "{other_handle} calls");
        let key = tegula::cache::key(gpu.info());
        assert!(!tegula::cache::file(&key).unwrap().exists());

        let mut captured = NewProduct::new(&gpu).unwrap();
        captured.run(&plain).unwrap();
        // With another m the plan may have more launches.
        let alone = captured.run(&plain).unwrap();
        let mut calls = 0;
        gpu.capture(|| captured.run(&device).map(|count| calls = count)).unwrap();
        assert_eq!(calls, alone + 1, "asks whether the stream is captured");
        // On another stream, which the events of the matrices' stream bring into the capture.
        let other = autotuned(&gpu.with_stream(gpu.context().new_stream().unwrap()).unwrap());
        gpu.capture(|| captured.run(&other).map(|count| calls = count)).unwrap();
        assert!(calls < 10 * alone, "{calls} calls");
        // On a stream that the capture does not include: it is measured, and the capture goes on.
        let unrelated = Gpu::open(0).unwrap();
        let (device, mut beside) = (autotuned(&unrelated), NewProduct::new(&unrelated).unwrap());
        gpu.capture(|| beside.run(&device).map(|count| calls = count)).unwrap();
        assert!(calls > 100 * alone, "{calls} calls");
        let mut invariant = NewProduct::new(&gpu).unwrap();
        let NewProduct { a, b, c } = &mut invariant;
        Gemm::new(a.view(), b.view(), c.view_mut()).batch_invariant().on(&device).run().unwrap();
        // A group of f32 is a product of its own.
        let rows = a.shape().rows;
        Grouped::new(a.view(), b.view(), c.view_mut(), &[rows]).on(&device).run().unwrap();
        assert!(invariant.run(&device).unwrap() > 100 * alone, "it was measured before");
    });
}

/// Loses the context at each call of `work` in turn. Returns the call of the reported error where
/// `call` was the first that failed. `work` gets two handles of a GPU with a stream each.
fn reported_at(call: &str, work: fn(&Gpu, &Gpu) -> Result<()>) -> &'static str {
    let fake = Fake::open();
    // Symbols are looked up once per process, so look them up first.
    fake.start(0, Fault::ContextLost, H100_AND_A100[0]);
    cuda::devices().unwrap();
    for n in 1.. {
        fake.start(n, Fault::ContextLost, H100_AND_A100[0]);
        let outcome = Gpu::open(0).and_then(|gpu| {
            let fork = gpu.context().new_stream();
            work(&gpu, &gpu.with_stream(fork.map_err(|_| driver_error())?)?)
        });
        let failed = fake.failed().unwrap_or_else(|| panic!("{call} is not among the {} calls", n - 1));
        if failed == call {
            match outcome {
                Err(Error::Driver { call, .. }) => return call,
                other => panic!("{call} failed at call {n}: {other:?}"),
            }
        }
    }
    unreachable!("the calls end")
}

#[test]
fn context_lost_at_work_on_two_streams_is_the_error_of_the_work() {
    in_child("context_lost_at_work_on_two_streams_is_the_error_of_the_work", || {
        // The events after the work, which the other stream waits for, fail as well.
        let launch = reported_at("cuLaunchKernel", |gpu, other| {
            let shape = Shape::new(33, 33);
            let (a, b) = (DeviceMatrix::<f32>::zeros(gpu, shape)?, DeviceMatrix::<f32>::zeros(other, shape)?);
            let mut c = DeviceMatrix::<f32>::zeros(gpu, shape)?;
            Gemm::new(a.view(), b.view(), c.view_mut()).on(&Device::from(gpu.clone())).run().map(drop)
        });
        assert_eq!(launch, "cuLaunchKernel");
        let copy = reported_at("cuMemcpyDtoDAsync_v2", |gpu, other| {
            let from = cuda::Buffer::<f32>::zeroed(other, 15)?;
            cuda::Buffer::zeroed(gpu, 15)?.copy_from(&from)
        });
        assert_eq!(copy, "cuMemcpyDtoDAsync");
    });
}

/// Stack of the last launch.
static LAUNCH_STACK: Mutex<Option<Backtrace>> = Mutex::new(None);

extern "C" fn record_stack() {
    *LAUNCH_STACK.lock().unwrap() = Some(Backtrace::force_capture());
}

#[test]
fn path_from_matmul_to_a_launch_is_six_functions() {
    in_child("path_from_matmul_to_a_launch_is_six_functions", || {
        let fake = Fake::open();
        fake.start(0, Fault::Once, H100_AND_A100[0]);
        // SAFETY: the variable has this type; no other thread launches anything.
        unsafe { **fake.0.get::<*mut Option<extern "C" fn()>>(b"fake_cuda_at_launch").unwrap() = Some(record_stack) };
        let a = Matrix::<f32>::zeros(64, 64).unwrap();
        tegula::matmul(&a, &a).unwrap();
        let frames = stack::frames(LAUNCH_STACK.lock().unwrap().as_ref().unwrap());
        let names = stack::names(&frames);
        let driver = names.iter().position(|name| *name == "cuLaunchKernel").unwrap();
        assert_eq!(names[driver + 1..], ["launch", "execute", "multiply", "execute", "run", "matmul"]);
    });
}
