//! The pass before a product of a matrix that lies where its kernel cannot take it, or not as fast: copies it to rows that begin at multiples of
//! 16 bytes and are as long, with zeros behind their ends. On the way rows become columns where that is wanted, f32 is rounded to tf32, or i32
//! taken apart into its bytes. One launch copies one factor, or both.

use std::fmt;

use tegula_core::element::Type;
use tegula_core::error::{Error, Result};
use tegula_core::matrix::Shape;
use tegula_ir::prelude::*;

use super::limbs::{DEPTH, LIMBS};
use super::orders::order_letters;

/// Rows and columns that a block copies.
pub(super) const TILE: u32 = 64;
const WARPS: u32 = 8;
const LANES: u32 = 32;

/// What becomes of the elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Packing {
    /// They stay what they are.
    Same,
    /// f32 is rounded to tf32, to nearest.
    Tf32,
    /// Of each 32 of i32 in a row come the lowest bytes, then the next, and so on: as many bytes as before.
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

/// A copy of a matrix, and everything that shapes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pack {
    /// Element type of both.
    pub ty: Type,
    /// What is known of the strides of the matrix that is copied. The copy has rows.
    pub from: Order2d,
    /// What becomes of the elements.
    pub packing: Packing,
}

impl Pack {
    /// How many columns a row of the copy has at least, of which all rows have a multiple.
    pub fn unit(&self) -> usize {
        if self.packing == Packing::Limbs { DEPTH as usize } else { 16 / self.ty.size() }
    }

    /// Builds the kernel: parameters `from` and `to`, whose rows and columns are as many or more; columns a multiple of [`unit`](Self::unit).
    ///
    /// # Errors
    /// [`Error::KernelOption`] for a type without kernels, or without such a packing.
    pub fn build(&self) -> Result<Kernel> {
        self.check()?;
        of_type!(self.ty, pack(self))
    }

    /// Whether elements change places within a tile.
    fn moves(&self) -> bool {
        self.from == Order2d::ColMajor || self.packing == Packing::Limbs
    }

    fn check(&self) -> Result<()> {
        let ((Packing::Same, _) | (Packing::Tf32, Type::F32) | (Packing::Limbs, Type::I32)) = (self.packing, self.ty)
        else {
            return Err(Error::KernelOption(format!("{self}: f32 is rounded to tf32, and i32 has limbs")));
        };
        Ok(())
    }
}

/// Copies of both factors by one launch, which takes less than two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PackBoth {
    /// Element type of all.
    pub ty: Type,
    /// What is known of the strides of the matrices that are copied. The copies have rows.
    pub from: [Order2d; 2],
    /// What becomes of the elements.
    pub packing: Packing,
}

impl PackBoth {
    /// Most tiles of a copy, which are counted in 32 bits.
    const TILES: usize = (1 << 30) - 1;

    /// Both at once, if they change elements alike and have no more tiles than are counted: copies of such shapes.
    pub fn of([a, b]: [Pack; 2], to: [Shape; 2]) -> Option<Self> {
        let tiles = |Shape { batches, rows, cols }: Shape| {
            let each = rows.div_ceil(TILE as usize).saturating_mul(cols.div_ceil(TILE as usize));
            each.saturating_mul(batches)
        };
        let both = PackBoth { ty: a.ty, from: [a.from, b.from], packing: a.packing };
        (both.each() == [a, b] && to.into_iter().all(|shape| tiles(shape) <= Self::TILES)).then_some(both)
    }

    /// The copies.
    fn each(&self) -> [Pack; 2] {
        self.from.map(|from| Pack { ty: self.ty, from, packing: self.packing })
    }

    /// Builds the kernel: parameters `from_a`, `to_a`, `from_b` and `to_b`, as [`Pack::build`] has them.
    ///
    /// # Errors
    /// [`Error::KernelOption`], as there.
    pub fn build(&self) -> Result<Kernel> {
        let [a, _] = self.each();
        a.check()?;
        of_type!(self.ty, pack_both(self))
    }
}

fn pack<T: Element>(variant: &Pack) -> Kernel {
    kernel(&variant.to_string(), Block::d1(WARPS * LANES), |k| {
        k.note(format!("to = from, {} elements, {variant}", variant.ty));
        let tile = variant.moves().then(|| Copy::tile_of(k));
        let copy = Copy::<T>::declare(k, variant, "", tile);
        k.for_blocks(copy.blocks(), |at| copy.tile(at));
    })
}

fn pack_both<T: Element>(variant: &PackBoth) -> Kernel {
    kernel(&variant.to_string(), Block::d1(WARPS * LANES), |k| {
        k.note(format!("to_a = from_a, to_b = from_b, {} elements, {variant}", variant.ty));
        // A block has a tile of one or of the other.
        let each = variant.each();
        let tile = each.iter().any(Pack::moves).then(|| Copy::tile_of(k));
        let [a, b] = [0, 1].map(|i| Copy::<T>::declare(k, &each[i], ["_a", "_b"][i], tile));
        let [of_a, of_b] = [&a, &b].map(|copy| copy.blocks().into_iter().reduce(|all, more| all * more));
        let (of_a, of_b) = (of_a.unwrap_or(k.constant(0)), of_b.unwrap_or(k.constant(0)));
        k.grid([of_a + of_b, k.constant(1), k.constant(1)]);
        let block = k.block_x();
        k.if_else(block.lt(of_a), || a.tile(a.at(block)), || b.tile(b.at(block - of_a)));
    })
}

/// What a kernel copies, and how.
struct Copy<'k, T: Element> {
    k: &'k Builder,
    variant: Pack,
    from: Global<'k, T>,
    to: Global<'k, T>,
    /// Where a tile changes its shape on the way.
    tile: Option<Shared<'k, T>>,
}

impl<'k, T: Element> Copy<'k, T> {
    fn declare(k: &'k Builder, variant: &Pack, suffix: &str, tile: Option<Shared<'k, T>>) -> Self {
        let from = k.matrix::<T>(&format!("from{suffix}"), Access::Read, variant.from, 1);
        let to = k.matrix::<T>(&format!("to{suffix}"), Access::Write, Order2d::RowMajor, 1);
        Copy { k, variant: *variant, from, to, tile: tile.filter(|_| variant.moves()) }
    }

    /// One column more, so that neighbours in a column meet different banks.
    fn tile_of(k: &'k Builder) -> Shared<'k, T> {
        k.shared::<T>("tile", [TILE, TILE + 1])
    }

    /// Tiles along the rows of the copy, its columns and the batch.
    fn blocks(&self) -> [Val<'k, u32>; 3] {
        [self.to.cols().div_ceil(TILE), self.to.rows().div_ceil(TILE), self.to.batches()]
    }

    /// The tile of a number, as `blocks` has them.
    fn at(&self, number: Val<'k, u32>) -> [Val<'k, u32>; 3] {
        let [x, y, _] = self.blocks();
        [number % x, number / x % y, number / x / y]
    }

    fn tile(&self, [x, y, batch]: [Val<'k, u32>; 3]) {
        let Copy { k, variant, from, to, tile } = *self;
        let (turned, limbs) = (variant.from == Order2d::ColMajor, variant.packing == Packing::Limbs);
        let (row, col) = (y * TILE, x * TILE);
        // The thread's places in the tile, lanes along the second.
        let places = || {
            let line = move |i| k.warp() + i * WARPS;
            (0..TILE / WARPS).flat_map(move |i| (0..TILE / LANES).map(move |j| (line(i), k.lane() + j * LANES)))
        };
        let loaded = places().map(|(i, j)| {
            let (row, col) = if turned { (row + j, col + i) } else { (row + i, col + j) };
            from.load_or((batch, row, col), row.lt(from.rows()) & col.lt(from.cols()), T::ZERO)
        });
        // All loads are on their way before the first is waited for.
        let mut values: Vec<_> = loaded.collect();
        if let Some(tile) = tile {
            k.barrier();
            places().zip(values).for_each(|((i, j), value)| tile.store(if turned { (j, i) } else { (i, j) }, value));
            k.barrier();
            let load = |(i, j)| if limbs { limb(tile, i, j) } else { tile.load((i, j)) };
            values = places().map(load).collect();
        }
        for ((i, j), value) in places().zip(values) {
            let value = match variant.packing {
                Packing::Tf32 => value.bitcast::<f32>().to_tf32().bitcast(),
                Packing::Same | Packing::Limbs => value,
            };
            let (row, col) = (row + i, col + j);
            to.store_if((batch, row, col), value, row.lt(to.rows()) & col.lt(to.cols()));
        }
    }
}

/// Word `j` of a row of limbs: the same byte of four numbers that follow each other.
fn limb<'k, T: Element>(tile: Shared<'k, T>, row: Val<'k, u32>, j: Val<'k, u32>) -> Val<'k, T> {
    let words = DEPTH / LIMBS;
    let (limb, first) = (j % DEPTH / words, j / DEPTH * DEPTH + j % words * LIMBS);
    let byte = |i: u32| (tile.load((row, first + i)).bitcast::<u32>() >> (limb * 8) & 0xff) << (i * 8);
    (byte(0) | byte(1) | byte(2) | byte(3)).bitcast()
}

impl fmt::Display for PackBoth {
    /// As [`Pack`] has it, with the letters of both.
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
