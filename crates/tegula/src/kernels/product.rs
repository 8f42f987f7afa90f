//! What every product kernel has: the parameters A, B, C, alpha and beta, and the store at the end.

use super::plain::{Edges, Plain};
use crate::ir::prelude::*;

/// The parameters of C = alpha·A·B + beta·C, for one matrix of the batch.
pub(super) struct Product<'k, T: Element> {
    pub k: &'k Builder,
    pub a: Global<'k, T>,
    pub b: Global<'k, T>,
    c: Target<'k, T>,
    /// Whether A and B are passed transposed.
    turned: [bool; 2],
    edges: Edges,
}

/// What a kernel writes.
#[derive(Clone, Copy)]
enum Target<'k, T: Element> {
    /// C, with alpha and beta.
    Whole(Global<'k, T::Out>, [Val<'k, T::Acc>; 2]),
    /// Parts of sums.
    Part(Global<'k, T::Acc>),
}

/// What a kernel says of its parameters.
pub(super) struct Parameters<'a> {
    /// The kernel's name, to be told in its text.
    pub name: &'a str,
    /// What is known of the strides of A, B and C, as the kernel takes them.
    pub orders: [Order2d; 3],
    /// Whether A and B are passed transposed.
    pub turned: [bool; 2],
    /// Elements of A, B and C that one access may take.
    pub widths: [u32; 3],
    /// Whether the kernel makes parts of sums, without alpha and beta.
    pub split: bool,
}

/// A piece of a row of C, of as many elements as one access takes: where, whether inside, and the first of the sums that go there.
pub(super) type Piece<'k> = ((Val<'k, u32>, Val<'k, u32>), Pred<'k>, u32);

impl<'k, T: Element> Product<'k, T> {
    pub fn declare(k: &'k Builder, variant: &Plain) -> Self {
        let [a, b, c] = variant.orders;
        k.note(format!("C = alpha A B + beta C, {} elements, {variant}", variant.ty));
        Product {
            k,
            a: k.matrix("a", Access::Read, a, 1),
            b: k.matrix("b", Access::Read, b, 1),
            c: Target::Whole(k.matrix("c", Access::ReadWrite, c, 1), [k.scalar("alpha"), k.scalar("beta")]),
            turned: [false; 2],
            edges: variant.edges,
        }
    }

    /// The parameters of a kernel that may take transposed matrices, wide accesses, or make parts of sums.
    pub fn with(k: &'k Builder, parameters: &Parameters<'_>) -> Self {
        let Parameters { name, orders: [a, b, c], turned, widths: [a_width, b_width, c_width], split } = *parameters;
        let what = if split { "C = a part of A B" } else { "C = alpha A B + beta C" };
        k.note(format!("{what}, {} elements, {name}", T::TYPE));
        Product {
            k,
            a: k.matrix("a", Access::Read, a, a_width),
            b: k.matrix("b", Access::Read, b, b_width),
            c: match split {
                true => Target::Part(k.matrix("c", Access::Write, c, c_width)),
                false => {
                    Target::Whole(k.matrix("c", Access::ReadWrite, c, c_width), [k.scalar("alpha"), k.scalar("beta")])
                }
            },
            turned,
            edges: Edges::Guarded,
        }
    }

    /// m, n and k.
    pub fn extents(&self) -> (Val<'k, u32>, Val<'k, u32>, Val<'k, u32>) {
        let [a_turned, b_turned] = self.turned;
        let (m, depth) = if a_turned { (self.a.cols(), self.a.rows()) } else { (self.a.rows(), self.a.cols()) };
        (m, if b_turned { self.b.rows() } else { self.b.cols() }, depth)
    }

    /// Matrices of C: those of the batch, or the parts of all of them.
    pub fn batches(&self) -> Val<'k, u32> {
        match self.c {
            Target::Whole(c, _) => c.batches(),
            Target::Part(c) => c.batches(),
        }
    }

    /// How many tiles cover an extent, or fit in it where the edges are left out.
    pub fn tiles(&self, extent: Val<'k, u32>, tile: u32) -> Val<'k, u32> {
        if self.edges == Edges::Floor { extent / tile } else { extent.div_ceil(tile) }
    }

    /// The condition, or true where the kernel guards nothing.
    pub fn guard(&self, inside: Pred<'k>) -> Pred<'k> {
        if self.edges == Edges::Guarded { inside } else { self.k.constant(true) }
    }

    /// The same parameters for one matrix of the batch.
    pub fn batch(&self, batch: Val<'k, u32>) -> Self {
        self.batch_and_target(batch, batch)
    }

    fn batch_and_target(&self, batch: Val<'k, u32>, number: Val<'k, u32>) -> Self {
        let c = match self.c {
            Target::Whole(c, factors) => Target::Whole(c.batch(number), factors),
            Target::Part(c) => Target::Part(c.batch(number)),
        };
        Product { a: self.a.batch(batch), b: self.b.batch(batch), c, ..*self }
    }

    /// The same parameters for one matrix of C. Where sums are split, C has a matrix for each part of each product of the batch. With them, the
    /// first of the `steps` along k that make this part of the sum, and how many there are.
    pub fn share(&self, number: Val<'k, u32>, steps: Val<'k, u32>) -> (Self, [Val<'k, u32>; 2]) {
        let Target::Part(c) = self.c else { return (self.batch(number), [self.k.constant(0), steps]) };
        let parts = c.batches() / self.a.batches();
        let (batch, part) = (number / parts, number % parts);
        let (each, more) = (steps / parts, steps % parts);
        let first = part * each + part.min(more);
        (self.batch_and_target(batch, number), [first, each + part.lt(more).select(1u32, 0u32)])
    }

    /// C(row, col) = alpha·sum + beta·C(row, col). Where beta is 0, C is not read: it may hold anything.
    pub fn store(&self, row: Val<'k, u32>, col: Val<'k, u32>, sum: Val<'k, T::Acc>) {
        let (c, [alpha, beta]) = match self.c {
            Target::Part(c) => return c.store((row, col), sum),
            Target::Whole(c, factors) => (c, factors),
        };
        let scaled = alpha * sum;
        self.k.if_else(
            beta.eq(T::Acc::ZERO),
            || c.store((row, col), scaled.to::<T::Out>()),
            || {
                let before = c.load((row, col)).to::<T::Acc>();
                c.store((row, col), beta.mul_add(before, scaled).to::<T::Out>());
            },
        );
    }

    /// As [`Product::store`], for many elements.
    pub fn store_pieces(&self, pieces: &[Piece<'k>], sums: Array<'k, T::Acc>, width: u32) {
        match width {
            4 => self.store_wide::<4>(pieces, sums),
            2 => self.store_wide::<2>(pieces, sums),
            _ => self.store_wide::<1>(pieces, sums),
        }
    }

    fn store_wide<const WIDTH: usize>(&self, pieces: &[Piece<'k>], sums: Array<'k, T::Acc>) {
        let values = |first: u32| -> [_; WIDTH] { std::array::from_fn(|i| sums.at(first + i as u32).get()) };
        let (c, [alpha, beta]) = match self.c {
            Target::Part(c) => {
                return pieces.iter().for_each(|&(at, inside, first)| c.store_vec_if(at, values(first), inside));
            }
            Target::Whole(c, factors) => (c, factors),
        };
        self.k.if_else(
            beta.eq(T::Acc::ZERO),
            || {
                for &(at, inside, first) in pieces {
                    c.store_vec_if(at, values(first).map(|sum| (alpha * sum).to::<T::Out>()), inside);
                }
            },
            || {
                for &(at, inside, first) in pieces {
                    let mut before = c.load_vec_if::<WIDTH>(at, inside, T::Out::ZERO).into_iter();
                    let values = values(first).map(|sum| match before.next() {
                        Some(before) => beta.mul_add(before.to::<T::Acc>(), alpha * sum).to::<T::Out>(),
                        None => sum.to::<T::Out>(),
                    });
                    c.store_vec_if(at, values, inside);
                }
            },
        );
    }
}
