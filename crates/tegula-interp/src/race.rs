//! Which accesses are ordered, and which race.
//!
//! Every lane has a clock that advances whenever it synchronises. An access is remembered as (lane,
//! clock); it happened before a later one exactly if the later lane *knows* that clock: from its
//! own past, from the last barrier of its block, from the last synchronisation of its warp, or from
//! something it acquired. Two accesses to one element, at least one of them a write, that
//! are not ordered so are a race, whatever order the interpreter happened to run them in. (The
//! scheme is that of Flanagan and Freund, "FastTrack: efficient and precise dynamic race
//! detection", PLDI 2009, with barriers as wholesale synchronisation instead of clock vectors for
//! every lane.)
//!
//! What works beside the threads (copies of tiles, matrix instructions of warpgroups) are *agents*:
//! lanes of their own, whose clocks go up with what they are given to do. An agent's access is
//! remembered when its work is started, and known to nobody until somebody waits for it. So an
//! early use is found whatever the schedule, and so is a release that comes before the wait.

use std::collections::BTreeMap;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use tegula_ir::{Scope, SiteId};

/// An access that happened: by which lane of its block, at which clock, where in the source. Clock
/// 0: none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Access {
    pub clock: u32,
    pub site: u32,
    pub lane: u16,
}

/// What an access does to an element.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Does {
    Read,
    Write,
}

/// Lanes from here on are agents.
pub(super) const AGENT: u16 = 0x8000;

/// The lane that looks back.
#[derive(Clone, Copy, Debug)]
pub(super) struct Now {
    pub lane: u16,
    pub clock: u32,
    pub site: SiteId,
    /// Whom the access speaks to, where it is one that may race with others of its kind.
    pub ordered: Option<Scope>,
}

/// Whose knowledge decides what came before.
#[derive(Clone, Copy, Debug)]
pub(super) enum Eyes<'a> {
    /// A thread of the block, now.
    Thread(Now),
    /// A thread of the cluster, when it sent something.
    Sender(&'a Knowledge),
}

impl Now {
    pub fn access(self) -> Access {
        Access { clock: self.clock, site: self.site.0, lane: self.lane }
    }
}

/// What a lane knows beyond its own block's barriers: for whole blocks and for single lanes, up to
/// which clock. Both sorted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Knowledge {
    /// Everything the threads of a block did before this clock.
    blocks: Vec<(u32, u32)>,
    /// Everything a lane did up to and including this clock.
    lanes: Vec<((u32, u16), u32)>,
}

impl Knowledge {
    /// What an agent did.
    pub fn of_agent(block: u32, agent: u16, clock: u32) -> Self {
        Knowledge { blocks: Vec::new(), lanes: vec![((block, agent), clock)] }
    }

    pub fn join(&mut self, other: &Knowledge) {
        join(&mut self.blocks, &other.blocks);
        join(&mut self.lanes, &other.lanes);
    }

    pub fn covers(&self, block: u32, access: &Access) -> bool {
        access.lane < AGENT && known(&self.blocks, block).is_some_and(|clock| access.clock < clock)
            || known(&self.lanes, (block, access.lane)).is_some_and(|clock| access.clock <= clock)
    }
}

/// The later clock of each.
fn join<K: Copy + Ord>(mine: &mut Vec<(K, u32)>, other: &[(K, u32)]) {
    if mine.is_empty() || other.is_empty() {
        mine.extend(other);
        return;
    }
    let mut joined = Vec::with_capacity(mine.len() + other.len());
    let (mut a, mut b) = (mine.iter().copied().peekable(), other.iter().copied().peekable());
    while let (Some(&(key, clock)), Some(&(further, theirs))) = (a.peek(), b.peek()) {
        if key <= further {
            a.next();
        }
        if further <= key {
            b.next();
        }
        joined.push(match key.cmp(&further) {
            std::cmp::Ordering::Less => (key, clock),
            std::cmp::Ordering::Equal => (key, clock.max(theirs)),
            std::cmp::Ordering::Greater => (further, theirs),
        });
    }
    joined.extend(a);
    joined.extend(b);
    *mine = joined;
}

fn known<K: Copy + Ord>(clocks: &[(K, u32)], key: K) -> Option<u32> {
    clocks.binary_search_by_key(&key, |&(key, _)| key).ok().map(|at| clocks[at].1)
}

/// When each lane fenced, by block. What it did before is behind the fence for whoever knows of the
/// fence.
#[derive(Debug, Default)]
pub(super) struct Fences(FxHashMap<(u32, u16), Vec<u32>>);

impl Fences {
    /// A lane fences.
    pub fn add(&mut self, clocks: &mut Clocks, lane: u16) {
        let clock = &mut clocks.clocks[usize::from(lane)];
        self.0.entry((clocks.block, lane)).or_default().push(*clock);
        *clock += 1;
    }

    /// Whether the first fence of an access's lane after it happened before what somebody does or
    /// did.
    pub fn is_after(&self, clocks: &mut Clocks, eyes: &Eyes<'_>, block: u32, access: &Access) -> bool {
        let Some(fences) = self.0.get(&(block, access.lane)) else { return false };
        let first = fences.get(fences.partition_point(|&clock| clock < access.clock));
        first.is_some_and(|&clock| clocks.seen_across(eyes, block, &Access { clock, ..*access }))
    }
}

/// Something for the block alone, and something for the whole device.
#[derive(Clone, Debug)]
pub(super) struct ByReach<T> {
    pub block: Option<T>,
    pub device: Option<T>,
}

impl<T> Default for ByReach<T> {
    fn default() -> Self {
        ByReach { block: None, device: None }
    }
}

/// The clocks of one block.
#[derive(Debug)]
pub(super) struct Clocks {
    pub block: u32,
    clocks: Vec<u32>,
    /// All lanes of the block know everything before this clock …
    pub base: u32,
    /// … and knew everything before that one one barrier earlier.
    pub previous: u32,
    /// All lanes of a warp know everything their warp did before this clock.
    warps: Vec<u32>,
    /// What else each lane knows.
    known: Vec<Option<Arc<Knowledge>>>,
    /// What each lane's last fences published, and what it read since that a fence would make
    /// known.
    pub fenced: Vec<ByReach<Arc<Knowledge>>>,
    pub seen: Vec<ByReach<Knowledge>>,
    /// Whether the last barrier ordered anything.
    pub barrier_needed: bool,
    /// Whether reads must all be remembered.
    pub every_reader: bool,
    /// Blocks whose releases were read in vain, since a scope was too narrow, and where.
    pub missed: BTreeMap<u32, SiteId>,
}

impl Clocks {
    pub fn new(block: u32, threads: u32, every_reader: bool) -> Self {
        let n = threads as usize;
        Clocks {
            block,
            clocks: vec![1; n],
            base: 1,
            previous: 1,
            warps: vec![1; n.div_ceil(32)],
            known: vec![None; n],
            fenced: vec![ByReach::default(); n],
            seen: vec![ByReach::default(); n],
            barrier_needed: false,
            every_reader,
            missed: BTreeMap::new(),
        }
    }

    pub fn clock(&self, lane: u16) -> u32 {
        self.clocks[usize::from(lane)]
    }

    /// Whether an access of this block happened before what `now` does.
    #[inline]
    pub fn ordered(&mut self, access: &Access, now: &Now) -> bool {
        if access.lane == now.lane {
            return true;
        }
        let known = |clocks: &Self| {
            clocks.known[usize::from(now.lane)].as_ref().is_some_and(|k| k.covers(clocks.block, access))
        };
        if access.lane >= AGENT {
            // Any barrier may be the one that made it known.
            let known = known(self);
            self.barrier_needed |= known;
            return known;
        }
        if access.clock < self.base {
            self.barrier_needed |= access.clock >= self.previous;
            return true;
        }
        let warp = usize::from(now.lane / 32);
        if usize::from(access.lane / 32) == warp && access.clock < self.warps[warp] {
            return true;
        }
        known(self)
    }

    /// Whether an access of this block happened before what somebody does or did.
    pub fn seen_by(&mut self, eyes: &Eyes<'_>, access: &Access) -> bool {
        match eyes {
            Eyes::Thread(now) => self.ordered(access, now),
            Eyes::Sender(known) => known.covers(self.block, access),
        }
    }

    /// As [`Clocks::seen_by`], of an access of any block.
    pub fn seen_across(&mut self, eyes: &Eyes<'_>, block: u32, access: &Access) -> bool {
        match eyes {
            Eyes::Thread(now) => self.ordered_across(block, access, now),
            Eyes::Sender(known) => known.covers(block, access),
        }
    }

    /// Whether an access of any block happened before what `now` does.
    pub fn ordered_across(&mut self, block: u32, access: &Access, now: &Now) -> bool {
        if block == self.block {
            return self.ordered(access, now);
        }
        self.known[usize::from(now.lane)].as_ref().is_some_and(|k| k.covers(block, access))
    }

    /// All threads of the block have met.
    pub fn barrier(&mut self) {
        let next = self.clocks.iter().max().copied().unwrap_or(0) + 1;
        self.previous = self.base;
        self.base = next;
        self.clocks.fill(next);
        self.warps.fill(next);
        self.barrier_needed = false;
        if self.known.iter().any(Option::is_some) {
            let mut all = self.different(0..self.known.len());
            all.lanes.retain(|&((block, lane), _)| block != self.block || lane >= AGENT);
            self.known.fill(Some(Arc::new(all)));
        }
    }

    /// Lanes of a warp have met.
    pub fn sync_warp(&mut self, warp: u32, mask: u32, existing: u32) {
        let lanes = || lanes_of(warp, mask & existing);
        let next = lanes().map(|l| self.clock(l)).max().unwrap_or(0) + 1;
        let whole = mask & existing == existing;
        if !whole || lanes().any(|l| self.known[usize::from(l)].is_some()) {
            let all = Arc::new(self.of_lanes(warp, mask & existing));
            lanes().for_each(|l| self.known[usize::from(l)] = Some(all.clone()));
        }
        lanes().for_each(|l| self.clocks[usize::from(l)] = next);
        if whole {
            self.warps[warp as usize] = next;
        }
    }

    /// All that lanes know from elsewhere. Mostly neighbours know the same, and it is looked at
    /// once.
    fn different(&self, lanes: impl Iterator<Item = usize>) -> Knowledge {
        let (mut all, mut last) = (Knowledge::default(), None);
        for known in lanes.filter_map(|lane| self.known[lane].as_ref()) {
            if !last.is_some_and(|last| Arc::ptr_eq(last, known)) {
                all.join(known);
                last = Some(known);
            }
        }
        all
    }

    /// All that lanes of a warp know and have done.
    fn of_lanes(&self, warp: u32, mask: u32) -> Knowledge {
        let mut all = self.different(lanes_of(warp, mask).map(usize::from));
        join(&mut all.blocks, &[(self.block, self.base)]);
        let before = self.warps[warp as usize];
        let in_warp = if before > self.base { u32::MAX } else { mask };
        let own = lanes_of(warp, in_warp).map(|l| {
            let did = mask >> (l % 32) & 1 == 1;
            ((self.block, l), if did { self.clock(l) } else { before - 1 })
        });
        join(&mut all.lanes, &own.collect::<Vec<_>>());
        all
    }

    /// Everything that all lanes of the block know.
    pub fn of_all(&self) -> Knowledge {
        self.different(0..self.known.len())
    }

    /// A lane publishes what it knows; what it does from now on is not part of that.
    pub fn release(&mut self, lane: u16) -> Knowledge {
        self.release_lanes(u32::from(lane / 32), 1 << (lane % 32))
    }

    /// Lanes of a warp publish what they know.
    pub fn release_lanes(&mut self, warp: u32, mask: u32) -> Knowledge {
        let knowledge = self.of_lanes(warp, mask);
        lanes_of(warp, mask).for_each(|lane| self.clocks[usize::from(lane)] += 1);
        knowledge
    }

    pub fn acquire(&mut self, lane: u16, what: &Knowledge) {
        self.acquire_lanes(u32::from(lane / 32), 1 << (lane % 32), what);
    }

    pub fn acquire_lanes(&mut self, warp: u32, mask: u32, what: &Knowledge) {
        let mut last: Option<(Option<Arc<Knowledge>>, Arc<Knowledge>)> = None;
        for lane in lanes_of(warp, mask) {
            let known = &mut self.known[usize::from(lane)];
            let same = |before: &Option<Arc<Knowledge>>| match (before, &*known) {
                (Some(before), Some(known)) => Arc::ptr_eq(before, known),
                (before, known) => before.is_none() && known.is_none(),
            };
            let all = match &last {
                Some((before, all)) if same(before) => all.clone(),
                _ => {
                    let mut all = known.as_deref().cloned().unwrap_or_default();
                    all.join(what);
                    Arc::new(all)
                }
            };
            last = Some((known.replace(all.clone()), all));
        }
    }

    /// A fence: later relaxed stores publish what the lane knows now; earlier relaxed loads make
    /// known what they saw. One for the block says nothing to other blocks and makes nothing
    /// known of them.
    pub fn fence(&mut self, lane: u16, scope: Scope) {
        let seen = &mut self.seen[usize::from(lane)];
        let of_others = if scope == Scope::Block { None } else { seen.device.take() };
        for seen in seen.block.take().into_iter().chain(of_others) {
            self.acquire(lane, &seen);
        }
        let known = Arc::new(self.release(lane));
        let fenced = &mut self.fenced[usize::from(lane)];
        if scope != Scope::Block {
            fenced.device = Some(known.clone());
        }
        fenced.block = Some(known);
    }
}

/// The lanes of a mask, as positions in the block.
pub(super) fn lanes_of(warp: u32, mask: u32) -> impl Iterator<Item = u16> {
    (0..32u32).filter(move |l| mask >> l & 1 == 1).map(move |l| (warp * 32 + l) as u16)
}

/// An earlier access that a new one races with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Conflict {
    pub block: u32,
    pub earlier: Access,
    pub earlier_writes: bool,
}
