//! Who works beside the threads of a block: copies to each tile and each slot of an inbox, the matrix instructions of each warp, the stores of tiles of each
//! thread. Each is an agent, with a lane and a clock of its own; `race` says what for.

use super::race::AGENT;
use crate::ir::{Holds, Kernel, SharedArray, SiteId};

/// An agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Agent {
    /// Copies to a tile of an array, or to all of an inbox with that first index.
    Tile { array: usize, tile: u32 },
    /// Matrix instructions of a warp.
    Warp(u32),
    /// Stores of tiles by a thread.
    Thread(u16),
}

/// The agents of a block, in a row: tiles, warps, threads.
#[derive(Debug)]
pub(super) struct Agents {
    /// The first tile of each array.
    first: Vec<u32>,
    tiles: u32,
    warps: u32,
}

/// Elements of a tile of an array.
pub(super) fn tile_elements(array: &SharedArray) -> u32 {
    array.dims[1..].iter().product::<u32>().max(1)
}

impl Agents {
    pub fn of(kernel: &Kernel) -> Self {
        let mut tiles = 0;
        let first = kernel.shared().iter().map(|array| {
            let before = tiles;
            // What is copied has 16 bytes at least, so there are never more agents than lanes for them.
            let copied = matches!(array.holds, Holds::Tiles(_) | Holds::Inbox)
                && tile_elements(array) as usize * array.ty.size() >= 16;
            tiles += if copied { array.dims[0] } else { 0 };
            before
        });
        Agents { first: first.collect(), tiles, warps: kernel.threads().div_ceil(32) }
    }

    pub fn tiles(&self) -> u32 {
        self.tiles
    }

    /// The agent's lane.
    pub fn lane(&self, agent: Agent) -> u16 {
        let number = match agent {
            Agent::Tile { array, tile } => self.first[array] + tile,
            Agent::Warp(warp) => self.tiles + warp,
            Agent::Thread(thread) => self.tiles + self.warps + u32::from(thread),
        };
        AGENT | number as u16
    }

    /// The agent of a lane, unless it is a thread's.
    pub fn agent(&self, lane: u16) -> Option<Agent> {
        let number = u32::from(lane.checked_sub(AGENT)?);
        Some(if number < self.tiles {
            // Arrays without tiles begin where the next one does.
            let array = self.first.partition_point(|&first| first <= number) - 1;
            Agent::Tile { array, tile: number - self.first[array] }
        } else if number < self.tiles + self.warps {
            Agent::Warp(number - self.tiles)
        } else {
            Agent::Thread((number - self.tiles - self.warps) as u16)
        })
    }
}

/// Work that is waited for in groups: the number of a group is the agent's clock while it is made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Groups {
    open: u32,
    done: u32,
    /// The last that was started: its group, and where.
    last: Option<(u32, SiteId)>,
}

impl Default for Groups {
    fn default() -> Self {
        Groups { open: 1, done: 0, last: None }
    }
}

impl Groups {
    /// Something more is started; its group.
    pub fn start(&mut self, site: SiteId) -> u32 {
        self.last = Some((self.open, site));
        self.open
    }

    pub fn commit(&mut self) {
        self.open += 1;
    }

    /// Waits for all but the latest groups; the last that is done.
    pub fn wait(&mut self, pending: u32) -> u32 {
        self.done = self.done.max((self.open - 1).saturating_sub(pending));
        self.done
    }

    pub fn is_done(&self, group: u32) -> bool {
        group <= self.done
    }

    /// What was started and never waited for.
    pub fn unfinished(&self) -> Option<SiteId> {
        self.last.filter(|&(group, _)| group > self.done).map(|(_, site)| site)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::prelude::*;

    #[test]
    fn agents_have_numbers_and_back() {
        let kernel = kernel("agents", Block::d1(256), |k| {
            k.tiles::<f32>("a", 3, [8, 32], Swizzle::B128);
            k.shared::<f32>("x", [7]);
            k.tiles::<f32>("b", 2, [8, 32], Swizzle::B128);
        });
        let agents = Agents::of(&kernel);
        let tiles = [(0, 0), (0, 2), (2, 0), (2, 1)].map(|(array, tile)| Agent::Tile { array, tile });
        for agent in tiles.into_iter().chain([Agent::Warp(0), Agent::Warp(7), Agent::Thread(0), Agent::Thread(255)]) {
            assert_eq!(agents.agent(agents.lane(agent)), Some(agent));
        }
        assert_eq!(agents.agent(255), None);
    }

    #[test]
    fn a_group_is_done_when_it_was_committed_and_waited_for() {
        let (mut groups, site) = (Groups::default(), SiteId(0));
        assert_eq!((groups.start(site), groups.wait(0)), (1, 0));
        groups.commit();
        assert_eq!((groups.start(site), groups.wait(0)), (2, 1));
        groups.commit();
        assert_eq!((groups.wait(1), groups.unfinished()), (1, Some(site)));
        assert_eq!((groups.wait(0), groups.unfinished()), (2, None));
    }
}
