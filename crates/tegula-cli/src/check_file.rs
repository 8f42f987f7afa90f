//! `tegula check my.cu`: runs a kernel of a CUDA C++ or PTX file in the interpreter, and reports
//! its errors, its results and the cost of each line.

mod arguments;
mod compare;
mod compile;
mod costs;
pub mod element;
mod evaluate;
mod expect;
mod fields;
pub mod formula;
pub mod report;
mod signature;
pub mod source;
pub mod symbol;
mod tensor;
pub mod value;

use std::path::Path;

use tegula_files::{WriteOptions, number};
use tegula_ptx::{Buffer, Config, Launch, LaunchError, Outcome};

use crate::args::{CheckArgs, FileOptions};
use crate::failure::{Failure, Result};
use crate::output::stdout;
use crate::progress::{ProgressDisplay, Unit};
use arguments::Arguments;
use costs::LineCosts;
use expect::Expected;
use report::{FileReport, SeedDependent, Sources};
use source::Source;

/// Runs `tegula check` on a file.
pub fn run(args: &CheckArgs, path: &Path, progress: &ProgressDisplay) -> Result<()> {
    let options = &args.file;
    let mut prepared = Prepared::new(options, path, progress)?;
    let before = options.compare.map(|_| prepared.buffers.clone());
    let outcome = prepared.interpret(args, progress)?;
    let mut report = prepared.report(args.interpreter.seeds, &outcome);
    if let (Some(ordinal), Some(before)) = (options.compare, before) {
        let interpreted = compare::Interpreted { before, after: &prepared.buffers, outcome: &outcome };
        let Prepared { source, launch, .. } = &prepared;
        compare::on_gpu(ordinal, source, launch, interpreted, &mut report, (args.json, progress))?;
    }
    prepared.results(&outcome, &mut report, progress)?;
    print(args, &prepared.source, &outcome, &mut report)?;
    if report.ok { Ok(()) } else { Err(Failure::new(format!("kernel {}: {}", report.kernel, report.verdict()))) }
}

/// A kernel of a file with its launch.
pub struct Prepared<'a> {
    pub source: Source,
    pub launch: Launch,
    pub buffers: Vec<Buffer>,
    /// The line of the launch in the host code that provides grid and block.
    launch_line: Option<u32>,
    /// The buffers to write after the run: index, and path of the file.
    outputs: Vec<(usize, &'a tegula_files::ArrayPath)>,
    expected: Vec<Expected>,
}

impl<'a> Prepared<'a> {
    /// Compiles the file, and binds the arguments of the options.
    ///
    /// # Errors
    /// Every reason why the kernel cannot run.
    pub fn new(options: &'a FileOptions, path: &Path, progress: &ProgressDisplay) -> Result<Prepared<'a>> {
        let source = load(options, path, progress)?;
        let (Configuration { grid, block, shared }, proposed) = configuration(options, &source)?;
        let launch_line = proposed.map(|launch| launch.line);
        let Arguments { mut buffers, arguments, variables, names } =
            arguments::bind(&source.signature, &options.arguments, &options.variables, progress)?;
        let bound = Arguments { buffers: buffers.clone(), names, ..Arguments::default() };
        let outputs = outputs(options, &bound)?;
        let expected = options.expect.iter().map(|formula| Expected::new(formula, options.tolerance, &bound, progress));
        let expected: Vec<Expected> = expected.collect::<Result<_>>()?;
        expected.iter().for_each(|expected| expected.mark_unwritten(&mut buffers));
        let launch = Launch { grid, block, shared, arguments, variables };
        Ok(Prepared { source, launch, buffers, launch_line, outputs, expected })
    }

    fn interpret(&mut self, args: &CheckArgs, progress: &ProgressDisplay) -> Result<Outcome> {
        let Prepared { source, launch, buffers, .. } = self;
        let _checking = progress.phase(&format!("checking {}", source.signature.kernel), Unit::Products, 0);
        let config = Config { steps: args.interpreter.steps, ..Config::default() };
        let outcome = source.kernel.check(launch, buffers, &config, args.interpreter.seeds.into());
        outcome.map_err(|error| self.failure(&error))
    }

    /// Converts the error of a launch that cannot run.
    pub fn failure(&self, error: &LaunchError) -> Failure {
        let Source { file, signature, .. } = &self.source;
        Failure::new(format!("{file}: {}: {}", signature.kernel, error.message))
    }

    /// The report of an outcome, without a comparison of results.
    pub fn report(&self, seeds: u32, outcome: &Outcome) -> FileReport {
        let report = file_report(seeds, &self.source, &self.launch, &self.buffers, outcome);
        FileReport { launch_line: self.launch_line, ..report }
    }

    /// Compares the results with the formulas of `--expect`, and writes the outputs.
    ///
    /// # Errors
    /// Files that cannot be written.
    pub fn results(&mut self, outcome: &Outcome, report: &mut FileReport, progress: &ProgressDisplay) -> Result<()> {
        let Prepared { buffers, expected, outputs, .. } = self;
        if outcome.completed {
            expected.iter().for_each(|expected| report.add(expected.compare(buffers)));
        }
        outputs.iter().try_for_each(|&(index, path)| write(&buffers[index], path, progress))
    }
}

impl Source {
    /// The source texts for the lines of the report.
    pub fn sources(&self) -> Sources {
        let mut sources = Sources::new(&self.file, self.main_file());
        sources.set("", &self.ptx);
        if self.compiler.is_some() {
            sources.set(self.main_file(), &self.text);
        }
        sources
    }
}

/// Reads the file, compiles CUDA C++, and finds the kernel.
fn load(options: &FileOptions, path: &Path, progress: &ProgressDisplay) -> Result<Source> {
    let text = source::read(path)?;
    let file = path.display().to_string();
    if source::is_ptx(path, &text) {
        let compiled = [
            ("--define", !options.defines.is_empty()),
            ("--include", !options.includes.is_empty()),
            ("--arch", options.arch.is_some()),
            ("--std", options.std.is_some()),
        ];
        if let Some((option, _)) = compiled.iter().find(|(_, given)| *given) {
            return Err(Failure::Usage(format!("{option} applies to CUDA C++, and {file} is PTX; leave it out")));
        }
        return Source::of_ptx(file, text, options.kernel.as_deref());
    }
    let _compiling = progress.phase(&format!("compiling {file}"), Unit::Products, 0);
    compile::compile(path, file, text, options)
}

/// Grid, block and dynamic shared memory.
struct Configuration {
    grid: [u32; 3],
    block: [u32; 3],
    shared: u32,
}

/// The configuration of the options, completed by the first matching launch in the host code.
/// Returns that launch if both grid and block are from it.
fn configuration<'a>(
    options: &FileOptions,
    source: &'a Source,
) -> Result<(Configuration, Option<&'a source::ProposedLaunch>)> {
    let (grid, block) = (options.grid.map(|extents| extents.0), options.block.map(|extents| extents.0));
    let fits = |launch: &&source::ProposedLaunch| {
        (grid.is_some() || launch.grid.is_some()) && (block.is_some() || launch.block.is_some())
    };
    let launch = source.launches.iter().find(fits).filter(|_| grid.is_none() || block.is_none());
    let proposed = launch.filter(|_| grid.is_none() && block.is_none());
    let shared = options.shared.or_else(|| launch?.shared).unwrap_or(0);
    let (grid, block) = (grid.or_else(|| launch?.grid), block.or_else(|| launch?.block));
    if let (Some(grid), Some(block)) = (grid, block) {
        return Ok((Configuration { grid, block, shared }, proposed));
    }
    let missing = [("--grid 4,4", grid), ("--block 16,16", block)].into_iter().filter(|(_, known)| known.is_none());
    let missing: Vec<_> = missing.map(|(option, _)| option).collect();
    let (kernel, file, missing) = (&source.signature.kernel, &source.file, missing.join(" and "));
    let why = match source.launches.first() {
        Some(launch) => format!("its launch at {file}:{} is not constant", launch.line),
        None => format!("{file} has no launch of it"),
    };
    Err(Failure::new(format!("{kernel}: {why}; add {missing}, with your numbers")))
}

/// The buffers to write. The files are checked to be writable before the kernel runs.
fn outputs<'a>(options: &'a FileOptions, arguments: &Arguments) -> Result<Vec<(usize, &'a tegula_files::ArrayPath)>> {
    let each = |output: &'a crate::args::Output| {
        let index = arguments.buffer(&format!("-o {}={}", output.name, output.path), &output.name)?;
        let buffer = &arguments.buffers[index];
        tegula_files::check_writable(&output.path, element::to_file(buffer.ty), buffer.shape.len())?;
        Ok((index, &output.path))
    };
    options.outputs.iter().map(each).collect()
}

fn file_report(seeds: u32, source: &Source, launch: &Launch, buffers: &[Buffer], outcome: &Outcome) -> FileReport {
    let variables = source.kernel.variables().map(|(name, ..)| name);
    let globals: Vec<&str> = buffers.iter().map(|buffer| buffer.name.as_str()).chain(variables).collect();
    let mut report = FileReport {
        file: source.file.clone(),
        kernel: source.signature.kernel.clone(),
        grid: launch.grid,
        block: launch.block,
        shared: launch.shared,
        seeds,
        ok: true,
        findings: Vec::new(),
        counters: outcome.counters.into(),
        thread_instructions: outcome.thread_instructions,
        completed: outcome.completed,
        compiler: source.compiler.clone(),
        approximate: outcome.approximate.clone(),
        seed_dependent: outcome.seed_dependent.clone().map(|(name, seed)| SeedDependent { name, seed }),
        output: outcome.output.clone(),
        launch_line: None,
        lines: report::lines(outcome),
        improvements: Vec::new(),
        compared: None,
    };
    report.add(outcome.diagnostics.iter().map(|diagnostic| report::finding(diagnostic, &globals)).collect());
    report
}

fn print(args: &CheckArgs, source: &Source, outcome: &Outcome, report: &mut FileReport) -> Result<()> {
    let main = source.main_file();
    let costs = LineCosts::new(outcome, source.module.ast(), main);
    report.improvements = costs.improvements();
    let mut out = stdout()?.lock();
    if args.json {
        return Ok(crate::report::json(&mut out, report)?);
    }
    let mut sources = source.sources();
    Ok(report::print(&mut out, report, &costs, &mut sources, args.metrics)?)
}

/// Writes a buffer to a file, in row-major order.
fn write(buffer: &Buffer, path: &tegula_files::ArrayPath, progress: &ProgressDisplay) -> Result<()> {
    fn of<T: number::Number>(
        buffer: &Buffer,
        path: &tegula_files::ArrayPath,
        progress: &ProgressDisplay,
    ) -> Result<()> {
        let elements: Vec<T> = buffer.bytes.chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned).collect();
        let shape: Vec<usize> = buffer.shape.iter().map(|&extent| extent as usize).collect();
        let writing = progress.phase(&format!("writing {path}"), Unit::Bytes, 0);
        let report = |done, total| writing.set_of(done, total);
        Ok(tegula_files::write(path, &shape, &elements, &WriteOptions { progress: &report })?)
    }
    use tegula_files::Dtype;
    let write = match element::to_file(buffer.ty) {
        Dtype::F64 => of::<f64>,
        Dtype::F32 => of::<f32>,
        Dtype::F16 => of::<number::f16>,
        Dtype::BF16 => of::<number::bf16>,
        Dtype::I64 => of::<i64>,
        Dtype::I32 => of::<i32>,
        Dtype::I16 => of::<i16>,
        Dtype::I8 => of::<i8>,
        Dtype::U64 => of::<u64>,
        Dtype::U32 => of::<u32>,
        Dtype::U16 => of::<u16>,
        _ => of::<u8>,
    };
    write(buffer, path, progress)
}
