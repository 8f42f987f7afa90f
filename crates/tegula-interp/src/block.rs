//! A running block: its warps, its memory and its clocks.

use rustc_hash::FxHashMap;

use super::barrier::NamedBarrier;
use super::hopper_state::HopperState;
use super::machine::Machine;
use super::memory::SharedMemory;
use super::partial_outcome::PartialOutcome;
use super::path::Warp;
use super::pending_copies::PendingCopies;
use super::race::BlockClocks;
use super::random::{mix, next, shuffle};
use super::shadow::SharedShadow;

/// The state of a running block.
pub(super) struct BlockState {
    pub id: [u32; 3],
    pub linear: u64,
    pub warps: Vec<Warp>,
    pub shared: SharedMemory,
    pub shadow: SharedShadow,
    pub clocks: BlockClocks,
    pub pending_copies: PendingCopies,
    pub hopper: HopperState,
    pub named: [NamedBarrier; 16],
    pub assertions: Assertions,
    pub last_barrier: Option<u32>,
    pub random: u64,
    /// Whether the seed permutes items with a natural order ([`BlockState::permute`]).
    permutes_orders: bool,
}

/// Uniformity assertions that some warps of a block reached and others did not.
#[derive(Debug, Default)]
pub(super) struct Assertions {
    /// How often each warp reached each assertion.
    pub occurrences: FxHashMap<(usize, u32), u32>,
    /// For each repetition: the value, a thread that has it, and the number of warps still missing.
    pub values: FxHashMap<(usize, u32), (u64, u32, usize)>,
}

/// Progress of the warps of a block in one round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Progress {
    /// Nothing ran or changed.
    None,
    /// Only long-running loops ran.
    Spun,
    Ran,
}

impl Progress {
    pub fn or(self, ran: bool) -> Self {
        if ran { Progress::Ran } else { self }
    }
}

impl Machine<'_> {
    pub fn start_block(&self, linear: u64) -> BlockState {
        let [x, y, _] = self.grid.map(u64::from);
        let id = [linear % x, linear / x % y, linear / x / y].map(|i| i as u32);
        let threads = self.kernel.threads();
        let warps = (0..threads.div_ceil(32)).map(|index| {
            let lanes = (threads - 32 * index).min(32);
            let existing_lanes = if lanes == 32 { u32::MAX } else { (1 << lanes) - 1 };
            Warp::new(index, existing_lanes, &self.program)
        });
        let lengths = self.kernel.shared().iter().zip(&self.granules).map(|(a, &granule)| match self.config.races {
            true => a.len().div_ceil(granule as u64),
            false => 0,
        });
        BlockState {
            id,
            linear,
            warps: warps.collect(),
            shared: SharedMemory::new(self.kernel.shared()),
            shadow: SharedShadow::new(lengths),
            clocks: BlockClocks::new(linear as u32, threads, self.track_all_readers),
            pending_copies: PendingCopies::new(threads),
            hopper: if self.uses_hopper {
                HopperState::new(self.kernel, &self.program, &self.agents)
            } else {
                HopperState::default()
            },
            named: Default::default(),
            assertions: Assertions::default(),
            last_barrier: None,
            random: mix(self.config.seed ^ mix(linear + 1)),
            permutes_orders: self.config.seed != 0,
        }
    }
}

impl BlockState {
    /// Records whether the last barrier ordered any accesses.
    pub fn record_barrier_use(&mut self, partial: &mut PartialOutcome) {
        if let Some(pc) = self.last_barrier.take() {
            let (ran, needed) = &mut partial.barriers[pc as usize];
            *ran = true;
            *needed |= self.clocks.barrier_needed;
        }
    }

    /// A pseudorandom number below `limit`.
    pub fn random(&mut self, limit: u64) -> u64 {
        next(&mut self.random, limit)
    }

    /// Permutes items whose order is undefined. Seed 0 keeps their order.
    ///
    /// A release that is observed by chance in one order, without a wait, is missed in another.
    pub fn permute<T>(&mut self, items: &mut [T]) {
        if self.permutes_orders {
            shuffle(items, &mut self.random);
        }
    }

    /// A random subset of lanes, in one of four calls; none with seed 0.
    pub fn random_subset(&mut self, lanes: u32) -> Option<u32> {
        if !self.permutes_orders || lanes.count_ones() < 2 || self.random(4) != 0 {
            return None;
        }
        let some = lanes & self.random(1 << 32) as u32;
        Some(some).filter(|&some| some != 0 && some != lanes)
    }

    /// Whether lanes with a completed wait continue before the other lanes of their path: half the
    /// time, never with seed 0.
    pub fn splits_wait_at_random(&mut self) -> bool {
        self.permutes_orders && self.random(2) == 0
    }
}
