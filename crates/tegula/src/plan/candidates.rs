//! The recipes there are for a product, and the one that should be fastest.

use super::cost::{Machine, Measured, time};
use super::recipe::{Recipe, Split};
use super::{Lie, Problem};
use crate::element::{Accuracy, Type};
use crate::ir::{Mma, Order2d};
use crate::kernels::{Blocked, Blocking, Core};

/// In how many parts sums are split at most.
const MOST_PARTS: usize = 132;
/// Steps along k that a part has at least.
const LEAST_STEPS: usize = 4;
/// Steps along k of a tile that is worth sharing.
const LEAST_SHARED: usize = 32;

/// Register tiles of 4-byte types: block, warp, thread, stages, slices, blocks; and what was measured.
const REGISTER: [Measured; 16] = [
    of([128, 128, 16], [64, 32], [8, 8], [3, 1, 1], [0.765, 0.741, 3.05]),
    of([128, 128, 8], [64, 64], [8, 16], [4, 1, 2], [0.777, 0.747, 5.96]),
    of([128, 256, 8], [64, 64], [8, 16], [4, 1, 1], [0.854, 0.840, 5.65]),
    of([128, 32, 16], [64, 32], [8, 8], [3, 2, 2], [0.487, 0.457, 1.28]),
    of([128, 64, 16], [64, 32], [8, 8], [3, 1, 2], [0.682, 0.588, 2.38]),
    of([128, 64, 16], [64, 32], [8, 8], [3, 2, 1], [0.602, 0.603, 2.56]),
    of([32, 128, 16], [32, 64], [8, 8], [3, 2, 2], [0.669, 0.597, 1.03]),
    of([32, 32, 32], [32, 32], [8, 4], [3, 4, 4], [0.440, 0.345, 0.92]),
    of([32, 64, 32], [32, 32], [8, 4], [3, 4, 2], [0.559, 0.529, 1.45]),
    of([64, 128, 16], [32, 64], [8, 8], [3, 1, 2], [0.769, 0.674, 1.34]),
    of([64, 128, 16], [32, 64], [8, 8], [3, 2, 1], [0.700, 0.704, 2.15]),
    of([64, 256, 16], [64, 64], [8, 16], [3, 2, 1], [0.770, 0.759, 4.16]),
    of([64, 256, 8], [64, 64], [8, 16], [4, 1, 2], [0.783, 0.779, 4.11]),
    of([64, 64, 16], [32, 32], [8, 4], [4, 1, 4], [0.595, 0.524, 0.96]),
    of([64, 64, 16], [32, 32], [8, 4], [4, 2, 2], [0.545, 0.571, 1.19]),
    of([64, 64, 32], [32, 64], [8, 8], [3, 4, 1], [0.601, 0.618, 1.89]),
];

/// Tiles of f64 on matrix units: as above, and the depth of the instruction.
const DMMA: [(Mma, Measured); 7] = [
    (Mma::F64K16, of([128, 128, 32], [32, 64], [16, 16], [3, 1, 1], [0.931, 0.937, 4.08])),
    (Mma::F64K8, of([128, 128, 16], [32, 64], [16, 16], [4, 1, 1], [0.915, 0.937, 2.78])),
    (Mma::F64K8, of([64, 128, 16], [32, 64], [16, 16], [4, 1, 2], [0.925, 0.717, 1.81])),
    (Mma::F64K16, of([64, 64, 32], [32, 16], [16, 16], [3, 1, 1], [0.925, 0.925, 2.08])),
    (Mma::F64K8, of([64, 64, 16], [32, 32], [16, 16], [4, 1, 2], [0.900, 0.687, 1.23])),
    (Mma::F64K16, of([32, 64, 32], [16, 32], [16, 16], [4, 1, 2], [0.712, 0.576, 1.73])),
    (Mma::F64K16, of([32, 32, 32], [16, 16], [16, 16], [4, 1, 4], [0.651, 0.476, 1.66])),
];

/// Tiles of 16-bit types on matrix units, not yet measured; of bytes, the step is twice as deep, of tf32 half.
const MMA: [Measured; 7] = [
    of([128, 256, 32], [64, 64], [16, 8], [4, 1, 1], [0.82, 0.82, 4.0]),
    of([256, 128, 32], [64, 64], [16, 8], [4, 1, 1], [0.82, 0.82, 4.0]),
    of([128, 128, 32], [64, 32], [16, 8], [4, 1, 1], [0.72, 0.72, 3.0]),
    of([128, 128, 32], [64, 64], [16, 8], [3, 1, 2], [0.76, 0.60, 3.0]),
    of([128, 64, 32], [64, 32], [16, 8], [4, 1, 2], [0.68, 0.50, 2.0]),
    of([64, 128, 32], [32, 64], [16, 8], [4, 1, 2], [0.68, 0.50, 2.0]),
    of([64, 64, 64], [32, 32], [16, 8], [4, 1, 3], [0.60, 0.35, 1.5]),
];

/// Tiles of i32 on matrix units, by limbs; not yet measured.
const LIMBS: [Measured; 3] = [
    of([128, 64, 32], [32, 32], [16, 8], [2, 1, 1], [0.5, 0.5, 4.0]),
    of([64, 128, 32], [32, 32], [16, 8], [2, 1, 1], [0.5, 0.5, 4.0]),
    of([64, 64, 32], [32, 32], [16, 8], [2, 1, 2], [0.5, 0.35, 3.0]),
];

const fn of(block: [u32; 3], warp: [u32; 2], thread: [u32; 2], counts: [u32; 3], measured: [f64; 3]) -> Measured {
    let [stages, slices, blocks] = counts;
    let [full, alone, fixed] = measured;
    Measured {
        core: Core::Register,
        blocking: Blocking { block, warp, thread, stages, slices, blocks },
        full,
        alone,
        fixed,
    }
}

/// The recipes with blocks for a product, with the microseconds that each should take.
pub fn candidates(problem: &Problem, multiprocessors: u32) -> Vec<(Recipe, f64)> {
    let measured = match problem.ty {
        Type::F32 => match problem.accuracy {
            Accuracy::Full => REGISTER.to_vec(),
            Accuracy::Tf32 => [&REGISTER[..], &mma(Mma::TF32)].concat(),
        },
        Type::I32 => {
            let limbs = LIMBS.map(|measured| Measured { core: Core::Limbs, ..measured });
            [&REGISTER[..], &limbs].concat()
        }
        Type::F64 => DMMA.map(|(mma, measured)| Measured { core: Core::Dmma(mma), ..measured }).to_vec(),
        Type::F16 => mma(Mma::F16),
        Type::BF16 => mma(Mma::BF16),
        Type::I8 => mma(Mma::I8),
        _ => return Vec::new(),
    };
    let machine = Machine { multiprocessors };
    let mut all = Vec::new();
    for measured in &measured {
        let kernel = Blocked::new(measured.core, problem.ty, measured.blocking);
        for packed in packings(&kernel, problem.lies) {
            let Some(measured) = fit(measured, lying(&kernel, packed, problem.lies)) else { continue };
            for split in splits(problem, &measured, multiprocessors) {
                let kernel = Blocked { blocking: measured.blocking, ..kernel };
                let recipe = Recipe { split, packed, ..kernel.into() }.fit(problem.lies);
                all.push((recipe, time(problem, &recipe, &measured, machine)));
            }
        }
    }
    all
}

/// What may be packed first: nothing that does not have to be, what cannot be taken 16 bytes at once, or all that does not lie best.
fn packings(kernel: &Blocked, lies: [Lie; 3]) -> Vec<[bool; 2]> {
    let (taken, wanted) = (taken(lies), kernel.wanted());
    let unaligned = taken.map(|lie| !lie.vectors);
    let other = [0, 1].map(|which| !taken[which].vectors || taken[which].order != wanted[which]);
    let mut all = vec![[false; 2]];
    for packed in [unaligned, other] {
        // Only the cores that could do without have a choice.
        if !all.contains(&packed) && (0..2).all(|which| kernel.takes(which, taken[which].order, taken[which].vectors)) {
            all.push(packed);
        }
    }
    all
}

/// A and B as a kernel takes them that stores rows.
fn taken([a, b, c]: [Lie; 3]) -> [Lie; 2] {
    if c.order == Order2d::ColMajor { [b.transposed(), a.transposed()] } else { [a, b] }
}

/// Whether what lies side by side in A and in B follows along k, as far as is known.
fn along_k([a, b]: [Lie; 2]) -> bool {
    a.order != Order2d::ColMajor && b.order == Order2d::ColMajor
}

/// A and B as a kernel takes them, some of them packed.
fn lying(kernel: &Blocked, packed: [bool; 2], lies: [Lie; 3]) -> [Lie; 2] {
    let (taken, wanted) = (taken(lies), kernel.wanted());
    [0, 1].map(|which| if packed[which] { Lie { order: wanted[which], vectors: true } } else { taken[which] })
}

/// A tile for factors that lie so. `None` where the assembler would run out of registers.
fn fit(measured: &Measured, lies: [Lie; 2]) -> Option<Measured> {
    let Blocking { thread, slices, .. } = measured.blocking;
    match measured.core {
        Core::Dmma(mma) => dmma(mma, *measured, lies),
        // Addresses of single elements take more registers than are left.
        Core::Register if thread == [8, 16] && slices > 1 && !lies.iter().all(|lie| lie.vectors) => None,
        _ => Some(*measured),
    }
}

/// A tile of f64 as the layouts want it: the left operand's part of a warp is the longer one. Of what takes most registers, the large tile has
/// room for one.
fn dmma(mma: Mma, mut measured: Measured, [a, b]: [Lie; 2]) -> Option<Measured> {
    // Both factors are loaded in pairs along k, for two rows or columns at once.
    let both_along_k = along_k([a, b]);
    let both_columns = [a, b].iter().all(|lie| lie.order == Order2d::ColMajor);
    let demands = [mma == Mma::F64K16, both_along_k, both_columns, !(a.vectors && b.vectors)];
    if measured.blocking.warp == [32, 64] && demands.iter().filter(|demanded| **demanded).count() > 1 {
        return None;
    }
    if both_along_k {
        measured.blocking.blocks = measured.blocking.blocks.min(3);
    }
    if a.order == Order2d::ColMajor || b.order == Order2d::ColMajor {
        let Blocking { block: [bm, bn, _], warp, .. } = &mut measured.blocking;
        (*bm, *bn) = (*bn, *bm);
        warp.reverse();
    }
    Some(measured)
}

/// The tiles for an instruction of short numbers: as many bytes deep, whatever the type.
fn mma(mma: Mma) -> Vec<Measured> {
    let fit = |measured: &Measured| {
        let [bm, bn, bk] = measured.blocking.block;
        let blocking = Blocking { block: [bm, bn, bk * mma.packed() / 2], ..measured.blocking };
        Measured { core: Core::Mma(mma), blocking, ..*measured }
    };
    MMA.iter().map(fit).collect()
}

/// The candidate that should be fastest.
pub(super) fn best(problem: &Problem, multiprocessors: u32) -> Option<Recipe> {
    let all = candidates(problem, multiprocessors);
    all.into_iter().min_by(|(_, a), (_, b)| a.total_cmp(b)).map(|(recipe, _)| recipe)
}

/// How the work may be split: sums in so many parts that blocks fill the multiprocessors, twice at most; or tiles shared by as many
/// blocks as run at once, where there is more than a wave of them and the last is not full.
fn splits(problem: &Problem, measured: &Measured, multiprocessors: u32) -> impl Iterator<Item = Split> {
    let Blocking { block: [bm, bn, bk], warp, thread: [tm, tn], blocks, .. } = measured.blocking;
    let tiles = problem.m.div_ceil(bm as usize) * problem.n.div_ceil(bn as usize);
    let (blocks_there, room) = (tiles.saturating_mul(problem.batches), (multiprocessors * blocks) as usize);
    let steps = problem.k.div_ceil(bk as usize);
    let most = (2 * room / blocks_there.max(1)).min(steps / LEAST_STEPS).min(MOST_PARTS);
    let parts = (2..=most as u32).filter(|parts| *parts <= 8 || parts.is_multiple_of(parts.ilog2())).map(Split::Parts);
    let uneven = blocks_there > room && !blocks_there.is_multiple_of(room) && blocks_there <= u32::MAX as usize / 2;
    // Sharing takes registers: the largest tiles have none left.
    let vectors = problem.lies.iter().all(|lie| lie.vectors);
    let room_to_share = match measured.core {
        Core::Register => tm * tn <= 64,
        Core::Dmma(_) | Core::Limbs => vectors,
        Core::Mma(_) => vectors && warp != [64, 64],
    };
    let workers = (uneven && room_to_share && steps >= LEAST_SHARED).then_some(Split::Workers(room as u32));
    std::iter::once(Split::Whole).chain(parts).chain(workers)
}
