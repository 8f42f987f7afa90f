//! Progress on standard error: a bar during long work, and lines.
//!
//! Work starts a phase and sets its progress from any thread, which costs an atomic operation. A
//! drawing thread reads it ten times a second. A bar appears on a terminal only, after a delay, and
//! is erased before any other output. The module does not depend on the work.

use std::fmt::Display;
use std::io::{IsTerminal, Write, stderr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::{env, thread};

use console::Term;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

use crate::failure::one_line;

/// Variable with the seconds before a bar is drawn, for tests.
const DELAY_VARIABLE: &str = "TEGULA_PROGRESS_DELAY";

/// Default delay before a bar is drawn.
const DELAY: Duration = Duration::from_millis(500);

/// Time between two redraws.
const EVERY: Duration = Duration::from_millis(100);

/// Unit of a phase's progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    Bytes,
    MultiplyAdds,
    Rows,
    Products,
}

/// Displays the progress of a command.
#[derive(Debug)]
pub struct ProgressDisplay {
    quiet: bool,
    screen: Option<Arc<Screen>>,
}

/// State shared with the drawing thread, where bars are drawn.
#[derive(Debug, Default)]
struct Screen {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    current: Option<Current>,
    over: bool,
}

/// Progress of a phase in its units. A total of 0 is unknown.
#[derive(Debug, Default)]
struct Counts {
    done: AtomicU64,
    total: AtomicU64,
}

/// The displayed phase.
#[derive(Debug)]
struct Current {
    counts: Arc<Counts>,
    unit: Unit,
    bar: ProgressBar,
}

impl ProgressDisplay {
    /// A display that draws bars if `bar` is set and standard error is a capable terminal.
    pub fn new(quiet: bool, bar: bool) -> ProgressDisplay {
        let dumb = cfg!(unix) && env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
        let screen = (bar && !quiet && !dumb && stderr().is_terminal()).then(Arc::<Screen>::default);
        if let Some(screen) = screen.clone() {
            // Without a thread the work runs without a bar.
            let _ = thread::Builder::new().spawn(move || screen.draw_until_over(delay()));
        }
        ProgressDisplay { quiet, screen }
    }

    /// Starts a phase of `total` units, displayed until it is dropped. A phase without progress
    /// shows the elapsed time.
    pub fn phase(&self, name: &str, unit: Unit, total: u64) -> Phase {
        tracing::info!(target: "tegula::progress", "{name}");
        let counts = Arc::new(Counts { done: AtomicU64::new(0), total: AtomicU64::new(total) });
        if let Some(screen) = &self.screen {
            let bar =
                ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr()).with_message(one_line(name));
            screen.state().current = Some(Current { counts: counts.clone(), unit, bar });
            screen.changed.notify_one();
        }
        Phase { counts, screen: self.screen.clone() }
    }

    /// Prints a line on standard error unless quiet. A failed write is ignored.
    pub fn line(&self, text: impl Display) {
        if !self.quiet {
            let _ = writeln!(stderr(), "{text}");
        }
    }
}

impl Drop for ProgressDisplay {
    fn drop(&mut self) {
        if let Some(screen) = &self.screen {
            screen.state().over = true;
            screen.changed.notify_one();
        }
    }
}

/// A phase of the work. Any thread may set its progress, which costs an atomic operation.
#[derive(Debug)]
pub struct Phase {
    counts: Arc<Counts>,
    screen: Option<Arc<Screen>>,
}

impl Phase {
    /// Sets the completed units. Progress never decreases.
    pub fn set(&self, done: u64) {
        self.counts.done.fetch_max(done, Ordering::Relaxed);
    }

    /// Sets the completed and the total units; a total of 0 is unknown.
    pub fn set_of(&self, done: u64, total: u64) {
        self.counts.total.store(total, Ordering::Relaxed);
        self.set(done);
    }
}

impl Drop for Phase {
    /// Erases the bar.
    fn drop(&mut self) {
        let Some(screen) = &self.screen else { return };
        let mut state = screen.state();
        if let Some(current) = state.current.take_if(|current| Arc::ptr_eq(&current.counts, &self.counts)) {
            current.bar.finish_and_clear();
        }
    }
}

impl Screen {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn draw_until_over(&self, delay: Duration) {
        let begun = Instant::now();
        let mut state = self.state();
        while !state.over {
            if let Some(current) = state.current.as_ref().filter(|_| begun.elapsed() >= delay) {
                current.draw(Term::stderr().size().1);
            }
            state = self.changed.wait_timeout(state, EVERY).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Current {
    /// Draws the bar on a terminal with `columns` columns.
    fn draw(&self, columns: u16) {
        let (done, unit) = (self.counts.done.load(Ordering::Relaxed), self.unit);
        let total = self.counts.total.load(Ordering::Relaxed);
        let style = ProgressStyle::with_template(template(columns, done > 0 && total > 0))
            .unwrap_or_else(|_| ProgressStyle::default_spinner());
        let style = style
            .progress_chars("=> ")
            .with_key("rate", move |state: &ProgressState, text: &mut dyn std::fmt::Write| {
                let _ = text.write_str(&rate(unit, state.per_sec()));
            })
            .with_key("left", |state: &ProgressState, text: &mut dyn std::fmt::Write| {
                let _ = write!(text, "{} left", time(state.eta()));
            })
            .with_key("elapsed", |state: &ProgressState, text: &mut dyn std::fmt::Write| {
                let _ = text.write_str(&time(state.elapsed()));
            });
        self.bar.set_style(style);
        self.bar.set_length(total);
        self.bar.update(|state| state.set_pos(done));
    }
}

/// The template that fits. The name is truncated to the remaining columns.
fn template(columns: u16, counted: bool) -> &'static str {
    match columns {
        _ if !counted => "{wide_msg} {elapsed:>8}",
        70.. => "{wide_msg} [{bar:20.cyan}] {percent:>3}% {rate:>12} {left:>12}",
        45.. => "{wide_msg} [{bar:10.cyan}] {percent:>3}% {left:>12}",
        _ => "{wide_msg} {percent:>3}%",
    }
}

/// A rate, such as `1.25 GB/s` or `830 GFLOP/s`; a multiply-add is two operations.
fn rate(unit: Unit, per_second: f64) -> String {
    let (amount, name) = match unit {
        Unit::Bytes => (per_second, "B"),
        Unit::MultiplyAdds => (2.0 * per_second, "FLOP"),
        Unit::Rows => (per_second, "rows"),
        Unit::Products => (per_second, "products"),
    };
    const PREFIXES: [&str; 6] = ["", "k", "M", "G", "T", "P"];
    // From 999.5 on three digits would round to 1000.
    let power = (0..5).find(|&power| amount < 999.5 * 1e3f64.powi(power)).unwrap_or(5);
    let scaled = amount / 1e3f64.powi(power);
    let digits = if scaled < 9.995 { 2 } else { usize::from(scaled < 99.95) };
    format!("{scaled:.digits$} {}{name}/s", PREFIXES[power as usize])
}

/// A duration, such as `12 s`, `3:07` or `2:10:45`.
fn time(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, seconds) => format!("{seconds} s"),
        (0, minutes, seconds) => format!("{minutes}:{seconds:02}"),
        (hours, _, _) if hours >= 100 => "days".into(),
        (hours, minutes, seconds) => format!("{hours}:{minutes:02}:{seconds:02}"),
    }
}

fn delay() -> Duration {
    let given = env::var(DELAY_VARIABLE).ok().and_then(|seconds| seconds.parse().ok());
    given.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()).unwrap_or(DELAY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_have_three_digits() {
        let bytes = [0.0, 999.4, 999.6, 12_345.0, 1.5e9, 2e12, 3e18].map(|x| rate(Unit::Bytes, x));
        assert_eq!(bytes, ["0.00 B/s", "999 B/s", "1.00 kB/s", "12.3 kB/s", "1.50 GB/s", "2.00 TB/s", "3000 PB/s"]);
        assert_eq!(rate(Unit::MultiplyAdds, 4.15e11), "830 GFLOP/s");
    }

    #[test]
    fn durations_are_short() {
        let times = [0, 59, 60, 187, 3600, 7845, u64::MAX].map(|seconds| time(Duration::from_secs(seconds)));
        assert_eq!(times, ["0 s", "59 s", "1:00", "3:07", "1:00:00", "2:10:45", "days"]);
    }

    #[test]
    fn phase_progress_never_decreases() {
        let phase = ProgressDisplay::new(true, true).phase("counting", Unit::Bytes, 10);
        thread::scope(|scope| {
            let phase = &phase;
            for i in 0..4 {
                scope.spawn(move || (0..1000).for_each(|done| phase.set(4 * done + i)));
            }
        });
        phase.set(7);
        assert_eq!(phase.counts.done.load(Ordering::Relaxed), 3999);
    }

    #[test]
    fn every_template_is_valid() {
        for (columns, counted) in [(80, true), (50, true), (20, true), (80, false)] {
            assert!(ProgressStyle::with_template(template(columns, counted)).is_ok(), "{columns}");
        }
    }
}
