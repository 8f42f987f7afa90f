//! `tegula mul`: read, multiply, verify, write.

use std::io::{Write, stderr, stdout};
use std::path::Path;

use tegula::element::{Arith, Element, Scalar, Type};
use tegula::{Matrix, Shape, View};
use tegula_files::{AnyArray, Array, Dtype, Number, Place, Reading, Writing};

use crate::args::MulArgs;
use crate::engine;
use crate::failure::{Failure, Result};
use crate::report::product::Product;
use crate::report::{json, preview};

/// The command.
pub fn run(args: &MulArgs) -> Result<()> {
    args.check()?;
    args.output.as_deref().map_or(Ok(()), |path| tegula_files::check(&Place::parse(path), Dtype::F32, 2))?;
    let a = load(&args.a, args.cast)?;
    let other = (args.b != args.a).then(|| load(&args.b, args.cast)).transpose()?;
    let b = other.as_ref().unwrap_or(&a);
    match (&a, b) {
        (AnyArray::F64(a), AnyArray::F64(b)) => product(args, a, b),
        (AnyArray::F32(a), AnyArray::F32(b)) => product(args, a, b),
        (AnyArray::F16(a), AnyArray::F16(b)) => product(args, a, b),
        (AnyArray::BF16(a), AnyArray::BF16(b)) => product(args, a, b),
        (AnyArray::I32(a), AnyArray::I32(b)) => product(args, a, b),
        (AnyArray::I8(a), AnyArray::I8(b)) => product(args, a, b),
        (a, b) => Err(no_product(a.dtype(), b.dtype())),
    }
}

fn load(path: &Path, cast: Option<Type>) -> Result<AnyArray> {
    let place = Place::parse(path);
    let array = tegula_files::read(&place, &Reading::default())?;
    match cast {
        Some(ty) => array.cast(ty.into()).map_err(|why| Failure::new(format!("{place}: {why}"))),
        None => Ok(array),
    }
}

fn no_product(a: Dtype, b: Dtype) -> Failure {
    if let Some(why) = a.no_product().or(b.no_product()) {
        return Failure::new(why);
    }
    Failure::new(format!("A is {a}, B is {b}: give both the same type, or say --cast TYPE (for example --cast {a})"))
}

/// The command for one number type.
fn product<T>(args: &MulArgs, a: &Array<T>, b: &Array<T>) -> Result<()>
where
    T: Element<Out: Number> + Number,
{
    let (a, b) = (oriented(a, args.ta)?, oriented(b, args.tb)?);
    let shape = check_shapes(args, a.shape(), b.shape())?;
    let (alpha, beta) = (factor::<T>("--alpha", args.alpha)?, factor::<T>("--beta", args.beta)?);
    let c0 = args.c.as_deref().map(|path| load_c0::<T>(path, shape, args.cast)).transpose()?;
    let before = c0.as_ref().filter(|_| args.verify && args.beta != 0.0).cloned();
    let mut c = c0.map_or_else(|| Matrix::zeros(shape), |c0| c0.matrix().and_then(Matrix::from_view))?;

    let done = engine::multiply(args.device, alpha, a, b, beta, &mut c)?;
    let before = before.as_ref().map(Array::matrix).transpose()?;
    let verify = || engine::verify(alpha, a, b, beta, before, c.view());
    let verified = args.verify.then(verify).transpose()?;
    let product = Product::new(a.shape(), b.shape(), T::TYPE, T::Out::TYPE, done, verified);
    conclude(args, &product, &c)
}

fn oriented<T: Number + Scalar>(array: &Array<T>, transpose: bool) -> Result<View<'_, T>> {
    let view = array.matrix()?;
    Ok(if transpose { view.t() } else { view })
}

/// The shape of C.
fn check_shapes(args: &MulArgs, a: Shape, b: Shape) -> Result<Shape> {
    if a.cols == b.rows {
        return Ok(Shape::new(a.rows, b.cols));
    }
    let hint = match (a.cols == b.cols, a.rows == b.rows) {
        (true, _) if args.tb => "; leave --tb out",
        (true, _) => "; --tb would make them fit",
        (_, true) if args.ta => "; leave --ta out",
        (_, true) => "; --ta would make them fit",
        _ => "",
    };
    let side = |name, transposed: bool| if transposed { format!("{name} transposed") } else { String::from(name) };
    let (name_a, name_b) = (side("A", args.ta), side("B", args.tb));
    let (cols, rows) = (a.cols, b.rows);
    Err(Failure::new(format!(
        "{name_a} is {a} and {name_b} is {b}: the columns of A ({cols}) must be as many as the rows of B ({rows}){hint}"
    )))
}

fn factor<T: Element>(option: &str, value: f64) -> Result<T::Acc> {
    let refuse = || Failure::Usage(format!("{option} {value} is no {} value: give a whole number", T::Acc::TYPE));
    T::Acc::from_f64(value).ok_or_else(refuse)
}

fn load_c0<T>(path: &Path, shape: Shape, cast: Option<Type>) -> Result<Array<T::Out>>
where
    T: Element<Out: Number>,
{
    let c0 = load(path, cast.map(|_| T::Out::TYPE))?;
    let c0 = T::Out::open(c0).map_err(|other| {
        let (found, wanted) = (other.dtype(), T::Out::TYPE);
        Failure::new(format!("C0 is {found}, C is {wanted}: give C0 the type of C, or say --cast {}", T::TYPE))
    })?;
    let found = c0.matrix()?.shape();
    if found != shape {
        return Err(Failure::new(format!("C0 is {found}, C is {shape}: give C0 the shape of C")));
    }
    Ok(c0)
}

/// Tells and writes what was computed; writes nothing that is wrong.
fn conclude<T: Number + Scalar>(args: &MulArgs, product: &Product, c: &Matrix<T>) -> Result<()> {
    let refusal = product.refusal();
    let mut out = stdout().lock();
    if args.json {
        // Before the file: where nobody can be told of the product, the old file stays.
        json(&mut out, product)?;
        out.flush()?;
    }
    if let (Some(path), None) = (&args.output, &refusal) {
        let shape = [c.shape().rows, c.shape().cols];
        tegula_files::write(&Place::parse(path), &shape, c.as_slice(), &Writing::default())?;
    }
    if !args.json && args.output.is_none() && refusal.is_none() {
        preview::print(&mut out, c)?;
    }
    match refusal {
        Some(refusal) => Err(Failure::Failed(refusal)),
        None => {
            // Nobody may be listening there.
            let _ = writeln!(stderr(), "{product}");
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Command};
    use crate::engine::{Done, Verified};
    use clap::Parser;

    #[test]
    fn a_product_that_fails_verification_is_not_written() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("c.npy");
        let line = ["tegula", "mul", "a.npy", "b.npy", "--verify", "-o"].map(Into::into);
        let Command::Mul(args) = Cli::parse_from(line.into_iter().chain([path.clone().into_os_string()])).command
        else {
            panic!("mul is mul");
        };
        let shape = Shape::new(1, 1);
        let conclude_with = |r| {
            let done = Done { device: "cpu".into(), kernel: "loop".into(), seconds: 1.0 };
            let verified = Some(Verified { r, bound: 5.0, worst: Some([0, 0]) });
            let product = Product::new(shape, shape, Type::F32, Type::F32, done, verified);
            conclude(&args, &product, &Matrix::<f32>::zeros(shape).unwrap())
        };
        assert!(matches!(conclude_with(5.5), Err(Failure::Failed(_))));
        assert!(!path.exists());
        assert!(conclude_with(5.0).is_ok());
        assert!(path.exists());
    }
}
