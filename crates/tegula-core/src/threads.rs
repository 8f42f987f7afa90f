//! The worker threads: those of the caller's rayon pool, else of the global pool, created here.
//!
//! Rayon would create the global pool at its first use, and panic where the system refuses a thread
//! (process limit, control group, memory). Every module therefore calls [`count`] first. It starts
//! as many threads as the system grants and gives them to rayon. With one thread, rayon is not
//! used.

use std::hint::black_box;
use std::sync::OnceLock;
use std::sync::mpsc::{Sender, channel};
use std::thread;

use rayon::prelude::*;
use rayon::{ThreadBuilder, ThreadPoolBuilder};

use crate::fork;

/// Bytes that must remain free when a thread starts, so that the work itself has memory.
const RESERVE: usize = 32 << 20;

/// Environment variables that limit the number of threads. The first that holds a number counts.
pub const VARIABLES: [&str; 3] = ["TEGULA_NUM_THREADS", "RAYON_NUM_THREADS", "OMP_NUM_THREADS"];

/// The number of threads that work for the calling thread, which is one of them or waits for them.
///
/// In a rayon pool, this is the size of that pool. Elsewhere it is the size of rayon's global pool.
/// Where the program has no global pool yet, the first call creates it. It has one thread for each
/// processor available to the process, or fewer if an environment variable says so: the first of
/// [`VARIABLES`] that holds a number. Affinity and the quota of a control group count; a quota of
/// 2.5 processors is 2 threads. Where the system grants fewer threads, fewer are used, down to the
/// calling thread alone; this is logged through `tracing` at level debug.
///
/// A process that was forked after the first call has no threads of its parent, and works on the
/// calling thread, also where that is the copy of a thread of a rayon pool.
///
/// A program that needs another number creates rayon's global pool first, or calls from its own
/// pool.
pub fn count() -> usize {
    static GLOBAL: OnceLock<usize> = OnceLock::new();
    if fork::is_fork() {
        return 1;
    }
    match rayon::current_thread_index() {
        Some(_) => rayon::current_num_threads(),
        None => *GLOBAL.get_or_init(|| build_pool(requested())),
    }
}

/// The number of available processors, limited by an environment variable.
fn requested() -> usize {
    let processors = thread::available_parallelism().map_or(1, usize::from);
    let limit = environment_limit();
    if let Some((variable, limit)) = limit.filter(|&(_, limit)| limit > processors) {
        tracing::debug!(variable, limit, processors, "the limit of threads exceeds the available processors");
    }
    limit.map_or(processors, |(_, limit)| limit.min(processors)).min(rayon::max_num_threads())
}

/// The environment variable that limits threads, and its number.
pub fn environment_limit() -> Option<(&'static str, usize)> {
    limit(|name| std::env::var(name).ok())
}

/// [`environment_limit`] with any values. The first of a list is the limit of the outermost level
/// (`OMP_NUM_THREADS=4,2`).
fn limit(value: impl Fn(&str) -> Option<String>) -> Option<(&'static str, usize)> {
    let number = |text: String| text.split(',').next()?.trim().parse().ok().filter(|&count| count > 0);
    VARIABLES.into_iter().find_map(|name| Some((name, number(value(name)?)?)))
}

/// Builds the global pool, and returns the number of usable threads.
fn build_pool(requested: usize) -> usize {
    // Before others start: those of a pool that the program has built.
    let running = running_threads();
    let started = spawn_threads(requested);
    if started.len() < requested {
        tracing::debug!(requested, started = started.len(), "fewer threads: the system refused to start more");
    }
    if started.is_empty() {
        return 1;
    }
    let count = started.len();
    let mut idle = started.into_iter();
    let assign = |worker: ThreadBuilder| {
        let sender = idle.next().ok_or(std::io::ErrorKind::WouldBlock)?;
        sender.send(worker).map_err(|_| std::io::ErrorKind::BrokenPipe.into())
    };
    match ThreadPoolBuilder::new().num_threads(count).spawn_handler(assign).build_global() {
        Ok(()) => count,
        // The program has built the pool, or failed to: then querying it panics.
        Err(_) => {
            let count = std::panic::catch_unwind(rayon::current_num_threads).unwrap_or(1);
            // A process that was forked after the program built the pool has none of its threads,
            // and would wait for them forever.
            if running.is_some_and(|running| running < count) { 1 } else { count }
        }
    }
}

/// The number of threads of this process, where the system reports it. Miri reads no directories.
fn running_threads() -> Option<usize> {
    if cfg!(miri) {
        return None;
    }
    std::fs::read_dir("/proc/self/task").ok().map(Iterator::count)
}

/// Starts up to `requested` threads, each of which waits for a rayon worker.
///
/// A thread exits when its sender is dropped.
fn spawn_threads(requested: usize) -> Vec<Sender<ThreadBuilder>> {
    let start = |_| {
        let (sender, worker) = channel::<ThreadBuilder>();
        let wait = move || {
            if let Ok(worker) = worker.recv() {
                worker.run();
            }
        };
        spawn(thread::Builder::new(), wait).then_some(sender)
    };
    (0..requested).map_while(start).collect()
}

/// Starts a detached thread, if the system grants one and enough memory remains for the work
/// itself.
pub fn spawn(builder: thread::Builder, work: impl FnOnce() + Send + 'static) -> bool {
    let mut reserve = Vec::<u8>::new();
    if reserve.try_reserve_exact(RESERVE).is_err() {
        return false;
    }
    drop(black_box(reserve));
    builder.spawn(work).is_ok()
}

/// Runs all tasks, in parallel if several threads exist, until the first error.
pub fn for_each<E: Send>(tasks: usize, work: impl Fn(usize) -> Result<(), E> + Send + Sync) -> Result<(), E> {
    if count() < 2 { (0..tasks).try_for_each(work) } else { (0..tasks).into_par_iter().try_for_each(work) }
}

/// Processes a slice in chunks, in parallel if several threads exist, until the first error.
///
/// The chunks have `size` elements (not 0); the last can be shorter.
pub fn for_chunks<T: Send, E: Send>(
    items: &mut [T],
    size: usize,
    work: impl Fn(usize, &mut [T]) -> Result<(), E> + Send + Sync,
) -> Result<(), E> {
    let work = |(index, chunk): (usize, &mut [T])| work(index, chunk);
    if count() < 2 {
        items.chunks_mut(size).enumerate().try_for_each(work)
    } else {
        items.par_chunks_mut(size).enumerate().try_for_each(work)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn count_in_a_pool_is_the_size_of_the_pool() {
        let pool = ThreadPoolBuilder::new().num_threads(3).build().unwrap();
        assert_eq!(pool.install(count), 3);
        assert_eq!(count(), rayon::current_num_threads());
        assert!(count() <= thread::available_parallelism().unwrap().get());
    }

    #[test]
    fn first_variable_with_a_number_limits_threads() {
        let limit_of = |values: [&str; 3]| {
            limit(|name| {
                VARIABLES.into_iter().zip(values).find(|(variable, _)| *variable == name).map(|of| of.1.into())
            })
        };
        assert_eq!(limit_of(["3", "4", "5"]), Some(("TEGULA_NUM_THREADS", 3)));
        assert_eq!(limit_of(["", "4", "5"]), Some(("RAYON_NUM_THREADS", 4)));
        assert_eq!(limit_of(["0", "many", "5,2"]), Some(("OMP_NUM_THREADS", 5)));
        assert_eq!(limit_of(["-1", "", " "]), None);
        assert_eq!(limit(|_| None), None);
    }

    #[test]
    fn tasks_and_chunks_run_once_and_stop_at_an_error() {
        let mut items = [0; 100];
        let fill = |number: usize, chunk: &mut [usize]| {
            chunk.iter_mut().enumerate().for_each(|(i, item)| *item += 7 * number + i);
            Ok::<_, ()>(())
        };
        for_chunks(&mut items, 7, fill).unwrap();
        assert!(items.into_iter().eq(0..100));
        assert_eq!(for_chunks(&mut items, 7, |number, _| if number == 14 { Err(number) } else { Ok(()) }), Err(14));
        assert_eq!(for_each(5, |task| if task == 3 { Err(task) } else { Ok(()) }), Err(3));
        for_each(0, |_| Err(())).unwrap();
    }
}
