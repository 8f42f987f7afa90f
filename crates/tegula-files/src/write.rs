//! Writing an array to a place.

use std::io::{IsTerminal, stdout};

use tegula_core::nd;

use crate::dtype::Dtype;
use crate::format::{Format, KNOWN};
use crate::map::FileMap;
use crate::number::Number;
use crate::output::{Sink, Target};
use crate::standard::{self, standard_output};
use crate::{Error, Place, Refusal, Result, csv, mtx, npy, npz, safetensors, show};

/// The name of an array in a container, where none is given.
const DEFAULT_NAME: &str = "c";

/// How a file is written.
#[derive(Clone, Copy)]
pub struct Writing<'a> {
    /// Is told how many bytes are written, of how many; 0 of those where their number is not known.
    pub progress: &'a dyn Fn(u64, u64),
}

impl Default for Writing<'_> {
    /// Nobody is told.
    fn default() -> Self {
        Writing { progress: &|_, _| {} }
    }
}

/// Finds out whether an array of a type and a number of dimensions can be written to a place, before work is spent on it. Leaves
/// nothing there.
///
/// # Errors
/// Where it cannot.
pub fn check(place: &Place, dtype: Dtype, dimensions: usize) -> Result<()> {
    Plan::of(place, dtype, dimensions).and_then(|plan| plan.check()).map_err(|why| refusal(place, why))
}

/// Writes an array, given in C order, so that the file is either complete or as it was before. The extension says the format:
/// `.npy`, `.npz`, `.safetensors`, `.mtx` or `.csv`; devices without one and standard output get `.npy`.
///
/// A container is written with this array alone, named `c` where the place gives no name. One that is there is replaced if it
/// holds no other array.
///
/// # Errors
/// Where the file cannot be written, and where `shape` is not that of `data`.
pub fn write<T: Number>(place: &Place, shape: &[usize], data: &[T], writing: &Writing) -> Result<()> {
    let write = || {
        if nd::len(shape).ok() != Some(data.len()) {
            let shape = nd::display(shape);
            return Err(format!("cannot be written: {} elements are given for an array of {shape}", data.len()));
        }
        let plan = Plan::of(place, T::DTYPE, shape.len())?;
        plan.check_container()?;
        plan.write(shape, data, writing)
    };
    write().map_err(|why| refusal(place, why))
}

fn refusal(place: &Place, why: Refusal) -> Error {
    let file = match place {
        Place::Standard => standard::NAME.into(),
        Place::File { path, .. } => show::path(path),
    };
    Error { file, why }
}

/// What goes where.
enum Plan {
    Standard,
    File { target: Target, format: Format, name: String },
}

impl Plan {
    fn of(place: &Place, dtype: Dtype, dimensions: usize) -> Result<Plan, Refusal> {
        let refuse = |why: Refusal| format!("cannot be written: {why}");
        let Place::File { path, name } = place else {
            Format::Npy.check(dtype, dimensions).map_err(refuse)?;
            standard::check_standard_output().map_err(|error| error.why)?;
            return if stdout().is_terminal() { Err("is a terminal; name a file".into()) } else { Ok(Plan::Standard) };
        };
        let target = Target::of(path)?;
        let format = match Format::of_path(path) {
            Some(format) if format.is_container() && target.special => {
                return Err(refuse(format!("{} takes a regular file", format.extension())));
            }
            Some(format) => format,
            None if target.special => Format::Npy,
            None => return Err(refuse(format!("name a {KNOWN} file"))),
        };
        format.check(dtype, dimensions).map_err(refuse)?;
        if let Some(name) = name.as_ref().filter(|_| !format.is_container()) {
            let extension = format.extension();
            return Err(refuse(format!(
                "{extension} holds one array without a name; leave ':{}' out",
                show::name(name)
            )));
        }
        let name = name.clone().unwrap_or_else(|| DEFAULT_NAME.into());
        check_name(&name).map_err(refuse)?;
        Ok(Plan::File { target, format, name })
    }

    fn check(&self) -> Result<(), Refusal> {
        let Plan::File { target, .. } = self else { return Ok(()) };
        self.check_container()?;
        target.check()
    }

    /// Refuses to replace a container that holds more than the array to be written.
    fn check_container(&self) -> Result<(), Refusal> {
        let Plan::File { target, format, name } = self else { return Ok(()) };
        let names = match format {
            Format::Npz => npz::names,
            Format::Safetensors => safetensors::names,
            Format::Npy | Format::Mtx | Format::Csv => return Ok(()),
        };
        let Some(file) = target.existing() else { return Ok(()) };
        let map = file.and_then(|file| FileMap::new(&file));
        let unreadable = |error| format!("cannot be read: {}", show::error(&error));
        let names = map.map_err(unreadable).and_then(|map| names(&map));
        let found = names.map_err(|why| format!("cannot be replaced: it {why}; remove it first"))?;
        let mut others = found.iter().map(String::as_str).filter(|other| other != name).collect::<Vec<_>>();
        others.sort_unstable();
        if others.is_empty() {
            return Ok(());
        }
        Err(format!(
            "cannot be replaced: it also holds {}, which would be lost; name another file",
            show::names(others.into_iter())
        ))
    }

    fn write<T: Number>(&self, shape: &[usize], data: &[T], writing: &Writing) -> Result<(), Refusal> {
        let size = size_of_val(data) as u64;
        match self {
            Plan::Standard => {
                let write = |sink: &mut Sink| npy::write(sink, shape, data);
                let done = standard_output()
                    .and_then(|file| Sink::write_through(&file, size, writing.progress, || false, write));
                done.map_err(|error| format!("cannot be written: {}", show::error(&error)))
            }
            Plan::File { target, format, name } => {
                let size = if matches!(format, Format::Mtx | Format::Csv) { 0 } else { size };
                target.replace(size, writing.progress, |sink| match format {
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

/// Refuses names that other programs would stumble over, or that would lead them astray when they unpack a container.
fn check_name(name: &str) -> Result<(), Refusal> {
    let refuse = |why: &str| Err(format!("an array cannot be named '{}', {why}", show::name(name)));
    match name {
        "" => Err("give a name after the colon".into()),
        safetensors::RESERVED => refuse("which means something else"),
        _ if name.chars().any(char::is_control) => refuse("which has control characters"),
        _ if name.starts_with(['/', '\\']) || name.split(['/', '\\']).any(|part| part == "..") => {
            refuse("which leads out of the container")
        }
        _ if name.len() > 1 << 12 => Err("the array's name is too long".into()),
        _ => Ok(()),
    }
}
