//! Writing an array to an [`ArrayPath`].

use std::io::{IsTerminal, stdout};

use tegula_core::nd;

use crate::atomic_replace::{Sink, Target};
use crate::dtype::Dtype;
use crate::file_map::FileMap;
use crate::format::{Format, KNOWN};
use crate::number::Number;
use crate::stdout::{self, standard_output};
use crate::{ArrayPath, Error, ErrorMessage, Result, csv, display, mtx, npy, npz, safetensors};

/// Name of an array in a container if none is given.
const DEFAULT_NAME: &str = "c";

/// Options for [`write`](crate::write()).
#[derive(Clone, Copy)]
pub struct WriteOptions<'a> {
    /// Progress callback with bytes written and total bytes, 0 if unknown.
    pub progress: &'a dyn Fn(u64, u64),
}

impl Default for WriteOptions<'_> {
    /// No progress callback.
    fn default() -> Self {
        WriteOptions { progress: &|_, _| {} }
    }
}

/// Checks whether an array can be written to a path, before the work for its content.
///
/// Leaves no file.
///
/// # Errors
/// If an array of `dtype` with `dimensions` axes cannot be written.
pub fn check_writable(array_path: &ArrayPath, dtype: Dtype, dimensions: usize) -> Result<()> {
    WritePlan::of(array_path, dtype, dimensions)
        .and_then(|plan| plan.check())
        .map_err(|message| error_message(array_path, message))
}

/// Writes an array in C order; the file is either complete or unchanged.
///
/// The extension determines the format: `.npy`, `.npz`, `.safetensors`, `.mtx` or `.csv`. Devices
/// without an extension and standard output get `.npy`.
///
/// A container is written with this array only, named `c` if the path has no array name. An
/// existing container is replaced if it contains no other array.
///
/// # Errors
/// If the file cannot be written, or `shape` does not match `data`.
pub fn write<T: Number>(array_path: &ArrayPath, shape: &[usize], data: &[T], options: &WriteOptions) -> Result<()> {
    let write = || {
        if nd::len(shape).ok() != Some(data.len()) {
            let shape = nd::display(shape);
            return Err(format!("cannot be written: {} elements do not match shape {shape}", data.len()));
        }
        let plan = WritePlan::of(array_path, T::DTYPE, shape.len())?;
        plan.check_container()?;
        plan.write(shape, data, options)
    };
    write().map_err(|message| error_message(array_path, message))
}

fn error_message(array_path: &ArrayPath, message: ErrorMessage) -> Error {
    let file = match array_path {
        ArrayPath::Stdio => stdout::NAME.into(),
        ArrayPath::File { path, .. } => display::path(path),
    };
    Error { file, message }
}

/// Destination and format of a write.
enum WritePlan {
    Stdout,
    File { target: Target, format: Format, name: String },
}

impl WritePlan {
    fn of(array_path: &ArrayPath, dtype: Dtype, dimensions: usize) -> Result<WritePlan, ErrorMessage> {
        let reject = |message: ErrorMessage| format!("cannot be written: {message}");
        let ArrayPath::File { path, name } = array_path else {
            Format::Npy.check(dtype, dimensions).map_err(reject)?;
            stdout::check_standard_output().map_err(|error| error.message)?;
            return if stdout().is_terminal() {
                Err("standard output is a terminal; use a file".into())
            } else {
                Ok(WritePlan::Stdout)
            };
        };
        let target = Target::resolve(path)?;
        let format = match Format::of_path(path) {
            Some(format) if format.is_container() && target.is_stream => {
                return Err(reject(format!("{} requires a regular file", format.extension())));
            }
            Some(format) => format,
            None if target.is_stream => Format::Npy,
            None => return Err(reject(format!("format not recognized; use a {KNOWN} file"))),
        };
        format.check(dtype, dimensions).map_err(reject)?;
        if let Some(name) = name.as_ref().filter(|_| !format.is_container()) {
            let extension = format.extension();
            return Err(reject(format!("{extension} contains one unnamed array; omit ':{}'", display::name(name))));
        }
        let name = name.clone().unwrap_or_else(|| DEFAULT_NAME.into());
        check_name(&name).map_err(reject)?;
        Ok(WritePlan::File { target, format, name })
    }

    fn check(&self) -> Result<(), ErrorMessage> {
        let WritePlan::File { target, .. } = self else { return Ok(()) };
        self.check_container()?;
        target.check()
    }

    /// Rejects the replacement of a container with other arrays.
    fn check_container(&self) -> Result<(), ErrorMessage> {
        let WritePlan::File { target, format, name } = self else { return Ok(()) };
        let names = match format {
            Format::Npz => npz::names,
            Format::Safetensors => safetensors::names,
            Format::Npy | Format::Mtx | Format::Csv => return Ok(()),
        };
        let Some(file) = target.existing() else { return Ok(()) };
        let map = file.and_then(|file| FileMap::new(&file));
        let unreadable = |error| format!("cannot be read: {}", display::error(&error));
        let names = map.map_err(unreadable).and_then(|map| names(&map));
        let found = names.map_err(|message| format!("cannot be replaced: {message}; remove it first"))?;
        let mut others = found.iter().map(String::as_str).filter(|other| other != name).collect::<Vec<_>>();
        others.sort_unstable();
        if others.is_empty() {
            return Ok(());
        }
        Err(format!(
            "cannot be replaced: it also contains {}, which would be lost; use another file",
            display::names(others.into_iter())
        ))
    }

    fn write<T: Number>(&self, shape: &[usize], data: &[T], options: &WriteOptions) -> Result<(), ErrorMessage> {
        let size = size_of_val(data) as u64;
        match self {
            WritePlan::Stdout => {
                let write = |sink: &mut Sink| npy::write(sink, shape, data);
                let done = standard_output()
                    .and_then(|file| Sink::write_through(&file, size, options.progress, || false, write));
                done.map_err(|error| format!("cannot be written: {}", display::error(&error)))
            }
            WritePlan::File { target, format, name } => {
                let size = if matches!(format, Format::Mtx | Format::Csv) { 0 } else { size };
                target.replace(size, options.progress, |sink| match format {
                    Format::Npy => npy::write(sink, shape, data),
                    Format::Npz => npz::write(sink, name, shape, data),
                    Format::Safetensors => safetensors::write(sink, name, shape, data),
                    Format::Mtx => mtx::write(sink, shape, data),
                    Format::Csv => csv::write(sink, shape, data),
                })
            }
        }
    }
}

/// Rejects array names that other programs cannot read or would unpack to unsafe paths.
fn check_name(name: &str) -> Result<(), ErrorMessage> {
    let reject = |message: &str| Err(format!("invalid array name '{}': {message}", display::name(name)));
    match name {
        "" => Err("the array name after the colon is empty".into()),
        safetensors::RESERVED => reject("the name is reserved"),
        _ if name.chars().any(char::is_control) => reject("control characters are not allowed"),
        _ if name.starts_with(['/', '\\']) || name.split(['/', '\\']).any(|part| part == "..") => {
            reject("the path leads out of the container")
        }
        _ if name.len() > 1 << 12 => Err("the array name exceeds 4096 bytes".into()),
        _ => Ok(()),
    }
}
