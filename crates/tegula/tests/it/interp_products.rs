//! The interpreter's products against the oracle's: any shape, any strides, every type, both kernels.

use proptest::prelude::*;
use proptest::sample::select;
use tegula::element::{Type, with_operand_type};
use tegula_interp::Config;
use tegula_kernels::{Family, Mapping, Plain};

use crate::product::{Product, Random, Sample};

fn cases() -> ProptestConfig {
    let default = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    match std::env::var_os("PROPTEST_CASES") {
        Some(_) => default,
        None => ProptestConfig { cases: 48, ..default },
    }
}

fn family() -> impl Strategy<Value = (Family, Mapping, u32)> {
    let families = prop::sample::select(vec![Family::Naive, Family::Tiled]);
    let mappings = prop::sample::select(vec![Mapping::XCol, Mapping::XRow]);
    (families, mappings, prop::sample::select(vec![2u32, 4, 8, 16, 32]))
}

fn right<T: Sample>(sizes: [usize; 4], (family, mapping, tile): (Family, Mapping, u32), seed: u64) {
    let product = Product::<T>::random(sizes, &mut Random(seed));
    let variant = Plain { mapping, ..Plain::new(family, T::TYPE, tile) };
    product.must_be_right(variant, &Config { seed, ..Config::default() });
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn products_are_right(
        ty in select(&Type::OPERANDS), m in 0..70usize, n in 0..70usize, k in 0..70usize, kernel in family(), seed: u64,
    ) {
        let sizes = [1, m, n, k];
        with_operand_type!(ty, T => right::<T>(sizes, kernel, seed), ty => panic!("no products of {ty}"));
    }

    #[test]
    fn batches_are_right(
        batches in 0..5usize, m in 0..20usize, n in 0..20usize, k in 0..20usize, kernel in family(), seed: u64,
    ) {
        let sizes = [batches, m, n, k];
        right::<f32>(sizes, kernel, seed);
        right::<i32>(sizes, kernel, seed);
    }
}

#[test]
fn a_batch_longer_than_the_grid_is_high() {
    for family in [Family::Naive, Family::Tiled] {
        right::<i32>([70_000, 1, 2, 1], (family, Mapping::XCol, 2), 1);
    }
}

#[test]
fn more_rows_of_tiles_than_the_grid_is_high() {
    for family in [Family::Naive, Family::Tiled] {
        right::<i32>([1, 131_100, 1, 1], (family, Mapping::XCol, 2), 2);
        right::<i32>([1, 1, 131_100, 3], (family, Mapping::XRow, 2), 3);
    }
}
