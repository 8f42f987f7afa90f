//! `tegula`: multiply matrices that live in files; check and print the tiled kernels that do it.
//!
//! Results go to standard output, everything else to standard error. Exit codes: 0 done, 1 failed, 2 usage.

mod args;
mod check;
mod engine;
mod failure;
mod kernel;
mod mul;
mod report;

use std::io::{Write, stderr, stdout};
use std::process::ExitCode;

use clap::ValueEnum;

use args::{CheckArgs, Command, DevicesArgs, KernelsArgs};
use failure::{Failure, Result};
use report::devices::Devices;

fn main() -> ExitCode {
    match run() {
        Ok(()) | Err(Failure::ReaderLeft) => ExitCode::SUCCESS,
        Err(failure) => {
            let _ = writeln!(stderr(), "error: {failure}");
            failure.exit_code()
        }
    }
}

fn run() -> Result<()> {
    let Some(cli) = args::parse()? else { return Ok(()) };
    match &cli.command {
        Command::Mul(args) => mul::run(args),
        Command::Check(args) => check(args),
        Command::Kernels(args) => kernels(args),
        Command::Devices(args) => devices(args),
    }
}

fn check(args: &CheckArgs) -> Result<()> {
    let mut out = stdout().lock();
    let report = match args.problem().and_then(|problem| check::run(&problem)) {
        Err(tegula::Error::KernelOption(why)) if args.json => {
            // Whoever reads the object gets one, also of a kernel that cannot be built.
            report::json(&mut out, &report::check::CheckReport::refused(args, &why))?;
            return Err(Failure::new(why));
        }
        report => report?,
    };
    if args.json {
        report::json(&mut out, &report)?
    } else {
        report::check::print(&mut out, &report)?
    }
    if report.ok { Ok(()) } else { Err(Failure::new(format!("kernel {}: {}", report.kernel, report.verdict()))) }
}

fn kernels(args: &KernelsArgs) -> Result<()> {
    let mut out = stdout().lock();
    let Some(name) = args.name else {
        let mut names = kernel::Name::value_variants().iter();
        return Ok(names.try_for_each(|name| writeln!(out, "{:<6} {}", name.as_str(), name.description()))?);
    };
    let variant = args.options.apply(name)?;
    if args.ptx {
        return Ok(out.write_all(engine::ptx(&variant)?.as_bytes())?);
    }
    let kernel = variant.build()?;
    let ([x, y, _], threads, shared) = (kernel.block(), kernel.threads(), kernel.shared_bytes());
    writeln!(out, "{}: {}", name.as_str(), name.description())?;
    Ok(writeln!(out, "{variant}: blocks of {x}×{y} = {threads} threads, {shared} bytes of shared memory each")?)
}

fn devices(args: &DevicesArgs) -> Result<()> {
    let devices = Devices { devices: engine::devices() };
    let mut out = stdout().lock();
    if args.json {
        report::json(&mut out, &devices)?
    } else {
        report::devices::print(&mut out, &devices)?
    }
    Ok(())
}
