//! Costs of each kernel on the same problem, from naive to register tiles, and device descriptions.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tegula_core::element::Type;
use tegula_interp::Counters;
use tegula_ir::{Order2d, ptx};
use tegula_kernels::plan::{OperandLayout, Recipe};
use tegula_kernels::{Plain, PlainKind, Variant};

use super::code::Machine;
use super::parallel::parallel_map;
use crate::assembled::SharedCounters;
use crate::error::{Error, Result};
use crate::sample_launch::SampleLaunch;
use crate::sass::Tools;

/// Measured bandwidth of each memory level, multiply-add rates, and kernel speeds by device.
///
/// Kernels have the names of the results under `benchmarks`.
const DEVICES: &str = include_str!("devices.json");

/// m, n and k of the counted problem.
const SIDE: usize = 64;

/// Costs of a kernel for a problem, and for one with twice the k.
///
/// Both determine the costs of any problem that the tiles divide.
#[derive(Debug, Serialize)]
struct Rung {
    name: String,
    kernel: String,
    sizes: [usize; 3],
    counters: [Counters; 2],
    /// Counters at machine widths, if a CUDA toolkit is installed.
    assembled: Option<[SharedCounters; 2]>,
}

/// The part of a device description that selects rungs.
#[derive(Deserialize)]
struct Device {
    measured: Vec<Measured>,
}

#[derive(Deserialize)]
struct Measured {
    kernel: String,
    dtype: String,
}

/// The device descriptions as the page reads them.
pub fn devices() -> Result<Value> {
    read()
}

/// The ladder of a type, or of f32 for a type without measured rates.
///
/// `known` holds machine code that was assembled before, by kernel name; `tools` assemble the rest.
pub fn ladder(ty: Type, known: &BTreeMap<String, Machine>, tools: Option<&Tools>) -> Result<Value> {
    let ty = if matches!(ty, Type::F64 | Type::I32) { ty } else { Type::F32 };
    let plain = |family, tile| (Variant::from(Plain::new(family, ty, tile)), [SIDE; 3]);
    let naive = [(plain(PlainKind::Naive, 32), "naive, 32×32 threads".to_string())];
    let tiled = [2, 4, 8, 16, 32].map(|tile| (plain(PlainKind::Tiled, tile), format!("tiled, T = {tile}")));
    let mut all: Vec<_> = naive.into_iter().chain(tiled).collect();
    let mut blocked = vec!["register_64x64x16_warp32x32_thread8x4_stages3_blocks2".to_string()];
    let devices: Vec<Device> = read()?;
    blocked.extend(devices.iter().flat_map(|device| &device.measured).filter_map(|row| configuration(row, ty)));
    for name in blocked {
        let row_major = OperandLayout::new(Order2d::RowMajor, true);
        let kernel: Variant = Recipe::named(&name, ty)?.legalize([row_major; 3]).kernel.into();
        let [m, n] = kernel.tile().map(|extent| extent as usize);
        let units = if name.starts_with("register") { "in registers" } else { "on Tensor Cores" };
        all.push(((kernel, [m, n, SIDE]), format!("tiles of {m}×{n} {units}")));
    }
    let rungs = parallel_map(&all, |((kernel, sizes), name)| rung(*kernel, *sizes, name, (known, tools)), |_| ())?;
    Ok(json!({ "side": SIDE, "dtype": ty, "rungs": rungs }))
}

fn rung(
    kernel: Variant,
    [m, n, k]: [usize; 3],
    name: &str,
    (known, tools): (&BTreeMap<String, Machine>, Option<&Tools>),
) -> Result<Rung> {
    let launches = [SampleLaunch::new(kernel, [m, n, k])?, SampleLaunch::new(kernel, [m, n, 2 * k])?];
    let assembled;
    let machine = match known.get(&kernel.name()) {
        Some(machine) => machine,
        None => {
            assembled = Machine::new(ptx::print(launches[0].kernel())?, tools);
            &assembled
        }
    };
    let count = |launch: &SampleLaunch| Ok::<_, Error>(launch.profile()?.outcome.counters);
    Ok(Rung {
        name: name.into(),
        kernel: kernel.name(),
        sizes: [m, n, k],
        counters: [count(&launches[0])?, count(&launches[1])?],
        assembled: machine
            .shared_counters(&launches[0])
            .zip(machine.shared_counters(&launches[1]))
            .map(|(once, twice)| [once, twice]),
    })
}

/// The name of a measured blocked kernel of this type, without type and layout.
fn configuration(row: &Measured, ty: Type) -> Option<String> {
    let name = row.kernel.strip_suffix("_v111")?;
    (row.dtype == ty.name()).then(|| name.replacen(&format!("_{}", ty.name()), "", 1))
}

fn read<T: for<'a> Deserialize<'a>>() -> Result<T> {
    serde_json::from_str(DEVICES).map_err(|error| Error::InvalidDevices(error.to_string()))
}
