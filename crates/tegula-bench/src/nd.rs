//! Comparing an N-dimensional product with the reference, one product of matrices after the other.

use tegula::element::Element;
use tegula::error::{Error, Result};
use tegula::nd::{NdFinish, NdView, Products, display, matrix_axes, product_shape};
use tegula_core::progress::{Listener, Progress};

use crate::oracle;

/// How far an N-dimensional result is from the reference, as [`oracle::Report`] says of matrices.
#[derive(Clone, Debug, PartialEq)]
pub struct NdReport {
    /// The measure described at [`oracle`]: 0 where every element is exact; never NaN.
    pub r: f64,
    /// The index of an element whose r is largest; zeros for an empty result.
    pub worst: Vec<usize>,
    /// Elements that are wrong whatever the bound.
    pub mismatches: usize,
    /// Elements that are infinite or NaN because partial sums may have overflowed.
    pub overflows: usize,
    /// The measure over the other elements.
    pub r_without_overflows: f64,
}

impl NdReport {
    /// Of a result with so many axes before an element is looked at.
    fn exact(axes: usize) -> Self {
        NdReport { r: 0.0, worst: vec![0; axes], mismatches: 0, overflows: 0, r_without_overflows: 0.0 }
    }
}

/// Compares `result` with act(alpha·A·B + beta·C₀ + bias), shapes as in [`tegula::nd`]. C₀ is read, and needed, where `beta` is not 0. `progress` counts
/// rows of the result.
///
/// # Errors
/// As [`oracle::check_finished`].
pub fn check<T: Element>(
    alpha: T::Acc,
    [a, b]: [&NdView<'_, T>; 2],
    beta: T::Acc,
    c0: Option<&NdView<'_, T::Out>>,
    finish: &NdFinish<'_, T::Out>,
    result: &NdView<'_, T::Out>,
    progress: &Listener<'_>,
) -> Result<NdReport> {
    let expected = product_shape(a.shape(), b.shape())?;
    if [Some(result), c0].into_iter().flatten().any(|array| array.shape() != expected) {
        return Err(Error::Shape(format!("C and C0 must be {}", display(&expected))));
    }
    if let Some(other) = c0.filter(|c0| c0.layout() != result.layout()) {
        // One set of layouts serves both.
        let (c0, result) = (other.to_array()?, result.to_array()?);
        return check(alpha, [a, b], beta, Some(&c0.view()), finish, &result.view(), progress);
    }
    let bias = finish.layout(&expected, matrix_axes(a.shape(), b.shape()))?;
    let products = Products::new(a.layout(), b.layout(), result.layout(), bias.as_ref());
    let count = products.count() as u64;
    let mut worst = NdReport::exact(expected.len());
    for ([at_a, at_b, at_c, at_bias], number) in products.layouts().zip(0..) {
        let share = |part: Progress| progress(part.of_parts(number, count));
        let c0 = c0.map(|c0| c0.matrices(at_c));
        let (a, b, c) = (a.matrices(at_a), b.matrices(at_b), result.matrices(at_c));
        let report = oracle::check_finished(alpha, a, b, beta, c0, finish.matrices(at_bias), c, &share)?;
        worst.mismatches += report.mismatches;
        worst.overflows += report.overflows;
        worst.r_without_overflows = worst.r_without_overflows.max(report.r_without_overflows);
        if report.r > worst.r {
            let (batch, row, col) = report.worst;
            worst.r = report.r;
            worst.worst = result.layout().index(at_c.at(batch, row, col)).unwrap_or(worst.worst);
        }
    }
    Ok(worst)
}

#[cfg(test)]
mod tests {
    use tegula::nd::{NdArray, matmul};

    use super::*;

    fn counting(shape: &[usize], from: i32) -> NdArray<i32> {
        let len = shape.iter().product::<usize>() as i32;
        NdArray::from_vec(shape, (from..from + len).collect()).unwrap()
    }

    #[test]
    fn the_worst_element_is_found_by_its_index() {
        let (a, b) = (counting(&[3, 1, 2, 4], 1), counting(&[5, 4, 3], -7));
        let right = matmul(&a, &b).unwrap();
        let judge = |c: &NdArray<i32>| {
            check(1, [&a.view(), &b.view()], 0, None, &NdFinish::default(), &c.view(), &|_| {}).unwrap()
        };
        assert_eq!(judge(&right), NdReport::exact(4));
        let mut wrong = right.clone();
        let last = wrong.as_slice().len() - 2;
        wrong.as_mut_slice()[last] += 1;
        assert_eq!(
            judge(&wrong),
            NdReport {
                r: f64::INFINITY,
                worst: vec![2, 4, 1, 1],
                mismatches: 1,
                overflows: 0,
                r_without_overflows: f64::INFINITY,
            }
        );
    }

    #[test]
    fn c0_may_lie_in_another_order() {
        let (a, c0) = (counting(&[2, 2, 2], 1), counting(&[2, 2, 2], 3));
        let turned = c0.view().t().to_array().unwrap();
        let expected = matmul(&a, &a).unwrap().into_vec().iter().zip(c0.as_slice()).map(|(x, y)| x - y).collect();
        let expected = NdArray::from_vec(&[2, 2, 2], expected).unwrap();
        let (a, c0) = (a.view(), turned.view().t());
        let report = check(1, [&a, &a], -1, Some(&c0), &NdFinish::default(), &expected.view(), &|_| {}).unwrap();
        assert_eq!(report.mismatches, 0);
    }
}
