//! A job: phases of chunks, which several threads claim.
//!
//! Independent of the threads that run it, but for the workers that a worker wakes.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use super::workers::{Recruits, spin_until};

/// Most lanes of a job; more threads share them.
const MAX_LANES: usize = 64;

/// The chunks of the current phase that one thread prefers.
#[repr(align(64))]
struct Lane(
    /// The phase (upper half), and the chunks of it that have been claimed (lower half).
    AtomicU64,
);

/// A value on cache lines of its own. Processors of Intel fetch two at once.
#[repr(align(128))]
struct Apart<T>(T);

/// Phases of chunks that several threads run at once.
pub struct Job<'a> {
    lanes: [Lane; MAX_LANES],
    /// Complete chunks of all phases.
    finished: Apart<AtomicUsize>,
    lane_count: usize,
    phases: usize,
    /// The number of chunks of a phase.
    chunks: &'a (dyn Fn(usize) -> usize + Sync),
    /// Runs a chunk: worker, phase, chunk.
    pub work: &'a (dyn Fn(usize, usize, usize) + Sync),
    /// Whether a chunk has panicked: no other chunk begins.
    failed: AtomicBool,
    /// The panic of a worker.
    pub panic: Mutex<Option<Box<dyn Any + Send>>>,
    /// The workers to which the job is published.
    pub recruits: Recruits,
}

impl<'a> Job<'a> {
    /// A job for so many threads, without workers.
    pub fn new(
        threads: usize,
        phases: usize,
        chunks: &'a (dyn Fn(usize) -> usize + Sync),
        work: &'a (dyn Fn(usize, usize, usize) + Sync),
    ) -> Self {
        Job {
            lanes: [const { Lane(AtomicU64::new(0)) }; MAX_LANES],
            finished: Apart(AtomicUsize::new(0)),
            lane_count: threads.min(MAX_LANES),
            phases,
            chunks,
            work,
            failed: AtomicBool::new(false),
            panic: Mutex::new(None),
            recruits: Recruits::none(),
        }
    }

    /// The chunks that a thread claims.
    pub fn claims(&self, worker: usize) -> Claims<'_, 'a> {
        Claims { job: self, worker, phase: 0, lanes: 0, claimed: 0, total: 0 }
    }

    /// Claims the next chunk of a lane in a phase.
    fn claim(&self, phase: usize, lane: usize, chunks: usize) -> Option<usize> {
        let at = |lane: usize| lane * chunks / self.lane_count;
        let (start, end) = (at(lane), at(lane + 1));
        let claimed = |state: u64| match (state >> 32).cmp(&(phase as u64)) {
            std::cmp::Ordering::Less => Some(0),
            std::cmp::Ordering::Equal => Some(state as u32 as usize),
            std::cmp::Ordering::Greater => None,
        };
        let next = |state| {
            let claimed = claimed(state).filter(|&claimed| claimed < end - start)?;
            Some((phase as u64) << 32 | (claimed as u64 + 1))
        };
        if self.failed.load(Ordering::Relaxed) {
            return None;
        }
        let before = self.lanes[lane].0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).ok()?;
        claimed(before).map(|claimed| start + claimed)
    }

    /// Waits until `total` chunks are complete; false after a panic. All have been claimed.
    fn wait_for_chunks(&self, total: usize) -> bool {
        spin_until(|| self.finished.0.load(Ordering::Acquire) >= total || self.failed.load(Ordering::Relaxed));
        !self.failed.load(Ordering::Relaxed)
    }

    /// The address that is published.
    pub fn address(&self) -> *mut () {
        std::ptr::from_ref(self).cast_mut().cast()
    }

    /// [`Help`](super::workers::Help) for jobs.
    ///
    /// # Safety
    /// As for that type.
    pub unsafe fn help_at(address: *mut (), worker: usize) {
        // SAFETY: the caller's promise. Only the lifetime changes.
        unsafe { &*address.cast::<Job<'static>>() }.help(worker);
    }

    /// Runs the job as a worker.
    fn help(&self, worker: usize) {
        self.recruits.wake();
        let run = || self.claims(worker).for_each(|(phase, chunk)| (self.work)(worker, phase, chunk));
        if let Err(panic) = catch_unwind(AssertUnwindSafe(run)) {
            *self.panic.lock().unwrap_or_else(PoisonError::into_inner) = Some(panic);
        }
    }
}

/// The chunks of all phases in turn that a thread claims, each when it has run the one before.
///
/// Dropping it before its end, as by a panic, marks the job as failed.
pub struct Claims<'a, 'b> {
    job: &'a Job<'b>,
    worker: usize,
    phase: usize,
    /// Lanes of the phase without chunks left, from the thread's own lane on.
    lanes: usize,
    /// Chunks of the phase that the thread has claimed.
    claimed: usize,
    /// Chunks of the phases before.
    total: usize,
}

impl Iterator for Claims<'_, '_> {
    type Item = (usize, usize);

    fn next(&mut self) -> Option<(usize, usize)> {
        let job = self.job;
        while self.phase < job.phases {
            let chunks = (job.chunks)(self.phase);
            while self.lanes < job.lane_count {
                let lane = (self.worker + self.lanes) % job.lane_count;
                if let Some(chunk) = job.claim(self.phase, lane, chunks) {
                    self.claimed += 1;
                    return Some((self.phase, chunk));
                }
                self.lanes += 1;
            }
            self.total += chunks;
            // No thread waits for chunks of the last phase: the caller waits for its workers.
            let last = self.phase + 1 == job.phases;
            if !last {
                job.finished.0.fetch_add(self.claimed, Ordering::AcqRel);
            }
            if last || job.wait_for_chunks(self.total) {
                self.phase += 1;
                (self.lanes, self.claimed) = (0, 0);
            } else {
                self.phase = job.phases;
            }
        }
        None
    }
}

impl Drop for Claims<'_, '_> {
    fn drop(&mut self) {
        if self.phase < self.job.phases {
            self.job.failed.store(true, Ordering::Relaxed);
        }
    }
}
