//! Text formats.

use std::io::{self, BufRead, BufReader, Write};

use tegula::element::Scalar;
use tegula_files::{AnyArray, Array, ErrorMessage, Number};

use crate::{MEMORY_LIMIT, bounded, check_error_message};

type Read = fn(&mut dyn BufRead, u64) -> Result<AnyArray, ErrorMessage>;
type WriteArray<T> = fn(&mut dyn Write, &[usize], &[T]) -> io::Result<()>;

/// Limit of elements that are written; larger matrices are slow and test no more.
const MAX_WRITTEN: usize = 1000;

/// An `.mtx` file: the result does not depend on buffering and round-trips.
pub fn mtx(data: &[u8]) {
    match read(tegula_files::mtx::read, data) {
        Some(AnyArray::F64(array)) => check_written(&array, tegula_files::mtx::write, tegula_files::mtx::read),
        Some(AnyArray::I32(array)) => check_written(&array, tegula_files::mtx::write, tegula_files::mtx::read),
        Some(AnyArray::I64(array)) => check_written(&array, tegula_files::mtx::write, tegula_files::mtx::read),
        Some(other) => panic!("read as {}", other.dtype()),
        None => {}
    }
}

/// A `.csv` file, as [`mtx`].
pub fn csv(data: &[u8]) {
    match read(tegula_files::csv::read, data) {
        Some(AnyArray::F64(array)) => check_written(&array, tegula_files::csv::write, tegula_files::csv::read),
        Some(other) => panic!("read as {}", other.dtype()),
        None => {}
    }
}

/// Reads the data at once and, for one in four lengths, with a small buffer as well.
fn read(read: Read, data: &[u8]) -> Option<AnyArray> {
    let array = bounded(|| read(&mut &*data, MEMORY_LIMIT));
    if !data.len().is_multiple_of(4) {
        return array.inspect_err(|message| check_error_message(message)).ok();
    }
    let mut small_buffer = BufReader::with_capacity(1 + data.len() % 5, data);
    match (array, read(&mut small_buffer, MEMORY_LIMIT)) {
        (Ok(array), Ok(again)) => {
            assert!(same(&array, &again), "another array with a small buffer");
            Some(array)
        }
        (Err(message), Err(again)) => {
            check_error_message(&message);
            assert_eq!(message, again, "another error with a small buffer");
            None
        }
        (array, again) => panic!("read and rejected: {:?}, {:?}", array.err(), again.err()),
    }
}

fn same(left: &AnyArray, right: &AnyArray) -> bool {
    match (left, right) {
        (AnyArray::F64(left), AnyArray::F64(right)) => same_elements(left, right),
        (AnyArray::I32(left), AnyArray::I32(right)) => same_elements(left, right),
        (AnyArray::I64(left), AnyArray::I64(right)) => same_elements(left, right),
        _ => false,
    }
}

/// Whether the bits are equal; all NaN are equal.
fn same_elements<T: Number + Scalar>(left: &Array<T>, right: &Array<T>) -> bool {
    let same = |(x, y): (&T, &T)| x.to_bits() == y.to_bits() || (x.to_f64().is_nan() && y.to_f64().is_nan());
    left.layout == right.layout
        && left.data.len() == right.data.len()
        && left.data.iter().zip(right.data.iter()).all(same)
}

fn check_written<T: Number + Scalar>(array: &Array<T>, write: WriteArray<T>, read: Read) {
    let view = array.matrix().expect("two dimensions");
    let shape = [view.shape().rows, view.shape().cols];
    if array.data.is_empty() || array.data.len() > MAX_WRITTEN {
        return;
    }
    let elements = (0..shape[0]).flat_map(|row| (0..shape[1]).map(move |col| (row, col)));
    let elements: Vec<T> = elements.filter_map(|(row, col)| view.get(0, row, col)).collect();
    let mut text = Vec::new();
    write(&mut text, &shape, &elements).expect("writing to a vector");
    let back = T::downcast(read(&mut &text[..], u64::MAX).expect("the written text")).expect("the same type");
    assert!(same_elements(array, &back), "{}", String::from_utf8_lossy(&text));
}
