//! Epilogues of a matrix product: C = act(alpha·A·B + beta·C + bias).
//!
//! `gate` implements GELU and SiLU once, for CPU numbers and for kernel values. This module depends
//! on numbers and views, not on engines.

mod gate;

use std::fmt;
use std::str::FromStr;

pub use gate::Gate;

use crate::element::{Scalar, Type};
use crate::error::{Error, Result};
use crate::matrix::{Shape, View};

/// The shape of a bias vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BiasShape {
    /// A 1×n row, added to each row of C.
    Row,
    /// An m×1 column, added to each column of C.
    Column,
}

/// The activation function, applied to each element as the last step.
///
/// The bias and the activation are computed in the accumulator type,
/// [`Element::Acc`](crate::element::Element::Acc). The result is then rounded to the type of C. NaN
/// stays NaN.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Activation {
    /// The identity: x.
    #[default]
    None,
    /// x, or 0 where x < 0.
    Relu,
    /// The tanh form of GELU: ½·x·(1 + tanh(√(2/π)·(x + 0.044715·x³))); 0 at −∞.
    ///
    /// The error is at most 2 ulp for results of at least 2⁻¹¹⁸ (f64: 2⁻¹⁰¹⁰), and at most 2⁻¹⁴⁰
    /// (f64: 2⁻¹⁰⁶⁰) below. For a 16-bit C, the relative error before rounding is at most 2⁻¹². All
    /// engines compute the same bits. Floating-point types only.
    Gelu,
    /// SiLU, also called swish: x·σ(x) = x / (1 + e⁻ˣ); 0 at −∞.
    ///
    /// Error bounds as for [`Gelu`](Activation::Gelu). Floating-point types only.
    Silu,
}

impl Activation {
    /// Every activation.
    pub const ALL: [Activation; 4] = [Activation::None, Activation::Relu, Activation::Gelu, Activation::Silu];

    /// The name: `none`, `relu`, `gelu` or `silu`.
    pub const fn name(self) -> &'static str {
        match self {
            Activation::None => "none",
            Activation::Relu => "relu",
            Activation::Gelu => "gelu",
            Activation::Silu => "silu",
        }
    }

    /// The gate that computes the activation, if it is GELU or SiLU.
    pub const fn gate(self) -> Option<Gate> {
        match self {
            Activation::None | Activation::Relu => None,
            Activation::Gelu => Some(Gate::Tanh),
            Activation::Silu => Some(Gate::Logistic),
        }
    }
}

impl fmt::Display for Activation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Activation {
    type Err = Error;

    /// Parses a [`name`](Activation::name).
    fn from_str(name: &str) -> Result<Self> {
        Activation::ALL.into_iter().find(|activation| activation.name() == name).ok_or_else(|| {
            Error::KernelOption(format!("unknown activation {name:?}; the activations are none, relu, gelu and silu"))
        })
    }
}

/// The kind of an epilogue: everything that shapes a kernel, without sizes and addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Epilogue {
    /// The shape of the bias, if one is added.
    pub bias: Option<BiasShape>,
    /// The activation, applied after the bias.
    pub activation: Activation,
}

impl Epilogue {
    /// The empty epilogue: no bias, no activation.
    pub const NONE: Epilogue = Epilogue { bias: None, activation: Activation::None };

    /// Whether the epilogue is empty.
    pub const fn is_none(&self) -> bool {
        self.bias.is_none() && matches!(self.activation, Activation::None)
    }

    /// The epilogue of the transposed product, which computes Cᵀ.
    #[must_use]
    pub fn transposed(self) -> Self {
        let transposed = |shape| match shape {
            BiasShape::Row => BiasShape::Column,
            BiasShape::Column => BiasShape::Row,
        };
        Epilogue { bias: self.bias.map(transposed), ..self }
    }

    /// Checks that the activation exists for accumulators of the type `ty`.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for GELU and SiLU of integers.
    pub fn check(&self, ty: Type) -> Result<()> {
        if self.activation.gate().is_none() || ty.is_float() {
            return Ok(());
        }
        let (what, device) = (format!("the activation {}", self.activation), "any device; integers have relu".into());
        Err(Error::Unsupported { what, ty, device })
    }

    /// The suffix of a kernel's name, such as `_row_bias_gelu`; empty without an epilogue.
    pub fn suffix(&self) -> String {
        let bias = match self.bias {
            None => "",
            Some(BiasShape::Row) => "_row_bias",
            Some(BiasShape::Column) => "_column_bias",
        };
        let activation = if self.activation == Activation::None { "" } else { self.activation.name() };
        if activation.is_empty() { bias.into() } else { format!("{bias}_{activation}") }
    }
}

/// Formats as `none`, `bias`, `gelu` or `bias+gelu`.
impl fmt::Display for Epilogue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.bias, self.activation) {
            (Some(_), Activation::None) => f.write_str("bias"),
            (Some(_), activation) => write!(f, "bias+{activation}"),
            (None, activation) => activation.fmt(f),
        }
    }
}

impl FromStr for Epilogue {
    type Err = Error;

    /// Parses the form that [`Display`](fmt::Display) writes; a bias is parsed as a row.
    fn from_str(name: &str) -> Result<Self> {
        let bias = Some(BiasShape::Row);
        match name.strip_prefix("bias") {
            Some("") => Ok(Epilogue { bias, ..Epilogue::NONE }),
            Some(rest) => {
                let activation = rest.strip_prefix('+').unwrap_or(name).parse()?;
                Ok(Epilogue { bias, activation })
            }
            None => Ok(Epilogue { bias: None, activation: name.parse()? }),
        }
    }
}

/// The operands of an epilogue: the bias vector and the activation.
#[derive(Clone, Copy, Debug)]
pub struct EpilogueOperands<'a, S> {
    /// A row (1×n) or a column (m×1): one for the whole batch, or one for each matrix of it.
    pub bias: Option<View<'a, S>>,
    /// The activation, applied after the bias.
    pub activation: Activation,
}

impl<S> Default for EpilogueOperands<'_, S> {
    fn default() -> Self {
        EpilogueOperands { bias: None, activation: Activation::None }
    }
}

impl<S: Scalar> EpilogueOperands<'_, S> {
    /// The kind of the epilogue, which shapes the kernel.
    pub fn epilogue(&self) -> Epilogue {
        let shape = |bias: View<'_, S>| if bias.shape().rows == 1 { BiasShape::Row } else { BiasShape::Column };
        Epilogue { bias: self.bias.map(shape), activation: self.activation }
    }

    /// Checks the bias against the shape of C, and repeats it for each matrix of the batch.
    ///
    /// # Errors
    /// [`Error::Shape`] for a bias that is neither a row nor a column of C; [`Error::Unsupported`]
    /// for an activation that accumulators of type `ty` lack.
    pub fn broadcast_to(self, c: Shape, ty: Type) -> Result<Self> {
        self.epilogue().check(ty)?;
        let Some(bias) = self.bias else { return Ok(self) };
        let Shape { batches, rows, cols } = bias.shape();
        let vector = rows == 1 && cols == c.cols || cols == 1 && rows == c.rows;
        if !vector || batches != 1 && batches != c.batches {
            let (m, n, given) = (c.rows, c.cols, bias.shape());
            return Err(Error::Shape(format!(
                "the bias is {given}; for a C of {c} it must be 1×{n} (a row) or {m}×1 (a column)"
            )));
        }
        // A 1×1 bias of a C with one row is broadcast along the row, so that the bias counts as a
        // row.
        let cols = if rows == 1 { c.cols } else { cols };
        Ok(EpilogueOperands { bias: Some(bias.broadcast(Shape { batches: c.batches, rows, cols })?), ..self })
    }

    /// The bias of element (batch, row, col), for a bias on the host.
    pub fn bias_at(&self, batch: usize, row: usize, col: usize) -> Option<S> {
        let bias = self.bias?;
        let clamped = |index: usize, extent: usize| if extent == 1 { 0 } else { index };
        let Shape { batches, rows, cols } = bias.shape();
        bias.get(clamped(batch, batches), clamped(row, rows), clamped(col, cols))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn epilogue_name_round_trips() {
        for bias in [None, Some(BiasShape::Row)] {
            for activation in Activation::ALL {
                let epilogue = Epilogue { bias, activation };
                assert_eq!(epilogue.to_string().parse::<Epilogue>().unwrap(), epilogue);
            }
        }
        for wrong in ["", "gel", "bias+", "biasgelu", "gelu+bias", "bias+bias"] {
            assert!(wrong.parse::<Epilogue>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn bias_of_another_shape_is_rejected() {
        let (six, c) = ([0f32; 6], Shape { batches: 2, rows: 2, cols: 3 });
        let operands = |batches, rows, cols| {
            let len = batches * rows * cols;
            let layout = crate::matrix::Layout::row_major(Shape { batches, rows, cols }).unwrap();
            let bias = Some(View::strided(&six[..len], layout).unwrap());
            EpilogueOperands { bias, activation: Activation::None }.broadcast_to(c, Type::F32)
        };
        for (batches, rows, cols) in [(1, 1, 3), (2, 1, 3), (1, 2, 1), (2, 2, 1)] {
            let bias = operands(batches, rows, cols).unwrap().bias.unwrap();
            assert_eq!(bias.shape(), Shape { batches: 2, rows, cols });
        }
        for (batches, rows, cols) in [(1, 3, 1), (1, 1, 2), (1, 2, 3), (3, 1, 1), (1, 1, 0), (0, 1, 3)] {
            let message = operands(batches, rows, cols).unwrap_err().to_string();
            assert!(message.contains("1×3") && message.contains("2×1"), "{message}");
        }
        let one = EpilogueOperands { bias: Some(View::new(&six[..1], 1, 1).unwrap()), activation: Activation::None };
        let bias = one.broadcast_to(Shape::new(1, 4), Type::F32).unwrap();
        assert_eq!((bias.epilogue().bias, bias.bias.unwrap().shape()), (Some(BiasShape::Row), Shape::new(1, 4)));
        assert_eq!(one.broadcast_to(Shape::new(4, 1), Type::F32).unwrap().bias.unwrap().shape(), Shape::new(1, 1));
    }

    #[test]
    fn integer_gelu_and_silu_are_rejected() {
        for activation in Activation::ALL {
            let epilogue = Epilogue { bias: Some(BiasShape::Row), activation };
            assert_eq!(epilogue.check(Type::I8).is_ok(), activation.gate().is_none());
            assert!(epilogue.check(Type::BF16).is_ok());
        }
    }
}
