//! `tegula bench`: times products against a peer library in the same run, and saves each result.

mod resume;

use tegula::Device;
use tegula::element::{Element, with_operand_type};
use tegula_bench::{self as bench, BenchReport, Case, Measured, Peer, Settings, limits};
use tegula_files::ReportFile;
use tegula_kernels::plan::{Plan, Recipe};

use self::resume::EarlierRows;
use crate::args::{BenchArgs, PeerName, ProductCase};
use crate::doctor;
use crate::failure::{Failure, Result};
use crate::mul::scalar;
use crate::output::Table;
use crate::progress::{ProgressDisplay, Unit};
use crate::report::bench::{Excluded, Figures, Limits, Other, Report, Row, csv, line, title};
use crate::report::{gelu_form, plots};
use crate::shapes::Shape;

/// The command.
pub fn run(args: &BenchArgs, progress: &ProgressDisplay) -> Result<()> {
    args.check()?;
    let all = products(args)?;
    let files = Files::new(args)?;
    let device = args.device.open()?;
    if args.kernel.is_some() && device.name() == "cpu" {
        return Err(Failure::new("--kernel needs a GPU, and the device is cpu; choose --device cuda:0"));
    }
    if args.threads.is_some() && device.name() != "cpu" {
        let why = format!("--threads needs the CPU, and the device is {}", device.name());
        return Err(Failure::new(format!("{why}; choose --device cpu")));
    }
    let peer = match args.vs.as_slice() {
        [PeerName::None] => Peer::none(),
        [PeerName::Cublaslt] => Peer::cublaslt(&device)?,
        [PeerName::Default] => Peer::default_plan(&device)?,
        names => Peer::host(&names.iter().filter_map(PeerName::blas).collect::<Vec<_>>(), &device)?,
    };
    let mut report = Report {
        machine: doctor::machine(&device),
        threads: (device.name() == "cpu").then(tegula_core::threads::count),
        driver: doctor::driver_version(&device),
        version: env!("CARGO_PKG_VERSION"),
        peer: peer.name(),
        seed: args.seed,
        command: args.command(),
        limits: if files.any() { Some(device_limits(&device, args.time, progress)?) } else { None },
        rows: Vec::new(),
    };
    let earlier = match &args.json {
        Some(path) if args.resume => {
            let commands = all.iter().map(|product| args.row_command(&device.name(), product)).collect();
            EarlierRows::read(path, &report, &commands)?
        }
        _ => EarlierRows::default(),
    };
    let table = if files.take_standard_output() { Table::StandardError(progress) } else { Table::StandardOutput };
    table.line(&format!("{}\n{}", report.heading(), title()))?;
    // Kept rows come first, and the file is not replaced before it has them all.
    let is_kept = |&i: &usize| earlier.has(&args.row_command(&device.name(), &all[i]));
    let (kept, missing): (Vec<usize>, Vec<usize>) = (0..all.len()).partition(is_kept);
    let order = [kept.as_slice(), &missing].concat();
    for (done, &i) in order.iter().enumerate() {
        let product = &all[i];
        let measuring = progress.phase(&format!("{} of {}: {product}", done + 1, all.len()), Unit::Rows, 0);
        let row = product.row(args, &device, &peer, &earlier)?;
        drop(measuring);
        tracing::info!(target: "tegula::bench", command = row.command, "measured");
        table.line(&line(&row))?;
        // In the report, rows are in the order of the products.
        let before = order[..done].iter().filter(|&&other| other < i).count();
        report.rows.insert(before, row);
        if done + 1 >= kept.len() {
            files.keep(&report, done + 1 == all.len())?;
        }
    }
    report.failure().map_or(Ok(()), |why| Err(Failure::new(why)))
}

/// All products to time. Refuses scalars that a type cannot represent.
fn products(args: &BenchArgs) -> Result<Vec<ProductCase>> {
    for &ty in &args.products.dtype {
        for (option, value) in [("--alpha", args.alpha), ("--beta", args.beta)] {
            with_operand_type!(
                ty,
                T => scalar::<T>(option, value).map(drop),
                ty => Err(tegula::Error::no_kernels(ty).into())
            )?;
        }
    }
    Ok(args.products.of(&args.products.shapes()?))
}

impl ProductCase {
    /// Measures the product. An error is recorded in the row, and the run continues.
    fn row(&self, args: &BenchArgs, device: &Device, peer: &Peer, earlier: &EarlierRows) -> Result<Row> {
        with_operand_type!(
            self.ty,
            T => self.row_of::<T>(args, device, peer, earlier),
            ty => Err(tegula::Error::no_kernels(ty).into())
        )
    }

    fn row_of<T: Measured>(
        &self,
        args: &BenchArgs,
        device: &Device,
        peer: &Peer,
        earlier: &EarlierRows,
    ) -> Result<Row> {
        let Shape { m, n, k, batch } = self.shape;
        let (alpha, beta) = (scalar::<T>("--alpha", args.alpha)?, scalar::<T>("--beta", args.beta)?);
        let (transposed, accuracy, epilogue) = (self.layout.transposed(), self.accuracy, args.epilogue);
        let case = Case::<T> { m, n, k, batch, transposed, alpha, beta, accuracy, epilogue };
        let measure = || {
            let (seed, seconds, batch_invariant) = (args.seed, args.time, args.batch_invariant);
            let settings = Settings { seed, seconds, plan: self.plan(args)?, batch_invariant };
            bench::measure(device, &case, &settings, peer).map(|report| figures(&case, &report))
        };
        let command = args.row_command(&device.name(), self);
        let (figures, error) = match earlier.get(&command).map_or_else(measure, Ok) {
            Ok(figures) => (Some(figures), None),
            Err(error) => (None, Some(error.to_string())),
        };
        let dtype = self.dtype();
        let layout = self.layout.to_string();
        let intensity = case.flops() / case.traffic();
        let gelu_form = gelu_form(&epilogue);
        Ok(Row { dtype, layout, m, n, k, batch, epilogue, figures, intensity, error, command, gelu_form })
    }

    /// The plan of `--kernel`, if given.
    fn plan(&self, args: &BenchArgs) -> tegula::Result<Option<Plan>> {
        args.kernel.as_deref().map(|name| Recipe::named(name, self.ty).map(Plan::Gpu)).transpose()
    }
}

/// The figures of a measurement.
fn figures<T: Element>(case: &Case<T>, report: &BenchReport) -> Figures {
    let micro = |seconds: f64| 1e6 * seconds;
    let tflops = |side: &bench::Measurement| case.flops() / side.time.median / 1e12;
    let (ours, peer) = (&report.ours, report.peer.as_ref());
    let theirs = peer.map(|peer| &peer.measurement);
    let other = |(peer, call): &(String, f64)| Other { peer: peer.clone(), us: micro(*call) };
    let excluded = |peer: &bench::ExcludedPeer| Excluded { peer: peer.name.clone(), processors: peer.processors };
    let bound = case.bound();
    Figures {
        kernel: report.kernel.clone(),
        tflops: tflops(ours),
        us: micro(ours.time.median),
        p20_us: micro(ours.time.p20),
        p80_us: micro(ours.time.p80),
        gbs: case.traffic() / ours.time.median / 1e9,
        peer: peer.map(|peer| peer.name.clone()),
        peer_tflops: theirs.map(tflops),
        peer_us: theirs.map(|side| micro(side.time.median)),
        peer_p20_us: theirs.map(|side| micro(side.time.p20)),
        peer_p80_us: theirs.map(|side| micro(side.time.p80)),
        candidates: peer.map_or(0, |peer| peer.candidates),
        ratio: report.speedup(),
        spread: report.noise_floor,
        r: ours.r,
        peer_r: theirs.map(|side| side.r),
        bound,
        // NaN is not within the bound.
        ok: ours.r <= bound,
        rows_checked: report.rows_checked,
        input_sets: report.input_sets,
        calls: report.sampling.calls_per_sample,
        rounds: report.rounds,
        segments: report.sampling.long_slots,
        discarded: report.discarded,
        threads: report.threads,
        others: peer.map_or_else(Vec::new, |peer| peer.other_candidates.iter().map(other).collect()),
        excluded: report.excluded.iter().map(excluded).collect(),
    }
}

fn device_limits(device: &Device, seconds: f64, progress: &ProgressDisplay) -> Result<Limits> {
    let _copying = progress.phase("measuring a copy", Unit::Rows, 0);
    let found = limits(device, seconds)?;
    let ceiling = |ceiling: &bench::Ceiling| (ceiling.ty.name(), ceiling.instruction, ceiling.flops / 1e12);
    Ok(Limits::new(found.copy / 1e9, found.ceilings.iter().map(ceiling)))
}

/// A format of a report.
type Format = fn(&Report) -> String;

/// The files of the results.
struct Files(Vec<(ReportFile, Format)>);

impl Files {
    /// Refuses files that cannot be written, before anything is measured.
    fn new(args: &BenchArgs) -> Result<Files> {
        let formats: [(_, Format); 3] = [(&args.json, Report::json), (&args.csv, csv), (&args.html, plots::page)];
        let requested = formats.into_iter().filter_map(|(path, format)| path.as_ref().map(|path| (path, format)));
        Ok(Files(requested.map(|(path, format)| Ok((ReportFile::new(path)?, format))).collect::<Result<_>>()?))
    }

    fn any(&self) -> bool {
        !self.0.is_empty()
    }

    fn take_standard_output(&self) -> bool {
        self.0.iter().any(|(file, _)| file.is_standard_output())
    }

    /// Writes the rows so far; a stream, which cannot be replaced, gets the last report only.
    fn keep(&self, report: &Report, last: bool) -> Result<()> {
        let mut written = self.0.iter().filter(|(file, _)| last || !file.is_stream());
        written.try_for_each(|(file, format)| Ok(file.replace(format(report))?))
    }
}
