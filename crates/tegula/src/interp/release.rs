//! Releases and acquires at an element of memory: what a strong read of it makes known.
//!
//! A release and the strong writes that go on with it are what PTX calls a release pattern. It synchronizes with an acquire that observes it
//! where the scope of each includes the other's thread.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::race::{ByReach, Clocks, Knowledge};
use crate::ir::Scope;

/// The releases that a read of an element observes now: those of its last strong write and, where that was atomic, of those that it
/// observed itself. (PTX calls a release and the strong writes that go on with it a release pattern.)
#[derive(Clone, Debug, Default)]
pub(super) struct Published {
    releases: Vec<Release>,
    /// Writer of the last strong write.
    last: Option<Writer>,
    /// The last release of each thread here, by its lane: a later strong write of the thread goes on with it, whatever others write
    /// between.
    own: BTreeMap<(Writer, u16), Arc<Knowledge>>,
}

/// Where a strong write, or a release, comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
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
    by: Writer,
    known: Arc<Knowledge>,
}

impl Published {
    /// An ordered store, or the write half of an atomic operation, which goes on with the releases that it observed. Both go on with
    /// those of their own thread.
    pub fn store(&mut self, clocks: &mut Clocks, lane: u16, releases: bool, scope: Scope, read_modify_write: bool) {
        let by = Writer::new(clocks.block, scope);
        if !read_modify_write || !self.is_observed_by(by.block, scope) {
            self.releases.clear();
        }
        self.last = Some(by);
        for wide in [false, true] {
            let own = Writer { wide, ..by };
            if let Some(known) = self.own.get(&(own, lane)).cloned() {
                self.add(own, known);
            }
        }
        if releases {
            let known = Arc::new(clocks.release(lane));
            self.own.insert((by, lane), known.clone());
            self.add(by, known);
        }
        // A fence before the write releases as far as the fence reaches.
        let ByReach { block: near, device: far } = clocks.fenced[usize::from(lane)].clone();
        for (wide, known) in [(false, near), (true, far)] {
            known.into_iter().for_each(|known| self.add(Writer { wide, ..by }, known));
        }
    }

    fn add(&mut self, by: Writer, known: Arc<Knowledge>) {
        match self.releases.iter_mut().find(|release| release.by == by) {
            Some(release) => Arc::make_mut(&mut release.known).join(&known),
            None => self.releases.push(Release { by, known }),
        }
    }

    /// A plain store, which publishes nothing.
    pub fn clear(&mut self) {
        self.releases.clear();
        self.last = None;
    }

    /// Whether a read of the last write observes it. Of earlier releases, too, it observes only those behind such writes.
    fn is_observed_by(&self, block: u32, scope: Scope) -> bool {
        self.last.is_none_or(|last| last.is_strong_with(block, scope))
    }

    /// An ordered load, or the read half of an atomic operation. Gives the block whose release it reads in vain, since a scope is too narrow.
    pub fn load(&self, clocks: &mut Clocks, lane: u16, acquires: bool, scope: Scope) -> Option<u32> {
        let mine = clocks.block;
        let observes = self.is_observed_by(mine, scope);
        let (reached, missed): (Vec<_>, Vec<_>) =
            self.releases.iter().partition(|release| observes && release.by.is_strong_with(mine, scope));
        for Release { by, known } in &reached {
            if acquires {
                clocks.acquire(lane, known);
            } else {
                let seen = &mut clocks.seen[usize::from(lane)];
                let seen = if by.block == mine { &mut seen.block } else { &mut seen.device };
                seen.get_or_insert_default().join(known);
            }
        }
        missed
            .iter()
            .map(|release| release.by.block)
            .find(|missed| !reached.iter().any(|reached| reached.by.block == *missed))
    }
}
