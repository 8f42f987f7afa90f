//! The log of `--verbose` and `TEGULA_LOG`: events of the program and its libraries, on standard
//! error.

use std::env;
use std::io::{self, Write, stderr};

use tracing::Level;
use tracing_subscriber::filter::{ParseError, Targets};
use tracing_subscriber::fmt::layer;
use tracing_subscriber::fmt::time::uptime;
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

use crate::failure::{Failure, Result};

/// Variable with a filter such as `tegula=debug` or `tegula::cuda=trace,warn`, which overrides
/// `--verbose`.
const VARIABLE: &str = "TEGULA_LOG";

/// Starts the log, if a filter is set. Returns whether it did.
pub fn start(verbose: u8) -> Result<bool> {
    let Some(filter) = filter(verbose)? else { return Ok(false) };
    let events = layer()
        .with_timer(uptime())
        .with_writer(|| Lossy)
        .log_internal_errors(false)
        .with_ansi(anstream::AutoStream::choice(&stderr()) != anstream::ColorChoice::Never);
    tracing_subscriber::registry().with(events.with_filter(filter)).init();
    Ok(true)
}

/// Standard error that ignores failed writes: a lost log line must not fail a product.
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

/// The filter of `TEGULA_LOG`, else by the number of `--verbose` flags.
fn filter(verbose: u8) -> Result<Option<Targets>> {
    if let Some(text) = env::var_os(VARIABLE).filter(|text| !text.is_empty()) {
        let wrong = |why| Failure::Usage(format!("{VARIABLE} is {text:?}: {why}; give a filter such as tegula=debug"));
        let parsed = text.to_str().ok_or_else(|| wrong("not UTF-8".to_owned()))?;
        return parsed.parse().map(Some).map_err(|error: ParseError| wrong(error.to_string()));
    }
    // The libraries are tegula and tegula_files, with a common prefix.
    let of_tegula = |level: Level| Some(Targets::new().with_target("tegula", level));
    Ok(match verbose {
        0 => None,
        1 => of_tegula(Level::INFO),
        2 => of_tegula(Level::DEBUG),
        _ => of_tegula(Level::TRACE),
    })
}
