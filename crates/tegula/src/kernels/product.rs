//! What every product kernel has: the parameters A, B, C, alpha and beta, and the store at the end.

use super::{Edges, Variant};
use crate::ir::prelude::*;

/// The parameters of C = alpha·A·B + beta·C, for one matrix of the batch.
pub(super) struct Product<'k, T: Element> {
    pub k: &'k Builder,
    pub a: Global<'k, T>,
    pub b: Global<'k, T>,
    pub c: Global<'k, T::Out>,
    alpha: Val<'k, T::Acc>,
    beta: Val<'k, T::Acc>,
    edges: Edges,
}

impl<'k, T: Element> Product<'k, T> {
    pub fn declare(k: &'k Builder, variant: &Variant) -> Self {
        Product { edges: variant.edges, ..Product::new(k, &variant.to_string(), variant.orders, [1; 3]) }
    }

    /// Of A, B and C what is known of their strides, and of how many elements their rows and bases are multiples.
    pub fn new(k: &'k Builder, shape: &str, [a, b, c]: [Order2d; 3], aligned: [u32; 3]) -> Self {
        k.note(format!("C = alpha A B + beta C, {} elements, {shape}", T::TYPE));
        Product {
            k,
            a: k.matrix("a", Access::Read, a, aligned[0]),
            b: k.matrix("b", Access::Read, b, aligned[1]),
            c: k.matrix("c", Access::ReadWrite, c, aligned[2]),
            alpha: k.scalar("alpha"),
            beta: k.scalar("beta"),
            edges: Edges::Guarded,
        }
    }

    /// m, n and k.
    pub fn extents(&self) -> (Val<'k, u32>, Val<'k, u32>, Val<'k, u32>) {
        (self.a.rows(), self.b.cols(), self.a.cols())
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

    /// C(row, col) = alpha·sum + beta·C(row, col). Where beta is 0, C is not read: it may hold anything.
    pub fn store(&self, row: Val<'k, u32>, col: Val<'k, u32>, sum: Val<'k, T::Acc>) {
        let scaled = self.alpha * sum;
        self.k.if_else(
            self.beta.eq(T::Acc::ZERO),
            || self.c.store((row, col), scaled.to::<T::Out>()),
            || {
                let before = self.c.load((row, col)).to::<T::Acc>();
                self.c.store((row, col), self.beta.mul_add(before, scaled).to::<T::Out>());
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
            let [x, y] = sums.map(|sum| sum.to::<T::Out>());
            if aligned {
                self.c.store_vec_first((row, col), [x, y], valid);
            } else {
                self.c.store_if((row, col), x, valid.gt(0));
                self.c.store_if((row, col + 1), y, valid.gt(1));
            }
        };
        self.k.if_else(
            self.beta.eq(T::Acc::ZERO),
            || each(&|row, col, sums| put(row, col, sums.map(|sum| self.alpha * sum), valid(row, col))),
            || {
                each(&|row, col, sums| {
                    let valid = valid(row, col);
                    let before = if aligned {
                        self.c.load_vec_or((row, col), valid, T::Out::ZERO)
                    } else {
                        [(col, 0), (col + 1, 1)].map(|(col, i)| self.c.load_or((row, col), valid.gt(i), T::Out::ZERO))
                    };
                    let [x, y] = [0, 1].map(|i| self.beta.mul_add(before[i].to::<T::Acc>(), self.alpha * sums[i]));
                    put(row, col, [x, y], valid);
                });
            },
        );
    }
}
