//! Grouped products: one kernel in the interpreter, correct and without findings on every seed; and
//! the public interface, on every device.

use tegula::element::{Scalar, Type, bf16, f16};
use tegula::epilogue::{Activation, BiasShape, Epilogue, EpilogueOperands};
use tegula::interpret;
use tegula::{Device, Error, Grouped, Layout, Matrix, Report, Result, Shape, View, ViewMut};
use tegula_bench::oracle;
use tegula_interp::{self as interp, Arg, Buffer, Config, Severity};
use tegula_ir::launch::DeviceProperties;
use tegula_ir::{Checked, Kernel, Order2d, check};
use tegula_kernels::{GroupEnds, Hopper, Schedule};

use super::effort::seeds;
use super::product::{Random, Sample, StorageLayout};

const ROW: Order2d = Order2d::RowMajor;
const COL: Order2d = Order2d::ColMajor;

/// Shape of the bias.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bias {
    None,
    /// One row for all groups, or one per group.
    Row,
    Rows,
    Column,
}

/// Groups of rows, each with its own matrix B; extra rows may follow.
#[derive(Debug)]
pub struct Groups<T: Sample> {
    pub sizes: Vec<usize>,
    pub alpha: T::Acc,
    pub beta: T::Acc,
    pub a: (Vec<T>, Layout),
    pub b: (Vec<T>, Layout),
    pub c: (Vec<T::Out>, Layout),
    pub bias: Option<Matrix<T::Out>>,
    pub activation: Activation,
}

impl<T: Sample> Groups<T> {
    /// Groups with alpha 1, beta 0 and no epilogue.
    pub fn new(
        sizes: &[usize],
        extra_rows: usize,
        [n, k]: [usize; 2],
        orders: [Order2d; 3],
        random: &mut Random,
    ) -> Self {
        let storage = |order| StorageLayout { transposed: order == COL, ..StorageLayout::default() };
        let rows = sizes.iter().sum::<usize>() + extra_rows;
        let shapes = [Shape::new(rows, k), Shape { batches: sizes.len(), rows: k, cols: n }, Shape::new(rows, n)];
        let [(a, a_len), (b, b_len), (c, c_len)] = std::array::from_fn(|i| storage(orders[i]).layout(shapes[i]));
        Groups {
            sizes: sizes.to_vec(),
            alpha: T::Acc::ONE,
            beta: T::Acc::ZERO,
            a: ((0..a_len).map(|_| T::element(random)).collect(), a),
            b: ((0..b_len).map(|_| T::element(random)).collect(), b),
            c: ((0..c_len).map(|_| T::result(random)).collect(), c),
            bias: None,
            activation: Activation::None,
        }
    }

    pub fn scalars(self, alpha: T::Acc, beta: T::Acc) -> Self {
        Groups { alpha, beta, ..self }
    }

    pub fn with_epilogue(self, bias: Bias, activation: Activation, random: &mut Random) -> Self {
        let Shape { rows, cols, .. } = self.c.1.shape;
        let batches = if bias == Bias::Rows { self.sizes.len() } else { 1 };
        let shape = match bias {
            Bias::None => return Groups { activation, ..self },
            Bias::Row | Bias::Rows => Shape { batches, rows: 1, cols },
            Bias::Column => Shape::new(rows, 1),
        };
        let bias = Some(Matrix::from_shape_fn(shape, |_, _, _| T::result(random)).unwrap());
        Groups { bias, activation, ..self }
    }

    pub fn a(&self) -> View<'_, T> {
        View::strided(&self.a.0, self.a.1).unwrap()
    }

    pub fn b(&self) -> View<'_, T> {
        View::strided(&self.b.0, self.b.1).unwrap()
    }

    pub fn initial_c(&self) -> View<'_, T::Out> {
        View::strided(&self.c.0, self.c.1).unwrap()
    }

    /// Checks C: the rows of each group, and that extra rows are unchanged.
    pub fn assert_correct(&self, c: View<'_, T::Out>, context: &str) {
        let mut begin = 0;
        for (group, size) in self.sizes.iter().enumerate() {
            let rows = begin..begin + size;
            begin += size;
            if *size == 0 {
                continue;
            }
            let bias = self.bias.as_ref().map(|bias| match bias.shape() {
                Shape { batches: 1, rows: 1, .. } => bias.view(),
                Shape { rows: 1, .. } => bias.view().batches(group..=group).unwrap(),
                _ => bias.view().rows(rows.clone()).unwrap(),
            });
            let epilogue = EpilogueOperands { bias, activation: self.activation };
            let (a, b) = (self.a().rows(rows.clone()).unwrap(), self.b().batches(group..=group).unwrap());
            let (before, c) = (self.initial_c().rows(rows.clone()).unwrap(), c.rows(rows.clone()).unwrap());
            let report =
                oracle::check_with_epilogue::<T>(self.alpha, a, b, self.beta, Some(before), epilogue, c, &|_| {})
                    .unwrap();
            let bound = oracle::bound_with_epilogue::<T>(tegula::Accuracy::Full, a.shape().cols, epilogue.epilogue());
            let is_correct = report.within(bound) && report.mismatches == 0;
            assert!(is_correct, "{context}: group {group}, rows {rows:?}: {report:?} beyond {bound}");
        }
        for row in begin..c.shape().rows {
            for col in 0..c.shape().cols {
                let [old, is] = [self.initial_c(), c].map(|view| view.get(0, row, col).map(Scalar::to_bits));
                assert!(old == is, "{context}: row {row} belongs to no group, and was changed");
            }
        }
    }

    /// Runs a kernel with this seed on three SMs, so that blocks compute several tiles. Checks C
    /// and that no error is found.
    fn run_kernel(&self, kernel: &Checked<Kernel>, seed: u64) {
        let ty = <T::Out as Scalar>::TYPE;
        let covers_all_rows = self.sizes.iter().sum::<usize>() == self.c.1.shape.rows;
        let c = if covers_all_rows && self.beta == T::Acc::ZERO {
            Buffer::output(ty, self.c.1)
        } else {
            interpret::in_out(self.initial_c())
        };
        let mut end = 0;
        let ends = self.sizes.iter().map(|size| {
            end += *size as u32;
            end
        });
        let ends = Matrix::from_vec(1, self.sizes.len(), ends.collect()).unwrap();
        let bias = self.bias.as_ref().map(|bias| {
            let Shape { rows, cols, .. } = bias.shape();
            let view = bias.view().broadcast(Shape { batches: self.sizes.len(), rows, cols });
            interpret::input(view.unwrap()).unwrap()
        });
        let (a, b) = (interpret::input(self.a()).unwrap(), interpret::input(self.b()).unwrap());
        let (ends, c) = (interpret::input(ends.view()).unwrap(), c.unwrap());
        let matrices = [&a, &b, &ends, &c].into_iter().chain(bias.as_ref()).map(Arg::from);
        let args: Vec<Arg<'_>> = matrices.chain([Arg::scalar(self.alpha), Arg::scalar(self.beta)]).collect();
        let config = Config { seed, device: DeviceProperties { multiprocessors: 3 }, ..Config::default() };
        let context = format!("{} {:?} {}, seed {seed}", kernel.name(), self.sizes, self.b.1.shape);
        let outcome = interp::run(kernel, &args, &config).unwrap();
        let first = outcome.findings.iter().find(|f| f.severity() == Severity::Error);
        assert!(first.is_none(), "{context}: {}", first.unwrap());
        self.assert_correct(interpret::to_matrix::<T::Out>(&c).unwrap().view(), &context);
    }

    /// The kernel for these matrices.
    fn kernel(&self, pipeline: &str, orders: [Order2d; 3], tma_store: bool) -> Checked<Kernel> {
        let bias =
            self.bias.as_ref().map(|bias| if bias.shape().rows == 1 { BiasShape::Row } else { BiasShape::Column });
        let epilogue = Epilogue { bias, activation: self.activation };
        let hopper = Hopper::new(T::TYPE, pipeline.parse().unwrap());
        let hopper = Hopper { orders, tma_store, epilogue, schedule: Schedule::Grouped, ..hopper };
        check(hopper.build().unwrap()).unwrap()
    }

    /// Runs with at most `max_size` seeds.
    fn check_schedules(&self, pipeline: &str, orders: [Order2d; 3], max_size: u64) {
        let kernel = self.kernel(pipeline, orders, true);
        (0..seeds(1, max_size)).for_each(|seed| self.run_kernel(&kernel, seed));
    }

    /// Runs the public interface.
    pub fn run_on(&self, device: &Device) -> (Vec<T::Out>, Result<Report>) {
        let mut after = self.c.0.clone();
        let c = ViewMut::strided(&mut after, self.c.1).unwrap();
        let mut product = Grouped::new(self.a(), self.b(), c, &self.sizes).alpha(self.alpha).beta(self.beta);
        if let Some(bias) = &self.bias {
            product = product.bias(bias.view());
        }
        let report = product.activation(self.activation).on(device).run();
        (after, report)
    }

    pub fn assert_correct_on(&self, device: &Device) {
        let (after, report) = self.run_on(device);
        let context = format!("{:?} {:?}", report.unwrap(), self.sizes);
        self.assert_correct(View::strided(&after, self.c.1).unwrap(), &context);
    }
}

/// Empty groups, one row, ragged, whole tiles, and one row more or less.
const RAGGED: [usize; 9] = [0, 70, 1, 64, 0, 128, 63, 65, 0];

#[test]
fn grouped_kernels_have_no_findings_on_every_seed() {
    for b in [ROW, COL] {
        let random = &mut Random(1);
        Groups::<bf16>::new(&RAGGED, 0, [136, 72], [ROW, b, ROW], random).check_schedules(
            "64x64x64_consumers1_stages2",
            [ROW, b, ROW],
            32,
        );
        Groups::<f16>::new(&RAGGED, 0, [72, 136], [ROW, b, ROW], random).check_schedules(
            "128x64x64_consumers2_stages3",
            [ROW, b, ROW],
            32,
        );
        // Column-major C, with tiles aligned for TMA stores and unaligned ones.
        let sizes = [64, 30, 64, 34, 128, 136];
        for pipeline in ["64x64x64_consumers1_stages2", "128x64x64_consumers2_stages2", "128x192x64_consumers2_stages2"]
        {
            Groups::<bf16>::new(&sizes, 0, [72, 200], [ROW, b, COL], random).check_schedules(
                pipeline,
                [ROW, b, COL],
                8,
            );
        }
        // Extra rows of C, column-major C, and column-major A.
        Groups::<f16>::new(&[30, 100], 6, [72, 200], [ROW, b, COL], random).check_schedules(
            "64x64x64_consumers1_stages2",
            [ROW, b, COL],
            8,
        );
        Groups::<bf16>::new(&RAGGED, 1, [72, 72], [COL, b, ROW], random).check_schedules(
            "128x64x64_consumers2_stages2",
            [COL, b, ROW],
            8,
        );
    }
}

#[test]
fn grouped_epilogues_are_correct_on_every_seed() {
    let random = &mut Random(2);
    let [with, gelu] = [Activation::None, Activation::Gelu];
    for (i, bias) in [Bias::None, Bias::Row, Bias::Rows, Bias::Column].into_iter().enumerate() {
        let beta = if i % 2 == 0 { 0.5 } else { 0.0 };
        let orders = [ROW, if i < 2 { ROW } else { COL }, ROW];
        // Small k, so that a wrong bias exceeds the error bound.
        let groups = |random: &mut Random| Groups::<bf16>::new(&RAGGED, 2, [72, 8], orders, random).scalars(2.0, beta);
        groups(random).with_epilogue(bias, with, random).check_schedules("64x64x64_consumers1_stages2", orders, 32);
        groups(random).with_epilogue(bias, gelu, random).check_schedules("128x64x64_consumers2_stages3", orders, 32);
    }
}

#[test]
fn one_group_and_many_groups_are_correct() {
    let random = &mut Random(3);
    for size in [1, 63, 64, 65, 200] {
        Groups::<bf16>::new(&[size], 0, [200, 136], [ROW; 3], random).check_schedules(
            "64x64x64_consumers1_stages3",
            [ROW; 3],
            8,
        );
    }
    let sizes: Vec<usize> = (0..50).map(|i| i * 7 % 5).collect();
    Groups::<f16>::new(&sizes, 0, [136, 64], [ROW; 3], random).check_schedules(
        "64x128x64_consumers1_stages3",
        [ROW; 3],
        8,
    );
    Groups::<f16>::new(&[0; 5], 3, [64, 64], [ROW; 3], random).check_schedules(
        "64x64x64_consumers1_stages2",
        [ROW; 3],
        2,
    );
}

#[test]
fn planned_pipelines_support_groups() {
    let random = &mut Random(4);
    for pipeline in [
        "128x256x64_consumers2_stages4",
        "64x256x64_consumers1_stages5",
        "128x128x64_consumers2_stages6",
        "64x128x64_consumers1_stages8",
    ] {
        let groups = Groups::<bf16>::new(&[0, 150, 128, 40], 0, [264, 136], [ROW; 3], random);
        groups.scalars(1.0, 1.0).check_schedules(pipeline, [ROW; 3], 2);
    }
}

#[test]
fn groups_unaligned_for_tma_are_stored_without_it() {
    let random = &mut Random(5);
    for orders in [[ROW, COL, ROW], [ROW, COL, COL]] {
        let groups = Groups::<bf16>::new(&RAGGED, 0, [69, 72], orders, random).scalars(1.0, -1.0);
        let kernel = groups.kernel("64x64x64_consumers1_stages2", orders, false);
        (0..seeds(1, 8)).for_each(|seed| groups.run_kernel(&kernel, seed));
    }
}

#[test]
fn group_ends_kernel_writes_the_ends() {
    let kernel = check(GroupEnds.build()).unwrap();
    let layout = Layout::row_major(Shape::new(1, 2 * GroupEnds::PER_LAUNCH)).unwrap();
    let ends = Buffer::output(Type::U32, layout).unwrap();
    for first in [0, GroupEnds::PER_LAUNCH as u32] {
        let numbers = (first..).take(GroupEnds::PER_LAUNCH).map(|i| Arg::scalar(3 * i));
        let args: Vec<Arg<'_>> = [Arg::from(&ends), Arg::scalar(first)].into_iter().chain(numbers).collect();
        let outcome = interp::run(&kernel, &args, &Config::default()).unwrap();
        assert!(outcome.error().is_none(), "{:?}", outcome.error());
    }
    let expected: Vec<u32> = (0..2 * GroupEnds::PER_LAUNCH as u32).map(|i| 3 * i).collect();
    assert_eq!(ends.to_vec::<u32>().unwrap(), expected);
}

/// Random groups.
pub fn random_groups<T: Sample>(seed: u64) -> Groups<T> {
    let random = &mut Random(seed);
    let max_size = [3, 40, 150][random.below(3)];
    let sizes: Vec<usize> = (0..random.below(7)).map(|_| random.below(max_size) * random.below(3).min(1)).collect();
    let mut order = || if random.chance(2) { ROW } else { COL };
    let orders = [order(), order(), order()];
    let max_k = [9, 150][random.below(2)];
    let mut sizes_of = [1 + random.below(150), random.below(max_k)];
    if random.chance(2) {
        sizes_of = sizes_of.map(|size| size.next_multiple_of(8));
    }
    let groups = Groups::<T>::new(&sizes, random.below(4), sizes_of, orders, random);
    let groups = groups.scalars(T::scalar(random), T::scalar(random));
    let bias = [Bias::None, Bias::Row, Bias::Rows, Bias::Column][random.below(4)];
    let activations = if T::TYPE.is_float() { 4 } else { 2 };
    groups.with_epilogue(bias, Activation::ALL[random.below(activations)], random)
}

#[test]
fn random_groups_on_every_device_are_correct() {
    fn both<T: Sample>(seeds: std::ops::Range<u64>) {
        for seed in seeds {
            random_groups::<T>(seed).assert_correct_on(&Device::cpu());
            random_groups::<T>(seed).assert_correct_on(&Device::interp());
        }
    }
    both::<bf16>(0..seeds(6, 12));
    both::<f32>(12..12 + seeds(4, 12));
    both::<i8>(24..24 + seeds(4, 8));
    both::<f64>(32..32 + seeds(4, 8));
}

#[test]
fn invalid_groups_are_errors() {
    let random = &mut Random(6);
    let assert_shape_error = |groups: Groups<f32>, part: &str| {
        let (after, report) = groups.run_on(&Device::cpu());
        let error = report.unwrap_err();
        assert!(matches!(error, Error::Shape(_)) && error.to_string().contains(part), "{error}");
        assert!(after == groups.c.0, "C is unchanged");
    };
    let groups = |random: &mut Random| Groups::<f32>::new(&[2, 3], 1, [4, 5], [ROW; 3], random);
    assert_shape_error(Groups { sizes: vec![2, 3, 0], ..groups(random) }, "3 group sizes for 2 matrices");
    assert_shape_error(Groups { sizes: vec![4, 3], ..groups(random) }, "7 rows; A has 6");
    assert_shape_error(Groups { sizes: vec![usize::MAX, 3], ..groups(random) }, "A has 6");
    let other = |random: &mut Random| Groups::<f32>::new(&[2, 3], 1, [3, 4], [ROW; 3], random);
    assert_shape_error(
        Groups { b: other(random).b, ..groups(random) },
        "its columns equal to the rows of each matrix of B",
    );
    assert_shape_error(Groups { c: other(random).c, ..groups(random) }, "B's columns");
    for shape in [Shape::new(5, 1), Shape::new(1, 3), Shape { batches: 3, rows: 1, cols: 4 }] {
        assert_shape_error(Groups { bias: Some(Matrix::zeros_of_shape(shape).unwrap()), ..groups(random) }, "bias");
    }
    let columns = Matrix::zeros_of_shape(Shape { batches: 2, rows: 6, cols: 1 }).unwrap();
    assert_shape_error(Groups { bias: Some(columns), ..groups(random) }, "6×1");
}

#[test]
fn pipeline_without_group_support_is_an_error() {
    for pipeline in ["128x128x64_consumers2_stages2_cluster2x1", "64x64x64_consumers1_stages2_clusterk2"] {
        let hopper = Hopper::new(bf16::TYPE, pipeline.parse().unwrap());
        let groups = Hopper { schedule: Schedule::Grouped, ..hopper };
        assert!(hopper.build().is_ok() && matches!(groups.build(), Err(Error::KernelOption(_))));
    }
}
