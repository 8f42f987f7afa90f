//! Products on a GPU: binds kernel parameters to matrices, loads the kernels, and queues the
//! launches.
//!
//! The only file of `cuda` that depends on kernels; the others take a printed image.

use std::borrow::Borrow;
use std::ops::Range;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use tegula_core::epilogue::Epilogue;
use tegula_core::progress::{Phase, ProgressMeter, ProgressReporter};
use tegula_ir::launch::{BoundArgument, DeviceProperties, Field};
use tegula_ir::{Axis, Checked, Kernel, Order2d, ParamKind, Tiles, check, ptx};
use tegula_kernels::plan::{Argument, Launch, Launches, OperandLayout, Operands, Recipe, Workspace};
use tegula_kernels::{Edges, GemmKernel, Hopper, Variant};

use super::workspace_pool::WorkspaceContents;
use super::{Buffer, DeviceElement, DeviceMatrix, Function, Gpu, Param, tensor_map};
use crate::element::{Element, Scalar, Type};
use crate::error::{Error, Result};
use crate::gemm::Gemm;
use crate::matrix::{DeviceMemory, HomeStream, Layout, Memory, MemoryMut, Shape, View, ViewMut};

/// An argument of a launch on a GPU.
#[derive(Clone, Copy, Debug)]
pub enum Arg<'a> {
    /// A matrix in the GPU's memory.
    Matrix {
        /// Element type.
        ty: Type,
        /// Layout of the elements.
        layout: Layout,
        /// The memory.
        memory: DeviceMemory<'a>,
    },
    /// A scalar.
    Scalar {
        /// Type of the scalar.
        ty: Type,
        /// Bits of the scalar.
        bits: u64,
    },
}

impl<'a> Arg<'a> {
    /// A matrix to read.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a matrix in host memory.
    pub fn input<T: Scalar>(view: View<'a, T>) -> Result<Self> {
        match view.memory() {
            Memory::Device(memory) => Ok(Arg::Matrix { ty: checked_type::<T>()?, layout: view.layout(), memory }),
            Memory::Host(_) => Err(host_matrix_error(T::TYPE)),
        }
    }

    /// A matrix to write.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a matrix in host memory.
    pub fn output<T: Scalar>(view: ViewMut<'a, T>) -> Result<Self> {
        let layout = view.layout();
        match view.into_memory() {
            MemoryMut::Device(memory) => Ok(Arg::Matrix { ty: checked_type::<T>()?, layout, memory }),
            MemoryMut::Host(_) => Err(host_matrix_error(T::TYPE)),
        }
    }

    /// A scalar.
    pub fn scalar<T: Scalar>(value: T) -> Self {
        Arg::Scalar { ty: T::TYPE, bits: value.to_bits() }
    }

    fn layout(&self) -> Option<Layout> {
        match self {
            Arg::Matrix { layout, .. } => Some(*layout),
            Arg::Scalar { .. } => None,
        }
    }

    fn memory(&self) -> Option<DeviceMemory<'a>> {
        match self {
            Arg::Matrix { memory, .. } => Some(*memory),
            Arg::Scalar { .. } => None,
        }
    }

    /// The transposed matrix.
    fn transposed(self) -> Self {
        match self {
            Arg::Matrix { ty, layout, memory } => Arg::Matrix { ty, layout: layout.transposed(), memory },
            Arg::Scalar { .. } => self,
        }
    }

    fn operand_layout(&self) -> OperandLayout {
        match *self {
            Arg::Matrix { ty, layout, memory } => OperandLayout::of(&layout, ty, layout.origin(ty, memory.address())),
            Arg::Scalar { .. } => OperandLayout::default(),
        }
    }

    fn bound(&self) -> BoundArgument {
        match *self {
            Arg::Matrix { ty, layout, memory } => {
                BoundArgument::Matrix { ty, layout, address: layout.origin(ty, memory.address()) }
            }
            Arg::Scalar { ty, bits } => BoundArgument::Scalar { ty, bits },
        }
    }
}

/// The [`Type`] of an element type.
///
/// Refuses an element type of another crate whose size is not that of its `TYPE`.
fn checked_type<T: Scalar>() -> Result<Type> {
    if size_of::<T>() == T::TYPE.size() {
        return Ok(T::TYPE);
    }
    Err(Error::Unsupported {
        what: format!("an element type of {} bytes, whose TYPE has {}", size_of::<T>(), T::TYPE.size()),
        ty: T::TYPE,
        device: "a GPU".into(),
    })
}

fn host_matrix_error(ty: Type) -> Error {
    Error::Unsupported { what: "a matrix in host memory".into(), ty, device: "a launch; upload it first".into() }
}

/// Arguments or parameters of a launch, inline up to the number that products need.
type InlineVec<T, const N: usize> = SmallVec<[T; N]>;
const ARGS: usize = 8;
const PARAMS: usize = 64;

/// A loaded kernel, with its parameter list.
struct LoadedKernel<K = Checked<Kernel>> {
    kernel: K,
    function: Function,
    fields: Vec<Field>,
}

impl LoadedKernel {
    fn new(gpu: &Gpu, kernel: Checked<Kernel>) -> Result<Self> {
        let (function, _) = gpu.load(&ptx::print(&kernel)?)?;
        Ok(LoadedKernel { function, fields: kernel.fields(), kernel })
    }
}

/// The parameters of a launch, filled in place, since a tensor map takes 128 bytes.
type Params = InlineVec<Param, PARAMS>;

impl<K: Borrow<Checked<Kernel>>> LoadedKernel<K> {
    /// Binds arguments to the kernel's parameters, replaces the contents of `params`, and returns
    /// the grid.
    fn bind(&self, gpu: &Gpu, args: &[Arg<'_>], params: &mut Params) -> Result<[u32; 3]> {
        let kernel = self.kernel.borrow();
        let bound: InlineVec<BoundArgument, ARGS> = args.iter().map(Arg::bound).collect();
        let grid = kernel.bind(&bound, &DeviceProperties { multiprocessors: gpu.info().multiprocessors })?;
        params.clear();
        for field in &self.fields {
            params.push(param(kernel, *field, args)?);
        }
        Ok(grid)
    }
}

/// The memory of the matrix arguments.
fn memory_of<'a>(args: &[Arg<'a>]) -> InlineVec<DeviceMemory<'a>, ARGS> {
    args.iter().filter_map(Arg::memory).collect()
}

/// The loaded built-in kernels, by context and variant.
///
/// A later product needs only a look-up and a launch.
type KernelCache = FxHashMap<(u64, Variant), Arc<LoadedKernel>>;
static KERNEL_CACHE: LazyLock<Mutex<KernelCache>> = LazyLock::new(Default::default);

/// What a GPU runs for a product: a recipe, or one kernel for a grouped product.
#[derive(Clone, Copy, Debug)]
pub(crate) enum GpuPlan<'m> {
    /// A recipe.
    Recipe(&'m Recipe),
    /// A grouped kernel, and the rows of A and C of each group.
    Groups(Hopper, &'m [Range<usize>]),
}

impl GpuPlan<'_> {
    /// The launches for operands in GPU memory.
    fn launches(self, operands: &Operands) -> Result<Launches> {
        match self {
            GpuPlan::Recipe(recipe) => recipe.launches(operands),
            GpuPlan::Groups(kernel, rows) => Launches::grouped(Hopper { epilogue: operands.epilogue, ..kernel }, rows),
        }
    }
}

/// The arguments of a product, from which its launches take theirs.
#[derive(Clone, Copy)]
struct GemmArgs<'a> {
    /// A, B and C.
    matrices: [Arg<'a>; 3],
    bias: Option<Arg<'a>>,
    /// Alpha and beta.
    scalars: [Arg<'a>; 2],
    epilogue: Epilogue,
    batch_invariant: bool,
}

impl<'a> GemmArgs<'a> {
    fn operands(&self) -> Operands {
        let layout = |arg: Arg<'_>| arg.layout().unwrap_or(EMPTY);
        Operands {
            layouts: self.matrices.map(layout),
            operand_layouts: self.matrices.map(|arg| arg.operand_layout()),
            epilogue: self.epilogue,
        }
    }

    /// The arguments of a launch.
    fn launch_args(&self, launches: &Launches, launch: &Launch, workspaces: &[Arg<'a>]) -> InlineVec<Arg<'a>, ARGS> {
        let oriented = |arg: Arg<'a>, operand: usize| if launches.transposed[operand] { arg.transposed() } else { arg };
        let [a, b, c] = self.matrices;
        let resolve = |argument: &Argument| match *argument {
            Argument::A => Some(oriented(a, 0)),
            Argument::B => Some(oriented(b, 1)),
            Argument::C => Some(oriented(c, 2)),
            // A missing bias is a missing argument, which binding refuses.
            Argument::Bias => self.bias.map(|bias| oriented(bias, 2)),
            Argument::Workspace(number) => Some(workspaces[usize::from(number)]),
            Argument::Alpha => Some(self.scalars[0]),
            Argument::Beta => Some(self.scalars[1]),
            Argument::Number(number) => Some(Arg::scalar(number)),
        };
        launch.arguments.iter().filter_map(resolve).collect()
    }
}

/// Bytes of the workspaces of a product, by their initial contents.
#[derive(Default)]
struct WorkspaceBytes {
    uninitialized: usize,
    zeroed: usize,
}

impl WorkspaceBytes {
    /// The total of zeroed or of uninitialized workspaces.
    fn total(&mut self, zeroed: bool) -> &mut usize {
        if zeroed { &mut self.zeroed } else { &mut self.uninitialized }
    }
}

/// The layout of an argument without one, such as a scalar: no elements.
const EMPTY: Layout = Layout { shape: Shape::new(0, 0), offset: 0, strides: [0; 3] };

impl Gpu {
    /// Queues a kernel without waiting; the grid follows from the arguments.
    ///
    /// # Errors
    /// [`Error::Launch`] where the arguments do not match the kernel, [`Error::Assemble`], and
    /// errors of the driver.
    ///
    /// # Safety
    /// With these arguments the kernel must stay in bounds of its matrices, as a run in
    /// `tegula_interp` shows. No other work may use the matrices that it writes at the same time.
    pub unsafe fn run(&self, kernel: &Checked<Kernel>, args: &[Arg<'_>]) -> Result<()> {
        let (function, _) = self.load(&ptx::print(kernel)?)?;
        let mut params = Params::new();
        let loaded = LoadedKernel { kernel, function: function.clone(), fields: kernel.fields() };
        let grid = loaded.bind(self, args, &mut params)?;
        // SAFETY: `bind` has checked the arguments against the kernel's parameters, in the order of
        // `fields`; the caller's promise covers the rest.
        self.submit_in_order(&memory_of(args), || unsafe { self.launch(&function, grid, &params) })
    }

    /// Loads the kernels of a recipe for operands in GPU memory, without running them.
    ///
    /// # Errors
    /// [`Error::Assemble`], [`Error::Capture`], and errors of the driver.
    pub(crate) fn load_kernels(&self, recipe: &Recipe, operands: &Operands) -> Result<()> {
        self.loaded(&recipe.launches(operands)?).map(drop)
    }

    /// A built-in kernel, loaded once per context.
    fn cached_kernel(&self, variant: &Variant) -> Result<Arc<LoadedKernel>> {
        let key = (self.home().context, *variant);
        if let Some(loaded) = kernel_cache().get(&key) {
            return Ok(loaded.clone());
        }
        let uses_griddep = self.info().compute >= (9, 0);
        let kernel = if uses_griddep { variant.build_with_griddep() } else { variant.build() }?;
        let loaded = Arc::new(LoadedKernel::new(self, check(kernel)?)?);
        kernel_cache().insert(key, loaded.clone());
        Ok(loaded)
    }

    /// Computes a product with built-in kernels, and returns the name of the recipe used.
    ///
    /// Host matrices are copied to the GPU, and C back. Matrices in GPU memory stay there.
    pub(crate) fn multiply<T: Element>(&self, plan: GpuPlan<'_>, product: Gemm<'_, T>) -> Result<String> {
        if let GpuPlan::Recipe(Recipe { kernel: GemmKernel::Plain(plain), .. }) = plan
            && plain.edges != Edges::Guarded
        {
            return Err(Error::KernelOption("a product needs a kernel with guarded edges".into()));
        }
        // SAFETY: the borrow of the matrices outlives this call, which drops the handle.
        let home = unsafe { self.on_home_stream_of(&product) }?;
        let gpu = home.as_ref().unwrap_or(self);
        let mut staged = StagedGemm::upload(gpu, product)?;
        let multiply = staged.progress.meter(Phase::Multiply, staged.work);
        multiply.iter().for_each(|meter| meter.raise_to(0, 1));
        let name = gpu.execute(plan, &staged.args()?)?;
        if multiply.is_some() && matches!(staged.c, StagedOutput::Copied { .. }) {
            // The download waits as well, but would report the end of the product too late.
            gpu.synchronize()?;
        }
        multiply.iter().for_each(ProgressMeter::finish);
        staged.download()?;
        Ok(name)
    }

    /// This GPU with the home stream of the matrices. `None` for the stream of this handle, where
    /// the caller has set the device or all matrices are on the host.
    ///
    /// # Safety
    /// The handle is dropped before the borrow of the product's matrices ends.
    unsafe fn on_home_stream_of<T: Element>(&self, product: &Gemm<'_, T>) -> Result<Option<Gpu>> {
        if product.has_device() {
            return Ok(None);
        }
        let of_bias = || product.epilogue.bias.and_then(home_of);
        let home = home_of(product.c.as_view()).or(home_of(product.a)).or(home_of(product.b)).or_else(of_bias);
        // SAFETY: the caller's promise.
        home.map(|(home, ordinal)| unsafe { self.on_home_stream(home, ordinal) }).transpose()
    }

    /// Queues the launches of a product of matrices in GPU memory.
    fn execute(&self, plan: GpuPlan<'_>, gemm: &GemmArgs<'_>) -> Result<String> {
        let operands = gemm.operands();
        let mut launches = plan.launches(&operands)?;
        // All kernels are loaded before the first launch.
        let mut loaded = self.loaded(&launches)?;
        let workspaces = match (self.workspace_args(&launches.workspaces), plan) {
            // Slower launches without a workspace, which add in another order.
            (Err(Error::OutOfMemory { .. }), GpuPlan::Recipe(recipe)) if !gemm.batch_invariant => {
                launches = recipe.without_workspace(operands.operand_layouts).launches(&operands)?;
                loaded = self.loaded(&launches)?;
                self.workspace_args(&launches.workspaces)?
            }
            (workspaces, _) => workspaces?,
        };
        let mut params = Params::new();
        for (launch, kernel) in launches.launches.iter().zip(&loaded) {
            let args = gemm.launch_args(&launches, launch, &workspaces);
            let grid = kernel.bind(self, &args, &mut params)?;
            let other_homes = self.wait_for_homes(&memory_of(&args))?;
            // SAFETY:
            // - `bind` has checked the arguments against the kernel's parameters.
            // - Built-in kernels, grouped ones included, guard their edges: they stay in bounds.
            // - C is borrowed to write.
            // - Memory is borrowed until the work is queued. If it is freed, then in stream order
            //   after the work.
            // - On this stream no other work uses the workspaces before the last launch is queued.
            // - Each launch follows the one before.
            // - Blocks wait only for blocks that have begun before them.
            let queued = unsafe { self.launch(&kernel.function, grid, &params) };
            let signaled = self.signal_homes(&other_homes);
            queued?;
            signaled?;
        }
        Ok(launches.recipe.name_with(loaded[launches.gemm_index].kernel.name()))
    }

    /// The loaded kernels of the launches.
    fn loaded(&self, launches: &Launches) -> Result<InlineVec<Arc<LoadedKernel>, 4>> {
        launches.launches.iter().map(|launch| self.cached_kernel(&launch.kernel)).collect()
    }

    /// The workspaces of a product as arguments, for the next work on this handle's stream.
    fn workspace_args(&self, wanted: &[Workspace]) -> Result<InlineVec<Arg<'_>, 4>> {
        // A multiple of the widest access and of cache lines.
        const ALIGNMENT: usize = 256;
        let (mut totals, mut starts) = (WorkspaceBytes::default(), InlineVec::<usize, 4>::new());
        for workspace in wanted {
            let elements = workspace.layout.shape.len()?;
            let bytes = elements.checked_mul(workspace.ty.size());
            let bytes = bytes.and_then(|bytes| bytes.checked_next_multiple_of(ALIGNMENT));
            let bytes =
                bytes.ok_or_else(|| Error::Shape(format!("a workspace of {elements} elements cannot be addressed")))?;
            let total = totals.total(workspace.zeroed);
            starts.push(*total);
            *total = total.saturating_add(bytes);
        }
        // Where k is 0, packed operands are empty, but still need an address.
        let allocate = |zeroed: bool, bytes: usize, contents: WorkspaceContents| {
            let needed = wanted.iter().any(|workspace| workspace.zeroed == zeroed);
            needed.then(|| self.workspace(bytes.max(1), 1, contents)).transpose()
        };
        let uninitialized_memory = allocate(false, totals.uninitialized, WorkspaceContents::Uninitialized)?;
        let zeroed_memory = allocate(true, totals.zeroed, WorkspaceContents::Zeroed)?;
        let arg = |(&Workspace { ty, layout, zeroed }, start): (&Workspace, usize)| {
            let memory = if zeroed { zeroed_memory } else { uninitialized_memory }?;
            let len = layout.shape.len().ok()?;
            let memory = DeviceMemory { address: memory.address + start as u64, len, ..memory };
            Some(Arg::Matrix { ty, layout, memory })
        };
        Ok(wanted.iter().zip(starts).filter_map(arg).collect())
    }

    /// A·B in a new matrix on this GPU. The call queues the work without waiting; the result may be
    /// used as an operand immediately.
    ///
    /// # Errors
    /// [`Error::Shape`] where the shapes do not match, [`Error::OutOfMemory`], and errors of the
    /// driver.
    pub fn matmul<T: Element>(&self, a: &DeviceMatrix<T>, b: &DeviceMatrix<T>) -> Result<DeviceMatrix<T::Out>> {
        let mut c = DeviceMatrix::uninit(self, crate::gemm::product_shape(a.shape(), b.shape())?)?;
        Gemm::new(a.view(), b.view(), c.view_mut()).on(&self.clone().into()).run()?;
        Ok(c)
    }
}

fn kernel_cache() -> std::sync::MutexGuard<'static, KernelCache> {
    KERNEL_CACHE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The home stream and the GPU of a matrix; `None` for host memory.
fn home_of<T: Scalar>(view: View<'_, T>) -> Option<(HomeStream, usize)> {
    match view.memory() {
        Memory::Device(memory) => Some((memory.home(), memory.ordinal())),
        Memory::Host(_) => None,
    }
}

/// Bytes of the GPU copy of a host matrix; 0 for a matrix in GPU memory.
fn copied_bytes<T: Scalar>(view: View<'_, T>) -> Result<u128> {
    match view.memory() {
        Memory::Device(_) => Ok(0),
        Memory::Host(_) => Ok(view.layout().packed()?.from.shape.len()? as u128 * T::TYPE.size() as u128),
    }
}

/// A product with all matrices in GPU memory: host matrices as copies.
struct StagedGemm<'a, T: Element> {
    a: StagedInput<'a, T>,
    b: StagedInput<'a, T>,
    c: StagedOutput<'a, T::Out>,
    bias: Option<StagedInput<'a, T::Out>>,
    scalars: [T::Acc; 2],
    epilogue: Epilogue,
    batch_invariant: bool,
    progress: ProgressReporter<'a>,
    /// Number of multiply-adds.
    work: u128,
    /// Bytes of C that are copied back.
    c_bytes: u128,
}

impl<'a, T: Element> StagedGemm<'a, T> {
    /// Copies host matrices to the GPU. All memory is allocated before the first copy; where it
    /// does not suffice, the part already allocated is freed.
    fn upload(gpu: &Gpu, product: Gemm<'a, T>) -> Result<Self> {
        let (progress, work, reads_c) = (product.progress, product.work(), product.beta != T::Acc::ZERO);
        let (scalars, epilogue) = ([product.alpha, product.beta], product.epilogue.epilogue());
        let batch_invariant = product.batch_invariant;
        let bias_bytes = product.epilogue.bias.map_or(Ok(0), copied_bytes)?;
        let needed =
            [copied_bytes(product.a)?, copied_bytes(product.b)?, copied_bytes(product.c.as_view())?, bias_bytes];
        let [.., c_bytes, _] = needed;
        let allocated = (|| {
            let (a, b) = (StagedInput::new(gpu, product.a)?, StagedInput::new(gpu, product.b)?);
            let bias = product.epilogue.bias.map(|bias| StagedInput::new(gpu, bias)).transpose()?;
            let c = StagedOutput::new(gpu, product.c)?;
            Ok(StagedGemm { a, b, c, bias, scalars, epilogue, batch_invariant, progress, work, c_bytes })
        })();
        let mut staged = allocated.map_err(|error| out_of_memory_for_all(gpu, needed, error))?;
        let bytes = needed[0] + needed[1] + bias_bytes + if reads_c { c_bytes } else { 0 };
        let upload = progress.meter(Phase::Upload, bytes).filter(|_| bytes > 0);
        staged.a.upload(upload.as_ref())?;
        staged.b.upload(upload.as_ref())?;
        staged.bias.as_mut().map_or(Ok(()), |bias| bias.upload(upload.as_ref()))?;
        if reads_c {
            staged.c.upload(upload.as_ref())?;
        }
        upload.iter().for_each(ProgressMeter::finish);
        Ok(staged)
    }

    fn args(&mut self) -> Result<GemmArgs<'_>> {
        let matrices = [Arg::input(self.a.view())?, Arg::input(self.b.view())?, Arg::output(self.c.view_mut())?];
        let bias = self.bias.as_ref().map(|bias| Arg::input(bias.view())).transpose()?;
        Ok(GemmArgs {
            matrices,
            bias,
            scalars: self.scalars.map(Arg::scalar),
            epilogue: self.epilogue,
            batch_invariant: self.batch_invariant,
        })
    }

    /// Copies C back to the host, where it came from the host.
    fn download(self) -> Result<()> {
        let download = self.progress.meter(Phase::Download, self.c_bytes).filter(|_| self.c_bytes > 0);
        self.c.download(download.as_ref())?;
        download.iter().for_each(ProgressMeter::finish);
        Ok(())
    }
}

/// The error for a failed allocation, with the memory that all copies need.
fn out_of_memory_for_all(gpu: &Gpu, needed: [u128; 4], error: Error) -> Error {
    let Error::OutOfMemory { .. } = error else { return error };
    let names =
        ["A", "B", "C", "the bias"].into_iter().zip(needed).filter(|(_, bytes)| *bytes > 0).map(|(name, _)| name);
    let what = match names.collect::<Vec<_>>().as_slice() {
        [one] => format!("a copy of {one}"),
        [all @ .., last] => format!("copies of {} and {last}", all.join(", ")),
        [] => return error,
    };
    gpu.out_of_memory(what, needed.into_iter().fold(0, u128::saturating_add))
}

/// An input in GPU memory: a view, or a copy of a host matrix.
enum StagedInput<'a, T: DeviceElement> {
    OnDevice(View<'a, T>),
    Copied { from: View<'a, T>, copy: Buffer<T>, layout: Layout },
}

impl<'a, T: DeviceElement> StagedInput<'a, T> {
    /// Allocates memory for the copy, uninitialized.
    fn new(gpu: &Gpu, view: View<'a, T>) -> Result<Self> {
        if let Memory::Device(_) = view.memory() {
            return Ok(StagedInput::OnDevice(view));
        }
        let (from, layout) = view.packed()?;
        let copy = Buffer::uninit(gpu, from.shape().len()?)?;
        Ok(StagedInput::Copied { from, copy, layout })
    }

    fn upload(&mut self, meter: Option<&ProgressMeter<'_>>) -> Result<()> {
        match self {
            StagedInput::OnDevice(_) => Ok(()),
            StagedInput::Copied { from, copy, .. } => copy.upload_with_progress(*from, meter),
        }
    }

    fn view(&self) -> View<'_, T> {
        match self {
            StagedInput::OnDevice(view) => *view,
            StagedInput::Copied { copy, layout, .. } => View::on_gpu(copy.memory(), *layout),
        }
    }
}

/// The output in GPU memory: a view, or memory to be copied back to the host.
enum StagedOutput<'a, T: DeviceElement> {
    OnDevice(ViewMut<'a, T>),
    Copied { to: ViewMut<'a, T>, copy: Buffer<T>, layout: Layout },
}

impl<'a, T: DeviceElement> StagedOutput<'a, T> {
    /// Allocates memory for the copy, uninitialized.
    fn new(gpu: &Gpu, view: ViewMut<'a, T>) -> Result<Self> {
        if let Memory::Device(_) = view.memory() {
            return Ok(StagedOutput::OnDevice(view));
        }
        let (to, layout) = view.packed()?;
        let copy = Buffer::uninit(gpu, to.shape().len()?)?;
        Ok(StagedOutput::Copied { to, copy, layout })
    }

    fn upload(&mut self, meter: Option<&ProgressMeter<'_>>) -> Result<()> {
        match self {
            StagedOutput::OnDevice(_) => Ok(()),
            StagedOutput::Copied { to, copy, .. } => copy.upload_with_progress(to.as_view(), meter),
        }
    }

    fn view_mut(&mut self) -> ViewMut<'_, T> {
        match self {
            StagedOutput::OnDevice(view) => view.reborrow(),
            StagedOutput::Copied { copy, layout, .. } => ViewMut::on_gpu(copy.memory(), *layout),
        }
    }

    fn download(self, meter: Option<&ProgressMeter<'_>>) -> Result<()> {
        match self {
            StagedOutput::OnDevice(_) => Ok(()),
            StagedOutput::Copied { to, copy, .. } => copy.download_with_progress(to, meter),
        }
    }
}

/// A parameter of the launch.
fn param(kernel: &Kernel, field: Field, args: &[Arg<'_>]) -> Result<Param> {
    let matrix = |param: tegula_ir::ParamId| match args[param.index()] {
        Arg::Matrix { ty, layout, memory } => Some((ty, layout, memory)),
        Arg::Scalar { .. } => None,
    };
    // `bind` refuses arguments of the wrong kind, so the zeros below are unreachable.
    Ok(match field {
        Field::Tensor(id) => match (matrix(id), &kernel.params()[id.index()].kind) {
            (Some((ty, layout, memory)), ParamKind::Matrix { order, tiles: Some(tiles), .. }) => {
                let address = layout.origin(ty, memory.address());
                Param::Tensor(tensor_map::encode(&tensor_map_layout(ty, &layout, address, *order, *tiles))?)
            }
            _ => Param::U64(0),
        },
        Field::Address(id) => {
            Param::U64(matrix(id).map_or(0, |(ty, layout, memory)| layout.origin(ty, memory.address())))
        }
        Field::Extent(id, axis) => Param::U32(matrix(id).map_or(0, |(_, layout, _)| extent(&layout, axis) as u32)),
        Field::Stride(id, axis) => {
            Param::I64(matrix(id).map_or(0, |(ty, layout, _)| stride(&layout, axis).wrapping_mul(ty.size() as i64)))
        }
        Field::Scalar(id, ty) => scalar(ty, args[id.index()]),
    })
}

/// Address of an empty matrix in a tensor map: never accessed, but aligned as the driver requires.
const UNUSED_ADDRESS: u64 = 256;
/// Stride of an unused axis in a tensor map in bytes: the least that the driver accepts.
const UNUSED_STRIDE: usize = 16;

/// The tensor map layout of a matrix, which `bind` has checked.
fn tensor_map_layout(
    ty: Type,
    layout: &Layout,
    address: u64,
    order: Order2d,
    tiles: Tiles,
) -> tensor_map::TensorMapLayout {
    let ([batch, row, col], Shape { batches, rows, cols }) = (layout.strides, layout.shape);
    let (inner_extent, outer_extent, outer_stride) =
        if order == Order2d::ColMajor { (rows, cols, col) } else { (cols, rows, row) };
    // An axis of extent 1, or of an empty matrix, may have any stride.
    let nonempty = !layout.shape.is_empty();
    let address = if nonempty { address } else { UNUSED_ADDRESS };
    let bytes =
        |count: usize, stride: isize| if nonempty && count > 1 { stride.unsigned_abs() * ty.size() } else { UNUSED_STRIDE } as u64;
    let [box_outer, box_inner] = tiles.of_matrix(order, [rows, cols]).lines(order);
    tensor_map::TensorMapLayout {
        ty,
        address,
        extents: [inner_extent, outer_extent, batches].map(|extent| extent.max(1) as u64),
        strides: [bytes(outer_extent, outer_stride), bytes(batches, batch)],
        box_extents: [box_inner, box_outer],
        swizzle: tiles.swizzle.row_bytes(),
    }
}

fn extent(layout: &Layout, axis: Axis) -> usize {
    match axis {
        Axis::Batches => layout.shape.batches,
        Axis::Rows => layout.shape.rows,
        Axis::Cols => layout.shape.cols,
    }
}

fn stride(layout: &Layout, axis: Axis) -> i64 {
    let [batch, row, col] = layout.strides;
    (match axis {
        Axis::Batches => batch,
        Axis::Rows => row,
        Axis::Cols => col,
    }) as i64
}

fn scalar(ty: Type, arg: Arg<'_>) -> Param {
    let Arg::Scalar { bits, .. } = arg else { return Param::U64(0) };
    match ty.size() {
        8 => Param::U64(bits),
        4 => Param::U32(bits as u32),
        2 => Param::U16(bits as u16),
        _ => Param::U8(bits as u8),
    }
}
