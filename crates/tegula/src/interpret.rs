//! Products by kernels in the interpreter: the memory of a list of launches, and running it.

use tegula_core::host;
use tegula_interp::{Arg, Buffer, Config, footprint};
use tegula_ir::check;
use tegula_ir::launch::DeviceFacts;
use tegula_kernels::plan::{Argument, Launch, Launches, Operands, Recipe};

use crate::element::{Element, Scalar};
use crate::epilogue::Finish;
use crate::error::{Error, Result};
use crate::gemm::Gemm;
use crate::matrix::{self, Layout, Matrix, Shape, View, ViewMut};
use crate::progress::Meter;

/// The device that the interpreter stands for.
pub(crate) fn device() -> DeviceFacts {
    Config::default().device
}

/// Bytes that the interpreter takes for its copies of A, B, C and the bias.
pub(crate) fn copies<T: Element>(a: Shape, b: Shape, c: Shape, bias: Option<Shape>) -> Result<u128> {
    if c.is_empty() {
        return Ok(0);
    }
    let inputs = footprint(T::TYPE, a.len()?, false) + footprint(T::TYPE, b.len()?, false);
    let out = <T::Out as Scalar>::TYPE;
    let bias = bias.map_or(Ok(0), |bias| bias.len())?;
    Ok(inputs + footprint(out, c.len()?, true) + footprint(out, bias, false))
}

/// The memory of a product's launches.
#[derive(Debug)]
pub struct Memory {
    a: Buffer,
    b: Buffer,
    /// C as the launches take it, perhaps transposed.
    pub c: Buffer,
    bias: Option<Buffer>,
    workspaces: Vec<Buffer>,
    /// Alpha and beta.
    scalars: [Arg<'static>; 2],
}

impl Memory {
    /// Copies A, B and the bias. C has a layout, and values `before` where beta is not 0.
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
        finish: Finish<'_, T::Out>,
    ) -> Result<Memory> {
        let [of_a, of_b, of_c] = launches.transposed;
        let c = match before {
            None => Buffer::output(<T::Out as Scalar>::TYPE, launches.layout(2, c))?,
            Some(before) => in_out(oriented(before, of_c))?,
        };
        let bias = finish.bias.map(|bias| input(oriented(bias, of_c))).transpose()?;
        let workspaces = launches.workspaces.iter().map(|workspace| match workspace.zeroed {
            false => Buffer::output(workspace.ty, workspace.layout),
            true => Buffer::zeros(workspace.ty, workspace.layout),
        });
        Ok(Memory {
            a: input(oriented(a, of_a))?,
            b: input(oriented(b, of_b))?,
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
            // A bias that is missing is an argument too few, which binding refuses.
            Argument::Bias => self.bias.as_ref().map(Arg::from),
            Argument::Workspace(number) => Some(Arg::from(&self.workspaces[usize::from(number)])),
            Argument::Alpha => Some(self.scalars[0]),
            Argument::Beta => Some(self.scalars[1]),
            Argument::Number(number) => Some(Arg::scalar(number)),
        };
        launch.arguments.iter().filter_map(resolve).collect()
    }
}

/// A buffer to read, with the elements and the layout of a view on the host.
///
/// Elements are copied one by one: a view owns no element that its layout does not name, so there
/// may be no slice of the bytes between them.
///
/// # Errors
/// [`Error::Unsupported`] for memory of a GPU, [`Error::OutOfMemory`] where the copy does not fit
/// in memory.
pub fn input<T: Scalar>(view: View<'_, T>) -> Result<Buffer> {
    let matrix::Memory::Host(_) = view.memory() else { return Err(on_gpu::<T>()) };
    Buffer::from_fn(view.layout(), |batch, row, col| view.get(batch, row, col).unwrap_or(T::ZERO))
}

/// A buffer to read and write, otherwise as [`input`].
///
/// # Errors
/// As [`input`].
pub fn in_out<T: Scalar>(view: View<'_, T>) -> Result<Buffer> {
    input(view)?.writable()
}

/// Copies what kernels wrote to a view of the buffer's shape; other elements keep their value.
///
/// # Errors
/// [`Error::Unsupported`] for another type or memory of a GPU, [`Error::Shape`] for another shape.
pub fn copy_written<T: Scalar>(from: &Buffer, mut to: ViewMut<'_, T>) -> Result<()> {
    let shape = to.shape();
    if shape != from.layout().shape {
        return Err(Error::Shape(format!("{} does not fit into {shape}", from.layout().shape)));
    }
    if from.ty() != T::TYPE {
        let device = "the interpreter; ask for the same type".into();
        return Err(Error::Unsupported { what: format!("a buffer of {}", from.ty()), ty: T::TYPE, device });
    }
    let matrix::Memory::Host(_) = to.memory() else { return Err(on_gpu::<T>()) };
    let Shape { batches, rows, cols } = shape;
    // An empty shape may have any number of rows, and no loop should count them.
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

/// The elements of a buffer; those that were never written are 0.
///
/// # Errors
/// [`Error::Unsupported`] for another type, [`Error::OutOfMemory`] where the copy does not fit in
/// memory.
pub fn to_matrix<T: Scalar>(from: &Buffer) -> Result<Matrix<T>> {
    Matrix::from_shape_vec(from.layout().shape, from.to_vec()?)
}

fn on_gpu<T: Scalar>() -> Error {
    Error::Unsupported {
        what: "memory of a GPU".into(),
        ty: T::TYPE,
        device: "the interpreter; download the matrix first".into(),
    }
}

fn oriented<T: Scalar>(view: View<'_, T>, transposed: bool) -> View<'_, T> {
    if transposed { view.t() } else { view }
}

/// Runs a product's kernels in the interpreter, checks on: an error in a kernel is an error of the
/// product.
pub(crate) fn run<T: Element>(recipe: &Recipe, product: Gemm<'_, T>, meter: Option<&Meter<'_>>) -> Result<()> {
    let Gemm { alpha, a, b, beta, c, finish, .. } = product;
    let layouts = [a.layout(), b.layout(), c.layout()];
    let launches = recipe.launches(&Operands::aligned(T::TYPE, layouts, finish.epilogue()))?;
    let copied = copies::<T>(a.shape(), b.shape(), c.shape(), finish.bias.map(|bias| bias.shape()))?;
    let workspaces = launches.workspaces.iter().try_fold(0, |bytes, workspace| {
        Ok::<_, crate::Error>(bytes + footprint(workspace.ty, workspace.layout.shape.len()?, true))
    })?;
    host::check(copied + workspaces, || "the interpreter's copies of A, B and C".into())?;
    let before = (beta != T::Acc::ZERO).then(|| c.as_view());
    let memory = Memory::new(&launches, [a, b], layouts[2], before, [alpha, beta], finish)?;
    for launch in &launches.launches {
        let kernel = check(launch.kernel.build()?)?;
        tegula_interp::run_told(&kernel, &memory.arguments(launch), &Config::default(), meter)?.ok(&kernel)?;
    }
    copy_written(&memory.c, if launches.transposed[2] { ViewMut::t(c) } else { c })
}
