//! Vector clocks of agents, and moral strength of operations.

use std::collections::BTreeSet;

use tegula_ir::{MemoryOrder, Scope};

use super::Access;

/// The accesses that happened before an agent's current operation.
#[derive(Clone, Debug, Default)]
pub struct ClockView {
    pub clock: Vec<u32>,
    pub observed: BTreeSet<usize>,
}

impl ClockView {
    pub fn join(&mut self, other: &ClockView) {
        self.clock.resize(self.clock.len().max(other.clock.len()), 0);
        self.clock.iter_mut().zip(&other.clock).for_each(|(own, other)| *own = (*own).max(*other));
        self.observed.extend(&other.observed);
    }

    pub fn tick(&mut self, agent: usize) -> u32 {
        self.clock.resize(self.clock.len().max(agent + 1), 0);
        self.clock[agent] += 1;
        self.clock[agent]
    }

    /// Adds all accesses of an asynchronous operation, which has one time.
    pub fn include(&mut self, agent: usize) {
        self.clock.resize(self.clock.len().max(agent + 1), 0);
        self.clock[agent] = 1;
    }

    pub fn contains(&self, access: &Access) -> bool {
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

pub fn strong(order: MemoryOrder, scope: Scope) -> Option<Scope> {
    (order != MemoryOrder::Weak).then_some(scope)
}
