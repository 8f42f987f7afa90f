//! How long nests take, in turns.

use std::time::{Duration, Instant};

use tegula_core::error::Result;
use tegula_core::host;
use tegula_core::matrix::{Shape, View, ViewMut};

use super::{Entry, Nest, multiply};

/// Rounds that are made however long they take.
const ROUNDS: usize = 3;

/// How long a nest takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Which.
    pub nest: Nest,
    /// The tile size; what has no tiles ignored it.
    pub tile: usize,
    /// The median of its rounds.
    pub median: Duration,
    /// The shortest.
    pub least: Duration,
    /// How many there were.
    pub rounds: usize,
    /// Whether its C had the bits of the first nest's.
    pub same_bits: bool,
}

/// Times C = A·B by nests, each with a tile size, on this thread.
///
/// They take turns, round by round, so that whatever slows the machine meanwhile slows all of them. The first round, which is not timed, finds the
/// inputs cold and compares results. Rounds go on until the budget is spent, and there are at least three. A product should take some microseconds:
/// reading the clock takes tens of nanoseconds.
///
/// # Errors
/// As [`multiply`], and [`Error::OutOfMemory`](tegula_core::Error::OutOfMemory) for C.
pub fn time<T: Entry>(nests: &[(Nest, usize)], a: View<T>, b: View<T>, budget: Duration) -> Result<Vec<Timing>> {
    let shape = Shape::new(a.shape().rows, b.shape().cols);
    let len = shape.len()?;
    let room = || host::room(&[len], || format!("a {shape} matrix of {}", T::TYPE));
    let (mut first, mut c): (Option<Vec<T>>, Vec<T>) = (None, room()?);
    c.resize(len, T::ZERO);
    let mut same_bits = Vec::new();
    for &(nest, tile) in nests {
        multiply(nest, tile, a, b, ViewMut::new(&mut c, shape.rows, shape.cols)?)?;
        let first = match &mut first {
            Some(first) => first,
            None => {
                let copy = first.insert(room()?);
                copy.extend_from_slice(&c);
                copy
            }
        };
        same_bits.push(bits(first).eq(bits(&c)));
    }

    let (mut times, start) = (vec![Vec::new(); nests.len()], Instant::now());
    let mut rounds = 0;
    while !nests.is_empty() && (rounds < ROUNDS || start.elapsed() < budget) {
        for (&(nest, tile), times) in nests.iter().zip(&mut times) {
            let began = Instant::now();
            multiply(nest, tile, a, b, ViewMut::new(&mut c, shape.rows, shape.cols)?)?;
            times.push(began.elapsed());
        }
        rounds += 1;
    }
    let timings = nests.iter().zip(times).zip(same_bits).map(|((&(nest, tile), mut times), same_bits)| {
        times.sort_unstable();
        Timing { nest, tile, median: times[rounds / 2], least: times[0], rounds, same_bits }
    });
    Ok(timings.collect())
}

fn bits<T: Entry>(c: &[T]) -> impl Iterator<Item = u64> {
    c.iter().map(|x| x.to_bits())
}
