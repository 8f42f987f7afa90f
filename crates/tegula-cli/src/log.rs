//! What `--verbose` and `TEGULA_LOG` show: the events of the program and its libraries, on standard error.

use std::env;
use std::io::{self, Write, stderr};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::time::uptime;

use crate::failure::{Failure, Result};

/// A filter such as `tegula=debug` or `tegula::cuda=trace,warn`, in place of what `--verbose` chooses.
const VARIABLE: &str = "TEGULA_LOG";

/// Shows events from now on, if anybody asked for them. Nothing is set up otherwise. Tells whether they are shown.
pub fn start(verbose: u8) -> Result<bool> {
    let Some(filter) = filter(verbose)? else { return Ok(false) };
    let events = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_timer(uptime())
        .with_writer(|| Lossy)
        .log_internal_errors(false);
    events.with_ansi(anstream::AutoStream::choice(&stderr()) != anstream::ColorChoice::Never).init();
    Ok(true)
}

/// Standard error, of which nobody may be listening: a line that cannot be written is no reason to lose a product.
struct Lossy;

impl Write for Lossy {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let _ = stderr().write_all(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// `TEGULA_LOG`, else by how often `--verbose` was said.
fn filter(verbose: u8) -> Result<Option<EnvFilter>> {
    if let Some(text) = env::var_os(VARIABLE).filter(|text| !text.is_empty()) {
        let wrong = |why| Failure::Usage(format!("{VARIABLE} is {text:?}: {why}; give a filter such as tegula=debug"));
        let parsed = text.to_str().ok_or_else(|| wrong("not UTF-8".to_owned()))?;
        return EnvFilter::try_new(parsed).map(Some).map_err(|error| wrong(error.to_string()));
    }
    // The libraries are called tegula and tegula_files, and so begin the same.
    Ok(match verbose {
        0 => None,
        1 => Some(EnvFilter::new("tegula=info")),
        2 => Some(EnvFilter::new("tegula=debug")),
        _ => Some(EnvFilter::new("tegula=trace")),
    })
}
