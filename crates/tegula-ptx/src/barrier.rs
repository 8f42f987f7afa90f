//! Barriers of a block: arrivals, completion, and the release of waits in a blocked block.

use crate::alu::Lanes;
use crate::block::Block;
use crate::machine::Machine;
use crate::partial::Partial;
use crate::path::State;
use crate::program::{BarrierKind, Op};
use crate::report;

impl Block {
    /// Completes the barriers at which all threads arrived; returns whether any completed.
    pub fn complete_barriers(&mut self, machine: &Machine<'_>, partial: &mut Partial) -> bool {
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
        partial.recorder_of(self.linear).into_iter().for_each(|recorder| recorder.complete(id));
        if arrived > expected {
            report::arrivals(machine, self, &barrier, (id, arrived, expected), partial);
        }
        // All threads of the block wait here or have exited, so a new epoch orders all accesses.
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

    /// Records whether the last barrier was needed to order any accesses.
    fn record_barrier_use(&mut self, partial: &mut Partial) {
        if let Some(pc) = self.last_barrier.take() {
            let (ran, needed) = &mut partial.barriers[pc as usize];
            *ran = true;
            *needed |= self.clocks.barrier_needed;
        }
    }

    /// Releases lanes that wait at a join; returns false if no lanes can be released.
    ///
    /// See [`Warp::release_join`](crate::path::Warp::release_join) for `except_for_barriers`.
    pub fn release_join(&mut self, except_for_barriers: bool) -> bool {
        self.warps.iter_mut().any(|warp| warp.release_join(except_for_barriers))
    }

    /// Reports a barrier that only some lanes of a warp reached, and counts these as arrived.
    /// Returns false if no lanes wait in this state.
    pub fn force_barrier(&mut self, machine: &Machine<'_>, partial: &mut Partial) -> bool {
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
        // A barrier of the whole block needs no clock views, since it begins a new epoch.
        if machine.config.checks && barrier.threads.is_some() {
            let view = self.clocks.release_lanes(warp, mask);
            self.barriers[id as usize].view.join(&view);
        }
    }

    /// Ends the block, and reports barriers and copies that are still incomplete.
    pub fn finish(&mut self, machine: &Machine<'_>, partial: &mut Partial) {
        if machine.config.checks {
            self.record_barrier_use(partial);
        }
    }
}
