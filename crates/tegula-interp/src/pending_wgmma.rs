//! Matrix instructions of a warpgroup whose products are not accumulated yet.

use std::collections::VecDeque;

use tegula_ir::Wgmma;

use super::agent::AsyncGroups;
use super::lanes::Reg;

/// The pending matrix instructions of a warp.
#[derive(Debug, Default)]
pub(super) struct WgmmaQueue {
    pub groups: AsyncGroups,
    /// Instructions not executed yet, oldest first.
    pub pending: VecDeque<PendingWgmma>,
    /// For each accumulator register, the group that last accumulated into it.
    pub writer_groups: Vec<u32>,
    /// For each accumulator register, whether a fence followed its last other use.
    pub fenced: Vec<bool>,
}

impl WgmmaQueue {
    pub fn new(registers: usize) -> Self {
        WgmmaQueue { writer_groups: vec![0; registers], fenced: vec![false; registers], ..Default::default() }
    }
}

/// The part of a warp in a matrix instruction of a warpgroup.
#[derive(Debug)]
pub(super) struct PendingWgmma {
    pub wgmma: Wgmma,
    /// In row-major order.
    pub a: OperandElements,
    /// In column-major order.
    pub b: OperandElements,
    pub accumulators: Box<[Reg]>,
    /// Lanes that accumulate; in the others the old accumulators are ignored.
    pub accumulate: u32,
    pub group: u32,
}

/// Elements of an operand: 16 of a row of A, or of a column of B, after each other.
#[derive(Debug)]
pub(super) enum OperandElements {
    /// Indices into a shared array.
    Shared(usize, Vec<u32>),
    Registers(Vec<u64>),
}
