//! Every variant of the built-in kernels, printed.

use tegula::element::Type;
use tegula::ir::{Kernel, Order2d, check};
use tegula::kernels::{Barriers, Blocked, Edges, Family, Mapping, Plain, Variant};
use tegula::plan::{Lie, Problem, candidates};
use tegula::ptx::{self, Image};

const TYPES: [Type; 6] = [Type::F64, Type::F32, Type::F16, Type::BF16, Type::I32, Type::I8];
const ORDERS: [Order2d; 3] = [Order2d::RowMajor, Order2d::ColMajor, Order2d::Strided];

/// The image of a kernel.
pub fn print(kernel: Kernel) -> Result<Image, String> {
    check(kernel).and_then(|checked| ptx::print(&checked)).map_err(|e| e.to_string())
}

/// What is printed and assembled: all types, tiles, mappings and orders in the form that users get, and all edges and barriers
/// in row-major order.
pub fn all() -> Vec<Plain> {
    let mut variants = Vec::new();
    for family in [Family::Naive, Family::Tiled] {
        for ty in TYPES {
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

/// Kernels of blocks that plans choose from: every layout, read element by element and 16 bytes at once, and sums that are split.
pub fn blocked() -> Vec<Blocked> {
    let lie = |order, vectors| Lie { order, vectors };
    let (row, col) = (Order2d::RowMajor, Order2d::ColMajor);
    let (all, plain) =
        (&[(row, row, true), (row, row, false), (col, col, true), (row, col, true), (col, row, true)][..], 1);
    let mut kernels = Vec::new();
    for (ty, layouts) in [
        (Type::F32, all),
        (Type::F64, all),
        (Type::F16, all),
        (Type::BF16, &all[..plain]),
        (Type::I8, all),
        (Type::I32, &all[..plain]),
    ] {
        for (i, &(a, b, vectors)) in layouts.iter().enumerate() {
            let lies = [lie(a, vectors), lie(b, vectors), lie(row, vectors)];
            // Few enough blocks for sums to be split.
            let problem = Problem { ty, m: 256, n: 256, k: 4096, batches: 1, lies };
            for (recipe, _) in candidates(&problem, 132) {
                if let Variant::Blocked(blocked) = recipe.kernel
                    && (recipe.parts == 1 || i == 0)
                    && !kernels.contains(&blocked)
                {
                    kernels.push(blocked);
                }
            }
        }
    }
    kernels
}

/// Whether a variant is assembled for the newest GPU as well: the forms that are measured there.
pub fn measured(variant: &Plain) -> bool {
    let plain = Plain::new(variant.family, variant.ty, variant.tile);
    variant.tile >= 16 && (*variant == plain || *variant == Plain { mapping: Mapping::XRow, ..plain })
}
