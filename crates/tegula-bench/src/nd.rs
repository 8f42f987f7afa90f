//! Checks of N-dimensional products against the reference, one matrix product at a time.

use tegula::element::Element;
use tegula::error::{Error, Result};
use tegula::nd::{NdEpilogueOperands, NdView, Products, display, matrix_axes, product_shape};
use tegula_core::progress::{Progress, ProgressSink};

use crate::oracle;

/// Error of an N-dimensional result, as [`oracle::Report`] of matrices.
#[derive(Clone, Debug, PartialEq)]
pub struct NdReport {
    /// Largest error in the units of [`oracle`]: 0 if all elements are exact; never NaN.
    pub r: f64,
    /// Index of an element with the largest error; zeros for an empty result.
    pub worst: Vec<usize>,
    /// Number of elements with an infinite error.
    pub mismatches: usize,
    /// Number of infinite or NaN elements whose partial sums may have overflowed.
    pub overflows: usize,
    /// Largest error of the other elements.
    pub r_without_overflows: f64,
}

impl NdReport {
    /// Report of an exact result with `axes` axes.
    fn exact(axes: usize) -> Self {
        NdReport { r: 0.0, worst: vec![0; axes], mismatches: 0, overflows: 0, r_without_overflows: 0.0 }
    }
}

/// Compares `result` with act(alpha·A·B + beta·C₀ + bias), with shapes as in [`tegula::nd`].
///
/// C₀ is read, and required, unless `beta` is 0. `progress` counts rows of the result.
///
/// # Errors
/// As [`oracle::check_with_epilogue`].
pub fn check<T: Element>(
    alpha: T::Acc,
    [a, b]: [&NdView<'_, T>; 2],
    beta: T::Acc,
    c0: Option<&NdView<'_, T::Out>>,
    epilogue: &NdEpilogueOperands<'_, T::Out>,
    result: &NdView<'_, T::Out>,
    progress: &ProgressSink<'_>,
) -> Result<NdReport> {
    let expected = product_shape(a.shape(), b.shape())?;
    if [Some(result), c0].into_iter().flatten().any(|array| array.shape() != expected) {
        return Err(Error::Shape(format!("C and C0 must be {}", display(&expected))));
    }
    if let Some(other) = c0.filter(|c0| c0.layout() != result.layout()) {
        // `Products` below uses one layout for both.
        let (c0, result) = (other.to_array()?, result.to_array()?);
        return check(alpha, [a, b], beta, Some(&c0.view()), epilogue, &result.view(), progress);
    }
    let bias = epilogue.layout(&expected, matrix_axes(a.shape(), b.shape()))?;
    let products = Products::new(a.layout(), b.layout(), result.layout(), bias.as_ref());
    let count = products.count() as u64;
    let mut worst = NdReport::exact(expected.len());
    for ([layout_a, layout_b, layout_c, layout_bias], index) in products.layouts().zip(0..) {
        let part_progress = |part: Progress| progress(part.of_parts(index, count));
        let c0 = c0.map(|c0| c0.matrices(layout_c));
        let (a, b, c) = (a.matrices(layout_a), b.matrices(layout_b), result.matrices(layout_c));
        let report =
            oracle::check_with_epilogue(alpha, a, b, beta, c0, epilogue.matrices(layout_bias), c, &part_progress)?;
        worst.mismatches += report.mismatches;
        worst.overflows += report.overflows;
        worst.r_without_overflows = worst.r_without_overflows.max(report.r_without_overflows);
        if report.r > worst.r {
            let (batch, row, col) = report.worst;
            worst.r = report.r;
            worst.worst = result.layout().index(layout_c.at(batch, row, col)).unwrap_or(worst.worst);
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
    fn check_reports_the_index_of_the_worst_element() {
        let (a, b) = (counting(&[3, 1, 2, 4], 1), counting(&[5, 4, 3], -7));
        let right = matmul(&a, &b).unwrap();
        let report = |c: &NdArray<i32>| {
            check(1, [&a.view(), &b.view()], 0, None, &NdEpilogueOperands::default(), &c.view(), &|_| {}).unwrap()
        };
        assert_eq!(report(&right), NdReport::exact(4));
        let mut wrong = right.clone();
        let last = wrong.as_slice().len() - 2;
        wrong.as_mut_slice()[last] += 1;
        assert_eq!(
            report(&wrong),
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
    fn check_accepts_c0_with_another_layout() {
        let (a, c0) = (counting(&[2, 2, 2], 1), counting(&[2, 2, 2], 3));
        let transposed = c0.view().t().to_array().unwrap();
        let expected = matmul(&a, &a).unwrap().into_vec().iter().zip(c0.as_slice()).map(|(x, y)| x - y).collect();
        let expected = NdArray::from_vec(&[2, 2, 2], expected).unwrap();
        let (a, c0) = (a.view(), transposed.view().t());
        let report =
            check(1, [&a, &a], -1, Some(&c0), &NdEpilogueOperands::default(), &expected.view(), &|_| {}).unwrap();
        assert_eq!(report.mismatches, 0);
    }
}
