//! The order in which a nest goes to memory: the nest itself, run with numbers that know where they lie.

use std::cell::RefCell;
use std::ops::{AddAssign, Mul};

use tegula_core::error::Result;
use tegula_core::host;
use tegula_core::matrix::Shape;

use super::{Nest, whole};

/// A factor or the product.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the variants are the matrices of the same name")]
pub enum Operand {
    A,
    B,
    C,
}

/// A nest reads or writes one element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Access {
    /// Of which matrix.
    pub operand: Operand,
    /// Which one, row by row: row · columns + column.
    pub place: usize,
    /// Whether it is written.
    pub write: bool,
}

/// Every access of C += A·B, in order, for m, n and k.
///
/// What is told is the nest as a compiler with three registers for elements would leave it: an element of A, B or C that the next
/// product takes too is not read again, and one of C is written when the next takes another. Instructions that load several neighbours at
/// once touch the same lines of a cache in the same order.
///
/// # Errors
/// [`Error::Shape`](tegula_core::Error::Shape) if the tile size is 0 or the sizes are out of reach, [`Error::OutOfMemory`](tegula_core::Error::OutOfMemory).
pub fn walk(nest: Nest, tile: usize, extents: [usize; 3], see: impl FnMut(Access)) -> Result<()> {
    whole(tile)?;
    let [m, n, depth] = extents;
    let registers = RefCell::new(Registers { see, held: [None; 3] });
    let matrix = |rows, cols| -> Result<Vec<Traced<'_, _>>> {
        let len = Shape::new(rows, cols).len()?;
        let mut elements = host::room(&[len], || format!("the trace of a {rows}×{cols} matrix"))?;
        elements.extend((0..len).map(|place| Traced { place, other: 0, registers: &registers }));
        Ok(elements)
    };
    let (a, b, mut c) = (matrix(m, depth)?, matrix(depth, n)?, matrix(m, n)?);
    if !extents.contains(&0) {
        nest.run(tile, extents, &a, &b, &mut c);
    }
    registers.borrow_mut().put_back();
    Ok(())
}

/// The elements of A, B and C that the last product took.
struct Registers<S> {
    see: S,
    held: [Option<usize>; 3],
}

impl<S: FnMut(Access)> Registers<S> {
    fn multiply_add(&mut self, a: usize, b: usize, c: usize) {
        if self.held[Operand::C as usize] != Some(c) {
            self.put_back();
        }
        for (operand, place) in [(Operand::C, c), (Operand::A, a), (Operand::B, b)] {
            let held = &mut self.held[operand as usize];
            if *held != Some(place) {
                *held = Some(place);
                (self.see)(Access { operand, place, write: false });
            }
        }
    }

    /// Writes the element of C.
    fn put_back(&mut self) {
        if let Some(place) = self.held[Operand::C as usize].take() {
            (self.see)(Access { operand: Operand::C, place, write: true });
        }
    }
}

/// An element that knows its place, or a product, which knows both of its factors'.
struct Traced<'r, S> {
    place: usize,
    /// Of the second factor.
    other: usize,
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
        Traced { other: b.place, ..self }
    }
}

/// Of a product, to an element of C, which stays what it is.
impl<S: FnMut(Access)> AddAssign for Traced<'_, S> {
    fn add_assign(&mut self, product: Self) {
        self.registers.borrow_mut().multiply_add(product.place, product.other, self.place);
    }
}
