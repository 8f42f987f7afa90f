//! The four loop nests that explain tiling, each as a plain loop on the processor: what a reader meets before a GPU.
//!
//! 1. [`Nest::Ijk`]: the sum as it is defined.
//! 2. [`Nest::Kij`]: k outermost.
//! 3. [`Nest::Split`]: every loop split by the tile size T, in the same order.
//! 4. [`Nest::Tiled`]: the six loops reordered, i j k | i0 j0 k0, which is the kernel `tiled` of a GPU.
//!
//! ```
//! use tegula_explain::nests;
//! use tegula_explain::nests::Nest;
//! use tegula_core::{View, ViewMut};
//!
//! let a: Vec<f32> = (0..16).map(|place| (place / 4 + place % 4) as f32).collect();
//! let (a, mut c) = (View::new(&a, 4, 4)?, [0f32; 16]);
//! nests::multiply(Nest::Tiled, 2, a, a, ViewMut::new(&mut c, 4, 4)?)?;
//! assert_eq!(c[..4], [14., 20., 26., 32.]);
//! # Ok::<(), tegula_core::Error>(())
//! ```
//!
//! In all four k ascends for each element of C, and a product is rounded before it is added, and the sum again. (A fused multiply-add,
//! which the kernels and the CPU product use, would be a call of a library function wherever a program is built for processors
//! without the instruction.) So all four give the same bits, but for those inside a NaN, and differ in nothing but the order in which they
//! go to memory: [`walk`] tells that order, [`traffic`] what it costs in caches, [`time`] how long it takes. Nothing here is made to be
//! fast: one thread, and each index is compared with its bound. What is fast is `tegula::Gemm`.

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
    /// One loop a letter: i, j, k.
    Ijk,
    /// k outermost: k, i, j.
    Kij,
    /// Nest 1 with every loop split by T: i i0 j j0 k k0.
    Split,
    /// Nest 3 reordered: i j k over tiles, i0 j0 k0 inside them.
    Tiled,
}

impl Nest {
    /// All four, in the order in which they are explained.
    pub const ALL: [Nest; 4] = [Nest::Ijk, Nest::Kij, Nest::Split, Nest::Tiled];

    /// `ijk`, `kij`, `split`, `tiled`.
    pub const fn name(self) -> &'static str {
        match self {
            Nest::Ijk => "ijk",
            Nest::Kij => "kij",
            Nest::Split => "split",
            Nest::Tiled => "tiled",
        }
    }

    /// Whether it has tiles; the others take any tile size and ignore it.
    pub const fn has_tiles(self) -> bool {
        matches!(self, Nest::Split | Nest::Tiled)
    }

    /// The function that runs, as it is written: from `pub fn` to its closing brace.
    pub fn source(self) -> &'static str {
        let file = match self {
            Nest::Ijk => include_str!("ijk.rs"),
            Nest::Kij => include_str!("kij.rs"),
            Nest::Split => include_str!("split.rs"),
            Nest::Tiled => include_str!("tiled.rs"),
        };
        // Each of these files ends with its one function.
        file.find("pub fn").map_or(file, |start| file[start..].trim_end())
    }

    /// C += A·B of m×depth by depth×n numbers, which the slices are as long as.
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

/// What a nest can multiply and add.
pub trait Number: Copy + Mul<Output = Self> + AddAssign {}

impl<T: Copy + Mul<Output = T> + AddAssign> Number for T {}

/// An element of matrices that nests multiply: f32, f64, or i32, which wraps.
pub trait Entry: Scalar + bytemuck::Pod {
    /// The same bits with the operators of Rust.
    type Number: Number + bytemuck::Pod;
}

impl Entry for f32 {
    type Number = f32;
}

impl Entry for f64 {
    type Number = f64;
}

impl Entry for i32 {
    type Number = Wrapping<i32>;
}

/// C = A·B by one of the nests, of m×k by k×n; what C held is not read. Edges need not be multiples of the tile size.
///
/// # Errors
/// [`Error::Shape`] if the shapes make no product, of batches of more than one, or if the tile size is 0; [`Error::Layout`] of matrices
/// that do not lie row-major without gaps on the host.
pub fn multiply<T: Entry>(nest: Nest, tile: usize, a: View<T>, b: View<T>, mut c: ViewMut<T>) -> Result<()> {
    let extents = extents(tile, a.shape(), b.shape(), c.shape())?;
    let gaps = || Error::Layout("loop nests take matrices that lie row-major without gaps; copy what does not".into());
    let (a, b) = (a.as_slice().ok_or_else(gaps)?, b.as_slice().ok_or_else(gaps)?);
    let c = c.as_mut_slice().ok_or_else(gaps)?;
    c.fill(T::ZERO);
    // Where nothing is to add, an extent may be larger than any loop should count to.
    if !extents.contains(&0) {
        let numbers = bytemuck::cast_slice::<T, T::Number>;
        nest.run(tile, extents, numbers(a), numbers(b), bytemuck::cast_slice_mut(c));
    }
    Ok(())
}

/// m, n and k of a product that the nests can make.
fn extents(tile: usize, a: Shape, b: Shape, c: Shape) -> Result<[usize; 3]> {
    let [m, n, depth] = [a.rows, b.cols, a.cols];
    if b.rows != depth || (c.rows, c.cols) != (m, n) || [a, b, c].iter().any(|shape| shape.batches != 1) {
        return Err(Error::Shape(format!(
            "A is {a}, B is {b}, C is {c}; a loop nest multiplies one m×k by one k×n matrix"
        )));
    }
    whole(tile)?;
    Ok([m, n, depth])
}

/// Refuses a tile of nothing, which no number of steps would get past.
fn whole(tile: usize) -> Result<()> {
    if tile == 0 { Err(Error::Shape("a tile of 0 covers nothing; take 1 or more".into())) } else { Ok(()) }
}

#[cfg(test)]
mod tests;
