//! Products of groups of rows: by one kernel, in the interpreter, right and clean on every seed; and by what users call, on every device.

use tegula::element::{Scalar, Type, bf16, f16};
use tegula::epilogue::{Activation, Along, Epilogue, Finish};
use tegula::interpret;
use tegula::{Device, Error, Grouped, Layout, Matrix, Report, Result, Shape, View, ViewMut};
use tegula_bench::oracle;
use tegula_interp::{self as interp, Arg, Buffer, Config, Severity};
use tegula_ir::launch::DeviceFacts;
use tegula_ir::{Checked, Kernel, Order2d, check};
use tegula_kernels::{Ends, Hopper, Schedule};

use super::effort::seeds;
use super::product::{Lie, Random, Sample};

const ROW: Order2d = Order2d::RowMajor;
const COL: Order2d = Order2d::ColMajor;

/// How biases lie.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bias {
    None,
    /// A row for all groups, and one for each.
    Row,
    Rows,
    Column,
}

/// Groups of rows, each with a matrix B of its own; rows may be left over.
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
    /// With alpha 1, beta 0, and nothing done last.
    pub fn new(sizes: &[usize], left: usize, [n, k]: [usize; 2], orders: [Order2d; 3], random: &mut Random) -> Self {
        let lie = |order| Lie { transposed: order == COL, ..Lie::default() };
        let rows = sizes.iter().sum::<usize>() + left;
        let shapes = [Shape::new(rows, k), Shape { batches: sizes.len(), rows: k, cols: n }, Shape::new(rows, n)];
        let [(a, a_len), (b, b_len), (c, c_len)] = std::array::from_fn(|i| lie(orders[i]).layout(shapes[i]));
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

    pub fn factors(self, alpha: T::Acc, beta: T::Acc) -> Self {
        Groups { alpha, beta, ..self }
    }

    pub fn finished(self, bias: Bias, activation: Activation, random: &mut Random) -> Self {
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

    pub fn before(&self) -> View<'_, T::Out> {
        View::strided(&self.c.0, self.c.1).unwrap()
    }

    /// Insists that C is right: each group's rows, and those of none as they were.
    pub fn must_be_right(&self, c: View<'_, T::Out>, what: &str) {
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
            let finish = Finish { bias, activation: self.activation };
            let (a, b) = (self.a().rows(rows.clone()).unwrap(), self.b().batches(group..=group).unwrap());
            let (before, c) = (self.before().rows(rows.clone()).unwrap(), c.rows(rows.clone()).unwrap());
            let report =
                oracle::check_finished::<T>(self.alpha, a, b, self.beta, Some(before), finish, c, &|_| {}).unwrap();
            let bound = oracle::bound_of::<T>(tegula::Accuracy::Full, a.shape().cols, finish.epilogue());
            let right = report.within(bound) && report.mismatches == 0;
            assert!(right, "{what}: group {group}, rows {rows:?}: {report:?} beyond {bound}");
        }
        for row in begin..c.shape().rows {
            for col in 0..c.shape().cols {
                let [was, is] = [self.before(), c].map(|view| view.get(0, row, col).map(Scalar::to_bits));
                assert!(was == is, "{what}: row {row} is of no group, and has changed");
            }
        }
    }

    /// Runs a kernel with this seed, on so few multiprocessors that blocks make several tiles; insists on a right C and no finding.
    fn by_kernel(&self, kernel: &Checked<Kernel>, seed: u64) {
        let ty = <T::Out as Scalar>::TYPE;
        let covered = self.sizes.iter().sum::<usize>() == self.c.1.shape.rows;
        let c = if covered && self.beta == T::Acc::ZERO {
            Buffer::output(ty, self.c.1)
        } else {
            interpret::in_out(self.before())
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
        let config = Config { seed, device: DeviceFacts { multiprocessors: 3 }, ..Config::default() };
        let what = format!("{} {:?} {}, seed {seed}", kernel.name(), self.sizes, self.b.1.shape);
        let outcome = interp::run(kernel, &args, &config).unwrap();
        let first = outcome.findings.iter().find(|f| f.severity() == Severity::Error);
        assert!(first.is_none(), "{what}: {}", first.unwrap());
        self.must_be_right(interpret::to_matrix::<T::Out>(&c).unwrap().view(), &what);
    }

    /// The kernel for these matrices.
    fn kernel(&self, pipeline: &str, orders: [Order2d; 3], stores_tiles: bool) -> Checked<Kernel> {
        let bias = self.bias.as_ref().map(|bias| if bias.shape().rows == 1 { Along::Rows } else { Along::Columns });
        let epilogue = Epilogue { bias, activation: self.activation };
        let hopper = Hopper::new(T::TYPE, pipeline.parse().unwrap());
        let hopper = Hopper { orders, stores_tiles, epilogue, schedule: Schedule::Groups, ..hopper };
        check(hopper.build().unwrap()).unwrap()
    }

    /// With so many seeds at most.
    fn clean(&self, pipeline: &str, orders: [Order2d; 3], most: u64) {
        let kernel = self.kernel(pipeline, orders, true);
        (0..seeds(2, most)).for_each(|seed| self.by_kernel(&kernel, seed));
    }

    /// What users call.
    pub fn call(&self, device: &Device) -> (Vec<T::Out>, Result<Report>) {
        let mut after = self.c.0.clone();
        let c = ViewMut::strided(&mut after, self.c.1).unwrap();
        let mut product = Grouped::new(self.a(), self.b(), c, &self.sizes).alpha(self.alpha).beta(self.beta);
        if let Some(bias) = &self.bias {
            product = product.bias(bias.view());
        }
        let report = product.activation(self.activation).on(device).run();
        (after, report)
    }

    pub fn must_be_right_on(&self, device: &Device) {
        let (after, report) = self.call(device);
        let what = format!("{:?} {:?}", report.unwrap(), self.sizes);
        self.must_be_right(View::strided(&after, self.c.1).unwrap(), &what);
    }
}

/// Ragged, empty, of one row, of whole tiles and one more or less.
const RAGGED: [usize; 9] = [0, 70, 1, 64, 0, 128, 63, 65, 0];

#[test]
fn groups_are_clean_on_every_seed() {
    for b in [ROW, COL] {
        let random = &mut Random(1);
        Groups::<bf16>::new(&RAGGED, 0, [136, 72], [ROW, b, ROW], random).clean("64x64x64_1_2_1", [ROW, b, ROW], 32);
        Groups::<f16>::new(&RAGGED, 0, [72, 136], [ROW, b, ROW], random).clean("128x64x64_2_3_1", [ROW, b, ROW], 32);
        // A C of columns, whose tiles begin where the copy engine stores from, and where it does not.
        let sizes = [64, 30, 64, 34, 128, 136];
        for pipeline in ["64x64x64_1_2_1", "128x64x64_2_2_1", "128x192x64_2_2_1"] {
            Groups::<bf16>::new(&sizes, 0, [72, 200], [ROW, b, COL], random).clean(pipeline, [ROW, b, COL], 8);
        }
        // Rows of C that are of no group, a C of columns, and an A of columns.
        Groups::<f16>::new(&[30, 100], 6, [72, 200], [ROW, b, COL], random).clean("64x64x64_1_2_1", [ROW, b, COL], 8);
        Groups::<bf16>::new(&RAGGED, 1, [72, 72], [COL, b, ROW], random).clean("128x64x64_2_2_1", [COL, b, ROW], 8);
    }
}

#[test]
fn groups_are_finished_on_every_seed() {
    let random = &mut Random(2);
    let [with, gelu] = [Activation::None, Activation::Gelu];
    for (i, bias) in [Bias::None, Bias::Row, Bias::Rows, Bias::Column].into_iter().enumerate() {
        let beta = if i % 2 == 0 { 0.5 } else { 0.0 };
        let orders = [ROW, if i < 2 { ROW } else { COL }, ROW];
        // Short sums, beside which a wrong bias is no small error.
        let groups = |random: &mut Random| Groups::<bf16>::new(&RAGGED, 2, [72, 8], orders, random).factors(2.0, beta);
        groups(random).finished(bias, with, random).clean("64x64x64_1_2_1", orders, 32);
        groups(random).finished(bias, gelu, random).clean("128x64x64_2_3_1", orders, 32);
    }
}

#[test]
fn there_may_be_one_group_or_many() {
    let random = &mut Random(3);
    for size in [1, 63, 64, 65, 200] {
        Groups::<bf16>::new(&[size], 0, [200, 136], [ROW; 3], random).clean("64x64x64_1_3_1", [ROW; 3], 8);
    }
    let many: Vec<usize> = (0..50).map(|i| i * 7 % 5).collect();
    Groups::<f16>::new(&many, 0, [136, 64], [ROW; 3], random).clean("64x128x64_1_3_1", [ROW; 3], 8);
    Groups::<f16>::new(&[0; 5], 3, [64, 64], [ROW; 3], random).clean("64x64x64_1_2_1", [ROW; 3], 2);
}

#[test]
fn the_kernels_that_plans_choose_take_groups() {
    let random = &mut Random(4);
    for pipeline in ["128x256x64_2_4_1", "64x256x64_1_5_1", "128x128x64_2_6_1", "64x128x64_1_8_1"] {
        let groups = Groups::<bf16>::new(&[0, 150, 128, 40], 0, [264, 136], [ROW; 3], random);
        groups.factors(1.0, 1.0).clean(pipeline, [ROW; 3], 2);
    }
}

#[test]
fn groups_are_stored_line_by_line_where_the_copy_engine_cannot() {
    let random = &mut Random(5);
    for orders in [[ROW, COL, ROW], [ROW, COL, COL]] {
        let groups = Groups::<bf16>::new(&RAGGED, 0, [69, 72], orders, random).factors(1.0, -1.0);
        let kernel = groups.kernel("64x64x64_1_2_1", orders, false);
        (0..seeds(2, 8)).for_each(|seed| groups.by_kernel(&kernel, seed));
    }
}

#[test]
fn ends_are_written() {
    let kernel = check(Ends.build()).unwrap();
    let layout = Layout::row_major(Shape::new(1, 2 * Ends::NUMBERS)).unwrap();
    let ends = Buffer::output(Type::U32, layout).unwrap();
    for first in [0, Ends::NUMBERS as u32] {
        let numbers = (first..).take(Ends::NUMBERS).map(|i| Arg::scalar(3 * i));
        let args: Vec<Arg<'_>> = [Arg::from(&ends), Arg::scalar(first)].into_iter().chain(numbers).collect();
        let outcome = interp::run(&kernel, &args, &Config::default()).unwrap();
        assert!(outcome.error().is_none(), "{:?}", outcome.error());
    }
    let want: Vec<u32> = (0..2 * Ends::NUMBERS as u32).map(|i| 3 * i).collect();
    assert_eq!(ends.to_vec::<u32>().unwrap(), want);
}

/// Any groups.
pub fn any<T: Sample>(seed: u64) -> Groups<T> {
    let random = &mut Random(seed);
    let most = [3, 40, 150][random.below(3)];
    let sizes: Vec<usize> = (0..random.below(7)).map(|_| random.below(most) * random.below(3).min(1)).collect();
    let mut order = || if random.chance(2) { ROW } else { COL };
    let orders = [order(), order(), order()];
    let deep = [9, 150][random.below(2)];
    let mut sizes_of = [1 + random.below(150), random.below(deep)];
    if random.chance(2) {
        sizes_of = sizes_of.map(|size| size.next_multiple_of(8));
    }
    let groups = Groups::<T>::new(&sizes, random.below(4), sizes_of, orders, random);
    let groups = groups.factors(T::factor(random), T::factor(random));
    let bias = [Bias::None, Bias::Row, Bias::Rows, Bias::Column][random.below(4)];
    let activations = if T::TYPE.is_float() { 4 } else { 2 };
    groups.finished(bias, Activation::ALL[random.below(activations)], random)
}

#[test]
fn any_groups_are_right_on_every_device() {
    fn both<T: Sample>(seeds: std::ops::Range<u64>) {
        for seed in seeds {
            any::<T>(seed).must_be_right_on(&Device::cpu());
            any::<T>(seed).must_be_right_on(&Device::interp());
        }
    }
    both::<bf16>(0..12);
    both::<f32>(12..24);
    both::<i8>(24..32);
    both::<f64>(32..40);
}

#[test]
fn what_makes_no_product_is_refused() {
    let random = &mut Random(6);
    let refused = |groups: Groups<f32>, part: &str| {
        let (after, report) = groups.call(&Device::cpu());
        let error = report.unwrap_err();
        assert!(matches!(error, Error::Shape(_)) && error.to_string().contains(part), "{error}");
        assert!(after == groups.c.0, "C is as it was");
    };
    let groups = |random: &mut Random| Groups::<f32>::new(&[2, 3], 1, [4, 5], [ROW; 3], random);
    refused(Groups { sizes: vec![2, 3, 0], ..groups(random) }, "3 sizes of groups and 2 matrices");
    refused(Groups { sizes: vec![4, 3], ..groups(random) }, "7 rows, A has 6");
    refused(Groups { sizes: vec![usize::MAX, 3], ..groups(random) }, "A has 6");
    let other = |random: &mut Random| Groups::<f32>::new(&[2, 3], 1, [3, 4], [ROW; 3], random);
    refused(Groups { b: other(random).b, ..groups(random) }, "as many columns as each matrix of B has rows");
    refused(Groups { c: other(random).c, ..groups(random) }, "B's columns");
    for shape in [Shape::new(5, 1), Shape::new(1, 3), Shape { batches: 3, rows: 1, cols: 4 }] {
        refused(Groups { bias: Some(Matrix::zeros_of_shape(shape).unwrap()), ..groups(random) }, "bias");
    }
    let columns = Matrix::zeros_of_shape(Shape { batches: 2, rows: 6, cols: 1 }).unwrap();
    refused(Groups { bias: Some(columns), ..groups(random) }, "6×1");
}

#[test]
fn a_pipeline_that_takes_no_groups_is_refused() {
    for pipeline in ["128x128x64_2_2_2", "64x64x64_1_2_1_k2"] {
        let hopper = Hopper::new(bf16::TYPE, pipeline.parse().unwrap());
        let groups = Hopper { schedule: Schedule::Groups, ..hopper };
        assert!(hopper.build().is_ok() && matches!(groups.build(), Err(Error::KernelOption(_))));
    }
}
