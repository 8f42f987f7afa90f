//! Conversion of elements from and to bytes, in chunks.

use std::io::{self, Read, Write};

use tegula_core::nd;

use crate::ErrorMessage;
use crate::dtype::Dtype;
use crate::number::Number;
use crate::options::{ReadOptions, read_up_to};

/// Bytes per chunk, which stay in the cache between allocation and use.
const CHUNK: usize = 1 << 20;

/// Reads the elements of `shape` into a vector.
///
/// The vector grows as bytes arrive, so a corrupt header in a pipe costs no memory.
pub(crate) fn read<T: Number>(
    source: &mut dyn Read,
    shape: &[usize],
    native: bool,
    options: &ReadOptions,
) -> Result<Vec<T>, ErrorMessage> {
    let too_many = || format!("does not fit in memory: {} {}", nd::display(shape), T::DTYPE);
    let len = nd::len(shape).map_err(|_| too_many())?;
    let total = len.checked_mul(size_of::<T>()).ok_or_else(too_many)? as u64;
    options.check_memory(total)?;
    let mut data: Vec<T> = Vec::new();
    while data.len() < len {
        let start = data.len();
        grow(&mut data, len.min(start + CHUNK / size_of::<T>()), len)?;
        let bytes = bytemuck::cast_slice_mut(&mut data[start..]);
        let found = read_up_to(source, bytes)?;
        let done = (start * size_of::<T>() + found) as u64;
        if found < bytes.len() {
            return Err(truncated(shape, T::DTYPE, done));
        }
        (options.progress)(done, total);
    }
    if !native {
        swap_bytes(&mut data);
    }
    Ok(data)
}

/// Writes elements in little-endian order.
pub(crate) fn write<T: Number>(sink: &mut dyn Write, data: &[T]) -> io::Result<()> {
    if cfg!(target_endian = "little") {
        return sink.write_all(bytemuck::cast_slice(data));
    }
    for elements in data.chunks(CHUNK / size_of::<T>()) {
        let mut chunk = elements.to_vec();
        swap_bytes(&mut chunk);
        sink.write_all(bytemuck::cast_slice(&chunk))?;
    }
    Ok(())
}

/// Error message of a source with `found` instead of the expected bytes.
pub(crate) fn truncated(shape: &[usize], dtype: Dtype, found: u64) -> ErrorMessage {
    let expected = shape.iter().map(|&x| x as u128).product::<u128>() * dtype.size() as u128;
    let shape = nd::display(shape);
    format!("data is truncated: {shape} {dtype} needs {expected} bytes after the header, found {found}")
}

/// Grows a vector to `end` elements, doubling its capacity up to `len`.
fn grow<T: Number>(data: &mut Vec<T>, end: usize, len: usize) -> Result<(), ErrorMessage> {
    let wanted = end.max(2 * data.capacity()).min(len);
    let out_of_memory = |_| format!("does not fit in memory: {} bytes are needed", len * size_of::<T>());
    data.try_reserve_exact(wanted - data.len()).map_err(out_of_memory)?;
    data.resize(end, T::zeroed());
    Ok(())
}

fn swap_bytes<T: Number>(data: &mut [T]) {
    data.iter_mut().for_each(|element| bytemuck::bytes_of_mut(element).reverse());
}
