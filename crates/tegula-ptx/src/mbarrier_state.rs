//! The state of an mbarrier: arrivals and phases.

use tegula_interp::rules::ClockView;

/// An mbarrier.
#[derive(Debug, Default)]
pub(crate) struct Mbarrier {
    /// Number of arrivals that complete a phase, and number still missing in the current phase.
    pub expected: u32,
    pub pending: u32,
    /// Number of completed phases.
    pub phase: u64,
    /// Clock view of the arrivals at the current phase.
    pub released: ClockView,
    /// Clock view of all completed phases, which a successful test acquires.
    pub published: ClockView,
    /// The `cp.async` copies tracked by the current phase: thread, and clock of the copy.
    pub copies: Vec<(u16, u32)>,
}

impl Mbarrier {
    /// Adds `count` arrivals; returns false if the current phase expects fewer.
    pub fn arrive(&mut self, count: u32, view: &ClockView) -> bool {
        self.released.join(view);
        let Some(pending) = self.pending.checked_sub(count) else { return false };
        self.pending = pending;
        if pending == 0 {
            self.phase += 1;
            self.pending = self.expected;
            self.published.join(&std::mem::take(&mut self.released));
        }
        true
    }
}
