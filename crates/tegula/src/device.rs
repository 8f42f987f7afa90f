//! Devices that compute products: CPU, interpreter, GPUs.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

use tegula_kernels::plan::{Caps, TuningTable, UNTUNED};

#[cfg(feature = "cuda")]
use crate::cuda::Gpu;
use crate::element::{Element, Type};
use crate::error::{Error, Result};
use crate::matrix::{Memory, View};

/// A device that computes products, with its own tuning table where one was given.
#[derive(Clone, Debug)]
pub struct Device(pub(crate) Backend, Option<Arc<TuningTable>>);

#[derive(Clone, Debug)]
pub(crate) enum Backend {
    Cpu,
    #[cfg(feature = "interp")]
    Interp,
    #[cfg(feature = "cuda")]
    Cuda(Gpu),
}

impl Device {
    /// The CPU, on all cores.
    pub fn cpu() -> Self {
        Device(Backend::Cpu, None)
    }

    /// The interpreter: runs GPU kernels without a GPU, slowly, and checks them for races and
    /// bounds. Needs the feature `interp`.
    #[cfg(feature = "interp")]
    pub fn interp() -> Self {
        Device(Backend::Interp, None)
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

    /// Uses this tuning table instead of the [tuning cache](crate::cache) of `tegula tune`.
    ///
    /// With an empty table (`TuningTable::default()`) the cost model chooses every kernel. Another
    /// kernel may add in another order, so results can differ in their last bits.
    #[must_use]
    pub fn with_tuning(self, table: TuningTable) -> Self {
        Device(self.0, Some(Arc::new(table)))
    }

    /// The tuning table for plans on this device.
    pub(crate) fn tuned(&self) -> &TuningTable {
        match (&self.1, &self.0) {
            (Some(own), _) => own,
            #[cfg(feature = "cuda")]
            (None, Backend::Cuda(gpu)) => crate::cache::tuned(gpu.info()),
            (None, _) => &UNTUNED,
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

    /// `cpu`, `cuda:0`, `interp`.
    pub fn name(&self) -> String {
        self.label().into_owned()
    }

    /// The capabilities that plans depend on.
    pub fn caps(&self) -> Caps {
        match &self.0 {
            Backend::Cpu => Caps::Cpu,
            #[cfg(feature = "interp")]
            Backend::Interp => Caps::Interp,
            #[cfg(feature = "cuda")]
            Backend::Cuda(gpu) => Caps::Gpu(gpu.info().description()),
        }
    }

    /// [`name`](Self::name), without an allocation where it is constant.
    pub(crate) fn label(&self) -> Cow<'static, str> {
        match &self.0 {
            Backend::Cpu => "cpu".into(),
            #[cfg(feature = "interp")]
            Backend::Interp => "interp".into(),
            #[cfg(feature = "cuda")]
            Backend::Cuda(gpu) => format!("cuda:{}", gpu.ordinal()).into(),
        }
    }

    pub(crate) fn ordinal(&self) -> Option<usize> {
        match &self.0 {
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
        match &self.0 {
            Backend::Cuda(gpu) => Some(gpu),
            _ => None,
        }
    }
}

#[cfg(feature = "cuda")]
impl From<Gpu> for Device {
    fn from(gpu: Gpu) -> Self {
        Device(Backend::Cuda(gpu), None)
    }
}

/// The ordinal of the GPU that holds the memory; `None` for the host.
pub(crate) fn gpu_of<T>(memory: &Memory<'_, T>) -> Option<usize> {
    match memory {
        Memory::Device(memory) => Some(memory.ordinal()),
        Memory::Host(_) => None,
    }
}
