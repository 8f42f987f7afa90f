//! Bulk copies that have not landed, and stores of tiles that did not happen yet.

use super::agent::Groups;
use super::barrier::Which;
use super::race::Access;

/// A tile of a matrix, where it goes in an array, and the barrier that counts it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tile {
    pub matrix: usize,
    /// Batch, row and column.
    pub at: [u32; 3],
    pub array: usize,
    pub first: usize,
    pub barrier: Which,
}

/// Numbers for an array, and the barrier that counts their bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Words {
    pub array: usize,
    pub first: usize,
    pub bits: [u32; 4],
    pub count: usize,
    pub barrier: Which,
}

/// What is copied to shared memory.
#[derive(Clone, Copy, Debug)]
pub(super) enum Cargo {
    Tile(Tile),
    Words(Words),
}

impl Cargo {
    /// The array, the first element, and the barrier.
    pub fn to(&self) -> (usize, usize, Which) {
        match *self {
            Cargo::Tile(Tile { array, first, barrier, .. }) | Cargo::Words(Words { array, first, barrier, .. }) => {
                (array, first, barrier)
            }
        }
    }
}

/// What has not landed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Coming {
    pub cargo: Cargo,
    /// How its landing is known.
    pub access: Access,
    /// The barrier's phase when it was started.
    pub phase: u32,
    /// Whose mistake it is if it comes in another.
    pub from: u32,
    pub sender: Access,
}

/// A thread's stores of tiles.
#[derive(Debug, Default)]
pub(super) struct Stores {
    pub groups: Groups,
    /// Those that did not happen yet, with their groups.
    pub late: Vec<(u32, Leaving)>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Leaving {
    pub matrix: usize,
    pub at: [u32; 3],
    pub array: usize,
    pub first: usize,
}
