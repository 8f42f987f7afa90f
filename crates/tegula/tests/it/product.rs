//! A matrix product for tests: random matrices in any layout, run by a kernel or a plan and
//! checked.

use tegula::element::{Element, Scalar, bf16, f16};
use tegula::epilogue::{Activation, BiasShape, Epilogue, EpilogueOperands};
use tegula::interpret;
use tegula::{Accuracy, Device, Gemm, Layout, Shape, View, ViewMut};
use tegula_bench::oracle;
use tegula_interp::{Arg, Buffer, Config, Outcome, run};
use tegula_ir::{Checked, Kernel, Order2d, check};
use tegula_kernels::Plain;
use tegula_kernels::plan::{Plan, Recipe};

/// The splitmix64 generator.
#[derive(Clone)]
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ x >> 31
    }

    pub fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    pub fn chance(&mut self, of: usize) -> bool {
        self.below(of) == 0
    }

    /// From −1 up to 1.
    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }
}

/// Random elements and scalars of a product.
pub trait Sample: Element {
    fn element(random: &mut Random) -> Self;
    fn result(random: &mut Random) -> Self::Out;
    /// A random alpha or beta, often 0 or 1.
    fn scalar(random: &mut Random) -> Self::Acc;
    /// a·b + c as kernels compute it.
    fn fused(a: Self::Acc, b: Self::Acc, c: Self::Acc) -> Self::Acc;
}

macro_rules! sample {
    ($($t:ty: |$e:ident| $element:expr, $result:expr, $scalar:expr, $fused:expr;)*) => {$(
        impl Sample for $t {
            fn element($e: &mut Random) -> Self { $element }
            fn result($e: &mut Random) -> Self::Out { $result }
            fn scalar($e: &mut Random) -> Self::Acc {
                match $e.below(4) {
                    0 => Self::Acc::ZERO,
                    1 => Self::Acc::ONE,
                    _ => $scalar,
                }
            }
            fn fused(a: Self::Acc, b: Self::Acc, c: Self::Acc) -> Self::Acc { $fused(a, b, c) }
        }
    )*};
}
sample! {
    f64: |r| r.unit(), r.unit(), 3.0 * r.unit(), f64::mul_add;
    f32: |r| r.unit() as f32, r.unit() as f32, 3.0 * r.unit() as f32, f32::mul_add;
    f16: |r| f16::from_f64(r.unit()), f16::from_f64(r.unit()), 3.0 * r.unit() as f32, f32::mul_add;
    bf16: |r| bf16::from_f64(r.unit()), bf16::from_f64(r.unit()), 3.0 * r.unit() as f32, f32::mul_add;
    i32: |r| r.next() as i32, r.next() as i32, r.next() as i32, wrapping;
    i8: |r| r.next() as i8, r.next() as i32, r.next() as i32, wrapping;
}

/// Sets an element to a float; does nothing for integer types.
fn set_float<S: Scalar>(values: &mut [S], at: usize, value: f64) {
    if !S::TYPE.is_float() {
        return;
    }
    let len = values.len();
    if let Some(element) = values.get_mut(at % len.max(1)) {
        *element = S::from_bits(S::TYPE.round(value));
    }
}

/// The bits of a number, with one representation for all NaNs.
#[allow(clippy::eq_op, reason = "only NaN differs from itself")]
pub fn canonical_bits<S: Scalar>(x: S) -> u64 {
    if x == x { x.to_bits() } else { u64::MAX }
}

fn wrapping(a: i32, b: i32, c: i32) -> i32 {
    a.wrapping_mul(b).wrapping_add(c)
}

/// Storage of a matrix in a slice.
#[derive(Clone, Copy, Debug, Default)]
pub struct StorageLayout {
    pub transposed: bool,
    pub reversed: [bool; 3],
    pub gaps: [usize; 3],
    pub broadcast_batch: bool,
}

impl StorageLayout {
    /// A random layout; half of them are dense.
    pub fn random(random: &mut Random) -> Self {
        if random.chance(2) {
            return StorageLayout { transposed: random.chance(3), ..StorageLayout::default() };
        }
        StorageLayout {
            transposed: random.chance(2),
            reversed: std::array::from_fn(|_| random.chance(3)),
            gaps: std::array::from_fn(|_| random.below(3)),
            broadcast_batch: random.chance(3),
        }
    }

    /// Returns the layout and the length of the slice.
    pub fn layout(self, shape: Shape) -> (Layout, usize) {
        let extents = [shape.batches, shape.rows, shape.cols];
        let inner_first = if self.transposed { [1, 2, 0] } else { [2, 1, 0] };
        let (mut strides, mut offset, mut span) = ([0isize; 3], 0, 1);
        for (axis, gap) in inner_first.into_iter().zip(self.gaps) {
            if axis == 0 && self.broadcast_batch {
                continue;
            }
            let stride = span + if axis == inner_first[0] { gap } else { gap * span.min(2) };
            let last = extents[axis].saturating_sub(1) * stride;
            strides[axis] = stride as isize;
            if self.reversed[axis] {
                strides[axis] = -strides[axis];
                offset += last;
            }
            span = stride * extents[axis].max(1);
        }
        (Layout { shape, offset, strides }, span)
    }
}

/// The storage order that a kernel may assume of a layout.
pub fn order(layout: &Layout) -> Order2d {
    match layout.strides {
        [_, _, 1] => Order2d::RowMajor,
        [_, 1, _] => Order2d::ColMajor,
        _ => Order2d::Strided,
    }
}

/// C = act(alpha·A·B + beta·C + bias).
#[derive(Debug)]
pub struct Product<T: Sample> {
    pub alpha: T::Acc,
    pub beta: T::Acc,
    pub a: (Vec<T>, Layout),
    pub b: (Vec<T>, Layout),
    pub c: (Vec<T::Out>, Layout),
    pub bias: Option<(Vec<T::Out>, Layout)>,
    activation: Activation,
}

impl<T: Sample> Product<T> {
    /// A product of row-major matrices, alpha 1 and beta 0.
    pub fn plain(m: usize, n: usize, k: usize) -> Self {
        let (alpha, beta) = (T::Acc::ONE, T::Acc::ZERO);
        let random = &mut Random((m << 20 | n << 10 | k) as u64);
        Self::new([1, m, n, k], [StorageLayout::default(); 3], random, (alpha, beta))
    }

    pub fn random(sizes: [usize; 4], random: &mut Random) -> Self {
        let [a, b] = [StorageLayout::random(random), StorageLayout::random(random)];
        let c = StorageLayout { broadcast_batch: false, ..StorageLayout::random(random) };
        let scalars = (T::scalar(random), T::scalar(random));
        Self::new(sizes, [a, b, c], random, scalars)
    }

    pub fn new(
        [batches, m, n, k]: [usize; 4],
        layouts: [StorageLayout; 3],
        random: &mut Random,
        scalars: (T::Acc, T::Acc),
    ) -> Self {
        let shapes = [(m, k), (k, n), (m, n)].map(|(rows, cols)| Shape { batches, rows, cols });
        let [(a, a_len), (b, b_len), (c, c_len)] = std::array::from_fn(|i| layouts[i].layout(shapes[i]));
        Product {
            alpha: scalars.0,
            beta: scalars.1,
            a: ((0..a_len).map(|_| T::element(random)).collect(), a),
            b: ((0..b_len).map(|_| T::element(random)).collect(), b),
            c: ((0..c_len).map(|_| T::result(random)).collect(), c),
            bias: None,
            activation: Activation::None,
        }
    }

    /// Adds an epilogue. The bias is one for the batch, or one per matrix of it.
    pub fn with_epilogue(self, epilogue: Epilogue, random: &mut Random) -> Self {
        let Shape { batches, rows, cols } = self.c.1.shape;
        let batches = if random.chance(2) { 1 } else { batches };
        let bias = epilogue.bias.map(|shape| {
            let (rows, cols) = if shape == BiasShape::Row { (1, cols) } else { (rows, 1) };
            let (layout, len) = StorageLayout::random(random).layout(Shape { batches, rows, cols });
            ((0..len).map(|_| T::result(random)).collect(), layout)
        });
        Product { bias, activation: epilogue.activation, ..self }
    }

    /// Sets some elements of A, C and the bias to NaN, infinity, or minus zero.
    pub fn with_specials(mut self, random: &mut Random) -> Self {
        let mut insert_specials = |special: &mut dyn FnMut(usize, f64)| {
            for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.0] {
                special(random.below(1 << 30), value);
            }
        };
        insert_specials(&mut |at, value| set_float(&mut self.a.0, at, value));
        insert_specials(&mut |at, value| set_float(&mut self.c.0, at, value));
        if let Some((bias, _)) = &mut self.bias {
            insert_specials(&mut |at, value| set_float(bias, at, value));
        }
        self
    }

    /// The operands of the epilogue.
    pub fn epilogue_operands(&self) -> EpilogueOperands<'_, T::Out> {
        let bias = self.bias.as_ref().map(|(bias, layout)| View::strided(bias, *layout).expect("fits"));
        EpilogueOperands { bias, activation: self.activation }
    }

    /// The storage orders that a kernel may assume of A, B and C.
    pub fn orders(&self) -> [Order2d; 3] {
        [order(&self.a.1), order(&self.b.1), order(&self.c.1)]
    }

    pub fn a(&self) -> View<'_, T> {
        View::strided(&self.a.0, self.a.1).expect("fits")
    }

    pub fn b(&self) -> View<'_, T> {
        View::strided(&self.b.0, self.b.1).expect("fits")
    }

    pub fn initial_c(&self) -> View<'_, T::Out> {
        View::strided(&self.c.0, self.c.1).expect("fits")
    }

    /// The variant for this product's storage orders.
    pub fn legalize(&self, variant: Plain) -> Plain {
        Plain { orders: self.orders(), ..variant }
    }

    /// Runs a kernel in the interpreter. Returns its outcome and C.
    pub fn run(&self, kernel: &Checked<Kernel>, config: &Config) -> (Outcome, Buffer) {
        self.run_with(kernel, &[], config)
    }

    /// Runs a kernel that takes more matrices after C.
    pub fn run_with(&self, kernel: &Checked<Kernel>, extra: &[Buffer], config: &Config) -> (Outcome, Buffer) {
        let c = match self.beta == T::Acc::ZERO {
            true => Buffer::output(<T::Out as Scalar>::TYPE, self.c.1),
            false => interpret::in_out(self.initial_c()),
        };
        let (a, b, c) = (interpret::input(self.a()).unwrap(), interpret::input(self.b()).unwrap(), c.unwrap());
        let matrices = [&a, &b, &c].into_iter().chain(extra).map(Arg::from);
        let args: Vec<Arg<'_>> = matrices.chain([Arg::scalar(self.alpha), Arg::scalar(self.beta)]).collect();
        let outcome = run(kernel, &args, config).unwrap();
        (outcome, c)
    }

    /// Runs a recipe on a device with host matrices, and checks C and the elements between its
    /// elements. Returns the bits of C's memory.
    pub fn run_recipe(&self, device: &Device, recipe: Recipe) -> Vec<u64> {
        self.run_recipe_at(device, recipe, Accuracy::Full)
    }

    /// Runs a recipe with this accuracy, as [`Product::run_recipe`] does.
    pub fn run_recipe_at(&self, device: &Device, recipe: Recipe, accuracy: Accuracy) -> Vec<u64> {
        self.run_plan(device, &Plan::Gpu(recipe), accuracy)
    }

    /// Runs the product on the CPU and checks the result.
    pub fn run_on_cpu(&self) {
        self.run_plan(&Device::cpu(), &Plan::Cpu, Accuracy::Full);
    }

    fn run_plan(&self, device: &Device, plan: &Plan, accuracy: Accuracy) -> Vec<u64> {
        let mut after = self.c.0.clone();
        let c = ViewMut::strided(&mut after, self.c.1).expect("fits");
        let EpilogueOperands { bias, activation } = self.epilogue_operands();
        let mut product = Gemm::new(self.a(), self.b(), c).alpha(self.alpha).beta(self.beta).activation(activation);
        if let Some(bias) = bias {
            product = product.bias(bias);
        }
        let report = device.run(plan, product).unwrap_or_else(|e| panic!("{plan:?}: {e}"));
        let c = View::strided(&after, self.c.1).expect("fits");
        let (before, epilogue) = (Some(self.initial_c()), self.epilogue_operands());
        let agreement =
            oracle::check_with_epilogue::<T>(self.alpha, self.a(), self.b(), self.beta, before, epilogue, c, &|_| {})
                .unwrap();
        let bound = oracle::bound_with_epilogue::<T>(accuracy, self.a.1.shape.cols, epilogue.epilogue())
            * oracle::roundoff_ratio(accuracy);
        assert!(agreement.within(bound) && agreement.mismatches == 0, "{report:?}: {agreement:?} beyond {bound}");
        after.into_iter().map(Scalar::to_bits).collect()
    }

    /// Compares C with the reference.
    pub fn report(&self, c: &Buffer) -> oracle::Report {
        let c = interpret::to_matrix::<T::Out>(c).unwrap();
        oracle::check::<T>(self.alpha, self.a(), self.b(), self.beta, Some(self.initial_c()), c.view()).unwrap()
    }

    /// Runs a variant in the interpreter, and checks that C is correct and no error was found.
    pub fn assert_correct(&self, variant: Plain, config: &Config) -> Outcome {
        let variant = self.legalize(variant);
        let (outcome, c) = self.run(&checked(&variant), config);
        assert_eq!(outcome.error(), None, "{variant}");
        let (report, bound) = (self.report(&c), oracle::bound::<T>(self.a.1.shape.cols));
        assert!(report.within(bound) && report.mismatches == 0, "{variant}: {report:?} beyond {bound}");
        outcome
    }
}

/// Builds and validates a variant's kernel.
pub fn checked(variant: &Plain) -> Checked<Kernel> {
    check(variant.build().expect("the variant builds")).expect("the kernel is valid")
}
