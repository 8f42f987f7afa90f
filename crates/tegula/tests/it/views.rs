//! Products of random views against the oracle: submatrices of a larger memory with any strides and
//! order, broadcast inputs, and outputs with unchanged surroundings.
//!
//! A table of positions is the reference for each view: ranges, steps and flips apply to it by
//! their definitions. The oracle gets dense copies made by the tables. `TEGULA_VIEWS=N` sets the
//! number of products per device.

use std::ops::Range;

use tegula::element::{Scalar, Type, with_operand_type};
use tegula::{Device, Gemm, Layout, Matrix, Shape, View, ViewMut};
use tegula_bench::oracle;

use crate::effort::seeds;
use crate::product::{Random, Sample};

/// Positions of the elements of a view in memory.
#[derive(Clone, Debug)]
struct Table {
    shape: [usize; 3],
    positions: Vec<usize>,
}

impl Table {
    /// The positions of a layout, by its definition.
    fn new(shape: [usize; 3], strides: [usize; 3]) -> Self {
        Self::from_fn(shape, |at| (0..3).map(|axis| at[axis] * strides[axis]).sum())
    }

    fn from_fn(shape: [usize; 3], position: impl Fn([usize; 3]) -> usize) -> Self {
        let [batches, rows, cols] = shape;
        let coords = (0..batches).flat_map(|b| (0..rows).flat_map(move |r| (0..cols).map(move |c| [b, r, c])));
        Table { shape, positions: coords.map(position).collect() }
    }

    fn at(&self, [b, r, c]: [usize; 3]) -> usize {
        self.positions[(b * self.shape[1] + r) * self.shape[2] + c]
    }

    /// Maps one axis: index i of the result is index `source(i)` of this table.
    fn map(self, axis: usize, extent: usize, source: impl Fn(usize) -> usize) -> Self {
        let mut shape = self.shape;
        shape[axis] = extent;
        Self::from_fn(shape, |mut at| {
            at[axis] = source(at[axis]);
            self.at(at)
        })
    }

    fn range(self, axis: usize, range: Range<usize>) -> Self {
        self.map(axis, range.len(), |i| range.start + i)
    }

    fn step(self, axis: usize, step: usize) -> Self {
        let extent = (0..self.shape[axis]).step_by(step).count();
        self.map(axis, extent, |i| i * step)
    }

    fn flip(self, axis: usize) -> Self {
        let extent = self.shape[axis];
        self.map(axis, extent, |i| extent - 1 - i)
    }

    fn t(self) -> Self {
        let [batches, rows, cols] = self.shape;
        Self::from_fn([batches, cols, rows], |[b, r, c]| self.at([b, c, r]))
    }

    /// Copies the elements to a dense matrix.
    fn dense<T: Scalar>(&self, memory: &[T]) -> Matrix<T> {
        let [batches, rows, cols] = self.shape;
        Matrix::from_shape_fn(Shape { batches, rows, cols }, |b, r, c| memory[self.at([b, r, c])]).unwrap()
    }
}

/// A view into a larger matrix with arbitrary strides.
#[derive(Clone, Debug)]
struct SubView {
    /// Shape of the larger matrix.
    shape: [usize; 3],
    strides: [usize; 3],
    len: usize,
    ranges: [Range<usize>; 3],
    /// Steps of rows and columns.
    steps: [usize; 2],
    flips: [bool; 2],
    transposed: bool,
    /// Shape after the final broadcast.
    to: [usize; 3],
}

impl SubView {
    /// A random view of shape `to`; with `broadcast`, some axes have extent 1 and are broadcast.
    fn random(to: [usize; 3], broadcast: bool, random: &mut Random) -> Self {
        let transposed = random.chance(2);
        let stored_shape = to.map(|extent| if broadcast && extent > 0 && random.chance(6) { 1 } else { extent });
        let extents = if transposed { [stored_shape[0], stored_shape[2], stored_shape[1]] } else { stored_shape };
        let steps = [1, 2].map(|_| if random.chance(2) { 1 } else { 1 + random.below(3) });
        let ranges: [Range<usize>; 3] = std::array::from_fn(|axis| {
            let (step, first) = (if axis == 0 { 1 } else { steps[axis - 1] }, random.below(3));
            // The last step may be incomplete.
            let span = if extents[axis] == 0 { 0 } else { (extents[axis] - 1) * step + 1 + random.below(step) };
            first..first + span
        });
        let shape = std::array::from_fn(|axis| ranges[axis].end + random.below(3));
        // Any axis may be the innermost one.
        let mut axes = [0, 1, 2];
        if random.chance(2) {
            (0..2).for_each(|i| axes.swap(i, i + random.below(3 - i)));
        }
        let (mut strides, mut len) = ([0; 3], 1);
        for axis in axes.into_iter().rev() {
            let gap = if random.chance(2) { 0 } else { random.below(4) };
            strides[axis] = len;
            len = len * shape[axis] + gap;
        }
        let flips = [1, 2].map(|_| random.chance(3));
        SubView { shape, strides, len, ranges, steps, flips, transposed, to }
    }

    fn table(&self) -> Table {
        let mut table = Table::new(self.shape, self.strides);
        for axis in 0..3 {
            table = table.range(axis, self.ranges[axis].clone());
        }
        for axis in 1..3 {
            table = table.step(axis, self.steps[axis - 1]);
            table = if self.flips[axis - 1] { table.flip(axis) } else { table };
        }
        table = if self.transposed { table.t() } else { table };
        (0..3).fold(table, |table, axis| match (table.shape[axis], self.to[axis]) {
            (from, to) if from == to => table,
            (_, to) => table.map(axis, to, |_| 0),
        })
    }

    fn layout(&self) -> Layout {
        let [batches, rows, cols] = self.shape;
        Layout { shape: Shape { batches, rows, cols }, offset: 0, strides: self.strides.map(|s| s as isize) }
    }
}

/// Applies a subview to a `View` or a `ViewMut`.
macro_rules! subview {
    ($full_view:expr, $subview:expr) => {{
        let SubView { ranges: [batches, rows, cols], steps, flips, transposed, .. } = $subview.clone();
        let view = $full_view.batches(batches).unwrap().rows(rows).unwrap().cols(cols).unwrap();
        let view = view.step_by(steps[0], steps[1]).unwrap();
        let view = if flips[0] { view.flip_rows() } else { view };
        let view = if flips[1] { view.flip_cols() } else { view };
        if transposed { view.t() } else { view }
    }};
}

fn read<'a, T: Scalar>(memory: &'a [T], subview: &SubView) -> View<'a, T> {
    let [batches, rows, cols] = subview.to;
    let view = subview!(View::strided(memory, subview.layout()).unwrap(), subview);
    view.broadcast(Shape { batches, rows, cols }).unwrap()
}

fn write<'a, T: Scalar>(memory: &'a mut [T], subview: &SubView) -> ViewMut<'a, T> {
    subview!(ViewMut::strided(memory, subview.layout()).unwrap(), subview)
}

/// C = alpha·A·B + beta·C with views into random memory.
struct Case<T: Sample> {
    alpha: T::Acc,
    beta: T::Acc,
    subviews: [SubView; 3],
    a: Vec<T>,
    b: Vec<T>,
    c: Vec<T::Out>,
}

impl<T: Sample> Case<T> {
    fn random(random: &mut Random) -> Self {
        let [m, n, k] = [0; 3].map(|_| if random.chance(20) { 0 } else { 1 + random.below(40) });
        let batches = 1 + random.below(3);
        let inputs = [[batches, m, k], [batches, k, n]].map(|shape| SubView::random(shape, true, random));
        let [a, b] = inputs;
        let c = SubView::random([batches, m, n], false, random);
        Case {
            alpha: T::scalar(random),
            beta: T::scalar(random),
            a: (0..a.len).map(|_| T::element(random)).collect(),
            b: (0..b.len).map(|_| T::element(random)).collect(),
            c: (0..c.len).map(|_| T::result(random)).collect(),
            subviews: [a, b, c],
        }
    }

    fn a(&self) -> View<'_, T> {
        read(&self.a, &self.subviews[0])
    }

    fn b(&self) -> View<'_, T> {
        read(&self.b, &self.subviews[1])
    }

    /// C's memory after the product on a device.
    fn run_on(&self, device: &Device) -> Vec<T::Out> {
        let mut c = self.c.clone();
        let product = Gemm::new(self.a(), self.b(), write(&mut c, &self.subviews[2]));
        product.alpha(self.alpha).beta(self.beta).on(device).run().unwrap();
        c
    }

    /// Checks the result, and that other memory is unchanged.
    fn check(&self, after: &[T::Out], device: &str, number: usize) {
        let [a, b, c] = self.subviews.each_ref().map(SubView::table);
        let (a, b, before, result) = (a.dense(&self.a), b.dense(&self.b), c.dense(&self.c), c.dense(after));
        let (alpha, beta) = (self.alpha, self.beta);
        let report = oracle::check::<T>(alpha, a.view(), b.view(), beta, Some(before.view()), result.view()).unwrap();
        let context = || format!("product {number} on {device}: {} {:?} {alpha:?} {beta:?}", T::TYPE, self.subviews);
        assert!(
            report.within(oracle::bound::<T>(a.shape().cols)) && report.mismatches == 0,
            "{report:?}: {}",
            context()
        );
        let mut written = vec![false; after.len()];
        c.positions.iter().for_each(|&position| written[position] = true);
        for (position, (before, after)) in self.c.iter().zip(after).enumerate() {
            let same = before.to_bits() == after.to_bits();
            assert!(written[position] || same, "element {position} was overwritten: {}", context());
        }
    }
}

/// Runs a block for random products of every type.
macro_rules! for_each_case {
    ($count:expr, |$case:ident, $number:ident| $body:expr) => {{
        let mut random = Random(0x7e9);
        for $number in 0..$count {
            let ty = Type::OPERANDS[random.below(Type::OPERANDS.len())];
            with_operand_type!(
                ty,
                T => {
                    let $case = Case::<T>::random(&mut random);
                    $body
                },
                ty => panic!("no products of {ty}")
            );
        }
    }};
}

/// Number of products.
fn count(default: usize) -> usize {
    let wanted = std::env::var("TEGULA_VIEWS").ok();
    wanted.map_or(default, |n| n.parse().expect("TEGULA_VIEWS is not a number of products"))
}

#[test]
fn random_views_on_the_cpu_are_correct() {
    let cpu = Device::cpu();
    for_each_case!(count(seeds(1000, 3000) as usize), |case, number| case.check(&case.run_on(&cpu), "cpu", number));
}

#[test]
fn random_views_in_the_interpreter_are_correct() {
    let interp = Device::interp();
    for_each_case!(count(seeds(250, 1000) as usize), |case, number| case.check(
        &case.run_on(&interp),
        "interp",
        number
    ));
}

/// From host memory, through copies, and from GPU memory in place.
#[test]
#[cfg(feature = "cuda")]
fn random_views_on_the_gpu_are_correct() {
    let Some(gpu) = crate::gpu::gpu() else { return };
    let device = Device::from(gpu.clone());
    for_each_case!(count(3000), |case, number| {
        case.check(&case.run_on(&device), "cuda:0 from the host", number);
        case.check(&run_on_gpu(&gpu, &case), "cuda:0", number);
    });
}

/// C's memory after the product with all three matrices on the GPU.
#[cfg(feature = "cuda")]
fn run_on_gpu<T: Sample>(gpu: &tegula::cuda::Gpu, case: &Case<T>) -> Vec<T::Out> {
    use tegula::cuda::{DeviceElement, DeviceMatrix};
    fn upload<S: DeviceElement>(gpu: &tegula::cuda::Gpu, memory: &[S]) -> DeviceMatrix<S> {
        DeviceMatrix::upload(gpu, View::new(memory, 1, memory.len()).unwrap()).unwrap()
    }
    let (a, b, c) = (upload(gpu, &case.a), upload(gpu, &case.b), upload(gpu, &case.c));
    let layout = write(&mut case.c.clone(), &case.subviews[2]).layout();
    // SAFETY: the memory is alive until the download completes, and all work on it is queued on
    // this handle's stream.
    let (a, b, c_view) = unsafe {
        (
            gpu.view_from_raw::<T>(a.buffer().address(), case.a.len(), case.a().layout()).unwrap(),
            gpu.view_from_raw::<T>(b.buffer().address(), case.b.len(), case.b().layout()).unwrap(),
            gpu.view_mut_from_raw::<T::Out>(c.buffer().address(), case.c.len(), layout).unwrap(),
        )
    };
    Gemm::new(a, b, c_view).alpha(case.alpha).beta(case.beta).run().unwrap();
    c.download().unwrap().into_vec()
}
