//! Formats that are read from files.

use std::io::Write;
use std::path::Path;

use tegula::element::Scalar;
use tegula_files::{AnyArray, Array};

use crate::{bounded, check_refusal};

/// A `.npy` file: what is read has all the elements that its layout says.
pub fn npy(data: &[u8]) {
    on_file(".npy", data, |path| match bounded(|| tegula_files::npy::read(path)) {
        Ok(array) => check(&array),
        Err(error) => check_refusal(&error.why),
    });
}

/// Hands the data over as a file.
fn on_file(extension: &str, data: &[u8], work: impl FnOnce(&Path)) {
    let mut file = tempfile::Builder::new().suffix(extension).tempfile().expect("a temporary file");
    file.write_all(data).expect("room for a temporary file");
    work(file.path());
}

/// Checks that an array is what its layout says, first element to last.
fn check(array: &AnyArray) {
    fn elements<T: Scalar>(array: &Array<T>) {
        let len = array.layout.len().expect("a layout that was checked");
        assert_eq!(array.data.len(), len, "{:?}", array.layout);
        let reach: isize =
            array.layout.shape.iter().zip(&array.layout.strides).map(|(&n, &s)| (n as isize - 1) * s).sum();
        assert!(len == 0 || reach + 1 == len as isize, "{:?}", array.layout);
    }
    match array {
        AnyArray::F64(array) => elements(array),
        AnyArray::F32(array) => elements(array),
        AnyArray::F16(array) => elements(array),
        AnyArray::BF16(array) => elements(array),
        AnyArray::I32(array) => elements(array),
        AnyArray::I8(array) => elements(array),
    }
}
