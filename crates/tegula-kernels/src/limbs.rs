//! i32 on Tensor Cores, exactly mod 2³², as products of 8-bit limbs.
//!
//! With a = Σ aᵢ·2⁸ⁱ and b likewise, a·b mod 2³² is the sum of the aᵢ·bⱼ·2⁸⁽ⁱ⁺ʲ⁾ with i + j ≤ 3:
//! ten products. Products with the same i + j share an accumulator, which wraps mod 2³² as the
//! result does. The four accumulators are shifted and added at the end.
//!
//! Both operands are packed first ([`pack`](super::pack)): for 32 elements along k the lowest
//! bytes, then the next, so that one limb of them is what an instruction consumes along k. Tiles
//! are staged as those of [`mma`](super::mma). Each limb of A in turn is multiplied by the limbs of
//! B that it has a product with, the highest first: the next k-step's limb is loaded in its place.

use tegula_core::error::{Error, Result};
use tegula_ir::prelude::*;

use super::blocked::{Blocked, Blocking};
use super::mma::{Fragment, ROWS, StagedOperand, body, fragments};

/// Limbs of an element.
pub(super) const LIMBS: u32 = 4;
/// Elements of an instruction and of a k-step along k.
pub(super) const DEPTH: u32 = 32;

/// Builds the kernel.
pub(super) fn build(variant: &Blocked) -> Result<Kernel> {
    let Blocking { block: [bm, bn, bk], warp: [wm, wn], stages, slices, .. } = variant.blocking;
    let threads = variant.blocking.threads();
    let powers_of_two = [bm, bn, wm, wn, threads].iter().all(|size| size.is_power_of_two());
    let is_valid = powers_of_two && bk == DEPTH && stages >= 3 && slices == 1 && wm >= ROWS && wn >= ROWS;
    if !is_valid || bm.min(bn) * DEPTH < threads * 4 {
        return Err(Error::KernelOption(format!("the tiles of {variant} do not divide evenly among its threads")));
    }
    if !(0..2).all(|operand| variant.supports_ldmatrix(operand)) {
        return Err(Error::KernelOption(format!("{variant} needs packed operands")));
    }
    Ok(kernel(&variant.to_string(), Block::d1(threads), |k| {
        body::<i32>(k, variant, |a, b, range| multiply(k, stages, a, b, range));
    }))
}

/// The main loop: the warp's accumulators in fragments of 16 rows by 8 columns, row by row. The
/// range is the first k-step and their number.
fn multiply<'k>(
    k: &'k Builder,
    stages: u32,
    a: &StagedOperand<'k, i32>,
    b: &StagedOperand<'k, i32>,
    [first, steps]: [Val<'k, u32>; 2],
) -> Array<'k, i32> {
    let (fragments_m, fragments_n) = (a.span / ROWS, b.span / ROWS);
    let count = fragments_m * fragments_n * 8;
    // Accumulators of each shift, the lowest first.
    let accumulators = k.array::<i32>(LIMBS * count);
    (0..accumulators.len()).for_each(|i| accumulators.at(i).set(0));
    let copy = |step: Val<'k, u32>, stage| {
        (0..a.copies()).for_each(|index| a.copy((first + step) * DEPTH, stage, index));
        (0..b.copies()).for_each(|index| b.copy((first + step) * DEPTH, stage, index));
        k.copy_async_commit();
    };
    (0..stages - 1).map(|stage| k.constant(stage)).for_each(|stage| copy(stage, stage));
    k.copy_async_wait(stages - 2);
    k.barrier();
    // Fragments of two limbs of A in alternation, and of all limbs of B.
    let of_a: [Vec<Fragment<'k>>; 2] = std::array::from_fn(|_| fragments(k, fragments_m));
    let of_b: [Vec<Fragment<'k>>; LIMBS as usize] = std::array::from_fn(|_| fragments(k, fragments_n));
    let load = |operand: &StagedOperand<'k, i32>, stage, limb: u32, to: &[Fragment<'k>]| {
        (0..).zip(to).for_each(|(i, to)| to.set(operand.load(stage, i, limb)));
    };
    let start = k.constant(0);
    load(a, start, 0, &of_a[0]);
    (0..).zip(&of_b).for_each(|(limb, to)| load(b, start, limb, to));
    let (full, free) = (k.var(0u32), k.var(stages - 1));
    k.for_each(0, steps, |step| {
        let (current, empty) = (full.get(), free.get());
        let next_stage = (current + 1).lt(stages).select(current + 1, 0u32);
        for limb in 0..LIMBS {
            let next = &of_a[(limb as usize + 1) % 2];
            if limb + 1 < LIMBS {
                load(a, current, limb + 1, next)
            } else {
                load(a, next_stage, 0, next)
            }
            let highest = LIMBS - 1 - limb;
            for b_limb in (0..=highest).rev() {
                for (i, j) in (0..fragments_m).flat_map(|i| (0..2 * fragments_n).map(move |j| (i, j))) {
                    // Serpentine order: consecutive products share an operand.
                    let j = if i % 2 == 1 { 2 * fragments_n - 1 - j } else { j };
                    let b_fragment = of_b[b_limb as usize][j as usize / 2].get();
                    let part = accumulators.slice((limb + b_limb) * count + (i * 2 * fragments_n + j) * 4, 4);
                    k.mma(
                        Mma::U8,
                        &of_a[limb as usize % 2][i as usize].get(),
                        &b_fragment[(j % 2 * 2) as usize..][..2],
                        part,
                    );
                }
            }
            if limb == 0 {
                // The next tile has arrived, and all threads have loaded the previous one.
                k.copy_async_wait(stages - 3);
                k.barrier();
                copy(step + (stages - 1), empty);
            }
            load(b, next_stage, highest, &of_b[highest as usize]);
        }
        full.set(next_stage);
        free.set(current);
    });
    for i in 0..count {
        let part = |shift: u32| accumulators.at(shift * count + i).get();
        let sum = (0..LIMBS - 1).rev().fold(part(LIMBS - 1), |sum, shift| (sum << 8) + part(shift));
        accumulators.at(i).set(sum);
    }
    accumulators.slice(0, count)
}
