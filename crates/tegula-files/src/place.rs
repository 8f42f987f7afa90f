//! Where an array is: a file, an array in a container, or standard input and output.

use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};

use crate::show;

/// Where an array is, as a command line names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// Standard input or output, said as `-`.
    Standard,
    /// A file.
    File {
        /// Where the file is.
        path: PathBuf,
        /// The array in it, for containers.
        name: Option<String>,
    },
}

impl Place {
    /// Reads `path`, `file.npz:name`, `file.safetensors:name` or `-`.
    ///
    /// A file that has all of the text as its name is meant first. Otherwise the name of an array starts after the first colon that
    /// follows `.npz` or `.safetensors`, or else after the first that follows the name of a file that is there.
    pub fn parse(text: impl AsRef<OsStr>) -> Place {
        let text = text.as_ref();
        if text == "-" {
            return Place::Standard;
        }
        let whole = || Place::from(Path::new(text));
        if Path::new(text).symlink_metadata().is_ok() {
            return whole();
        }
        // Names of arrays are Unicode; a path that is not has none.
        let Some(text) = text.to_str() else { return whole() };
        let splits = || text.match_indices(':').map(|(at, _)| (Path::new(&text[..at]), &text[at + 1..]));
        let known = splits().find(|(path, _)| is_container(path));
        match known.or_else(|| splits().find(|(path, _)| path.is_file())) {
            Some((path, name)) => Place::File { path: path.into(), name: Some(name.into()) },
            None => whole(),
        }
    }
}

/// A file, all of it.
impl From<&Path> for Place {
    fn from(path: &Path) -> Self {
        Place::File { path: path.into(), name: None }
    }
}

/// As messages show it, on one line.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Standard => f.write_str("-"),
            Place::File { path, name: None } => f.write_str(&show::path(path)),
            Place::File { path, name: Some(name) } => write!(f, "{}:{}", show::path(path), show::name(name)),
        }
    }
}

fn is_container(path: &Path) -> bool {
    let extension = path.extension().and_then(OsStr::to_str).unwrap_or_default();
    ["npz", "safetensors"].iter().any(|known| extension.eq_ignore_ascii_case(known))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, name: Option<&str>) -> Place {
        Place::File { path: path.into(), name: name.map(Into::into) }
    }

    #[test]
    fn names_follow_a_colon_after_a_container() {
        assert_eq!(Place::parse("-"), Place::Standard);
        assert_eq!(Place::parse("a.npy"), file("a.npy", None));
        assert_eq!(Place::parse("x:y/a.npz:w:0"), file("x:y/a.npz", Some("w:0")));
        assert_eq!(Place::parse("a.SafeTensors:"), file("a.SafeTensors", Some("")));
        assert_eq!(Place::parse("a.npy:x"), file("a.npy:x", None));
        assert_eq!(Place::parse("C:\\a.npz"), file("C:\\a.npz", None));
        assert_eq!(Place::parse("a\n.npz:\u{1b}").to_string(), "a\\n.npz:\\u{1b}");
    }

    #[test]
    fn what_is_there_comes_first() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("weights"), b"").unwrap();
        std::fs::write(at("a.npz:w"), b"").unwrap();
        assert_eq!(Place::parse(at("weights:w")), Place::File { path: at("weights"), name: Some("w".into()) });
        assert_eq!(Place::parse(at("a.npz:w")), Place::File { path: at("a.npz:w"), name: None });
        assert_eq!(Place::parse(at("a.npz:v")), Place::File { path: at("a.npz"), name: Some("v".into()) });
    }
}
