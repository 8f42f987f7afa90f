//! Four CPU loop nests that lead from the definition of the matrix product to tiling.
//!
//! 1. [`Nest::Ijk`]: the definition.
//! 2. [`Nest::Kij`]: k outermost.
//! 3. [`Nest::Split`]: every loop split by the tile size T, in the same order.
//! 4. [`Nest::Tiled`]: the six loops reordered, i j k | i0 j0 k0, as in the GPU kernel `tiled`.
//!
//! ```
//! use tegula_explain::nests;
//! use tegula_explain::nests::Nest;
//! use tegula_core::{View, ViewMut};
//!
//! let a: Vec<f32> = (0..16).map(|index| (index / 4 + index % 4) as f32).collect();
//! let (a, mut c) = (View::new(&a, 4, 4)?, [0f32; 16]);
//! nests::multiply(Nest::Tiled, 2, a, a, ViewMut::new(&mut c, 4, 4)?)?;
//! assert_eq!(c[..4], [14., 20., 26., 32.]);
//! # Ok::<(), tegula_core::Error>(())
//! ```
//!
//! All four add the products of an element of C in ascending k. Product and sum are rounded
//! separately: a fused multiply-add, which the kernels and the CPU product use, is a library call
//! on processors without the instruction. So all four give the same bits, up to the payload of a
//! NaN. They differ only in the order of memory accesses: [`walk`] enumerates it, [`traffic`]
//! counts its cache misses, [`time`] measures it.
//!
//! The nests are not optimized: they run on one thread with bounds checks. The fast product is
//! `tegula::Gemm`.

mod cache;
mod ijk;
mod kij;
mod loops;
mod rows;
mod split;
mod tiled;
mod time;
mod walk;

use std::fmt;
use std::num::Wrapping;
use std::ops::{AddAssign, Mul};

pub use cache::{Cache, Traffic, traffic};
pub use loops::Loop;
use rows::{Rows, RowsMut};
use tegula_core::element::Scalar;
use tegula_core::error::{Error, Result};
use tegula_core::matrix::{Shape, View, ViewMut};
pub use time::{Timing, time};
pub use walk::{Access, Operand, walk};

/// A loop nest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Nest {
    /// The loops i, j, k.
    Ijk,
    /// The loops k, i, j.
    Kij,
    /// Nest 1 with every loop split by the tile size: i i0 j j0 k k0.
    Split,
    /// Nest 3 reordered: i j k over tiles, i0 j0 k0 inside them.
    Tiled,
}

impl Nest {
    /// All four, in the order of the explanation.
    pub const ALL: [Nest; 4] = [Nest::Ijk, Nest::Kij, Nest::Split, Nest::Tiled];

    /// The name: `ijk`, `kij`, `split`, `tiled`.
    pub const fn name(self) -> &'static str {
        match self {
            Nest::Ijk => "ijk",
            Nest::Kij => "kij",
            Nest::Split => "split",
            Nest::Tiled => "tiled",
        }
    }

    /// Whether the nest has tiles; other nests ignore the tile size.
    pub const fn has_tiles(self) -> bool {
        matches!(self, Nest::Split | Nest::Tiled)
    }

    /// The source of the function that runs, from `pub fn` to its closing brace.
    pub fn source(self) -> &'static str {
        let file = match self {
            Nest::Ijk => include_str!("ijk.rs"),
            Nest::Kij => include_str!("kij.rs"),
            Nest::Split => include_str!("split.rs"),
            Nest::Tiled => include_str!("tiled.rs"),
        };
        // The function is the last item of each file.
        file.find("pub fn").map_or(file, |start| file[start..].trim_end())
    }

    /// C += A·B of m×depth by depth×n elements; the slices have these lengths.
    fn run<T: Number>(self, tile: usize, extents: [usize; 3], a: &[T], b: &[T], c: &mut [T]) {
        let [_, n, depth] = extents;
        let (a, b) = (Rows { elements: a, cols: depth }, Rows { elements: b, cols: n });
        let c = RowsMut { elements: c, cols: n };
        match self {
            Nest::Ijk => ijk::ijk(extents, a, b, c),
            Nest::Kij => kij::kij(extents, a, b, c),
            Nest::Split => split::split(tile, extents, a, b, c),
            Nest::Tiled => tiled::tiled(tile, extents, a, b, c),
        }
    }
}

impl fmt::Display for Nest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A number with multiplication and in-place addition.
pub trait Number: Copy + Mul<Output = Self> + AddAssign {}

impl<T: Copy + Mul<Output = T> + AddAssign> Number for T {}

/// An element type of the nests: f32, f64, or i32 with wrapping arithmetic.
pub trait NestElement: Scalar + bytemuck::Pod {
    /// The type with Rust operators, of the same bits.
    type Number: Number + bytemuck::Pod;
}

impl NestElement for f32 {
    type Number = f32;
}

impl NestElement for f64 {
    type Number = f64;
}

impl NestElement for i32 {
    type Number = Wrapping<i32>;
}

/// Computes C = A·B by a nest, with A of m×k and B of k×n; C need not be initialized.
///
/// Extents need not be multiples of the tile size.
///
/// # Errors
/// [`Error::Shape`] for shapes that do not match, batches, or a tile of 0; [`Error::Layout`] unless
/// all matrices are row-major contiguous in host memory.
pub fn multiply<T: NestElement>(nest: Nest, tile: usize, a: View<T>, b: View<T>, mut c: ViewMut<T>) -> Result<()> {
    let extents = extents(tile, a.shape(), b.shape(), c.shape())?;
    let gaps = || Error::Layout("loop nests need row-major contiguous matrices; copy the others".into());
    let (a, b) = (a.as_slice().ok_or_else(gaps)?, b.as_slice().ok_or_else(gaps)?);
    let c = c.as_mut_slice().ok_or_else(gaps)?;
    c.fill(T::ZERO);
    // With an empty matrix, the other extents can be too large to loop over.
    if !extents.contains(&0) {
        let numbers = bytemuck::cast_slice::<T, T::Number>;
        nest.run(tile, extents, numbers(a), numbers(b), bytemuck::cast_slice_mut(c));
    }
    Ok(())
}

/// m, n and k of matching shapes without batches.
fn extents(tile: usize, a: Shape, b: Shape, c: Shape) -> Result<[usize; 3]> {
    let [m, n, depth] = [a.rows, b.cols, a.cols];
    if b.rows != depth || (c.rows, c.cols) != (m, n) || [a, b, c].iter().any(|shape| shape.batches != 1) {
        return Err(Error::Shape(format!(
            "A is {a}, B is {b}, C is {c}; a loop nest multiplies one m×k by one k×n matrix"
        )));
    }
    check_tile(tile)?;
    Ok([m, n, depth])
}

/// Rejects a tile of 0, with which loops over tiles would not end.
fn check_tile(tile: usize) -> Result<()> {
    if tile == 0 { Err(Error::Shape("tile size 0; the minimum is 1".into())) } else { Ok(()) }
}

#[cfg(test)]
mod tests;
