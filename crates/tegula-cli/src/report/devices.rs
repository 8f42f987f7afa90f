//! The report of `tegula devices`.

use std::io::{self, Write};

use serde::Serialize;

/// A device, usable or not.
#[derive(Debug, Serialize)]
pub struct Device {
    /// The name, as in `--device`.
    pub name: String,
    /// The description, or the reason why it is unusable.
    pub description: String,
    pub usable: bool,
}

/// The object of `--json`.
#[derive(Debug, Serialize)]
pub struct Devices {
    pub devices: Vec<Device>,
}

/// Prints a line for each device.
pub fn print(out: &mut impl Write, devices: &Devices) -> io::Result<()> {
    devices.devices.iter().try_for_each(|device| {
        let hint = if device.usable { "" } else { "  (cannot be used)" };
        writeln!(out, "{:<8} {}{hint}", device.name, device.description)
    })
}
