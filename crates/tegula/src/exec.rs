//! Devices, and the one trait through which products, tests and benchmarks reach them.

use std::sync::OnceLock;

#[cfg(feature = "cuda")]
use crate::cuda::Gpu;
use crate::element::Element;
use crate::error::{Error, Result};
use crate::gemm::{Gemm, Report};
use crate::interp::{Arg, Buffer, Config, run_told};
use crate::ir::check;
use crate::matrix::{Memory, MemoryMut};
use crate::plan::{Caps, Plan};
use crate::progress::{Meter, Phase};

/// Something that makes products.
pub trait Executor {
    /// `cpu`, `cuda:0`, `interp`.
    fn name(&self) -> String;

    /// What it can do.
    fn caps(&self) -> Caps;

    /// Makes a product by a plan that was chosen for it. [`Gemm::run`] is the way here.
    ///
    /// # Errors
    /// What the device says.
    fn run<T: Element>(&self, plan: &Plan, product: Gemm<'_, T>) -> Result<Report>;
}

/// A device to compute on.
#[derive(Clone, Debug)]
pub struct Device(Kind);

#[derive(Clone, Debug)]
enum Kind {
    Cpu,
    Interp,
    #[cfg(feature = "cuda")]
    Cuda(Gpu),
}

impl Device {
    /// The processor, all its cores.
    pub fn cpu() -> Self {
        Device(Kind::Cpu)
    }

    /// The interpreter: slow, but it runs GPU kernels anywhere and finds what is wrong with them.
    pub fn interp() -> Self {
        Device(Kind::Interp)
    }

    /// A GPU by its ordinal.
    ///
    /// # Errors
    /// [`Error::NoDriver`] without a driver (or in a build without the `cuda` feature), [`Error::NoSuchGpu`].
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

    /// The first GPU, if it works and is not too old for the kernels, else the processor. Looked for once in a process.
    pub fn best() -> Self {
        static BEST: OnceLock<Device> = OnceLock::new();
        let gpu = || Device::shared(0).ok().filter(|gpu| gpu.caps().runs_kernels());
        BEST.get_or_init(|| gpu().unwrap_or_else(Device::cpu)).clone()
    }

    /// A GPU by its ordinal, the same handle each time: opening one anew for every product would cost more than a small product.
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

    /// Where a product's matrices lie; the best device where they are on the host.
    pub(crate) fn holding<T: Element>(product: &Gemm<'_, T>) -> Result<Self> {
        let of = |memory: &Memory<'_, T>| match memory {
            Memory::Device(memory) => Some(memory.ordinal()),
            Memory::Host(_) => None,
        };
        let c = match &product.c.memory {
            MemoryMut::Device(memory) => Some(memory.ordinal()),
            MemoryMut::Host(_) => None,
        };
        match c.or(of(&product.a.memory)).or(of(&product.b.memory)) {
            Some(ordinal) => Device::shared(ordinal),
            None => Ok(Device::best()),
        }
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
        Device(Kind::Cuda(gpu))
    }
}

impl Executor for Device {
    fn name(&self) -> String {
        match &self.0 {
            Kind::Cpu => "cpu".into(),
            Kind::Interp => "interp".into(),
            #[cfg(feature = "cuda")]
            Kind::Cuda(gpu) => format!("cuda:{}", gpu.ordinal()),
        }
    }

    fn caps(&self) -> Caps {
        match &self.0 {
            Kind::Cpu => Caps::Cpu,
            Kind::Interp => Caps::Interp,
            #[cfg(feature = "cuda")]
            Kind::Cuda(gpu) => Caps::Gpu { compute: gpu.info().compute },
        }
    }

    fn run<T: Element>(&self, plan: &Plan, product: Gemm<'_, T>) -> Result<Report> {
        // Whoever calls this without `Gemm::run` is held to the same: the engines rely on it. A second look changes nothing.
        let product = product.checked()?;
        let kernel = match (&self.0, plan) {
            (Kind::Cpu, Plan::Cpu) => {
                let meter = product.audience.meter(Phase::Multiply, product.work());
                let Gemm { alpha, a, b, beta, c, .. } = product;
                crate::cpu::gemm_told::<T>(alpha, a, b, beta, c, meter.as_ref())?;
                meter.iter().for_each(Meter::finish);
                crate::cpu::kernel_name::<T>()?
            }
            (Kind::Interp, Plan::Gpu(variant)) => {
                let meter = product.audience.meter(Phase::Multiply, product.work());
                if !product.c.shape().is_empty() {
                    interpret(variant, product, meter.as_ref())?;
                }
                meter.iter().for_each(Meter::finish);
                variant.name()
            }
            #[cfg(feature = "cuda")]
            (Kind::Cuda(gpu), Plan::Gpu(variant)) => {
                gpu.multiply(variant, product)?;
                variant.name()
            }
            _ => {
                return Err(Error::Unsupported {
                    what: "a plan made for another device".into(),
                    ty: T::TYPE,
                    device: self.name(),
                });
            }
        };
        Ok(Report { device: self.name(), kernel })
    }
}

/// Runs a product's kernel in the interpreter, checks on: an error in the kernel is an error of the product.
fn interpret<T: Element>(
    variant: &crate::kernels::Variant,
    product: Gemm<'_, T>,
    meter: Option<&Meter<'_>>,
) -> Result<()> {
    let kernel = check(variant.build()?)?;
    let (a, b) = (Buffer::input(product.a)?, Buffer::input(product.b)?);
    let c = if product.beta == crate::element::Scalar::ZERO {
        Buffer::output(<T::Out as crate::element::Scalar>::TYPE, product.c.layout())?
    } else {
        Buffer::in_out(product.c.as_view())?
    };
    let args = [Arg::from(&a), Arg::from(&b), Arg::from(&c), Arg::scalar(product.alpha), Arg::scalar(product.beta)];
    run_told(&kernel, &args, &Config::default(), meter)?.ok(&kernel)?;
    c.copy_to(product.c)
}
