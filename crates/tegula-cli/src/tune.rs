//! `tegula tune`: find the fastest recipe for each product, and keep it for products to come.

use tegula::Device;
use tegula::element::{Element, Scalar, with_operand_type};
use tegula::epilogue::Epilogue;
use tegula_bench::{self as bench, Case, Effort, Timing, Tuning};
use tegula_files::ReportFile;
use tegula_kernels::plan::Winner;

use crate::args::{Asked, DeviceChoice, TuneArgs};
use crate::doctor;
use crate::failure::{Failure, Result};
use crate::output::Table;
use crate::progress::{Meter, Unit};
use crate::report::tune::{Figures, Glance, Report, Row, line, title};
use crate::shapes::Shape;
use crate::winners::Winners;

/// The command.
pub fn run(args: &TuneArgs, meter: &Meter) -> Result<()> {
    args.check()?;
    let all = args.products.of(&args.shapes()?);
    let json = args.json.as_deref().map(ReportFile::new).transpose()?;
    let device = open(args.device)?;
    let mut winners = if args.dry_run { None } else { Some(keeper(&device, meter)?) };
    let mut report = Report {
        machine: doctor::machine(&device),
        driver: doctor::driver_version(&device),
        version: env!("CARGO_PKG_VERSION"),
        seed: args.seed,
        command: args.command(),
        rows: Vec::new(),
    };
    let taken = json.as_ref().is_some_and(ReportFile::is_standard_output);
    let table = if taken { Table::Beside(meter) } else { Table::Standard };
    table.line(&format!("{}\n{}", report.heading(), title()))?;
    for (i, asked) in all.iter().enumerate() {
        let measuring = meter.phase(&format!("{} of {}: {asked}", i + 1, all.len()), Unit::Rows, 0);
        let tuning = asked.tune(args, &device);
        drop(measuring);
        if let (Ok(Tuning { problem, winner, .. }), Some(winners)) = (&tuning, &mut winners) {
            let Timing { recipe, seconds } = winner;
            winners.keep(*problem, Winner { recipe: recipe.name(), microseconds: 1e6 * seconds })?;
        }
        let row = row(asked, &tuning);
        table.line(&line(&row))?;
        report.rows.push(row);
        if let Some(file) = json.iter().find(|file| i + 1 == all.len() || !file.is_special()) {
            file.replace(report.json())?;
        }
    }
    table.line(&report.verdict())?;
    if let Some(winners) = &winners {
        meter.line(format_args!("winners are kept in {}", winners.path().display()));
    }
    report.failure().map_or(Ok(()), |why| Err(Failure::new(why)))
}

/// The GPU. Another device has nothing to choose from.
fn open(device: DeviceChoice) -> Result<Device> {
    let ordinal = if let DeviceChoice::Cuda(ordinal) = device { ordinal } else { 0 };
    Device::cuda(ordinal).map_err(|error| match error {
        tegula::Error::NoDriver { why } => Failure::new(format!("no GPU to tune for: no NVIDIA driver: {why}")),
        other => other.into(),
    })
}

/// Where winners are kept. What is there and of no use is told of.
#[cfg(feature = "cuda")]
fn keeper(device: &Device, meter: &Meter) -> Result<Winners> {
    let gpu = device.gpu().ok_or_else(|| Failure::new(format!("{} is no GPU to tune for", device.name())))?;
    let (winners, told) = Winners::open(tegula::cache::key(gpu.info()))?;
    told.iter().for_each(|told| meter.line(crate::failure::one_line(told)));
    Ok(winners)
}

#[cfg(not(feature = "cuda"))]
fn keeper(device: &Device, _: &Meter) -> Result<Winners> {
    Err(Failure::new(format!("{} is no GPU to tune for", device.name())))
}

impl Asked {
    fn tune(&self, args: &TuneArgs, device: &Device) -> tegula::Result<Tuning> {
        with_operand_type!(self.ty, T => self.tune_of::<T>(args, device), ty => Err(tegula::Error::no_kernels(ty)))
    }

    fn tune_of<T: Element>(&self, args: &TuneArgs, device: &Device) -> tegula::Result<Tuning> {
        let Shape { m, n, k, batch } = self.shape;
        let (transposed, alpha, beta) = (self.layout.transposed(), T::Acc::ONE, T::Acc::ZERO);
        let (accuracy, epilogue) = (self.accuracy, Epilogue::NONE);
        let case = Case::<T> { m, n, k, batch, transposed, alpha, beta, accuracy, epilogue };
        bench::tune(device, &case, &Effort { seed: args.seed, seconds: args.time, all: args.all })
    }
}

/// What came of it. What goes wrong with one row is said in it, and the others go on.
fn row(asked: &Asked, tuning: &tegula::Result<Tuning>) -> Row {
    let Shape { m, n, k, batch } = asked.shape;
    let flops = [m, n, k, batch].into_iter().fold(2.0, |flops, extent| flops * extent as f64);
    let figures = |tuning: &Tuning| {
        let &Tuning { legal: candidates, ref timed, chosen, winner, .. } = tuning;
        let glance = |timing: &Timing| Glance { kernel: timing.recipe.name(), us: 1e6 * timing.seconds };
        let tflops = |timing: Timing| flops / timing.seconds / 1e12;
        Figures {
            candidates,
            timed: timed.len(),
            chosen: chosen.recipe.name(),
            chosen_tflops: tflops(chosen),
            chosen_us: 1e6 * chosen.seconds,
            winner: winner.recipe.name(),
            winner_tflops: tflops(winner),
            winner_us: 1e6 * winner.seconds,
            ratio: tuning.ratio(),
            glances: timed.iter().map(glance).collect(),
        }
    };
    let (figures, error) = (tuning.as_ref().ok().map(figures), tuning.as_ref().err().map(ToString::to_string));
    Row { dtype: asked.dtype(), layout: asked.layout.to_string(), m, n, k, batch, figures, error }
}
