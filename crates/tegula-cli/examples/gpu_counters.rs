//! Prints the interpreter's counters for comparison with Nsight Compute, a line of JSON per launch.
//!
//! A line has the counters as written and, where `ptxas` and `nvdisasm` are found, those of shared
//! memory as assembled. With `--launch` each kernel is launched on the GPU once, in the same order:
//!
//!     ncu --clock-control none --csv --page raw --metrics … gpu_counters --launch
//!
//! `benchmarks/counters/` has the results.

use std::error::Error;

use serde_json::json;
use tegula::cuda::{Arg, DeviceMatrix, Gpu};
use tegula::element::{Element, Scalar, Type};
use tegula::{Matrix, Shape};
use tegula_explain::sample_launch::SampleLaunch;
use tegula_explain::sass::Tools;
use tegula_ir::check;
use tegula_kernels::{Blocked, Plain, Variant};

type Fallible<T = ()> = Result<T, Box<dyn Error>>;

/// m, n and k; the last is ragged for every tile.
const SHAPES: [[usize; 3]; 3] = [[256, 256, 256], [128, 96, 64], [100, 70, 50]];
const PLAIN: [&str; 6] = ["K1", "K2", "K3", "K4", "K5", "K6"];
const BLOCKED: [(&str, Type); 6] = [
    ("register_32x32x32_warp32x32_thread8x4_stages3_slices4_blocks4", Type::F32),
    ("register_64x64x16_warp32x32_thread8x4_stages4_blocks4", Type::F32),
    ("register_128x128x8_warp64x64_thread8x16_stages4_blocks2", Type::F32),
    ("register_64x64x16_warp32x32_thread8x4_stages4_blocks4", Type::I32),
    ("dmma16x16_32x32x32_warp16x16_thread16x16_stages4_blocks3", Type::F64),
    ("dmma16x8_64x64x16_warp32x32_thread16x16_stages4_blocks3", Type::F64),
];

fn main() -> Fallible {
    let launch = std::env::args().any(|argument| argument == "--launch");
    let gpu = if launch { Some(Gpu::open(0)?) } else { None };
    let tools = Tools::find();
    if tools.is_none() {
        eprintln!("ptxas and nvdisasm not found: no counts as assembled");
    }
    for shape in SHAPES {
        for name in PLAIN {
            one(name, Plain::named(name)?.into(), shape, gpu.as_ref(), tools.as_ref())?;
        }
        for (name, ty) in BLOCKED {
            let [_, n, k] = shape;
            let wide = |extent: usize| (extent * ty.size()).is_multiple_of(16);
            let vectors = [wide(k), wide(n), wide(n)];
            one(
                name,
                Blocked { aligned_16: vectors, ..Blocked::named(name, ty)? }.into(),
                shape,
                gpu.as_ref(),
                tools.as_ref(),
            )?;
        }
    }
    Ok(())
}

fn one(name: &str, variant: Variant, shape: [usize; 3], gpu: Option<&Gpu>, tools: Option<&Tools>) -> Fallible {
    let product = SampleLaunch::new(variant, shape)?;
    let counters = product.profile()?.outcome.counters;
    let assembled = match tools {
        Some(tools) => {
            let image = tegula_ir::ptx::print(product.kernel())?;
            let listing = tools.disassemble(&image, "sm_90")?;
            let shared = product.assembled(&image, &listing);
            if let Err(why) = &shared {
                eprintln!("{name} {shape:?}: {why}");
            }
            shared.ok().map(|shared| (shared, listing.registers))
        }
        None => None,
    };
    let assembled = assembled.map(|(shared, registers)| {
        json!({
            "shared_load_requests": shared.load_requests,
            "shared_load_wavefronts": shared.load_wavefronts,
            "shared_load_conflicts": shared.load_conflicts,
            "shared_store_requests": shared.store_requests,
            "shared_store_wavefronts": shared.store_wavefronts,
            "shared_store_conflicts": shared.store_conflicts,
            "registers": registers,
        })
    });
    let kernel = variant.name();
    println!(
        "{}",
        json!({"name": name, "kernel": kernel, "shape": shape, "written": counters, "assembled": assembled})
    );
    match (gpu, variant.ty()) {
        (None, _) => Ok(()),
        (Some(gpu), Type::F64) => launch::<f64>(gpu, variant, shape),
        (Some(gpu), Type::I32) => launch::<i32>(gpu, variant, shape),
        (Some(gpu), _) => launch::<f32>(gpu, variant, shape),
    }
}

fn launch<T: Element>(gpu: &Gpu, variant: Variant, [m, n, k]: [usize; 3]) -> Fallible {
    let kernel = check(variant.build()?)?;
    let ones = |rows, cols| Matrix::<T>::from_fn(rows, cols, |_, _| T::ONE);
    let (a, b) = (DeviceMatrix::upload(gpu, ones(m, k)?.view())?, DeviceMatrix::upload(gpu, ones(k, n)?.view())?);
    let mut c = DeviceMatrix::<T::Out>::zeros(gpu, Shape::new(m, n))?;
    let (alpha, beta) = (Arg::scalar(T::Acc::ONE), Arg::scalar(T::Acc::ZERO));
    let args = [Arg::input(a.view())?, Arg::input(b.view())?, Arg::output(c.view_mut())?, alpha, beta];
    // SAFETY: a kernel of the library, which stays within its matrices.
    unsafe { gpu.run(&kernel, &args)? };
    Ok(gpu.synchronize()?)
}
