//! Where a kernel meets the driver: its parameters are bound to matrices, its text is loaded, and it is queued.
//!
//! This file alone in `cuda` knows kernels; everything below it takes a printed image.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use super::{Buffer, DeviceMatrix, Function, Gpu, Param, Stored};
use crate::element::{Element, Scalar, Type};
use crate::error::{Error, Result};
use crate::gemm::Gemm;
use crate::ir::launch::{Bound, DeviceFacts, Field};
use crate::ir::{Axis, Checked, Kernel, check};
use crate::kernels::{Edges, Variant};
use crate::matrix::{DeviceMemory, Layout, Memory, MemoryMut, View, ViewMut};
use crate::ptx;

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

    fn bound(&self) -> Bound {
        match *self {
            Arg::Matrix { ty, layout, memory } => Bound::Matrix { ty, layout, address: origin(ty, layout, memory) },
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

/// The address of element (0, 0, 0).
fn origin(ty: Type, layout: Layout, memory: DeviceMemory<'_>) -> u64 {
    // An empty view may have any offset; its address is never used.
    memory.address().wrapping_add((layout.offset as u64).wrapping_mul(ty.size() as u64))
}

/// Kernels that are loaded, with what a launch needs of them: a second product is a look-up and a launch.
type Loaded = HashMap<(u64, Variant), Arc<(Checked<Kernel>, Function)>>;
static LOADED: LazyLock<Mutex<Loaded>> = LazyLock::new(Default::default);

impl Gpu {
    /// Queues a kernel; the grid follows from the arguments. Nothing waits for it.
    ///
    /// # Errors
    /// [`Error::Launch`] where the arguments do not fit the kernel, [`Error::Assemble`], and what the driver says.
    ///
    /// # Safety
    /// For these arguments the kernel has to stay within its matrices, as a run in [`crate::interp`] shows, and no other work
    /// may use the matrices it writes at the same time.
    pub unsafe fn run(&self, kernel: &Checked<Kernel>, args: &[Arg<'_>]) -> Result<()> {
        let (function, _) = self.load(&ptx::print(kernel)?)?;
        // SAFETY: the caller's promise; the function is the kernel's.
        unsafe { self.queue(kernel, &function, args) }
    }

    /// Queues a loaded kernel.
    ///
    /// # Safety
    /// As [`Gpu::run`]; `function` is `kernel`, loaded.
    unsafe fn queue(&self, kernel: &Checked<Kernel>, function: &Function, args: &[Arg<'_>]) -> Result<()> {
        let bound: Vec<Bound> = args.iter().map(Arg::bound).collect();
        let facts = DeviceFacts { multiprocessors: self.info().multiprocessors };
        let grid = kernel.bind(&bound, &facts)?;
        let params: Vec<Param> = kernel.fields().iter().map(|field| param(*field, args)).collect();
        let memory: Vec<DeviceMemory<'_>> = args
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
    fn built_in(&self, variant: &Variant) -> Result<Arc<(Checked<Kernel>, Function)>> {
        let key = (self.home().context, *variant);
        if let Some(loaded) = lock().get(&key) {
            return Ok(loaded.clone());
        }
        let kernel = check(variant.build()?)?;
        let (function, _) = self.load(&ptx::print(&kernel)?)?;
        let loaded = Arc::new((kernel, function));
        lock().insert(key, loaded.clone());
        Ok(loaded)
    }

    /// Makes a product with a built-in kernel. Matrices on the host are copied to the GPU and C back; what lies on the GPU stays
    /// there.
    pub(crate) fn multiply<T: Element>(&self, variant: &Variant, product: Gemm<'_, T>) -> Result<()> {
        if variant.edges != Edges::Guarded {
            return Err(Error::KernelOption("a product takes a kernel that guards its edges".into()));
        }
        let (a, b) = (Operand::input(self, product.a)?, Operand::input(self, product.b)?);
        let scalars = [Arg::scalar(product.alpha), Arg::scalar(product.beta)];
        let inputs = [Arg::input(a.view())?, Arg::input(b.view())?];
        match product.c.memory() {
            Memory::Device(_) => self.multiply_there(variant, inputs, Arg::output(product.c)?, scalars),
            Memory::Host(_) => {
                let (host, layout) = product.c.packed()?;
                let mut copy = Buffer::uninit(self, host.shape().len()?)?;
                if product.beta != T::Acc::ZERO {
                    copy.upload(host.as_view())?;
                }
                let c = Arg::output(ViewMut::<T::Out>::on_gpu(copy.memory(), layout))?;
                self.multiply_there(variant, inputs, c, scalars)?;
                copy.download(host)
            }
        }
    }

    /// The product of matrices that lie on the GPU.
    fn multiply_there(&self, variant: &Variant, [a, b]: [Arg<'_>; 2], c: Arg<'_>, scalars: [Arg<'_>; 2]) -> Result<()> {
        // A matrix that was copied lies without gaps, however it lay where the plan saw it.
        let orders = [a, b, c].map(|matrix| match matrix {
            Arg::Matrix { layout, .. } => crate::plan::order_of(&layout),
            Arg::Scalar { .. } => Default::default(),
        });
        let loaded = self.built_in(&Variant { orders, ..*variant })?;
        let (kernel, function) = &*loaded;
        let [alpha, beta] = scalars;
        // SAFETY: the kernel guards its edges, so it stays within A, B and C; C is borrowed to be written.
        unsafe { self.queue(kernel, function, &[a, b, c, alpha, beta]) }
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

fn lock() -> std::sync::MutexGuard<'static, Loaded> {
    LOADED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An input on the GPU: there already, or copied, with its layout there.
enum Operand<'a, T: Stored> {
    There(View<'a, T>),
    Copied(Buffer<T>, Layout),
}

impl<'a, T: Stored> Operand<'a, T> {
    fn input(gpu: &Gpu, view: View<'a, T>) -> Result<Self> {
        if let Memory::Device(_) = view.memory() {
            return Ok(Operand::There(view));
        }
        let (host, layout) = view.packed()?;
        let mut copy = Buffer::uninit(gpu, host.shape().len()?)?;
        copy.upload(host)?;
        Ok(Operand::Copied(copy, layout))
    }

    fn view(&self) -> View<'_, T> {
        match self {
            Operand::There(view) => *view,
            Operand::Copied(copy, layout) => View::on_gpu(copy.memory(), *layout),
        }
    }
}

/// One entry of the parameter list.
fn param(field: Field, args: &[Arg<'_>]) -> Param {
    let matrix = |param: crate::ir::ParamId| match args[param.index()] {
        Arg::Matrix { ty, layout, memory } => Some((ty, layout, memory)),
        Arg::Scalar { .. } => None,
    };
    // `bind` refuses arguments of the wrong kind, so the zeros below are never passed.
    match field {
        Field::Address(id) => Param::U64(matrix(id).map_or(0, |(ty, layout, memory)| origin(ty, layout, memory))),
        Field::Extent(id, axis) => Param::U32(matrix(id).map_or(0, |(_, layout, _)| extent(&layout, axis) as u32)),
        Field::Stride(id, axis) => {
            Param::I64(matrix(id).map_or(0, |(ty, layout, _)| stride(&layout, axis).wrapping_mul(ty.size() as i64)))
        }
        Field::Scalar(id, ty) => scalar(ty, args[id.index()]),
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
