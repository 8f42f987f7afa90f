//! `.safetensors` containers: a JSON header, then the tensors' bytes.
//!
//! Tensors stay where they are if they are aligned, as those that Tegula writes are. The header is checked by the format's own
//! crate: the tensors must follow each other without gap or overlap and end where the file ends.

use std::io::{self, Write};

use safetensors::Dtype as Tag;
use safetensors::tensor::{Metadata, TensorInfo};
use serde_json::json;
use tegula_core::nd::NdLayout;

use crate::array::with_number;
use crate::dtype::Dtype;
use crate::map::FileMap;
use crate::number::Number;
use crate::reading::Reading;
use crate::{AnyArray, Array, Refusal, choose, elements, show};

/// The header's length comes first, in so many bytes.
const PRELUDE: usize = 8;
/// The format allows no longer header.
const LONGEST: u64 = 100_000_000;
/// The name of what is no tensor.
pub(crate) const RESERVED: &str = "__metadata__";

/// Whether a file that starts so can be one of this format.
pub(crate) fn starts_so(start: &[u8]) -> bool {
    let length = start.first_chunk().copied().map(u64::from_le_bytes);
    length.is_some_and(|length| length <= LONGEST) && start.get(PRELUDE) == Some(&b'{')
}

/// The array of a name in a container; the only one where there is no name.
pub(crate) fn read(map: &FileMap, name: Option<&str>, reading: &Reading) -> Result<AnyArray, Refusal> {
    let (metadata, data_start) = metadata(map)?;
    let names = metadata.offset_keys();
    let name = &names[choose::choose(&names, name)?];
    let info = metadata.info(name).ok_or_else(|| String::from("holds no such array"))?;
    read_tensor(map, info, data_start, reading).map_err(|why| format!("array '{}' {why}", show::name(name)))
}

/// The names of the arrays in a container.
pub(crate) fn names(map: &FileMap) -> Result<Vec<String>, Refusal> {
    Ok(metadata(map)?.0.offset_keys())
}

/// Writes a container of one array, which can be mapped.
pub(crate) fn write<T: Number>(sink: &mut dyn Write, name: &str, shape: &[usize], data: &[T]) -> io::Result<()> {
    let info = json!({"dtype": tag(T::DTYPE), "shape": shape, "data_offsets": [0, size_of_val(data)]});
    let mut header = json!({ name: info }).to_string();
    // Spaces may follow the header; with so many the data starts at a multiple of 64.
    let padding = (PRELUDE + header.len()).next_multiple_of(64) - PRELUDE - header.len();
    header.extend(std::iter::repeat_n(' ', padding));
    sink.write_all(&(header.len() as u64).to_le_bytes())?;
    sink.write_all(header.as_bytes())?;
    elements::write(sink, data)
}

/// What the header says, checked, and where the data starts.
fn metadata(map: &FileMap) -> Result<(Metadata, usize), Refusal> {
    let bytes = map.as_bytes();
    let no_safetensors =
        || String::from("is not a .safetensors file: it has no header; save it with safetensors.numpy.save_file");
    let (length, rest) = bytes.split_first_chunk::<PRELUDE>().ok_or_else(no_safetensors)?;
    let length = u64::from_le_bytes(*length);
    if length > LONGEST {
        return Err(format!("is not a .safetensors file, or damaged: it claims a header of {length} bytes"));
    }
    let length = length as usize;
    let header = rest
        .get(..length)
        .ok_or_else(|| format!("is truncated: its header takes {length} bytes, {} are there", rest.len()))?;
    // A copy, since what is mapped may change.
    let header = header.to_vec();
    let metadata: Metadata = serde_json::from_slice(&header).map_err(|error| damaged(&error.to_string()))?;
    let (claimed, found) = (metadata.data_len(), rest.len() - length);
    if claimed > found {
        return Err(format!("is truncated: its arrays take {claimed} bytes after the header, {found} are there"));
    }
    if claimed < found {
        return Err(damaged(&format!("its arrays take {claimed} bytes after the header, {found} are there")));
    }
    Ok((metadata, PRELUDE + length))
}

fn read_tensor(map: &FileMap, info: &TensorInfo, data_start: usize, reading: &Reading) -> Result<AnyArray, Refusal> {
    let (start, end) = (data_start + info.data_offsets.0, data_start + info.data_offsets.1);
    let layout = NdLayout::row_major(&info.shape).map_err(|error| error.to_string())?;
    with_number!(dtype(info.dtype)?, T => {
        let native = cfg!(target_endian = "little") || size_of::<T>() == 1;
        let data = match map.elements::<T>(start, (end - start) / size_of::<T>()) {
            Some(data) if native && start < end => data.into(),
            _ => elements::read::<T>(&mut &map.as_bytes()[start..end], &info.shape, native, reading)?.into(),
        };
        Ok(T::hold(Array { data, layout }))
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

fn dtype(wanted: Tag) -> Result<Dtype, Refusal> {
    let found = Dtype::ALL.iter().copied().find(|&dtype| tag(dtype) == wanted);
    found.ok_or_else(|| format!("holds numbers of the type {wanted}, which Tegula does not read"))
}

fn damaged(why: &str) -> Refusal {
    format!("is damaged: {}; save it again with safetensors", show::name(why))
}
