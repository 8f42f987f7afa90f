//! Kernels whose blocks own a large tile of C, cut into tiles for warps and threads: what they have in common on the host's side.

use std::fmt;
use std::str::FromStr;

use tegula_core::epilogue::Epilogue;
use tegula_core::error::{Error, Result};
use tegula_ir::prelude::*;

use super::orders::order_letters;

/// Tile rows that neighbouring blocks share before they go on to the next column: they find their parts of A and B in the L2 cache.
pub(super) const GROUP: u32 = 8;

/// What multiplies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Core {
    /// Each thread, its own elements: fused multiply-adds from registers.
    Register,
    /// Each warp, by a matrix instruction of f64.
    Dmma(Mma),
    /// Each warp, by a matrix instruction of shorter numbers, to which f32 is rounded ([`Mma::TF32`]).
    Mma(Mma),
    /// Each warp, by a matrix instruction of bytes, which i32 is split into.
    Limbs,
}

impl fmt::Display for Core {
    /// What the kernel's name begins with.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Core::Register => f.write_str("register"),
            Core::Mma(Mma::TF32) => f.write_str("tf32"),
            Core::Mma(_) => f.write_str("mma"),
            Core::Limbs => f.write_str("limbs"),
            Core::Dmma(mma) => {
                let [m, _, k] = mma.shape();
                write!(f, "dmma{m}x{k}")
            }
        }
    }
}

/// How a tile of C is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Blocking {
    /// Rows and columns of C that a block owns, and the depth of a k-step.
    pub block: [u32; 3],
    /// Rows and columns that a warp owns.
    pub warp: [u32; 2],
    /// Rows and columns that a thread owns; of kernels on matrix units, what one step of a warp makes.
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

/// How blocks share out the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Schedule {
    /// A block makes a tile.
    Tiles,
    /// A block makes a part of the sums of a tile. C is a workspace with a matrix for each part, `batch` times `parts` of them; neither
    /// alpha nor beta is applied, nor an epilogue. [`Sum`](super::Sum) adds the parts. Of [`Hopper`](super::Hopper) kernels they lie as
    /// [`Fragments`](super::Fragments) do, with room for whole tiles, and [`Reduce`](super::Reduce) adds them.
    Parts,
    /// As many blocks as run at once make the same number of whole tiles each, and the same share of the steps of those that are left over,
    /// whose sums go to a workspace; [`Mend`](super::Mend) adds them, of [`Hopper`](super::Hopper) kernels who has a tile's first step. After Osama et al., "Stream-K: Work-centric Parallel
    /// Decomposition for Dense Matrix-Matrix Multiplication on the GPU" (2023), with data-parallel waves and a fixed order of additions.
    Balanced,
    /// A is all rows of many products, one after the other, and each has a matrix B of its own: blocks go from tile to tile of all of them. Of
    /// [`Hopper`](super::Hopper) kernels alone, which take a row `ends` behind A and B: for each matrix B the row of C where its product ends.
    Groups,
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
    /// How the work is shared out to blocks.
    pub schedule: Schedule,
    /// What happens to sums on their way to C; nothing to parts of them.
    pub epilogue: Epilogue,
}

impl Blocked {
    /// Row-major, without vector accesses.
    pub const fn new(core: Core, ty: Type, blocking: Blocking) -> Self {
        let (orders, vectors, schedule) = ([Order2d::RowMajor; 3], [false; 3], Schedule::Tiles);
        Blocked { core, ty, blocking, orders, vectors, schedule, epilogue: Epilogue::NONE }
    }

    /// The kernel of a core and a blocking, by its name without type and layouts: `register_128x256x8_64x64_8x16_4_1_1`,
    /// `dmma16x16_128x128x16_32x64_16x16_4_1_1`, `mma_128x256x32_64x64_16x8_4_1_1`; `tf32_` rounds f32 to tf32 and so is less exact.
    ///
    /// # Errors
    /// [`Error::KernelOption`] that says what a name looks like.
    pub fn named(name: &str, ty: Type) -> Result<Self> {
        let (core, blocking) = name.split_once('_').unwrap_or((name, ""));
        let core = match core {
            "register" => Core::Register,
            "limbs" => Core::Limbs,
            "mma" => Core::Mma(mma_of(ty)?),
            "tf32" => Core::Mma(Mma::TF32),
            "dmma16x16" => Core::Dmma(Mma::F64K16),
            "dmma16x8" => Core::Dmma(Mma::F64K8),
            "dmma16x4" => Core::Dmma(Mma::F64K4),
            "dmma8x4" => Core::Dmma(Mma::F64M8K4),
            _ => {
                return Err(Error::KernelOption(format!(
                    "there is no kernel {name:?}; blocks begin with register_, dmma16x16_, mma_, tf32_ or limbs_, as in register_128x256x8_64x64_8x16_4_1_1"
                )));
            }
        };
        Ok(Blocked::new(core, ty, blocking.parse()?))
    }

    /// The name without type and layouts, as [`named`](Self::named) takes it.
    pub fn short_name(&self) -> String {
        format!("{}_{}", self.core, self.blocking)
    }

    /// Whether the kernel takes A and B transposed: it wants elements that lie side by side along rows.
    pub fn turned(&self) -> [bool; 2] {
        [self.orders[0] == Order2d::ColMajor, self.orders[1] == Order2d::ColMajor]
    }

    /// How A and B have to lie to be multiplied fastest.
    pub fn wanted(&self) -> [Order2d; 2] {
        match self.core {
            Core::Register => [Order2d::ColMajor, Order2d::RowMajor],
            Core::Dmma(_) => [Order2d::RowMajor; 2],
            Core::Mma(_) | Core::Limbs => [Order2d::RowMajor, Order2d::ColMajor],
        }
    }

    /// Whether the kernel takes A (`which` 0) or B (1) that lies so, or only a packed one.
    pub fn takes(&self, which: usize, order: Order2d, vectors: bool) -> bool {
        let lying = Blocked { orders: [order; 3], vectors: [vectors; 3], ..*self };
        match self.core {
            // Rounded on its way, or taken apart.
            Core::Mma(Mma::TF32) | Core::Limbs => false,
            Core::Mma(_) => lying.loads(which),
            Core::Register | Core::Dmma(_) => true,
        }
    }

    /// Whether it costs the kernel that A (`which` 0) or B (1), which lies so, cannot be taken 16 bytes at once. Register tiles turn what lies along
    /// k on its way, one element at a time in any case.
    pub fn single(&self, which: usize, order: Order2d, vectors: bool) -> bool {
        let along_k = [Order2d::RowMajor, Order2d::ColMajor][which];
        !(vectors || self.core == Core::Register && order == along_k)
    }

    /// Whether loads for a whole warp gather A or B as it lies: along k, or, since they move 16 bits at once, to be transposed.
    pub(super) fn loads(&self, which: usize) -> bool {
        let order = self.orders[which];
        self.vectors[which] && (order == self.wanted()[which] || self.ty.size() == 2 && order != Order2d::Strided)
    }

    /// What is known of the strides of the matrices as the kernel takes them.
    pub(super) fn passed(&self) -> [Order2d; 3] {
        self.orders.map(|order| if order == Order2d::ColMajor { Order2d::RowMajor } else { order })
    }

    /// Elements of A, B and C that one access may take.
    pub(super) fn widths(&self) -> [u32; 3] {
        let [ab, c] = [self.ty, self.ty.output()].map(|ty| (16 / ty.size()) as u32);
        let [a_vector, b_vector, c_vector] = self.vectors;
        [(a_vector, ab), (b_vector, ab), (c_vector, c)].map(|(vector, all)| if vector { all } else { 1 })
    }
}

/// The matrix instruction that multiplies numbers of a short type as they are.
fn mma_of(ty: Type) -> Result<Mma> {
    match ty {
        Type::F16 => Ok(Mma::F16),
        Type::BF16 => Ok(Mma::BF16),
        Type::I8 => Ok(Mma::I8),
        Type::F32 => Err(Error::KernelOption("mma_ multiplies f16, bf16 and i8; tf32_ is f32 rounded to tf32".into())),
        ty => Err(Error::KernelOption(format!("mma_ multiplies f16, bf16 and i8, not {ty}"))),
    }
}

/// Blocks in order of their number walk down `group` tile rows, then along to the next tile column.
pub(super) fn grouped<'k>(
    tile: Val<'k, u32>,
    [tiles_m, tiles_n]: [Val<'k, u32>; 2],
    group: Val<'k, u32>,
) -> (Val<'k, u32>, Val<'k, u32>) {
    let in_group = tiles_n * group;
    let first = tile / in_group * group;
    let rows = (tiles_m - first).min(group);
    let within = tile % in_group;
    (first + within % rows, within / rows)
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
        write!(f, "{}_{}_{}", self.core, self.ty, self.blocking)?;
        f.write_str(&order_letters(self.orders))?;
        if self.vectors != [false; 3] {
            f.write_str("_v")?;
            for vector in self.vectors {
                f.write_str(if vector { "1" } else { "0" })?;
            }
        }
        f.write_str(match self.schedule {
            Schedule::Tiles => "",
            Schedule::Parts => "_parts",
            Schedule::Balanced => "_balanced",
            // Refused.
            Schedule::Groups => "_groups",
        })?;
        f.write_str(&self.epilogue.suffix())
    }
}
