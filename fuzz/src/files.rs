//! File formats, and array paths of command lines.

use std::ffi::OsStr;
use std::io::Write;
use std::path::Path;

use tegula_files::{AnyArray, ArrayPath, Dtype, ReadOptions, read};

use crate::{MEMORY_LIMIT, bounded, check_error_message};

/// A `.npy` file.
pub fn npy(data: &[u8]) {
    on_file(".npy", data, |path| check_read(path, None));
}

/// An `.npz` archive: its only array, and the array named `a`.
pub fn npz(data: &[u8]) {
    on_file(".npz", data, check_named);
}

/// A `.safetensors` file, as [`npz`].
///
/// In an input with a line feed the first line is a header, and its length is prepended. Otherwise
/// few mutations of a header would match its length.
pub fn safetensors(data: &[u8]) {
    let mut lines = data.splitn(2, |&byte| byte == b'\n');
    match (lines.next(), lines.next()) {
        (Some(header), Some(rest)) => {
            let file = [&(header.len() as u64).to_le_bytes(), header, rest].concat();
            on_file(".safetensors", &file, check_named);
        }
        _ => on_file(".safetensors", data, check_named),
    }
}

/// An array path of a command line: its parts are those of the text, and messages can show it.
pub fn array_path(data: &[u8]) {
    let text = argument(data);
    let array_path = ArrayPath::parse(text);
    if let ArrayPath::File { path, name } = &array_path {
        let mut whole = path.clone().into_os_string();
        name.iter().for_each(|name| whole.push(format!(":{name}")));
        assert_eq!(whole, text);
    }
    assert!(!array_path.to_string().contains(char::is_control), "{array_path:?}");
}

/// The data as an argument of the operating system.
#[cfg(unix)]
fn argument(data: &[u8]) -> &OsStr {
    std::os::unix::ffi::OsStrExt::from_bytes(data)
}

#[cfg(not(unix))]
fn argument(data: &[u8]) -> &OsStr {
    str::from_utf8(data).unwrap_or_default().as_ref()
}

/// Writes the data to a temporary file.
fn on_file(extension: &str, data: &[u8], work: impl FnOnce(&Path)) {
    let mut file = tempfile::Builder::new().suffix(extension).tempfile().expect("a temporary file");
    file.write_all(data).expect("space for a temporary file");
    work(file.path());
}

fn check_named(path: &Path) {
    check_read(path, None);
    check_read(path, Some("a".into()));
}

/// Reads an array and checks that its elements match its layout.
fn check_read(path: &Path, name: Option<String>) {
    let array_path = ArrayPath::File { path: path.into(), name };
    let options = ReadOptions { memory_limit: MEMORY_LIMIT, ..ReadOptions::default() };
    let array = match bounded(|| read(&array_path, &options)) {
        Ok(array) => array,
        Err(error) => return check_error_message(&error.message),
    };
    let layout = array.layout().clone();
    let Ok(AnyArray::F64(array)) = array.cast(Dtype::F64) else { panic!("every type can be cast to f64") };
    let len = layout.len().expect("a checked layout");
    // Other extents of an empty array may be arbitrarily large.
    let reach =
        || -> isize { layout.shape.iter().zip(&layout.strides).map(|(&n, &stride)| (n as isize - 1) * stride).sum() };
    assert!(array.data.len() == len && (len == 0 || reach() + 1 == len as isize), "{layout:?}");
}
