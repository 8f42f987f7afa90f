//! Bias and activation in every kernel, on the interpreter and the CPU: correct for any shape,
//! layout, type and split, with NaN and infinities, and equal bits from both. Unsupported ones are
//! errors.

use tegula::element::{Element, Scalar, Type, bf16, f16, with_operand_type};
use tegula::epilogue::{Activation, BiasShape, Epilogue};
use tegula::nd::{NdArray, NdGemm};
use tegula::{Accuracy, Device, Error, Gemm, Matrix, View};
use tegula_kernels::plan::{Recipe, Split};
use tegula_kernels::{Blocked, Plain, PlainKind, Vector, WarpTile};

use super::blocked::{BYTES, DMMA, HALVES, LIMBS, REGISTER, TF32};
use super::effort::seeds;
use super::product::{Product, Random, Sample, canonical_bits};

/// A random epilogue that the type supports.
fn random_epilogue(ty: Type, random: &mut Random) -> Epilogue {
    let bias = [None, Some(BiasShape::Row), Some(BiasShape::Column)][random.below(3)];
    let activation = Activation::ALL[random.below(if ty.is_float() { 4 } else { 2 })];
    Epilogue { bias, activation }
}

fn random_split(random: &mut Random) -> Split {
    match random.below(3) {
        0 => Split::Whole,
        1 => Split::SplitK(2 + random.below(4) as u32),
        _ => Split::StreamK(1 + random.below(9) as u32),
    }
}

/// A random product with an epilogue, sometimes with NaN and infinities, often with extents that
/// allow 16-byte accesses.
fn random_product<T: Sample>(mut sizes: [usize; 4], random: &mut Random) -> Product<T> {
    if random.chance(2) {
        sizes[1..].iter_mut().for_each(|size| *size = size.next_multiple_of(16 / size_of::<T>()));
    }
    let epilogue = random_epilogue(T::TYPE, random);
    let product = Product::<T>::random(sizes, random).with_epilogue(epilogue, random);
    if random.chance(4) { product.with_specials(random) } else { product }
}

fn in_blocks<T: Sample>(seed: u64, blockings: &[&str]) {
    in_blocks_at::<T>(seed, blockings, Accuracy::Full);
}

fn in_blocks_at<T: Sample>(seed: u64, blockings: &[&str], accuracy: Accuracy) {
    let random = &mut Random(seed);
    let sizes = [1 + random.below(3) / 2, 1 + random.below(80), 1 + random.below(90), random.below(50)];
    let product = random_product::<T>(sizes, random);
    let blocked = Blocked::named(blockings[random.below(blockings.len())], T::TYPE).unwrap();
    let recipe = Recipe { split: random_split(random), ..blocked.into() };
    product.run_recipe_at(&Device::interp(), recipe, accuracy);
}

#[test]
fn blocked_kernels_apply_the_epilogue() {
    for seed in 0..seeds(8, 24) {
        in_blocks::<f32>(seed, &REGISTER);
        in_blocks::<i32>(1000 + seed, &REGISTER);
        in_blocks::<f64>(2000 + seed, &REGISTER[..4]);
        in_blocks::<f64>(3000 + seed, &DMMA);
        in_blocks::<f16>(4000 + seed, &HALVES);
        in_blocks::<bf16>(5000 + seed, &HALVES);
        in_blocks::<i8>(6000 + seed, &BYTES);
        in_blocks::<i32>(7000 + seed, &LIMBS);
        in_blocks_at::<f32>(8000 + seed, &TF32, Accuracy::Tf32);
    }
}

fn vector_products<T: Sample>(seed: u64) {
    let random = &mut Random(seed);
    let threads = [[8, 4], [4, 8], [32, 2], [2, 32]][random.below(4)];
    let vector = Vector::new(T::TYPE, 1 << random.below(4), 1 << random.below(3), threads, 4);
    let (small, large, k) = (1 + random.below(12), 1 + random.below(90), random.below(90));
    let swapped = random.chance(2);
    let [m, n] = if swapped { [large, small] } else { [small, large] };
    let split = if random.chance(2) { Split::Whole } else { Split::SplitK(2 + random.below(3) as u32) };
    let product = random_product::<T>([1 + random.below(3) / 2, m, n, k], random);
    product.run_recipe(&Device::interp(), Recipe { swapped, split, ..vector.into() });
}

fn plain<T: Sample>(seed: u64) {
    let random = &mut Random(seed);
    let family = [PlainKind::Naive, PlainKind::Tiled][random.below(2)];
    let product = random_product::<T>(
        [1 + random.below(2), 1 + random.below(30), 1 + random.below(30), random.below(20)],
        random,
    );
    product.run_recipe(&Device::interp(), Plain::new(family, T::TYPE, 8).into());
}

#[test]
fn plain_and_vector_kernels_apply_the_epilogue() {
    fn both<T: Sample>(seed: u64) {
        plain::<T>(seed);
        vector_products::<T>(seed);
    }
    for seed in 0..seeds(8, 24) {
        for (first, ty) in (0..).step_by(1000).zip(Type::OPERANDS) {
            with_operand_type!(ty, T => both::<T>(first + seed), ty => panic!("no products of {ty}"));
        }
    }
}

#[test]
fn warp_kernels_apply_the_epilogue() {
    fn one<T: Sample>(seed: u64) {
        let random = &mut Random(seed);
        let warp = [16 << random.below(2), 8 << random.below(3)];
        let kernel = WarpTile::new(T::TYPE, warp, warp, 2, 1 << random.below(2));
        let mut side = || 1 + random.below(40);
        let sizes = [side() % 4 + 1, side(), side(), side()];
        let sizes = if random.chance(2) { sizes.map(|size| size.next_multiple_of(8)) } else { sizes };
        random_product::<T>(sizes, random).run_recipe(&Device::interp(), kernel.into());
    }
    for seed in 0..seeds(24, 100) {
        one::<f16>(seed);
        one::<bf16>(1000 + seed);
        one::<f64>(2000 + seed);
    }
}

#[test]
fn cpu_applies_the_epilogue() {
    fn one<T: Sample>(seed: u64) {
        let random = &mut Random(seed);
        // Larger than one KC block, or small.
        let k = if random.chance(4) { 700 } else { random.below(20) };
        let sizes = [1 + random.below(3) / 2, 1 + random.below(70), 1 + random.below(150), k];
        random_product::<T>(sizes, random).run_on_cpu();
    }
    for seed in 0..seeds(12, 40) {
        for (first, ty) in (0..).step_by(1000).zip(Type::OPERANDS) {
            with_operand_type!(ty, T => one::<T>(first + seed), ty => panic!("no products of {ty}"));
        }
    }
}

/// Compares beta·C alone, with C of any bits: k is 0, so no order of additions matters.
fn same_bits<T: Sample>(bits: impl Fn(usize) -> u64) {
    let c = Matrix::<T::Out>::from_fn(24, 40, |row, col| T::Out::from_bits(bits(40 * row + col))).unwrap();
    let bias: Vec<T::Out> = (0..40).map(|i| T::result(&mut Random(i))).collect();
    let (a, b) = (Matrix::<T>::zeros(24, 0).unwrap(), Matrix::<T>::zeros(0, 40).unwrap());
    for activation in [Activation::Relu, Activation::Gelu, Activation::Silu] {
        for biased in [false, true] {
            let run = |device: &Device| {
                let mut c = c.clone();
                let mut product = Gemm::new(a.view(), b.view(), c.view_mut()).beta(T::Acc::ONE).activation(activation);
                if biased {
                    product = product.bias(View::new(&bias, 1, 40).unwrap());
                }
                product.on(device).run().unwrap();
                c.as_slice().iter().copied().map(canonical_bits).collect::<Vec<_>>()
            };
            assert_eq!(run(&Device::cpu()), run(&Device::interp()), "{} {activation} {biased}", T::TYPE);
        }
    }
}

#[test]
fn activations_have_equal_bits_on_cpu_and_interpreter() {
    let special_values =
        [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -0.0, f64::MAX, f64::MIN, 1e-310, -1e-310, -11.9, -12.1];
    let value =
        |i: usize| special_values.get(i).copied().unwrap_or((i as f64 - 480.0) * (i as f64 - 480.0).abs() * 1.3e-4);
    same_bits::<f64>(|i| value(i).to_bits());
    same_bits::<f32>(|i| (value(i) as f32).to_bits().into());
    same_bits::<f16>(|i| f16::from_f64(value(i)).to_bits().into());
    same_bits::<bf16>(|i| bf16::from_f64(value(i)).to_bits().into());
    // Arbitrary bit patterns.
    let any = |i: usize| Random(i as u64).next();
    same_bits::<f64>(any);
    same_bits::<f32>(|i| any(i) >> 32);
}

/// A layer of a network; returns the kernel's name.
fn layer<T: Element>(device: &Device, bias: View<'_, T::Out>, activation: Activation) -> Result<String, Error> {
    let (a, b) = (Matrix::<T>::zeros(3, 2)?, Matrix::<T>::zeros(2, 5)?);
    let mut c = Matrix::zeros(3, 5)?;
    let product = Gemm::new(a.view(), b.view(), c.view_mut()).bias(bias).activation(activation).on(device);
    // The explained kernel is the one that runs.
    let explained = product.explain().map(|explained| explained.kernel);
    let kernel = product.run()?.kernel;
    assert_eq!(explained?, kernel);
    Ok(kernel.into())
}

#[test]
fn invalid_epilogues_are_errors() {
    let (five, ints) = ([1f32; 5], [1i32; 3]);
    for device in [Device::cpu(), Device::interp()] {
        for (rows, cols) in [(5, 1), (1, 3), (1, 4)] {
            let bias = View::new(&five[..rows * cols], rows, cols).unwrap();
            let error = layer::<f32>(&device, bias, Activation::None).unwrap_err();
            assert!(matches!(&error, Error::Shape(error) if error.contains("1×5") && error.contains("3×1")), "{error}");
        }
        for activation in [Activation::Gelu, Activation::Silu] {
            let bias = View::new(&ints, 3, 1).unwrap();
            let error = layer::<i8>(&device, bias, activation).unwrap_err();
            assert!(matches!(error, Error::Unsupported { ty: Type::I8, .. }), "{error}");
            assert!(layer::<i32>(&device, bias, activation).is_err());
        }
        assert!(layer::<i8>(&device, View::new(&ints, 3, 1).unwrap(), Activation::Relu).is_ok());
    }
    let gelu = Epilogue { bias: None, activation: Activation::Gelu };
    assert!(Plain { epilogue: gelu, ..Plain::new(PlainKind::Tiled, Type::I32, 8) }.build().is_err());
    assert!(Blocked { epilogue: gelu, ..Blocked::named(LIMBS[0], Type::I32).unwrap() }.build().is_err());
    assert!(Vector { epilogue: gelu, ..Vector::new(Type::I8, 1, 4, [32, 8], 4) }.build().is_err());
}

#[test]
fn kernel_name_contains_the_epilogue() {
    let five = [1f32; 5];
    let kernel = layer::<f32>(&Device::interp(), View::new(&five, 1, 5).unwrap(), Activation::Silu).unwrap();
    assert_eq!(kernel, "tiled_f32_8_row_bias_silu");
    let kernel = layer::<f32>(&Device::interp(), View::new(&five[..3], 3, 1).unwrap(), Activation::None).unwrap();
    assert_eq!(kernel, "tiled_f32_8_column_bias");
}

/// A bias per matrix of a stack, for rows merged into one product, and for vectors.
#[test]
fn nd_bias_broadcasts_to_the_stack() {
    let array = |shape: &[usize], from: i32| {
        let len = shape.iter().product::<usize>() as i32;
        NdArray::from_vec(shape, (from..from + len).collect()).unwrap()
    };
    type Shapes<'a> = (&'a [usize], &'a [usize], &'a [usize]);
    let cases: [Shapes<'_>; 10] = [
        (&[2, 3, 4], &[4, 5], &[5]),
        (&[2, 3, 4], &[4, 5], &[3, 1]),
        (&[2, 3, 4], &[4, 5], &[2, 1, 5]),
        (&[2, 3, 4], &[4, 5], &[1]),
        (&[6, 1, 4], &[4, 5], &[6, 1, 5]),
        (&[6, 1, 4], &[4, 5], &[6, 1, 1]),
        (&[2, 1, 3, 4], &[7, 4, 5], &[2, 7, 3, 1]),
        (&[3, 4], &[4], &[3]),
        (&[2, 3, 4], &[4], &[2, 1]),
        (&[4], &[2, 4, 5], &[5]),
    ];
    for device in [Device::cpu(), Device::interp()] {
        for (a, b, bias) in cases {
            let (a, b, bias) = (array(a, -3), array(b, -9), array(bias, 100));
            let mut c = NdArray::zeros(&tegula::nd::product_shape(a.shape(), b.shape()).unwrap()).unwrap();
            let mut plain = c.clone();
            NdGemm::new(a.view(), b.view(), plain.view_mut()).on(&device).run().unwrap();
            let product = NdGemm::new(a.view(), b.view(), c.view_mut()).bias(bias.view()).activation(Activation::Relu);
            product.on(&device).run().unwrap();
            // Aligned at the last axis, as in NumPy.
            let shape = c.shape().to_vec();
            let mut index = vec![0; shape.len()];
            for (&got, &sum) in c.as_slice().iter().zip(plain.as_slice()) {
                let own = index[shape.len() - bias.shape().len()..].iter().zip(bias.shape());
                let at: Vec<usize> = own.map(|(&at, &extent)| if extent == 1 { 0 } else { at }).collect();
                assert_eq!(got, (sum + bias.view().get(&at).unwrap()).max(0), "{:?} at {index:?}", bias.shape());
                for axis in (0..index.len()).rev() {
                    index[axis] = (index[axis] + 1) % shape[axis];
                    if index[axis] > 0 {
                        break;
                    }
                }
            }
        }
    }
    let (a, b, mut c) = (array(&[2, 3, 4], 0), array(&[4, 5], 0), NdArray::zeros(&[2, 3, 5]).unwrap());
    for invalid in [&[3, 5][..], &[2, 3, 5], &[4], &[3], &[1, 2, 3, 5]] {
        let bias = array(invalid, 0);
        let result = NdGemm::new(a.view(), b.view(), c.view_mut()).bias(bias.view()).run();
        assert!(matches!(result, Err(Error::Shape(_))), "{invalid:?}");
    }
}
