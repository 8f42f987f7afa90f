//! `tegula`: multiply matrices that live in files; check and print the tiled kernels that do it.
//!
//! Results go to standard output, everything else to standard error. Exit codes: 0 done, 1 failed, 2 usage.

mod args;
mod bench;
mod check;
mod doctor;
mod effort;
mod engine;
mod explain;
mod failure;
mod kernel;
mod launch;
mod log;
mod manual;
mod mul;
mod number;
mod output;
mod progress;
mod report;
mod shapes;
mod subject;
mod tune;
mod winners;

use std::io::Write;
use std::process::ExitCode;

use args::{CheckArgs, Command, DevicesArgs, DoctorArgs, KernelsArgs};
use check::assembled::Assembler;
use failure::{Failure, Result};
use output::stdout;
use progress::Meter;
use report::devices::Devices;
use report::exercises::Exercises;
use subject::Subject;
use tegula_exercises::EXERCISES;

fn main() -> ExitCode {
    match run() {
        Ok(()) | Err(Failure::ReaderLeft) => ExitCode::SUCCESS,
        Err(failure) => {
            failure.tell();
            failure.exit_code()
        }
    }
}

fn run() -> Result<()> {
    let Some(cli) = args::parse()? else { return Ok(()) };
    let told = log::start(cli.talk.verbose)?;
    // Lines of the log would go through the bar.
    let meter = || Meter::new(cli.talk.quiet, !told);
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
        Command::Mul(args) => mul::run(args, &meter()),
        Command::Check(args) => check(args, &meter()),
        Command::Explain(args) => explain::run(args, &meter()),
        Command::Bench(args) => bench::run(args, &meter()),
        Command::Tune(args) => tune::run(args, &meter()),
        Command::Kernels(args) => kernels(args),
        Command::Devices(args) => devices(args),
        Command::Doctor(args) => doctor(args),
        Command::Completions(args) => Ok(stdout()?.write_all(&manual::completions(args.shell))?),
        Command::Man(args) => Ok(stdout()?.write_all(&manual::page(args.command.as_deref())?)?),
    }
}

fn check(args: &CheckArgs, meter: &Meter) -> Result<()> {
    args.check()?;
    let assembler = args.assembled.as_deref().map(Assembler::find).transpose();
    let assembler = assembler.map_err(|why| Failure::new(why.to_string()))?;
    let mut out = stdout()?.lock();
    let report = match &args.kernel {
        Subject::Kernel(kernel) => args.problem(kernel).and_then(|problem| check::run(&problem, meter)),
        Subject::Exercise(exercise) => check::exercise::run(exercise, args.effort),
        Subject::Exercises => return exercises(args),
    };
    let mut report = match report {
        Err(tegula::Error::KernelOption(why)) if args.json => {
            // Whoever reads the object gets one, also of a kernel that cannot be built.
            report::json(&mut out, &report::check::CheckReport::refused(args, &why))?;
            return Err(Failure::new(why));
        }
        report => report?,
    };
    if let (Subject::Kernel(kernel), Some(assembler), true) = (&args.kernel, assembler, report.ok) {
        let counted = assembler.count(&args.problem(kernel)?);
        report.assembled = Some(counted.map_err(|why| Failure::new(why.to_string()))?);
    }
    if args.json {
        report::json(&mut out, &report)?
    } else {
        report::check::print(&mut out, &report)?
    }
    if report.ok { Ok(()) } else { Err(Failure::new(format!("kernel {}: {}", report.kernel, report.verdict()))) }
}

fn exercises(args: &CheckArgs) -> Result<()> {
    let reports = EXERCISES.iter().map(|exercise| check::exercise::run(exercise, args.effort));
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
    if name.is_family() {
        let ty = args.options.dtype.unwrap_or(name.entry.ty);
        writeln!(out, "{}: {}\nplans choose from, for {ty}:", name.text(), name.entry.description)?;
        let all = kernel::chosen_from(&name.entry, ty);
        return Ok(all.iter().try_for_each(|name| writeln!(out, "  {name}"))?);
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
    if doctor.ready { Ok(()) } else { Err(Failure::new("products run on no device here")) }
}
