//! What happens to a sum on its way to C: a vector is added and a function applied, C = act(alpha·A·B + beta·C + bias).
//!
//! `gate` has the functions that are more than a comparison, written once for the processor and for kernels. It knows numbers and views, not
//! engines.

mod gate;

use std::fmt;
use std::str::FromStr;

pub use gate::Gate;

use crate::element::{Scalar, Type};
use crate::error::{Error, Result};
use crate::matrix::{Shape, View};

/// Which way a bias lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Along {
    /// A row, added to every row: a number for each column of C.
    Rows,
    /// A column, added to every column: a number for each row of C.
    Columns,
}

/// The function that is applied last, to each element by itself.
///
/// Sums are kept in [`Element::Acc`](crate::element::Element::Acc); there the bias is added and the function applied, before the result is rounded
/// to the type of C. NaN stays NaN.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Activation {
    /// x.
    #[default]
    None,
    /// x, or 0 where x < 0.
    Relu,
    /// ½·x·(1 + tanh(√(2/π)·(x + 0.044715·x³))), the tanh form of GELU; 0 at −∞.
    ///
    /// Exact to two units in the last place where the result is no smaller than 2⁻¹¹⁸ (f64: 2⁻¹⁰¹⁰), and to 2⁻¹⁴⁰ (2⁻¹⁰⁶⁰) below; where
    /// C has 16 bits, to 2⁻¹² of itself before it is rounded. The same bits come from every engine. Floats only.
    Gelu,
    /// x·σ(x) = x / (1 + e⁻ˣ), also called swish; 0 at −∞. As exact as GELU. Floats only.
    Silu,
}

impl Activation {
    /// All of them.
    pub const ALL: [Activation; 4] = [Activation::None, Activation::Relu, Activation::Gelu, Activation::Silu];

    /// `none`, `relu`, `gelu`, `silu`.
    pub const fn name(self) -> &'static str {
        match self {
            Activation::None => "none",
            Activation::Relu => "relu",
            Activation::Gelu => "gelu",
            Activation::Silu => "silu",
        }
    }

    /// The function as a gate, if it is one.
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

    /// Reads what [`name`](Activation::name) gives.
    fn from_str(name: &str) -> Result<Self> {
        Activation::ALL.into_iter().find(|activation| activation.name() == name).ok_or_else(|| {
            Error::KernelOption(format!("there is no activation {name:?}; there are none, relu, gelu and silu"))
        })
    }
}

/// Everything about it that shapes a kernel: no sizes, no addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Epilogue {
    /// Whether a bias is added, and which way it lies.
    pub bias: Option<Along>,
    /// What is applied then.
    pub activation: Activation,
}

impl Epilogue {
    /// Nothing happens.
    pub const NONE: Epilogue = Epilogue { bias: None, activation: Activation::None };

    /// Whether nothing happens.
    pub const fn is_none(&self) -> bool {
        self.bias.is_none() && matches!(self.activation, Activation::None)
    }

    /// The same for the transposed matrix.
    #[must_use]
    pub fn transposed(self) -> Self {
        let turned = |along| match along {
            Along::Rows => Along::Columns,
            Along::Columns => Along::Rows,
        };
        Epilogue { bias: self.bias.map(turned), ..self }
    }

    /// Refuses what there is not for sums of a type.
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

    /// What it adds to a kernel's name.
    pub fn suffix(&self) -> String {
        let bias = match self.bias {
            None => "",
            Some(Along::Rows) => "_row_bias",
            Some(Along::Columns) => "_column_bias",
        };
        let activation = if self.activation == Activation::None { "" } else { self.activation.name() };
        if activation.is_empty() { bias.into() } else { format!("{bias}_{activation}") }
    }
}

/// `none`, `bias`, `gelu`, `bias+gelu`.
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

    /// Reads what is shown, a bias being a row.
    fn from_str(name: &str) -> Result<Self> {
        let bias = Some(Along::Rows);
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

/// The bias itself, and the activation.
#[derive(Clone, Copy, Debug)]
pub struct Finish<'a, S> {
    /// A row (1×n) or a column (m×1), for all matrices of the batch or as many as those.
    pub bias: Option<View<'a, S>>,
    /// What is applied then.
    pub activation: Activation,
}

impl<S> Default for Finish<'_, S> {
    fn default() -> Self {
        Finish { bias: None, activation: Activation::None }
    }
}

impl<S: Scalar> Finish<'_, S> {
    /// What of it shapes a kernel.
    pub fn epilogue(&self) -> Epilogue {
        let along = |bias: View<'_, S>| if bias.shape().rows == 1 { Along::Rows } else { Along::Columns };
        Epilogue { bias: self.bias.map(along), activation: self.activation }
    }

    /// The same with a bias for each matrix of C, which is perhaps one for all.
    ///
    /// # Errors
    /// [`Error::Shape`] for a bias that is neither a row nor a column of C, [`Error::Unsupported`] for an activation that sums of that type do
    /// not have.
    pub fn for_each_of(self, c: Shape, ty: Type) -> Result<Self> {
        self.epilogue().check(ty)?;
        let Some(bias) = self.bias else { return Ok(self) };
        let Shape { batches, rows, cols } = bias.shape();
        let vector = rows == 1 && cols == c.cols || cols == 1 && rows == c.rows;
        if !vector || batches != 1 && batches != c.batches {
            let (m, n, given) = (c.rows, c.cols, bias.shape());
            return Err(Error::Shape(format!(
                "C is {c}, so a bias is a row of 1×{n} or a column of {m}×1, not {given}"
            )));
        }
        // A column of one row is a row of one number, repeated: so that a bias of one row is a row.
        let cols = if rows == 1 { c.cols } else { cols };
        Ok(Finish { bias: Some(bias.broadcast(Shape { batches: c.batches, rows, cols })?), ..self })
    }

    /// The bias of an element, for a bias on the host.
    pub fn bias_at(&self, batch: usize, row: usize, col: usize) -> Option<S> {
        let bias = self.bias?;
        let within = |at: usize, extent: usize| if extent == 1 { 0 } else { at };
        let Shape { batches, rows, cols } = bias.shape();
        bias.get(within(batch, batches), within(row, rows), within(col, cols))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for bias in [None, Some(Along::Rows)] {
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
    fn a_bias_is_a_row_or_a_column() {
        let (six, c) = ([0f32; 6], Shape { batches: 2, rows: 2, cols: 3 });
        let finish = |batches, rows, cols| {
            let len = batches * rows * cols;
            let layout = crate::matrix::Layout::row_major(Shape { batches, rows, cols }).unwrap();
            let bias = Some(View::strided(&six[..len], layout).unwrap());
            Finish { bias, activation: Activation::None }.for_each_of(c, Type::F32)
        };
        for (batches, rows, cols) in [(1, 1, 3), (2, 1, 3), (1, 2, 1), (2, 2, 1)] {
            let bias = finish(batches, rows, cols).unwrap().bias.unwrap();
            assert_eq!(bias.shape(), Shape { batches: 2, rows, cols });
        }
        for (batches, rows, cols) in [(1, 3, 1), (1, 1, 2), (1, 2, 3), (3, 1, 1), (1, 1, 0), (0, 1, 3)] {
            let why = finish(batches, rows, cols).unwrap_err().to_string();
            assert!(why.contains("1×3") && why.contains("2×1"), "{why}");
        }
        let one = Finish { bias: Some(View::new(&six[..1], 1, 1).unwrap()), activation: Activation::None };
        let bias = one.for_each_of(Shape::new(1, 4), Type::F32).unwrap();
        assert_eq!((bias.epilogue().bias, bias.bias.unwrap().shape()), (Some(Along::Rows), Shape::new(1, 4)));
        assert_eq!(one.for_each_of(Shape::new(4, 1), Type::F32).unwrap().bias.unwrap().shape(), Shape::new(1, 1));
    }

    #[test]
    fn integers_have_relu_alone() {
        for activation in Activation::ALL {
            let epilogue = Epilogue { bias: Some(Along::Rows), activation };
            assert_eq!(epilogue.check(Type::I8).is_ok(), activation.gate().is_none());
            assert!(epilogue.check(Type::BF16).is_ok());
        }
    }
}
