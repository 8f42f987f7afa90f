//! Who works beside the threads of a block: copies to each part of a tile and each slot of an inbox, the matrix instructions of each warp, the
//! stores of tiles and the asynchronous copies of each thread. Each is an agent, with a lane and a clock of its own; `race` says what for.

use tegula_ir::{Holds, Kernel, SharedArray, SiteId};

use super::race::AGENT;

/// An agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Agent {
    /// Copies that begin with a part of an array, of [`part_elements`]; or to all of an inbox with that first index.
    Part { array: usize, part: u32 },
    /// Matrix instructions of a warp.
    Warp(u32),
    /// Stores of tiles by a thread, as they read shared memory.
    Thread(u16),
    /// The same, as they write a matrix.
    Stores(u16),
    /// Asynchronous copies by a thread, which read a matrix.
    Copies(u16),
}

/// The agents of a block, in a row: parts, warps, threads.
#[derive(Debug)]
pub(super) struct Agents {
    /// The first part of each array.
    first: Vec<u32>,
    parts: u32,
    warps: u32,
    threads: u32,
}

/// Elements of a tile of an array.
pub(super) fn tile_elements(array: &SharedArray) -> u32 {
    array.dims[1..].iter().product::<u32>().max(1)
}

/// Elements of the least part of an array that is copied at once: eight rows, where tiles have as many, else a tile.
pub(super) fn part_elements(array: &SharedArray) -> u32 {
    match (array.holds, &array.dims[..]) {
        (Holds::Tiles(_), &[_, rows, row]) if rows % 8 == 0 => (8 * row).max(1),
        _ => tile_elements(array),
    }
}

impl Agents {
    pub fn of(kernel: &Kernel) -> Self {
        let mut parts = 0;
        let first = kernel.shared().iter().map(|array| {
            let (before, part) = (parts, part_elements(array));
            // What is copied has 16 bytes at least, so there are never more agents than lanes for them.
            let copied = matches!(array.holds, Holds::Tiles(_) | Holds::Inbox) && part as usize * array.ty.size() >= 16;
            parts += if copied { array.len() as u32 / part } else { 0 };
            before
        });
        let threads = kernel.threads();
        Agents { first: first.collect(), parts, warps: threads.div_ceil(32), threads }
    }

    pub fn parts(&self) -> u32 {
        self.parts
    }

    /// The agent's lane.
    pub fn lane(&self, agent: Agent) -> u16 {
        let number = match agent {
            Agent::Part { array, part } => self.first[array] + part,
            Agent::Warp(warp) => self.parts + warp,
            Agent::Thread(thread) => self.parts + self.warps + u32::from(thread),
            Agent::Copies(thread) => self.parts + self.warps + self.threads + u32::from(thread),
            Agent::Stores(thread) => self.parts + self.warps + 2 * self.threads + u32::from(thread),
        };
        AGENT | number as u16
    }

    /// The agent of a lane, unless it is a thread's.
    pub fn agent(&self, lane: u16) -> Option<Agent> {
        let number = u32::from(lane.checked_sub(AGENT)?);
        Some(if number < self.parts {
            // Arrays without parts begin where the next one does.
            let array = self.first.partition_point(|&first| first <= number) - 1;
            Agent::Part { array, part: number - self.first[array] }
        } else if number < self.parts + self.warps {
            Agent::Warp(number - self.parts)
        } else {
            let number = number - self.parts - self.warps;
            let thread = (number % self.threads) as u16;
            match number / self.threads {
                0 => Agent::Thread(thread),
                1 => Agent::Copies(thread),
                _ => Agent::Stores(thread),
            }
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

    /// Waits for all but the latest groups; the last that is done by this wait. An earlier wait
    /// may have been for more groups, and for less of what each does.
    pub fn wait(&mut self, pending: u32) -> u32 {
        let done = (self.open - 1).saturating_sub(pending);
        self.done = self.done.max(done);
        done
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
    use tegula_ir::prelude::*;

    use super::*;

    #[test]
    fn agents_have_numbers_and_back() {
        let kernel = kernel("agents", Block::d1(256), |k| {
            k.tiles::<f32>("a", 3, [16, 32], Swizzle::B128);
            k.shared::<f32>("x", [7]);
            k.tiles::<f32>("b", 2, [8, 32], Swizzle::B128);
        });
        let agents = Agents::of(&kernel);
        let parts = [(0, 0), (0, 5), (2, 0), (2, 1)].map(|(array, part)| Agent::Part { array, part });
        for agent in parts.into_iter().chain([
            Agent::Warp(0),
            Agent::Warp(7),
            Agent::Thread(0),
            Agent::Thread(255),
            Agent::Copies(0),
            Agent::Copies(255),
        ]) {
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
