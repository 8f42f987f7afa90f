//! Numbers from bytes and to bytes, a piece at a time.

use std::io::{self, Read, Write};

use tegula_core::nd;

use crate::Refusal;
use crate::dtype::Dtype;
use crate::number::Number;
use crate::reading::{Reading, read_up_to};

/// Bytes that are made room for and read at a time. They stay in the cache between the two.
const CHUNK: usize = 1 << 20;

/// Reads as many elements as the shape has, straight into a vector. Room is made as bytes arrive, so a pipe whose header lies
/// costs no memory.
pub(crate) fn read<T: Number>(
    source: &mut dyn Read,
    shape: &[usize],
    native: bool,
    reading: &Reading,
) -> Result<Vec<T>, Refusal> {
    let too_many = || format!("does not fit in memory: {} {}", nd::display(shape), T::DTYPE);
    let len = nd::len(shape).map_err(|_| too_many())?;
    let total = len.checked_mul(size_of::<T>()).ok_or_else(too_many)? as u64;
    reading.check_room(total)?;
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
        (reading.progress)(done, total);
    }
    if !native {
        swap_bytes(&mut data);
    }
    Ok(data)
}

/// Writes the elements, the least significant byte first.
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

/// The refusal of a source that ends too early.
pub(crate) fn truncated(shape: &[usize], dtype: Dtype, found: u64) -> Refusal {
    let expected = shape.iter().map(|&x| x as u128).product::<u128>() * dtype.size() as u128;
    let shape = nd::display(shape);
    format!("is truncated: {shape} {dtype} takes {expected} bytes after the header, {found} are there")
}

/// Makes room by doubling, but for no more than all.
fn grow<T: Number>(data: &mut Vec<T>, end: usize, len: usize) -> Result<(), Refusal> {
    let wanted = end.max(2 * data.capacity()).min(len);
    let no_room = |_| format!("does not fit in memory: it takes {} bytes", len * size_of::<T>());
    data.try_reserve_exact(wanted - data.len()).map_err(no_room)?;
    data.resize(end, T::zeroed());
    Ok(())
}

fn swap_bytes<T: Number>(data: &mut [T]) {
    data.iter_mut().for_each(|element| bytemuck::bytes_of_mut(element).reverse());
}
