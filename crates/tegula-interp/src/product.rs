//! Products of a warpgroup's matrix instructions that were not added yet.

use std::collections::VecDeque;

use tegula_ir::Wgmma;

use super::agent::Groups;
use super::lanes::Reg;

/// The multiplications of a warp.
#[derive(Debug, Default)]
pub(super) struct Multiplying {
    pub groups: Groups,
    /// Those whose products were not added yet, oldest first.
    pub late: VecDeque<Product>,
    /// By register of sums: the group that last added to it …
    pub adds: Vec<u32>,
    /// … and whether it was fenced since it was last used otherwise.
    pub fenced: Vec<bool>,
}

impl Multiplying {
    pub fn new(registers: usize) -> Self {
        Multiplying { adds: vec![0; registers], fenced: vec![false; registers], ..Default::default() }
    }
}

/// A warp's part of a multiplication.
#[derive(Debug)]
pub(super) struct Product {
    pub wgmma: Wgmma,
    /// Row after row.
    pub a: Elements,
    /// Column after column.
    pub b: Elements,
    pub sums: Box<[Reg]>,
    /// Lanes whose sums are added to.
    pub add: u32,
    pub group: u32,
}

/// Numbers, 16 of a row of A or of a column of B one after the other.
#[derive(Debug)]
pub(super) enum Elements {
    /// In an array.
    Shared(usize, Vec<u32>),
    Registers(Vec<u64>),
}
