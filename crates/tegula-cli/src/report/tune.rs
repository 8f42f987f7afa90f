//! The report of `tegula tune`, as a table and as JSON.

use serde::{Serialize, Serializer};

use super::bench::short;

/// The cost model's choice is good if it reaches this share of the best speed.
const GOOD: f64 = 0.95;

/// The results of a run.
#[derive(Debug)]
pub struct Report {
    /// The GPU.
    pub machine: String,
    pub driver: Option<String>,
    /// Tegula's version.
    pub version: &'static str,
    pub seed: u64,
    /// The command that repeats the run.
    pub command: String,
    pub rows: Vec<Row>,
}

/// A product and its tuning result.
#[derive(Debug, Serialize)]
pub struct Row {
    pub dtype: &'static str,
    /// `nn`, `nt`, `tn` or `tt`: how A and B are stored.
    pub layout: String,
    pub m: usize,
    pub n: usize,
    pub k: usize,
    pub batch: usize,
    /// `None` where the measurement failed.
    #[serde(flatten, serialize_with = "or_nulls")]
    pub figures: Option<Figures>,
    /// The error of a failed measurement.
    pub error: Option<String>,
}

/// Figures of a product. Times are microseconds per call.
#[derive(Debug, Serialize)]
pub struct Figures {
    /// Legal candidates.
    pub candidates: usize,
    /// Timed candidates.
    pub timed: usize,
    /// The cost model's choice.
    pub chosen: String,
    pub chosen_tflops: f64,
    pub chosen_us: f64,
    /// The fastest.
    #[serde(rename = "winner")]
    pub fastest: String,
    #[serde(rename = "winner_tflops")]
    pub fastest_tflops: f64,
    #[serde(rename = "winner_us")]
    pub fastest_us: f64,
    /// The speed of the choice divided by that of the fastest.
    pub ratio: f64,
    /// First timings of all timed candidates, to which a cost model is fitted.
    pub glances: Vec<Glance>,
    /// The last timings of the fastest candidates and the choice, at the power limit if time
    /// suffices.
    pub finalists: Vec<Glance>,
}

/// The timing of a candidate.
#[derive(Debug, Serialize)]
pub struct Glance {
    pub kernel: String,
    pub us: f64,
}

impl Report {
    /// The heading of the table.
    pub fn heading(&self) -> String {
        let driver = self.driver.as_ref().map_or(String::new(), |driver| format!(", driver {driver}"));
        format!("{}{driver}; Tegula {}; seed {}", self.machine, self.version, self.seed)
    }

    /// The object of `--json` as text.
    pub fn json(&self) -> String {
        #[derive(Serialize)]
        struct Object<'a> {
            machine: &'a str,
            driver: Option<&'a str>,
            version: &'a str,
            seed: u64,
            command: &'a str,
            within_5_percent: usize,
            rows: &'a [Row],
        }
        let Report { machine, driver, version, seed, command, rows } = self;
        let (driver, seed, within_5_percent) = (driver.as_deref(), *seed, self.good());
        let object = Object { machine, driver, version, seed, command, within_5_percent, rows };
        // All map keys are strings, and writing to memory cannot fail.
        serde_json::to_string_pretty(&object).map(|text| text + "\n").unwrap_or_default()
    }

    /// The share of products for which the cost model's choice is good.
    pub fn verdict(&self) -> String {
        let (good, all) = (self.good(), self.measured().count());
        let percent = 100.0 * good as f64 / all.max(1) as f64;
        format!("the cost model's choice is within 5 % of the best on {good} of {all} products ({percent:.1} %)")
    }

    /// The error of the run, if a row failed.
    pub fn failure(&self) -> Option<String> {
        let (failed, all) = (self.rows.len() - self.measured().count(), self.rows.len());
        (failed > 0).then(|| format!("{failed} of {all} rows could not be measured"))
    }

    fn measured(&self) -> impl Iterator<Item = &Figures> {
        self.rows.iter().filter_map(|row| row.figures.as_ref())
    }

    fn good(&self) -> usize {
        self.measured().filter(|figures| figures.ratio >= GOOD).count()
    }
}

/// The header of the columns of [`line()`].
pub fn title() -> String {
    format!(
        "{:<4} {:<6} {:>6} {:>6} {:>6} {:>5} {:>9} {:>9} {:>6} {:>9}  chosen, fastest",
        "type", "layout", "m", "n", "k", "batch", "TFLOP/s", "fastest", "ratio", "timed"
    )
}

/// A row of the table.
pub fn line(row: &Row) -> String {
    let Row { dtype, layout, m, n, k, batch, .. } = row;
    let product = format!("{dtype:<4} {layout:<6} {m:>6} {n:>6} {k:>6} {batch:>5}");
    let Some(figures) = &row.figures else {
        return format!("{product} {}", row.error.as_deref().unwrap_or("not measured"));
    };
    let Figures { candidates, timed, chosen, chosen_tflops, fastest, fastest_tflops, ratio, .. } = figures;
    let (ours, best, timed) = (short(*chosen_tflops), short(*fastest_tflops), format!("{timed}/{candidates}"));
    let better = if fastest == chosen { String::new() } else { format!(", {fastest}") };
    format!("{product} {ours:>9} {best:>9} {ratio:>6.3} {timed:>9}  {chosen}{better}")
}

/// The names of the figures.
const FIGURES: [&str; 11] = [
    "candidates",
    "timed",
    "chosen",
    "chosen_tflops",
    "chosen_us",
    "winner",
    "winner_tflops",
    "winner_us",
    "ratio",
    "glances",
    "finalists",
];

/// Serializes figures, with null for each name where there are none.
fn or_nulls<S: Serializer>(figures: &Option<Figures>, serializer: S) -> Result<S::Ok, S::Error> {
    match figures {
        Some(figures) => figures.serialize(serializer),
        None => serializer.collect_map(FIGURES.map(|name| (name, ()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(ratio: f64, error: Option<&str>) -> Row {
        let figures = Figures {
            candidates: 213,
            timed: 74,
            chosen: "register_f32_a".into(),
            chosen_tflops: 49.4 * ratio,
            chosen_us: 348.0 / ratio,
            fastest: if ratio == 1.0 { "register_f32_a".into() } else { "register_f32_b".into() },
            fastest_tflops: 49.4,
            fastest_us: 348.0,
            ratio,
            glances: vec![Glance { kernel: "register_f32_b".into(), us: 348.0 }],
            finalists: Vec::new(),
        };
        let (figures, error) = (error.is_none().then_some(figures), error.map(Into::into));
        Row { dtype: "f32", layout: "nn".into(), m: 2048, n: 2048, k: 2048, batch: 1, figures, error }
    }

    fn report(rows: Vec<Row>) -> Report {
        let (machine, driver, command) = ("NVIDIA H200".into(), Some("580.159".into()), "tegula tune".into());
        Report { machine, driver, version: "1.0.0", seed: 1, command, rows }
    }

    #[test]
    fn columns_stand_below_their_names() {
        let (title, row) = (title(), line(&row(0.9, None)));
        let end = |text: &str, part: &str| text[..text.find(part).unwrap() + part.len()].chars().count();
        for (name, value) in [("TFLOP/s", "44.5"), ("fastest", "49.4"), ("ratio", "0.900"), ("timed", "74/213")] {
            assert_eq!(end(&title, name), end(&row, value), "{name}\n{title}\n{row}");
        }
        assert!(row.ends_with("  register_f32_a, register_f32_b"), "{row}");
    }

    #[test]
    fn a_winner_that_was_chosen_is_named_once_and_a_failure_says_why() {
        assert!(line(&row(1.0, None)).ends_with("  register_f32_a"));
        assert!(line(&row(1.0, Some("out of memory: 12 GiB"))).ends_with("    1 out of memory: 12 GiB"));
    }

    #[test]
    fn good_choices_are_counted_among_those_measured() {
        let run = report(vec![row(1.0, None), row(0.95, None), row(0.949, None), row(1.0, Some("no room"))]);
        let verdict = "the cost model's choice is within 5 % of the best on 2 of 3 products (66.7 %)";
        assert_eq!(
            (run.verdict().as_str(), run.failure().as_deref()),
            (verdict, Some("1 of 4 rows could not be measured"))
        );
        let none = report(vec![row(1.0, Some("no room"))]);
        assert!(none.verdict().ends_with("0 of 0 products (0.0 %)"));
        assert!(report(vec![row(0.5, None)]).failure().is_none());
        // A ratio of NaN does not count as good.
        assert_eq!(report(vec![row(f64::NAN, None)]).good(), 0);
    }

    #[test]
    fn programs_find_every_name_and_null_where_there_is_nothing() {
        let run = report(vec![row(0.96, None), row(1.0, Some("no room"))]);
        let json: serde_json::Value = serde_json::from_str(&run.json()).unwrap();
        for name in ["machine", "driver", "version", "seed", "command", "rows"] {
            assert!(json.get(name).is_some(), "{name}");
        }
        assert_eq!((&json["within_5_percent"], &json["rows"][0]["error"]), (&1.into(), &().into()));
        let [measured, failed] = [0, 1].map(|i| json["rows"][i].as_object().unwrap().keys().collect::<Vec<_>>());
        assert_eq!(measured, failed);
        assert_eq!((&json["rows"][1]["winner"], &json["rows"][1]["error"]), (&().into(), &"no room".into()));
    }
}
