//! The overhead of a GPU product beyond its kernel.
//!
//! Measures the first product of a process, with and without the driver's kernel cache; the host
//! time of later products; and code from the driver's linker instead of its loader.
//!
//!     cargo run --release --example gpu_overhead

use std::error::Error;
use std::ffi::{CString, c_void};
use std::path::Path;
use std::process::Command;
use std::ptr::{from_mut, null, null_mut};
use std::time::Instant;

use tegula::cuda::cudarc::driver::{CudaContext, result, sys};
use tegula::cuda::{DeviceMatrix, Gpu};
use tegula::{Device, Gemm, Matrix, Shape};
use tegula_ir::launch::Field;
use tegula_ir::{Axis, check};
use tegula_kernels::GemmVariant;
use tegula_kernels::plan::{Plan, Problem, choose};

type Fallible<T = ()> = Result<T, Box<dyn Error>>;

/// Timed calls of each kind.
const CALLS: usize = 10_000;
/// Calls queued before the host waits.
const QUEUED: usize = 500;

fn main() -> Fallible {
    if std::env::args().nth(1).as_deref() == Some("first") {
        return first_product();
    }
    first_products()?;
    let gpu = Gpu::open(0)?;
    println!("\n{}, driver {:?}", gpu.info().name, gpu.info().driver);
    later_products(&gpu)?;
    linked_or_loaded(&gpu)
}

/// The first product in new processes: with an empty, a filled and a disabled cache.
fn first_products() -> Fallible {
    println!(
        "first product, 1024³ f32 from host matrices to a host matrix, in ms; targets: 300 with an empty cache, 30 with a filled one"
    );
    println!("               driver cuInit context | open upload queue   wait download = beyond cuInit and context");
    let directory = std::env::temp_dir().join(format!("tegula-overhead-{}", std::process::id()));
    let child = |name: &str, variable: &str, value: &Path| -> Fallible {
        let mut command = Command::new(std::env::current_exe()?);
        let output = command.arg("first").env(variable, value).output()?;
        let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        if !output.status.success() {
            return Err(stderr.trim().into());
        }
        println!("{name:14} {}", stdout.trim_end());
        Ok(())
    };
    let runs = ["empty cache", "filled cache", "filled cache", "filled cache"];
    let done = runs.into_iter().try_for_each(|name| child(name, "CUDA_CACHE_PATH", &directory));
    // Missing where no GPU is present.
    let _ = std::fs::remove_dir_all(&directory);
    done?;
    child("cache disabled", "CUDA_CACHE_DISABLE", Path::new("1"))
}

/// Milliseconds since `start`, which becomes now.
fn lap(start: &mut Instant) -> f64 {
    let ms = start.elapsed().as_secs_f64() * 1e3;
    *start = Instant::now();
    ms
}

fn first_product() -> Fallible {
    let shape = Shape::new(1024, 1024);
    let (a, b) = (random(shape, 1)?, random(shape, 2)?);
    let mut c = Matrix::zeros_of_shape(shape)?;
    let mut start = Instant::now();
    // SAFETY: opening the library runs its initializers; the function is called only after that
    // succeeds.
    let (library, init) = unsafe {
        if !sys::is_culib_present() {
            return Err("NVIDIA driver not found".into());
        }
        sys::culib();
        let library = lap(&mut start);
        sys::cuInit(0).result()?;
        (library, lap(&mut start))
    };
    let context = CudaContext::new(0)?;
    let context_ms = lap(&mut start);
    let gpu = Gpu::open(0)?;
    let open = lap(&mut start);
    let (a, b) = (DeviceMatrix::upload(&gpu, a.view())?, DeviceMatrix::upload(&gpu, b.view())?);
    let mut on_c = DeviceMatrix::uninit(&gpu, shape)?;
    let upload = lap(&mut start);
    Gemm::new(a.view(), b.view(), on_c.view_mut()).on(&gpu.clone().into()).run()?;
    let queue = lap(&mut start);
    gpu.synchronize()?;
    let wait = lap(&mut start);
    on_c.download_into(c.view_mut())?;
    let download = lap(&mut start);
    let beyond = library + open + upload + queue + wait + download;
    println!(
        "{library:6.1} {init:6.1} {context_ms:7.1} | {open:4.1} {upload:6.1} {queue:6.1} {wait:6.1} {download:6.1}  = {beyond:7.1}"
    );
    drop(context);
    Ok(())
}

/// The kernel that the plan chooses for n×n matrices on the GPU, and its PTX.
fn kernel(gpu: &Gpu, n: usize) -> Fallible<(tegula_ir::Checked<tegula_ir::Kernel>, tegula_ir::ptx::Image)> {
    let problem = Problem {
        ty: tegula::element::Type::F32,
        accuracy: tegula::Accuracy::Full,
        m: n,
        n,
        k: n,
        batches: 1,
        layouts: [tegula_kernels::plan::OperandLayout::new(tegula_ir::Order2d::RowMajor, true); 3],
    };
    let Plan::Gpu(recipe) = choose(&problem, &tegula::Device::from(gpu.clone()).caps())? else {
        return Err("the plan has no GPU kernel".into());
    };
    let mut start = Instant::now();
    let kernel = check(recipe.kernel.build()?)?;
    let image = tegula_ir::ptx::print(&kernel)?;
    println!("\n{}: built, checked and printed in {:.2} ms, {} bytes", image.entry, lap(&mut start), image.text.len());
    Ok((kernel, image))
}

/// A launch by the driver API alone: a function, with the parameters that Tegula passes.
struct Bare {
    function: sys::CUfunction,
    grid: [u32; 3],
    block: [u32; 3],
    shared: u32,
    params: Vec<u64>,
}

impl Bare {
    fn new(
        function: sys::CUfunction,
        kernel: &tegula_ir::Kernel,
        image: &tegula_ir::ptx::Image,
        matrices: [&DeviceMatrix<f32>; 3],
        grid: [u32; 3],
    ) -> Self {
        let n = matrices[0].shape().cols as u64;
        let (one, zero) = (u64::from(1f32.to_bits()), 0);
        let param = |field: &Field| match *field {
            Field::Address(id) => matrices[id.index()].buffer().address(),
            Field::Extent(_, Axis::Batches) => 1,
            Field::Extent(..) => n,
            Field::Stride(_, Axis::Batches) => 4 * n * n,
            Field::Stride(_, Axis::Rows) => 4 * n,
            Field::Stride(_, Axis::Cols) => 4,
            Field::Tensor(_) => unreachable!("the kernel copies no tiles"),
            Field::Scalar(id, _) => {
                if id.index() == 3 {
                    one
                } else {
                    zero
                }
            }
        };
        let params = kernel.fields().iter().map(param).collect();
        let most = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        // SAFETY: the function is loaded. The launch reports a failure.
        let _ = unsafe { sys::cuFuncSetAttribute(function, most, image.shared_bytes as i32) };
        Bare { function, grid, block: image.block, shared: image.shared_bytes, params }
    }

    fn launch(&mut self, gpu: &Gpu) -> tegula::Result<()> {
        let mut pointers: [*mut c_void; 64] = [null_mut(); 64];
        pointers.iter_mut().zip(&mut self.params).for_each(|(to, param)| *to = from_mut(param).cast());
        let ([gx, gy, gz], [bx, by, bz]) = (self.grid, self.block);
        // SAFETY: the parameters are the kernel's, over matrices that are alive until the caller
        // waits.
        let done = unsafe {
            let pointers = &mut pointers[..self.params.len()];
            result::launch_kernel(
                self.function,
                (gx, gy, gz),
                (bx, by, bz),
                self.shared,
                gpu.stream().cu_stream(),
                pointers,
            )
        };
        done.map_err(|e| tegula::Error::Launch { kernel: "bare".into(), why: e.to_string() })
    }
}

/// Queues one product.
type Queue<'a> = Box<dyn FnMut() -> tegula::Result<()> + 'a>;

/// Host time of a product, with all kernels loaded.
fn later_products(gpu: &Gpu) -> Fallible {
    let n = 64;
    let shape = Shape::new(n, n);
    let zeros = || DeviceMatrix::<f32>::zeros(gpu, shape);
    let (a, b) = (zeros()?, zeros()?);
    let [mut c, mut d, mut e, mut f] = [zeros()?, zeros()?, zeros()?, zeros()?];
    let other = gpu.with_stream(gpu.context().new_stream()?)?;
    let (device, elsewhere) = (Device::from(gpu.clone()), Device::from(other.clone()));

    let (kernel, image) = kernel(gpu, n)?;
    let function = load(&image.text, &image.entry)?;
    let report = Gemm::new(a.view(), b.view(), c.view_mut()).explain()?;
    let grid = report.launch.ok_or("no launch")?.grid;
    let bare_c = zeros()?;
    let mut bare = Bare::new(function, &kernel, &image, [&a, &b, &bare_c], grid);
    gpu.synchronize()?;

    let mut once = || Gemm::new(a.view(), b.view(), f.view_mut()).on(&device).run().map(drop);
    once()?;
    let graph = gpu.capture(once)?;

    let mut kinds: Vec<(&str, Queue)> = vec![
        ("cuLaunchKernel alone", Box::new(|| bare.launch(gpu))),
        (
            "Gemm on the matrices' stream",
            Box::new(|| Gemm::new(a.view(), b.view(), c.view_mut()).on(&device).run().map(drop)),
        ),
        ("Gemm without a device", Box::new(|| Gemm::new(a.view(), b.view(), d.view_mut()).run().map(drop))),
        (
            "Gemm on another stream",
            Box::new(|| Gemm::new(a.view(), b.view(), e.view_mut()).on(&elsewhere).run().map(drop)),
        ),
        // SAFETY: the matrices are alive until the host has waited, and other queued work only
        // reads them.
        ("a captured Gemm", Box::new(|| unsafe { graph.launch() })),
    ];
    let mut times = vec![Vec::with_capacity(CALLS); kinds.len()];
    for round in 0..=CALLS / QUEUED {
        for ((_, queue), times) in kinds.iter_mut().zip(&mut times) {
            for _ in 0..QUEUED {
                let start = Instant::now();
                queue()?;
                let spent = start.elapsed().as_secs_f64() * 1e6;
                // The first round warms up.
                if round > 0 {
                    times.push(spent);
                }
            }
            gpu.synchronize()?;
            other.synchronize()?;
        }
    }
    println!(
        "host time of a product of {n}³ in µs, {CALLS} calls, waiting every {QUEUED}; target: 3.0 over the launch alone"
    );
    println!("{:28}   median    p20    p80   over the launch", "");
    let mut alone = None;
    for ((name, _), times) in kinds.iter().zip(&mut times) {
        times.sort_by(f64::total_cmp);
        let [median, p20, p80] = [0.5, 0.2, 0.8].map(|part| times[(part * (times.len() - 1) as f64) as usize]);
        println!("{name:28}  {median:7.2} {p20:6.2} {p80:6.2}   {:7.2}", median - *alone.get_or_insert(median));
    }
    Ok(())
}

/// The same PTX through the loader, as in Tegula, and through the linker.
fn linked_or_loaded(gpu: &Gpu) -> Fallible {
    const ROUNDS: usize = 21;
    let n = 2048;
    let shape = Shape::new(n, n);
    let (a, b) =
        (DeviceMatrix::upload(gpu, random(shape, 1)?.view())?, DeviceMatrix::upload(gpu, random(shape, 2)?.view())?);
    let mut c = DeviceMatrix::<f32>::zeros(gpu, shape)?;
    let (kernel, image) = kernel(gpu, n)?;
    let grid = Gemm::new(a.view(), b.view(), c.view_mut()).explain()?.launch.ok_or("no launch")?.grid;
    let functions = [load(&image.text, &image.entry)?, link(&image.text, &image.entry)?];
    let mut bare = functions.map(|function| Bare::new(function, &kernel, &image, [&a, &b, &c], grid));
    let mut seconds = [Vec::new(), Vec::new()];
    for round in 0..ROUNDS + 3 {
        for (bare, seconds) in bare.iter_mut().zip(&mut seconds) {
            let spent = gpu.time(|| bare.launch(gpu))?;
            if round >= 3 {
                seconds.push(spent);
            }
        }
    }
    println!("{n}³, median of {ROUNDS} interleaved");
    for ((name, function), seconds) in ["loaded", "linked"].into_iter().zip(functions).zip(&mut seconds) {
        seconds.sort_by(f64::total_cmp);
        let mut registers = 0;
        let which = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_NUM_REGS;
        // SAFETY: the function is loaded, its context is current, and the driver writes one number.
        unsafe { sys::cuFuncGetAttribute(&mut registers, which, function) }.result()?;
        println!("{name}: {:.3} TFLOP/s, {registers} registers", 2.0 * (n as f64).powi(3) / seconds[ROUNDS / 2] / 1e12);
    }
    Ok(())
}

/// Loads a function as whole-program code. The context is current; the module stays loaded.
fn load(text: &str, entry: &str) -> Fallible<sys::CUfunction> {
    let text = CString::new(text)?;
    // SAFETY: the text is a C string.
    unsafe { Ok(result::module::get_function(result::module::load_data(text.as_ptr().cast())?, CString::new(entry)?)?) }
}

/// Loads the same function as relocatable code, by the linker.
fn link(text: &str, entry: &str) -> Fallible<sys::CUfunction> {
    let text = CString::new(text)?.into_bytes_with_nul();
    let kind = sys::CUjitInputType::CU_JIT_INPUT_PTX;
    let (mut state, mut binary, mut len) = (null_mut(), null_mut(), 0);
    // SAFETY: the text ends in a NUL byte, which is counted; the binary is loaded before the link
    // that owns it is destroyed.
    unsafe {
        sys::cuLinkCreate_v2(0, null_mut(), null_mut(), &mut state).result()?;
        let data = text.as_ptr().cast_mut().cast();
        sys::cuLinkAddData_v2(state, kind, data, text.len(), null(), 0, null_mut(), null_mut()).result()?;
        sys::cuLinkComplete(state, &mut binary, &mut len).result()?;
        let module = result::module::load_data(binary)?;
        sys::cuLinkDestroy(state).result()?;
        Ok(result::module::get_function(module, CString::new(entry)?)?)
    }
}

fn random(shape: Shape, seed: u64) -> tegula::Result<Matrix<f32>> {
    let mut state = seed;
    Matrix::from_shape_fn(shape, |_, _, _| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1u64 << 24) as f32 - 0.5
    })
}
