//! Synchronization of threads: barriers of the block, warp-wide instructions, fences.

use tegula_core::diagnostic::FindingKind;
use tegula_interp::rules::threads_of;
use tegula_ir::Scope;

use crate::alu::Lanes;
use crate::ast::ScalarType;
use crate::path::{Path, State};
use crate::program::{Barrier, BarrierKind, Op, Reg, WarpOp, WarpWide};
use crate::report::Report;
use crate::run::{Flow, Run, lanes, lanes_where};

impl Run<'_, '_> {
    /// Arrives at a barrier of the block.
    pub fn barrier(&mut self, path: &mut Path, barrier: &Barrier) -> Flow {
        if self.active == 0 {
            return Flow::Next;
        }
        if self.active != path.mask {
            // A guarded barrier: the lanes with a false guard continue as a separate path.
            let mut other = Path { mask: path.mask & !self.active, ..path.clone() };
            other.pc += 1;
            path.mask = self.active;
            self.warp.paths.push_front(other);
        }
        let first = path.mask.trailing_zeros() as usize;
        let id = self.register(barrier.id)[first];
        if id > 15 {
            let message = format!("uses barrier {id}; valid numbers are 0 to 15");
            self.report(Report::new(FindingKind::ArrivalMismatch, message).lanes(path.mask));
            return Flow::Next;
        }
        if let Some(reg) = barrier.threads {
            let threads = self.register(reg)[first] as u32;
            if threads == 0 || !threads.is_multiple_of(32) {
                let message =
                    format!("uses barrier {id} with {threads} threads; the number must be a positive multiple of 32");
                self.report(Report::new(FindingKind::ArrivalMismatch, message).lanes(path.mask));
                return Flow::Next;
            }
            let known = self.block.barriers[id as usize].threads;
            if let Some(known) = known.filter(|&known| known != threads) {
                let message =
                    format!("uses barrier {id} with {threads} threads, while other warps use it with {known}");
                self.report(Report::new(FindingKind::ArrivalMismatch, message).lanes(path.mask));
            }
        }
        let id = id as u32;
        if barrier.aligned && path.mask != self.warp.alive {
            self.warp.merge_waiting(path, |state| state == State::PartialBarrier(id));
            if path.mask != self.warp.alive {
                return Flow::Wait(State::PartialBarrier(id));
            }
        }
        let registers = std::mem::take(&mut self.warp.registers);
        let alive = self.warp.alive;
        self.block.arrive(self.machine, (self.warp.index, alive, &registers), (path.pc, path.mask), id);
        self.warp.registers = registers;
        if barrier.kind == BarrierKind::Arrive { Flow::Next } else { Flow::Wait(State::Barrier(id)) }
    }

    /// Merges waiting lanes of a mask into this path; exited lanes are ignored.
    ///
    /// Returns `None` if all lanes are on the path, otherwise the wait for the missing ones.
    pub fn converge(&mut self, path: &mut Path, mask: u32) -> Option<Flow> {
        let mask = mask & self.warp.alive;
        if mask & !path.mask != 0 {
            self.warp.merge_waiting(path, |state| state == State::Converge);
            self.active = self.guarded(path.mask, self.machine.program.code[path.pc as usize].guard);
        }
        let missing = mask & !path.mask;
        (missing != 0).then_some(Flow::Wait(State::Converge))
    }

    /// Executes `bar.warp.sync`. Lanes of one mask may arrive at different instructions.
    pub fn sync_warp(&mut self, path: &mut Path, reg: Reg) -> Flow {
        if self.active == 0 {
            return Flow::Next;
        }
        let groups = self.by_mask(reg);
        if groups.len() > 1 {
            // Several masks in one instruction, as tiles of a cooperative group have them.
            if groups.iter().all(|&(mask, lanes)| mask & self.warp.alive == lanes) {
                if self.machine.config.checks {
                    groups.iter().for_each(|&(mask, _)| self.block.clocks.sync_warp(self.warp.index, mask));
                }
                self.changed = true;
                return Flow::Next;
            }
            self.split(path, groups[0].1);
        }
        let mask = self.register(reg)[self.active.trailing_zeros() as usize] as u32;
        let (machine, alive) = (self.machine, self.warp.alive);
        let at_sync = |other: &Path| {
            let same = |other_reg: Reg| {
                self.warp.registers[other_reg as usize][other.mask.trailing_zeros() as usize % 32] as u32 == mask
            };
            other.state == State::Converge
                && matches!(machine.program.code[other.pc as usize].op, Op::WarpSync { mask } if same(mask))
        };
        let waiting: Vec<bool> = self.warp.paths.iter().map(at_sync).collect();
        let arrived = self
            .warp
            .paths
            .iter()
            .zip(&waiting)
            .filter(|(_, waits)| **waits)
            .fold(self.active, |all, (other, _)| all | other.mask);
        if self.active & !mask != 0 {
            let message =
                format!("executes a warp synchronization with mask {mask:#010x}, which leaves out the lane itself");
            self.report(Report::new(FindingKind::DivergentWarp, message).lanes(self.active & !mask));
            return Flow::Next;
        }
        if mask & alive & !arrived != 0 {
            if self.active != path.mask {
                // The lanes with a false guard do not wait.
                self.split(path, self.active);
            }
            return Flow::Wait(State::Converge);
        }
        for (other, _) in self.warp.paths.iter_mut().zip(waiting).filter(|(_, waits)| *waits) {
            other.state = State::Ready;
            other.pc += 1;
        }
        if machine.config.checks {
            self.block.clocks.sync_warp(self.warp.index, mask);
        }
        self.changed = true;
        Flow::Next
    }

    /// Executes a fence. `sides` are: it makes earlier strong reads acquire, it makes later strong
    /// writes release.
    pub fn fence(&mut self, scope: Scope, sides: (bool, bool)) {
        if !self.machine.config.checks {
            return;
        }
        let clocks = &mut self.block.clocks;
        for lane in threads_of(self.warp.index, self.active) {
            let at = usize::from(lane);
            match sides {
                (true, false) => {
                    let released = clocks.fence_views[at].clone();
                    clocks.fence(lane, scope);
                    clocks.fence_views[at] = released;
                }
                (false, true) => {
                    let observed = std::mem::take(&mut clocks.pending_acquires[at]);
                    clocks.fence(lane, scope);
                    clocks.pending_acquires[at] = observed;
                }
                _ => clocks.fence(lane, scope),
            }
        }
    }

    /// Executes a warp-wide instruction: checks its mask, waits for its lanes, exchanges values.
    pub fn warp_wide(&mut self, path: &mut Path, wide: &WarpWide) -> Flow {
        if self.active == 0 {
            return Flow::Next;
        }
        let Some(reg) = wide.mask else {
            self.exchange(wide, self.active);
            return Flow::Next;
        };
        let union = self.by_mask(reg).iter().fold(0, |all, (mask, _)| all | mask);
        let waits = self.converge(path, union);
        let alive = self.warp.alive;
        // Lanes of this path with a false guard do not come: no lane waits for them.
        let complete = |&(mask, _): &(u32, u32)| mask & alive & !path.mask == 0;
        let ready = self.by_mask(reg).into_iter().filter(complete).fold(0, |all, (_, lanes)| all | lanes);
        let waiting = self.active & !ready;
        match waits {
            Some(wait) if ready == 0 => {
                if waiting != path.mask {
                    self.split(path, waiting);
                }
                return wait;
            }
            _ if waiting != 0 => self.split(path, path.mask & !waiting),
            _ => {}
        }
        let active = self.active;
        for (mask, lanes) in self.by_mask(reg) {
            self.active = lanes;
            let outside = lanes & !mask;
            if outside != 0 {
                let message = format!(
                    "executes a warp-wide instruction with mask {mask:#010x}, which leaves out the lane itself"
                );
                self.report(Report::new(FindingKind::DivergentWarp, message).lanes(outside));
            }
            if mask & self.warp.alive & !active != 0 {
                let message = format!(
                    "executes a warp-wide instruction with mask {mask:#010x}, whose other lanes are predicated off"
                );
                self.report(Report::new(FindingKind::DivergentWarp, message).lanes(lanes));
            }
            self.exchange(wide, mask & lanes);
        }
        self.active = active;
        Flow::Next
    }

    /// The active lanes grouped by their value of a mask register: mask and lanes of each group.
    fn by_mask(&self, reg: Reg) -> Vec<(u32, u32)> {
        let masks = self.register(reg);
        let mut groups: Vec<(u32, u32)> = Vec::with_capacity(1);
        for lane in lanes(self.active) {
            let mask = masks[lane] as u32;
            match groups.iter_mut().find(|(known, _)| *known == mask) {
                Some((_, lanes)) => *lanes |= 1 << lane,
                None => groups.push((mask, 1 << lane)),
            }
        }
        groups
    }

    /// Splits a path: it keeps `lanes`, and the others become a new path at the same instruction.
    fn split(&mut self, path: &mut Path, lanes: u32) {
        let rest = path.mask & !lanes;
        self.warp.paths.push_back(Path { mask: rest, state: State::Ready, ..path.clone() });
        path.mask = lanes;
        self.active &= lanes;
    }

    /// Exchanges or combines the values of participating lanes, for the active ones.
    fn exchange(&mut self, wide: &WarpWide, participants: u32) {
        let first = self.active.trailing_zeros() as usize % 32;
        let values = *self.register(wide.src);
        match wide.op {
            WarpOp::ShuffleUp | WarpOp::ShuffleDown | WarpOp::ShuffleXor | WarpOp::ShuffleIndex => {
                self.shuffle(wide, &values, participants);
            }
            WarpOp::Any | WarpOp::All | WarpOp::Uniform | WarpOp::Ballot => {
                let holds = lanes_where(|lane| (values[lane] != 0) != wide.negated) & participants;
                let result = match wide.op {
                    WarpOp::Any => u64::from(holds != 0),
                    WarpOp::All => u64::from(holds == participants),
                    WarpOp::Uniform => u64::from(holds == 0 || holds == participants),
                    _ => u64::from(holds),
                };
                self.put(wide.dst, &[result; 32]);
            }
            WarpOp::MatchAny => {
                let of = |lane: usize| lanes_where(|other| values[other] == values[lane]) & participants;
                self.put(wide.dst, &std::array::from_fn(|lane| u64::from(of(lane))));
            }
            WarpOp::MatchAll => {
                let same = lanes(participants).all(|lane| values[lane] == values[first]);
                self.put(wide.dst, &[if same { u64::from(participants) } else { 0 }; 32]);
                self.put(wide.predicate, &[u64::from(same); 32]);
            }
            WarpOp::Elect => {
                let leader = participants.trailing_zeros() as usize % 32;
                self.put(wide.dst, &[leader as u64; 32]);
                self.put(wide.predicate, &std::array::from_fn(|lane| u64::from(lane == leader)));
            }
            WarpOp::Add | WarpOp::Min | WarpOp::Max | WarpOp::And | WarpOp::Or | WarpOp::Xor => {
                let result = reduce(wide.op, wide.ty, lanes(participants).map(|lane| values[lane] as u32));
                self.put(wide.dst, &[u64::from(result); 32]);
            }
        }
    }

    fn shuffle(&mut self, wide: &WarpWide, values: &Lanes, participants: u32) {
        let (b, c) = (*self.register(wide.b), *self.register(wide.c));
        let (mut result, mut in_range) = (*values, [0; 32]);
        let mut stale = 0u32;
        for lane in lanes(self.active) {
            let (source, within) = shuffle_source(wide.op, lane as u32, b[lane] as u32, c[lane] as u32);
            in_range[lane] = u64::from(within);
            if within {
                result[lane] = values[source as usize];
                stale |= u32::from(participants >> source & 1 == 0) << lane;
            }
        }
        if stale != 0 {
            let lane = stale.trailing_zeros() as usize;
            let (source, _) = shuffle_source(wide.op, lane as u32, b[lane] as u32, c[lane] as u32);
            let message = format!("a shuffle reads lane {source}, which does not participate; its value is undefined");
            self.report(Report::new(FindingKind::InactiveLane, message).lanes(1 << lane));
        }
        self.put(wide.dst, &result);
        self.put(wide.predicate, &in_range);
    }
}

/// The lane that a shuffle reads, and whether it is within the segment (PTX ISA, `shfl`).
fn shuffle_source(op: WarpOp, lane: u32, b: u32, c: u32) -> (u32, bool) {
    let (b, clamp, segments) = (b & 31, c & 31, c >> 8 & 31);
    let highest = (lane & segments) | (clamp & !segments);
    let lowest = lane & segments;
    let source = match op {
        WarpOp::ShuffleUp => lane.wrapping_sub(b),
        WarpOp::ShuffleDown => lane + b,
        WarpOp::ShuffleXor => lane ^ b,
        _ => lowest | (b & !segments),
    };
    let within = match op {
        // Signed: below lane 0 is out of range.
        WarpOp::ShuffleUp => source as i32 >= highest as i32,
        _ => source <= highest,
    };
    (if within { source & 31 } else { lane }, within)
}

fn reduce(op: WarpOp, ty: ScalarType, values: impl Iterator<Item = u32>) -> u32 {
    let combine = |a: u32, b: u32| match op {
        WarpOp::Add => a.wrapping_add(b),
        WarpOp::Min if ty.is_signed() => (a as i32).min(b as i32) as u32,
        WarpOp::Max if ty.is_signed() => (a as i32).max(b as i32) as u32,
        WarpOp::Min => a.min(b),
        WarpOp::Max => a.max(b),
        WarpOp::And => a & b,
        WarpOp::Or => a | b,
        _ => a ^ b,
    };
    values.reduce(combine).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shuffle_source_follows_the_segments() {
        // __shfl_down_sync(m, v, 16), __shfl_up_sync(m, v, 1), __shfl_xor_sync(m, v, 1), width 32.
        assert_eq!(shuffle_source(WarpOp::ShuffleDown, 3, 16, 31), (19, true));
        assert_eq!(shuffle_source(WarpOp::ShuffleDown, 20, 16, 31), (20, false));
        assert_eq!(shuffle_source(WarpOp::ShuffleUp, 0, 1, 0), (0, false));
        assert_eq!(shuffle_source(WarpOp::ShuffleUp, 5, 1, 0), (4, true));
        assert_eq!(shuffle_source(WarpOp::ShuffleXor, 6, 1, 31), (7, true));
        // Width 8: c = (32 - 8) << 8 | 31.
        assert_eq!(shuffle_source(WarpOp::ShuffleIndex, 13, 2, 24 << 8 | 31), (10, true));
        assert_eq!(shuffle_source(WarpOp::ShuffleDown, 14, 3, 24 << 8 | 31), (14, false));
        assert_eq!(shuffle_source(WarpOp::ShuffleUp, 9, 2, 24 << 8), (9, false));
    }

    #[test]
    fn reduce_respects_the_sign() {
        let values = [3u32, u32::MAX, 7];
        assert_eq!(reduce(WarpOp::Min, ScalarType::S32, values.into_iter()), u32::MAX);
        assert_eq!(reduce(WarpOp::Min, ScalarType::U32, values.into_iter()), 3);
        assert_eq!(reduce(WarpOp::Add, ScalarType::U32, values.into_iter()), 9);
    }
}
