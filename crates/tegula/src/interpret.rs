//! Products by kernels in the interpreter: the memory of a list of launches, and running it.

use tegula_core::host;
use tegula_interp::{Arg, Buffer, Config, footprint};
use tegula_ir::check;
use tegula_ir::launch::DeviceFacts;
use tegula_kernels::plan::{Argument, Launch, Launches, Operands, Recipe};

use crate::element::{Element, Scalar};
use crate::epilogue::Finish;
use crate::error::Result;
use crate::gemm::Gemm;
use crate::matrix::{Matrix, Shape, View, ViewMut};
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
    /// Copies A, B and the bias, and C where beta is not 0.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory), [`Error::Unsupported`](crate::Error::Unsupported) for
    /// matrices on a GPU.
    pub fn new<T: Element>(
        launches: &Launches,
        [a, b]: [View<'_, T>; 2],
        c: View<'_, T::Out>,
        [alpha, beta]: [T::Acc; 2],
        finish: Finish<'_, T::Out>,
    ) -> Result<Memory> {
        let [a_turned, b_turned, c_turned] = launches.transposed;
        let c = turned(c, c_turned);
        let c = match beta == T::Acc::ZERO {
            true => Buffer::output(<T::Out as Scalar>::TYPE, c.layout())?,
            false => Buffer::in_out(c)?,
        };
        let bias = finish.bias.map(|bias| Buffer::input(turned(bias, c_turned))).transpose()?;
        let workspaces = launches.workspaces.iter().map(|workspace| match (workspace.zeroed, workspace.ty) {
            (false, ty) => Buffer::output(ty, workspace.layout),
            // Flags.
            (true, _) => Buffer::in_out(Matrix::<u32>::zeros(workspace.layout.shape)?.view()),
        });
        Ok(Memory {
            a: Buffer::input(turned(a, a_turned))?,
            b: Buffer::input(turned(b, b_turned))?,
            c,
            bias,
            workspaces: workspaces.collect::<Result<_>>()?,
            scalars: [Arg::scalar(alpha), Arg::scalar(beta)],
        })
    }

    /// The arguments of a launch.
    pub fn arguments(&self, launch: &Launch) -> Vec<Arg<'_>> {
        let resolve = |argument: &Argument| match *argument {
            Argument::A => Arg::from(&self.a),
            Argument::B => Arg::from(&self.b),
            Argument::C => Arg::from(&self.c),
            Argument::Bias => Arg::from(self.bias.as_ref().unwrap_or(&self.c)),
            Argument::Workspace(number) => Arg::from(&self.workspaces[usize::from(number)]),
            Argument::Alpha => self.scalars[0],
            Argument::Beta => self.scalars[1],
            Argument::Number(number) => Arg::scalar(number),
        };
        launch.arguments.iter().map(resolve).collect()
    }
}

fn turned<T: Scalar>(view: View<'_, T>, transposed: bool) -> View<'_, T> {
    if transposed { view.t() } else { view }
}

/// Runs a product's kernels in the interpreter, checks on: an error in a kernel is an error of the product.
pub(crate) fn run<T: Element>(recipe: &Recipe, product: Gemm<'_, T>, meter: Option<&Meter<'_>>) -> Result<()> {
    let Gemm { alpha, a, b, beta, c, finish, .. } = product;
    let layouts = [a.layout(), b.layout(), c.layout()];
    let launches = recipe.launches(&Operands::aligned(T::TYPE, layouts, finish.epilogue()))?;
    let copied = copies::<T>(a.shape(), b.shape(), c.shape(), finish.bias.map(|bias| bias.shape()))?;
    let workspaces = launches.workspaces.iter().try_fold(0, |bytes, workspace| {
        Ok::<_, crate::Error>(bytes + footprint(workspace.ty, workspace.layout.shape.len()?, true))
    })?;
    host::check(copied + workspaces, || "the interpreter's copies of A, B and C".into())?;
    let memory = Memory::new(&launches, [a, b], c.as_view(), [alpha, beta], finish)?;
    for launch in &launches.launches {
        let kernel = check(launch.kernel.build()?)?;
        tegula_interp::run_told(&kernel, &memory.arguments(launch), &Config::default(), meter)?.ok(&kernel)?;
    }
    memory.c.copy_to(if launches.transposed[2] { ViewMut::t(c) } else { c })
}
