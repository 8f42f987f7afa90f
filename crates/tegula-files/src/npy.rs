//! Reading and writing `.npy` files.
//!
//! Bytes after the array are ignored, as NumPy ignores them.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

use tegula::Matrix;
use tegula::element::{Type, bf16, f16};
use tegula::nd::NdLayout;

use crate::cast::Number;
use crate::header::{Header, read_up_to};
use crate::{AnyArray, Array, Error, Refusal, Result, output};

/// Bytes that are made room for and read at a time. They stay in the cache between the two.
const CHUNK: usize = 1 << 20;

/// Reads the array in a file.
///
/// # Errors
/// Where the file cannot be read or is no `.npy` file of numbers.
pub fn read(path: &Path) -> Result<AnyArray> {
    read_or_refuse(path).map_err(|why| Error { file: path.display().to_string(), why })
}

/// Writes a matrix so that the file is either complete or as it was before.
///
/// # Errors
/// Where the file cannot be written.
pub fn write<T: Number>(path: &Path, matrix: &Matrix<T>) -> Result<()> {
    output::replace(path, |sink| write_to(sink, matrix))
}

fn read_or_refuse(path: &Path) -> Result<AnyArray, Refusal> {
    let mut file = open(path)?;
    let (header, start) = Header::read(&mut file)?;
    let metadata = file.metadata().map_err(|error| format!("cannot be read: {error}"))?;
    if metadata.is_file() {
        check_length(&header, metadata.len().saturating_sub(start))?;
    }
    match header.ty {
        Type::F64 => read_array::<f64>(&mut file, &header),
        Type::F32 => read_array::<f32>(&mut file, &header),
        Type::F16 => read_array::<f16>(&mut file, &header),
        Type::BF16 => read_array::<bf16>(&mut file, &header),
        Type::I32 => read_array::<i32>(&mut file, &header),
        Type::I8 => read_array::<i8>(&mut file, &header),
        other => Err(format!("holds {other}, which no product takes")),
    }
}

fn open(path: &Path) -> Result<File, Refusal> {
    let refuse = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => "there is no such file".into(),
        _ => format!("cannot be read: {error}"),
    };
    if path.metadata().map_err(refuse)?.is_dir() {
        return Err("is a directory; give a .npy file".into());
    }
    File::open(path).map_err(refuse)
}

fn check_length(header: &Header, found: u64) -> Result<(), Refusal> {
    let Header { ty, rows, cols, len, .. } = header;
    let expected = (len * ty.size()) as u64;
    if found >= expected {
        return Ok(());
    }
    Err(format!("is truncated: {rows}×{cols} {ty} takes {expected} bytes after the header, {found} are there"))
}

fn read_array<T: Number>(source: &mut impl Read, header: &Header) -> Result<AnyArray, Refusal> {
    let mut data = read_elements::<T>(source, header)?;
    if header.big_endian != cfg!(target_endian = "big") {
        data.iter_mut().for_each(|element| bytemuck::bytes_of_mut(element).reverse());
    }
    Ok(T::hold(Array { data, layout: layout(header)? }))
}

fn layout(header: &Header) -> Result<NdLayout, Refusal> {
    let shape = [header.rows, header.cols];
    let layout = if header.fortran { NdLayout::column_major(&shape) } else { NdLayout::row_major(&shape) };
    layout.map_err(|error| error.to_string())
}

/// Reads straight into the vector. Room is made as bytes arrive, so a pipe whose header lies costs no memory.
fn read_elements<T: Number>(source: &mut impl Read, header: &Header) -> Result<Vec<T>, Refusal> {
    let mut data: Vec<T> = Vec::new();
    while data.len() < header.len {
        let start = data.len();
        let end = header.len.min(start + CHUNK / size_of::<T>());
        grow(&mut data, end, header.len)?;
        let bytes = bytemuck::cast_slice_mut(&mut data[start..]);
        let found = read_up_to(source, bytes)?;
        if found < bytes.len() {
            check_length(header, (start * size_of::<T>() + found) as u64)?;
        }
    }
    Ok(data)
}

fn grow<T: Number>(data: &mut Vec<T>, end: usize, total: usize) -> Result<(), Refusal> {
    let no_room = |_| format!("does not fit in memory: it takes {} bytes", total * size_of::<T>());
    data.try_reserve(end - data.len()).map_err(no_room)?;
    data.resize(end, T::ZERO);
    Ok(())
}

fn write_to<T: Number>(sink: &mut dyn Write, matrix: &Matrix<T>) -> io::Result<()> {
    sink.write_all(&Header::print(T::TYPE, matrix.shape().rows, matrix.shape().cols))?;
    if cfg!(target_endian = "little") {
        return sink.write_all(bytemuck::cast_slice(matrix.as_slice()));
    }
    let mut sink = io::BufWriter::new(sink);
    for element in matrix.as_slice() {
        let bits = element.to_bits().to_le_bytes();
        sink.write_all(&bits[..size_of::<T>()])?;
    }
    sink.flush()
}
