//! `tegula tune`: times the kernels of each product and caches the fastest.

use tegula::Device;
#[cfg(feature = "cuda")]
use tegula::Layout;
use tegula::cache::{TuningCache, TuningCacheError};
use tegula::element::{Element, with_operand_type};
use tegula::tune::search::{CandidateTime, TuneReport};
use tegula_files::ReportFile;
use tegula_kernels::plan::TunedEntry;

use crate::args::{DeviceChoice, ProductCase, TuneArgs};
use crate::calibrate;
use crate::doctor;
use crate::failure::{Failure, Result};
use crate::output::Table;
use crate::progress::{ProgressDisplay, Unit};
use crate::report::tune::{Figures, Glance, Report, Row, line, title};
use crate::shapes::Shape;

/// The command.
pub fn run(args: &TuneArgs, progress: &ProgressDisplay) -> Result<()> {
    args.check()?;
    if args.calibrate {
        return calibrate(args, progress);
    }
    let all = args.products.of(&args.shapes()?);
    let json = args.json.as_deref().map(ReportFile::new).transpose()?;
    let device = open(args.device)?;
    let cache = if args.dry_run { None } else { Some(open_cache(&device, progress)?) };
    let mut report = Report {
        machine: doctor::machine(&device),
        driver: doctor::driver_version(&device),
        version: env!("CARGO_PKG_VERSION"),
        seed: args.seed,
        command: args.command(),
        rows: Vec::new(),
    };
    let taken = json.as_ref().is_some_and(ReportFile::is_standard_output);
    let table = if taken { Table::StandardError(progress) } else { Table::StandardOutput };
    table.line(&format!("{}\n{}", report.heading(), title()))?;
    for (i, product) in all.iter().enumerate() {
        let measuring = progress.phase(&format!("{} of {}: {product}", i + 1, all.len()), Unit::Rows, 0);
        let tuning = product.tune(args, &device);
        drop(measuring);
        if let (Ok(TuneReport { problem, fastest, .. }), Some(cache)) = (&tuning, &cache) {
            let CandidateTime { recipe, seconds } = fastest;
            cache
                .keep(*problem, TunedEntry { recipe: recipe.name(), microseconds: 1e6 * seconds })
                .map_err(not_written)?;
        }
        let row = row(product, &tuning);
        table.line(&line(&row))?;
        report.rows.push(row);
        if let Some(file) = json.iter().find(|file| i + 1 == all.len() || !file.is_stream()) {
            file.replace(report.json())?;
        }
    }
    table.line(&report.verdict())?;
    if let Some(cache) = &cache {
        progress.line(format_args!("the fastest kernels are saved in {}", cache.path().display()));
    }
    report.failure().map_or(Ok(()), |why| Err(Failure::new(why)))
}

/// Measures and keeps the properties of the GPU.
fn calibrate(args: &TuneArgs, progress: &ProgressDisplay) -> Result<()> {
    let device = open(args.device)?;
    let cache = if args.dry_run { None } else { Some(open_cache(&device, progress)?) };
    let calibrated = calibrate::measure(args, &device, progress)?;
    if let Some(cache) = &cache {
        cache.keep_calibrated(calibrated).map_err(not_written)?;
        progress.line(format_args!("these properties are saved in {}", cache.path().display()));
    }
    Ok(())
}

/// Opens the GPU. Other devices have no kernels to tune.
fn open(device: DeviceChoice) -> Result<Device> {
    let ordinal = if let DeviceChoice::Cuda(ordinal) = device { ordinal } else { 0 };
    Device::cuda(ordinal).map_err(|error| match error {
        tegula::Error::NoDriver { why } => Failure::new(format!("no GPU to tune: no NVIDIA driver: {why}")),
        other => other.into(),
    })
}

fn not_written(error: TuningCacheError) -> Failure {
    Failure::new(format!("{error}, or choose --dry-run"))
}

/// Opens the tuning cache, and reports an unusable file.
#[cfg(feature = "cuda")]
fn open_cache(device: &Device, progress: &ProgressDisplay) -> Result<TuningCache> {
    let gpu = device.gpu().ok_or_else(|| Failure::new(format!("{}: not a GPU to tune", device.name())))?;
    let (cache, warning) = TuningCache::open(tegula::cache::key(gpu.info())).map_err(not_written)?;
    warning.iter().for_each(|warning| progress.line(crate::failure::one_line(warning)));
    Ok(cache)
}

#[cfg(not(feature = "cuda"))]
fn open_cache(device: &Device, _: &ProgressDisplay) -> Result<TuningCache> {
    Err(Failure::new(format!("{}: not a GPU to tune", device.name())))
}

impl ProductCase {
    fn tune(&self, args: &TuneArgs, device: &Device) -> tegula::Result<TuneReport> {
        with_operand_type!(self.ty, T => self.tune_of::<T>(args, device), ty => Err(tegula::Error::no_kernels(ty)))
    }

    #[cfg(feature = "cuda")]
    fn tune_of<T: Element>(&self, args: &TuneArgs, device: &Device) -> tegula::Result<TuneReport> {
        use tegula::tune::scratch::ScratchLayout;

        let Shape { m, n, k, batch } = self.shape;
        let operand = |rows, cols, transposed| {
            let stored = if transposed { [cols, rows] } else { [rows, cols] };
            let layout = Layout::row_major(tegula::Shape { batches: batch, rows: stored[0], cols: stored[1] })?;
            ScratchLayout::aligned(if transposed { layout.transposed() } else { layout })
        };
        let [a, b] = self.layout.transposed();
        let operands = [operand(m, k, a)?, operand(k, n, b)?, operand(m, n, false)?];
        let gpu = device.gpu().ok_or_else(|| not_tuned::<T>(device))?;
        tegula::tune::tune::<T>(gpu, operands, self.accuracy, &args.effort())
    }

    #[cfg(not(feature = "cuda"))]
    fn tune_of<T: Element>(&self, _: &TuneArgs, device: &Device) -> tegula::Result<TuneReport> {
        Err(not_tuned::<T>(device))
    }
}

fn not_tuned<T: Element>(device: &Device) -> tegula::Error {
    tegula::Error::Unsupported { what: "tuning of kernels".into(), ty: T::TYPE, device: device.name() }
}

/// The row of a product. An error is recorded in it, and the run continues.
fn row(product: &ProductCase, tuning: &tegula::Result<TuneReport>) -> Row {
    let Shape { m, n, k, batch } = product.shape;
    let flops = [m, n, k, batch].into_iter().fold(2.0, |flops, extent| flops * extent as f64);
    let figures = |tuning: &TuneReport| {
        let &TuneReport { legal: candidates, ref timed, model_choice: chosen, fastest, ref finalists, .. } = tuning;
        let glance = |timing: &CandidateTime| Glance { kernel: timing.recipe.name(), us: 1e6 * timing.seconds };
        let tflops = |timing: CandidateTime| flops / timing.seconds / 1e12;
        Figures {
            candidates,
            timed: timed.len(),
            chosen: chosen.recipe.name(),
            chosen_tflops: tflops(chosen),
            chosen_us: 1e6 * chosen.seconds,
            fastest: fastest.recipe.name(),
            fastest_tflops: tflops(fastest),
            fastest_us: 1e6 * fastest.seconds,
            ratio: tuning.model_efficiency(),
            glances: timed.iter().map(glance).collect(),
            finalists: finalists.iter().map(glance).collect(),
        }
    };
    let (figures, error) = (tuning.as_ref().ok().map(figures), tuning.as_ref().err().map(ToString::to_string));
    Row { dtype: product.dtype(), layout: product.layout.to_string(), m, n, k, batch, figures, error }
}
