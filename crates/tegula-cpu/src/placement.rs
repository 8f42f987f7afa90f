//! Keeps a worker off the processor of its caller.
//!
//! Linux may start or wake a thread on the processor of the thread that does so, though others are
//! idle (measured in virtual machines of two processors). A worker there takes time from its caller
//! instead of helping it, and the system may leave both there. So a worker that finds itself on
//! that processor leaves it, and from then on is woken elsewhere: the waker excludes its processor
//! and the caller's from the affinity of the worker meanwhile. On other systems nothing is done.
//!
//! A worker that was moved keeps the processors that it could use at that time. A change of its
//! affinity from outside is lost if it comes while the worker is moved or woken, some 10 µs.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

pub use system::current_processor;

/// Where a worker should not run.
pub struct Placement {
    /// The worker's thread, once it runs.
    thread: OnceLock<system::Thread>,
    /// The processor from which the worker got its last job, if known.
    caller: AtomicUsize,
    /// Whether the worker was ever on that processor.
    was_misplaced: AtomicBool,
    /// Whether a thread changes the worker's affinity.
    is_changing: AtomicBool,
}

/// An unknown processor.
const UNKNOWN: usize = usize::MAX;

impl Placement {
    pub const fn new() -> Self {
        Placement {
            thread: OnceLock::new(),
            caller: AtomicUsize::new(UNKNOWN),
            was_misplaced: AtomicBool::new(false),
            is_changing: AtomicBool::new(false),
        }
    }

    /// Notes the current thread as the worker's.
    pub fn set_thread(&self) {
        _ = self.thread.set(system::Thread::current());
    }

    /// Notes the processor from which the worker gets a job.
    pub fn set_caller(&self, processor: Option<usize>) {
        let processor = processor.unwrap_or(UNKNOWN);
        // It seldom changes, and the worker reads it while it spins.
        if self.caller.load(Ordering::Relaxed) != processor {
            self.caller.store(processor, Ordering::Relaxed);
        }
    }

    /// Wakes the worker by `unpark`.
    pub fn wake(&self, unpark: impl FnOnce()) {
        let processors = || [self.caller.load(Ordering::Relaxed), current_processor().unwrap_or(UNKNOWN)];
        let _excluded = self.was_misplaced.load(Ordering::Relaxed).then(|| self.exclude(&processors()));
        unpark();
    }

    /// Leaves the processor of the worker's caller, if the worker is there.
    pub fn leave_caller(&self) {
        let caller = self.caller.load(Ordering::Relaxed);
        if let Some(here) = current_processor().filter(|&here| here == caller) {
            self.was_misplaced.store(true, Ordering::Relaxed);
            // The system moves it at once, to any other processor.
            drop(self.exclude(&[here]));
        }
    }

    /// Excludes processors from the worker's affinity, until the result is dropped. `None` if no
    /// other is left, the system refuses, or another thread does so now: the affinity of that time
    /// would be restored last.
    fn exclude(&self, processors: &[usize]) -> Option<Exclusion<'_>> {
        let thread = self.thread.get()?;
        let lock = Lock::acquire(&self.is_changing)?;
        Some(Exclusion { _excluded: thread.exclude(processors)?, _lock: lock })
    }
}

/// Processors that are excluded. The affinity is restored, then another thread may change it.
struct Exclusion<'a> {
    _excluded: system::Excluded,
    _lock: Lock<'a>,
}

/// A flag that is set.
struct Lock<'a>(&'a AtomicBool);

impl<'a> Lock<'a> {
    /// `None` if another thread has set it.
    fn acquire(flag: &'a AtomicBool) -> Option<Self> {
        (!flag.swap(true, Ordering::Acquire)).then_some(Lock(flag))
    }
}

impl Drop for Lock<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

#[cfg(all(target_os = "linux", not(miri)))]
mod system {
    use rustix::thread::{CpuSet, Pid, gettid, sched_getaffinity, sched_getcpu, sched_setaffinity};

    pub struct Thread(Pid);

    impl Thread {
        pub fn current() -> Self {
            Thread(gettid())
        }

        /// Excludes processors from the thread's affinity, until the result is dropped. `None` if
        /// it has none of them or no others, or the system refuses.
        pub fn exclude(&self, processors: &[usize]) -> Option<Excluded> {
            let affinity = sched_getaffinity(Some(self.0)).ok()?;
            let mut others = affinity;
            for &processor in processors.iter().filter(|&&processor| processor < CpuSet::MAX_CPU) {
                others.unset(processor);
            }
            if others == affinity || others.count() == 0 {
                return None;
            }
            sched_setaffinity(Some(self.0), &others).ok()?;
            Some(Excluded { thread: self.0, affinity })
        }
    }

    /// A thread with processors excluded from its affinity.
    pub struct Excluded {
        thread: Pid,
        affinity: CpuSet,
    }

    impl Drop for Excluded {
        fn drop(&mut self) {
            // Refused only if none of the processors is left to the process. Then the system has
            // chosen others for this thread.
            _ = sched_setaffinity(Some(self.thread), &self.affinity);
        }
    }

    #[allow(clippy::unnecessary_wraps, reason = "unknown on other systems")]
    pub fn current_processor() -> Option<usize> {
        Some(sched_getcpu())
    }
}

#[cfg(not(all(target_os = "linux", not(miri))))]
mod system {
    pub struct Thread;
    pub struct Excluded;

    impl Thread {
        pub fn current() -> Self {
            Thread
        }

        pub fn exclude(&self, _processors: &[usize]) -> Option<Excluded> {
            None
        }
    }

    pub fn current_processor() -> Option<usize> {
        None
    }
}

#[cfg(all(test, target_os = "linux", not(miri)))]
mod tests {
    use std::sync::mpsc::channel;
    use std::thread;

    use rustix::thread::{sched_getaffinity, sched_getcpu};

    use super::*;

    #[test]
    fn one_thread_at_a_time_changes_an_affinity() {
        let flag = AtomicBool::new(false);
        let lock = Lock::acquire(&flag);
        assert!(lock.is_some() && Lock::acquire(&flag).is_none());
        drop(lock);
        assert!(Lock::acquire(&flag).is_some());
    }

    #[test]
    fn worker_leaves_its_caller_and_is_woken_elsewhere() {
        let placement = Placement::new();
        let (end, wait) = channel::<()>();
        thread::scope(|scope| {
            let (ready, started) = channel();
            let placement = &placement;
            scope.spawn(move || {
                placement.set_thread();
                let affinity = sched_getaffinity(None).unwrap();
                // The system may move it between these calls.
                let found_caller = (0..1000).any(|_| {
                    placement.set_caller(current_processor());
                    placement.leave_caller();
                    placement.was_misplaced.load(Ordering::Relaxed)
                });
                assert!(found_caller);
                let is_elsewhere = || sched_getcpu() != placement.caller.load(Ordering::Relaxed);
                // The system may move it back.
                let left = affinity.count() == 1
                    || (0..100).any(|_| {
                        placement.leave_caller();
                        is_elsewhere()
                    });
                assert!(left);
                assert_eq!(sched_getaffinity(None).unwrap(), affinity);
                ready.send(rustix::thread::gettid()).unwrap();
                _ = wait.recv();
            });
            let worker = started.recv().unwrap();
            let affinity = || sched_getaffinity(Some(worker)).unwrap();
            let before = affinity();
            // On two processors none is left if this thread moves in between.
            let is_excluded = (0..100).any(|_| {
                let mut is_excluded = false;
                placement.set_caller(current_processor());
                placement.wake(|| is_excluded = affinity() != before && placement.is_changing.load(Ordering::Relaxed));
                is_excluded
            });
            assert!(before.count() == 1 || is_excluded);
            assert_eq!(affinity(), before);
            placement.was_misplaced.store(false, Ordering::Relaxed);
            placement.wake(|| assert_eq!(affinity(), before));
            drop(end);
        });
    }
}
