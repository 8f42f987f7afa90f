//! The interface between the command line and the library, one function per operation.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use serde::Serialize;
#[cfg(feature = "cuda")]
use tegula::cache;
use tegula::element::{Element, Type, with_operand_type};
use tegula::epilogue::{BiasShape, Epilogue};
use tegula::nd::{NdArray, NdEpilogueOperands, NdGemm, NdView};
use tegula::{Accuracy, Device, Result};
use tegula_bench::oracle;
use tegula_core::progress;
use tegula_core::progress::Progress;
use tegula_cpu as cpu;
use tegula_explain::sass::{Instruction, Tools};
use tegula_ir::{self as ir, cpp, ptx};
use tegula_kernels::Variant;
use tegula_kernels::plan::{Caps, Explanation, GpuDescription};

use crate::args::DeviceChoice;
use crate::failure::Failure;
use crate::progress::{Phase, ProgressDisplay, Unit};
use crate::report::devices::Device as Listed;
use crate::report::doctor::Gpu;
#[cfg(feature = "cuda")]
use crate::report::doctor::Tuned;

/// The device, kernel and time of a product.
#[derive(Clone, Debug, Serialize)]
pub struct Done {
    /// `cpu`, `cuda:0`, `interp`.
    pub device: String,
    /// The kernel that ran.
    pub kernel: String,
    /// Seconds of the product without file access. On a GPU they include copies to and from the
    /// device, and assembly where the kernel is not in the driver's cache.
    pub seconds: f64,
}

/// The error of a product.
#[derive(Clone, Debug, Serialize)]
pub struct Verified {
    /// Whether r is within the bound.
    pub ok: bool,
    /// The largest error, in the oracle's units; not finite (in JSON: null) where no number
    /// measures it.
    pub r: f64,
    /// The limit of r.
    pub bound: f64,
    /// The index of the worst element, row and column last; `None` in an empty array.
    pub worst: Option<Vec<usize>>,
    /// Elements with overflowed partial sums, where no other element exceeds the bound.
    #[serde(skip)]
    pub overflows: usize,
}

/// The operands of C = act(alpha·A·B + beta·C + bias), without C.
pub struct Operands<'a, T: Element> {
    pub device: DeviceChoice,
    pub alpha: T::Acc,
    pub a: NdView<'a, T>,
    pub b: NdView<'a, T>,
    pub beta: T::Acc,
    pub finish: NdEpilogueOperands<'a, T::Out>,
    pub accuracy: Accuracy,
    pub batch_invariant: bool,
}

impl<T: Element> Operands<'_, T> {
    /// Computes the product.
    pub fn multiply(&self, c: &mut NdArray<T::Out>, progress: &ProgressDisplay) -> Result<Done> {
        let device = self.device.open()?;
        let shown = Shown::new(progress);
        let sink = |progress| shown.report(progress);
        let start = Instant::now();
        let report = self.product(c, &device).progress(&sink).run()?;
        Ok(Done { device: report.device.into(), kernel: report.kernel.into(), seconds: start.elapsed().as_secs_f64() })
    }

    /// The plan of [`multiply`](Self::multiply).
    pub fn explain(&self, c: &mut NdArray<T::Out>) -> Result<Explanation> {
        self.product(c, &self.device.open()?).explain()
    }

    /// Compares a product with a more exact one. `before` is C before the product, needed where
    /// `beta` is not 0.
    pub fn verify(
        &self,
        before: Option<&NdView<'_, T::Out>>,
        c: &NdView<'_, T::Out>,
        progress: &ProgressDisplay,
    ) -> Result<Verified> {
        let shown = Shown::new(progress);
        let sink = |progress| shown.report(progress);
        let empty = c.layout().is_empty();
        let report =
            tegula_bench::nd::check(self.alpha, [&self.a, &self.b], self.beta, before, &self.finish, c, &sink)?;
        let depth = self.a.shape().last().copied().unwrap_or(0);
        let [r, r_of_others] =
            [report.r, report.r_without_overflows].map(|r| r / oracle::roundoff_ratio(self.accuracy));
        let bound = oracle::bound_with_epilogue::<T>(self.accuracy, depth, self.epilogue());
        let overflows = if r_of_others <= bound { report.overflows } else { 0 };
        // NaN is not within the bound.
        Ok(Verified { ok: r <= bound, r, bound, worst: (!empty).then_some(report.worst), overflows })
    }

    /// The epilogue. The shape of the bias is not known here, and not part of the epilogue's name.
    pub fn epilogue(&self) -> Epilogue {
        let NdEpilogueOperands { bias, activation } = &self.finish;
        Epilogue { bias: bias.as_ref().map(|_| BiasShape::Row), activation: *activation }
    }

    fn product<'c>(&'c self, c: &'c mut NdArray<T::Out>, device: &Device) -> NdGemm<'c, T> {
        let product = NdGemm::new(self.a.clone(), self.b.clone(), c.view_mut()).alpha(self.alpha).beta(self.beta);
        let product = product.activation(self.finish.activation).accuracy(self.accuracy).on(device);
        let product = if self.batch_invariant { product.batch_invariant() } else { product };
        match &self.finish.bias {
            Some(bias) => product.bias(bias.clone()),
            None => product,
        }
    }
}

impl DeviceChoice {
    /// The device.
    pub fn open(self) -> Result<Device> {
        match self {
            DeviceChoice::Auto => Ok(Device::best()),
            DeviceChoice::Cpu => Ok(Device::cpu()),
            DeviceChoice::Cuda(ordinal) => Device::cuda(ordinal),
            DeviceChoice::Interp => Ok(Device::interp()),
        }
    }
}

/// Displays the library's progress, one phase at a time.
struct Shown<'a> {
    progress: &'a ProgressDisplay,
    phase: Mutex<Option<(progress::Phase, Phase)>>,
}

impl<'a> Shown<'a> {
    fn new(progress: &'a ProgressDisplay) -> Self {
        Shown { progress, phase: Mutex::new(None) }
    }

    fn report(&self, progress: Progress) {
        let mut current = self.phase.lock().unwrap_or_else(PoisonError::into_inner);
        if current.as_ref().is_none_or(|(phase, _)| *phase != progress.phase) {
            // Drop the old phase first, which erases its bar.
            *current = None;
            let (name, unit) = match progress.phase {
                progress::Phase::Upload => ("uploading", Unit::Bytes),
                progress::Phase::Multiply => ("multiplying", Unit::MultiplyAdds),
                progress::Phase::Download => ("downloading", Unit::Bytes),
                progress::Phase::Check => ("verifying", Unit::Rows),
                // Unnamed phases have no bar.
                _ => return,
            };
            *current = Some((progress.phase, self.progress.phase(name, unit, progress.total)));
        }
        if let Some((_, phase)) = &*current {
            phase.set(progress.done);
        }
    }
}

/// Starts the thread pool of products, the interpreter and the reference, with `count` threads or
/// [`tegula_core::threads::count`].
pub fn threads(count: Option<usize>) -> crate::failure::Result<()> {
    if let Some(count) = count {
        let refused = |why: &str| Failure::new(format!("--threads {count}: {why}; choose fewer"));
        if count > rayon::max_num_threads() {
            return Err(refused(&format!("the maximum is {}", rayon::max_num_threads())));
        }
        let pool = rayon::ThreadPoolBuilder::new().num_threads(count);
        return pool.build_global().map_err(|error| refused(&error.to_string()));
    }
    // Start the pool before anything is timed.
    tegula_core::threads::count();
    Ok(())
}

/// Bytes of available host memory; `u64::MAX` where the system does not report it.
pub fn free_memory() -> u64 {
    tegula_core::host::available().map_or(u64::MAX, |bytes| u64::try_from(bytes).unwrap_or(u64::MAX))
}

/// Prints a kernel as PTX.
pub fn ptx(kernel: &Variant) -> Result<String> {
    Ok(ptx::print(&ir::check(kernel.build()?)?)?.text)
}

/// Prints a kernel as CUDA C++.
pub fn cuda(kernel: &Variant) -> Result<String> {
    Ok(cpp::print(&ir::check(kernel.build()?)?)?.text)
}

/// Prints a kernel as machine code of a GPU such as `sm_90`, with the PTX line of each instruction.
pub fn sass(kernel: &Variant, gpu: &str) -> Result<String, tegula_explain::Error> {
    let image = ptx::print(&ir::check(kernel.build()?)?)?;
    let listing = Tools::find().ok_or(tegula_explain::Error::ToolsNotFound)?.disassemble(&image, gpu)?;
    let mut text = format!(
        "// {} for {gpu}: {} instructions, {} registers, {} bytes spilled\n",
        image.entry,
        listing.code.len(),
        listing.registers,
        listing.spilled
    );
    let (lines, mut before): (Vec<&str>, _) = (image.text.lines().collect(), None);
    for Instruction { address, text: instruction, line } in &listing.code {
        if let Some(from) = line.filter(|line| before != Some(*line)).and_then(|line| lines.get(line)) {
            text += &format!("                                // {}\n", from.trim());
        }
        before = *line;
        text += &format!("{address:05x}  {instruction}\n");
    }
    Ok(text)
}

/// Lists devices, with the reason for unusable ones.
pub fn devices() -> Vec<Listed> {
    let interp = "interpreter: runs and checks GPU kernels on the CPU, slowly".into();
    let mut devices = vec![listed("cpu", processor()), listed("interp", Ok(interp))];
    match gpus() {
        Ok(gpus) => devices.extend(gpus.into_iter().map(|gpu| Listed {
            name: format!("cuda:{}", gpu.ordinal),
            description: gpu.to_string(),
            usable: gpu.usable,
        })),
        Err(error) => devices.push(listed("cuda", Err(error))),
    }
    devices
}

fn listed(name: &str, description: Result<String>) -> Listed {
    let usable = description.is_ok();
    Listed { name: name.into(), description: description.unwrap_or_else(|error| error.to_string()), usable }
}

/// The CPU's description, such as `16 threads; avx2 fma; kernels avx2 f64 4x12, …`.
fn processor() -> Result<String> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let features: Vec<_> = cpu::features().into_iter().filter(|(_, has)| *has).map(|(name, _)| name).collect();
    let features = if features.is_empty() { "no vector features".into() } else { features.join(" ") };
    Ok(format!("{threads} threads; {features}; kernels {}", cpu_kernels()?.join(", ")))
}

/// The CPU micro-kernel of each element type.
pub fn cpu_kernels() -> Result<Vec<String>> {
    let name = |ty| with_operand_type!(ty, T => cpu::kernel_name::<T>(), ty => Err(tegula::Error::no_kernels(ty)));
    Type::OPERANDS.into_iter().map(|ty| Ok(name(ty)?.into())).collect()
}

/// The GPUs that the driver reports.
#[cfg(feature = "cuda")]
pub fn gpus() -> Result<Vec<Gpu>> {
    let gpu = |gpu: tegula::cuda::DeviceInfo| {
        let usable = Caps::Gpu(GpuDescription { compute: gpu.compute, ..GpuDescription::H100 }).runs_kernels();
        Gpu {
            tuned: tuned(&gpu),
            ordinal: gpu.ordinal,
            name: gpu.name,
            compute: gpu.compute,
            multiprocessors: gpu.multiprocessors,
            memory_bytes: gpu.memory_bytes,
            cuda: gpu.driver,
            usable,
        }
    };
    Ok(tegula::cuda::devices()?.into_iter().map(gpu).collect())
}

/// The tuned entries of a GPU.
#[cfg(feature = "cuda")]
fn tuned(gpu: &tegula::cuda::DeviceInfo) -> Tuned {
    let key = cache::key(gpu);
    let path = cache::file(&key);
    let found = path.as_ref().map(|path| cache::read(path, &key));
    let file = path.map(|path| path.to_string_lossy().into_owned());
    match found {
        None => Tuned { file, entries: 0, calibrated: false, trouble: None },
        Some(Ok(found)) => {
            Tuned { file, entries: found.len(), calibrated: found.calibrated().is_some(), trouble: None }
        }
        Some(Err(why)) => {
            let trouble = file.as_ref().map(|file| format!("{file} {why}"));
            Tuned { file, entries: 0, calibrated: false, trouble }
        }
    }
}

#[cfg(not(feature = "cuda"))]
pub fn gpus() -> Result<Vec<Gpu>> {
    Err(tegula::Error::NoDriver { why: "this build lacks the `cuda` feature".into() })
}
