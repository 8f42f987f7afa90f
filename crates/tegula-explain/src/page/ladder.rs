//! From no tiles to tiles in registers: what each kernel costs for the same product, and what is known of devices that run them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tegula_core::element::Type;
use tegula_interp::Counters;
use tegula_ir::{Order2d, ptx};
use tegula_kernels::plan::{Lie, Recipe};
use tegula_kernels::{Family, Plain, Variant};

use super::code::Machine;
use super::cores::share;
use crate::assembled::Shared;
use crate::error::{Error, Result};
use crate::product::Product;

/// What is known of devices: how fast each level of their memory is read and how fast they multiply, as measured; how fast kernels run, by the
/// names that results under `benchmarks` give them.
const DEVICES: &str = include_str!("devices.json");

/// m, n and k of what each kernel is counted for.
const SIDE: usize = 64;

/// What a kernel costs for a product, and for one whose k is twice as great. From both follows what it costs at any size that its tiles divide.
#[derive(Debug, Serialize)]
struct Rung {
    name: String,
    kernel: String,
    sizes: [usize; 3],
    counters: [Counters; 2],
    /// As assembled, where a toolkit is found.
    assembled: Option<[Shared; 2]>,
}

/// A device, as far as rungs depend on it.
#[derive(Deserialize)]
struct Device {
    measured: Vec<Measured>,
}

#[derive(Deserialize)]
struct Measured {
    kernel: String,
    dtype: String,
}

/// The devices as the page reads them.
pub fn devices() -> Result<Value> {
    read()
}

/// The ladder for products of a type, or of f32 where no device is known to multiply it so. Of some kernels the machine code is `known`, by name.
pub fn ladder(ty: Type, known: &BTreeMap<String, Machine>) -> Result<Value> {
    let ty = if matches!(ty, Type::F64 | Type::I32) { ty } else { Type::F32 };
    let plain = |family, tile| (Variant::from(Plain::new(family, ty, tile)), [SIDE; 3]);
    let naive = [(plain(Family::Naive, 32), "naive, 32×32 threads".to_string())];
    let tiled = [2, 4, 8, 16, 32].map(|tile| (plain(Family::Tiled, tile), format!("tiled, T = {tile}")));
    let mut all: Vec<_> = naive.into_iter().chain(tiled).collect();
    let mut blocked = vec!["register_64x64x16_32x32_8x4_3_1_2".to_string()];
    let devices: Vec<Device> = read()?;
    blocked.extend(devices.iter().flat_map(|device| &device.measured).filter_map(|row| shape_of(row, ty)));
    for name in blocked {
        let row_major = Lie::new(Order2d::RowMajor, true);
        let kernel: Variant = Recipe::named(&name, ty)?.fit([row_major; 3]).kernel.into();
        let [m, n] = kernel.tile().map(|extent| extent as usize);
        let units = if name.starts_with("register") { "in registers" } else { "on matrix units" };
        all.push(((kernel, [m, n, SIDE]), format!("tiles of {m}×{n} {units}")));
    }
    let rungs = share(&all, |((kernel, sizes), name)| rung(*kernel, *sizes, name, known), |_| ())?;
    Ok(json!({ "side": SIDE, "dtype": ty, "rungs": rungs }))
}

fn rung(kernel: Variant, [m, n, k]: [usize; 3], name: &str, known: &BTreeMap<String, Machine>) -> Result<Rung> {
    let products = [Product::new(kernel, [m, n, k])?, Product::new(kernel, [m, n, 2 * k])?];
    let made;
    let machine = match known.get(&kernel.name()) {
        Some(machine) => machine,
        None => {
            made = Machine::new(ptx::print(products[0].kernel())?);
            &made
        }
    };
    let count = |product: &Product| Ok::<_, Error>(product.profile()?.outcome.counters);
    Ok(Rung {
        name: name.into(),
        kernel: kernel.name(),
        sizes: [m, n, k],
        counters: [count(&products[0])?, count(&products[1])?],
        assembled: machine.cost(&products[0]).zip(machine.cost(&products[1])).map(|(once, twice)| [once, twice]),
    })
}

/// The name without type and layout of a kernel that is in tiles of its own, where it is of this type.
fn shape_of(row: &Measured, ty: Type) -> Option<String> {
    let name = row.kernel.strip_suffix("_v111")?;
    (row.dtype == ty.name()).then(|| name.replacen(&format!("_{}", ty.name()), "", 1))
}

fn read<T: for<'a> Deserialize<'a>>() -> Result<T> {
    serde_json::from_str(DEVICES).map_err(|why| Error::Devices(why.to_string()))
}
