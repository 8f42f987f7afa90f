//! Interleaved timing of nests.

use std::time::{Duration, Instant};

use tegula_core::error::Result;
use tegula_core::host;
use tegula_core::matrix::{Shape, View, ViewMut};

use super::{Nest, NestElement, multiply};

/// The minimum of rounds.
const MIN_ROUNDS: usize = 3;

/// The run time of a nest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// The nest.
    pub nest: Nest,
    /// The tile size; ignored by nests without tiles.
    pub tile: usize,
    /// The median over the rounds.
    pub median: Duration,
    /// The minimum over the rounds.
    pub min: Duration,
    /// The number of rounds.
    pub rounds: usize,
    /// Whether C has the same bits as with the first nest.
    pub same_bits: bool,
}

/// Times C = A·B by nests, each with a tile size, on the calling thread.
///
/// Each round runs all nests, so a disturbance affects all of them. An untimed first round warms
/// the caches and compares results. Rounds continue until the budget is spent; the minimum is
/// three. A product should take several microseconds, since reading the clock takes tens of
/// nanoseconds.
///
/// # Errors
/// As for [`multiply`], and [`Error::OutOfMemory`](tegula_core::Error::OutOfMemory) for C.
pub fn time<T: NestElement>(nests: &[(Nest, usize)], a: View<T>, b: View<T>, budget: Duration) -> Result<Vec<Timing>> {
    let shape = Shape::new(a.shape().rows, b.shape().cols);
    let len = shape.len()?;
    let allocate = || host::try_vec(&[len], || format!("a {shape} matrix of {}", T::TYPE));
    let (mut first, mut c): (Option<Vec<T>>, Vec<T>) = (None, allocate()?);
    c.resize(len, T::ZERO);
    let mut same_bits = Vec::new();
    for &(nest, tile) in nests {
        multiply(nest, tile, a, b, ViewMut::new(&mut c, shape.rows, shape.cols)?)?;
        let first = match &mut first {
            Some(first) => first,
            None => {
                let copy = first.insert(allocate()?);
                copy.extend_from_slice(&c);
                copy
            }
        };
        same_bits.push(bits(first).eq(bits(&c)));
    }

    let (mut times, start) = (vec![Vec::new(); nests.len()], Instant::now());
    let mut rounds = 0;
    while !nests.is_empty() && (rounds < MIN_ROUNDS || start.elapsed() < budget) {
        for (&(nest, tile), times) in nests.iter().zip(&mut times) {
            let start = Instant::now();
            multiply(nest, tile, a, b, ViewMut::new(&mut c, shape.rows, shape.cols)?)?;
            times.push(start.elapsed());
        }
        rounds += 1;
    }
    let timings = nests.iter().zip(times).zip(same_bits).map(|((&(nest, tile), mut times), same_bits)| {
        times.sort_unstable();
        Timing { nest, tile, median: times[rounds / 2], min: times[0], rounds, same_bits }
    });
    Ok(timings.collect())
}

fn bits<T: NestElement>(c: &[T]) -> impl Iterator<Item = u64> {
    c.iter().map(|x| x.to_bits())
}
