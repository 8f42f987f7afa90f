//! Releases and acquires at an element of memory: what a strong read of it makes known.
//!
//! A release and the later strong writes of its thread to the element are a release pattern (PTX ISA,
//! "Memory Consistency Model"). It synchronizes with an acquire that observes it where the scope of
//! each includes the other's thread.

use std::collections::BTreeMap;
use std::sync::Arc;

use tegula_ir::Scope;

use super::race::{ByReach, Clocks, Knowledge};

/// The releases that a read of an element observes now: those of its last strong write and, where that
/// was an atomic operation, those that it observed itself.
#[derive(Clone, Debug, Default)]
pub(super) struct Published {
    releases: Vec<Release>,
    /// Writer of the last strong write.
    last: Option<Writer>,
    /// Each thread's last release at the element. A later strong write of the thread continues it,
    /// whatever other threads write in between.
    own: BTreeMap<(Writer, u16), Arc<Knowledge>>,
    /// Releases that each thread observed and did not acquire. A later acquire of the element does.
    seen: BTreeMap<(u32, u16), Vec<Release>>,
}

/// Where a strong write, or a release, comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Writer {
    pub block: u32,
    /// Whether its scope includes other blocks.
    pub wide: bool,
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
    /// Records an ordered store, or the write half of an atomic operation. An atomic operation continues
    /// the releases that it observed; both continue those of their own thread.
    pub fn store(&mut self, clocks: &mut Clocks, lane: u16, releases: bool, scope: Scope, read_modify_write: bool) {
        let by = Writer::new(clocks.block, scope);
        if !read_modify_write || !self.is_observed_by(by.block, scope) {
            self.releases.clear();
        }
        self.last = Some(by);
        for wide in [false, true] {
            let own = Writer { wide, ..by };
            if let Some(known) = self.own.get(&(own, lane)).cloned() {
                add(&mut self.releases, own, &known);
            }
        }
        if releases {
            let known = Arc::new(clocks.release(lane));
            self.own.insert((by, lane), known.clone());
            add(&mut self.releases, by, &known);
        }
        // A fence before the write releases as far as the fence reaches.
        let ByReach { block: near, device: far } = clocks.fenced[usize::from(lane)].clone();
        for (wide, known) in [(false, near), (true, far)] {
            known.iter().for_each(|known| add(&mut self.releases, Writer { wide, ..by }, known));
        }
    }

    /// A plain store, which publishes nothing.
    pub fn clear(&mut self) {
        self.releases.clear();
        self.last = None;
    }

    /// Whether a read observes the last write, and with it the releases that the write continues.
    fn is_observed_by(&self, block: u32, scope: Scope) -> bool {
        self.last.is_none_or(|last| last.is_strong_with(block, scope))
    }

    /// An ordered load, or the read half of an atomic operation. Gives the block whose release it
    /// reads in vain, since a scope is too narrow.
    ///
    /// An acquire pattern is an acquire, or a strong read followed by an acquire of the same
    /// element or by a fence. Its scope is that of the acquire or of the fence. The read's own
    /// scope decides only whether it observes the last write.
    pub fn load(&mut self, clocks: &mut Clocks, lane: u16, acquires: bool, scope: Scope) -> Option<u32> {
        let mine = clocks.block;
        let observed = if self.is_observed_by(mine, scope) { &self.releases[..] } else { &[] };
        let is_reached = |release: &&Release| release.by.is_strong_with(mine, scope);
        if acquires {
            let earlier = self.seen.get(&(mine, lane)).into_iter().flatten();
            observed.iter().chain(earlier).filter(is_reached).for_each(|release| clocks.acquire(lane, &release.known));
        }
        for release in observed.iter().filter(|release| !acquires || !is_reached(release)) {
            let seen = &mut clocks.seen[usize::from(lane)];
            // No fence reaches a release to another block that is narrow.
            let seen = match release.by {
                Writer { block, .. } if block == mine => &mut seen.block,
                Writer { wide: true, .. } => &mut seen.device,
                Writer { .. } => continue,
            };
            seen.get_or_insert_default().join(&release.known);
            add(self.seen.entry((mine, lane)).or_default(), release.by, &release.known);
        }
        let mut missed = self.releases.iter().filter(|release| observed.is_empty() || !is_reached(release));
        missed.find_map(|missed| {
            let same = |release: &Release| release.by.block == missed.by.block && is_reached(&release);
            (!observed.iter().any(same)).then_some(missed.by.block)
        })
    }
}

/// Adds a release to some, those of one writer as one.
fn add(releases: &mut Vec<Release>, by: Writer, known: &Arc<Knowledge>) {
    match releases.iter_mut().find(|release| release.by == by) {
        Some(release) => Arc::make_mut(&mut release.known).join(known),
        None => releases.push(Release { by, known: known.clone() }),
    }
}
