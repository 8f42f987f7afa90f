//! A bias and an activation on a GPU: every kernel is right, and has the interpreter's bits.
//!
//! Without a GPU the tests say that they are skipped; `TEGULA_REQUIRE_GPU=1` makes that a failure, and `TEGULA_REQUIRE_CUBLASLT=1` a
//! missing library.
#![cfg(feature = "cuda")]

use tegula::cuda::{DeviceMatrix, Gpu};
use tegula::element::{Scalar, Type, bf16, f16, with_operand_type};
use tegula::epilogue::{Activation, Along, Epilogue};
use tegula::{Accuracy, Device, Gemm, Matrix, Shape, View};
use tegula_bench::{Case, Peer, Settings, measure};
use tegula_kernels::plan::{Recipe, Split};
use tegula_kernels::{Blocked, Family, Plain, Vector};

use crate::blocked::{BYTES, DMMA, HALVES, LIMBS, REGISTER, TF32};
use crate::gpu::gpu;
use crate::product::{Lie, Product, Random, Sample, number_bits};

/// All that a type has, one after the other; after 12 of them in another order, so that three splits in turn meet every one.
fn epilogue(ty: Type, number: usize) -> Epilogue {
    let bias = [None, Some(Along::Rows), Some(Along::Columns)][(number + number / 12) % 3];
    Epilogue { bias, activation: Activation::ALL[number / 3 % if ty.is_float() { 4 } else { 2 }] }
}

/// Products on a GPU, each with the next epilogue.
struct Trial {
    gpu: Device,
    /// Whether the interpreter's matrix units are this GPU's.
    modern: bool,
    number: usize,
}

impl Trial {
    fn new(gpu: Gpu) -> Self {
        Trial { modern: gpu.info().compute == (9, 0), gpu: gpu.into(), number: 0 }
    }

    /// Both devices by one recipe: both are right, and of the same bits.
    fn product<T: Sample>(&mut self, sizes: [usize; 4], recipe: impl Into<Recipe>) {
        self.product_at::<T>(sizes, recipe.into(), Accuracy::Full);
    }

    fn product_at<T: Sample>(&mut self, sizes: [usize; 4], recipe: Recipe, accuracy: Accuracy) {
        let random = &mut Random(self.number as u64);
        // Without gaps, so that a copy lies as the original does.
        let mut lie = || Lie { transposed: random.chance(2), ..Lie::default() };
        let lies = [lie(), lie(), lie()];
        let factors = (T::factor(random), T::factor(random));
        let epilogue = epilogue(T::TYPE, self.number);
        let product = Product::<T>::new(sizes, lies, random, factors).finished(epilogue, random);
        let there = product.by_recipe_at(&self.gpu, recipe, accuracy);
        let here = product.by_recipe_at(&Device::interp(), recipe, accuracy);
        assert!(there == here, "{} {sizes:?} {epilogue} number {}: other bits", recipe.name(), self.number);
        self.number += 1;
    }

    /// Kernels of blocks, whole and split, so often that each split meets every epilogue.
    fn blocks<T: Sample>(&mut self, names: &[&str], accuracy: Accuracy) {
        self.number = 0;
        for name in names.iter().cycle().take(names.len().next_multiple_of(12)) {
            for split in [Split::Whole, Split::Parts(3), Split::Workers(5)] {
                let (m, n, k) = (70 + self.number % 5 * 16, 65 + self.number % 4 * 21, 40 + self.number % 7);
                let recipe = Recipe { split, ..Blocked::named(name, T::TYPE).unwrap().into() };
                self.product_at::<T>([1 + self.number % 2, m, n, k], recipe, accuracy);
            }
        }
    }

    /// The plain kernels, and those for few rows and columns.
    fn small<T: Sample>(&mut self) {
        self.number = 0;
        for family in [Family::Naive, Family::Tiled].into_iter().cycle().take(12) {
            self.product::<T>([2, 33, 50, 20], Plain::new(family, T::TYPE, 16));
        }
        for split in [Split::Whole, Split::Parts(3)].into_iter().cycle().take(12) {
            let (vector, swapped) = (Vector::new(T::TYPE, 4, 4, [8, 8], 4), self.number % 4 > 1);
            let [m, n] = if swapped { [90, 3] } else { [3, 90] };
            self.product::<T>([2, m, n, 70], Recipe { swapped, split, ..vector.into() });
        }
    }
}

#[test]
fn a_gpu_finishes_what_blocks_sum() {
    let Some(gpu) = gpu() else { return };
    let mut trial = Trial::new(gpu);
    trial.blocks::<f32>(&REGISTER, Accuracy::Full);
    trial.blocks::<i32>(&REGISTER, Accuracy::Full);
    trial.blocks::<f64>(&REGISTER[..4], Accuracy::Full);
    let dmma: Vec<&str> = DMMA.into_iter().filter(|name| trial.modern || name.starts_with("dmma8x4")).collect();
    trial.blocks::<f64>(&dmma, Accuracy::Full);
    trial.blocks::<i8>(&BYTES, Accuracy::Full);
    trial.blocks::<i32>(&LIMBS, Accuracy::Full);
    if trial.modern {
        trial.blocks::<f16>(&HALVES, Accuracy::Full);
        trial.blocks::<bf16>(&HALVES, Accuracy::Full);
        trial.blocks::<f32>(&TF32, Accuracy::Tf32);
    }
}

#[test]
fn a_gpu_finishes_what_small_kernels_sum() {
    let Some(gpu) = gpu() else { return };
    let mut trial = Trial::new(gpu);
    for ty in Type::OPERANDS {
        with_operand_type!(ty, T => trial.small::<T>(), ty => panic!("no products of {ty}"));
    }
}

#[test]
fn activations_of_any_number_have_the_same_bits_on_a_gpu() {
    fn same<T: Sample>(gpu: &Device, bits: impl Fn(u64) -> u64) {
        let draw = |_, row: usize, col: usize| T::Out::from_bits(bits(Random((500 * row + col) as u64).next()));
        let c = Matrix::<T::Out>::from_shape_fn(Shape::new(200, 500), draw).unwrap();
        let (a, b) = (Matrix::<T>::zeros(200, 0).unwrap(), Matrix::<T>::zeros(0, 500).unwrap());
        for activation in Activation::ALL {
            let run = |device: &Device| {
                let mut c = c.clone();
                let product = Gemm::new(a.view(), b.view(), c.view_mut()).beta(T::Acc::ONE).activation(activation);
                product.on(device).run().unwrap();
                c.as_slice().iter().copied().map(number_bits).collect::<Vec<_>>()
            };
            assert!(run(gpu) == run(&Device::cpu()), "{} {activation}", T::TYPE);
        }
    }
    let Some(gpu) = gpu() else { return };
    let gpu = Device::from(gpu);
    // Every exponent, and one for each of 16 bits.
    same::<f64>(&gpu, |bits| bits);
    same::<f32>(&gpu, |bits| bits >> 32);
    same::<f16>(&gpu, |bits| bits >> 48);
    same::<bf16>(&gpu, |bits| bits >> 48);
}

#[test]
fn a_bias_may_lie_on_either_side() {
    let Some(gpu) = gpu() else { return };
    let (ones, bias) = (Matrix::from_vec(2, 2, vec![1i32; 4]).unwrap(), [10, -20]);
    let bias = View::new(&bias, 1, 2).unwrap();
    let (a, there) = (DeviceMatrix::upload(&gpu, ones.view()).unwrap(), DeviceMatrix::upload(&gpu, bias).unwrap());
    let mut c = DeviceMatrix::<i32>::uninit(&gpu, Shape::new(2, 2)).unwrap();
    for bias in [bias, there.view()] {
        let product = Gemm::new(a.view(), a.view(), c.view_mut()).bias(bias).activation(Activation::Relu);
        let explained = product.explain().unwrap();
        assert_eq!(product.run().unwrap().kernel, explained.kernel);
        assert_eq!(c.download().unwrap().as_slice(), [12, 0, 12, 0]);
    }
    // All on the host but the bias, which says where the product is made.
    let mut on_host = Matrix::<i32>::zeros(2, 2).unwrap();
    let report = Gemm::new(ones.view(), ones.view(), on_host.view_mut()).bias(there.view()).run().unwrap();
    assert_eq!((&*report.device, on_host.as_slice()), ("cuda:0", [12, -18, 12, -18].as_slice()));
}

#[test]
fn a_row_with_an_epilogue_has_a_peer_where_there_is_one() {
    let Some(gpu) = gpu() else { return };
    let device = Device::from(gpu);
    let peer = match Peer::cublaslt(&device) {
        Ok(peer) => peer,
        Err(why) if std::env::var_os("TEGULA_REQUIRE_CUBLASLT").is_none_or(|v| v != "1") => {
            return println!("skipped: {why}");
        }
        Err(why) => panic!("{why}"),
    };
    let settings = Settings { seed: 1, seconds: 0.0, plan: None };
    let bias = Some(Along::Rows);
    for (bias, activation, has_peer) in [
        (bias, Activation::None, true),
        (bias, Activation::Relu, true),
        (bias, Activation::Gelu, true),
        (bias, Activation::Silu, false),
        (None, Activation::Relu, true),
        (Some(Along::Columns), Activation::None, false),
    ] {
        let (epilogue, accuracy) = (Epilogue { bias, activation }, Accuracy::Full);
        let (transposed, alpha, beta) = ([false, true], 0.5, 0.25);
        let case = Case::<f32> { m: 256, n: 128, k: 64, batch: 2, transposed, alpha, beta, accuracy, epilogue };
        let row = measure(&device, &case, &settings, &peer).unwrap();
        assert!(row.ours.r <= case.bound(), "{epilogue}: {row:?}");
        assert_eq!(row.rival.is_some(), has_peer, "{epilogue}: {row:?}");
        if let Some(rival) = row.rival {
            // How exact its GELU is, is not ours to know; that it is one is.
            let room = if activation == Activation::Gelu { 1e5 } else { 1.0 };
            assert!(rival.side.r <= room * case.bound(), "{epilogue}: {rival:?}");
        }
    }
}
