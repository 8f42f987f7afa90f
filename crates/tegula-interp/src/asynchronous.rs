//! Copies on their way from global to shared memory.
//!
//! A copy's value lands when it is started or when it is waited for, as the seed decides; a kernel that is right cannot tell.
//! Until its thread has waited, the element is in flight and nobody may use it.

use std::collections::VecDeque;

use tegula_ir::SiteId;

use super::agent::Groups;

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
    /// Of each lane, its groups as an agent that reads.
    reading: Vec<Groups>,
}

impl Flights {
    pub fn new(threads: u32) -> Self {
        let n = threads as usize;
        Flights { open: vec![Vec::new(); n], groups: vec![VecDeque::new(); n], reading: vec![Groups::default(); n] }
    }

    pub fn start(&mut self, lane: u16, flight: Flight) {
        self.open[usize::from(lane)].push(flight);
    }

    /// The lane starts to read memory that may be written meanwhile; the group.
    pub fn read(&mut self, lane: u16, site: SiteId) -> u32 {
        self.reading[usize::from(lane)].start(site)
    }

    /// The last group that has surely been read once at most `pending` groups are on their way, where any may be written meanwhile.
    pub fn read_until(&mut self, lane: u16, pending: u32) -> Option<u32> {
        let reading = &mut self.reading[usize::from(lane)];
        reading.unfinished().is_some().then(|| reading.wait(pending)).filter(|&done| done > 0)
    }

    /// Makes one group of what the lane started since the last.
    pub fn commit(&mut self, lane: u16) {
        let group = std::mem::take(&mut self.open[usize::from(lane)]);
        self.groups[usize::from(lane)].push_back(group);
        self.reading[usize::from(lane)].commit();
    }

    /// What has surely landed once at most `pending` groups are on their way.
    pub fn wait(&mut self, lane: u16, pending: u32) -> Vec<Flight> {
        let groups = &mut self.groups[usize::from(lane)];
        let done = groups.len().saturating_sub(pending as usize);
        groups.drain(..done).flatten().collect()
    }
}
