//! Report files that are rewritten as results arrive, each time atomically.

use std::io::Write;
use std::path::{Path, PathBuf};

use crate::atomic_replace::Target;
use crate::stdout::{check_standard_output, standard_output};
use crate::{Error, Result, display};

/// A file that is atomically replaced with each update, so that it is complete at any time.
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
    /// `None` for standard output.
    path: Option<PathBuf>,
    is_stream: bool,
}

impl ReportFile {
    /// Checks whether the file can be written, before the work for its content.
    ///
    /// Leaves no file. `-` is standard output.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn new(path: &Path) -> Result<Self> {
        if path == "-" {
            check_standard_output()?;
            return Ok(ReportFile { path: None, is_stream: true });
        }
        let target = Target::resolve(path).and_then(|target| target.check().map(|()| target));
        let target = target.map_err(|message| Error { file: display::path(path), message })?;
        Ok(ReportFile { is_stream: target.is_stream, path: Some(path.to_owned()) })
    }

    /// Whether this is a device, a pipe or standard output: content is appended, not replaced.
    pub fn is_stream(&self) -> bool {
        self.is_stream
    }

    /// Whether this is standard output, which nothing else may then use.
    pub fn is_standard_output(&self) -> bool {
        self.path.is_none()
    }

    /// Replaces the content atomically.
    ///
    /// # Errors
    /// If the file cannot be written; then it is unchanged.
    pub fn replace(&self, content: impl AsRef<[u8]>) -> Result<()> {
        let content = content.as_ref();
        let Some(path) = &self.path else {
            return standard_output()
                .and_then(|mut file| file.write_all(content))
                .map_err(|error| Error::of_standard_output(&error));
        };
        let replace = || {
            let target = Target::resolve(path)?;
            target.replace(content.len() as u64, &|_, _| {}, |sink| sink.write_all(content))
        };
        replace().map_err(|message| Error { file: display::path(path), message })
    }
}
