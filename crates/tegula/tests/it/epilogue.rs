//! A bias and an activation in every kernel, on the interpreter and the processor: right for any shape, layout, type and split, with NaN and
//! infinities where they belong, with the same bits from both, and refused where there is no such thing.

use tegula::element::{Element, Scalar, Type, bf16, f16, with_operand_type};
use tegula::epilogue::{Activation, Along, Epilogue};
use tegula::nd::{NdArray, NdGemm};
use tegula::{Accuracy, Device, Error, Gemm, Matrix, View};
use tegula_kernels::plan::{Recipe, Split};
use tegula_kernels::{Blocked, Family, Plain, Vector};

use super::blocked::{BYTES, DMMA, HALVES, LIMBS, REGISTER, TF32};
use super::product::{Product, Random, Sample, number_bits};

/// One that the type has.
fn any_epilogue(ty: Type, random: &mut Random) -> Epilogue {
    let bias = [None, Some(Along::Rows), Some(Along::Columns)][random.below(3)];
    let activation = Activation::ALL[random.below(if ty.is_float() { 4 } else { 2 })];
    Epilogue { bias, activation }
}

fn any_split(random: &mut Random) -> Split {
    match random.below(3) {
        0 => Split::Whole,
        1 => Split::Parts(2 + random.below(4) as u32),
        _ => Split::Workers(1 + random.below(9) as u32),
    }
}

/// A product with an epilogue, sometimes with NaN and infinities, and extents that are often such that elements can be taken 16 bytes at once.
fn any_product<T: Sample>(mut sizes: [usize; 4], random: &mut Random) -> Product<T> {
    if random.chance(2) {
        sizes[1..].iter_mut().for_each(|size| *size = size.next_multiple_of(16 / size_of::<T>()));
    }
    let epilogue = any_epilogue(T::TYPE, random);
    let product = Product::<T>::random(sizes, random).finished(epilogue, random);
    if random.chance(4) { product.with_specials(random) } else { product }
}

fn in_blocks<T: Sample>(seed: u64, blockings: &[&str]) {
    in_blocks_at::<T>(seed, blockings, Accuracy::Full);
}

fn in_blocks_at<T: Sample>(seed: u64, blockings: &[&str], accuracy: Accuracy) {
    let random = &mut Random(seed);
    let sizes = [1 + random.below(3) / 2, 1 + random.below(80), 1 + random.below(90), random.below(50)];
    let product = any_product::<T>(sizes, random);
    let blocked = Blocked::named(blockings[random.below(blockings.len())], T::TYPE).unwrap();
    let recipe = Recipe { split: any_split(random), ..blocked.into() };
    product.by_recipe_at(&Device::interp(), recipe, accuracy);
}

#[test]
fn blocks_finish_what_they_sum() {
    for seed in 0..24 {
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

fn of_few_rows<T: Sample>(seed: u64) {
    let random = &mut Random(seed);
    let threads = [[8, 4], [4, 8], [32, 2], [2, 32]][random.below(4)];
    let vector = Vector::new(T::TYPE, 1 << random.below(4), 1 << random.below(3), threads, 4);
    let (few, many, k) = (1 + random.below(12), 1 + random.below(90), random.below(90));
    let swapped = random.chance(2);
    let [m, n] = if swapped { [many, few] } else { [few, many] };
    let split = if random.chance(2) { Split::Whole } else { Split::Parts(2 + random.below(3) as u32) };
    let product = any_product::<T>([1 + random.below(3) / 2, m, n, k], random);
    product.by_recipe(&Device::interp(), Recipe { swapped, split, ..vector.into() });
}

fn plain<T: Sample>(seed: u64) {
    let random = &mut Random(seed);
    let family = [Family::Naive, Family::Tiled][random.below(2)];
    let product =
        any_product::<T>([1 + random.below(2), 1 + random.below(30), 1 + random.below(30), random.below(20)], random);
    product.by_recipe(&Device::interp(), Plain::new(family, T::TYPE, 8).into());
}

#[test]
fn so_do_the_plain_kernels_and_those_for_few_rows() {
    fn both<T: Sample>(seed: u64) {
        plain::<T>(seed);
        of_few_rows::<T>(seed);
    }
    for seed in 0..24 {
        for (first, ty) in (0..).step_by(1000).zip(Type::OPERANDS) {
            with_operand_type!(ty, T => both::<T>(first + seed), ty => panic!("no products of {ty}"));
        }
    }
}

#[test]
fn so_does_the_processor() {
    fn one<T: Sample>(seed: u64) {
        let random = &mut Random(seed);
        // Beyond a run of KC, and small.
        let k = if random.chance(4) { 700 } else { random.below(20) };
        let sizes = [1 + random.below(3) / 2, 1 + random.below(70), 1 + random.below(150), k];
        any_product::<T>(sizes, random).on_cpu();
    }
    for seed in 0..40 {
        for (first, ty) in (0..).step_by(1000).zip(Type::OPERANDS) {
            with_operand_type!(ty, T => one::<T>(first + seed), ty => panic!("no products of {ty}"));
        }
    }
}

/// beta·C alone, with C of any bits: k is 0, so nothing is summed in another order.
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
                c.as_slice().iter().copied().map(number_bits).collect::<Vec<_>>()
            };
            assert_eq!(run(&Device::cpu()), run(&Device::interp()), "{} {activation} {biased}", T::TYPE);
        }
    }
}

#[test]
fn activations_have_the_same_bits_everywhere() {
    let ends =
        [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -0.0, f64::MAX, f64::MIN, 1e-310, -1e-310, -11.9, -12.1];
    let around = |i: usize| ends.get(i).copied().unwrap_or((i as f64 - 480.0) * (i as f64 - 480.0).abs() * 1.3e-4);
    same_bits::<f64>(|i| around(i).to_bits());
    same_bits::<f32>(|i| (around(i) as f32).to_bits().into());
    same_bits::<f16>(|i| f16::from_f64(around(i)).to_bits().into());
    same_bits::<bf16>(|i| bf16::from_f64(around(i)).to_bits().into());
    // Any bit pattern at all.
    let any = |i: usize| Random(i as u64).next();
    same_bits::<f64>(any);
    same_bits::<f32>(|i| any(i) >> 32);
}

/// C as a layer of a network makes it.
fn layer<T: Element>(device: &Device, bias: View<'_, T::Out>, activation: Activation) -> Result<String, Error> {
    let (a, b) = (Matrix::<T>::zeros(3, 2)?, Matrix::<T>::zeros(2, 5)?);
    let mut c = Matrix::zeros(3, 5)?;
    let product = Gemm::new(a.view(), b.view(), c.view_mut()).bias(bias).activation(activation).on(device);
    // What explains itself is what runs.
    let explained = product.explain().map(|explained| explained.kernel);
    let kernel = product.run()?.kernel;
    assert_eq!(explained?, kernel);
    Ok(kernel.into())
}

#[test]
fn what_is_no_epilogue_is_refused() {
    let (five, ints) = ([1f32; 5], [1i32; 3]);
    for device in [Device::cpu(), Device::interp()] {
        for (rows, cols) in [(5, 1), (1, 3), (1, 4)] {
            let bias = View::new(&five[..rows * cols], rows, cols).unwrap();
            let why = layer::<f32>(&device, bias, Activation::None).unwrap_err();
            assert!(matches!(&why, Error::Shape(why) if why.contains("1×5") && why.contains("3×1")), "{why}");
        }
        for activation in [Activation::Gelu, Activation::Silu] {
            let bias = View::new(&ints, 3, 1).unwrap();
            let why = layer::<i8>(&device, bias, activation).unwrap_err();
            assert!(matches!(why, Error::Unsupported { ty: Type::I8, .. }), "{why}");
            assert!(layer::<i32>(&device, bias, activation).is_err());
        }
        assert!(layer::<i8>(&device, View::new(&ints, 3, 1).unwrap(), Activation::Relu).is_ok());
    }
    let gelu = Epilogue { bias: None, activation: Activation::Gelu };
    assert!(Plain { epilogue: gelu, ..Plain::new(Family::Tiled, Type::I32, 8) }.build().is_err());
    assert!(Blocked { epilogue: gelu, ..Blocked::named(LIMBS[0], Type::I32).unwrap() }.build().is_err());
    assert!(Vector { epilogue: gelu, ..Vector::new(Type::I8, 1, 4, [32, 8], 4) }.build().is_err());
}

#[test]
fn the_kernels_name_says_it() {
    let five = [1f32; 5];
    let kernel = layer::<f32>(&Device::interp(), View::new(&five, 1, 5).unwrap(), Activation::Silu).unwrap();
    assert_eq!(kernel, "tiled_f32_8_row_bias_silu");
    let kernel = layer::<f32>(&Device::interp(), View::new(&five[..3], 3, 1).unwrap(), Activation::None).unwrap();
    assert_eq!(kernel, "tiled_f32_8_column_bias");
}

/// A bias for each matrix of a stack, of rows that are one product, of vectors.
#[test]
fn stacks_have_a_bias_too() {
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
            // Aligned at the last axis.
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
    for wrong in [&[3, 5][..], &[2, 3, 5], &[4], &[3], &[1, 2, 3, 5]] {
        let bias = array(wrong, 0);
        let refused = NdGemm::new(a.view(), b.view(), c.view_mut()).bias(bias.view()).run();
        assert!(matches!(refused, Err(Error::Shape(_))), "{wrong:?}");
    }
}
