//! A running block: its warps, shared memory, barriers and clocks.

use std::collections::BTreeMap;

use tegula_interp::rules::{BlockClocks, ClockView, SharedShadow, mix, next, shuffle};

use crate::machine::Machine;
use crate::mbarrier_state::Mbarrier;
use crate::path::Warp;
use crate::pending_copies::PendingCopies;

/// A barrier of the block, by number.
#[derive(Debug, Default)]
pub(crate) struct BlockBarrier {
    /// Threads that complete it; `None` for all of the block.
    pub threads: Option<u32>,
    pub arrived: u32,
    /// Arrivals of whole warps: a number of threads counts 32 for each, however many lanes it has.
    pub warps: u32,
    /// Lanes that arrived of warps of which others have not: number of the warp, and lanes.
    pub partial: Vec<(u32, u32)>,
    /// Threads that arrived without waiting.
    pub passed: u32,
    pub view: ClockView,
    /// Threads with a true predicate, for reductions.
    pub count: u32,
    /// The last instruction that arrived.
    pub pc: u32,
}

/// A running block.
#[derive(Debug)]
pub(crate) struct Block {
    pub id: [u32; 3],
    pub linear: u64,
    pub warps: Vec<Warp>,
    pub shared: Vec<u8>,
    pub shadow: SharedShadow,
    pub clocks: BlockClocks,
    pub barriers: Vec<BlockBarrier>,
    /// The asynchronous copies of each thread.
    pub copies: Vec<PendingCopies>,
    pub mbarriers: BTreeMap<u32, Mbarrier>,
    pub last_barrier: Option<u32>,
    pub random: u64,
    permutes: bool,
}

impl Block {
    pub fn new(machine: &Machine<'_>, linear: u64) -> Self {
        let (program, threads) = (machine.program, machine.threads);
        let frame = program.functions[0].frame;
        let warps = (0..threads.div_ceil(32)).map(|index| {
            let lanes = (threads - 32 * index).min(32);
            Warp::new(index, (u64::MAX >> (64 - lanes)) as u32, program.registers.clone(), frame)
        });
        let cells = if machine.config.checks { machine.shared_bytes.div_ceil(program.granules[0]) } else { 0 };
        Block {
            id: machine.block_id(linear),
            linear,
            warps: warps.collect(),
            shared: vec![0; machine.shared_bytes as usize],
            shadow: SharedShadow::new([u64::from(cells)].into_iter()),
            clocks: BlockClocks::new(linear as u32, threads, program.orders_finely),
            barriers: (0..16).map(|_| BlockBarrier::default()).collect(),
            copies: vec![PendingCopies::default(); threads as usize],
            mbarriers: BTreeMap::new(),
            last_barrier: None,
            random: mix(machine.config.seed ^ mix(linear + 1)),
            permutes: machine.config.seed != 0,
        }
    }

    pub fn is_done(&self) -> bool {
        self.warps.iter().all(Warp::is_done)
    }

    /// A pseudorandom number below `limit`.
    pub fn random(&mut self, limit: u64) -> u64 {
        next(&mut self.random, limit)
    }

    /// Permutes items whose order is undefined; seed 0 keeps it.
    pub fn permute<T>(&mut self, items: &mut [T]) {
        if self.permutes {
            shuffle(items, &mut self.random);
        }
    }

    /// Threads that have not ended.
    pub fn alive(&self) -> u32 {
        self.warps.iter().map(|warp| warp.alive.count_ones()).sum()
    }

    /// Threads that arrived at a barrier, and those that complete it.
    pub fn arrivals(&self, id: u32) -> (u32, u32) {
        let barrier = &self.barriers[id as usize];
        let Some(threads) = barrier.threads else { return (barrier.arrived, self.alive()) };
        // Lanes that have ended do not arrive any more.
        let is_whole = |&&(warp, lanes): &&(u32, u32)| self.warps[warp as usize].alive & !lanes == 0;
        (32 * (barrier.warps + barrier.partial.iter().filter(is_whole).count() as u32), threads)
    }
}
