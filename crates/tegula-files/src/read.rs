//! Reading the array at an [`ArrayPath`].

use std::fs::File;
use std::io::{self, BufReader, IsTerminal, Read, stdin};
use std::path::Path;

use crate::file_map::FileMap;
use crate::format::{Format, KNOWN, START};
use crate::options::{ProgressReader, ReadOptions, read_up_to};
use crate::{AnyArray, ArrayPath, Error, ErrorMessage, Result, csv, display, mtx, npy, npz, safetensors};

/// Reads an array in any of the formats, detected by extension or else by content.
///
/// Arrays in regular files are memory-mapped if aligned and in native byte order. Standard input,
/// pipes and devices may contain `.npy`, `.mtx` and `.csv`.
///
/// # Errors
/// If the path cannot be read, or the content is not an array of numbers.
pub fn read(array_path: &ArrayPath, options: &ReadOptions) -> Result<AnyArray> {
    let reject = |message| Error { file: array_path.to_string(), message };
    match array_path {
        ArrayPath::Stdio => read_standard(options).map_err(reject),
        ArrayPath::File { path, name } => {
            read_path(path, name.as_deref(), options).map_err(|message| Error { file: display::path(path), message })
        }
    }
}

fn read_standard(options: &ReadOptions) -> Result<AnyArray, ErrorMessage> {
    let input = stdin();
    if input.is_terminal() {
        return Err("standard input is a terminal; pipe an array into it".into());
    }
    read_stream(&mut input.lock(), None, options)
}

fn read_path(path: &Path, name: Option<&str>, options: &ReadOptions) -> Result<AnyArray, ErrorMessage> {
    let mut file = open(path)?;
    let metadata = file.metadata().map_err(|error| unreadable(&error))?;
    let by_name = Format::of_path(path);
    // Files of procfs report size 0 and can only be read as streams.
    if !metadata.is_file() || metadata.len() == 0 && by_name.is_none_or(|format| !format.is_container()) {
        return match by_name {
            _ if name.is_some() => Err("a pipe or device contains one unnamed array; omit the name".into()),
            format => read_stream(&mut file, format, options),
        };
    }
    let format = by_name.map_or_else(|| detect_format(&file), Ok)?;
    if let Some(name) = name.filter(|_| !format.is_container()) {
        return Err(format!("contains one unnamed array; omit ':{}'", display::name(name)));
    }
    match format {
        Format::Npz => npz::read(&map(&file)?, name, options),
        Format::Safetensors => safetensors::read(&map(&file)?, name, options),
        Format::Npy => read_npy(&mut file, metadata.len(), options),
        Format::Mtx | Format::Csv => read_text(format, &mut file, metadata.len(), options),
    }
}

fn open(path: &Path) -> Result<File, ErrorMessage> {
    let reject = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => "file not found".into(),
        _ => unreadable(&error),
    };
    if path.metadata().map_err(reject)?.is_dir() {
        return Err(format!("is a directory; use a {KNOWN} file"));
    }
    File::open(path).map_err(reject)
}

fn map(file: &File) -> Result<FileMap, ErrorMessage> {
    FileMap::new(file).map_err(|error| unreadable(&error))
}

fn unreadable(error: &io::Error) -> ErrorMessage {
    format!("cannot be read: {}", display::error(error))
}

/// Detects the format from the start of a file, without moving its position.
fn detect_format(file: &File) -> Result<Format, ErrorMessage> {
    let map = map(file)?;
    let start = &map.as_bytes()[..map.as_bytes().len().min(START)];
    Format::of_content(start).ok_or_else(|| unknown(start))
}

fn unknown(start: &[u8]) -> ErrorMessage {
    match start {
        [] => "file is empty; use an array of numbers".into(),
        _ => format!("format not recognized; use a {KNOWN} file"),
    }
}

fn read_npy(file: &mut File, len: u64, options: &ReadOptions) -> Result<AnyArray, ErrorMessage> {
    // Some file systems do not support mapping.
    let Ok(map) = FileMap::new(file) else { return npy::read(file, Some(len), options) };
    let all = 0..map.as_bytes().len();
    match npy::map(&map, all)? {
        Some(array) => Ok(array),
        None => npy::read(&mut map.as_bytes(), Some(len), options),
    }
}

/// Reads a source that cannot be mapped or read twice.
fn read_stream(source: &mut dyn Read, format: Option<Format>, options: &ReadOptions) -> Result<AnyArray, ErrorMessage> {
    let mut start = [0; START];
    let found = read_up_to(source, &mut start)?;
    let format = format.or_else(|| Format::of_content(&start[..found]));
    let mut all = start[..found].chain(source);
    match format {
        Some(Format::Npy) => npy::read(&mut all, None, options),
        Some(format @ (Format::Mtx | Format::Csv)) => read_text(format, &mut all, 0, options),
        Some(Format::Npz | Format::Safetensors) => {
            Err("containers cannot be read from a pipe; use a regular file".into())
        }
        None => Err(unknown(&start[..found])),
    }
}

fn read_text(
    format: Format,
    source: &mut dyn Read,
    total: u64,
    options: &ReadOptions,
) -> Result<AnyArray, ErrorMessage> {
    let mut source = BufReader::with_capacity(1 << 20, ProgressReader::new(source, total, options));
    if format == Format::Mtx {
        mtx::read(&mut source, options.memory_limit)
    } else {
        csv::read(&mut source, options.memory_limit)
    }
}
