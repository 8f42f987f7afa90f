//! Checks of results against the reference in sampled rows.

use tegula::element::{Element, Scalar};
use tegula::epilogue::EpilogueOperands;
use tegula::error::Result;
use tegula::matrix::{Matrix, Shape, View};
use tegula::tune::data;

use super::Inputs;
use crate::oracle;

/// Limit of multiply-adds of the reference per check.
const MAX_WORK: u128 = 1 << 31;

/// Sampled rows of C: the same rows in each of the sampled matrices of the batch.
pub struct SampledRows {
    batches: Vec<usize>,
    rows: Vec<usize>,
}

impl SampledRows {
    /// Samples rows of C for inner dimension `k`: the last, the first, and random ones between.
    pub fn new(c: Shape, k: usize, seed: u64) -> SampledRows {
        let work_per_row = (k as u128).saturating_mul(c.cols as u128).max(1);
        let affordable = usize::try_from(MAX_WORK / work_per_row).unwrap_or(usize::MAX).max(2);
        let batches = data::sample_indices(affordable, c.batches, seed);
        let rows = data::sample_indices(affordable / batches.len().max(1), c.rows, seed);
        SampledRows { batches, rows }
    }

    /// Number of sampled rows over the whole batch.
    pub fn count(&self) -> usize {
        self.batches.len() * self.rows.len()
    }

    /// Largest error r of a result in the sampled rows, see [`oracle`].
    pub fn r<T: Element>(&self, inputs: &Inputs<T>, result: View<'_, T::Out>) -> Result<f64> {
        let case = &inputs.case;
        let (a, c) = (self.select_rows(inputs.a())?, self.select_rows(result)?);
        // B is copied only if the batch is sampled.
        let all = self.batches.len() == case.batch;
        let selected = if all { None } else { Some(self.select_matrices(inputs.b())?) };
        let b = selected.as_ref().map_or_else(|| inputs.b(), Matrix::view);
        let c0 = inputs.c.as_ref().map(|c| self.select_rows(c.view())).transpose()?;
        let c0 = c0.as_ref().map(Matrix::view);
        // A row bias applies to every row; of a column bias the sampled elements are selected.
        let bias = inputs.bias.as_ref().map(|bias| self.select_bias(bias.view())).transpose()?;
        let epilogue = EpilogueOperands { bias: bias.as_ref().map(Matrix::view), ..inputs.epilogue_operands() };
        let report =
            oracle::check_with_epilogue::<T>(case.alpha, a.view(), b, case.beta, c0, epilogue, c.view(), &|_| {})?;
        Ok(report.r / oracle::roundoff_ratio(case.accuracy.of(T::TYPE)))
    }

    fn select_rows<S: Scalar>(&self, view: View<'_, S>) -> Result<Matrix<S>> {
        let shape = Shape { batches: self.batches.len(), rows: self.rows.len(), cols: view.shape().cols };
        let element = |batch, row, col| view.get(self.batches[batch], self.rows[row], col).unwrap_or(S::ZERO);
        Matrix::from_shape_fn(shape, element)
    }

    fn select_bias<S: Scalar>(&self, bias: View<'_, S>) -> Result<Matrix<S>> {
        let Shape { rows, cols, .. } = bias.shape();
        let shape = Shape::new(if rows == 1 { 1 } else { self.rows.len() }, cols);
        Matrix::from_shape_fn(shape, |_, row, col| {
            bias.get(0, if rows == 1 { 0 } else { self.rows[row] }, col).unwrap_or(S::ZERO)
        })
    }

    fn select_matrices<S: Scalar>(&self, view: View<'_, S>) -> Result<Matrix<S>> {
        let shape = Shape { batches: self.batches.len(), ..view.shape() };
        Matrix::from_shape_fn(shape, |batch, row, col| view.get(self.batches[batch], row, col).unwrap_or(S::ZERO))
    }
}

#[cfg(test)]
mod tests {
    use tegula::epilogue::{BiasShape, Epilogue};

    use super::super::Case;
    use super::*;

    #[test]
    fn sampled_rows_are_all_rows_of_small_results() {
        let shape = |batches, rows, cols| Shape { batches, rows, cols };
        assert_eq!(SampledRows::new(shape(3, 100, 100), 100, 0).count(), 300);
        let large = SampledRows::new(shape(1, 8192, 8192), 8192, 0);
        assert_eq!((large.count(), large.rows[0], large.rows[31]), (32, 0, 8191));
        let huge = SampledRows::new(shape(4, 100_000, 100_000), 100_000, 0);
        assert_eq!((huge.batches.len(), huge.count()), (2, 2));
        assert_eq!(SampledRows::new(shape(1 << 20, 16, 64), 64, 0).batches.len(), 1 << 19);
    }

    #[test]
    fn r_sees_wrong_elements_in_sampled_rows_only() {
        let (transposed, (accuracy, epilogue)) = ([false, true], Default::default());
        let case = Case { m: 9, n: 8, k: 4, batch: 2, transposed, alpha: 2.0, beta: 1.0, accuracy, epilogue };
        let inputs = Inputs::<f64>::new(&case, 1).unwrap();
        let mut c = inputs.c_before().unwrap();
        let c0 = inputs.c.as_ref().map(Matrix::view);
        c.as_mut_slice()
            .copy_from_slice(oracle::reference::<f64>(2.0, inputs.a(), inputs.b(), 1.0, c0).unwrap().as_slice());
        let rows = SampledRows { batches: vec![1], rows: vec![0, 8] };
        assert!(rows.r(&inputs, c.view()).unwrap() <= 1.0);
        c.as_mut_slice()[9 * 8 + 8] += 1.0;
        assert!(rows.r(&inputs, c.view()).unwrap() <= 1.0, "row 1 is not sampled");
        c.as_mut_slice()[2 * 9 * 8 - 1] += 1.0;
        assert!(rows.r(&inputs, c.view()).unwrap() > 1e10);
    }

    #[test]
    fn r_applies_the_bias_of_the_sampled_rows() {
        for bias_shape in [BiasShape::Row, BiasShape::Column] {
            let epilogue = Epilogue { bias: Some(bias_shape), ..Epilogue::NONE };
            let (transposed, accuracy) = ([false; 2], Default::default());
            let case = Case { m: 9, n: 8, k: 4, batch: 2, transposed, alpha: 1.0, beta: 0.0, accuracy, epilogue };
            let inputs = Inputs::<f64>::new(&case, 1).unwrap();
            let mut c = oracle::reference::<f64>(1.0, inputs.a(), inputs.b(), 0.0, None).unwrap();
            let bias = |index: usize| inputs.epilogue_operands().bias_at(0, index / 8 % 9, index % 8).unwrap();
            c.as_mut_slice().iter_mut().enumerate().for_each(|(index, c)| *c += bias(index));
            let rows = SampledRows { batches: vec![0, 1], rows: vec![3, 8] };
            assert!(rows.r(&inputs, c.view()).unwrap() <= 3.0, "{bias_shape:?}");
        }
    }
}
