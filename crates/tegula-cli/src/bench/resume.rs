//! `tegula bench --resume`: keeps the rows that an earlier run measured.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::{fs, io};

use serde::Deserialize;

use crate::failure::{Failure, Result};
use crate::report::bench::{Figures, Report};

/// The figures of earlier rows, by the command that measures the row.
#[derive(Default)]
pub struct EarlierRows(BTreeMap<String, Figures>);

/// What `--json` wrote.
#[derive(Deserialize)]
struct EarlierReport {
    machine: String,
    driver: Option<String>,
    version: String,
    peer: Option<String>,
    rows: Vec<EarlierRow>,
}

#[derive(Deserialize)]
struct EarlierRow {
    command: String,
    /// `None` where the measurement failed: it is repeated.
    #[serde(flatten)]
    figures: Option<Figures>,
}

impl EarlierRows {
    /// The rows in a file; none if it does not exist.
    ///
    /// Fails if the file cannot be read, if it was measured elsewhere or with another number of
    /// threads, and if it has a row that is not in `commands`: this run replaces the file, and
    /// would lose the row.
    pub fn read(path: &Path, run: &Report, commands: &BTreeSet<String>) -> Result<EarlierRows> {
        let refused = |why: String| Failure::new(format!("--resume: {}: {why}", path.display()));
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(EarlierRows::default()),
            Err(error) => return Err(refused(format!("cannot be read: {error}"))),
        };
        let earlier: EarlierReport =
            serde_json::from_str(&text).map_err(|error| refused(format!("not a report of bench: {error}")))?;
        let optional = |text: &Option<String>| text.clone().unwrap_or_else(|| "none".into());
        for (what, theirs, ours) in [
            ("machine", earlier.machine, run.machine.clone()),
            ("driver", optional(&earlier.driver), optional(&run.driver)),
            ("version", earlier.version, run.version.into()),
            ("peer", optional(&earlier.peer), optional(&run.peer)),
        ] {
            if theirs != ours {
                return Err(refused(format!("its {what} is {theirs}, here it is {ours}; choose another file")));
            }
        }
        if let Some(row) = earlier.rows.iter().find(|row| !commands.contains(&row.command)) {
            let row = &row.command;
            return Err(refused(format!("it has a row that this run would not measure ({row}); choose another file")));
        }
        // Variables of the environment set it too, and are not in the command.
        if earlier.rows.iter().filter_map(|row| row.figures.as_ref()).any(|figures| figures.threads != run.threads) {
            return Err(refused("it has rows of another number of threads; choose another file".into()));
        }
        let measured = earlier.rows.into_iter().filter_map(|row| Some((row.command, row.figures?)));
        Ok(EarlierRows(measured.collect()))
    }

    /// Whether there are figures of the row that this command measures.
    pub fn has(&self, command: &str) -> bool {
        self.0.contains_key(command)
    }

    /// The figures of the row that this command measures.
    pub fn get(&self, command: &str) -> Option<Figures> {
        self.0.get(command).cloned()
    }
}
