//! Grouped products on a GPU: correct in any queue order, and captured ones keep their sizes.
//!
//! Without a GPU the tests are skipped; `TEGULA_REQUIRE_GPU=1` makes that a failure.
#![cfg(feature = "cuda")]

use tegula::cuda::{DeviceMatrix, Gpu};
use tegula::element::{bf16, f16};
use tegula::{Device, Grouped, Report, Result};
use tegula_ir::Order2d;

use crate::gpu::gpu;
use crate::groups::{Bias, Groups, random_groups};
use crate::product::{Random, Sample};

/// Groups with matrices in GPU memory.
struct DeviceGroups<T: Sample> {
    groups: Groups<T>,
    a: DeviceMatrix<T>,
    b: DeviceMatrix<T>,
    c: DeviceMatrix<T::Out>,
    bias: Option<DeviceMatrix<T::Out>>,
}

impl<T: Sample> DeviceGroups<T> {
    fn new(gpu: &Gpu, groups: Groups<T>) -> Self {
        let a = DeviceMatrix::upload(gpu, groups.a()).unwrap();
        let b = DeviceMatrix::upload(gpu, groups.b()).unwrap();
        let c = DeviceMatrix::upload(gpu, groups.initial_c()).unwrap();
        let bias = groups.bias.as_ref().map(|bias| DeviceMatrix::upload(gpu, bias.view()).unwrap());
        DeviceGroups { groups, a, b, c, bias }
    }

    /// Queues the groups, on the stream of the handle or, without one, on the home stream.
    fn queue(&mut self, gpu: Option<&Gpu>) -> Result<Report> {
        let DeviceGroups { groups, a, b, c, bias } = self;
        let product = Grouped::new(a.view(), b.view(), c.view_mut(), &groups.sizes);
        let product = product.alpha(groups.alpha).beta(groups.beta).activation(groups.activation);
        let product = if let Some(bias) = bias { product.bias(bias.view()) } else { product };
        if let Some(gpu) = gpu { product.on(&gpu.clone().into()).run() } else { product.run() }
    }

    fn assert_correct(&self, what: &str) {
        self.groups.assert_correct(self.c.download().unwrap().view(), what);
    }
}

/// Random sizes with this sum.
fn sizes(count: usize, rows: usize, random: &mut Random) -> Vec<usize> {
    let mut ends: Vec<usize> = (1..count).map(|_| random.below(rows + 1)).collect();
    ends.push(rows);
    ends.sort_unstable();
    let mut begin = 0;
    ends.into_iter().map(|end| end - std::mem::replace(&mut begin, end)).collect()
}

const ORDERS: [Order2d; 3] = [Order2d::RowMajor; 3];

#[test]
fn random_groups_on_the_gpu_are_correct() {
    fn check<T: Sample>(gpu: &Gpu, seed: u64) {
        random_groups::<T>(seed).assert_correct_on(&Device::from(gpu.clone()));
        let mut device_groups = DeviceGroups::new(gpu, random_groups::<T>(1000 + seed));
        let report = device_groups.queue(Some(gpu)).unwrap();
        device_groups.assert_correct(&format!("seed {seed}, {report:?}"));
    }
    let Some(gpu) = gpu() else { return };
    for seed in 0..100 {
        match seed % 10 {
            0 => check::<f64>(&gpu, seed),
            1 => check::<f32>(&gpu, seed),
            2 => check::<i32>(&gpu, seed),
            3 => check::<i8>(&gpu, seed),
            4..=6 => check::<f16>(&gpu, seed),
            _ => check::<bf16>(&gpu, seed),
        }
    }
}

#[test]
fn groups_on_hopper_are_one_launch() {
    let Some(gpu) = gpu() else { return };
    let random = &mut Random(1);
    // More groups than a pass loads; large groups; few groups; and k so small that a wrong bias
    // exceeds the error bound.
    for (count, rows, [n, k]) in [(300, 2000, [72, 16]), (4, 4000, [520, 8]), (5, 90, [264, 200]), (3, 700, [128, 8])] {
        for bias in [Bias::None, Bias::Row, Bias::Rows, Bias::Column] {
            let groups = Groups::<bf16>::new(&sizes(count, rows, random), 3, [n, k], ORDERS, random);
            let beta = if bias == Bias::Rows { 0.5 } else { 0.0 };
            let groups = groups.scalars(1.5, beta).with_epilogue(bias, tegula::epilogue::Activation::Gelu, random);
            let mut device_groups = DeviceGroups::new(&gpu, groups);
            let report = device_groups.queue(None).unwrap();
            let one_launch = gpu.info().compute == (9, 0);
            assert_eq!(report.kernel.contains("_groups"), one_launch, "{report:?}");
            device_groups.assert_correct(&format!("{count} groups, {report:?}"));
        }
    }
}

#[test]
fn group_sizes_are_copied_at_the_launch() {
    let Some(gpu) = gpu() else { return };
    let random = &mut Random(2);
    let mut all: Vec<DeviceGroups<f16>> = (0..20)
        .map(|_| DeviceGroups::new(&gpu, Groups::new(&sizes(16, 500, random), 0, [256, 64], ORDERS, random)))
        .collect();
    // Without synchronization between launches, some on another stream.
    let other = gpu.with_stream(gpu.context().new_stream().unwrap()).unwrap();
    for (i, device_groups) in all.iter_mut().enumerate() {
        let sizes = device_groups.groups.sizes.clone();
        device_groups.queue(Some(if i % 3 == 0 { &other } else { &gpu })).unwrap();
        // The caller's slice may change at once.
        device_groups.groups.sizes.fill(0);
        device_groups.groups.sizes = sizes;
    }
    all.iter().enumerate().for_each(|(i, device_groups)| device_groups.assert_correct(&format!("launch {i}")));
}

#[test]
fn captured_groups_keep_their_sizes() {
    let Some(gpu) = gpu() else { return };
    let random = &mut Random(3);
    let mut device_groups =
        DeviceGroups::<bf16>::new(&gpu, Groups::new(&[100, 0, 28, 200], 0, [256, 64], ORDERS, random));
    device_groups.queue(Some(&gpu)).unwrap();
    let graph = gpu.capture(|| device_groups.queue(Some(&gpu)).map(drop)).unwrap();
    let captured_sizes = std::mem::replace(&mut device_groups.groups.sizes, vec![1, 327, 0, 0]);
    device_groups.queue(Some(&gpu)).unwrap();
    device_groups.assert_correct("other sizes");
    device_groups.groups.sizes = captured_sizes;
    // SAFETY: the matrices are alive and where they were, and all work is on one stream.
    unsafe { graph.launch() }.unwrap();
    device_groups.assert_correct("captured sizes");
}
