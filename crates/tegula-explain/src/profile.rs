//! Per-thread counts of a launch: the maximum of loads, stores and multiply-adds over all threads.

use std::collections::HashMap;
use std::ops::ControlFlow;

use serde::{Deserialize, Serialize};
use tegula_core::element::Type;
use tegula_interp::{self as interp, Arg, Computation, Config, EventKind, Observer, Outcome, Space};
use tegula_ir::{Checked, Kernel, Wgmma};

use crate::error::Result;

/// Counts per thread, each the maximum over all threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PerThread {
    /// Elements read from global memory.
    pub global_loads: u64,
    /// Elements written to global memory.
    pub global_stores: u64,
    /// Elements read from shared memory.
    pub shared_loads: u64,
    /// Elements written to shared memory.
    pub shared_stores: u64,
    /// Multiply-adds; of a matrix instruction, the lane's share.
    pub fma: u64,
}

/// The counts of a launch.
#[derive(Clone, Debug)]
pub struct Profile {
    /// The number of k-steps: the maximum, over all warps, of iterations that hold multiply-adds.
    pub steps: u64,
    /// Counts of the busiest threads.
    pub per_thread: PerThread,
    /// Barriers that a block executes: the maximum over all blocks.
    pub barriers_per_block: u64,
    /// The interpreter's counters and findings.
    pub outcome: Outcome,
}

/// Runs a kernel and counts its accesses, multiply-adds and barriers by thread.
///
/// # Errors
/// Arguments that do not fit the parameters.
pub fn profile(kernel: &Checked<Kernel>, args: &[Arg<'_>], config: &Config) -> Result<Profile> {
    let mut warps = Warps::default();
    let outcome = interp::observe(kernel, args, config, &mut warps)?;
    Ok(warps.profile(outcome))
}

/// Counts of each warp, by block and warp.
#[derive(Default)]
struct Warps {
    warps: HashMap<([u32; 3], u32), Warp>,
}

#[derive(Clone, Default)]
struct Warp {
    /// Global loads, global stores, shared loads, shared stores, multiply-adds of each lane.
    lanes: [[u64; 32]; 5],
    barriers: u64,
    steps: u64,
    /// Loop iterations of the last multiply-add, and its operation.
    iteration: Vec<(u32, u32)>,
    last: Option<u32>,
}

impl Warp {
    fn merge_max(&mut self, other: &Warp) {
        self.lanes.iter_mut().flatten().zip(other.lanes.iter().flatten()).for_each(|(a, b)| *a = (*a).max(*b));
        (self.barriers, self.steps) = (self.barriers.max(other.barriers), self.steps.max(other.steps));
    }

    fn add(&mut self, counter: usize, lanes: u32, count: u64) {
        (0..32).filter(|lane| lanes >> lane & 1 == 1).for_each(|lane| self.lanes[counter][lane] += count);
    }

    fn multiply(&mut self, event: &interp::Event<'_>, count: u64) {
        let same_iteration = self.last.is_some() && self.iteration == event.loops;
        if !same_iteration {
            (self.iteration, self.steps) = (event.loops.to_vec(), self.steps + 1);
        } else if self.last == Some(event.operation) {
            // Further accumulators of the same matrix instruction.
            return;
        }
        self.last = Some(event.operation);
        self.add(4, event.lanes, count);
    }
}

impl Warps {
    fn profile(self, outcome: Outcome) -> Profile {
        let mut max = Warp::default();
        self.warps.values().for_each(|warp| max.merge_max(warp));
        let [global_loads, global_stores, shared_loads, shared_stores, fma] =
            max.lanes.map(|lanes| lanes.into_iter().max().unwrap_or(0));
        Profile {
            steps: max.steps,
            per_thread: PerThread { global_loads, global_stores, shared_loads, shared_stores, fma },
            barriers_per_block: max.barriers,
            outcome,
        }
    }
}

impl Observer for Warps {
    fn event(&mut self, event: &interp::Event<'_>) -> ControlFlow<()> {
        let warp = self.warps.entry((event.block, event.warp)).or_default();
        match event.kind {
            EventKind::Access { write, space, elements, .. } => {
                let lanes = elements.iter().rev().fold(0, |mask, e| mask << 1 | u32::from(e.is_some()));
                warp.add(2 * usize::from(space == Space::Shared) + usize::from(write), lanes, 1);
            }
            EventKind::Compute { op: Computation::MulAdd, ty, .. } if ty != Type::U32 => warp.multiply(event, 1),
            EventKind::Compute { op: Computation::Matrix(mma), .. } => warp.multiply(event, mma.multiply_adds() / 32),
            // A thread holds n / 2 accumulators.
            EventKind::Compute { op: Computation::Warpgroup(wgmma), .. } => {
                warp.multiply(event, u64::from(wgmma.accumulators() * Wgmma::K));
            }
            EventKind::Barrier { .. } => warp.barriers += 1,
            _ => {}
        }
        ControlFlow::Continue(())
    }
}
