//! Where a kernel meets the driver: its parameters are bound to matrices, its text is loaded, and
//! it is queued.
//!
//! This file alone in `cuda` knows kernels; everything below it takes a printed image.

use std::borrow::Borrow;
use std::ops::Range;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use tegula_core::epilogue::Epilogue;
use tegula_core::progress::{Audience, Meter, Phase};
use tegula_ir::launch::{Bound, DeviceFacts, Field};
use tegula_ir::{Axis, Checked, Kernel, Order2d, ParamKind, Tiles, check, ptx};
use tegula_kernels::plan::{Argument, Launch, Launches, Lie, Operands, Recipe, Workspace};
use tegula_kernels::{Edges, GemmKernel, Hopper, Variant};

use super::kept::Kind;
use super::{Buffer, DeviceMatrix, Function, Gpu, Param, Stored, tensor};
use crate::element::{Element, Scalar, Type};
use crate::error::{Error, Result};
use crate::gemm::Gemm;
use crate::matrix::{DeviceMemory, Home, Layout, Memory, MemoryMut, Shape, View, ViewMut};

/// An argument of a launch on a GPU.
#[derive(Clone, Copy, Debug)]
pub enum Arg<'a> {
    /// A matrix in the GPU's memory.
    Matrix {
        /// Of its elements.
        ty: Type,
        /// Where each of them lies.
        layout: Layout,
        /// The memory.
        memory: DeviceMemory<'a>,
    },
    /// A number.
    Scalar {
        /// Its type.
        ty: Type,
        /// Its bits.
        bits: u64,
    },
}

impl<'a> Arg<'a> {
    /// A matrix to read.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a matrix on the host.
    pub fn input<T: Scalar>(view: View<'a, T>) -> Result<Self> {
        match view.memory() {
            Memory::Device(memory) => Ok(Arg::Matrix { ty: own_type::<T>()?, layout: view.layout(), memory }),
            Memory::Host(_) => Err(on_the_host(T::TYPE)),
        }
    }

    /// A matrix to write.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a matrix on the host.
    pub fn output<T: Scalar>(view: ViewMut<'a, T>) -> Result<Self> {
        let layout = view.layout();
        match view.into_memory() {
            MemoryMut::Device(memory) => Ok(Arg::Matrix { ty: own_type::<T>()?, layout, memory }),
            MemoryMut::Host(_) => Err(on_the_host(T::TYPE)),
        }
    }

    /// A number.
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

    fn lie(&self) -> Lie {
        match *self {
            Arg::Matrix { ty, layout, memory } => Lie::of(&layout, ty, layout.origin(ty, memory.address())),
            Arg::Scalar { .. } => Lie::default(),
        }
    }

    fn bound(&self) -> Bound {
        match *self {
            Arg::Matrix { ty, layout, memory } => {
                Bound::Matrix { ty, layout, address: layout.origin(ty, memory.address()) }
            }
            Arg::Scalar { ty, bits } => Bound::Scalar { ty, bits },
        }
    }
}

/// The type's tag, which says how large elements are; a foreign type whose tag lies is refused.
fn own_type<T: Scalar>() -> Result<Type> {
    if size_of::<T>() == T::TYPE.size() {
        return Ok(T::TYPE);
    }
    Err(Error::Unsupported {
        what: "an element type of another size than its tag".into(),
        ty: T::TYPE,
        device: "a GPU".into(),
    })
}

fn on_the_host(ty: Type) -> Error {
    Error::Unsupported { what: "a matrix in host memory".into(), ty, device: "a launch; upload it first".into() }
}

/// Arguments, or parameters, of a launch: so many that those of products fit without an allocation.
type Few<T, const N: usize> = SmallVec<[T; N]>;
const ARGS: usize = 8;
const PARAMS: usize = 64;

/// A kernel that is loaded, with what a launch needs of it.
struct Loaded<K = Checked<Kernel>> {
    kernel: K,
    function: Function,
    fields: Vec<Field>,
}

impl Loaded {
    fn new(gpu: &Gpu, kernel: Checked<Kernel>) -> Result<Self> {
        let (function, _) = gpu.load(&ptx::print(&kernel)?)?;
        Ok(Loaded { function, fields: kernel.fields(), kernel })
    }
}

/// The parameters of a launch. They are large: a tensor map has 128 bytes. So they are filled where
/// they stand.
type Params = Few<Param, PARAMS>;

impl<K: Borrow<Checked<Kernel>>> Loaded<K> {
    /// Binds arguments to the kernel's parameters, which replace those in `params`, and returns the
    /// grid.
    fn bind(&self, gpu: &Gpu, args: &[Arg<'_>], params: &mut Params) -> Result<[u32; 3]> {
        let kernel = self.kernel.borrow();
        let bound: Few<Bound, ARGS> = args.iter().map(Arg::bound).collect();
        let grid = kernel.bind(&bound, &DeviceFacts { multiprocessors: gpu.info().multiprocessors })?;
        params.clear();
        for field in &self.fields {
            params.push(param(kernel, *field, args)?);
        }
        Ok(grid)
    }
}

/// The memory of arguments.
fn memory_of<'a>(args: &[Arg<'a>]) -> Few<DeviceMemory<'a>, ARGS> {
    args.iter().filter_map(Arg::memory).collect()
}

/// The built-in kernels that are loaded, by context: a second product is a look-up and a launch.
type BuiltIn = FxHashMap<(u64, Variant), Arc<Loaded>>;
static BUILT_IN: LazyLock<Mutex<BuiltIn>> = LazyLock::new(Default::default);

/// How a product is made: by a recipe, or group by group by one kernel.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Method<'m> {
    /// A recipe.
    Recipe(&'m Recipe),
    /// A kernel, and the rows of A and C of each group.
    Groups(Hopper, &'m [Range<usize>]),
}

impl Method<'_> {
    /// The launches for operands on the GPU.
    fn launches(self, operands: &Operands) -> Result<Launches> {
        match self {
            Method::Recipe(recipe) => recipe.launches(operands),
            Method::Groups(kernel, rows) => Launches::of_groups(Hopper { epilogue: operands.epilogue, ..kernel }, rows),
        }
    }
}

/// The arguments that a product's launches choose from.
#[derive(Clone, Copy)]
struct Given<'a> {
    /// A, B and C.
    matrices: [Arg<'a>; 3],
    bias: Option<Arg<'a>>,
    /// Alpha and beta.
    scalars: [Arg<'a>; 2],
    epilogue: Epilogue,
}

impl<'a> Given<'a> {
    fn operands(&self) -> Operands {
        let layout = |arg: Arg<'_>| arg.layout().unwrap_or(EMPTY);
        Operands {
            layouts: self.matrices.map(layout),
            lies: self.matrices.map(|arg| arg.lie()),
            epilogue: self.epilogue,
        }
    }

    /// The arguments of a launch.
    fn arguments(&self, launches: &Launches, launch: &Launch, workspaces: &[Arg<'a>]) -> Few<Arg<'a>, ARGS> {
        let oriented = |arg: Arg<'a>, operand: usize| if launches.transposed[operand] { arg.transposed() } else { arg };
        let [a, b, c] = self.matrices;
        let resolve = |argument: &Argument| match *argument {
            Argument::A => Some(oriented(a, 0)),
            Argument::B => Some(oriented(b, 1)),
            Argument::C => Some(oriented(c, 2)),
            // A bias that is missing is an argument too few, which binding refuses.
            Argument::Bias => self.bias.map(|bias| oriented(bias, 2)),
            Argument::Workspace(number) => Some(workspaces[usize::from(number)]),
            Argument::Alpha => Some(self.scalars[0]),
            Argument::Beta => Some(self.scalars[1]),
            Argument::Number(number) => Some(Arg::scalar(number)),
        };
        launch.arguments.iter().filter_map(resolve).collect()
    }
}

/// Of a scalar.
const EMPTY: Layout = Layout { shape: Shape::new(0, 0), offset: 0, strides: [0; 3] };

impl Gpu {
    /// Queues a kernel; the grid follows from the arguments. Nothing waits for it.
    ///
    /// # Errors
    /// [`Error::Launch`] where the arguments do not fit the kernel, [`Error::Assemble`], and what
    /// the driver says.
    ///
    /// # Safety
    /// For these arguments the kernel has to stay within its matrices, as a run in `tegula_interp`
    /// shows, and no other work may use the matrices it writes at the same time.
    pub unsafe fn run(&self, kernel: &Checked<Kernel>, args: &[Arg<'_>]) -> Result<()> {
        let (function, _) = self.load(&ptx::print(kernel)?)?;
        let mut params = Params::new();
        let loaded = Loaded { kernel, function: function.clone(), fields: kernel.fields() };
        let grid = loaded.bind(self, args, &mut params)?;
        // SAFETY: `bind` has checked the arguments against the kernel's parameters, whose order `fields`
        // gives; the rest is the caller's promise.
        self.ordered(&memory_of(args), || unsafe { self.launch(&function, grid, &params) })
    }

    /// A built-in kernel, loaded once a context.
    fn built_in(&self, variant: &Variant) -> Result<Arc<Loaded>> {
        let key = (self.home().context, *variant);
        if let Some(loaded) = lock().get(&key) {
            return Ok(loaded.clone());
        }
        let overlap = self.info().compute >= (9, 0);
        let kernel = if overlap { variant.build_overlapping() } else { variant.build() }?;
        let loaded = Arc::new(Loaded::new(self, check(kernel)?)?);
        lock().insert(key, loaded.clone());
        Ok(loaded)
    }

    /// Makes a product with built-in kernels. Matrices on the host are copied to the GPU and C
    /// back; what lies on the GPU stays there. Returns the name of what made it: the recipe's,
    /// for matrices that lie as they do on the GPU.
    pub(crate) fn multiply<T: Element>(&self, method: Method<'_>, product: Gemm<'_, T>) -> Result<String> {
        if let Method::Recipe(Recipe { kernel: GemmKernel::Plain(plain), .. }) = method
            && plain.edges != Edges::Guarded
        {
            return Err(Error::KernelOption("a product takes a kernel that guards its edges".into()));
        }
        // SAFETY: the matrices are borrowed for longer than this call, which drops the handle.
        let at_home = unsafe { self.at_home_of(&product) }?;
        let gpu = at_home.as_ref().unwrap_or(self);
        let mut staged = Staged::upload(gpu, product)?;
        let multiply = staged.audience.meter(Phase::Multiply, staged.work);
        multiply.iter().for_each(|meter| meter.reach(0, 1));
        let used = gpu.execute(method, &staged.given()?)?;
        if multiply.is_some() && matches!(staged.c, Output::Copied { .. }) {
            // The download would wait as well, but not say when the product was done.
            gpu.synchronize()?;
        }
        multiply.iter().for_each(Meter::finish);
        staged.download()?;
        Ok(used)
    }

    /// This GPU with the stream that a product belongs to: `None` where that is this handle's,
    /// because the caller has named it or all matrices lie on the host; else the home of its
    /// matrices.
    ///
    /// # Safety
    /// The handle is dropped before the borrow of the product's matrices ends.
    unsafe fn at_home_of<T: Element>(&self, product: &Gemm<'_, T>) -> Result<Option<Gpu>> {
        if product.is_placed() {
            return Ok(None);
        }
        let of_bias = || product.finish.bias.and_then(home_of);
        let home = home_of(product.c.as_view()).or(home_of(product.a)).or(home_of(product.b)).or_else(of_bias);
        // SAFETY: the caller's promise.
        home.map(|(home, ordinal)| unsafe { self.at_home(home, ordinal) }).transpose()
    }

    /// Queues the launches of a product of matrices on this GPU.
    fn execute(&self, method: Method<'_>, given: &Given<'_>) -> Result<String> {
        let operands = given.operands();
        let mut launches = method.launches(&operands)?;
        // All kernels are loaded before the first is queued.
        let mut loaded = self.loaded(&launches)?;
        let workspaces = match (self.workspace_args(&launches.workspaces), method) {
            // Slower launches that take no workspace.
            (Err(Error::OutOfMemory { .. }), Method::Recipe(recipe)) => {
                launches = recipe.without_workspace(operands.lies).launches(&operands)?;
                loaded = self.loaded(&launches)?;
                self.workspace_args(&launches.workspaces)?
            }
            (workspaces, _) => workspaces?,
        };
        let mut params = Params::new();
        for (launch, kernel) in launches.launches.iter().zip(&loaded) {
            let args = given.arguments(&launches, launch, &workspaces);
            let grid = kernel.bind(self, &args, &mut params)?;
            let others = self.begin(&memory_of(&args))?;
            // SAFETY: `bind` has checked the arguments against the kernel's parameters. Built-in kernels guard
            // their edges, those of groups as well, so they stay within their matrices; C is
            // borrowed to be written. Memory is borrowed until the work is queued and freed, if at
            // all, in stream order after it. On this stream nothing else uses the workspaces before
            // the last launch is queued, and each launch follows the one before. Blocks that wait for others
            // wait for such as have begun before them.
            let queued = unsafe { self.launch(&kernel.function, grid, &params) };
            self.end(&others)?;
            queued?;
        }
        Ok(launches.recipe.name_with(loaded[launches.multiply].kernel.name()))
    }

    /// The kernels of launches.
    fn loaded(&self, launches: &Launches) -> Result<Few<Arc<Loaded>, 4>> {
        launches.launches.iter().map(|launch| self.built_in(&launch.kernel)).collect()
    }

    /// Memory for workspaces, for the next work on this handle's stream.
    fn workspace_args(&self, wanted: &[Workspace]) -> Result<Few<Arg<'_>, 4>> {
        // What an access takes at once, and whole lines of the caches.
        const ALIGNMENT: usize = 256;
        // Bytes of those that hold anything, and of those that are zero.
        let (mut totals, mut starts) = ([0usize; 2], Few::<usize, 4>::new());
        for workspace in wanted {
            let elements = workspace.layout.shape.len()?;
            let bytes = elements.checked_mul(workspace.ty.size());
            let bytes = bytes.and_then(|bytes| bytes.checked_next_multiple_of(ALIGNMENT));
            let bytes =
                bytes.ok_or_else(|| Error::Shape(format!("a workspace of {elements} elements cannot be addressed")))?;
            let total = &mut totals[usize::from(workspace.zeroed)];
            starts.push(*total);
            *total = total.saturating_add(bytes);
        }
        // Where k is 0, packed operands are empty, and have an address nevertheless.
        let take = |zeroed: bool, kind: Kind| {
            let taken = wanted.iter().any(|workspace| workspace.zeroed == zeroed);
            taken.then(|| self.workspace(totals[usize::from(zeroed)].max(1), 1, kind)).transpose()
        };
        let memory = [take(false, Kind::Any)?, take(true, Kind::Zeros)?];
        let place = |(&Workspace { ty, layout, zeroed }, start): (&Workspace, usize)| {
            let memory = memory[usize::from(zeroed)]?;
            let len = layout.shape.len().ok()?;
            let memory = DeviceMemory { address: memory.address + start as u64, len, ..memory };
            Some(Arg::Matrix { ty, layout, memory })
        };
        Ok(wanted.iter().zip(starts).filter_map(place).collect())
    }

    /// A·B in a new matrix on this GPU. The work is queued, not waited for; the result can be an
    /// operand at once.
    ///
    /// # Errors
    /// [`Error::Shape`] where the shapes make no product, [`Error::OutOfMemory`], and what the
    /// driver says.
    pub fn matmul<T: Element>(&self, a: &DeviceMatrix<T>, b: &DeviceMatrix<T>) -> Result<DeviceMatrix<T::Out>> {
        let mut c = DeviceMatrix::uninit(self, crate::gemm::product_shape(a.shape(), b.shape())?)?;
        Gemm::new(a.view(), b.view(), c.view_mut()).on(&self.clone().into()).run()?;
        Ok(c)
    }
}

fn lock() -> std::sync::MutexGuard<'static, BuiltIn> {
    BUILT_IN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The home and the GPU of memory that is not the host's.
fn home_of<T: Scalar>(view: View<'_, T>) -> Option<(Home, usize)> {
    match view.memory() {
        Memory::Device(memory) => Some((memory.home(), memory.ordinal())),
        Memory::Host(_) => None,
    }
}

/// Bytes that are copied to the GPU of a matrix on the host.
fn copied_bytes<T: Scalar>(view: View<'_, T>) -> Result<u128> {
    match view.memory() {
        Memory::Device(_) => Ok(0),
        Memory::Host(_) => Ok(view.layout().packed()?.from.shape.len()? as u128 * T::TYPE.size() as u128),
    }
}

/// A product whose matrices are on the GPU: those from the host as copies.
struct Staged<'a, T: Element> {
    a: Operand<'a, T>,
    b: Operand<'a, T>,
    c: Output<'a, T::Out>,
    bias: Option<Operand<'a, T::Out>>,
    scalars: [T::Acc; 2],
    epilogue: Epilogue,
    audience: Audience<'a>,
    /// Multiply-adds.
    work: u128,
    /// Bytes of C that are copied back.
    c_bytes: u128,
}

impl<'a, T: Element> Staged<'a, T> {
    /// Copies what lies on the host. All memory is there before anything is copied; where there is
    /// not enough, what was had is given back.
    fn upload(gpu: &Gpu, product: Gemm<'a, T>) -> Result<Self> {
        let (audience, work, reads_c) = (product.audience, product.work(), product.beta != T::Acc::ZERO);
        let (scalars, epilogue) = ([product.alpha, product.beta], product.finish.epilogue());
        let bias_bytes = product.finish.bias.map_or(Ok(0), copied_bytes)?;
        let needed =
            [copied_bytes(product.a)?, copied_bytes(product.b)?, copied_bytes(product.c.as_view())?, bias_bytes];
        let [.., c_bytes, _] = needed;
        let taken = (|| {
            let (a, b) = (Operand::new(gpu, product.a)?, Operand::new(gpu, product.b)?);
            let bias = product.finish.bias.map(|bias| Operand::new(gpu, bias)).transpose()?;
            let c = Output::new(gpu, product.c)?;
            Ok(Staged { a, b, c, bias, scalars, epilogue, audience, work, c_bytes })
        })();
        let mut staged = taken.map_err(|error| no_room(gpu, needed, error))?;
        let bytes = needed[0] + needed[1] + bias_bytes + if reads_c { c_bytes } else { 0 };
        let upload = audience.meter(Phase::Upload, bytes).filter(|_| bytes > 0);
        staged.a.upload(upload.as_ref())?;
        staged.b.upload(upload.as_ref())?;
        staged.bias.as_mut().map_or(Ok(()), |bias| bias.upload(upload.as_ref()))?;
        if reads_c {
            staged.c.upload(upload.as_ref())?;
        }
        upload.iter().for_each(Meter::finish);
        Ok(staged)
    }

    fn given(&mut self) -> Result<Given<'_>> {
        let matrices = [Arg::input(self.a.view())?, Arg::input(self.b.view())?, Arg::output(self.c.view_mut())?];
        let bias = self.bias.as_ref().map(|bias| Arg::input(bias.view())).transpose()?;
        Ok(Given { matrices, bias, scalars: self.scalars.map(Arg::scalar), epilogue: self.epilogue })
    }

    /// Copies C back where it came from the host.
    fn download(self) -> Result<()> {
        let download = self.audience.meter(Phase::Download, self.c_bytes).filter(|_| self.c_bytes > 0);
        self.c.download(download.as_ref())?;
        download.iter().for_each(Meter::finish);
        Ok(())
    }
}

/// Where one copy had no room: what all of them need.
fn no_room(gpu: &Gpu, needed: [u128; 4], error: Error) -> Error {
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

/// An input on the GPU: there already, or copied.
enum Operand<'a, T: Stored> {
    There(View<'a, T>),
    Copied { from: View<'a, T>, copy: Buffer<T>, layout: Layout },
}

impl<'a, T: Stored> Operand<'a, T> {
    /// With memory for the copy, but nothing in it yet.
    fn new(gpu: &Gpu, view: View<'a, T>) -> Result<Self> {
        if let Memory::Device(_) = view.memory() {
            return Ok(Operand::There(view));
        }
        let (from, layout) = view.packed()?;
        let copy = Buffer::uninit(gpu, from.shape().len()?)?;
        Ok(Operand::Copied { from, copy, layout })
    }

    fn upload(&mut self, meter: Option<&Meter<'_>>) -> Result<()> {
        match self {
            Operand::There(_) => Ok(()),
            Operand::Copied { from, copy, .. } => copy.upload_told(*from, meter),
        }
    }

    fn view(&self) -> View<'_, T> {
        match self {
            Operand::There(view) => *view,
            Operand::Copied { copy, layout, .. } => View::on_gpu(copy.memory(), *layout),
        }
    }
}

/// The output on the GPU: there already, or to be copied back.
enum Output<'a, T: Stored> {
    There(ViewMut<'a, T>),
    Copied { to: ViewMut<'a, T>, copy: Buffer<T>, layout: Layout },
}

impl<'a, T: Stored> Output<'a, T> {
    /// With memory for the copy, but nothing in it yet.
    fn new(gpu: &Gpu, view: ViewMut<'a, T>) -> Result<Self> {
        if let Memory::Device(_) = view.memory() {
            return Ok(Output::There(view));
        }
        let (to, layout) = view.packed()?;
        let copy = Buffer::uninit(gpu, to.shape().len()?)?;
        Ok(Output::Copied { to, copy, layout })
    }

    fn upload(&mut self, meter: Option<&Meter<'_>>) -> Result<()> {
        match self {
            Output::There(_) => Ok(()),
            Output::Copied { to, copy, .. } => copy.upload_told(to.as_view(), meter),
        }
    }

    fn view_mut(&mut self) -> ViewMut<'_, T> {
        match self {
            Output::There(view) => view.reborrow(),
            Output::Copied { copy, layout, .. } => ViewMut::on_gpu(copy.memory(), *layout),
        }
    }

    fn download(self, meter: Option<&Meter<'_>>) -> Result<()> {
        match self {
            Output::There(_) => Ok(()),
            Output::Copied { to, copy, .. } => copy.download_told(to, meter),
        }
    }
}

/// One entry of the parameter list.
fn param(kernel: &Kernel, field: Field, args: &[Arg<'_>]) -> Result<Param> {
    let matrix = |param: tegula_ir::ParamId| match args[param.index()] {
        Arg::Matrix { ty, layout, memory } => Some((ty, layout, memory)),
        Arg::Scalar { .. } => None,
    };
    // `bind` refuses arguments of the wrong kind, so the zeros below are never passed.
    Ok(match field {
        Field::Tensor(id) => match (matrix(id), &kernel.params()[id.index()].kind) {
            (Some((ty, layout, memory)), ParamKind::Matrix { order, tiles: Some(tiles), .. }) => {
                let address = layout.origin(ty, memory.address());
                Param::Tensor(tensor::encode(&tiled(ty, &layout, address, *order, *tiles))?)
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

/// A matrix as the copy engine sees it, which `bind` has checked.
fn tiled(ty: Type, layout: &Layout, address: u64, order: Order2d, tiles: Tiles) -> tensor::Tiled {
    let ([batch, row, col], Shape { batches, rows, cols }) = (layout.strides, layout.shape);
    let (line, lines, stride) = if order == Order2d::ColMajor { (rows, cols, col) } else { (cols, rows, row) };
    // Where there is one of them, or nothing at all, any distance will do.
    let there = !layout.shape.is_empty();
    let address = if there { address } else { 256 };
    let bytes =
        |count: usize, stride: isize| if there && count > 1 { stride.unsigned_abs() * ty.size() } else { 16 } as u64;
    let [tile_lines, tile_line] = tiles.lines(order);
    tensor::Tiled {
        ty,
        address,
        extents: [line, lines, batches].map(|extent| extent.max(1) as u64),
        strides: [bytes(lines, stride), bytes(batches, batch)],
        tile: [tile_line, tile_lines],
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
