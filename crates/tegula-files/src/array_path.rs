//! Locations of arrays: a file, an array in a container, or standard input and output.

use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};

use crate::display;

/// Location of an array, as given on a command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ArrayPath {
    /// Standard input or output, written as `-`.
    Stdio,
    /// A file.
    File {
        /// Path of the file.
        path: PathBuf,
        /// Name of the array in a container.
        name: Option<String>,
    },
}

impl ArrayPath {
    /// Parses `path`, `file.npz:name`, `file.safetensors:name` or `-`.
    ///
    /// An existing file with the whole text as its name takes precedence. Otherwise the array name
    /// follows the first colon after `.npz` or `.safetensors`, or else after the name of an
    /// existing file.
    pub fn parse(text: impl AsRef<OsStr>) -> ArrayPath {
        let text = text.as_ref();
        if text == "-" {
            return ArrayPath::Stdio;
        }
        let whole_path = || ArrayPath::from(Path::new(text));
        if Path::new(text).symlink_metadata().is_ok() {
            return whole_path();
        }
        // Array names are Unicode, so a path that is not Unicode has none.
        let Some(text) = text.to_str() else { return whole_path() };
        let splits = || text.match_indices(':').map(|(at, _)| (Path::new(&text[..at]), &text[at + 1..]));
        let container = splits().find(|(path, _)| is_container(path));
        match container.or_else(|| splits().find(|(path, _)| path.is_file())) {
            Some((path, name)) => ArrayPath::File { path: path.into(), name: Some(name.into()) },
            None => whole_path(),
        }
    }
}

/// The whole file, without an array name.
impl From<&Path> for ArrayPath {
    fn from(path: &Path) -> Self {
        ArrayPath::File { path: path.into(), name: None }
    }
}

/// Formats the location for messages, on one line.
impl fmt::Display for ArrayPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ArrayPath::Stdio => f.write_str("-"),
            ArrayPath::File { path, name: None } => f.write_str(&display::path(path)),
            ArrayPath::File { path, name: Some(name) } => write!(f, "{}:{}", display::path(path), display::name(name)),
        }
    }
}

fn is_container(path: &Path) -> bool {
    let extension = path.extension().and_then(OsStr::to_str).unwrap_or_default();
    ["npz", "safetensors"].iter().any(|container| extension.eq_ignore_ascii_case(container))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, name: Option<&str>) -> ArrayPath {
        ArrayPath::File { path: path.into(), name: name.map(Into::into) }
    }

    #[test]
    fn parse_splits_the_array_name_after_a_container() {
        assert_eq!(ArrayPath::parse("-"), ArrayPath::Stdio);
        assert_eq!(ArrayPath::parse("a.npy"), file("a.npy", None));
        assert_eq!(ArrayPath::parse("x:y/a.npz:w:0"), file("x:y/a.npz", Some("w:0")));
        assert_eq!(ArrayPath::parse("a.SafeTensors:"), file("a.SafeTensors", Some("")));
        assert_eq!(ArrayPath::parse("a.npy:x"), file("a.npy:x", None));
        assert_eq!(ArrayPath::parse("C:\\a.npz"), file("C:\\a.npz", None));
        assert_eq!(ArrayPath::parse("a\n.npz:\u{1b}").to_string(), "a\\n.npz:\\u{1b}");
    }

    #[test]
    fn parse_prefers_existing_files() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("weights"), b"").unwrap();
        std::fs::write(at("a.npz:w"), b"").unwrap();
        assert_eq!(ArrayPath::parse(at("weights:w")), ArrayPath::File { path: at("weights"), name: Some("w".into()) });
        assert_eq!(ArrayPath::parse(at("a.npz:w")), ArrayPath::File { path: at("a.npz:w"), name: None });
        assert_eq!(ArrayPath::parse(at("a.npz:v")), ArrayPath::File { path: at("a.npz"), name: Some("v".into()) });
    }
}
