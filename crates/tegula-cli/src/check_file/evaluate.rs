//! Evaluates formulas in f64, with a bound of the rounding errors of a kernel.
//!
//! Each real number has an error bound for a computation with unit roundoff u, by running error
//! analysis (Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., §3.3). The bound is
//! |a|·e(b) + |b|·e(a) + u·|ab| for a product, and n·u·Σ|x| for a sum of n terms in any order.
//! Products and sums of f64 are computed in twice the precision. Integers are computed modulo 2⁶⁴,
//! so that kernels can wrap.

use rayon::prelude::*;

use super::formula::{Expression, Function, Operator};
use super::tensor::{Elements, Line, Real, Sum, Tensor, check_size, map, together, transpose};

/// Evaluates expressions.
pub struct Evaluator<'a> {
    /// The unit roundoff of the computation whose errors are bounded.
    pub roundoff: f64,
    /// The array of a name or of a file.
    pub leaf: &'a dyn Fn(&Expression) -> Result<Tensor, String>,
}

impl Evaluator<'_> {
    /// The value of an expression.
    ///
    /// # Errors
    /// Unknown names, and incompatible shapes.
    pub fn evaluate(&self, expression: &Expression) -> Result<Tensor, String> {
        match expression {
            Expression::Integer(value) => Ok(Tensor::scalar(Elements::Integers(vec![*value]))),
            Expression::Real(value) => Ok(Tensor::scalar(Elements::Reals(vec![Real::exact(*value)]))),
            Expression::Name(_) | Expression::File(_) => (self.leaf)(expression),
            Expression::Negation(inner) => {
                let inner = self.evaluate(inner)?;
                Ok(map(inner, i64::wrapping_neg, |x| Real { value: -x.value, ..x }))
            }
            Expression::Binary(Operator::MatrixProduct, a, b) => self.product(&self.evaluate(a)?, &self.evaluate(b)?),
            Expression::Binary(operator, a, b) => self.elementwise(*operator, &self.evaluate(a)?, &self.evaluate(b)?),
            Expression::Call(function, arguments) => {
                let all: Vec<Tensor> =
                    arguments.iter().map(|argument| self.evaluate(argument)).collect::<Result<_, _>>()?;
                self.call(*function, all)
            }
        }
    }

    /// Applies the function `f` to each number; `error` returns the error bound of a result.
    fn smooth(&self, x: Tensor, f: impl Fn(f64) -> f64, error: impl Fn(Real, f64) -> f64) -> Tensor {
        let each = |x: Real| {
            let value = f(x.value);
            Real { value, error: error(x, value) }
        };
        Tensor::reals(x.shape.clone(), x.to_reals().into_iter().map(each).collect())
    }

    fn call(&self, function: Function, mut arguments: Vec<Tensor>) -> Result<Tensor, String> {
        let u = self.roundoff;
        let first = arguments.remove(0);
        let second = arguments.pop();
        Ok(match (function, second) {
            (Function::Exp, _) => {
                // GPUs compute 2^(x·log₂e), so the rounding of the argument adds to the error.
                self.smooth(first, f64::exp, |x, y| y * (x.error + (2.0 * x.value.abs() + 4.0) * u))
            }
            (Function::Log, _) => {
                self.smooth(first, f64::ln, |x, y| x.error / x.value.abs() + 4.0 * u * (1.0 + y.abs()))
            }
            (Function::Sqrt, _) => self.smooth(first, f64::sqrt, |x, y| {
                // The slope of the square root is infinite at 0, but the error is bounded.
                (0.5 * x.error / y).min(x.error.sqrt()) + 4.0 * u * y
            }),
            (Function::Tanh, _) => self.smooth(first, f64::tanh, |x, _| x.error + 8.0 * u),
            (Function::Abs, _) => map(first, i64::wrapping_abs, |x| Real { value: x.value.abs(), ..x }),
            (Function::Relu, _) => map(first, |x| x.max(0), |x| Real { value: x.value.max(0.0), ..x }),
            (Function::Transpose, _) => transpose(&first),
            (Function::Dot, Some(second)) => {
                let flat = |x: Tensor| Tensor { shape: vec![x.len()], ..x };
                self.product(&flat(first), &flat(second))?
            }
            (Function::Maximum, Some(second)) => self.pick(&first, &second, false)?,
            (Function::Minimum, Some(second)) => self.pick(&first, &second, true)?,
            (Function::Histogram, Some(bins)) => histogram(&first, &bins)?,
            (Function::Sum, axis) => self.along(first, axis, |line| self.sum(line))?,
            (Function::Mean, axis) => self.along(first, axis, |line| {
                let n = line.len() as f64;
                self.sum(line).over(|x| Real { value: x.value / n, error: x.error / n + 2.0 * u * (x.value / n).abs() })
            })?,
            (Function::Max, axis) => self.along(first, axis, |line| extreme(line, false))?,
            (Function::Min, axis) => self.along(first, axis, |line| extreme(line, true))?,
            (Function::CumulativeSum, axis) => self.scan(first, axis, |line| self.cumulative_sum(line))?,
            (Function::Sort, axis) => self.scan(first, axis, sorted)?,
            (Function::Softmax, axis) => self.scan(first, axis, |line| self.softmax(line))?,
            (function, _) => return Err(format!("{function:?} lacks an argument")),
        })
    }

    fn elementwise(&self, operator: Operator, a: &Tensor, b: &Tensor) -> Result<Tensor, String> {
        let u = self.roundoff;
        let (a, b) = together(a, b)?;
        let half = a.half || b.half;
        if let (Elements::Integers(a_all), Elements::Integers(b_all)) = (&a.elements, &b.elements)
            && operator != Operator::Divide
        {
            let apply = match operator {
                Operator::Add => i64::wrapping_add,
                Operator::Subtract => i64::wrapping_sub,
                _ => i64::wrapping_mul,
            };
            let all = a_all.iter().zip(b_all).map(|(&a, &b)| apply(a, b)).collect();
            return Ok(Tensor { shape: a.shape.clone(), elements: Elements::Integers(all), half });
        }
        let apply = |(a, b): (&Real, &Real)| {
            let (value, error) = match operator {
                Operator::Add => (a.value + b.value, a.error + b.error),
                Operator::Subtract => (a.value - b.value, a.error + b.error),
                Operator::Divide => {
                    let value = a.value / b.value;
                    // Fast division has an error of up to 2 ulp.
                    let error =
                        if a.error + b.error == 0.0 { 0.0 } else { (a.error + value.abs() * b.error) / b.value.abs() };
                    (value, error + 3.0 * u * value.abs())
                }
                _ => (a.value * b.value, a.value.abs() * b.error + b.value.abs() * a.error),
            };
            Real { value, error: error + u * value.abs() }
        };
        let all = a.to_reals().iter().zip(&b.to_reals()).map(apply).collect();
        Ok(Tensor { half, ..Tensor::reals(a.shape, all) })
    }

    /// The smaller or the larger of two elements.
    fn pick(&self, a: &Tensor, b: &Tensor, smaller: bool) -> Result<Tensor, String> {
        let (a, b) = together(a, b)?;
        if let (Elements::Integers(a_all), Elements::Integers(b_all)) = (&a.elements, &b.elements) {
            let pick = |(&a, &b): (&i64, &i64)| if (a < b) == smaller { a } else { b };
            let all = a_all.iter().zip(b_all).map(pick).collect();
            return Ok(Tensor { shape: a.shape.clone(), elements: Elements::Integers(all), half: false });
        }
        let pick = |(a, b): (&Real, &Real)| {
            let value = if smaller { a.value.min(b.value) } else { a.value.max(b.value) };
            Real { value, error: a.error.max(b.error) }
        };
        Ok(Tensor::reals(a.shape.clone(), a.to_reals().iter().zip(&b.to_reals()).map(pick).collect()))
    }

    /// The matrix product of matrices or vectors.
    fn product(&self, a: &Tensor, b: &Tensor) -> Result<Tensor, String> {
        let extents = |x: &Tensor, vector: [usize; 2]| match x.shape[..] {
            [rows, cols] => Some([rows, cols]),
            [_] => Some(vector),
            _ => None,
        };
        let row = extents(a, [1, a.len()]);
        let col = extents(b, [b.len(), 1]);
        let (Some([m, k]), Some([inner, n])) = (row, col) else {
            return Err(format!("'@' multiplies matrices and vectors, not {} and {}", a.display(), b.display()));
        };
        if k != inner {
            return Err(format!("{} @ {}: the inner extents, {k} and {inner}, differ", a.display(), b.display()));
        }
        let mut shape = a.shape[..a.shape.len() - 1].to_vec();
        shape.extend(&b.shape[1..]);
        check_size(&[m, n])?;
        if let (Elements::Integers(a), Elements::Integers(b)) = (&a.elements, &b.elements) {
            let mut all = vec![0i64; m * n];
            if n > 0 {
                all.par_chunks_mut(n).enumerate().for_each(|(row, sums)| {
                    for (x, b) in a[row * k..][..k].iter().zip(b.chunks(n)) {
                        sums.iter_mut().zip(b).for_each(|(sum, y)| *sum = sum.wrapping_add(x.wrapping_mul(*y)));
                    }
                });
            }
            return Ok(Tensor { shape, elements: Elements::Integers(all), half: false });
        }
        // Tensor Cores truncate instead of rounding, so the bound is four times larger.
        let units = (k as f64 + 2.0) * self.roundoff * if a.half || b.half { 4.0 } else { 1.0 };
        let (a, b) = (a.to_reals(), b.to_reals());
        let mut all = vec![Real::default(); m * n];
        if n > 0 {
            all.par_chunks_mut(n).enumerate().for_each(|(row, out)| {
                let mut sums = vec![Sum::default(); n];
                for (x, b) in a[row * k..][..k].iter().zip(b.chunks(n)) {
                    sums.iter_mut().zip(b).for_each(|(sum, y)| sum.add_product(*x, *y));
                }
                out.iter_mut().zip(&sums).for_each(|(out, sum)| *out = sum.total(units));
            });
        }
        Ok(Tensor::reals(shape, all))
    }

    fn sum(&self, line: Line) -> Line {
        match line {
            Line::Integers(all) => Line::Integers(vec![all.into_iter().fold(0, i64::wrapping_add)]),
            Line::Reals(all) => {
                let mut sum = Sum::default();
                all.iter().for_each(|x| sum.add_product(*x, Real::exact(1.0)));
                Line::Reals(vec![sum.total(all.len() as f64 * self.roundoff)])
            }
        }
    }

    fn cumulative_sum(&self, line: Line) -> Line {
        match line {
            Line::Integers(mut all) => {
                let mut sum = 0i64;
                for x in &mut all {
                    sum = sum.wrapping_add(*x);
                    *x = sum;
                }
                Line::Integers(all)
            }
            Line::Reals(mut all) => {
                let mut sum = Sum::default();
                for (i, x) in all.iter_mut().enumerate() {
                    sum.add_product(*x, Real::exact(1.0));
                    // A parallel scan also adds partial sums of other elements.
                    *x = sum.total((i + 2) as f64 * self.roundoff);
                }
                Line::Reals(all)
            }
        }
    }

    fn softmax(&self, line: Line) -> Line {
        let u = self.roundoff;
        let all = line.into_reals();
        let largest = all.iter().fold(f64::NEG_INFINITY, |most, x| most.max(x.value));
        let exponential = |x: &Real| {
            let (value, argument) = ((x.value - largest).exp(), (x.value - largest).abs());
            Real { value, error: value * (x.error + (3.0 * argument + 4.0) * u) }
        };
        let all: Vec<Real> = all.iter().map(exponential).collect();
        let Line::Reals(sum) = self.sum(Line::Reals(all.clone())) else { return Line::Reals(all) };
        let sum = sum[0];
        let divided = |x: &Real| {
            let value = x.value / sum.value;
            Real { value, error: (x.error + value * sum.error) / sum.value + 4.0 * u * value }
        };
        Line::Reals(all.iter().map(divided).collect())
    }

    /// Reduces an axis; without an axis, all elements.
    fn along(&self, x: Tensor, axis: Option<Tensor>, reduce: impl Fn(Line) -> Line) -> Result<Tensor, String> {
        let Some(axis) = axis else {
            let line = reduce(Line::of(&x, 0, 1, x.len()));
            return Ok(Tensor::scalar(line.into_elements()));
        };
        let axis = axis_of(&x, &axis)?;
        let mut reduced = self.lines(&x, axis, reduce);
        reduced.shape.remove(axis);
        Ok(reduced)
    }

    /// Replaces each line along an axis (the last one by default) by a line of the same length.
    fn scan(&self, x: Tensor, axis: Option<Tensor>, replace: impl Fn(Line) -> Line) -> Result<Tensor, String> {
        if x.shape.is_empty() {
            return Ok(Tensor { shape: Vec::new(), ..self.lines(&Tensor { shape: vec![1], ..x }, 0, replace) });
        }
        let axis = axis.map_or(Ok(x.shape.len() - 1), |axis| axis_of(&x, &axis))?;
        Ok(self.lines(&x, axis, replace))
    }

    /// Applies a function to each line along an axis; all results have one length.
    fn lines(&self, x: &Tensor, axis: usize, apply: impl Fn(Line) -> Line) -> Tensor {
        let extent = x.shape[axis];
        let inner: usize = x.shape[axis + 1..].iter().product();
        let outer: usize = x.shape[..axis].iter().product();
        let starts = (0..outer).flat_map(|o| (0..inner).map(move |i| o * extent * inner + i));
        let results: Vec<Line> = starts.map(|start| apply(Line::of(x, start, inner, extent))).collect();
        let new = results.first().map_or(extent, Line::len);
        let mut shape = x.shape.clone();
        shape[axis] = new;
        let position =
            |at: usize| (at / (new * inner).max(1) * inner + at % inner.max(1), at / inner.max(1) % new.max(1));
        let all = 0..outer * new * inner;
        let elements = if results.iter().any(|line| matches!(line, Line::Reals(_))) {
            let results: Vec<Vec<Real>> = results.into_iter().map(Line::into_reals).collect();
            Elements::Reals(all.map(position).map(|(line, i)| results[line][i]).collect())
        } else {
            let integers = |line: &Line, i: usize| if let Line::Integers(all) = line { all[i] } else { 0 };
            Elements::Integers(all.map(position).map(|(line, i)| integers(&results[line], i)).collect())
        };
        Tensor { shape, elements, half: x.half }
    }
}

fn axis_of(x: &Tensor, axis: &Tensor) -> Result<usize, String> {
    let axes = x.shape.len();
    let Elements::Integers(all) = &axis.elements else { return Err("an axis must be a whole number".into()) };
    let axis = all.first().copied().unwrap_or(0);
    let positive = if axis < 0 { axis + axes as i64 } else { axis };
    let found = usize::try_from(positive).ok().filter(|&axis| axis < axes);
    found.ok_or_else(|| format!("axis {axis} of {}, which has {axes} axes", x.display()))
}

fn extreme(line: Line, smallest: bool) -> Line {
    match line {
        Line::Integers(all) => {
            let found = if smallest { all.iter().min() } else { all.iter().max() };
            Line::Integers(vec![found.copied().unwrap_or(0)])
        }
        Line::Reals(all) => {
            let start = if smallest { f64::INFINITY } else { f64::NEG_INFINITY };
            let pick = |one: Real, x: Real| Real {
                value: if smallest { one.value.min(x.value) } else { one.value.max(x.value) },
                error: one.error.max(x.error),
            };
            Line::Reals(vec![all.into_iter().fold(Real::exact(start), pick)])
        }
    }
}

fn sorted(line: Line) -> Line {
    match line {
        Line::Integers(mut all) => {
            all.sort_unstable();
            Line::Integers(all)
        }
        Line::Reals(mut all) => {
            all.sort_by(|a, b| a.value.total_cmp(&b.value));
            Line::Reals(all)
        }
    }
}

fn histogram(x: &Tensor, bins: &Tensor) -> Result<Tensor, String> {
    let (Elements::Integers(all), Elements::Integers(bins)) = (&x.elements, &bins.elements) else {
        return Err("a histogram counts integers, in a whole number of bins".into());
    };
    let bins = bins.first().and_then(|&bins| usize::try_from(bins).ok());
    let bins = bins.ok_or("the number of bins is not a whole number")?;
    check_size(&[bins])?;
    let mut counts = vec![0; bins];
    for bin in all.iter().filter_map(|&x| usize::try_from(x).ok()) {
        if let Some(count) = counts.get_mut(bin) {
            *count += 1;
        }
    }
    Ok(Tensor { shape: vec![bins], elements: Elements::Integers(counts), half: false })
}

#[cfg(test)]
mod tests {
    use super::super::formula::Formula;
    use super::*;

    fn reals(shape: &[usize], all: &[f64]) -> Tensor {
        Tensor::reals(shape.to_vec(), all.iter().map(|&x| Real::exact(x)).collect())
    }

    /// A is 2×3: 1 2 3 / 4 5 6; v is 1 0 -1; i is 2 -1 0 in integers.
    fn evaluate(expression: &str) -> Result<Tensor, String> {
        let formula = Formula::parse(&format!("y = {expression}"))?;
        let leaf = |leaf: &Expression| match leaf {
            Expression::Name(name) if name == "A" => Ok(reals(&[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0])),
            Expression::Name(name) if name == "v" => Ok(reals(&[3], &[1.0, 0.0, -1.0])),
            Expression::Name(name) if name == "i" => {
                Ok(Tensor { shape: vec![3], elements: Elements::Integers(vec![2, -1, 0]), half: false })
            }
            other => Err(format!("{other:?}")),
        };
        Evaluator { roundoff: 2f64.powi(-24), leaf: &leaf }.evaluate(&formula.expression)
    }

    fn values(expression: &str) -> (Vec<usize>, Vec<f64>) {
        let tensor = evaluate(expression).unwrap_or_else(|error| panic!("{expression}: {error}"));
        (tensor.shape.clone(), tensor.to_reals().iter().map(|x| x.value).collect())
    }

    #[test]
    fn formulas_have_the_values_of_numpy() {
        for (expression, shape, expected) in [
            ("A @ A.T", &[2, 2][..], &[14.0, 32.0, 32.0, 77.0][..]),
            ("A @ v", &[2], &[-2.0, -2.0]),
            ("v @ v", &[], &[2.0]),
            ("dot(A, A)", &[], &[91.0]),
            ("A.T", &[3, 2], &[1.0, 4.0, 2.0, 5.0, 3.0, 6.0]),
            ("A + v", &[2, 3], &[2.0, 2.0, 2.0, 5.0, 5.0, 5.0]),
            ("2 * A - 1", &[2, 3], &[1.0, 3.0, 5.0, 7.0, 9.0, 11.0]),
            ("sum(A)", &[], &[21.0]),
            ("sum(A, 0)", &[3], &[5.0, 7.0, 9.0]),
            ("sum(A, -1)", &[2], &[6.0, 15.0]),
            ("mean(A, 1)", &[2], &[2.0, 5.0]),
            ("max(A, 0)", &[3], &[4.0, 5.0, 6.0]),
            ("min(A)", &[], &[1.0]),
            ("maximum(v, 0)", &[3], &[1.0, 0.0, 0.0]),
            ("relu(v) - abs(v)", &[3], &[0.0, 0.0, -1.0]),
            ("cumsum(A)", &[2, 3], &[1.0, 3.0, 6.0, 4.0, 9.0, 15.0]),
            ("cumsum(A, 0)", &[2, 3], &[1.0, 2.0, 3.0, 5.0, 7.0, 9.0]),
            ("sort(v)", &[3], &[-1.0, 0.0, 1.0]),
            ("sqrt(A * A) / A", &[2, 3], &[1.0; 6]),
            ("sum(softmax(A), 1)", &[2], &[1.0, 1.0]),
            ("i * i + i", &[3], &[6.0, 0.0, 0.0]),
            ("sum(i)", &[], &[1.0]),
            ("i / 2", &[3], &[1.0, -0.5, 0.0]),
            ("histogram(i, 4)", &[4], &[1.0, 0.0, 1.0, 0.0]),
            ("exp(0 * v) + log(1 + 0 * v) + tanh(0.0)", &[3], &[1.0; 3]),
        ] {
            let (found, all) = values(expression);
            assert_eq!(found, shape, "{expression}");
            assert!(
                all.iter().zip(expected).all(|(x, y)| (x - y).abs() < 1e-12) && all.len() == expected.len(),
                "{expression}: {all:?}"
            );
        }
    }

    #[test]
    fn shapes_that_do_not_fit_are_refused() {
        for (expression, expected) in [
            ("A @ A", "2×3 @ 2×3: the inner extents, 3 and 2, differ"),
            ("A + A.T", "the shapes 2×3 and 3×2 are incompatible"),
            ("sum(A, 2)", "axis 2 of 2×3, which has 2 axes"),
            ("2 @ A", "'@' multiplies matrices and vectors, not a number and 2×3"),
            ("histogram(A, 2)", "a histogram counts integers"),
        ] {
            assert!(evaluate(expression).unwrap_err().contains(expected), "{expression}");
        }
    }

    #[test]
    fn error_bounds_cover_float_arithmetic() {
        let tensor = evaluate("A @ A.T").unwrap();
        let Elements::Reals(all) = &tensor.elements else { panic!("{tensor:?}") };
        assert_eq!(all[0].error, 5.0 * 2f64.powi(-24) * 14.0);
        // The exponential of a float in float arithmetic, by 2^(x·log₂e).
        let exponential = evaluate("exp(A)").unwrap().to_reals();
        for (x, real) in [1f32, 2.0, 3.0, 4.0, 5.0, 6.0].iter().zip(exponential) {
            let float = f64::from((x * std::f32::consts::LOG2_E).exp2());
            assert!((float - real.value).abs() <= real.error && real.error < 2e-6 * real.value, "{x}");
        }
    }

    #[test]
    fn sums_keep_what_cancels() {
        let tensor = evaluate("1e16 + 1 - 1e16").unwrap();
        assert_eq!(tensor.to_reals()[0].value, 0.0);
        let mut sum = Sum::default();
        [1e16, 1.0, -1e16].iter().for_each(|&x| sum.add_product(Real::exact(x), Real::exact(1.0)));
        assert_eq!(sum.total(0.0).value, 1.0);
    }

    #[test]
    fn empty_axes_have_empty_results() {
        let empty = Tensor::reals(vec![0, 3], Vec::new());
        let leaf = |_: &Expression| Ok(empty.clone());
        let evaluator = Evaluator { roundoff: 0.0, leaf: &leaf };
        for (expression, len) in
            [("y = x.T", 0), ("y = sum(x, 1)", 0), ("y = cumsum(x)", 0), ("y = x + 1", 0), ("y = sum(x)", 1)]
        {
            let formula = Formula::parse(expression).unwrap();
            assert_eq!(evaluator.evaluate(&formula.expression).map(|x| x.len()), Ok(len), "{expression}");
        }
    }
}
