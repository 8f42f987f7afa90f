//! Asynchronous agents: work that runs concurrently with the threads of a block.
//!
//! These are bulk copies, by destination (a part of a tile, or a DSMEM buffer), the matrix
//! instructions of each warp, and the bulk stores and `cp.async` copies of each thread. Each agent
//! has a lane number and a clock of its own, for the race detector (`race`).

use tegula_ir::{ArrayContents, Kernel, SharedArray, SiteId};

use super::race::FIRST_AGENT;

/// An asynchronous agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AsyncAgent {
    /// Copies to a unit of an array ([`copy_unit_elements`]).
    ///
    /// In a DSMEM buffer, a unit is all elements with the same first index.
    BulkCopy { array: usize, unit: u32 },
    /// Matrix instructions of a warp.
    Wgmma(u32),
    /// Shared-memory reads of a thread's bulk stores.
    StoreRead(u16),
    /// Global-memory writes of a thread's bulk stores.
    StoreWrite(u16),
    /// Global-memory reads of a thread's `cp.async` copies.
    CopyAsync(u16),
}

/// The agents of a block, numbered: copy units, warps, threads.
#[derive(Debug)]
pub(super) struct AsyncAgents {
    /// Number of the first unit of each array.
    first: Vec<u32>,
    copy_units: u32,
    warps: u32,
    threads: u32,
}

/// Elements of one tile of an array.
pub(super) fn tile_elements(array: &SharedArray) -> u32 {
    array.dims[1..].iter().product::<u32>().max(1)
}

/// Elements of the smallest unit of a bulk copy: eight rows of a tile, or a smaller tile.
pub(super) fn copy_unit_elements(array: &SharedArray) -> u32 {
    match (array.contents, &array.dims[..]) {
        (ArrayContents::Tiles(_), &[_, rows, row]) if rows % 8 == 0 => (8 * row).max(1),
        _ => tile_elements(array),
    }
}

impl AsyncAgents {
    pub fn of(kernel: &Kernel) -> Self {
        let mut copy_units = 0;
        let first = kernel.shared().iter().map(|array| {
            let (before, unit) = (copy_units, copy_unit_elements(array));
            // A copy has at least 16 bytes, so the agents never exceed the lane numbers reserved
            // for them.
            let copied = matches!(array.contents, ArrayContents::Tiles(_) | ArrayContents::DsmemBuffer)
                && unit as usize * array.ty.size() >= 16;
            copy_units += if copied { array.len() as u32 / unit } else { 0 };
            before
        });
        let threads = kernel.threads();
        AsyncAgents { first: first.collect(), copy_units, warps: threads.div_ceil(32), threads }
    }

    pub fn copy_units(&self) -> u32 {
        self.copy_units
    }

    /// Lane number of an agent.
    pub fn lane(&self, agent: AsyncAgent) -> u16 {
        let number = match agent {
            AsyncAgent::BulkCopy { array, unit } => self.first[array] + unit,
            AsyncAgent::Wgmma(warp) => self.copy_units + warp,
            AsyncAgent::StoreRead(thread) => self.copy_units + self.warps + u32::from(thread),
            AsyncAgent::CopyAsync(thread) => self.copy_units + self.warps + self.threads + u32::from(thread),
            AsyncAgent::StoreWrite(thread) => self.copy_units + self.warps + 2 * self.threads + u32::from(thread),
        };
        FIRST_AGENT | number as u16
    }

    /// The agent of a lane number; `None` for a thread.
    pub fn agent(&self, lane: u16) -> Option<AsyncAgent> {
        let number = u32::from(lane.checked_sub(FIRST_AGENT)?);
        Some(if number < self.copy_units {
            // Arrays without copy units start at the same number as the next array.
            let array = self.first.partition_point(|&first| first <= number) - 1;
            AsyncAgent::BulkCopy { array, unit: number - self.first[array] }
        } else if number < self.copy_units + self.warps {
            AsyncAgent::Wgmma(number - self.copy_units)
        } else {
            let number = number - self.copy_units - self.warps;
            let thread = (number % self.threads) as u16;
            match number / self.threads {
                0 => AsyncAgent::StoreRead(thread),
                1 => AsyncAgent::CopyAsync(thread),
                _ => AsyncAgent::StoreWrite(thread),
            }
        })
    }
}

/// Asynchronous operations that are committed and awaited in groups.
///
/// The number of the open group is the agent's clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct AsyncGroups {
    open: u32,
    done: u32,
    /// The last operation: its group and source location.
    last: Option<(u32, SiteId)>,
}

impl Default for AsyncGroups {
    fn default() -> Self {
        AsyncGroups { open: 1, done: 0, last: None }
    }
}

impl AsyncGroups {
    /// Starts an operation in the open group; returns the number of the group.
    pub fn start(&mut self, site: SiteId) -> u32 {
        self.last = Some((self.open, site));
        self.open
    }

    pub fn commit(&mut self) {
        self.open += 1;
    }

    /// Waits for all but the latest `pending` groups; returns the last group that this wait
    /// completes.
    ///
    /// An earlier wait may have covered more groups, but less of their effects.
    pub fn wait(&mut self, pending: u32) -> u32 {
        let done = (self.open - 1).saturating_sub(pending);
        self.done = self.done.max(done);
        done
    }

    pub fn is_done(&self, group: u32) -> bool {
        group <= self.done
    }

    /// Source location of the last operation, if no wait completed it.
    pub fn unfinished(&self) -> Option<SiteId> {
        self.last.filter(|&(group, _)| group > self.done).map(|(_, site)| site)
    }
}

#[cfg(test)]
mod tests {
    use tegula_ir::prelude::*;

    use super::*;

    #[test]
    fn async_agent_lane_numbers_round_trip() {
        let kernel = kernel("agents", Block::d1(256), |k| {
            k.tiles::<f32>("a", 3, [16, 32], Swizzle::B128);
            k.shared::<f32>("x", [7]);
            k.tiles::<f32>("b", 2, [8, 32], Swizzle::B128);
        });
        let agents = AsyncAgents::of(&kernel);
        let copy_units = [(0, 0), (0, 5), (2, 0), (2, 1)].map(|(array, unit)| AsyncAgent::BulkCopy { array, unit });
        for agent in copy_units.into_iter().chain([
            AsyncAgent::Wgmma(0),
            AsyncAgent::Wgmma(7),
            AsyncAgent::StoreRead(0),
            AsyncAgent::StoreRead(255),
            AsyncAgent::CopyAsync(0),
            AsyncAgent::CopyAsync(255),
        ]) {
            assert_eq!(agents.agent(agents.lane(agent)), Some(agent));
        }
        assert_eq!(agents.agent(255), None);
    }

    #[test]
    fn async_group_committed_and_awaited_is_done() {
        let (mut groups, site) = (AsyncGroups::default(), SiteId(0));
        assert_eq!((groups.start(site), groups.wait(0)), (1, 0));
        groups.commit();
        assert_eq!((groups.start(site), groups.wait(0)), (2, 1));
        groups.commit();
        assert_eq!((groups.wait(1), groups.unfinished()), (1, Some(site)));
        assert_eq!((groups.wait(0), groups.unfinished()), (2, None));
    }
}
