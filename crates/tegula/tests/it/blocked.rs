//! Kernels with a tile of C a block, in the interpreter: right for any shape, layout and split, with the bits of the plain kernels, and
//! without races or bank conflicts.

use tegula::element::{Scalar, Type, bf16, f16};
use tegula::interpret;
use tegula::{Accuracy, Device, Error, Gemm, Matrix, Shape, View};
use tegula_interp::{Arg, Buffer, Config, Counters, run};
use tegula_ir::check;
use tegula_kernels::plan::{Plan, Recipe, Split};
use tegula_kernels::{Blocked, Blocking, Family, Plain};

use super::effort::seeds;
use super::product::{Lie, Product, Random, Sample};

/// Small tiles, so that small products have several; the way of the large ones.
pub const REGISTER: [&str; 5] = [
    "register_32x64x16_16x32_4x4_3_1_1",
    "register_32x32x8_16x32_4x4_2_1_2",
    "register_64x32x16_32x16_4x4_4_1_1",
    "register_32x32x16_32x32_8x4_3_2_1",
    "register_32x64x32_32x32_4x8_2_4_1",
];

pub const DMMA: [&str; 5] = [
    "dmma16x16_64x64x32_32x32_16x16_3_1_1",
    // A step of one row of products: nothing comes before its barrier.
    "dmma16x16_32x32x16_16x16_16x16_3_1_1",
    "dmma16x8_64x64x16_32x32_16x8_3_1_1",
    "dmma16x4_64x64x16_32x32_16x4_4_1_1",
    "dmma8x4_64x64x32_32x32_8x4_2_1_1",
];

pub const HALVES: [&str; 4] = [
    "mma_64x64x32_32x32_16x8_3_1_1",
    "mma_64x128x64_32x32_16x8_2_1_1",
    "mma_128x32x32_32x32_16x8_4_1_1",
    "mma_64x64x128_64x16_16x8_2_1_1",
];

pub const BYTES: [&str; 4] = [
    "mma_64x64x64_32x32_16x8_3_1_1",
    "mma_128x32x64_32x32_16x8_4_1_1",
    "mma_32x128x128_16x64_16x8_2_1_1",
    "mma_128x128x64_32x64_16x8_3_1_1",
];

pub const LIMBS: [&str; 3] =
    ["limbs_64x32x32_32x16_16x8_3_1_1", "limbs_32x64x32_16x32_16x8_3_1_1", "limbs_64x64x32_32x32_16x8_3_1_1"];

pub const TF32: [&str; 4] = [
    "tf32_64x64x16_32x32_16x8_3_1_1",
    "tf32_64x128x32_32x32_16x8_2_1_1",
    "tf32_128x32x16_32x32_16x8_4_1_1",
    "tf32_64x64x64_64x16_16x8_2_1_1",
];

fn any_product<T: Sample>(seed: u64, blockings: &[&str]) {
    any_product_of::<T>(seed, blockings, Accuracy::Full);
}

fn any_product_of<T: Sample>(seed: u64, blockings: &[&str], accuracy: Accuracy) {
    let random = &mut Random(seed);
    let blocking = blockings[random.below(blockings.len())];
    let mut sizes = [1 + random.below(3) / 2, 1 + random.below(80), 1 + random.below(90), random.below(70)];
    if random.chance(2) {
        // Rows and columns that can be taken 16 bytes at once.
        sizes[1..].iter_mut().for_each(|size| *size = size.next_multiple_of(16 / size_of::<T>()));
    }
    let product = Product::<T>::random(sizes, random);
    let split = match random.below(4) {
        0 | 1 => Split::Whole,
        2 => Split::Parts(2 + random.below(10) as u32),
        _ => Split::Workers(1 + random.below(9) as u32),
    };
    // Most kernels take matrices as they lie, or packed.
    let packed = [random.chance(3), random.chance(3)];
    let recipe = Recipe { split, packed, ..Blocked::named(blocking, T::TYPE).unwrap().into() };
    let bits = product.by_recipe_at(&Device::interp(), recipe, accuracy);
    if split == Split::Whole
        && blocking.starts_with("register")
        && !blocking.ends_with("_2_1")
        && !blocking.ends_with("_4_1")
    {
        let plain = product.by_recipe(&Device::interp(), Plain::new(Family::Tiled, T::TYPE, 8).into());
        assert_eq!(bits, plain, "{blocking}: sums in another order than the plain kernel's");
    }
}

#[test]
fn any_product_of_registers_is_right() {
    for seed in 0..30 {
        any_product::<f32>(seed, &REGISTER);
        any_product::<i32>(1000 + seed, &REGISTER);
        any_product::<f64>(2000 + seed, &REGISTER[..4]);
    }
}

#[test]
fn any_product_of_matrix_instructions_is_right() {
    for seed in 0..60 {
        any_product::<f64>(3000 + seed, &DMMA);
    }
}

#[test]
fn any_product_of_short_numbers_is_right() {
    for seed in 0..seeds(12, 60) {
        any_product::<f16>(4000 + seed, &HALVES);
        any_product::<bf16>(5000 + seed, &HALVES);
        any_product::<i8>(6000 + seed, &BYTES);
        any_product::<i32>(7000 + seed, &LIMBS);
        any_product_of::<f32>(8000 + seed, &TF32, Accuracy::Tf32);
    }
}

#[test]
fn tf32_is_f32_rounded_to_nearest() {
    // Also halfway between two numbers of tf32, just below and just above.
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

/// A block makes one tile after another, long ones.
#[test]
fn shared_tiles_follow_each_other_without_a_trace() {
    fn clean<T: Sample>(names: &[&str]) {
        for (seed, name) in (9000..).zip(names) {
            let product = Product::<T>::random([1, 150, 170, 200], &mut Random(seed));
            let recipe = Recipe { split: Split::Workers(5), ..Blocked::named(name, T::TYPE).unwrap().into() };
            product.by_recipe(&Device::interp(), recipe);
        }
    }
    clean::<f32>(&REGISTER);
    clean::<f64>(&DMMA);
    clean::<f16>(&HALVES);
    clean::<i8>(&BYTES);
    clean::<i32>(&LIMBS);
}

/// Sums are added in one order, however they are split: the interpreter's bits are the GPU's, run after run.
#[cfg(feature = "cuda")]
#[test]
fn splits_have_the_same_bits_on_the_gpu() {
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
        let here = run(&Device::interp());
        (0..5).for_each(|_| assert!(run(gpu) == here, "{name} {split:?} {sizes:?}"));
    }
    let Some(gpu) = crate::gpu::gpu() else { return };
    let modern = gpu.info().compute == (9, 0);
    let gpu = Device::from(gpu);
    let random = &mut Random(77);
    for split in [Split::Whole, Split::Parts(3), Split::Workers(5), Split::Workers(37)] {
        REGISTER.iter().for_each(|name| same::<f32>(&gpu, name, split, random));
        REGISTER.iter().for_each(|name| same::<i32>(&gpu, name, split, random));
        DMMA.iter()
            .filter(|name| modern || name.starts_with("dmma8x4"))
            .for_each(|name| same::<f64>(&gpu, name, split, random));
        LIMBS.iter().for_each(|name| same::<i32>(&gpu, name, split, random));
        BYTES.iter().for_each(|name| same::<i8>(&gpu, name, split, random));
        // The interpreter's sums of short floats are those of such a GPU.
        if modern {
            HALVES.iter().for_each(|name| same::<f16>(&gpu, name, split, random));
            HALVES.iter().for_each(|name| same::<bf16>(&gpu, name, split, random));
            TF32.iter().for_each(|name| same::<f32>(&gpu, name, split, random));
        }
    }
}

/// Whole tiles of row-major matrices: what a large product is made of.
fn main_loop<T: Sample>(name: &str, lies: [Lie; 3]) -> Counters {
    let blocked = Blocked::named(name, T::TYPE).unwrap();
    let Blocking { block: [bm, bn, bk], .. } = blocked.blocking;
    let random = &mut Random(1);
    let factors = (T::Acc::ONE, T::Acc::ZERO);
    let product = Product::<T>::new([1, bm as usize, bn as usize, 4 * bk as usize], lies, random, factors);
    let blocked = Blocked { vectors: [true; 3], orders: product.orders(), ..blocked };
    let kernel = check(blocked.build().unwrap()).unwrap();
    let turn = |turned: bool, view: View<'_, T>| interpret::input(if turned { view.t() } else { view }).unwrap();
    let [a_turned, b_turned] = blocked.turned();
    let (a, b) = (turn(a_turned, product.a()), turn(b_turned, product.b()));
    let c = Buffer::output(<T::Out as Scalar>::TYPE, product.before().layout()).unwrap();
    let args = [Arg::from(&a), Arg::from(&b), Arg::from(&c), Arg::scalar(T::Acc::ONE), Arg::scalar(T::Acc::ZERO)];
    let outcome = run(&kernel, &args, &Config::default()).unwrap();
    assert_eq!(outcome.error(), None, "{blocked}");
    outcome.counters
}

#[test]
fn large_tiles_have_no_bank_conflicts() {
    let columns = Lie { transposed: true, ..Lie::default() };
    for a in [Lie::default(), columns] {
        for b in [Lie::default(), columns] {
            let lies = [a, b, Lie::default()];
            for register in ["register_128x256x8_64x64_8x16_4_1_1", "register_64x128x16_32x64_8x8_3_2_1"] {
                let counters = main_loop::<f32>(register, lies);
                assert_eq!(counters.shared_bank_conflicts, 0, "{register} {a:?} {b:?}: {counters:?}");
            }
            let counters = main_loop::<f64>("dmma16x16_128x128x16_32x64_16x16_4_1_1", lies);
            assert_eq!(counters.shared_bank_conflicts, 0, "{a:?} {b:?}: {counters:?}");
            // Every load from shared memory is 16 bytes wide.
            assert_eq!(counters.shared_load_elements, 64 * counters.shared_load_requests);
        }
    }
}

#[test]
fn large_tiles_of_short_numbers_have_no_bank_conflicts() {
    let columns = Lie { transposed: true, ..Lie::default() };
    for a in [Lie::default(), columns] {
        for b in [Lie::default(), columns] {
            let lies = [a, b, Lie::default()];
            for halves in ["mma_128x256x32_64x64_16x8_4_1_1", "mma_128x128x64_64x32_16x8_3_1_1"] {
                let counters = main_loop::<f16>(halves, lies);
                assert_eq!(counters.shared_bank_conflicts, 0, "{halves} {a:?} {b:?}: {counters:?}");
            }
        }
    }
    // The others are packed along k.
    let lies = [Lie::default(), columns, Lie::default()];
    for (tf32, bytes) in [
        ("tf32_128x256x16_64x64_16x8_4_1_1", "mma_128x256x64_64x64_16x8_4_1_1"),
        ("tf32_128x128x32_64x32_16x8_3_1_1", "mma_128x128x128_64x32_16x8_3_1_1"),
    ] {
        for counters in [main_loop::<f32>(tf32, lies), main_loop::<i8>(bytes, lies)] {
            assert_eq!(counters.shared_bank_conflicts, 0, "{tf32} {bytes}: {counters:?}");
        }
        let counters = main_loop::<i32>("limbs_128x64x32_32x32_16x8_3_1_1", lies);
        assert_eq!(counters.shared_bank_conflicts, 0, "limbs: {counters:?}");
    }
}

#[test]
fn tiles_that_do_not_fit_are_refused() {
    for name in ["register_33x64x16_33x64_8x8_3_1_1", "dmma16x16_64x64x24_32x32_16x16_3_1_1", "dmma16x16_", "wide_1x1"]
    {
        let refused = Blocked::named(name, Type::F64).and_then(|blocked| blocked.build());
        assert!(matches!(refused, Err(Error::KernelOption(_))), "{name}");
    }
    assert!(Blocked::named("dmma16x16_64x64x32_32x32_16x16_3_1_1", Type::F32).unwrap().build().is_err());
    assert!(Blocked::named("mma_64x64x32_32x32_16x8_3_1_1", Type::F32).is_err());
    assert!(Blocked::named("tf32_64x64x32_32x32_16x8_3_1_1", Type::F64).unwrap().build().is_err());
    for name in ["mma_64x64x16_32x32_16x8_3_1_1", "mma_64x64x32_64x64_16x8_3_1_1", "mma_96x64x32_32x32_16x8_3_1_1"] {
        assert!(Blocked::named(name, Type::F16).unwrap().build().is_err(), "{name}");
    }
    for (name, ty) in [("limbs_64x64x64_32x32_16x8_3_1_1", Type::I32), ("limbs_64x64x32_32x32_16x8_3_1_1", Type::F32)] {
        assert!(Blocked::named(name, ty).unwrap().build().is_err(), "{name}");
    }
}
