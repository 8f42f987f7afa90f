//! `tegula check`: runs a kernel in the interpreter on random matrices and verifies the product.

pub mod assembled;
pub mod exercise_report;

use tegula::element::{Element, Scalar, with_operand_type};
use tegula::{Accuracy, Error, Layout, Matrix, Result, Shape, View};
use tegula_bench::oracle;
use tegula_interp::{self as interp, Buffer};
use tegula_ir as ir;
use tegula_kernels::GemmVariant;

use crate::kernel::Problem;
use crate::launch::CheckedLaunches;
use crate::progress::{ProgressDisplay, Unit};
use crate::report::check::{CheckReport, Counters, Finding};

/// Runs a kernel with every check, once for each seed, with its packing and reduction kernels.
///
/// A kernel refused by validation has a report too.
pub fn run(problem: &Problem, progress: &ProgressDisplay) -> Result<CheckReport> {
    let name = problem.recipe.name();
    let (findings, counters) = match CheckedLaunches::of(problem) {
        Ok(launches) => interpret(&launches, problem, progress)?,
        Err(Error::InvalidKernel { faults, .. }) => refused(&faults),
        Err(error) => return Err(error),
    };
    Ok(CheckReport::new(name, [problem.m, problem.n, problem.k], problem.interpreter.seeds, findings, counters))
}

/// The findings of a kernel that never ran.
fn refused(faults: &[ir::Fault]) -> (Vec<Finding>, Counters) {
    (faults.iter().map(Finding::from).collect(), Counters::default())
}

fn interpret(
    launches: &CheckedLaunches,
    problem: &Problem,
    progress: &ProgressDisplay,
) -> Result<(Vec<Finding>, Counters)> {
    let ty = problem.recipe.kernel.ty();
    with_operand_type!(ty, T => over_seeds::<T>(launches, problem, progress), ty => Err(Error::no_kernels(ty)))
}

/// The findings of all seeds, errors first, and the counters, which are the same for all.
fn over_seeds<T: Element>(
    launches: &CheckedLaunches,
    problem: &Problem,
    progress: &ProgressDisplay,
) -> Result<(Vec<Finding>, Counters)> {
    let work = problem.multiply_adds();
    let phase = progress.phase(
        &format!("checking {}", launches.gemm().name()),
        Unit::MultiplyAdds,
        work.saturating_mul(problem.interpreter.seeds.into()),
    );
    let (mut findings, mut counters) = (Vec::new(), None);
    for seed in 0..u64::from(problem.interpreter.seeds) {
        let (found, counted) = once::<T>(launches, problem, seed)?;
        found.into_iter().for_each(|finding| gather(&mut findings, finding));
        counters.get_or_insert(counted);
        phase.set(work.saturating_mul(seed + 1));
    }
    findings.sort_by_key(|finding| finding.severity);
    Ok((findings, counters.unwrap_or_default()))
}

/// Adds a finding. One of the same kind at the same lines, from another seed or an unrolled copy,
/// is counted and kept once.
fn gather(findings: &mut Vec<Finding>, finding: Finding) {
    match findings.iter_mut().find(|known| known.kind == finding.kind && known.source == finding.source) {
        Some(known) => known.times += finding.times,
        None => findings.push(finding),
    }
}

fn once<T: Element>(launches: &CheckedLaunches, problem: &Problem, seed: u64) -> Result<(Vec<Finding>, Counters)> {
    let &Problem { recipe, m, n, k, .. } = problem;
    let mut random = Random(seed);
    let a = Matrix::from_fn(m, k, |_, _| random.number::<T>())?;
    let b = Matrix::from_fn(k, n, |_, _| random.number::<T>())?;
    let memory = launches.memory(a.view(), b.view())?;
    let config = problem.interpreter.config(seed);
    let (mut findings, mut counters) = (Vec::new(), interp::Counters::default());
    for (kernel, args) in launches.each(&memory) {
        let outcome = interp::run(kernel, &args, &config)?;
        let failed = outcome.error().is_some();
        findings.extend(outcome.findings.iter().map(Finding::from));
        counters += outcome.counters;
        // The output of a wrong kernel is no valid input for the next.
        if failed {
            break;
        }
    }
    let wrong = compare(a.view(), b.view(), &memory.c, recipe.kernel.accuracy())?;
    findings.extend(wrong);
    Ok((findings, counters.into()))
}

/// Elements of C named in a message.
const NAMED: usize = 4;

/// The elements of C that were never written, and those that are wrong.
fn compare<T: Element>(a: View<'_, T>, b: View<'_, T>, c: &Buffer, accuracy: Accuracy) -> Result<Vec<Finding>> {
    let (alpha, beta) = (<T::Acc as Scalar>::ONE, <T::Acc as Scalar>::ZERO);
    let (shape, result) = (c.layout().shape, c.to_vec::<T::Out>()?);
    let errors = oracle::errors(alpha, a, b, beta, None, View::strided(&result, Layout::row_major(shape)?)?)?;
    let bound = oracle::bound_at_accuracy::<T>(accuracy, a.shape().cols);
    let (mut unwritten, mut wrong) = (Vec::new(), Vec::new());
    let Shape { rows, cols, .. } = shape;
    for (position, r) in errors.as_slice().iter().map(|r| r / oracle::roundoff_ratio(accuracy)).enumerate() {
        let (row, col) = (position / cols, position % cols);
        let right = r <= bound;
        if !c.written(0, row, col) {
            unwritten.push((row, col));
        } else if !right {
            wrong.push((row, col, r));
        }
    }
    let (mut findings, all) = (Vec::new(), rows * cols);
    if let Some(&(row, col)) = unwritten.first() {
        let named: Vec<_> = unwritten.iter().take(NAMED).map(|at| format!("{at:?}")).collect();
        let more = if unwritten.len() > NAMED { ", …" } else { "" };
        let message =
            format!("{} of {all} elements of c are never written: {}{more}", unwritten.len(), named.join(", "));
        findings.push(Finding::of_result("unwritten", [row, col], message));
    }
    if let Some(&(row, col, r)) = wrong.first() {
        let exact = oracle::reference(alpha, a, b, beta, None)?;
        let at = row * cols + col;
        let (expected, got) = (exact.as_slice()[at], result.as_slice()[at]);
        let error = if r.is_finite() { format!(", r = {r:.3e}, above the bound {bound}") } else { String::new() };
        let count = wrong.len();
        let message = format!(
            "{count} of {all} elements of c are wrong: the first, ({row}, {col}), is {got:?} and should be {expected:?}{error}"
        );
        findings.push(Finding::of_result("wrong-result", [row, col], message));
    }
    Ok(findings)
}

/// Random numbers, the same on every machine: SplitMix64 (Steele, Lea and Flood, Fast splittable
/// pseudorandom number generators, OOPSLA 2014).
struct Random(u64);

impl Random {
    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    /// A float from the standard normal distribution, or any integer.
    fn number<T: Scalar>(&mut self) -> T {
        T::from_bits(if T::TYPE.is_float() { T::TYPE.round(self.normal()) } else { self.bits() >> 32 })
    }

    /// A standard normal number, by Box and Muller.
    fn normal(&mut self) -> f64 {
        let mut uniform = || ((self.bits() >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
        let (x, y) = (uniform(), uniform());
        (-2.0 * x.ln()).sqrt() * (std::f64::consts::TAU * y).cos()
    }
}

#[cfg(test)]
mod tests {
    use tegula_ir::prelude::*;

    use super::*;
    use crate::report::check::Severity;

    /// A kernel whose barrier only some threads reach.
    fn divergent_barrier() -> Kernel {
        kernel("divergent", Block::d1(64), |k| {
            k.grid([k.constant(1), k.constant(1), k.constant(1)]);
            k.when(k.thread_x().lt(7), || k.barrier());
        })
    }

    #[test]
    fn refused_kernel_has_a_report_with_counters() {
        let Err(Error::InvalidKernel { kernel, faults }) = ir::check(divergent_barrier()) else {
            panic!("not refused")
        };
        let (findings, counters) = refused(&faults);
        let report = CheckReport::new(kernel, [1; 3], 1, findings, counters);
        let value = serde_json::to_value(&report).unwrap();
        assert_eq!((&value["kernel"], &value["ok"]), (&"divergent".into(), &false.into()));
        let finding = &value["findings"][0];
        assert_eq!((&finding["kind"], &finding["severity"]), (&"divergent-barrier".into(), &"error".into()));
        assert!(finding["source"][0].as_str().unwrap().contains("check.rs:"), "{finding}");
        assert_eq!(value["counters"]["fma"], 0);
    }

    #[test]
    fn unwritten_and_wrong_elements_are_distinguished() {
        let ones = Matrix::from_vec(2, 2, vec![1i32; 4]).unwrap();
        let unwritten = Buffer::output(Type::I32, Layout::row_major(Shape::new(2, 2)).unwrap()).unwrap();
        let found = compare(ones.view(), ones.view(), &unwritten, Accuracy::Full).unwrap();
        assert_eq!(found.len(), 1);
        assert!(found[0].message.starts_with("4 of 4 elements of c are never written: (0, 0), "), "{found:?}");
        assert_eq!((found[0].severity, found[0].kind.as_str()), (Severity::Error, "unwritten"));
    }

    #[test]
    fn random_numbers_match_splitmix64() {
        let mut random = Random(0);
        // The first two outputs of the published generator for seed 0.
        assert_eq!([random.bits(), random.bits()], [0xe220_a839_7b1d_cdaf, 0x6e78_9e6a_a1b9_65f4]);
        let normals: Vec<f64> = (0..10_000).map(|_| random.number()).collect();
        let mean = |f: fn(f64) -> f64| normals.iter().map(|&x| f(x)).sum::<f64>() / normals.len() as f64;
        assert!(mean(|x| x).abs() < 0.05 && (mean(|x| x * x) - 1.0).abs() < 0.05);
        assert!((0..100).map(|_| random.number::<i32>()).any(|x| x < -1_000_000_000));
    }
}
