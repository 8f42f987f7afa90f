//! The recipes there are for a product, and the one that should be fastest.

use tegula_core::element::{Accuracy, Type};
use tegula_ir::{Mma, Order2d};

use super::cost::{Machine, Measured, time};
use super::problem::{Lie, Problem};
use super::recipe::{RecipeOf, Split};
use crate::blocked::{Blocked, Blocking, Core};

/// In how many parts sums are split at most.
const MOST_PARTS: usize = 132;
/// Steps along k that a part has at least.
const LEAST_STEPS: usize = 4;
/// Steps along k of a tile that is worth sharing.
const LEAST_SHARED: usize = 32;

/// Register tiles of 4-byte types: block, warp, thread, stages, slices, blocks; and what was measured: full, alone, copies, fixed
/// (`benchmarks/cost/refit.py`). As many blocks as fit, by their registers or by shared memory, whichever is less.
const REGISTER: [Measured; 14] = [
    of([128, 128, 8], [64, 64], [8, 16], [4, 1, 2], [0.857, 0.822, 0.92, 7.17]),
    of([128, 256, 8], [64, 64], [8, 16], [4, 1, 1], [0.883, 0.883, 0.72, 9.95]),
    of([128, 64, 16], [64, 32], [8, 8], [3, 1, 3], [0.890, 0.808, 1.03, 3.32]),
    of([128, 64, 8], [64, 32], [8, 8], [4, 1, 3], [0.837, 0.754, 0.87, 3.07]),
    of([32, 128, 16], [32, 64], [8, 8], [3, 2, 3], [0.825, 0.713, 0.82, 0.90]),
    of([32, 32, 32], [32, 32], [8, 4], [3, 4, 4], [0.728, 0.543, 1.00, 0.86]),
    of([32, 64, 32], [32, 32], [8, 4], [3, 4, 2], [0.737, 0.661, 0.60, 0.85]),
    of([64, 128, 16], [32, 64], [8, 8], [3, 1, 3], [0.902, 0.830, 1.22, 1.60]),
    of([64, 128, 16], [32, 64], [8, 8], [3, 2, 1], [0.808, 0.808, 0.95, 2.45]),
    of([64, 128, 8], [32, 64], [8, 8], [4, 1, 3], [0.848, 0.780, 0.85, 1.80]),
    of([64, 256, 8], [64, 64], [8, 16], [4, 1, 2], [0.869, 0.834, 1.41, 6.67]),
    of([64, 64, 16], [32, 32], [8, 4], [4, 1, 4], [0.809, 0.662, 0.82, 0.84]),
    of([64, 64, 32], [32, 64], [8, 8], [3, 4, 1], [0.794, 0.794, 0.76, 1.48]),
    of([64, 64, 8], [32, 32], [8, 4], [4, 1, 4], [0.792, 0.626, 0.55, 0.71]),
];

/// Tiles of f64 on matrix units: as above, and the depth of the instruction.
const DMMA: [(Mma, Measured); 10] = [
    (Mma::F64K16, of([128, 128, 32], [32, 64], [16, 16], [3, 1, 1], [0.951, 0.951, 1.79, 2.92])),
    (Mma::F64K8, of([128, 128, 16], [32, 64], [16, 16], [4, 1, 1], [0.918, 0.918, 0.40, 2.36])),
    (Mma::F64K16, of([128, 64, 32], [32, 32], [16, 16], [3, 1, 1], [0.898, 0.898, 1.33, 1.97])),
    (Mma::F64K8, of([64, 128, 16], [32, 64], [16, 16], [4, 1, 2], [0.924, 0.730, 0.97, 0.98])),
    (Mma::F64K16, of([64, 64, 32], [32, 16], [16, 16], [3, 1, 1], [0.933, 0.933, 0.87, 1.21])),
    (Mma::F64K8, of([64, 64, 32], [32, 32], [16, 16], [3, 1, 2], [0.914, 0.742, 0.82, 1.27])),
    (Mma::F64K8, of([64, 64, 16], [32, 32], [16, 16], [4, 1, 3], [0.928, 0.715, 0.56, 1.12])),
    (Mma::F64K16, of([32, 64, 32], [16, 32], [16, 16], [4, 1, 2], [0.770, 0.571, 0.91, 1.28])),
    (Mma::F64K16, of([32, 32, 32], [16, 16], [16, 16], [4, 1, 3], [0.646, 0.531, 1.06, 0.93])),
    (Mma::F64K16, of([16, 32, 32], [16, 16], [16, 16], [8, 1, 2], [0.502, 0.353, 2.19, 1.28])),
];

/// Tiles of 16-bit types on matrix units; of bytes, the step is twice as deep, of tf32 half. Measured at 8192³ only: the numbers of the smaller tiles
/// are guesses, and so is the last of each.
const MMA: [Measured; 7] = [
    of([128, 256, 64], [64, 64], [16, 8], [3, 1, 1], [0.71, 0.71, 1.0, 5.0]),
    of([128, 256, 32], [64, 64], [16, 8], [4, 1, 1], [0.67, 0.67, 1.0, 4.0]),
    of([128, 128, 32], [64, 32], [16, 8], [4, 1, 1], [0.55, 0.55, 1.0, 3.0]),
    of([128, 128, 32], [64, 64], [16, 8], [3, 1, 2], [0.61, 0.47, 1.0, 3.0]),
    of([128, 64, 32], [64, 32], [16, 8], [4, 1, 2], [0.53, 0.39, 1.0, 2.0]),
    of([64, 128, 32], [32, 64], [16, 8], [4, 1, 2], [0.53, 0.39, 1.0, 2.0]),
    of([64, 64, 64], [32, 32], [16, 8], [4, 1, 3], [0.52, 0.33, 1.0, 1.5]),
];

/// Tiles of i32 on matrix units, by limbs.
const LIMBS: [Measured; 2] = [
    of([128, 64, 32], [32, 32], [16, 8], [4, 1, 1], [0.80, 0.80, 1.0, 4.0]),
    of([64, 128, 32], [32, 32], [16, 8], [4, 1, 1], [0.81, 0.81, 1.0, 4.0]),
];

const fn of(block: [u32; 3], warp: [u32; 2], thread: [u32; 2], counts: [u32; 3], measured: [f64; 4]) -> Measured {
    let [stages, slices, blocks] = counts;
    let [full, alone, copies, fixed] = measured;
    Measured {
        core: Core::Register,
        blocking: Blocking { block, warp, thread, stages, slices, blocks },
        full,
        alone,
        copies,
        fixed,
    }
}

/// The recipes with blocks for a product, with the microseconds that each should take.
pub fn candidates(problem: &Problem, multiprocessors: u32) -> Vec<(RecipeOf<Blocked>, f64)> {
    let with = |core, measured: &[Measured]| -> Vec<Measured> {
        measured.iter().map(|&measured| Measured { core, ..measured }).collect()
    };
    let tiles = match (problem.ty, problem.accuracy) {
        (Type::F32, Accuracy::Full) => REGISTER.to_vec(),
        (Type::F32, Accuracy::Tf32) => [REGISTER.to_vec(), with(Core::Mma(Mma::TF32), &MMA)].concat(),
        (Type::I32, _) => [REGISTER.to_vec(), with(Core::Limbs, &LIMBS)].concat(),
        (Type::F64, _) => DMMA.map(|(mma, measured)| Measured { core: Core::Dmma(mma), ..measured }).to_vec(),
        (Type::F16, _) => with(Core::Mma(Mma::F16), &MMA),
        (Type::BF16, _) => with(Core::Mma(Mma::BF16), &MMA),
        (Type::I8, _) => with(Core::Mma(Mma::I8), &MMA),
        (Type::U8 | Type::U32 | Type::I64 | Type::U64 | Type::Pred, _) => return Vec::new(),
    };
    let machine = Machine { multiprocessors };
    let (given, problem) = (problem.lies, &taken(problem));
    let mut all = Vec::new();
    for tile in &tiles {
        let kernel = Blocked::new(tile.core, problem.ty, tile.blocking);
        for packed in packings(&kernel, problem.lies) {
            let [a, b, _] = problem.lies;
            let (factors, _) = packed_factors(&kernel, [a, b], packed);
            let Some(tile) = fitted(*tile, factors) else { continue };
            let kernel = Blocked { blocking: tile.blocking, ..kernel };
            for split in splits(problem, &tile, factors, multiprocessors) {
                let recipe = RecipeOf { split, packed, ..RecipeOf::new(kernel) }.fit(given);
                all.push((recipe, time(problem, &recipe, &tile, machine)));
            }
        }
    }
    all
}

/// How the factors lie where the kernel meets them, and which of them are packed: those that are to be, and those that have to be.
pub(crate) fn packed_factors(kernel: &Blocked, lies: [Lie; 2], packed: [bool; 2]) -> ([Lie; 2], [bool; 2]) {
    let packed = [0, 1].map(|i| packed[i] || !kernel.takes(i, lies[i].order, lies[i].vectors));
    let lie = |i: usize| if packed[i] { Lie::new(kernel.wanted()[i], true) } else { lies[i] };
    ([lie(0), lie(1)], packed)
}

/// What may be packed: nothing that does not have to be, what costs the kernel that it cannot be taken 16 bytes at once, or also what does not lie
/// best, of one factor or of both.
fn packings(kernel: &Blocked, [a, b, _]: [Lie; 3]) -> Vec<[bool; 2]> {
    let (lies, wanted) = ([a, b], kernel.wanted());
    if packed_factors(kernel, lies, [false; 2]).1 != [false; 2] {
        // Those that do not have the choice take everything else as it lies.
        return vec![[false; 2]];
    }
    let single = [0, 1].map(|which| kernel.single(which, lies[which].order, lies[which].vectors));
    let [a, b] = [0, 1].map(|which| !lies[which].vectors || lies[which].order != wanted[which]);
    let mut all = vec![[false; 2]];
    for packed in [single, [single[0], b], [a, single[1]], [a, b]] {
        if !all.contains(&packed) {
            all.push(packed);
        }
    }
    all
}

/// The product as a kernel takes it that stores rows.
fn taken(problem: &Problem) -> Problem {
    let (Problem { m, n, .. }, [a, b, c]) = (*problem, problem.lies);
    if c.order == Order2d::ColMajor {
        Problem { m: n, n: m, lies: [b.transposed(), a.transposed(), c.transposed()], ..*problem }
    } else {
        *problem
    }
}

/// Whether what lies side by side in A and in B follows along k, as far as is known.
fn along_k([a, b]: [Lie; 2]) -> bool {
    a.order != Order2d::ColMajor && b.order == Order2d::ColMajor
}

/// A tile as the factors want it. `None` where the assembler would run out of registers.
fn fitted(tile: Measured, factors: [Lie; 2]) -> Option<Measured> {
    let vectors = factors.iter().all(|lie| lie.vectors);
    let Measured { core, mut blocking, .. } = tile;
    match core {
        Core::Register => {
            // These take more registers where they copy single elements: most of all, where both factors lie along rows.
            if !vectors && matches!(blocking.block, [64, 128, 16] | [32, 128, 16]) {
                blocking.blocks = blocking.blocks.min(2);
            }
            (vectors || blocking.slices == 1 || blocking.thread != [8, 16]).then_some(Measured { blocking, ..tile })
        }
        Core::Limbs => Some(tile),
        Core::Dmma(mma) => dmma(mma, tile, factors),
        Core::Mma(mma) => {
            // As many bytes deep, whatever the type. What is loaded as it lies along k takes more registers.
            let deep = blocking.block[2] > 32 && blocking.warp == [64, 64];
            blocking.block[2] = blocking.block[2] * mma.packed() / 2;
            (!deep || !along_k(factors)).then_some(Measured { blocking, ..tile })
        }
    }
}

/// A tile of f64: the left operand's part of a warp is the longer one. Of what takes most registers, the large tile has room for one.
fn dmma(mma: Mma, mut measured: Measured, [a, b]: [Lie; 2]) -> Option<Measured> {
    // Both factors are loaded in pairs along k, for two rows or columns at once.
    let both_along_k = along_k([a, b]);
    let demands = [mma == Mma::F64K16, both_along_k, !(a.vectors && b.vectors)];
    if measured.blocking.warp == [32, 64] && demands.iter().filter(|demanded| **demanded).count() > 1 {
        return None;
    }
    if both_along_k && measured.blocking.block == [64, 64, 16] {
        measured.blocking.blocks = 2;
    }
    if a.order == Order2d::ColMajor || b.order == Order2d::ColMajor {
        let Blocking { block: [bm, bn, _], warp, .. } = &mut measured.blocking;
        (*bm, *bn) = (*bn, *bm);
        warp.reverse();
    }
    Some(measured)
}

/// How the work may be split: sums in so many parts that blocks fill the multiprocessors, twice at most; or tiles shared by as many
/// blocks as run at once, where there is more than a wave of them and the last is not full.
fn splits(
    problem: &Problem,
    measured: &Measured,
    factors: [Lie; 2],
    multiprocessors: u32,
) -> impl Iterator<Item = Split> {
    let Blocking { block: [bm, bn, bk], warp, thread: [tm, tn], blocks, .. } = measured.blocking;
    let tiles = problem.m.div_ceil(bm as usize) * problem.n.div_ceil(bn as usize);
    let (blocks_there, room) = (tiles.saturating_mul(problem.batches), (multiprocessors * blocks) as usize);
    let steps = problem.k.div_ceil(bk as usize);
    // Parts take registers, too, and this tile has none left for them where it copies single elements.
    let room_for_parts = [bm, bn] != [64, 256] || factors.iter().any(|lie| lie.vectors);
    let most =
        (2 * room / blocks_there.max(1)).min(steps / LEAST_STEPS).min(if room_for_parts { MOST_PARTS } else { 1 });
    let parts = (2..=most as u32).filter(|parts| *parts <= 8 || parts.is_multiple_of(parts.ilog2())).map(Split::Parts);
    let uneven = blocks_there > room && !blocks_there.is_multiple_of(room) && blocks_there <= u32::MAX as usize / 2;
    // Sharing takes registers: the largest tiles have none left.
    let vectors = factors.iter().chain(&problem.lies[2..]).all(|lie| lie.vectors);
    let room_to_share = match measured.core {
        Core::Register => tm * tn <= 64,
        Core::Dmma(_) | Core::Limbs => vectors,
        Core::Mma(_) => vectors && warp != [64, 64],
    };
    let workers = (uneven && room_to_share && steps >= LEAST_SHARED).then_some(Split::Workers(room as u32));
    std::iter::once(Split::Whole).chain(parts).chain(workers)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes of shared memory of a multiprocessor of sm_90, and those of each block that the driver keeps for itself.
    const ROOM: u64 = 233_472;
    const KEPT: u64 = 1024;

    #[test]
    fn as_many_blocks_fit_as_are_said_to() {
        let tiles = REGISTER.iter().map(|tile| (Type::F32, *tile));
        let tiles =
            tiles.chain(DMMA.iter().map(|&(mma, tile)| (Type::F64, Measured { core: Core::Dmma(mma), ..tile })));
        let mma = Core::Mma(Mma::F16);
        for (ty, tile) in tiles.chain(MMA.iter().map(|&tile| (Type::F16, Measured { core: mma, ..tile }))) {
            let kernel = Blocked { vectors: [true; 3], ..Blocked::new(tile.core, ty, tile.blocking) };
            let bytes = kernel.build().unwrap().shared_bytes() + KEPT;
            assert!(u64::from(tile.blocking.blocks) * bytes <= ROOM, "{kernel}: {bytes} bytes each");
        }
    }

    #[test]
    fn a_product_and_its_transpose_take_the_same_time() {
        let row = Lie::new(Order2d::RowMajor, true);
        for (ty, a_vectors) in [(Type::F32, true), (Type::F32, false), (Type::F64, true), (Type::F16, true)] {
            let a = Lie { vectors: a_vectors, ..row };
            let (m, n, k) = (3000, 200, 1500);
            let problem = Problem { ty, accuracy: Accuracy::Full, m, n, k, batches: 1, lies: [a, row, row] };
            let lies = [row.transposed(), a.transposed(), row.transposed()];
            let transposed = Problem { m: n, n: m, lies, ..problem };
            let [one, other] = [&problem, &transposed].map(|problem| {
                let all = candidates(problem, 132).into_iter();
                all.map(|(recipe, time)| (recipe.split, recipe.packed, time)).collect::<Vec<_>>()
            });
            assert_eq!(one, other, "{ty}");
        }
    }
}
