//! Tiles of a factor: how they lie in shared memory, which of them a block has copied, and what a warpgroup multiplies. It knows neither the other factor
//! nor when tiles come.

use tegula_ir::prelude::*;

use super::ROW;
use super::sharing::Sharers;

/// A or B: where it comes from and where its tiles are staged.
pub(super) struct Side<'k, T: Element> {
    k: &'k Builder,
    pub tensor: Tensor<'k, T>,
    tiles: Shared<'k, T>,
    is_a: bool,
    along_k: bool,
    /// Pieces of a stage, and rows of A (columns of B) from one to the next. The last piece may be wider than what is left of the tile.
    pieces: u32,
    span: u32,
    /// Parts of a piece that are copied at once, and lines of each.
    parts: u32,
    lines: u32,
    sharers: Sharers<'k>,
    /// Whether those that share a tile copy all of it in turns, a stage each, for they cannot copy a part each.
    pub in_turns: bool,
}

impl<'k, T: Element> Side<'k, T> {
    /// `extent` are rows of A (columns of B) of a tile.
    pub fn declare(
        k: &'k Builder,
        order: Order2d,
        is_a: bool,
        [extent, depth]: [u32; 2],
        stages: u32,
        sharers: Sharers<'k>,
    ) -> Self {
        let name = if is_a { "a" } else { "b" };
        let along_k = (order == Order2d::RowMajor) == is_a;
        let row = ROW / size_of::<T>() as u32;
        let (span, all) = if along_k { (extent, extent) } else { (row, depth) };
        let swizzle = Swizzle::B128;
        let pieces = extent.div_ceil(span);
        // A pattern of eight lines is not cut.
        let in_turns = !pieces.is_multiple_of(sharers.count) && !all.is_multiple_of(8 * sharers.count);
        // Blocks that share pieces copy as many each, or parts of them where they do not divide.
        let parts = if in_turns || pieces.is_multiple_of(sharers.count) { 1 } else { sharers.count };
        let lines = all / parts;
        let (outer, inner) = if along_k { (lines, depth) } else { (row, lines) };
        let (rows, cols) = if is_a { (outer, inner) } else { (inner, outer) };
        let tensor = k.tensor::<T>(name, Access::Read, order, Tiles { rows, cols, swizzle });
        let tiles = k.tiles::<T>(&format!("tile_{name}"), stages * pieces, [all, row], swizzle);
        Side { k, tensor, tiles, is_a, along_k, pieces, span, parts, lines, sharers, in_turns }
    }

    /// Bytes of a stage.
    pub fn bytes(&self) -> u32 {
        self.pieces * self.parts * self.lines * ROW
    }

    pub fn batch_of(&self, of: Global<'k, T>) -> Self {
        Side { tensor: self.tensor.batch_of(of), ..*self }
    }

    /// Has a stage copied that begins at `first` and, along k, at `start`. Of what a cluster shares, a block copies its part, to all, or all in its turn.
    pub fn copy(
        &self,
        stage: Val<'k, u32>,
        first: Val<'k, u32>,
        start: Val<'k, u32>,
        full: (Barriers<'k>, Val<'k, u32>),
    ) {
        let Sharers { count, own, .. } = self.sharers;
        match self.in_turns {
            true => self.k.when((stage % count).eq(own), || {
                self.copy_parts(self.k.constant(0), self.pieces, stage, [first, start], full);
            }),
            false => {
                let share = self.pieces * self.parts / count;
                self.copy_parts(own * share, share, stage, [first, start], full);
            }
        }
    }

    /// So many parts of a stage, to all that share it.
    fn copy_parts(
        &self,
        from: Val<'k, u32>,
        many: u32,
        stage: Val<'k, u32>,
        [first, start]: [Val<'k, u32>; 2],
        (full, which): (Barriers<'k>, Val<'k, u32>),
    ) {
        let blocks = self.sharers.blocks;
        for part in 0..many {
            let part = from + part;
            let (piece, line) = (part / self.parts, part % self.parts * self.lines);
            let first = first + piece * self.span;
            let (outer, inner) = if self.along_k { (first + line, start) } else { (first, start + line) };
            let at = if self.is_a { (outer, inner) } else { (inner, outer) };
            self.tiles.copy_tile_to((stage * self.pieces + piece, line), self.tensor, at, (full, which), blocks);
        }
    }

    /// What a warpgroup multiplies: from row (column) `first` of the tile and, along k, from `p` on.
    pub fn factor(&self, stage: Val<'k, u32>, first: Val<'k, u32>, p: u32) -> Factor {
        let piece = stage * self.pieces;
        match self.along_k {
            true => self.tiles.factor((piece, first, p), true),
            false => self.tiles.factor((piece + first / self.span, self.k.constant(p), 0u32), false),
        }
    }
}
