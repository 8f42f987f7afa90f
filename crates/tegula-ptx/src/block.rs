//! A running block: its warps, shared memory, barriers and clocks.

use std::collections::BTreeMap;

use tegula_interp::rules::{BlockClocks, ClockView, GlobalShadow, SharedShadow, mix, next, shuffle};

use crate::alu::Lanes;
use crate::copy::PendingCopies;
use crate::machine::Machine;
use crate::mbarrier::Mbarrier;
use crate::partial::Partial;
use crate::path::{State, Warp};
use crate::program::{BarrierKind, Op};
use crate::report;
use crate::warp::Run;

/// A barrier of the block, by number.
#[derive(Debug, Default)]
pub(crate) struct BlockBarrier {
    /// Threads that complete it; `None` for all of the block.
    pub threads: Option<u32>,
    pub arrived: u32,
    /// Arrivals of whole warps: a number of threads counts 32 for each, however many lanes it has.
    warps: u32,
    /// Lanes that arrived of warps of which others have not: number of the warp, and lanes.
    partial: Vec<(u32, u32)>,
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
    pub copies: PendingCopies,
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
            copies: PendingCopies::new(threads),
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

    /// Completes the barriers at which all threads arrived; returns whether there is one.
    fn complete_barriers(&mut self, machine: &Machine<'_>, partial: &mut Partial) -> bool {
        let mut completed = false;
        for id in 0..self.barriers.len() as u32 {
            let (arrived, expected) = self.arrivals(id);
            if arrived > 0 && arrived >= expected {
                self.complete_barrier(machine, id, (arrived, expected), partial);
                completed = true;
            }
        }
        completed
    }

    fn complete_barrier(
        &mut self,
        machine: &Machine<'_>,
        id: u32,
        (arrived, expected): (u32, u32),
        partial: &mut Partial,
    ) {
        let barrier = std::mem::take(&mut self.barriers[id as usize]);
        if arrived > expected {
            report::arrivals(machine, self, &barrier, (id, arrived, expected), partial);
        }
        // All threads of the block wait here or have ended: one epoch orders them.
        let whole = barrier.threads.is_none() && barrier.passed == 0;
        if machine.config.checks && whole {
            self.record_barrier_use(partial);
            self.clocks.barrier();
            self.last_barrier = Some(barrier.pc);
        }
        for at in 0..self.warps.len() {
            let warp = &mut self.warps[at];
            let mut lanes = 0;
            for path in warp.paths.iter_mut().filter(|path| path.state == State::Barrier(id)) {
                if let Op::Barrier(op) = &machine.program.code[path.pc as usize].op {
                    let result = match op.kind {
                        BarrierKind::Popc => u64::from(barrier.count),
                        BarrierKind::And => u64::from(barrier.count == barrier.arrived),
                        BarrierKind::Or => u64::from(barrier.count > 0),
                        BarrierKind::Sync | BarrierKind::Arrive => 0,
                    };
                    let dst = &mut warp.registers[op.dst as usize];
                    (0..32).filter(|lane| path.mask >> lane & 1 == 1).for_each(|lane| dst[lane] = result);
                }
                path.state = State::Ready;
                path.pc += 1;
                lanes |= path.mask;
            }
            if machine.config.checks && !whole && lanes != 0 {
                self.clocks.acquire_lanes(at as u32, lanes, &barrier.view);
            }
        }
    }

    /// Records whether the last barrier ordered any accesses.
    fn record_barrier_use(&mut self, partial: &mut Partial) {
        if let Some(pc) = self.last_barrier.take() {
            let (ran, needed) = &mut partial.barriers[pc as usize];
            *ran = true;
            *needed |= self.clocks.barrier_needed;
        }
    }

    /// Lets lanes that wait for reconvergence go on alone; false if none does.
    ///
    /// Optionally, not those that wait only for lanes at a barrier.
    fn release_join(&mut self, except_for_barriers: bool) -> bool {
        self.warps.iter_mut().any(|warp| warp.release_join(except_for_barriers))
    }

    /// Reports lanes at a barrier without others of their warp, and counts them as arrived; false
    /// if there are none.
    fn force_barrier(&mut self, machine: &Machine<'_>, partial: &mut Partial) -> bool {
        for at in 0..self.warps.len() {
            let partial_barrier = |path: &&mut crate::path::Path| matches!(path.state, State::PartialBarrier(_));
            if let Some(path) = self.warps[at].paths.iter_mut().find(partial_barrier)
                && let State::PartialBarrier(id) = path.state
            {
                path.state = State::Barrier(id);
                let (pc, mask) = (path.pc, path.mask);
                report::divergent_barrier(machine, self, at, (pc, mask), partial);
                let registers = std::mem::take(&mut self.warps[at].registers);
                let alive = self.warps[at].alive;
                self.arrive(machine, (at as u32, alive, &registers), (pc, mask), id);
                self.warps[at].registers = registers;
                self.complete_barriers(machine, partial);
                return true;
            }
        }
        false
    }

    /// Counts the arrival of lanes at a barrier, and releases their clocks.
    pub fn arrive(
        &mut self,
        machine: &Machine<'_>,
        (warp, alive, registers): (u32, u32, &[Lanes]),
        (pc, mask): (u32, u32),
        id: u32,
    ) {
        let Op::Barrier(op) = &machine.program.code[pc as usize].op else { return };
        let first = mask.trailing_zeros() as usize % 32;
        let threads = op.threads.map(|reg| registers[reg as usize][first] as u32);
        let (predicate, negated) = op.predicate;
        let values = &registers[predicate as usize];
        let count = (0..32).filter(|&lane| mask >> lane & 1 == 1 && (values[lane] != 0) != negated).count() as u32;
        let barrier = &mut self.barriers[id as usize];
        barrier.threads = threads.or(barrier.threads);
        barrier.pc = pc;
        barrier.arrived += mask.count_ones();
        let before = barrier.partial.iter().position(|&(of, _)| of == warp).map(|at| barrier.partial.swap_remove(at));
        let lanes = before.map_or(0, |(_, lanes)| lanes) | mask;
        match alive & !lanes {
            0 => barrier.warps += 1,
            _ => barrier.partial.push((warp, lanes)),
        }
        barrier.count += if op.kind == BarrierKind::Sync { 0 } else { count };
        if op.kind == BarrierKind::Arrive {
            barrier.passed += mask.count_ones();
        }
        // The barrier of the whole block needs no views: one epoch orders everything.
        if machine.config.checks && barrier.threads.is_some() {
            let view = self.clocks.release_lanes(warp, mask);
            self.barriers[id as usize].view.join(&view);
        }
    }

    /// Ends the block: what it leaves unfinished is reported.
    pub fn finish(&mut self, machine: &Machine<'_>, partial: &mut Partial) {
        if machine.config.checks {
            self.record_barrier_use(partial);
        }
    }
}

impl Machine<'_> {
    /// Lets something go on where nothing can; false if everything waits for ever.
    ///
    /// Lanes that wait for the reconvergence of lanes in a loop go first: these may wait for them.
    pub fn unblock(&self, blocks: &mut [Block], partial: &mut Partial) -> bool {
        blocks.iter_mut().any(|block| block.release_join(true))
            || blocks.iter_mut().any(|block| block.force_barrier(self, partial))
            || blocks.iter_mut().any(|block| block.release_join(false))
    }

    /// Runs every warp of a block until it must wait; returns whether anything changed.
    pub fn advance(&self, block: &mut Block, global: &mut GlobalShadow, partial: &mut Partial) -> bool {
        let mut order: Vec<usize> = (0..block.warps.len()).collect();
        block.permute(&mut order);
        let mut progress = false;
        for at in order {
            if block.warps[at].is_done() {
                continue;
            }
            // The warp is moved out of its block while it runs, so that both are mutable.
            let placeholder = block.warps[at].placeholder();
            let mut warp = std::mem::replace(&mut block.warps[at], placeholder);
            progress |= Run::new(self, block, global, partial, &mut warp).run();
            block.warps[at] = warp;
            if partial.stopped {
                return false;
            }
        }
        progress | block.complete_barriers(self, partial)
    }
}
