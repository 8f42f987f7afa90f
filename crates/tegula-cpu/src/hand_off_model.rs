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

use hand_off::{HandOff, Parking};
use loom::sync::Mutex;
use sync::{AtomicBool, AtomicPtr, AtomicUsize};

/// A job that a worker runs by writing to it without an atomic.
struct Job {
    result: UnsafeCell<usize>,
    is_last: bool,
}

impl Job {
    fn new(is_last: bool) -> Job {
        Job { result: UnsafeCell::new(0), is_last }
    }

    fn address(&self) -> *mut () {
        std::ptr::from_ref(self).cast_mut().cast()
    }
}

/// What callers and the worker share: the slot, and whether a caller has reserved it.
struct Shared {
    slot: HandOff,
    reserved: Mutex<bool>,
}

impl Shared {
    fn reserve(&self) -> bool {
        !std::mem::replace(&mut *self.reserved.lock().unwrap(), true)
    }

    /// Waits for the worker, then frees it.
    fn wait(&self) {
        while !self.slot.is_empty() {
            thread::yield_now();
        }
        *self.reserved.lock().unwrap() = false;
    }
}

fn slot() -> HandOff {
    HandOff {
        job: AtomicPtr::new(std::ptr::null_mut()),
        number: AtomicUsize::new(0),
        parking: Parking { parked: AtomicBool::new(false), thread: std::sync::OnceLock::new() },
    }
}

/// A worker that parks at once, until its last job.
fn work(slot: &HandOff) {
    _ = slot.parking.thread.set(thread::current());
    loop {
        let Some(address) = slot.job() else {
            slot.park();
            continue;
        };
        let Some(number) = slot.take(address) else { continue };
        // SAFETY: callers keep their jobs until the slot is empty.
        let job = unsafe { &*address.cast::<Job>() };
        // SAFETY: the caller reads the result once the slot is empty; loom checks that.
        job.result.with_mut(|result| unsafe { *result += number });
        let is_last = job.is_last;
        slot.release();
        if is_last {
            return;
        }
    }
}

/// Publishes a job, withdraws it if it is not taken, and checks the result. False if the worker was
/// not free.
fn call(shared: &Shared, number: usize) -> bool {
    if !shared.reserve() {
        return false;
    }
    let (slot, job) = (&shared.slot, Job::new(false));
    slot.publish(job.address(), number);
    hand_off::published();
    slot.wake(|thread| thread.unpark());
    let expected = if slot.withdraw(job.address()) { 0 } else { number };
    shared.wait();
    // SAFETY: no worker uses the job; loom checks that.
    job.result.with(|result| assert_eq!(unsafe { *result }, expected));
    true
}

/// Publishes the worker's last job, and waits for it: no wake-up may be lost.
fn end(shared: &Shared) {
    while !shared.reserve() {
        thread::yield_now();
    }
    let (slot, job) = (&shared.slot, Job::new(true));
    slot.publish(job.address(), 7);
    hand_off::published();
    slot.wake(|thread| thread.unpark());
    shared.wait();
    // SAFETY: no worker uses the job; loom checks that.
    job.result.with(|result| assert_eq!(unsafe { *result }, 7));
}

/// Checks callers on threads of their own, each with this number of jobs, then ends the worker.
fn check(callers: usize, jobs: usize) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(move || {
        let shared = Arc::new(Shared { slot: slot(), reserved: Mutex::new(false) });
        let worker = thread::spawn({
            let shared = shared.clone();
            move || work(&shared.slot)
        });
        let others: Vec<_> = (1..callers)
            .map(|caller| {
                let shared = shared.clone();
                thread::spawn(move || (0..jobs).for_each(|_| _ = call(&shared, caller + 1)))
            })
            .collect();
        (0..jobs).for_each(|_| _ = call(&shared, 1));
        others.into_iter().for_each(|other| other.join().unwrap());
        end(&shared);
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
