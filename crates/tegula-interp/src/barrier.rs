//! Barriers of a block: mbarriers, named barriers, and its part of the barrier of the cluster.
//!
//! Mbarriers count arrivals and bytes for each phase.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::race::{Access, BlockClocks, ClockView, Fences, OrderSource};

/// An mbarrier in shared memory.
#[derive(Clone, Debug, Default)]
pub(super) struct Mbarrier {
    /// The access that initialized it.
    pub init: Option<Access>,
    /// Arrivals that complete a phase, and those pending in the current phase.
    pub arrivals: u32,
    pending_arrivals: u32,
    /// Bytes expected and not completed. Negative if bytes complete before they are expected.
    pub tx_count: i64,
    /// Number of completed phases.
    phase: u32,
    /// Views released in the current phase, and those published by the completed phases.
    released: ClockView,
    pub published: Arc<ClockView>,
}

/// A named barrier in one of its uses.
#[derive(Clone, Debug, Default)]
pub(super) struct NamedBarrier {
    pub threads: u32,
    pub arrived: u32,
    pub waiting: Vec<u32>,
    pub view: ClockView,
    /// Arrivals of this use, one thread for each warp, and those of the previous use.
    pub arrivals: Vec<Access>,
    pub previous_arrivals: Vec<Access>,
}

/// An mbarrier: the index of the shared array, and the index of its element.
pub(super) type MbarrierId = (usize, usize);

/// Reason why an mbarrier is not ready for use.
#[derive(Clone, Copy)]
pub(super) enum MbarrierError {
    Uninitialized,
    Unordered(Access),
    Unfenced(Access),
}

impl Mbarrier {
    pub fn init(&mut self, by: Access, arrivals: u32) {
        *self = Mbarrier { init: Some(by), arrivals, pending_arrivals: arrivals, ..Mbarrier::default() };
    }

    pub fn usability_error(
        &self,
        clocks: &mut BlockClocks,
        fences: &Fences,
        source: &OrderSource<'_>,
    ) -> Option<MbarrierError> {
        let Some(init) = self.init else { return Some(MbarrierError::Uninitialized) };
        if !clocks.precedes(source, &init) {
            return Some(MbarrierError::Unordered(init));
        }
        let fenced = fences.fence_precedes(clocks, source, clocks.block, &init);
        (!fenced).then_some(MbarrierError::Unfenced(init))
    }

    /// Whether the phase of this parity, the current or the previous one, is complete.
    pub fn has_completed(&self, parity: u32) -> bool {
        self.phase & 1 != parity & 1
    }

    pub fn phase(&self) -> u32 {
        self.phase
    }

    /// Records an arrival; false if the phase has all its arrivals.
    pub fn arrive(&mut self, view: &ClockView) -> bool {
        let Some(pending_arrivals) = self.pending_arrivals.checked_sub(1) else { return false };
        self.pending_arrivals = pending_arrivals;
        self.released.join(view);
        self.end_phase();
        true
    }

    /// Completes transferred bytes (`complete_tx`).
    pub fn complete_tx(&mut self, bytes: u32, view: &ClockView) {
        if self.init.is_some() {
            self.tx_count -= i64::from(bytes);
            self.released.join(view);
            self.end_phase();
        }
    }

    fn end_phase(&mut self) {
        if self.pending_arrivals == 0 && self.tx_count == 0 {
            self.phase += 1;
            self.pending_arrivals = self.arrivals;
            Arc::make_mut(&mut self.published).join(&std::mem::take(&mut self.released));
        }
    }

    /// Describes the pending arrivals and bytes of the phase.
    pub fn wait_status(&self) -> String {
        let Mbarrier { arrivals, pending_arrivals, tx_count: bytes, phase, .. } = self;
        let bytes = match bytes {
            0 => String::new(),
            1.. => format!(", {bytes} bytes are still expected, but no copy transfers them"),
            _ => format!(", {} bytes more than expected were transferred", -bytes),
        };
        format!("phase {phase}, {} of {arrivals} arrivals{bytes}", arrivals - pending_arrivals)
    }
}

/// The part of a block in the barrier of its cluster.
#[derive(Debug, Default)]
pub(super) struct ClusterBarrier {
    /// Warps of the block that arrived, and the views that they released.
    pub arrived: u32,
    pub released: ClockView,
    /// Number of completed barriers, and the view published by the last.
    pub completed: u32,
    pub published: Arc<ClockView>,
    /// Number of arrivals of each warp.
    pub warp_arrivals: BTreeMap<u32, u32>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn init(arrivals: u32) -> Mbarrier {
        let mut barrier = Mbarrier::default();
        barrier.init(Access { clock: 1, site: 0, lane: 0 }, arrivals);
        barrier
    }

    #[test]
    fn mbarrier_last_arrival_and_byte_complete_the_phase() {
        let (mut barrier, nothing) = (init(2), ClockView::default());
        assert!(barrier.has_completed(1) && !barrier.has_completed(0));
        // Bytes may complete before they are expected.
        barrier.complete_tx(512, &nothing);
        assert!(barrier.arrive(&nothing));
        barrier.tx_count += 1024;
        assert!(barrier.arrive(&nothing));
        assert_eq!(
            barrier.wait_status(),
            "phase 0, 2 of 2 arrivals, 512 bytes are still expected, but no copy transfers them"
        );
        assert!(!barrier.arrive(&nothing), "the phase has its arrivals");
        barrier.complete_tx(512, &nothing);
        assert_eq!((barrier.phase(), barrier.has_completed(0), barrier.has_completed(1)), (1, true, false));
        assert_eq!(barrier.wait_status(), "phase 1, 0 of 2 arrivals");
    }

    #[test]
    fn mbarrier_completed_phase_publishes_released_views() {
        let mut barrier = init(1);
        barrier.tx_count += 16;
        barrier.arrive(&ClockView::of_agent(0, 7, 3));
        assert_eq!(*barrier.published, ClockView::default());
        barrier.complete_tx(16, &ClockView::of_agent(0, 9, 1));
        let published = &barrier.published;
        let covers = |lane, clock| published.covers(0, &Access { clock, site: 0, lane });
        assert!(covers(7, 3) && covers(9, 1) && !covers(9, 2));
    }
}
