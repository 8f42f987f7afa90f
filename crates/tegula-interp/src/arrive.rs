//! Mbarrier operations: initialization, arrivals, and waits for phases.

use tegula_core::diagnostic::{FindingKind, Space};
use tegula_ir::SiteId;

use super::barrier::{Mbarrier, MbarrierError, MbarrierId};
use super::block::BlockState;
use super::lanes::Reg;
use super::machine::Machine;
use super::observe::{EventKind, SharedRef};
use super::path::{State, Warp};
use super::program::{ElementAddress, Instruction, LoweredOp};
use super::race::{Access, ClockView, OrderSource, threads_of};
use super::remote::{RemoteEffect, RemoteOp};
use super::report::Diagnostic;
use super::warp::WarpContext;

impl Machine<'_> {
    /// A tile or an mbarrier, as events name it.
    pub fn shared_ref(&self, (memory, index): MbarrierId) -> SharedRef<'_> {
        SharedRef { array: &self.kernel.shared()[memory].name, memory, index }
    }

    /// An mbarrier, as messages name it.
    pub fn mbarrier_name(&self, (array, index): MbarrierId) -> String {
        format!("{}[{index}]", self.kernel.shared()[array].name)
    }

    fn mbarrier_element(&self, (array, index): MbarrierId) -> Option<(Space, String, Vec<u64>)> {
        Some((Space::Shared, self.kernel.shared()[array].name.clone(), vec![index as u64]))
    }

    /// Reports the use of an mbarrier that is uninitialized, or whose initialization is not
    /// visible.
    pub fn check_mbarrier(
        &self,
        block: &mut BlockState,
        id: MbarrierId,
        source: &OrderSource<'_>,
        (site, lane): (SiteId, u16),
    ) -> Option<Diagnostic> {
        let barrier = &block.hopper.mbarriers[id.0][id.1];
        let usability_error = barrier.usability_error(&mut block.clocks, &block.hopper.init_fences, source);
        let usability_error =
            usability_error.filter(|why| self.config.races || matches!(why, MbarrierError::Uninitialized))?;
        let name = self.mbarrier_name(id);
        let (message, init) = match usability_error {
            MbarrierError::Uninitialized => (format!("uses barrier {name}, which is not initialized"), None),
            MbarrierError::Unordered(init) => {
                let agent = self.describe_lane(init.lane);
                let message = format!(
                    "uses barrier {name} unordered with its initialization by {agent}; synchronize the block (or the cluster) after the initialization"
                );
                (message, Some(init))
            }
            MbarrierError::Unfenced(init) => {
                let message =
                    format!("uses barrier {name}, whose initialization is not followed by `fence_mbarrier_init`");
                (message, Some(init))
            }
        };
        let sites = [Some(site), init.map(|init| SiteId(init.site))].into_iter().flatten().collect();
        let lanes = [Some(lane), init.map(|init| init.lane)].into_iter().flatten().collect();
        Some(Diagnostic {
            kind: FindingKind::UnreadyBarrier,
            sites,
            lanes,
            element: self.mbarrier_element(id),
            message,
        })
    }

    /// Records an arrival of a thread of the cluster. `expect` are the bytes of its `expect_tx`.
    pub fn arrive(
        &self,
        block: &mut BlockState,
        id: MbarrierId,
        expect: Option<u32>,
        view: &ClockView,
        (site, lane): (SiteId, u16),
    ) -> Option<Diagnostic> {
        let barrier = &mut block.hopper.mbarriers[id.0][id.1];
        barrier.init?;
        barrier.tx_count += i64::from(expect.unwrap_or(0));
        if barrier.arrive(view) {
            return None;
        }
        let (name, arrivals) = (self.mbarrier_name(id), barrier.arrivals);
        let message = format!("arrives at barrier {name}, whose phase already has all its {arrivals} arrivals");
        let element = self.mbarrier_element(id);
        Some(Diagnostic { kind: FindingKind::ArrivalMismatch, sites: vec![site], lanes: vec![lane], element, message })
    }

    /// Describes the phase that a waiting warp needs.
    pub fn mbarrier_wait_status(&self, block: &BlockState, warp: &Warp) -> Option<String> {
        let Instruction::Hopper(op) = self.program.code.get(warp.pc)? else { return None };
        let LoweredOp::MbarrierWait { barrier: ElementAddress::Shared { array, index, offset, .. }, parity } = **op
        else {
            return None;
        };
        let parities = warp.registers.u32s(parity);
        let indices = warp.registers.u32s(index);
        let barriers = block.hopper.mbarriers.get(array.index())?;
        threads_of(0, warp.mask).find_map(|lane| {
            let lane = usize::from(lane);
            let index = indices[lane].wrapping_add(offset) as usize;
            let barrier = barriers.get(index).filter(|barrier| !barrier.has_completed(parities[lane]))?;
            let name = self.mbarrier_name((array.index(), index));
            Some(format!("for the phase of parity {} of barrier {name}: {}", parities[lane] & 1, barrier.wait_status()))
        })
    }
}

impl WarpContext<'_, '_> {
    /// Resolves the mbarrier of each active lane.
    pub fn mbarriers_at(&mut self, at: ElementAddress) -> Vec<(usize, MbarrierId)> {
        let ElementAddress::Shared { array, .. } = at else { return Vec::new() };
        let count = self.block.hopper.mbarriers[array.index()].len();
        self.elements_at(at, count).into_iter().map(|(lane, index)| (lane, (array.index(), index))).collect()
    }

    pub fn mbarrier_init(&mut self, at: ElementAddress, arrivals: u32) {
        let site = self.site();
        for (lane, id) in self.mbarriers_at(at) {
            let thread = self.thread(lane);
            let now = self.now(lane, None);
            let init = self.block.hopper.mbarriers[id.0][id.1].init;
            if let Some(before) = init.filter(|before| !self.block.clocks.precedes(&OrderSource::Thread(now), before)) {
                let name = self.machine.mbarrier_name(id);
                let message = format!(
                    "initializes barrier {name}, unordered with its initialization by {}",
                    self.machine.describe_lane(before.lane)
                );
                let (sites, lanes) = (vec![site, SiteId(before.site)], vec![thread, before.lane]);
                let element = self.machine.mbarrier_element(id);
                self.report_diagnostic(Diagnostic {
                    kind: FindingKind::UnreadyBarrier,
                    sites,
                    lanes,
                    element,
                    message,
                });
            }
            let by = Access { clock: now.clock, site: site.0, lane: thread };
            self.block.hopper.mbarriers[id.0][id.1].init(by, arrivals);
            let machine = self.machine;
            self.observe(EventKind::MbarrierInit { barrier: machine.shared_ref(id), arrivals });
        }
    }

    pub fn mbarrier_arrive(&mut self, at: ElementAddress, block: Option<Reg>, expect: Option<Reg>) {
        let site = self.site();
        let bytes = expect.map(|reg| self.warp.registers.u32s(reg));
        let blocks = block.map(|reg| self.warp.registers.u32s(reg));
        let own = self.machine.rank(self.block);
        for (lane, id) in self.mbarriers_at(at) {
            let thread = self.thread(lane);
            let (to, expect) = (blocks.map_or(own, |ranks| ranks[lane]), bytes.map(|bytes| bytes[lane]));
            let machine = self.machine;
            self.observe(EventKind::MbarrierArrive {
                barrier: machine.shared_ref(id),
                block: to,
                bytes: expect.unwrap_or(0),
            });
            let source = OrderSource::Thread(self.now(lane, None));
            if to == own {
                let usability_error = self.machine.check_mbarrier(self.block, id, &source, (site, thread));
                let view = self.block.clocks.release(thread);
                let mismatch = self.machine.arrive(self.block, id, expect, &view, (site, thread));
                usability_error.or(mismatch).into_iter().for_each(|diagnostic| self.report_diagnostic(diagnostic));
            } else if self.in_cluster(lane, to) {
                let effect = RemoteEffect::Arrival { barrier: id, expect };
                let remote_op = RemoteOp::new(self.block, to, (thread, site), effect);
                self.block.hopper.outgoing.push(remote_op);
            }
        }
    }

    /// Whether the phases of all lanes are complete; if so, the lanes acquire the released views.
    pub fn mbarrier_wait(&mut self, at: ElementAddress, parity: Reg) -> bool {
        let site = self.site();
        let parities = self.warp.registers.u32s(parity);
        let barriers = self.mbarriers_at(at);
        for &(lane, id) in &barriers {
            let source = OrderSource::Thread(self.now(lane, None));
            if let Some(diagnostic) = self.machine.check_mbarrier(self.block, id, &source, (site, self.thread(lane))) {
                self.report_diagnostic(diagnostic);
                break;
            }
        }
        // An uninitialized barrier blocks no lane: its use is reported above.
        let is_open = |barrier: &Mbarrier, lane: usize| barrier.init.is_none() || barrier.has_completed(parities[lane]);
        let hopper = &self.block.hopper;
        if !barriers.iter().all(|&(lane, (array, index))| is_open(&hopper.mbarriers[array][index], lane)) {
            let open =
                barriers.iter().filter(|&&(lane, (array, index))| is_open(&hopper.mbarriers[array][index], lane));
            self.warp.satisfied = open.fold(0, |lanes, (lane, _)| lanes | 1 << lane);
            self.warp.state = State::Mbarrier;
            return false;
        }
        for lanes in barriers.chunk_by(|a, b| a.1 == b.1) {
            let (first, id) = lanes[0];
            let mask = lanes.iter().fold(0, |mask, (lane, _)| mask | 1 << lane);
            if self.machine.config.races {
                let published = self.block.hopper.mbarriers[id.0][id.1].published.clone();
                self.block.clocks.acquire_lanes(self.warp.index, mask, &published);
            }
            let machine = self.machine;
            self.observe(EventKind::MbarrierWait { barrier: machine.shared_ref(id), parity: parities[first] & 1 });
        }
        true
    }
}
