//! Kernels for a C of few rows or columns, in the interpreter: right for any shape, layout and split, with the same bits on every run,
//! without races, and with no more sectors of global memory than the matrices have.

use tegula::Device;
use tegula::element::{Scalar, Type, f16, with_operand_type};
use tegula::interpret;
use tegula_interp::{Arg, Buffer, Config, Counters, run};
use tegula_ir::check;
use tegula_kernels::Vector;
use tegula_kernels::plan::{Recipe, Split};

use super::product::{Lie, Product, Random, Sample};

/// Small blocks, so that small products have several.
fn small(ty: Type, random: &mut Random) -> Vector {
    let few = 1 << random.below(5);
    let cols = 1 << random.below(4);
    let threads = [[8, 4], [4, 8], [32, 2], [2, 32], [1, 64], [64, 1]][random.below(6)];
    Vector::new(ty, few, cols, threads, 4 << random.below(3))
}

fn any_product<T: Sample>(seed: u64) {
    let random = &mut Random(seed);
    let vector = small(T::TYPE, random);
    let (few, many, k) = (1 + random.below(20), 1 + random.below(130), random.below(200));
    // Whole vectors often.
    let [many, k] = if random.chance(2) { [many.next_multiple_of(16), k.next_multiple_of(16)] } else { [many, k] };
    let swapped = random.chance(2);
    let [m, n] = if swapped { [many, few] } else { [few, many] };
    let product = Product::<T>::random([1 + random.below(3) / 2, m, n, k], random);
    let parts = if random.chance(2) { 1 } else { 1 + random.below(5) as u32 };
    product.by_recipe(&Device::interp(), Recipe { swapped, split: Split::parts(parts), ..vector.into() });
}

#[test]
fn any_product_is_right() {
    for seed in 0..30 {
        for (first, ty) in (0..).step_by(1000).zip(Type::OPERANDS) {
            with_operand_type!(ty, T => any_product::<T>(first + seed), ty => panic!("no products of {ty}"));
        }
    }
}

#[test]
fn every_candidate_is_right() {
    for along_k in [false, true] {
        for (i, vector) in
            [true, false].map(|vectors| Vector::shapes(Type::F16, 3, along_k, vectors)).concat().into_iter().enumerate()
        {
            let b = Lie { transposed: along_k, ..Lie::default() };
            let random = &mut Random(i as u64);
            let product = Product::<f16>::new([1, 3, 72, 328], [Lie::default(), b, Lie::default()], random, (1.5, 0.5));
            product.by_recipe(&Device::interp(), Recipe { split: Split::Parts(2), ..vector.into() });
        }
    }
}

#[test]
fn the_bits_do_not_depend_on_the_schedule() {
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
fn numbers_that_make_no_kernel_are_refused() {
    let sound = Vector::new(Type::F32, 4, 4, [32, 8], 8);
    assert!(sound.build().is_ok());
    for wrong in [
        Vector { few: 3, ..sound },
        Vector { few: 32, ..sound },
        Vector { cols: 0, ..sound },
        Vector { across: 64, down: 32, ..sound },
        Vector { across: 4, down: 4, ..sound },
        Vector { deep: 2, ..sound },
        Vector { ty: Type::U64, ..sound },
    ] {
        assert!(wrong.build().is_err(), "{wrong}");
    }
}

/// Two blocks with two steps each, of a product whose B may be read 16 bytes at once.
fn counted<T: Sample>(few: u32, along_k: bool) -> (Counters, [u64; 2]) {
    let wide = (16 / T::TYPE.size()) as u32;
    let cols = wide.min(4);
    let (threads, deep) = if along_k { ([4, 32], wide.max(4)) } else { ([32, 4], 8) };
    let b = Lie { transposed: along_k, ..Lie::default() };
    let vector = Vector { vectors: true, ..Vector::new(T::TYPE, few, cols, threads, deep) };
    let [m, n, k] = [few, 2 * cols * threads[0], 2 * vector.step()].map(|x| x as usize);
    let product = Product::<T>::new(
        [1, m, n, k],
        [Lie::default(), b, Lie::default()],
        &mut Random(1),
        (T::Acc::ONE, T::Acc::ZERO),
    );
    let vector = Vector { orders: product.orders(), ..vector };
    let kernel = check(vector.build().unwrap()).unwrap();
    let b = if vector.turned() { product.b().t() } else { product.b() };
    let (a, b) = (interpret::input(product.a()).unwrap(), interpret::input(b).unwrap());
    let c = Buffer::output(<T::Out as Scalar>::TYPE, product.before().layout()).unwrap();
    let args = [Arg::from(&a), Arg::from(&b), Arg::from(&c), Arg::scalar(T::Acc::ONE), Arg::scalar(T::Acc::ZERO)];
    let outcome = run(&kernel, &args, &Config::default()).unwrap();
    assert_eq!(outcome.error(), None, "{vector}");
    let sectors = |elements: usize| (elements * T::TYPE.size()).div_ceil(32) as u64;
    // A warp brings 32 numbers of A; each block all of them.
    let a = 2 * (m * k / 32) as u64;
    let load = if along_k { wide } else { wide.min(cols) } as usize;
    (outcome.counters, [a + (n * k / load / 32) as u64, 2 * sectors(m * k) + sectors(n * k)])
}

fn takes_no_more_than_it_must<T: Sample>() {
    for few in [1, 4, 16] {
        for along_k in [false, true] {
            let (counters, [requests, sectors]) = counted::<T>(few, along_k);
            let took = [counters.global_load_requests, counters.global_load_sectors];
            assert_eq!(took, [requests, sectors], "{} {few} {along_k}", T::TYPE);
            if T::TYPE.size() >= 4 {
                assert_eq!(counters.shared_bank_conflicts, 0, "{} {few} {along_k}", T::TYPE);
            }
        }
    }
}

#[test]
fn an_aligned_b_is_read_once_in_whole_sectors() {
    takes_no_more_than_it_must::<f64>();
    takes_no_more_than_it_must::<f32>();
    takes_no_more_than_it_must::<f16>();
    takes_no_more_than_it_must::<i8>();
}
