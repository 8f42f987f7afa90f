//! Random inputs with a normal distribution.
//!
//! Zeros, or few distinct values, would draw less power and run at higher clocks than real inputs.
//! Each element is a function of seed and index, so matrices do not depend on the number of
//! threads.

use std::f64::consts::TAU;

use tegula_core::{host, threads};

use crate::element::Scalar;
use crate::error::{Error, Result};
use crate::matrix::{Matrix, Shape};

/// Elements per parallel chunk; even, since elements come in pairs.
const CHUNK: usize = 1 << 14;

/// Generates a matrix of normally distributed elements with mean 0 and standard deviation 1.
///
/// The deviation is 1000 for 32-bit and 32 for 8-bit integers; integers saturate.
///
/// # Errors
/// [`Error::OutOfMemory`] and [`Error::Shape`].
pub fn normal<T: Scalar>(shape: Shape, seed: u64) -> Result<Matrix<T>> {
    let len = shape.len()?;
    let mut data = host::try_vec(&[len], || format!("a {shape} matrix of {}", T::TYPE))?;
    data.resize(len, T::ZERO);
    threads::for_chunks(&mut data, CHUNK, |chunk, elements: &mut [T]| {
        let pairs = (chunk * CHUNK / 2) as u64..;
        for (elements, pair) in elements.chunks_mut(2).zip(pairs) {
            elements.iter_mut().zip(box_muller(seed, pair)).for_each(|(element, value)| *element = scaled(value));
        }
        Ok::<_, Error>(())
    })?;
    Matrix::from_shape_vec(shape, data)
}

/// Samples `count` distinct indices below `len` in ascending order.
///
/// The last index is included, and the first if `count` is at least 2. Returns at least one index,
/// unless `len` is 0.
pub fn sample_indices(count: usize, len: usize, seed: u64) -> Vec<usize> {
    if count >= len {
        return (0..len).collect();
    }
    let mut sampled = std::collections::BTreeSet::from([len - 1]);
    if count > 1 {
        sampled.insert(0);
    }
    for index in 0.. {
        if sampled.len() >= count {
            break;
        }
        sampled.insert((bits(seed, index) % len as u64) as usize);
    }
    sampled.into_iter().collect()
}

/// Scales a deviate for its type, and rounds it.
fn scaled<T: Scalar>(value: f64) -> T {
    T::from_bits(match T::TYPE {
        ty if ty.is_float() => ty.round(value),
        ty if ty.size() == 1 => ((32.0 * value).round() as i8) as u64,
        _ => ((1000.0 * value).round() as i64) as u64,
    })
}

/// Two independent normal deviates by Box and Muller.
///
/// Source: A note on the generation of random normal deviates, Ann. Math. Stat. 29, 1958.
fn box_muller(seed: u64, pair: u64) -> [f64; 2] {
    let (radius, angle) = (uniform(seed, 2 * pair), uniform(seed, 2 * pair + 1));
    let ((sin, cos), radius) = ((TAU * angle).sin_cos(), (-2.0 * radius.ln()).sqrt());
    [radius * cos, radius * sin]
}

/// Uniform deviate in the open interval (0, 1), with random access by index.
pub fn uniform(seed: u64, index: u64) -> f64 {
    ((bits(seed, index) >> 11) as f64 + 0.5) / (1u64 << 53) as f64
}

/// Output of SplitMix64, with random access by index.
///
/// Source: Steele, Lea and Flood, Fast splittable pseudorandom number generators, OOPSLA 2014.
fn bits(seed: u64, index: u64) -> u64 {
    const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;
    let mix = |mut z: u64| {
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    // Mixing the seed separates the sequences of adjacent seeds.
    mix(mix(seed.wrapping_add(GAMMA)).wrapping_add(index.wrapping_mul(GAMMA)))
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
    fn normal_is_normally_distributed_and_reproducible() {
        let matrix = normal::<f64>(Shape::new(200, 200), 7).unwrap();
        assert_eq!(matrix, normal(Shape::new(200, 200), 7).unwrap());
        assert_ne!(matrix, normal(Shape::new(200, 200), 8).unwrap());
        let (mean, deviation) = moments(matrix.as_slice());
        assert!(mean.abs() < 0.02 && (deviation - 1.0).abs() < 0.02, "{mean} {deviation}");
        // Elements come in pairs, which must be independent.
        let products: Vec<f64> = matrix.as_slice().as_chunks::<2>().0.iter().map(|[x, y]| x * y).collect();
        assert!(moments(&products).0.abs() < 0.03);
        let beyond = matrix.as_slice().iter().filter(|x| x.abs() > 1.0).count() as f64 / 40_000.0;
        assert!((beyond - 0.3173).abs() < 0.01, "{beyond}");
    }

    #[test]
    fn normal_integers_are_rounded_and_saturated() {
        let shape = Shape::new(500, 500);
        let exact = normal::<f64>(shape, 1).unwrap();
        let (small, large) = (normal::<i8>(shape, 1).unwrap(), normal::<i32>(shape, 1).unwrap());
        let integers = small.as_slice().iter().zip(large.as_slice());
        for (x, (&small, &large)) in exact.as_slice().iter().zip(integers) {
            assert_eq!(f64::from(small), (32.0 * x).round().clamp(-128.0, 127.0));
            assert_eq!(f64::from(large), (1000.0 * x).round());
        }
        assert!(exact.as_slice().iter().any(|x| 32.0 * x > 128.0), "no element saturated");
    }

    #[test]
    fn sample_indices_are_distinct_with_both_ends() {
        let rows = sample_indices(5, 1000, 3);
        assert_eq!((rows.len(), rows[0], rows[4]), (5, 0, 999));
        assert!(rows.windows(2).all(|pair| pair[0] < pair[1]));
        assert_eq!(sample_indices(9, 4, 0), [0, 1, 2, 3]);
        assert_eq!((sample_indices(1, 10, 0), sample_indices(0, 0, 0)), (vec![9], vec![]));
    }
}
