//! Releases and acquires at an element of memory: what a strong read of it makes known.
//!
//! A release and the strong writes that go on with it are what PTX calls a release pattern. It synchronizes with an acquire that observes it
//! where the scope of each includes the other's thread.

use std::sync::Arc;

use super::race::{ByReach, Clocks, Knowledge};
use crate::ir::Scope;

/// The releases that a read of an element observes now: those of its last strong write and, where that was atomic, of those that it
/// observed itself. (PTX calls a release and the strong writes that go on with it a release pattern.)
#[derive(Clone, Debug, Default)]
pub(super) struct Published {
    releases: Vec<Release>,
    last: Option<Writer>,
}

/// Whose strong write was the last to an element.
#[derive(Clone, Copy, Debug)]
pub(super) struct Writer {
    block: u32,
    /// Whether its scope includes other blocks.
    wide: bool,
}

impl Writer {
    pub fn new(block: u32, scope: Scope) -> Self {
        Writer { block, wide: scope != Scope::Block }
    }

    /// Whether the write and an access by a block are morally strong: the scope of each includes the other's thread.
    pub fn is_strong_with(self, block: u32, scope: Scope) -> bool {
        self.block == block || self.wide && scope != Scope::Block
    }
}

#[derive(Clone, Debug)]
struct Release {
    block: u32,
    /// The thread that released; none where several did, one by an atomic operation after the other.
    lane: Option<u16>,
    /// Whether other blocks may acquire it.
    wide: bool,
    known: Arc<Knowledge>,
}

impl Release {
    /// Whether an access by a block reaches it, and it that block.
    fn reaches(&self, block: u32, scope: Scope) -> bool {
        self.block == block || self.wide && scope != Scope::Block
    }
}

impl Published {
    /// An ordered store, or the write half of an atomic operation, which goes on with the releases that it observed. A store goes on
    /// with releases of its own thread.
    pub fn store(&mut self, clocks: &mut Clocks, lane: u16, releases: bool, scope: Scope, read_modify_write: bool) {
        let (block, wide) = (clocks.block, scope != Scope::Block);
        let follows = self.is_observed_by(block, scope);
        self.releases.retain(|old| match read_modify_write {
            true => follows && old.reaches(block, scope),
            false => (old.block, old.lane) == (block, Some(lane)),
        });
        self.last = Some(Writer::new(block, scope));
        if releases {
            self.add(block, lane, wide, Arc::new(clocks.release(lane)));
            return;
        }
        let ByReach { block: near, device: far } = clocks.fenced[usize::from(lane)].clone();
        far.filter(|_| wide).into_iter().for_each(|known| self.add(block, lane, true, known));
        near.into_iter().for_each(|known| self.add(block, lane, false, known));
    }

    fn add(&mut self, block: u32, lane: u16, wide: bool, known: Arc<Knowledge>) {
        match self.releases.iter_mut().find(|release| (release.block, release.wide) == (block, wide)) {
            Some(release) => {
                release.lane = release.lane.filter(|other| *other == lane);
                Arc::make_mut(&mut release.known).join(&known);
            }
            None => self.releases.push(Release { block, lane: Some(lane), wide, known }),
        }
    }

    /// A plain store, which publishes nothing.
    pub fn clear(&mut self) {
        *self = Published::default();
    }

    /// Whether a read of the last write observes it. Of earlier releases, too, it observes only those behind such writes.
    fn is_observed_by(&self, block: u32, scope: Scope) -> bool {
        self.last.is_none_or(|last| last.is_strong_with(block, scope))
    }

    /// An ordered load, or the read half of an atomic operation. Gives the block whose release it reads in vain, since a scope is too narrow.
    pub fn load(&self, clocks: &mut Clocks, lane: u16, acquires: bool, scope: Scope) -> Option<u32> {
        let mine = clocks.block;
        let follows = self.is_observed_by(mine, scope);
        let (reached, missed): (Vec<_>, Vec<_>) =
            self.releases.iter().partition(|release| follows && release.reaches(mine, scope));
        for Release { block, known, .. } in &reached {
            if acquires {
                clocks.acquire(lane, known);
            } else {
                let seen = &mut clocks.seen[usize::from(lane)];
                let seen = if *block == mine { &mut seen.block } else { &mut seen.device };
                seen.get_or_insert_default().join(known);
            }
        }
        missed
            .iter()
            .map(|release| release.block)
            .find(|missed| !reached.iter().any(|reached| reached.block == *missed))
    }
}
