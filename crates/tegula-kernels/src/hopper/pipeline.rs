//! The shape of a kernel of warpgroups and how its name says it. What a kernel does with that is in `hopper`.

use std::fmt;
use std::str::FromStr;

use tegula_core::error::{Error, Result};
use tegula_core::matrix::Shape;

use super::{GROUP, ROW};
use crate::{Fragments, blocked};

/// The mark of consumers that take turns.
const PING_PONG: &str = "_pp";

/// How a block of such a kernel is made up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pipeline {
    /// Rows and columns of C that a block makes at a time, and the depth of a step along k.
    pub tile: [u32; 3],
    /// Warpgroups that multiply.
    pub consumers: u32,
    /// Whether each of them makes a tile by itself, in turns, so that one multiplies while another stores (*ping-pong*), or all make a tile
    /// together, a part of its rows each (*cooperative*).
    pub ping_pong: bool,
    /// Steps that are in shared memory at a time.
    pub stages: u32,
    /// Blocks of a cluster that share factors: so many have tiles below each other, and share B, so many beside each other, and share A.
    pub cluster: [u32; 2],
    /// Blocks of a cluster that share the steps along k of a tile.
    pub split: u32,
    /// Rows of tiles (of clusters) that are made together, column after column: what they share is found in the L2 cache.
    pub group: u32,
}

impl Pipeline {
    /// Blocks of a cluster.
    pub const fn blocks(&self) -> u32 {
        self.sharing().saturating_mul(self.split)
    }

    /// Blocks of a cluster that share factors.
    pub const fn sharing(&self) -> u32 {
        let [below, beside] = self.cluster;
        below.saturating_mul(beside)
    }

    /// Clusters that run at a time, and on how many multiprocessors: those of more than two blocks do not fill the groups that clusters come from. As
    /// an H200 has it, 30 of four blocks and 15 of eight.
    pub const fn at_a_time(&self) -> [u32; 2] {
        match self.blocks() {
            4 => [10, 44],
            8 => [10, 88],
            blocks => [1, blocks],
        }
    }

    /// Warpgroups that multiply a stage.
    pub const fn together(&self) -> u32 {
        if self.ping_pong { 1 } else { self.consumers }
    }

    /// How sums of tiles lie in memory that are added by a second kernel.
    pub(crate) fn fragments(&self) -> Fragments {
        Fragments { rows: (self.tile[0] / self.together().max(1)).max(1), cols: self.tile[1] }
    }

    /// Memory for so many parts of a C of such a shape. Clusters make theirs as a whole.
    pub(crate) fn workspace(&self, parts: usize, Shape { batches, rows, cols }: Shape) -> Shape {
        let [down, across] = [0, 1].map(|i| (self.tile[i].saturating_mul(self.cluster[i]) as usize).max(1));
        let cover = |extent: usize, of: usize| extent.div_ceil(of).saturating_mul(of);
        self.fragments().shape(batches.saturating_mul(parts), cover(rows, down), cover(cols, across))
    }

    /// Memory for the sums of a tile of each of so many blocks, or of as many as make clusters: a row for each consumer.
    pub(crate) fn parts(&self, blocks: usize) -> Shape {
        let cols = self.sums() as usize * GROUP as usize;
        Shape { batches: self.whole_clusters(blocks), rows: self.consumers as usize, cols }
    }

    /// Flags of as many blocks: one for each consumer.
    pub(crate) fn flags(&self, blocks: usize) -> usize {
        self.whole_clusters(blocks).saturating_mul(self.consumers as usize)
    }

    // The following are asked before a kernel is built, which refuses pipelines that cannot be.

    fn whole_clusters(&self, blocks: usize) -> usize {
        let cluster = (self.sharing() as usize).max(1);
        blocks.div_ceil(cluster).saturating_mul(cluster)
    }

    /// Columns of C that are stored at a time: as many as divide the tile, and what a block finishes of it, but no more than `most`.
    pub(crate) fn store_cols(&self, most: u32) -> Option<u32> {
        let own = self.sums().checked_div(self.split).filter(|own| own * self.split == self.sums())?;
        (1..=most / 8)
            .rev()
            .map(|pieces| pieces * 8)
            .find(|cols| self.tile[1].is_multiple_of(*cols) && own.is_multiple_of(cols / 2))
    }

    /// Columns of the right factor that a stage has room for: one that does not lie along k is copied by lines of 64.
    pub(crate) fn staged_cols(&self, along_k: bool) -> u32 {
        if along_k { self.tile[1] } else { self.tile[1].next_multiple_of(ROW / 2) }
    }

    /// Sums of a thread.
    pub(crate) fn sums(&self) -> u32 {
        self.tile[0].saturating_mul(self.tile[1]) / self.together().saturating_mul(GROUP).max(1)
    }
}

impl fmt::Display for Pipeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Pipeline {
            tile: [rows, cols, depth],
            consumers,
            ping_pong,
            stages,
            cluster: [below, beside],
            split,
            group,
        } = self;
        write!(f, "{rows}x{cols}x{depth}_{consumers}_{stages}_{below}")?;
        if *beside != 1 {
            write!(f, "x{beside}")?;
        }
        if *ping_pong {
            f.write_str(PING_PONG)?;
        }
        if *split != 1 {
            write!(f, "_k{split}")?;
        }
        if *group != blocked::GROUP {
            write!(f, "_g{group}")?;
        }
        Ok(())
    }
}

impl FromStr for Pipeline {
    type Err = Error;

    /// Reads what [`Display`](fmt::Display) writes.
    fn from_str(text: &str) -> Result<Self> {
        let behind = |text, mark, usual| match str::rsplit_once(text, mark) {
            Some((before, number)) => (before, number.parse().ok()),
            None => (text, Some(usual)),
        };
        let (before, group) = behind(text, "_g", blocked::GROUP);
        let (before, split) = behind(before, "_k", 1);
        let (before, ping_pong) = match before.strip_suffix(PING_PONG) {
            Some(before) => (before, true),
            None => (before, false),
        };
        let numbers =
            |text: &str| text.split(['x', '_']).map(|number| number.parse().ok()).collect::<Option<Vec<u32>>>();
        let (before, cluster) = before.rsplit_once('_').unwrap_or_default();
        match (numbers(before).as_deref(), numbers(cluster).as_deref(), split, group) {
            (
                Some(&[rows, cols, depth, consumers, stages]),
                Some(&[below, ref beside @ ..]),
                Some(split),
                Some(group),
            ) if beside.len() < 2 => {
                let cluster = [below, beside.first().copied().unwrap_or(1)];
                Ok(Pipeline { tile: [rows, cols, depth], consumers, ping_pong, stages, cluster, split, group })
            }
            _ => Err(Error::KernelOption(format!(
                "{text:?} is no pipeline; one is 128x256x64_2_4_1: tile, consumers, stages, blocks that share factors (2x2: two below each other, \
                 two beside each other); behind that may be _pp, consumers that take turns, _k2, blocks that share k, and _g16, rows of tiles that are made together"
            ))),
        }
    }
}
