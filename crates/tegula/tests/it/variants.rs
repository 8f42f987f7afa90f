//! Every variant of the built-in kernels, printed.

use std::collections::HashSet;

use tegula::element::{Accuracy, Type};
use tegula::epilogue::{Activation, Along, Epilogue};
use tegula_ir::ptx::Image;
use tegula_ir::{Kernel, Order2d, check, ptx};
use tegula_kernels::plan::{Caps, Lie, Problem, Split, candidates, legal, of_groups};
use tegula_kernels::{
    Adding, Barriers, Blocked, Edges, Ends, Family, Hopper, Mapping, Mend, Pack, PackBoth, Packing, Plain, Reduce,
    Schedule, Sum, Variant, Vector,
};

const ORDERS: [Order2d; 3] = [Order2d::RowMajor, Order2d::ColMajor, Order2d::Strided];

/// The image of a kernel.
pub fn print(kernel: Kernel) -> Result<Image, String> {
    check(kernel).and_then(|checked| ptx::print(&checked)).map_err(|e| e.to_string())
}

/// What is printed and assembled.
pub fn all() -> Vec<Variant> {
    let mut variants: Vec<Variant> = plain().into_iter().map(Variant::from).collect();
    variants.extend(vectors().into_iter().map(Variant::from));
    variants.extend(packs().map(Variant::from));
    variants.extend(packs_of_both().map(Variant::from));
    variants.push(Ends.into());
    variants.extend(pipelines().into_iter().map(Variant::from));
    variants.extend(groups().into_iter().map(Variant::from));
    variants.extend(reduces().map(Variant::Reduce));
    let blocked = blocked();
    variants.extend(finished(&blocked));
    variants.extend(blocked.into_iter().map(Variant::from));
    let mut seen = HashSet::new();
    variants.retain(|variant| seen.insert(*variant));
    variants
}

/// Of the kernels on Hopper's matrix units those that plans choose from: every layout, with C by tiles and by elements, as a whole and in parts; and
/// tiles that blocks share evenly. And some of those by name alone.
fn pipelines() -> Vec<Hopper> {
    let mut variants = Vec::new();
    let mut add = |hopper: Hopper| {
        if !variants.contains(&hopper) {
            variants.push(hopper);
        }
    };
    for (a, b) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        for (side, vectors) in [(96, true), (96, false), (4096, true)] {
            let orders = [Order2d::RowMajor, Order2d::ColMajor];
            let lies = [(orders[a], true), (orders[b], true), (Order2d::RowMajor, vectors)]
                .map(|(order, vectors)| Lie::new(order, vectors));
            let (ty, accuracy) = (Type::BF16, Accuracy::Full);
            let problem = Problem { ty, accuracy, m: side, n: side, k: 4096, batches: 1, lies };
            for candidate in legal(&problem, &Caps::Gpu { compute: (9, 0), multiprocessors: 132 }) {
                if let Variant::Hopper(hopper) = candidate.recipe.kernel {
                    add(hopper);
                    // f16 differs by the instruction's name alone.
                    if a == b && vectors {
                        add(Hopper { ty: Type::F16, ..hopper });
                    }
                    if a != 0 || b != 0 || hopper.schedule != Schedule::Tiles {
                        continue;
                    }
                    // Of epilogues, the one that takes most.
                    let epilogue = Epilogue { bias: Some(Along::Rows), activation: Activation::Gelu };
                    add(Hopper { epilogue, ..hopper });
                    for epilogue in [Epilogue::NONE, epilogue] {
                        let hopper = Hopper { epilogue, schedule: Schedule::Balanced, ..hopper };
                        if hopper.shares_tiles() {
                            add(hopper);
                        }
                    }
                }
            }
        }
    }
    // By name alone: consumers that take turns.
    for name in ["hopper_128x128x64_2_6_1_pp", "hopper_64x256x64_2_4_2_pp"] {
        let named = Hopper::named(name, Type::BF16).into_iter();
        let epilogue = Epilogue { bias: Some(Along::Rows), activation: Activation::Gelu };
        variants.extend(named.flat_map(|hopper| [hopper, Hopper { epilogue, ..hopper }]));
    }
    variants
}

/// Of the kernels for groups of rows those that plans choose, with a B that lies either way, and of epilogues the one that takes most.
fn groups() -> Vec<Hopper> {
    let mut variants = Vec::new();
    let (row, accuracy) = (Order2d::RowMajor, Accuracy::Full);
    let caps = Caps::Gpu { compute: (9, 0), multiprocessors: 132 };
    for (size, n) in [16, 64, 100, 256, 1024].into_iter().flat_map(|size| [256, 1024, 4096].map(|n| (size, n))) {
        for (b, stored, ty) in [
            (row, true, Type::BF16),
            (row, true, Type::F16),
            (row, false, Type::BF16),
            (Order2d::ColMajor, true, Type::BF16),
        ] {
            let (sizes, lies) = ([size; 16], [Lie::new(row, true), Lie::new(b, true), Lie::new(row, stored)]);
            let problem = Problem { ty, accuracy, m: 16 * size, n, k: 2048, batches: 16, lies };
            let Some(hopper) = of_groups(&problem, &sizes, &caps) else { continue };
            let epilogue = Epilogue { bias: Some(Along::Rows), activation: Activation::Gelu };
            for variant in [hopper, Hopper { epilogue, ..hopper }] {
                if !variants.contains(&variant) {
                    variants.push(variant);
                }
            }
        }
    }
    variants
}

/// What adds the parts of pipelines.
fn reduces() -> impl Iterator<Item = Reduce> {
    let epilogue = |along, activation| Epilogue { bias: Some(along), activation };
    let epilogues =
        [Epilogue::NONE, epilogue(Along::Rows, Activation::Gelu), epilogue(Along::Columns, Activation::Relu)];
    let variants = ORDERS.into_iter().flat_map(move |order| epilogues.map(|epilogue| (order, epilogue)));
    variants
        .flat_map(|(order, epilogue)| [false, true].map(|shared| Reduce { ty: Type::BF16, order, shared, epilogue }))
}

/// The passes before kernels of blocks.
fn packs() -> impl Iterator<Item = Pack> {
    let pack = |ty, packing| ORDERS.map(|from| Pack { ty, from, packing });
    let others = pack(Type::F32, Packing::Tf32).into_iter().chain(pack(Type::I32, Packing::Limbs));
    Type::OPERANDS.into_iter().flat_map(move |ty| pack(ty, Packing::Same)).chain(others)
}

/// The passes that copy both factors at once.
fn packs_of_both() -> impl Iterator<Item = PackBoth> {
    packs().flat_map(|Pack { ty, from, packing }| ORDERS.map(|b| PackBoth { ty, from: [from, b], packing }))
}

/// Of the kernels for few rows, for each type, number of rows and layout those that plans choose by their cost, and the likeliest.
fn vectors() -> Vec<Vector> {
    let mut variants = Vec::new();
    for ty in Type::OPERANDS {
        for rows in [1, 2, 4, 8, 16] {
            for b in ORDERS {
                let orders = [Order2d::RowMajor, b, Order2d::RowMajor];
                for vectors in [false, true].into_iter().take(if b == Order2d::Strided { 1 } else { 2 }) {
                    let candidates = Vector::candidates(ty, rows, b == Order2d::ColMajor, vectors);
                    assert!(!candidates.is_empty(), "{ty} {rows} {b:?} {vectors}");
                    let mut add = |vector: Vector| {
                        if !variants.contains(&vector) {
                            variants.push(vector);
                        }
                    };
                    let lies = orders.map(|order| Lie::new(order, vectors && order != Order2d::Strided));
                    let (accuracy, side) = (Accuracy::Full, 4096);
                    let problem = Problem { ty, accuracy, m: rows, n: side, k: side, batches: 1, lies };
                    for candidate in legal(&problem, &Caps::Gpu { compute: (9, 0), multiprocessors: 132 }) {
                        if let (Variant::Vector(vector), Some(_)) = (candidate.recipe.kernel, candidate.microseconds) {
                            add(vector);
                        }
                    }
                    let likeliest = candidates.into_iter().take(if matches!(rows, 1 | 4 | 16) { 2 } else { 1 });
                    likeliest.for_each(|vector| add(Vector { orders, split: vectors, ..vector }));
                }
            }
        }
    }
    variants
}

/// The plain kernels: all types, tiles, mappings and orders in the form that users get, and all edges and barriers
/// in row-major order.
fn plain() -> Vec<Plain> {
    let mut variants = Vec::new();
    for family in [Family::Naive, Family::Tiled] {
        for ty in Type::OPERANDS {
            for tile in [2, 4, 8, 16, 32] {
                for mapping in [Mapping::XCol, Mapping::XRow] {
                    let plain = Plain { mapping, ..Plain::new(family, ty, tile) };
                    variants.extend(ORDERS.map(|order| Plain { orders: [order; 3], ..plain }));
                    variants.extend([Edges::Floor, Edges::Unguarded].map(|edges| Plain { edges, ..plain }));
                    if family == Family::Tiled {
                        let barriers = [Barriers::NoFirst, Barriers::NoSecond, Barriers::Extra];
                        variants.extend(barriers.map(|barriers| Plain { barriers, ..plain }));
                    }
                }
            }
        }
    }
    variants
}

/// Kernels of blocks that plans choose from: every layout, as it lies or packed, and sums that are split.
fn blocked() -> Vec<Blocked> {
    let lie = |order, vectors| Lie::new(order, vectors);
    let (row, col) = (Order2d::RowMajor, Order2d::ColMajor);
    let layouts =
        [(row, row, true), (row, row, false), (col, col, true), (row, col, true), (row, col, false), (col, row, true)];
    let mut kernels = Vec::new();
    let full = Type::OPERANDS.map(|ty| (ty, Accuracy::Full));
    for (ty, accuracy) in full.into_iter().chain([(Type::F32, Accuracy::Tf32)]) {
        // bf16 differs from f16 by the instruction's name alone, and i32 little more from f32.
        let layouts = match ty {
            Type::BF16 => &layouts[..1],
            Type::I32 => &layouts[..2],
            _ => &layouts[..],
        };
        for (i, &(a, b, vectors)) in layouts.iter().enumerate() {
            let lies = [lie(a, vectors), lie(b, vectors), lie(row, vectors)];
            // Few enough blocks for sums to be split, and many enough for tiles to be shared.
            let problem = |side| Problem { ty, accuracy, m: side, n: side, k: 4096, batches: 1, lies };
            for (recipe, _) in [256, 4096].into_iter().flat_map(|side| candidates(&problem(side), 132)) {
                if let Variant::Blocked(blocked) = recipe.kernel
                    && (recipe.split == Split::Whole || i < 2)
                    && !kernels.contains(&blocked)
                {
                    kernels.push(blocked);
                }
            }
        }
    }
    kernels
}

/// Of each family, what happens to sums on their way to C. Epilogues differ by their registers: assembled are the activation that takes most with
/// a bias along rows, and one that takes few, whose code is there once for each sum, with one along columns. Of the kernels of blocks, which have
/// few registers left, every tile that stores to C takes both where its factors lie as it wants them; f64, which has fewest left, the first in
/// every layout. Elsewhere the ending is the same.
fn finished(blocked: &[Blocked]) -> Vec<Variant> {
    let bias = |along, activation| Epilogue { bias: Some(along), activation };
    let mut variants: Vec<Variant> = Vec::new();
    // bf16 differs from f16 by the instruction's name alone.
    for ty in Type::OPERANDS.into_iter().filter(|ty| *ty != Type::BF16) {
        let most = if ty.is_float() { Activation::Gelu } else { Activation::Relu };
        let epilogues = [bias(Along::Rows, most), bias(Along::Columns, Activation::Relu)];
        for epilogue in epilogues {
            let plain = |family| Plain { epilogue, ..Plain::new(family, ty, 32) };
            variants.extend([Family::Naive, Family::Tiled].map(|family| Variant::from(plain(family))));
            let order = Order2d::RowMajor;
            let sum = |adding| Variant::Sum(Sum { ty, order, adding, epilogue });
            variants.extend([Adding::Few, Adding::More, Adding::Shared].map(sum));
            variants.push(Variant::Mend(Mend { ty, order: Order2d::RowMajor, epilogue }));
        }
        let vectors = vectors().into_iter().filter(|vector| vector.ty == ty && vector.few == 16);
        variants.extend(vectors.map(|v| Variant::from(Vector { epilogue: epilogues[0], split: false, ..v })));
        let whole = |b: &&Blocked| b.ty == ty && b.schedule != Schedule::Parts && b.vectors == [true; 3];
        for &blocked in blocked.iter().filter(whole) {
            let best = blocked.orders[..2] == blocked.wanted();
            let count = if best { 2 } else { usize::from(ty == Type::F64) };
            variants
                .extend(epilogues.iter().take(count).map(|&epilogue| Variant::from(Blocked { epilogue, ..blocked })));
        }
    }
    variants
}

/// Whether a variant is assembled for the newest GPU as well: the forms that are measured there.
pub fn measured(variant: &Variant) -> bool {
    let variant = match variant {
        Variant::Plain(variant) => variant,
        // These load on the GPU that is measured and on no other.
        Variant::Hopper(_) => return false,
        _ => return true,
    };
    let plain = Plain::new(variant.family, variant.ty, variant.tile);
    let finished = !variant.epilogue.is_none();
    variant.tile >= 16 && (finished || *variant == plain || *variant == Plain { mapping: Mapping::XRow, ..plain })
}
