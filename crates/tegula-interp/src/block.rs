//! A block that runs: its warps, its memory and what orders accesses to it.

use rustc_hash::FxHashMap;

use super::asynchronous::Flights;
use super::barrier::Named;
use super::engine::Engine;
use super::gathered::Gathered;
use super::machine::Machine;
use super::memory::SharedMemory;
use super::path::Warp;
use super::race::Clocks;
use super::random::{mix, next, shuffle};
use super::shadow::SharedShadow;

/// A block that is running.
pub(super) struct Running {
    pub id: [u32; 3],
    pub linear: u64,
    pub warps: Vec<Warp>,
    pub shared: SharedMemory,
    pub shadow: SharedShadow,
    pub clocks: Clocks,
    pub flights: Flights,
    pub engine: Engine,
    pub named: [Named; 16],
    pub assertions: Assertions,
    pub last_barrier: Option<u32>,
    pub random: u64,
    /// Whether the seed varies orders that are natural otherwise ([`Running::vary`]).
    varied: bool,
}

/// The assertions that warps of a block have come to and others have not.
#[derive(Debug, Default)]
pub(super) struct Assertions {
    /// How often each warp has come to each.
    pub times: FxHashMap<(usize, u32), u32>,
    /// Of each time: the value, a thread that has it, and how many warps are still to come.
    pub values: FxHashMap<(usize, u32), (u64, u32, usize)>,
}

/// How far the warps of a block got in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Progress {
    /// Nothing could run, or changed anything.
    None,
    /// All that ran were loops that went round for long.
    Spun,
    Ran,
}

impl Progress {
    pub fn or(self, ran: bool) -> Self {
        if ran { Progress::Ran } else { self }
    }
}

impl Machine<'_> {
    pub fn start(&self, linear: u64) -> Running {
        let [x, y, _] = self.grid.map(u64::from);
        let id = [linear % x, linear / x % y, linear / x / y].map(|i| i as u32);
        let threads = self.kernel.threads();
        let warps = (0..threads.div_ceil(32)).map(|index| {
            let lanes = (threads - 32 * index).min(32);
            let existing = if lanes == 32 { u32::MAX } else { (1 << lanes) - 1 };
            Warp::new(index, existing, &self.program)
        });
        let lengths = self.kernel.shared().iter().zip(&self.granules).map(|(a, &granule)| match self.config.races {
            true => a.len().div_ceil(granule as u64),
            false => 0,
        });
        Running {
            id,
            linear,
            warps: warps.collect(),
            shared: SharedMemory::new(self.kernel.shared()),
            shadow: SharedShadow::new(lengths),
            clocks: Clocks::new(linear as u32, threads, self.every_reader),
            flights: Flights::new(threads),
            engine: if self.hopper { Engine::new(self.kernel, &self.program, &self.agents) } else { Engine::default() },
            named: Default::default(),
            assertions: Assertions::default(),
            last_barrier: None,
            random: mix(self.config.seed ^ mix(linear + 1)),
            varied: self.config.seed != 0,
        }
    }
}

impl Running {
    /// Notes whether the barrier before this point ordered anything.
    pub fn judge_barrier(&mut self, gathered: &mut Gathered) {
        if let Some(pc) = self.last_barrier.take() {
            let (ran, needed) = &mut gathered.barriers[pc as usize];
            *ran = true;
            *needed |= self.clocks.barrier_needed;
        }
    }

    /// A number below `limit`, from the seed.
    pub fn random(&mut self, limit: u64) -> u64 {
        next(&mut self.random, limit)
    }

    /// Permutes items whose order is undefined. Seed 0 keeps their order.
    ///
    /// A release that is observed by luck in one order, without a wait, is missed in another.
    pub fn vary<T>(&mut self, items: &mut [T]) {
        if self.varied {
            shuffle(items, &mut self.random);
        }
    }

    /// A random part of several lanes, in one of four calls; none with seed 0.
    pub fn some_of(&mut self, lanes: u32) -> Option<u32> {
        if !self.varied || lanes.count_ones() < 2 || self.random(4) != 0 {
            return None;
        }
        let some = lanes & self.random(1 << 32) as u32;
        Some(some).filter(|&some| some != 0 && some != lanes)
    }

    /// Whether lanes whose wait is over continue before the other lanes of their path.
    pub fn splits_wait(&mut self) -> bool {
        self.varied && self.random(2) == 0
    }
}
