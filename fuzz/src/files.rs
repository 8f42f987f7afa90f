//! Formats that are read from files, and how a command line names an array in one.

use std::ffi::OsStr;
use std::io::Write;
use std::path::Path;

use tegula_files::{AnyArray, Dtype, Place, Reading, read};

use crate::{ROOM, bounded, check_refusal};

/// A `.npy` file.
pub fn npy(data: &[u8]) {
    on_file(".npy", data, |path| check_read(path, None));
}

/// An `.npz` archive: the one array in it, and the one named `a`.
pub fn npz(data: &[u8]) {
    on_file(".npz", data, check_named);
}

/// A `.safetensors` file, as [`npz`]. Of an input with a line end the first line is a header, whose length is put before it: few
/// changes of a header and its length fit together.
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

/// A place on a command line: its parts are those of the text, and messages can show it.
pub fn place(data: &[u8]) {
    let text = argument(data);
    let place = Place::parse(text);
    if let Place::File { path, name } = &place {
        let mut whole = path.clone().into_os_string();
        name.iter().for_each(|name| whole.push(format!(":{name}")));
        assert_eq!(whole, text);
    }
    assert!(!place.to_string().contains(char::is_control), "{place:?}");
}

/// The data as the operating system hands over an argument.
#[cfg(unix)]
fn argument(data: &[u8]) -> &OsStr {
    std::os::unix::ffi::OsStrExt::from_bytes(data)
}

#[cfg(not(unix))]
fn argument(data: &[u8]) -> &OsStr {
    str::from_utf8(data).unwrap_or_default().as_ref()
}

/// Hands the data over as a file.
fn on_file(extension: &str, data: &[u8], work: impl FnOnce(&Path)) {
    let mut file = tempfile::Builder::new().suffix(extension).tempfile().expect("a temporary file");
    file.write_all(data).expect("room for a temporary file");
    work(file.path());
}

fn check_named(path: &Path) {
    check_read(path, None);
    check_read(path, Some("a".into()));
}

/// Reads an array and checks that it has all the elements that its layout says.
fn check_read(path: &Path, name: Option<String>) {
    let place = Place::File { path: path.into(), name };
    let reading = Reading { room: ROOM, ..Reading::default() };
    let array = match bounded(|| read(&place, &reading)) {
        Ok(array) => array,
        Err(error) => return check_refusal(&error.why),
    };
    let layout = array.layout().clone();
    let Ok(AnyArray::F64(array)) = array.cast(Dtype::F64) else { panic!("every type can be cast to f64") };
    let len = layout.len().expect("a layout that was checked");
    // Of an empty array the other extents may be as large as they like.
    let reach =
        || -> isize { layout.shape.iter().zip(&layout.strides).map(|(&n, &stride)| (n as isize - 1) * stride).sum() };
    assert!(array.data.len() == len && (len == 0 || reach() + 1 == len as isize), "{layout:?}");
}
