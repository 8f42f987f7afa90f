//! What threads of a kernel do, as `tegula explain --json` says it.

use serde::Serialize;
use tegula_explain::profile::{PerThread, Profile};

use super::check::{Counters, Finding};
use crate::kernel::Problem;

/// With `--json`, the object.
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
    /// Steps of the slide along k.
    pub steps: u64,
    /// Each the greatest of any thread.
    pub per_thread: PerThread,
    pub barriers_per_block: u64,
    pub counters: Counters,
    pub findings: Vec<Finding>,
}

impl Explained {
    /// Of a launch in blocks of so many threads.
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
