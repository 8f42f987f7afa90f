//! How far a result is from the reference, in as many of its rows as the reference is quick enough for.

use tegula::element::{Element, Scalar};
use tegula::epilogue::Finish;
use tegula::error::Result;
use tegula::matrix::{Matrix, Shape, View};

use super::{Inputs, data};
use crate::oracle;

/// Multiply-adds of the reference for one result.
const WORK: u128 = 1 << 31;

/// The rows of C that are compared: the same ones in each of some matrices of the batch.
pub struct Sampled {
    batches: Vec<usize>,
    rows: Vec<usize>,
}

impl Sampled {
    /// Of a result of that shape with sums of k products. The first and the last row are among them.
    pub fn of(c: Shape, k: usize, seed: u64) -> Sampled {
        let row = (k as u128).saturating_mul(c.cols as u128).max(1);
        let affordable = usize::try_from(WORK / row).unwrap_or(usize::MAX).max(2);
        let batches = data::choice(affordable, c.batches, seed);
        let rows = data::choice(affordable / batches.len().max(1), c.rows, seed);
        Sampled { batches, rows }
    }

    /// How many rows there are over the whole batch.
    pub fn count(&self) -> usize {
        self.batches.len() * self.rows.len()
    }

    /// r of a result in these rows, see [`oracle`].
    pub fn r<T: Element>(&self, inputs: &Inputs<T>, result: View<'_, T::Out>) -> Result<f64> {
        let case = &inputs.case;
        let (a, c) = (self.rows_of(inputs.a())?, self.rows_of(result)?);
        // A copy is made only where some of its matrices are left out.
        let all = self.batches.len() == case.batch;
        let few = if all { None } else { Some(self.matrices_of(inputs.b())?) };
        let b = few.as_ref().map_or_else(|| inputs.b(), Matrix::view);
        let c0 = inputs.c.as_ref().map(|c| self.rows_of(c.view())).transpose()?;
        let c0 = c0.as_ref().map(Matrix::view);
        // A bias that is a row is that of every row; of a column only these elements are looked at.
        let bias = inputs.bias.as_ref().map(|bias| self.bias_of(bias.view())).transpose()?;
        let finish = Finish { bias: bias.as_ref().map(Matrix::view), ..inputs.finish() };
        let report = oracle::check_finished::<T>(case.alpha, a.view(), b, case.beta, c0, finish, c.view(), &|_| {})?;
        Ok(report.r / oracle::coarser(case.accuracy.of(T::TYPE)))
    }

    fn rows_of<S: Scalar>(&self, view: View<'_, S>) -> Result<Matrix<S>> {
        let shape = Shape { batches: self.batches.len(), rows: self.rows.len(), cols: view.shape().cols };
        let element = |batch, row, col| view.get(self.batches[batch], self.rows[row], col).unwrap_or(S::ZERO);
        Matrix::from_shape_fn(shape, element)
    }

    fn bias_of<S: Scalar>(&self, bias: View<'_, S>) -> Result<Matrix<S>> {
        let Shape { rows, cols, .. } = bias.shape();
        let shape = Shape::new(if rows == 1 { 1 } else { self.rows.len() }, cols);
        Matrix::from_shape_fn(shape, |_, row, col| {
            bias.get(0, if rows == 1 { 0 } else { self.rows[row] }, col).unwrap_or(S::ZERO)
        })
    }

    fn matrices_of<S: Scalar>(&self, view: View<'_, S>) -> Result<Matrix<S>> {
        let shape = Shape { batches: self.batches.len(), ..view.shape() };
        Matrix::from_shape_fn(shape, |batch, row, col| view.get(self.batches[batch], row, col).unwrap_or(S::ZERO))
    }
}

#[cfg(test)]
mod tests {
    use tegula::epilogue::{Along, Epilogue};

    use super::super::Case;
    use super::*;

    #[test]
    fn small_results_are_compared_whole_and_large_ones_in_rows() {
        let shape = |batches, rows, cols| Shape { batches, rows, cols };
        assert_eq!(Sampled::of(shape(3, 100, 100), 100, 0).count(), 300);
        let large = Sampled::of(shape(1, 8192, 8192), 8192, 0);
        assert_eq!((large.count(), large.rows[0], large.rows[31]), (32, 0, 8191));
        let huge = Sampled::of(shape(4, 100_000, 100_000), 100_000, 0);
        assert_eq!((huge.batches.len(), huge.count()), (2, 2));
        assert_eq!(Sampled::of(shape(1 << 20, 16, 64), 64, 0).batches.len(), 1 << 19);
    }

    #[test]
    fn a_wrong_element_is_seen_where_it_is_looked_for() {
        let (transposed, (accuracy, epilogue)) = ([false, true], Default::default());
        let case = Case { m: 9, n: 8, k: 4, batch: 2, transposed, alpha: 2.0, beta: 1.0, accuracy, epilogue };
        let inputs = Inputs::<f64>::new(&case, 1).unwrap();
        let mut c = inputs.c_before().unwrap();
        let c0 = inputs.c.as_ref().map(Matrix::view);
        c.as_mut_slice()
            .copy_from_slice(oracle::product::<f64>(2.0, inputs.a(), inputs.b(), 1.0, c0).unwrap().as_slice());
        let rows = Sampled { batches: vec![1], rows: vec![0, 8] };
        assert!(rows.r(&inputs, c.view()).unwrap() <= 1.0);
        c.as_mut_slice()[9 * 8 + 8] += 1.0;
        assert!(rows.r(&inputs, c.view()).unwrap() <= 1.0, "row 1 is not looked at");
        c.as_mut_slice()[2 * 9 * 8 - 1] += 1.0;
        assert!(rows.r(&inputs, c.view()).unwrap() > 1e10);
    }

    #[test]
    fn a_bias_is_that_of_the_rows_that_are_looked_at() {
        for along in [Along::Rows, Along::Columns] {
            let epilogue = Epilogue { bias: Some(along), ..Epilogue::NONE };
            let (transposed, accuracy) = ([false; 2], Default::default());
            let case = Case { m: 9, n: 8, k: 4, batch: 2, transposed, alpha: 1.0, beta: 0.0, accuracy, epilogue };
            let inputs = Inputs::<f64>::new(&case, 1).unwrap();
            let mut c = oracle::product::<f64>(1.0, inputs.a(), inputs.b(), 0.0, None).unwrap();
            let bias = |place: usize| inputs.finish().bias_at(0, place / 8 % 9, place % 8).unwrap();
            c.as_mut_slice().iter_mut().enumerate().for_each(|(place, c)| *c += bias(place));
            let rows = Sampled { batches: vec![0, 1], rows: vec![3, 8] };
            assert!(rows.r(&inputs, c.view()).unwrap() <= 3.0, "{along:?}");
        }
    }
}
