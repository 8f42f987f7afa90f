//! Tuned entries in memory that grow as problems are measured.

use std::sync::{PoisonError, RwLock, RwLockReadGuard};

use rustc_hash::FxHashSet;
use tegula_kernels::plan::{Problem, TunedEntry, TuningTable};

/// Tuned entries of a GPU that threads read and extend.
#[derive(Debug)]
pub(crate) struct MeasuredEntries(RwLock<Entries>);

/// Tuned entries, and the problems whose search failed.
#[derive(Debug)]
pub(crate) struct Entries {
    table: TuningTable,
    failed: FxHashSet<Problem>,
}

impl MeasuredEntries {
    /// Begins with the entries of a table.
    pub fn new(table: TuningTable) -> Self {
        MeasuredEntries(RwLock::new(Entries { table, failed: FxHashSet::default() }))
    }

    /// The entries as they are now.
    pub fn read(&self) -> RwLockReadGuard<'_, Entries> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the result of a search: the entry, or `None` where it failed.
    pub fn record(&self, problem: Problem, entry: Option<TunedEntry>) {
        let mut entries = self.0.write().unwrap_or_else(PoisonError::into_inner);
        match entry {
            Some(entry) => entries.table.insert(problem, entry),
            None => _ = entries.failed.insert(problem),
        }
    }
}

impl Entries {
    /// The tuned entries.
    pub fn table(&self) -> &TuningTable {
        &self.table
    }

    /// Whether the problem has an entry, or a search failed.
    pub fn is_settled(&self, problem: &Problem) -> bool {
        self.table.contains(problem) || self.failed.contains(problem)
    }
}

#[cfg(test)]
mod tests {
    use tegula_kernels::plan::{Caps, GpuDescription, Plan, choose_cached, legal};

    use super::*;
    use crate::element::Type;

    #[test]
    fn recorded_entry_is_chosen_and_a_failed_search_changes_nothing() {
        let caps = Caps::Gpu(GpuDescription::H200);
        let problem = |m| Problem {
            ty: Type::F32,
            accuracy: Default::default(),
            m,
            n: 300,
            k: 400,
            batches: 1,
            layouts: Default::default(),
        };
        let entries = MeasuredEntries::new(TuningTable::default());
        let plan = |m| choose_cached(&problem(m), &caps, entries.read().table(), false).unwrap();
        let before = [plan(200), plan(210)];
        let all = legal(&problem(200), &caps).into_iter().map(|candidate| candidate.recipe);
        let other = all.rev().find(|recipe| Plan::Gpu(*recipe) != before[0]).unwrap();
        entries.record(problem(200), Some(TunedEntry { recipe: other.name(), microseconds: 1.0 }));
        entries.record(problem(210), None);
        assert_eq!([plan(200), plan(210)], [Plan::Gpu(other), before[1]]);
        let settled = [200, 210, 220].map(|m| entries.read().is_settled(&problem(m)));
        assert_eq!(settled, [true, true, false]);
    }
}
