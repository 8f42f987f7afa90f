//! The hand-off of jobs to a worker thread: a slot that holds one job at a time.
//!
//! A caller that has reserved a worker *publishes* a job to it, and *withdraws* the job if the
//! worker has not *taken* it. A worker that has taken a job *releases* its slot when it has run it.
//! The caller keeps the job alive until the slot is empty.
//!
//! While it spins, a worker reads one cache line, which its caller writes once. To wait for several
//! workers, the caller reads the slot of each: they do not write to a common cache line.
//!
//! Independent of jobs and of the time that workers spin. `hand_off_model` compiles this file a
//! second time, with loom's types, and tests it.

use std::ptr::{null_mut, without_provenance_mut};
use std::sync::OnceLock;

use super::sync::{AtomicBool, AtomicPtr, AtomicUsize, Ordering, Thread, fence, park};

/// The slot of a worker.
#[repr(align(128))]
pub struct HandOff {
    /// The job to run: null for none, or [`taken`].
    pub job: AtomicPtr<()>,
    /// The worker's number in that job.
    pub number: AtomicUsize,
    pub parking: Parking,
}

/// What a caller needs to wake a worker. It seldom changes, and so stays in the caches of callers,
/// apart from the cache line of the job.
#[repr(align(128))]
pub struct Parking {
    /// Whether the worker is parked, or about to park.
    pub parked: AtomicBool,
    /// The worker's thread, once it runs.
    pub thread: OnceLock<Thread>,
}

/// The mark of a worker that runs a job.
fn taken() -> *mut () {
    without_provenance_mut(1)
}

/// A fence between publishing jobs and reading which workers are parked.
pub fn published() {
    fence(Ordering::SeqCst);
}

/// For callers.
impl HandOff {
    /// Publishes a job to the reserved worker. [`published`] comes before [`wake`](Self::wake).
    pub fn publish(&self, job: *mut (), number: usize) {
        self.number.store(number, Ordering::Relaxed);
        self.job.store(job, Ordering::Release);
    }

    /// Withdraws a job that the worker has not taken.
    pub fn withdraw(&self, job: *mut ()) -> bool {
        // Most often the worker has taken it. A load is then cheaper than a compare-and-swap.
        self.job.load(Ordering::Relaxed) == job
            && self.job.compare_exchange(job, null_mut(), Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Whether the worker holds no job: it has released the last one, or that was withdrawn.
    pub fn is_empty(&self) -> bool {
        self.job.load(Ordering::Acquire).is_null()
    }

    /// Wakes the worker by `unpark`, if it is parked, and returns whether it was.
    pub fn wake(&self, unpark: impl FnOnce(&Thread)) -> bool {
        let Parking { parked, thread } = &self.parking;
        let parked = parked.load(Ordering::Relaxed);
        if let Some(thread) = thread.get().filter(|_| parked) {
            unpark(thread);
        }
        parked
    }
}

/// For the worker.
impl HandOff {
    /// The published job, if any.
    pub fn job(&self) -> Option<*mut ()> {
        let job = self.job.load(Ordering::Relaxed);
        (!job.is_null()).then_some(job)
    }

    /// Parks, unless a job is published.
    pub fn park(&self) {
        self.parking.parked.store(true, Ordering::Relaxed);
        // With the fence of `published`: either the caller sees that this thread parks, or this
        // thread sees the job.
        fence(Ordering::SeqCst);
        if self.job().is_none() {
            park();
        }
        self.parking.parked.store(false, Ordering::Relaxed);
    }

    /// Takes a job, and returns the worker's number in it. `None` if it has been withdrawn.
    pub fn take(&self, job: *mut ()) -> Option<usize> {
        self.job.compare_exchange(job, taken(), Ordering::Acquire, Ordering::Relaxed).ok()?;
        Some(self.number.load(Ordering::Relaxed))
    }

    /// Empties the slot: the worker has run its job, and does not access it any more.
    pub fn release(&self) {
        self.job.store(null_mut(), Ordering::Release);
    }
}
