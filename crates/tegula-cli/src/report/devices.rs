//! What products can run on.

use std::io::{self, Write};

use serde::Serialize;

/// A device that exists, or would if something were there.
#[derive(Debug, Serialize)]
pub struct Device {
    /// As `--device` takes it.
    pub name: String,
    /// What it is; why it cannot be used where it cannot.
    pub description: String,
    pub usable: bool,
}

/// With `--json`, the object.
#[derive(Debug, Serialize)]
pub struct Devices {
    pub devices: Vec<Device>,
}

/// A line for each device.
pub fn print(out: &mut impl Write, devices: &Devices) -> io::Result<()> {
    devices.devices.iter().try_for_each(|device| {
        let hint = if device.usable { "" } else { "  (cannot be used)" };
        writeln!(out, "{:<8} {}{hint}", device.name, device.description)
    })
}
