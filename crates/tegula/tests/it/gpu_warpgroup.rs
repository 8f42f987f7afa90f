//! Compares `wgmma` on the GPU with the interpreter's model, bit for bit, and kernels that use it.
//!
//! Only sm_90 supports it; elsewhere only the interpreter runs, and the GPU is skipped.
#![cfg(feature = "cuda")]

use tegula::cuda::{self, DeviceElement, DeviceMatrix, Gpu};
use tegula::element::{Type, bf16, f16};
use tegula::interpret;
use tegula::{Device, Gemm, Layout, Matrix, Shape};
use tegula_interp::{self as interp, Arg, Config};
use tegula_ir::prelude::*;
use tegula_kernels::plan::{Plan, Recipe};

use crate::effort::full;
use crate::gpu::gpu;
use crate::gpu_matrix::{Format, KINDS, Numbers, SINGLE};
use crate::pipelines::random_product;
use crate::product::Random;

/// Instructions per case.
const INSTRUCTIONS: usize = 12;
const M: u32 = Wgmma::M;
const K: u32 = Wgmma::K;

fn hopper_gpu() -> Option<Gpu> {
    gpu().filter(|gpu| {
        let fits = gpu.info().compute == (9, 0);
        if !fits {
            println!("skipped: {:?} has no wgmma", gpu.info().compute);
        }
        fits
    })
}

/// C += A·Bᵀ with one instruction per block, of 64 rows of A and C, and n rows of B.
fn multiply<T: Element>(n: u32) -> Kernel {
    kernel(&format!("wgmma_{n}"), Block::d1(Wgmma::THREADS), |k| {
        let tiles = |rows| Tiles { rows, cols: K, swizzle: Swizzle::B32, clipped: false };
        let a = k.tensor::<T>("a", Access::Read, Order2d::RowMajor, tiles(M));
        let b = k.tensor::<T>("b", Access::Read, Order2d::RowMajor, tiles(n));
        let c = k.matrix::<f32>("c", Access::ReadWrite, Order2d::RowMajor, 1);
        k.grid([c.rows() / M, k.constant(1), k.constant(1)]);
        let (tile_a, tile_b) =
            (k.tiles::<T>("tile_a", 1, [M, K], Swizzle::B32), k.tiles::<T>("tile_b", 1, [n, K], Swizzle::B32));
        let full = k.mbarriers("full", 1);
        let zero = k.constant(0u32);
        k.when(k.thread_x().eq(0), || {
            full.init(0, 1);
            k.fence_mbarrier_init();
        });
        k.barrier();
        k.when(k.thread_x().eq(0), || {
            full.arrive_expect_tx(0, (M + n) * K * size_of::<T>() as u32);
            tile_a.tma_load(0, a, (k.block_x() * M, 0), (full, zero));
            tile_b.tma_load(0, b, (k.block_x() * n, 0), (full, zero));
        });
        let wgmma = Wgmma { ty: T::TYPE, n };
        let accumulators = k.array::<f32>(wgmma.accumulators());
        let (row, col) = (k.block_x() * M + k.warp() * 16 + k.lane() / 4, k.lane() % 4 * 2);
        let element = |i: u32| (row + i % 4 / 2 * 8, col + (i / 4 * 8 + i % 2));
        (0..accumulators.len()).for_each(|i| accumulators.at(i).set(c.load(element(i))));
        full.wait(0, 0);
        k.wgmma_fence();
        k.wgmma(
            wgmma,
            tile_a.wgmma_operand((0, 0, 0), true),
            tile_b.wgmma_operand((0, 0, 0), true),
            accumulators,
            true,
        );
        k.wgmma_commit_group();
        k.wgmma_wait_group(0);
        (0..accumulators.len()).for_each(|i| c.store(element(i), accumulators.at(i).get()));
    })
}

/// Runs one case in the interpreter and, if available, on the GPU. Returns the number of
/// accumulators and of differences.
fn case<T: Element + DeviceElement>(
    gpu: Option<&Gpu>,
    format: Format,
    n: u32,
    kind: Numbers,
    seed: u64,
) -> (usize, usize) {
    let (mut random, blocks) = (Random(seed), INSTRUCTIONS);
    let mut operand = |rows: u32| {
        let shape = Shape::new(rows as usize * blocks, K as usize);
        Matrix::from_shape_fn(shape, |_, _, _| T::from_bits(format.number(&mut random, kind))).unwrap()
    };
    let (a, b) = (operand(M), operand(n));
    let shape = Shape::new(M as usize * blocks, n as usize);
    let c =
        Matrix::from_shape_fn(shape, |_, _, _| f32::from_bits(SINGLE.accumulator(&mut random, kind) as u32)).unwrap();
    let kernel = check(multiply::<T>(n)).unwrap();
    let inputs = [&a, &b].map(|matrix| interpret::input(matrix.view()).unwrap());
    let model = interpret::in_out(c.view()).unwrap();
    let args = [Arg::from(&inputs[0]), Arg::from(&inputs[1]), Arg::from(&model)];
    interp::run(&kernel, &args, &Config { seed, ..Config::default() }).unwrap().ok(&kernel).unwrap();
    let model = interpret::to_matrix::<f32>(&model).unwrap();
    let Some(gpu) = gpu else { return (0, 0) };
    let device_inputs = [&a, &b].map(|matrix| DeviceMatrix::upload(gpu, matrix.view()).unwrap());
    let gpu_values = DeviceMatrix::upload(gpu, c.view()).unwrap();
    let layout = |shape| Layout::row_major(shape).unwrap();
    let args = [
        cuda::Arg::Matrix { ty: T::TYPE, layout: layout(a.shape()), memory: device_inputs[0].buffer().memory() },
        cuda::Arg::Matrix { ty: T::TYPE, layout: layout(b.shape()), memory: device_inputs[1].buffer().memory() },
        cuda::Arg::Matrix { ty: Type::F32, layout: layout(shape), memory: gpu_values.buffer().memory() },
    ];
    // SAFETY: the interpreter has verified that the kernel stays in bounds with these arguments.
    unsafe { gpu.run(&kernel, &args).unwrap() };
    let gpu_values = gpu_values.download().unwrap();
    let mut differ = 0;
    for (element, (x, y)) in model.as_slice().iter().zip(gpu_values.as_slice()).enumerate() {
        if x.to_bits() != y.to_bits() && !(x.is_nan() && y.is_nan()) {
            differ += 1;
            if differ <= 3 {
                println!(
                    "{} {kind:?} n {n}, accumulator {element}: GPU {:#x}, model {:#x}",
                    T::TYPE,
                    y.to_bits(),
                    x.to_bits()
                );
            }
        }
    }
    (model.as_slice().len(), differ)
}

#[test]
fn wgmma_on_the_gpu_equals_the_model() {
    let gpu = hopper_gpu();
    let (mut all, mut differing) = (0, 0);
    // Without a GPU the model runs alone, in the quick run for few widths.
    let widths: &[u32] = if gpu.is_some() || full() { &[8, 24, 128, 256] } else { &[8, 24] };
    for (seed, kind) in (0..).zip(KINDS) {
        for &n in widths {
            let half = case::<f16>(gpu.as_ref(), Format::HALF, n, kind, seed);
            let brain = case::<bf16>(gpu.as_ref(), Format::BRAIN, n, kind, 100 + seed);
            all += half.0 + brain.0;
            differing += half.1 + brain.1;
        }
    }
    println!("{all} accumulators compared, {differing} differ");
    assert_eq!(differing, 0);
}

/// Pipelines with every feature. For tile widths that are no multiples of 64 the right operand,
/// here A after the swap, is stored along k.
const PIPELINES: [&str; 28] = [
    "hopper_128x256x64_consumers2_stages4",
    "hopper_128x128x64_consumers2_stages4_cluster2x1",
    "hopper_128x192x64_consumers2_stages4_cluster2x1",
    "hopper_64x128x64_consumers1_stages4_cluster2x2",
    "hopper_192x128x64_consumers3_stages4",
    "hopper_128x128x64_consumers2_stages4_cluster1x2",
    "hopper_64x64x64_consumers1_stages8_cluster4x1",
    "hopper_64x64x64_consumers1_stages8_cluster4x2",
    "hopper_192x80x64_consumers3_stages4_cluster2x4:s",
    "hopper_64x96x64_consumers1_stages8_cluster2x1_clusterk4:s",
    "hopper_64x72x64_consumers1_stages8_cluster4x1:s",
    "hopper_128x144x64_consumers2_stages4",
    "hopper_64x88x64_consumers1_stages7_cluster4x1:s",
    "hopper_64x80x64_consumers1_stages8_cluster1x4:s",
    "hopper_64x136x64_consumers1_stages6:s",
    "hopper_64x64x64_consumers1_stages8",
    "hopper_64x16x64_consumers1_stages12:s",
    "hopper_128x128x64_consumers2_stages4_clusterk2",
    "hopper_64x64x64_consumers1_stages8:w5",
    "hopper_128x256x64_consumers2_stages4_cluster2x1:w4",
    "hopper_128x128x64_consumers2_stages5_pingpong",
    "hopper_64x256x64_consumers2_stages4_pingpong:s",
    "hopper_64x64x64_consumers2_stages8_cluster2x1_pingpong",
    "hopper_64x104x64_consumers3_stages6_pingpong:s",
    "hopper_128x168x64_consumers2_stages4_cluster2x1_pingpong",
    "hopper_128x176x64_consumers2_stages4_pingpong:s",
    "hopper_128x176x64_consumers2_stages5_cluster2x1_pingpong_raster32",
    "hopper_192x192x64_consumers3_stages3_cluster1x2",
];
/// Pipelines with clipped copies, of few rows of A.
const CLIPPED: [&str; 4] = [
    "hopper_64x64x64_consumers1_stages8_clipped",
    "hopper_64x128x64_consumers1_stages6_clusterk2_clipped",
    "hopper_128x64x64_consumers2_stages6_clipped",
    "hopper_64x64x64_consumers1_stages8_clipped:w5",
];

/// The order of steps along k is fixed, so the bits are the interpreter's.
#[test]
fn pipelines_have_the_interpreters_bits_on_the_gpu() {
    let Some(gpu) = hopper_gpu() else { return };
    for k in [8, 200, 520] {
        compare_bits(&gpu, [328, 264, k], &PIPELINES);
        compare_bits(&gpu, [1, 264, k], &CLIPPED);
        compare_bits(&gpu, [13, 264, k], &CLIPPED);
    }
}

/// Compares the bits of a product on the GPU with those in the interpreter.
fn compare_bits(gpu: &Gpu, [m, n, k]: [usize; 3], names: &[&str]) {
    let random = |seed, rows, cols| {
        let mut random = Random(seed);
        let mut number = || bf16::from_bits(Format::BRAIN.number(&mut random, Numbers::Mixed) as u16);
        Matrix::from_fn(rows, cols, |_, _| number()).unwrap()
    };
    let (a, b, c) = (random(1, m, k), random(2, k, n), random(3, m, n));
    for name in names {
        let recipe = Recipe::named(name, Type::BF16).unwrap();
        let [model, gpu_values] = [Device::interp(), gpu.clone().into()].map(|device| {
            let mut c = c.clone();
            let product = Gemm::new(a.view(), b.view(), c.view_mut()).alpha(1.5).beta(-0.5);
            device.run(&Plan::Gpu(recipe), product).unwrap();
            c
        });
        let bits = |c: &Matrix<bf16>| c.as_slice().iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        assert!(bits(&model) == bits(&gpu_values), "{name}, {m}×{n}×{k}");
    }
}

#[test]
fn random_pipeline_products_on_the_gpu_are_correct() {
    let Some(gpu) = hopper_gpu() else { return };
    let gpu = Device::from(gpu);
    for seed in 0..300 {
        random_product::<bf16>(seed, &gpu);
        random_product::<f16>(1000 + seed, &gpu);
    }
}

/// A chain of products. Each reads the result of the previous one as A, B or bias, or overwrites
/// one of its inputs.
struct Chain {
    first: [DeviceMatrix<bf16>; 2],
    inputs: [DeviceMatrix<bf16>; 3],
    results: [DeviceMatrix<bf16>; 3],
}

impl Chain {
    const SIZE: usize = 320;

    fn new(gpu: &Gpu) -> Self {
        let random = |seed| {
            let mut random = Random(seed);
            let shape = Shape::new(Chain::SIZE, Chain::SIZE);
            let scale = (Chain::SIZE as f32).sqrt();
            let number = |_, _, _| bf16::from_f32((random.below(2001) as f32 / 1000.0 - 1.0) / scale * 2.0);
            DeviceMatrix::upload(gpu, Matrix::from_shape_fn(shape, number).unwrap().view()).unwrap()
        };
        Chain { first: [1, 2].map(random), inputs: [3, 4, 5].map(random), results: [6, 7, 8].map(random) }
    }

    /// Queues the chain, and calls `after_each` after each product.
    fn queue(&mut self, device: &Device, recipe: Recipe, after_each: &dyn Fn()) -> tegula::Result<()> {
        let Chain { first: [a, b], inputs: [d, e, f], results: [x, y, z] } = self;
        let run = |product: Gemm<'_, bf16>| {
            device.run(&Plan::Gpu(recipe), product)?;
            after_each();
            Ok(())
        };
        run(Gemm::new(a.view(), b.view(), x.view_mut()))?;
        run(Gemm::new(x.view(), d.view(), y.view_mut()))?;
        run(Gemm::new(e.view(), y.view(), z.view_mut()))?;
        let bias = z.view().rows(..1)?;
        run(Gemm::new(x.view(), f.view(), y.view_mut()).beta(0.5).bias(bias))?;
        run(Gemm::new(y.view(), z.view(), x.view_mut()).beta(1.0))?;
        run(Gemm::new(x.view(), y.view(), z.view_mut()))
    }

    fn bits(&self) -> Vec<Vec<u16>> {
        let bits =
            |results: &DeviceMatrix<bf16>| results.download().unwrap().as_slice().iter().map(|x| x.to_bits()).collect();
        self.results.iter().map(bits).collect()
    }
}

/// Launches start before their predecessors end; results equal those of serialized launches.
#[test]
fn overlapping_launches_wait_for_their_inputs() {
    let Some(gpu) = hopper_gpu() else { return };
    let device = Device::from(gpu.clone());
    for name in [
        "hopper_64x64x64_consumers1_stages8",
        "hopper_128x128x64_consumers2_stages4_cluster2x1",
        "hopper_64x128x64_consumers1_stages4_cluster2x2",
        "hopper_64x64x64_consumers1_stages8_cluster1x4",
        "hopper_64x64x64_consumers1_stages8_cluster2x4",
        "hopper_192x64x64_consumers3_stages4",
        "hopper_64x64x64_consumers1_stages8_clusterk4",
        "hopper_64x64x64_consumers1_stages8:w132",
        "hopper_64x64x64_consumers1_stages8:2",
        "hopper_64x64x64_consumers1_stages8:pab",
    ] {
        let recipe = Recipe::named(name, Type::BF16).unwrap();
        let (mut serialized, mut overlapped, mut captured) = (Chain::new(&gpu), Chain::new(&gpu), Chain::new(&gpu));
        // Loads the kernels and allocates the workspace.
        Chain::new(&gpu).queue(&device, recipe, &|| ()).unwrap();
        let graph = gpu.capture(|| captured.queue(&device, recipe, &|| ())).unwrap();
        for round in 0..20 {
            serialized.queue(&device, recipe, &|| gpu.synchronize().unwrap()).unwrap();
            overlapped.queue(&device, recipe, &|| ()).unwrap();
            // SAFETY: the matrices are alive and where they were, and all work is on one stream.
            unsafe { graph.launch() }.unwrap();
            let expected = serialized.bits();
            assert!(overlapped.bits() == expected, "{name}, round {round}");
            assert!(captured.bits() == expected, "{name} captured, round {round}");
        }
    }
}
