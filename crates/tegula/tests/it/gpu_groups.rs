//! Products of groups of rows on a GPU: any are right, in whatever order they are queued, and recorded ones keep the sizes that they had.
//!
//! Without a GPU the tests say that they are skipped; `TEGULA_REQUIRE_GPU=1` makes that a failure.
#![cfg(feature = "cuda")]

use tegula::cuda::{DeviceMatrix, Gpu};
use tegula::element::{bf16, f16};
use tegula::{Device, Grouped, Report, Result};
use tegula_ir::Order2d;

use crate::gpu::gpu;
use crate::groups::{Bias, Groups, any};
use crate::product::{Random, Sample};

/// Groups whose matrices lie on the GPU as well.
struct There<T: Sample> {
    groups: Groups<T>,
    a: DeviceMatrix<T>,
    b: DeviceMatrix<T>,
    c: DeviceMatrix<T::Out>,
    bias: Option<DeviceMatrix<T::Out>>,
}

impl<T: Sample> There<T> {
    fn new(gpu: &Gpu, groups: Groups<T>) -> Self {
        let a = DeviceMatrix::upload(gpu, groups.a()).unwrap();
        let b = DeviceMatrix::upload(gpu, groups.b()).unwrap();
        let c = DeviceMatrix::upload(gpu, groups.before()).unwrap();
        let bias = groups.bias.as_ref().map(|bias| DeviceMatrix::upload(gpu, bias.view()).unwrap());
        There { groups, a, b, c, bias }
    }

    /// Queues them, on the stream of the handle or, where none is given, at home.
    fn queue(&mut self, gpu: Option<&Gpu>) -> Result<Report> {
        let There { groups, a, b, c, bias } = self;
        let product = Grouped::new(a.view(), b.view(), c.view_mut(), &groups.sizes);
        let product = product.alpha(groups.alpha).beta(groups.beta).activation(groups.activation);
        let product = if let Some(bias) = bias { product.bias(bias.view()) } else { product };
        if let Some(gpu) = gpu { product.on(&gpu.clone().into()).run() } else { product.run() }
    }

    fn must_be_right(&self, what: &str) {
        self.groups.must_be_right(self.c.download().unwrap().view(), what);
    }
}

/// Sizes that add up to so many rows.
fn sizes(count: usize, rows: usize, random: &mut Random) -> Vec<usize> {
    let mut ends: Vec<usize> = (1..count).map(|_| random.below(rows + 1)).collect();
    ends.push(rows);
    ends.sort_unstable();
    let mut begin = 0;
    ends.into_iter().map(|end| end - std::mem::replace(&mut begin, end)).collect()
}

const ORDERS: [Order2d; 3] = [Order2d::RowMajor; 3];

#[test]
fn any_groups_are_right_on_a_gpu() {
    fn right<T: Sample>(gpu: &Gpu, seed: u64) {
        any::<T>(seed).must_be_right_on(&Device::from(gpu.clone()));
        let mut there = There::new(gpu, any::<T>(1000 + seed));
        let report = there.queue(Some(gpu)).unwrap();
        there.must_be_right(&format!("seed {seed}, {report:?}"));
    }
    let Some(gpu) = gpu() else { return };
    for seed in 0..100 {
        match seed % 10 {
            0 => right::<f64>(&gpu, seed),
            1 => right::<f32>(&gpu, seed),
            2 => right::<i32>(&gpu, seed),
            3 => right::<i8>(&gpu, seed),
            4..=6 => right::<f16>(&gpu, seed),
            _ => right::<bf16>(&gpu, seed),
        }
    }
}

#[test]
fn groups_of_every_tile_are_one_launch() {
    let Some(gpu) = gpu() else { return };
    let random = &mut Random(1);
    // More groups than a pass brings; large ones; few; and sums so short that a wrong bias is no small error beside them.
    for (count, rows, [n, k]) in [(300, 2000, [72, 16]), (4, 4000, [520, 8]), (5, 90, [264, 200]), (3, 700, [128, 8])] {
        for bias in [Bias::None, Bias::Row, Bias::Rows, Bias::Column] {
            let groups = Groups::<bf16>::new(&sizes(count, rows, random), 3, [n, k], ORDERS, random);
            let beta = if bias == Bias::Rows { 0.5 } else { 0.0 };
            let groups = groups.factors(1.5, beta).finished(bias, tegula::epilogue::Activation::Gelu, random);
            let mut there = There::new(&gpu, groups);
            let report = there.queue(None).unwrap();
            let at_once = gpu.info().compute == (9, 0);
            assert_eq!(report.kernel.contains("_groups"), at_once, "{report:?}");
            there.must_be_right(&format!("{count} groups, {report:?}"));
        }
    }
}

#[test]
fn sizes_are_those_of_their_launch() {
    let Some(gpu) = gpu() else { return };
    let random = &mut Random(2);
    let mut all: Vec<There<f16>> =
        (0..20).map(|_| There::new(&gpu, Groups::new(&sizes(16, 500, random), 0, [256, 64], ORDERS, random))).collect();
    // Nobody waits between them, and some are on another stream.
    let other = gpu.with_stream(gpu.context().new_stream().unwrap()).unwrap();
    for (i, there) in all.iter_mut().enumerate() {
        let kept = there.groups.sizes.clone();
        there.queue(Some(if i % 3 == 0 { &other } else { &gpu })).unwrap();
        // The caller's slice may change at once.
        there.groups.sizes.fill(0);
        there.groups.sizes = kept;
    }
    all.iter().enumerate().for_each(|(i, there)| there.must_be_right(&format!("launch {i}")));
}

#[test]
fn recorded_groups_keep_their_sizes() {
    let Some(gpu) = gpu() else { return };
    let random = &mut Random(3);
    let mut there = There::<bf16>::new(&gpu, Groups::new(&[100, 0, 28, 200], 0, [256, 64], ORDERS, random));
    there.queue(Some(&gpu)).unwrap();
    let graph = gpu.capture(|| there.queue(Some(&gpu)).map(drop)).unwrap();
    let recorded = std::mem::replace(&mut there.groups.sizes, vec![1, 327, 0, 0]);
    there.queue(Some(&gpu)).unwrap();
    there.must_be_right("other sizes");
    there.groups.sizes = recorded;
    // SAFETY: the matrices are alive and where they were, and all work is on one stream.
    unsafe { graph.launch() }.unwrap();
    there.must_be_right("recorded sizes");
}
