//! What a launch asks of single threads: the most that any of them loads, stores and adds.

use std::collections::HashMap;
use std::ops::ControlFlow;

use serde::{Deserialize, Serialize};
use tegula_core::element::Type;
use tegula_interp::{self as interp, Arg, Computation, Config, Observer, Outcome, Space, What};
use tegula_ir::{Checked, Kernel, Wgmma};

use crate::error::Result;

/// What threads do, each number the greatest of any thread.
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
    /// Products added to a sum; of a matrix instruction a lane's share.
    pub fma: u64,
}

/// What a launch is made of.
#[derive(Clone, Debug)]
pub struct Profile {
    /// Steps of the slide: the most turns that any warp took in a loop that holds multiply-adds.
    pub steps: u64,
    /// What the busiest threads do.
    pub per_thread: PerThread,
    /// Barriers that a block comes to, the most of any.
    pub barriers_per_block: u64,
    /// What the interpreter says of the launch.
    pub outcome: Outcome,
}

/// Runs a kernel and counts what its threads do.
///
/// # Errors
/// Where the arguments do not fit.
pub fn profile(kernel: &Checked<Kernel>, args: &[Arg<'_>], config: &Config) -> Result<Profile> {
    let mut warps = Warps::default();
    let outcome = interp::observe(kernel, args, config, &mut warps)?;
    Ok(warps.profile(outcome))
}

/// What each warp did.
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
    /// The turns of loops in which it last added a product, and the operation that was.
    turn: Vec<(u32, u32)>,
    added: Option<u32>,
}

impl Warp {
    fn most(&mut self, other: &Warp) {
        self.lanes.iter_mut().flatten().zip(other.lanes.iter().flatten()).for_each(|(a, b)| *a = (*a).max(*b));
        (self.barriers, self.steps) = (self.barriers.max(other.barriers), self.steps.max(other.steps));
    }

    fn add(&mut self, what: usize, lanes: u32, count: u64) {
        (0..32).filter(|lane| lanes >> lane & 1 == 1).for_each(|lane| self.lanes[what][lane] += count);
    }

    fn multiply(&mut self, event: &interp::Event<'_>, count: u64) {
        let same_turn = self.added.is_some() && self.turn == event.loops;
        if !same_turn {
            (self.turn, self.steps) = (event.loops.to_vec(), self.steps + 1);
        } else if self.added == Some(event.operation) {
            // Further sums of one matrix instruction.
            return;
        }
        self.added = Some(event.operation);
        self.add(4, event.lanes, count);
    }
}

impl Warps {
    fn profile(self, outcome: Outcome) -> Profile {
        let mut most = Warp::default();
        self.warps.values().for_each(|warp| most.most(warp));
        let [global_loads, global_stores, shared_loads, shared_stores, fma] =
            most.lanes.map(|lanes| lanes.into_iter().max().unwrap_or(0));
        Profile {
            steps: most.steps,
            per_thread: PerThread { global_loads, global_stores, shared_loads, shared_stores, fma },
            barriers_per_block: most.barriers,
            outcome,
        }
    }
}

impl Observer for Warps {
    fn event(&mut self, event: &interp::Event<'_>) -> ControlFlow<()> {
        let warp = self.warps.entry((event.block, event.warp)).or_default();
        match event.what {
            What::Access { write, space, elements, .. } => {
                let lanes = elements.iter().rev().fold(0, |mask, e| mask << 1 | u32::from(e.is_some()));
                warp.add(2 * usize::from(space == Space::Shared) + usize::from(write), lanes, 1);
            }
            What::Compute { how: Computation::MulAdd, ty, .. } if ty != Type::U32 => warp.multiply(event, 1),
            What::Compute { how: Computation::Matrix(mma), .. } => warp.multiply(event, mma.products() / 32),
            // A thread has n / 2 of the sums.
            What::Compute { how: Computation::Warpgroup(wgmma), .. } => {
                warp.multiply(event, u64::from(wgmma.sums() * Wgmma::K));
            }
            What::Barrier { .. } => warp.barriers += 1,
            _ => {}
        }
        ControlFlow::Continue(())
    }
}
