//! Vector kernels, for a skinny C, in the interpreter: correct for any shape, layout and split,
//! deterministic, and without races. They load no more sectors of global memory than the operands
//! have.

use tegula::Device;
use tegula::element::{Scalar, Type, f16, with_operand_type};
use tegula::interpret;
use tegula_interp::{Arg, Buffer, Config, Counters, run};
use tegula_ir::check;
use tegula_kernels::Vector;
use tegula_kernels::plan::{Recipe, Split};

use super::effort::seeds;
use super::product::{Product, Random, Sample, StorageLayout};

/// A kernel with small blocks, so that small products have several.
fn random_vector(ty: Type, random: &mut Random) -> Vector {
    let skinny = 1 << random.below(5);
    let cols = 1 << random.below(4);
    let threads = [[8, 4], [4, 8], [32, 2], [2, 32], [1, 64], [64, 1]][random.below(6)];
    Vector::new(ty, skinny, cols, threads, 4 << random.below(3))
}

fn random_product<T: Sample>(seed: u64) {
    let random = &mut Random(seed);
    let vector = random_vector(T::TYPE, random);
    let (skinny, large, k) = (1 + random.below(20), 1 + random.below(130), random.below(200));
    // Often multiples of a vector.
    let [large, k] = if random.chance(2) { [large.next_multiple_of(16), k.next_multiple_of(16)] } else { [large, k] };
    let swapped = random.chance(2);
    let [m, n] = if swapped { [large, skinny] } else { [skinny, large] };
    let product = Product::<T>::random([1 + random.below(3) / 2, m, n, k], random);
    let parts = if random.chance(2) { 1 } else { 1 + random.below(5) as u32 };
    product.run_recipe(&Device::interp(), Recipe { swapped, split: Split::split_k(parts), ..vector.into() });
}

#[test]
fn random_vector_products_are_correct() {
    for seed in 0..seeds(10, 30) {
        for (first, ty) in (0..).step_by(1000).zip(Type::OPERANDS) {
            with_operand_type!(ty, T => random_product::<T>(first + seed), ty => panic!("no products of {ty}"));
        }
    }
}

#[test]
fn every_vector_candidate_is_correct() {
    for along_k in [false, true] {
        for (i, vector) in
            [true, false].map(|vectors| Vector::shapes(Type::F16, 3, along_k, vectors)).concat().into_iter().enumerate()
        {
            let b = StorageLayout { transposed: along_k, ..StorageLayout::default() };
            let random = &mut Random(i as u64);
            let product = Product::<f16>::new(
                [1, 3, 72, 328],
                [StorageLayout::default(), b, StorageLayout::default()],
                random,
                (1.5, 0.5),
            );
            product.run_recipe(&Device::interp(), Recipe { split: Split::SplitK(2), ..vector.into() });
        }
    }
}

#[test]
fn vector_kernel_bits_do_not_depend_on_the_schedule() {
    let product = Product::<f32>::plain(5, 200, 333);
    let kernel = check(Vector::new(Type::F32, 8, 4, [8, 16], 4).build().unwrap()).unwrap();
    let bits = |seed| {
        let (outcome, c) = product.run(&kernel, &Config { seed, ..Config::default() });
        assert_eq!(outcome.error(), None);
        c.to_vec::<f32>().unwrap().iter().map(|x| x.to_bits()).collect::<Vec<_>>()
    };
    let first = bits(0);
    (1..6).for_each(|seed| assert_eq!(bits(seed), first, "seed {seed}"));
}

#[test]
fn invalid_vector_parameters_are_errors() {
    let valid = Vector::new(Type::F32, 4, 4, [32, 8], 8);
    assert!(valid.build().is_ok());
    for invalid in [
        Vector { rows: 3, ..valid },
        Vector { rows: 32, ..valid },
        Vector { cols: 0, ..valid },
        Vector { threads_n: 64, threads_k: 32, ..valid },
        Vector { threads_n: 4, threads_k: 4, ..valid },
        Vector { load_depth: 2, ..valid },
        Vector { ty: Type::U64, ..valid },
    ] {
        assert!(invalid.build().is_err(), "{invalid}");
    }
}

/// Counters of two blocks with two steps each, with 16-byte loads of B, and the expected requests
/// and sectors.
fn count_loads<T: Sample>(skinny: u32, along_k: bool) -> (Counters, [u64; 2]) {
    let wide = (16 / T::TYPE.size()) as u32;
    let cols = wide.min(4);
    let (threads, load_depth) = if along_k { ([4, 32], wide.max(4)) } else { ([32, 4], 8) };
    let b = StorageLayout { transposed: along_k, ..StorageLayout::default() };
    let vector = Vector { aligned_16: true, ..Vector::new(T::TYPE, skinny, cols, threads, load_depth) };
    let [m, n, k] = [skinny, 2 * cols * threads[0], 2 * vector.step()].map(|x| x as usize);
    let product = Product::<T>::new(
        [1, m, n, k],
        [StorageLayout::default(), b, StorageLayout::default()],
        &mut Random(1),
        (T::Acc::ONE, T::Acc::ZERO),
    );
    let vector = Vector { orders: product.orders(), ..vector };
    let kernel = check(vector.build().unwrap()).unwrap();
    let b = if vector.transposed() { product.b().t() } else { product.b() };
    let (a, b) = (interpret::input(product.a()).unwrap(), interpret::input(b).unwrap());
    let c = Buffer::output(<T::Out as Scalar>::TYPE, product.initial_c().layout()).unwrap();
    let args = [Arg::from(&a), Arg::from(&b), Arg::from(&c), Arg::scalar(T::Acc::ONE), Arg::scalar(T::Acc::ZERO)];
    let outcome = run(&kernel, &args, &Config::default()).unwrap();
    assert_eq!(outcome.error(), None, "{vector}");
    let sectors = |elements: usize| (elements * T::TYPE.size()).div_ceil(32) as u64;
    // A warp loads 32 elements of A per request; each block loads all of A.
    let a = 2 * (m * k / 32) as u64;
    let load = if along_k { wide } else { wide.min(cols) } as usize;
    (outcome.counters, [a + (n * k / load / 32) as u64, 2 * sectors(m * k) + sectors(n * k)])
}

fn check_loads<T: Sample>() {
    for skinny in [1, 4, 16] {
        for along_k in [false, true] {
            let (counters, [requests, sectors]) = count_loads::<T>(skinny, along_k);
            let loads = [counters.global_load_requests, counters.global_load_sectors];
            assert_eq!(loads, [requests, sectors], "{} {skinny} {along_k}", T::TYPE);
            if T::TYPE.size() >= 4 {
                assert_eq!(counters.shared_bank_conflicts, 0, "{} {skinny} {along_k}", T::TYPE);
            }
        }
    }
}

#[test]
fn aligned_b_is_read_once_in_whole_sectors() {
    check_loads::<f64>();
    check_loads::<f32>();
    check_loads::<f16>();
    check_loads::<i8>();
}
