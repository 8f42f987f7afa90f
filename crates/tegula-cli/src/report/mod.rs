//! What a command tells: for people, and with `--json` one object for programs.

pub mod bench;
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

/// Prints one JSON object.
pub fn json(out: &mut impl Write, value: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *out, value).map_err(io::Error::from)?;
    writeln!(out)
}

/// A value as people read it, for `serialize_with`.
fn text<S: Serializer>(value: &impl Display, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}
