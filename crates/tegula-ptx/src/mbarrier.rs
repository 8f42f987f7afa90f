//! Mbarriers in shared memory: arrivals, phases, tests.

use tegula_core::diagnostic::FindingKind;
use tegula_interp::rules::AccessKind;
use tegula_ir::Scope;

use crate::access::Kind;
use crate::address::Location;
use crate::mbarrier_state::Mbarrier;
use crate::program::{Address, MbarrierOp, Reg};
use crate::report::Report;
use crate::run::{Flow, Run, lanes};

impl Run<'_, '_> {
    pub fn mbarrier(
        &mut self,
        frame: u32,
        op: MbarrierOp,
        dst: Reg,
        address: &Address,
        (state, count): (Reg, Option<Reg>),
    ) -> Flow {
        if self.active == 0 {
            return Flow::Next;
        }
        let states = *self.register(state);
        if op == MbarrierOp::PendingCount {
            // The state has the pending count in its 20 low bits, and the phase above.
            self.put(dst, &states.map(|state| state & 0xf_ffff));
            return Flow::Next;
        }
        let counts = count.map_or([1; 32], |reg| self.u32s(reg));
        let addresses = self.addresses(frame, address);
        let target = self.resolve(address.space, &addresses, 8, true);
        let mut results = [0; 32];
        for lane in lanes(target.lanes) {
            let Location::Shared { offset, .. } = target.locations[lane] else { continue };
            let location = target.locations[lane];
            if op == MbarrierOp::Init || op == MbarrierOp::Invalidate {
                self.check(location, lane, 8, Kind::WRITE);
                self.block.mbarriers.remove(&offset);
                if op == MbarrierOp::Init {
                    let (expected, pending) = (counts[lane], counts[lane]);
                    self.block.mbarriers.insert(offset, Mbarrier { expected, pending, ..Mbarrier::default() });
                }
                self.changed = true;
                continue;
            }
            let strong = Kind { access: AccessKind::Read, scope: Some(Scope::Block), lockstep: false };
            self.check(location, lane, 8, strong);
            if !self.block.mbarriers.contains_key(&offset) {
                let text = self.describe(location);
                let message = format!("uses an mbarrier at {text} that is not initialized");
                self.report(Report::new(FindingKind::UnreadyBarrier, message).lanes(1 << lane));
                results[lane] = 1;
                continue;
            }
            results[lane] = self.operate(op, offset, lane, states[lane], counts[lane]);
        }
        self.put(dst, &results);
        Flow::Next
    }

    fn operate(&mut self, op: MbarrierOp, offset: u32, lane: usize, state: u64, count: u32) -> u64 {
        let thread = self.thread(lane);
        let (copies, view) = match op {
            MbarrierOp::Arrive { .. } if self.machine.config.checks => (Vec::new(), self.block.clocks.release(thread)),
            MbarrierOp::CopyArrive { .. } => self.arriving_copies(thread),
            _ => Default::default(),
        };
        let Some(barrier) = self.block.mbarriers.get_mut(&offset) else { return 0 };
        let before = barrier.phase;
        barrier.copies.extend(copies);
        match op {
            MbarrierOp::Arrive { .. } | MbarrierOp::CopyArrive { no_increment: true } => {
                let token = barrier.phase << 20 | u64::from(barrier.pending);
                if let MbarrierOp::Arrive { drop: true, .. } = op {
                    barrier.expected = barrier.expected.saturating_sub(count);
                }
                let fits = barrier.arrive(count, &view);
                self.changed = true;
                if barrier.phase != before {
                    let copies = std::mem::take(&mut barrier.copies);
                    self.complete_copies(&copies);
                }
                if !fits {
                    let message = "arrives at an mbarrier that expects fewer arrivals in its current phase".into();
                    self.report(Report::new(FindingKind::ArrivalMismatch, message).lanes(1 << lane));
                }
                token
            }
            MbarrierOp::CopyArrive { no_increment: false } => {
                barrier.released.join(&view);
                0
            }
            MbarrierOp::Test { parity } => {
                let done = if parity { before & 1 != state & 1 } else { before > state >> 20 };
                if done && self.machine.config.checks {
                    let published = barrier.published.clone();
                    self.block.clocks.acquire(thread, &published);
                }
                u64::from(done)
            }
            MbarrierOp::Init | MbarrierOp::Invalidate | MbarrierOp::PendingCount => 0,
        }
    }
}
