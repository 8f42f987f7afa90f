//! Blocked kernels in the interpreter: correct for any shape, layout and split, with the bits of
//! the plain kernels, and without races or bank conflicts.

use tegula::element::{Scalar, Type, bf16, f16};
use tegula::interpret;
use tegula::{Accuracy, Device, Error, Gemm, Matrix, Shape, View};
use tegula_interp::{Arg, Buffer, Config, Counters, run};
use tegula_ir::{Order2d, check};
use tegula_kernels::plan::{Plan, Recipe, Split};
use tegula_kernels::{Blocked, Blocking, Plain, PlainKind};

use super::effort::seeds;
use super::product::{Product, Random, Sample, StorageLayout};

/// Small tiles, so that small products have several; otherwise like the large configurations.
pub const REGISTER: [&str; 5] = [
    "register_32x64x16_warp16x32_thread4x4_stages3",
    "register_32x32x8_warp16x32_thread4x4_stages2_blocks2",
    "register_64x32x16_warp32x16_thread4x4_stages4",
    "register_32x32x16_warp32x32_thread8x4_stages3_slices2",
    "register_32x64x32_warp32x32_thread4x8_stages2_slices4",
];

pub const DMMA: [&str; 7] = [
    "dmma16x16_64x64x32_warp32x32_thread16x16_stages3",
    // One row of products per step: none precedes the barrier.
    "dmma16x16_32x32x16_warp16x16_thread16x16_stages3",
    "dmma16x8_64x64x16_warp32x32_thread16x8_stages3",
    "dmma16x4_64x64x16_warp32x32_thread16x4_stages4",
    "dmma8x4_64x64x32_warp32x32_thread8x4_stages2",
    "dmma16x8_32x32x64_warp32x32_thread16x16_stages3_slices4",
    "dmma16x16_64x64x32_warp64x32_thread16x16_stages2_slices2",
];

pub const HALVES: [&str; 4] = [
    "mma_64x64x32_warp32x32_thread16x8_stages3",
    "mma_64x128x64_warp32x32_thread16x8_stages2",
    "mma_128x32x32_warp32x32_thread16x8_stages4",
    "mma_64x64x128_warp64x16_thread16x8_stages2",
];

pub const BYTES: [&str; 4] = [
    "mma_64x64x64_warp32x32_thread16x8_stages3",
    "mma_128x32x64_warp32x32_thread16x8_stages4",
    "mma_32x128x128_warp16x64_thread16x8_stages2",
    "mma_128x128x64_warp32x64_thread16x8_stages3",
];

pub const LIMBS: [&str; 3] = [
    "limbs_64x32x32_warp32x16_thread16x8_stages3",
    "limbs_32x64x32_warp16x32_thread16x8_stages3",
    "limbs_64x64x32_warp32x32_thread16x8_stages3",
];

pub const TF32: [&str; 4] = [
    "tf32_64x64x16_warp32x32_thread16x8_stages3",
    "tf32_64x128x32_warp32x32_thread16x8_stages2",
    "tf32_128x32x16_warp32x32_thread16x8_stages4",
    "tf32_64x64x64_warp64x16_thread16x8_stages2",
];

fn random_product<T: Sample>(seed: u64, blockings: &[&str]) {
    random_product_at::<T>(seed, blockings, Accuracy::Full);
}

fn random_product_at<T: Sample>(seed: u64, blockings: &[&str], accuracy: Accuracy) {
    let random = &mut Random(seed);
    let blocking = blockings[random.below(blockings.len())];
    let mut sizes = [1 + random.below(3) / 2, 1 + random.below(80), 1 + random.below(90), random.below(70)];
    if random.chance(2) {
        // Rows and columns that allow 16-byte accesses.
        sizes[1..].iter_mut().for_each(|size| *size = size.next_multiple_of(16 / size_of::<T>()));
    }
    let product = Product::<T>::random(sizes, random);
    let split = match random.below(4) {
        0 | 1 => Split::Whole,
        2 => Split::SplitK(2 + random.below(10) as u32),
        _ => Split::StreamK(1 + random.below(9) as u32),
    };
    // Most kernels take matrices in place; some are packed.
    let packed = [random.chance(3), random.chance(3)];
    let recipe = Recipe { split, packed, ..Blocked::named(blocking, T::TYPE).unwrap().into() };
    let bits = product.run_recipe_at(&Device::interp(), recipe, accuracy);
    if split == Split::Whole && blocking.starts_with("register") && !blocking.contains("_slices") {
        let plain = product.run_recipe(&Device::interp(), Plain::new(PlainKind::Tiled, T::TYPE, 8).into());
        assert_eq!(bits, plain, "{blocking}: bits differ from the plain kernel's");
    }
}

#[test]
fn random_register_products_are_correct() {
    for seed in 0..seeds(10, 30) {
        random_product::<f32>(seed, &REGISTER);
        random_product::<i32>(1000 + seed, &REGISTER);
        random_product::<f64>(2000 + seed, &REGISTER[..4]);
    }
}

#[test]
fn random_dmma_products_are_correct() {
    for seed in 0..seeds(20, 60) {
        random_product::<f64>(3000 + seed, &DMMA);
    }
}

/// Tiles of other sides than powers of two need operands contiguous along k.
#[test]
fn dmma_tiles_of_48_rows_are_correct() {
    let random = &mut Random(1);
    for split in [Split::Whole, Split::SplitK(3), Split::StreamK(2), Split::Whole] {
        let product = loop {
            let sizes = [1, 1 + random.below(100), 1 + random.below(200), 1 + random.below(300)];
            let product = Product::<f64>::random(sizes, random);
            if product.orders()[..2] == [Order2d::RowMajor, Order2d::ColMajor] {
                break product;
            }
        };
        let kernel = Blocked::named("dmma16x8_48x96x64_warp48x48_thread16x16_stages3_slices4", Type::F64).unwrap();
        product.run_recipe(&Device::interp(), Recipe { split, ..kernel.into() });
    }
}

#[test]
fn random_tensor_core_products_are_correct() {
    for seed in 0..seeds(12, 60) {
        random_product::<f16>(4000 + seed, &HALVES);
        random_product::<bf16>(5000 + seed, &HALVES);
        random_product::<i8>(6000 + seed, &BYTES);
        random_product::<i32>(7000 + seed, &LIMBS);
        random_product_at::<f32>(8000 + seed, &TF32, Accuracy::Tf32);
    }
}

#[test]
fn tf32_operands_are_rounded_to_nearest() {
    // Includes values halfway between two tf32 numbers, just below and just above.
    let a = Matrix::from_fn(64, 64, |row, col| {
        let bits = (row * 64 + col) as u32;
        f32::from_bits(1f32.to_bits() + bits / 3 * 0x1000 + bits % 3 - 1)
    });
    let (a, one) = (a.unwrap(), Matrix::from_fn(64, 64, |row, col| f32::from(row == col)).unwrap());
    let rounded = |x: f32| f32::from_bits((x.to_bits() + 0x1000) & !0x1fff);
    let expected: Vec<f32> = a.as_slice().iter().map(|&x| rounded(x)).collect();
    for name in TF32 {
        let recipe = Recipe::named(name, Type::F32).unwrap();
        let mut c = Matrix::<f32>::zeros(64, 64).unwrap();
        for [a, b] in [[a.view(), one.view()], [one.view(), a.view()]] {
            for (a, b) in [(a, b), (b.t(), a.t())] {
                let product = Gemm::new(a, b, c.view_mut());
                Device::interp().run(&Plan::Gpu(recipe), product).unwrap();
                let found =
                    if a.layout().strides[1] == 1 { Matrix::from_view(c.view().t()).unwrap() } else { c.clone() };
                assert!(found.as_slice() == expected, "{name}");
            }
        }
    }
}

/// A block computes several tiles with large k.
#[test]
fn stream_k_blocks_leave_no_state_between_tiles() {
    fn clean<T: Sample>(names: &[&str]) {
        for (seed, name) in (9000..).zip(names).take(seeds(2, 5) as usize) {
            let product = Product::<T>::random([1, 150, 170, 200], &mut Random(seed));
            let recipe = Recipe { split: Split::StreamK(5), ..Blocked::named(name, T::TYPE).unwrap().into() };
            product.run_recipe(&Device::interp(), recipe);
        }
    }
    clean::<f32>(&REGISTER);
    clean::<f64>(&DMMA);
    clean::<f16>(&HALVES);
    clean::<i8>(&BYTES);
    clean::<i32>(&LIMBS);
}

/// Every split has a fixed order of additions, so the interpreter's bits are the GPU's on every
/// run.
#[cfg(feature = "cuda")]
#[test]
fn split_products_have_the_interpreters_bits_on_the_gpu() {
    fn same<T: Sample>(gpu: &Device, name: &str, split: Split, random: &mut Random) {
        let sizes = [1 + random.below(2), 100 + random.below(150), 100 + random.below(150), 200 + random.below(200)];
        let (shape, [batches, m, n, k]) = (|batches, rows, cols| Shape { batches, rows, cols }, sizes);
        let mut draw = |shape| Matrix::from_shape_fn(shape, |_, _, _| T::element(random)).unwrap();
        let (a, b) = (draw(shape(batches, m, k)), draw(shape(batches, k, n)));
        let recipe = Recipe { split, ..Blocked::named(name, T::TYPE).unwrap().into() };
        let run = |device: &Device| {
            let mut c = Matrix::<T::Out>::zeros_of_shape(shape(batches, m, n)).unwrap();
            device.run(&Plan::Gpu(recipe), Gemm::new(a.view(), b.view(), c.view_mut())).unwrap();
            c.as_slice().iter().map(|x| x.to_bits()).collect::<Vec<_>>()
        };
        let expected = run(&Device::interp());
        (0..5).for_each(|_| assert!(run(gpu) == expected, "{name} {split:?} {sizes:?}"));
    }
    let Some(gpu) = crate::gpu::gpu() else { return };
    let modern = gpu.info().compute == (9, 0);
    let gpu = Device::from(gpu);
    let random = &mut Random(77);
    for split in [Split::Whole, Split::SplitK(3), Split::StreamK(5), Split::StreamK(37)] {
        REGISTER.iter().for_each(|name| same::<f32>(&gpu, name, split, random));
        REGISTER.iter().for_each(|name| same::<i32>(&gpu, name, split, random));
        DMMA.iter()
            .filter(|name| modern || name.starts_with("dmma8x4"))
            .for_each(|name| same::<f64>(&gpu, name, split, random));
        LIMBS.iter().for_each(|name| same::<i32>(&gpu, name, split, random));
        BYTES.iter().for_each(|name| same::<i8>(&gpu, name, split, random));
        // The interpreter models the Tensor Cores of such a GPU.
        if modern {
            HALVES.iter().for_each(|name| same::<f16>(&gpu, name, split, random));
            HALVES.iter().for_each(|name| same::<bf16>(&gpu, name, split, random));
            TF32.iter().for_each(|name| same::<f32>(&gpu, name, split, random));
        }
    }
}

/// Counters of a product of whole tiles, as in the main loop of a large product.
fn main_loop<T: Sample>(name: &str, layouts: [StorageLayout; 3]) -> Counters {
    let blocked = Blocked::named(name, T::TYPE).unwrap();
    let Blocking { block: [bm, bn, bk], .. } = blocked.blocking;
    let random = &mut Random(1);
    let scalars = (T::Acc::ONE, T::Acc::ZERO);
    let product = Product::<T>::new([1, bm as usize, bn as usize, 4 * bk as usize], layouts, random, scalars);
    let blocked = Blocked { aligned_16: [true; 3], orders: product.orders(), ..blocked };
    let kernel = check(blocked.build().unwrap()).unwrap();
    let oriented =
        |transposed: bool, view: View<'_, T>| interpret::input(if transposed { view.t() } else { view }).unwrap();
    let [a_transposed, b_transposed] = blocked.transposed();
    let (a, b) = (oriented(a_transposed, product.a()), oriented(b_transposed, product.b()));
    let c = Buffer::output(<T::Out as Scalar>::TYPE, product.initial_c().layout()).unwrap();
    let args = [Arg::from(&a), Arg::from(&b), Arg::from(&c), Arg::scalar(T::Acc::ONE), Arg::scalar(T::Acc::ZERO)];
    let outcome = run(&kernel, &args, &Config::default()).unwrap();
    assert_eq!(outcome.error(), None, "{blocked}");
    outcome.counters
}

#[test]
fn large_tiles_have_no_bank_conflicts() {
    let column_major = StorageLayout { transposed: true, ..StorageLayout::default() };
    for a in [StorageLayout::default(), column_major] {
        for b in [StorageLayout::default(), column_major] {
            let layouts = [a, b, StorageLayout::default()];
            for register in [
                "register_128x256x8_warp64x64_thread8x16_stages4",
                "register_64x128x16_warp32x64_thread8x8_stages3_slices2",
            ] {
                let counters = main_loop::<f32>(register, layouts);
                assert_eq!(counters.shared_bank_conflicts, 0, "{register} {a:?} {b:?}: {counters:?}");
            }
            let counters = main_loop::<f64>("dmma16x16_128x128x16_warp32x64_thread16x16_stages4", layouts);
            assert_eq!(counters.shared_bank_conflicts, 0, "{a:?} {b:?}: {counters:?}");
            // Every load from shared memory is 16 bytes wide.
            assert_eq!(counters.shared_load_elements, 64 * counters.shared_load_requests);
        }
    }
}

#[test]
fn large_tensor_core_tiles_have_no_bank_conflicts() {
    let column_major = StorageLayout { transposed: true, ..StorageLayout::default() };
    for a in [StorageLayout::default(), column_major] {
        for b in [StorageLayout::default(), column_major] {
            let layouts = [a, b, StorageLayout::default()];
            for f16_name in
                ["mma_128x256x32_warp64x64_thread16x8_stages4", "mma_128x128x64_warp64x32_thread16x8_stages3"]
            {
                let counters = main_loop::<f16>(f16_name, layouts);
                assert_eq!(counters.shared_bank_conflicts, 0, "{f16_name} {a:?} {b:?}: {counters:?}");
            }
        }
    }
    // The other types are packed along k.
    let layouts = [StorageLayout::default(), column_major, StorageLayout::default()];
    for (tf32_name, i8_name) in [
        ("tf32_128x256x16_warp64x64_thread16x8_stages4", "mma_128x256x64_warp64x64_thread16x8_stages4"),
        ("tf32_128x128x32_warp64x32_thread16x8_stages3", "mma_128x128x128_warp64x32_thread16x8_stages3"),
    ] {
        for counters in [main_loop::<f32>(tf32_name, layouts), main_loop::<i8>(i8_name, layouts)] {
            assert_eq!(counters.shared_bank_conflicts, 0, "{tf32_name} {i8_name}: {counters:?}");
        }
        let counters = main_loop::<i32>("limbs_128x64x32_warp32x32_thread16x8_stages3", layouts);
        assert_eq!(counters.shared_bank_conflicts, 0, "limbs: {counters:?}");
    }
}

#[test]
fn invalid_blockings_are_errors() {
    for name in [
        "register_33x64x16_warp33x64_thread8x8_stages3",
        "dmma16x16_64x64x24_warp32x32_thread16x16_stages3",
        "dmma16x16_",
        "wide_1x1",
    ] {
        let result = Blocked::named(name, Type::F64).and_then(|blocked| blocked.build());
        assert!(matches!(result, Err(Error::KernelOption(_))), "{name}");
    }
    assert!(Blocked::named("dmma16x16_64x64x32_warp32x32_thread16x16_stages3", Type::F32).unwrap().build().is_err());
    assert!(Blocked::named("mma_64x64x32_warp32x32_thread16x8_stages3", Type::F32).is_err());
    assert!(Blocked::named("tf32_64x64x32_warp32x32_thread16x8_stages3", Type::F64).unwrap().build().is_err());
    for name in [
        "mma_64x64x16_warp32x32_thread16x8_stages3",
        "mma_64x64x32_warp64x64_thread16x8_stages3",
        "mma_96x64x32_warp32x32_thread16x8_stages3",
    ] {
        assert!(Blocked::named(name, Type::F16).unwrap().build().is_err(), "{name}");
    }
    for (name, ty) in [
        ("limbs_64x64x64_warp32x32_thread16x8_stages3", Type::I32),
        ("limbs_64x64x32_warp32x32_thread16x8_stages3", Type::F32),
    ] {
        assert!(Blocked::named(name, ty).unwrap().build().is_err(), "{name}");
    }
}
