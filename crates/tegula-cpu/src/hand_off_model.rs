//! A model of the hand-off: loom tries the interleavings of callers and a worker, up to three
//! preemptions.
//!
//! `cargo xtask loom` runs it, with `--cfg tegula_loom`.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

mod sync {
    pub use loom::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering, fence};
    pub use loom::thread::{Thread, park};
}
#[path = "hand_off.rs"]
mod hand_off;

use hand_off::{HandOff, Pending};
use sync::{AtomicBool, AtomicPtr, AtomicUsize};

/// A job that a worker runs by writing to it without an atomic.
struct Job {
    result: UnsafeCell<usize>,
    pending: Pending,
    is_last: bool,
}

impl Job {
    fn new(is_last: bool) -> Job {
        Job { result: UnsafeCell::new(0), pending: Pending(AtomicUsize::new(1)), is_last }
    }

    fn address(&self) -> *mut () {
        std::ptr::from_ref(self).cast_mut().cast()
    }

    fn wait(&self) {
        while !self.pending.is_over() {
            thread::yield_now();
        }
    }
}

fn slot() -> HandOff {
    HandOff {
        job: AtomicPtr::new(std::ptr::null_mut()),
        number: AtomicUsize::new(0),
        parked: AtomicBool::new(false),
        thread: std::sync::OnceLock::new(),
    }
}

/// A worker that parks at once, until its last job.
fn work(slot: &HandOff) {
    _ = slot.thread.set(thread::current());
    loop {
        let Some(address) = slot.job() else {
            slot.park();
            continue;
        };
        let Some(number) = slot.take(address) else { continue };
        // SAFETY: callers keep their jobs until they are withdrawn or no longer pending.
        let job = unsafe { &*address.cast::<Job>() };
        // SAFETY: the caller reads the result once the job is not pending; loom checks that.
        job.result.with_mut(|result| unsafe { *result += number });
        let is_last = job.is_last;
        slot.release();
        job.pending.arrive();
        if is_last {
            return;
        }
    }
}

/// Publishes a job, withdraws it if it is not taken, and checks the result. False if the worker was
/// not free.
fn call(slot: &HandOff, number: usize) -> bool {
    if !slot.reserve() {
        return false;
    }
    let job = Job::new(false);
    slot.publish(job.address(), number);
    hand_off::published();
    slot.unpark();
    let expected = if slot.withdraw(job.address()) {
        job.pending.withdraw(1);
        0
    } else {
        number
    };
    job.wait();
    // SAFETY: no worker uses the job; loom checks that.
    job.result.with(|result| assert_eq!(unsafe { *result }, expected));
    true
}

/// Publishes the worker's last job, and waits for it: no wake-up may be lost.
fn end(slot: &HandOff) {
    while !slot.reserve() {
        thread::yield_now();
    }
    let job = Job::new(true);
    slot.publish(job.address(), 7);
    hand_off::published();
    slot.unpark();
    job.wait();
    // SAFETY: no worker uses the job; loom checks that.
    job.result.with(|result| assert_eq!(unsafe { *result }, 7));
}

/// Checks callers on threads of their own, each with this number of jobs, then ends the worker.
fn check(callers: usize, jobs: usize) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(move || {
        let slot = Arc::new(slot());
        let worker = thread::spawn({
            let slot = slot.clone();
            move || work(&slot)
        });
        let others: Vec<_> = (1..callers)
            .map(|caller| {
                let slot = slot.clone();
                thread::spawn(move || (0..jobs).for_each(|_| _ = call(&slot, caller + 1)))
            })
            .collect();
        (0..jobs).for_each(|_| _ = call(&slot, 1));
        others.into_iter().for_each(|other| other.join().unwrap());
        end(&slot);
        worker.join().unwrap();
    });
}

#[test]
fn no_wake_up_is_lost() {
    check(1, 0);
}

#[test]
fn each_job_is_run_or_withdrawn() {
    check(1, 2);
}

#[test]
fn concurrent_callers_never_share_a_slot() {
    check(2, 1);
}
