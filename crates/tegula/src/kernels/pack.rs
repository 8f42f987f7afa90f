//! The pass before a product of a matrix that lies where its kernel cannot take it, or not as fast: copies it to rows that begin at multiples of
//! 16 bytes and are as long, with zeros behind their ends. On the way rows become columns where that is wanted, and f32 is rounded to tf32.

use std::fmt;

use super::order_letters;
use crate::element::Type;
use crate::error::{Error, Result};
use crate::ir::prelude::*;

/// Rows and columns that a block copies.
pub(super) const TILE: u32 = 64;
const WARPS: u32 = 8;
const LANES: u32 = 32;

/// A copy of a matrix, and everything that shapes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pack {
    /// Element type of both.
    pub ty: Type,
    /// What is known of the strides of the matrix that is copied. The copy has rows.
    pub from: Order2d,
    /// Whether f32 is rounded to tf32, to nearest.
    pub rounded: bool,
}

impl Pack {
    /// Builds the kernel: parameters `from` and `to`, whose rows and columns are as many or more.
    ///
    /// # Errors
    /// [`Error::KernelOption`] for a type without kernels, or to round a type that is not f32.
    pub fn build(&self) -> Result<Kernel> {
        if self.rounded && self.ty != Type::F32 {
            return Err(Error::KernelOption(format!("tf32 is f32 rounded, and {self} copies {}", self.ty)));
        }
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
        let tile = turned.then(|| k.shared::<T>("tile", [TILE, TILE + 1]));
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
                places().zip(values).for_each(|((i, j), value)| tile.store((i, j), value));
                k.barrier();
                values = places().map(|(i, j)| tile.load((j, i))).collect();
            }
            for ((i, j), value) in places().zip(values) {
                let value = if variant.rounded { value.bitcast::<f32>().to_tf32().bitcast() } else { value };
                let (row, col) = (row + i, col + j);
                to.store_if((batch, row, col), value, row.lt(to.rows()) & col.lt(to.cols()));
            }
        });
    })
}

impl fmt::Display for Pack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rounded = if self.rounded { "_tf32" } else { "" };
        let (row, orders) = (Order2d::RowMajor, [self.from, Order2d::RowMajor, Order2d::RowMajor]);
        let letters = if self.from == row { String::new() } else { order_letters(orders)[..2].into() };
        write!(f, "pack_{}{rounded}{letters}", self.ty)
    }
}
