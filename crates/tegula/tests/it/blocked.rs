//! Kernels with a tile of C a block, in the interpreter: right for any shape, layout and split, with the bits of the plain kernels, and
//! without races or bank conflicts.

use tegula::Device;
use tegula::element::Type;
use tegula::interp::{Arg, Buffer, Config, run};
use tegula::ir::check;
use tegula::kernels::{Blocked, Blocking, Core, Family, Plain};
use tegula::plan::Recipe;

use super::product::{Lie, Product, Random, Sample};

/// Small tiles, so that small products have several; the way of the large ones.
const SMALL: [&str; 5] = [
    "32x64x16_16x32_4x4_3_1_1",
    "32x32x8_16x32_4x4_2_1_2",
    "64x32x16_32x16_4x4_4_1_1",
    "32x32x16_32x32_8x4_3_2_1",
    "32x64x32_32x32_4x8_2_4_1",
];

fn blocked(ty: Type, blocking: &str) -> Blocked {
    Blocked::new(Core::Register, ty, blocking.parse().unwrap())
}

fn any_product<T: Sample>(seed: u64) {
    let random = &mut Random(seed);
    let blocking = SMALL[random.below(SMALL.len())];
    // Two elements of 8 bytes are as wide as four of 4.
    let sizes = [1 + random.below(3) / 2, 1 + random.below(80), 1 + random.below(90), random.below(70)];
    let product = Product::<T>::random(sizes, random);
    let parts = if random.chance(2) { 1 } else { 1 + random.below(5) as u32 };
    let recipe = Recipe { parts, ..blocked(T::TYPE, blocking).into() };
    let bits = product.by_recipe(&Device::interp(), recipe);
    if parts == 1 && !blocking.contains("_2_1") && !blocking.contains("_4_1") {
        let plain = product.by_recipe(&Device::interp(), Plain::new(Family::Tiled, T::TYPE, 8).into());
        assert_eq!(bits, plain, "{blocking}: sums in another order than the plain kernel's");
    }
}

#[test]
fn any_product_is_right() {
    for seed in 0..40 {
        any_product::<f32>(seed);
        any_product::<i32>(1000 + seed);
    }
}

/// Whole tiles of row-major matrices: what a large product is made of.
fn main_loop<T: Sample>(blocking: &str, lies: [Lie; 3]) -> tegula::interp::Counters {
    let blocked = blocked(T::TYPE, blocking);
    let Blocking { block: [bm, bn, bk], .. } = blocked.blocking;
    let random = &mut Random(1);
    use tegula::element::Scalar;
    let factors = (T::Acc::ONE, T::Acc::ZERO);
    let product = Product::<T>::new([1, bm as usize, bn as usize, 4 * bk as usize], lies, random, factors);
    let blocked = Blocked { vectors: [true; 3], orders: product.orders(), ..blocked };
    let kernel = check(blocked.build().unwrap()).unwrap();
    let turn = |turned: bool, view: tegula::View<'_, T>| Buffer::input(if turned { view.t() } else { view }).unwrap();
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
            let counters = main_loop::<f32>("128x256x16_64x64_8x16_3_1_1", [a, b, Lie::default()]);
            assert_eq!(counters.shared_bank_conflicts, 0, "{a:?} {b:?}: {counters:?}");
        }
    }
}
