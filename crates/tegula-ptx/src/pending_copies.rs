//! The `cp.async` copies of the threads of a block that are in flight.

use std::collections::VecDeque;

use tegula_interp::rules::ClockView;

/// A copy in flight: its destination in shared memory, and its bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PendingCopy {
    pub offset: u32,
    pub bytes: [u8; 16],
    pub len: u32,
    pub site: u32,
    /// Sequence number among the copies of its thread, from 1.
    pub clock: u32,
}

/// The copies of a thread that are in flight.
#[derive(Clone, Debug, Default)]
pub(crate) struct PendingCopies {
    /// The copies that are not committed to a group.
    open: Vec<PendingCopy>,
    /// Committed groups, oldest first: copies in flight, and the clock at the commit.
    groups: VecDeque<(Vec<PendingCopy>, u32)>,
    /// The clock of the last copy that was issued, and of the last one that was awaited.
    pub issued: u32,
    pub completed: u32,
    /// The clock view of the thread when it issued its copies; only for kernels with
    /// `cp.async.mbarrier.arrive`.
    pub view: ClockView,
}

impl PendingCopies {
    /// Adds a copy to the group that the next commit closes.
    pub fn issue(&mut self, copy: PendingCopy) {
        self.issued = copy.clock;
        self.open.push(copy);
    }

    pub fn commit(&mut self) {
        self.groups.push_back((std::mem::take(&mut self.open), self.issued));
    }

    /// Removes and returns the copies that a wait completes: all but those of the last `pending`
    /// groups; all copies for `None`.
    pub fn wait(&mut self, pending: Option<u32>) -> Vec<PendingCopy> {
        if pending.is_none() {
            self.commit();
        }
        let done = self.groups.len().saturating_sub(pending.unwrap_or(0) as usize);
        self.completed = self.groups.range(..done).next_back().map_or(self.completed, |&(_, clock)| clock);
        self.groups.drain(..done).flat_map(|(copies, _)| copies).collect()
    }

    /// The copies in flight, oldest first.
    pub fn in_flight(&self) -> impl DoubleEndedIterator<Item = &PendingCopy> {
        self.groups.iter().flat_map(|(copies, _)| copies).chain(&self.open)
    }

    /// The site of the last copy in flight that writes the byte at `offset`.
    pub fn site(&self, offset: u32) -> Option<u32> {
        let mut copies = self.in_flight().filter(|copy| (copy.offset..copy.offset + copy.len).contains(&offset));
        copies.next_back().map(|copy| copy.site)
    }

    /// Removes and returns a copy by its clock, if it is still in flight.
    pub fn take(&mut self, clock: u32) -> Option<PendingCopy> {
        let groups = self.groups.iter_mut().map(|(copies, _)| copies).chain([&mut self.open]);
        groups.into_iter().find_map(|group| {
            let at = group.iter().position(|copy| copy.clock == clock)?;
            Some(group.remove(at))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copy(clock: u32) -> PendingCopy {
        PendingCopy { offset: 16 * clock, bytes: [0; 16], len: 16, site: clock, clock }
    }

    fn clocks(copies: &[PendingCopy]) -> Vec<u32> {
        copies.iter().map(|copy| copy.clock).collect()
    }

    #[test]
    fn wait_completes_all_but_the_last_groups() {
        let mut copies = PendingCopies::default();
        for clock in 1..=3 {
            copies.issue(copy(clock));
            copies.commit();
        }
        copies.issue(copy(4));
        assert_eq!((clocks(&copies.wait(Some(1))), copies.completed), (vec![1, 2], 2));
        assert_eq!(copies.site(64 + 4), Some(4));
        assert_eq!((clocks(&copies.wait(None)), copies.completed), (vec![3, 4], 4));
    }

    #[test]
    fn wait_covers_copies_that_an_mbarrier_completed() {
        let mut copies = PendingCopies::default();
        copies.issue(copy(1));
        assert!(copies.take(1).is_some() && copies.take(1).is_none());
        assert_eq!((copies.wait(None).len(), copies.completed), (0, 1));
    }
}
