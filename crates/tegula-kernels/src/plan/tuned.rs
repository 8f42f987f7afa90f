//! Winners that `tegula tune` has measured: a table that comes before the cost model, as data and as text.
//!
//! It knows no files: where the text lies, and what is done about one that is of no use, is `cache`'s business. A winner is a name among
//! the [legal] recipes; one that has become unknown or illegal is as good as none. What happens to sums on their way to C is no part of a problem:
//! it comes after all the multiplying, the same for every kernel, so one winner serves every bias and activation.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use rustc_hash::{FxBuildHasher, FxHashMap};
use tegula_core::element::{Accuracy, Type};
use tegula_core::error::Result;
use tegula_ir::Order2d;
use tinyjson::JsonValue;

use super::choose::{Plan, choose};
use super::device::Caps;
use super::fit::Recipe;
use super::legal::legal;
use super::problem::{Lie, Problem};

/// What measured times hold for: another GPU, driver or Tegula has other winners.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    /// The GPU's name.
    pub gpu: String,
    /// Its compute capability, major and minor.
    pub compute: (u32, u32),
    /// Its multiprocessors.
    pub multiprocessors: u32,
    /// The driver's version.
    pub driver: String,
    /// Tegula's version.
    pub tegula: String,
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Key { gpu, compute: (major, minor), multiprocessors, driver, tegula } = self;
        write!(f, "{gpu} ({major}.{minor}, {multiprocessors} multiprocessors), driver {driver}, Tegula {tegula}")
    }
}

/// Why a text is of no use. [`Display`](fmt::Display) gives what follows the name of the file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unusable {
    /// Its winners are of another GPU, driver or version, which is named.
    #[error("is stale: it is of {0}")]
    Stale(Key),
    /// It is no table of winners, for the reason that is given.
    #[error("is corrupt: {0}")]
    Corrupt(String),
    /// It could not be read, for the reason that is given.
    #[error("cannot be read: {0}")]
    Unreadable(String),
}

/// The fastest recipe for a problem, as it was measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Winner {
    /// Its [name](Recipe::name).
    pub recipe: String,
    /// Microseconds that it took.
    pub microseconds: f64,
}

/// Winners, by problem.
#[derive(Clone, Debug)]
pub struct Tuned {
    winners: FxHashMap<Problem, Winner>,
    /// A number that tables with other winners do not have, by which choices that were remembered know theirs; 0 without winners.
    id: u64,
}

/// The table without winners: the cost model decides.
pub static UNTUNED: Tuned = Tuned { winners: FxHashMap::with_hasher(FxBuildHasher), id: 0 };

impl Default for Tuned {
    fn default() -> Self {
        UNTUNED.clone()
    }
}

impl Tuned {
    /// Reads what [`text`](Self::text) makes.
    ///
    /// # Errors
    /// [`Unusable`], where it is no such text or was made for another key.
    pub fn parse(text: &str, key: &Key) -> Result<Self, Unusable> {
        let corrupt = Unusable::Corrupt;
        if depth(text) > MOST_NESTED {
            return Err(corrupt(format!("its brackets nest deeper than {MOST_NESTED}")));
        }
        let file: JsonValue = text.parse().map_err(|error: tinyjson::JsonParseError| corrupt(error.to_string()))?;
        let file = Object(&file);
        // The key first: what else another version writes is not known.
        let found = file.object("key").and_then(read_key).map_err(corrupt)?;
        if found != *key {
            return Err(Unusable::Stale(found));
        }
        file.has_fields(2).map_err(corrupt)?;
        let mut tuned = Tuned::default();
        for (number, row) in file.array("winners").map_err(corrupt)?.iter().enumerate() {
            let row = Row::parse(Object(row)).and_then(Row::read);
            let (problem, winner) = row.map_err(|why| corrupt(format!("winner {}: {why}", number + 1)))?;
            tuned.insert(problem, winner);
        }
        Ok(tuned)
    }

    /// The table as a text: the same one for the same winners.
    pub fn text(&self, key: &Key) -> String {
        let mut winners: Vec<Row> = self.winners.iter().map(|(problem, winner)| Row::of(problem, winner)).collect();
        winners.sort_by(|a, b| a.place().cmp(&b.place()));
        let rows: Vec<String> = winners.iter().map(Row::text).collect();
        format!("{{\n\"key\": {},\n\"winners\": [\n{}\n]\n}}\n", key_text(key), rows.join(",\n"))
    }

    /// Puts a winner in the place of the one that was there.
    pub fn insert(&mut self, problem: Problem, winner: Winner) {
        static TABLES: AtomicU64 = AtomicU64::new(1);
        self.id = TABLES.fetch_add(1, Ordering::Relaxed);
        self.winners.insert(problem, winner);
    }

    /// Puts all winners of `other` in the place of those that were there.
    pub fn merge(&mut self, other: &Tuned) {
        other.winners.iter().for_each(|(problem, winner)| self.insert(*problem, winner.clone()));
    }

    /// How many winners there are.
    pub fn len(&self) -> usize {
        self.winners.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.winners.is_empty()
    }

    /// The winner, where there is one that may still make the product.
    pub fn winner(&self, problem: &Problem, caps: &Caps) -> Option<Recipe> {
        let Winner { recipe: name, .. } = self.winners.get(problem)?;
        legal(problem, caps).into_iter().map(|candidate| candidate.recipe).find(|recipe| recipe.name() == *name)
    }

    /// Chooses: the winner where there is one, else by the cost model.
    ///
    /// # Errors
    /// As [`choose`](super::choose()).
    pub fn choose(&self, problem: &Problem, caps: &Caps) -> Result<Plan> {
        self.winner(problem, caps).map_or_else(|| choose(problem, caps), |recipe| Ok(Plan::Gpu(recipe)))
    }

    /// Tells this table's choices from those of others.
    pub(super) fn id(&self) -> u64 {
        self.id
    }
}

/// How deep the brackets of a text nest at most: the parser takes a frame of the stack for each.
const MOST_NESTED: usize = 64;

/// How deep brackets nest outside strings.
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

/// A JSON value that should be an object with fields of known types.
struct Object<'j>(&'j JsonValue);

impl<'j> Object<'j> {
    fn get<T: tinyjson::InnerAsRef>(&self, name: &str) -> Result<&'j T, String> {
        let field = self.0.get::<HashMap<String, JsonValue>>().and_then(|fields| fields.get(name));
        field.and_then(JsonValue::get).ok_or_else(|| format!("{name:?} is missing or of another type"))
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

    /// Refuses fields besides so many: a later version may mean another problem by them.
    fn has_fields(&self, count: usize) -> Result<(), String> {
        let fields = self.0.get::<HashMap<String, JsonValue>>().map_or(0, HashMap::len);
        if fields == count { Ok(()) } else { Err(format!("{fields} fields where {count} are known")) }
    }

    /// A whole number that a float holds exactly.
    fn whole(&self, name: &str) -> Result<usize, String> {
        let number = self.number(name)?;
        let exact = number.fract() == 0.0 && (0.0..=MOST_EXACT).contains(&number);
        if exact { Ok(number as usize) } else { Err(format!("{name:?} is {number}; it takes a whole number")) }
    }
}

/// 2⁵³.
const MOST_EXACT: f64 = 9_007_199_254_740_992.0;

fn read_key(key: Object<'_>) -> Result<Key, String> {
    let number = |value: f64| match value.fract() == 0.0 && (0.0..=f64::from(u32::MAX)).contains(&value) {
        true => Ok(value as u32),
        false => Err(format!("{value} in the key is no whole number of 32 bits")),
    };
    let pair = || "\"compute\" takes two numbers".to_string();
    let compute = key.array("compute")?.iter().map(|value| value.get::<f64>().copied());
    let compute: Option<Vec<f64>> = compute.collect();
    let [major, minor]: [f64; 2] = compute.and_then(|pair| pair.try_into().ok()).ok_or_else(pair)?;
    Ok(Key {
        gpu: key.text("gpu")?,
        compute: (number(major)?, number(minor)?),
        multiprocessors: number(key.number("multiprocessors")?)?,
        driver: key.text("driver")?,
        tegula: key.text("tegula")?,
    })
}

/// A text as a JSON string.
fn quoted(text: &str) -> String {
    JsonValue::String(text.into()).stringify().unwrap_or_default()
}

fn key_text(Key { gpu, compute: (major, minor), multiprocessors, driver, tegula }: &Key) -> String {
    let [gpu, driver, tegula] = [gpu, driver, tegula].map(|text| quoted(text));
    format!(
        "{{\"gpu\": {gpu}, \"compute\": [{major}, {minor}], \"multiprocessors\": {multiprocessors}, \
         \"driver\": {driver}, \"tegula\": {tegula}}}"
    )
}

/// A winner as it is written. A problem that comes to depend on more has more fields here.
struct Row {
    dtype: String,
    accuracy: String,
    m: usize,
    n: usize,
    k: usize,
    batch: usize,
    /// Of A, B and C: `row`, `col` or `strided`, `16` where 16 bytes may be read at once, and `back` where the copy engine cannot.
    lies: [String; 3],
    recipe: String,
    us: f64,
}

const ACCURACIES: [Accuracy; 2] = [Accuracy::Full, Accuracy::Tf32];
const LIES: [(&str, Lie); 7] = [
    ("row", Lie::new(Order2d::RowMajor, false)),
    ("row16", Lie::new(Order2d::RowMajor, true)),
    ("col", Lie::new(Order2d::ColMajor, false)),
    ("col16", Lie::new(Order2d::ColMajor, true)),
    ("strided", Lie::new(Order2d::Strided, false)),
    ("row16back", Lie { forwards: false, ..Lie::new(Order2d::RowMajor, true) }),
    ("col16back", Lie { forwards: false, ..Lie::new(Order2d::ColMajor, true) }),
];

impl Row {
    fn of(problem: &Problem, winner: &Winner) -> Row {
        let Problem { ty, accuracy, m, n, k, batches: batch, lies } = *problem;
        let name = |lie: Lie| LIES.iter().find(|(_, known)| *known == lie).map_or("strided", |(name, _)| *name).into();
        let Winner { recipe, microseconds: us } = winner.clone();
        let (dtype, accuracy) = (ty.name().into(), accuracy.name().into());
        Row { dtype, accuracy, m, n, k, batch, lies: lies.map(name), recipe, us }
    }

    fn parse(row: Object<'_>) -> Result<Row, String> {
        row.has_fields(9)?;
        let names = row.array("lies")?.iter().map(|lie| lie.get::<String>().cloned());
        let lies: Option<Vec<String>> = names.collect();
        let lies = lies.and_then(|lies| lies.try_into().ok()).ok_or("\"lies\" takes three names")?;
        Ok(Row {
            dtype: row.text("dtype")?,
            accuracy: row.text("accuracy")?,
            m: row.whole("m")?,
            n: row.whole("n")?,
            k: row.whole("k")?,
            batch: row.whole("batch")?,
            lies,
            recipe: row.text("recipe")?,
            us: row.number("us")?,
        })
    }

    fn text(&self) -> String {
        let Row { m, n, k, batch, us, .. } = self;
        let [dtype, accuracy, recipe] = [&self.dtype, &self.accuracy, &self.recipe].map(|text| quoted(text));
        let [a, b, c] = self.lies.each_ref().map(|text| quoted(text));
        format!(
            "{{\"dtype\": {dtype}, \"accuracy\": {accuracy}, \"m\": {m}, \"n\": {n}, \"k\": {k}, \"batch\": {batch}, \
             \"lies\": [{a}, {b}, {c}], \"recipe\": {recipe}, \"us\": {us}}}"
        )
    }

    fn read(self) -> Result<(Problem, Winner), String> {
        let Row { dtype, accuracy, m, n, k, batch: batches, lies, recipe, us: microseconds } = self;
        let ty = Type::operand_named(&dtype).ok_or_else(|| format!("no type {dtype:?}"))?;
        let mode = ACCURACIES.into_iter().find(|one| one.name() == accuracy);
        let accuracy = mode.ok_or_else(|| format!("no accuracy {accuracy:?}"))?;
        let mut known = [Lie::default(); 3];
        for (known, name) in known.iter_mut().zip(&lies) {
            let found = LIES.iter().find(|(lie, _)| lie == name);
            *known = found.ok_or_else(|| format!("no matrix lies {name:?}"))?.1;
        }
        Ok((Problem { ty, accuracy, m, n, k, batches, lies: known }, Winner { recipe, microseconds }))
    }

    /// Where it stands among the others.
    fn place(&self) -> (&str, &str, [usize; 4], &[String]) {
        (&self.dtype, &self.accuracy, [self.m, self.n, self.k, self.batch], &self.lies)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAPS: Caps = Caps::Gpu { compute: (9, 0), multiprocessors: 132 };

    fn key() -> Key {
        let (gpu, driver, tegula) = ("NVIDIA H200".into(), "580.159".into(), "1.2.3".into());
        Key { gpu, compute: (9, 0), multiprocessors: 132, driver, tegula }
    }

    fn problem(ty: Type, [m, n, k]: [usize; 3]) -> Problem {
        let lie = |order, vectors| Lie::new(order, vectors);
        let lies = [lie(Order2d::RowMajor, true), lie(Order2d::ColMajor, false), lie(Order2d::RowMajor, false)];
        Problem { ty, accuracy: Accuracy::Full, m, n, k, batches: 1, lies }
    }

    fn winner(recipe: impl Into<String>) -> Winner {
        Winner { recipe: recipe.into(), microseconds: 12.5 }
    }

    /// A legal recipe that is not the model's choice, and that choice.
    fn another(problem: &Problem) -> (Recipe, Plan) {
        let modelled = choose(problem, &CAPS).unwrap();
        let others = legal(problem, &CAPS).into_iter().map(|candidate| candidate.recipe);
        (others.rev().find(|recipe| Plan::Gpu(*recipe) != modelled).unwrap(), modelled)
    }

    fn two() -> Tuned {
        let mut tuned = Tuned::default();
        tuned.insert(problem(Type::F64, [512, 300, 64]), winner("b"));
        tuned.insert(problem(Type::F32, [512, 300, 64]), winner("a"));
        tuned
    }

    #[test]
    fn a_text_reads_back_and_is_the_same_for_the_same_winners() {
        let some = |m: usize| (problem(Type::F32, [m, 300, 64]), winner(m.to_string()));
        let filled = |rows: &mut dyn Iterator<Item = usize>| {
            let mut tuned = two();
            rows.map(some).for_each(|(problem, winner)| tuned.insert(problem, winner));
            tuned
        };
        let (tuned, turned) = (filled(&mut (1..100)), filled(&mut (1..100).rev()));
        assert_eq!(tuned.text(&key()), turned.text(&key()));
        let read = Tuned::parse(&tuned.text(&key()), &key()).unwrap();
        assert_eq!((read.len(), &read.winners), (101, &tuned.winners));
        assert!(tuned.text(&key()).contains("[\"row16\", \"col\", \"row\"]"), "{}", two().text(&key()));
        assert!(Tuned::parse(&Tuned::default().text(&key()), &key()).unwrap().is_empty());
    }

    #[test]
    fn a_key_that_differs_in_anything_is_stale() {
        let text = two().text(&key());
        for other in [
            Key { gpu: "NVIDIA H100".into(), ..key() },
            Key { compute: (8, 0), ..key() },
            Key { multiprocessors: 114, ..key() },
            Key { driver: "570.1".into(), ..key() },
            Key { tegula: "1.2.4".into(), ..key() },
        ] {
            let why = Tuned::parse(&text, &other).unwrap_err();
            assert_eq!(why, Unusable::Stale(key()));
            let of = "is stale: it is of NVIDIA H200 (9.0, 132 multiprocessors), driver 580.159, Tegula 1.2.3";
            assert_eq!(why.to_string(), of);
        }
        // Whatever another version writes, it is stale rather than corrupt.
        let later = text.replace("1.2.3", "9.0.0").replace("\"dtype\"", "\"type\"");
        assert!(matches!(Tuned::parse(&later, &key()), Err(Unusable::Stale(_))));
    }

    #[test]
    fn what_is_no_table_is_corrupt() {
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
        let deep = ["[", "{\"key\":", "[\"]\",", "[\"\\\"]\","].map(|text| text.repeat(1 << 20));
        for text in cut.chain(changed).chain(deep) {
            assert!(matches!(Tuned::parse(&text, &key()), Err(Unusable::Corrupt(_))), "{text}");
        }
    }

    #[test]
    fn what_is_merged_replaces_what_was_there() {
        let mut tuned = two();
        let mut newer = Tuned::default();
        newer.insert(problem(Type::F64, [512, 300, 64]), winner("c"));
        newer.insert(problem(Type::F64, [1, 2, 3]), winner("d"));
        tuned.merge(&newer);
        assert_eq!(tuned.len(), 3);
        assert_eq!(tuned.winners[&problem(Type::F64, [512, 300, 64])], winner("c"));
        assert_eq!(tuned.winners[&problem(Type::F32, [512, 300, 64])], winner("a"));
    }

    #[test]
    fn a_winner_comes_before_the_cost_model() {
        for problem in [
            problem(Type::F32, [512, 512, 4096]),
            problem(Type::F64, [1000, 1001, 1003]),
            problem(Type::I32, [4096, 7, 500]),
            problem(Type::F16, [64, 64, 4096]),
        ] {
            let (other, modelled) = another(&problem);
            let mut tuned = Tuned::default();
            assert_eq!(tuned.choose(&problem, &CAPS).unwrap(), modelled);
            tuned.insert(problem, winner(other.name()));
            assert_eq!(tuned.choose(&problem, &CAPS).unwrap(), Plan::Gpu(other), "{problem:?}");
            // What differs in anything is another problem.
            for next in [
                Problem { m: problem.m + 1, ..problem },
                Problem { batches: 2, ..problem },
                Problem { lies: problem.lies.map(Lie::transposed), ..problem },
            ] {
                assert_eq!(tuned.choose(&next, &CAPS).unwrap(), choose(&next, &CAPS).unwrap());
            }
        }
    }

    #[test]
    fn a_winner_that_is_unknown_or_illegal_is_as_good_as_none() {
        let (one, few) = (problem(Type::F32, [512, 512, 4096]), problem(Type::F32, [4, 512, 4096]));
        let elsewhere = choose(&few, &CAPS).unwrap();
        let Plan::Gpu(elsewhere) = elsewhere else { panic!("a GPU runs kernels") };
        for name in ["", "cutlass", "tiled_f32_32", &elsewhere.name(), &"x".repeat(1 << 16)] {
            let mut tuned = Tuned::default();
            tuned.insert(one, winner(name));
            assert_eq!(tuned.choose(&one, &CAPS).unwrap(), choose(&one, &CAPS).unwrap(), "{name}");
        }
        let mut tuned = Tuned::default();
        let (other, _) = another(&one);
        tuned.insert(one, winner(other.name()));
        // A GPU without asynchronous copies, one that is too old, and devices that are none.
        for caps in [Caps::Gpu { compute: (7, 5), multiprocessors: 40 }, Caps::Cpu, Caps::Interp] {
            assert_eq!(tuned.choose(&one, &caps).unwrap(), choose(&one, &caps).unwrap());
        }
        assert!(tuned.choose(&one, &Caps::Gpu { compute: (6, 1), multiprocessors: 20 }).is_err());
    }

    #[test]
    fn what_is_remembered_does_not_hide_a_new_table() {
        let problem = problem(Type::F32, [300, 300, 300]);
        let (other, modelled) = another(&problem);
        let mut tuned = Tuned::default();
        let chosen = |tuned: &Tuned| crate::plan::chosen(&problem, &CAPS, tuned).unwrap();
        assert_eq!([chosen(&tuned), chosen(&tuned)], [modelled; 2]);
        tuned.insert(problem, winner(other.name()));
        assert_eq!([chosen(&tuned), chosen(&tuned)], [Plan::Gpu(other); 2]);
        tuned.insert(problem, winner("gone"));
        assert_eq!([chosen(&tuned), chosen(&UNTUNED)], [modelled; 2]);
    }
}
