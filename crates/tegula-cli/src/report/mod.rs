//! What a command tells: for people, and with `--json` one object for programs.

pub mod bench;
pub mod check;
pub mod devices;
pub mod doctor;
pub mod plan;
pub mod plots;
pub mod preview;
pub mod product;
pub mod tune;

use std::io::{self, Write};

use serde::Serialize;

/// Prints one JSON object.
pub fn json(out: &mut impl Write, value: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *out, value).map_err(io::Error::from)?;
    writeln!(out)
}
