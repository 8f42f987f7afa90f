//! The barriers of a block: those in shared memory, which count arrivals and bytes phase by phase,
//! named ones, and its side of the barrier of its cluster.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::race::{Access, Clocks, Eyes, Fences, Knowledge};

/// A barrier in shared memory.
#[derive(Clone, Debug, Default)]
pub(super) struct Barrier {
    /// Who began it.
    pub begun: Option<Access>,
    /// Arrivals that a phase takes, and those that this one still needs.
    pub arrivals: u32,
    missing: u32,
    /// Bytes that were announced and have not come. Those that come before they are announced are
    /// below nothing.
    pub bytes: i64,
    /// Phases that have ended.
    phase: u32,
    /// What was published in this phase, and until the last one ended.
    gathered: Knowledge,
    pub published: Arc<Knowledge>,
}

/// A named barrier in one of its uses.
#[derive(Clone, Debug, Default)]
pub(super) struct Named {
    pub threads: u32,
    pub arrived: u32,
    pub waiting: Vec<u32>,
    pub known: Knowledge,
    /// The arrivals of this use, a thread for each warp, and those of the use before it.
    pub arrivals: Vec<Access>,
    pub before: Vec<Access>,
}

/// Which barrier in shared memory: the array, and the element.
pub(super) type Which = (usize, usize);

/// Why a barrier cannot be used.
#[derive(Clone, Copy)]
pub(super) enum Unready {
    Never,
    Unordered(Access),
    Unfenced(Access),
}

impl Barrier {
    pub fn begin(&mut self, by: Access, arrivals: u32) {
        *self = Barrier { begun: Some(by), arrivals, missing: arrivals, ..Barrier::default() };
    }

    pub fn unready(&self, clocks: &mut Clocks, fences: &Fences, eyes: &Eyes<'_>) -> Option<Unready> {
        let Some(begun) = self.begun else { return Some(Unready::Never) };
        if !clocks.seen_by(eyes, &begun) {
            return Some(Unready::Unordered(begun));
        }
        let fenced = fences.is_after(clocks, eyes, clocks.block, &begun);
        (!fenced).then_some(Unready::Unfenced(begun))
    }

    /// Whether the phase of that parity has ended, where it is this one or the one before.
    pub fn has_passed(&self, parity: u32) -> bool {
        self.phase & 1 != parity & 1
    }

    pub fn phase(&self) -> u32 {
        self.phase
    }

    /// False where the phase has all arrivals it takes.
    pub fn arrive(&mut self, known: &Knowledge) -> bool {
        let Some(missing) = self.missing.checked_sub(1) else { return false };
        self.missing = missing;
        self.gathered.join(known);
        self.end_phase();
        true
    }

    /// So many bytes have come.
    pub fn count(&mut self, bytes: u32, known: &Knowledge) {
        if self.begun.is_some() {
            self.bytes -= i64::from(bytes);
            self.gathered.join(known);
            self.end_phase();
        }
    }

    fn end_phase(&mut self) {
        if self.missing == 0 && self.bytes == 0 {
            self.phase += 1;
            self.missing = self.arrivals;
            Arc::make_mut(&mut self.published).join(&std::mem::take(&mut self.gathered));
        }
    }

    /// What the phase waits for.
    pub fn waits_for(&self) -> String {
        let Barrier { arrivals, missing, bytes, phase, .. } = self;
        let bytes = match bytes {
            0 => String::new(),
            1.. => format!(", {bytes} bytes are still expected that no copy brings"),
            _ => format!(", {} bytes more than were announced have come", -bytes),
        };
        format!("phase {phase}, {} of {arrivals} arrivals came{bytes}", arrivals - missing)
    }
}

/// A block's side of the barrier of its cluster.
#[derive(Debug, Default)]
pub(super) struct Meeting {
    /// Warps of the block that have come, and what they published.
    pub came: u32,
    pub gathered: Knowledge,
    /// Meetings that are over, and what was published in them.
    pub over: u32,
    pub published: Arc<Knowledge>,
    /// To how many meetings each warp has come.
    pub of_warps: BTreeMap<u32, u32>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begun(arrivals: u32) -> Barrier {
        let mut barrier = Barrier::default();
        barrier.begin(Access { clock: 1, site: 0, lane: 0 }, arrivals);
        barrier
    }

    #[test]
    fn a_phase_ends_with_its_last_arrival_and_its_last_byte() {
        let (mut barrier, nothing) = (begun(2), Knowledge::default());
        assert!(barrier.has_passed(1) && !barrier.has_passed(0));
        // Bytes may come before they are announced.
        barrier.count(512, &nothing);
        assert!(barrier.arrive(&nothing));
        barrier.bytes += 1024;
        assert!(barrier.arrive(&nothing));
        assert_eq!(
            barrier.waits_for(),
            "phase 0, 2 of 2 arrivals came, 512 bytes are still expected that no copy brings"
        );
        assert!(!barrier.arrive(&nothing), "the phase has its arrivals");
        barrier.count(512, &nothing);
        assert_eq!((barrier.phase(), barrier.has_passed(0), barrier.has_passed(1)), (1, true, false));
        assert_eq!(barrier.waits_for(), "phase 1, 0 of 2 arrivals came");
    }

    #[test]
    fn what_is_published_is_seen_when_the_phase_has_ended() {
        let mut barrier = begun(1);
        barrier.bytes += 16;
        barrier.arrive(&Knowledge::of_agent(0, 7, 3));
        assert_eq!(*barrier.published, Knowledge::default());
        barrier.count(16, &Knowledge::of_agent(0, 9, 1));
        let published = &barrier.published;
        let covers = |lane, clock| published.covers(0, &Access { clock, site: 0, lane });
        assert!(covers(7, 3) && covers(9, 1) && !covers(9, 2));
    }
}
