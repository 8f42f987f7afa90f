//! Kernels whose blocks own a large tile of C, cut into tiles for warps and threads: what they have in common on the host's side.

use std::fmt;
use std::str::FromStr;

use super::{order_letters, register};
use crate::element::Type;
use crate::error::{Error, Result};
use crate::ir::{Kernel, MAX_THREADS, Order2d};

/// What multiplies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Core {
    /// Each thread, its own elements: fused multiply-adds from registers.
    Register,
}

/// How a tile of C is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Blocking {
    /// Rows and columns of C that a block owns, and the depth of a k-step.
    pub block: [u32; 3],
    /// Rows and columns that a warp owns.
    pub warp: [u32; 2],
    /// Rows and columns that a thread owns.
    pub thread: [u32; 2],
    /// Tiles of A and B in shared memory: one is multiplied while the others fill.
    pub stages: u32,
    /// Groups of warps that share a k-step: each multiplies its part of the depth, and the sums are added at the end.
    pub slices: u32,
    /// Blocks on a multiprocessor, for which the assembler leaves registers.
    pub blocks: u32,
}

impl Blocking {
    /// Threads of a block.
    pub const fn threads(&self) -> u32 {
        (self.block[0] / self.warp[0]) * (self.block[1] / self.warp[1]) * self.slices * 32
    }
}

/// A kernel with a tile of C a block, and everything that shapes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Blocked {
    /// What multiplies.
    pub core: Core,
    /// Element type of A and B.
    pub ty: Type,
    /// How the tile is cut.
    pub blocking: Blocking,
    /// What is known of the strides of A, B and C. C is never column-major: that is the product of the transposed matrices.
    pub orders: [Order2d; 3],
    /// Whether A, B and C may be read and written 16 bytes at once: addresses and strides are multiples, and so is the extent
    /// along which elements lie side by side.
    pub vectors: [bool; 3],
    /// Whether the sums along k are split: C is then a workspace with a matrix for each part, `batch` times `parts` of them, and
    /// neither alpha nor beta is applied.
    pub split: bool,
}

impl Blocked {
    /// Row-major, without vector accesses.
    pub const fn new(core: Core, ty: Type, blocking: Blocking) -> Self {
        Blocked { core, ty, blocking, orders: [Order2d::RowMajor; 3], vectors: [false; 3], split: false }
    }

    /// Whether the kernel takes A and B transposed: it wants elements that lie side by side along rows.
    pub fn turned(&self) -> [bool; 2] {
        [self.orders[0] == Order2d::ColMajor, self.orders[1] == Order2d::ColMajor]
    }

    /// What is known of the strides of the matrices as the kernel takes them.
    pub(super) fn passed(&self) -> [Order2d; 3] {
        self.orders.map(|order| if order == Order2d::ColMajor { Order2d::RowMajor } else { order })
    }

    /// Elements of A, B and C that one access may take.
    pub(super) fn widths(&self) -> [u32; 3] {
        let all = (16 / self.ty.size()) as u32;
        self.vectors.map(|vector| if vector { all } else { 1 })
    }

    /// Builds the kernel.
    ///
    /// # Errors
    /// [`Error::KernelOption`] for a type without such kernels or a blocking that does not divide.
    pub fn build(&self) -> Result<Kernel> {
        let Blocking { block: [bm, bn, bk], warp: [wm, wn], stages, slices, blocks, .. } = self.blocking;
        let divides = |part: u32, whole: u32| part > 0 && whole.is_multiple_of(part);
        let sound = divides(wm, bm) && divides(wn, bn) && divides(slices, bk) && stages >= 2 && blocks >= 1;
        if !sound || self.blocking.threads() > MAX_THREADS || self.orders[2] == Order2d::ColMajor {
            return Err(Error::KernelOption(format!("the tiles of {self} do not divide each other")));
        }
        match (self.core, self.ty) {
            (Core::Register, Type::F32) => register::build::<f32>(self),
            (Core::Register, Type::F64) => register::build::<f64>(self),
            (Core::Register, Type::I32) => register::build::<i32>(self),
            (Core::Register, ty) => Err(Error::KernelOption(format!("there are no register tiles of {ty}"))),
        }
    }
}

impl fmt::Display for Blocking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Blocking { block: [bm, bn, bk], warp: [wm, wn], thread: [tm, tn], stages, slices, blocks } = self;
        write!(f, "{bm}x{bn}x{bk}_{wm}x{wn}_{tm}x{tn}_{stages}_{slices}_{blocks}")
    }
}

impl FromStr for Blocking {
    type Err = Error;

    /// Reads what [`Display`](fmt::Display) writes.
    fn from_str(text: &str) -> Result<Self> {
        let numbers: Option<Vec<u32>> = text.split(['x', '_']).map(|number| number.parse().ok()).collect();
        match numbers.as_deref() {
            Some(&[bm, bn, bk, wm, wn, tm, tn, stages, slices, blocks]) => {
                Ok(Blocking { block: [bm, bn, bk], warp: [wm, wn], thread: [tm, tn], stages, slices, blocks })
            }
            _ => Err(Error::KernelOption(format!(
                "{text:?} is no blocking; one is 128x256x16_64x64_8x16_3_1_1: block, warp, thread, stages, slices, blocks"
            ))),
        }
    }
}

impl fmt::Display for Blocked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Core::Register = self.core;
        write!(f, "register_{}_{}", self.ty, self.blocking)?;
        f.write_str(&order_letters(self.orders))?;
        if self.vectors != [false; 3] {
            f.write_str("_v")?;
            for vector in self.vectors {
                f.write_str(if vector { "1" } else { "0" })?;
            }
        }
        f.write_str(if self.split { "_split" } else { "" })
    }
}
