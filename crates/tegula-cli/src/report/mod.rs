//! Reports of commands, as text and with `--json` as one object.

pub mod bench;
pub mod calibration;
pub mod check;
pub mod devices;
pub mod doctor;
pub mod exercises;
pub mod explain;
pub mod plan;
pub mod plots;
pub mod preview;
pub mod product;
pub mod tune;

use std::fmt::Display;
use std::io::{self, Write};

use serde::{Serialize, Serializer};
use tegula::epilogue::{Activation, Epilogue};

/// The form of GELU that an epilogue applies: `tanh`, the approximation that PyTorch calls
/// `approximate='tanh'`. `None` for other activations. PyTorch's default form, by erf, is not
/// offered.
pub fn gelu_form(epilogue: &Epilogue) -> Option<&'static str> {
    (epilogue.activation == Activation::Gelu).then_some("tanh")
}

/// Prints one JSON object.
pub fn json(out: &mut impl Write, value: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *out, value).map_err(io::Error::from)?;
    writeln!(out)
}

/// Serializes a value by its `Display`, for `serialize_with`.
fn text<S: Serializer>(value: &impl Display, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}
