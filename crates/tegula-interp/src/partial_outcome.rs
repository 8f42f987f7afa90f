//! Counts and findings of a part of the blocks.

use super::count::{InstructionCounts, RequestCache};
use super::findings::Findings;

/// Counts and findings of the blocks that one core ran.
#[derive(Default)]
pub(super) struct PartialOutcome {
    pub instruction_counts: Vec<InstructionCounts>,
    /// For each instruction, its last requests to shared memory and to global memory.
    pub request_caches: Vec<[RequestCache; 2]>,
    pub findings: Findings,
    /// For each barrier instruction, whether it ran, and whether it ever ordered accesses.
    pub barriers: Vec<(bool, bool)>,
    pub blocks: u64,
    /// Whether the observer ended the launch.
    pub stopped: bool,
}

impl PartialOutcome {
    pub fn merge(mut self, other: PartialOutcome) -> PartialOutcome {
        for (own, other_part) in self.instruction_counts.iter_mut().zip(other.instruction_counts) {
            *own += other_part;
        }
        for (own, other_part) in self.barriers.iter_mut().zip(other.barriers) {
            *own = (own.0 | other_part.0, own.1 | other_part.1);
        }
        self.findings = self.findings.merge(other.findings);
        self.stopped |= other.stopped;
        self.blocks += other.blocks;
        self
    }
}
