//! Products in the interpreter: the memory of a list of launches, and running the list.

use tegula_core::host;
use tegula_interp::{Arg, Buffer, Config, footprint};
use tegula_ir::check;
use tegula_ir::launch::DeviceProperties;
use tegula_kernels::plan::{Argument, Launch, Launches, Operands, Recipe};

use crate::element::{Element, Scalar};
use crate::epilogue::EpilogueOperands;
use crate::error::{Error, Result};
use crate::gemm::Gemm;
use crate::matrix::{self, Layout, Matrix, Shape, View, ViewMut};
use crate::progress::ProgressMeter;

/// The properties of the device that the interpreter models.
pub(crate) fn device() -> DeviceProperties {
    Config::default().device
}

/// Bytes of the interpreter's copies of A, B, C and the bias.
pub(crate) fn copy_bytes<T: Element>(a: Shape, b: Shape, c: Shape, bias: Option<Shape>) -> Result<u128> {
    if c.is_empty() {
        return Ok(0);
    }
    let inputs = footprint(T::TYPE, a.len()?, false) + footprint(T::TYPE, b.len()?, false);
    let out = <T::Out as Scalar>::TYPE;
    let bias = bias.map_or(Ok(0), |bias| bias.len())?;
    Ok(inputs + footprint(out, c.len()?, true) + footprint(out, bias, false))
}

/// The buffers and scalars of the launches of a product.
#[derive(Debug)]
pub struct LaunchMemory {
    a: Buffer,
    b: Buffer,
    /// C in the layout of the launches, which may be transposed.
    pub c: Buffer,
    bias: Option<Buffer>,
    workspaces: Vec<Buffer>,
    /// Alpha and beta.
    scalars: [Arg<'static>; 2],
}

impl LaunchMemory {
    /// Copies A, B and the bias. C has the layout `c`, and the values `before` where beta is not 0.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory),
    /// [`Error::Unsupported`](crate::Error::Unsupported) for matrices on a GPU.
    pub fn new<T: Element>(
        launches: &Launches,
        [a, b]: [View<'_, T>; 2],
        c: Layout,
        before: Option<View<'_, T::Out>>,
        [alpha, beta]: [T::Acc; 2],
        epilogue: EpilogueOperands<'_, T::Out>,
    ) -> Result<LaunchMemory> {
        let [transpose_a, transpose_b, transpose_c] = launches.transposed;
        let c = match before {
            None => Buffer::output(<T::Out as Scalar>::TYPE, launches.layout(2, c))?,
            Some(before) => in_out(oriented(before, transpose_c))?,
        };
        let bias = epilogue.bias.map(|bias| input(oriented(bias, transpose_c))).transpose()?;
        let workspaces = launches.workspaces.iter().map(|workspace| match workspace.zeroed {
            false => Buffer::output(workspace.ty, workspace.layout),
            true => Buffer::zeros(workspace.ty, workspace.layout),
        });
        Ok(LaunchMemory {
            a: input(oriented(a, transpose_a))?,
            b: input(oriented(b, transpose_b))?,
            c,
            bias,
            workspaces: workspaces.collect::<Result<_>>()?,
            scalars: [Arg::scalar(alpha), Arg::scalar(beta)],
        })
    }

    /// The arguments of a launch.
    pub fn arguments(&self, launch: &Launch) -> Vec<Arg<'_>> {
        let resolve = |argument: &Argument| match *argument {
            Argument::A => Some(Arg::from(&self.a)),
            Argument::B => Some(Arg::from(&self.b)),
            Argument::C => Some(Arg::from(&self.c)),
            // A missing bias is a missing argument, which binding refuses.
            Argument::Bias => self.bias.as_ref().map(Arg::from),
            Argument::Workspace(index) => Some(Arg::from(&self.workspaces[usize::from(index)])),
            Argument::Alpha => Some(self.scalars[0]),
            Argument::Beta => Some(self.scalars[1]),
            Argument::Number(number) => Some(Arg::scalar(number)),
        };
        launch.arguments.iter().filter_map(resolve).collect()
    }
}

/// A read-only buffer with the elements and the layout of a host view.
///
/// Elements are copied one by one: a view borrows only the elements that its layout names, so a
/// slice that includes the bytes between them would be unsound.
///
/// # Errors
/// [`Error::Unsupported`] for GPU memory, [`Error::OutOfMemory`] where the copy does not fit in
/// memory.
pub fn input<T: Scalar>(view: View<'_, T>) -> Result<Buffer> {
    let matrix::Memory::Host(_) = view.memory() else { return Err(on_gpu::<T>()) };
    Buffer::from_fn(view.layout(), |batch, row, col| view.get(batch, row, col).unwrap_or(T::ZERO))
}

/// A buffer to read and write, otherwise as [`input`].
///
/// # Errors
/// As for [`input`].
pub fn in_out<T: Scalar>(view: View<'_, T>) -> Result<Buffer> {
    input(view)?.writable()
}

/// Copies the elements that kernels wrote to a view of the same shape; other elements stay
/// unchanged.
///
/// # Errors
/// [`Error::Unsupported`] for another type or GPU memory, [`Error::Shape`] for another shape.
pub fn copy_written<T: Scalar>(from: &Buffer, mut to: ViewMut<'_, T>) -> Result<()> {
    let shape = to.shape();
    if shape != from.layout().shape {
        return Err(Error::Shape(format!("a buffer of {} does not fit a view of {shape}", from.layout().shape)));
    }
    if from.ty() != T::TYPE {
        let device = "the interpreter; ask for the same type".into();
        return Err(Error::Unsupported { what: format!("a buffer of {}", from.ty()), ty: T::TYPE, device });
    }
    let matrix::Memory::Host(_) = to.memory() else { return Err(on_gpu::<T>()) };
    let Shape { batches, rows, cols } = shape;
    // An empty shape may have any number of rows, too many to iterate.
    for batch in 0..if shape.is_empty() { 0 } else { batches } {
        for (row, col) in (0..rows).flat_map(|row| (0..cols).map(move |col| (row, col))) {
            if from.written(batch, row, col)
                && let (Some(bits), Some(element)) = (from.bits(batch, row, col), to.get_mut(batch, row, col))
            {
                *element = T::from_bits(bits);
            }
        }
    }
    Ok(())
}

/// The elements of a buffer; uninitialized elements are 0.
///
/// # Errors
/// [`Error::Unsupported`] for another type, [`Error::OutOfMemory`] where the copy does not fit in
/// memory.
pub fn to_matrix<T: Scalar>(from: &Buffer) -> Result<Matrix<T>> {
    Matrix::from_shape_vec(from.layout().shape, from.to_vec()?)
}

fn on_gpu<T: Scalar>() -> Error {
    Error::Unsupported {
        what: "GPU memory".into(),
        ty: T::TYPE,
        device: "the interpreter; download the matrix first".into(),
    }
}

fn oriented<T: Scalar>(view: View<'_, T>, transposed: bool) -> View<'_, T> {
    if transposed { view.t() } else { view }
}

/// Runs the launches of a product in the interpreter, with checks. An error of a kernel is an error
/// of the product.
pub(crate) fn run<T: Element>(recipe: &Recipe, product: Gemm<'_, T>, meter: Option<&ProgressMeter<'_>>) -> Result<()> {
    let Gemm { alpha, a, b, beta, c, epilogue, .. } = product;
    let layouts = [a.layout(), b.layout(), c.layout()];
    let launches = recipe.launches(&Operands::aligned(T::TYPE, layouts, epilogue.epilogue()))?;
    let copied = copy_bytes::<T>(a.shape(), b.shape(), c.shape(), epilogue.bias.map(|bias| bias.shape()))?;
    let workspaces = launches.workspaces.iter().try_fold(0, |bytes, workspace| {
        Ok::<_, crate::Error>(bytes + footprint(workspace.ty, workspace.layout.shape.len()?, true))
    })?;
    host::check(copied + workspaces, || "the interpreter's copies of A, B and C".into())?;
    let before = (beta != T::Acc::ZERO).then(|| c.as_view());
    let memory = LaunchMemory::new(&launches, [a, b], layouts[2], before, [alpha, beta], epilogue)?;
    for launch in &launches.launches {
        let kernel = check(launch.kernel.build()?)?;
        tegula_interp::run_with_progress(&kernel, &memory.arguments(launch), &Config::default(), meter)?.ok(&kernel)?;
    }
    copy_written(&memory.c, if launches.transposed[2] { ViewMut::t(c) } else { c })
}
