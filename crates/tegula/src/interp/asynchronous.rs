//! Copies on their way from global to shared memory.
//!
//! A copy's value lands when it is started or when it is waited for, as the seed decides; a kernel that is right cannot tell.
//! Until its thread has waited, the element is in flight and nobody may use it.

use std::collections::VecDeque;

use crate::ir::SiteId;

/// One element on its way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flight {
    pub array: u32,
    pub index: u32,
    pub bits: u64,
    pub site: SiteId,
}

/// The copies of each lane of a block: those not yet in a group, and the groups, oldest first.
#[derive(Debug)]
pub(super) struct Flights {
    open: Vec<Vec<Flight>>,
    groups: Vec<VecDeque<Vec<Flight>>>,
}

impl Flights {
    pub fn new(threads: u32) -> Self {
        let n = threads as usize;
        Flights { open: vec![Vec::new(); n], groups: vec![VecDeque::new(); n] }
    }

    pub fn start(&mut self, lane: u16, flight: Flight) {
        self.open[usize::from(lane)].push(flight);
    }

    /// Makes one group of what the lane started since the last.
    pub fn commit(&mut self, lane: u16) {
        let group = std::mem::take(&mut self.open[usize::from(lane)]);
        self.groups[usize::from(lane)].push_back(group);
    }

    /// What has surely landed once at most `pending` groups are on their way.
    pub fn wait(&mut self, lane: u16, pending: u32) -> Vec<Flight> {
        let groups = &mut self.groups[usize::from(lane)];
        let done = groups.len().saturating_sub(pending as usize);
        groups.drain(..done).flatten().collect()
    }
}
