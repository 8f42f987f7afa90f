//! Every variant of the built-in kernels, printed.

use tegula::element::Type;
use tegula::ir::{Kernel, Order2d, check};
use tegula::kernels::dmma::{Blocking, dmma};
use tegula::kernels::{Barriers, Edges, Family, Mapping, Variant};
use tegula::ptx::{self, Image};

const TYPES: [Type; 6] = [Type::F64, Type::F32, Type::F16, Type::BF16, Type::I32, Type::I8];
const ORDERS: [Order2d; 3] = [Order2d::RowMajor, Order2d::ColMajor, Order2d::Strided];

/// The image of a kernel.
pub fn print(kernel: Kernel) -> Result<Image, String> {
    check(kernel).and_then(|checked| ptx::print(&checked)).map_err(|e| e.to_string())
}

/// What is printed and assembled: all types, tiles, mappings and orders in the form that users get, and all edges and barriers
/// in row-major order.
pub fn all() -> Vec<Variant> {
    let mut variants = Vec::new();
    for family in [Family::Naive, Family::Tiled] {
        for ty in TYPES {
            for tile in [2, 4, 8, 16, 32] {
                for mapping in [Mapping::XCol, Mapping::XRow] {
                    let plain = Variant { mapping, ..Variant::new(family, ty, tile) };
                    variants.extend(ORDERS.map(|order| Variant { orders: [order; 3], ..plain }));
                    variants.extend([Edges::Floor, Edges::Unguarded].map(|edges| Variant { edges, ..plain }));
                    if family == Family::Tiled {
                        let barriers = [Barriers::NoFirst, Barriers::NoSecond, Barriers::Extra];
                        variants.extend(barriers.map(|barriers| Variant { barriers, ..plain }));
                    }
                }
            }
        }
    }
    variants
}

/// The f64 kernel on matrix units for an sm_90, in all orders of A and B, with copies of pairs and of single elements.
pub fn on_matrix_units() -> Vec<(String, Kernel)> {
    let mut kernels = Vec::new();
    for (a, b) in ORDERS.into_iter().flat_map(|a| ORDERS.map(|b| (a, b))) {
        for even in [true, false] {
            let pairs = [a, b, Order2d::RowMajor].map(|order| even && order != Order2d::Strided);
            let orders = [a, b, if even { Order2d::RowMajor } else { Order2d::Strided }];
            let kernel = dmma(Blocking::suited(orders, pairs), orders, pairs);
            kernels.push((format!("{}_{a:?}_{b:?}_{even}", kernel.name()), kernel));
        }
    }
    kernels
}

/// Whether a variant is assembled for the newest GPU as well: the forms that are measured there.
pub fn measured(variant: &Variant) -> bool {
    let plain = Variant::new(variant.family, variant.ty, variant.tile);
    variant.tile >= 16 && (*variant == plain || *variant == Variant { mapping: Mapping::XRow, ..plain })
}
