//! Work shared among the machine's cores.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

use crate::error::Result;

/// What `each` makes of every item, in their order. `told` hears of each as it is done; the first that fails ends the rest. Where the system grants no
/// thread, the caller's does the work.
pub fn share<T: Sync, R: Send>(
    items: &[T],
    each: impl Fn(&T) -> Result<R> + Sync,
    mut told: impl FnMut(&R),
) -> Result<Vec<R>> {
    let cores = thread::available_parallelism().map_or(1, usize::from).min(items.len());
    let (next, (send, received)) = (AtomicUsize::new(0), mpsc::channel());
    thread::scope(|scope| {
        let (next, each) = (&next, &each);
        let work = |send: mpsc::Sender<(usize, Result<R>)>| {
            move || {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(item) = items.get(at) else { return };
                    // Nobody listens any more after a failure.
                    if send.send((at, each(item))).is_err() {
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
        let mut made = Vec::with_capacity(items.len());
        for (at, result) in received {
            let result = result?;
            told(&result);
            made.push((at, result));
        }
        made.sort_by_key(|(at, _)| *at);
        Ok(made.into_iter().map(|(_, result)| result).collect())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;

    #[test]
    fn results_come_in_order_and_each_is_told() {
        let items: Vec<usize> = (0..100).collect();
        let mut told = 0;
        assert_eq!(share(&items, |i| Ok(i * 2), |_| told += 1).unwrap(), (0..200).step_by(2).collect::<Vec<_>>());
        assert_eq!(told, 100);
        assert!(share(&[], |i: &usize| Ok(*i), |_| ()).unwrap().is_empty());
        let fails = |i: &usize| if *i == 7 { Err(Error::Unlike("seven".into())) } else { Ok(*i) };
        assert!(matches!(share(&items, fails, |_| ()), Err(Error::Unlike(_))));
    }
}
