//! Devices: where products are computed.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

use tegula_kernels::plan::{Caps, Tuned, UNTUNED};

#[cfg(feature = "cuda")]
use crate::cuda::Gpu;
use crate::element::{Element, Type};
use crate::error::{Error, Result};
use crate::matrix::{Memory, View};

/// A device to compute on, and winners of its own where it was given any.
#[derive(Clone, Debug)]
pub struct Device(pub(crate) Kind, Option<Arc<Tuned>>);

#[derive(Clone, Debug)]
pub(crate) enum Kind {
    Cpu,
    #[cfg(feature = "interp")]
    Interp,
    #[cfg(feature = "cuda")]
    Cuda(Gpu),
}

impl Device {
    /// The processor, all its cores.
    pub fn cpu() -> Self {
        Device(Kind::Cpu, None)
    }

    /// The interpreter: slow, but it runs GPU kernels anywhere and finds what is wrong with them.
    /// Needs the feature `interp`.
    #[cfg(feature = "interp")]
    pub fn interp() -> Self {
        Device(Kind::Interp, None)
    }

    /// A GPU by its ordinal.
    ///
    /// # Errors
    /// [`Error::NoDriver`] without a driver (or in a build without the `cuda` feature),
    /// [`Error::NoSuchGpu`].
    #[cfg(feature = "cuda")]
    pub fn cuda(ordinal: usize) -> Result<Self> {
        Gpu::open(ordinal).map(Self::from)
    }

    /// A GPU by its ordinal; this build has none.
    ///
    /// # Errors
    /// [`Error::NoDriver`], always.
    #[cfg(not(feature = "cuda"))]
    pub fn cuda(_ordinal: usize) -> Result<Self> {
        Err(Error::NoDriver { why: "this build of the library is without its `cuda` feature".into() })
    }

    /// The first GPU, if it works and is not too old for the kernels, else the processor. Looked
    /// for once in a process.
    pub fn best() -> Self {
        static BEST: OnceLock<Device> = OnceLock::new();
        let gpu = || Device::shared(0).ok().filter(|gpu| gpu.caps().runs_kernels());
        BEST.get_or_init(|| gpu().unwrap_or_else(Device::cpu)).clone()
    }

    /// A GPU by its ordinal, the same handle each time: opening one anew for every product would
    /// cost more than a small product.
    #[cfg(feature = "cuda")]
    fn shared(ordinal: usize) -> Result<Self> {
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
    fn shared(ordinal: usize) -> Result<Self> {
        Device::cuda(ordinal)
    }

    /// The same device, with these winners in place of those that `tegula tune` has left in the
    /// [cache](crate::cache). Without winners (`Tuned::default()`) the cost model chooses every
    /// kernel. Another kernel may add in another order, so results can differ in their
    /// last bits.
    #[must_use]
    pub fn tuned_by(self, winners: Tuned) -> Self {
        Device(self.0, Some(Arc::new(winners)))
    }

    /// The winners that choices are made by.
    pub(crate) fn tuned(&self) -> &Tuned {
        match (&self.1, &self.0) {
            (Some(own), _) => own,
            #[cfg(feature = "cuda")]
            (None, Kind::Cuda(gpu)) => crate::cache::tuned(gpu.info()),
            (None, _) => &UNTUNED,
        }
    }

    /// Where a product's matrices lie; the best device where they are on the host.
    pub(crate) fn holding<T: Element>(
        a: View<'_, T>,
        b: View<'_, T>,
        c: View<'_, T::Out>,
        bias: Option<View<'_, T::Out>>,
    ) -> Result<Self> {
        let of_bias = || bias.and_then(|bias| gpu_of(&bias.memory()));
        match gpu_of(&c.memory()).or(gpu_of(&a.memory())).or(gpu_of(&b.memory())).or_else(of_bias) {
            Some(ordinal) => Device::shared(ordinal),
            None => Ok(Device::best()),
        }
    }

    /// `cpu`, `cuda:0`, `interp`.
    pub fn name(&self) -> String {
        self.label().into_owned()
    }

    /// What it can do.
    pub fn caps(&self) -> Caps {
        match &self.0 {
            Kind::Cpu => Caps::Cpu,
            #[cfg(feature = "interp")]
            Kind::Interp => Caps::Interp,
            #[cfg(feature = "cuda")]
            Kind::Cuda(gpu) => {
                let info = gpu.info();
                Caps::Gpu { compute: info.compute, multiprocessors: info.multiprocessors }
            }
        }
    }

    /// [`name`](Self::name), without memory where it is always the same.
    pub(crate) fn label(&self) -> Cow<'static, str> {
        match &self.0 {
            Kind::Cpu => "cpu".into(),
            #[cfg(feature = "interp")]
            Kind::Interp => "interp".into(),
            #[cfg(feature = "cuda")]
            Kind::Cuda(gpu) => format!("cuda:{}", gpu.ordinal()).into(),
        }
    }

    pub(crate) fn ordinal(&self) -> Option<usize> {
        match &self.0 {
            Kind::Cpu => None,
            #[cfg(feature = "interp")]
            Kind::Interp => None,
            #[cfg(feature = "cuda")]
            Kind::Cuda(gpu) => Some(gpu.ordinal()),
        }
    }

    pub(crate) fn other_plan(&self, ty: Type) -> Error {
        Error::Unsupported { what: "a plan made for another device".into(), ty, device: self.name() }
    }

    /// The GPU, if it is one.
    #[cfg(feature = "cuda")]
    pub fn gpu(&self) -> Option<&Gpu> {
        match &self.0 {
            Kind::Cuda(gpu) => Some(gpu),
            _ => None,
        }
    }
}

#[cfg(feature = "cuda")]
impl From<Gpu> for Device {
    fn from(gpu: Gpu) -> Self {
        Device(Kind::Cuda(gpu), None)
    }
}

/// The GPU that memory lies on.
pub(crate) fn gpu_of<T>(memory: &Memory<'_, T>) -> Option<usize> {
    match memory {
        Memory::Device(memory) => Some(memory.ordinal()),
        Memory::Host(_) => None,
    }
}
