//! What blocks of a launch leave behind: counts and findings.

use super::count::{Pattern, Tally};
use super::findings::Findings;

/// What one core gathers.
#[derive(Default)]
pub(super) struct Gathered {
    pub tallies: Vec<Tally>,
    /// For each instruction its last requests: of shared memory, of global memory.
    pub patterns: Vec<[Pattern; 2]>,
    pub findings: Findings,
    /// For each instruction that is a barrier: whether it ran, and whether it ever ordered
    /// anything.
    pub barriers: Vec<(bool, bool)>,
    pub blocks: u64,
    /// An observer has seen enough.
    pub stopped: bool,
}

impl Gathered {
    pub fn merge(mut self, other: Gathered) -> Gathered {
        for (mine, theirs) in self.tallies.iter_mut().zip(other.tallies) {
            *mine += theirs;
        }
        for (mine, theirs) in self.barriers.iter_mut().zip(other.barriers) {
            *mine = (mine.0 | theirs.0, mine.1 | theirs.1);
        }
        self.findings = self.findings.merge(other.findings);
        self.stopped |= other.stopped;
        self.blocks += other.blocks;
        self
    }
}
