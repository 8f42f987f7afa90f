//! The options of `tegula check` on a `.cu` or `.ptx` file.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use tegula_files::ArrayPath;

use super::DeviceChoice;
use crate::check_file::formula::Formula;
use crate::check_file::value::NamedValue;
use crate::failure::Failure;
use crate::whole_number::whole;

/// Options of a file.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Options of .cu and .ptx files")]
pub struct FileOptions {
    /// The kernel, such as scale, or 'tiled<16>' of a template [default: the only one]
    #[arg(id = "entry", long = "kernel", value_name = "NAME")]
    pub kernel: Option<String>,
    /// Blocks along x, y and z [default: those of a constant launch in the source]
    #[arg(long, value_name = "X[,Y[,Z]]", value_parser = extents)]
    pub grid: Option<Extents>,
    /// Threads of a block along x, y and z [default: as for --grid]
    #[arg(long, value_name = "X[,Y[,Z]]", value_parser = extents)]
    pub block: Option<Extents>,
    /// Bytes of dynamic shared memory [default: as for --grid, else 0]
    #[arg(long, value_name = "BYTES", allow_negative_numbers = true, value_parser = whole::<u32>(0))]
    pub shared: Option<u32>,
    /// Value of a parameter: a number; memory, such as f32[100,70], out:f32[100,50] or a.npy; or
    /// the fields of a structure. See below
    #[arg(long = "arg", value_name = "NAME=VALUE", value_parser = NamedValue::parse)]
    pub arguments: Vec<NamedValue>,
    /// Value of a __constant__ or __device__ variable
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = NamedValue::parse)]
    pub variables: Vec<NamedValue>,
    /// Write the memory of an argument to this file afterwards, in the format of its extension
    #[arg(short, long = "output", value_name = "NAME=FILE", value_parser = Output::parse)]
    pub outputs: Vec<Output>,
    /// Compare the memory of an argument with a formula, such as 'C = A @ B'. See below
    #[arg(long, value_name = "FORMULA", value_parser = Formula::parse)]
    pub expect: Vec<Formula>,
    /// Error that --expect allows, in units of 1 + |expected| [default: a bound of rounding errors]
    #[arg(long, value_name = "X", requires = "expect", value_parser = tolerance)]
    pub tolerance: Option<f64>,
    /// Also run the kernel on this GPU, cuda:N, and compare the results
    #[arg(long, value_name = "DEVICE", value_parser = gpu)]
    pub compare: Option<usize>,
    /// Define a macro
    #[arg(short = 'D', long = "define", value_name = "NAME[=VALUE]")]
    pub defines: Vec<String>,
    /// Search a directory for headers
    #[arg(short = 'I', long = "include", value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub includes: Vec<PathBuf>,
    /// Compile for this GPU, such as sm_80
    #[arg(long, value_name = "GPU")]
    pub arch: Option<String>,
    /// The C++ standard, such as c++17
    #[arg(long, value_name = "STANDARD")]
    pub std: Option<String>,
}

/// Extents along x, y and z.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extents(pub [u32; 3]);

/// `NAME=FILE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    pub name: String,
    pub path: ArrayPath,
}

impl Output {
    fn parse(text: &str) -> Result<Output, String> {
        match text.split_once('=') {
            Some((name, path)) if !name.is_empty() && !path.is_empty() => {
                Ok(Output { name: name.into(), path: ArrayPath::parse(path) })
            }
            _ => Err("give NAME=FILE, such as C=c.npy".into()),
        }
    }
}

impl FileOptions {
    /// The options given, for those that they do not apply to.
    pub fn given(&self) -> impl Iterator<Item = &'static str> {
        let given = [
            ("--kernel", self.kernel.is_some()),
            ("--grid", self.grid.is_some()),
            ("--block", self.block.is_some()),
            ("--shared", self.shared.is_some()),
            ("--arg", !self.arguments.is_empty()),
            ("--set", !self.variables.is_empty()),
            ("--output", !self.outputs.is_empty()),
            ("--expect", !self.expect.is_empty()),
            ("--compare", self.compare.is_some()),
            ("--define", !self.defines.is_empty()),
            ("--include", !self.includes.is_empty()),
            ("--arch", self.arch.is_some()),
            ("--std", self.std.is_some()),
        ];
        given.into_iter().filter_map(|(option, given)| given.then_some(option))
    }

    /// Refuses options that exclude each other.
    pub fn check(&self) -> Result<(), Failure> {
        match self.outputs.iter().find(|output| output.path == ArrayPath::Stdio) {
            Some(output) => {
                let name = &output.name;
                Err(Failure::Usage(format!("-o {name}=-: the report is on standard output; give {name} a file")))
            }
            None => Ok(()),
        }
    }
}

fn extents(text: &str) -> Result<Extents, String> {
    let wrong = || "give one to three whole numbers of at least 1, such as 4 or 4,2".to_owned();
    let parts: Vec<&str> = text.split(',').collect();
    if parts.len() > 3 {
        return Err(wrong());
    }
    let mut all = [1; 3];
    for (extent, part) in all.iter_mut().zip(parts) {
        *extent = whole(1)(part.trim()).map_err(|why| if why == "too large" { why } else { wrong() })?;
    }
    Ok(Extents(all))
}

fn tolerance(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|tolerance: &f64| tolerance.is_finite() && *tolerance >= 0.0);
    number.ok_or_else(|| "give a number of at least 0, such as 1e-3".into())
}

fn gpu(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(DeviceChoice::Cuda(ordinal)) => Ok(ordinal),
        _ => Err("give a GPU, such as cuda:0".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extents_have_one_to_three_axes() {
        assert_eq!(["4", "4,2", "1,2,3"].map(extents), [[4, 1, 1], [4, 2, 1], [1, 2, 3]].map(|all| Ok(Extents(all))));
        for wrong in ["", "0", "4,", "1,2,3,4", "x", "-1", "4,0"] {
            assert!(extents(wrong).unwrap_err().starts_with("give one to three"), "{wrong}");
        }
        assert_eq!(extents("99999999999"), Err("too large".into()));
    }

    #[test]
    fn outputs_have_a_name_and_a_file() {
        let path = ArrayPath::parse("c.npz:c=1");
        assert_eq!(Output::parse("C=c.npz:c=1"), Ok(Output { name: "C".into(), path }));
        assert!(["C", "=c.npy", "C="].into_iter().all(|wrong| Output::parse(wrong).is_err()));
    }
}
