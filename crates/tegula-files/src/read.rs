//! Reading the array at a place.

use std::fs::File;
use std::io::{self, BufReader, IsTerminal, Read, stdin};
use std::path::Path;

use crate::format::{Format, KNOWN, START};
use crate::map::FileMap;
use crate::reading::{Reading, Watched, read_up_to};
use crate::{AnyArray, Error, Place, Refusal, Result, csv, mtx, npy, npz, safetensors, show};

/// Reads the array at a place, of any of the formats. The extension says which; without a known one, the content does.
///
/// Arrays in regular files stay there, mapped, where they are aligned and in this machine's byte order. From standard input,
/// pipes and devices come `.npy`, `.mtx` and `.csv`.
///
/// # Errors
/// Where nothing can be read there, or what is read is no array of numbers.
pub fn read(place: &Place, reading: &Reading) -> Result<AnyArray> {
    let refuse = |why| Error { file: place.to_string(), why };
    match place {
        Place::Standard => read_standard(reading).map_err(refuse),
        Place::File { path, name } => {
            read_path(path, name.as_deref(), reading).map_err(|why| Error { file: show::path(path), why })
        }
    }
}

fn read_standard(reading: &Reading) -> Result<AnyArray, Refusal> {
    let input = stdin();
    if input.is_terminal() {
        return Err("is a terminal; pipe an array into it".into());
    }
    read_stream(&mut input.lock(), None, reading)
}

fn read_path(path: &Path, name: Option<&str>, reading: &Reading) -> Result<AnyArray, Refusal> {
    let mut file = open(path)?;
    let metadata = file.metadata().map_err(|error| unreadable(&error))?;
    let by_name = Format::of_path(path);
    // Files of the kernel's own, as in /proc, say that they are empty, and can only be read.
    if !metadata.is_file() || metadata.len() == 0 && by_name.is_none_or(|format| !format.is_container()) {
        return match by_name {
            _ if name.is_some() => Err("is a pipe or a device, which holds one array without a name".into()),
            format => read_stream(&mut file, format, reading),
        };
    }
    let format = by_name.map_or_else(|| guess(&file), Ok)?;
    if let Some(name) = name.filter(|_| !format.is_container()) {
        return Err(format!("holds one array without a name; leave ':{}' out", show::name(name)));
    }
    match format {
        Format::Npz => npz::read(&map(&file)?, name, reading),
        Format::Safetensors => safetensors::read(&map(&file)?, name, reading),
        Format::Npy => read_npy(&mut file, metadata.len(), reading),
        Format::Mtx | Format::Csv => read_text(format, &mut file, metadata.len(), reading),
    }
}

fn open(path: &Path) -> Result<File, Refusal> {
    let refuse = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => "there is no such file".into(),
        _ => unreadable(&error),
    };
    if path.metadata().map_err(refuse)?.is_dir() {
        return Err(format!("is a directory; give a {KNOWN} file"));
    }
    File::open(path).map_err(refuse)
}

fn map(file: &File) -> Result<FileMap, Refusal> {
    FileMap::new(file).map_err(|error| unreadable(&error))
}

fn unreadable(error: &io::Error) -> Refusal {
    format!("cannot be read: {}", show::error(error))
}

/// The format by content. Reads from the start of the file without moving on.
fn guess(file: &File) -> Result<Format, Refusal> {
    let map = map(file)?;
    let start = &map.as_bytes()[..map.as_bytes().len().min(START)];
    Format::of_content(start).ok_or_else(|| unknown(start))
}

fn unknown(start: &[u8]) -> Refusal {
    match start {
        [] => "is empty; give an array of numbers".into(),
        _ => format!("is of no known format; give a {KNOWN} file"),
    }
}

fn read_npy(file: &mut File, len: u64, reading: &Reading) -> Result<AnyArray, Refusal> {
    // Not every file system maps.
    let Ok(map) = FileMap::new(file) else { return npy::read(file, Some(len), reading) };
    let all = 0..map.as_bytes().len();
    match npy::map(&map, all)? {
        Some(array) => Ok(array),
        None => npy::read(&mut map.as_bytes(), Some(len), reading),
    }
}

/// Reads what cannot be mapped or read twice.
fn read_stream(source: &mut dyn Read, format: Option<Format>, reading: &Reading) -> Result<AnyArray, Refusal> {
    let mut start = [0; START];
    let found = read_up_to(source, &mut start)?;
    let format = format.or_else(|| Format::of_content(&start[..found]));
    let mut whole = start[..found].chain(source);
    match format {
        Some(Format::Npy) => npy::read(&mut whole, None, reading),
        Some(format @ (Format::Mtx | Format::Csv)) => read_text(format, &mut whole, 0, reading),
        Some(Format::Npz | Format::Safetensors) => Err("is a container in a pipe; give it as a regular file".into()),
        None => Err(unknown(&start[..found])),
    }
}

fn read_text(format: Format, source: &mut dyn Read, total: u64, reading: &Reading) -> Result<AnyArray, Refusal> {
    let mut source = BufReader::with_capacity(1 << 20, Watched::new(source, total, reading));
    if format == Format::Mtx { mtx::read(&mut source, reading.room) } else { csv::read(&mut source, reading.room) }
}
