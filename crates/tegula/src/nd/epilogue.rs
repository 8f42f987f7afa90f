//! The epilogue of products of arrays.

use tegula_core::nd::{NdLayout, NdView, display};

use crate::element::Scalar;
use crate::epilogue::{Activation, EpilogueOperands};
use crate::error::{Error, Result};
use crate::matrix::Layout;

/// A bias and an activation for a product of arrays.
#[derive(Clone, Debug)]
pub struct NdEpilogueOperands<'a, S> {
    /// The bias, which broadcasts to C as in [`nd`](super). Of the axes for A's rows and B's
    /// columns it varies along one at most.
    pub bias: Option<NdView<'a, S>>,
    /// The activation, applied after the bias.
    pub activation: Activation,
}

impl<S> Default for NdEpilogueOperands<'_, S> {
    fn default() -> Self {
        NdEpilogueOperands { bias: None, activation: Activation::None }
    }
}

impl<'a, S: Scalar> NdEpilogueOperands<'a, S> {
    /// The layout of the bias, broadcast to C. `axes` is the number of matrix axes of C, 0 to 2.
    ///
    /// # Errors
    /// [`Error::Shape`] where the bias does not broadcast to C, or varies along rows and columns.
    #[doc(hidden)]
    pub fn layout(&self, c: &[usize], axes: usize) -> Result<Option<NdLayout>> {
        let Some(bias) = &self.bias else { return Ok(None) };
        let (given, shape) = (display(bias.shape()), display(c));
        let layout = bias.layout().broadcast(c).ok_or_else(|| {
            Error::Shape(format!(
                "the bias is {given} and does not broadcast to C, {shape}: aligned at the last axis, extents must be equal or 1"
            ))
        })?;
        let varies = |&(&extent, &stride): &(&usize, &isize)| extent > 1 && stride != 0;
        let within = c.iter().zip(&layout.strides).rev().take(axes);
        if within.filter(varies).count() > 1 {
            return Err(Error::Shape(format!(
                "the bias is {given} and varies along rows and columns; give a row or a column, or store the matrix in C and set beta = 1"
            )));
        }
        Ok(Some(layout))
    }

    /// The epilogue of a batch of matrices, whose bias has this layout.
    #[doc(hidden)]
    pub fn matrices(&self, layout: Layout) -> EpilogueOperands<'a, S> {
        EpilogueOperands { bias: self.bias.as_ref().map(|bias| bias.matrices(layout)), activation: self.activation }
    }
}
