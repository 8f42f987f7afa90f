//! Products of the interpreter against the oracle: any shape, any strides, every type, both plain
//! kernels.

use proptest::prelude::*;
use proptest::sample::select;
use tegula::element::{Type, with_operand_type};
use tegula_interp::Config;
use tegula_kernels::{Mapping, Plain, PlainKind};

use crate::product::{Product, Random, Sample};

fn cases() -> ProptestConfig {
    let default = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    match std::env::var_os("PROPTEST_CASES") {
        Some(_) => default,
        None => ProptestConfig { cases: 48, ..default },
    }
}

fn family() -> impl Strategy<Value = (PlainKind, Mapping, u32)> {
    let families = prop::sample::select(vec![PlainKind::Naive, PlainKind::Tiled]);
    let mappings = prop::sample::select(vec![Mapping::XCol, Mapping::XRow]);
    (families, mappings, prop::sample::select(vec![2u32, 4, 8, 16, 32]))
}

fn check_product<T: Sample>(sizes: [usize; 4], (family, mapping, tile): (PlainKind, Mapping, u32), seed: u64) {
    let product = Product::<T>::random(sizes, &mut Random(seed));
    let variant = Plain { mapping, ..Plain::new(family, T::TYPE, tile) };
    product.assert_correct(variant, &Config { seed, ..Config::default() });
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn random_products_equal_the_oracle(
        ty in select(&Type::OPERANDS), m in 0..70usize, n in 0..70usize, k in 0..70usize, kernel in family(), seed: u64,
    ) {
        let sizes = [1, m, n, k];
        with_operand_type!(ty, T => check_product::<T>(sizes, kernel, seed), ty => panic!("no products of {ty}"));
    }

    #[test]
    fn random_batches_equal_the_oracle(
        batches in 0..5usize, m in 0..20usize, n in 0..20usize, k in 0..20usize, kernel in family(), seed: u64,
    ) {
        let sizes = [batches, m, n, k];
        check_product::<f32>(sizes, kernel, seed);
        check_product::<i32>(sizes, kernel, seed);
    }
}

#[test]
fn batch_beyond_the_grid_limit_is_correct() {
    for family in [PlainKind::Naive, PlainKind::Tiled] {
        check_product::<i32>([70_000, 1, 2, 1], (family, Mapping::XCol, 2), 1);
    }
}

#[test]
fn tiles_beyond_the_grid_limit_are_correct() {
    for family in [PlainKind::Naive, PlainKind::Tiled] {
        check_product::<i32>([1, 131_100, 1, 1], (family, Mapping::XCol, 2), 2);
        check_product::<i32>([1, 1, 131_100, 3], (family, Mapping::XRow, 2), 3);
    }
}
