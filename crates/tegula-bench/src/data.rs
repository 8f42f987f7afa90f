//! Inputs: normal numbers from a seed. Zeros, or any few values, would draw less power and so run at higher clocks than work does.
//!
//! Each number is a function of the seed and its place, so that any number of threads makes the same matrix.

use std::f64::consts::TAU;

use tegula::element::Scalar;
use tegula::error::{Error, Result};
use tegula::matrix::{Matrix, Shape};
use tegula_core::{host, threads};

/// Numbers that a thread makes at a time.
const PART: usize = 1 << 14;

/// A matrix of normal numbers of deviation 1; integers have deviation 1000, 8-bit ones 32, and are cut off at their ends.
///
/// # Errors
/// [`Error::OutOfMemory`](tegula::Error::OutOfMemory) and [`Error::Shape`](tegula::Error::Shape).
pub fn normal<T: Scalar>(shape: Shape, seed: u64) -> Result<Matrix<T>> {
    let len = shape.len()?;
    let mut data = host::room(&[len], || format!("a {shape} matrix of {}", T::TYPE))?;
    data.resize(len, T::ZERO);
    threads::for_chunks(&mut data, PART, |part, numbers: &mut [T]| {
        let places = (part * PART) as u64..;
        numbers.iter_mut().zip(places).for_each(|(to, place)| *to = number(seed, place));
        Ok::<_, Error>(())
    })?;
    Matrix::from_shape_vec(shape, data)
}

/// Whole numbers below `below`, ascending, no two the same: the first, the last, and of those between as many as `count` asks for.
pub fn choice(count: usize, below: usize, seed: u64) -> Vec<usize> {
    if count >= below {
        return (0..below).collect();
    }
    let mut chosen = std::collections::BTreeSet::from([below - 1]);
    if count > 1 {
        chosen.insert(0);
    }
    for place in 0.. {
        if chosen.len() >= count {
            break;
        }
        chosen.insert((bits(seed, place) % below as u64) as usize);
    }
    chosen.into_iter().collect()
}

fn number<T: Scalar>(seed: u64, place: u64) -> T {
    let value = gauss(seed, place);
    T::from_bits(match T::TYPE {
        ty if ty.is_float() => ty.round(value),
        ty if ty.size() == 1 => ((32.0 * value).round() as i8) as u64,
        _ => ((1000.0 * value).round() as i64) as u64,
    })
}

/// By Box and Muller (A note on the generation of random normal deviates, Ann. Math. Stat. 29, 1958).
fn gauss(seed: u64, place: u64) -> f64 {
    let (radius, angle) = (uniform(seed, 2 * place), uniform(seed, 2 * place + 1));
    (-2.0 * radius.ln()).sqrt() * (TAU * angle).cos()
}

/// A number between 0 and 1, neither of them: any one of a seed's at once.
pub fn uniform(seed: u64, place: u64) -> f64 {
    ((bits(seed, place) >> 11) as f64 + 0.5) / (1u64 << 53) as f64
}

/// The numbers of SplitMix64 (Steele, Lea and Flood, Fast splittable pseudorandom number generators, OOPSLA 2014), any one at once.
fn bits(seed: u64, place: u64) -> u64 {
    const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;
    let mix = |mut z: u64| {
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    // Seeds that differ by a little start far apart.
    mix(mix(seed.wrapping_add(GAMMA)).wrapping_add(place.wrapping_mul(GAMMA)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moments(values: &[f64]) -> (f64, f64) {
        let len = values.len() as f64;
        let mean = values.iter().sum::<f64>() / len;
        (mean, (values.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / len).sqrt())
    }

    #[test]
    fn numbers_are_normal_and_the_same_each_time() {
        let matrix = normal::<f64>(Shape::new(200, 200), 7).unwrap();
        assert_eq!(matrix, normal(Shape::new(200, 200), 7).unwrap());
        assert_ne!(matrix, normal(Shape::new(200, 200), 8).unwrap());
        let (mean, deviation) = moments(matrix.as_slice());
        assert!(mean.abs() < 0.02 && (deviation - 1.0).abs() < 0.02, "{mean} {deviation}");
        let beyond = matrix.as_slice().iter().filter(|x| x.abs() > 1.0).count() as f64 / 40_000.0;
        assert!((beyond - 0.3173).abs() < 0.01, "{beyond}");
    }

    #[test]
    fn integers_are_the_same_numbers_rounded_and_cut_off() {
        let shape = Shape::new(500, 500);
        let exact = normal::<f64>(shape, 1).unwrap();
        let (small, large) = (normal::<i8>(shape, 1).unwrap(), normal::<i32>(shape, 1).unwrap());
        let integers = small.as_slice().iter().zip(large.as_slice());
        for (x, (&small, &large)) in exact.as_slice().iter().zip(integers) {
            assert_eq!(f64::from(small), (32.0 * x).round().clamp(-128.0, 127.0));
            assert_eq!(f64::from(large), (1000.0 * x).round());
        }
        assert!(exact.as_slice().iter().any(|x| 32.0 * x > 128.0), "none had to be cut off");
    }

    #[test]
    fn rows_are_chosen_once_with_both_ends() {
        let rows = choice(5, 1000, 3);
        assert_eq!((rows.len(), rows[0], rows[4]), (5, 0, 999));
        assert!(rows.windows(2).all(|pair| pair[0] < pair[1]));
        assert_eq!(choice(9, 4, 0), [0, 1, 2, 3]);
        assert_eq!((choice(1, 10, 0), choice(0, 0, 0)), (vec![9], vec![]));
    }
}
