//! Tiles of an operand: their layout in shared memory, the part that a block copies, and the
//! operand descriptors of `wgmma`. Independent of the other operand and of the pipeline's schedule.

use tegula_ir::prelude::*;

use super::multicast::MulticastGroup;
use super::{Pipeline, ROW_BYTES};

/// The tiles of A or B: their source and their stages in shared memory.
pub(super) struct OperandTiles<'k, T: Element> {
    k: &'k Builder,
    pub tensor: Tensor<'k, T>,
    tiles: Shared<'k, T>,
    is_a: bool,
    along_k: bool,
    /// Slabs of a stage, and rows of A (columns of B) of each. The last slab may extend past the
    /// tile.
    slabs: u32,
    slab_extent: u32,
    /// TMA copies of a slab, and lines of 128 bytes of each.
    copies: u32,
    lines: u32,
    group: MulticastGroup<'k>,
    /// Whether the blocks of the group copy whole tiles, round-robin by stage, since the tile does
    /// not divide among them.
    pub rotates: bool,
    /// Whether copies have no more lines than the matrix.
    clipped: bool,
}

impl<'k, T: Element> OperandTiles<'k, T> {
    /// Declares the tensor map and the stages.
    pub fn declare(k: &'k Builder, order: Order2d, is_a: bool, pipeline: &Pipeline, group: MulticastGroup<'k>) -> Self {
        let Pipeline { tile: [rows, cols, depth], stages, .. } = *pipeline;
        let extent = if is_a { rows } else { cols };
        let name = if is_a { "a" } else { "b" };
        let along_k = (order == Order2d::RowMajor) == is_a;
        let row = ROW_BYTES / size_of::<T>() as u32;
        let (slab_extent, slab_lines) = if along_k { (extent, extent) } else { (row, depth) };
        let swizzle = Swizzle::B128;
        let slabs = extent.div_ceil(slab_extent);
        // A swizzle pattern of eight lines cannot be divided.
        let rotates = !slabs.is_multiple_of(group.count) && !slab_lines.is_multiple_of(8 * group.count);
        // Blocks of the group copy whole slabs each, or parts of slabs where these do not divide.
        let copies = if rotates || slabs.is_multiple_of(group.count) { 1 } else { group.count };
        let lines = slab_lines / copies;
        let (outer, inner) = if along_k { (lines, depth) } else { (row, lines) };
        let (rows, cols) = if is_a { (outer, inner) } else { (inner, outer) };
        // An operand contiguous along m or n is copied in lines along k.
        let clipped = pipeline.clipped && along_k;
        let tensor = k.tensor::<T>(name, Access::Read, order, Tiles { rows, cols, swizzle, clipped });
        let tiles = k.tiles::<T>(&format!("tile_{name}"), stages * slabs, [slab_lines, row], swizzle);
        OperandTiles { k, tensor, tiles, is_a, along_k, slabs, slab_extent, copies, lines, group, rotates, clipped }
    }

    /// Bytes that are copied to each stage: those of the tile, or fewer if copies are clipped.
    pub fn bytes(&self) -> Val<'k, u32> {
        match self.clipped {
            false => self.k.constant(self.slabs * self.copies * self.lines * ROW_BYTES),
            true => self.clipped_lines() * ROW_BYTES,
        }
    }

    /// Lines of a clipped copy.
    fn clipped_lines(&self) -> Val<'k, u32> {
        let extent = if self.is_a { self.tensor.rows() } else { self.tensor.cols() };
        extent.min(self.lines).div_ceil(Tiles::PATTERN_LINES) * Tiles::PATTERN_LINES
    }

    /// Zeroes the lines of all stages that clipped copies leave out, four elements at a time.
    /// `wgmma` reads them, though no element of C depends on them.
    pub fn clear_rest(&self, stages: u32, (thread, threads): (Val<'k, u32>, u32)) {
        if !self.clipped {
            return;
        }
        let quads = ROW_BYTES / (4 * size_of::<T>()) as u32;
        let (first, at) = (self.clipped_lines() + thread / quads, thread % quads * 4);
        // The address depends on the line only, so that each further stage is a single store.
        self.k.for_step(first, self.lines, threads / quads, |line| {
            for stage in 0..stages {
                self.tiles.store_vec((stage, line, at), [self.k.constant(T::ZERO); 4]);
            }
        });
    }

    /// The same tiles of the batch matrix that `matrix` addresses.
    pub fn batch_of(&self, matrix: Global<'k, T>) -> Self {
        OperandTiles { tensor: self.tensor.batch_of(matrix), ..*self }
    }

    /// Issues the copies of a stage whose tile begins at row (column) `first` and at `start` along
    /// k. Of a multicast tile the block copies its part, or the whole tile at its stages.
    pub fn copy(
        &self,
        stage: Val<'k, u32>,
        first: Val<'k, u32>,
        start: Val<'k, u32>,
        full: (Mbarriers<'k>, Val<'k, u32>),
    ) {
        let MulticastGroup { count, index, .. } = self.group;
        match self.rotates {
            true => self.k.when((stage % count).eq(index), || {
                self.issue(self.k.constant(0), self.slabs, stage, [first, start], full);
            }),
            false => {
                let share = self.slabs * self.copies / count;
                self.issue(index * share, share, stage, [first, start], full);
            }
        }
    }

    /// Issues `count` copies of a stage from number `from` on, to all blocks of the group.
    fn issue(
        &self,
        from: Val<'k, u32>,
        count: u32,
        stage: Val<'k, u32>,
        [first, start]: [Val<'k, u32>; 2],
        (full, index): (Mbarriers<'k>, Val<'k, u32>),
    ) {
        let blocks = self.group.mask;
        for i in 0..count {
            let copy = from + i;
            let (slab, line) = (copy / self.copies, copy % self.copies * self.lines);
            let first = first + slab * self.slab_extent;
            let (outer, inner) = if self.along_k { (first + line, start) } else { (first, start + line) };
            let at = if self.is_a { (outer, inner) } else { (inner, outer) };
            self.tiles.tma_load_multicast((stage * self.slabs + slab, line), self.tensor, at, (full, index), blocks);
        }
    }

    /// The `wgmma` operand from row (column) `first` of the tile and from `p` along k on.
    pub fn wgmma_operand(&self, stage: Val<'k, u32>, first: Val<'k, u32>, p: u32) -> SharedOperand {
        let slab = stage * self.slabs;
        let k_major = self.along_k;
        match k_major {
            true => self.tiles.wgmma_operand((slab, first, p), k_major),
            false => self.tiles.wgmma_operand((slab + first / self.slab_extent, self.k.constant(p), 0u32), k_major),
        }
    }
}
