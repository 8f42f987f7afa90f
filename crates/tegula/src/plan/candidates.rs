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

/// Register tiles of 4-byte types: block, warp, thread, stages, slices, blocks; and what was measured: full, alone, single, fixed.
const REGISTER: [Measured; 14] = [
    of([128, 128, 8], [64, 64], [8, 16], [4, 1, 2], [0.794, 0.730, 1.21, 4.70]),
    of([128, 256, 8], [64, 64], [8, 16], [4, 1, 1], [0.838, 0.838, 1.22, 5.75]),
    of([128, 64, 16], [64, 32], [8, 8], [3, 1, 2], [0.728, 0.624, 1.11, 2.81]),
    of([128, 64, 8], [64, 32], [8, 8], [4, 1, 2], [0.721, 0.620, 1.09, 2.26]),
    of([32, 128, 16], [32, 64], [8, 8], [3, 2, 2], [0.731, 0.611, 1.49, 1.29]),
    of([32, 32, 32], [32, 32], [8, 4], [3, 4, 4], [0.487, 0.402, 1.09, 1.64]),
    of([32, 64, 32], [32, 32], [8, 4], [3, 4, 2], [0.598, 0.506, 1.21, 1.94]),
    of([64, 128, 16], [32, 64], [8, 8], [3, 1, 2], [0.775, 0.710, 1.34, 1.50]),
    of([64, 128, 16], [32, 64], [8, 8], [3, 2, 1], [0.730, 0.730, 1.25, 2.04]),
    of([64, 128, 8], [32, 64], [8, 8], [4, 1, 2], [0.783, 0.706, 1.29, 1.57]),
    of([64, 256, 8], [64, 64], [8, 16], [4, 1, 2], [0.828, 0.744, 1.38, 5.05]),
    of([64, 64, 16], [32, 32], [8, 4], [4, 1, 4], [0.661, 0.548, 1.09, 1.97]),
    of([64, 64, 32], [32, 64], [8, 8], [3, 4, 1], [0.645, 0.645, 1.09, 2.45]),
    of([64, 64, 8], [32, 32], [8, 4], [4, 1, 4], [0.652, 0.550, 1.10, 1.79]),
];

/// Tiles of f64 on matrix units: as above, and the depth of the instruction.
const DMMA: [(Mma, Measured); 7] = [
    (Mma::F64K16, of([128, 128, 32], [32, 64], [16, 16], [3, 1, 1], [0.928, 0.928, 1.24, 4.89])),
    (Mma::F64K8, of([128, 128, 16], [32, 64], [16, 16], [4, 1, 1], [0.904, 0.904, 1.12, 4.15])),
    (Mma::F64K8, of([64, 128, 16], [32, 64], [16, 16], [4, 1, 2], [0.887, 0.776, 1.16, 3.10])),
    (Mma::F64K16, of([64, 64, 32], [32, 16], [16, 16], [3, 1, 1], [0.924, 0.924, 1.29, 1.84])),
    (Mma::F64K8, of([64, 64, 16], [32, 32], [16, 16], [4, 1, 2], [0.896, 0.732, 1.23, 1.74])),
    (Mma::F64K16, of([32, 64, 32], [16, 32], [16, 16], [4, 1, 2], [0.743, 0.578, 1.28, 1.61])),
    (Mma::F64K16, of([32, 32, 32], [16, 16], [16, 16], [4, 1, 4], [0.677, 0.570, 1.47, 1.60])),
];

/// Tiles of 16-bit types on matrix units; of bytes, the step is twice as deep, of tf32 half. Measured at 8192³ only: the numbers of the smaller tiles
/// are guesses, and so are the last two of each.
const MMA: [Measured; 8] = [
    of([128, 256, 64], [64, 64], [16, 8], [3, 1, 1], [0.71, 0.71, 1.15, 5.0]),
    of([256, 128, 64], [64, 64], [16, 8], [3, 1, 1], [0.72, 0.72, 1.15, 5.0]),
    of([128, 256, 32], [64, 64], [16, 8], [4, 1, 1], [0.63, 0.63, 1.15, 4.0]),
    of([128, 128, 32], [64, 32], [16, 8], [4, 1, 1], [0.55, 0.55, 1.15, 3.0]),
    of([128, 128, 32], [64, 64], [16, 8], [3, 1, 2], [0.61, 0.47, 1.15, 3.0]),
    of([128, 64, 32], [64, 32], [16, 8], [4, 1, 2], [0.53, 0.39, 1.15, 2.0]),
    of([64, 128, 32], [32, 64], [16, 8], [4, 1, 2], [0.53, 0.39, 1.15, 2.0]),
    of([64, 64, 64], [32, 32], [16, 8], [4, 1, 3], [0.52, 0.33, 1.15, 1.5]),
];

/// Tiles for operands that pass through registers, element by element: small enough for those.
const MMA_BY_ELEMENT: [Measured; 3] = [
    of([128, 64, 32], [32, 32], [16, 8], [4, 1, 1], [0.25, 0.25, 1.15, 3.0]),
    of([128, 128, 32], [64, 32], [16, 8], [4, 1, 1], [0.30, 0.30, 1.15, 4.0]),
    of([64, 64, 32], [32, 16], [16, 8], [4, 1, 2], [0.20, 0.15, 1.15, 2.0]),
];
const MMA_BY_BYTE: [Measured; 1] = [of([64, 64, 32], [32, 16], [16, 8], [4, 1, 1], [0.10, 0.10, 1.15, 2.0])];

/// Tiles of i32 on matrix units, by limbs; measured at 8192³ only.
const LIMBS: [Measured; 3] = [
    of([128, 64, 32], [32, 32], [16, 8], [2, 1, 1], [0.47, 0.47, 1.15, 4.0]),
    of([64, 128, 32], [32, 32], [16, 8], [2, 1, 1], [0.42, 0.42, 1.15, 4.0]),
    of([64, 64, 32], [32, 32], [16, 8], [2, 1, 2], [0.43, 0.32, 1.15, 3.0]),
];

const fn of(block: [u32; 3], warp: [u32; 2], thread: [u32; 2], counts: [u32; 3], measured: [f64; 4]) -> Measured {
    let [stages, slices, blocks] = counts;
    let [full, alone, single, fixed] = measured;
    Measured {
        core: Core::Register,
        blocking: Blocking { block, warp, thread, stages, slices, blocks },
        full,
        alone,
        single,
        fixed,
    }
}

/// The recipes with blocks for a product, with the microseconds that each should take.
pub fn candidates(problem: &Problem, multiprocessors: u32) -> Vec<(Recipe, f64)> {
    let measured = match problem.ty {
        Type::F32 => match problem.accuracy {
            Accuracy::Full => REGISTER.to_vec(),
            Accuracy::Tf32 => [&REGISTER[..], &mma(Mma::TF32, problem.lies)].concat(),
        },
        Type::I32 => {
            let limbs = LIMBS.map(|measured| Measured { core: Core::Limbs, ..measured });
            [&REGISTER[..], &limbs].concat()
        }
        Type::F64 => DMMA.iter().filter_map(|&(mma, measured)| dmma(mma, measured, problem.lies)).collect(),
        Type::F16 => mma(Mma::F16, problem.lies),
        Type::BF16 => mma(Mma::BF16, problem.lies),
        Type::I8 => mma(Mma::I8, problem.lies),
        _ => return Vec::new(),
    };
    let machine = Machine { multiprocessors };
    let mut all = Vec::new();
    for measured in &measured {
        let kernel = Blocked::new(measured.core, problem.ty, measured.blocking).into();
        for split in splits(problem, measured, multiprocessors) {
            let recipe = Recipe { kernel, swapped: false, split }.fit(problem.lies);
            all.push((recipe, time(problem, &recipe, measured, machine)));
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

/// A tile of f64 as the layouts want it: the left operand's part of a warp is the longer one. `None` where the assembler would run out of
/// registers: of what takes most of them, the large tile has room for one.
fn dmma(mma: Mma, mut measured: Measured, lies: [Lie; 3]) -> Option<Measured> {
    let [a, b] = taken(lies);
    // Both factors are loaded in pairs along k, for two rows or columns at once.
    let both_along_k = along_k([a, b]);
    let demands = [mma == Mma::F64K16, both_along_k, !(a.vectors && b.vectors)];
    if measured.blocking.warp == [32, 64] && demands.iter().filter(|demanded| **demanded).count() > 1 {
        return None;
    }
    if both_along_k {
        measured.blocking.blocks = measured.blocking.blocks.min(3);
    }
    measured.core = Core::Dmma(mma);
    if a.order == Order2d::ColMajor || b.order == Order2d::ColMajor {
        let Blocking { block: [bm, bn, _], warp, .. } = &mut measured.blocking;
        (*bm, *bn) = (*bn, *bm);
        warp.reverse();
    }
    Some(measured)
}

/// The tiles for an instruction of short numbers: as many bytes deep, whatever the type. By element, operands that both lie along k leave
/// registers for one of them alone.
fn mma(mma: Mma, lies: [Lie; 3]) -> Vec<Measured> {
    let [a, b] = taken(lies);
    let tiles: &[Measured] = match mma {
        _ if a.vectors && b.vectors => &MMA,
        Mma::I8 => &MMA_BY_BYTE,
        _ if along_k([a, b]) => &MMA_BY_ELEMENT[..1],
        _ => &MMA_BY_ELEMENT,
    };
    let fit = |measured: &Measured| {
        let [bm, bn, bk] = measured.blocking.block;
        let blocking = Blocking { block: [bm, bn, bk * mma.packed() / 2], ..measured.blocking };
        Measured { core: Core::Mma(mma), blocking, ..*measured }
    };
    // Both along k, the deepest of the large tiles have no registers left.
    let room = |measured: &&Measured| {
        !(along_k([a, b]) && measured.blocking.warp == [64, 64] && measured.blocking.block[2] == 64)
    };
    tiles.iter().filter(room).map(fit).collect()
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
