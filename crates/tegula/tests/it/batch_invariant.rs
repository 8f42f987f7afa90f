//! Batch invariance: the bits of a row of C depend on that row of A, on B, on the types, n, k, the
//! scalars and the epilogue, and on nothing else. In the interpreter and on the CPU;
//! `gpu_batch_invariant` does the same on a GPU.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

use tegula::element::{Element, Scalar, Type, bf16, f16, with_operand_type};
use tegula::epilogue::Activation;
use tegula::{Accuracy, Device, Gemm, Grouped, Matrix, Result, Shape, View, ViewMut};
use tegula_ir::Order2d;
use tegula_kernels::plan::{
    Caps, GpuDescription, OperandLayout, Order, Plan, Problem, Recipe, UNTUNED, choose, choose_invariant, legal,
};
use tegula_kernels::{GemmKernel, Hopper};

use crate::effort::full;
use crate::product::{Random, Sample, canonical_bits};

/// Numbers of rows.
pub const ROWS: [usize; 15] = [1, 2, 3, 5, 8, 16, 17, 31, 64, 100, 128, 256, 777, 1024, 4096];

/// How the operands of a product are stored, and its epilogue. None of it but the epilogue may
/// change the bits of C.
#[derive(Clone, Copy, Debug)]
pub struct Variant {
    /// Whether B is stored transposed.
    pub transposed: bool,
    /// Whether rows are aligned to 16 bytes, if their lengths are.
    pub aligned: bool,
    /// Whether there are scalars, a bias and an activation.
    pub epilogue: bool,
}

/// All ways to store operands.
pub fn variants(epilogue: bool) -> [Variant; 4] {
    [(false, true), (true, true), (false, false), (true, false)].map(|(transposed, aligned)| Variant {
        transposed,
        aligned,
        epilogue,
    })
}

/// The numbers of a product, whose storage a [`Variant`] determines.
pub struct Numbers<T: Sample> {
    pub m: usize,
    pub n: usize,
    pub k: usize,
    a: Vec<T>,
    b: Vec<T>,
    c: Vec<T::Out>,
    bias: Vec<T::Out>,
}

/// The operands of a product in host memory: those of [`Numbers`], with columns beyond them.
pub struct Stored<T: Sample> {
    pub a: Matrix<T>,
    pub b: Matrix<T>,
    pub c: Matrix<T::Out>,
    pub bias: Matrix<T::Out>,
}

impl<T: Sample> Numbers<T> {
    pub fn random([m, n, k]: [usize; 3]) -> Self {
        let random = &mut Random((n * 31 + k) as u64);
        // B and the bias first: they do not depend on m.
        let b = (0..k * n).map(|_| T::element(random)).collect();
        let bias = (0..n).map(|_| T::result(random)).collect();
        let a = (0..m * k).map(|_| T::element(random)).collect();
        let c = (0..m * n).map(|_| T::result(random)).collect();
        Numbers { m, n, k, a, b, c, bias }
    }

    pub fn stored(&self, variant: Variant) -> Stored<T> {
        let Numbers { m, n, k, .. } = *self;
        let pad = if variant.aligned { 0 } else { 1 };
        let padded = |rows, cols, at: &dyn Fn(usize, usize) -> T| {
            Matrix::from_fn(rows, cols + pad, |i, j| if j < cols { at(i, j) } else { T::ONE }).unwrap()
        };
        let b_at = |i: usize, j: usize| self.b[i * n + j];
        Stored {
            a: padded(m, k, &|i, j| self.a[i * k + j]),
            b: if variant.transposed { padded(n, k, &|i, j| b_at(j, i)) } else { padded(k, n, &b_at) },
            c: Matrix::from_fn(m, n + pad, |i, j| if j < n { self.c[i * n + j] } else { T::Out::ONE }).unwrap(),
            bias: Matrix::from_vec(1, n, self.bias.clone()).unwrap(),
        }
    }

    /// B of the product in matrix B of a variant.
    pub fn b<'a>(&self, variant: Variant, b: View<'a, T>) -> View<'a, T> {
        if variant.transposed { b.cols(..self.k).unwrap().t() } else { b.cols(..self.n).unwrap() }
    }

    /// The product of rows from `first` on, as many as C has.
    pub fn product<'a>(
        &self,
        variant: Variant,
        first: usize,
        [a, b]: [View<'a, T>; 2],
        c: ViewMut<'a, T::Out>,
        bias: View<'a, T::Out>,
    ) -> Gemm<'a, T> {
        let rows = first..first + c.shape().rows;
        let a = a.rows(rows).unwrap().cols(..self.k).unwrap();
        let c = c.cols(..self.n).unwrap();
        let product = Gemm::new(a, self.b(variant, b), c);
        if !variant.epilogue {
            return product;
        }
        let activation = if T::TYPE.is_int() { Activation::Relu } else { Activation::Silu };
        let [alpha, beta] = [0.75, -1.5].map(scalar::<T::Acc>);
        product.alpha(alpha).beta(beta).bias(bias).activation(activation)
    }
}

/// A float, or a negative integer for an integer type.
fn scalar<S: Scalar>(value: f64) -> S {
    S::from_bits(if S::TYPE.is_float() { S::TYPE.round(value) } else { (value * 4.0) as i64 as u64 })
}

/// The place of `m` rows in `all` rows.
pub fn first_row(all: usize, m: usize) -> usize {
    (all - m) / 2 / 3 * 3
}

/// Compares rows of C with those of all rows. `c` has `numbers.n` columns and more.
///
/// # Errors
/// The first difference.
pub fn compare<S: Scalar>(all: View<'_, S>, rows: View<'_, S>, first: usize, n: usize) -> Result<(), String> {
    for (i, j) in (0..rows.shape().rows).flat_map(|i| (0..n).map(move |j| (i, j))) {
        let [x, y] = [all.get(0, first + i, j), rows.get(0, i, j)].map(|x| canonical_bits(x.unwrap()));
        if x != y {
            return Err(format!("row {} column {j}: {x:#x} and {y:#x}", first + i));
        }
    }
    Ok(())
}

/// Computes products of several numbers of rows in all variants, and compares the bits of each row
/// with those of all rows. `run` computes a product. The quick run computes each number of rows in
/// one variant, and each variant with a fourth of the numbers: the full run adds their other pairs.
///
/// # Errors
/// The first difference.
fn check_rows<T: Sample>(
    [n, k]: [usize; 2],
    rows: &[usize],
    epilogue: bool,
    run: impl Fn(Gemm<'_, T>),
) -> Result<(), String> {
    let numbers = Numbers::<T>::random([*rows.iter().max().unwrap(), n, k]);
    let mut all: Option<Matrix<T::Out>> = None;
    let mut variants = variants(epilogue);
    let count = variants.len();
    // Each type has other pairs.
    variants.rotate_left(T::TYPE as usize % count);
    for (i, variant) in variants.into_iter().enumerate() {
        let stored = numbers.stored(variant);
        for (_, &m) in rows.iter().rev().enumerate().filter(|(j, _)| full() || j % count == i) {
            let first = first_row(numbers.m, m);
            let mut c = Matrix::from_fn(m, stored.c.shape().cols, |i, j| stored.c[[first + i, j]]).unwrap();
            run(numbers.product(variant, first, [stored.a.view(), stored.b.view()], c.view_mut(), stored.bias.view()));
            match &all {
                None => all = Some(c),
                Some(all) => compare(all.view(), c.view(), first, n)
                    .map_err(|why| format!("{} m={m} n={n} k={k} {variant:?}: {why}", T::TYPE))?,
            }
        }
    }
    Ok(())
}

/// n and k for the interpreter: with a long k, and with few columns.
fn small_sizes() -> &'static [[usize; 2]] {
    let all = &[[24, 1100], [96, 520], [7, 2047], [130, 64], [1, 1500], [200, 333]];
    if full() { all } else { &all[..2] }
}

fn small_rows() -> &'static [usize] {
    if full() { &ROWS[..12] } else { &[1, 3, 17, 100] }
}

/// Runs the plan of a GPU in the interpreter.
fn interpret_plan<T: Element>(product: Gemm<'_, T>, choose: impl Fn(&Problem, &Caps) -> Result<Plan>) {
    // The layouts of the interpreter's buffers are those of a GPU.
    let caps = Caps::Gpu(GpuDescription::H200);
    let plan = choose(&product.problem(&Caps::Interp).unwrap(), &caps).unwrap();
    Device::interp().run(&plan, product).unwrap();
}

#[test]
#[ignore = "long; .ci/run runs it"]
fn rows_in_the_interpreter_have_the_same_bits_for_every_m() {
    fn check<T: Sample>() {
        let invariant = |problem: &Problem, caps: &Caps| choose_invariant(problem, caps, &UNTUNED);
        for (i, &size) in small_sizes().iter().enumerate() {
            check_rows::<T>(size, small_rows(), i % 2 == 1, |product| interpret_plan(product, invariant)).unwrap();
        }
    }
    std::thread::scope(|scope| {
        for ty in Type::OPERANDS {
            scope.spawn(move || with_operand_type!(ty, T => check::<T>(), ty => panic!("no products of {ty}")));
        }
    });
}

/// The default plans depend on m, and so do injected ones: the check finds them.
#[test]
fn plans_that_depend_on_m_are_found() {
    let found = check_rows::<f32>([100, 3000], &[1, 33], false, |product| interpret_plan(product, choose));
    assert!(found.unwrap_err().contains("row"));
    // Rounding to 16 bits hides most differences of sums.
    let injected = |problem: &Problem, _: &Caps| {
        let name = ["hopper_64x64x64_consumers1_stages2", "hopper_64x64x64_consumers1_stages2:4"];
        let recipe = Recipe::named(name[usize::from(problem.m > 50)], problem.ty)?;
        Ok(Plan::Gpu(recipe.legalize(problem.layouts)))
    };
    let found = check_rows::<f16>([100, 1100], &[40, 100], false, |product| interpret_plan(product, injected));
    assert!(found.unwrap_err().contains("row"));
}

#[test]
#[ignore = "long; .ci/run runs it"]
fn rows_of_the_public_interface_have_the_same_bits_for_every_m() {
    fn check<T: Sample>(device: &Device, sizes: &[[usize; 2]], rows: &[usize]) {
        for (i, &size) in sizes.iter().enumerate() {
            check_rows::<T>(size, rows, i % 2 == 1, |product| {
                product.batch_invariant().on(device).run().unwrap();
            })
            .unwrap();
        }
    }
    let long = [[24, 6000], [513, 700], [7, 20_000], [1, 5000], [300, 64], [96, 2048]];
    let (long, rows) = if full() { (&long[..], &ROWS[..]) } else { (&long[..3], &ROWS[..11]) };
    for ty in Type::OPERANDS {
        with_operand_type!(ty, T => check::<T>(&Device::cpu(), long, rows), ty => panic!("no products of {ty}"));
        with_operand_type!(
            ty,
            T => check::<T>(&Device::interp(), &small_sizes()[..1], &[1, 17, 40]),
            ty => panic!("no products of {ty}")
        );
    }
}

/// Groups and batches have the bits of single products.
#[test]
fn rows_of_groups_and_batches_have_the_bits_of_single_products() {
    let [m, n, k] = [40, 24, 5000];
    let variant = Variant { transposed: false, aligned: true, epilogue: false };
    let numbers = Numbers::<f32>::random([m, n, k]);
    let stored = numbers.stored(variant);
    let (a, b) = (stored.a.view(), stored.b.view());
    for device in [Device::cpu(), Device::interp()] {
        let mut all = Matrix::zeros(m, n).unwrap();
        Gemm::new(a, b, all.view_mut()).batch_invariant().on(&device).run().unwrap();
        let mut groups = Matrix::zeros(m, n).unwrap();
        let experts = b.broadcast(Shape { batches: 3, rows: k, cols: n }).unwrap();
        let sizes = [1, 30, 9];
        Grouped::new(a, experts, groups.view_mut(), &sizes).batch_invariant().on(&device).run().unwrap();
        compare(all.view(), groups.view(), 0, n).unwrap();
        let shape = Shape { batches: 8, rows: 5, cols: n };
        let of_batch = Matrix::from_shape_fn(Shape { cols: k, ..shape }, |i, row, col| stored.a[[i * 5 + row, col]]);
        let mut batch = Matrix::zeros_of_shape(shape).unwrap();
        Gemm::new(of_batch.unwrap().view(), b, batch.view_mut()).batch_invariant().on(&device).run().unwrap();
        for i in 0..8 {
            compare(all.view(), batch.view().batches(i..=i).unwrap(), i * 5, n).unwrap();
        }
    }
}

/// A recipe of another order is refused.
#[test]
fn recipe_of_another_order_is_refused() {
    let (a, b) = (Matrix::<f32>::zeros(4, 100).unwrap(), Matrix::zeros(100, 4).unwrap());
    let mut c = Matrix::zeros(4, 4).unwrap();
    let recipe = Recipe::named("vector_4x4_threads32x8_load8", Type::F32).unwrap();
    let product = Gemm::new(a.view(), b.view(), c.view_mut()).batch_invariant();
    let error = Device::interp().run(&Plan::Gpu(recipe), product).unwrap_err();
    assert!(error.to_string().contains("batch invariance"), "{error}");
}

/// Recipes of equal order compute equal bits, and the orders of recipes that do not are unequal.
/// The quick run has one product a type, and two recipes of the four orders with the most splits,
/// with different splits; the full run has 12 of every order, at random.
#[test]
#[ignore = "long; .ci/run runs it"]
fn recipes_of_equal_order_compute_equal_bits() {
    fn check<T: Sample>() {
        let caps = Caps::Gpu(GpuDescription::H200);
        let mut compared = 0;
        let products = [([16, 100, 700], false), ([70, 40, 517], true)];
        let quick = T::TYPE as usize % 2;
        for ([m, n, k], epilogue) in if full() { products.to_vec() } else { vec![products[quick]] } {
            let variant = Variant { transposed: true, aligned: true, epilogue };
            let numbers = Numbers::<T>::random([m, n, k]);
            let stored = numbers.stored(variant);
            let layouts = [Order2d::RowMajor, Order2d::ColMajor, Order2d::RowMajor];
            let layouts = layouts.map(|order| OperandLayout::new(order, k % 16 == 0));
            let accuracy = Accuracy::Full;
            let problem = Problem { ty: T::TYPE, accuracy, m, n, k, batches: 1, layouts };
            let mut by_order: HashMap<Order, Vec<Recipe>> = HashMap::new();
            let mut add = |recipe: Recipe| {
                if let Some(order) = recipe.order(k) {
                    by_order.entry(order).or_default().push(recipe);
                }
            };
            legal(&problem, &caps).into_iter().for_each(|candidate| add(candidate.recipe));
            for name in LISTED.iter().filter(|name| T::TYPE.size() == 2 || !name.starts_with("hopper")) {
                Recipe::named(name, T::TYPE).into_iter().for_each(|recipe| add(recipe.legalize(layouts)));
            }
            let mut orders: Vec<_> = by_order.into_iter().collect();
            orders.retain(|(_, recipes)| recipes.len() > 1);
            orders.sort_by_key(|(order, _)| format!("{order:?}"));
            let random = &mut Random(n as u64);
            if !full() {
                (0..orders.len()).rev().for_each(|i| orders.swap(i, random.below(i + 1)));
                let splits = |recipes: &[Recipe]| recipes.iter().map(|recipe| recipe.split).collect::<HashSet<_>>();
                orders.sort_by_key(|(_, recipes)| Reverse(splits(recipes).len()));
                orders.truncate(4);
            }
            for (order, mut recipes) in orders {
                let mut first: Option<(Recipe, Matrix<T::Out>)> = None;
                recipes.sort_by_key(|recipe| (format!("{:?}", recipe.split), recipe.name()));
                let ends = [recipes[0], recipes[recipes.len() - 1]];
                let any = (0..12.min(recipes.len())).map(|_| recipes[random.below(recipes.len())]);
                for recipe in if full() { any.collect() } else { ends.to_vec() } {
                    let mut c = Matrix::from_vec(m, n, stored.c.as_slice().to_vec()).unwrap();
                    let product = numbers.product(
                        variant,
                        0,
                        [stored.a.view(), stored.b.view()],
                        c.view_mut(),
                        stored.bias.view(),
                    );
                    Device::interp().run(&Plan::Gpu(recipe), product).unwrap();
                    match &first {
                        None => first = Some((recipe, c)),
                        Some((other, expected)) => {
                            compared += usize::from(recipe != *other);
                            compare(expected.view(), c.view(), 0, n).unwrap_or_else(|why| {
                                panic!("{} and {} of {order:?}: {why}", other.name(), recipe.name())
                            });
                        }
                    }
                }
            }
        }
        assert!(compared > if full() { 2 } else { 1 }, "{}: {compared}", T::TYPE);
    }
    std::thread::scope(|scope| {
        scope.spawn(check::<f64>);
        scope.spawn(check::<f32>);
        scope.spawn(check::<f16>);
        scope.spawn(check::<bf16>);
    });
}

/// Recipes that are compared beside the candidates.
const LISTED: [&str; 14] = [
    "hopper_64x64x64_consumers1_stages2_clusterk2",
    "hopper_64x64x64_consumers1_stages2:2",
    "hopper_64x64x64_consumers1_stages2_clusterk4:s",
    "hopper_128x128x64_consumers2_stages2:4",
    "hopper_64x128x64_consumers1_stages2_clusterk8",
    "hopper_64x64x64_consumers1_stages2:8:s",
    "hopper_128x128x64_consumers2_stages2",
    "mma_64x64x64_warp32x32_thread16x8_stages3",
    "mma_64x64x32_warp32x32_thread16x8_stages3",
    "mma_64x64x64_warp32x32_thread16x8_stages3:4",
    "vector_16x4_threads32x8_load8",
    "vector_8x4_threads32x8_load4",
    "vector_16x2_threads16x8_load8:2",
    "naive",
];

/// The order of a plan is that of n and k, in every layout, for every m, and of both cards.
#[test]
fn order_depends_on_types_n_and_k_alone() {
    let layouts = |a: OperandLayout| {
        [Order2d::RowMajor, Order2d::ColMajor, Order2d::Strided].map(|b| {
            let b = OperandLayout::new(b, a.aligned_16() && b != Order2d::Strided);
            [a, b, OperandLayout::new(Order2d::RowMajor, a.aligned_16())]
        })
    };
    let all = [(Order2d::RowMajor, true), (Order2d::ColMajor, true), (Order2d::RowMajor, false)];
    let all: Vec<_> =
        all.into_iter().flat_map(|(order, aligned)| layouts(OperandLayout::new(order, aligned))).collect();
    let back = OperandLayout { tma_compatible: false, ..OperandLayout::new(Order2d::RowMajor, true) };
    let all: Vec<_> = all.into_iter().chain([[back; 3]]).collect();
    let sizes = [[4096, 4096], [128, 16384], [1001, 1003], [1, 5000], [28672, 4096], [17, 17], [8, 0], [3000, 20]];
    for (ty, accuracy) in Type::OPERANDS.map(|ty| (ty, Accuracy::Full)).into_iter().chain([(Type::F32, Accuracy::Tf32)])
    {
        for ([n, k], compute) in sizes.into_iter().flat_map(|size| [(size, (9, 0)), (size, (8, 0)), (size, (7, 5))]) {
            if ty == Type::BF16 && compute == (7, 5) {
                continue;
            }
            let mut orders = Vec::new();
            for (m, &layouts) in [1, 16, 17, 500, 8192].into_iter().flat_map(|m| all.iter().map(move |l| (m, l))) {
                for gpu in [GpuDescription::H100, GpuDescription::H200] {
                    let caps = Caps::Gpu(GpuDescription { compute, ..gpu });
                    let problem = Problem { ty, accuracy, m, n, k, batches: 1 + m % 2, layouts };
                    let Plan::Gpu(recipe) =
                        choose_invariant(&problem, &caps, &UNTUNED).unwrap_or_else(|why| panic!("{problem:?}: {why}"))
                    else {
                        panic!("a GPU runs kernels")
                    };
                    let order = recipe.order(k).unwrap();
                    if !orders.contains(&order) {
                        orders.push(order);
                    }
                }
            }
            assert_eq!(orders.len(), 1, "{ty} n={n} k={k} {compute:?}: {orders:?}");
        }
    }
}

/// A grouped kernel of the order is used; the groups of another order are single products.
#[test]
fn grouped_kernel_keeps_the_order_of_products() {
    let kernel = Hopper::named("hopper_128x128x64_consumers2_stages6", Type::BF16).unwrap();
    let recipe: Recipe = kernel.into();
    assert_eq!(recipe.order(4096).unwrap().ranges(), 1);
    assert!(matches!(recipe.kernel, GemmKernel::Hopper(_)));
    let named = |name: &str| Recipe::named(name, Type::BF16).unwrap().order(4096);
    assert_eq!(named("hopper_128x128x64_consumers2_stages2_clusterk4"), named("hopper_64x64x64_consumers1_stages2:4"));
    assert_eq!(named("hopper_128x128x64_consumers2_stages2:w132"), None);
    assert_eq!(named("hopper_128x128x64_consumers2_stages2:9"), None);
    let [f, b] = [f16::TYPE, bf16::TYPE];
    assert_ne!(f, b);
}
