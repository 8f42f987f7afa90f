//! `parallel_phases`: the threads of a product.
//!
//! A *job* is a list of phases, and a phase a number of chunks. A thread claims a chunk, runs it,
//! and claims the next. When no chunk of the phase is left, it waits for the chunks that others
//! have claimed, and goes on to the next phase. So a job waits only for threads that have arrived,
//! and a late or slow thread runs fewer chunks.
//!
//! A caller outside of rayon's pools publishes its job to *workers* (`workers.rs`). It takes part,
//! withdraws the job from workers that have not taken it, and waits for those that have.
//!
//! A caller inside a rayon pool leaves the scheduling to rayon.

use std::panic::resume_unwind;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicUsize, Ordering};

use tegula_core::threads;

use super::job::Job;
use super::workers::{self, MAX_WORKERS};

/// Runs `work(worker, phase, chunk)` once for each chunk of each phase, on up to `threads` threads:
/// those of the current rayon pool, else the caller and some of the first `workers`.
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
    let active = Active::of_job(workers.min(MAX_WORKERS), threads);
    job.recruits.reserve(workers, active.0 - 1, Job::help_at);
    let published = Published::new(&job, active);
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
///
/// A short product takes less time than waking a worker. It has one thread, unless its caller's
/// last job is so recent that workers still spin, or would if that had woken them. So it is to end
/// with [`ShortJob`].
pub fn available(is_short: bool) -> usize {
    if rayon::current_thread_index().is_some() {
        return threads::count();
    }
    if is_short && !workers::still_spin() {
        return 1;
    }
    threads::count().saturating_sub(ACTIVE.load(Ordering::Relaxed)).max(1)
}

/// A short job of this caller, which ends when it is dropped.
pub struct ShortJob;

impl Drop for ShortJob {
    fn drop(&mut self) {
        workers::job_ended();
    }
}

/// Threads that run jobs: their callers, and the workers to which they were published.
///
/// Callers that work alone count as well: with 16 callers on 16 processors, no job takes workers.
static ACTIVE: AtomicUsize = AtomicUsize::new(0);

/// A part of [`ACTIVE`], taken off when dropped.
struct Active(usize);

impl Active {
    /// Counts a caller, and the workers for its job: with the threads of other jobs there are at
    /// most as many as the pool has.
    fn of_job(workers: usize, threads: usize) -> Active {
        Active::add(|active| threads.min(1 + workers.saturating_sub(active)))
    }

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

/// A published job. Dropping it withdraws the job, and waits for the workers that have taken it.
struct Published<'a, 'b> {
    job: &'a Job<'b>,
    /// The threads of the job, until it has ended.
    _active: Active,
}

impl<'a, 'b> Published<'a, 'b> {
    fn new(job: &'a Job<'b>, active: Active) -> Self {
        let published = Published { job, _active: active };
        // SAFETY: all callers publish a `Job`, as `Job::help_at` expects. This one is borrowed
        // until it is withdrawn, when `published` is dropped.
        unsafe { job.recruits.publish(job.address()) };
        published
    }
}

impl Drop for Published<'_, '_> {
    fn drop(&mut self) {
        self.job.recruits.withdraw(self.job.address());
    }
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;
    use std::sync::Mutex;
    use std::thread;
    use std::time::Duration;

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
            parallel_phases(threads, workers, 1, |_| 3, |_, _, _| assert!(available(false) <= others));
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
            if workers::are_parked() {
                return;
            }
        }
        panic!("workers spin while no job runs");
    }
}
