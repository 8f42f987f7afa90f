//! What agents know: vector clocks, and operations that are morally strong.

use std::collections::BTreeSet;

use tegula_ir::{Order, Scope};

use super::Access;

/// What an agent knows to have happened.
#[derive(Clone, Debug, Default)]
pub struct Known {
    pub clock: Vec<u32>,
    pub observed: BTreeSet<usize>,
}

impl Known {
    pub fn join(&mut self, other: &Known) {
        self.clock.resize(self.clock.len().max(other.clock.len()), 0);
        self.clock.iter_mut().zip(&other.clock).for_each(|(mine, theirs)| *mine = (*mine).max(*theirs));
        self.observed.extend(&other.observed);
    }

    pub fn tick(&mut self, agent: usize) -> u32 {
        self.clock.resize(self.clock.len().max(agent + 1), 0);
        self.clock[agent] += 1;
        self.clock[agent]
    }

    /// All that an asynchronous operation did, which is done at one time.
    pub fn learn(&mut self, agent: usize) {
        self.clock.resize(self.clock.len().max(agent + 1), 0);
        self.clock[agent] = 1;
    }

    pub fn has(&self, access: &Access) -> bool {
        self.clock.get(access.agent).is_some_and(|&time| time >= access.time) || self.observed.contains(&access.id)
    }
}

/// A thread and, for a strong operation, its scope.
#[derive(Clone, Copy, Debug)]
pub struct Strength {
    pub thread: usize,
    pub block: u32,
    pub scope: Option<Scope>,
}

impl Strength {
    pub fn morally_strong(self, other: Self) -> bool {
        let includes = |a: Self, b: Self| match a.scope {
            None => false,
            Some(Scope::Block) => a.block == b.block,
            Some(Scope::Device | Scope::System) => true,
        };
        self.thread == other.thread || includes(self, other) && includes(other, self)
    }
}

pub fn strong(order: Order, scope: Scope) -> Option<Scope> {
    (order != Order::Weak).then_some(scope)
}
