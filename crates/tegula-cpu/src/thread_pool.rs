//! `parallel_phases`: the threads of a product.
//!
//! A *job* is a list of phases, and a phase a number of chunks. A thread claims a chunk, runs it,
//! and claims the next. When no chunk of the phase is left, it waits for the chunks that others
//! have claimed, and goes on to the next phase. So a job waits only for threads that have arrived,
//! and a late or slow thread runs fewer chunks.
//!
//! A caller outside of rayon's pools publishes its job to *workers*, threads of this module, one
//! slot each. It takes part, withdraws the job from workers that have not taken it, and waits for
//! those that have. A worker that is out of work spins for a moment before it parks: products often
//! follow one another, and waking a thread takes longer than a small product. Woken workers wake
//! others, since each wake-up takes the waker a few microseconds.
//!
//! A caller inside a rayon pool leaves the scheduling to rayon.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, Builder};
use std::time::{Duration, Instant};

use tegula_core::threads;

use super::hand_off::{self, HandOff, Parking};

/// Time that a worker spins before it parks.
const SPIN_TIME: Duration = Duration::from_micros(200);
/// Spins between two looks at the clock.
const SPINS: usize = 64;
/// Workers that a thread wakes.
const FAN_OUT: usize = 2;
/// Most workers of the process.
const MAX_WORKERS: usize = 255;
/// Most lanes of a job; more threads share them.
const MAX_LANES: usize = 64;

/// Runs `work(worker, phase, chunk)` once for each chunk of each phase, on up to `threads` threads:
/// those of the current rayon pool, else the caller and some of the first `workers` of this module.
///
/// The caller is worker 0; worker numbers are below `threads`. A phase begins when all chunks of
/// the phases before it are complete. Each thread claims chunks of its own range first, the same in
/// every job, since its cache may still hold their operands. Then it claims chunks of other ranges.
pub fn parallel_phases(
    threads: usize,
    workers: usize,
    phases: usize,
    chunks: impl Fn(usize) -> usize + Sync,
    work: impl Fn(usize, usize, usize) + Sync,
) {
    let threads = threads.min((0..phases).map(&chunks).max().unwrap_or(0));
    // With one thread rayon is not used, and its pool may not exist.
    if threads < 2 || workers == 0 {
        let _active = rayon::current_thread_index().is_none().then(|| Active::add(|_| 1));
        return (0..phases).for_each(|phase| (0..chunks(phase)).for_each(|chunk| work(0, phase, chunk)));
    }
    let mut job = Job::new(threads, phases, &chunks, &work);
    if rayon::current_thread_index().is_some() {
        return rayon::in_place_scope(|scope| {
            for worker in 1..threads {
                let job = &job;
                scope.spawn(move |_| job.claims(worker).for_each(|(phase, chunk)| (job.work)(worker, phase, chunk)));
            }
            job.claims(0).for_each(|(phase, chunk)| work(0, phase, chunk));
        });
    }
    let active = job.recruit(workers);
    let published = job.publish(active);
    job.claims(0).for_each(|(phase, chunk)| work(0, phase, chunk));
    drop(published);
    if let Some(panic) = job.panic.into_inner().unwrap_or_else(PoisonError::into_inner) {
        resume_unwind(panic);
    }
}

/// The workers that the number of threads allows.
pub fn workers() -> usize {
    threads::count() - 1
}

/// Threads that a product may use now: those of the current pool that no other product uses.
pub fn available() -> usize {
    let count = threads::count();
    if rayon::current_thread_index().is_some() {
        return count;
    }
    count.saturating_sub(ACTIVE.load(Ordering::Relaxed)).max(1)
}

/// Threads that run jobs: their callers, and the workers to which they were published.
///
/// Callers that work alone count as well: with 16 callers on 16 processors, no job takes workers.
static ACTIVE: AtomicUsize = AtomicUsize::new(0);

/// A part of [`ACTIVE`], taken off when dropped.
struct Active(usize);

impl Active {
    /// Adds the number that a function returns for the number of active threads.
    fn add(number: impl Fn(usize) -> usize) -> Active {
        let mut added = 0;
        _ = ACTIVE.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |active| {
            added = number(active);
            Some(active + added)
        });
        Active(added)
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        ACTIVE.fetch_sub(self.0, Ordering::Relaxed);
    }
}

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
struct Job<'a> {
    lanes: [Lane; MAX_LANES],
    /// Complete chunks of all phases.
    finished: Apart<AtomicUsize>,
    lane_count: usize,
    phases: usize,
    /// The number of chunks of a phase.
    chunks: &'a (dyn Fn(usize) -> usize + Sync),
    /// Runs a chunk: worker, phase, chunk.
    work: &'a (dyn Fn(usize, usize, usize) + Sync),
    /// Whether a chunk has panicked: no other chunk begins.
    failed: AtomicBool,
    /// The panic of a worker.
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    /// Workers to which the job is published.
    recruits: [u8; MAX_WORKERS],
    recruit_count: usize,
    /// Recruits that need no waking, or have been woken.
    woken: AtomicUsize,
}

impl<'a> Job<'a> {
    fn new(
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
            recruits: [0; MAX_WORKERS],
            recruit_count: threads - 1,
            woken: AtomicUsize::new(0),
        }
    }

    /// The chunks that a thread claims.
    fn claims(&self, worker: usize) -> Claims<'_, 'a> {
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

    /// Reserves free workers, of the first `workers`. Counts them as active, and the caller.
    fn recruit(&mut self, workers: usize) -> Active {
        let (workers, wanted) = (workers.min(MAX_WORKERS), self.recruit_count);
        // With the threads of other jobs there are at most as many as the pool has.
        let active = Active::add(|active| 1 + wanted.min(workers.saturating_sub(active)));
        self.recruit_count = 0;
        if active.0 == 1 {
            return active;
        }
        for (index, state) in states().iter_mut().enumerate().take(workers) {
            if self.recruit_count == active.0 - 1 {
                break;
            }
            if *state == WorkerState::NotStarted {
                *state = if start(index) { WorkerState::Free } else { WorkerState::Refused };
            }
            if *state == WorkerState::Free {
                *state = WorkerState::Reserved;
                self.recruits[self.recruit_count] = index as u8;
                self.recruit_count += 1;
            }
        }
        self.woken = AtomicUsize::new(self.recruit_count);
        active
    }

    /// Publishes the job to its recruits, and wakes some of those that are parked.
    fn publish(&self, active: Active) -> JobGuard<'_, 'a> {
        let guard = JobGuard { job: self, _active: active };
        for (i, slot) in self.recruits().enumerate() {
            slot.publish(self.address(), i + 1);
        }
        hand_off::published();
        // Recruits may be woken once all are published: one that is woken earlier parks again.
        self.woken.store(0, Ordering::Release);
        self.wake();
        guard
    }

    /// The address that is published.
    fn address(&self) -> *mut () {
        std::ptr::from_ref(self).cast_mut().cast()
    }

    fn recruits(&self) -> impl Iterator<Item = &'static HandOff> {
        self.recruits[..self.recruit_count].iter().map(|&index| &SLOTS[usize::from(index)])
    }

    /// Wakes some of the parked recruits; those wake others.
    fn wake(&self) {
        let mut count = 0;
        while count < FAN_OUT && self.woken.load(Ordering::Acquire) < self.recruit_count {
            let next = self.woken.fetch_add(1, Ordering::Relaxed);
            count += usize::from(self.recruits().nth(next).is_some_and(HandOff::unpark));
        }
    }

    /// Runs the job as a worker.
    fn help(&self, worker: usize) {
        self.wake();
        let run = || self.claims(worker).for_each(|(phase, chunk)| (self.work)(worker, phase, chunk));
        if let Err(panic) = catch_unwind(AssertUnwindSafe(run)) {
            *self.panic.lock().unwrap_or_else(PoisonError::into_inner) = Some(panic);
        }
    }
}

/// The chunks of all phases in turn that a thread claims, each when it has run the one before.
///
/// Dropping it before its end, as by a panic, marks the job as failed.
struct Claims<'a, 'b> {
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

/// The published job of a caller. Dropping it withdraws the job, and waits for the workers that
/// have taken it.
struct JobGuard<'a, 'b> {
    job: &'a Job<'b>,
    /// The threads of the job, until it has ended.
    _active: Active,
}

impl Drop for JobGuard<'_, '_> {
    fn drop(&mut self) {
        if self.job.recruit_count == 0 {
            return;
        }
        for slot in self.job.recruits() {
            slot.withdraw(self.job.address());
        }
        spin_until(|| self.job.recruits().all(HandOff::is_empty));
        let mut states = states();
        for &index in &self.job.recruits[..self.job.recruit_count] {
            states[usize::from(index)] = WorkerState::Free;
        }
    }
}

/// Spins until the condition holds. Yields now and then, since the thread that it waits for may
/// need this processor.
fn spin_until(condition: impl Fn() -> bool) {
    let mut spins = 0usize;
    while !condition() {
        spins += 1;
        if spins.is_multiple_of(4 * SPINS) { thread::yield_now() } else { std::hint::spin_loop() }
    }
}

/// States of a worker. Its thread starts at the first job that needs it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WorkerState {
    NotStarted,
    Free,
    /// A caller will publish a job to it, or has.
    Reserved,
    /// The system refused to start its thread.
    Refused,
}

/// The states of all workers.
///
/// Under one lock: a compare-and-swap for each worker would wait for one cache line after the
/// other, as long as a small product takes.
static STATES: Mutex<[WorkerState; MAX_WORKERS]> = Mutex::new([WorkerState::NotStarted; MAX_WORKERS]);

fn states() -> MutexGuard<'static, [WorkerState; MAX_WORKERS]> {
    STATES.lock().unwrap_or_else(PoisonError::into_inner)
}

static SLOTS: [HandOff; MAX_WORKERS] = [const {
    HandOff {
        job: AtomicPtr::new(null_mut()),
        number: AtomicUsize::new(0),
        parking: Parking { parked: AtomicBool::new(false), thread: OnceLock::new() },
    }
}; MAX_WORKERS];

/// Starts the thread of a worker. False if the system refuses it.
fn start(index: usize) -> bool {
    threads::spawn(Builder::new().name(format!("tegula-{index}")), move || run(&SLOTS[index]))
}

/// The loop of a worker.
fn run(slot: &HandOff) {
    _ = slot.parking.thread.set(thread::current());
    loop {
        let address = wait_for_job(slot);
        if let Some(number) = slot.take(address) {
            // SAFETY: the address is that of a job, published by its caller. Only the lifetime
            // changes: `JobGuard` waits for workers that have taken the job.
            let job = unsafe { &*address.cast::<Job<'static>>() };
            job.help(number);
            slot.release();
        }
    }
}

/// Waits until a job is published to a worker, and returns its address.
fn wait_for_job(slot: &HandOff) -> *mut () {
    let start = Instant::now();
    loop {
        for _ in 0..SPINS {
            if let Some(job) = slot.job() {
                return job;
            }
            std::hint::spin_loop();
        }
        if start.elapsed() > SPIN_TIME {
            slot.park();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Repetitions of a test; fewer under Miri.
    const TIMES: usize = if cfg!(miri) { 2 } else { 50 };
    /// Workers, also where the machine has fewer processors.
    const TEST_WORKERS: usize = if cfg!(miri) { 2 } else { 7 };

    #[test]
    fn tasks_run_once_each() {
        for (threads, tasks) in [(1, 0), (1, 5), (4, 0), (4, 3), (3, 100)] {
            for _ in 0..TIMES {
                let done = Mutex::new(Vec::new());
                parallel_phases(
                    threads,
                    TEST_WORKERS,
                    1,
                    |_| tasks,
                    |worker, _, task| {
                        assert!(worker < threads);
                        done.lock().unwrap().push(task);
                    },
                );
                let mut done = done.into_inner().unwrap();
                done.sort_unstable();
                assert!(done.into_iter().eq(0..tasks));
            }
        }
    }

    /// Each chunk sees all chunks of the phases before it, written without atomics.
    fn check_phases(threads: usize, each: [usize; 4]) {
        struct Cells(Vec<std::cell::UnsafeCell<usize>>);
        // SAFETY: a chunk writes its own cell, and reads those of complete phases.
        unsafe impl Sync for Cells {}
        impl Cells {
            fn at(&self, phase: usize, chunk: usize) -> *mut usize {
                self.0[phase * 100 + chunk].get()
            }
        }
        let cells = Cells((0..400).map(|_| 0.into()).collect());
        parallel_phases(
            threads,
            TEST_WORKERS,
            each.len(),
            |phase| each[phase],
            |worker, phase, chunk| {
                assert!(worker < threads);
                // SAFETY: as above.
                unsafe {
                    let before = (0..phase).flat_map(|phase| (0..each[phase]).map(move |chunk| (phase, chunk)));
                    assert!(before.into_iter().all(|(phase, chunk)| *cells.at(phase, chunk) == 1), "{phase} {chunk}");
                    *cells.at(phase, chunk) += 1;
                }
            },
        );
        let done: usize = cells.0.into_iter().map(std::cell::UnsafeCell::into_inner).sum();
        assert_eq!(done, each.iter().sum());
    }

    #[test]
    fn phases_begin_when_those_before_are_complete() {
        for _ in 0..TIMES {
            for each in [[1, 1, 1, 1], [9, 0, 3, 20], [100, 100, 1, 100]] {
                check_phases(3, each);
                check_phases(TEST_WORKERS + 3, each);
            }
        }
    }

    #[test]
    fn phases_of_callers_on_several_threads_are_complete() {
        std::thread::scope(|scope| {
            for _ in 0..16usize.min(2 * TIMES) {
                scope.spawn(|| (0..TIMES).for_each(|_| check_phases(8, [20, 3, 9, 1])));
            }
        });
    }

    #[test]
    fn phases_in_a_rayon_pool_are_complete() {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build().unwrap();
        let sum = AtomicUsize::new(0);
        for _ in 0..TIMES {
            pool.install(|| {
                parallel_phases(
                    3,
                    2,
                    3,
                    |_| 10,
                    |_, phase, chunk| {
                        let before = sum.fetch_add(chunk, Ordering::Relaxed);
                        assert!(before % 135 >= 45 * phase);
                    },
                );
            });
        }
        assert_eq!(sum.into_inner(), TIMES * 135);
    }

    /// The caller does not wait for workers that do not arrive.
    #[test]
    fn job_without_workers_runs_on_the_caller() {
        let count = AtomicUsize::new(0);
        let work = |worker, _, _| _ = count.fetch_add(1 + 100 * worker, Ordering::Relaxed);
        parallel_phases(4, 0, 3, |_| 5, work);
        assert_eq!(count.into_inner(), 15);
    }

    /// Otherwise as many callers as processors would wake workers for one another's products.
    #[test]
    fn callers_that_work_alone_use_a_thread_of_the_pool() {
        let others = threads::count().saturating_sub(1).max(1);
        for (threads, workers) in [(1, TEST_WORKERS), (3, 0), (3, TEST_WORKERS)] {
            parallel_phases(threads, workers, 1, |_| 3, |_, _, _| assert!(available() <= others));
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "a scope of rayon keeps a reference too long for Miri (rayon-rs/rayon#1008)")]
    fn callers_on_several_threads_run_all_tasks() {
        let sum = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..2 * TIMES {
                        parallel_phases(3, 3, 1, |_| 10, |_, _, task| _ = sum.fetch_add(task, Ordering::Relaxed));
                    }
                });
            }
        });
        assert_eq!(sum.into_inner(), 4 * 2 * TIMES * 45);
    }

    #[test]
    fn panic_of_a_worker_reaches_the_caller() {
        for panicking in [0, 3, 40] {
            let caught = catch_unwind(|| {
                parallel_phases(
                    3,
                    TEST_WORKERS,
                    2,
                    |_| 50,
                    |_, phase, task| {
                        thread::sleep(Duration::from_micros(100));
                        assert!(phase != 0 || task != panicking, "injected");
                    },
                );
            });
            assert!(caught.is_err());
        }
        check_phases(3, [5; 4]);
    }

    /// No worker keeps a processor busy between jobs.
    #[test]
    #[cfg_attr(miri, ignore = "measures time")]
    fn workers_park_after_a_moment() {
        for _ in 0..5 {
            check_phases(TEST_WORKERS + 1, [20; 4]);
            thread::sleep(Duration::from_millis(20));
            let mut started = SLOTS.iter().filter(|slot| slot.parking.thread.get().is_some());
            if started.all(|slot| slot.parking.parked.load(Ordering::SeqCst)) {
                return;
            }
        }
        panic!("workers spin while no job runs");
    }
}
