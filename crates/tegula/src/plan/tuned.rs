//! Winners that `tegula tune` has measured: a table that comes before the cost model, as data and as text.
//!
//! It knows no files: where the text lies, and what is done about one that is of no use, is `cache`'s business. A winner is a name among
//! the [legal] recipes; one that has become unknown or illegal is as good as none. What happens to sums on their way to C is no part of a problem:
//! it comes after all the multiplying, the same for every kernel, so one winner serves every bias and activation.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use rustc_hash::{FxBuildHasher, FxHashMap};
use serde::{Deserialize, Serialize};

use super::{Caps, Lie, Plan, Problem, Recipe, choose, legal};
use crate::element::{Accuracy, Type};
use crate::error::Result;
use crate::ir::Order2d;

/// What measured times hold for: another GPU, driver or Tegula has other winners.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
        let corrupt = |error: serde_json::Error| Unusable::Corrupt(error.to_string());
        // The key first: what else another version writes is not known.
        let Header { key: found } = serde_json::from_str(text).map_err(corrupt)?;
        if found != *key {
            return Err(Unusable::Stale(found));
        }
        let File { winners, .. } = serde_json::from_str(text).map_err(corrupt)?;
        let mut tuned = Tuned::default();
        for (number, row) in winners.into_iter().enumerate() {
            let (problem, winner) =
                row.read().map_err(|why| Unusable::Corrupt(format!("winner {}: {why}", number + 1)))?;
            tuned.insert(problem, winner);
        }
        Ok(tuned)
    }

    /// The table as a text: the same one for the same winners.
    pub fn text(&self, key: &Key) -> String {
        let mut winners: Vec<Row> = self.winners.iter().map(|(problem, winner)| Row::of(problem, winner)).collect();
        winners.sort_by(|a, b| a.place().cmp(&b.place()));
        // No map has keys that are no strings, and nothing else can fail in memory.
        let text = serde_json::to_string_pretty(&File { key: key.clone(), winners });
        text.map(|text| text + "\n").unwrap_or_default()
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

/// What every version begins with.
#[derive(Deserialize)]
struct Header {
    key: Key,
}

/// The text.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    key: Key,
    winners: Vec<Row>,
}

/// A winner as it is written. A problem that comes to depend on more has more fields here.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
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

/// Types that products are made of.
const TYPES: [Type; 6] = [Type::F64, Type::F32, Type::F16, Type::BF16, Type::I32, Type::I8];
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

    fn read(self) -> Result<(Problem, Winner), String> {
        let Row { dtype, accuracy, m, n, k, batch: batches, lies, recipe, us: microseconds } = self;
        let ty = TYPES.into_iter().find(|ty| ty.name() == dtype).ok_or_else(|| format!("no type {dtype:?}"))?;
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
        assert!(
            tuned.text(&key()).contains("\"row16\",\n        \"col\",\n        \"row\"\n"),
            "{}",
            two().text(&key())
        );
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
        ];
        let changed = wrong.into_iter().map(|(from, to)| text.replacen(from, to, 1));
        for text in cut.chain(changed) {
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
