//! `tegula mul`: reads, multiplies, verifies and writes.

use std::io::Write;

use tegula::element::{Arith, Element, Scalar};
use tegula::error::Bytes;
use tegula::nd::{NdArray, NdEpilogueOperands, NdView, display, product_shape};
use tegula_files::{AnyArray, Array, ArrayPath, Dtype, Number, ReadOptions, WriteOptions};

use crate::args::{MulArgs, short};
use crate::engine::{self, Operands};
use crate::failure::{Failure, Result};
use crate::output::stdout;
use crate::progress::{ProgressDisplay, Unit};
use crate::report::product::Product;
use crate::report::{json, plan, preview};

/// Evaluates an expression with two arrays of one element type. Refuses types without a product.
macro_rules! with_operands {
    ($first:expr, $second:expr, |$a:ident, $b:ident| $body:expr) => {{
        let (first, second): (&tegula_files::AnyArray, &tegula_files::AnyArray) = ($first, $second);
        let refuse = || Err($crate::mul::product_type_error(first.dtype(), second.dtype()));
        match first.dtype().product() {
            Some(ty) => tegula::element::with_operand_type!(
                ty,
                T => match (<T as tegula_files::Number>::downcast_ref(first), <T as tegula_files::Number>::downcast_ref(second)) {
                    (Some($a), Some($b)) => $body,
                    _ => refuse(),
                },
                _ => refuse()
            ),
            None => refuse(),
        }
    }};
}
pub(crate) use with_operands;

/// The command.
pub fn run(args: &MulArgs, progress: &ProgressDisplay) -> Result<()> {
    args.check()?;
    let target = args.output.as_ref().map(ArrayPath::parse);
    let (a, from_a) = load(&args.a(), args.cast, progress)?;
    let other = (args.b != args.a).then(|| load(&args.b(), args.cast, progress)).transpose()?;
    let (b, from_b) = other.as_ref().map_or((&a, &from_a), |(b, from)| (b, from));
    let command = Mul { args, progress, target, read: [&from_a, from_b] };
    with_operands!(&a, b, |a, b| command.product(a, b))
}

/// Reads an array. Also returns how it was read, for `--explain-plan`.
pub fn load(place: &ArrayPath, cast: Option<Dtype>, progress: &ProgressDisplay) -> Result<(AnyArray, String)> {
    let reading = progress.phase(&format!("reading {place}"), Unit::Bytes, 0);
    let tell = |done, total| reading.set_of(done, total);
    let array = tegula_files::read(place, &ReadOptions { memory_limit: engine::free_memory(), progress: &tell })?;
    let (shape, dtype, mapped) = (display(&array.layout().shape), array.dtype(), array.is_mapped());
    tracing::info!(target: "tegula::mul", %shape, %dtype, mapped, "read {place}");
    let bytes = |dtype: Dtype| Bytes((array.len() * dtype.size()) as u128).to_string();
    let way = if mapped { "mapped".into() } else { format!("read into memory, {}", bytes(dtype)) };
    let from = format!("{place}, {shape} {dtype}, {way}");
    match cast.filter(|&to| to != dtype) {
        Some(to) => {
            let from = format!("{from}; converted to {to} beside it, {}", bytes(to));
            let array = array.cast(to).map_err(|why| Failure::new(format!("{place}: {why}")))?;
            Ok((array, from))
        }
        None => Ok((array, from)),
    }
}

/// The error for types without a product.
pub fn product_type_error(a: Dtype, b: Dtype) -> Failure {
    if a != b {
        let example = common(a, b);
        return Failure::new(format!(
            "A is {a}, B is {b}: their types must match; convert with --cast TYPE, such as --cast {example}"
        ));
    }
    Failure::new(a.no_product().unwrap_or("these types have no product"))
}

/// An operand type that represents the values of both, as far as one exists.
fn common(a: Dtype, b: Dtype) -> Dtype {
    let both = |test: fn(Dtype) -> bool| test(a) && test(b);
    let narrow = |dtype: Dtype| dtype.size() <= 2;
    let integer = |dtype: Dtype| dtype.is_int() || dtype == Dtype::Bool;
    if both(|dtype| matches!(dtype, Dtype::Bool | Dtype::I8 | Dtype::I16 | Dtype::I32 | Dtype::U8 | Dtype::U16)) {
        return Dtype::I32;
    }
    // f32 represents integers of up to 16 bits.
    let fits = |dtype: Dtype| dtype == Dtype::F32 || narrow(dtype);
    let floats = !integer(a) || !integer(b);
    if floats && fits(a) && fits(b) { Dtype::F32 } else { Dtype::F64 }
}

/// The command after A and B are read.
struct Mul<'a> {
    args: &'a MulArgs,
    progress: &'a ProgressDisplay,
    target: Option<ArrayPath>,
    /// How A and B were read.
    read: [&'a str; 2],
}

impl Mul<'_> {
    /// Runs the command for one element type.
    fn product<T>(self, a: &Array<T>, b: &Array<T>) -> Result<()>
    where
        T: Element<Out: Number> + Number,
    {
        let Mul { args, progress, target, read } = self;
        if args.accuracy.of(T::TYPE) != args.accuracy {
            let name = args.accuracy.name();
            let why =
                format!("--accuracy {name} applies to f32, and A is {}: add --cast f32, or leave it out", T::TYPE);
            return Err(Failure::new(why));
        }
        let (a, b) = (oriented(a, args.ta)?, oriented(b, args.tb)?);
        let shape = check_shapes([args.ta, args.tb], a.shape(), b.shape())?;
        let (alpha, beta) = (scalar::<T>("--alpha", args.alpha)?, scalar::<T>("--beta", args.beta)?);
        if let Some(target) = &target {
            tegula_files::check_writable(target, <T::Out as Number>::DTYPE, shape.len())?;
        }
        let c0 = args.c().map(|place| load_c0::<T>(&place, &shape, args.cast, progress)).transpose()?;
        let bias = args.bias().map(|place| load_like_c::<T>("the bias", &place, args.cast, progress)).transpose()?;
        let before = c0.as_ref().map(Array::view).transpose()?;
        let mut c = match &before {
            Some(c0) if args.beta != 0.0 => c0.to_array()?,
            _ => NdArray::zeros(&shape)?,
        };
        let bias = bias.as_ref().map(Array::view).transpose()?;
        let finish = NdEpilogueOperands { bias, activation: args.activation };
        let (accuracy, batch_invariant) = (args.accuracy, args.batch_invariant);
        let operands = Operands { device: args.device, alpha, a, b, beta, finish, accuracy, batch_invariant };
        if args.explain_plan {
            let plan = operands.explain(&mut c)?;
            let mut out = stdout()?.lock();
            if args.json {
                json(&mut out, &plan::Plan::new(&plan, read))?;
            } else {
                writeln!(out, "A from {}\nB from {}\n{plan}", read[0], read[1])?;
            }
            return Ok(());
        }
        let done = operands.multiply(&mut c, progress)?;
        let before = before.filter(|_| args.beta != 0.0);
        let verified = args.verify.then(|| operands.verify(before.as_ref(), &c.view(), progress)).transpose()?;
        let product = Product::new(&operands, &shape, done, verified);
        conclude(args, progress, target, &product, &c)
    }
}

fn oriented<T: Number + Scalar>(array: &Array<T>, transpose: bool) -> Result<NdView<'_, T>> {
    let view = array.view()?;
    Ok(if transpose { view.t() } else { view })
}

/// The shape of C. The error of shapes that do not match suggests a transposition. `ta` and `tb`
/// are the transpositions already applied.
pub fn check_shapes([ta, tb]: [bool; 2], a: &[usize], b: &[usize]) -> Result<Vec<usize>> {
    product_shape(a, b).map_err(|error| {
        let transposed = |shape: &[usize]| {
            let mut shape = shape.to_vec();
            let len = shape.len();
            if len > 1 {
                shape.swap(len - 2, len - 1);
            }
            shape
        };
        let (other_a, other_b) = (product_shape(&transposed(a), b).is_ok(), product_shape(a, &transposed(b)).is_ok());
        let hint = match (other_b, other_a) {
            (true, _) if tb => "; leave out --tb",
            (true, _) => "; add --tb",
            (_, true) if ta => "; leave out --ta",
            (_, true) => "; add --ta",
            _ => "",
        };
        let applied = match (ta, tb) {
            (true, true) => " (A and B are transposed)",
            (true, false) => " (A is transposed)",
            (false, true) => " (B is transposed)",
            (false, false) => "",
        };
        Failure::new(format!("{error}{applied}{hint}"))
    })
}

/// A scalar of the accumulator type.
pub fn scalar<T: Element>(option: &str, value: f64) -> Result<T::Acc> {
    let refuse =
        || Failure::Usage(format!("{option} {}: not a value of {}; give a whole number", short(value), T::Acc::TYPE));
    T::Acc::from_f64(value).ok_or_else(refuse)
}

fn load_c0<T>(
    place: &ArrayPath,
    shape: &[usize],
    cast: Option<Dtype>,
    progress: &ProgressDisplay,
) -> Result<Array<T::Out>>
where
    T: Element<Out: Number>,
{
    let c0 = load_like_c::<T>("C0", place, cast, progress)?;
    let found = &c0.layout.shape;
    if found != shape {
        let (found, shape) = (display(found), display(shape));
        return Err(Failure::new(format!("C0 is {found}, C is {shape}: C0 needs the shape of C")));
    }
    Ok(c0)
}

/// Reads an array of C's type.
fn load_like_c<T>(
    what: &str,
    place: &ArrayPath,
    cast: Option<Dtype>,
    progress: &ProgressDisplay,
) -> Result<Array<T::Out>>
where
    T: Element<Out: Number>,
{
    let wanted = <T::Out as Number>::DTYPE;
    let (array, _) = load(place, cast.map(|_| wanted), progress)?;
    T::Out::downcast(array).map_err(|other| {
        let found = other.dtype();
        Failure::new(format!(
            "{what} is {found}, C is {wanted}: {what} needs the type of C; convert with --cast {}",
            T::TYPE
        ))
    })
}

/// Reports and writes the product; a wrong one is not written.
fn conclude<T: Number + Scalar>(
    args: &MulArgs,
    progress: &ProgressDisplay,
    target: Option<ArrayPath>,
    product: &Product,
    c: &NdArray<T>,
) -> Result<()> {
    let refusal = product.refusal();
    if args.json {
        // Report first: where that fails, the old file stays.
        let mut out = stdout()?;
        json(&mut out, product)?;
        out.flush()?;
    }
    if let (Some(target), None) = (&target, &refusal) {
        let writing = progress.phase(&format!("writing {target}"), Unit::Bytes, 0);
        let tell = |done, total| writing.set_of(done, total);
        tegula_files::write(target, c.shape(), c.as_slice(), &WriteOptions { progress: &tell })?;
    }
    if !args.json && target.is_none() && refusal.is_none() {
        preview::print(&mut stdout()?, c)?;
    }
    match refusal {
        Some(refusal) => Err(Failure::Failed(refusal)),
        None => {
            progress.line(product);
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use tegula::Accuracy;

    use super::*;
    use crate::args::{Cli, Command, DeviceChoice};
    use crate::engine::{Done, Verified};

    #[test]
    fn product_that_fails_verification_is_not_written() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("c.npy");
        let line = ["tegula", "mul", "a.npy", "b.npy", "--verify", "-o"].map(Into::into);
        let Command::Mul(args) = Cli::parse_from(line.into_iter().chain([path.clone().into_os_string()])).command
        else {
            panic!("mul is mul");
        };
        let one = NdArray::<f32>::zeros(&[1, 1]).unwrap();
        let operands = Operands {
            device: DeviceChoice::Cpu,
            alpha: 1.0,
            a: one.view(),
            b: one.view(),
            beta: 0.0,
            finish: NdEpilogueOperands::default(),
            accuracy: Accuracy::Full,
            batch_invariant: false,
        };
        let conclude_with = |r| {
            let done = Done { device: "cpu".into(), kernel: "loop".into(), seconds: 1.0 };
            let verified = Some(Verified { ok: r <= 5.0, r, bound: 5.0, worst: Some(vec![0, 0]), overflows: 0 });
            let product = Product::new(&operands, &[1, 1], done, verified);
            conclude(&args, &ProgressDisplay::new(true, false), Some(ArrayPath::parse(&path)), &product, &one)
        };
        assert!(matches!(conclude_with(5.5), Err(Failure::Failed(_))));
        assert!(!path.exists());
        assert!(conclude_with(5.0).is_ok());
        assert!(path.exists());
    }
}
