//! Arrays in formulas: integers, or real numbers with error bounds.

use tegula_core::nd::NdLayout;

use crate::engine;

/// A real number with its error bound.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Real {
    pub value: f64,
    pub error: f64,
}

impl Real {
    pub fn exact(value: f64) -> Self {
        Real { value, error: 0.0 }
    }
}

/// Elements of an array, row-major.
#[derive(Clone, Debug, PartialEq)]
pub enum Elements {
    Integers(Vec<i64>),
    Reals(Vec<Real>),
}

/// An array.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    pub shape: Vec<usize>,
    pub elements: Elements,
    /// Whether the elements are of a 16-bit type, whose products can be those of Tensor Cores.
    pub half: bool,
}

impl Tensor {
    pub fn scalar(elements: Elements) -> Self {
        Tensor { shape: Vec::new(), elements, half: false }
    }

    pub fn reals(shape: Vec<usize>, reals: Vec<Real>) -> Self {
        Tensor { shape, elements: Elements::Reals(reals), half: false }
    }

    pub fn len(&self) -> usize {
        match &self.elements {
            Elements::Integers(all) => all.len(),
            Elements::Reals(all) => all.len(),
        }
    }

    /// The elements as reals.
    pub fn to_reals(&self) -> Vec<Real> {
        match &self.elements {
            Elements::Integers(all) => all.iter().map(|&x| Real::exact(x as f64)).collect(),
            Elements::Reals(all) => all.clone(),
        }
    }

    pub fn display(&self) -> String {
        if self.shape.is_empty() { "a number".into() } else { tegula_core::nd::display(&self.shape) }
    }

    /// Broadcasts the array to a shape, as NumPy does; `None` if the shapes are incompatible.
    pub fn broadcast(&self, shape: &[usize]) -> Option<Tensor> {
        if self.shape == shape {
            return Some(self.clone());
        }
        let layout = NdLayout::row_major(&self.shape).ok()?.broadcast(shape)?;
        let positions: Vec<usize> = indices(shape).filter_map(|index| layout.at(&index)).collect();
        let elements = match &self.elements {
            Elements::Integers(all) => Elements::Integers(positions.iter().map(|&at| all[at]).collect()),
            Elements::Reals(all) => Elements::Reals(positions.iter().map(|&at| all[at]).collect()),
        };
        Some(Tensor { shape: shape.to_vec(), elements, half: self.half })
    }
}

/// Returns an error for a result that does not fit in memory.
pub fn check_size(shape: &[usize]) -> Result<(), String> {
    let elements = shape.iter().try_fold(1u64, |n, &extent| n.checked_mul(extent as u64));
    // A few copies of an element with its error.
    let bytes = elements.and_then(|elements| elements.checked_mul(4 * size_of::<Real>() as u64));
    match bytes {
        Some(bytes) if bytes <= engine::free_memory() => Ok(()),
        _ => Err(format!("a result of {} does not fit in memory", tegula_core::nd::display(shape))),
    }
}

/// All indices of a shape, the last axis fastest.
fn indices(shape: &[usize]) -> impl Iterator<Item = Vec<usize>> {
    let len = shape.iter().product();
    (0..len).map(move |mut rest: usize| {
        let mut index = vec![0; shape.len()];
        for (i, &extent) in index.iter_mut().zip(shape).rev() {
            *i = rest % extent;
            rest /= extent;
        }
        index
    })
}

/// A line of elements along an axis.
pub enum Line {
    Integers(Vec<i64>),
    Reals(Vec<Real>),
}

impl Line {
    pub fn of(x: &Tensor, start: usize, stride: usize, len: usize) -> Line {
        let at = (0..len).map(|i| start + i * stride);
        match &x.elements {
            Elements::Integers(all) => Line::Integers(at.map(|at| all[at]).collect()),
            Elements::Reals(all) => Line::Reals(at.map(|at| all[at]).collect()),
        }
    }

    pub fn len(&self) -> usize {
        match self {
            Line::Integers(all) => all.len(),
            Line::Reals(all) => all.len(),
        }
    }

    pub fn into_reals(self) -> Vec<Real> {
        match self {
            Line::Integers(all) => all.into_iter().map(|x| Real::exact(x as f64)).collect(),
            Line::Reals(all) => all,
        }
    }

    pub fn into_elements(self) -> Elements {
        match self {
            Line::Integers(all) => Elements::Integers(all),
            Line::Reals(all) => Elements::Reals(all),
        }
    }

    pub fn over(self, f: impl Fn(Real) -> Real) -> Line {
        Line::Reals(self.into_reals().into_iter().map(f).collect())
    }
}

/// A sum of products in twice the precision of f64, with the sums for its error bound.
///
/// Source: Ogita, Rump and Oishi, Accurate sum and dot product, SIAM J. Sci. Comput. 26, 2005,
/// algorithm 5.3.
#[derive(Clone, Copy, Default)]
pub struct Sum {
    value: f64,
    rest: f64,
    /// Σ|ab|, and the errors of the operands.
    magnitude: f64,
    error: f64,
}

impl Sum {
    pub fn add_product(&mut self, a: Real, b: Real) {
        let product = a.value * b.value;
        let sum = self.value + product;
        let part = sum - self.value;
        let rest = (self.value - (sum - part)) + (product - part) + a.value.mul_add(b.value, -product);
        // The remainder of an infinite sum is NaN, and is ignored.
        self.rest += if rest.is_nan() { 0.0 } else { rest };
        self.value = sum;
        self.magnitude += product.abs();
        self.error += a.value.abs() * b.error + b.value.abs() * a.error;
    }

    pub fn total(&self, units: f64) -> Real {
        Real { value: self.value + self.rest, error: self.error + units * self.magnitude }
    }
}

/// Applies a function to each element.
pub fn map(x: Tensor, integer: impl Fn(i64) -> i64, real: impl Fn(Real) -> Real) -> Tensor {
    let elements = match x.elements {
        Elements::Integers(all) => Elements::Integers(all.into_iter().map(integer).collect()),
        Elements::Reals(all) => Elements::Reals(all.into_iter().map(real).collect()),
    };
    Tensor { elements, ..x }
}

/// Broadcasts two arrays to one shape, as NumPy does.
pub fn together(a: &Tensor, b: &Tensor) -> Result<(Tensor, Tensor), String> {
    let axes = a.shape.len().max(b.shape.len());
    let extent = |x: &Tensor, axis: usize| (axis + x.shape.len()).checked_sub(axes).map_or(1, |own| x.shape[own]);
    let shape: Vec<usize> = (0..axes)
        .map(|axis| match (extent(a, axis), extent(b, axis)) {
            (1, other) => other,
            (own, _) => own,
        })
        .collect();
    check_size(&shape)?;
    let pair = a.broadcast(&shape).zip(b.broadcast(&shape));
    pair.ok_or_else(|| format!("the shapes {} and {} are incompatible", a.display(), b.display()))
}

/// Exchanges the last two axes.
pub fn transpose(x: &Tensor) -> Tensor {
    let [.., rows, cols] = x.shape[..] else { return x.clone() };
    let mut shape = x.shape.clone();
    let axes = shape.len();
    shape.swap(axes - 2, axes - 1);
    let from = |at: usize| {
        let matrix = at / (rows * cols);
        let rest = at % (rows * cols);
        matrix * rows * cols + rest % rows * cols + rest / rows
    };
    let elements = match &x.elements {
        Elements::Integers(all) => Elements::Integers((0..all.len()).map(|at| all[from(at)]).collect()),
        Elements::Reals(all) => Elements::Reals((0..all.len()).map(|at| all[from(at)]).collect()),
    };
    Tensor { shape, elements, half: x.half }
}
