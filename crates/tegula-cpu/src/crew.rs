//! Threads that share tasks: the caller and others of its rayon pool.
//!
//! A thread of the global pool that has shared the tasks of a caller outside it waits a moment for more: products often follow one another, and to wake a sleeping thread takes
//! longer than a small one. Meanwhile it does whatever else the pool is asked for.

use std::any::Any;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tegula_core::threads;

/// How long a thread waits for more.
const LINGER: Duration = Duration::from_micros(200);

/// Does each task once, on up to `threads` threads of the current pool, of which the caller is one. `work` is told which worker it is, from 0 on and below
/// `threads`, and which task.
///
/// A thread takes the next task when it has done one, so one that comes late, or is slow, does fewer; where others are busy the caller does all.
pub fn share(threads: usize, tasks: usize, work: impl Fn(usize, usize) + Sync) {
    let next = AtomicUsize::new(0);
    let worker = |worker: usize| {
        loop {
            let task = next.fetch_add(1, Ordering::Relaxed);
            if task >= tasks {
                return;
            }
            work(worker, task);
        }
    };
    let threads = threads.min(tasks);
    // Where the pool has one thread it may not be there at all.
    if threads < 2 || threads::count() < 2 {
        return (0..tasks).for_each(|task| work(0, task));
    }
    if rayon::current_thread_index().is_none()
        && let Some(job) = Job::open(threads, &worker)
    {
        worker(0);
        return job.end();
    }
    rayon::in_place_scope(|scope| {
        for other in 1..threads {
            let worker = &worker;
            scope.spawn(move |_| worker(other));
        }
        worker(0);
    });
}

/// The job that threads of the global pool may join; one at a time.
static OPEN: Mutex<Option<Arc<Job>>> = Mutex::new(None);
/// How many jobs there were.
static JOBS: AtomicUsize = AtomicUsize::new(0);
/// Threads that wait for one, are at one, or have been asked to come: no more of them than a job has seats, for a second one would take turns with the first
/// where there is no processor for it.
static CREW: AtomicUsize = AtomicUsize::new(0);

/// Work that several threads do at once, each with a number of its own.
struct Job {
    work: *const (dyn Fn(usize) + Sync),
    /// How many others may join.
    seats: usize,
    /// How many have.
    joined: AtomicUsize,
    /// How many of them are done.
    done: AtomicUsize,
    /// What one of them panicked with.
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

// SAFETY: the work is `Sync`, and `OpenJob` waits for all threads that joined.
unsafe impl Send for Job {}
// SAFETY: as above.
unsafe impl Sync for Job {}

/// An open job. Dropping it closes the job and waits for the threads that joined.
struct OpenJob<'a> {
    job: Arc<Job>,
    work: PhantomData<&'a dyn Fn(usize)>,
}

impl Drop for OpenJob<'_> {
    fn drop(&mut self) {
        *open() = None;
        let mut turns = 0;
        while self.job.done.load(Ordering::Acquire) < self.job.joined.load(Ordering::Acquire) {
            turns += 1;
            if turns % 64 == 0 { std::thread::yield_now() } else { std::hint::spin_loop() }
        }
    }
}

impl OpenJob<'_> {
    /// Waits for the threads that joined, and passes on the panic of one.
    fn end(self) {
        let job = self.job.clone();
        drop(self);
        if let Some(panic) = job.panic.lock().unwrap_or_else(PoisonError::into_inner).take() {
            resume_unwind(panic);
        }
    }
}

fn open() -> MutexGuard<'static, Option<Arc<Job>>> {
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Job {
    /// Asks other threads to do the work too. `None` where another job is open.
    fn open(threads: usize, work: &(dyn Fn(usize) + Sync)) -> Option<OpenJob<'_>> {
        // SAFETY: only the lifetime changes. `OpenJob` borrows the work; no thread calls it after the drop.
        let work: &'static (dyn Fn(usize) + Sync) = unsafe { std::mem::transmute(work) };
        let job = Arc::new(Job {
            work,
            seats: threads - 1,
            joined: AtomicUsize::new(0),
            done: AtomicUsize::new(0),
            panic: Mutex::new(None),
        });
        {
            let mut open = open();
            if open.is_some() {
                return None;
            }
            *open = Some(job.clone());
        }
        // Closed again also where a thread cannot be asked.
        let job = OpenJob { job, work: PhantomData };
        JOBS.fetch_add(1, Ordering::Release);
        // No more than there are seats: where it takes longer to ask one than they wait, they would go as fast as others are asked.
        let seats = threads - 1;
        for _ in 0..seats {
            let free = |crew| (crew < seats).then_some(crew + 1);
            if CREW.fetch_update(Ordering::AcqRel, Ordering::Acquire, free).is_err() {
                break;
            }
            rayon::spawn(attend);
        }
        Some(job)
    }

    /// Joins the open job, if it has a seat left, and does the work.
    fn join() {
        let (job, seat) = {
            let open = open();
            let Some(job) = open.as_ref() else { return };
            let seat = job.joined.load(Ordering::Relaxed);
            if seat == job.seats {
                return;
            }
            job.joined.store(seat + 1, Ordering::Release);
            (job.clone(), seat)
        };
        // SAFETY: who has joined is waited for.
        let work = unsafe { &*job.work };
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| work(seat + 1))) {
            *job.panic.lock().unwrap_or_else(PoisonError::into_inner) = Some(panic);
        }
        job.done.fetch_add(1, Ordering::Release);
    }
}

/// What a thread of the global pool does: joins jobs until none has come for a while.
fn attend() {
    let mut seen = JOBS.load(Ordering::Acquire);
    Job::join();
    let mut since = Instant::now();
    while since.elapsed() < LINGER {
        let now = JOBS.load(Ordering::Acquire);
        if now != seen {
            seen = now;
            Job::join();
            since = Instant::now();
        } else if rayon::yield_now() != Some(rayon::Yield::Executed) {
            (0..16).for_each(|_| std::hint::spin_loop());
        }
    }
    CREW.fetch_sub(1, Ordering::AcqRel);
    // One that was opened in between counted on this thread.
    Job::join();
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How often a test is repeated; an interpreter is slow.
    const TIMES: usize = if cfg!(miri) { 2 } else { 50 };

    #[test]
    fn every_task_is_done_once() {
        for (threads, tasks) in [(1, 0), (1, 5), (4, 0), (4, 3), (3, 100)] {
            for _ in 0..TIMES {
                let done = Mutex::new(Vec::new());
                share(threads, tasks, |worker, task| {
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
    fn several_callers_share_the_pool() {
        let sum = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..2 * TIMES {
                        share(3, 10, |_, task| _ = sum.fetch_add(task, Ordering::Relaxed));
                    }
                });
            }
        });
        assert_eq!(sum.into_inner(), 4 * 2 * TIMES * 45);
    }

    #[test]
    fn a_panic_reaches_the_caller() {
        let caught = catch_unwind(|| {
            share(3, 50, |_, task| {
                std::thread::sleep(Duration::from_micros(100));
                assert!(task != 40, "planted");
            });
        });
        assert!(caught.is_err());
        share(3, 5, |_, _| ());
    }
}
