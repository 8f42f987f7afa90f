//! The object of `tegula explain --json`: counts per thread, and the kernel's cost.

use serde::Serialize;
use tegula_explain::profile::{PerThread, Profile};

use super::check::{Counters, Finding};
use crate::kernel::Problem;

/// The object of `--json`.
#[derive(Clone, Debug, Serialize)]
pub struct Explained {
    pub kernel: String,
    pub m: usize,
    pub n: usize,
    pub k: usize,
    /// Blocks along x, y, z.
    pub grid: [u32; 3],
    /// Threads of a block along x, y, z.
    pub block: [u32; 3],
    /// Steps along k.
    pub steps: u64,
    /// The maximum over threads of each count.
    pub per_thread: PerThread,
    pub barriers_per_block: u64,
    pub counters: Counters,
    pub findings: Vec<Finding>,
}

impl Explained {
    /// The object of a launch with blocks of these extents.
    pub fn new(problem: &Problem, block: [u32; 3], profile: Profile, findings: Vec<Finding>) -> Explained {
        let &Problem { m, n, k, .. } = problem;
        let Profile { steps, per_thread, barriers_per_block, outcome } = profile;
        Explained {
            kernel: problem.recipe.name(),
            m,
            n,
            k,
            grid: outcome.grid,
            block,
            steps,
            per_thread,
            barriers_per_block,
            counters: outcome.counters.into(),
            findings,
        }
    }
}
