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
        let [a, b, c] = variant.orders;
        k.note(format!("C = alpha A B + beta C, {} elements, {variant}", variant.ty));
        Product {
            k,
            a: k.matrix("a", Access::Read, a, 1),
            b: k.matrix("b", Access::Read, b, 1),
            c: k.matrix("c", Access::ReadWrite, c, 1),
            alpha: k.scalar("alpha"),
            beta: k.scalar("beta"),
            edges: variant.edges,
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
}
