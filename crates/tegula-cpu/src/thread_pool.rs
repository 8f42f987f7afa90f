//! `parallel_for` over the rayon pool of the caller.
//!
//! A caller outside the pool opens a *job*, which workers of the global pool join. After a job a
//! worker spins for a moment before it parks: products often follow one another, and waking a
//! thread takes longer than a small product. While it spins, it runs other work of the pool.
//!
//! A caller inside a pool, or one that finds another job open, uses a rayon scope instead.

use std::any::Any;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tegula_core::threads;

/// Time that a worker spins before it parks.
const SPIN_TIME: Duration = Duration::from_micros(200);

/// Runs `work(worker, task)` once for each task, on up to `threads` threads of the current pool.
///
/// The caller is worker 0; worker numbers are below `threads`.
///
/// Scheduling is dynamic: a thread takes the next task when it has finished one, so a late or slow
/// thread runs fewer. If the other threads are busy, the caller runs all tasks.
pub fn parallel_for(threads: usize, tasks: usize, work: impl Fn(usize, usize) + Sync) {
    let next = AtomicUsize::new(0);
    let run_worker = |worker: usize| {
        loop {
            let task = next.fetch_add(1, Ordering::Relaxed);
            if task >= tasks {
                return;
            }
            work(worker, task);
        }
    };
    let threads = threads.min(tasks);
    // With one thread rayon is not used, and its pool may not exist.
    if threads < 2 || threads::count() < 2 {
        return (0..tasks).for_each(|task| work(0, task));
    }
    if rayon::current_thread_index().is_none()
        && let Some(job) = Job::open(threads, &run_worker)
    {
        run_worker(0);
        return job.wait();
    }
    rayon::in_place_scope(|scope| {
        for worker in 1..threads {
            let run_worker = &run_worker;
            scope.spawn(move |_| run_worker(worker));
        }
        run_worker(0);
    });
}

/// The open job, which workers of the global pool may join; at most one.
static OPEN_JOB: Mutex<Option<Arc<Job>>> = Mutex::new(None);
/// Number of jobs opened so far.
static JOB_COUNT: AtomicUsize = AtomicUsize::new(0);
/// Workers that spin, run a job, or have been spawned: at most the helpers of a job. Where no
/// processor is free, one more worker would only preempt another.
static ACTIVE_WORKERS: AtomicUsize = AtomicUsize::new(0);

/// A function that several threads run at once, each with its own worker number.
struct Job {
    work: *const (dyn Fn(usize) + Sync),
    /// The maximum number of workers that join the caller.
    max_helpers: usize,
    /// Workers that have joined.
    joined: AtomicUsize,
    /// Joined workers that have finished.
    finished: AtomicUsize,
    /// The panic of a worker.
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

// SAFETY: the function is `Sync`, and `JobGuard` waits for all workers that joined.
unsafe impl Send for Job {}
// SAFETY: as above.
unsafe impl Sync for Job {}

/// The open job of a caller. Dropping it closes the job and waits for the workers that joined.
struct JobGuard<'a> {
    job: Arc<Job>,
    work: PhantomData<&'a dyn Fn(usize)>,
}

impl Drop for JobGuard<'_> {
    fn drop(&mut self) {
        *open_job() = None;
        let mut spins = 0;
        while self.job.finished.load(Ordering::Acquire) < self.job.joined.load(Ordering::Acquire) {
            spins += 1;
            if spins % 64 == 0 { std::thread::yield_now() } else { std::hint::spin_loop() }
        }
    }
}

impl JobGuard<'_> {
    /// Waits for the workers that joined, and resumes the panic of one.
    fn wait(self) {
        let job = self.job.clone();
        drop(self);
        if let Some(panic) = job.panic.lock().unwrap_or_else(PoisonError::into_inner).take() {
            resume_unwind(panic);
        }
    }
}

fn open_job() -> MutexGuard<'static, Option<Arc<Job>>> {
    OPEN_JOB.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Job {
    /// Opens a job and spawns workers for it. `None` where another job is open.
    fn open(threads: usize, work: &(dyn Fn(usize) + Sync)) -> Option<JobGuard<'_>> {
        // SAFETY: only the lifetime changes. `JobGuard` borrows the function; no thread calls it
        // after the drop.
        let work: &'static (dyn Fn(usize) + Sync) = unsafe { std::mem::transmute(work) };
        let max_helpers = threads - 1;
        let job = Arc::new(Job {
            work,
            max_helpers,
            joined: AtomicUsize::new(0),
            finished: AtomicUsize::new(0),
            panic: Mutex::new(None),
        });
        {
            let mut open = open_job();
            if open.is_some() {
                return None;
            }
            *open = Some(job.clone());
        }
        // The guard closes the job also where a spawn panics.
        let job = JobGuard { job, work: PhantomData };
        JOB_COUNT.fetch_add(1, Ordering::Release);
        // No more workers than helpers: where a spawn takes longer than the spin time, workers
        // would park as fast as others are spawned.
        for _ in 0..max_helpers {
            let add_one = |active| (active < max_helpers).then_some(active + 1);
            if ACTIVE_WORKERS.fetch_update(Ordering::AcqRel, Ordering::Acquire, add_one).is_err() {
                break;
            }
            rayon::spawn(run_worker_loop);
        }
        Some(job)
    }

    /// Joins the open job, unless it has all its helpers, and runs it.
    fn join_open() {
        let (job, helper) = {
            let open = open_job();
            let Some(job) = open.as_ref() else { return };
            let helper = job.joined.load(Ordering::Relaxed);
            if helper == job.max_helpers {
                return;
            }
            job.joined.store(helper + 1, Ordering::Release);
            (job.clone(), helper)
        };
        // SAFETY: the guard waits for every worker that has joined.
        let work = unsafe { &*job.work };
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| work(helper + 1))) {
            *job.panic.lock().unwrap_or_else(PoisonError::into_inner) = Some(panic);
        }
        job.finished.fetch_add(1, Ordering::Release);
    }
}

/// The loop of a worker of the global pool: joins jobs until none has been opened for the spin
/// time.
fn run_worker_loop() {
    let mut seen = JOB_COUNT.load(Ordering::Acquire);
    Job::join_open();
    let mut since = Instant::now();
    while since.elapsed() < SPIN_TIME {
        let count = JOB_COUNT.load(Ordering::Acquire);
        if count != seen {
            seen = count;
            Job::join_open();
            since = Instant::now();
        } else if rayon::yield_now() != Some(rayon::Yield::Executed) {
            (0..16).for_each(|_| std::hint::spin_loop());
        }
    }
    ACTIVE_WORKERS.fetch_sub(1, Ordering::AcqRel);
    // A job that was opened in between has counted this worker as active, so it may have spawned
    // none.
    Job::join_open();
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Repetitions of a test; fewer under Miri.
    const TIMES: usize = if cfg!(miri) { 2 } else { 50 };

    #[test]
    fn tasks_run_once_each() {
        for (threads, tasks) in [(1, 0), (1, 5), (4, 0), (4, 3), (3, 100)] {
            for _ in 0..TIMES {
                let done = Mutex::new(Vec::new());
                parallel_for(threads, tasks, |worker, task| {
                    assert!(worker < threads);
                    done.lock().unwrap().push(task);
                });
                let mut done = done.into_inner().unwrap();
                done.sort_unstable();
                assert!(done.into_iter().eq(0..tasks));
            }
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
                        parallel_for(3, 10, |_, task| _ = sum.fetch_add(task, Ordering::Relaxed));
                    }
                });
            }
        });
        assert_eq!(sum.into_inner(), 4 * 2 * TIMES * 45);
    }

    #[test]
    fn panic_of_a_worker_reaches_the_caller() {
        let caught = catch_unwind(|| {
            parallel_for(3, 50, |_, task| {
                std::thread::sleep(Duration::from_micros(100));
                assert!(task != 40, "injected");
            });
        });
        assert!(caught.is_err());
        parallel_for(3, 5, |_, _| ());
    }
}
