//! A running block: its warps, shared memory, barriers and clocks.

use std::collections::BTreeMap;

use tegula_interp::rules::{BlockClocks, ClockView, SharedShadow, mix, next, shuffle};

use crate::machine::Machine;
use crate::mbarrier_state::Mbarrier;
use crate::path::Warp;
use crate::pending_copies::PendingCopies;

/// The state of one of the 16 barriers of a block.
#[derive(Debug, Default)]
pub(crate) struct BlockBarrier {
    /// Number of threads that complete it; `None` for all threads of the block.
    pub threads: Option<u32>,
    pub arrived: u32,
    /// Number of whole warps that arrived. Each counts as 32 threads, also a partial last warp.
    pub warps: u32,
    /// Warps of which only some lanes arrived: number of the warp, and mask of these lanes.
    pub partial: Vec<(u32, u32)>,
    /// Threads that arrived by `bar.arrive`, which does not wait.
    pub passed: u32,
    pub view: ClockView,
    /// Threads with a true predicate, for reductions.
    pub count: u32,
    /// Position of the last instruction that arrived.
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
    /// The pending `cp.async` copies of each thread.
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

    /// Permutes items whose order is undefined; seed 0 keeps their order.
    pub fn permute<T>(&mut self, items: &mut [T]) {
        if self.permutes {
            shuffle(items, &mut self.random);
        }
    }

    /// Number of threads that have not exited.
    pub fn alive(&self) -> u32 {
        self.warps.iter().map(|warp| warp.alive.count_ones()).sum()
    }

    /// Number of threads that arrived at a barrier, and number that completes it.
    pub fn arrivals(&self, id: u32) -> (u32, u32) {
        let barrier = &self.barriers[id as usize];
        let Some(threads) = barrier.threads else { return (barrier.arrived, self.alive()) };
        // Exited lanes cannot arrive, so a warp is whole without them.
        let is_whole = |&&(warp, lanes): &&(u32, u32)| self.warps[warp as usize].alive & !lanes == 0;
        (32 * (barrier.warps + barrier.partial.iter().filter(is_whole).count() as u32), threads)
    }
}
