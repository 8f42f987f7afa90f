//! The configuration of a `wgmma` pipeline, and how a kernel's name spells it.

use std::fmt;
use std::str::FromStr;

use tegula_core::error::{Error, Result};
use tegula_core::matrix::Shape;
use tegula_ir::Tiles;

use super::{MAX_ACCUMULATORS, ROW_BYTES, WARPGROUP};
use crate::name_fields::{NameFields, write_field};
use crate::{FragmentLayout, blocked};

/// The most columns of an epilogue subtile with rows longer than a swizzle pattern.
const MAX_SUBTILE_COLS: u32 = 104;

/// The configuration of a `wgmma` pipeline: tile, warpgroups, stages and cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pipeline {
    /// Rows and columns of a block's tile of C, and the depth of a k-step.
    pub tile: [u32; 3],
    /// Consumer warpgroups, which issue `wgmma`.
    pub consumers: u32,
    /// Whether the schedule is *ping-pong*: each consumer computes whole tiles, so that one
    /// multiplies while another stores. Otherwise it is *cooperative*: each consumer computes a
    /// part of a tile's rows.
    pub ping_pong: bool,
    /// Stages of the pipeline: k-steps in shared memory at a time.
    pub stages: u32,
    /// The multicast shape of a cluster: blocks along m, which share tiles of B, and along n, which
    /// share tiles of A.
    pub cluster: [u32; 2],
    /// Blocks of a cluster that split the k-steps of a tile.
    pub cluster_k: u32,
    /// Whether TMA copies no more rows of A and columns of B than the matrix has, if they are
    /// contiguous along k: for a C with fewer rows or columns than a tile.
    pub clipped: bool,
    /// Rows of cluster tiles in a group of the raster order. A group is traversed column by column,
    /// so that its operands stay in the L2 cache.
    pub group_m: u32,
}

impl Pipeline {
    /// Blocks of a cluster.
    pub const fn cluster_blocks(&self) -> u32 {
        self.multicast_blocks().saturating_mul(self.cluster_k)
    }

    /// Blocks of a cluster that share operands by multicast.
    pub const fn multicast_blocks(&self) -> u32 {
        let [cluster_m, cluster_n] = self.cluster;
        cluster_m.saturating_mul(cluster_n)
    }

    /// Resident clusters per number of SMs, as a fraction.
    ///
    /// Clusters of more than two blocks do not fill the GPCs: on an H200 with 132 SMs, 30 clusters
    /// of four blocks and 15 of eight are resident.
    pub const fn resident_clusters(&self) -> [u32; 2] {
        match self.cluster_blocks() {
            4 => [10, 44],
            8 => [10, 88],
            blocks => [1, blocks],
        }
    }

    /// Consumers of a stage.
    pub const fn consumers_per_tile(&self) -> u32 {
        if self.ping_pong { 1 } else { self.consumers }
    }

    /// The layout of partial sums that a second kernel reduces.
    pub(crate) fn fragment_layout(&self) -> FragmentLayout {
        FragmentLayout { rows: (self.tile[0] / self.consumers_per_tile().max(1)).max(1), cols: self.tile[1] }
    }

    /// The split-K workspace for a C of this shape, padded to whole cluster tiles.
    pub(crate) fn workspace(&self, splits: usize, Shape { batches, rows, cols }: Shape) -> Shape {
        let [tile_m, tile_n] = [0, 1].map(|i| (self.tile[i].saturating_mul(self.cluster[i]) as usize).max(1));
        let pad = |extent: usize, tile: usize| extent.div_ceil(tile).saturating_mul(tile);
        self.fragment_layout().shape(batches.saturating_mul(splits), pad(rows, tile_m), pad(cols, tile_n))
    }

    /// The stream-K workspace: a matrix for each block of whole clusters, with a row of partial
    /// sums for each consumer.
    pub(crate) fn stream_k_workspace(&self, blocks: usize) -> Shape {
        let cols = self.accumulators() as usize * WARPGROUP as usize;
        Shape { batches: self.whole_clusters(blocks), rows: self.consumers as usize, cols }
    }

    /// The number of stream-K ready flags: one for each consumer of these blocks.
    pub(crate) fn stream_k_flags(&self, blocks: usize) -> usize {
        self.whole_clusters(blocks).saturating_mul(self.consumers as usize)
    }

    // The following run before `validate` rejects invalid pipelines, so they must not overflow.

    fn whole_clusters(&self, blocks: usize) -> usize {
        let cluster = (self.multicast_blocks() as usize).max(1);
        blocks.div_ceil(cluster).saturating_mul(cluster)
    }

    /// Columns of an epilogue subtile: the most that divide the tile and a block's part of it, up
    /// to `max`. Where these are few, one up to 104 columns wide is faster.
    pub(crate) fn subtile_cols(&self, max: u32) -> Option<u32> {
        let accumulators = self.accumulators();
        let own = accumulators.checked_div(self.cluster_k).filter(|own| own * self.cluster_k == accumulators)?;
        let widest = |max: u32| {
            let cols = (1..=max / 8).rev().map(|count| count * 8);
            cols.into_iter().find(|cols| self.tile[1].is_multiple_of(*cols) && own.is_multiple_of(cols / 2))
        };
        match widest(max) {
            Some(cols) if cols < 32 && max >= ROW_BYTES / 2 => widest(MAX_SUBTILE_COLS),
            cols => cols,
        }
    }

    /// Staging tiles of a consumer. With two, one is filled while the other is stored. Ping-pong
    /// tiles with more than 128 accumulators and subtiles wider than 64 columns have one: the
    /// memory holds another stage, and the other consumer multiplies during the store.
    pub(crate) fn staging_tiles(&self) -> u32 {
        let is_wide = self.accumulators() > MAX_ACCUMULATORS && self.subtile_cols(ROW_BYTES / 2) > Some(ROW_BYTES / 2);
        if self.ping_pong && is_wide { 1 } else { 2 }
    }

    /// Columns of B in a stage: those of the tile if B is contiguous along k (`along_k`). Otherwise
    /// TMA copies slabs of 64 columns, and the last may extend past the tile.
    pub(crate) fn staged_cols(&self, along_k: bool) -> u32 {
        if along_k { self.tile[1] } else { self.tile[1].next_multiple_of(ROW_BYTES / 2) }
    }

    /// Lines of a clipped copy of A (operand 0) or B (1) with this many rows or columns.
    pub(crate) fn clipped_lines(&self, operand: usize, extent: usize) -> u32 {
        Tiles::clipped_lines(self.tile[operand], extent)
    }

    /// Accumulators of a thread.
    pub(crate) fn accumulators(&self) -> u32 {
        self.tile[0].saturating_mul(self.tile[1]) / self.consumers_per_tile().saturating_mul(WARPGROUP).max(1)
    }
}

impl fmt::Display for Pipeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [rows, cols, depth] = self.tile;
        write!(f, "{rows}x{cols}x{depth}")?;
        write_field(f, "consumers", [self.consumers], None)?;
        write_field(f, "stages", [self.stages], None)?;
        write_field(f, "cluster", self.cluster, Some([1, 1]))?;
        if self.ping_pong {
            f.write_str("_pingpong")?;
        }
        write_field(f, "clusterk", [self.cluster_k], Some([1]))?;
        if self.clipped {
            f.write_str("_clipped")?;
        }
        write_field(f, "raster", [self.group_m], Some([blocked::GROUP_M]))
    }
}

impl FromStr for Pipeline {
    type Err = Error;

    /// Parses the output of [`Display`](fmt::Display).
    fn from_str(text: &str) -> Result<Self> {
        let parse = || {
            let mut fields = NameFields::parse(text)?;
            let pipeline = Pipeline {
                tile: fields.tile()?,
                consumers: fields.take::<1>("consumers", None)?[0],
                ping_pong: fields.take_flag("pingpong")?,
                stages: fields.take::<1>("stages", None)?[0],
                cluster: fields.take("cluster", Some([1, 1]))?,
                cluster_k: fields.take("clusterk", Some([1]))?[0],
                clipped: fields.take_flag("clipped")?,
                group_m: fields.take("raster", Some([blocked::GROUP_M]))?[0],
            };
            fields.finish(pipeline)
        };
        parse().ok_or_else(|| {
            Error::KernelOption(format!(
                "invalid pipeline {text:?}; expected a tile, consumers and stages as in \
                 128x256x64_consumers2_stages4, then optionally _cluster2x1 (blocks along m and n), \
                 _pingpong, _clusterk2 (split-K in the cluster), _clipped (copies of no more rows than the \
                 matrix has) and _raster16 (tile rows of a raster group)"
            ))
        })
    }
}
