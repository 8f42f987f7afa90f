//! `cp.async` copies in flight from global to shared memory.
//!
//! The seed selects when the value of a copy is written: when it is issued, or when it is awaited.
//! The result of a correct kernel does not depend on it. Until its thread has waited, the element
//! is in flight, and any use is an error.

use std::collections::VecDeque;

use tegula_ir::SiteId;

use super::agent::AsyncGroups;

/// A copy of one element in flight.
#[derive(Clone, Copy, Debug)]
pub(super) struct PendingCopy {
    pub array: u32,
    pub index: u32,
    pub bits: u64,
    pub site: SiteId,
}

/// The copies of each lane of a block: the open group, and committed groups, oldest first.
#[derive(Debug)]
pub(super) struct PendingCopies {
    open: Vec<Vec<PendingCopy>>,
    groups: Vec<VecDeque<Vec<PendingCopy>>>,
    /// For each lane, its groups as an agent that reads global memory.
    reading: Vec<AsyncGroups>,
}

impl PendingCopies {
    pub fn new(threads: u32) -> Self {
        let n = threads as usize;
        PendingCopies {
            open: vec![Vec::new(); n],
            groups: vec![VecDeque::new(); n],
            reading: vec![AsyncGroups::default(); n],
        }
    }

    pub fn start(&mut self, lane: u16, copy: PendingCopy) {
        self.open[usize::from(lane)].push(copy);
    }

    /// Starts a read of memory that may be written concurrently; returns its group.
    pub fn start_read(&mut self, lane: u16, site: SiteId) -> u32 {
        self.reading[usize::from(lane)].start(site)
    }

    /// Returns the last group read once at most `pending` groups are in flight.
    ///
    /// `None` if no group reads memory that may be written concurrently.
    pub fn complete_reads(&mut self, lane: u16, pending: u32) -> Option<u32> {
        let reading = &mut self.reading[usize::from(lane)];
        reading.unfinished().is_some().then(|| reading.wait(pending)).filter(|&done| done > 0)
    }

    /// Commits the copies of a lane since the last commit as a group.
    pub fn commit(&mut self, lane: u16) {
        let group = std::mem::take(&mut self.open[usize::from(lane)]);
        self.groups[usize::from(lane)].push_back(group);
        self.reading[usize::from(lane)].commit();
    }

    /// Returns the copies completed once at most `pending` groups are in flight.
    pub fn wait(&mut self, lane: u16, pending: u32) -> Vec<PendingCopy> {
        let groups = &mut self.groups[usize::from(lane)];
        let done = groups.len().saturating_sub(pending as usize);
        groups.drain(..done).flatten().collect()
    }
}
