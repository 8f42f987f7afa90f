//! The check of a kernel: sampled elements of its result against the product on the CPU.
//!
//! Elements of A and B are normally distributed, so a sum of k products and its partial sums are
//! about √k. The bounds are relative to that, not to k as those for any numbers are. They are wide
//! for rounding errors, and narrow for a missing or wrong product.

use super::data::sample_indices;
use super::scratch::{BLOCK, Scratch};
use crate::device::Device;
use crate::element::{Accuracy, Element, Scalar, Type};
use crate::error::{Error, Result};
use crate::gemm::Gemm;
use crate::matrix::{Matrix, Shape};

/// Maximum number of sampled matrices of a batch, rows and columns.
const SAMPLES: [usize; 3] = [2, 16, 16];
/// Maximum number of elements of the sampled rows of A.
const MAX_ELEMENTS: usize = 1 << 22;

/// Runs a product of the first set and checks sampled elements of C, those at the ends included.
///
/// # Errors
/// [`Error::Launch`] with the first wrong element; errors of `run`, of the CPU and of the driver.
pub(super) fn verify<T: Element>(
    scratch: &Scratch<T>,
    accuracy: Accuracy,
    kernel: &str,
    run: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let [a, _, c] = scratch.sets.layouts();
    let k = a.shape.cols;
    // Not a number, or −1: an element that the kernel leaves out is wrong.
    scratch.sets.c_copies().borrow_mut().buffer.fill(T::Out::from_bits(u64::MAX))?;
    run()?;
    let affordable = (MAX_ELEMENTS / k.max(1)).max(2);
    let samples = SAMPLES.map(|count| count.min(affordable));
    let extents = c.extents();
    let [batches, rows, cols] = [0, 1, 2].map(|axis| sample_indices(samples[axis], extents[axis], axis as u64));
    let shape = |rows, cols| Shape { batches: batches.len(), rows, cols };
    let a = Matrix::from_shape_fn(shape(rows.len(), k), |i, row, p| scratch.element(0, [batches[i], rows[row], p]))?;
    let b = Matrix::from_shape_fn(shape(k, cols.len()), |i, p, col| scratch.element(1, [batches[i], p, cols[col]]))?;
    let mut expected = Matrix::<T::Out>::zeros_of_shape(shape(rows.len(), cols.len()))?;
    Gemm::new(a.view(), b.view(), expected.view_mut()).on(&Device::cpu()).run()?;
    let bounds = Bounds::of::<T>(accuracy, k);
    for (i, &batch) in batches.iter().enumerate() {
        for (r, &row) in rows.iter().enumerate() {
            for (j, &col) in cols.iter().enumerate() {
                let mut found = Matrix::<T::Out>::zeros(1, 1)?;
                scratch.sets.c_copies().borrow().buffer.download_at(c.at(batch, row, col), found.view_mut())?;
                let [found, expected] = [found[[0, 0]], expected[[i, r, j]]].map(value);
                if !bounds.agree(found, expected) {
                    let why = format!("element ({batch}, {row}, {col}) is {found}; the CPU computes {expected}");
                    return Err(Error::Launch { kernel: kernel.into(), why });
                }
            }
        }
    }
    Ok(())
}

fn value<S: Scalar>(scalar: S) -> f64 {
    S::TYPE.to_f64(scalar.to_bits())
}

/// Bounds of the difference of two results.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    /// In units of the result.
    relative: f64,
    /// Of the sum before it is rounded to the type of C.
    absolute: f64,
}

impl Bounds {
    /// The bounds for normally distributed elements; 0 for integers, which are exact.
    fn of<T: Element>(accuracy: Accuracy, k: usize) -> Bounds {
        let unit = |ty: Type| ty.float_format().map_or(0.0, |format| format.unit_roundoff());
        let [output, accumulator] = [<T::Out as Scalar>::TYPE, <T::Acc as Scalar>::TYPE].map(unit);
        // Each product adds an error of up to a unit of a partial sum, of which none exceeds 4√k,
        // or 16√k where the elements of a long k repeat. Tensor Cores truncate, by up to two units,
        // but only once for many products.
        let largest = if k > BLOCK { 16.0 } else { 4.0 };
        let sums = largest * (k as f64 + 8.0) * accumulator;
        // Two operands, rounded to 11 bits of significand.
        let operands = if accuracy.of(T::TYPE) == Accuracy::Tf32 { 16.0 * 2f64.powi(-11) } else { 0.0 };
        Bounds { relative: 4.0 * output, absolute: (sums + operands) * (k as f64).sqrt() }
    }

    /// Whether two results agree.
    fn agree(self, found: f64, expected: f64) -> bool {
        // Infinities of f16 are equal; a difference with NaN is not within any bound.
        found == expected || (found - expected).abs() <= self.relative * expected.abs() + self.absolute
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::element::{bf16, f16};

    #[test]
    fn bounds_separate_rounding_from_a_missing_product() {
        // The sum of 4096 products is about 64, and each product about 1.
        let k = 4096;
        let double = Bounds::of::<f64>(Accuracy::Full, k);
        assert!(double.agree(64.0 + 1e-11, 64.0) && !double.agree(64.0 + 1e-6, 64.0), "{double:?}");
        let single = Bounds::of::<f32>(Accuracy::Full, k);
        assert!(single.agree(64.0 + 1e-4, 64.0) && !single.agree(64.2, 64.0), "{single:?}");
        // 64 of 65,536 products are about 8, of a sum of about 256.
        let long = Bounds::of::<f32>(Accuracy::Full, 1 << 16);
        assert!(long.agree(256.0 + 1e-2, 256.0) && !long.agree(264.0, 256.0), "{long:?}");
        let half = Bounds::of::<bf16>(Accuracy::Full, k);
        assert!(half.agree(64.5, 64.0) && !half.agree(70.0, 64.0), "{half:?}");
        let tf32 = Bounds::of::<f32>(Accuracy::Tf32, k);
        assert!(tf32.agree(64.1, 64.0) && !tf32.agree(70.0, 64.0), "{tf32:?}");
        let integers = Bounds::of::<i8>(Accuracy::Full, k);
        assert!(integers.agree(-7.0, -7.0) && !integers.agree(-7.0, -8.0));
        assert!(!Bounds::of::<f16>(Accuracy::Full, k).agree(f64::NAN, 0.0), "an element that was left out");
    }
}
