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
    /// The clock of the copy: the number of its group.
    pub clock: u32,
    /// Number among the copies of the block.
    pub number: u64,
}

/// The copies of the threads of a block: the open group, and committed groups, oldest first.
#[derive(Debug)]
pub(crate) struct PendingCopies {
    pub open: Vec<Vec<PendingCopy>>,
    groups: Vec<VecDeque<Vec<PendingCopy>>>,
    /// Number of groups that each thread has committed: the clock of its copies.
    pub committed: Vec<u32>,
    /// What each thread had done when it issued its copies, in kernels with mbarriers for copies.
    pub issued: Vec<ClockView>,
    /// Number of copies of the block.
    pub count: u64,
}

impl PendingCopies {
    pub fn new(threads: u32) -> Self {
        let n = threads as usize;
        PendingCopies {
            open: vec![Vec::new(); n],
            groups: vec![VecDeque::new(); n],
            committed: vec![0; n],
            issued: vec![ClockView::default(); n],
            count: 0,
        }
    }

    pub fn commit(&mut self, thread: usize) {
        let group = std::mem::take(&mut self.open[thread]);
        self.groups[thread].push_back(group);
        self.committed[thread] += 1;
    }

    /// Takes the copies that are complete once at most `pending` groups are in flight.
    pub fn wait(&mut self, thread: usize, pending: Option<u32>) -> Vec<PendingCopy> {
        if pending.is_none() && !self.open[thread].is_empty() {
            self.commit(thread);
        }
        let groups = &mut self.groups[thread];
        let done = groups.len().saturating_sub(pending.unwrap_or(0) as usize);
        groups.drain(..done).flatten().collect()
    }

    /// The site of the last copy of a thread to an offset that is in flight.
    pub fn site(&self, thread: usize, offset: u32) -> Option<u32> {
        let groups = self.groups[thread].iter().chain([&self.open[thread]]);
        let mut copies = groups.flatten().filter(|copy| (copy.offset..copy.offset + copy.len).contains(&offset));
        copies.next_back().map(|copy| copy.site)
    }

    /// The numbers of the copies of a thread that are in flight.
    pub fn numbers(&self, thread: usize) -> Vec<u64> {
        self.groups[thread].iter().chain([&self.open[thread]]).flatten().map(|copy| copy.number).collect()
    }

    /// Takes a copy, if it is still in flight.
    pub fn take(&mut self, thread: usize, number: u64) -> Option<PendingCopy> {
        let groups = self.groups[thread].iter_mut().chain([&mut self.open[thread]]);
        groups.into_iter().find_map(|group| {
            let at = group.iter().position(|copy| copy.number == number)?;
            Some(group.remove(at))
        })
    }

    /// The number of the last group that is complete.
    pub fn completed(&self, thread: usize) -> u32 {
        self.committed[thread] - self.groups[thread].len() as u32
    }
}
