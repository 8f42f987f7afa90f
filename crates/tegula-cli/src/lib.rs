//! `tegula`: multiplies matrices in files, and checks and prints tiled GPU kernels.
//!
//! Results go to standard output, all else to standard error. Exit codes: 0 success, 1 failure, 2
//! usage.
//!
//! The program is a library with one function, and a binary that calls it: a library is compiled
//! beside its last dependencies, a binary after them.

mod args;
mod bench;
mod calibrate;
mod check;
mod check_file;
mod check_target;
mod doctor;
mod engine;
mod explain;
mod failure;
mod interpreter_options;
mod kernel;
mod launch;
mod log;
mod manual;
mod mul;
mod output;
mod progress;
mod report;
mod shapes;
mod tune;
mod whole_number;

use std::io::Write;
use std::process::ExitCode;

use args::{CheckArgs, Command, DevicesArgs, DoctorArgs, KernelsArgs};
use check::assembled::Assembler;
use check_target::CheckTarget;
use failure::{Failure, Result};
use output::stdout;
use progress::ProgressDisplay;
use report::devices::Devices;
use report::exercises::Exercises;
use tegula_exercises::EXERCISES;

/// Runs the program with the arguments of the process.
pub fn main() -> ExitCode {
    match run() {
        Ok(()) | Err(Failure::OutputClosed) => ExitCode::SUCCESS,
        Err(failure) => {
            failure.print();
            failure.exit_code()
        }
    }
}

fn run() -> Result<()> {
    let Some(cli) = args::parse()? else { return Ok(()) };
    let logs = log::start(cli.output.verbose)?;
    // Log lines would break the progress bar.
    let progress = || ProgressDisplay::new(cli.output.quiet, !logs);
    if matches!(
        cli.command,
        Command::Mul(_)
            | Command::Check(_)
            | Command::Explain(_)
            | Command::Bench(_)
            | Command::Tune(_)
            | Command::Doctor(_)
    ) {
        engine::threads(if let Command::Bench(args) = &cli.command { args.threads } else { None })?;
    }
    match &cli.command {
        Command::Mul(args) => mul::run(args, &progress()),
        Command::Check(args) => check(args, &progress()),
        Command::Explain(args) => explain::run(args, &progress()),
        Command::ExplainFile(args) => explain::file::run(args, &progress()),
        Command::Bench(args) => bench::run(args, &progress()),
        Command::Tune(args) => tune::run(args, &progress()),
        Command::Kernels(args) => kernels(args),
        Command::Devices(args) => devices(args),
        Command::Doctor(args) => doctor(args),
        Command::Completions(args) => Ok(stdout()?.write_all(&manual::completions(args.shell))?),
        Command::Man(args) => Ok(stdout()?.write_all(&manual::page(args.command.as_deref())?)?),
    }
}

fn check(args: &CheckArgs, progress: &ProgressDisplay) -> Result<()> {
    args.check()?;
    let assembler = args.assembled.as_deref().map(Assembler::find).transpose();
    let assembler = assembler.map_err(|why| Failure::new(why.to_string()))?;
    let mut out = stdout()?.lock();
    let report = match &args.kernel {
        CheckTarget::Kernel(kernel) => args.problem(kernel).and_then(|problem| check::run(&problem, progress)),
        CheckTarget::Exercise(exercise) => check::exercise_report::run(exercise, args.interpreter),
        CheckTarget::Exercises => return exercises(args),
        CheckTarget::File(path) => return check_file::run(args, path, progress),
    };
    let mut report = match report {
        Err(tegula::Error::KernelOption(why)) if args.json => {
            // A kernel that cannot be built has an object too.
            report::json(&mut out, &report::check::CheckReport::refused(args, &why))?;
            return Err(Failure::new(why));
        }
        report => report?,
    };
    if let (CheckTarget::Kernel(kernel), Some(assembler), true) = (&args.kernel, assembler, report.ok) {
        let counts = assembler.count(&args.problem(kernel)?);
        report.assembled = Some(counts.map_err(|why| Failure::new(why.to_string()))?);
    }
    if let (CheckTarget::Kernel(kernel), true) = (&args.kernel, report.ok) {
        report.caveat = report::check::Caveat::of(args, kernel, &args.problem(kernel)?);
    }
    if args.json {
        report::json(&mut out, &report)?
    } else {
        report::check::print(&mut out, &report, args.metrics)?
    }
    if report.ok { Ok(()) } else { Err(Failure::new(format!("kernel {}: {}", report.kernel, report.verdict()))) }
}

fn exercises(args: &CheckArgs) -> Result<()> {
    let reports = EXERCISES.iter().map(|exercise| check::exercise_report::run(exercise, args.interpreter));
    let exercises = Exercises::new(reports.collect::<tegula::Result<_>>()?);
    let mut out = stdout()?.lock();
    if args.json {
        report::json(&mut out, &exercises)?
    } else {
        report::exercises::print(&mut out, &exercises)?
    }
    if exercises.ok { Ok(()) } else { Err(Failure::new(exercises.verdict())) }
}

fn kernels(args: &KernelsArgs) -> Result<()> {
    args.check()?;
    let mut out = stdout()?.lock();
    let Some(name) = &args.name else {
        return Ok(kernel::names().try_for_each(|name| writeln!(out, "{:<8} {}", name.name, name.description))?);
    };
    if name.is_family() && !(args.ptx || args.cuda || args.sass.is_some()) {
        let ty = args.options.dtype.unwrap_or(name.entry.ty);
        writeln!(out, "{}: {}\nconfigurations that plans choose from, for {ty}:", name.text(), name.entry.description)?;
        let all = kernel::chosen_from(&name.entry, ty);
        let default = kernel::default_configuration(&name.entry, ty)?;
        return Ok(all.iter().try_for_each(|kernel| {
            let mark = if *kernel == default { "  (default)" } else { "" };
            writeln!(out, "  {kernel}{mark}")
        })?);
    }
    let variant = args.options.variant(name)?;
    if args.ptx {
        return Ok(out.write_all(engine::ptx(&variant)?.as_bytes())?);
    }
    if args.cuda {
        return Ok(out.write_all(engine::cuda(&variant)?.as_bytes())?);
    }
    if let Some(gpu) = &args.sass {
        return Ok(out.write_all(engine::sass(&variant, gpu).map_err(|why| Failure::new(why.to_string()))?.as_bytes())?);
    }
    let kernel = variant.build()?;
    let ([x, y, _], threads, shared) = (kernel.block(), kernel.threads(), kernel.shared_bytes());
    writeln!(out, "{}: {}", name.text(), name.entry.description)?;
    Ok(writeln!(out, "{variant}: blocks of {x}×{y} = {threads} threads, {shared} bytes of shared memory each")?)
}

fn devices(args: &DevicesArgs) -> Result<()> {
    let devices = Devices { devices: engine::devices() };
    let mut out = stdout()?.lock();
    if args.json {
        report::json(&mut out, &devices)?
    } else {
        report::devices::print(&mut out, &devices)?
    }
    Ok(())
}

fn doctor(args: &DoctorArgs) -> Result<()> {
    let doctor = doctor::examine();
    let mut out = stdout()?.lock();
    if args.json {
        report::json(&mut out, &doctor)?
    } else {
        report::doctor::print(&mut out, &doctor)?
    }
    if doctor.ready { Ok(()) } else { Err(Failure::new("no device can run products")) }
}
