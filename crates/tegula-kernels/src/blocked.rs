//! The configuration of blocked kernels, whose blocks compute a large tile of C in tiles of warps
//! and threads.

use std::fmt;
use std::str::FromStr;

use tegula_core::epilogue::Epilogue;
use tegula_core::error::{Error, Result};
use tegula_ir::prelude::*;

use super::name_fields::{NameFields, upgrade_legacy_name, write_field};
use super::orders::order_letters;

/// Tile rows in a group of the raster order. Its blocks find their parts of A and B in the L2
/// cache.
pub(super) const GROUP_M: u32 = 8;

/// The instruction that multiplies and accumulates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MathInstruction {
    /// Fused multiply-adds of each thread, from registers.
    Fma,
    /// The `mma.sync` instructions of f64 on Tensor Cores.
    Dmma(Mma),
    /// The `mma.sync` instructions of shorter types on Tensor Cores. f32 is rounded to TF32
    /// ([`Mma::TF32`]).
    Mma(Mma),
    /// The `mma.sync` instruction of bytes on Tensor Cores; i32 is split into four bytes, its
    /// limbs.
    Limbs,
}

impl fmt::Display for MathInstruction {
    /// The prefix of the kernel's name.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MathInstruction::Fma => f.write_str("register"),
            MathInstruction::Mma(Mma::TF32) => f.write_str("tf32"),
            MathInstruction::Mma(_) => f.write_str("mma"),
            MathInstruction::Limbs => f.write_str("limbs"),
            MathInstruction::Dmma(mma) => {
                let [m, _, k] = mma.shape();
                write!(f, "dmma{m}x{k}")
            }
        }
    }
}

/// The tile hierarchy of a blocked kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Blocking {
    /// Rows and columns of a block's tile of C, and the depth of a k-step.
    pub block: [u32; 3],
    /// Rows and columns of a warp's tile.
    pub warp: [u32; 2],
    /// Rows and columns of a thread's tile; with Tensor Cores, of one instruction step of a warp.
    pub thread: [u32; 2],
    /// Pipeline stages: one tile of A and B is multiplied while the others are copied.
    pub stages: u32,
    /// Sliced-K: groups of warps that each multiply a part of a k-step's depth. Their accumulators
    /// are added at the end.
    pub slices: u32,
    /// The minimum number of resident blocks per SM, which bounds the registers.
    pub blocks: u32,
}

impl Blocking {
    /// Threads of a block.
    pub const fn threads(&self) -> u32 {
        (self.block[0] / self.warp[0]) * (self.block[1] / self.warp[1]) * self.slices * 32
    }
}

/// How the work is distributed over thread blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Schedule {
    /// A block computes whole tiles.
    DataParallel,
    /// A block computes a partial sum of a tile over a range of k.
    ///
    /// C is a workspace of `batch` times `splits` matrices. Neither alpha, beta nor an epilogue is
    /// applied. [`SplitKReduction`](super::SplitKReduction) adds the matrices.
    /// [`Hopper`](super::Hopper) kernels store them in the
    /// [`FragmentLayout`](super::FragmentLayout), padded to whole tiles, and
    /// [`FragmentReduction`](super::FragmentReduction) adds them.
    SplitK,
    /// Each of the resident blocks computes the same number of whole tiles, and an equal share of
    /// the k-steps of the remaining tiles.
    ///
    /// Partial sums of the remaining tiles go to a workspace. [`FixUp`](super::FixUp) adds them; in
    /// [`Hopper`](super::Hopper) kernels the block with a tile's first step does. After Osama et
    /// al., "Stream-K: Work-centric Parallel Decomposition for Dense Matrix-Matrix Multiplication
    /// on the GPU" (2023), with data-parallel waves and a fixed order of additions.
    StreamK,
    /// A grouped GEMM: A holds the rows of many products one after the other, each with its own
    /// matrix B. Blocks iterate over the tiles of all products.
    ///
    /// For [`Hopper`](super::Hopper) kernels only. They take a row vector `ends` after A and B: for
    /// each matrix B the row of C where its product ends.
    Grouped,
}

/// A blocked kernel and its configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Blocked {
    /// The instruction that multiplies and accumulates.
    pub instruction: MathInstruction,
    /// Element type of A and B.
    pub ty: Type,
    /// The tile hierarchy.
    pub blocking: Blocking,
    /// Storage orders of A, B and C. C is never column-major: the recipe computes the transpose
    /// instead.
    pub orders: [Order2d; 3],
    /// Whether A, B and C can be accessed as 16-byte vectors: address, strides and contiguous
    /// extent are multiples of 16 bytes.
    pub aligned_16: [bool; 3],
    /// How the work is distributed over blocks.
    pub schedule: Schedule,
    /// The epilogue; none for partial sums.
    pub epilogue: Epilogue,
}

impl Blocked {
    /// A kernel for row-major operands, without vector accesses.
    pub const fn new(instruction: MathInstruction, ty: Type, blocking: Blocking) -> Self {
        let (orders, aligned_16, schedule) = ([Order2d::RowMajor; 3], [false; 3], Schedule::DataParallel);
        Blocked { instruction, ty, blocking, orders, aligned_16, schedule, epilogue: Epilogue::NONE }
    }

    /// Parses a name of an instruction and a blocking, without type and layouts.
    ///
    /// Examples: `register_128x256x8_warp64x64_thread8x16_stages4`,
    /// `dmma16x16_128x128x16_warp32x64_thread16x16_stages4`. `tf32_` rounds f32 to TF32, which is
    /// less accurate.
    ///
    /// # Errors
    /// [`Error::KernelOption`] with the syntax of names.
    pub fn named(name: &str, ty: Type) -> Result<Self> {
        let name = upgrade_legacy_name(name).unwrap_or_else(|| name.into());
        let (instruction, blocking) = name.split_once('_').unwrap_or((&name, ""));
        let instruction = match instruction {
            "register" => MathInstruction::Fma,
            "limbs" => MathInstruction::Limbs,
            "mma" => MathInstruction::Mma(mma_of(ty)?),
            "tf32" => MathInstruction::Mma(Mma::TF32),
            "dmma16x16" => MathInstruction::Dmma(Mma::F64K16),
            "dmma16x8" => MathInstruction::Dmma(Mma::F64K8),
            "dmma16x4" => MathInstruction::Dmma(Mma::F64K4),
            "dmma8x4" => MathInstruction::Dmma(Mma::F64M8K4),
            _ => {
                return Err(Error::KernelOption(format!(
                    "unknown kernel {name:?}; names of blocked kernels begin with register_, dmma16x16_, mma_, tf32_ \
                     or limbs_, as in register_128x256x8_warp64x64_thread8x16_stages4"
                )));
            }
        };
        Ok(Blocked::new(instruction, ty, blocking.parse()?))
    }

    /// The name without type and layouts, as [`named`](Self::named) parses it.
    pub fn short_name(&self) -> String {
        format!("{}_{}", self.instruction, self.blocking)
    }

    /// Whether A and B are passed transposed, so that rows are contiguous.
    pub fn transposed(&self) -> [bool; 2] {
        [self.orders[0] == Order2d::ColMajor, self.orders[1] == Order2d::ColMajor]
    }

    /// The storage orders of A and B with which the kernel is fastest.
    pub fn preferred_orders(&self) -> [Order2d; 2] {
        match self.instruction {
            MathInstruction::Fma => [Order2d::ColMajor, Order2d::RowMajor],
            MathInstruction::Dmma(_) => [Order2d::RowMajor; 2],
            MathInstruction::Mma(_) | MathInstruction::Limbs => [Order2d::RowMajor, Order2d::ColMajor],
        }
    }

    /// Whether the kernel accepts operand A (0) or B (1) in this layout, without packing.
    pub fn accepts(&self, operand: usize, order: Order2d, aligned_16: bool) -> bool {
        let kernel = Blocked { orders: [order; 3], aligned_16: [aligned_16; 3], ..*self };
        match self.instruction {
            // Packing rounds to TF32, or splits into limbs.
            MathInstruction::Mma(Mma::TF32) | MathInstruction::Limbs => false,
            MathInstruction::Mma(_) => kernel.supports_ldmatrix(operand),
            MathInstruction::Fma | MathInstruction::Dmma(_) => true,
        }
    }

    /// Whether operand A (0) or B (1) in this layout is slower for lack of 16-byte copies. Register
    /// kernels transpose an operand contiguous along k element by element in any case.
    pub fn needs_element_copies(&self, operand: usize, order: Order2d, aligned_16: bool) -> bool {
        let along_k = [Order2d::RowMajor, Order2d::ColMajor][operand];
        !(aligned_16 || self.instruction == MathInstruction::Fma && order == along_k)
    }

    /// Whether `ldmatrix` can load operand A (0) or B (1): contiguous along k, or of 16 bits and
    /// transposed by the load.
    pub(super) fn supports_ldmatrix(&self, operand: usize) -> bool {
        let order = self.orders[operand];
        self.aligned_16[operand]
            && (order == self.preferred_orders()[operand] || self.ty.size() == 2 && order != Order2d::Strided)
    }

    /// Storage orders of the matrices as passed to the kernel.
    pub(super) fn kernel_orders(&self) -> [Order2d; 3] {
        self.orders.map(|order| if order == Order2d::ColMajor { Order2d::RowMajor } else { order })
    }

    /// Elements of A, B and C per vector access.
    pub(super) fn vector_widths(&self) -> [u32; 3] {
        let [ab, c] = [self.ty, self.ty.output()].map(|ty| (16 / ty.size()) as u32);
        let [a_vector, b_vector, c_vector] = self.aligned_16;
        [(a_vector, ab), (b_vector, ab), (c_vector, c)].map(|(is_vector, width)| if is_vector { width } else { 1 })
    }
}

/// The `mma.sync` instruction of a type, without a conversion of operands.
fn mma_of(ty: Type) -> Result<Mma> {
    match ty {
        Type::F16 => Ok(Mma::F16),
        Type::BF16 => Ok(Mma::BF16),
        Type::I8 => Ok(Mma::I8),
        Type::F32 => Err(Error::KernelOption(
            "mma kernels support f16, bf16 and i8; for f32 use tf32, which rounds to TF32".into(),
        )),
        ty => Err(Error::KernelOption(format!("mma kernels support f16, bf16 and i8, not {ty}"))),
    }
}

/// The tile row and column of a tile's number in raster order: column by column within groups of
/// `group_m` tile rows.
pub(super) fn raster_order<'k>(
    tile: Val<'k, u32>,
    [tiles_m, tiles_n]: [Val<'k, u32>; 2],
    group_m: Val<'k, u32>,
) -> (Val<'k, u32>, Val<'k, u32>) {
    let group_tiles = tiles_n * group_m;
    let first = tile / group_tiles * group_m;
    let rows = (tiles_m - first).min(group_m);
    let within = tile % group_tiles;
    (first + within % rows, within / rows)
}

impl fmt::Display for Blocking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [rows, cols, depth] = self.block;
        write!(f, "{rows}x{cols}x{depth}")?;
        write_field(f, "warp", self.warp, None)?;
        write_field(f, "thread", self.thread, None)?;
        write_field(f, "stages", [self.stages], None)?;
        write_field(f, "slices", [self.slices], Some([1]))?;
        write_field(f, "blocks", [self.blocks], Some([1]))
    }
}

impl FromStr for Blocking {
    type Err = Error;

    /// Parses the output of [`Display`](fmt::Display).
    fn from_str(text: &str) -> Result<Self> {
        let parse = || {
            let mut fields = NameFields::parse(text)?;
            let blocking = Blocking {
                block: fields.tile()?,
                warp: fields.take("warp", None)?,
                thread: fields.take("thread", None)?,
                stages: fields.take::<1>("stages", None)?[0],
                slices: fields.take("slices", Some([1]))?[0],
                blocks: fields.take("blocks", Some([1]))?[0],
            };
            fields.finish(blocking)
        };
        parse().ok_or_else(|| {
            Error::KernelOption(format!(
                "invalid blocking {text:?}; expected the tiles of a block, a warp and a thread, and stages as in \
                 128x256x16_warp64x64_thread8x16_stages3, then optionally _slices2 (warps along k) and \
                 _blocks2 (blocks per SM)"
            ))
        })
    }
}

impl fmt::Display for Blocked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}_{}_{}", self.instruction, self.ty, self.blocking)?;
        f.write_str(&order_letters(self.orders))?;
        if self.aligned_16 != [false; 3] {
            f.write_str("_v")?;
            for vector in self.aligned_16 {
                f.write_str(if vector { "1" } else { "0" })?;
            }
        }
        f.write_str(match self.schedule {
            Schedule::DataParallel => "",
            Schedule::SplitK => "_splitk",
            Schedule::StreamK => "_streamk",
            // Rejected by `build`.
            Schedule::Grouped => "_groups",
        })?;
        f.write_str(&self.epilogue.suffix())
    }
}
