//! `.npy` files: one array in NumPy's format.
//!
//! Bytes after the array are ignored, as in NumPy.

use std::io::{self, Read, Write};
use std::ops::Range;

use tegula_core::nd::NdLayout;

use crate::array::with_number;
use crate::file_map::FileMap;
use crate::header::Header;
use crate::number::Number;
use crate::options::ReadOptions;
use crate::{AnyArray, Array, Data, ErrorMessage, elements};

/// Maps the array in a region of a file; `None` unless it is aligned and in native byte order.
pub(crate) fn map(map: &FileMap, region: Range<usize>) -> Result<Option<AnyArray>, ErrorMessage> {
    let mut rest = &map.as_bytes()[region.clone()];
    let (header, header_len) = Header::read(&mut rest)?;
    check_length(&header, rest.len() as u64)?;
    if !is_native(&header) || header.len == 0 {
        return Ok(None);
    }
    let start = region.start + header_len as usize;
    with_number!(header.dtype, T => match map.elements::<T>(start, header.len) {
        Some(data) => with_layout::<T>(data.into(), &header).map(Some),
        None => Ok(None),
    })
}

/// Reads an array; `available` is the number of bytes in the source, if known.
pub(crate) fn read(
    source: &mut dyn Read,
    available: Option<u64>,
    options: &ReadOptions,
) -> Result<AnyArray, ErrorMessage> {
    let (header, header_len) = Header::read(source)?;
    if let Some(available) = available {
        check_length(&header, available.saturating_sub(header_len))?;
    }
    with_number!(header.dtype, T => {
        let data = elements::read::<T>(source, &header.shape, is_native(&header), options)?;
        with_layout(data.into(), &header)
    })
}

/// Writes an array in C order; `shape` is the shape of `data`.
pub(crate) fn write<T: Number>(sink: &mut dyn Write, shape: &[usize], data: &[T]) -> io::Result<()> {
    let header = Header::format(T::DTYPE, shape).ok_or(io::ErrorKind::Unsupported)?;
    sink.write_all(&header)?;
    elements::write(sink, data)
}

fn is_native(header: &Header) -> bool {
    header.dtype.size() == 1 || header.big_endian == cfg!(target_endian = "big")
}

fn check_length(header: &Header, found: u64) -> Result<(), ErrorMessage> {
    if found >= header.bytes() { Ok(()) } else { Err(elements::truncated(&header.shape, header.dtype, found)) }
}

fn with_layout<T: Number>(data: Data<T>, header: &Header) -> Result<AnyArray, ErrorMessage> {
    let order = if header.fortran { NdLayout::column_major } else { NdLayout::row_major };
    let layout = order(&header.shape).map_err(|error| error.to_string())?;
    Ok(T::into_any(Array { data, layout }))
}
