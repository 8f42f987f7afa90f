//! What every product kernel has: the parameters A, B, C, alpha and beta, and the store at the end.

use super::blocked::Blocked;
use super::plain::{Edges, Plain};
use crate::ir::prelude::*;

/// The parameters of C = alpha·A·B + beta·C, for one matrix of the batch. What is stored has the type of C, or of sums where these are parts.
pub(super) struct Product<'k, T: Element, C = <T as Element>::Out> {
    pub k: &'k Builder,
    pub a: Global<'k, T>,
    pub b: Global<'k, T>,
    pub c: Global<'k, C>,
    /// Whether A and B are passed transposed.
    turned: [bool; 2],
    /// alpha and beta; a kernel that makes parts of sums has none.
    factors: Option<[Val<'k, T::Acc>; 2]>,
    edges: Edges,
}

/// A piece of a row of C, of as many elements as one access takes: where, whether inside, and the first of the sums that go there.
pub(super) type Piece<'k> = ((Val<'k, u32>, Val<'k, u32>), Pred<'k>, u32);

impl<'k, T: Element, C: Scalar> Product<'k, T, C> {
    pub fn declare(k: &'k Builder, variant: &Plain) -> Self {
        let [a, b, c] = variant.orders;
        k.note(format!("C = alpha A B + beta C, {} elements, {variant}", variant.ty));
        Product {
            k,
            a: k.matrix("a", Access::Read, a, 1),
            b: k.matrix("b", Access::Read, b, 1),
            c: k.matrix("c", Access::ReadWrite, c, 1),
            turned: [false; 2],
            factors: Some([k.scalar("alpha"), k.scalar("beta")]),
            edges: variant.edges,
        }
    }

    /// The parameters of a kernel of blocks; what lies column-major is passed transposed.
    pub fn of_blocks(k: &'k Builder, variant: &Blocked) -> Self {
        let turned = variant.turned();
        let [a, b, c] = variant.orders.map(|order| if order == Order2d::ColMajor { Order2d::RowMajor } else { order });
        let [a_width, b_width, c_width] = variant.widths();
        let what = if variant.split { "C = a part of A B" } else { "C = alpha A B + beta C" };
        k.note(format!("{what}, {} elements, {variant}", variant.ty));
        Product {
            k,
            a: k.matrix("a", Access::Read, a, a_width),
            b: k.matrix("b", Access::Read, b, b_width),
            c: k.matrix("c", if variant.split { Access::Write } else { Access::ReadWrite }, c, c_width),
            turned,
            factors: (!variant.split).then(|| [k.scalar("alpha"), k.scalar("beta")]),
            edges: Edges::Guarded,
        }
    }

    /// m, n and k.
    pub fn extents(&self) -> (Val<'k, u32>, Val<'k, u32>, Val<'k, u32>) {
        let [a_turned, b_turned] = self.turned;
        let (m, depth) = if a_turned { (self.a.cols(), self.a.rows()) } else { (self.a.rows(), self.a.cols()) };
        (m, if b_turned { self.b.rows() } else { self.b.cols() }, depth)
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
        Product { a: self.a.batch(batch), b: self.b.batch(batch), c: self.c.batch(batch), ..*self }
    }

    /// The same parameters for one matrix of C. Where sums are split, C has a matrix for each part of each product of the batch. With them, the
    /// first of the `steps` along k that make this part of the sum, and how many there are.
    pub fn share(&self, number: Val<'k, u32>, steps: Val<'k, u32>) -> (Self, [Val<'k, u32>; 2]) {
        if self.factors.is_some() {
            return (self.batch(number), [self.k.constant(0), steps]);
        }
        let parts = self.c.batches() / self.a.batches();
        let (batch, part) = (number / parts, number % parts);
        let (each, more) = (steps / parts, steps % parts);
        let first = part * each + part.min(more);
        let product = Product { a: self.a.batch(batch), b: self.b.batch(batch), c: self.c.batch(number), ..*self };
        (product, [first, each + part.lt(more).select(1u32, 0u32)])
    }

    /// C(row, col) = alpha·sum + beta·C(row, col). Where beta is 0, C is not read: it may hold anything.
    pub fn store(&self, row: Val<'k, u32>, col: Val<'k, u32>, sum: Val<'k, T::Acc>) {
        let Some([alpha, beta]) = self.factors else { return self.c.store((row, col), sum.to::<C>()) };
        let scaled = alpha * sum;
        self.k.if_else(
            beta.eq(T::Acc::ZERO),
            || self.c.store((row, col), scaled.to::<C>()),
            || {
                let before = self.c.load((row, col)).to::<T::Acc>();
                self.c.store((row, col), beta.mul_add(before, scaled).to::<C>());
            },
        );
    }

    /// As [`Product::store`], for many elements.
    pub fn store_pieces(&self, count: u32, piece: impl Fn(u32) -> Piece<'k>, sums: Array<'k, T::Acc>, width: u32) {
        match width {
            4 => self.store_wide::<4>(count, &piece, sums),
            2 => self.store_wide::<2>(count, &piece, sums),
            _ => self.store_wide::<1>(count, &piece, sums),
        }
    }

    fn store_wide<const WIDTH: usize>(&self, count: u32, piece: &impl Fn(u32) -> Piece<'k>, sums: Array<'k, T::Acc>) {
        let values = |first: u32| -> [_; WIDTH] { std::array::from_fn(|i| sums.at(first + i as u32).get()) };
        let Some([alpha, beta]) = self.factors else {
            for (at, inside, first) in (0..count).map(piece) {
                self.c.store_vec_if(at, values(first).map(|sum| sum.to::<C>()), inside);
            }
            return;
        };
        self.k.if_else(
            beta.eq(T::Acc::ZERO),
            || {
                for (at, inside, first) in (0..count).map(piece) {
                    self.c.store_vec_if(at, values(first).map(|sum| (alpha * sum).to::<C>()), inside);
                }
            },
            || {
                for (at, inside, first) in (0..count).map(piece) {
                    let mut before = self.c.load_vec_if::<WIDTH>(at, inside, C::ZERO).into_iter();
                    let values = values(first).map(|sum| match before.next() {
                        Some(before) => beta.mul_add(before.to::<T::Acc>(), alpha * sum).to::<C>(),
                        None => sum.to::<C>(),
                    });
                    self.c.store_vec_if(at, values, inside);
                }
            },
        );
    }

    /// As [`Product::store`] for pairs of neighbours along rows of C, as far as they lie inside it: `each` calls the function it is
    /// given for every pair, with the row, the first column and the two sums. With `aligned`, pairs are stored at once.
    pub fn store_runs(&self, aligned: bool, each: impl Fn(&dyn Fn(Val<'k, u32>, Val<'k, u32>, [Val<'k, T::Acc>; 2]))) {
        let valid = |row: Val<'k, u32>, col: Val<'k, u32>| {
            row.lt(self.c.rows()).select(self.c.cols() - col.min(self.c.cols()), 0)
        };
        let put = |row: Val<'k, u32>, col: Val<'k, u32>, sums: [Val<'k, T::Acc>; 2], valid: Val<'k, u32>| {
            let [x, y] = sums.map(|sum| sum.to::<C>());
            if aligned {
                self.c.store_vec_first((row, col), [x, y], valid);
            } else {
                self.c.store_if((row, col), x, valid.gt(0));
                self.c.store_if((row, col + 1), y, valid.gt(1));
            }
        };
        let Some([alpha, beta]) = self.factors else {
            return each(&|row, col, sums| put(row, col, sums, valid(row, col)));
        };
        self.k.if_else(
            beta.eq(T::Acc::ZERO),
            || each(&|row, col, sums| put(row, col, sums.map(|sum| alpha * sum), valid(row, col))),
            || {
                each(&|row, col, sums| {
                    let valid = valid(row, col);
                    let before = if aligned {
                        self.c.load_vec_or((row, col), valid, C::ZERO)
                    } else {
                        [(col, 0), (col + 1, 1)].map(|(col, i)| self.c.load_or((row, col), valid.gt(i), C::ZERO))
                    };
                    let [x, y] = [0, 1].map(|i| beta.mul_add(before[i].to::<T::Acc>(), alpha * sums[i]));
                    put(row, col, [x, y], valid);
                });
            },
        );
    }
}
