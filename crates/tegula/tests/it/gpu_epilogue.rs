//! Bias and activation on a GPU: every kernel is correct, and has the interpreter's bits.
//!
//! Without a GPU the tests are skipped; `TEGULA_REQUIRE_GPU=1` makes that a failure, and
//! `TEGULA_REQUIRE_CUBLASLT=1` does so for a missing library.
#![cfg(feature = "cuda")]

use tegula::cuda::{DeviceMatrix, Gpu};
use tegula::element::{Scalar, Type, bf16, f16, with_operand_type};
use tegula::epilogue::{Activation, BiasShape, Epilogue};
use tegula::{Accuracy, Device, Gemm, Matrix, Shape, View};
use tegula_bench::{Case, Peer, Settings, measure};
use tegula_kernels::plan::{Recipe, Split};
use tegula_kernels::{Blocked, Plain, PlainKind, Vector};

use crate::blocked::{BYTES, DMMA, HALVES, LIMBS, REGISTER, TF32};
use crate::gpu::gpu;
use crate::product::{Product, Random, Sample, StorageLayout, canonical_bits};

/// Enumerates the epilogues of a type. The order changes after 12 of them, so that each of three
/// alternating splits gets every one.
fn epilogue(ty: Type, case: usize) -> Epilogue {
    let bias = [None, Some(BiasShape::Row), Some(BiasShape::Column)][(case + case / 12) % 3];
    Epilogue { bias, activation: Activation::ALL[case / 3 % if ty.is_float() { 4 } else { 2 }] }
}

/// Compares products on a GPU, each with the next epilogue.
struct EpilogueComparison {
    gpu: Device,
    /// Whether the interpreter models this GPU's Tensor Cores.
    is_hopper: bool,
    case: usize,
}

impl EpilogueComparison {
    fn new(gpu: Gpu) -> Self {
        EpilogueComparison { is_hopper: gpu.info().compute == (9, 0), gpu: gpu.into(), case: 0 }
    }

    /// Runs a recipe on both devices: both must be correct, with equal bits.
    fn compare<T: Sample>(&mut self, sizes: [usize; 4], recipe: impl Into<Recipe>) {
        self.compare_at::<T>(sizes, recipe.into(), Accuracy::Full);
    }

    fn compare_at<T: Sample>(&mut self, sizes: [usize; 4], recipe: Recipe, accuracy: Accuracy) {
        let random = &mut Random(self.case as u64);
        // Without gaps, so that a copy has the same layout.
        let mut random_layout = || StorageLayout { transposed: random.chance(2), ..StorageLayout::default() };
        let layouts = [random_layout(), random_layout(), random_layout()];
        let scalars = (T::scalar(random), T::scalar(random));
        let epilogue = epilogue(T::TYPE, self.case);
        let product = Product::<T>::new(sizes, layouts, random, scalars).with_epilogue(epilogue, random);
        let gpu_bits = product.run_recipe_at(&self.gpu, recipe, accuracy);
        let interp_bits = product.run_recipe_at(&Device::interp(), recipe, accuracy);
        assert!(gpu_bits == interp_bits, "{} {sizes:?} {epilogue} case {}: bits differ", recipe.name(), self.case);
        self.case += 1;
    }

    /// Blocked kernels, whole and split, often enough that each split gets every epilogue.
    fn blocks<T: Sample>(&mut self, names: &[&str], accuracy: Accuracy) {
        self.case = 0;
        for name in names.iter().cycle().take(names.len().next_multiple_of(12)) {
            for split in [Split::Whole, Split::SplitK(3), Split::StreamK(5)] {
                let (m, n, k) = (70 + self.case % 5 * 16, 65 + self.case % 4 * 21, 40 + self.case % 7);
                let recipe = Recipe { split, ..Blocked::named(name, T::TYPE).unwrap().into() };
                self.compare_at::<T>([1 + self.case % 2, m, n, k], recipe, accuracy);
            }
        }
    }

    /// Plain kernels and vector kernels.
    fn small<T: Sample>(&mut self) {
        self.case = 0;
        for family in [PlainKind::Naive, PlainKind::Tiled].into_iter().cycle().take(12) {
            self.compare::<T>([2, 33, 50, 20], Plain::new(family, T::TYPE, 16));
        }
        for split in [Split::Whole, Split::SplitK(3)].into_iter().cycle().take(12) {
            let (vector, swapped) = (Vector::new(T::TYPE, 4, 4, [8, 8], 4), self.case % 4 > 1);
            let [m, n] = if swapped { [90, 3] } else { [3, 90] };
            self.compare::<T>([2, m, n, 70], Recipe { swapped, split, ..vector.into() });
        }
    }
}

#[test]
fn gpu_blocked_kernels_apply_the_epilogue() {
    let Some(gpu) = gpu() else { return };
    let mut comparison = EpilogueComparison::new(gpu);
    comparison.blocks::<f32>(&REGISTER, Accuracy::Full);
    comparison.blocks::<i32>(&REGISTER, Accuracy::Full);
    comparison.blocks::<f64>(&REGISTER[..4], Accuracy::Full);
    let dmma: Vec<&str> = DMMA.into_iter().filter(|name| comparison.is_hopper || name.starts_with("dmma8x4")).collect();
    comparison.blocks::<f64>(&dmma, Accuracy::Full);
    comparison.blocks::<i8>(&BYTES, Accuracy::Full);
    comparison.blocks::<i32>(&LIMBS, Accuracy::Full);
    if comparison.is_hopper {
        comparison.blocks::<f16>(&HALVES, Accuracy::Full);
        comparison.blocks::<bf16>(&HALVES, Accuracy::Full);
        comparison.blocks::<f32>(&TF32, Accuracy::Tf32);
    }
}

#[test]
fn gpu_plain_and_vector_kernels_apply_the_epilogue() {
    let Some(gpu) = gpu() else { return };
    let mut comparison = EpilogueComparison::new(gpu);
    for ty in Type::OPERANDS {
        with_operand_type!(ty, T => comparison.small::<T>(), ty => panic!("no products of {ty}"));
    }
}

#[test]
fn activations_have_equal_bits_on_gpu_and_cpu() {
    fn same<T: Sample>(gpu: &Device, bits: impl Fn(u64) -> u64) {
        let draw = |_, row: usize, col: usize| T::Out::from_bits(bits(Random((500 * row + col) as u64).next()));
        let c = Matrix::<T::Out>::from_shape_fn(Shape::new(200, 500), draw).unwrap();
        let (a, b) = (Matrix::<T>::zeros(200, 0).unwrap(), Matrix::<T>::zeros(0, 500).unwrap());
        for activation in Activation::ALL {
            let run = |device: &Device| {
                let mut c = c.clone();
                let product = Gemm::new(a.view(), b.view(), c.view_mut()).beta(T::Acc::ONE).activation(activation);
                product.on(device).run().unwrap();
                c.as_slice().iter().copied().map(canonical_bits).collect::<Vec<_>>()
            };
            assert!(run(gpu) == run(&Device::cpu()), "{} {activation}", T::TYPE);
        }
    }
    let Some(gpu) = gpu() else { return };
    let gpu = Device::from(gpu);
    // Every exponent, and one value per 16-bit pattern.
    same::<f64>(&gpu, |bits| bits);
    same::<f32>(&gpu, |bits| bits >> 32);
    same::<f16>(&gpu, |bits| bits >> 48);
    same::<bf16>(&gpu, |bits| bits >> 48);
}

#[test]
fn bias_in_host_or_gpu_memory_is_accepted() {
    let Some(gpu) = gpu() else { return };
    let (ones, bias) = (Matrix::from_vec(2, 2, vec![1i32; 4]).unwrap(), [10, -20]);
    let bias = View::new(&bias, 1, 2).unwrap();
    let (a, device_bias) =
        (DeviceMatrix::upload(&gpu, ones.view()).unwrap(), DeviceMatrix::upload(&gpu, bias).unwrap());
    let mut c = DeviceMatrix::<i32>::uninit(&gpu, Shape::new(2, 2)).unwrap();
    for bias in [bias, device_bias.view()] {
        let product = Gemm::new(a.view(), a.view(), c.view_mut()).bias(bias).activation(Activation::Relu);
        let explained = product.explain().unwrap();
        assert_eq!(product.run().unwrap().kernel, explained.kernel);
        assert_eq!(c.download().unwrap().as_slice(), [12, 0, 12, 0]);
    }
    // All on the host except the bias, which selects the device.
    let mut on_host = Matrix::<i32>::zeros(2, 2).unwrap();
    let report = Gemm::new(ones.view(), ones.view(), on_host.view_mut()).bias(device_bias.view()).run().unwrap();
    assert_eq!((&*report.device, on_host.as_slice()), ("cuda:0", [12, -18, 12, -18].as_slice()));
}

#[test]
fn measured_epilogue_has_a_peer_where_supported() {
    let Some(gpu) = gpu() else { return };
    let device = Device::from(gpu);
    let peer = match Peer::cublaslt(&device) {
        Ok(peer) => peer,
        Err(why) if std::env::var_os("TEGULA_REQUIRE_CUBLASLT").is_none_or(|v| v != "1") => {
            return println!("skipped: {why}");
        }
        Err(why) => panic!("{why}"),
    };
    let settings = Settings { seed: 1, seconds: 0.0, plan: None, batch_invariant: false };
    let bias = Some(BiasShape::Row);
    for (bias, activation, has_peer) in [
        (bias, Activation::None, true),
        (bias, Activation::Relu, true),
        (bias, Activation::Gelu, true),
        (bias, Activation::Silu, false),
        (None, Activation::Relu, true),
        (Some(BiasShape::Column), Activation::None, false),
    ] {
        let (epilogue, accuracy) = (Epilogue { bias, activation }, Accuracy::Full);
        let (transposed, alpha, beta) = ([false, true], 0.5, 0.25);
        let case = Case::<f32> { m: 256, n: 128, k: 64, batch: 2, transposed, alpha, beta, accuracy, epilogue };
        let row = measure(&device, &case, &settings, &peer).unwrap();
        assert!(row.ours.r <= case.bound(), "{epilogue}: {row:?}");
        assert_eq!(row.peer.is_some(), has_peer, "{epilogue}: {row:?}");
        if let Some(peer) = row.peer {
            // The accuracy of the peer's GELU is unspecified, so allow a large error.
            let tolerance = if activation == Activation::Gelu { 1e5 } else { 1.0 };
            assert!(peer.measurement.r <= tolerance * case.bound(), "{epilogue}: {peer:?}");
        }
    }
}
