//! `.safetensors` containers: a JSON header, then the bytes of the tensors.
//!
//! Tensors are memory-mapped if aligned, as Tegula writes them. The crate of the format checks the
//! header: tensors must be contiguous, without gaps or overlaps, up to the end of the file.

use std::io::{self, Write};

use safetensors::Dtype as Tag;
use safetensors::tensor::{Metadata, TensorInfo};
use serde_json::json;
use tegula_core::nd::NdLayout;

use crate::array::with_number;
use crate::dtype::Dtype;
use crate::file_map::FileMap;
use crate::number::Number;
use crate::options::ReadOptions;
use crate::{AnyArray, Array, ErrorMessage, display, elements, select};

/// Bytes of the header length at the start.
const PRELUDE: usize = 8;
/// Limit of the format for headers, in bytes.
const MAX_HEADER_BYTES: u64 = 100_000_000;
/// Reserved key of the header.
pub(crate) const RESERVED: &str = "__metadata__";

/// Whether the start of a file can be of this format.
pub(crate) fn matches_start(start: &[u8]) -> bool {
    let length = start.first_chunk().copied().map(u64::from_le_bytes);
    length.is_some_and(|length| length <= MAX_HEADER_BYTES) && start.get(PRELUDE) == Some(&b'{')
}

/// Reads the array `name`, or the only array if no name is given.
pub(crate) fn read(map: &FileMap, name: Option<&str>, options: &ReadOptions) -> Result<AnyArray, ErrorMessage> {
    let (metadata, data_start) = metadata(map)?;
    let names = metadata.offset_keys();
    let name = &names[select::select(&names, name)?];
    let info = metadata.info(name).ok_or_else(|| String::from("array not found"))?;
    read_tensor(map, info, data_start, options).map_err(|message| format!("array '{}': {message}", display::name(name)))
}

/// Names of the arrays in a container.
pub(crate) fn names(map: &FileMap) -> Result<Vec<String>, ErrorMessage> {
    Ok(metadata(map)?.0.offset_keys())
}

/// Writes a container with one array, aligned for mapping.
pub(crate) fn write<T: Number>(sink: &mut dyn Write, name: &str, shape: &[usize], data: &[T]) -> io::Result<()> {
    let info = json!({"dtype": tag(T::DTYPE), "shape": shape, "data_offsets": [0, size_of_val(data)]});
    let mut header = json!({ name: info }).to_string();
    // The header may end with spaces; these align the data to 64 bytes.
    let padding = (PRELUDE + header.len()).next_multiple_of(64) - PRELUDE - header.len();
    header.extend(std::iter::repeat_n(' ', padding));
    sink.write_all(&(header.len() as u64).to_le_bytes())?;
    sink.write_all(header.as_bytes())?;
    elements::write(sink, data)
}

/// Reads and checks the header; returns the offset of the data as well.
fn metadata(map: &FileMap) -> Result<(Metadata, usize), ErrorMessage> {
    let bytes = map.as_bytes();
    let no_safetensors =
        || String::from("not a .safetensors file: header not found; save it with safetensors.numpy.save_file");
    let (length, rest) = bytes.split_first_chunk::<PRELUDE>().ok_or_else(no_safetensors)?;
    let length = u64::from_le_bytes(*length);
    if length > MAX_HEADER_BYTES {
        return Err(format!(
            "not a .safetensors file: header of {length} bytes exceeds the limit of {MAX_HEADER_BYTES}"
        ));
    }
    let length = length as usize;
    let header = rest
        .get(..length)
        .ok_or_else(|| format!("header is truncated: {length} bytes are needed, found {}", rest.len()))?;
    // Copy the header: mapped bytes may change.
    let header = header.to_vec();
    let metadata: Metadata = serde_json::from_slice(&header).map_err(|error| corrupt(&error.to_string()))?;
    let (claimed, found) = (metadata.data_len(), rest.len() - length);
    if claimed > found {
        return Err(format!("data is truncated: arrays need {claimed} bytes after the header, found {found}"));
    }
    if claimed < found {
        return Err(corrupt(&format!("arrays need {claimed} bytes after the header, found {found}")));
    }
    Ok((metadata, PRELUDE + length))
}

fn read_tensor(
    map: &FileMap,
    info: &TensorInfo,
    data_start: usize,
    options: &ReadOptions,
) -> Result<AnyArray, ErrorMessage> {
    let (start, end) = (data_start + info.data_offsets.0, data_start + info.data_offsets.1);
    let layout = NdLayout::row_major(&info.shape).map_err(|error| error.to_string())?;
    with_number!(dtype(info.dtype)?, T => {
        let native = cfg!(target_endian = "little") || size_of::<T>() == 1;
        let data = match map.elements::<T>(start, (end - start) / size_of::<T>()) {
            Some(data) if native && start < end => data.into(),
            _ => elements::read::<T>(&mut &map.as_bytes()[start..end], &info.shape, native, options)?.into(),
        };
        Ok(T::into_any(Array { data, layout }))
    })
}

fn tag(dtype: Dtype) -> Tag {
    match dtype {
        Dtype::F64 => Tag::F64,
        Dtype::F32 => Tag::F32,
        Dtype::F16 => Tag::F16,
        Dtype::BF16 => Tag::BF16,
        Dtype::F8E4M3 => Tag::F8_E4M3,
        Dtype::F8E5M2 => Tag::F8_E5M2,
        Dtype::I64 => Tag::I64,
        Dtype::I32 => Tag::I32,
        Dtype::I16 => Tag::I16,
        Dtype::I8 => Tag::I8,
        Dtype::U64 => Tag::U64,
        Dtype::U32 => Tag::U32,
        Dtype::U16 => Tag::U16,
        Dtype::U8 => Tag::U8,
        Dtype::Bool => Tag::BOOL,
    }
}

fn dtype(wanted: Tag) -> Result<Dtype, ErrorMessage> {
    let found = Dtype::ALL.iter().copied().find(|&dtype| tag(dtype) == wanted);
    found.ok_or_else(|| format!("unsupported dtype {wanted}"))
}

fn corrupt(message: &str) -> ErrorMessage {
    format!("header is corrupt: {}; save it again with safetensors", display::name(message))
}
