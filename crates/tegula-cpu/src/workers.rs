//! Workers: threads of the process that take part in the jobs of callers.
//!
//! Each has a slot, to which a caller that has reserved the worker publishes its job. A worker that
//! is out of work spins for a moment before it parks: products often follow one another, and waking
//! a thread takes longer than a small product. Woken workers wake others, since each wake-up takes
//! the waker a few microseconds.

use std::cell::Cell;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, Builder};
use std::time::{Duration, Instant};

use tegula_core::threads;

use super::hand_off::{self, HandOff, Parking};
use super::placement::{self, Placement};

/// Time that a worker spins before it parks.
const SPIN_TIME: Duration = Duration::from_micros(200);
/// Spins between two looks at the clock.
const SPINS: usize = 64;
/// Workers that a thread wakes.
const FAN_OUT: usize = 2;
/// Most workers of the process.
pub const MAX_WORKERS: usize = 255;

/// Runs the job at an address as the worker of a number.
///
/// # Safety
/// The address is that of a published job of the type that this function expects, which its caller
/// keeps until the worker has released its slot.
pub type Help = unsafe fn(*mut (), usize);

/// The workers that a caller has reserved for a job.
pub struct Recruits {
    indices: [u8; MAX_WORKERS],
    count: usize,
    /// Recruits that need no waking, or have been woken.
    woken: AtomicUsize,
}

impl Recruits {
    /// No workers.
    pub fn none() -> Recruits {
        Recruits { indices: [0; MAX_WORKERS], count: 0, woken: AtomicUsize::new(0) }
    }

    /// Reserves up to `wanted` free workers, of the first `workers`. New ones run jobs by `help`.
    pub fn reserve(&mut self, workers: usize, wanted: usize, help: Help) {
        if wanted == 0 {
            return;
        }
        for (index, state) in states().iter_mut().enumerate().take(workers) {
            if self.count == wanted {
                break;
            }
            if *state == WorkerState::NotStarted {
                *state = if start(index, help) { WorkerState::Free } else { WorkerState::Refused };
            }
            if *state == WorkerState::Free {
                *state = WorkerState::Reserved;
                self.indices[self.count] = index as u8;
                self.count += 1;
            }
        }
        self.woken = AtomicUsize::new(self.count);
    }

    /// Publishes a job to them, and wakes some of those that are parked.
    ///
    /// # Safety
    /// The job is of the type that the `help` of every [`reserve`](Self::reserve) expects, and
    /// lives until [`withdraw`](Self::withdraw) of it has returned.
    pub unsafe fn publish(&self, job: *mut ()) {
        let processor = if self.count > 0 { placement::current_processor() } else { None };
        for (i, worker) in self.workers().enumerate() {
            worker.placement.set_caller(processor);
            worker.slot.publish(job, i + 1);
        }
        hand_off::published();
        // Recruits may be woken once all are published: one that is woken earlier parks again.
        self.woken.store(0, Ordering::Release);
        self.wake();
    }

    /// Wakes some of those that are parked; they wake others.
    pub fn wake(&self) {
        let mut count = 0;
        while count < FAN_OUT && self.woken.load(Ordering::Acquire) < self.count {
            let next = self.woken.fetch_add(1, Ordering::Relaxed);
            count += usize::from(self.workers().nth(next).is_some_and(Worker::wake));
        }
    }

    /// Withdraws a published job, waits for those that have taken it, and frees all.
    pub fn withdraw(&self, job: *mut ()) {
        if self.count == 0 {
            return;
        }
        for worker in self.workers() {
            worker.slot.withdraw(job);
        }
        spin_until(|| self.workers().all(|worker| worker.slot.is_empty()));
        job_ended();
        let mut states = states();
        for &index in &self.indices[..self.count] {
            states[usize::from(index)] = WorkerState::Free;
        }
    }

    fn workers(&self) -> impl Iterator<Item = &'static Worker> {
        self.indices[..self.count].iter().map(|&index| &WORKERS[usize::from(index)])
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

/// What callers and a worker share.
struct Worker {
    slot: HandOff,
    placement: Placement,
}

static WORKERS: [Worker; MAX_WORKERS] = [const {
    Worker {
        slot: HandOff {
            job: AtomicPtr::new(null_mut()),
            number: AtomicUsize::new(0),
            parking: Parking { parked: AtomicBool::new(false), thread: OnceLock::new() },
        },
        placement: Placement::new(),
    }
}; MAX_WORKERS];

/// Starts the thread of a worker. False if the system refuses it.
fn start(index: usize, help: Help) -> bool {
    threads::spawn(Builder::new().name(format!("tegula-{index}")), move || WORKERS[index].run(help))
}

impl Worker {
    /// Wakes the worker, if it is parked, and returns whether it was.
    fn wake(&self) -> bool {
        self.slot.wake(|thread| self.placement.wake(|| thread.unpark()))
    }

    /// The loop of the worker.
    fn run(&self, help: Help) {
        let Worker { slot, placement } = self;
        placement.set_thread();
        _ = slot.parking.thread.set(thread::current());
        loop {
            let address = self.wait_for_job();
            if let Some(number) = slot.take(address) {
                // SAFETY: the promise of `Recruits::publish`: the job is of the type of `help`, and
                // lives until this worker has released its slot, for which `withdraw` waits.
                unsafe { help(address, number) };
                slot.release();
            }
        }
    }

    /// Waits until a job is published to the worker, and returns its address.
    fn wait_for_job(&self) -> *mut () {
        let start = Instant::now();
        loop {
            self.placement.leave_caller();
            for _ in 0..SPINS {
                if let Some(job) = self.slot.job() {
                    return job;
                }
                std::hint::spin_loop();
            }
            // Yields to another thread that needs this processor.
            thread::yield_now();
            if start.elapsed() > SPIN_TIME {
                self.slot.park();
            }
        }
    }
}

thread_local! {
    /// When the last job of this caller ended.
    static LAST_JOB: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Notes that a job of this caller ends.
pub fn job_ended() {
    LAST_JOB.set(Some(Instant::now()));
}

/// Whether this caller's last job ended so recently that its workers spin, if it had any.
pub fn still_spin() -> bool {
    LAST_JOB.get().is_some_and(|end| end.elapsed() < SPIN_TIME)
}

/// Spins until the condition holds. Yields now and then, since the thread that it waits for may
/// need this processor.
pub fn spin_until(condition: impl Fn() -> bool) {
    let mut spins = 0usize;
    while !condition() {
        spins += 1;
        if spins.is_multiple_of(4 * SPINS) { thread::yield_now() } else { std::hint::spin_loop() }
    }
}

/// Whether all workers that have started are parked.
#[cfg(test)]
pub fn are_parked() -> bool {
    let mut started =
        WORKERS.iter().map(|worker| &worker.slot.parking).filter(|parking| parking.thread.get().is_some());
    started.all(|parking| parking.parked.load(Ordering::SeqCst))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "measures time")]
    fn workers_spin_after_the_last_job_of_their_caller() {
        let caller = || {
            assert!(!still_spin(), "no job");
            let spins = (0..100).any(|_| {
                job_ended();
                still_spin()
            });
            assert!(spins);
            thread::spawn(|| assert!(!still_spin(), "another caller")).join().unwrap();
            thread::sleep(2 * SPIN_TIME);
            assert!(!still_spin(), "they have parked");
        };
        // The thread of this test may have had jobs of other tests.
        thread::spawn(caller).join().unwrap();
    }
}
