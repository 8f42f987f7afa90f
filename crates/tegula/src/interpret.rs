//! Products by kernels in the interpreter.

use tegula_core::host;
use tegula_interp::{Arg, Buffer, Config, footprint};
use tegula_ir::check;
use tegula_ir::launch::DeviceFacts;
use tegula_kernels::Variant;
use tegula_kernels::plan::{Lie, Meeting, Recipe};

use crate::element::{Element, Scalar};
use crate::error::Result;
use crate::gemm::Gemm;
use crate::matrix::{Layout, Matrix, Shape, View, ViewMut};
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

/// Runs a product's kernels in the interpreter, checks on: an error in a kernel is an error of the product.
pub(crate) fn run<T: Element>(recipe: &Recipe, product: Gemm<'_, T>, meter: Option<&Meter<'_>>) -> Result<()> {
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
        tegula_interp::run_told(&kernel, &args, &Config::default(), meter)?.ok(&kernel).map(drop)
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
