//! `tegula tune --calibrate`: measures the properties of a GPU that its cost models need.

#[cfg(feature = "cuda")]
use std::time::Instant;

use tegula::Device;
use tegula_kernels::plan::Calibrated;

use crate::args::TuneArgs;
use crate::failure::Result;
use crate::progress::ProgressDisplay;

/// Seconds after which no further product is timed.
#[cfg(feature = "cuda")]
const SECONDS: f64 = 60.0;

/// Measures and prints the properties of a GPU.
#[cfg(feature = "cuda")]
pub fn measure(args: &TuneArgs, device: &Device, progress: &ProgressDisplay) -> Result<Calibrated> {
    use tegula::tune::{GpuCalibration, calibrate};
    use tegula_files::ReportFile;
    use tegula_kernels::plan::GpuDescription;

    use crate::doctor;
    use crate::failure::Failure;
    use crate::output::Table;
    use crate::progress::Unit;
    use crate::report::calibration::{Properties, Report, Row};

    let json = args.json.as_deref().map(ReportFile::new).transpose()?;
    let gpu = device.gpu().ok_or_else(|| Failure::new(format!("{}: not a GPU to calibrate", device.name())))?;
    let start = Instant::now();
    let measuring = progress.phase("calibrating", Unit::Rows, 0);
    let GpuCalibration { reported, found, times } = calibrate(gpu, SECONDS)?;
    drop(measuring);
    let properties = |gpu: &GpuDescription| {
        let &GpuDescription { memory_bandwidth, clock, power_limited_gflops, .. } = gpu;
        Properties { memory_bandwidth, clock, power_limited_gflops }
    };
    let [reported_error, measured_error] = found.errors;
    let rows = times.iter().map(|time| {
        let (problem, us) = (&time.problem, time.microseconds);
        let (dtype, kernel) = (problem.ty.name(), time.recipe.name());
        Row { dtype, m: problem.m, n: problem.n, k: problem.k, kernel, us }
    });
    let report = Report {
        machine: doctor::machine(device),
        driver: doctor::driver_version(device),
        version: env!("CARGO_PKG_VERSION"),
        seconds: start.elapsed().as_secs_f64(),
        reported: properties(&reported),
        measured: properties(&found.description),
        reported_error,
        measured_error,
        rows: rows.collect(),
    };
    let taken = json.as_ref().is_some_and(ReportFile::is_standard_output);
    let table = if taken { Table::StandardError(progress) } else { Table::StandardOutput };
    table.line(&report.text())?;
    if let Some(file) = &json {
        file.replace(report.json())?;
    }
    Ok(Calibrated::of(&found.description))
}

/// This build has no GPUs, and so no device to calibrate was opened.
#[cfg(not(feature = "cuda"))]
pub fn measure(_: &TuneArgs, device: &Device, _: &ProgressDisplay) -> Result<Calibrated> {
    Err(crate::failure::Failure::new(format!("{}: not a GPU to calibrate", device.name())))
}
