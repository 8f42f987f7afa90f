//! Collects the findings of a launch, one for each kind and source line.

use std::collections::BTreeMap;

use tegula_core::diagnostic::{Finding, FindingKind};
use tegula_ir::Site;

/// Key of a finding: its kind, and the file, line, column and unrolled iteration of each site.
type Key = (FindingKind, Vec<(&'static str, u32, u32, u32)>);

/// Findings by kind and site, each from the lowest block.
///
/// They are the same on every run, however blocks are distributed over cores.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    found: BTreeMap<Key, (u64, Finding)>,
}

/// Maximum number of distinct findings.
const MAX_FINDINGS: usize = 256;

impl Findings {
    /// Adds a finding, and returns it if it is the first of its kind at these sites.
    ///
    /// `new_finding` is called only for the first, or for one of a lower block.
    pub fn add(
        &mut self,
        kind: FindingKind,
        sites: &[Site],
        block: u64,
        new_finding: impl FnOnce() -> Finding,
    ) -> Option<&Finding> {
        let lines = sites
            .iter()
            .map(|s| (s.location.file(), s.location.line(), s.location.column(), iteration_key(kind, s)))
            .collect();
        let full = self.found.len() >= MAX_FINDINGS;
        match self.found.entry((kind, lines)) {
            std::collections::btree_map::Entry::Occupied(mut entry) => {
                let (first, finding) = entry.get_mut();
                finding.times += 1;
                if block < *first {
                    *first = block;
                    *finding = Finding { times: finding.times, ..new_finding() };
                }
                None
            }
            std::collections::btree_map::Entry::Vacant(entry) if !full => Some(&entry.insert((block, new_finding())).1),
            std::collections::btree_map::Entry::Vacant(_) => None,
        }
    }

    pub fn merge(mut self, other: Findings) -> Findings {
        for (key, (block, finding)) in other.found {
            match self.found.entry(key) {
                std::collections::btree_map::Entry::Occupied(mut entry) => {
                    let (first, existing) = entry.get_mut();
                    let times = existing.times + finding.times;
                    if block < *first {
                        (*first, *existing) = (block, finding);
                    }
                    existing.times = times;
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

/// Errors in unrolled iterations of one line are one finding; redundant barriers are not.
fn iteration_key(kind: FindingKind, site: &Site) -> u32 {
    if kind == FindingKind::RedundantBarrier { site.iteration } else { 0 }
}
