//! The packing kernels for operands in a layout that a kernel does not support, or reads slowly.
//!
//! They copy an operand to rows of a multiple of 16 bytes, padded with zeros. They also transpose,
//! round f32 to TF32, or split i32 into bytes. One launch packs one operand or both.

use std::fmt;

use tegula_core::element::Type;
use tegula_core::error::{Error, Result};
use tegula_core::matrix::Shape;
use tegula_ir::prelude::*;

use super::limbs::{DEPTH, LIMBS};
use super::orders::order_letters;

/// Rows and columns that a block copies.
pub(crate) const TILE: u32 = 64;
const WARPS: u32 = 8;
const LANES: u32 = 32;

/// The conversion of packed elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Packing {
    /// None.
    Same,
    /// Rounds f32 to TF32, to nearest.
    Tf32,
    /// Splits i32 into limbs: for each 32 elements of a row the lowest bytes, then the next, and so
    /// on. The size stays the same.
    Limbs,
}

impl Packing {
    fn suffix(self) -> &'static str {
        match self {
            Packing::Same => "",
            Packing::Tf32 => "_tf32",
            Packing::Limbs => "_limbs",
        }
    }
}

/// The kernel that packs one operand, and its configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pack {
    /// Element type of the source and the copy.
    pub ty: Type,
    /// Storage order of the source. The copy is row-major.
    pub from: Order2d,
    /// The conversion of elements.
    pub packing: Packing,
}

impl Pack {
    /// The unit to which the columns of the copy are padded.
    pub fn unit(&self) -> usize {
        if self.packing == Packing::Limbs { DEPTH as usize } else { 16 / self.ty.size() }
    }

    /// Builds the kernel: parameters `from` and `to`. `to` has at least the rows and columns of
    /// `from`, and its columns are a multiple of [`unit`](Self::unit).
    ///
    /// # Errors
    /// [`Error::KernelOption`] for an unsupported type or conversion.
    pub fn build(&self) -> Result<Kernel> {
        self.check()?;
        of_type!(self.ty, pack(self))
    }

    /// Whether elements are permuted within a tile, through shared memory.
    fn permutes(&self) -> bool {
        self.from == Order2d::ColMajor || self.packing == Packing::Limbs
    }

    fn check(&self) -> Result<()> {
        let ((Packing::Same, _) | (Packing::Tf32, Type::F32) | (Packing::Limbs, Type::I32)) = (self.packing, self.ty)
        else {
            return Err(Error::KernelOption(format!(
                "{self}: only f32 can be rounded to TF32, and only i32 split into limbs"
            )));
        };
        Ok(())
    }
}

/// The kernel that packs both operands: one launch is faster than two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PackBoth {
    /// Element type of the sources and the copies.
    pub ty: Type,
    /// Storage orders of the sources. The copies are row-major.
    pub from: [Order2d; 2],
    /// The conversion of elements.
    pub packing: Packing,
}

impl PackBoth {
    /// The maximum number of tiles of a copy; tiles are counted in 32 bits.
    const MAX_TILES: usize = (1 << 30) - 1;

    /// Combines two packings to copies of these shapes, if their conversions agree and their tiles
    /// can be counted.
    pub fn of([a, b]: [Pack; 2], to: [Shape; 2]) -> Option<Self> {
        let tiles = |Shape { batches, rows, cols }: Shape| {
            let each = rows.div_ceil(TILE as usize).saturating_mul(cols.div_ceil(TILE as usize));
            each.saturating_mul(batches)
        };
        let both = PackBoth { ty: a.ty, from: [a.from, b.from], packing: a.packing };
        (both.each() == [a, b] && to.into_iter().all(|shape| tiles(shape) <= Self::MAX_TILES)).then_some(both)
    }

    /// The packing of each operand.
    fn each(&self) -> [Pack; 2] {
        self.from.map(|from| Pack { ty: self.ty, from, packing: self.packing })
    }

    /// Builds the kernel: parameters `from_a`, `to_a`, `from_b` and `to_b`, as of [`Pack::build`].
    ///
    /// # Errors
    /// As [`Pack::build`].
    pub fn build(&self) -> Result<Kernel> {
        let [a, _] = self.each();
        a.check()?;
        of_type!(self.ty, pack_both(self))
    }
}

fn pack<T: Element>(variant: &Pack) -> Kernel {
    kernel(&variant.to_string(), Block::d1(WARPS * LANES), |k| {
        k.note(format!("to = from, {} elements, {variant}", variant.ty));
        let buffer = variant.permutes().then(|| Copy::declare_buffer(k));
        let copy = Copy::<T>::declare(k, variant, "", buffer);
        k.for_blocks(copy.blocks(), |tile| copy.copy_tile(tile));
    })
}

fn pack_both<T: Element>(variant: &PackBoth) -> Kernel {
    kernel(&variant.to_string(), Block::d1(WARPS * LANES), |k| {
        k.note(format!("to_a = from_a, to_b = from_b, {} elements, {variant}", variant.ty));
        // A block copies a tile of A or of B.
        let each = variant.each();
        let buffer = each.iter().any(Pack::permutes).then(|| Copy::declare_buffer(k));
        let [a, b] = [0, 1].map(|i| Copy::<T>::declare(k, &each[i], ["_a", "_b"][i], buffer));
        let [a_blocks, b_blocks] =
            [&a, &b].map(|copy| copy.blocks().into_iter().reduce(|product, count| product * count));
        let (a_blocks, b_blocks) = (a_blocks.unwrap_or(k.constant(0)), b_blocks.unwrap_or(k.constant(0)));
        k.grid([a_blocks + b_blocks, k.constant(1), k.constant(1)]);
        let block = k.block_x();
        k.if_else(block.lt(a_blocks), || a.copy_tile(a.tile(block)), || b.copy_tile(b.tile(block - a_blocks)));
    })
}

/// The copy of one operand.
struct Copy<'k, T: Element> {
    k: &'k Builder,
    variant: Pack,
    from: Global<'k, T>,
    to: Global<'k, T>,
    /// The shared memory through which a tile is permuted.
    buffer: Option<Shared<'k, T>>,
}

impl<'k, T: Element> Copy<'k, T> {
    fn declare(k: &'k Builder, variant: &Pack, suffix: &str, buffer: Option<Shared<'k, T>>) -> Self {
        let from = k.matrix::<T>(&format!("from{suffix}"), Access::Read, variant.from, 1);
        let to = k.matrix::<T>(&format!("to{suffix}"), Access::Write, Order2d::RowMajor, 1);
        Copy { k, variant: *variant, from, to, buffer: buffer.filter(|_| variant.permutes()) }
    }

    /// Declares a tile, padded by a column against bank conflicts.
    fn declare_buffer(k: &'k Builder) -> Shared<'k, T> {
        k.shared::<T>("tile", [TILE, TILE + 1])
    }

    /// Tiles along the rows of the copy, its columns and the batch.
    fn blocks(&self) -> [Val<'k, u32>; 3] {
        [self.to.cols().div_ceil(TILE), self.to.rows().div_ceil(TILE), self.to.batches()]
    }

    /// The coordinates of a tile in `blocks`, from its number.
    fn tile(&self, number: Val<'k, u32>) -> [Val<'k, u32>; 3] {
        let [x, y, _] = self.blocks();
        [number % x, number / x % y, number / x / y]
    }

    /// Copies a tile.
    fn copy_tile(&self, [x, y, batch]: [Val<'k, u32>; 3]) {
        let Copy { k, variant, from, to, buffer } = *self;
        let (transposed, limbs) = (variant.from == Order2d::ColMajor, variant.packing == Packing::Limbs);
        let (row, col) = (y * TILE, x * TILE);
        // The thread's elements of the tile, lanes along the second axis.
        let elements = || {
            let line = move |i| k.warp() + i * WARPS;
            (0..TILE / WARPS).flat_map(move |i| (0..TILE / LANES).map(move |j| (line(i), k.lane() + j * LANES)))
        };
        let loaded = elements().map(|(i, j)| {
            let (row, col) = if transposed { (row + j, col + i) } else { (row + i, col + j) };
            from.load_or((batch, row, col), row.lt(from.rows()) & col.lt(from.cols()), T::ZERO)
        });
        // All loads are issued before the first is used.
        let mut values: Vec<_> = loaded.collect();
        if let Some(buffer) = buffer {
            k.barrier();
            elements()
                .zip(values)
                .for_each(|((i, j), value)| buffer.store(if transposed { (j, i) } else { (i, j) }, value));
            k.barrier();
            let load = |(i, j)| if limbs { limb(buffer, i, j) } else { buffer.load((i, j)) };
            values = elements().map(load).collect();
        }
        for ((i, j), value) in elements().zip(values) {
            let value = match variant.packing {
                Packing::Tf32 => value.bitcast::<f32>().to_tf32().bitcast(),
                Packing::Same | Packing::Limbs => value,
            };
            let (row, col) = (row + i, col + j);
            to.store_if((batch, row, col), value, row.lt(to.rows()) & col.lt(to.cols()));
        }
    }
}

/// Word `j` of a row of limbs: the same byte of four consecutive elements.
fn limb<'k, T: Element>(buffer: Shared<'k, T>, row: Val<'k, u32>, j: Val<'k, u32>) -> Val<'k, T> {
    let words = DEPTH / LIMBS;
    let (limb, first) = (j % DEPTH / words, j / DEPTH * DEPTH + j % words * LIMBS);
    let byte = |i: u32| (buffer.load((row, first + i)).bitcast::<u32>() >> (limb * 8) & 0xff) << (i * 8);
    (byte(0) | byte(1) | byte(2) | byte(3)).bitcast()
}

impl fmt::Display for PackBoth {
    /// The name of [`Pack`] with the order letters of both operands.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b] = self.from;
        let orders = match order_letters([a, b, Order2d::RowMajor]) {
            none if none.is_empty() => "_rr".into(),
            letters => letters[..3].to_owned(),
        };
        write!(f, "pack_both_{}{}{orders}", self.ty, self.packing.suffix())
    }
}

impl fmt::Display for Pack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let packing = self.packing.suffix();
        let (row, orders) = (Order2d::RowMajor, [self.from, Order2d::RowMajor, Order2d::RowMajor]);
        let letters = if self.from == row { String::new() } else { order_letters(orders)[..2].into() };
        write!(f, "pack_{}{packing}{letters}", self.ty)
    }
}
