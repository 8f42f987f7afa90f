//! The tuning table: the fastest recipes measured by `tegula tune`, which take precedence over the
//! cost model, and the description of the GPU that `tegula tune --calibrate` measured.
//!
//! The table is data and text; `cache` of the `tegula` crate reads and writes files. An entry is
//! the name of a [legal] recipe; an unknown or illegal one is ignored. The epilogue is not part of
//! a problem: it follows the main loop of every kernel alike, so one entry serves every bias and
//! activation.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use rustc_hash::{FxBuildHasher, FxHashMap};
use tegula_core::element::{Accuracy, Type};
use tegula_core::error::Result;
use tegula_ir::Order2d;
use tinyjson::JsonValue;

use crate::name_fields::upgrade_legacy_name;

use super::choose::{Plan, choose};
use super::device::{Caps, GpuDescription};
use super::legal::legal;
use super::legalize::Recipe;
use super::problem::{OperandLayout, Problem};

/// The key of a tuning table: its times hold for this GPU, driver and version of Tegula.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TuningKey {
    /// The GPU's name.
    pub gpu: String,
    /// The compute capability, major and minor.
    pub compute: (u32, u32),
    /// The number of SMs.
    pub multiprocessors: u32,
    /// The driver's version.
    pub driver: String,
    /// Tegula's version.
    pub tegula: String,
}

impl fmt::Display for TuningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TuningKey { gpu, compute: (major, minor), multiprocessors, driver, tegula } = self;
        write!(f, "{gpu} ({major}.{minor}, {multiprocessors} multiprocessors), driver {driver}, Tegula {tegula}")
    }
}

/// An error of a tuning table's text. [`Display`](fmt::Display) gives the text after the file's
/// name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TuningTableError {
    /// The table is for another key.
    #[error("is stale: it was measured on {0}")]
    Stale(TuningKey),
    /// The text is not a valid table, with the reason.
    #[error("is corrupt: {0}")]
    Corrupt(String),
    /// The file could not be read, with the reason.
    #[error("cannot be read: {0}")]
    Unreadable(String),
}

/// The fastest measured recipe for a problem.
#[derive(Clone, Debug, PartialEq)]
pub struct TunedEntry {
    /// Its [name](Recipe::name).
    pub recipe: String,
    /// Its measured microseconds.
    pub microseconds: f64,
}

/// Tuned entries by problem, and the properties of the GPU if they were measured.
#[derive(Clone, Debug)]
pub struct TuningTable {
    entries: FxHashMap<Problem, TunedEntry>,
    calibrated: Option<Calibrated>,
    /// A number unique to these entries, for the cache of plans; 0 for none.
    id: u64,
}

/// The properties of a GPU that [calibration](super::calibration) measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Calibrated {
    /// As [`GpuDescription::memory_bandwidth`].
    pub memory_bandwidth: u32,
    /// As [`GpuDescription::clock`].
    pub clock: u32,
    /// As [`GpuDescription::power_limited_gflops`].
    pub power_limited_gflops: u32,
}

impl Calibrated {
    /// The measured properties of a description.
    pub fn of(gpu: &GpuDescription) -> Self {
        let &GpuDescription { memory_bandwidth, clock, power_limited_gflops, .. } = gpu;
        Calibrated { memory_bandwidth, clock, power_limited_gflops }
    }

    fn read(object: Object<'_>) -> Result<Self, String> {
        object.has_fields(3)?;
        let positive = |name: &str| match u32::try_from(object.integer(name)?) {
            Ok(value) if value > 0 => Ok(value),
            _ => Err(format!("{name:?} is not a positive 32-bit integer")),
        };
        Ok(Calibrated {
            memory_bandwidth: positive("memory_bandwidth")?,
            clock: positive("clock")?,
            power_limited_gflops: positive("power_limited_gflops")?,
        })
    }

    fn text(&self) -> String {
        let Calibrated { memory_bandwidth, clock, power_limited_gflops } = self;
        format!(
            "{{\"memory_bandwidth\": {memory_bandwidth}, \"clock\": {clock}, \
             \"power_limited_gflops\": {power_limited_gflops}}}"
        )
    }
}

/// The empty table: the cost model decides.
pub static UNTUNED: TuningTable =
    TuningTable { entries: FxHashMap::with_hasher(FxBuildHasher), calibrated: None, id: 0 };

impl Default for TuningTable {
    fn default() -> Self {
        UNTUNED.clone()
    }
}

impl TuningTable {
    /// Parses the output of [`text`](Self::text).
    ///
    /// # Errors
    /// [`TuningTableError`] for invalid text, or another key.
    pub fn parse(text: &str, key: &TuningKey) -> Result<Self, TuningTableError> {
        let corrupt = TuningTableError::Corrupt;
        if depth(text) > MAX_NESTING {
            return Err(corrupt(format!("brackets nest deeper than {MAX_NESTING}")));
        }
        let file: JsonValue = text.parse().map_err(|error: tinyjson::JsonParseError| corrupt(error.to_string()))?;
        let file = Object(&file);
        // The key first: the rest of another version's format is unknown.
        let found = file.object("key").and_then(read_key).map_err(corrupt)?;
        if found != *key {
            return Err(TuningTableError::Stale(found));
        }
        let mut table = TuningTable::default();
        let is_calibrated = file.has("calibrated");
        file.has_fields(2 + usize::from(is_calibrated)).map_err(corrupt)?;
        if is_calibrated {
            table.calibrated = Some(file.object("calibrated").and_then(Calibrated::read).map_err(corrupt)?);
        }
        for (index, row) in file.array("winners").map_err(corrupt)?.iter().enumerate() {
            let row = Row::parse(Object(row)).and_then(Row::read);
            let (problem, entry) = row.map_err(|why| corrupt(format!("entry {}: {why}", index + 1)))?;
            table.insert(problem, entry);
        }
        Ok(table)
    }

    /// Formats the table as text: equal entries give equal text.
    pub fn text(&self, key: &TuningKey) -> String {
        let mut entries: Vec<Row> = self.entries.iter().map(|(problem, entry)| Row::of(problem, entry)).collect();
        entries.sort_by(|a, b| a.sort_key().cmp(&b.sort_key()));
        let rows: Vec<String> = entries.iter().map(Row::text).collect();
        let calibrated =
            self.calibrated.map_or(String::new(), |measured| format!("\"calibrated\": {},\n", measured.text()));
        format!("{{\n\"key\": {},\n{calibrated}\"winners\": [\n{}\n]\n}}\n", key_text(key), rows.join(",\n"))
    }

    /// A table without entries, with the measured properties of this one.
    #[must_use]
    pub fn without_entries(&self) -> Self {
        TuningTable { calibrated: self.calibrated, ..TuningTable::default() }
    }

    /// The measured properties of the GPU, if it was calibrated.
    pub fn calibrated(&self) -> Option<Calibrated> {
        self.calibrated
    }

    /// The description of the GPU: with the measured properties, if it was calibrated, else as
    /// reported.
    pub fn describe(&self, reported: GpuDescription) -> GpuDescription {
        self.calibrated.map_or(reported, |Calibrated { memory_bandwidth, clock, power_limited_gflops }| {
            GpuDescription { memory_bandwidth, clock, power_limited_gflops, ..reported }
        })
    }

    /// Sets the measured properties of the GPU.
    pub fn set_calibrated(&mut self, calibrated: Calibrated) {
        self.calibrated = Some(calibrated);
    }

    /// Inserts or replaces the entry of a problem.
    pub fn insert(&mut self, problem: Problem, entry: TunedEntry) {
        static TABLES: AtomicU64 = AtomicU64::new(1);
        self.id = TABLES.fetch_add(1, Ordering::Relaxed);
        self.entries.insert(problem, entry);
    }

    /// Inserts or replaces all entries of `other`.
    pub fn merge(&mut self, other: &TuningTable) {
        other.entries.iter().for_each(|(problem, entry)| self.insert(*problem, entry.clone()));
    }

    /// Whether the problem has an entry, legal or not.
    pub fn contains(&self, problem: &Problem) -> bool {
        self.entries.contains_key(problem)
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether the table is empty.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The recipe of the problem's entry, if it is legal.
    pub fn recipe(&self, problem: &Problem, caps: &Caps) -> Option<Recipe> {
        let TunedEntry { recipe: name, .. } = self.entries.get(problem)?;
        legal(problem, caps).into_iter().map(|candidate| candidate.recipe).find(|recipe| recipe.name() == *name)
    }

    /// Chooses the entry's recipe, if any, else by the cost model.
    ///
    /// # Errors
    /// As [`choose`](super::choose()).
    pub fn choose(&self, problem: &Problem, caps: &Caps) -> Result<Plan> {
        self.recipe(problem, caps).map_or_else(|| choose(problem, caps), |recipe| Ok(Plan::Gpu(recipe)))
    }

    /// The unique number of this content of the table.
    pub(super) fn id(&self) -> u64 {
        self.id
    }
}

/// The maximum nesting of brackets: the parser uses a stack frame for each.
const MAX_NESTING: usize = 64;

/// The nesting depth of brackets outside strings.
fn depth(text: &str) -> usize {
    let (mut open, mut deepest, mut quoted, mut escaped) = (0usize, 0, false, false);
    for byte in text.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b'[' | b'{' if !quoted => open += 1,
            b']' | b'}' if !quoted => open = open.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(open);
    }
    deepest
}

/// A JSON value that must be an object with fields of known types.
struct Object<'j>(&'j JsonValue);

impl<'j> Object<'j> {
    fn get<T: tinyjson::InnerAsRef>(&self, name: &str) -> Result<&'j T, String> {
        let field = self.0.get::<HashMap<String, JsonValue>>().and_then(|fields| fields.get(name));
        field.and_then(JsonValue::get).ok_or_else(|| format!("{name:?} is missing or has another type"))
    }

    fn has(&self, name: &str) -> bool {
        self.0.get::<HashMap<String, JsonValue>>().is_some_and(|fields| fields.contains_key(name))
    }

    fn object(&self, name: &str) -> Result<Object<'j>, String> {
        let fields = self.0.get::<HashMap<String, JsonValue>>();
        fields.and_then(|fields| fields.get(name)).map(Object).ok_or_else(|| format!("{name:?} is missing"))
    }

    fn array(&self, name: &str) -> Result<&'j Vec<JsonValue>, String> {
        self.get(name)
    }

    fn text(&self, name: &str) -> Result<String, String> {
        self.get::<String>(name).cloned()
    }

    fn number(&self, name: &str) -> Result<f64, String> {
        let number = *self.get::<f64>(name)?;
        if number.is_finite() { Ok(number) } else { Err(format!("{name:?} is not finite")) }
    }

    /// Checks the number of fields: additional fields of a later version could define another
    /// problem.
    fn has_fields(&self, count: usize) -> Result<(), String> {
        let fields = self.0.get::<HashMap<String, JsonValue>>().map_or(0, HashMap::len);
        if fields == count { Ok(()) } else { Err(format!("{fields} fields; expected {count}")) }
    }

    /// An integer that a float represents exactly.
    fn integer(&self, name: &str) -> Result<usize, String> {
        let number = self.number(name)?;
        let exact = number.fract() == 0.0 && (0.0..=MAX_EXACT).contains(&number);
        if exact { Ok(number as usize) } else { Err(format!("{name:?} is {number}; expected an integer")) }
    }
}

/// 2⁵³.
const MAX_EXACT: f64 = 9_007_199_254_740_992.0;

fn read_key(key: Object<'_>) -> Result<TuningKey, String> {
    let number = |value: f64| match value.fract() == 0.0 && (0.0..=f64::from(u32::MAX)).contains(&value) {
        true => Ok(value as u32),
        false => Err(format!("{value} in the key is not an unsigned 32-bit integer")),
    };
    let pair = || "\"compute\" must have two numbers".to_string();
    let compute = key.array("compute")?.iter().map(|value| value.get::<f64>().copied());
    let compute: Option<Vec<f64>> = compute.collect();
    let [major, minor]: [f64; 2] = compute.and_then(|pair| pair.try_into().ok()).ok_or_else(pair)?;
    Ok(TuningKey {
        gpu: key.text("gpu")?,
        compute: (number(major)?, number(minor)?),
        multiprocessors: number(key.number("multiprocessors")?)?,
        driver: key.text("driver")?,
        tegula: key.text("tegula")?,
    })
}

/// Formats a text as a JSON string.
fn quoted(text: &str) -> String {
    JsonValue::String(text.into()).stringify().unwrap_or_default()
}

fn key_text(TuningKey { gpu, compute: (major, minor), multiprocessors, driver, tegula }: &TuningKey) -> String {
    let [gpu, driver, tegula] = [gpu, driver, tegula].map(|text| quoted(text));
    format!(
        "{{\"gpu\": {gpu}, \"compute\": [{major}, {minor}], \"multiprocessors\": {multiprocessors}, \
         \"driver\": {driver}, \"tegula\": {tegula}}}"
    )
}

/// An entry of the text. It has all fields of a problem.
struct Row {
    dtype: String,
    accuracy: String,
    m: usize,
    n: usize,
    k: usize,
    batch: usize,
    /// Layouts of A, B and C: `row`, `col` or `strided`, then the bytes to which they are aligned,
    /// and `back` if not TMA-compatible.
    layouts: [String; 3],
    recipe: String,
    us: f64,
}

const ACCURACIES: [Accuracy; 2] = [Accuracy::Full, Accuracy::Tf32];
const LAYOUTS: [(&str, OperandLayout); 11] = [
    ("row", OperandLayout::new(Order2d::RowMajor, false)),
    ("row16", OperandLayout::new(Order2d::RowMajor, true)),
    ("col", OperandLayout::new(Order2d::ColMajor, false)),
    ("col16", OperandLayout::new(Order2d::ColMajor, true)),
    ("row8", OperandLayout { alignment: 8, ..OperandLayout::new(Order2d::RowMajor, false) }),
    ("col8", OperandLayout { alignment: 8, ..OperandLayout::new(Order2d::ColMajor, false) }),
    ("row4", OperandLayout { alignment: 4, ..OperandLayout::new(Order2d::RowMajor, false) }),
    ("col4", OperandLayout { alignment: 4, ..OperandLayout::new(Order2d::ColMajor, false) }),
    ("strided", OperandLayout::new(Order2d::Strided, false)),
    ("row16back", OperandLayout { tma_compatible: false, ..OperandLayout::new(Order2d::RowMajor, true) }),
    ("col16back", OperandLayout { tma_compatible: false, ..OperandLayout::new(Order2d::ColMajor, true) }),
];

impl Row {
    fn of(problem: &Problem, entry: &TunedEntry) -> Row {
        let Problem { ty, accuracy, m, n, k, batches: batch, layouts } = *problem;
        let name = |layout: OperandLayout| {
            LAYOUTS.iter().find(|(_, known)| *known == layout).map_or("strided", |(name, _)| *name).into()
        };
        let TunedEntry { recipe, microseconds: us } = entry.clone();
        let (dtype, accuracy) = (ty.name().into(), accuracy.name().into());
        Row { dtype, accuracy, m, n, k, batch, layouts: layouts.map(name), recipe, us }
    }

    fn parse(row: Object<'_>) -> Result<Row, String> {
        row.has_fields(9)?;
        let names = row.array("lies")?.iter().map(|layout| layout.get::<String>().cloned());
        let layouts: Option<Vec<String>> = names.collect();
        let layouts = layouts.and_then(|layouts| layouts.try_into().ok()).ok_or("\"lies\" must have three names")?;
        Ok(Row {
            dtype: row.text("dtype")?,
            accuracy: row.text("accuracy")?,
            m: row.integer("m")?,
            n: row.integer("n")?,
            k: row.integer("k")?,
            batch: row.integer("batch")?,
            layouts,
            recipe: row.text("recipe").map(|name| upgrade_legacy_name(&name).unwrap_or(name))?,
            us: row.number("us")?,
        })
    }

    fn text(&self) -> String {
        let Row { m, n, k, batch, us, .. } = self;
        let [dtype, accuracy, recipe] = [&self.dtype, &self.accuracy, &self.recipe].map(|text| quoted(text));
        let [a, b, c] = self.layouts.each_ref().map(|text| quoted(text));
        format!(
            "{{\"dtype\": {dtype}, \"accuracy\": {accuracy}, \"m\": {m}, \"n\": {n}, \"k\": {k}, \"batch\": {batch}, \
             \"lies\": [{a}, {b}, {c}], \"recipe\": {recipe}, \"us\": {us}}}"
        )
    }

    fn read(self) -> Result<(Problem, TunedEntry), String> {
        let Row { dtype, accuracy, m, n, k, batch: batches, layouts, recipe, us: microseconds } = self;
        let ty = Type::operand_named(&dtype).ok_or_else(|| format!("unknown type {dtype:?}"))?;
        let mode = ACCURACIES.into_iter().find(|one| one.name() == accuracy);
        let accuracy = mode.ok_or_else(|| format!("unknown accuracy {accuracy:?}"))?;
        let mut known = [OperandLayout::default(); 3];
        for (known, name) in known.iter_mut().zip(&layouts) {
            let found = LAYOUTS.iter().find(|(layout, _)| layout == name);
            *known = found.ok_or_else(|| format!("unknown layout {name:?}"))?.1;
        }
        Ok((Problem { ty, accuracy, m, n, k, batches, layouts: known }, TunedEntry { recipe, microseconds }))
    }

    /// The order of entries in the text.
    fn sort_key(&self) -> (&str, &str, [usize; 4], &[String]) {
        (&self.dtype, &self.accuracy, [self.m, self.n, self.k, self.batch], &self.layouts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAPS: Caps = Caps::Gpu(GpuDescription::H200);

    fn key() -> TuningKey {
        let (gpu, driver, tegula) = ("NVIDIA H200".into(), "580.159".into(), "1.2.3".into());
        TuningKey { gpu, compute: (9, 0), multiprocessors: 132, driver, tegula }
    }

    fn problem(ty: Type, [m, n, k]: [usize; 3]) -> Problem {
        let layout = |order, aligned_16| OperandLayout::new(order, aligned_16);
        let layouts =
            [layout(Order2d::RowMajor, true), layout(Order2d::ColMajor, false), layout(Order2d::RowMajor, false)];
        Problem { ty, accuracy: Accuracy::Full, m, n, k, batches: 1, layouts }
    }

    fn entry(recipe: impl Into<String>) -> TunedEntry {
        TunedEntry { recipe: recipe.into(), microseconds: 12.5 }
    }

    /// A legal recipe other than the model's choice, and that choice.
    fn another(problem: &Problem) -> (Recipe, Plan) {
        let modeled = choose(problem, &CAPS).unwrap();
        let others = legal(problem, &CAPS).into_iter().map(|candidate| candidate.recipe);
        (others.rev().find(|recipe| Plan::Gpu(*recipe) != modeled).unwrap(), modeled)
    }

    fn two() -> TuningTable {
        let mut tuned = TuningTable::default();
        tuned.insert(problem(Type::F64, [512, 300, 64]), entry("b"));
        tuned.insert(problem(Type::F32, [512, 300, 64]), entry("a"));
        tuned
    }

    #[test]
    fn tuning_table_text_round_trips_and_is_deterministic() {
        let some = |m: usize| (problem(Type::F32, [m, 300, 64]), entry(m.to_string()));
        let filled = |rows: &mut dyn Iterator<Item = usize>| {
            let mut tuned = two();
            rows.map(some).for_each(|(problem, entry)| tuned.insert(problem, entry));
            tuned
        };
        let (tuned, reversed) = (filled(&mut (1..100)), filled(&mut (1..100).rev()));
        assert_eq!(tuned.text(&key()), reversed.text(&key()));
        let read = TuningTable::parse(&tuned.text(&key()), &key()).unwrap();
        assert_eq!((read.len(), &read.entries), (101, &tuned.entries));
        assert!(tuned.text(&key()).contains("[\"row16\", \"col\", \"row\"]"), "{}", two().text(&key()));
        assert!(TuningTable::parse(&TuningTable::default().text(&key()), &key()).unwrap().is_empty());
    }

    #[test]
    fn tuning_table_keeps_the_calibrated_properties() {
        let measured = Calibrated { memory_bandwidth: 2_100_000, clock: 1600, power_limited_gflops: 700_000 };
        let mut tuned = two();
        tuned.set_calibrated(measured);
        let text = tuned.text(&key());
        let read = TuningTable::parse(&text, &key()).unwrap();
        assert_eq!((read.calibrated(), read.len(), read.text(&key())), (Some(measured), 2, text.clone()));
        let described = read.describe(GpuDescription::H100);
        assert_eq!(two().describe(GpuDescription::H100), GpuDescription::H100);
        assert_eq!((Calibrated::of(&described), described.l2_bytes), (measured, GpuDescription::H100.l2_bytes));
        assert_eq!(TuningTable::parse(&two().text(&key()), &key()).unwrap().calibrated(), None);
        for (from, to) in [("1600", "0"), ("1600", "-1"), ("1600", "5e9"), ("\"clock\"", "\"c\""), ("1600", "\"x\"")] {
            let why = TuningTable::parse(&text.replace(from, to), &key()).unwrap_err();
            assert!(matches!(why, TuningTableError::Corrupt(_)), "{why}");
        }
    }

    #[test]
    fn tuning_table_with_an_earlier_kernel_name_is_read() {
        let mut old = TuningTable::default();
        old.insert(problem(Type::F16, [512; 3]), entry("hopper_f16_128x256x64_2_4_1_rcr_v110"));
        let read = TuningTable::parse(&old.text(&key()), &key()).unwrap();
        let names: Vec<&str> = read.entries.values().map(|entry| entry.recipe.as_str()).collect();
        assert_eq!(names, ["hopper_f16_128x256x64_consumers2_stages4_rcr_v110"]);
    }

    #[test]
    fn tuning_table_with_another_key_is_stale() {
        let text = two().text(&key());
        for other in [
            TuningKey { gpu: "NVIDIA H100".into(), ..key() },
            TuningKey { compute: (8, 0), ..key() },
            TuningKey { multiprocessors: 114, ..key() },
            TuningKey { driver: "570.1".into(), ..key() },
            TuningKey { tegula: "1.2.4".into(), ..key() },
        ] {
            let why = TuningTable::parse(&text, &other).unwrap_err();
            assert_eq!(why, TuningTableError::Stale(key()));
            let of =
                "is stale: it was measured on NVIDIA H200 (9.0, 132 multiprocessors), driver 580.159, Tegula 1.2.3";
            assert_eq!(why.to_string(), of);
        }
        // Any text of another version is stale rather than corrupt.
        let later = text.replace("1.2.3", "9.0.0").replace("\"dtype\"", "\"type\"");
        assert!(matches!(TuningTable::parse(&later, &key()), Err(TuningTableError::Stale(_))));
    }

    #[test]
    fn tuning_table_invalid_text_is_corrupt() {
        let text = two().text(&key());
        let cut = (0..text.len() - 2).step_by(7).map(|end| text[..end].to_owned());
        let wrong = [
            ("\"f64\"", "\"f63\""),
            ("row16", "row17"),
            ("\"m\": 512", "\"m\": -1"),
            ("\"m\"", "\"q\""),
            ("12.5", "null"),
            ("12.5", "1e999"),
            ("\"winners\"", "\"losers\""),
            ("\"us\": 12.5", "\"us\": true"),
            ("\"m\": 512", "\"m\": 1e300"),
            ("\"m\": 512", "\"m\": 512, \"groups\": 2"),
            ("132", "132.5"),
            ("\"row\"]", "\"row\", \"row\"]"),
        ];
        let changed = wrong.into_iter().map(|(from, to)| text.replacen(from, to, 1));
        let nested = ["[", "{\"key\":", "[\"]\",", "[\"\\\"]\","].map(|text| text.repeat(1 << 20));
        for text in cut.chain(changed).chain(nested) {
            assert!(matches!(TuningTable::parse(&text, &key()), Err(TuningTableError::Corrupt(_))), "{text}");
        }
    }

    #[test]
    fn tuning_table_merge_replaces_entries() {
        let mut tuned = two();
        let mut newer = TuningTable::default();
        newer.insert(problem(Type::F64, [512, 300, 64]), entry("c"));
        newer.insert(problem(Type::F64, [1, 2, 3]), entry("d"));
        tuned.merge(&newer);
        assert_eq!(tuned.len(), 3);
        assert_eq!(tuned.entries[&problem(Type::F64, [512, 300, 64])], entry("c"));
        assert_eq!(tuned.entries[&problem(Type::F32, [512, 300, 64])], entry("a"));
    }

    #[test]
    fn tuning_table_entry_precedes_the_cost_model() {
        for problem in [
            problem(Type::F32, [512, 512, 4096]),
            problem(Type::F64, [1000, 1001, 1003]),
            problem(Type::I32, [4096, 7, 500]),
            problem(Type::F16, [64, 64, 4096]),
        ] {
            let (other, modeled) = another(&problem);
            let mut tuned = TuningTable::default();
            assert_eq!(tuned.choose(&problem, &CAPS).unwrap(), modeled);
            tuned.insert(problem, entry(other.name()));
            assert_eq!(tuned.choose(&problem, &CAPS).unwrap(), Plan::Gpu(other), "{problem:?}");
            // A problem that differs in any field is another one.
            for next in [
                Problem { m: problem.m + 1, ..problem },
                Problem { batches: 2, ..problem },
                Problem { layouts: problem.layouts.map(OperandLayout::transposed), ..problem },
            ] {
                assert_eq!(tuned.choose(&next, &CAPS).unwrap(), choose(&next, &CAPS).unwrap());
            }
        }
    }

    #[test]
    fn tuning_table_unknown_or_illegal_entry_is_ignored() {
        let (one, skinny) = (problem(Type::F32, [512, 512, 4096]), problem(Type::F32, [4, 512, 4096]));
        let elsewhere = choose(&skinny, &CAPS).unwrap();
        let Plan::Gpu(elsewhere) = elsewhere else { panic!("a GPU runs kernels") };
        for name in ["", "cutlass", "tiled_f32_32", &elsewhere.name(), &"x".repeat(1 << 16)] {
            let mut tuned = TuningTable::default();
            tuned.insert(one, entry(name));
            assert_eq!(tuned.choose(&one, &CAPS).unwrap(), choose(&one, &CAPS).unwrap(), "{name}");
        }
        let mut tuned = TuningTable::default();
        let (other, _) = another(&one);
        tuned.insert(one, entry(other.name()));
        // A GPU without asynchronous copies, an unsupported GPU, and other devices.
        for caps in [
            Caps::Gpu(GpuDescription { compute: (7, 5), multiprocessors: 40, ..GpuDescription::H200 }),
            Caps::Cpu,
            Caps::Interp,
        ] {
            assert_eq!(tuned.choose(&one, &caps).unwrap(), choose(&one, &caps).unwrap());
        }
        assert!(
            tuned
                .choose(
                    &one,
                    &Caps::Gpu(GpuDescription { compute: (6, 1), multiprocessors: 20, ..GpuDescription::H200 })
                )
                .is_err()
        );
    }

    #[test]
    fn cached_plans_do_not_hide_a_new_table() {
        let problem = problem(Type::F32, [300, 300, 300]);
        let (other, modeled) = another(&problem);
        let mut tuned = TuningTable::default();
        let chosen = |tuned: &TuningTable| crate::plan::choose_cached(&problem, &CAPS, tuned, false).unwrap();
        assert_eq!([chosen(&tuned), chosen(&tuned)], [modeled; 2]);
        tuned.insert(problem, entry(other.name()));
        assert_eq!([chosen(&tuned), chosen(&tuned)], [Plan::Gpu(other); 2]);
        tuned.insert(problem, entry("gone"));
        assert_eq!([chosen(&tuned), chosen(&UNTUNED)], [modeled; 2]);
    }
}
