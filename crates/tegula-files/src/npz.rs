//! `.npz` containers: zip archives of `.npy` files, as `numpy.savez` and `numpy.savez_compressed` write them.
//!
//! Arrays that are stored stay where they are if they are aligned, as those that Tegula writes are. What is compressed is unpacked
//! into memory. The checksum is compared either way. Names are only names here: nothing is ever
//! unpacked to a path.

use std::io::{self, Cursor, Read, Seek, Write};
use std::ops::Range;

use zip::result::ZipError;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipArchive, ZipWriter};

use crate::map::FileMap;
use crate::number::Number;
use crate::reading::Reading;
use crate::{AnyArray, Refusal, choose, npy, show};

/// The suffix that NumPy adds to an array's name.
const SUFFIX: &str = ".npy";
/// Deflate makes at most this many bytes of one.
const MOST_INFLATION: u64 = 1032;

type Archive<'a> = ZipArchive<Cursor<&'a [u8]>>;

/// The array of a name in a container; the only one where there is no name.
pub(crate) fn read(map: &FileMap, name: Option<&str>, reading: &Reading) -> Result<AnyArray, Refusal> {
    let mut archive = open(map)?;
    let (indices, names): (Vec<usize>, Vec<String>) = arrays(&archive)?.into_iter().unzip();
    let name =
        name.map(|name| name.strip_suffix(SUFFIX).filter(|short| names.iter().any(|x| x == short)).unwrap_or(name));
    let chosen = choose::choose(&names, name)?;
    let within = |why| format!("array '{}' {why}", show::name(&names[chosen]));
    read_entry(map, &mut archive, indices[chosen], reading).map_err(within)
}

/// The names of the arrays in a container.
pub(crate) fn names(map: &FileMap) -> Result<Vec<String>, Refusal> {
    Ok(arrays(&open(map)?)?.into_iter().map(|(_, name)| name).collect())
}

/// Writes a container of one array, which can be mapped.
pub(crate) fn write<T: Number>(
    sink: &mut (impl Write + Seek),
    name: &str,
    shape: &[usize],
    data: &[T],
) -> io::Result<()> {
    // Room for the headers, too, within the four bytes of a plain archive's sizes.
    let large = size_of_val(data) as u64 > u64::from(u32::MAX) - (1 << 16);
    let options = SimpleFileOptions::default().compression_method(CompressionMethod::Stored);
    let mut archive = ZipWriter::new(sink);
    archive.start_file(format!("{name}{SUFFIX}"), options.with_alignment(64).large_file(large))?;
    npy::write(&mut archive, shape, data)?;
    archive.finish()?;
    Ok(())
}

fn open(map: &FileMap) -> Result<Archive<'_>, Refusal> {
    let archive = ZipArchive::new(Cursor::new(map.as_bytes())).map_err(|error| match error {
        ZipError::InvalidArchive(_) if !map.as_bytes().starts_with(b"PK") => {
            "is not a .npz file (it is no zip archive); save the arrays with np.savez".into()
        }
        error => damaged(&error),
    })?;
    if archive.has_duplicate_names() {
        return Err("is damaged: two of its arrays have the same name; save it again with np.savez".into());
    }
    Ok(archive)
}

/// The arrays by position and name. Entries that are no `.npy` files are none.
fn arrays(archive: &Archive) -> Result<Vec<(usize, String)>, Refusal> {
    let mut arrays = Vec::new();
    for index in 0..archive.len() {
        let entry = archive.by_index_data(index).map_err(|error| damaged(&error))?;
        let name = String::from_utf8_lossy(entry.name_raw());
        arrays.extend(name.strip_suffix(SUFFIX).map(|name| (index, name.to_string())));
    }
    Ok(arrays)
}

fn read_entry(map: &FileMap, archive: &mut Archive, index: usize, reading: &Reading) -> Result<AnyArray, Refusal> {
    let entry = archive.by_index_raw(index).map_err(|error| damaged(&error))?;
    if entry.encrypted() {
        return Err("is encrypted; save it without a password".into());
    }
    let (method, size, packed, checksum) = (entry.compression(), entry.size(), entry.compressed_size(), entry.crc32());
    let region = entry.data_start().and_then(|start| region(map, start, packed));
    drop(entry);
    let region = region.ok_or_else(|| format!("is truncated: it claims {packed} bytes, more than the file has"))?;
    match method {
        CompressionMethod::Stored if size != packed => {
            Err(format!("is damaged: it is not compressed, yet {size} bytes are claimed to be stored as {packed}"))
        }
        CompressionMethod::Stored => match npy::map(map, region.clone())? {
            Some(_) if crc32fast::hash(&map.as_bytes()[region]) != checksum => {
                Err("is damaged: its checksum is another; save it again with np.savez".into())
            }
            Some(array) => Ok(array),
            None => unpack(archive, index, reading),
        },
        CompressionMethod::Deflated if size / MOST_INFLATION > packed => {
            Err(format!("is damaged: {size} bytes are claimed to be compressed to {packed}, which cannot be"))
        }
        CompressionMethod::Deflated => unpack(archive, index, reading),
        other => Err(format!("is compressed by {other}; save it again with np.savez_compressed")),
    }
}

/// The bytes of an entry in the file.
fn region(map: &FileMap, start: u64, len: u64) -> Option<Range<usize>> {
    let end = start.checked_add(len).filter(|&end| end <= map.as_bytes().len() as u64)?;
    Some(usize::try_from(start).ok()?..usize::try_from(end).ok()?)
}

fn unpack(archive: &mut Archive, index: usize, reading: &Reading) -> Result<AnyArray, Refusal> {
    let mut entry = archive.by_index(index).map_err(|error| damaged(&error))?;
    let size = entry.size();
    let array = npy::read(&mut entry, Some(size), reading)?;
    // The checksum is compared when the end is reached.
    match entry.read(&mut [0]) {
        Ok(0) => Ok(array),
        Ok(_) => Err("is damaged: bytes follow the array; save it again with np.savez_compressed".into()),
        Err(error) => Err(format!("is damaged: {}; save it again with np.savez_compressed", show::error(&error))),
    }
}

fn damaged(error: &ZipError) -> Refusal {
    let why = match error {
        ZipError::InvalidArchive(why) => why.to_string(),
        ZipError::UnsupportedArchive(why) => why.to_string(),
        ZipError::Io(error) => error.to_string(),
        other => other.to_string(),
    };
    format!("is damaged or no .npz file ({}); save it again with np.savez", show::name(&why))
}
