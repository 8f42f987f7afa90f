//! The memory access order of a nest, from running the nest on elements that know their index.

use std::cell::RefCell;
use std::ops::{AddAssign, Mul};

use tegula_core::error::Result;
use tegula_core::host;
use tegula_core::matrix::Shape;

use super::{Nest, check_tile};

/// A matrix of the product.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the variants are the matrices of the same name")]
pub enum Operand {
    A,
    B,
    C,
}

/// An access of a nest to one element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Access {
    /// The matrix.
    pub operand: Operand,
    /// The row-major index: row · columns + column.
    pub index: usize,
    /// Whether the access is a write.
    pub write: bool,
}

/// Calls `visit` for every access of C += A·B, in order; `extents` are m, n and k.
///
/// Accesses are those of compiled code with one register for each matrix. An element of A, B or C
/// that the next product also needs is not read again; an element of C is written when the next
/// product needs another. Vector loads touch the same cache lines in the same order.
///
/// # Errors
/// [`Error::Shape`](tegula_core::Error::Shape) for a tile of 0 or extents that overflow,
/// [`Error::OutOfMemory`](tegula_core::Error::OutOfMemory).
pub fn walk(nest: Nest, tile: usize, extents: [usize; 3], visit: impl FnMut(Access)) -> Result<()> {
    check_tile(tile)?;
    let [m, n, depth] = extents;
    let registers = RefCell::new(Registers { visit, loaded: [None; 3] });
    let matrix = |rows, cols| -> Result<Vec<Traced<'_, _>>> {
        let len = Shape::new(rows, cols).len()?;
        let mut elements = host::try_vec(&[len], || format!("the trace of a {rows}×{cols} matrix"))?;
        elements.extend((0..len).map(|index| Traced { index, index_b: 0, registers: &registers }));
        Ok(elements)
    };
    let (a, b, mut c) = (matrix(m, depth)?, matrix(depth, n)?, matrix(m, n)?);
    if !extents.contains(&0) {
        nest.run(tile, extents, &a, &b, &mut c);
    }
    registers.borrow_mut().write_back();
    Ok(())
}

/// The elements of A, B and C that the last product used.
struct Registers<S> {
    visit: S,
    loaded: [Option<usize>; 3],
}

impl<S: FnMut(Access)> Registers<S> {
    fn multiply_add(&mut self, a: usize, b: usize, c: usize) {
        if self.loaded[Operand::C as usize] != Some(c) {
            self.write_back();
        }
        for (operand, index) in [(Operand::C, c), (Operand::A, a), (Operand::B, b)] {
            let loaded = &mut self.loaded[operand as usize];
            if *loaded != Some(index) {
                *loaded = Some(index);
                (self.visit)(Access { operand, index, write: false });
            }
        }
    }

    /// Writes the element of C.
    fn write_back(&mut self) {
        if let Some(index) = self.loaded[Operand::C as usize].take() {
            (self.visit)(Access { operand: Operand::C, index, write: true });
        }
    }
}

/// An element with its index, or a product with the indices of both operands.
struct Traced<'r, S> {
    index: usize,
    /// The index of the second operand.
    index_b: usize,
    registers: &'r RefCell<Registers<S>>,
}

impl<S> Copy for Traced<'_, S> {}

impl<S> Clone for Traced<'_, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S> Mul for Traced<'_, S> {
    type Output = Self;
    fn mul(self, b: Self) -> Self {
        Traced { index_b: b.index, ..self }
    }
}

/// Adds a product to an element of C, whose index is unchanged.
impl<S: FnMut(Access)> AddAssign for Traced<'_, S> {
    fn add_assign(&mut self, product: Self) {
        self.registers.borrow_mut().multiply_add(product.index, product.index_b, self.index);
    }
}
