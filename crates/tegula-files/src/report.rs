//! Files that are written again and again as results come in, each time whole.

use std::io::Write;
use std::path::{Path, PathBuf};

use crate::output::Target;
use crate::standard::{check_standard_output, standard_output};
use crate::{Error, Result, show};

/// A file that is replaced whenever there is more to say: whatever ends the program leaves it whole, with what was said last.
///
/// ```
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("results.json");
/// let file = tegula_files::ReportFile::new(&path)?;
/// file.replace("[1]")?;
/// file.replace("[1, 2]")?;
/// assert_eq!(std::fs::read_to_string(&path)?, "[1, 2]");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct ReportFile {
    /// Standard output where there is none.
    path: Option<PathBuf>,
    special: bool,
}

impl ReportFile {
    /// Finds out whether a file can be made there, before work is spent on what goes into it. Leaves nothing. `-` is standard
    /// output.
    ///
    /// # Errors
    /// Where it cannot.
    pub fn new(path: &Path) -> Result<Self> {
        if path == "-" {
            check_standard_output()?;
            return Ok(ReportFile { path: None, special: true });
        }
        let target = Target::of(path).and_then(|target| target.check().map(|()| target));
        let target = target.map_err(|why| Error { file: show::path(path), why })?;
        Ok(ReportFile { special: target.special, path: Some(path.to_owned()) })
    }

    /// A device, a pipe or standard output, which cannot be replaced: what is written there comes after what was.
    pub fn is_special(&self) -> bool {
        self.special
    }

    /// Whether it is standard output, and nothing else should be written there.
    pub fn is_standard_output(&self) -> bool {
        self.path.is_none()
    }

    /// Makes the file of this content.
    ///
    /// # Errors
    /// Where it cannot be written; then it is as it was.
    pub fn replace(&self, content: impl AsRef<[u8]>) -> Result<()> {
        let content = content.as_ref();
        let Some(path) = &self.path else {
            return standard_output()
                .and_then(|mut file| file.write_all(content))
                .map_err(|error| Error::of_standard_output(&error));
        };
        let replace = || {
            let target = Target::of(path)?;
            target.replace(content.len() as u64, &|_, _| {}, |sink| sink.write_all(content))
        };
        replace().map_err(|why| Error { file: show::path(path), why })
    }
}
