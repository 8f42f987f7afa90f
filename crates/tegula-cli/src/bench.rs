//! `tegula bench`: time products, against a peer in the same run, and keep the results as they come.

use tegula::Device;
use tegula::element::{Element, with_operand_type};
use tegula_bench::{self as bench, Case, Measured, Peer, Settings, limits};
use tegula_files::ReportFile;
use tegula_kernels::plan::{Plan, Recipe};

use crate::args::{Asked, BenchArgs, PeerName};
use crate::doctor;
use crate::failure::{Failure, Result};
use crate::mul::factor;
use crate::output::Table;
use crate::progress::{Meter, Unit};
use crate::report::bench::{Figures, Limits, Other, Report, Row, csv, line, title};
use crate::report::plots;
use crate::shapes::Shape;

/// The command.
pub fn run(args: &BenchArgs, meter: &Meter) -> Result<()> {
    args.check()?;
    let all = asked(args)?;
    let files = Files::new(args)?;
    let device = args.device.open()?;
    if args.kernel.is_some() && device.name() == "cpu" {
        return Err(Failure::new("--kernel names a kernel for a GPU, and the device is cpu; choose --device cuda:0"));
    }
    if args.threads.is_some() && device.name() != "cpu" {
        let why = format!("--threads counts threads of the processor, and the device is {}", device.name());
        return Err(Failure::new(format!("{why}; choose --device cpu")));
    }
    let peer = match args.vs.as_slice() {
        [PeerName::None] => Peer::none(),
        [PeerName::Cublaslt] => Peer::cublaslt(&device)?,
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
        limits: if files.any() { Some(device_limits(&device, meter)?) } else { None },
        rows: Vec::new(),
    };
    let table = if files.take_standard_output() { Table::Beside(meter) } else { Table::Standard };
    table.line(&format!("{}\n{}", report.heading(), title()))?;
    for (i, asked) in all.iter().enumerate() {
        let measuring = meter.phase(&format!("{} of {}: {asked}", i + 1, all.len()), Unit::Rows, 0);
        let row = asked.row(args, &device, &peer)?;
        drop(measuring);
        tracing::info!(command = row.command, "measured");
        table.line(&line(&row))?;
        report.rows.push(row);
        files.keep(&report, i + 1 == all.len())?;
    }
    report.failure().map_or(Ok(()), |why| Err(Failure::new(why)))
}

/// Every product. Refuses factors that a type does not have.
fn asked(args: &BenchArgs) -> Result<Vec<Asked>> {
    for &ty in &args.products.dtype {
        for (option, value) in [("--alpha", args.alpha), ("--beta", args.beta)] {
            with_operand_type!(
                ty,
                T => factor::<T>(option, value).map(drop),
                ty => Err(tegula::Error::no_kernels(ty).into())
            )?;
        }
    }
    Ok(args.products.of(&args.products.shapes()?))
}

impl Asked {
    /// Measures. What goes wrong with one row is said in it, and the others go on.
    fn row(&self, args: &BenchArgs, device: &Device, peer: &Peer) -> Result<Row> {
        with_operand_type!(
            self.ty,
            T => self.row_of::<T>(args, device, peer),
            ty => Err(tegula::Error::no_kernels(ty).into())
        )
    }

    fn row_of<T: Element>(&self, args: &BenchArgs, device: &Device, peer: &Peer) -> Result<Row> {
        let Shape { m, n, k, batch } = self.shape;
        let (alpha, beta) = (factor::<T>("--alpha", args.alpha)?, factor::<T>("--beta", args.beta)?);
        let (transposed, accuracy, epilogue) = (self.layout.transposed(), self.accuracy, args.epilogue);
        let case = Case::<T> { m, n, k, batch, transposed, alpha, beta, accuracy, epilogue };
        let measured = self.plan(args).and_then(|plan| {
            bench::measure(device, &case, &Settings { seed: args.seed, seconds: args.time, plan }, peer)
        });
        let command = args.row_command(&device.name(), self);
        let (figures, error) = match measured {
            Ok(measured) => (Some(figures(&case, &measured)), None),
            Err(error) => (None, Some(error.to_string())),
        };
        let dtype = self.dtype();
        let layout = self.layout.to_string();
        let intensity = case.flops() / case.traffic();
        Ok(Row { dtype, layout, m, n, k, batch, epilogue, figures, intensity, error, command })
    }

    /// The kernel that was asked for, if one was.
    fn plan(&self, args: &BenchArgs) -> tegula::Result<Option<Plan>> {
        args.kernel.as_deref().map(|name| Recipe::named(name, self.ty).map(Plan::Gpu)).transpose()
    }
}

/// What a row says, of what was measured.
fn figures<T: Element>(case: &Case<T>, measured: &Measured) -> Figures {
    let micro = |seconds: f64| 1e6 * seconds;
    let tflops = |side: &bench::Side| case.flops() / side.call.median / 1e12;
    let (ours, rival) = (&measured.ours, measured.rival.as_ref());
    let theirs = rival.map(|rival| &rival.side);
    let other = |(peer, call): &(String, f64)| Other { peer: peer.clone(), us: micro(*call) };
    let bound = case.bound();
    Figures {
        kernel: measured.kernel.clone(),
        tflops: tflops(ours),
        us: micro(ours.call.median),
        p20_us: micro(ours.call.p20),
        p80_us: micro(ours.call.p80),
        gbs: case.traffic() / ours.call.median / 1e9,
        peer: rival.map(|rival| rival.name.clone()),
        peer_tflops: theirs.map(tflops),
        peer_us: theirs.map(|side| micro(side.call.median)),
        peer_p20_us: theirs.map(|side| micro(side.call.p20)),
        peer_p80_us: theirs.map(|side| micro(side.call.p80)),
        candidates: rival.map_or(0, |rival| rival.candidates),
        ratio: measured.ratio(),
        spread: measured.spread,
        r: ours.r,
        peer_r: theirs.map(|side| side.r),
        bound,
        // So that NaN is not within it.
        ok: ours.r <= bound,
        rows_checked: measured.rows_checked,
        input_sets: measured.input_sets,
        calls: measured.pace.calls,
        rounds: measured.rounds,
        segments: measured.pace.segments,
        discarded: measured.discarded,
        threads: measured.threads,
        others: rival.map_or_else(Vec::new, |rival| rival.others.iter().map(other).collect()),
    }
}

fn device_limits(device: &Device, meter: &Meter) -> Result<Limits> {
    let _copying = meter.phase("measuring a copy", Unit::Rows, 0);
    let found = limits(device)?;
    let ceiling = |ceiling: &bench::Ceiling| (ceiling.ty.name(), ceiling.instruction, ceiling.flops / 1e12);
    Ok(Limits::new(found.copy / 1e9, found.ceilings.iter().map(ceiling)))
}

/// How a report is made a text.
type Form = fn(&Report) -> String;

/// Where results are kept.
struct Files(Vec<(ReportFile, Form)>);

impl Files {
    /// Refuses what cannot be written, before anything is measured.
    fn new(args: &BenchArgs) -> Result<Files> {
        let forms: [(_, Form); 3] = [(&args.json, Report::json), (&args.csv, csv), (&args.html, plots::page)];
        let asked = forms.into_iter().filter_map(|(path, form)| path.as_ref().map(|path| (path, form)));
        Ok(Files(asked.map(|(path, form)| Ok((ReportFile::new(path)?, form))).collect::<Result<_>>()?))
    }

    fn any(&self) -> bool {
        !self.0.is_empty()
    }

    fn take_standard_output(&self) -> bool {
        self.0.iter().any(|(file, _)| file.is_standard_output())
    }

    /// Writes what there is so far; into a pipe, which keeps everything, only the last of it.
    fn keep(&self, report: &Report, last: bool) -> Result<()> {
        let mut written = self.0.iter().filter(|(file, _)| last || !file.is_special());
        written.try_for_each(|(file, form)| Ok(file.replace(form(report))?))
    }
}
