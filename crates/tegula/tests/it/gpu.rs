//! Compares the GPU with the interpreter, bit for bit: the plain kernels have a fixed order of
//! additions.
//!
//! Without a GPU the test is skipped; `TEGULA_REQUIRE_GPU=1` makes that a failure.
//! `TEGULA_RESULTS=FILE` writes a line per case, with a digest of the result.
#![cfg(feature = "cuda")]

use std::fmt::Write as _;

use sha2::{Digest, Sha256};
use tegula::cuda::{self, DeviceMatrix, Gpu};
use tegula::element::{Element, Scalar, Type, with_operand_type};
use tegula::interpret;
use tegula::{Error, Matrix, Result};
use tegula_interp::{self as interp, Config};
use tegula_ir::check;
use tegula_kernels::{Edges, PRESETS, Plain};

use crate::product::Random;

/// The first GPU, or `None` if none is found and none is required.
pub fn gpu() -> Option<Gpu> {
    match Gpu::open(0) {
        Ok(gpu) => Some(gpu),
        Err(why) if std::env::var_os("TEGULA_REQUIRE_GPU").is_some_and(|v| v == "1") => panic!("no GPU: {why}"),
        Err(why) => {
            println!("skipped: {why}");
            None
        }
    }
}

/// Approximately normal: the centered sum of four uniform numbers.
fn number(random: &mut Random) -> f64 {
    (0..4).map(|_| (random.next() >> 11) as f64 / (1u64 << 53) as f64 - 0.5).sum()
}

/// A random element; with `special`, every fiftieth float is NaN, infinite, zero or subnormal.
fn element<T: Scalar>(random: &mut Random, special: bool) -> T {
    let value = match random.below(250) {
        0 if special => f64::NAN,
        1 if special => f64::INFINITY,
        2 if special => -f64::INFINITY,
        3 if special => -0.0,
        4 if special => 1e-40,
        _ => number(random),
    };
    T::from_bits(if T::TYPE.is_float() { T::TYPE.round(value) } else { random.next() })
}

fn matrix<T: Scalar>(random: &mut Random, rows: usize, cols: usize, special: bool) -> Matrix<T> {
    Matrix::from_fn(rows, cols, |_, _| element(random, special)).unwrap()
}

struct Case {
    name: String,
    m: usize,
    n: usize,
    k: usize,
    special: bool,
    scaled: bool,
}

#[test]
fn gpu_equals_interpreter_bit_for_bit() {
    let Some(gpu) = gpu() else { return };
    let mut results = format!("# {} · driver {:?}\n", gpu.info().name, gpu.info().driver);
    let cubes = [0, 1, 2, 31, 32, 33, 127, 509].map(|n| (n, n, n));
    for preset in PRESETS {
        let variant = Plain::named(preset).unwrap();
        for ty in [Type::F32, Type::F64, Type::I32] {
            let variant = Plain { ty, ..variant };
            for (m, n, k) in cubes.into_iter().chain([(1000, 1001, 1003)]) {
                let tile = variant.tile as usize;
                if variant.edges == Edges::Floor && [m, n, k].iter().any(|x| x % tile != 0) {
                    continue;
                }
                for (special, scaled) in [(false, false), (m == 33 || m == 32, true)] {
                    let case = Case { name: format!("{preset} {variant}"), m, n, k, special, scaled };
                    let digest = with_operand_type!(
                        ty,
                        T => compare::<T>(&gpu, variant, &case),
                        ty => Err(Error::no_kernels(ty))
                    );
                    let digest = digest.unwrap_or_else(|e| panic!("{} {m}×{n}×{k}: {e}", case.name));
                    writeln!(results, "{} {m}×{n}×{k} special={special} scaled={scaled} {digest}", case.name).unwrap();
                }
            }
        }
    }
    if let Some(file) = std::env::var_os("TEGULA_RESULTS") {
        std::fs::write(file, results).unwrap();
    }
}

/// Runs both engines and compares them. Returns the digest of the GPU's result.
fn compare<T: Element>(gpu: &Gpu, variant: Plain, case: &Case) -> Result<String> {
    let &Case { m, n, k, special, scaled, .. } = case;
    let mut random = Random((m * 31 + n * 7 + k) as u64);
    let (a, b) = (matrix::<T>(&mut random, m, k, special), matrix::<T>(&mut random, k, n, special));
    let c = matrix::<T::Out>(&mut random, m, n, special);
    let (alpha, beta) =
        if scaled { (element(&mut random, false), element(&mut random, false)) } else { (Scalar::ONE, Scalar::ZERO) };
    let kernel = check(variant.build()?)?;

    let (on_a, on_b) = (DeviceMatrix::upload(gpu, a.view())?, DeviceMatrix::upload(gpu, b.view())?);
    let mut on_c = DeviceMatrix::upload(gpu, c.view())?;
    let args = [
        cuda::Arg::input(on_a.view())?,
        cuda::Arg::input(on_b.view())?,
        cuda::Arg::output(on_c.view_mut())?,
        cuda::Arg::scalar::<T::Acc>(alpha),
        cuda::Arg::scalar::<T::Acc>(beta),
    ];
    // SAFETY: the kernel stays in bounds: it is guarded, or the sizes are multiples of the tile.
    unsafe { gpu.run(&kernel, &args)? };
    let gpu_result = on_c.download()?;

    let (a, b, c) = (interpret::input(a.view())?, interpret::input(b.view())?, interpret::in_out(c.view())?);
    let args = [(&a).into(), (&b).into(), (&c).into(), interp::Arg::scalar(alpha), interp::Arg::scalar(beta)];
    let config = Config { races: false, counters: false, blocks: sampled_blocks(&variant, case), ..Config::default() };
    let outcome = interp::run(&kernel, &args, &config)?.ok(&kernel)?;
    let interp_result = interpret::to_matrix::<T::Out>(&c)?;

    let mut compared = 0;
    for row in 0..m {
        for col in 0..n {
            if config.blocks.is_some() && !c.written(0, row, col) {
                continue;
            }
            let (x, y) = (gpu_result[[row, col]], interp_result[[row, col]]);
            let nan = x.is_nan() && y.is_nan();
            assert!(x.to_bits() == y.to_bits() || nan, "{} ({row}, {col}): GPU {x:?}, interpreter {y:?}", case.name);
            compared += 1;
        }
    }
    assert!(compared > 0 || m * n == 0, "{}: no elements compared in {} blocks", case.name, outcome.blocks);
    let mut digest = Sha256::new();
    gpu_result.as_slice().iter().for_each(|x| digest.update(x.to_bits().to_le_bytes()));
    let digest: String = digest.finalize()[..8].iter().map(|b| format!("{b:02x}")).collect();
    Ok(format!("compared={compared} sha256={digest}"))
}

/// 64 blocks of a launch that is too large to interpret completely.
fn sampled_blocks(variant: &Plain, case: &Case) -> Option<Vec<[u32; 3]>> {
    if case.m < 1000 {
        return None;
    }
    let mut random = Random(64);
    let tiles = |extent: usize| extent.div_ceil(variant.tile as usize) as u64;
    // Both mappings have at least these blocks along each axis. Blocks outside the grid are
    // skipped, so the corner is added.
    let (x, y) = (tiles(case.m.min(case.n)), tiles(case.m.min(case.n)));
    let mut blocks: Vec<[u32; 3]> =
        (0..63).map(|_| [(random.next() % x) as u32, (random.next() % y) as u32, 0]).collect();
    blocks.push([x as u32 - 1, y as u32 - 1, 0]);
    blocks.sort_unstable();
    blocks.dedup();
    Some(blocks)
}

/// NaN, which differs from itself.
trait IsNan {
    fn is_nan(&self) -> bool;
}

impl<T: PartialEq> IsNan for T {
    #[allow(clippy::eq_op, reason = "only NaN differs from itself")]
    fn is_nan(&self) -> bool {
        self != self
    }
}
