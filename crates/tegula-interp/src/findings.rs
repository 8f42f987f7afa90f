//! Collects findings, each source line once.

use std::collections::BTreeMap;

use tegula_core::diagnostic::{Finding, Kind};
use tegula_ir::Site;

/// What was found, and where: file, line, column and unrolled copy of each site.
type Key = (Kind, Vec<(&'static str, u32, u32, u32)>);

/// Findings by what and where, the one of the first block each: the same on every run, however blocks are spread over cores.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    found: BTreeMap<Key, (u64, Finding)>,
}

/// Findings of different lines that are kept; more say nothing new.
const MOST: usize = 256;

impl Findings {
    /// Notes a finding, and gives it back where it is the first of its kind at these lines; only then, or for an earlier block, `make`
    /// is called.
    pub fn add(&mut self, kind: Kind, sites: &[Site], block: u64, make: impl FnOnce() -> Finding) -> Option<&Finding> {
        let lines = sites
            .iter()
            .map(|s| (s.location.file(), s.location.line(), s.location.column(), note_iteration(kind, s)))
            .collect();
        let full = self.found.len() >= MOST;
        match self.found.entry((kind, lines)) {
            std::collections::btree_map::Entry::Occupied(mut entry) => {
                let (first, finding) = entry.get_mut();
                finding.times += 1;
                if block < *first {
                    *first = block;
                    *finding = Finding { times: finding.times, ..make() };
                }
                None
            }
            std::collections::btree_map::Entry::Vacant(entry) if !full => Some(&entry.insert((block, make())).1),
            std::collections::btree_map::Entry::Vacant(_) => None,
        }
    }

    pub fn merge(mut self, other: Findings) -> Findings {
        for (key, (block, finding)) in other.found {
            match self.found.entry(key) {
                std::collections::btree_map::Entry::Occupied(mut entry) => {
                    let (first, mine) = entry.get_mut();
                    let times = mine.times + finding.times;
                    if block < *first {
                        (*first, *mine) = (block, finding);
                    }
                    mine.times = times;
                }
                std::collections::btree_map::Entry::Vacant(entry) => {
                    entry.insert((block, finding));
                }
            }
        }
        self
    }

    pub fn into_vec(self) -> Vec<Finding> {
        self.found.into_values().map(|(_, finding)| finding).collect()
    }
}

/// Errors in unrolled copies of one line are one finding; a barrier is redundant copy by copy.
fn note_iteration(kind: Kind, site: &Site) -> u32 {
    if kind == Kind::RedundantBarrier { site.iteration } else { 0 }
}
