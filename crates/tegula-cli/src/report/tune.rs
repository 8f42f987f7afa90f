//! What tuning found: as a table for people, as JSON for programs.

use serde::{Serialize, Serializer};

use super::bench::short;

/// A choice that is as fast as this share of the winner, or faster, is a good one.
const GOOD: f64 = 0.95;

/// Everything that a run found.
#[derive(Debug)]
pub struct Report {
    /// The GPU.
    pub machine: String,
    pub driver: Option<String>,
    /// Of Tegula.
    pub version: &'static str,
    pub seed: u64,
    /// Says the same run again.
    pub command: String,
    pub rows: Vec<Row>,
}

/// A product, and what came of tuning it.
#[derive(Debug, Serialize)]
pub struct Row {
    pub dtype: &'static str,
    /// `nn`, `nt`, `tn` or `tt`: how A and B are stored.
    pub layout: String,
    pub m: usize,
    pub n: usize,
    pub k: usize,
    pub batch: usize,
    /// `None` where it could not be measured.
    #[serde(flatten, serialize_with = "or_nulls")]
    pub figures: Option<Figures>,
    /// Why it could not.
    pub error: Option<String>,
}

/// Times are of one call, in microseconds.
#[derive(Debug, Serialize)]
pub struct Figures {
    /// Recipes that there are.
    pub candidates: usize,
    /// Those that were timed.
    pub timed: usize,
    /// The cost model's choice.
    pub chosen: String,
    pub chosen_tflops: f64,
    pub chosen_us: f64,
    /// The fastest.
    pub winner: String,
    pub winner_tflops: f64,
    pub winner_us: f64,
    /// The speed of the choice by the winner's.
    pub ratio: f64,
    /// All that were timed, at first; what a cost model is fitted to.
    pub glances: Vec<Glance>,
}

/// What a call took at a glance.
#[derive(Debug, Serialize)]
pub struct Glance {
    pub kernel: String,
    pub us: f64,
}

impl Report {
    /// What ran where.
    pub fn heading(&self) -> String {
        let driver = self.driver.as_ref().map_or(String::new(), |driver| format!(", driver {driver}"));
        format!("{}{driver}; Tegula {}; seed {}", self.machine, self.version, self.seed)
    }

    /// The object as a text.
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
        // No map has keys that are no strings, and nothing else can fail in memory.
        serde_json::to_string_pretty(&object).map(|text| text + "\n").unwrap_or_default()
    }

    /// How often the cost model's choice is a good one.
    pub fn verdict(&self) -> String {
        let (good, all) = (self.good(), self.measured().count());
        let percent = 100.0 * good as f64 / all.max(1) as f64;
        format!("the cost model's choice is within 5 % of the best on {good} of {all} products ({percent:.1} %)")
    }

    /// Why the run failed, if some of it did.
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

/// The names above the columns of [`line()`].
pub fn title() -> String {
    format!(
        "{:<4} {:<6} {:>6} {:>6} {:>6} {:>5} {:>9} {:>9} {:>6} {:>9}  chosen, winner",
        "type", "layout", "m", "n", "k", "batch", "TFLOP/s", "winner's", "ratio", "timed"
    )
}

/// A row of the table.
pub fn line(row: &Row) -> String {
    let Row { dtype, layout, m, n, k, batch, .. } = row;
    let product = format!("{dtype:<4} {layout:<6} {m:>6} {n:>6} {k:>6} {batch:>5}");
    let Some(figures) = &row.figures else {
        return format!("{product} {}", row.error.as_deref().unwrap_or("not measured"));
    };
    let Figures { candidates, timed, chosen, chosen_tflops, winner, winner_tflops, ratio, .. } = figures;
    let (ours, best, timed) = (short(*chosen_tflops), short(*winner_tflops), format!("{timed}/{candidates}"));
    let better = if winner == chosen { String::new() } else { format!(", {winner}") };
    format!("{product} {ours:>9} {best:>9} {ratio:>6.3} {timed:>9}  {chosen}{better}")
}

/// The names of the figures.
const FIGURES: [&str; 10] = [
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
];

/// Every name also where there are no figures.
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
            winner: if ratio == 1.0 { "register_f32_a".into() } else { "register_f32_b".into() },
            winner_tflops: 49.4,
            winner_us: 348.0,
            ratio,
            glances: vec![Glance { kernel: "register_f32_b".into(), us: 348.0 }],
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
        for (name, value) in [("TFLOP/s", "44.5"), ("winner's", "49.4"), ("ratio", "0.900"), ("timed", "74/213")] {
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
        // NaN is no good choice.
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
