//! Matrix instructions of warpgroups on the GPU against the interpreter's model of them, bit for bit, and whole kernels of them.
//!
//! Only an sm_90 has them; elsewhere the interpreter alone runs, and the test says that the GPU was skipped.
#![cfg(feature = "cuda")]

use tegula::cuda::{self, DeviceMatrix, Gpu, Stored};
use tegula::element::{Type, bf16, f16};
use tegula::interpret;
use tegula::{Device, Gemm, Layout, Matrix, Shape};
use tegula_interp::{self as interp, Arg, Config};
use tegula_ir::prelude::*;
use tegula_kernels::plan::{Plan, Recipe};

use crate::gpu::gpu;
use crate::gpu_matrix::{Format, KINDS, Numbers, SINGLE};
use crate::pipelines::any_product;
use crate::product::Random;

/// Instructions a case.
const INSTRUCTIONS: usize = 12;
const M: u32 = Wgmma::M;
const K: u32 = Wgmma::K;

fn modern() -> Option<Gpu> {
    gpu().filter(|gpu| {
        let fits = gpu.info().compute == (9, 0);
        if !fits {
            println!("skipped: {:?} has no warpgroups that multiply", gpu.info().compute);
        }
        fits
    })
}

/// C += A·Bᵀ by one instruction a block, which has 64 rows of A and C, and n of B.
fn multiply<T: Element>(n: u32) -> Kernel {
    kernel(&format!("wgmma_{n}"), Block::d1(Wgmma::THREADS), |k| {
        let tiles = |rows| Tiles { rows, cols: K, swizzle: Swizzle::B32 };
        let a = k.tensor::<T>("a", Access::Read, Order2d::RowMajor, tiles(M));
        let b = k.tensor::<T>("b", Access::Read, Order2d::RowMajor, tiles(n));
        let c = k.matrix::<f32>("c", Access::ReadWrite, Order2d::RowMajor, 1);
        k.grid([c.rows() / M, k.constant(1), k.constant(1)]);
        let (tile_a, tile_b) =
            (k.tiles::<T>("tile_a", 1, [M, K], Swizzle::B32), k.tiles::<T>("tile_b", 1, [n, K], Swizzle::B32));
        let come = k.barriers("come", 1);
        let zero = k.constant(0u32);
        k.when(k.thread_x().eq(0), || {
            come.init(0, 1);
            k.fence_init();
        });
        k.barrier();
        k.when(k.thread_x().eq(0), || {
            come.expect(0, (M + n) * K * size_of::<T>() as u32);
            tile_a.copy_tile(0, a, (k.block_x() * M, 0), (come, zero));
            tile_b.copy_tile(0, b, (k.block_x() * n, 0), (come, zero));
        });
        let wgmma = Wgmma { ty: T::TYPE, n };
        let sums = k.array::<f32>(wgmma.sums());
        let (row, col) = (k.block_x() * M + k.warp() * 16 + k.lane() / 4, k.lane() % 4 * 2);
        let place = |i: u32| (row + i % 4 / 2 * 8, col + (i / 4 * 8 + i % 2));
        (0..sums.len()).for_each(|i| sums.at(i).set(c.load(place(i))));
        come.wait(0, 0);
        k.wgmma_fence();
        k.wgmma(wgmma, tile_a.factor((0, 0, 0), true), tile_b.factor((0, 0, 0), true), sums, true);
        k.wgmma_commit();
        k.wgmma_wait(0);
        (0..sums.len()).for_each(|i| c.store(place(i), sums.at(i).get()));
    })
}

/// Runs one case in the interpreter and, where there is one, on the GPU; how many sums there are and how many differ.
fn case<T: Element + Stored>(gpu: Option<&Gpu>, format: Format, n: u32, kind: Numbers, seed: u64) -> (usize, usize) {
    let (mut random, blocks) = (Random(seed), INSTRUCTIONS);
    let mut factor = |rows: u32| {
        let shape = Shape::new(rows as usize * blocks, K as usize);
        Matrix::from_shape_fn(shape, |_, _, _| T::from_bits(format.number(&mut random, kind))).unwrap()
    };
    let (a, b) = (factor(M), factor(n));
    let shape = Shape::new(M as usize * blocks, n as usize);
    let c = Matrix::from_shape_fn(shape, |_, _, _| f32::from_bits(SINGLE.number(&mut random, kind) as u32)).unwrap();
    let kernel = check(multiply::<T>(n)).unwrap();
    let inputs = [&a, &b].map(|matrix| interpret::input(matrix.view()).unwrap());
    let here = interpret::in_out(c.view()).unwrap();
    let args = [Arg::from(&inputs[0]), Arg::from(&inputs[1]), Arg::from(&here)];
    interp::run(&kernel, &args, &Config { seed, ..Config::default() }).unwrap().ok(&kernel).unwrap();
    let here = interpret::to_matrix::<f32>(&here).unwrap();
    let Some(gpu) = gpu else { return (0, 0) };
    let on = [&a, &b].map(|matrix| DeviceMatrix::upload(gpu, matrix.view()).unwrap());
    let there = DeviceMatrix::upload(gpu, c.view()).unwrap();
    let layout = |shape| Layout::row_major(shape).unwrap();
    let args = [
        cuda::Arg::Matrix { ty: T::TYPE, layout: layout(a.shape()), memory: on[0].buffer().memory() },
        cuda::Arg::Matrix { ty: T::TYPE, layout: layout(b.shape()), memory: on[1].buffer().memory() },
        cuda::Arg::Matrix { ty: Type::F32, layout: layout(shape), memory: there.buffer().memory() },
    ];
    // SAFETY: the interpreter has just found that these arguments keep the kernel in bounds.
    unsafe { gpu.run(&kernel, &args).unwrap() };
    let there = there.download().unwrap();
    let mut differ = 0;
    for (place, (x, y)) in here.as_slice().iter().zip(there.as_slice()).enumerate() {
        if x.to_bits() != y.to_bits() && !(x.is_nan() && y.is_nan()) {
            differ += 1;
            if differ <= 3 {
                println!("{} {kind:?} n {n}, sum {place}: GPU {:#x}, model {:#x}", T::TYPE, y.to_bits(), x.to_bits());
            }
        }
    }
    (here.as_slice().len(), differ)
}

#[test]
fn instructions_of_warpgroups_are_what_the_model_says() {
    let gpu = modern();
    let (mut all, mut wrong) = (0, 0);
    for (seed, kind) in (0..).zip(KINDS) {
        for n in [8, 24, 128, 256] {
            let half = case::<f16>(gpu.as_ref(), Format::HALF, n, kind, seed);
            let brain = case::<bf16>(gpu.as_ref(), Format::BRAIN, n, kind, 100 + seed);
            all += half.0 + brain.0;
            wrong += half.1 + brain.1;
        }
    }
    println!("{all} sums compared, {wrong} differ");
    assert_eq!(wrong, 0);
}

/// Steps along k follow each other in one order, so the bits are the interpreter's.
#[test]
fn pipelines_have_the_same_bits_on_the_gpu() {
    let Some(gpu) = modern() else { return };
    let (m, n) = (328, 264);
    // Tiles of other widths than multiples of 64 take A, which then is the right factor, as it lies: along k.
    for k in [8, 200, 520] {
        let random =
            |seed, rows, cols| {
                let mut random = Random(seed);
                Matrix::from_fn(rows, cols, |_, _| {
                    bf16::from_bits(Format::BRAIN.number(&mut random, Numbers::Mixed) as u16)
                })
                .unwrap()
            };
        let (a, b, c) = (random(1, m, k), random(2, k, n), random(3, m, n));
        for name in [
            "hopper_128x256x64_2_4_1",
            "hopper_128x128x64_2_4_2",
            "hopper_128x192x64_2_4_2",
            "hopper_64x128x64_1_4_2x2",
            "hopper_192x128x64_3_4_1",
            "hopper_128x128x64_2_4_1x2",
            "hopper_64x64x64_1_8_4",
            "hopper_64x64x64_1_8_4x2",
            "hopper_192x80x64_3_4_2x4:s",
            "hopper_64x96x64_1_8_2_k4:s",
            "hopper_64x72x64_1_8_4:s",
            "hopper_128x144x64_2_4_1",
            "hopper_64x88x64_1_7_4:s",
            "hopper_64x80x64_1_8_1x4:s",
            "hopper_64x136x64_1_6_1:s",
            "hopper_64x64x64_1_8_1",
            "hopper_64x16x64_1_12_1:s",
            "hopper_128x128x64_2_4_1_k2",
            "hopper_64x64x64_1_8_1:w5",
            "hopper_128x256x64_2_4_2:w4",
            "hopper_128x128x64_2_5_1_pp",
            "hopper_64x256x64_2_4_1_pp:s",
            "hopper_64x64x64_2_8_2_pp",
            "hopper_64x104x64_3_6_1_pp:s",
        ] {
            let recipe = Recipe::named(name, Type::BF16).unwrap();
            let [here, there] = [Device::interp(), gpu.clone().into()].map(|device| {
                let mut c = c.clone();
                let product = Gemm::new(a.view(), b.view(), c.view_mut()).alpha(1.5).beta(-0.5);
                device.run(&Plan::Gpu(recipe), product).unwrap();
                c
            });
            let bits = |c: &Matrix<bf16>| c.as_slice().iter().map(|x| x.to_bits()).collect::<Vec<_>>();
            assert!(bits(&here) == bits(&there), "{name}, k {k}");
        }
    }
}

#[test]
fn any_product_of_pipelines_is_right_on_a_gpu() {
    let Some(gpu) = modern() else { return };
    let gpu = Device::from(gpu);
    for seed in 0..300 {
        any_product::<bf16>(seed, &gpu);
        any_product::<f16>(1000 + seed, &gpu);
    }
}

/// Products of which each takes what the one before has made: as A, as B, as the bias, or writes over what it still reads.
struct Chain {
    first: [DeviceMatrix<bf16>; 2],
    other: [DeviceMatrix<bf16>; 3],
    made: [DeviceMatrix<bf16>; 3],
}

impl Chain {
    const SIDE: usize = 320;

    fn new(gpu: &Gpu) -> Self {
        let random = |seed| {
            let mut random = Random(seed);
            let side = Shape::new(Chain::SIDE, Chain::SIDE);
            let scale = (Chain::SIDE as f32).sqrt();
            let number = |_, _, _| bf16::from_f32((random.below(2001) as f32 / 1000.0 - 1.0) / scale * 2.0);
            DeviceMatrix::upload(gpu, Matrix::from_shape_fn(side, number).unwrap().view()).unwrap()
        };
        Chain { first: [1, 2].map(random), other: [3, 4, 5].map(random), made: [6, 7, 8].map(random) }
    }

    /// Queues them, and waits behind each if asked to.
    fn queue(&mut self, device: &Device, recipe: Recipe, wait: &dyn Fn()) -> tegula::Result<()> {
        let Chain { first: [a, b], other: [d, e, f], made: [x, y, z] } = self;
        let run = |product: Gemm<'_, bf16>| {
            device.run(&Plan::Gpu(recipe), product)?;
            wait();
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
            |made: &DeviceMatrix<bf16>| made.download().unwrap().as_slice().iter().map(|x| x.to_bits()).collect();
        self.made.iter().map(bits).collect()
    }
}

/// Launches begin before those before them have ended; what they read and write is as if they waited.
#[test]
fn launches_that_overlap_wait_for_what_they_need() {
    let Some(gpu) = modern() else { return };
    let device = Device::from(gpu.clone());
    for name in [
        "hopper_64x64x64_1_8_1",
        "hopper_128x128x64_2_4_2",
        "hopper_64x128x64_1_4_2x2",
        "hopper_64x64x64_1_8_1x4",
        "hopper_64x64x64_1_8_2x4",
        "hopper_192x64x64_3_4_1",
        "hopper_64x64x64_1_8_1_k4",
        "hopper_64x64x64_1_8_1:w132",
        "hopper_64x64x64_1_8_1:2",
        "hopper_64x64x64_1_8_1:pab",
    ] {
        let recipe = Recipe::named(name, Type::BF16).unwrap();
        let (mut slow, mut fast, mut recorded) = (Chain::new(&gpu), Chain::new(&gpu), Chain::new(&gpu));
        // Loads the kernels, and makes the workspace.
        Chain::new(&gpu).queue(&device, recipe, &|| ()).unwrap();
        let graph = gpu.capture(|| recorded.queue(&device, recipe, &|| ())).unwrap();
        for round in 0..20 {
            slow.queue(&device, recipe, &|| gpu.synchronize().unwrap()).unwrap();
            fast.queue(&device, recipe, &|| ()).unwrap();
            // SAFETY: the matrices are alive and where they were, and all work is on one stream.
            unsafe { graph.launch() }.unwrap();
            let right = slow.bits();
            assert!(fast.bits() == right, "{name}, round {round}");
            assert!(recorded.bits() == right, "{name} recorded, round {round}");
        }
    }
}
