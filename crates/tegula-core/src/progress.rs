//! How far a product has come, for those who wait for it. It knows numbers, not work.

use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// What is being done.
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

/// How far a phase has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Progress {
    /// What is being done.
    pub phase: Phase,
    /// How much of it is done, in the phase's unit.
    pub done: u64,
    /// How much there is to do.
    pub total: u64,
}

impl Progress {
    /// The same among `count` equal parts of a whole, of which this is the one after `before` others.
    pub fn of_parts(self, before: u64, count: u64) -> Progress {
        let done = self.total.saturating_mul(before).saturating_add(self.done);
        Progress { done, total: self.total.saturating_mul(count), ..self }
    }

    /// The part that is done, 0 to 1; 1 where there is nothing to do.
    pub fn fraction(&self) -> f64 {
        if self.done == self.total { 1.0 } else { self.done as f64 / self.total as f64 }
    }
}

/// Is told how far a product has come: from any thread, but one call at a time, so it should return at once. Within a phase `done` never
/// falls, and where the work succeeds it ends at `total`.
pub type Listener<'a> = dyn Fn(Progress) + Sync + 'a;

/// Who listens, if anybody.
#[derive(Clone, Copy, Default)]
pub struct Audience<'a>(pub Option<&'a Listener<'a>>);

impl<'a> Audience<'a> {
    /// Counts a phase, if anybody listens.
    pub fn meter(self, phase: Phase, total: u128) -> Option<Meter<'a>> {
        Some(Meter::new(self.0?, phase, u64::try_from(total).unwrap_or(u64::MAX)))
    }
}

impl fmt::Debug for Audience<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "listening" } else { "nobody" })
    }
}

/// Counts one phase, from any number of threads.
pub struct Meter<'a> {
    listener: &'a Listener<'a>,
    phase: Phase,
    total: u64,
    done: AtomicU64,
    /// What was told last; held while telling.
    told: Mutex<Option<u64>>,
}

impl<'a> Meter<'a> {
    /// Nothing done yet, and nobody told.
    pub fn new(listener: &'a Listener<'a>, phase: Phase, total: u64) -> Self {
        Meter { listener, phase, total, done: AtomicU64::new(0), told: Mutex::new(None) }
    }

    /// So much more is done.
    pub fn add(&self, more: u64) {
        self.done.fetch_add(more, Relaxed);
        self.tell();
    }

    /// `part` of `whole` is done, or more already.
    pub fn reach(&self, part: u64, whole: u64) {
        let done = u128::from(self.total) * u128::from(part) / u128::from(whole.max(1));
        self.done.fetch_max(done as u64, Relaxed);
        self.tell();
    }

    /// All is done; the last to be told.
    pub fn finish(&self) {
        self.done.fetch_max(self.total, Relaxed);
        self.tell();
    }

    /// Tells what is done by now, unless another thread is telling: waiting for it would stop the work, and for good where the listener
    /// itself makes the thread look for work.
    fn tell(&self) {
        let Ok(mut told) = self.told.try_lock() else { return };
        let done = self.done.load(Relaxed);
        if told.is_none_or(|before| before < done) {
            *told = Some(done);
            (self.listener)(Progress { phase: self.phase, done, total: self.total });
        }
    }
}

#[cfg(test)]
mod tests {
    use rayon::prelude::*;

    use super::*;

    #[test]
    fn what_is_told_rises_to_the_total_from_many_threads() {
        let seen = Mutex::new(Vec::new());
        let listener = |progress: Progress| seen.lock().unwrap().push(progress.done);
        let meter = Meter::new(&listener, Phase::Multiply, 10_000);
        (0..1000).into_par_iter().for_each(|_| meter.add(10));
        meter.finish();
        let seen = seen.lock().unwrap();
        assert!(seen.is_sorted_by(|a, b| a < b), "{seen:?}");
        assert_eq!(seen.last(), Some(&10_000));
    }

    #[test]
    fn nothing_to_do_is_told_once() {
        let seen = Mutex::new(Vec::new());
        let listener = |progress: Progress| seen.lock().unwrap().push((progress, progress.fraction()));
        let meter = Meter::new(&listener, Phase::Upload, 0);
        meter.finish();
        meter.finish();
        assert_eq!(*seen.lock().unwrap(), [(Progress { phase: Phase::Upload, done: 0, total: 0 }, 1.0)]);
    }

    #[test]
    fn parts_are_rounded_down() {
        let seen = Mutex::new(Vec::new());
        let listener = |progress: Progress| seen.lock().unwrap().push(progress.done);
        let meter = Meter::new(&listener, Phase::Multiply, 10);
        for part in [1, 2, 1, 3] {
            meter.reach(part, 3);
        }
        assert_eq!(*seen.lock().unwrap(), [3, 6, 10]);
    }
}
