//! Releases and acquires at an element of memory: the clock views that strong reads acquire.
//!
//! A release and the later strong writes of its thread to the element are a release pattern (PTX
//! ISA, "Memory Consistency Model"). It synchronizes with an acquire that observes it if the scope
//! of each includes the other's thread.

use std::collections::BTreeMap;
use std::sync::Arc;

use tegula_ir::Scope;

use super::race::{BlockClocks, ByScope, ClockView};

/// The releases that a read of an element observes.
///
/// These are the releases of its last strong write and, if that is an atomic operation, the
/// releases that it observed itself.
#[derive(Clone, Debug, Default)]
pub struct ElementReleases {
    releases: Vec<Release>,
    /// Writer of the last strong write.
    last: Option<Writer>,
    /// Each thread's last release at the element.
    ///
    /// A later strong write of the thread continues it, whatever other threads write in between.
    own_releases: BTreeMap<(Writer, u16), Arc<ClockView>>,
    /// For each thread, releases that it has observed and not acquired. Its next acquire of the
    /// element acquires them.
    unacquired: BTreeMap<(u32, u16), Vec<Release>>,
}

/// The origin of a strong write or a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Writer {
    pub block: u32,
    /// Whether its scope includes other blocks.
    pub device_scope: bool,
}

impl Writer {
    pub fn new(block: u32, scope: Scope) -> Self {
        Writer { block, device_scope: scope != Scope::Block }
    }

    /// Whether the write and an access by a block are morally strong.
    ///
    /// The scope of each includes the other's thread.
    pub fn is_morally_strong_with(self, block: u32, scope: Scope) -> bool {
        self.block == block || self.device_scope && scope != Scope::Block
    }
}

#[derive(Clone, Debug)]
struct Release {
    by: Writer,
    view: Arc<ClockView>,
}

impl ElementReleases {
    /// Records a strong store, or the write half of an atomic operation.
    ///
    /// An atomic operation continues the releases that it observed. Both continue the releases of
    /// their own thread.
    pub fn store(
        &mut self,
        clocks: &mut BlockClocks,
        lane: u16,
        releases: bool,
        scope: Scope,
        read_modify_write: bool,
    ) {
        let by = Writer::new(clocks.block, scope);
        if !read_modify_write || !self.is_observed_by(by.block, scope) {
            self.releases.clear();
        }
        self.last = Some(by);
        for device_scope in [false, true] {
            let own = Writer { device_scope, ..by };
            if let Some(view) = self.own_releases.get(&(own, lane)).cloned() {
                add(&mut self.releases, own, &view);
            }
        }
        if releases {
            let view = Arc::new(clocks.release(lane));
            self.own_releases.insert((by, lane), view.clone());
            add(&mut self.releases, by, &view);
        }
        // A fence before the write releases with the scope of the fence.
        let ByScope { block: block_view, device: device_view } = clocks.fence_views[usize::from(lane)].clone();
        for (device_scope, view) in [(false, block_view), (true, device_view)] {
            view.iter().for_each(|view| add(&mut self.releases, Writer { device_scope, ..by }, view));
        }
    }

    /// Records a weak store, which releases nothing.
    pub fn clear(&mut self) {
        self.releases.clear();
        self.last = None;
    }

    /// Whether a read observes the last write, and with it the releases that the write continues.
    fn is_observed_by(&self, block: u32, scope: Scope) -> bool {
        self.last.is_none_or(|last| last.is_morally_strong_with(block, scope))
    }

    /// Records a strong load, or the read half of an atomic operation.
    ///
    /// Returns the block of a release that it misses because a scope is too narrow.
    ///
    /// An acquire pattern is an acquire, or a strong read followed by an acquire of the same
    /// element or by a fence. Its scope is that of the acquire or of the fence. The read's own
    /// scope decides only whether it observes the last write.
    pub fn load(&mut self, clocks: &mut BlockClocks, lane: u16, acquires: bool, scope: Scope) -> Option<u32> {
        let own_block = clocks.block;
        let observed = if self.is_observed_by(own_block, scope) { &self.releases[..] } else { &[] };
        let is_reached = |release: &&Release| release.by.is_morally_strong_with(own_block, scope);
        if acquires {
            let earlier = self.unacquired.get(&(own_block, lane)).into_iter().flatten();
            observed.iter().chain(earlier).filter(is_reached).for_each(|release| clocks.acquire(lane, &release.view));
        }
        for release in observed.iter().filter(|release| !acquires || !is_reached(release)) {
            let pending = &mut clocks.pending_acquires[usize::from(lane)];
            // No fence acquires a block-scope release of another block.
            let pending = match release.by {
                Writer { block, .. } if block == own_block => &mut pending.block,
                Writer { device_scope: true, .. } => &mut pending.device,
                Writer { .. } => continue,
            };
            pending.get_or_insert_default().join(&release.view);
            add(self.unacquired.entry((own_block, lane)).or_default(), release.by, &release.view);
        }
        let mut missed_releases = self.releases.iter().filter(|release| observed.is_empty() || !is_reached(release));
        missed_releases.find_map(|missed| {
            let is_of_same_block = |release: &Release| release.by.block == missed.by.block && is_reached(&release);
            (!observed.iter().any(is_of_same_block)).then_some(missed.by.block)
        })
    }
}

/// Adds a release; releases of one writer are joined.
fn add(releases: &mut Vec<Release>, by: Writer, view: &Arc<ClockView>) {
    match releases.iter_mut().find(|release| release.by == by) {
        Some(release) => Arc::make_mut(&mut release.view).join(view),
        None => releases.push(Release { by, view: view.clone() }),
    }
}
