//! Covering arrays: few configurations that together contain every pair of values of two
//! parameters.
//!
//! Most faults depend on one parameter or two (Kuhn, Wallace and Gallo, "Software Fault
//! Interactions and Implications for Software Testing", 2004). Rows are chosen greedily from random
//! candidates, as in Cohen et al., "The AETG System" (1997).

use std::collections::{BTreeMap, BTreeSet};

use crate::product::Random;

/// Index of each parameter's value.
pub type Row = Vec<usize>;

/// Number of valid candidate rows per choice.
const CANDIDATES: usize = 40;
/// Maximum number of random rows tried for a pair. If none is valid, the pair counts as impossible.
const MAX_TRIES: usize = 5000;

/// Returns valid rows that contain every pair of values, except pairs without a valid row. Prefers
/// cheap rows.
///
/// `levels` are the numbers of values of the parameters.
///
/// # Panics
/// Panics if a value is in no valid row.
pub fn pairs(levels: &[usize], valid: impl Fn(&[usize]) -> bool, cost: impl Fn(&[usize]) -> u64) -> Vec<Row> {
    let random = &mut Random(1);
    let values = (0..levels.len()).flat_map(|i| (0..levels[i]).map(move |value| (i, value)));
    let mut missing: BTreeSet<Pair> =
        values.clone().flat_map(|a| values.clone().filter(move |b| a.0 < b.0).map(move |b| [a, b])).collect();
    let mut rows: Vec<Row> = Vec::new();
    while let Some(pair) = missing.pop_first() {
        let with_pair = (0..MAX_TRIES).map(|_| random_row(levels, pair, random)).filter(|row| valid(row));
        let new_pairs = |row: &Row| 1 + pairs_of(row).filter(|pair| missing.contains(pair)).count() as u64;
        let rated = with_pair.take(CANDIDATES).map(|row| (new_pairs(&row), cost(&row), row));
        let best = rated.max_by(|(new_pairs, cost, _), (more, price, _)| (new_pairs * price).cmp(&(more * cost)));
        let Some((.., row)) = best else { continue };
        missing = &missing - &pairs_of(&row).collect();
        rows.push(row);
    }
    for (i, value) in values {
        assert!(rows.iter().any(|row| row[i] == value), "value {value} of parameter {i} is in no valid row");
    }
    rows
}

/// Returns the rows with a value that fewer than `times` earlier rows have.
///
/// Every value that is in `times` rows is in `times` rows of the result.
pub fn each_value(rows: Vec<Row>, times: usize) -> Vec<Row> {
    let mut seen = BTreeMap::new();
    let has_rare_value = |row: &Row| {
        let mut is_rare = false;
        for value in row.iter().copied().enumerate() {
            let count = seen.entry(value).or_insert(0);
            *count += 1;
            is_rare |= *count <= times;
        }
        is_rare
    };
    rows.into_iter().filter(has_rare_value).collect()
}

/// A value of a parameter, and one of a later parameter.
type Pair = [(usize, usize); 2];

fn pairs_of(row: &[usize]) -> impl Iterator<Item = Pair> {
    let with_later = move |i| (i + 1..row.len()).map(move |j| [(i, row[i]), (j, row[j])]);
    (0..row.len()).flat_map(with_later)
}

fn random_row(levels: &[usize], pair: Pair, random: &mut Random) -> Row {
    let mut row: Row = levels.iter().map(|level| random.below(*level)).collect();
    pair.into_iter().for_each(|(i, value)| row[i] = value);
    row
}

#[test]
fn pairs_holds_every_pair_of_valid_rows() {
    let levels = [3, 4, 2, 5, 2];
    let valid = |row: &[usize]| row[0] + row[1] != 3 && (row[2] == 0 || row[3] < 4);
    let rows = pairs(&levels, valid, |_| 1);
    assert!(rows.iter().all(|row| valid(row)));
    let mut all = BTreeSet::new();
    for number in 0..levels.iter().product() {
        let mut rest = number;
        let row: Row = levels.iter().map(|level| (rest % level, rest /= level).0).collect();
        all.extend(pairs_of(&row).filter(|_| valid(&row)).collect::<Vec<_>>());
    }
    let covered: BTreeSet<Pair> = rows.iter().flat_map(|row| pairs_of(row).collect::<Vec<_>>()).collect();
    assert_eq!(covered, all);
    assert!((20..28).contains(&rows.len()), "{} rows", rows.len());
}

#[test]
fn each_value_is_in_as_many_rows() {
    let rows = pairs(&[3, 4, 2, 5], |_| true, |_| 1);
    let selected = each_value(rows.clone(), 2);
    assert!(selected.len() < rows.len(), "{} of {} rows", selected.len(), rows.len());
    for (i, levels) in [3, 4, 2, 5].into_iter().enumerate() {
        for value in 0..levels {
            assert!(selected.iter().filter(|row| row[i] == value).count() >= 2, "value {value} of parameter {i}");
        }
    }
}
