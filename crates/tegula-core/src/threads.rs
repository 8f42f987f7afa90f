//! Threads that do the work: those of the rayon pool that the caller is in, else of the global one, which is made here.
//!
//! Rayon would make the global pool when it is first used, and panic where the system refuses a thread: at a limit on processes, in a control
//! group, or where memory is short. So every module asks [`count`] first, which starts the threads itself, as many as it can, and gives them to
//! rayon. One thread is the caller's own: then rayon is not used.

use std::hint::black_box;
use std::sync::OnceLock;
use std::sync::mpsc::{Sender, channel};
use std::thread;

use rayon::prelude::*;
use rayon::{ThreadBuilder, ThreadPoolBuilder};

/// Bytes that must still be free when a thread is started, so that the work has memory for more than threads.
const RESERVE: usize = 32 << 20;

/// How many threads work on what the calling thread asks for; the caller is one of them, or waits for them.
///
/// In a rayon pool they are that pool's. Elsewhere they are those of rayon's global pool. Where the program has none yet, the first call makes it: with
/// a thread for each processor that the process may use (its affinity and the quota of its control group count), or as many as `RAYON_NUM_THREADS` says
/// if that is less. Where the system does not grant so many, fewer do the work, down to the caller's alone, which is told through `tracing` at level debug.
///
/// A program that wants another number makes rayon's global pool before, or calls from a pool of its own.
pub fn count() -> usize {
    static GLOBAL: OnceLock<usize> = OnceLock::new();
    match rayon::current_thread_index() {
        Some(_) => rayon::current_num_threads(),
        None => *GLOBAL.get_or_init(|| make(wanted())),
    }
}

/// Threads for as many processors as can be used, at most what the variable asks for.
fn wanted() -> usize {
    let processors = thread::available_parallelism().map_or(1, usize::from);
    let asked = std::env::var("RAYON_NUM_THREADS").ok().and_then(|text| text.parse().ok());
    let wanted = asked.filter(|&count| count > 0).map_or(processors, |count: usize| count.min(processors));
    if asked.is_some_and(|asked| asked > wanted) {
        tracing::debug!(?asked, wanted, "fewer threads: as many as processors that can be used");
    }
    wanted.min(rayon::max_num_threads())
}

/// Makes the global pool, and says how many threads there are to work with.
fn make(wanted: usize) -> usize {
    let started = start(wanted);
    if started.len() < wanted {
        tracing::debug!(wanted, started = started.len(), "fewer threads: the system grants no more");
    }
    if started.is_empty() {
        return 1;
    }
    let count = started.len();
    let mut waiting = started.into_iter();
    let hand = |worker: ThreadBuilder| {
        let sender = waiting.next().ok_or(std::io::ErrorKind::WouldBlock)?;
        sender.send(worker).map_err(|_| std::io::ErrorKind::BrokenPipe.into())
    };
    match ThreadPoolBuilder::new().num_threads(count).spawn_handler(hand).build_global() {
        Ok(()) => count,
        // The program has made one, or tried to: then asking for it panics.
        Err(_) => std::panic::catch_unwind(rayon::current_num_threads).unwrap_or(1),
    }
}

/// Up to so many threads that wait to be workers, and end when their sender is dropped.
fn start(wanted: usize) -> Vec<Sender<ThreadBuilder>> {
    let one = |_| {
        let mut reserve = Vec::<u8>::new();
        reserve.try_reserve_exact(RESERVE).ok()?;
        drop(black_box(reserve));
        let (sender, worker) = channel::<ThreadBuilder>();
        let wait = move || {
            if let Ok(worker) = worker.recv() {
                worker.run();
            }
        };
        thread::Builder::new().spawn(wait).ok()?;
        Some(sender)
    };
    (0..wanted).map_while(one).collect()
}

/// Does all tasks, on several threads if there are any, up to the first that fails.
pub fn for_each<E: Send>(tasks: usize, work: impl Fn(usize) -> Result<(), E> + Send + Sync) -> Result<(), E> {
    if count() < 2 { (0..tasks).try_for_each(work) } else { (0..tasks).into_par_iter().try_for_each(work) }
}

/// Works on a slice in chunks of a size that is not 0, the last perhaps smaller: on several threads if there are any, up to the first that fails.
pub fn for_chunks<T: Send, E: Send>(
    items: &mut [T],
    size: usize,
    work: impl Fn(usize, &mut [T]) -> Result<(), E> + Send + Sync,
) -> Result<(), E> {
    let work = |(number, chunk): (usize, &mut [T])| work(number, chunk);
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
    fn count_in_a_pool_is_that_of_the_pool() {
        let pool = ThreadPoolBuilder::new().num_threads(3).build().unwrap();
        assert_eq!(pool.install(count), 3);
        assert_eq!(count(), rayon::current_num_threads());
        assert!(count() <= thread::available_parallelism().unwrap().get());
    }

    #[test]
    fn tasks_and_chunks_are_done_once_and_a_failure_ends_them() {
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
