//! Devices, and the one trait through which products, tests and benchmarks reach them.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use crate::cpu::Panels;
#[cfg(feature = "cuda")]
use crate::cuda::Gpu;
use crate::element::{Element, Scalar, Type};
use crate::epilogue::Finish;
use crate::error::{Error, Result};
use crate::gemm::{Gemm, Report};
use crate::host;
use crate::interp::{Arg, Buffer, Config, footprint, run_told};
use crate::ir::check;
use crate::kernels::{Hopper, Variant};
use crate::matrix::{Layout, Matrix, Memory, Shape, View, ViewMut};
use crate::plan::explain::{Engine, Given};
use crate::plan::{Caps, Explanation, Lie, Meeting, Plan, Recipe, Tuned, UNTUNED};
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

/// A device to compute on, and winners of its own where it was given any.
#[derive(Clone, Debug)]
pub struct Device(Kind, Option<Arc<Tuned>>);

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
        Device(Kind::Cpu, None)
    }

    /// The interpreter: slow, but it runs GPU kernels anywhere and finds what is wrong with them.
    pub fn interp() -> Self {
        Device(Kind::Interp, None)
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

    /// The same device, with these winners in place of those that `tegula tune` has left in the [cache](crate::cache). Without winners
    /// (`Tuned::default()`) the cost model chooses every kernel. Another kernel may add in another order, so results can differ in their
    /// last bits.
    #[must_use]
    pub fn tuned_by(self, winners: Tuned) -> Self {
        Device(self.0, Some(Arc::new(winners)))
    }

    /// The winners that choices are made by.
    pub(crate) fn tuned(&self) -> &Tuned {
        match (&self.1, &self.0) {
            (Some(own), _) => own,
            (None, Kind::Cpu | Kind::Interp) => &UNTUNED,
            #[cfg(feature = "cuda")]
            (None, Kind::Cuda(gpu)) => crate::cache::tuned(gpu.info()),
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

    /// What [`Executor::run`] would do by this plan, for operands as it gets them: A and B, C, alpha and beta, what is done last.
    pub(crate) fn explain<T: Element>(
        &self,
        plan: &Plan,
        [a, b]: [View<'_, T>; 2],
        c: View<'_, T::Out>,
        [alpha, beta]: [T::Acc; 2],
        last: Finish<'_, T::Out>,
        panels: Option<&Panels>,
    ) -> Result<Explanation> {
        let out = <T::Out as Scalar>::TYPE;
        let given = Given {
            layouts: [a.layout(), b.layout(), c.layout()],
            types: [T::TYPE, T::TYPE, out],
            gpus: [gpu_of(&a.memory()), gpu_of(&b.memory()), gpu_of(&c.memory())],
            reads_c: beta != T::Acc::ZERO,
            bias: last.bias.map(|bias| (bias.layout(), gpu_of(&bias.memory()))),
            epilogue: last.epilogue(),
        };
        given.refuse_other_gpus(self.ordinal(), &self.name())?;
        match (&self.0, plan) {
            (Kind::Cpu, Plan::Cpu) => {
                let space = crate::cpu::workspace::<T>(alpha, a.layout(), b.layout(), beta, c.layout(), panels)?;
                Ok(given.on_cpu(crate::cpu::kernel_name::<T>()?.into(), space.in_place, space.bytes))
            }
            (Kind::Interp, Plan::Gpu(recipe)) => {
                let host_bytes = copies::<T>(a.shape(), b.shape(), c.shape(), last.bias.map(|bias| bias.shape()))?;
                let facts = Config::default().device;
                given.by_kernel(recipe, Engine { device: self.name(), gpu: None, facts, host_bytes })
            }
            #[cfg(feature = "cuda")]
            (Kind::Cuda(gpu), Plan::Gpu(recipe)) => {
                let facts = crate::ir::launch::DeviceFacts { multiprocessors: gpu.info().multiprocessors };
                let copies = given.gpus.contains(&None) || matches!(given.bias, Some((_, None)));
                let host_bytes = if copies { crate::cuda::STAGING_BYTES as u128 } else { 0 };
                given.by_kernel(recipe, Engine { device: self.name(), gpu: Some(gpu.ordinal()), facts, host_bytes })
            }
            _ => Err(self.other_plan(T::TYPE)),
        }
    }

    /// [`Executor::run`] for a product that is checked.
    pub(crate) fn run_checked<T: Element>(&self, plan: &Plan, product: Gemm<'_, T>) -> Result<Report> {
        let epilogue = product.finish.epilogue();
        let kernel = match (&self.0, plan) {
            (Kind::Cpu, Plan::Cpu) => {
                let meter = product.audience.meter(Phase::Multiply, product.work());
                let Gemm { alpha, a, b, beta, c, finish, panels, .. } = product;
                crate::cpu::gemm_told::<T>(alpha, a, b, beta, c, finish, panels, meter.as_ref())?;
                meter.iter().for_each(Meter::finish);
                crate::cpu::kernel_name::<T>()?
            }
            (Kind::Interp, Plan::Gpu(recipe)) => {
                let meter = product.audience.meter(Phase::Multiply, product.work());
                if !product.c.shape().is_empty() {
                    interpret(recipe, product, meter.as_ref())?;
                }
                meter.iter().for_each(Meter::finish);
                recipe.finished(epilogue).name().into()
            }
            #[cfg(feature = "cuda")]
            (Kind::Cuda(_), Plan::Gpu(recipe)) if product.c.shape().is_empty() => {
                recipe.finished(epilogue).name().into()
            }
            #[cfg(feature = "cuda")]
            (Kind::Cuda(gpu), Plan::Gpu(recipe)) => gpu.multiply(recipe, product)?.into(),
            _ => return Err(self.other_plan(T::TYPE)),
        };
        Ok(Report { device: self.label(), kernel })
    }

    /// A product of groups, those rows of A and C with a matrix B each, by the kernel that was chosen for it.
    pub(crate) fn run_groups<T: Element>(
        &self,
        kernel: Hopper,
        product: Gemm<'_, T>,
        rows: &[Range<usize>],
    ) -> Result<Report> {
        match &self.0 {
            #[cfg(feature = "cuda")]
            Kind::Cuda(gpu) => {
                Ok(Report { device: self.label(), kernel: gpu.multiply_groups(kernel, product, rows)?.into() })
            }
            _ => {
                let _ = (kernel, product, rows);
                Err(self.other_plan(T::TYPE))
            }
        }
    }

    /// [`name`](Executor::name), without memory where it is always the same.
    pub(crate) fn label(&self) -> Cow<'static, str> {
        match &self.0 {
            Kind::Cpu => "cpu".into(),
            Kind::Interp => "interp".into(),
            #[cfg(feature = "cuda")]
            Kind::Cuda(gpu) => format!("cuda:{}", gpu.ordinal()).into(),
        }
    }

    fn ordinal(&self) -> Option<usize> {
        match &self.0 {
            Kind::Cpu | Kind::Interp => None,
            #[cfg(feature = "cuda")]
            Kind::Cuda(gpu) => Some(gpu.ordinal()),
        }
    }

    fn other_plan(&self, ty: Type) -> Error {
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

impl Executor for Device {
    fn name(&self) -> String {
        self.label().into_owned()
    }

    fn caps(&self) -> Caps {
        match &self.0 {
            Kind::Cpu => Caps::Cpu,
            Kind::Interp => Caps::Interp,
            #[cfg(feature = "cuda")]
            Kind::Cuda(gpu) => {
                let info = gpu.info();
                Caps::Gpu { compute: info.compute, multiprocessors: info.multiprocessors }
            }
        }
    }

    fn run<T: Element>(&self, plan: &Plan, mut product: Gemm<'_, T>) -> Result<Report> {
        // Whoever calls this without `Gemm::run` is held to the same: the engines rely on it.
        product.check()?;
        self.run_checked(plan, product)
    }
}

/// The GPU that memory lies on.
fn gpu_of<T>(memory: &Memory<'_, T>) -> Option<usize> {
    match memory {
        Memory::Device(memory) => Some(memory.ordinal()),
        Memory::Host(_) => None,
    }
}

/// Bytes that the interpreter takes for its copies of A, B, C and the bias.
fn copies<T: Element>(a: Shape, b: Shape, c: Shape, bias: Option<Shape>) -> Result<u128> {
    if c.is_empty() {
        return Ok(0);
    }
    let inputs = footprint(T::TYPE, a.len()?, false) + footprint(T::TYPE, b.len()?, false);
    let out = <T::Out as Scalar>::TYPE;
    let bias = bias.map_or(Ok(0), |bias| bias.len())?;
    Ok(inputs + footprint(out, c.len()?, true) + footprint(out, bias, false))
}

/// Runs a product's kernels in the interpreter, checks on: an error in a kernel is an error of the product.
fn interpret<T: Element>(recipe: &Recipe, product: Gemm<'_, T>, meter: Option<&Meter<'_>>) -> Result<()> {
    let lie = |layout: Layout| Lie::of(&layout, T::TYPE, 0);
    let c_lie = Lie::of(&product.c.layout(), <T::Out as Scalar>::TYPE, 0);
    let recipe =
        &recipe.finished(product.finish.epilogue()).fit([lie(product.a.layout()), lie(product.b.layout()), c_lie]);
    let shapes = [product.a.shape(), product.b.shape(), product.c.shape()];
    let workspace = recipe.workspace(recipe.output(product.c.layout(), Layout::transposed).shape);
    let workspace = workspace.map_or(Ok(0), |shape| shape.len())?;
    let bias = product.finish.bias;
    let copied = copies::<T>(shapes[0], shapes[1], shapes[2], bias.map(|bias| bias.shape()))?;
    let bytes = copied + footprint(<T::Acc as Scalar>::TYPE, workspace, true);
    host::check(bytes, || "the interpreter's copies of A, B and C".into())?;
    let depth = product.a.shape().cols;
    let [a, b] = recipe.inputs([product.a, product.b], View::t);
    let (a, b, target) = (Buffer::input(a)?, Buffer::input(b)?, recipe.output(product.c, ViewMut::t));
    let bias = bias.map(|bias| Buffer::input(recipe.output(bias, View::t))).transpose()?;
    let c = if product.beta == T::Acc::ZERO {
        Buffer::output(<T::Out as Scalar>::TYPE, target.layout())?
    } else {
        Buffer::in_out(target.as_view())?
    };
    let factors = [Arg::scalar(product.alpha), Arg::scalar(product.beta)];
    // The bias is a parameter of every kernel that stores to C.
    let run = |variant: Variant, matrices: &[&Buffer], bias: Option<&Buffer>, factors: &[Arg<'_>]| {
        let kernel = check(variant.build()?)?;
        let matrices = matrices.iter().copied().chain(bias).map(Arg::from);
        let args: Vec<Arg<'_>> = matrices.chain(factors.iter().copied()).collect();
        run_told(&kernel, &args, &Config::default(), meter)?.ok(&kernel).map(drop)
    };
    let copy = |which, factor: &Buffer| {
        let layout = recipe.packed(which, factor.layout().shape)?;
        layout.map(|layout| Buffer::output(T::TYPE, layout)).transpose()
    };
    let to = [copy(0, &a)?, copy(1, &b)?];
    let lies = [&a, &b].map(|factor| lie(factor.layout()));
    for (pack, which) in recipe.packs(lies, to.each_ref().map(|to| to.as_ref().map(|to| to.layout().shape))) {
        let pairs = [(&a, &to[0]), (&b, &to[1])];
        let matrices: Vec<&Buffer> =
            pairs[which].iter().flat_map(|(from, to)| std::iter::once(*from).chain(*to)).collect();
        run(pack, &matrices, None, &[])?;
    }
    let [packed_a, packed_b] = to;
    let (a, b) = (packed_a.unwrap_or(a), packed_b.unwrap_or(b));
    let shape = recipe.workspace(target.shape()).unwrap_or(Shape::new(0, 0));
    let parts = Buffer::output(<T::Acc as Scalar>::TYPE, Layout::row_major(shape)?)?;
    let (bias, meeting) = (bias.as_ref(), recipe.meeting(depth));
    match meeting {
        Meeting::None => run(recipe.kernel, &[&a, &b, &c], bias, &factors)?,
        Meeting::Sum | Meeting::Reduce(_) => run(recipe.kernel, &[&a, &b, &parts], None, &[])?,
        Meeting::Mend { .. } => run(recipe.kernel, &[&a, &b, &c, &parts], bias, &factors)?,
        Meeting::Flags(count) => {
            let flags = Buffer::in_out(Matrix::<u32>::zeros(Shape::new(1, count))?.view())?;
            run(recipe.kernel, &[&a, &b, &c, &parts, &flags], bias, &factors)?;
        }
    }
    let lie = Lie::of(&target.layout(), <T::Out as Scalar>::TYPE, 0);
    if let Some(second) = recipe.second(lie, target.shape().len()?) {
        run(second, &[&parts, &c], bias, &meeting.numbers(factors, Arg::scalar))?;
    }
    c.copy_to(target)
}
