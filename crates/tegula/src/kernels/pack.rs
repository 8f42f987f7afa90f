//! The pass before a product of a matrix that lies where its kernel cannot take it, or not as fast: copies it to rows that begin at multiples of
//! 16 bytes and are as long, with zeros behind their ends. On the way rows become columns where that is wanted, f32 is rounded to tf32, or i32
//! taken apart into its bytes.

use std::fmt;

use super::limbs::{DEPTH, LIMBS};
use super::order_letters;
use crate::element::Type;
use crate::error::{Error, Result};
use crate::ir::prelude::*;

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
        let ((Packing::Same, _) | (Packing::Tf32, Type::F32) | (Packing::Limbs, Type::I32)) = (self.packing, self.ty)
        else {
            return Err(Error::KernelOption(format!("{self}: f32 is rounded to tf32, and i32 has limbs")));
        };
        of_type!(self.ty, pack(self))
    }
}

fn pack<T: Element>(variant: &Pack) -> Kernel {
    kernel(&variant.to_string(), Block::d1(WARPS * LANES), |k| {
        k.note(format!("to = from, {} elements, {variant}", variant.ty));
        let turned = variant.from == Order2d::ColMajor;
        let from = k.matrix::<T>("from", Access::Read, variant.from, 1);
        let to = k.matrix::<T>("to", Access::Write, Order2d::RowMajor, 1);
        // One more, so that neighbours in a column meet different banks.
        let limbs = variant.packing == Packing::Limbs;
        let tile = (turned || limbs).then(|| k.shared::<T>("tile", [TILE, TILE + 1]));
        k.for_blocks([to.cols().div_ceil(TILE), to.rows().div_ceil(TILE), to.batches()], |[x, y, batch]| {
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
                places()
                    .zip(values)
                    .for_each(|((i, j), value)| tile.store(if turned { (j, i) } else { (i, j) }, value));
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
        });
    })
}

/// Word `j` of a row of limbs: the same byte of four numbers that follow each other.
fn limb<'k, T: Element>(tile: Shared<'k, T>, row: Val<'k, u32>, j: Val<'k, u32>) -> Val<'k, T> {
    let words = DEPTH / LIMBS;
    let (limb, first) = (j % DEPTH / words, j / DEPTH * DEPTH + j % words * LIMBS);
    let byte = |i: u32| (tile.load((row, first + i)).bitcast::<u32>() >> (limb * 8) & 0xff) << (i * 8);
    (byte(0) | byte(1) | byte(2) | byte(3)).bitcast()
}

impl fmt::Display for Pack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let packing = match self.packing {
            Packing::Same => "",
            Packing::Tf32 => "_tf32",
            Packing::Limbs => "_limbs",
        };
        let (row, orders) = (Order2d::RowMajor, [self.from, Order2d::RowMajor, Order2d::RowMajor]);
        let letters = if self.from == row { String::new() } else { order_letters(orders)[..2].into() };
        write!(f, "pack_{}{packing}{letters}", self.ty)
    }
}
