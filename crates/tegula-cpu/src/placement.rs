//! On which processor the system wakes a worker.
//!
//! Linux may wake a thread on the processor of the thread that wakes it, though others are idle
//! (measured in virtual machines of two processors). A worker there takes time from its waker, and
//! does not help it before the system moves one of them, which takes up to some milliseconds. Once
//! that has happened to a worker, its wakers exclude their processor from its affinity while they
//! wake it. On other systems nothing is done.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Where one worker has been woken.
pub struct Placement {
    /// The worker's thread, once it runs.
    thread: OnceLock<system::Thread>,
    /// The processor from which the worker was woken last, if known.
    waker: AtomicUsize,
    /// Whether the worker was ever woken on its waker's processor.
    excludes_waker: AtomicBool,
}

/// An unknown processor.
const UNKNOWN: usize = usize::MAX;

impl Placement {
    pub const fn new() -> Self {
        Placement { thread: OnceLock::new(), waker: AtomicUsize::new(UNKNOWN), excludes_waker: AtomicBool::new(false) }
    }

    /// Notes the current thread as the worker's.
    pub fn set_thread(&self) {
        _ = self.thread.set(system::Thread::current());
    }

    /// Wakes the worker by `unpark`.
    pub fn wake(&self, unpark: impl FnOnce()) {
        let processor = system::current_processor();
        self.waker.store(processor.unwrap_or(UNKNOWN), Ordering::Relaxed);
        let excludes = self.excludes_waker.load(Ordering::Relaxed);
        let _excluded = processor.filter(|_| excludes).and_then(|processor| self.thread.get()?.exclude(processor));
        unpark();
    }

    /// Notes where the worker runs now that it has been woken.
    pub fn note_woken(&self) {
        if system::current_processor().is_some_and(|here| here == self.waker.load(Ordering::Relaxed)) {
            self.excludes_waker.store(true, Ordering::Relaxed);
        }
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

        /// Excludes a processor from the thread's affinity, until the result is dropped. `None` if
        /// no other is left or the system refuses.
        pub fn exclude(&self, processor: usize) -> Option<Excluded> {
            let affinity = sched_getaffinity(Some(self.0)).ok()?;
            let mut others = affinity;
            // A machine may have more processors than a set holds.
            if processor < CpuSet::MAX_CPU {
                others.unset(processor);
            }
            if others.count() == 0 {
                return None;
            }
            sched_setaffinity(Some(self.0), &others).ok()?;
            Some(Excluded { thread: self.0, affinity })
        }
    }

    /// A thread from whose affinity a processor is excluded.
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

    impl Thread {
        pub fn current() -> Self {
            Thread
        }

        pub fn exclude(&self, _processor: usize) -> Option<()> {
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

    use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu};

    use super::*;

    /// A worker that was once woken on its waker's processor may not run there while it is woken
    /// again, and then may run where it did before.
    #[test]
    fn processor_of_the_waker_is_excluded_while_it_wakes() {
        let placement = Placement::new();
        let (end, wait) = channel::<()>();
        thread::scope(|scope| {
            let (ready, started) = channel();
            let placement = &placement;
            scope.spawn(move || {
                placement.set_thread();
                ready.send(rustix::thread::gettid()).unwrap();
                _ = wait.recv();
            });
            let worker = started.recv().unwrap();
            let affinity = || sched_getaffinity(Some(worker)).unwrap();
            let before = affinity();
            placement.wake(|| assert_eq!(affinity(), before));
            // The worker finds itself on the processor of its waker.
            placement.waker.store(sched_getcpu(), Ordering::Relaxed);
            placement.note_woken();
            // This thread may have moved in between.
            let noted = placement.excludes_waker.load(Ordering::Relaxed);
            placement.excludes_waker.store(true, Ordering::Relaxed);
            placement.wake(|| {
                let processor = placement.waker.load(Ordering::Relaxed);
                let mut others: CpuSet = before;
                others.unset(processor);
                assert_eq!(affinity(), if others.count() == 0 { before } else { others });
            });
            assert_eq!(affinity(), before);
            assert!(noted || before.count() > 1);
            drop(end);
        });
    }
}
