//! Progress of a running product: phases, fractions, and a thread-safe meter.

use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// A phase of the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Phase {
    /// Copying operands to a GPU, counted in bytes.
    Upload,
    /// Multiplying, counted in multiply-adds: m·n·k for each matrix of the batch.
    Multiply,
    /// Copying C from a GPU, counted in bytes.
    Download,
    /// Comparing with the reference, counted in rows of C.
    Check,
}

/// The progress of a phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Progress {
    /// The phase.
    pub phase: Phase,
    /// Completed work, in the phase's unit.
    pub done: u64,
    /// Total work, in the phase's unit.
    pub total: u64,
}

impl Progress {
    /// The progress of a whole of `count` equal parts, of which `before` are complete and this one
    /// runs.
    pub fn of_parts(self, before: u64, count: u64) -> Progress {
        let done = self.total.saturating_mul(before).saturating_add(self.done);
        Progress { done, total: self.total.saturating_mul(count), ..self }
    }

    /// The completed fraction, 0 to 1; 1 for an empty phase.
    pub fn fraction(&self) -> f64 {
        if self.done == self.total { 1.0 } else { self.done as f64 / self.total as f64 }
    }
}

/// A callback for progress.
///
/// It is called from any thread, one call at a time, and should return at once. Within a phase
/// `done` never decreases; after a successful phase it equals `total`.
pub type ProgressSink<'a> = dyn Fn(Progress) + Sync + 'a;

/// An optional [`ProgressSink`].
#[derive(Clone, Copy, Default)]
pub struct ProgressReporter<'a>(pub Option<&'a ProgressSink<'a>>);

impl<'a> ProgressReporter<'a> {
    /// Creates the meter of a phase, if a sink is set.
    pub fn meter(self, phase: Phase, total: u128) -> Option<ProgressMeter<'a>> {
        Some(ProgressMeter::new(self.0?, phase, u64::try_from(total).unwrap_or(u64::MAX)))
    }
}

impl fmt::Debug for ProgressReporter<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "ProgressReporter(set)" } else { "ProgressReporter(none)" })
    }
}

/// The thread-safe meter of one phase.
pub struct ProgressMeter<'a> {
    sink: &'a ProgressSink<'a>,
    phase: Phase,
    total: u64,
    done: AtomicU64,
    /// The last value reported. Locked during a report.
    reported: Mutex<Option<u64>>,
}

impl<'a> ProgressMeter<'a> {
    /// Creates a meter with nothing done and nothing reported.
    pub fn new(sink: &'a ProgressSink<'a>, phase: Phase, total: u64) -> Self {
        ProgressMeter { sink, phase, total, done: AtomicU64::new(0), reported: Mutex::new(None) }
    }

    /// Adds completed work.
    pub fn add(&self, more: u64) {
        self.done.fetch_add(more, Relaxed);
        self.report();
    }

    /// Raises the completed work to the fraction `part`/`whole`, rounded down; it never decreases.
    pub fn raise_to(&self, part: u64, whole: u64) {
        let done = u128::from(self.total) * u128::from(part) / u128::from(whole.max(1));
        self.done.fetch_max(done as u64, Relaxed);
        self.report();
    }

    /// Sets the phase to complete, as the last report.
    pub fn finish(&self) {
        self.done.fetch_max(self.total, Relaxed);
        self.report();
    }

    /// Reports the completed work, unless another thread is reporting.
    ///
    /// Waiting for that thread would stall the work. It would deadlock where the sink makes its
    /// thread steal work.
    fn report(&self) {
        let Ok(mut reported) = self.reported.try_lock() else { return };
        let done = self.done.load(Relaxed);
        if reported.is_none_or(|before| before < done) {
            *reported = Some(done);
            (self.sink)(Progress { phase: self.phase, done, total: self.total });
        }
    }
}

#[cfg(test)]
mod tests {
    use rayon::prelude::*;

    use super::*;

    #[test]
    fn concurrent_reports_increase_to_the_total() {
        let seen = Mutex::new(Vec::new());
        let sink = |progress: Progress| seen.lock().unwrap().push(progress.done);
        let meter = ProgressMeter::new(&sink, Phase::Multiply, 10_000);
        (0..1000).into_par_iter().for_each(|_| meter.add(10));
        meter.finish();
        let seen = seen.lock().unwrap();
        assert!(seen.is_sorted_by(|a, b| a < b), "{seen:?}");
        assert_eq!(seen.last(), Some(&10_000));
    }

    #[test]
    fn empty_phase_is_reported_once() {
        let seen = Mutex::new(Vec::new());
        let sink = |progress: Progress| seen.lock().unwrap().push((progress, progress.fraction()));
        let meter = ProgressMeter::new(&sink, Phase::Upload, 0);
        meter.finish();
        meter.finish();
        assert_eq!(*seen.lock().unwrap(), [(Progress { phase: Phase::Upload, done: 0, total: 0 }, 1.0)]);
    }

    #[test]
    fn fraction_is_rounded_down() {
        let seen = Mutex::new(Vec::new());
        let sink = |progress: Progress| seen.lock().unwrap().push(progress.done);
        let meter = ProgressMeter::new(&sink, Phase::Multiply, 10);
        for part in [1, 2, 1, 3] {
            meter.raise_to(part, 3);
        }
        assert_eq!(*seen.lock().unwrap(), [3, 6, 10]);
    }
}
