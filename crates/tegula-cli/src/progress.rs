//! What is said on standard error while work goes on: a bar for its longer part, and a line when it is done.
//!
//! Whoever works names a phase and sets how far it is, from any thread, at the cost of an atomic operation. A thread of the
//! meter's own looks at that ten times a second and draws. Nothing is drawn unless a person looks at a terminal and has waited a
//! while, and what was drawn is gone before anything else is said. It knows nothing of what the work is.

use std::fmt::Display;
use std::io::{IsTerminal, Write, stderr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::{env, thread};

use console::Term;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

use crate::failure::one_line;

/// Seconds of work before anything is drawn, in place of the usual ones. For tests.
const DELAY_VARIABLE: &str = "TEGULA_PROGRESS_DELAY";

/// Work shorter than this shows no bar.
const DELAY: Duration = Duration::from_millis(500);

/// Time between two drawings.
const EVERY: Duration = Duration::from_millis(100);

/// What a phase counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    Bytes,
    MultiplyAdds,
    Rows,
    Products,
}

/// Shows how far a command is.
#[derive(Debug)]
pub struct Meter {
    quiet: bool,
    screen: Option<Arc<Screen>>,
}

/// What the meter and its thread share, where something is drawn at all.
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

/// How far a phase is, in its units. Of a total of 0 nothing is known.
#[derive(Debug, Default)]
struct Counts {
    done: AtomicU64,
    total: AtomicU64,
}

/// The phase that is shown.
#[derive(Debug)]
struct Current {
    counts: Arc<Counts>,
    unit: Unit,
    bar: ProgressBar,
}

impl Meter {
    /// A meter that draws where `bar` is wanted and standard error is a terminal that can.
    pub fn new(quiet: bool, bar: bool) -> Meter {
        let dumb = cfg!(unix) && env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
        let screen = (bar && !quiet && !dumb && stderr().is_terminal()).then(Arc::<Screen>::default);
        if let Some(screen) = screen.clone() {
            // Where no thread can be had there is no bar, and the work goes on.
            let _ = thread::Builder::new().spawn(move || screen.draw_until_over(delay()));
        }
        Meter { quiet, screen }
    }

    /// Begins a phase of `total` units, which is shown until it is dropped. Of a phase that never says how far it is, the time
    /// is shown.
    pub fn phase(&self, name: &str, unit: Unit, total: u64) -> Phase {
        tracing::info!("{name}");
        let counts = Arc::new(Counts { done: AtomicU64::new(0), total: AtomicU64::new(total) });
        if let Some(screen) = &self.screen {
            let bar =
                ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr()).with_message(one_line(name));
            screen.state().current = Some(Current { counts: counts.clone(), unit, bar });
            screen.changed.notify_one();
        }
        Phase { counts, screen: self.screen.clone() }
    }

    /// A line on standard error, unless nothing is to be said. Nobody may be listening there.
    pub fn line(&self, text: impl Display) {
        if !self.quiet {
            let _ = writeln!(stderr(), "{text}");
        }
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        if let Some(screen) = &self.screen {
            screen.state().over = true;
            screen.changed.notify_one();
        }
    }
}

/// A part of the work. Setting how far it is costs an atomic operation and may be done from any thread.
#[derive(Debug)]
pub struct Phase {
    counts: Arc<Counts>,
    screen: Option<Arc<Screen>>,
}

impl Phase {
    /// So many units are done. What was said before is never taken back.
    pub fn set(&self, done: u64) {
        self.counts.done.fetch_max(done, Ordering::Relaxed);
    }

    /// So many of so many units are done; 0 of those where their number is not known.
    pub fn set_of(&self, done: u64, total: u64) {
        self.counts.total.store(total, Ordering::Relaxed);
        self.set(done);
    }
}

impl Drop for Phase {
    /// Leaves the terminal as it was.
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
    /// Draws on a terminal of so many columns.
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
            .with_key("spent", |state: &ProgressState, text: &mut dyn std::fmt::Write| {
                let _ = text.write_str(&time(state.elapsed()));
            });
        self.bar.set_style(style);
        self.bar.set_length(total);
        self.bar.update(|state| state.set_pos(done));
    }
}

/// What fits. The name has what the rest leaves, and is cut short to it.
fn template(columns: u16, counted: bool) -> &'static str {
    match columns {
        _ if !counted => "{wide_msg} {spent:>8}",
        70.. => "{wide_msg} [{bar:20.cyan}] {percent:>3}% {rate:>12} {left:>12}",
        45.. => "{wide_msg} [{bar:10.cyan}] {percent:>3}% {left:>12}",
        _ => "{wide_msg} {percent:>3}%",
    }
}

/// `1.25 GB/s`, `830 GFLOP/s`; a multiply-add is two operations.
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

/// `12 s`, `3:07`, `2:10:45`.
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
    fn times_are_short() {
        let times = [0, 59, 60, 187, 3600, 7845, u64::MAX].map(|seconds| time(Duration::from_secs(seconds)));
        assert_eq!(times, ["0 s", "59 s", "1:00", "3:07", "1:00:00", "2:10:45", "days"]);
    }

    #[test]
    fn a_phase_never_goes_back() {
        let phase = Meter::new(true, true).phase("counting", Unit::Bytes, 10);
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
    fn every_template_is_one() {
        for (columns, counted) in [(80, true), (50, true), (20, true), (80, false)] {
            assert!(ProgressStyle::with_template(template(columns, counted)).is_ok(), "{columns}");
        }
    }
}
