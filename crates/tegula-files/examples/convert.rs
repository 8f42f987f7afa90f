//! Converts an array from one file format, and number type, to another: `convert IN OUT [DTYPE]`.
//!
//! The formats are those of the extensions; `-` is standard input or output, and `file.npz:name` an
//! array in a container.

use std::process::ExitCode;

use tegula_core::nd::NdLayout;
use tegula_files::{AnyArray, Array, ArrayPath, Number, ReadOptions, WriteOptions, check_writable, read, write};

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let (from, to, dtype) = match &arguments[..] {
        [from, to] => (from, to, None),
        [from, to, dtype] => (from, to, Some(dtype.to_string_lossy())),
        _ => {
            eprintln!("usage: convert IN OUT [DTYPE]");
            return ExitCode::from(2);
        }
    };
    match convert(&ArrayPath::parse(from), &ArrayPath::parse(to), dtype.as_deref()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("error: {message}");
            ExitCode::FAILURE
        }
    }
}

fn convert(from: &ArrayPath, to: &ArrayPath, dtype: Option<&str>) -> Result<(), String> {
    let mut array = read(from, &ReadOptions::default()).map_err(|error| error.to_string())?;
    if let Some(dtype) = dtype {
        array = array.cast(dtype.parse()?)?;
    }
    check_writable(to, array.dtype(), array.layout().shape.len()).map_err(|error| error.to_string())?;
    match &array {
        AnyArray::F64(array) => save(to, array),
        AnyArray::F32(array) => save(to, array),
        AnyArray::F16(array) => save(to, array),
        AnyArray::BF16(array) => save(to, array),
        AnyArray::F8E4M3(array) => save(to, array),
        AnyArray::F8E5M2(array) => save(to, array),
        AnyArray::I64(array) => save(to, array),
        AnyArray::I32(array) => save(to, array),
        AnyArray::I16(array) => save(to, array),
        AnyArray::I8(array) => save(to, array),
        AnyArray::U64(array) => save(to, array),
        AnyArray::U32(array) => save(to, array),
        AnyArray::U16(array) => save(to, array),
        AnyArray::U8(array) => save(to, array),
        AnyArray::Bool(array) => save(to, array),
    }
}

fn save<T: Number>(to: &ArrayPath, array: &Array<T>) -> Result<(), String> {
    let NdLayout { shape, .. } = &array.layout;
    let in_order = NdLayout::row_major(shape).is_ok_and(|order| order == array.layout);
    let data = if in_order { None } else { Some(in_c_order(array)) };
    write(to, shape, data.as_deref().unwrap_or(&array.data), &WriteOptions::default())
        .map_err(|error| error.to_string())
}

/// The elements with the last axis running fastest.
fn in_c_order<T: Number>(array: &Array<T>) -> Vec<T> {
    let NdLayout { shape, offset, strides } = &array.layout;
    let mut index = vec![0usize; shape.len()];
    let at = |index: &[usize]| index.iter().zip(strides).fold(*offset, |at, (&i, &stride)| at + i * stride as usize);
    let mut next = || {
        let element = array.data[at(&index)];
        for axis in (0..shape.len()).rev() {
            index[axis] += 1;
            if index[axis] < shape[axis] {
                break;
            }
            index[axis] = 0;
        }
        element
    };
    (0..array.data.len()).map(|_| next()).collect()
}
