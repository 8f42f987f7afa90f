//! `.npz` containers: zip archives of `.npy` files.
//!
//! The formats are those of `numpy.savez` and `numpy.savez_compressed`. Uncompressed arrays are
//! memory-mapped if aligned, as Tegula writes them. Compressed arrays are unpacked into memory.
//! Checksums are verified in both cases. Names are never used as paths.

use std::io::{self, Cursor, Read, Seek, Write};
use std::ops::Range;

use zip::result::ZipError;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipArchive, ZipWriter};

use crate::file_map::FileMap;
use crate::number::Number;
use crate::options::ReadOptions;
use crate::{AnyArray, ErrorMessage, display, npy, select};

/// Suffix that NumPy appends to array names.
const SUFFIX: &str = ".npy";
/// Maximum expansion ratio of Deflate.
const MAX_EXPANSION: u64 = 1032;

type Archive<'a> = ZipArchive<Cursor<&'a [u8]>>;

/// Reads the array `name`, or the only array if no name is given.
pub(crate) fn read(map: &FileMap, name: Option<&str>, options: &ReadOptions) -> Result<AnyArray, ErrorMessage> {
    let mut archive = open(map)?;
    let (indices, names): (Vec<usize>, Vec<String>) = arrays(&archive)?.into_iter().unzip();
    let name =
        name.map(|name| name.strip_suffix(SUFFIX).filter(|short| names.iter().any(|x| x == short)).unwrap_or(name));
    let selected = select::select(&names, name)?;
    let within = |message| format!("array '{}': {message}", display::name(&names[selected]));
    read_entry(map, &mut archive, indices[selected], options).map_err(within)
}

/// Names of the arrays in a container.
pub(crate) fn names(map: &FileMap) -> Result<Vec<String>, ErrorMessage> {
    Ok(arrays(&open(map)?)?.into_iter().map(|(_, name)| name).collect())
}

/// Writes a container with one array, aligned for mapping.
pub(crate) fn write<T: Number>(
    sink: &mut (impl Write + Seek),
    name: &str,
    shape: &[usize],
    data: &[T],
) -> io::Result<()> {
    // Leaves space for the headers within the 32-bit sizes of a plain archive.
    let large = size_of_val(data) as u64 > u64::from(u32::MAX) - (1 << 16);
    let options = SimpleFileOptions::default().compression_method(CompressionMethod::Stored);
    let mut archive = ZipWriter::new(sink);
    archive.start_file(format!("{name}{SUFFIX}"), options.with_alignment(64).large_file(large))?;
    npy::write(&mut archive, shape, data)?;
    archive.finish()?;
    Ok(())
}

fn open(map: &FileMap) -> Result<Archive<'_>, ErrorMessage> {
    let archive = ZipArchive::new(Cursor::new(map.as_bytes())).map_err(|error| match error {
        ZipError::InvalidArchive(_) if !map.as_bytes().starts_with(b"PK") => {
            "not a .npz file: not a zip archive; save the arrays with np.savez".into()
        }
        error => corrupt(&error),
    })?;
    if archive.has_duplicate_names() {
        return Err("archive is corrupt: duplicate array names; save it again with np.savez".into());
    }
    Ok(archive)
}

/// Indices and names of the arrays; entries other than `.npy` files are ignored.
fn arrays(archive: &Archive) -> Result<Vec<(usize, String)>, ErrorMessage> {
    let mut arrays = Vec::new();
    for index in 0..archive.len() {
        let entry = archive.by_index_data(index).map_err(|error| corrupt(&error))?;
        let name = String::from_utf8_lossy(entry.name_raw());
        arrays.extend(name.strip_suffix(SUFFIX).map(|name| (index, name.to_string())));
    }
    Ok(arrays)
}

fn read_entry(
    map: &FileMap,
    archive: &mut Archive,
    index: usize,
    options: &ReadOptions,
) -> Result<AnyArray, ErrorMessage> {
    let entry = archive.by_index_raw(index).map_err(|error| corrupt(&error))?;
    if entry.encrypted() {
        return Err("encryption is not supported; save the archive without a password".into());
    }
    let (method, size, packed, checksum) = (entry.compression(), entry.size(), entry.compressed_size(), entry.crc32());
    let region = entry.data_start().and_then(|start| region(map, start, packed));
    drop(entry);
    let region =
        region.ok_or_else(|| format!("data is truncated: the entry claims {packed} bytes, more than the file has"))?;
    match method {
        CompressionMethod::Stored if size != packed => {
            Err(format!("entry is corrupt: it claims {packed} bytes for {size} uncompressed bytes"))
        }
        CompressionMethod::Stored => match npy::map(map, region.clone())? {
            Some(_) if crc32fast::hash(&map.as_bytes()[region]) != checksum => {
                Err("checksum mismatch; save it again with np.savez".into())
            }
            Some(array) => Ok(array),
            None => unpack(archive, index, options),
        },
        CompressionMethod::Deflated if size / MAX_EXPANSION > packed => {
            Err(format!("entry is corrupt: it claims that {size} bytes are compressed to {packed}"))
        }
        CompressionMethod::Deflated => unpack(archive, index, options),
        other => Err(format!("unsupported compression {other}; save it again with np.savez_compressed")),
    }
}

/// Bytes of an entry in the file.
fn region(map: &FileMap, start: u64, len: u64) -> Option<Range<usize>> {
    let end = start.checked_add(len).filter(|&end| end <= map.as_bytes().len() as u64)?;
    Some(usize::try_from(start).ok()?..usize::try_from(end).ok()?)
}

fn unpack(archive: &mut Archive, index: usize, options: &ReadOptions) -> Result<AnyArray, ErrorMessage> {
    let mut entry = archive.by_index(index).map_err(|error| corrupt(&error))?;
    let size = entry.size();
    let array = npy::read(&mut entry, Some(size), options)?;
    // The checksum is verified at the end of the entry.
    match entry.read(&mut [0]) {
        Ok(0) => Ok(array),
        Ok(_) => Err("entry is corrupt: bytes follow the array; save it again with np.savez_compressed".into()),
        Err(error) => {
            Err(format!("entry is corrupt: {}; save it again with np.savez_compressed", display::error(&error)))
        }
    }
}

fn corrupt(error: &ZipError) -> ErrorMessage {
    let message = match error {
        ZipError::InvalidArchive(message) => message.to_string(),
        ZipError::UnsupportedArchive(message) => message.to_string(),
        ZipError::Io(error) => error.to_string(),
        other => other.to_string(),
    };
    format!("not a .npz file or archive is corrupt: {}; save it again with np.savez", display::name(&message))
}
