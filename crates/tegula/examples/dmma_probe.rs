//! Times blockings of the f64 kernel on matrix units, interleaved, each checked against the tiled kernel; or prints their texts.
//!
//!     cargo run --release --example dmma_probe -- [size] [rounds]
//!     cargo run --release --example dmma_probe -- --ptx FOLDER

use std::error::Error;

use tegula::cuda::{self, DeviceMatrix, Gpu};
use tegula::element::Type;
use tegula::ir::{Checked, Kernel, Mma, Order2d, check};
use tegula::kernels::dmma::{Blocking, dmma};
use tegula::kernels::{Family, Variant};
use tegula::{Layout, Matrix, Shape, ptx};

/// bm, bn, bk, wm, wn, stages, group, blocks.
const SHAPES: [[u32; 8]; 13] = [
    [128, 128, 16, 32, 64, 4, 8, 1],
    [128, 128, 16, 32, 64, 6, 8, 1],
    [128, 128, 16, 32, 64, 4, 16, 1],
    [128, 128, 32, 32, 64, 3, 8, 1],
    [128, 128, 32, 32, 64, 3, 16, 1],
    [128, 128, 16, 64, 32, 4, 8, 1],
    [64, 128, 16, 32, 64, 4, 16, 2],
    [128, 64, 16, 32, 64, 4, 8, 2],
    [128, 64, 16, 32, 64, 4, 16, 2],
    [64, 128, 32, 32, 64, 2, 16, 2],
    [256, 64, 16, 32, 64, 4, 8, 1],
    [64, 256, 16, 32, 64, 4, 16, 1],
    [128, 256, 16, 32, 32, 3, 8, 1],
];

fn blockings() -> Vec<Blocking> {
    let of = |mma| {
        SHAPES.map(|[bm, bn, bk, wm, wn, stages, group, blocks]| Blocking {
            bm,
            bn,
            bk,
            wm,
            wn,
            stages,
            group,
            blocks,
            mma,
        })
    };
    [Mma::F64K16, Mma::F64K8, Mma::F64K4, Mma::F64M8K4].into_iter().flat_map(of).filter(Blocking::fits).collect()
}

const ROWS: [Order2d; 3] = [Order2d::RowMajor; 3];

fn name(b: &Blocking) -> String {
    let Blocking { bm, bn, bk, wm, wn, stages, group, blocks, mma } = b;
    let [m, _, k] = mma.shape();
    format!("{bm}x{bn}x{bk}_{wm}x{wn}_s{stages}_g{group}_b{blocks}_m{m}k{k}")
}

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [flag, folder] = &args[..]
        && flag == "--ptx"
    {
        for b in blockings() {
            std::fs::write(format!("{folder}/{}.ptx", name(&b)), ptx::print(&check(dmma(b, ROWS, [true; 3]))?)?.text)?;
        }
        return Ok(());
    }
    let size = args.first().map_or(Ok(4096), |s| s.parse())?;
    let rounds = args.get(1).map_or(Ok(9), |s| s.parse())?;
    time(size, rounds)
}

fn time(size: usize, rounds: usize) -> Result<(), Box<dyn Error>> {
    let gpu = Gpu::open(0)?;
    let (major, minor) = gpu.info().compute;
    let shape = Shape::new(size, size);
    let (a, b) = (random(&gpu, shape, 1)?, random(&gpu, shape, 2)?);
    let tiled = check(Variant::new(Family::Tiled, Type::F64, 32).build()?)?;
    let mut kernels: Vec<(String, Checked<Kernel>)> = Vec::new();
    for blocking in blockings().into_iter().filter(|b| (major, minor) == (9, 0) || b.mma == Mma::F64M8K4) {
        kernels.push((name(&blocking), check(dmma(blocking, ROWS, [true; 3]))?));
    }
    let reference = DeviceMatrix::<f64>::zeros(&gpu, shape)?;
    run(&gpu, &tiled, [&a, &b, &reference])?;
    let reference = reference.download()?;
    let bound = 2.0 * (size as f64 + 2.0) * f64::EPSILON * size as f64 / 4.0;
    let mut seconds = vec![Vec::new(); kernels.len()];
    let mut verdicts = vec![String::new(); kernels.len()];
    for round in 0..rounds + 2 {
        for (i, (_, kernel)) in kernels.iter().enumerate() {
            if round == 0 {
                let c = DeviceMatrix::<f64>::zeros(&gpu, shape)?;
                verdicts[i] = match run(&gpu, kernel, [&a, &b, &c]) {
                    Ok(()) => {
                        let c = c.download()?;
                        let worst = c.as_slice().iter().zip(reference.as_slice());
                        let worst = worst.map(|(x, y)| (x - y).abs()).fold(0.0, |w: f64, d| if d <= w { w } else { d });
                        format!("{} (off by at most {worst:.1e})", if worst <= bound { "right" } else { "WRONG" })
                    }
                    Err(why) => format!("FAILED: {why}"),
                };
            }
            let c = DeviceMatrix::<f64>::uninit(&gpu, shape)?;
            if verdicts[i].starts_with("FAILED") {
                continue;
            }
            let took = gpu.time(|| run(&gpu, kernel, [&a, &b, &c]))?;
            if round >= 2 {
                seconds[i].push(took);
            }
        }
    }
    println!("{} {size}³, median of {rounds} interleaved", gpu.info().name);
    for (((name, _), seconds), verdict) in kernels.iter().zip(&mut seconds).zip(&verdicts) {
        seconds.sort_by(f64::total_cmp);
        let rate = |at: usize| seconds.get(at).map_or(0.0, |s| 2.0 * (size as f64).powi(3) / s / 1e12);
        println!("{name:45} {:7.2} TFLOP/s (best {:7.2})  {verdict}", rate(rounds / 2), rate(0));
    }
    Ok(())
}

fn run(gpu: &Gpu, kernel: &Checked<Kernel>, matrices: [&DeviceMatrix<f64>; 3]) -> tegula::Result<()> {
    let matrix = |m: &&DeviceMatrix<f64>| {
        let Shape { rows, cols, .. } = m.shape();
        let layout = Layout { shape: Shape::new(rows, cols), offset: 0, strides: [0, cols as isize, 1] };
        (layout, cols)
    };
    let mut args: Vec<cuda::Arg<'_>> = matrices
        .iter()
        .map(|m| cuda::Arg::Matrix { ty: Type::F64, layout: matrix(m).0, memory: m.buffer().memory() })
        .collect();
    args.extend([1f64, 0.0].map(|x| cuda::Arg::Scalar { ty: Type::F64, bits: x.to_bits() }));
    // SAFETY: the kernel guards its edges, and the matrices have the shapes that the arguments say.
    unsafe { gpu.run(kernel, &args) }
}

fn random(gpu: &Gpu, shape: Shape, seed: u64) -> tegula::Result<DeviceMatrix<f64>> {
    let mut state = seed;
    let matrix = Matrix::from_fn(shape, |_, _, _| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 11) as f64 / (1u64 << 53) as f64 - 0.5
    })?;
    DeviceMatrix::upload(gpu, matrix.view())
}
