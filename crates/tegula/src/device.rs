//! Devices that compute products: CPU, interpreter, GPUs.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

#[cfg(feature = "cuda")]
use tegula_kernels::plan::GpuDescription;
use tegula_kernels::plan::{Caps, TuningTable, UNTUNED};

#[cfg(feature = "cuda")]
use crate::cuda::Gpu;
use crate::element::{Element, Type};
use crate::error::{Error, Result};
use crate::matrix::{Memory, View};

/// A device that computes products, and the source of its tuned entries. A clone is cheap.
// `None` is the CPU. Each product has a clone: some more words to copy would take a fifth of the
// time of a product of 8×8×8.
#[derive(Clone, Debug)]
pub struct Device(Option<Arc<State>>);

/// The state that clones of a device share.
#[derive(Debug)]
struct State {
    backend: Backend,
    tuning: Tuning,
}

/// The source of tuned entries.
#[derive(Debug)]
enum Tuning {
    /// The tuning cache, as it was at its first use in the process.
    Cache,
    /// A table of the caller.
    Table(TuningTable),
    /// The tuning cache and the entries measured since, of which each may take this long.
    #[cfg_attr(not(feature = "cuda"), allow(dead_code, reason = "only GPUs are tuned"))]
    Autotune(Duration),
}

#[derive(Clone, Debug)]
pub(crate) enum Backend {
    Cpu,
    #[cfg(feature = "interp")]
    Interp,
    #[cfg(feature = "cuda")]
    Cuda(Gpu),
}

impl Device {
    fn new(backend: Backend, tuning: Tuning) -> Self {
        Device(Some(Arc::new(State { backend, tuning })))
    }

    #[inline]
    pub(crate) fn backend(&self) -> &Backend {
        self.0.as_ref().map_or(&Backend::Cpu, |state| &state.backend)
    }

    fn tuning(&self) -> &Tuning {
        self.0.as_ref().map_or(&Tuning::Cache, |state| &state.tuning)
    }

    /// The CPU, on all cores.
    pub fn cpu() -> Self {
        Device(None)
    }

    /// The interpreter: runs GPU kernels without a GPU, slowly, and checks them for races and
    /// bounds. Needs the feature `interp`.
    #[cfg(feature = "interp")]
    pub fn interp() -> Self {
        Device::new(Backend::Interp, Tuning::Cache)
    }

    /// A GPU by its ordinal.
    ///
    /// # Errors
    /// [`Error::NoDriver`] without a driver, or in a build without the `cuda` feature;
    /// [`Error::NoSuchGpu`].
    #[cfg(feature = "cuda")]
    pub fn cuda(ordinal: usize) -> Result<Self> {
        Gpu::open(ordinal).map(Self::from)
    }

    /// A GPU by its ordinal; this build lacks the `cuda` feature.
    ///
    /// # Errors
    /// [`Error::NoDriver`], always.
    #[cfg(not(feature = "cuda"))]
    pub fn cuda(_ordinal: usize) -> Result<Self> {
        Err(Error::NoDriver { why: "this build of the library is without its `cuda` feature".into() })
    }

    /// The first GPU, if it works and its compute capability is high enough for the kernels, else
    /// the CPU. Detected once per process.
    pub fn best() -> Self {
        static BEST: OnceLock<Device> = OnceLock::new();
        let gpu = || Device::cached(0).ok().filter(|gpu| gpu.caps().runs_kernels());
        BEST.get_or_init(|| gpu().unwrap_or_else(Device::cpu)).clone()
    }

    /// A GPU by its ordinal, from a cache of handles: opening a handle costs more than a small
    /// product.
    #[cfg(feature = "cuda")]
    fn cached(ordinal: usize) -> Result<Self> {
        use std::collections::BTreeMap;
        use std::sync::{Mutex, PoisonError};
        static OPEN: Mutex<BTreeMap<usize, Device>> = Mutex::new(BTreeMap::new());
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(device) = open.get(&ordinal) {
            return Ok(device.clone());
        }
        let device = Device::cuda(ordinal)?;
        open.insert(ordinal, device.clone());
        Ok(device)
    }

    #[cfg(not(feature = "cuda"))]
    fn cached(ordinal: usize) -> Result<Self> {
        Device::cuda(ordinal)
    }

    /// Uses this tuning table instead of the [tuning cache](crate::cache).
    ///
    /// With an empty table (`TuningTable::default()`) the cost model chooses every kernel, by the
    /// properties that the driver reports. Another kernel may add in another order, so results can
    /// differ in their last bits. Ends [`autotune`](Self::autotune).
    #[must_use]
    pub fn with_tuning(self, table: TuningTable) -> Self {
        Device::new(self.backend().clone(), Tuning::Table(table))
    }

    /// Measures the kernels of a product before its first run, for about `budget`, and uses the
    /// fastest from then on. Off by default; only GPUs have kernels to measure.
    ///
    /// A problem is measured once for its types, accuracy, shape, layouts and alignment. This run
    /// waits for the GPU. The kernels with the best predicted times run on random matrices in
    /// memory of their own: never on those of the product. The fastest is kept if sampled elements
    /// of its result are right, in the [tuning cache](crate::cache) too, where later programs find
    /// it.
    ///
    /// Not measured are problems of the tuning cache, products on a stream that is captured,
    /// batch-invariant and grouped ones. A product that meets the search of another thread is
    /// measured at a later run. Where a search fails, for example for a lack of memory, that is
    /// logged; the cost model chooses, and the problem is not measured again. A `budget` of zero
    /// measures nothing. Replaces the table of [`with_tuning`](Self::with_tuning).
    ///
    /// The driver assembles a kernel at its first use on a machine, in a tenth of a second or more,
    /// and half of the budget goes to that: at first few kernels are compared, later more.
    ///
    /// Another kernel may add in another order, so results can differ in their last bits from run
    /// to run, as measured times do.
    ///
    /// ```no_run
    /// use std::time::Duration;
    /// use tegula::{Device, Gemm, Matrix};
    ///
    /// let device = Device::cuda(0)?.autotune(Duration::from_secs(1));
    /// let (a, mut c) = (Matrix::<f32>::zeros(1000, 1000)?, Matrix::zeros(1000, 1000)?);
    /// Gemm::new(a.view(), a.view(), c.view_mut()).on(&device).run()?;
    /// # Ok::<(), tegula::Error>(())
    /// ```
    #[must_use]
    pub fn autotune(self, budget: Duration) -> Self {
        Device::new(self.backend().clone(), Tuning::Autotune(budget))
    }

    /// The GPU and the seconds of a search, where problems are measured.
    #[cfg(feature = "cuda")]
    pub(crate) fn autotuned(&self) -> Option<(&Gpu, Duration)> {
        match (self.backend(), self.tuning()) {
            (Backend::Cuda(gpu), Tuning::Autotune(budget)) if !budget.is_zero() => Some((gpu, *budget)),
            _ => None,
        }
    }

    /// This device with its tuned entries, but without a search for others.
    pub(crate) fn without_search(&self) -> Self {
        match self.tuning() {
            Tuning::Autotune(_) => self.clone().autotune(Duration::ZERO),
            _ => self.clone(),
        }
    }

    /// Calls `choose` with the tuning table for plans on this device.
    pub(crate) fn with_tuned<R>(&self, choose: impl FnOnce(&TuningTable) -> R) -> R {
        match (self.tuning(), self.backend()) {
            (Tuning::Table(own), _) => choose(own),
            #[cfg(feature = "cuda")]
            (Tuning::Cache, Backend::Cuda(gpu)) => choose(crate::cache::tuned(gpu.info())),
            #[cfg(feature = "cuda")]
            (Tuning::Autotune(_), Backend::Cuda(gpu)) => choose(crate::cache::measured(gpu.info()).read().table()),
            _ => choose(&UNTUNED),
        }
    }

    /// The GPU that holds the operands; the best device where all are on the host.
    pub(crate) fn for_operands<T: Element>(
        a: View<'_, T>,
        b: View<'_, T>,
        c: View<'_, T::Out>,
        bias: Option<View<'_, T::Out>>,
    ) -> Result<Self> {
        let bias_gpu = || bias.and_then(|bias| gpu_of(&bias.memory()));
        match gpu_of(&c.memory()).or(gpu_of(&a.memory())).or(gpu_of(&b.memory())).or_else(bias_gpu) {
            Some(ordinal) => Device::cached(ordinal),
            None => Ok(Device::best()),
        }
    }

    /// The [`name`](Self::name) of the CPU.
    pub(crate) const CPU_NAME: &str = "cpu";

    /// `cpu`, `cuda:0`, `interp`.
    pub fn name(&self) -> String {
        self.label().into_owned()
    }

    /// The capabilities that plans depend on. Those of a GPU are as its tuning table has them
    /// (`tegula tune --calibrate`), else as its driver reports them.
    pub fn caps(&self) -> Caps {
        match self.backend() {
            Backend::Cpu => Caps::Cpu,
            #[cfg(feature = "interp")]
            Backend::Interp => Caps::Interp,
            #[cfg(feature = "cuda")]
            Backend::Cuda(gpu) => {
                let reported = reported_description(gpu.info());
                Caps::Gpu(self.with_tuned(|table| table.describe(reported)))
            }
        }
    }

    /// [`name`](Self::name), without an allocation where it is constant.
    #[inline]
    pub(crate) fn label(&self) -> Cow<'static, str> {
        match self.backend() {
            Backend::Cpu => Self::CPU_NAME.into(),
            #[cfg(feature = "interp")]
            Backend::Interp => "interp".into(),
            #[cfg(feature = "cuda")]
            Backend::Cuda(gpu) => format!("cuda:{}", gpu.ordinal()).into(),
        }
    }

    pub(crate) fn ordinal(&self) -> Option<usize> {
        match self.backend() {
            Backend::Cpu => None,
            #[cfg(feature = "interp")]
            Backend::Interp => None,
            #[cfg(feature = "cuda")]
            Backend::Cuda(gpu) => Some(gpu.ordinal()),
        }
    }

    pub(crate) fn wrong_device_plan(&self, ty: Type) -> Error {
        Error::Unsupported { what: "a plan made for another device".into(), ty, device: self.name() }
    }

    /// The GPU handle, if the device is a GPU.
    #[cfg(feature = "cuda")]
    pub fn gpu(&self) -> Option<&Gpu> {
        match self.backend() {
            Backend::Cuda(gpu) => Some(gpu),
            _ => None,
        }
    }
}

#[cfg(feature = "cuda")]
impl From<Gpu> for Device {
    fn from(gpu: Gpu) -> Self {
        Device::new(Backend::Cuda(gpu), Tuning::Cache)
    }
}

/// The ordinal of the GPU that holds the memory; `None` for the host.
pub(crate) fn gpu_of<T>(memory: &Memory<'_, T>) -> Option<usize> {
    match memory {
        Memory::Device(memory) => Some(memory.ordinal()),
        Memory::Host(_) => None,
    }
}
/// The properties of a GPU that plans depend on, as its driver reports them.
#[cfg(feature = "cuda")]
pub(crate) fn reported_description(info: &crate::cuda::DeviceInfo) -> GpuDescription {
    let &crate::cuda::DeviceInfo { compute, multiprocessors, memory_bandwidth, l2_bytes, clock_khz, .. } = info;
    GpuDescription::of(compute, multiprocessors, memory_bandwidth, l2_bytes, clock_khz / 1000)
}
