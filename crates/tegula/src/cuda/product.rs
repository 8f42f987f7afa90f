//! Where a kernel meets the driver: its parameters are bound to matrices, its text is loaded, and it is queued.
//!
//! This file alone in `cuda` knows kernels; everything below it takes a printed image.

use std::borrow::Borrow;
use std::ops::Range;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use tegula_core::progress::{Meter, Phase};
use tegula_ir::launch::{Bound, DeviceFacts, Field};
use tegula_ir::{Axis, Checked, Kernel, Order2d, ParamKind, Tiles, check, ptx};
use tegula_kernels::plan::{Lie, Meeting, Recipe, Split};
use tegula_kernels::{Edges, Ends, Family, Hopper, Plain, Variant};

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

    fn shape(&self) -> Shape {
        match self {
            Arg::Matrix { layout, .. } => layout.shape,
            Arg::Scalar { .. } => Shape::new(0, 0),
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

/// The built-in kernels that are loaded, by context: a second product is a look-up and a launch.
type BuiltIn = FxHashMap<(u64, Variant), Arc<Loaded>>;
static BUILT_IN: LazyLock<Mutex<BuiltIn>> = LazyLock::new(Default::default);

impl Gpu {
    /// Queues a kernel; the grid follows from the arguments. Nothing waits for it.
    ///
    /// # Errors
    /// [`Error::Launch`] where the arguments do not fit the kernel, [`Error::Assemble`], and what the driver says.
    ///
    /// # Safety
    /// For these arguments the kernel has to stay within its matrices, as a run in [`tegula_interp`] shows, and no other work
    /// may use the matrices it writes at the same time.
    pub unsafe fn run(&self, kernel: &Checked<Kernel>, args: &[Arg<'_>]) -> Result<()> {
        let (function, _) = self.load(&ptx::print(kernel)?)?;
        // SAFETY: the caller's promise.
        unsafe { self.queue(&Loaded { kernel, function, fields: kernel.fields() }, args) }
    }

    /// Queues a loaded kernel.
    ///
    /// # Safety
    /// As [`Gpu::run`].
    unsafe fn queue<K: Borrow<Checked<Kernel>>>(&self, loaded: &Loaded<K>, args: &[Arg<'_>]) -> Result<()> {
        let Loaded { kernel, function, fields } = loaded;
        let bound: Few<Bound, ARGS> = args.iter().map(Arg::bound).collect();
        let facts = DeviceFacts { multiprocessors: self.info().multiprocessors };
        let grid = kernel.borrow().bind(&bound, &facts)?;
        let params =
            fields.iter().map(|field| param(kernel.borrow(), *field, args)).collect::<Result<Few<Param, PARAMS>>>()?;
        let memory: Few<DeviceMemory<'_>, ARGS> = args
            .iter()
            .filter_map(|arg| match arg {
                Arg::Matrix { memory, .. } => Some(*memory),
                Arg::Scalar { .. } => None,
            })
            .collect();
        // SAFETY: `bind` has checked the arguments against the kernel's parameters, whose order `fields` gives; views cover
        // memory that is borrowed until the work is queued and freed, if at all, in stream order after it; the rest is the
        // caller's promise.
        self.ordered(&memory, || unsafe { self.launch(function, grid, &params) })
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

    /// Makes a product with a built-in kernel. Matrices on the host are copied to the GPU and C back; what lies on the GPU stays
    /// there. Gives the name of what made it: the recipe's, for matrices that lie as they do on the GPU.
    pub(crate) fn multiply<T: Element>(&self, recipe: &Recipe, product: Gemm<'_, T>) -> Result<String> {
        if let Variant::Plain(plain) = recipe.kernel
            && plain.edges != Edges::Guarded
        {
            return Err(Error::KernelOption("a product takes a kernel that guards its edges".into()));
        }
        let recipe = recipe.finished(product.finish.epilogue());
        self.at_its_home(product, |gpu, product| {
            gpu.multiply_here(product, |matrices, bias, factors| {
                gpu.multiply_there::<T>(&recipe, matrices, bias, factors)
            })
        })
    }

    /// Makes the products of groups of rows, with a matrix of B each, in one launch. As [`Gpu::multiply`] otherwise.
    pub(crate) fn multiply_groups<T: Element>(
        &self,
        kernel: Hopper,
        product: Gemm<'_, T>,
        rows: &[Range<usize>],
    ) -> Result<String> {
        let kernel = Hopper { epilogue: product.finish.epilogue(), ..kernel };
        self.at_its_home(product, |gpu, product| {
            gpu.multiply_here(product, |matrices, bias, factors| {
                gpu.multiply_groups_there(kernel, rows, matrices, bias, factors)
            })
        })
    }

    /// Does something for a product on the stream that it belongs to: the caller's, or the home of its matrices.
    fn at_its_home<T: Element, R>(
        &self,
        product: Gemm<'_, T>,
        work: impl FnOnce(&Self, Gemm<'_, T>) -> Result<R>,
    ) -> Result<R> {
        if product.is_placed() {
            return work(self, product);
        }
        let of_bias = || product.finish.bias.and_then(home_of);
        let home = home_of(product.c.as_view()).or(home_of(product.a)).or(home_of(product.b)).or_else(of_bias);
        match home {
            // SAFETY: the product's borrow of the memory outlives this call, and the handle does not.
            Some((home, ordinal)) => work(&unsafe { self.at_home(home, ordinal) }?, product),
            None => work(self, product),
        }
    }

    /// Makes a product on this handle's stream, by what queues it once its matrices, the bias and the factors lie on the GPU.
    fn multiply_here<T: Element>(
        &self,
        product: Gemm<'_, T>,
        multiply_there: impl FnOnce([Arg<'_>; 3], Option<Arg<'_>>, [Arg<'_>; 2]) -> Result<String>,
    ) -> Result<String> {
        let (audience, work, reads_c) = (product.audience, product.work(), product.beta != T::Acc::ZERO);
        let scalars = [Arg::scalar(product.alpha), Arg::scalar(product.beta)];
        let bias_bytes = product.finish.bias.map_or(Ok(0), copied_bytes)?;
        let needed =
            [copied_bytes(product.a)?, copied_bytes(product.b)?, copied_bytes(product.c.as_view())?, bias_bytes];
        let [.., c_bytes, _] = needed;
        // All memory is there before anything is copied; where there is not enough, what was had is given back.
        let taken = (|| {
            let (a, b) = (Operand::new(self, product.a)?, Operand::new(self, product.b)?);
            let bias = product.finish.bias.map(|bias| Operand::new(self, bias)).transpose()?;
            Ok((a, b, Output::new(self, product.c)?, bias))
        })();
        let (mut a, mut b, mut c, mut bias) = taken.map_err(|error| self.no_room(needed, error))?;
        let bytes = needed[0] + needed[1] + bias_bytes + if reads_c { c_bytes } else { 0 };
        let upload = audience.meter(Phase::Upload, bytes).filter(|_| bytes > 0);
        a.upload(upload.as_ref())?;
        b.upload(upload.as_ref())?;
        bias.as_mut().map_or(Ok(()), |bias| bias.upload(upload.as_ref()))?;
        if reads_c {
            c.upload(upload.as_ref())?;
        }
        upload.iter().for_each(Meter::finish);
        let multiply = audience.meter(Phase::Multiply, work);
        multiply.iter().for_each(|meter| meter.reach(0, 1));
        let matrices = [Arg::input(a.view())?, Arg::input(b.view())?, Arg::output(c.view_mut())?];
        let bias = bias.as_ref().map(|bias| Arg::input(bias.view())).transpose()?;
        let used = multiply_there(matrices, bias, scalars)?;
        if let (Some(_), Output::Copied { .. }) = (&multiply, &c) {
            // The download would wait as well, but not say when the product was done.
            self.synchronize()?;
        }
        multiply.iter().for_each(Meter::finish);
        let download = audience.meter(Phase::Download, c_bytes).filter(|_| c_bytes > 0);
        c.download(download.as_ref())?;
        download.iter().for_each(Meter::finish);
        Ok(used)
    }

    /// Where one copy had no room: what all of them need.
    fn no_room(&self, needed: [u128; 4], error: Error) -> Error {
        let Error::OutOfMemory { .. } = error else { return error };
        let names =
            ["A", "B", "C", "the bias"].into_iter().zip(needed).filter(|(_, bytes)| *bytes > 0).map(|(name, _)| name);
        let what = match names.collect::<Vec<_>>().as_slice() {
            [one] => format!("a copy of {one}"),
            [all @ .., last] => format!("copies of {} and {last}", all.join(", ")),
            [] => return error,
        };
        self.out_of_memory(what, needed.into_iter().fold(0, u128::saturating_add))
    }

    /// The product of matrices that lie on the GPU.
    fn multiply_there<T: Element>(
        &self,
        recipe: &Recipe,
        [a, b, c]: [Arg<'_>; 3],
        bias: Option<Arg<'_>>,
        factors: [Arg<'_>; 2],
    ) -> Result<String> {
        // A matrix that was copied lies without gaps, however it lay where the plan saw it.
        let (given, given_bias) = ([a, b, c], bias);
        let recipe = recipe.fit([a.lie(), b.lie(), c.lie()]);
        let [mut a, mut b] = recipe.inputs([a, b], Arg::transposed);
        let c = recipe.output(c, Arg::transposed);
        let bias = bias.map(|bias| recipe.output(bias, Arg::transposed));
        let [alpha, beta] = factors;
        let kernel = self.built_in(&recipe.kernel)?;
        let used = recipe.name_with(kernel.kernel.name());
        let layouts = [
            recipe.workspace(c.shape()).map(Layout::row_major).transpose()?,
            recipe.packed(0, a.shape())?,
            recipe.packed(1, b.shape())?,
        ];
        let types = [<T::Acc as Scalar>::TYPE, T::TYPE, T::TYPE];
        let meeting = recipe.meeting(given[0].shape().cols);
        let flags = || if let Meeting::Flags(count) = meeting { self.flags(count).map(Some) } else { Ok(None) };
        let borrowed = self.borrowed(layouts, types).and_then(|matrices| Ok((matrices, flags()?)));
        let ([parts, packed_a, packed_b], flags) = match borrowed {
            Ok(borrowed) => borrowed,
            // Slower, but without a workspace.
            Err(Error::OutOfMemory { .. }) => {
                let plain = Plain::new(Family::Tiled, T::TYPE, 32);
                let whole = Recipe { split: Split::Whole, packed: [false; 2], ..recipe };
                let whole = if whole.fit(given.map(|arg| arg.lie())).packed == [false; 2] {
                    whole
                } else {
                    Recipe { epilogue: recipe.epilogue, ..plain.into() }
                };
                return self.multiply_there::<T>(&whole, given, given_bias, factors);
            }
            Err(error) => return Err(error),
        };
        self.pack(&recipe, [(&mut a, packed_a), (&mut b, packed_b)])?;
        let second = recipe.second(c.lie(), c.shape().len()?).map(|second| self.built_in(&second)).transpose()?;
        let matrices: Few<Arg<'_>, ARGS> = match meeting {
            Meeting::Sum | Meeting::Reduce(_) => [a, b].into_iter().chain(parts).collect(),
            _ => [a, b, c].into_iter().chain(parts).chain(flags).collect(),
        };
        // SAFETY: built-in kernels guard their edges, so they stay within their matrices and the bias, which has an element for each column or
        // each row of C; C is borrowed to be written; on this stream nobody else uses the workspace before the last kernel is queued, each of
        // which follows the one before. Blocks that wait for others wait for such as have begun before them.
        unsafe {
            match meeting {
                Meeting::Sum | Meeting::Reduce(_) => self.queue(&kernel, &matrices)?,
                _ => self.queue(&kernel, &with_bias(&matrices, bias, &[alpha, beta]))?,
            }
            if let (Some(second), Some(parts)) = (second, parts) {
                let numbers = meeting.numbers(factors, Arg::scalar);
                self.queue(&second, &with_bias(&[parts, c], bias, &numbers))?;
            }
        }
        Ok(used)
    }

    /// Packs the factors that are to be, and takes their copies for them.
    fn pack<'a>(&'a self, recipe: &Recipe, factors: [(&mut Arg<'a>, Option<Arg<'a>>); 2]) -> Result<()> {
        let lies = factors.each_ref().map(|(factor, _)| factor.lie());
        let to = factors.each_ref().map(|(_, to)| to.map(|to| to.shape()));
        for (kernel, which) in recipe.packs(lies, to) {
            let kernel = self.built_in(&kernel)?;
            let args = factors[which].iter().flat_map(|(factor, to)| std::iter::once(**factor).chain(*to));
            let args: Few<Arg<'_>, 4> = args.collect();
            // SAFETY: built-in kernels guard their edges, so they stay within their matrices; on this stream nobody else uses the workspace before
            // what multiplies is queued, which follows them.
            unsafe { self.queue(&kernel, &args) }?;
        }
        for (factor, to) in factors {
            *factor = to.unwrap_or(*factor);
        }
        Ok(())
    }

    /// The products of groups of matrices that lie on the GPU, by a kernel for all of them.
    fn multiply_groups_there(
        &self,
        kernel: Hopper,
        rows: &[Range<usize>],
        [a, b, c]: [Arg<'_>; 3],
        bias: Option<Arg<'_>>,
        factors: [Arg<'_>; 2],
    ) -> Result<String> {
        let kernel = self.built_in(&kernel.into())?;
        let layout = Layout::row_major(Shape::new(1, rows.len().next_multiple_of(Ends::NUMBERS)))?;
        let memory = self.workspace(layout.shape.cols, Type::U32.size(), Kind::Any)?;
        let ends = Arg::Matrix { ty: Type::U32, layout, memory };
        let write = self.built_in(&Ends.into())?;
        for (first, rows) in (0u32..).step_by(Ends::NUMBERS).zip(rows.chunks(Ends::NUMBERS)) {
            let numbers = rows.iter().map(|rows| rows.end as u32).chain(std::iter::repeat(0)).take(Ends::NUMBERS);
            let args: Vec<Arg<'_>> = [ends, Arg::scalar(first)].into_iter().chain(numbers.map(Arg::scalar)).collect();
            // SAFETY: the kernel stores so many numbers from `first` on, where the row has as many; the workspace is as below.
            unsafe { self.queue(&write, &args) }?;
        }
        // SAFETY: built-in kernels guard their edges, those of the groups as well, so they stay within their matrices, the bias and the ends, of
        // which there is one for each matrix of B; C is borrowed to be written; on this stream nobody else uses the workspace before this kernel is
        // queued, which follows what writes it.
        unsafe { self.queue(&kernel, &with_bias(&[a, b, ends, c], bias, &factors)) }?;
        Ok(kernel.kernel.name().into())
    }

    /// Matrices of the workspace, for the next work on this handle's stream.
    fn borrowed(&self, layouts: [Option<Layout>; 3], types: [Type; 3]) -> Result<[Option<Arg<'_>>; 3]> {
        // What an access takes at once, and whole lines of the caches.
        const ALIGNMENT: usize = 256;
        let bytes = |layout: &Option<Layout>, ty: Type| -> Result<usize> {
            let elements = layout.map_or(Ok(0), |layout| layout.shape.len())?;
            let bytes = elements.checked_mul(ty.size()).and_then(|bytes| bytes.checked_next_multiple_of(ALIGNMENT));
            bytes.ok_or_else(|| Error::Shape(format!("a workspace of {elements} elements cannot be addressed")))
        };
        let mut all = 0usize;
        let mut starts = [0; 3];
        for ((layout, ty), start) in layouts.iter().zip(types).zip(&mut starts) {
            *start = all;
            all = all.saturating_add(bytes(layout, ty)?);
        }
        if layouts == [None; 3] {
            return Ok([None; 3]);
        }
        // Where k is 0, factors are empty, and lie somewhere nevertheless.
        let memory = self.workspace(all.max(1), 1, Kind::Any)?;
        let mut starts = starts.into_iter().zip(types);
        Ok(layouts.map(|layout| {
            let (start, ty) = starts.next()?;
            let layout = layout?;
            let memory =
                DeviceMemory { address: memory.address + start as u64, len: layout.shape.len().ok()?, ..memory };
            Some(Arg::Matrix { ty, layout, memory })
        }))
    }

    /// So many flags that are zero, for the next work on this handle's stream, which leaves them so.
    fn flags(&self, count: usize) -> Result<Arg<'_>> {
        let layout = Layout::row_major(Shape::new(1, count))?;
        Ok(Arg::Matrix { ty: Type::U32, layout, memory: self.workspace(count, size_of::<u32>(), Kind::Zeros)? })
    }

    /// A·B in a new matrix on this GPU. The work is queued, not waited for; the result can be an operand at once.
    ///
    /// # Errors
    /// [`Error::Shape`] where the shapes make no product, [`Error::OutOfMemory`], and what the driver says.
    pub fn matmul<T: Element>(&self, a: &DeviceMatrix<T>, b: &DeviceMatrix<T>) -> Result<DeviceMatrix<T::Out>> {
        let mut c = DeviceMatrix::uninit(self, crate::gemm::product_shape(a.shape(), b.shape())?)?;
        Gemm::new(a.view(), b.view(), c.view_mut()).on(&self.clone().into()).run()?;
        Ok(c)
    }
}

/// Arguments of a kernel that stores to C: matrices, the bias if there is one, numbers.
fn with_bias<'a>(matrices: &[Arg<'a>], bias: Option<Arg<'a>>, numbers: &[Arg<'a>]) -> Few<Arg<'a>, ARGS> {
    matrices.iter().copied().chain(bias).chain(numbers.iter().copied()).collect()
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
