//! High-precision reference of matrix products, and the error of a result.
//!
//! The error of a result is
//!
//! > r = max over elements of |Ĉ − C| / (u·(|α||A||B| + |β||C₀|) + η), with 0/0 = 0.
//!
//! - u is the unit roundoff of the type of C, or that of tf32 for a tf32 product
//!   ([`roundoff_ratio`]).
//! - η covers underflow, which relative error does not: a subnormal product is off by up to half
//!   the spacing of subnormal numbers. η is half that spacing in the type of C. With another
//!   accumulator type, half its spacing times max(1, |α|) is added. η counts only if |α||A||B| +
//!   |β||C₀| is not 0: a product of zeros is zero.
//!
//! [`bound`] is the bound of r.
//!
//! The reference is computed
//! - for f64 in double-double arithmetic: products and sums with their rounding errors, which are
//!   accumulated separately. Sums follow Knuth (The Art of Computer Programming, vol. 2, §4.2.2,
//!   theorem B). Products by fused multiply-add follow Dekker (A floating-point technique for
//!   extending the available precision, Numer. Math. 18, 1971). Dot products follow Ogita, Rump and
//!   Oishi (Accurate sum and dot product, SIAM J. Sci. Comput. 26, 2005, algorithm 5.3). The error
//!   is at most u|C| + γ²|A||B|, far below u|A||B|;
//! - for f32, f16 and bf16 in f64: products are exact, and a sum of k products has an error of at
//!   most k·2⁻²⁹ units of f32;
//! - for integers exactly, modulo 2³².
//!
//! # Epilogues
//!
//! With a bias and an activation the reference is act(αAB + βC₀ + b). The slope of the activation
//! scales an error of its argument, so
//!
//! > r = max over elements of |Ĉ − act(C)| / (λ·u·(|α||A||B| + |β||C₀| + |b|) + η).
//!
//! λ is the largest slope of the activation: 1 for ReLU, 1.13 for GELU, 1.1 for SiLU.
//! [`bound_with_epilogue`] is the bound of r. r does not see a relative error where a gate is
//! nearly closed. A separate test checks that activations are accurate to two units in the last
//! place. The reference computes activations by definition from the exponential function, for f64
//! in double-double arithmetic.
//!
//! # Infinities and NaN
//!
//! If the reference is NaN or infinite, the result must be the same; otherwise r is infinite. An
//! infinite result stands for all values that round to it. If the reference is finite, the error is
//! the distance to the smallest such value. So a result too large for f16 must be infinite, and a
//! result that rounds to either may be.
//!
//! The reference has a wider range than the product. If partial sums overflow and the result does
//! not, the plain loop has an infinite error. No type exceeds the range of f64: if the sum of
//! absolute values of an f64 element overflows, it is recomputed with an extended exponent
//! (`ReferenceElement::exponent`). Such elements are counted separately ([`Report::overflows`]):
//! scale A or B to avoid them.

mod activation;
mod element;
mod error_unit;
mod precision;

use tegula::element::{Accuracy, Element, Scalar, Type};
use tegula::epilogue::{Activation, Epilogue, EpilogueOperands};
use tegula::error::{Error, Result};
use tegula::matrix::{Matrix, Memory, Shape, View, check_product, check_work};
use tegula_core::progress::{Phase, ProgressMeter, ProgressReporter, ProgressSink};
use tegula_core::{host, threads};

use self::element::ReferenceElement;
use self::error_unit::{ErrorUnit, format, rounded};
use self::precision::{DoubleDoubleReference, F64Reference, Precision, WrappingReference};

/// Error of a result compared with the reference.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Report {
    /// Largest error r, see [above](self): 0 if all elements are exact; never NaN.
    ///
    /// For integers 0 or infinite.
    pub r: f64,
    /// Batch, row and column of the first element with the largest r; zeros for an empty result.
    pub worst: (usize, usize, usize),
    /// Reference of this element, rounded to f64.
    pub expected: f64,
    /// Result of this element.
    pub actual: f64,
    /// Number of elements with infinite r.
    ///
    /// These are unequal integers, wrong infinities and NaN, and nonzero results of zeros.
    pub mismatches: usize,
    /// Number of infinite or NaN elements whose partial sums may have overflowed.
    ///
    /// The reference differs, and the sum of absolute values, before or after alpha, exceeds the
    /// range of the accumulator type.
    pub overflows: usize,
    /// Largest error of the other elements.
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

    /// Whether r is at most `bound`, see [`bound`].
    pub fn within(&self, bound: f64) -> bool {
        self.r <= bound
    }

    fn and(self, later: Report) -> Report {
        let is_worse = later.r > self.r || later.r == self.r && later.worst < self.worst;
        let worse = if is_worse { later } else { self };
        Report {
            mismatches: self.mismatches + later.mismatches,
            overflows: self.overflows + later.overflows,
            r_without_overflows: self.r_without_overflows.max(later.r_without_overflows),
            ..worse
        }
    }
}

/// Error bound of r for inner dimension k: k + 2 if the accumulator has the type of C.
///
/// This is the bound of the plain loop: k roundings of products, k − 1 of sums, one each for alpha,
/// for adding beta·C₀ and for the type of C. The order of summation is irrelevant (Higham, Accuracy
/// and Stability of Numerical Algorithms, 2nd ed., §3.1, equation 3.5). The bound is the
/// first-order term. The exact one is larger by 1/(1 − (k+2)u), which is irrelevant in practice: r
/// grows about as √k.
///
/// With a more accurate accumulator, the bound is 1 for rounding to the type of C, plus 4(k+2) in
/// units of the accumulator. Tensor Cores truncate where a loop rounds, hence the factor 4 (Fasi,
/// Higham, Mikaitis and Pranesh, Numerical behavior of NVIDIA tensor cores, PeerJ Comput. Sci. 7,
/// 2021). A bound of k+2 units of C would be useless: 256 units of bf16 are the whole sum.
pub fn bound<T: Element>(k: usize) -> f64 {
    let ((c_unit, ..), (accumulator_unit, ..)) = (format(<T::Out as Scalar>::TYPE), format(<T::Acc as Scalar>::TYPE));
    let plain = k as f64 + 2.0;
    if accumulator_unit < c_unit { 1.0 + 4.0 * plain * accumulator_unit / c_unit } else { plain }
}

/// Unit roundoff of a product at an accuracy, in units of that of its type.
///
/// r divided by this ratio is in units of the accuracy.
pub const fn roundoff_ratio(accuracy: Accuracy) -> f64 {
    match accuracy {
        Accuracy::Full => 1.0,
        // 2⁻¹¹ of tf32 to 2⁻²⁴ of f32.
        Accuracy::Tf32 => 8192.0,
    }
}

/// Error bound of r at an accuracy, in its units.
///
/// tf32 rounds both operands of each product, 2 units for any k. The rest is four times [`bound`]
/// in units of f32, as for other accumulators.
pub fn bound_at_accuracy<T: Element>(accuracy: Accuracy, k: usize) -> f64 {
    match accuracy {
        Accuracy::Full => bound::<T>(k),
        Accuracy::Tf32 => 2.0 + 4.0 * bound::<T>(k) / roundoff_ratio(accuracy),
    }
}

/// Error bound of r at an accuracy with an epilogue, in units of the accuracy.
///
/// [`bound_at_accuracy`], plus 1 for a bias, plus 4 for an activation. The latter is accurate to
/// two units in the last place, each of which can be two of r's. Both are in the accumulator type.
pub fn bound_with_epilogue<T: Element>(accuracy: Accuracy, k: usize, epilogue: Epilogue) -> f64 {
    let bias = if epilogue.bias.is_some() { 1.0 } else { 0.0 };
    let gate = if epilogue.activation.gate().is_some() { 4.0 } else { 0.0 };
    bound_at_accuracy::<T>(accuracy, k) + (bias + gate) / roundoff_ratio(accuracy)
}

/// Compares `result` with alpha·A·B + beta·C₀, for matrices or batches of equal length.
///
/// A is m×k, B is k×n, C₀ and the result are m×n. C₀ is not read and may be omitted if `beta` is 0.
/// A and B are not read if `alpha` is 0.
///
/// # Errors
/// [`Error::Shape`] if shapes do not agree or a required C₀ is missing; [`Error::Unsupported`] for
/// matrices in GPU memory; [`Error::OutOfMemory`] if the reference does not fit in memory.
pub fn check<T: Element>(
    alpha: T::Acc,
    a: View<T>,
    b: View<T>,
    beta: T::Acc,
    c0: Option<View<T::Out>>,
    result: View<T::Out>,
) -> Result<Report> {
    compare([alpha, beta], [a, b], c0, EpilogueOperands::default(), result, None)
}

/// Compares a result with an epilogue as [`check`], and reports progress in rows of C.
///
/// # Errors
/// As [`check`], and as [`Gemm::run`](tegula::Gemm::run) for the epilogue.
#[allow(clippy::too_many_arguments, reason = "the parts of a product")]
pub fn check_with_epilogue<T: Element>(
    alpha: T::Acc,
    a: View<T>,
    b: View<T>,
    beta: T::Acc,
    c0: Option<View<T::Out>>,
    epilogue: EpilogueOperands<'_, T::Out>,
    result: View<T::Out>,
    progress: &ProgressSink<'_>,
) -> Result<Report> {
    let Shape { batches, rows, cols } = result.shape();
    let total = if cols == 0 { 0 } else { batches as u128 * rows as u128 };
    let meter = ProgressReporter(Some(progress)).meter(Phase::Check, total);
    let report = compare([alpha, beta], [a, b], c0, epilogue, result, meter.as_ref())?;
    meter.iter().for_each(ProgressMeter::finish);
    Ok(report)
}

fn compare<T: Element>(
    scalars: [T::Acc; 2],
    inputs: [View<T>; 2],
    c0: Option<View<T::Out>>,
    epilogue: EpilogueOperands<'_, T::Out>,
    result: View<T::Out>,
    meter: Option<&ProgressMeter<'_>>,
) -> Result<Report> {
    let problem = Problem::new(scalars, inputs, c0, epilogue)?;
    problem.compare(&ErrorUnit::new::<T>(problem.alpha), &Elements::of(result), meter)
}

/// Error r of each element; [`check`] returns the largest.
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
    let problem = Problem::new([alpha, beta], [a, b], c0, EpilogueOperands::default())?;
    let errors = problem.errors(&ErrorUnit::new::<T>(problem.alpha), &Elements::of(result))?;
    Matrix::from_shape_vec(problem.shape(), errors)
}

/// Computes the reference alpha·A·B + beta·C₀, rounded to the type of C.
///
/// # Errors
/// As [`check`].
pub fn reference<T: Element>(
    alpha: T::Acc,
    a: View<T>,
    b: View<T>,
    beta: T::Acc,
    c0: Option<View<T::Out>>,
) -> Result<Matrix<T::Out>> {
    let problem = Problem::new([alpha, beta], [a, b], c0, EpilogueOperands::default())?;
    let values = problem.values()?;
    let mut product = host::try_vec(&[values.len()], || format!("the reference for a {} matrix", problem.shape()))?;
    product.extend(values.into_iter().map(rounded::<T::Out>));
    Matrix::from_shape_vec(problem.shape(), product)
}

/// Elements of a matrix of any type, as f64. Code that is generic over the type would be compiled
/// again in every crate that calls it.
struct Elements<'a> {
    shape: Shape,
    on_host: bool,
    /// The element at a batch, row and column of a matrix on the host.
    at: Box<dyn Fn(usize, usize, usize) -> f64 + Send + Sync + 'a>,
}

impl<'a> Elements<'a> {
    fn of<S: Scalar>(view: View<'a, S>) -> Self {
        let (shape, on_host) = (view.shape(), matches!(view.memory(), Memory::Host(_)));
        let at = Box::new(move |batch, row, col| view.get(batch, row, col).map_or(f64::NAN, value));
        Elements { shape, on_host, at }
    }

    fn bias<S: Scalar>(epilogue: EpilogueOperands<'a, S>) -> Option<Self> {
        let at = move |batch, row, col| epilogue.bias_at(batch, row, col).map_or(f64::NAN, value);
        epilogue.bias.map(|bias| Elements { at: Box::new(at), ..Elements::of(bias) })
    }
}

/// Operands of a reference product.
struct Problem<'a> {
    alpha: f64,
    a: Elements<'a>,
    b: Elements<'a>,
    /// beta and C₀, unless beta is 0.
    c_term: Option<(f64, Elements<'a>)>,
    bias: Option<Elements<'a>>,
    activation: Activation,
    ty: Type,
    accumulator: Type,
}

impl<'a> Problem<'a> {
    fn new<T: Element>(
        [alpha, beta]: [T::Acc; 2],
        [a, b]: [View<'a, T>; 2],
        c0: Option<View<'a, T::Out>>,
        epilogue: EpilogueOperands<'a, T::Out>,
    ) -> Result<Self> {
        let (alpha, beta, activation) = (value(alpha), value(beta), epilogue.activation);
        let c_term = match c0 {
            _ if beta == 0.0 => None,
            Some(c0) => Some((beta, Elements::of(c0))),
            None => return Err(Error::Shape(format!("beta is {beta}, so C as it was before the product is needed"))),
        };
        let (a, b, accumulator) = (Elements::of(a), Elements::of(b), T::Acc::TYPE);
        let mut problem = Problem { alpha, a, b, c_term, bias: None, activation, ty: T::TYPE, accumulator };
        problem.check_operands()?;
        problem.bias = Elements::bias(epilogue.broadcast_to(problem.shape(), T::TYPE)?);
        problem.bias.as_ref().map_or(Ok(()), |bias| problem.on_host("bias", bias))?;
        Ok(problem)
    }

    fn check_operands(&self) -> Result<()> {
        let shape = self.shape();
        check_product(self.a.shape, self.b.shape, self.c_term.as_ref().map_or(shape, |(_, c0)| c0.shape))?;
        self.on_host("A", &self.a)?;
        self.on_host("B", &self.b)?;
        self.c_term.as_ref().map_or(Ok(()), |(_, c0)| self.on_host("C", c0))?;
        if self.alpha == 0.0 { Ok(()) } else { check_work(shape, self.a.shape.cols) }
    }

    fn on_host(&self, name: &str, matrix: &Elements) -> Result<()> {
        if matrix.on_host {
            return Ok(());
        }
        let (what, device) =
            (format!("a reference product with {name} in GPU memory"), "the CPU; copy it to the host first".into());
        Err(Error::Unsupported { what, ty: self.ty, device })
    }

    fn check_result(&self, result: &Elements) -> Result<()> {
        check_product(self.a.shape, self.b.shape, result.shape)?;
        self.on_host("the result", result)
    }

    fn shape(&self) -> Shape {
        Shape { cols: self.b.shape.cols, ..self.a.shape }
    }

    fn compare(&self, unit: &ErrorUnit, result: &Elements, meter: Option<&ProgressMeter<'_>>) -> Result<Report> {
        self.check_result(result)?;
        let tiling = self.tiling();
        let tiles =
            self.tiles(&tiling, 1, None, &|(batch, row, first), _, reference, report: &mut [Option<Report>]| {
                let reports = reference.iter().zip(first..).map(|(reference, col)| {
                    let actual = (result.at)(batch, row, col);
                    let r = unit.error_in_units(*reference, actual);
                    let overflow = reference.may_overflow && r > 0.0 && !actual.is_finite();
                    let mismatches = usize::from(r == f64::INFINITY);
                    let (overflows, r_without_overflows) = (usize::from(overflow), if overflow { 0.0 } else { r });
                    let (worst, expected) = ((batch, row, col), reference.value());
                    Report { r, worst, expected, actual, mismatches, overflows, r_without_overflows }
                });
                report[0] = report[0].into_iter().chain(reports).reduce(Report::and);
                let is_end_of_row = first + reference.len() == self.b.shape.cols;
                meter.iter().filter(|_| is_end_of_row).for_each(|meter| meter.add(1));
            })?;
        Ok(tiles.into_iter().flatten().reduce(Report::and).unwrap_or(Report::EMPTY))
    }

    fn errors(&self, unit: &ErrorUnit, result: &Elements) -> Result<Vec<f64>> {
        self.check_result(result)?;
        self.elements(&|(batch, row, first), reference, errors| {
            for ((col, reference), error) in (first..).zip(reference).zip(errors) {
                *error = unit.error_in_units(*reference, (result.at)(batch, row, col));
            }
        })
    }

    fn values(&self) -> Result<Vec<f64>> {
        self.elements(&|_, reference, values| {
            values.iter_mut().zip(reference).for_each(|(to, reference)| *to = reference.value());
        })
    }

    /// Calls `visit` for the part of each row in each tile, with an output for each column. Returns
    /// the outputs row-major.
    fn elements(&self, visit: VisitPart<'_>) -> Result<Vec<f64>> {
        let (shape, tiling) = (self.shape(), self.tiling());
        if shape.is_empty() {
            return Ok(Vec::new());
        }
        let Tiling { height, width, blocks, panels } = tiling;
        let tiles = self.tiles(&tiling, height * width, 0.0, &|at, place, reference, outputs| {
            let [row, col] = place;
            visit(at, reference, &mut outputs[row * width + col..][..reference.len()]);
        })?;
        let mut elements = host::try_vec(&[shape.len()?], || format!("the reference for a {shape} matrix"))?;
        for (batch, row) in (0..shape.batches).flat_map(|batch| (0..shape.rows).map(move |row| (batch, row))) {
            let first = (batch * blocks + row / height) * panels;
            let of_panel = |panel| tiles[((first + panel) * height + row % height) * width..].iter().take(width);
            elements.extend((0..panels).flat_map(of_panel).take(shape.cols));
        }
        Ok(elements)
    }

    /// The tiles of each matrix of C; one row high if it is empty.
    fn tiling(&self) -> Tiling {
        let Shape { rows, cols, .. } = self.shape();
        let panel = match self.accumulator {
            Type::F64 => DoubleDoubleReference::WIDTH,
            Type::I32 => WrappingReference::WIDTH,
            _ => F64Reference::WIDTH,
        };
        let width = cols.div_ceil(panel).div_ceil(MAX_PANELS).clamp(1, MAX_COLS / panel) * panel;
        let panels = cols.div_ceil(width);
        // Few panels have more blocks of rows, so that each thread has a tile, if rows suffice.
        let blocks = threads::count().div_ceil(panels.max(1));
        let height = rows.div_ceil(blocks).clamp(MIN_ROWS, ROWS).min(rows).max(1);
        Tiling { height, width: width.min(cols), blocks: rows.div_ceil(height), panels }
    }

    /// Calls `visit` for parts of the rows of each tile, with its `outputs`, initially `blank`.
    ///
    /// Returns the outputs tile by tile: batches, blocks of rows, panels of columns.
    fn tiles<R: Copy + Send>(&self, tiling: &Tiling, outputs: usize, blank: R, visit: Visit<'_, R>) -> Result<Vec<R>> {
        match self.accumulator {
            Type::F64 => self.tiles_by::<DoubleDoubleReference, R>(tiling, outputs, blank, visit),
            Type::F32 => self.tiles_by::<F64Reference, R>(tiling, outputs, blank, visit),
            Type::I32 => self.tiles_by::<WrappingReference, R>(tiling, outputs, blank, visit),
            ty => {
                let what = format!("a reference product accumulated in {ty}");
                Err(Error::Unsupported { what, ty: self.ty, device: "the CPU".into() })
            }
        }
    }

    fn tiles_by<P: Precision, R: Copy + Send>(
        &self,
        &Tiling { height, width, blocks, panels }: &Tiling,
        outputs: usize,
        blank: R,
        visit: Visit<'_, R>,
    ) -> Result<Vec<R>> {
        let shape = self.shape();
        shape.len()?;
        if shape.is_empty() {
            return Ok(Vec::new());
        }
        let what = || format!("the reference for a {shape} matrix");
        let (copy, extents) = ([shape.rows, self.depth()], [shape.batches, blocks, panels, outputs]);
        if host::bytes::<P::Operand>(&copy) > host::bytes::<R>(&extents) {
            // If the larger one does not fit in memory, nothing is computed and nothing allocated.
            drop(host::try_vec::<P::Operand>(&copy, what)?);
        }
        let mut all = host::try_vec(&extents, what)?;
        let of_batch = blocks * panels * outputs;
        all.resize(shape.batches * of_batch, blank);
        for (batch, all) in all.chunks_mut(of_batch).enumerate() {
            let a = self.operands_of_a::<P>(batch)?;
            threads::for_chunks(all, outputs, |tile, outputs: &mut [R]| {
                let (first_row, first_col) = (height * (tile / panels), tile % panels * width);
                let rows = first_row..shape.rows.min(first_row + height);
                let cols = first_col..shape.cols.min(first_col + width);
                self.tile::<P, R>(batch, rows, cols, &a, outputs, visit)
            })?;
        }
        Ok(all)
    }

    /// Converts A, unless no product of it is added.
    fn operands_of_a<P: Precision>(&self, batch: usize) -> Result<Vec<P::Operand>> {
        let (rows, depth) = (self.a.shape.rows, self.depth());
        let mut a = host::try_vec(&[rows, depth], || format!("the reference's copy of a {rows}×{depth} matrix"))?;
        a.resize(rows * depth, P::operand(0.0));
        threads::for_chunks(&mut a, depth.max(1), |row, to| {
            to.iter_mut().enumerate().for_each(|(col, to)| *to = P::operand((self.a.at)(batch, row, col)));
            Ok::<_, Error>(())
        })?;
        Ok(a)
    }

    /// k, or 0 if alpha is 0.
    fn depth(&self) -> usize {
        if self.alpha == 0.0 { 0 } else { self.a.shape.cols }
    }

    /// Computes a tile of the reference and calls `visit` for parts of its rows.
    fn tile<P: Precision, R>(
        &self,
        batch: usize,
        rows: std::ops::Range<usize>,
        cols: std::ops::Range<usize>,
        a: &[P::Operand],
        outputs: &mut [R],
        visit: Visit<'_, R>,
    ) -> Result<()> {
        const { assert!(P::WIDTH <= MAX_WIDTH) }
        let depth = self.depth();
        let mut panel = host::try_vec(&[depth, P::WIDTH], || "a panel of the reference's copy of B".into())?;
        panel.resize(depth * P::WIDTH, P::operand(0.0));
        let mut accumulators = [ReferenceElement::default(); MAX_WIDTH];
        for first in cols.clone().step_by(P::WIDTH) {
            let part = first..cols.end.min(first + P::WIDTH);
            for (row, to) in panel.chunks_exact_mut(P::WIDTH).enumerate() {
                to.iter_mut().zip(part.clone()).for_each(|(to, col)| *to = P::operand((self.b.at)(batch, row, col)));
            }
            for (i, row) in rows.clone().enumerate() {
                let (a, accumulators) = (&a[row * depth..][..depth], &mut accumulators[..part.len()]);
                P::dot(a, &panel, accumulators);
                for ((offset, col), accumulator) in part.clone().enumerate().zip(&mut *accumulators) {
                    let c_term = self.c_term.as_ref().map(|(beta, c0)| (*beta, (c0.at)(batch, row, col)));
                    let bias = self.bias.as_ref().map(|bias| (bias.at)(batch, row, col));
                    let terms = a.iter().copied().zip(panel.iter().skip(offset).step_by(P::WIDTH).copied());
                    let scaled = P::scaled(self.alpha, *accumulator, terms, c_term, bias);
                    *accumulator = P::activate(scaled, self.activation);
                }
                visit((batch, row, first), [i, first - cols.start], accumulators, outputs);
            }
        }
        Ok(())
    }
}

/// What [`Problem::tiles`] calls for parts of the rows of a tile: with batch, row and first column,
/// row and first column in the tile, the elements, and the outputs of the tile.
type Visit<'a, R> = &'a (dyn Fn((usize, usize, usize), [usize; 2], &[ReferenceElement], &mut [R]) + Sync);
/// What [`Problem::elements`] calls for each row of a tile: with batch, row and first column, its
/// elements, and an output for each.
type VisitPart<'a> = &'a (dyn Fn((usize, usize, usize), &[ReferenceElement], &mut [f64]) + Sync);

/// The tiles of a matrix of the reference. Each tile converts its columns of B, so that few rows of
/// a large B use all threads and need no copy of it. A is converted as a whole.
struct Tiling {
    height: usize,
    width: usize,
    /// Tiles along rows and along columns.
    blocks: usize,
    panels: usize,
}

/// Rows per tile: at most, and at least while they exist. A column of B is converted again for each
/// tile.
const ROWS: usize = 128;
const MIN_ROWS: usize = 16;
/// Columns that are computed at once, at most.
const MAX_WIDTH: usize = 32;
/// Tiles of a row of C from which they are wider, and the columns of the widest.
const MAX_PANELS: usize = 1024;
const MAX_COLS: usize = 4096;

/// Exact value of a scalar, as f64.
fn value<S: Scalar>(scalar: S) -> f64 {
    S::TYPE.to_f64(scalar.to_bits())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tegula::element::{bf16, f16};

    use super::*;

    /// r of a 1×1 result.
    fn error_in_units<T: Element>(a: &[T], b: &[T], result: T::Out) -> f64 {
        let (a, b) = (View::new(a, 1, a.len()).unwrap(), View::new(b, b.len(), 1).unwrap());
        check::<T>(T::Acc::ONE, a, b, T::Acc::ZERO, None, View::new(&[result], 1, 1).unwrap()).unwrap().r
    }

    /// Plain loop in the type itself.
    fn plain<T: Element<Acc = T, Out = T> + std::ops::Mul<Output = T> + std::ops::Add<Output = T>>(
        [alpha, beta]: [T; 2],
        a: View<T>,
        b: View<T>,
        c0: View<T>,
    ) -> Matrix<T> {
        Matrix::from_shape_fn(c0.shape(), |_, i, j| {
            let term = |p| a.get(0, i, p).unwrap() * b.get(0, p, j).unwrap();
            let accumulator = (0..a.shape().cols).fold(T::ZERO, |accumulator, p| accumulator + term(p));
            alpha * accumulator + beta * c0.get(0, i, j).unwrap()
        })
        .unwrap()
    }

    fn check_plain_loop<T>(
        scalars: [T; 2],
        data: &[T],
        (m, n, k): (usize, usize, usize),
    ) -> std::result::Result<(), TestCaseError>
    where
        T: Element<Acc = T, Out = T> + std::ops::Mul<Output = T> + std::ops::Add<Output = T>,
    {
        let matrix = |first: usize, rows, cols| View::new(&data[first..][..rows * cols], rows, cols).unwrap();
        let (a, b, c0) = (matrix(0, m, k), matrix(800, k, n), matrix(2200, m, n));
        let c = plain(scalars, a, b, c0);
        let report = check::<T>(scalars[0], a, b, scalars[1], Some(c0), c.view()).unwrap();
        prop_assert!(report.within(bound::<T>(k)), "{}: {:?}", T::TYPE, report);
        Ok(())
    }

    #[test]
    fn bound_rejects_results_of_zeros() {
        assert_eq!([bound::<f32>(10), bound::<f64>(10), bound::<i32>(10)], [12.0; 3]);
        assert_eq!([bound::<f16>(8190), bound::<bf16>(65534)], [5.0; 2]);
        // A result of zeros.
        let all = |unit: f64| 1.0 / unit;
        for k in [1, 200, 1000, 16384, 65536] {
            assert!(4.0 * bound::<f16>(k) < all(2f64.powi(-11)) && 4.0 * bound::<bf16>(k) < all(2f64.powi(-8)), "{k}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

        /// Includes subnormal inputs and results.
        #[test]
        fn check_plain_loop_is_within_the_bound(
            (m, n, k) in (1..20usize, 1..40usize, 0..40usize),
            (low, high) in (-160..0i32, 1..40i32),
            data in prop::collection::vec((any::<i16>(), 0..1000i32), 3000),
        ) {
            let wide = |low, e| 2f64.powi(low + e % high);
            let doubles: Vec<f64> = data.iter().map(|&(x, e)| f64::from(x) / 32768.0 * wide(6 * low, e)).collect();
            let singles: Vec<f32> = data.iter().map(|&(x, e)| (f64::from(x) / 32768.0 * wide(low, e)) as f32).collect();
            let large = [data[0], data[1]].map(|(x, e)| f64::from(x) / 32768.0 * wide(-low / 2, e));
            check_plain_loop(large, &doubles, (m, n, k))?;
            check_plain_loop(large.map(|x| x as f32), &singles, (m, n, k))?;
        }

        #[test]
        fn rounded_rounds_to_16_bits_once(x in any::<u16>(), below in -3..=3i32) {
            // Near a tie between neighbors, by less than the precision of f32.
            let (low, high) = (f16::from_bits(x & 0x7BFE), f16::from_bits((x & 0x7BFE) + 1));
            let tie = (low.to_f64() + high.to_f64()) / 2.0;
            let near_tie = tie * (1.0 + f64::from(below) * f64::EPSILON);
            let want = if near_tie > tie { high } else { low };
            prop_assert_eq!(rounded::<f16>(near_tie), want);
            prop_assert_eq!(rounded::<f16>(-near_tie), -want);
        }
    }

    #[test]
    fn check_r_is_in_units_of_roundoff() {
        let unit = f64::EPSILON / 2.0;
        assert_eq!(error_in_units(&[1.0, 1.0], &[1.0, 1.0], 2.0), 0.0);
        assert_eq!(error_in_units(&[1.0, 1.0], &[1.0, 1.0], 2.0 + 6.0 * unit + 2.0 * unit), 4.0);
        assert_eq!(error_in_units(&[1f32, 1.0], &[1.0, -1.0], 2f32.powi(-22)), 2.0);
        assert_eq!(error_in_units(&[f16::ONE], &[f16::ONE], f16::from_f64(1.0 + 2f64.powi(-10))).round(), 2.0);
    }

    #[test]
    fn reference_is_exact_under_cancellation() {
        let (a, b) = ([1e16, 1.0, -1e16, 1e-9], [1.0; 4]);
        let c = reference::<f64>(1.0, View::new(&a, 1, 4).unwrap(), View::new(&b, 4, 1).unwrap(), 0.0, None).unwrap();
        assert_eq!(c.as_slice(), [1.0 + 1e-9]);
        // Rounding error of a product.
        let x = 1.0 + f64::EPSILON;
        let (a, b) = ([x, -1.0], [x, x * x]);
        let c = reference::<f64>(1.0, View::new(&a, 1, 2).unwrap(), View::new(&b, 2, 1).unwrap(), 0.0, None).unwrap();
        assert_eq!(c.as_slice(), [f64::EPSILON * f64::EPSILON]);
    }

    #[test]
    fn check_wrong_nan_or_infinity_has_infinite_r() {
        let (inf, nan) = (f32::INFINITY, f32::NAN);
        assert_eq!(error_in_units(&[1.0, nan], &[1.0, 1.0], nan), 0.0);
        assert_eq!(error_in_units(&[1.0, nan], &[1.0, 1.0], 1.0), f64::INFINITY);
        assert_eq!(error_in_units(&[1.0, 1f32], &[1.0, 1.0], nan), f64::INFINITY);
        assert_eq!(error_in_units(&[inf, 1.0], &[0.0, 1.0], nan), 0.0);
        assert_eq!(error_in_units(&[inf, 1.0], &[2.0, 1.0], inf), 0.0);
        assert_eq!(error_in_units(&[inf, 1.0], &[2.0, 1.0], -inf), f64::INFINITY);
        assert_eq!(error_in_units(&[inf, 1.0], &[2.0, 1.0], f32::MAX), f64::INFINITY);
        assert_eq!(error_in_units(&[0f32], &[0.0], f32::from_bits(1)), f64::INFINITY);
    }

    #[test]
    fn check_results_beyond_the_range_must_be_infinite() {
        let half = |x: f64| f16::from_f64(x);
        let (inf, big) = (f16::INFINITY, [half(65504.0), half(1.0)]);
        assert_eq!(error_in_units(&big, &[half(2.0), half(0.0)], inf), 0.0);
        assert_eq!(error_in_units(&big, &[half(-2.0), half(0.0)], -inf), 0.0);
        assert_eq!(error_in_units(&big, &[half(-2.0), half(0.0)], inf), f64::INFINITY);
        assert!(error_in_units(&big, &[half(2.0), half(0.0)], half(65504.0)) > 1000.0);
        // 65504 + 16 rounds to infinity, 65504 + 15 does not; either result is within one unit of
        // both.
        for x in [15.0, 16.0] {
            for result in [inf, half(65504.0)] {
                assert!(error_in_units(&big, &[half(1.0), half(x)], result) <= 1.0);
            }
        }
        assert!(error_in_units(&[half(60000.0)], &[half(1.0)], inf) > 100.0);
        assert_eq!(error_in_units(&[f64::MAX, f64::MAX], &[1.0, 1.0], f64::INFINITY), 0.0);
        assert_eq!(error_in_units(&[f64::MAX, f64::MAX], &[1.0, -1.0], 0.0), 0.0);
    }

    /// Report of a 1×1 result of alpha·a·b + beta·c0.
    fn reports<T: Element>([alpha, beta]: [T::Acc; 2], a: &[T], b: &[T], c0: T::Out, result: T::Out) -> Report {
        let (a, b) = (View::new(a, 1, a.len()).unwrap(), View::new(b, b.len(), 1).unwrap());
        let (c0, result) = ([c0], [result]);
        let [c0, result] = [&c0, &result].map(|one| View::new(one, 1, 1).unwrap());
        check::<T>(alpha, a, b, beta, Some(c0), result).unwrap()
    }

    #[test]
    fn check_counts_overflows_of_partial_sums() {
        let of_f64 = reports([1.0, 0.0], &[1e308, 1e308, -1e308], &[1.0; 3], 0.0, f64::INFINITY);
        let of_f32 = reports::<f32>([1.0, 0.0], &[3e38, 3e38, -3e38], &[1.0; 3], 0.0, f32::INFINITY);
        for report in [of_f64, of_f32] {
            assert!(report.r > 1e5 && !report.within(5.0), "{report:?}");
            assert_eq!((report.overflows, report.r_without_overflows), (1, 0.0));
        }
        assert_eq!(of_f64.expected, 1e308);
        // The exact result, and one with a relative error of an eighth.
        assert_eq!(reports([1.0, 0.0], &[1e308, 1e308, -1e308], &[1.0; 3], 0.0, 1e308).r, 0.0);
        let off = reports([1.0, 0.0], &[1e308, 1e308, -1e308], &[1.0; 3], 0.0, 1.125e308);
        assert!(off.r > 1e14 && off.overflows == 0 && off.r_without_overflows == off.r, "{off:?}");
        // inf − inf.
        let nan = reports([1.0, 0.0], &[1e308, 1e308, -1e308, -1e308, -1e308], &[1.0; 5], 0.0, f64::NAN);
        assert_eq!((nan.r, nan.overflows, nan.mismatches, nan.expected), (f64::INFINITY, 1, 1, -1e308));
    }

    #[test]
    fn reference_of_f64_has_an_extended_range() {
        let r = |scalars: [f64; 2], a: &[f64], b: &[f64], c0, result| reports(scalars, a, b, c0, result).r;
        // Products that cancel; alpha and beta that restore the range.
        assert_eq!(r([1.0, 0.0], &[1e200, 1.0, -1e200], &[1e200, 7.0, 1e200], 0.0, 7.0), 0.0);
        assert!(r([1.0, 0.0], &[1e200, 1.0, -1e200], &[1e200, 7.0, 1e200], 0.0, f64::NAN) > 1.0);
        let two = 2f64.powi(-600);
        assert_eq!(r([two, 0.0], &[2f64.powi(900)], &[2f64.powi(600)], 0.0, 2f64.powi(900)), 0.0);
        assert_eq!(r([1.0, -2.0], &[2f64.powi(1000)], &[2f64.powi(24)], 2f64.powi(1023), 0.0), 0.0);
        assert_eq!(
            r(
                [2f64.powi(1000), 2f64.powi(1000)],
                &[-2f64.powi(700)],
                &[2f64.powi(1000)],
                2f64.powi(700),
                f64::NEG_INFINITY
            ),
            0.0
        );
        // Beyond the range the result is infinite; at its edge either.
        assert_eq!(r([1.0, 0.0], &[f64::MAX, f64::MAX], &[1.0; 2], 0.0, f64::INFINITY), 0.0);
        assert_eq!(r([1.0, 0.0], &[f64::MAX, f64::MAX], &[1.0; 2], 0.0, f64::NEG_INFINITY), f64::INFINITY);
        assert!(r([1.0, 0.0], &[f64::MAX, f64::MAX], &[1.0; 2], 0.0, f64::MAX) > 1e15);
        for near_tie in [2f64.powi(970), 2f64.powi(969)] {
            for result in [f64::MAX, f64::INFINITY] {
                assert!(r([1.0, 0.0], &[f64::MAX, near_tie], &[1.0; 2], 0.0, result) <= 1.0, "{near_tie} {result}");
            }
        }
        // Infinite and NaN operands propagate.
        assert_eq!(r([1.0, 0.0], &[1e308, 1e308, f64::NEG_INFINITY], &[1.0; 3], 0.0, f64::NEG_INFINITY), 0.0);
        assert_eq!(r([1.0, 0.0], &[f64::INFINITY, f64::NEG_INFINITY], &[1.0; 2], 0.0, f64::NAN), 0.0);
        assert_eq!(r([1.0, 0.0], &[f64::INFINITY, 1.0], &[0.0, 1.0], 0.0, f64::NAN), 0.0);
        let infinite = reports([1.0, 0.0], &[f64::INFINITY, 1.0], &[1.0; 2], 0.0, f64::NAN);
        assert_eq!(infinite.r, f64::INFINITY);
    }

    #[test]
    fn reference_of_f64_epilogue_has_an_extended_range() {
        let (a, b, bias) = ([1e308; 2], [1.0; 2], [-1e308]);
        let (a, b) = (View::new(&a, 1, 2).unwrap(), View::new(&b, 2, 1).unwrap());
        let finished = |activation, [a, b]: [View<f64>; 2], bias: &[f64; 1], result: f64| {
            let (result, bias) = ([result], Some(View::new(bias, 1, 1).unwrap()));
            let (epilogue, result) = (EpilogueOperands { bias, activation }, View::new(&result, 1, 1).unwrap());
            check_with_epilogue(1.0, a, b, 0.0, None, epilogue, result, &|_| ()).unwrap().r
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
    fn check_integers_wrap_and_mismatches_are_counted() {
        let a = [i32::MAX, 3, -7, i32::MIN];
        let (a, b) = (View::new(&a, 2, 2).unwrap(), View::new(&a, 2, 2).unwrap());
        let c = reference::<i32>(5, a, b, -3, Some(a)).unwrap();
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
    fn reference_zero_scalar_ignores_nan() {
        let (nan, one) = ([f64::NAN], [1.0]);
        let (nan, one) = (View::new(&nan, 1, 1).unwrap(), View::new(&one, 1, 1).unwrap());
        assert_eq!(reference::<f64>(0.0, nan, nan, 2.0, Some(one)).unwrap().as_slice(), [2.0]);
        assert_eq!(reference::<f64>(2.0, one, one, 0.0, Some(nan)).unwrap().as_slice(), [2.0]);
        assert!(reference::<f64>(2.0, one, one, 1.0, None).is_err());
    }

    #[test]
    fn reference_of_a_batch_and_its_worst_element() {
        let shape = Shape { batches: 3, rows: 17, cols: 17 };
        let a = Matrix::from_shape_fn(shape, |b, i, j| (100 * b + 10 * i + j) as i32).unwrap();
        let one = Matrix::from_shape_fn(shape, |b, i, j| i32::from(i == j) * (b as i32 + 1)).unwrap();
        let c = reference::<i32>(1, a.view(), one.view(), 0, None).unwrap();
        let want = Matrix::from_shape_fn(shape, |b, i, j| (b as i32 + 1) * (100 * b + 10 * i + j) as i32).unwrap();
        assert_eq!(c, want);
        let mut wrong = want;
        wrong.as_mut_slice()[2 * 17 * 17 + 16 * 17 + 3] += 1;
        assert_eq!(check::<i32>(1, a.view(), one.view(), 0, None, wrong.view()).unwrap().worst, (2, 16, 3));
    }

    #[test]
    fn reference_and_worst_element_across_tiles() {
        let (tall, wide) = ([2 * ROWS + 3, 2 * MAX_WIDTH + 5], [3, 16 * MAX_PANELS + 5]);
        for [rows, cols] in [tall, wide] {
            let a = Matrix::from_shape_fn(Shape::new(rows, 2), |_, i, p| (7 * i + p) as i32).unwrap();
            let b = Matrix::from_shape_fn(Shape::new(2, cols), |_, p, j| (3 * j + p) as i32).unwrap();
            let mut c = reference::<i32>(1, a.view(), b.view(), 0, None).unwrap();
            let element = |i: usize, j: usize| (7 * i * 3 * j + (7 * i + 1) * (3 * j + 1)) as i32;
            let want = Matrix::from_shape_fn(c.shape(), |_, i, j| element(i, j)).unwrap();
            assert_eq!(c, want);
            // The first wrong element is in a later tile than the second.
            c.as_mut_slice()[cols + cols - 1] += 1;
            c.as_mut_slice()[2 * cols] += 1;
            let report = check::<i32>(1, a.view(), b.view(), 0, None, c.view()).unwrap();
            assert_eq!((report.worst, report.mismatches), ((0, 1, cols - 1), 2));
            assert_eq!(report.expected, f64::from(element(1, cols - 1)));
        }
    }

    #[test]
    fn check_empty_result_allocates_nothing() {
        let rows = Matrix::<f32>::zeros(1 << 40, 0).unwrap();
        let none = Matrix::<f32>::zeros(0, 0).unwrap();
        let report = check::<f32>(1.0, rows.view(), none.view(), 0.0, None, rows.view()).unwrap();
        assert_eq!(report, Report::EMPTY);
        assert!(reference::<f32>(1.0, rows.view(), none.view(), 0.0, None).unwrap().as_slice().is_empty());
        let errors = errors::<f32>(1.0, rows.view(), none.view(), 0.0, None, rows.view());
        assert!(errors.unwrap().as_slice().is_empty());
    }
}
