//! i32 on matrix units, exactly mod 2³²: each number is four bytes, its limbs, and bytes are what the units multiply.
//!
//! With a = Σ aᵢ·2⁸ⁱ and b likewise, a·b mod 2³² is the sum of the aᵢ·bⱼ·2⁸⁽ⁱ⁺ʲ⁾ with i + j ≤ 3: ten products. Those with the same i + j
//! have their own sum, which wraps mod 2³² as the result does; the four sums are shifted and added at the end.
//!
//! Both factors are packed first ([`pack`](super::pack)): of 32 numbers along k come the lowest bytes, then the next, so that a limb of them is
//! what an instruction takes along k. Tiles are staged as those of [`mma`](super::mma); for each, limbs of A take turns, and each is multiplied
//! by those of B that it has a product with. The highest of B's is done first: the next step's is loaded in its place.

use tegula_core::error::{Error, Result};
use tegula_ir::prelude::*;

use super::blocked::{Blocked, Blocking};
use super::mma::{Fragment, ROWS, Side, body, fragments};

/// Limbs of a number.
pub(super) const LIMBS: u32 = 4;
/// How far along k an instruction goes, and a step.
pub(super) const DEPTH: u32 = 32;

/// Builds the kernel.
pub(super) fn build(variant: &Blocked) -> Result<Kernel> {
    let Blocking { block: [bm, bn, bk], warp: [wm, wn], stages, slices, .. } = variant.blocking;
    let threads = variant.blocking.threads();
    let binary = [bm, bn, wm, wn, threads].iter().all(|size| size.is_power_of_two());
    let sound = binary && bk == DEPTH && stages >= 3 && slices == 1 && wm >= ROWS && wn >= ROWS;
    if !sound || bm.min(bn) * DEPTH < threads * 4 {
        return Err(Error::KernelOption(format!("the tiles of {variant} are not shared out evenly")));
    }
    if !(0..2).all(|which| variant.loads(which)) {
        return Err(Error::KernelOption(format!("{variant} takes packed factors")));
    }
    Ok(kernel(&variant.to_string(), Block::d1(threads), |k| {
        body::<i32>(k, variant, |a, b, share| multiply(k, stages, a, b, share));
    }))
}

/// The warp's sums, 16 rows by 8 columns after each other, all of 16 rows first. `first` and `steps` say which steps along k.
fn multiply<'k>(
    k: &'k Builder,
    stages: u32,
    a: &Side<'k, i32>,
    b: &Side<'k, i32>,
    [first, steps]: [Val<'k, u32>; 2],
) -> Array<'k, i32> {
    let (high, wide) = (a.span / ROWS, b.span / ROWS);
    let count = high * wide * 8;
    // Of each shift, the lowest first.
    let sums = k.array::<i32>(LIMBS * count);
    (0..sums.len()).for_each(|i| sums.at(i).set(0));
    let copy = |step: Val<'k, u32>, stage| {
        (0..a.copies()).for_each(|which| a.copy((first + step) * DEPTH, stage, which));
        (0..b.copies()).for_each(|which| b.copy((first + step) * DEPTH, stage, which));
        k.copy_async_commit();
    };
    (0..stages - 1).map(|stage| k.constant(stage)).for_each(|stage| copy(stage, stage));
    k.copy_async_wait(stages - 2);
    k.barrier();
    // Two limbs of A in turn, all limbs of B.
    let of_a: [Vec<Fragment<'k>>; 2] = std::array::from_fn(|_| fragments(k, high));
    let of_b: [Vec<Fragment<'k>>; LIMBS as usize] = std::array::from_fn(|_| fragments(k, wide));
    let load = |side: &Side<'k, i32>, stage, limb: u32, to: &[Fragment<'k>]| {
        (0..).zip(to).for_each(|(i, to)| to.set(side.load(stage, i, limb)));
    };
    let start = k.constant(0);
    load(a, start, 0, &of_a[0]);
    (0..).zip(&of_b).for_each(|(limb, to)| load(b, start, limb, to));
    let (full, free) = (k.var(0u32), k.var(stages - 1));
    k.for_each(0, steps, |step| {
        let (now, empty) = (full.get(), free.get());
        let after = (now + 1).lt(stages).select(now + 1, 0u32);
        for limb in 0..LIMBS {
            let next = &of_a[(limb as usize + 1) % 2];
            if limb + 1 < LIMBS {
                load(a, now, limb + 1, next)
            } else {
                load(a, after, 0, next)
            }
            let highest = LIMBS - 1 - limb;
            for other in (0..=highest).rev() {
                for (i, j) in (0..high).flat_map(|i| (0..2 * wide).map(move |j| (i, j))) {
                    // Back and forth: of two products in a row one factor is the same.
                    let j = if i % 2 == 1 { 2 * wide - 1 - j } else { j };
                    let factor = of_b[other as usize][j as usize / 2].get();
                    let sums = sums.part((limb + other) * count + (i * 2 * wide + j) * 4, 4);
                    k.mma(
                        Mma::U8,
                        &of_a[limb as usize % 2][i as usize].get(),
                        &factor[(j % 2 * 2) as usize..][..2],
                        sums,
                    );
                }
            }
            if limb == 0 {
                // The next tile has come, and everyone has loaded all of the one before this.
                k.copy_async_wait(stages - 3);
                k.barrier();
                copy(step + (stages - 1), empty);
            }
            load(b, after, highest, &of_b[highest as usize]);
        }
        full.set(after);
        free.set(now);
    });
    for i in 0..count {
        let sum = |shift: u32| sums.at(shift * count + i).get();
        let walk = (0..LIMBS - 1).rev().fold(sum(LIMBS - 1), |total, shift| (total << 8) + sum(shift));
        sums.at(i).set(walk);
    }
    sums.part(0, count)
}
