//! What is done last, on arrays of any number of axes.

use tegula_core::nd::{NdLayout, NdView, display};

use crate::element::Scalar;
use crate::epilogue::{Activation, Finish};
use crate::error::{Error, Result};
use crate::matrix::Layout;

/// A bias and an activation for a product of arrays.
#[derive(Clone, Debug)]
pub struct NdFinish<'a, S> {
    /// What is added: it broadcasts to C as in [`nd`](super), and varies along one at most of the axes that are A's rows and B's columns.
    pub bias: Option<NdView<'a, S>>,
    /// What is applied then.
    pub activation: Activation,
}

impl<S> Default for NdFinish<'_, S> {
    fn default() -> Self {
        NdFinish { bias: None, activation: Activation::None }
    }
}

impl<'a, S: Scalar> NdFinish<'a, S> {
    /// The bias with the axes of C.
    ///
    /// # Errors
    /// [`Error::Shape`] where it does not broadcast to C, or varies along rows and columns. `axes` says how many of the two C has.
    #[doc(hidden)]
    pub fn layout(&self, c: &[usize], axes: usize) -> Result<Option<NdLayout>> {
        let Some(bias) = &self.bias else { return Ok(None) };
        let (given, shape) = (display(bias.shape()), display(c));
        let layout = bias.layout().broadcast(c).ok_or_else(|| {
            Error::Shape(format!(
                "the bias is {given}, which does not broadcast to C, {shape}; aligned at the last, extents must agree or be 1"
            ))
        })?;
        let varies = |&(&extent, &stride): &(&usize, &isize)| extent > 1 && stride != 0;
        let within = c.iter().zip(&layout.strides).rev().take(axes);
        if within.filter(varies).count() > 1 {
            return Err(Error::Shape(format!(
                "the bias is {given}, a number for each element of a matrix; give a row or a column, or put the matrix into C and say beta = 1"
            )));
        }
        Ok(Some(layout))
    }

    /// What is done last to the matrices, or the batch of them, for which the layout finds the bias.
    #[doc(hidden)]
    pub fn matrices(&self, layout: Layout) -> Finish<'a, S> {
        Finish { bias: self.bias.as_ref().map(|bias| bias.matrices(layout)), activation: self.activation }
    }
}
