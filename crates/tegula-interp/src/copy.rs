//! Tiles on their way between matrices and shared memory, and numbers on their way to other blocks of a cluster.
//!
//! They land, or is read, at once or as late as the waits allow, as the seed decides; a kernel that is right cannot tell.

use tegula_core::diagnostic::{Kind, Space};
use tegula_ir::{Order2d, ParamKind, SiteId, Tiles};

use super::agent::{Agent, part_elements, tile_elements};
use super::block::Running;
use super::bulk::{Cargo, Coming, Leaving, Tile, Words};
use super::gathered::Gathered;
use super::lanes::{Reg, bits_of};
use super::launch::Arg;
use super::machine::Machine;
use super::memory::Buffer;
use super::observe::{Place, What};
use super::program::At;
use super::race::{Access, Does, Eyes, Knowledge};
use super::remote::{Brings, Letter, Visit};
use super::report::Mistake;
use super::shadow::{GlobalShadow, Hazard, Proxy};
use super::warp::Run;

/// Bytes at multiples of which lines of a tile that is stored begin.
const STORED: u32 = 16;

/// How a matrix is cut.
struct Cut {
    tiles: Tiles,
    order: Order2d,
}

impl Cut {
    /// Where an element of a tile is in its matrix; nowhere outside. Coordinates are signed.
    fn index(&self, buffer: &Buffer, [batch, row, col]: [u32; 3], element: usize) -> Option<usize> {
        let [_, length] = self.tiles.lines(self.order).map(|extent| extent as usize);
        let [line, place] = [element / length, element % length].map(|offset| offset as i64);
        let (down, right) = if self.order == Order2d::ColMajor { (place, line) } else { (line, place) };
        let at = |start: u32, further: i64| u64::try_from(i64::from(start as i32) + further).ok();
        buffer.index(at(batch, 0)?, at(row, down)?, at(col, right)?)
    }
}

/// Keeps the first hazard of each kind and line, which stands for the others.
fn note_hazard(hazards: &mut Vec<(usize, Hazard)>, index: usize, hazard: Option<Hazard>) {
    let new = hazard.filter(|hazard| !hazards.iter().any(|(_, other)| other.line() == hazard.line()));
    hazards.extend(new.map(|hazard| (index, hazard)));
}

impl Machine<'_> {
    fn matrix(&self, param: usize) -> Option<(&Buffer, Cut)> {
        match (self.args[param], &self.kernel.params()[param].kind) {
            (Arg::Matrix(buffer), &ParamKind::Matrix { tiles: Some(tiles), order, .. }) => {
                Some((buffer, Cut { tiles, order }))
            }
            _ => None,
        }
    }

    /// How events write the tile that an element is in.
    pub fn tile(&self, array: usize, first: usize) -> Place<'_> {
        self.place((array, first / tile_elements(&self.kernel.shared()[array]) as usize))
    }

    /// Elements of a tile of a matrix.
    fn copied(&self, matrix: usize) -> u32 {
        self.matrix(matrix).map_or(0, |(_, cut)| cut.tiles.elements())
    }

    /// The cells that elements of an array are in.
    fn cells(&self, array: usize, first: usize, elements: usize) -> std::ops::Range<usize> {
        let granule = self.granules[array];
        first / granule..(first + elements).div_ceil(granule)
    }

    /// A thread of the cluster starts a copy: from now on nobody may use what it goes to who has not waited for it.
    pub fn start_copy(
        &self,
        (block, global): (&mut Running, &mut GlobalShadow),
        cargo: Cargo,
        eyes: &Eyes<'_>,
        (from, sender): (u32, Access),
    ) -> Vec<Mistake> {
        let (array, first, barrier) = cargo.to();
        let site = SiteId(sender.site);
        let count = match cargo {
            Cargo::Tile(tile) => self.copied(tile.matrix) as usize,
            Cargo::Words(words) => words.count,
        };
        let part = first as u32 / part_elements(&self.kernel.shared()[array]);
        let lane = self.agents.lane(Agent::Part { array, part });
        let access = Access { clock: block.engine.tick(lane), site: sender.site, lane };
        let mut mistakes: Vec<_> = self.ready(block, barrier, eyes, (site, sender.lane)).into_iter().collect();
        if self.config.races {
            let (granule, by) = (self.granules[array], (site, sender.lane, Does::Write));
            let proxy = if matches!(cargo, Cargo::Tile(_)) { Proxy::Async } else { Proxy::Generic };
            let (mut conflicts, mut others) = (Vec::new(), Vec::new());
            for cell in self.cells(array, first, count) {
                let agent = (access, proxy);
                match block.shadow.write_by_agent(&mut block.clocks, (array, cell), eyes, agent) {
                    Some(Hazard::Conflict(conflict)) => conflicts.push((cell * granule, conflict)),
                    hazard => note_hazard(&mut others, cell * granule, hazard),
                }
            }
            let worst = conflicts.iter().find(|(_, conflict)| conflict.earlier_writes).or(conflicts.first());
            let worst = worst.map(|&(index, conflict)| (index, Hazard::Conflict(conflict)));
            let hazards = worst.into_iter().chain(others);
            mistakes.extend(hazards.map(|(index, hazard)| self.hazard((Space::Shared, array, index), by, hazard)));
            if let Cargo::Tile(tile) = cargo {
                mistakes.extend(self.read_tile((block, global), tile, eyes, access, (from, sender)));
            }
            let here = block.linear as u32;
            block.engine.visits.insert((here, lane), Visit { from, sender, block: here, access });
        }
        let phase = block.engine.barriers[barrier.0][barrier.1].phase();
        block.engine.coming.push(Coming { cargo, access, phase, from, sender });
        mistakes
    }

    /// A copy reads its part of a matrix until its barrier has been waited for; what is wrong with that.
    fn read_tile(
        &self,
        (block, global): (&mut Running, &mut GlobalShadow),
        Tile { matrix, at, .. }: Tile,
        eyes: &Eyes<'_>,
        agent: Access,
        (from, sender): (u32, Access),
    ) -> Vec<Mistake> {
        let Some((buffer, cut)) = self.matrix(matrix).filter(|(buffer, _)| buffer.is_writable()) else {
            return Vec::new();
        };
        let (memory, site) = (self.memory[matrix] as u32, SiteId(sender.site));
        let mut hazards = Vec::new();
        for index in (0..cut.tiles.elements() as usize).filter_map(|element| cut.index(buffer, at, element)) {
            self.own(matrix, index, from.into(), sender.lane, site, false);
            let (element, agent) = ((memory, index as u64), (agent, Proxy::Async));
            note_hazard(&mut hazards, index, global.read_by_agent(&mut block.clocks, element, eyes, agent));
        }
        let by = (site, sender.lane, Does::Read);
        let mistake = |(index, hazard)| self.hazard((Space::Global, matrix, index), by, hazard);
        hazards.into_iter().map(mistake).collect()
    }

    /// What is wrong with an access by an agent.
    fn hazard(
        &self,
        (space, memory, index): (Space, usize, usize),
        (site, lane, does): (SiteId, u16, Does),
        hazard: Hazard,
    ) -> Mistake {
        let (element, text) = self.element(space, memory, index);
        let verb = if does == Does::Write { "writes" } else { "reads" };
        match hazard {
            Hazard::Conflict(conflict) => self.conflict(space, memory, index, (site, lane, does), conflict),
            Hazard::Unwritten => Mistake {
                kind: Kind::Uninitialised,
                sites: vec![site],
                lanes: vec![lane],
                element: Some(element),
                message: format!("{verb} {text}, which nobody has written"),
            },
            Hazard::BehindCaches(write) => Mistake {
                kind: Kind::MissingProxyFence,
                sites: vec![site, SiteId(write.site)],
                lanes: vec![lane, write.lane],
                element: Some(element),
                message: format!(
                    "{verb} {text} past the caches, where what {} wrote may not have come; each writer calls `{}` before the threads synchronise",
                    self.who(write.lane),
                    if space == Space::Global { "fence_proxy_global" } else { "fence_proxy" }
                ),
            },
        }
    }

    /// One of the copies that are on their way to a block lands, or a store that was put off happens. False where there is none.
    pub fn land_one(&self, block: &mut Running, gathered: &mut Gathered) -> bool {
        if block.engine.coming.is_empty() {
            return false;
        }
        let which = block.random(block.engine.coming.len() as u64) as usize;
        let coming = block.engine.coming.swap_remove(which);
        if let Some(mistake) = self.land(block, coming) {
            self.note(gathered, coming.from, mistake);
        }
        true
    }

    fn land(&self, block: &mut Running, coming: Coming) -> Option<Mistake> {
        let Coming { cargo, access, phase, sender, .. } = coming;
        let (array, first, barrier) = cargo.to();
        let places = block.shared.arrays[array][first..].iter_mut();
        let bytes = match cargo {
            Cargo::Tile(Tile { matrix, at, .. }) => {
                let (buffer, cut) = self.matrix(matrix)?;
                let elements = cut.tiles.elements();
                for (element, place) in places.enumerate().take(elements as usize) {
                    *place = cut.index(buffer, at, element).map_or(0, |index| buffer.load(index));
                }
                elements * buffer.ty().size() as u32
            }
            Cargo::Words(Words { bits, count, .. }) => {
                places.zip(bits).take(count).for_each(|(place, bits)| *place = bits.into());
                4 * count as u32
            }
        };
        let counter = &mut block.engine.barriers[barrier.0][barrier.1];
        let now = counter.phase();
        let known = Knowledge::of_agent(block.linear as u32, access.lane, access.clock);
        counter.count(bytes, &known);
        (now != phase).then(|| Mistake {
            kind: Kind::TransactionCount,
            sites: vec![SiteId(sender.site)],
            lanes: vec![sender.lane],
            element: None,
            message: format!(
                "starts a copy in phase {phase} of barrier {}, which ends without it: its bytes count in phase {now}; announce all bytes of a phase",
                self.barrier_name(barrier)
            ),
        })
    }

    /// Does what stores of tiles were put off up to a group.
    fn leave(&self, block: &mut Running, thread: usize, done: u32) {
        let Some(stores) = block.engine.stores.get_mut(thread) else { return };
        for (_, leaving) in stores.late.extract_if(.., |(group, _)| *group <= done) {
            self.store_now(&block.shared.arrays, leaving);
        }
    }

    /// Does all that was put off: the block has ended.
    pub fn leave_all(&self, block: &mut Running) {
        (0..block.engine.stores.len()).for_each(|thread| self.leave(block, thread, u32::MAX));
    }

    fn store_now(&self, arrays: &[Vec<u64>], Leaving { matrix, at, array, first }: Leaving) {
        let Some((buffer, cut)) = self.matrix(matrix) else { return };
        for (element, &bits) in arrays[array][first..].iter().enumerate().take(cut.tiles.elements() as usize) {
            if let Some(index) = cut.index(buffer, at, element) {
                buffer.store(index, bits);
            }
        }
    }
}

impl Run<'_, '_> {
    /// The tiles of a matrix that the lanes mean: of each lane its coordinates, and where its tile begins in the array.
    fn tiles_at(&mut self, matrix: usize, at: [Reg; 3], place: At) -> Vec<(usize, [u32; 3], usize)> {
        let At::Shared { array, .. } = place else { return Vec::new() };
        let at = at.map(|reg| self.warp.registers.u32s(reg));
        let len = self.machine.kernel.shared()[array.index()].len() as usize;
        let size = (self.machine.copied(matrix) as usize).max(1);
        let tiles = self.elements_at(place, len + 1 - size);
        let (whole, odd): (Vec<_>, Vec<_>) = tiles.into_iter().partition(|(_, first)| first % size == 0);
        if let Some(&(lane, first)) = odd.first() {
            let message = format!("copies a tile from element {first} on, where none begins");
            let (pc, thread) = (self.warp.pc, self.thread(lane));
            self.report(Kind::Misaligned, pc, &[thread.into()], None, message);
        }
        whole.into_iter().map(|(lane, first)| (lane, at.map(|at| at[lane]), first)).collect()
    }

    pub fn copy_tile(&mut self, matrix: usize, at: [Reg; 3], to: At, barrier: At, blocks: Option<Reg>) {
        let At::Shared { array, .. } = to else { return };
        let array = array.index();
        let own = self.machine.rank(self.block);
        let barriers = self.barriers_at(barrier);
        let masks = blocks.map(|reg| self.warp.registers.u32s(reg));
        for (lane, at, first) in self.tiles_at(matrix, at, to) {
            let Some(&(_, barrier)) = barriers.iter().find(|(of, _)| *of == lane) else { continue };
            let tile = Cargo::Tile(Tile { matrix, at, array, first, barrier });
            let (machine, blocks) = (self.machine, masks.map_or(1 << own, |masks| masks[lane]));
            self.observe(What::CopyTile {
                matrix: &machine.kernel.params()[matrix].name,
                to: machine.tile(array, first),
                bytes: machine.copied(matrix) * machine.kernel.shared()[array].ty.size() as u32,
                barrier: machine.place(barrier),
                blocks,
            });
            if machine.config.races {
                let now = self.now(lane, None);
                self.check_early(matrix, 0, now);
            }
            for rank in bits_of(blocks) {
                self.start_copy(lane, tile, rank as u32);
            }
        }
    }

    /// The lane starts a copy to a block of its cluster.
    fn start_copy(&mut self, lane: usize, cargo: Cargo, rank: u32) {
        let (thread, site) = (self.thread(lane), self.site());
        if rank != self.machine.rank(self.block) {
            if self.in_cluster(lane, rank) {
                let letter = Letter::new(self.block, rank, (thread, site), Brings::Cargo(cargo));
                self.block.engine.outbox.push(letter);
            }
            return;
        }
        let now = self.now(lane, None);
        let sender = Access { clock: now.clock, site: site.0, lane: thread };
        let from = self.block.linear as u32;
        let mistakes = self.machine.start_copy((self.block, self.global), cargo, &Eyes::Thread(now), (from, sender));
        mistakes.into_iter().for_each(|mistake| self.mistake(mistake));
        if self.block.random(2) == 0 {
            self.machine.land_one(self.block, self.gathered);
        }
    }

    pub fn send(&mut self, to: At, values: &[Reg], block: Reg, barrier: At) {
        let At::Shared { array, .. } = to else { return };
        let (array, count) = (array.index(), values.len());
        let ranks = self.warp.registers.u32s(block);
        let mut bits = [[0; 32]; 4];
        bits.iter_mut().zip(values).for_each(|(bits, &reg)| *bits = self.warp.registers.u32s(reg));
        let barriers = self.barriers_at(barrier);
        let end = self.machine.kernel.shared()[array].len() as usize + 1 - count;
        let mut sent = Vec::new();
        for (lane, first) in self.elements_at(to, end) {
            let Some(&(_, barrier)) = barriers.iter().find(|(of, _)| *of == lane) else { continue };
            if first % count != 0 {
                let message = format!("sends {count} numbers to element {first} on, which is no multiple of {count}");
                let (pc, thread) = (self.warp.pc, self.thread(lane));
                self.report(Kind::Misaligned, pc, &[thread.into()], None, message);
                continue;
            }
            sent.push((lane, Words { array, first, bits: bits.map(|bits| bits[lane]), count, barrier }));
        }
        let machine = self.machine;
        for alike in sent.chunk_by(|(one, a), (other, b)| (ranks[*one], a.barrier) == (ranks[*other], b.barrier)) {
            let (lane, Words { barrier, .. }) = alike[0];
            let bytes = (4 * count * alike.len()) as u32;
            self.observe(What::Send { block: ranks[lane], barrier: machine.place(barrier), bytes });
        }
        for (lane, words) in sent {
            self.start_copy(lane, Cargo::Words(words), ranks[lane]);
        }
    }

    pub fn store_tile(&mut self, matrix: usize, at: [Reg; 3], from: At) {
        let At::Shared { array, .. } = from else { return };
        let (machine, array, site) = (self.machine, array.index(), self.site());
        let Some((buffer, cut)) = machine.matrix(matrix) else { return };
        for (lane, at, first) in self.tiles_at(matrix, at, from) {
            let thread = self.thread(lane);
            // Loads may begin anywhere; stores, as an H200 has it, are illegal instructions then.
            let start = at[if cut.order == Order2d::ColMajor { 1 } else { 2 }];
            let unit = STORED / machine.kernel.shared()[array].ty.size() as u32;
            if !start.is_multiple_of(unit) {
                let message = format!(
                    "stores a tile whose lines begin at {start}; the copy engine stores from multiples of {unit} elements, 16 bytes, on"
                );
                let pc = self.warp.pc;
                self.report(Kind::Misaligned, pc, &[thread.into()], None, message);
                continue;
            }
            let (name, from) = (&machine.kernel.params()[matrix].name, machine.tile(array, first));
            self.observe(What::StoreTile { matrix: name, from });
            let group = self.block.engine.stores[usize::from(thread)].groups.start(site);
            let agent = Access { clock: group, site: site.0, lane: machine.agents.lane(Agent::Thread(thread)) };
            let now = self.now(lane, None);
            let elements = cut.tiles.elements() as usize;
            self.read_by_agent(array, machine.cells(array, first, elements), now, agent);
            for element in 0..elements {
                if let (true, Some(index)) = (machine.config.races, cut.index(buffer, at, element)) {
                    self.write_until_waited(matrix, index, now, group);
                }
            }
            let leaving = Leaving { matrix, at, array, first };
            if self.observer.is_some() || self.block.random(2) == 0 {
                machine.store_now(&self.block.shared.arrays, leaving);
            } else {
                self.block.engine.stores[usize::from(thread)].late.push((group, leaving));
            }
        }
    }

    /// An agent that the lane has started reads cells of an array.
    pub fn read_by_agent(
        &mut self,
        array: usize,
        cells: impl Iterator<Item = usize>,
        now: super::race::Now,
        agent: Access,
    ) {
        if !self.machine.config.races {
            return;
        }
        let mut hazards = Vec::new();
        for cell in cells {
            let hazard =
                self.block.shadow.read_by_agent(&mut self.block.clocks, (array, cell), &Eyes::Thread(now), agent);
            note_hazard(&mut hazards, cell * self.machine.granules[array], hazard);
        }
        for (index, hazard) in hazards {
            let by = (now.site, now.lane, Does::Read);
            self.mistake(self.machine.hazard((Space::Shared, array, index), by, hazard));
        }
    }

    /// A store of a tile writes until its thread has waited for it.
    fn write_until_waited(&mut self, matrix: usize, index: usize, now: super::race::Now, group: u32) {
        let machine = self.machine;
        self.check_early(matrix, index, now);
        machine.own(matrix, index, self.block.linear, now.lane, now.site, true);
        let agent = Access { clock: group, site: now.site.0, lane: machine.agents.lane(Agent::Stores(now.lane)) };
        let at = (machine.memory[matrix] as u32, index as u64);
        match self.global.write_by_agent(&mut self.block.clocks, at, &now, agent) {
            Some(Hazard::Conflict(conflict)) => self.race_at(matrix, index, now, conflict),
            Some(hazard) => {
                let by = (now.site, now.lane, Does::Write);
                self.mistake(machine.hazard((Space::Global, matrix, index), by, hazard));
            }
            None => {}
        }
    }

    pub fn commit_stores(&mut self) {
        self.lanes().for_each(|lane| self.block.engine.stores[usize::from(lane)].groups.commit());
        self.observe(What::CommitStores);
    }

    /// The lanes wait for their stores, or for what these read; that is when those are known.
    pub fn await_stores(&mut self, pending: u32, read: bool) {
        self.observe(What::AwaitStores(pending));
        for lane in self.lanes() {
            let done = self.block.engine.stores[usize::from(lane)].groups.wait(pending);
            self.machine.leave(self.block, usize::from(lane), done);
            if self.machine.config.races && done > 0 {
                let agents = [Agent::Thread(lane), Agent::Stores(lane)];
                for &agent in &agents[..if read { 1 } else { 2 }] {
                    let known = Knowledge::of_agent(self.block.linear as u32, self.machine.agents.lane(agent), done);
                    self.block.clocks.acquire(lane, &known);
                }
            }
        }
    }
}
