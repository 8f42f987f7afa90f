//! Files that are written again and again as results come in, each time whole.

use std::io::Write;
use std::path::{Path, PathBuf};

use crate::output::Target;
use crate::{Error, Refusal, Result, show};

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
    path: PathBuf,
    special: bool,
}

impl ReportFile {
    /// Finds out whether a file can be made there, before work is spent on what goes into it. Leaves nothing.
    ///
    /// # Errors
    /// Where it cannot.
    pub fn new(path: &Path) -> Result<Self> {
        let target = Target::of(path).and_then(|target| target.check().map(|()| target));
        Ok(ReportFile { special: target.map_err(|why| refusal(path, why))?.special, path: path.to_owned() })
    }

    /// A device or a pipe, which cannot be replaced: what is written there comes after what was.
    pub fn is_special(&self) -> bool {
        self.special
    }

    /// Makes the file of this content.
    ///
    /// # Errors
    /// Where it cannot be written; then it is as it was.
    pub fn replace(&self, content: impl AsRef<[u8]>) -> Result<()> {
        let content = content.as_ref();
        let replace = || {
            let target = Target::of(&self.path)?;
            target.replace(content.len() as u64, &|_, _| {}, |sink| sink.write_all(content))
        };
        replace().map_err(|why| refusal(&self.path, why))
    }
}

fn refusal(path: &Path, why: Refusal) -> Error {
    Error { file: show::path(path), why }
}
