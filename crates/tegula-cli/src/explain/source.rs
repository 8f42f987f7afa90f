//! Where a trace comes from: a kernel on the user's matrices, or on small integers; or a file.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use tegula::element::{Element, Scalar, with_operand_type};
use tegula::interpret::Memory;
use tegula::{Matrix, View};
use tegula_explain::Error;
use tegula_explain::profile::profile;
use tegula_explain::trace::{Trace, record};
use tegula_files::{Array, Number, Place};
use tegula_interp::{self as interp, Config};
use tegula_kernels::{GemmKernel, GemmVariant};

use crate::args::ExplainArgs;
use crate::failure::{Failure, Result};
use crate::kernel::Problem;
use crate::launch::Passes;
use crate::progress::{Meter, Unit};
use crate::report::check::Finding;
use crate::report::explain::Explained;
use crate::{engine, mul};

/// Numbers of single threads that a trace may hold, where memory allows.
const MOST: u64 = 1 << 26;

/// Multiply-adds that are run for a trace: some minutes.
const MOST_WORK: u64 = 1 << 28;

/// What to do about a trace that is too long.
const SHORTER: &str = "trace some of it, as with --blocks 0,0 (and --warps 0, --steps 0:4), or a smaller problem; --json counts without a trace";

/// Reads a trace that `--trace` wrote.
pub fn read(path: &Path) -> Result<Trace> {
    let name = Place::File { path: path.to_owned(), name: None };
    let refuse = |why: String| Failure::new(format!("{name}: {why}"));
    let file = File::open(path).map_err(|why| match why.kind() {
        std::io::ErrorKind::NotFound => refuse("there is no such file".into()),
        _ => refuse(format!("cannot be read: {why}")),
    })?;
    Trace::read(BufReader::new(file)).map_err(|why| refuse(format!("{why}; give a trace, or two matrices A and B")))
}

/// A kernel with all it needs.
pub struct Launch {
    problem: Problem,
    passes: Passes,
    memory: Memory,
}

impl Launch {
    /// Reads what the arguments name, or makes it up, and packs it where the kernel takes it packed.
    pub fn new(args: &ExplainArgs, meter: &Meter) -> Result<Launch> {
        let launch = match args.files.as_slice() {
            [a, b] => from_files(args, [a, b], meter)?,
            _ => counted(args)?,
        };
        for (kernel, args) in launch.passes.packing(&launch.memory) {
            interp::run(kernel, &args, &Config::default())?;
        }
        Ok(launch)
    }

    fn of<T: Element>(args: &ExplainArgs, problem: Problem, [a, b]: [View<'_, T>; 2]) -> Result<Launch> {
        affordable(&problem, args)?;
        let passes = Passes::of(&problem)?;
        let memory = passes.memory(a, b)?;
        Ok(Launch { problem, passes, memory })
    }

    /// What threads do, and what it costs.
    pub fn profile(&self, args: &ExplainArgs, meter: &Meter) -> Result<Explained> {
        let phase = meter.phase("counting", Unit::MultiplyAdds, 0);
        let config = Config { blocks: args.sample().blocks, ..Config::default() };
        let profile = profile(self.passes.main(), &self.passes.main_arguments(&self.memory), &config).map_err(told)?;
        drop(phase);
        let findings = profile.outcome.findings.iter().map(Finding::from).collect();
        Ok(Explained::new(&self.problem, self.passes.main().block(), profile, findings))
    }

    /// What happens, moment by moment.
    pub fn trace(&self, args: &ExplainArgs, meter: &Meter) -> Result<Trace> {
        let phase = meter.phase("tracing", Unit::MultiplyAdds, 0);
        let sample = args.sample();
        let most = usize::try_from(most()).unwrap_or(usize::MAX);
        let trace =
            record(self.passes.main(), &self.passes.main_arguments(&self.memory), &Config::default(), &sample, most)
                .map_err(told)?;
        drop(phase);
        let grid = trace.header.grid;
        let outside = sample.blocks.iter().flatten().find(|block| (0..3).any(|axis| block[axis] >= grid[axis]));
        match outside {
            Some([x, y, _]) => {
                let [wide, high, _] = grid;
                Err(Failure::new(format!("--blocks {x},{y} is not there: the grid has {wide}×{high} blocks")))
            }
            None => Ok(trace),
        }
    }
}

fn told(error: Error) -> Failure {
    match error {
        Error::TooLong { most } => too_long(most as u64),
        other => Failure::new(other.to_string()),
    }
}

fn too_long(most: u64) -> Failure {
    Failure::new(format!("the trace would hold more than {most} numbers of single threads: {SHORTER}"))
}

/// How many numbers of threads a trace may hold here.
fn most() -> u64 {
    MOST.min(engine::free_memory() / 32)
}

/// Refuses what would run for hours, or surely not fit, before anything runs.
fn affordable(problem: &Problem, args: &ExplainArgs) -> Result<()> {
    if args.json && args.trace.is_none() {
        return Ok(());
    }
    let sample = args.sample();
    let [rows, cols] = problem.recipe.kernel.tile().map(|side| side as usize);
    let of_block = [rows.min(problem.m), cols.min(problem.n), problem.k];
    let of_block = of_block.into_iter().fold(1, |work: u64, side| work.saturating_mul(side as u64));
    let all = problem.multiply_adds();
    let work = sample.blocks.map_or(all, |blocks| all.min(of_block.saturating_mul(blocks.len() as u64)));
    if work > MOST_WORK {
        return Err(Failure::new(format!("a trace of {work} multiply-adds would take hours: {SHORTER}")));
    }
    // A multiply-add has two factors and a sum.
    let whole = sample.warps.is_none() && sample.steps.is_none();
    // Multiply-adds of plain kernels are traced one by one.
    let is_traced = matches!(problem.recipe.kernel, GemmKernel::Plain(_));
    if whole && is_traced && work.saturating_mul(3) > most() {
        return Err(too_long(most()));
    }
    Ok(())
}

/// A product of 1, 2, 3 … row after row.
fn counted(args: &ExplainArgs) -> Result<Launch> {
    let problem = args.problem(None, None)?;
    with_operand_type!(
        problem.recipe.kernel.ty(),
        T => counted_of::<T>(args, problem),
        ty => Err(Failure::new(format!("there are no kernels for {ty}")))
    )
}

fn counted_of<T: Element>(args: &ExplainArgs, problem: Problem) -> Result<Launch> {
    affordable(&problem, args)?;
    let matrix = |rows: usize, cols: usize| {
        // From 1 to 100 and again from 1, so that an i8 holds them.
        let number = |row: usize, col: usize| (row.wrapping_mul(cols).wrapping_add(col) % 100 + 1) as f64;
        Matrix::from_fn(rows, cols, |row, col| T::from_bits(T::TYPE.round(number(row, col))))
    };
    let (a, b) = (matrix(problem.m, problem.k)?, matrix(problem.k, problem.n)?);
    Launch::of(args, problem, [a.view(), b.view()])
}

fn from_files(args: &ExplainArgs, [a, b]: [&Path; 2], meter: &Meter) -> Result<Launch> {
    let cast = args.options.dtype.map(Into::into);
    let (one, _) = mul::load(&Place::parse(a), cast, meter)?;
    let other = (a != b).then(|| mul::load(&Place::parse(b), cast, meter)).transpose()?;
    let (a, b) = (&one, other.as_ref().map_or(&one, |(other, _)| other));
    mul::with_operands!(a, b, |a, b| given(args, a, b))
}

fn given<T: Element + Number>(args: &ExplainArgs, a: &Array<T>, b: &Array<T>) -> Result<Launch> {
    let turned = |view: View<'_, T>, turn: bool| rows_in_order(if turn { view.t() } else { view });
    let (a, b) = (turned(a.matrix()?, args.ta)?, turned(b.matrix()?, args.tb)?);
    let (of_a, of_b) = (a.shape(), b.shape());
    mul::check_shapes([args.ta, args.tb], &[of_a.rows, of_a.cols], &[of_b.rows, of_b.cols])?;
    let problem = args.problem(Some(T::TYPE), Some([of_a.rows, of_b.cols, of_a.cols]))?;
    Launch::of(args, problem, [a.view(), b.view()])
}

/// A copy whose rows lie one after the other.
fn rows_in_order<T: Scalar>(view: View<'_, T>) -> tegula::Result<Matrix<T>> {
    Matrix::from_shape_fn(view.shape(), |batch, row, col| view.get(batch, row, col).unwrap_or(T::ZERO))
}
