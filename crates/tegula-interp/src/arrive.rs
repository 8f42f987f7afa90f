//! Arrivals at barriers in shared memory, and waits for their phases.

use tegula_core::diagnostic::{Kind, Space};
use tegula_ir::SiteId;

use super::barrier::{Barrier, Unready, Which};
use super::block::Running;
use super::lanes::Reg;
use super::machine::Machine;
use super::observe::{Place, What};
use super::path::{State, Warp};
use super::program::{Act, At, Code};
use super::race::{Access, Eyes, Knowledge, lanes_of};
use super::remote::{Brings, Letter};
use super::report::Mistake;
use super::warp::Run;

impl Machine<'_> {
    /// How events write a tile or a barrier.
    pub fn place(&self, (memory, index): Which) -> Place<'_> {
        Place { array: &self.kernel.shared()[memory].name, memory, index }
    }

    /// How messages write a barrier.
    pub fn barrier_name(&self, (array, index): Which) -> String {
        format!("{}[{index}]", self.kernel.shared()[array].name)
    }

    fn barrier_element(&self, (array, index): Which) -> Option<(Space, String, Vec<u64>)> {
        Some((Space::Shared, self.kernel.shared()[array].name.clone(), vec![index as u64]))
    }

    /// Whether the barrier was begun before it is used.
    pub fn ready(
        &self,
        block: &mut Running,
        which: Which,
        eyes: &Eyes<'_>,
        (site, lane): (SiteId, u16),
    ) -> Option<Mistake> {
        let barrier = &block.engine.barriers[which.0][which.1];
        let unready = barrier.unready(&mut block.clocks, &block.engine.begun, eyes);
        let unready = unready.filter(|why| self.config.races || matches!(why, Unready::Never))?;
        let name = self.barrier_name(which);
        let (message, begun) = match unready {
            Unready::Never => (format!("uses barrier {name}, which nobody has begun"), None),
            Unready::Unordered(begun) => {
                let who = self.who(begun.lane);
                let message = format!(
                    "uses barrier {name}, which {who} begins in no order with that; synchronise the block (the cluster, where there is one) in between"
                );
                (message, Some(begun))
            }
            Unready::Unfenced(begun) => {
                let message = format!("uses barrier {name}, after whose beginning there is no `fence_init`");
                (message, Some(begun))
            }
        };
        let sites = [Some(site), begun.map(|begun| SiteId(begun.site))].into_iter().flatten().collect();
        let lanes = [Some(lane), begun.map(|begun| begun.lane)].into_iter().flatten().collect();
        Some(Mistake { kind: Kind::UnreadyBarrier, sites, lanes, element: self.barrier_element(which), message })
    }

    /// A thread of the cluster arrives.
    pub fn arrive(
        &self,
        block: &mut Running,
        which: Which,
        expect: Option<u32>,
        known: &Knowledge,
        (site, lane): (SiteId, u16),
    ) -> Option<Mistake> {
        let barrier = &mut block.engine.barriers[which.0][which.1];
        barrier.begun?;
        barrier.bytes += i64::from(expect.unwrap_or(0));
        if barrier.arrive(known) {
            return None;
        }
        let (name, arrivals) = (self.barrier_name(which), barrier.arrivals);
        let message = format!("arrives at barrier {name}, whose phase has all {arrivals} arrivals that it takes");
        let element = self.barrier_element(which);
        Some(Mistake { kind: Kind::ArrivalMismatch, sites: vec![site], lanes: vec![lane], element, message })
    }

    /// What a warp waits for at a barrier.
    pub fn awaited(&self, block: &Running, warp: &Warp) -> Option<String> {
        let Code::Hopper(act) = self.program.code.get(warp.pc)? else { return None };
        let Act::Await { barrier: At::Shared { array, index, offset, .. }, parity } = **act else { return None };
        let parities = warp.registers.u32s(parity);
        let indices = warp.registers.u32s(index);
        let barriers = block.engine.barriers.get(array.index())?;
        lanes_of(0, warp.mask).find_map(|lane| {
            let lane = usize::from(lane);
            let index = indices[lane].wrapping_add(offset) as usize;
            let barrier = barriers.get(index).filter(|barrier| !barrier.has_passed(parities[lane]))?;
            let name = self.barrier_name((array.index(), index));
            Some(format!("for the phase of parity {} of barrier {name}: {}", parities[lane] & 1, barrier.waits_for()))
        })
    }
}

impl Run<'_, '_> {
    /// The barriers that the lanes mean, one for each that takes part.
    pub fn barriers_at(&mut self, at: At) -> Vec<(usize, Which)> {
        let At::Shared { array, .. } = at else { return Vec::new() };
        let count = self.block.engine.barriers[array.index()].len();
        self.elements_at(at, count).into_iter().map(|(lane, index)| (lane, (array.index(), index))).collect()
    }

    pub fn begin_barrier(&mut self, at: At, arrivals: u32) {
        let site = self.site();
        for (lane, which) in self.barriers_at(at) {
            let thread = self.thread(lane);
            let now = self.now(lane, None);
            let begun = self.block.engine.barriers[which.0][which.1].begun;
            if let Some(before) = begun.filter(|before| !self.block.clocks.seen_by(&Eyes::Thread(now), before)) {
                let name = self.machine.barrier_name(which);
                let message = format!(
                    "begins barrier {name}, which {} begins as well, in no order",
                    self.machine.who(before.lane)
                );
                let (sites, lanes) = (vec![site, SiteId(before.site)], vec![thread, before.lane]);
                let element = self.machine.barrier_element(which);
                self.mistake(Mistake { kind: Kind::UnreadyBarrier, sites, lanes, element, message });
            }
            let by = Access { clock: now.clock, site: site.0, lane: thread };
            self.block.engine.barriers[which.0][which.1].begin(by, arrivals);
            let machine = self.machine;
            self.observe(What::Begin { barrier: machine.place(which), arrivals });
        }
    }

    pub fn arrive_at(&mut self, at: At, block: Option<Reg>, expect: Option<Reg>) {
        let site = self.site();
        let bytes = expect.map(|reg| self.warp.registers.u32s(reg));
        let blocks = block.map(|reg| self.warp.registers.u32s(reg));
        let own = self.machine.rank(self.block);
        for (lane, which) in self.barriers_at(at) {
            let thread = self.thread(lane);
            let (to, expect) = (blocks.map_or(own, |ranks| ranks[lane]), bytes.map(|bytes| bytes[lane]));
            let machine = self.machine;
            self.observe(What::Arrive { barrier: machine.place(which), block: to, bytes: expect.unwrap_or(0) });
            let eyes = Eyes::Thread(self.now(lane, None));
            if to == own {
                let unready = self.machine.ready(self.block, which, &eyes, (site, thread));
                let known = self.block.clocks.release(thread);
                let wrong = self.machine.arrive(self.block, which, expect, &known, (site, thread));
                unready.or(wrong).into_iter().for_each(|mistake| self.mistake(mistake));
            } else if self.in_cluster(lane, to) {
                let brings = Brings::Arrival { which, expect };
                let letter = Letter::new(self.block, to, (thread, site), brings);
                self.block.engine.outbox.push(letter);
            }
        }
    }

    /// Whether the phases have ended that the lanes wait for; then all of them see what was
    /// published.
    pub fn await_barrier(&mut self, at: At, parity: Reg) -> bool {
        let site = self.site();
        let parities = self.warp.registers.u32s(parity);
        let barriers = self.barriers_at(at);
        for &(lane, which) in &barriers {
            let eyes = Eyes::Thread(self.now(lane, None));
            if let Some(mistake) = self.machine.ready(self.block, which, &eyes, (site, self.thread(lane))) {
                self.mistake(mistake);
                break;
            }
        }
        let is_open = |barrier: &Barrier, lane: usize| barrier.begun.is_none() || barrier.has_passed(parities[lane]);
        let engine = &self.block.engine;
        if !barriers.iter().all(|&(lane, (array, index))| is_open(&engine.barriers[array][index], lane)) {
            let open = barriers.iter().filter(|&&(lane, (array, index))| is_open(&engine.barriers[array][index], lane));
            self.warp.satisfied = open.fold(0, |lanes, (lane, _)| lanes | 1 << lane);
            self.warp.state = State::Await;
            return false;
        }
        for lanes in barriers.chunk_by(|a, b| a.1 == b.1) {
            let (first, which) = lanes[0];
            let mask = lanes.iter().fold(0, |mask, (lane, _)| mask | 1 << lane);
            if self.machine.config.races {
                let published = self.block.engine.barriers[which.0][which.1].published.clone();
                self.block.clocks.acquire_lanes(self.warp.index, mask, &published);
            }
            let machine = self.machine;
            self.observe(What::Await { barrier: machine.place(which), parity: parities[first] & 1 });
        }
        true
    }
}
