//! The report of `tegula bench`, as a table, JSON and CSV.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tegula::epilogue::Epilogue;

use super::text;

/// The results of a run: the object of `--json`.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The description of the device.
    pub machine: String,
    /// Threads of the CPU; `None` on a GPU. In the object each row has them.
    #[serde(skip)]
    pub threads: Option<usize>,
    /// The GPU's driver; `None` on the CPU.
    pub driver: Option<String>,
    /// Tegula's version.
    pub version: &'static str,
    /// The peer library.
    pub peer: Option<String>,
    pub seed: u64,
    /// The command that repeats the run.
    pub command: String,
    /// `None` without an output file.
    #[serde(flatten)]
    pub limits: Option<Limits>,
    pub rows: Vec<Row>,
}

/// The roofline of the device.
#[derive(Debug, Serialize)]
pub struct Limits {
    /// GB per second read and written by a copy, measured in this run.
    pub copy_gbs: f64,
    /// Sustained rates of instructions without memory accesses, for known devices.
    pub ceilings: Vec<Ceiling>,
}

#[derive(Debug, Serialize)]
pub struct Ceiling {
    pub dtype: &'static str,
    pub instruction: &'static str,
    pub tflops: f64,
}

impl Limits {
    /// The limits, from ceilings by type, instruction and TFLOP/s.
    pub fn new(copy_gbs: f64, ceilings: impl Iterator<Item = (&'static str, &'static str, f64)>) -> Limits {
        let ceilings = ceilings.map(|(dtype, instruction, tflops)| Ceiling { dtype, instruction, tflops });
        Limits { copy_gbs, ceilings: ceilings.collect() }
    }
}

/// A product and its measurement.
#[derive(Debug, Serialize)]
pub struct Row {
    pub dtype: &'static str,
    /// `nn`, `nt`, `tn` or `tt`: how A and B are stored.
    pub layout: String,
    pub m: usize,
    pub n: usize,
    pub k: usize,
    pub batch: usize,
    /// The epilogue, such as `none` or `bias+gelu`.
    #[serde(serialize_with = "text")]
    pub epilogue: Epilogue,
    /// `None` where the measurement failed.
    #[serde(flatten, serialize_with = "or_nulls")]
    pub figures: Option<Figures>,
    /// Arithmetic intensity: operations per byte of compulsory traffic.
    pub intensity: f64,
    /// The error of a failed measurement.
    pub error: Option<String>,
    /// The command that measures this row.
    pub command: String,
    /// `tanh` where the epilogue applies GELU.
    pub gelu_form: Option<&'static str>,
}

/// Figures of a row. Times are microseconds per call; a value that is not finite is null.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Figures {
    pub kernel: String,
    pub tflops: f64,
    /// The median, and the 20th and 80th percentiles.
    pub us: f64,
    pub p20_us: f64,
    pub p80_us: f64,
    /// GB per second of compulsory traffic.
    pub gbs: f64,
    /// The fastest candidate of the peer; null, with its figures, where the peer has no such
    /// product.
    pub peer: Option<String>,
    pub peer_tflops: Option<f64>,
    pub peer_us: Option<f64>,
    pub peer_p20_us: Option<f64>,
    pub peer_p80_us: Option<f64>,
    /// Number of timed candidates.
    pub candidates: usize,
    /// The peer's median time divided by Tegula's.
    pub ratio: Option<f64>,
    /// The noise floor: Tegula against itself in the same run.
    pub spread: f64,
    /// The largest error; null where no number measures it, such as for an inexact integer.
    #[serde(deserialize_with = "or_nan")]
    pub r: f64,
    pub peer_r: Option<f64>,
    /// The limit of r.
    pub bound: f64,
    /// Whether Tegula's r is within the bound.
    pub ok: bool,
    pub rows_checked: usize,
    pub input_sets: usize,
    /// Calls per sample.
    pub calls: usize,
    pub rounds: usize,
    pub segments: bool,
    /// Samples discarded because the CPU was below its full clock rate.
    pub discarded: usize,
    /// Threads of the CPU; null on a GPU.
    pub threads: Option<usize>,
    /// The slower candidates of the CPU libraries.
    pub others: Vec<Other>,
    /// Candidates of the CPU libraries that were not timed, since they ran on too many threads.
    pub excluded: Vec<Excluded>,
}

/// A slower candidate and its approximate time in microseconds.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Other {
    pub peer: String,
    pub us: f64,
}

/// A candidate that ran on more threads than it was told to.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Excluded {
    pub peer: String,
    /// Processors that its calls keep busy.
    pub processors: f64,
}

impl Report {
    /// The heading of the table.
    pub fn heading(&self) -> String {
        let driver = self.driver.as_ref().map_or(String::new(), |driver| format!(", driver {driver}"));
        let peer = self.peer.as_ref().map_or(String::new(), |peer| format!(" against {peer}"));
        let threads = match self.threads {
            None => String::new(),
            Some(1) => ", 1 thread".into(),
            Some(threads) => format!(", {threads} threads"),
        };
        format!("{}{threads}{driver}; Tegula {}{peer}; seed {}", self.machine, self.version, self.seed)
    }

    /// The object of `--json` as text.
    pub fn json(&self) -> String {
        // All map keys are strings, and writing to memory cannot fail.
        serde_json::to_string_pretty(self).map(|text| text + "\n").unwrap_or_default()
    }

    /// The error of the run, if a row failed or is wrong.
    pub fn failure(&self) -> Option<String> {
        let failed = self.rows.iter().filter(|row| row.error.is_some()).count();
        let wrong = self.rows.iter().filter(|row| row.figures.as_ref().is_some_and(|figures| !figures.ok)).count();
        let all = self.rows.len();
        match (failed, wrong) {
            (0, 0) => None,
            (_, 0) => Some(format!("{failed} of {all} rows could not be measured")),
            (0, _) => Some(format!("{wrong} of {all} results are wrong")),
            _ => Some(format!("{failed} of {all} rows could not be measured, and {wrong} results are wrong")),
        }
    }
}

/// The header of the columns of [`line()`].
pub fn title() -> String {
    format!(
        "{:<4} {:<6} {:>6} {:>6} {:>6} {:>5} {:>9} {:>22} {:>9} {:>6} {:>6} {:>7} {:>7}  kernel",
        "type",
        "layout",
        "m",
        "n",
        "k",
        "batch",
        "TFLOP/s",
        "µs (p20 to p80)",
        "peer",
        "ratio",
        "spread",
        "r",
        "peer r"
    )
}

/// A row of the table.
pub fn line(row: &Row) -> String {
    let Row { dtype, layout, m, n, k, batch, .. } = row;
    let product = format!("{dtype:<4} {layout:<6} {m:>6} {n:>6} {k:>6} {batch:>5}");
    let Some(figures) = &row.figures else {
        return format!("{product} {}", row.error.as_deref().unwrap_or("not measured"));
    };
    let Figures { us, p20_us, p80_us, tflops, spread, kernel, .. } = figures;
    let times = format!("{} ({} to {})", short(*us), short(*p20_us), short(*p80_us));
    let or_none = |value: Option<f64>, show: fn(f64) -> String| value.map_or("-".to_owned(), show);
    let wrong = if figures.ok { "" } else { "  WRONG" };
    // On the CPU the row names the library and its interface.
    let against = figures.peer.as_ref().filter(|_| figures.threads.is_some());
    let against = against.map_or(String::new(), |peer| format!("  against {peer}"));
    let excluded = figures
        .excluded
        .iter()
        .map(|Excluded { peer, processors }| format!("  excluded: {peer} (keeps {processors:.1} processors busy)"));
    let excluded: String = excluded.collect();
    format!(
        "{product} {:>9} {times:>22} {:>9} {:>6} {spread:>6.3} {:>7} {:>7}  {kernel}{against}{excluded}{wrong}",
        short(*tflops),
        or_none(figures.peer_tflops, short),
        or_none(figures.ratio, |ratio| format!("{ratio:.3}")),
        error(figures.r),
        or_none(figures.peer_r, error),
    )
}

/// A value with three or four digits.
pub fn short(value: f64) -> String {
    match value.abs() {
        x if !x.is_finite() => "-".into(),
        x if x >= 1e7 => format!("{value:.2e}"),
        x if x >= 100.0 => format!("{value:.0}"),
        x if x >= 10.0 => format!("{value:.1}"),
        x if x >= 1.0 => format!("{value:.2}"),
        x if x >= 1e-3 || x == 0.0 => format!("{value:.4}"),
        _ => format!("{value:.1e}"),
    }
}

/// An error, `exact` where 0.
fn error(r: f64) -> String {
    if r == 0.0 {
        "exact".into()
    } else if r.is_finite() {
        format!("{r:.2}")
    } else {
        "wrong".into()
    }
}

/// The names of the figures.
const FIGURES: [&str; 27] = [
    "kernel",
    "tflops",
    "us",
    "p20_us",
    "p80_us",
    "gbs",
    "peer",
    "peer_tflops",
    "peer_us",
    "peer_p20_us",
    "peer_p80_us",
    "candidates",
    "ratio",
    "spread",
    "r",
    "peer_r",
    "bound",
    "ok",
    "rows_checked",
    "input_sets",
    "calls",
    "rounds",
    "segments",
    "discarded",
    "threads",
    "others",
    "excluded",
];

/// Serializes figures, with null for each name where there are none.
fn or_nulls<S: Serializer>(figures: &Option<Figures>, serializer: S) -> Result<S::Ok, S::Error> {
    match figures {
        Some(figures) => figures.serialize(serializer),
        None => serializer.collect_map(FIGURES.map(|name| (name, ()))),
    }
}

/// Deserializes a number, null as NaN.
fn or_nan<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or(f64::NAN))
}

/// The rows as comma-separated values, with the names of the JSON object.
pub fn csv(report: &Report) -> String {
    let product = ["dtype", "layout", "m", "n", "k", "batch", "epilogue"];
    let columns: Vec<_> =
        product.into_iter().chain(FIGURES).chain(["intensity", "error", "command", "gelu_form"]).collect();
    let mut text = columns.join(",") + "\n";
    for row in &report.rows {
        let row = serde_json::to_value(row).unwrap_or_default();
        text += &columns.iter().map(|column| field(&row[column])).collect::<Vec<_>>().join(",");
        text += "\n";
    }
    text
}

fn field(value: &serde_json::Value) -> String {
    match value {
        serde_json::Value::Null => String::new(),
        serde_json::Value::String(text) => quoted(text),
        other => quoted(&other.to_string()),
    }
}

/// A text as a CSV field, quoted where necessary.
fn quoted(text: &str) -> String {
    if text.contains(['"', ',', '\n']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.into() }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A row with a peer, or with an error.
    pub fn row(ratio: Option<f64>, error: Option<&str>) -> Row {
        let figures = Figures {
            kernel: "tiled_f32_32".into(),
            tflops: 8.8,
            us: 244.0,
            p20_us: 243.0,
            p80_us: 245.5,
            gbs: 51.0,
            peer: ratio.map(|_| "cublasLt 13.1.0 algorithm 1, tile 2".into()),
            peer_tflops: ratio.map(|ratio| 8.8 / ratio),
            peer_us: ratio.map(|ratio| 244.0 * ratio),
            peer_p20_us: ratio.map(|ratio| 243.0 * ratio),
            peer_p80_us: ratio.map(|ratio| 245.0 * ratio),
            candidates: 8,
            ratio,
            spread: 0.0014,
            r: 3.25,
            peer_r: ratio.map(|_| 2.5),
            bound: 1026.0,
            ok: true,
            rows_checked: 1024,
            input_sets: 11,
            calls: 11,
            rounds: 40,
            segments: false,
            discarded: 0,
            threads: None,
            others: Vec::new(),
            excluded: Vec::new(),
        };
        Row {
            dtype: "f32",
            layout: "nn".into(),
            m: 1024,
            n: 1024,
            k: 1024,
            batch: 1,
            epilogue: Epilogue::NONE,
            figures: error.is_none().then_some(figures),
            intensity: 170.7,
            error: error.map(Into::into),
            command: "tegula bench --m 1024".into(),
            gelu_form: None,
        }
    }

    pub fn report(rows: Vec<Row>) -> Report {
        let ceilings = [("f32", "FFMA", 64.5)].into_iter();
        Report {
            machine: "NVIDIA H200".into(),
            threads: None,
            driver: Some("580.159".into()),
            version: "1.0.0",
            peer: Some("cublasLt 13.1.0".into()),
            seed: 1,
            command: "tegula bench --m 1024,2048".into(),
            limits: Some(Limits::new(4290.0, ceilings)),
            rows,
        }
    }

    #[test]
    fn columns_align_with_their_header() {
        let (title, row) = (title(), line(&row(Some(0.25), None)));
        let end = |text: &str, part: &str| text[..text.find(part).unwrap() + part.len()].chars().count();
        for (name, value) in
            [("TFLOP/s", "8.80"), ("(p20 to p80)", "(243 to 246)"), ("ratio", "0.250"), ("peer r", "2.50")]
        {
            assert_eq!(end(&title, name), end(&row, value), "{name}\n{title}\n{row}");
        }
        assert!(title.ends_with("  kernel") && row.ends_with("  tiled_f32_32"));
    }

    #[test]
    fn failed_and_wrong_rows_are_reported() {
        let alone = line(&row(None, None));
        assert!(alone.contains(" - "), "{alone}");
        let missing = line(&row(None, Some("out of memory: 12 GiB")));
        assert!(missing.ends_with("    1 out of memory: 12 GiB"), "{missing}");
        let mut wrong = row(None, None);
        wrong.figures.iter_mut().for_each(|figures| (figures.ok, figures.r) = (false, f64::INFINITY));
        assert!(line(&wrong).contains("wrong") && line(&wrong).ends_with("WRONG"));
        let run = report(vec![row(Some(1.0), None), row(None, Some("no room")), wrong]);
        assert_eq!(run.failure().unwrap(), "1 of 3 rows could not be measured, and 1 results are wrong");
        assert_eq!(report(vec![row(None, Some("no room"))]).failure().unwrap(), "1 of 1 rows could not be measured");
        assert!(report(vec![row(None, None)]).failure().is_none());
    }

    #[test]
    fn json_and_csv_have_every_name() {
        let run = report(vec![row(Some(0.25), None), row(None, None), row(None, Some("no, room"))]);
        let json: serde_json::Value = serde_json::from_str(&run.json()).unwrap();
        for name in ["machine", "driver", "version", "peer", "seed", "command", "copy_gbs", "ceilings", "rows"] {
            assert!(json.get(name).is_some(), "{name}");
        }
        let rows = json["rows"].as_array().unwrap();
        assert_eq!((&rows[0]["ratio"], &rows[1]["ratio"], &rows[2]["ratio"]), (&0.25.into(), &().into(), &().into()));
        assert_eq!(rows[0]["peer"], "cublasLt 13.1.0 algorithm 1, tile 2");
        let table = csv(&run);
        let lines: Vec<_> = table.lines().collect();
        let columns: Vec<_> = lines[0].split(',').collect();
        for row in rows {
            assert!(columns.iter().all(|name| row.get(name).is_some()), "{columns:?} {row}");
            assert_eq!(row.as_object().unwrap().len(), columns.len());
        }
        assert!(lines[1].contains(",\"cublasLt 13.1.0 algorithm 1, tile 2\","), "{}", lines[1]);
        assert!(lines[3].contains(",\"no, room\","), "{}", lines[3]);
    }

    #[test]
    fn cpu_rows_have_threads_and_slower_libraries() {
        let mut row = row(Some(0.9), None);
        assert!(!line(&row).contains("against"), "{}", line(&row));
        row.figures.iter_mut().for_each(|figures| {
            figures.peer = Some("MKL 2026.2".into());
            (figures.threads, figures.discarded) = (Some(2), 3);
            figures.others = vec![Other { peer: "BLIS 0.9.0".into(), us: 300.5 }];
        });
        assert!(line(&row).ends_with("  tiled_f32_32  against MKL 2026.2"), "{}", line(&row));
        row.figures.iter_mut().for_each(|figures| {
            figures.excluded = vec![Excluded { peer: "oneDNN 3.2.0 sgemm".into(), processors: 3.98 }];
        });
        let excluded = "  against MKL 2026.2  excluded: oneDNN 3.2.0 sgemm (keeps 4.0 processors busy)";
        assert!(line(&row).ends_with(excluded), "{}", line(&row));
        let mut run = Report { threads: Some(2), driver: None, ..report(vec![row]) };
        assert!(run.heading().starts_with("NVIDIA H200, 2 threads; Tegula"), "{}", run.heading());
        let json: serde_json::Value = serde_json::from_str(&run.json()).unwrap();
        let row = &json["rows"][0];
        assert_eq!((&row["threads"], &row["discarded"]), (&2.into(), &3.into()));
        assert_eq!(row["others"], serde_json::json!([{ "peer": "BLIS 0.9.0", "us": 300.5 }]));
        assert_eq!(row["excluded"], serde_json::json!([{ "peer": "oneDNN 3.2.0 sgemm", "processors": 3.98 }]));
        assert!(json.get("threads").is_none(), "it belongs to rows");
        assert!(csv(&run).contains(r#",3,2,"[{""peer"":""BLIS 0.9.0"",""us"":300.5}]","#), "{}", csv(&run));
        run.threads = Some(1);
        assert!(run.heading().contains(", 1 thread; "), "{}", run.heading());
    }

    #[test]
    fn values_have_three_or_four_digits() {
        let shown = [64.512, 8.8, 731.4, 0.0123, 1.5e-5, 0.0, 123_456.7, f64::NAN].map(short);
        assert_eq!(shown, ["64.5", "8.80", "731", "0.0123", "1.5e-5", "0.0000", "123457", "-"]);
        assert_eq!([0.0, 3.251, f64::INFINITY].map(error), ["exact", "3.25", "wrong"]);
    }
}
