//! What the warps of a cluster did, run once more by the clock of [`Costs`]: each warp does its deeds in order, and goes on from a wait
//! when what it waits for has happened. The earliest deed is always next, so barriers see arrivals in the order of their times.

use std::collections::BTreeMap;

use super::Costs;
use crate::trace::{Deed, Doing, Header, Spot};

/// A thing in shared memory of a block, which is named by its position in its cluster.
type Place = (u32, Spot);

/// All that happened, and when.
#[derive(Debug, Default)]
pub(super) struct Replay {
    /// The position of the block in its cluster.
    pub block: u32,
    /// Block and warp of each who did something.
    pub warps: Vec<(u32, u32)>,
    pub asks: Vec<Work>,
    pub fills: Vec<Fill>,
    pub products: Vec<Work>,
    pub sends: Vec<Work>,
    pub stores: Vec<Work>,
    pub waits: Vec<Waited>,
    pub stuck: bool,
}

/// Something that a warp does for some time, and on which tiles.
#[derive(Clone, Debug)]
pub(super) struct Work {
    pub warp: usize,
    pub columns: [u32; 2],
    pub turn: u32,
    pub tiles: Vec<Spot>,
}

/// Copies that one phase of a barrier counts.
#[derive(Clone, Debug)]
pub(super) struct Fill {
    pub block: u32,
    pub barrier: Spot,
    phase: usize,
    pub turn: u32,
    pub tiles: Vec<Spot>,
    /// From when they were first asked for until all had come; for ever where they never do.
    pub columns: [u32; 2],
    /// The phase whose end says that the tiles may be filled again.
    back: Option<(Spot, usize)>,
    /// When that was.
    pub handed_back: Option<u32>,
}

/// A wait for a phase of a barrier, or for stores.
#[derive(Clone, Debug)]
pub(super) struct Waited {
    pub warp: usize,
    pub barrier: Option<Spot>,
    /// Columns in which the warp had no products under way either.
    pub columns: [u32; 2],
    pub by: Vec<By>,
}

/// Who ends a phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum By {
    Copies,
    Stores,
    Sums,
    Warp(usize),
}

#[derive(Debug, Default)]
struct Barrier {
    arrivals: u32,
    missing: u32,
    /// Announced and not come yet.
    bytes: i64,
    /// When each phase ended, and by whom.
    ended: Vec<(u32, Vec<By>)>,
    /// The last to come, and when.
    last: (u32, Vec<By>),
}

impl Barrier {
    fn come(&mut self, at: u32, by: By, arrivals: u32, bytes: i64) {
        let Some(missing) = self.missing.checked_sub(arrivals) else { return };
        (self.missing, self.bytes) = (missing, self.bytes.saturating_add(bytes));
        if self.last.0 != at {
            self.last = (at, Vec::new());
        }
        if !self.last.1.contains(&by) {
            self.last.1.push(by);
        }
        if self.missing == 0 && self.bytes == 0 && self.arrivals > 0 {
            self.missing = self.arrivals;
            self.ended.push(std::mem::take(&mut self.last));
        }
    }

    /// Whether the phase of that parity has ended, of this one and the one before.
    fn has_passed(&self, parity: u32) -> bool {
        self.ended.len() as u32 & 1 != parity & 1
    }
}

/// Where threads of a block meet: how many have come, and when each meeting was over.
#[derive(Debug, Default)]
struct Meeting {
    came: u32,
    over: Vec<u32>,
}

/// A warp, as far as it has come.
#[derive(Debug, Default)]
struct Warp<'t> {
    block: u32,
    deeds: Vec<&'t Deed>,
    next: usize,
    time: u32,
    /// When the products and the stores of each group are over.
    products: Vec<u32>,
    stores: Vec<u32>,
    /// What is multiplied by the group that is not closed yet.
    multiplied: Vec<Spot>,
    /// When the last store is over.
    stored: u32,
    /// The phase for which it waited last.
    waited: Option<(Spot, usize)>,
    /// The meeting at which it is.
    meeting: Option<(u32, usize)>,
}

impl<'t> Warp<'t> {
    fn next(&self) -> Option<&'t Deed> {
        self.deeds.get(self.next).copied()
    }

    /// From when on nothing of it is multiplied.
    fn idle_from(&self, came: u32) -> u32 {
        came.max(self.products.last().copied().unwrap_or(0))
    }
}

/// When all but the latest groups are over.
fn over(groups: &[u32], pending: u32) -> u32 {
    let done = groups.len().saturating_sub(pending as usize);
    groups[..done].last().copied().unwrap_or(0)
}

/// Bytes on their way: when they come, and where they are counted.
#[derive(Debug)]
struct Landing {
    at: u32,
    barrier: Place,
    bytes: u32,
    by: By,
}

struct Clock<'t> {
    costs: Costs,
    cluster: u32,
    warps: Vec<Warp<'t>>,
    barriers: BTreeMap<Place, Barrier>,
    meetings: BTreeMap<(u32, u32), Meeting>,
    landings: Vec<Landing>,
    replay: Replay,
}

/// Runs the cluster of a block. Nothing where it has no tiles copied.
pub(super) fn run(header: &Header, block: [u32; 3], costs: Costs) -> Option<Replay> {
    let cluster = header.cluster.clamp(1, 32);
    let group = |[x, y, z]: [u32; 3]| [x / cluster, y, z];
    let mut warps: BTreeMap<(u32, u32), Warp<'_>> = BTreeMap::new();
    let mut barriers: BTreeMap<Place, Barrier> = BTreeMap::new();
    for deed in header.deeds.iter().filter(|deed| group(deed.block) == group(block)) {
        let rank = deed.block[0] % cluster;
        // Who begins a barrier has met all others before they use it.
        if let Doing::Begin { barrier, arrivals } = deed.does {
            barriers.insert((rank, barrier), Barrier { arrivals, missing: arrivals, ..Barrier::default() });
        }
        warps.entry((rank, deed.warp)).or_insert_with(|| Warp { block: rank, ..Warp::default() }).deeds.push(deed);
    }
    if !warps.values().any(|warp| warp.deeds.iter().any(|deed| matches!(deed.does, Doing::Copy { .. }))) {
        return None;
    }
    let replay = Replay { block: block[0] % cluster, warps: warps.keys().copied().collect(), ..Replay::default() };
    let warps = warps.into_values().collect();
    let (meetings, landings) = (BTreeMap::new(), Vec::new());
    let mut clock = Clock { costs, cluster, warps, barriers, meetings, landings, replay };
    while clock.go_on() {}
    Some(clock.finish())
}

impl<'t> Clock<'t> {
    /// Does what is next. False where nothing is.
    fn go_on(&mut self) -> bool {
        let warp = (0..self.warps.len()).filter_map(|warp| Some((self.ready(warp)?, warp))).min();
        let landing = (0..self.landings.len()).map(|landing| (self.landings[landing].at, landing)).min();
        match (warp, landing) {
            (Some((now, _)), Some((at, landing))) if at <= now => self.land(landing),
            (None, Some((_, landing))) => self.land(landing),
            (Some((now, warp)), _) => self.act(warp, now),
            (None, None) => return false,
        }
        true
    }

    fn land(&mut self, landing: usize) {
        let Landing { at, barrier, bytes, by } = self.landings.remove(landing);
        if let Some(barrier) = self.barriers.get_mut(&barrier) {
            barrier.come(at, by, 0, -i64::from(bytes));
        }
    }

    /// When a warp goes on, as far as that is known: neither where it waits, nor where it has ended.
    fn ready(&self, warp: usize) -> Option<u32> {
        let Warp { block, time, meeting, .. } = self.warps[warp];
        if let Some((id, number)) = meeting {
            return Some(time.max(*self.meetings.get(&(block, id))?.over.get(number)?));
        }
        match self.warps[warp].next()?.does {
            Doing::Await { barrier, parity } => {
                let barrier = self.barriers.get(&(block, barrier)).filter(|barrier| barrier.has_passed(parity))?;
                Some(time.max(barrier.ended.last().map_or(0, |(at, _)| *at)))
            }
            _ => Some(time),
        }
    }

    /// A warp goes on: from where it met others, or with its next deed.
    fn act(&mut self, number: usize, now: u32) {
        let Costs { ask, copy, multiply, store, send } = self.costs;
        let warp = &mut self.warps[number];
        let came = std::mem::replace(&mut warp.time, now);
        if warp.meeting.take().is_some() {
            return;
        }
        let Some(deed) = warp.next() else { return };
        warp.next += 1;
        let (turn, block) = (deed.turn.unwrap_or(0), warp.block);
        let work = |length, tiles| Work { warp: number, columns: [now, now + length], turn, tiles };
        match deed.does {
            Doing::Begin { .. } => {}
            Doing::Arrive { barrier, block, bytes } => {
                if let Some(barrier) = self.barriers.get_mut(&(block, barrier)) {
                    barrier.come(now, By::Warp(number), 1, bytes.into());
                }
            }
            Doing::Await { barrier, .. } => self.awaited(number, barrier, came),
            Doing::Copy { tile, bytes, barrier, blocks } => {
                for to in (0..self.cluster).filter(|to| blocks >> to & 1 == 1) {
                    self.landings.push(Landing { at: now + copy, barrier: (to, barrier), bytes, by: By::Copies });
                    self.fill(number, (to, barrier), tile, turn);
                }
                let warp = &mut self.warps[number];
                if !matches!(warp.next().map(|deed| &deed.does), Some(Doing::Copy { .. })) {
                    warp.time += ask;
                    warp.waited = None;
                    self.replay.asks.push(work(ask, vec![tile]));
                }
            }
            Doing::Multiply { ref tiles } => warp.multiplied.extend(tiles),
            Doing::CommitProducts => {
                let from = now.max(warp.products.last().copied().unwrap_or(0));
                let tiles = std::mem::take(&mut warp.multiplied);
                let to = if tiles.is_empty() { from } else { from + multiply };
                warp.products.push(to);
                if !tiles.is_empty() {
                    self.replay.products.push(Work { columns: [from, to], ..work(0, tiles) });
                }
            }
            Doing::AwaitProducts(pending) => warp.time = now.max(over(&warp.products, pending)),
            Doing::Send { block, barrier, bytes } => {
                self.landings.push(Landing { at: now + send, barrier: (block, barrier), bytes, by: By::Sums });
                if !matches!(warp.next().map(|deed| &deed.does), Some(Doing::Send { .. })) {
                    warp.time += send;
                    self.replay.sends.push(work(send, Vec::new()));
                }
            }
            Doing::Store { tile } => {
                // One after the other.
                let from = now.max(warp.stored);
                warp.stored = from + store;
                self.replay.stores.push(Work { columns: [from, warp.stored], ..work(0, vec![tile]) });
            }
            Doing::CommitStores => warp.stores.push(warp.stored),
            Doing::AwaitStores(pending) => {
                let to = now.max(over(&warp.stores, pending));
                warp.time = to;
                if to > now {
                    let columns = [warp.idle_from(now).min(to), to];
                    self.replay.waits.push(Waited { warp: number, barrier: None, columns, by: vec![By::Stores] });
                }
            }
            Doing::Meet { id, threads, waits } => {
                let meeting = self.meetings.entry((block, id)).or_default();
                if waits {
                    warp.meeting = Some((id, meeting.over.len()));
                }
                meeting.came += 32;
                if meeting.came >= threads {
                    meeting.came = 0;
                    meeting.over.push(now);
                }
            }
        }
    }

    /// A warp that came to a barrier some time ago goes on.
    fn awaited(&mut self, number: usize, spot: Spot, came: u32) {
        let warp = &mut self.warps[number];
        let Some(barrier) = self.barriers.get(&(warp.block, spot)) else { return };
        let by = barrier.ended.last().map_or_else(Vec::new, |(_, by)| by.clone());
        warp.waited = Some((spot, barrier.ended.len()));
        let columns = [warp.idle_from(came).min(warp.time), warp.time];
        self.replay.waits.push(Waited { warp: number, barrier: Some(spot), columns, by });
    }

    /// Notes that a tile is copied, with the others that the same phase counts.
    fn fill(&mut self, number: usize, (block, spot): Place, tile: Spot, turn: u32) {
        let (now, phase) = (self.warps[number].time, self.barriers.get(&(block, spot)).map_or(0, |b| b.ended.len()));
        let same = |fill: &&mut Fill| (fill.block, fill.barrier, fill.phase) == (block, spot, phase);
        let back = self.warps[number].waited.filter(|_| self.warps[number].block == block);
        if let Some(fill) = self.replay.fills.iter_mut().rev().find(same) {
            fill.tiles.push(tile);
            fill.back = fill.back.or(back);
            return;
        }
        let (tiles, columns) = (vec![tile], [now, u32::MAX]);
        self.replay.fills.push(Fill { block, barrier: spot, phase, turn, tiles, columns, back, handed_back: None });
    }

    fn finish(mut self) -> Replay {
        let ended = |block, (spot, phase): (Spot, usize)| Some(self.barriers.get(&(block, spot))?.ended.get(phase)?.0);
        for fill in &mut self.replay.fills {
            fill.columns[1] = ended(fill.block, (fill.barrier, fill.phase)).unwrap_or(u32::MAX);
            fill.handed_back = fill.back.and_then(|back| ended(fill.block, back));
        }
        self.replay.stuck = self.warps.iter().any(|warp| warp.meeting.is_some() || warp.next().is_some());
        self.replay
    }
}
