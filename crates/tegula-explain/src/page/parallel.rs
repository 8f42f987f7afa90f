//! A parallel map over the CPU's cores.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

use crate::error::Result;

/// Maps items in parallel and returns the results in order.
///
/// `progress` gets each result as it completes. The first error ends the map. If no thread can be
/// started, the calling thread does the work.
pub fn parallel_map<T: Sync, R: Send>(
    items: &[T],
    map: impl Fn(&T) -> Result<R> + Sync,
    mut progress: impl FnMut(&R),
) -> Result<Vec<R>> {
    let cores = thread::available_parallelism().map_or(1, usize::from).min(items.len());
    let (next, (send, received)) = (AtomicUsize::new(0), mpsc::channel());
    thread::scope(|scope| {
        let (next, map) = (&next, &map);
        let work = |send: mpsc::Sender<(usize, Result<R>)>| {
            move || {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(item) = items.get(at) else { return };
                    // The receiver is gone after an error.
                    if send.send((at, map(item))).is_err() {
                        return;
                    }
                }
            }
        };
        let start = |_: &usize| thread::Builder::new().spawn_scoped(scope, work(send.clone())).is_ok();
        let started = (0..cores).take_while(start).count();
        if started == 0 {
            work(send)();
        } else {
            drop(send);
        }
        let mut results = Vec::with_capacity(items.len());
        for (at, result) in received {
            let result = result?;
            progress(&result);
            results.push((at, result));
        }
        results.sort_by_key(|(at, _)| *at);
        Ok(results.into_iter().map(|(_, result)| result).collect())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;

    #[test]
    fn parallel_map_keeps_order_and_reports_each_result() {
        let items: Vec<usize> = (0..100).collect();
        let mut reported = 0;
        assert_eq!(
            parallel_map(&items, |i| Ok(i * 2), |_| reported += 1).unwrap(),
            (0..200).step_by(2).collect::<Vec<_>>()
        );
        assert_eq!(reported, 100);
        assert!(parallel_map(&[], |i: &usize| Ok(*i), |_| ()).unwrap().is_empty());
        let fails = |i: &usize| if *i == 7 { Err(Error::Mismatch("seven".into())) } else { Ok(*i) };
        assert!(matches!(parallel_map(&items, fails, |_| ()), Err(Error::Mismatch(_))));
    }
}
