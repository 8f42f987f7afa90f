//! Formats that are read from files.

use std::io::Write;
use std::path::Path;

use tegula::nd::NdLayout;
use tegula_files::{AnyArray, Place, Reading, read};

use crate::{ROOM, bounded, check_refusal};

/// A `.npy` file: what is read has all the elements that its layout says.
pub fn npy(data: &[u8]) {
    on_file(".npy", data);
}

/// A `.npz` file, as [`npy`].
pub fn npz(data: &[u8]) {
    on_file(".npz", data);
}

/// A `.safetensors` file, as [`npy`].
pub fn safetensors(data: &[u8]) {
    on_file(".safetensors", data);
}

/// A file of any format, told by its content.
pub fn content(data: &[u8]) {
    on_file("", data);
}

/// Reads the data as a file, where it holds several arrays, the first that the refusal names.
fn on_file(extension: &str, data: &[u8]) {
    let mut file = tempfile::Builder::new().suffix(extension).tempfile().expect("a temporary file");
    file.write_all(data).expect("room for a temporary file");
    let reading = Reading { room: ROOM, ..Reading::default() };
    for name in [None, Some("a")] {
        let place = Place::File { path: Path::to_path_buf(file.path()), name: name.map(String::from) };
        match bounded(|| read(&place, &reading)) {
            Ok(array) => check(&array),
            Err(error) => check_refusal(&error.why),
        }
    }
}

/// What the command line says: a place is shown on one line, whatever it is.
pub fn place(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let place = Place::parse(text);
    check_shown(&place.to_string());
    if let Place::File { path, name: Some(name) } = &place {
        let whole = format!("{}:{name}", path.display());
        assert_eq!(whole, text, "a place is its text");
    }
}

fn check_shown(text: &str) {
    assert!(!text.contains(char::is_control), "{text:?}");
}

/// Checks that an array is what its layout says, first element to last.
fn check(array: &AnyArray) {
    let layout: &NdLayout = array.layout();
    let len = layout.len().expect("a layout that was checked");
    assert_eq!(array.len(), len, "{layout:?}");
    let reach: isize = layout.shape.iter().zip(&layout.strides).map(|(&n, &s)| (n as isize - 1) * s).sum();
    assert!(len == 0 || reach + 1 == len as isize, "{layout:?}");
}
