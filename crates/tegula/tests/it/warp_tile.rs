//! Kernels whose warps compute tiles from registers, in the interpreter: correct for any shape,
//! layout and configuration, and without races.

use tegula::Device;
use tegula::element::{Type, bf16, f16};
use tegula_kernels::WarpTile;
use tegula_kernels::plan::Recipe;

use super::effort::seeds;
use super::product::{Product, Random, Sample};

/// A kernel with any tile, of one product or several.
fn random_kernel(ty: Type, random: &mut Random) -> WarpTile {
    // Larger tiles of f64 have too many registers, and blocks of them too much shared memory.
    let choices = if ty == Type::F64 { 2 } else { 3 };
    let warp = [16 << random.below(choices), 8 << random.below(choices)];
    let [warps_m, warps_n] = [[1, 1], [2, 1], [1, 2], [2, 2]][random.below(4)];
    let block = [warp[0] * warps_m, warp[1] * warps_n];
    WarpTile::new(ty, block, warp, 1 << random.below(choices), 1 << random.below(choices))
}

fn random_product<T: Sample>(seed: u64) {
    let random = &mut Random(seed);
    let kernel = random_kernel(T::TYPE, random);
    let mut sizes = [1 + random.below(80), 1 + random.below(80), random.below(100)];
    // Often multiples of a vector.
    for size in &mut sizes {
        *size = if random.chance(2) { size.next_multiple_of(8) } else { *size };
    }
    let [m, n, k] = sizes;
    Product::<T>::random([1 + random.below(7), m, n, k], random).run_recipe(&Device::interp(), kernel.into());
}

#[test]
fn random_warp_products_are_correct() {
    for seed in 0..seeds(40, 400) {
        random_product::<f16>(seed);
        random_product::<bf16>(1000 + seed);
        random_product::<f64>(2000 + seed);
    }
}

/// The products of an instruction are added in one order only, so the interpreter's bits are the
/// GPU's, for all layouts and alignments.
#[cfg(feature = "cuda")]
#[test]
fn warp_products_have_the_interpreters_bits_on_the_gpu() {
    fn same<T: Sample>(gpu: &Device, seed: u64) {
        let random = &mut Random(seed);
        let kernel = random_kernel(T::TYPE, random);
        let sizes = [1 + random.below(9), 1 + random.below(150), 1 + random.below(150), 1 + random.below(200)];
        let [batches, m, n, k] = sizes.map(|size| if random.chance(2) { size.next_multiple_of(4) } else { size });
        let product = Product::<T>::random([batches, m, n, k], random);
        let bits = |device: &Device| product.run_recipe(device, kernel.into());
        assert!(bits(&Device::interp()) == bits(gpu), "{kernel}: {batches} of {m}x{n}x{k}");
    }
    let Some(gpu) = crate::gpu::gpu() else { return };
    // The interpreter models the Tensor Cores of such a GPU.
    if gpu.info().compute == (9, 0) {
        let gpu = Device::from(gpu);
        (0..seeds(60, 300)).for_each(|seed| {
            same::<f16>(&gpu, 2000 + seed);
            same::<bf16>(&gpu, 3000 + seed);
            same::<f64>(&gpu, 4000 + seed);
        });
    }
}

#[test]
fn warp_kernel_skips_products_past_the_batch() {
    let random = &mut Random(3);
    for products in [2, 4, 8] {
        let kernel = WarpTile::new(Type::BF16, [16, 16], [16, 16], products, 1);
        Product::<bf16>::random([products as usize + 1, 9, 12, 5], random)
            .run_recipe(&Device::interp(), Recipe::from(kernel));
    }
}

#[test]
fn invalid_warp_parameters_are_errors() {
    let valid = WarpTile::new(Type::F16, [64, 64], [32, 32], 1, 2);
    assert!(valid.build().is_ok());
    for invalid in [
        WarpTile { warp: [8, 32], ..valid },
        WarpTile { warp: [32, 4], ..valid },
        WarpTile { warp: [128, 32], ..valid },
        WarpTile { warp: [64, 64], ..valid },
        WarpTile { block: [96, 64], ..valid },
        WarpTile { products: 3, ..valid },
        WarpTile { products: 16, ..valid },
        WarpTile { load_depth: 0, ..valid },
        WarpTile { load_depth: 16, ..valid },
        WarpTile { ty: Type::F32, ..valid },
    ] {
        assert!(invalid.build().is_err(), "{invalid}");
    }
}
