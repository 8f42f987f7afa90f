//! Sources of a trace: a kernel on the user's matrices or on small integers, or a trace file.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use tegula::element::{Element, Scalar, with_operand_type};
use tegula::interpret::LaunchMemory;
use tegula::{Matrix, View};
use tegula_explain::Error;
use tegula_explain::profile::profile;
use tegula_explain::trace::{Trace, TraceFilter, record};
use tegula_files::{Array, ArrayPath, Number};
use tegula_interp::{self as interp, Config};
use tegula_kernels::{GemmKernel, GemmVariant};

use super::text::at;
use crate::args::ExplainArgs;
use crate::failure::{Failure, Result};
use crate::kernel::Problem;
use crate::launch::CheckedLaunches;
use crate::progress::{ProgressDisplay, Unit};
use crate::report::check::Finding;
use crate::report::explain::Explained;
use crate::{engine, mul};

/// Maximum per-thread values of a trace, where memory allows.
const MAX_VALUES: u64 = 1 << 26;

/// Maximum multiply-adds to run for a trace, a few minutes' worth.
const MAX_MULTIPLY_ADDS: u64 = 1 << 28;

/// Steps along k that are traced where those of a whole block are too many.
const FIRST_STEPS: [u32; 2] = [0, 4];

/// Advice for a trace that is too long.
const ADVICE: &str = "trace a part, such as --blocks 0,0 (with --warps 0 or --steps 0:4), or a smaller problem; --json counts without a trace";

/// Reads a trace that `--trace` wrote.
pub fn read(path: &Path) -> Result<Trace> {
    let name = ArrayPath::File { path: path.to_owned(), name: None };
    let refuse = |why: String| Failure::new(format!("{name}: {why}"));
    let file = File::open(path).map_err(|why| match why.kind() {
        std::io::ErrorKind::NotFound => refuse("file not found".into()),
        _ => refuse(format!("cannot be read: {why}")),
    })?;
    Trace::read(BufReader::new(file)).map_err(|why| refuse(format!("{why}; give a trace, or two matrices A and B")))
}

/// A kernel with its arguments, ready to be traced.
pub struct Launch {
    problem: Problem,
    launches: CheckedLaunches,
    memory: LaunchMemory,
    /// The part of the launch that the trace records.
    sample: TraceFilter,
}

impl Launch {
    /// Reads or generates A and B, and runs the packing kernels.
    pub fn new(args: &ExplainArgs, progress: &ProgressDisplay) -> Result<Launch> {
        let launch = match args.files.as_slice() {
            [a, b] => from_files(args, [a, b], progress)?,
            _ => counted(args)?,
        };
        for (kernel, args) in launch.launches.packing(&launch.memory) {
            interp::run(kernel, &args, &Config::default())?;
        }
        Ok(launch)
    }

    fn of<T: Element>(args: &ExplainArgs, problem: Problem, [a, b]: [View<'_, T>; 2]) -> Result<Launch> {
        let sample = affordable(&problem, args)?;
        let launches = CheckedLaunches::of(&problem)?;
        let memory = launches.memory(a, b)?;
        Ok(Launch { problem, launches, memory, sample })
    }

    /// Counts per thread, and the kernel's cost.
    pub fn profile(&self, args: &ExplainArgs, progress: &ProgressDisplay) -> Result<Explained> {
        let phase = progress.phase("counting", Unit::MultiplyAdds, 0);
        let config = Config { blocks: args.sample().blocks, ..Config::default() };
        let profile =
            profile(self.launches.gemm(), &self.launches.gemm_arguments(&self.memory), &config).map_err(failure)?;
        drop(phase);
        let findings = profile.outcome.findings.iter().map(Finding::from).collect();
        Ok(Explained::new(&self.problem, self.launches.gemm().block(), profile, findings))
    }

    /// Records the trace.
    pub fn trace(&self, args: &ExplainArgs, progress: &ProgressDisplay) -> Result<Trace> {
        let phase = progress.phase("tracing", Unit::MultiplyAdds, 0);
        let most = usize::try_from(most()).unwrap_or(usize::MAX);
        let (kernel, arguments) = (self.launches.gemm(), self.launches.gemm_arguments(&self.memory));
        let record = |sample: &TraceFilter| record(kernel, &arguments, &Config::default(), sample, most);
        let mut sample = self.sample.clone();
        let trace = match record(&sample) {
            Err(Error::TraceTooLarge { .. }) if sample == TraceFilter::default() => {
                sample = one_block(args);
                record(&sample)
            }
            trace => trace,
        };
        let trace = trace.map_err(failure)?;
        drop(phase);
        let grid = trace.header.grid;
        if let (true, Some([block])) = (sample != args.sample(), sample.blocks.as_deref()) {
            let ([wide, high, _], block) = (grid, at(*block));
            let steps = sample.steps.map_or_else(String::new, |[from, to]| format!(", steps {from}:{to},"));
            progress.line(format!(
                "the trace of all {wide}×{high} blocks is too large: tracing block {block}{steps} only; choose others with --blocks X,Y"
            ));
        }
        let outside = sample.blocks.iter().flatten().find(|block| (0..3).any(|axis| block[axis] >= grid[axis]));
        match outside {
            Some([x, y, _]) => {
                let [wide, high, _] = grid;
                Err(Failure::new(format!("--blocks {x},{y}: the grid has {wide}×{high} blocks")))
            }
            None => Ok(trace),
        }
    }
}

fn failure(error: Error) -> Failure {
    match error {
        Error::TraceTooLarge { limit } => too_long(limit as u64),
        other => Failure::new(other.to_string()),
    }
}

fn too_long(most: u64) -> Failure {
    Failure::new(format!("the trace would hold more than {most} per-thread values: {ADVICE}"))
}

/// Maximum per-thread values of a trace on this machine.
fn most() -> u64 {
    MAX_VALUES.min(engine::free_memory() / 32)
}

/// One block: that of `--block`, else the first.
fn one_block(args: &ExplainArgs) -> TraceFilter {
    TraceFilter { blocks: Some(vec![args.block.map_or([0; 3], |at| at.0)]), ..TraceFilter::default() }
}

/// The part of the launch that the trace records.
///
/// It is that of the options. Without options, where all blocks are too many, it is one block.
/// Fails before anything runs where even one block takes hours or does not fit in memory.
fn affordable(problem: &Problem, args: &ExplainArgs) -> Result<TraceFilter> {
    let asked = args.sample();
    if args.json && args.trace.is_none() {
        return Ok(asked);
    }
    let Err(why) = fits(problem, &asked) else { return Ok(asked) };
    let block = one_block(args);
    let first_steps = TraceFilter { steps: Some(FIRST_STEPS), ..block.clone() };
    let smaller = [block, first_steps].into_iter().filter(|_| asked == TraceFilter::default());
    smaller.into_iter().find(|sample| fits(problem, sample).is_ok()).ok_or(why)
}

/// Fails where a trace takes hours or does not fit in memory.
fn fits(problem: &Problem, sample: &TraceFilter) -> Result<()> {
    let [rows, cols] = problem.recipe.kernel.tile().map(|side| side as usize);
    let of_block = [rows.min(problem.m), cols.min(problem.n), problem.k];
    let of_block = of_block.into_iter().fold(1, |work: u64, side| work.saturating_mul(side as u64));
    let all = problem.multiply_adds();
    let work = sample.blocks.as_ref().map_or(all, |blocks| all.min(of_block.saturating_mul(blocks.len() as u64)));
    if work > MAX_MULTIPLY_ADDS {
        return Err(Failure::new(format!("a trace of {work} multiply-adds would take hours: {ADVICE}")));
    }
    // A multiply-add has two operands and a result.
    let whole = sample.warps.is_none() && sample.steps.is_none();
    // Multiply-adds of plain kernels are traced one by one.
    let is_traced = matches!(problem.recipe.kernel, GemmKernel::Plain(_));
    if whole && is_traced && work.saturating_mul(3) > most() {
        return Err(too_long(most()));
    }
    Ok(())
}

/// A product of generated matrices: 1, 2, 3 … row after row.
fn counted(args: &ExplainArgs) -> Result<Launch> {
    let problem = args.problem(None, None)?;
    with_operand_type!(
        problem.recipe.kernel.ty(),
        T => counted_of::<T>(args, problem),
        ty => Err(Failure::new(format!("no kernels for {ty}")))
    )
}

fn counted_of<T: Element>(args: &ExplainArgs, problem: Problem) -> Result<Launch> {
    affordable(&problem, args)?;
    let matrix = |rows: usize, cols: usize| {
        // 1 to 100 repeated, which fits in an i8.
        let number = |row: usize, col: usize| (row.wrapping_mul(cols).wrapping_add(col) % 100 + 1) as f64;
        Matrix::from_fn(rows, cols, |row, col| T::from_bits(T::TYPE.round(number(row, col))))
    };
    let (a, b) = (matrix(problem.m, problem.k)?, matrix(problem.k, problem.n)?);
    Launch::of(args, problem, [a.view(), b.view()])
}

fn from_files(args: &ExplainArgs, [a, b]: [&Path; 2], progress: &ProgressDisplay) -> Result<Launch> {
    let cast = args.options.dtype.map(Into::into);
    let (one, _) = mul::load(&ArrayPath::parse(a), cast, progress)?;
    let other = (a != b).then(|| mul::load(&ArrayPath::parse(b), cast, progress)).transpose()?;
    let (a, b) = (&one, other.as_ref().map_or(&one, |(other, _)| other));
    mul::with_operands!(a, b, |a, b| given(args, a, b))
}

fn given<T: Element + Number>(args: &ExplainArgs, a: &Array<T>, b: &Array<T>) -> Result<Launch> {
    let turned = |view: View<'_, T>, turn: bool| row_major_copy(if turn { view.t() } else { view });
    let (a, b) = (turned(a.matrix()?, args.ta)?, turned(b.matrix()?, args.tb)?);
    let (of_a, of_b) = (a.shape(), b.shape());
    mul::check_shapes([args.ta, args.tb], &[of_a.rows, of_a.cols], &[of_b.rows, of_b.cols])?;
    let problem = args.problem(Some(T::TYPE), Some([of_a.rows, of_b.cols, of_a.cols]))?;
    Launch::of(args, problem, [a.view(), b.view()])
}

/// A row-major copy.
fn row_major_copy<T: Scalar>(view: View<'_, T>) -> tegula::Result<Matrix<T>> {
    Matrix::from_shape_fn(view.shape(), |batch, row, col| view.get(batch, row, col).unwrap_or(T::ZERO))
}
