//! Synchronization points of threads.

use super::{Machine, SyncPoint};

impl Machine<'_> {
    /// Arrives at a synchronization point of `count` threads. Returns whether the thread continues.
    pub(super) fn synchronize(&mut self, tid: usize, point: SyncPoint, count: usize, waits: bool) -> bool {
        let thread = &mut self.threads[tid];
        let at = match thread.waiting_at {
            Some(at) => at,
            None => {
                let at = match point {
                    // The next arrivals belong to the next use of the barrier.
                    SyncPoint::NamedBarrier { .. } => {
                        (point, self.syncs.range((point, 0)..=(point, usize::MAX)).filter(|(_, m)| m.complete).count())
                    }
                    _ => {
                        let visits = thread.visits.entry(point).or_default();
                        *visits += 1;
                        (point, *visits)
                    }
                };
                let sync = self.syncs.entry(at).or_default();
                sync.arrived += 1;
                sync.complete = sync.arrived == count;
                // Starting together orders no memory.
                if !matches!(point, SyncPoint::Wgmma { .. }) {
                    sync.view.join(&thread.view);
                }
                thread.waiting_at = waits.then_some(at);
                at
            }
        };
        if !waits {
            return true;
        }
        let sync = &self.syncs[&at];
        if sync.complete {
            thread.view.join(&sync.view);
            thread.waiting_at = None;
        }
        sync.complete
    }
}
