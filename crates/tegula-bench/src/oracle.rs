//! The high-precision reference, and how far a result is from it.
//!
//! The measure is
//!
//! > r = max over elements of |Ĉ − C| / (u·(|α||A||B| + |β||C₀|) + η), with 0/0 = 0,
//!
//! u being the unit roundoff of the type of C, or for a product in tf32 that of tf32 ([`coarser`]). η stands for underflow, which relative
//! error does not describe: a product below the normal numbers is off by half a spacing of the subnormal ones, however small it is. So η
//! is half that spacing in the type of C, and where sums are kept in another type, half its spacing too, times max(1, |α|). It counts
//! only where |α||A||B| + |β||C₀| is not 0: a product of zeros is zero. [`bound`] says how large r may be.
//!
//! The reference is computed
//! - for f64 in twice the precision: products and sums with their rounding errors, which are summed beside them. The sum is by Knuth (The Art
//!   of Computer Programming, vol. 2, §4.2.2, theorem B) as the product by fused multiply-add is by Dekker (A floating-point technique for
//!   extending the available precision, Numer. Math. 18, 1971) and both in a dot product by Ogita, Rump and Oishi (Accurate sum and dot
//!   product, SIAM J. Sci. Comput. 26, 2005, algorithm 5.3, with error at most u|C| + γ²|A||B|, far below u|A||B|);
//! - for f32, f16 and bf16 in f64, where products are exact and a sum of k errs by at most k·2⁻²⁹ of the units of f32;
//! - for integers exactly, mod 2³².
//!
//! # Epilogues
//! With a bias and an activation the reference is act(αAB + βC₀ + b). An error of the sum reaches the result by the activation's slope, so the
//! measure is
//!
//! > r = max over elements of |Ĉ − act(C)| / (λ·u·(|α||A||B| + |β||C₀| + |b|) + η),
//!
//! λ being the greatest slope that the activation has anywhere: 1 for ReLU, 1.13 for GELU, 1.1 for SiLU. [`bound_of`] says how large r may be then.
//! So r does not see a relative error where a gate is nearly closed; that the activations themselves are exact to two units in the last place
//! is tested apart. Activations are computed by their definitions from the exponential function, for f64 in twice its precision.
//!
//! # Infinities and NaN
//! Where the reference is NaN the result must be NaN, where it is infinite the result must be the same infinity; otherwise r is infinite.
//! An infinite result stands for every value that rounds to it: where the reference is finite, the result's error is how far the
//! reference is from the least such value. So a sum that is too large for f16 must be infinite, and one at the very edge may be.
//! The reference has a wider range than the product: where partial sums overflow and the whole does not, the plain loop is wrong and is
//! called wrong. For f64, whose range no other type exceeds, an element whose sum of absolute values overflows is computed again with an
//! exponent of its own (`Exact::exponent`). Such elements are counted apart ([`Report::overflows`]): the way to a right product is then to
//! scale A or B.

mod activation;

use tegula::element::{Accuracy, Element, FloatFormat, Scalar, Type};
use tegula::epilogue::{Activation, Epilogue, Finish};
use tegula::error::{Error, Result};
use tegula::matrix::{Matrix, Memory, Shape, View, check_product, check_work};
use tegula_core::lanes::mul_add_f64;
use tegula_core::progress::{Audience, Listener, Meter, Phase};
use tegula_core::{host, threads};

/// How far a result is from the reference.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Report {
    /// The measure described [above](self): 0 where every element is exact; never NaN. For integers 0 or infinite.
    pub r: f64,
    /// Batch, row and column of the first element whose r is largest; zeros for an empty result.
    pub worst: (usize, usize, usize),
    /// The reference there, to the precision of f64.
    pub expected: f64,
    /// The result there.
    pub actual: f64,
    /// Elements that are wrong whatever the bound: integers that differ, infinities and NaN where there should be none or none
    /// where there should be, anything but 0 where only zeros are summed.
    pub mismatches: usize,
    /// Elements that are infinite or NaN because partial sums may have overflowed: the reference is another, and the sum of absolute values, before or
    /// after alpha, is beyond the type in which sums are kept.
    pub overflows: usize,
    /// The measure over the other elements.
    pub r_without_overflows: f64,
}

impl Report {
    const EMPTY: Report = Report {
        r: 0.0,
        worst: (0, 0, 0),
        expected: 0.0,
        actual: 0.0,
        mismatches: 0,
        overflows: 0,
        r_without_overflows: 0.0,
    };

    /// Whether no element is further off than the bound, see [`bound`].
    pub fn within(&self, bound: f64) -> bool {
        self.r <= bound
    }

    fn and(self, later: Report) -> Report {
        let worse = if later.r > self.r { later } else { self };
        Report {
            mismatches: self.mismatches + later.mismatches,
            overflows: self.overflows + later.overflows,
            r_without_overflows: self.r_without_overflows.max(later.r_without_overflows),
            ..worse
        }
    }
}

/// What r may be for a sum of k products of such elements: k + 2, the bound of the plain loop, where sums have the type of C.
///
/// One rounding for each product, k − 1 for the sums, one each for alpha, for adding beta·C₀ and for the type of C (Higham,
/// Accuracy and Stability of Numerical Algorithms, 2nd ed., §3.1, equation 3.5: the order of the sum does not matter). That is the
/// first-order term; the whole is larger by a factor 1/(1 − (k+2)u), which matters for no r seen in practice: r grows about as √k.
///
/// Where sums are kept in a more exact type than C's, it is 1 for rounding them to that, and the bound in the units of sums, which are a small part of
/// C's: four times over, since matrix units cut sums off where a loop rounds them (Fasi, Higham, Mikaitis and Pranesh, Numerical behavior of NVIDIA
/// tensor cores, PeerJ Comput. Sci. 7, 2021). Anything near k + 2 would be worth nothing there: of bf16, 256 units are all of a sum.
pub fn bound<T: Element>(k: usize) -> f64 {
    let ((of_c, ..), (of_sums, ..)) = (format(<T::Out as Scalar>::TYPE), format(<T::Acc as Scalar>::TYPE));
    let sum = k as f64 + 2.0;
    if of_sums < of_c { 1.0 + 4.0 * sum * of_sums / of_c } else { sum }
}

/// How many times larger the unit roundoff is for a product of that accuracy, of the type that has it: r divided by this is in its units.
pub const fn coarser(accuracy: Accuracy) -> f64 {
    match accuracy {
        Accuracy::Full => 1.0,
        // 2⁻¹¹ of tf32 to 2⁻²⁴ of f32.
        Accuracy::Tf32 => 8192.0,
    }
}

/// What r may be for a product of that accuracy, in its units.
///
/// With tf32 both factors of each product are rounded, which is 2 whatever k is; the rest is [`bound`] in the units of f32, four times over as there.
pub fn bound_at<T: Element>(accuracy: Accuracy, k: usize) -> f64 {
    match accuracy {
        Accuracy::Full => bound::<T>(k),
        Accuracy::Tf32 => 2.0 + 4.0 * bound::<T>(k) / coarser(accuracy),
    }
}

/// What r may be for a product of that accuracy with an epilogue, in its units.
///
/// Besides [`bound_at`] that is 1 more for adding a bias, and 4 more for an activation that is exact to two units in the last place, of which
/// each may be two of r's; both of the type that sums are kept in.
pub fn bound_of<T: Element>(accuracy: Accuracy, k: usize, epilogue: Epilogue) -> f64 {
    let bias = if epilogue.bias.is_some() { 1.0 } else { 0.0 };
    let gate = if epilogue.activation.gate().is_some() { 4.0 } else { 0.0 };
    bound_at::<T>(accuracy, k) + (bias + gate) / coarser(accuracy)
}

/// Compares `result` with alpha·A·B + beta·C₀, where A is m×k, B is k×n, C₀ and the result are m×n, or batches of as many each.
///
/// Where `beta` is 0, C₀ is not read and may be left out; where `alpha` is 0, A and B are not read.
///
/// # Errors
/// [`Error::Shape`] where the shapes do not make a product, or C₀ is needed and not given; [`Error::Unsupported`] where a matrix lies
/// on a GPU; [`Error::OutOfMemory`] where there is no room for the reference.
pub fn check<T: Element>(
    alpha: T::Acc,
    a: View<T>,
    b: View<T>,
    beta: T::Acc,
    c0: Option<View<T::Out>>,
    result: View<T::Out>,
) -> Result<Report> {
    compare([alpha, beta], [a, b], c0, Finish::default(), result, None)
}

/// [`check`] of a result with an epilogue, telling after each row of C how many are compared.
///
/// # Errors
/// As [`check`], and as [`Gemm::run`](tegula::Gemm::run) for the epilogue.
#[allow(clippy::too_many_arguments, reason = "the parts of a product")]
pub fn check_finished<T: Element>(
    alpha: T::Acc,
    a: View<T>,
    b: View<T>,
    beta: T::Acc,
    c0: Option<View<T::Out>>,
    finish: Finish<'_, T::Out>,
    result: View<T::Out>,
    progress: &Listener<'_>,
) -> Result<Report> {
    let Shape { batches, rows, cols } = result.shape();
    let total = if cols == 0 { 0 } else { batches as u128 * rows as u128 };
    let meter = Audience(Some(progress)).meter(Phase::Check, total);
    let report = compare([alpha, beta], [a, b], c0, finish, result, meter.as_ref())?;
    meter.iter().for_each(Meter::finish);
    Ok(report)
}

fn compare<T: Element>(
    factors: [T::Acc; 2],
    inputs: [View<T>; 2],
    c0: Option<View<T::Out>>,
    finish: Finish<'_, T::Out>,
    result: View<T::Out>,
    meter: Option<&Meter<'_>>,
) -> Result<Report> {
    let problem = Problem::compared(factors, inputs, c0, finish, &result)?;
    let unit = Unit::new::<T>(problem.alpha);
    let rows = problem.rows(1, Report::EMPTY, |batch, row, exact: &[Exact], report: &mut [Report]| {
        let judged = exact.iter().enumerate().map(|(col, exact)| {
            let actual = element(&result, batch, row, col);
            let r = unit.distance(*exact, actual);
            let overflow = exact.may_overflow && r > 0.0 && !actual.is_finite();
            let mismatches = usize::from(r == f64::INFINITY);
            let (overflows, r_without_overflows) = (usize::from(overflow), if overflow { 0.0 } else { r });
            let (worst, expected) = ((batch, row, col), exact.value());
            Report { r, worst, expected, actual, mismatches, overflows, r_without_overflows }
        });
        report[0] = judged.reduce(Report::and).unwrap_or(Report::EMPTY);
        meter.iter().for_each(|meter| meter.add(1));
    })?;
    Ok(rows.into_iter().reduce(Report::and).unwrap_or(Report::EMPTY))
}

/// r of each element by itself: [`check`] tells the largest of them.
///
/// # Errors
/// As [`check`].
pub fn errors<T: Element>(
    alpha: T::Acc,
    a: View<T>,
    b: View<T>,
    beta: T::Acc,
    c0: Option<View<T::Out>>,
    result: View<T::Out>,
) -> Result<Matrix<f64>> {
    let problem = Problem::compared([alpha, beta], [a, b], c0, Finish::default(), &result)?;
    let unit = Unit::new::<T>(problem.alpha);
    let cols = problem.shape().cols;
    let errors = problem.rows(cols, 0.0, |batch, row, exact: &[Exact], errors: &mut [f64]| {
        for (col, (exact, error)) in exact.iter().zip(errors).enumerate() {
            *error = unit.distance(*exact, element(&result, batch, row, col));
        }
    })?;
    Matrix::from_shape_vec(problem.shape(), errors)
}

/// The reference itself, alpha·A·B + beta·C₀ rounded to the type of C.
///
/// # Errors
/// As [`check`].
pub fn product<T: Element>(
    alpha: T::Acc,
    a: View<T>,
    b: View<T>,
    beta: T::Acc,
    c0: Option<View<T::Out>>,
) -> Result<Matrix<T::Out>> {
    let problem = Problem::new([alpha, beta], [a, b], c0, Finish::default())?;
    let product = problem.rows(problem.shape().cols, T::Out::ZERO, |_, _, exact: &[Exact], row: &mut [T::Out]| {
        row.iter_mut().zip(exact).for_each(|(to, exact)| *to = rounded(exact.value()));
    })?;
    Matrix::from_shape_vec(problem.shape(), product)
}

/// What is to be computed.
struct Problem<'a, T: Element> {
    alpha: f64,
    a: View<'a, T>,
    b: View<'a, T>,
    /// beta and C₀, where beta is not 0.
    kept: Option<(f64, View<'a, T::Out>)>,
    finish: Finish<'a, T::Out>,
}

impl<'a, T: Element> Problem<'a, T> {
    fn new(
        [alpha, beta]: [T::Acc; 2],
        [a, b]: [View<'a, T>; 2],
        c0: Option<View<'a, T::Out>>,
        finish: Finish<'a, T::Out>,
    ) -> Result<Self> {
        let shape = Shape { cols: b.shape().cols, ..a.shape() };
        let (alpha, beta) = (value(alpha), value(beta));
        let kept = match c0 {
            _ if beta == 0.0 => None,
            Some(c0) => Some((beta, c0)),
            None => return Err(Error::Shape(format!("beta is {beta}, so C as it was before the product is needed"))),
        };
        check_product(a.shape(), b.shape(), kept.as_ref().map_or(shape, |(_, c0)| c0.shape()))?;
        on_host::<T, _>("A", &a)?;
        on_host::<T, _>("B", &b)?;
        kept.as_ref().map_or(Ok(()), |(_, c0)| on_host::<T, _>("C", c0))?;
        if alpha != 0.0 {
            check_work(shape, a.shape().cols)?;
        }
        let finish = finish.for_each_of(shape, T::TYPE)?;
        finish.bias.map_or(Ok(()), |bias| on_host::<T, _>("bias", &bias))?;
        Ok(Problem { alpha, a, b, kept, finish })
    }

    /// The problem that a result on the host is an answer to.
    fn compared(
        factors: [T::Acc; 2],
        inputs: [View<'a, T>; 2],
        c0: Option<View<'a, T::Out>>,
        finish: Finish<'a, T::Out>,
        result: &View<T::Out>,
    ) -> Result<Self> {
        let problem = Problem::new(factors, inputs, c0, finish)?;
        check_product(problem.a.shape(), problem.b.shape(), result.shape())?;
        on_host::<T, _>("the result", result)?;
        Ok(problem)
    }

    fn shape(&self) -> Shape {
        Shape { cols: self.b.shape().cols, ..self.a.shape() }
    }

    /// What `visit` makes of each row of the reference: from batch, row and elements `width` values each, blank before.
    fn rows<R: Copy + Send>(
        &self,
        width: usize,
        blank: R,
        visit: impl Fn(usize, usize, &[Exact], &mut [R]) + Sync + Send,
    ) -> Result<Vec<R>> {
        match T::Acc::TYPE {
            Type::F64 => self.rows_by::<Doubled, R>(width, blank, visit),
            Type::F32 => self.rows_by::<Wide, R>(width, blank, visit),
            Type::I32 => self.rows_by::<Modular, R>(width, blank, visit),
            ty => {
                let what = format!("a reference product accumulated in {ty}");
                Err(Error::Unsupported { what, ty: T::TYPE, device: "the CPU".into() })
            }
        }
    }

    fn rows_by<P: Precision, R: Copy + Send>(
        &self,
        width: usize,
        blank: R,
        visit: impl Fn(usize, usize, &[Exact], &mut [R]) + Sync + Send,
    ) -> Result<Vec<R>> {
        let shape = self.shape();
        shape.len()?;
        if shape.is_empty() {
            return Ok(Vec::new());
        }
        let Shape { batches, rows, cols } = shape;
        let mut all = host::room(&[batches, rows, width], || format!("the reference for a {shape} matrix"))?;
        all.resize(batches * rows * width, blank);
        for (batch, all) in all.chunks_mut(rows * width).enumerate() {
            let panels = self.panels::<P>(batch)?;
            threads::for_chunks(all, ROWS * width, |number, some: &mut [R]| {
                let first = ROWS * number;
                let rows = first..rows.min(first + ROWS);
                let exact = self.block::<P>(batch, rows.clone(), &panels)?;
                for ((row, exact), to) in rows.zip(exact.chunks(cols)).zip(some.chunks_mut(width)) {
                    visit(batch, row, exact, to);
                }
                Ok(())
            })?;
        }
        Ok(all)
    }

    /// B in panels of adjacent columns, the last filled up with zeros. Nothing where alpha or k is 0.
    fn panels<P: Precision>(&self, batch: usize) -> Result<Vec<P::Operand>> {
        let Shape { rows: k, cols: n, .. } = self.b.shape();
        let count = if self.alpha == 0.0 || k == 0 { 0 } else { n.div_ceil(P::WIDTH) };
        let mut panels = host::room(&[count, P::WIDTH, k], || format!("the reference's copy of a {k}×{n} matrix"))?;
        for first in (0..count).map(|panel| panel * P::WIDTH) {
            for row in 0..k {
                let column = |col| if col < n { element(&self.b, batch, row, col) } else { 0.0 };
                panels.extend((first..first + P::WIDTH).map(|col| P::operand(column(col))));
            }
        }
        Ok(panels)
    }

    /// A few rows of the reference, one after the other. The rows of A stay in the cache while the panels of B go by, each used for all of them.
    fn block<P: Precision>(
        &self,
        batch: usize,
        rows: std::ops::Range<usize>,
        panels: &[P::Operand],
    ) -> Result<Vec<Exact>> {
        let (k, n) = (self.b.shape().rows, self.b.shape().cols);
        let what = || "some rows of the reference".into();
        let mut sums = host::room(&[rows.len(), n], what)?;
        sums.resize(rows.len() * n, Exact::default());
        let depth = if self.alpha == 0.0 { 0 } else { k };
        let mut a = host::room(&[rows.len(), depth], what)?;
        a.extend(rows.clone().flat_map(|row| (0..depth).map(move |p| P::operand(element(&self.a, batch, row, p)))));
        if depth != 0 {
            for (panel, first) in panels.chunks_exact(P::WIDTH * k).zip((0..n).step_by(P::WIDTH)) {
                for (a, sums) in a.chunks_exact(k).zip(sums.chunks_exact_mut(n)) {
                    P::dot(a, panel, &mut sums[first..n.min(first + P::WIDTH)]);
                }
            }
        }
        for (i, (row, sums)) in rows.zip(sums.chunks_exact_mut(n)).enumerate() {
            for (col, sum) in sums.iter_mut().enumerate() {
                let kept = self.kept.as_ref().map(|(beta, c0)| (*beta, element(c0, batch, row, col)));
                let bias = self.finish.bias_at(batch, row, col).map(value);
                let (first, place) = (col / P::WIDTH * P::WIDTH * depth, col % P::WIDTH);
                let b = panels[first.min(panels.len())..].iter().skip(place).step_by(P::WIDTH);
                let terms = a[i * depth..][..depth].iter().copied().zip(b.copied());
                *sum = P::activate(P::scaled(self.alpha, *sum, terms, kept, bias), self.finish.activation);
            }
        }
        Ok(sums)
    }
}

/// Rows of the reference that are computed together.
const ROWS: usize = 16;

/// An element of the reference: its value, in two parts, and what its error is measured by, |α||A||B| + |β||C₀|.
#[derive(Clone, Copy, Default)]
struct Exact {
    high: f64,
    low: f64,
    size: f64,
    /// All three are to be multiplied by this power of 2. Not 0 only where value or size are beyond the range of f64.
    exponent: i32,
    /// Whether partial sums can be beyond the range of the type that they are kept in.
    may_overflow: bool,
}

impl Exact {
    /// Where the value is infinite or NaN, so is `high`; the rounding errors are then NaN and mean nothing.
    fn new(high: f64, low: f64, size: f64) -> Self {
        Exact { high, low: if low.is_finite() { low } else { 0.0 }, size, ..Exact::default() }
    }

    /// To the precision of f64, and infinite beyond its range.
    fn value(self) -> f64 {
        times_power(self.high + self.low, self.exponent)
    }
}

/// x·2ⁿ, rounded once or, where it is subnormal, twice.
fn times_power(x: f64, exponent: i32) -> f64 {
    // One power may be beyond the range where its product with x is not.
    let exponent = exponent.clamp(-2000, 2000);
    x * 2f64.powi(exponent / 2) * 2f64.powi(exponent - exponent / 2)
}

/// A way to compute the reference.
trait Precision {
    /// An element of A or B.
    type Operand: Copy + Send + Sync;
    /// Columns of a panel of B.
    const WIDTH: usize;
    fn operand(value: f64) -> Self::Operand;
    /// A row of A times a panel of B, WIDTH columns of which as many are kept as `out` has room for.
    fn dot(a: &[Self::Operand], panel: &[Self::Operand], out: &mut [Exact]);
    /// alpha·sum, plus beta·C₀ and a bias where they are given. `terms` are the factors that were summed.
    fn scaled(
        alpha: f64,
        sum: Exact,
        terms: impl Iterator<Item = (Self::Operand, Self::Operand)>,
        kept: Option<(f64, f64)>,
        bias: Option<f64>,
    ) -> Exact;
    /// An activation applied.
    fn activate(sum: Exact, activation: Activation) -> Exact;
}

/// Twice the precision of f64, as an unevaluated sum of two.
struct Doubled;

impl Precision for Doubled {
    type Operand = f64;
    const WIDTH: usize = 32;

    fn operand(value: f64) -> f64 {
        value
    }

    fn dot(a: &[f64], panel: &[f64], out: &mut [Exact]) {
        let (mut high, mut low, mut size) = ([0.0; 32], [0.0; 32], [0.0; 32]);
        for (&a, b) in a.iter().zip(panel.as_chunks::<32>().0) {
            let (product, mut error) = (b.map(|b| a * b), [0.0; 32]);
            mul_add_f64(&[a; 32], b, &product.map(|x| -x), &mut error);
            for i in 0..32 {
                let (sum, rest) = two_sum(high[i], product[i]);
                high[i] = sum;
                low[i] += rest + error[i];
                size[i] += product[i].abs();
            }
        }
        for (i, out) in out.iter_mut().enumerate() {
            *out = Exact::new(high[i], low[i], size[i]);
        }
    }

    fn scaled(
        alpha: f64,
        sum: Exact,
        terms: impl Iterator<Item = (f64, f64)>,
        kept: Option<(f64, f64)>,
        bias: Option<f64>,
    ) -> Exact {
        let (mut high, mut low, mut size) = (0.0, 0.0, 0.0);
        if alpha != 0.0 {
            let (product, error) = two_product(alpha, sum.high);
            (high, low, size) = (product, alpha.mul_add(sum.low, error), alpha.abs() * sum.size);
        }
        if let Some((beta, c0)) = kept {
            let (other, error) = two_product(beta, c0);
            let (whole, rest) = two_sum(high, other);
            (high, low, size) = (whole, low + error + rest, size + other.abs());
        }
        if let Some(bias) = bias {
            let (whole, rest) = two_sum(high, bias);
            (high, low, size) = (whole, low + rest, size + bias.abs());
        }
        // What is summed is no larger than the sizes, which do not cancel; with infinities and NaN among the factors this is slower and no better.
        if sum.size.is_finite() && size.is_finite() {
            return Exact::new(high, low, size);
        }
        beyond(alpha, terms, kept, bias)
    }

    fn activate(sum: Exact, activation: Activation) -> Exact {
        let sum = Exact { size: activation::slope(activation) * sum.size, ..sum };
        match activation {
            // Beyond the range the other activations are 0 or the value itself.
            Activation::Gelu | Activation::Silu | Activation::Relu if sum.exponent != 0 => {
                if sum.high < 0.0 {
                    Exact { high: 0.0, low: 0.0, ..sum }
                } else {
                    sum
                }
            }
            _ => activation::doubled(activation, sum),
        }
    }
}

/// alpha·Σ a·b + beta·C₀ + bias of f64 in twice its precision, with a range that holds every such sum.
///
/// Factors are scaled by 2⁻⁵⁵⁰, so that no sum of their products overflows. What they lose where that makes them subnormal is less than 2⁵⁰⁰,
/// nothing beside the unit roundoff of a sum that is beyond 2¹⁰²³.
fn beyond(alpha: f64, terms: impl Iterator<Item = (f64, f64)>, kept: Option<(f64, f64)>, bias: Option<f64>) -> Exact {
    const DOWN: i32 = 550;
    let down = times_power(1.0, -DOWN);
    let (mut high, mut low, mut size) = (0.0, 0.0, 0.0);
    for (a, b) in terms {
        let (product, error) = two_product(a * down, b * down);
        let (sum, rest) = two_sum(high, product);
        (high, low, size) = (sum, low + (rest + error), size + product.abs());
    }
    let of = |x: f64, y: f64| {
        let ((x, of_x), (y, of_y)) = (split(x), split(y));
        let (high, low) = two_product(x, y);
        Exact { exponent: of_x + of_y, ..Exact::new(high, low, high.abs()) }
    };
    let mut whole = Exact::default();
    if alpha != 0.0 {
        let (factor, exponent) = split(alpha);
        let sum = Exact { exponent: 2 * DOWN, ..Exact::new(high, low, size) }.near_one();
        let (high, error) = two_product(factor, sum.high);
        let (low, size) = (factor.mul_add(sum.low, error), factor.abs() * sum.size);
        whole = Exact { exponent: exponent + sum.exponent, ..Exact::new(high, low, size) };
    }
    whole = kept.map_or(whole, |(beta, c0)| whole.plus(of(beta, c0)));
    whole = bias.map_or(whole, |bias| whole.plus(of(bias, 1.0)));
    let [high, low, size] = [whole.high, whole.low, whole.size].map(|x| times_power(x, whole.exponent));
    let fits = high.is_finite() && size.is_finite() || !whole.high.is_finite();
    let whole = if fits { Exact::new(high, low, size) } else { whole };
    Exact { may_overflow: true, ..whole }
}

/// A number as one of magnitude 1 to 2, or of less for subnormal ones, times a power of 2. Infinities, NaN and 0 stay.
fn split(x: f64) -> (f64, i32) {
    if x == 0.0 || !x.is_finite() {
        return (x, 0);
    }
    let exponent = (x.to_bits() >> 52 & 0x7FF) as i32 - 1023;
    (times_power(x, -exponent), exponent)
}

impl Exact {
    /// The same with a size near 1.
    fn near_one(self) -> Self {
        let exponent = split(self.size).1;
        let [high, low, size] = [self.high, self.low, self.size].map(|x| times_power(x, -exponent));
        Exact { high, low, size, exponent: self.exponent + exponent, ..self }
    }

    /// The sum, to the range and precision of the larger.
    fn plus(self, other: Self) -> Self {
        let (x, y) = (self.near_one(), other.near_one());
        if x.size == 0.0 || y.size == 0.0 {
            return if y.size == 0.0 { x } else { y };
        }
        let exponent = x.exponent.max(y.exponent);
        let at = |z: Exact| [z.high, z.low, z.size].map(|part| times_power(part, z.exponent - exponent));
        let ([x, x_low, x_size], [y, y_low, y_size]) = (at(x), at(y));
        let (high, rest) = two_sum(x, y);
        Exact { exponent, ..Exact::new(high, x_low + y_low + rest, x_size + y_size) }
    }
}

/// x + y and its rounding error.
#[inline(always)]
fn two_sum(x: f64, y: f64) -> (f64, f64) {
    let sum = x + y;
    let part = sum - x;
    (sum, (x - (sum - part)) + (y - part))
}

/// x·y and its rounding error.
fn two_product(x: f64, y: f64) -> (f64, f64) {
    (x * y, x.mul_add(y, -(x * y)))
}

/// f64 for products of narrower floats, which it holds exactly.
struct Wide;

impl Precision for Wide {
    type Operand = f64;
    const WIDTH: usize = 8;

    fn operand(value: f64) -> f64 {
        value
    }

    fn dot(a: &[f64], panel: &[f64], out: &mut [Exact]) {
        let (mut high, mut size) = ([0.0; 8], [0.0; 8]);
        for (a, b) in a.iter().zip(panel.as_chunks::<8>().0) {
            for i in 0..8 {
                let product = a * b[i];
                high[i] += product;
                size[i] += product.abs();
            }
        }
        for (i, out) in out.iter_mut().enumerate() {
            *out = Exact::new(high[i], 0.0, size[i]);
        }
    }

    fn scaled(
        alpha: f64,
        sum: Exact,
        _: impl Iterator<Item = (f64, f64)>,
        kept: Option<(f64, f64)>,
        bias: Option<f64>,
    ) -> Exact {
        let (other, bias) = (kept.map_or(0.0, |(beta, c0)| beta * c0), bias.unwrap_or(0.0));
        let size = (alpha * sum.size).abs() + other.abs() + bias.abs();
        let may_overflow = sum.size.max(size) > f32::MAX.into();
        Exact { may_overflow, ..Exact::new(alpha * sum.high + other + bias, 0.0, size) }
    }

    fn activate(sum: Exact, activation: Activation) -> Exact {
        let (high, size) = (activation::plain(activation, sum.high), activation::slope(activation) * sum.size);
        Exact { high, size, ..sum }
    }
}

/// Integers mod 2³², as f64 holds them.
struct Modular;

impl Precision for Modular {
    type Operand = i32;
    const WIDTH: usize = 8;

    fn operand(value: f64) -> i32 {
        value as i32
    }

    fn dot(a: &[i32], panel: &[i32], out: &mut [Exact]) {
        let mut sums = [0i32; 8];
        for (a, b) in a.iter().zip(panel.as_chunks::<8>().0) {
            for i in 0..8 {
                sums[i] = sums[i].wrapping_add(a.wrapping_mul(b[i]));
            }
        }
        for (out, sum) in out.iter_mut().zip(sums) {
            out.high = f64::from(sum);
        }
    }

    fn scaled(
        alpha: f64,
        sum: Exact,
        _: impl Iterator<Item = (i32, i32)>,
        kept: Option<(f64, f64)>,
        bias: Option<f64>,
    ) -> Exact {
        let times = |x: f64, y: f64| (x as i32).wrapping_mul(y as i32);
        let other = kept.map_or(0, |(beta, c0)| times(beta, c0));
        let whole = times(alpha, sum.high).wrapping_add(other).wrapping_add(bias.map_or(0, |bias| bias as i32));
        Exact::new(whole.into(), 0.0, 1.0)
    }

    fn activate(sum: Exact, activation: Activation) -> Exact {
        Exact { high: activation::plain(activation, sum.high), ..sum }
    }
}

/// What the error of an element of C is counted in.
struct Unit {
    /// Unit roundoff of the type of C; 0 for integers, whose every error is infinitely many units.
    roundoff: f64,
    /// What underflow may add, see η [above](self).
    underflow: f64,
    /// The largest finite value of the type of C.
    largest: f64,
    /// The least value above it that rounds to infinity, less the largest.
    beyond: f64,
}

impl Unit {
    fn new<T: Element>(alpha: f64) -> Self {
        let ((roundoff, spacing, top), (_, summed, _)) =
            (format(<T::Out as Scalar>::TYPE), format(<T::Acc as Scalar>::TYPE));
        let underflow = spacing + summed * alpha.abs().max(1.0);
        Unit { roundoff, underflow, largest: top * (2.0 - 2.0 * roundoff), beyond: top * roundoff }
    }

    /// The error of one element in these units.
    fn distance(&self, exact: Exact, actual: f64) -> f64 {
        // All by the power of 2 of the reference.
        let [actual, largest, beyond, underflow] =
            [actual, self.largest, self.beyond, self.underflow].map(|x| times_power(x, -exact.exponent));
        let value = exact.high;
        if value.is_nan() || actual.is_nan() {
            return if value.is_nan() && actual.is_nan() { 0.0 } else { f64::INFINITY };
        }
        if value.is_infinite() || actual.is_infinite() && actual.signum() != value.signum() {
            return if actual == value { 0.0 } else { f64::INFINITY };
        }
        let error = if actual.is_infinite() {
            ((largest - exact.high.abs()) + (beyond - exact.low * actual.signum())).max(0.0)
        } else {
            ((exact.high - actual) + exact.low).abs()
        };
        match (error, exact.size) {
            (0.0, _) => 0.0,
            (_, 0.0) => f64::INFINITY,
            (error, size) => error / (self.roundoff * size.min(f64::MAX) + underflow),
        }
    }
}

/// A type's unit roundoff, half the spacing of its subnormal numbers, and its largest power of 2. Zeros for integers.
fn format(ty: Type) -> (f64, f64, f64) {
    let Some(FloatFormat { precision, min_exponent, max_exponent }) = ty.float_format() else { return (0.0, 0.0, 0.0) };
    let power = |exponent| 2f64.powi(exponent);
    // Half the spacing of f64 is not an f64.
    let underflow = power(min_exponent - precision).max(f64::from_bits(1));
    (power(-precision), underflow, power(max_exponent))
}

fn on_host<T: Element, S: Scalar>(name: &str, view: &View<S>) -> Result<()> {
    if matches!(view.memory(), Memory::Host(_)) {
        return Ok(());
    }
    let (what, device) =
        (format!("a reference product whose {name} lies on a GPU"), "the CPU; copy it to the host first".into());
    Err(Error::Unsupported { what, ty: T::TYPE, device })
}

/// An element within the shape of a matrix on the host.
fn element<S: Scalar>(view: &View<S>, batch: usize, row: usize, col: usize) -> f64 {
    view.get(batch, row, col).map_or(f64::NAN, value)
}

/// The value of a scalar: exact for every type of a matrix.
fn value<S: Scalar>(scalar: S) -> f64 {
    S::TYPE.to_f64(scalar.to_bits())
}

/// A value rounded to nearest even, by arithmetic of its own: what computes products rounds by
/// [`Type::round`], which here only encodes a number that the type has.
fn rounded<S: Scalar>(value: f64) -> S {
    let nearest = S::TYPE.float_format().map_or(value, |format| nearest(format, value));
    S::from_bits(S::TYPE.round(nearest))
}

/// The nearest number of a format, to even where two are.
fn nearest(format: FloatFormat, value: f64) -> f64 {
    // f64 has all numbers of the other formats, and twice their precision.
    if format.precision == f64::MANTISSA_DIGITS as i32 || value == 0.0 || !value.is_finite() {
        return value;
    }
    let exponent = ((value.to_bits() >> 52 & 0x7ff) as i32 - 1023).max(format.min_exponent);
    let spacing = 2f64.powi(exponent - (format.precision - 1));
    let nearest = (value / spacing).round_ties_even() * spacing;
    if nearest.abs() < 2f64.powi(format.max_exponent) * 2.0 { nearest } else { f64::INFINITY.copysign(value) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tegula::element::{bf16, f16};

    use super::*;

    /// r of a 1×1 result.
    fn distance<T: Element>(a: &[T], b: &[T], result: T::Out) -> f64 {
        let (a, b) = (View::new(a, 1, a.len()).unwrap(), View::new(b, b.len(), 1).unwrap());
        check::<T>(T::Acc::ONE, a, b, T::Acc::ZERO, None, View::new(&[result], 1, 1).unwrap()).unwrap().r
    }

    /// alpha·A·B + beta·C₀ in the type itself, one product after the other.
    fn plain<T: Element<Acc = T, Out = T> + std::ops::Mul<Output = T> + std::ops::Add<Output = T>>(
        [alpha, beta]: [T; 2],
        a: View<T>,
        b: View<T>,
        c0: View<T>,
    ) -> Matrix<T> {
        Matrix::from_shape_fn(c0.shape(), |_, i, j| {
            let term = |p| a.get(0, i, p).unwrap() * b.get(0, p, j).unwrap();
            let sum = (0..a.shape().cols).fold(T::ZERO, |sum, p| sum + term(p));
            alpha * sum + beta * c0.get(0, i, j).unwrap()
        })
        .unwrap()
    }

    fn plain_is_within<T>(
        factors: [T; 2],
        data: &[T],
        (m, n, k): (usize, usize, usize),
    ) -> std::result::Result<(), TestCaseError>
    where
        T: Element<Acc = T, Out = T> + std::ops::Mul<Output = T> + std::ops::Add<Output = T>,
    {
        let matrix = |first: usize, rows, cols| View::new(&data[first..][..rows * cols], rows, cols).unwrap();
        let (a, b, c0) = (matrix(0, m, k), matrix(800, k, n), matrix(2200, m, n));
        let c = plain(factors, a, b, c0);
        let report = check::<T>(factors[0], a, b, factors[1], Some(c0), c.view()).unwrap();
        prop_assert!(report.within(bound::<T>(k)), "{}: {:?}", T::TYPE, report);
        Ok(())
    }

    #[test]
    fn no_bound_lets_a_wrong_result_pass() {
        assert_eq!([bound::<f32>(10), bound::<f64>(10), bound::<i32>(10)], [12.0; 3]);
        assert_eq!([bound::<f16>(8190), bound::<bf16>(65534)], [5.0; 2]);
        // Zeros where a sum should be.
        let all = |unit: f64| 1.0 / unit;
        for k in [1, 200, 1000, 16384, 65536] {
            assert!(4.0 * bound::<f16>(k) < all(2f64.powi(-11)) && 4.0 * bound::<bf16>(k) < all(2f64.powi(-8)), "{k}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

        /// Also where everything is subnormal.
        #[test]
        fn the_plain_loop_is_within_its_bound(
            (m, n, k) in (1..20usize, 1..40usize, 0..40usize),
            (low, high) in (-160..0i32, 1..40i32),
            data in prop::collection::vec((any::<i16>(), 0..1000i32), 3000),
        ) {
            let wide = |low, e| 2f64.powi(low + e % high);
            let doubles: Vec<f64> = data.iter().map(|&(x, e)| f64::from(x) / 32768.0 * wide(6 * low, e)).collect();
            let singles: Vec<f32> = data.iter().map(|&(x, e)| (f64::from(x) / 32768.0 * wide(low, e)) as f32).collect();
            let large = [data[0], data[1]].map(|(x, e)| f64::from(x) / 32768.0 * wide(-low / 2, e));
            plain_is_within(large, &doubles, (m, n, k))?;
            plain_is_within(large.map(|x| x as f32), &singles, (m, n, k))?;
        }

        #[test]
        fn sixteen_bit_rounding_is_as_if_at_once(x in any::<u16>(), below in -3..=3i32) {
            // Beside the middle between two neighbours, by less than an f32 can tell.
            let (low, high) = (f16::from_bits(x & 0x7BFE), f16::from_bits((x & 0x7BFE) + 1));
            let middle = (low.to_f64() + high.to_f64()) / 2.0;
            let near = middle * (1.0 + f64::from(below) * f64::EPSILON);
            let want = if near > middle { high } else { low };
            prop_assert_eq!(rounded::<f16>(near), want);
            prop_assert_eq!(rounded::<f16>(-near), -want);
        }
    }

    #[test]
    fn an_error_of_three_units_is_three() {
        let unit = f64::EPSILON / 2.0;
        assert_eq!(distance(&[1.0, 1.0], &[1.0, 1.0], 2.0), 0.0);
        assert_eq!(distance(&[1.0, 1.0], &[1.0, 1.0], 2.0 + 6.0 * unit + 2.0 * unit), 4.0);
        assert_eq!(distance(&[1f32, 1.0], &[1.0, -1.0], 2f32.powi(-22)), 2.0);
        assert_eq!(distance(&[f16::ONE], &[f16::ONE], f16::from_f64(1.0 + 2f64.powi(-10))).round(), 2.0);
    }

    #[test]
    fn cancellation_does_not_reach_the_reference() {
        let (a, b) = ([1e16, 1.0, -1e16, 1e-9], [1.0; 4]);
        let c = product::<f64>(1.0, View::new(&a, 1, 4).unwrap(), View::new(&b, 4, 1).unwrap(), 0.0, None).unwrap();
        assert_eq!(c.as_slice(), [1.0 + 1e-9]);
        // The rounding error of a product alone.
        let x = 1.0 + f64::EPSILON;
        let (a, b) = ([x, -1.0], [x, x * x]);
        let c = product::<f64>(1.0, View::new(&a, 1, 2).unwrap(), View::new(&b, 2, 1).unwrap(), 0.0, None).unwrap();
        assert_eq!(c.as_slice(), [f64::EPSILON * f64::EPSILON]);
    }

    #[test]
    fn nan_and_infinity_must_be_where_they_belong() {
        let (inf, nan) = (f32::INFINITY, f32::NAN);
        assert_eq!(distance(&[1.0, nan], &[1.0, 1.0], nan), 0.0);
        assert_eq!(distance(&[1.0, nan], &[1.0, 1.0], 1.0), f64::INFINITY);
        assert_eq!(distance(&[1.0, 1f32], &[1.0, 1.0], nan), f64::INFINITY);
        assert_eq!(distance(&[inf, 1.0], &[0.0, 1.0], nan), 0.0);
        assert_eq!(distance(&[inf, 1.0], &[2.0, 1.0], inf), 0.0);
        assert_eq!(distance(&[inf, 1.0], &[2.0, 1.0], -inf), f64::INFINITY);
        assert_eq!(distance(&[inf, 1.0], &[2.0, 1.0], f32::MAX), f64::INFINITY);
        assert_eq!(distance(&[0f32], &[0.0], f32::from_bits(1)), f64::INFINITY);
    }

    #[test]
    fn too_large_for_the_type_is_infinite_and_the_edge_may_be() {
        let half = |x: f64| f16::from_f64(x);
        let (inf, big) = (f16::INFINITY, [half(65504.0), half(1.0)]);
        assert_eq!(distance(&big, &[half(2.0), half(0.0)], inf), 0.0);
        assert_eq!(distance(&big, &[half(-2.0), half(0.0)], -inf), 0.0);
        assert_eq!(distance(&big, &[half(-2.0), half(0.0)], inf), f64::INFINITY);
        assert!(distance(&big, &[half(2.0), half(0.0)], half(65504.0)) > 1000.0);
        // 65504 + 16 rounds to infinity, 65504 + 15 does not; either is within a unit of both.
        for x in [15.0, 16.0] {
            for result in [inf, half(65504.0)] {
                assert!(distance(&big, &[half(1.0), half(x)], result) <= 1.0);
            }
        }
        assert!(distance(&[half(60000.0)], &[half(1.0)], inf) > 100.0);
        assert_eq!(distance(&[f64::MAX, f64::MAX], &[1.0, 1.0], f64::INFINITY), 0.0);
        assert_eq!(distance(&[f64::MAX, f64::MAX], &[1.0, -1.0], 0.0), 0.0);
    }

    /// The report of a 1×1 result of alpha·a·b + beta·c0.
    fn judged<T: Element>([alpha, beta]: [T::Acc; 2], a: &[T], b: &[T], c0: T::Out, result: T::Out) -> Report {
        let (a, b) = (View::new(a, 1, a.len()).unwrap(), View::new(b, b.len(), 1).unwrap());
        let (c0, result) = ([c0], [result]);
        let [c0, result] = [&c0, &result].map(|one| View::new(one, 1, 1).unwrap());
        check::<T>(alpha, a, b, beta, Some(c0), result).unwrap()
    }

    #[test]
    fn f64_partial_sums_that_overflow_are_wrong_as_those_of_f32_are() {
        let of_f64 = judged([1.0, 0.0], &[1e308, 1e308, -1e308], &[1.0; 3], 0.0, f64::INFINITY);
        let of_f32 = judged::<f32>([1.0, 0.0], &[3e38, 3e38, -3e38], &[1.0; 3], 0.0, f32::INFINITY);
        for report in [of_f64, of_f32] {
            assert!(report.r > 1e5 && !report.within(5.0), "{report:?}");
            assert_eq!((report.overflows, report.r_without_overflows), (1, 0.0));
        }
        assert_eq!(of_f64.expected, 1e308);
        // The right result, and one that is an eighth off.
        assert_eq!(judged([1.0, 0.0], &[1e308, 1e308, -1e308], &[1.0; 3], 0.0, 1e308).r, 0.0);
        let off = judged([1.0, 0.0], &[1e308, 1e308, -1e308], &[1.0; 3], 0.0, 1.125e308);
        assert!(off.r > 1e14 && off.overflows == 0 && off.r_without_overflows == off.r, "{off:?}");
        // inf − inf.
        let nan = judged([1.0, 0.0], &[1e308, 1e308, -1e308, -1e308, -1e308], &[1.0; 5], 0.0, f64::NAN);
        assert_eq!((nan.r, nan.overflows, nan.mismatches, nan.expected), (f64::INFINITY, 1, 1, -1e308));
    }

    #[test]
    fn f64_products_beyond_its_range_are_exact_until_the_end() {
        let sum = |factors: [f64; 2], a: &[f64], b: &[f64], c0, result| judged(factors, a, b, c0, result).r;
        // Products that cancel, alpha and beta that bring back.
        assert_eq!(sum([1.0, 0.0], &[1e200, 1.0, -1e200], &[1e200, 7.0, 1e200], 0.0, 7.0), 0.0);
        assert!(sum([1.0, 0.0], &[1e200, 1.0, -1e200], &[1e200, 7.0, 1e200], 0.0, f64::NAN) > 1.0);
        let two = 2f64.powi(-600);
        assert_eq!(sum([two, 0.0], &[2f64.powi(900)], &[2f64.powi(600)], 0.0, 2f64.powi(900)), 0.0);
        assert_eq!(sum([1.0, -2.0], &[2f64.powi(1000)], &[2f64.powi(24)], 2f64.powi(1023), 0.0), 0.0);
        assert_eq!(
            sum(
                [2f64.powi(1000), 2f64.powi(1000)],
                &[-2f64.powi(700)],
                &[2f64.powi(1000)],
                2f64.powi(700),
                f64::NEG_INFINITY
            ),
            0.0
        );
        // Beyond the range it is infinite, and at its edge may be.
        assert_eq!(sum([1.0, 0.0], &[f64::MAX, f64::MAX], &[1.0; 2], 0.0, f64::INFINITY), 0.0);
        assert_eq!(sum([1.0, 0.0], &[f64::MAX, f64::MAX], &[1.0; 2], 0.0, f64::NEG_INFINITY), f64::INFINITY);
        assert!(sum([1.0, 0.0], &[f64::MAX, f64::MAX], &[1.0; 2], 0.0, f64::MAX) > 1e15);
        for near in [2f64.powi(970), 2f64.powi(969)] {
            for result in [f64::MAX, f64::INFINITY] {
                assert!(sum([1.0, 0.0], &[f64::MAX, near], &[1.0; 2], 0.0, result) <= 1.0, "{near} {result}");
            }
        }
        // What is infinite or NaN itself stays so.
        assert_eq!(sum([1.0, 0.0], &[1e308, 1e308, f64::NEG_INFINITY], &[1.0; 3], 0.0, f64::NEG_INFINITY), 0.0);
        assert_eq!(sum([1.0, 0.0], &[f64::INFINITY, f64::NEG_INFINITY], &[1.0; 2], 0.0, f64::NAN), 0.0);
        assert_eq!(sum([1.0, 0.0], &[f64::INFINITY, 1.0], &[0.0, 1.0], 0.0, f64::NAN), 0.0);
        let infinite = judged([1.0, 0.0], &[f64::INFINITY, 1.0], &[1.0; 2], 0.0, f64::NAN);
        assert_eq!(infinite.r, f64::INFINITY);
    }

    #[test]
    fn bias_and_activation_beyond_the_range_of_f64_are_exact() {
        let (a, b, bias) = ([1e308; 2], [1.0; 2], [-1e308]);
        let (a, b) = (View::new(&a, 1, 2).unwrap(), View::new(&b, 2, 1).unwrap());
        let finished = |activation, [a, b]: [View<f64>; 2], bias: &[f64; 1], result: f64| {
            let (result, bias) = ([result], Some(View::new(bias, 1, 1).unwrap()));
            let (finish, result) = (Finish { bias, activation }, View::new(&result, 1, 1).unwrap());
            check_finished(1.0, a, b, 0.0, None, finish, result, &|_| ()).unwrap().r
        };
        assert_eq!(finished(Activation::None, [a, b], &bias, 1e308), 0.0);
        assert!(finished(Activation::None, [a, b], &bias, f64::INFINITY) > 1.0);
        let minus = [-1.0; 2];
        let minus = View::new(&minus, 2, 1).unwrap();
        for activation in [Activation::Relu, Activation::Gelu, Activation::Silu] {
            assert_eq!(finished(activation, [a, b], &[0.0], f64::INFINITY), 0.0);
            assert_eq!(finished(activation, [a, minus], &[0.0], 0.0), 0.0);
            assert_eq!(finished(activation, [a, b], &bias, 1e308), 0.0);
        }
    }

    #[test]
    fn integers_wrap_and_are_counted() {
        let a = [i32::MAX, 3, -7, i32::MIN];
        let (a, b) = (View::new(&a, 2, 2).unwrap(), View::new(&a, 2, 2).unwrap());
        let c = product::<i32>(5, a, b, -3, Some(a)).unwrap();
        let want = |i: usize, j: usize| {
            let at = |i, j| i128::from(a.get(0, i, j).unwrap());
            (5 * (at(i, 0) * at(0, j) + at(i, 1) * at(1, j)) - 3 * at(i, j)) as i32
        };
        assert_eq!(c.as_slice(), [want(0, 0), want(0, 1), want(1, 0), want(1, 1)]);
        let wrong: Vec<_> = c.as_slice().iter().enumerate().map(|(i, &x)| if i == 0 { x } else { x ^ 1 }).collect();
        let report = check::<i32>(5, a, b, -3, Some(a), View::new(&wrong, 2, 2).unwrap()).unwrap();
        assert_eq!((report.mismatches, report.worst, report.r), (3, (0, 0, 1), f64::INFINITY));
        let each = errors::<i32>(5, a, b, -3, Some(a), View::new(&wrong, 2, 2).unwrap()).unwrap();
        assert_eq!(each.as_slice(), [0.0, f64::INFINITY, f64::INFINITY, f64::INFINITY]);
        assert_eq!((report.expected, report.actual), (f64::from(c.as_slice()[1]), f64::from(wrong[1])));
    }

    #[test]
    fn a_factor_of_zero_hides_what_it_scales() {
        let (nan, one) = ([f64::NAN], [1.0]);
        let (nan, one) = (View::new(&nan, 1, 1).unwrap(), View::new(&one, 1, 1).unwrap());
        assert_eq!(product::<f64>(0.0, nan, nan, 2.0, Some(one)).unwrap().as_slice(), [2.0]);
        assert_eq!(product::<f64>(2.0, one, one, 0.0, Some(nan)).unwrap().as_slice(), [2.0]);
        assert!(product::<f64>(2.0, one, one, 1.0, None).is_err());
    }

    #[test]
    fn batches_are_kept_apart() {
        let shape = Shape { batches: 3, rows: 17, cols: 17 };
        let a = Matrix::from_shape_fn(shape, |b, i, j| (100 * b + 10 * i + j) as i32).unwrap();
        let one = Matrix::from_shape_fn(shape, |b, i, j| i32::from(i == j) * (b as i32 + 1)).unwrap();
        let c = product::<i32>(1, a.view(), one.view(), 0, None).unwrap();
        let want = Matrix::from_shape_fn(shape, |b, i, j| (b as i32 + 1) * (100 * b + 10 * i + j) as i32).unwrap();
        assert_eq!(c, want);
        let mut wrong = want;
        wrong.as_mut_slice()[2 * 17 * 17 + 16 * 17 + 3] += 1;
        assert_eq!(check::<i32>(1, a.view(), one.view(), 0, None, wrong.view()).unwrap().worst, (2, 16, 3));
    }

    #[test]
    fn rows_without_columns_cost_nothing() {
        let rows = Matrix::<f32>::zeros(1 << 40, 0).unwrap();
        let none = Matrix::<f32>::zeros(0, 0).unwrap();
        let report = check::<f32>(1.0, rows.view(), none.view(), 0.0, None, rows.view()).unwrap();
        assert_eq!(report, Report::EMPTY);
    }
}
