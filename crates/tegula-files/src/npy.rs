//! `.npy` files: one array, as NumPy stores it.
//!
//! Bytes after the array are ignored, as NumPy ignores them.

use std::io::{self, Read, Write};
use std::ops::Range;

use tegula_core::nd::NdLayout;

use crate::array::with_number;
use crate::header::Header;
use crate::map::FileMap;
use crate::number::Number;
use crate::reading::Reading;
use crate::{AnyArray, Array, Data, Refusal, elements};

/// The array in part of a mapped file, left where it is: `None` unless it is aligned and in this machine's byte order.
pub(crate) fn map(map: &FileMap, region: Range<usize>) -> Result<Option<AnyArray>, Refusal> {
    let mut rest = &map.as_bytes()[region.clone()];
    let (header, header_len) = Header::read(&mut rest)?;
    check_length(&header, rest.len() as u64)?;
    if !is_native(&header) || header.len == 0 {
        return Ok(None);
    }
    let start = region.start + header_len as usize;
    with_number!(header.dtype, T => match map.elements::<T>(start, header.len) {
        Some(data) => hold::<T>(data.into(), &header).map(Some),
        None => Ok(None),
    })
}

/// The array that a source holds; `present` is how many bytes it has, where that is known.
pub(crate) fn read(source: &mut dyn Read, present: Option<u64>, reading: &Reading) -> Result<AnyArray, Refusal> {
    let (header, header_len) = Header::read(source)?;
    if let Some(present) = present {
        check_length(&header, present.saturating_sub(header_len))?;
    }
    with_number!(header.dtype, T => {
        let data = elements::read::<T>(source, &header.shape, is_native(&header), reading)?;
        hold(data.into(), &header)
    })
}

/// Writes an array in C order. `shape` must be that of `data`.
pub(crate) fn write<T: Number>(sink: &mut dyn Write, shape: &[usize], data: &[T]) -> io::Result<()> {
    let header = Header::print(T::DTYPE, shape).ok_or(io::ErrorKind::Unsupported)?;
    sink.write_all(&header)?;
    elements::write(sink, data)
}

fn is_native(header: &Header) -> bool {
    header.dtype.size() == 1 || header.big_endian == cfg!(target_endian = "big")
}

fn check_length(header: &Header, found: u64) -> Result<(), Refusal> {
    if found >= header.bytes() { Ok(()) } else { Err(elements::truncated(&header.shape, header.dtype, found)) }
}

fn hold<T: Number>(data: Data<T>, header: &Header) -> Result<AnyArray, Refusal> {
    let order = if header.fortran { NdLayout::column_major } else { NdLayout::row_major };
    let layout = order(&header.shape).map_err(|error| error.to_string())?;
    Ok(T::hold(Array { data, layout }))
}
