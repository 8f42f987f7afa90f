use std::fmt::Write;
use std::time::Duration;

use tegula_core::element::Type;
use tegula_core::matrix::Layout;

use super::*;

const TILES: [usize; 7] = [1, 2, 3, 4, 8, 16, 32];

/// A row-major matrix.
#[derive(Clone)]
struct Matrix<T> {
    rows: usize,
    cols: usize,
    data: Vec<T>,
}

impl<T: Scalar> Matrix<T> {
    fn zeros(rows: usize, cols: usize) -> Matrix<T> {
        Matrix { rows, cols, data: vec![T::ZERO; rows * cols] }
    }

    fn as_slice(&self) -> &[T] {
        &self.data
    }

    fn view(&self) -> View<'_, T> {
        View::new(&self.data, self.rows, self.cols).unwrap()
    }

    fn view_mut(&mut self) -> ViewMut<'_, T> {
        ViewMut::new(&mut self.data, self.rows, self.cols).unwrap()
    }
}

/// Numbers whose sums are inexact: xorshift64 (Marsaglia, Xorshift RNGs, J. Stat. Softw. 8, 2003).
fn random<T: Scalar>(rows: usize, cols: usize, number: impl Fn(u64) -> T) -> Matrix<T> {
    let mut state = 0x9e37_79b9_7f4a_7c15 ^ (rows * 1000 + cols) as u64;
    let next = || {
        for shift in [13, -7, 17] {
            state ^= if shift > 0 { state << shift } else { state >> -shift };
        }
        number(state)
    };
    Matrix { rows, cols, data: std::iter::repeat_with(next).take(rows * cols).collect() }
}

/// The multiply-add of the nests: rounds the product, then the sum.
type MultiplyAdd<T> = fn(T, T, T) -> T;

fn compare<T: NestElement>(number: fn(u64) -> T, add: MultiplyAdd<T>) {
    let shapes =
        [[1, 1, 1], [2, 2, 2], [4, 4, 4], [3, 5, 7], [1, 9, 33], [16, 1, 5], [33, 17, 1], [17, 34, 40], [32, 32, 32]];
    for [m, n, depth] in shapes {
        let (a, b) = (random(m, depth, number), random(depth, n, number));
        let sum = |i: usize, j: usize| {
            let products = a.as_slice()[i * depth..][..depth].iter().zip(b.as_slice()[j..].iter().step_by(n));
            products.fold(T::ZERO, |sum, (&a, &b)| add(a, b, sum)).to_bits()
        };
        let expected: Vec<u64> = (0..m * n).map(|index| sum(index / n, index % n)).collect();
        for (nest, tile) in Nest::ALL.into_iter().flat_map(|nest| TILES.map(|tile| (nest, tile))) {
            let mut c = random(m, n, number);
            multiply(nest, tile, a.view(), b.view(), c.view_mut()).unwrap();
            let bits: Vec<u64> = c.as_slice().iter().map(|x| x.to_bits()).collect();
            assert_eq!(bits, expected, "{nest}, tile {tile}, {m}×{n}×{depth} {}", T::TYPE);
        }
    }
}

#[test]
fn nests_give_the_same_bits() {
    let unit = |bits: u64| (bits >> 11) as f64 / (1u64 << 52) as f64 - 1.0;
    let add = |a: f32, b: f32, sum: f32| sum + a * b;
    compare(|bits| ((bits >> 40) as f32 / 8_388_608.0) - 1.0, add);
    compare(unit, |a, b, sum| sum + a * b);
    compare(|bits| bits as i32, |a, b, sum: i32| sum.wrapping_add(a.wrapping_mul(b)));
    // Another order and a fused multiply-add give other bits.
    let operands = random(2, 40, unit);
    let (a, b) = operands.as_slice().split_at(40);
    let up = a.iter().zip(b).fold(0.0, |sum, (a, b)| sum + a * b);
    assert_ne!(up, a.iter().zip(b).rev().fold(0.0, |sum, (a, b)| sum + a * b));
    assert_ne!(up, a.iter().zip(b).fold(0.0, |sum, (a, b)| a.mul_add(*b, sum)));
}

#[test]
fn multiply_with_empty_operands_zeroes_c() {
    let mut c = Matrix { rows: 2, cols: 2, data: vec![f32::NAN; 4] };
    let (a, b) = (Matrix::zeros(2, 0), Matrix::zeros(0, 2));
    for nest in Nest::ALL {
        multiply(nest, 1, a.view(), b.view(), c.view_mut()).unwrap();
        assert_eq!(c.as_slice(), [0.0; 4]);
        // As many rows as there are numbers, of nothing: no loop counts them.
        let tall = |rows, cols| View::<f32>::new(&[], rows, cols).unwrap();
        let none = ViewMut::new(&mut [], isize::MAX as usize, 0).unwrap();
        multiply(nest, usize::MAX, tall(isize::MAX as usize, 0), tall(0, 0), none).unwrap();
    }
}

#[test]
fn multiply_with_invalid_shapes_or_tile_is_rejected() {
    let a = Matrix::<f32>::zeros(4, 4);
    let mut c = a.clone();
    let try_with = |tile, a: View<f32>, b: View<f32>, c: ViewMut<f32>| {
        multiply(Nest::Tiled, tile, a, b, c).map_err(|error| error.to_string())
    };
    let rejected = |result: Result<(), String>, message_part: &str| {
        let message = result.unwrap_err();
        assert!(message.contains(message_part), "{message}");
    };
    let three = a.view().rows(..3).unwrap();
    rejected(try_with(0, a.view(), a.view(), c.view_mut()), "the minimum is 1");
    rejected(try_with(2, a.view(), three, c.view_mut()), "B is 3×4");
    rejected(try_with(2, three, a.view(), c.view_mut()), "A is 3×4");
    rejected(try_with(2, a.view(), a.view().t(), c.view_mut()), "row-major contiguous");
    rejected(try_with(2, a.view(), a.view(), c.view_mut().t()), "row-major contiguous");
    let batch = Layout::row_major(Shape { batches: 2, rows: 2, cols: 2 }).unwrap();
    let two = View::strided(&[0f32; 8], batch).unwrap();
    rejected(try_with(2, two, two, ViewMut::strided(&mut [0f32; 8], batch).unwrap()), "one m×k");
    assert!(walk(Nest::Split, 0, [1; 3], |_| {}).is_err());
    assert!(walk(Nest::Ijk, 1, [usize::MAX, 2, 2], |_| {}).is_err());
}

#[test]
fn source_has_the_loops_of_the_nest() {
    for nest in Nest::ALL {
        let source = nest.source();
        assert!(source.starts_with(&format!("pub fn {nest}<T: Number>(")), "{source}");
        assert_eq!(source.matches("fn ").count(), 1, "{source}");
        assert!(source.ends_with("\n}"), "{source}");
        assert_eq!(source.contains("tile"), nest.has_tiles());
        let loops: Vec<&str> = source.lines().filter_map(|line| line.trim().strip_prefix("for ")).collect();
        let named: Vec<String> = nest.loops().iter().map(|l| format!("{} in {} {{", l.name, l.range)).collect();
        assert_eq!(loops, named);
    }
}

/// Accesses as `a0 b0 c0 c0=`: reads by matrix and index, and writes to C.
fn accesses(nest: Nest, tile: usize, extents: [usize; 3]) -> String {
    let mut text = String::new();
    walk(nest, tile, extents, |Access { operand, index, write }| {
        let name = ["a", "b", "c"][operand as usize];
        write!(text, "{name}{index}{} ", if write { "=" } else { "" }).unwrap();
    })
    .unwrap();
    text.trim_end().to_owned()
}

#[test]
fn walk_of_two_by_two_matches_hand_count() {
    let two = |nest, tile| accesses(nest, tile, [2; 3]);
    let ijk = "c0 a0 b0 a1 b2 c0= c1 a0 b1 a1 b3 c1= c2 a2 b0 a3 b2 c2= c3 a2 b1 a3 b3 c3=";
    assert_eq!(two(Nest::Ijk, 1), ijk);
    let kij = "c0 a0 b0 c0= c1 b1 c1= c2 a2 b0 c2= c3 b1 c3= c0 a1 b2 c0= c1 b3 c1= c2 a3 b2 c2= c3 b3 c3=";
    assert_eq!(two(Nest::Kij, 1), kij);
    assert_eq!(two(Nest::Tiled, 2), ijk, "one tile covers the matrix");
    // Two k-steps: C is read and written twice.
    let wide = "c0 a0 b0 a1 b2 c0= c1 a0 b1 a1 b3 c1= c0 a2 b4 c0= c1 b5 c1=";
    assert_eq!(accesses(Nest::Tiled, 2, [1, 2, 3]), wide);
}

#[test]
fn walk_of_split_equals_ijk() {
    for extents in [[2, 2, 2], [5, 4, 7], [9, 17, 8]] {
        let ijk = accesses(Nest::Ijk, 1, extents);
        for tile in TILES {
            assert_eq!(accesses(Nest::Split, tile, extents), ijk, "tile {tile}, {extents:?}");
        }
    }
    assert_ne!(accesses(Nest::Tiled, 3, [5, 4, 7]), accesses(Nest::Ijk, 1, [5, 4, 7]));
}

#[test]
fn traffic_of_c_follows_from_the_loops() {
    let [m, n, depth] = [12, 20, 30];
    let counts = |nest, tile| {
        let Traffic { reads, writes, .. } = traffic(nest, tile, [m, n, depth], Type::F32, &[]).unwrap();
        assert_eq!(reads[2], writes);
        (reads, writes)
    };
    let (products, elements) = ((m * n * depth) as u64, (m * n) as u64);
    assert_eq!(counts(Nest::Ijk, 1), ([products, products, elements], elements));
    assert_eq!(counts(Nest::Kij, 1), ([(m * depth) as u64, products, products], products));
    assert_eq!(counts(Nest::Split, 8), ([products, products, elements], elements));
    for tile in [2usize, 4, 8] {
        let steps = depth.div_ceil(tile) as u64;
        let (reads, writes) = counts(Nest::Tiled, tile);
        assert_eq!((reads[1], writes), (products, elements * steps), "tile {tile}");
    }
}

#[test]
fn misses_match_hand_count() {
    let of = |nest, tile, extents, bytes, ways, line| {
        traffic(nest, tile, extents, Type::F32, &[Cache { bytes, ways, line }]).unwrap().misses[0]
    };
    // Lines of two elements: A, B and C of 2×2 are lines 0 to 5. All fit, so each misses once.
    assert_eq!(of(Nest::Ijk, 1, [2; 3], 64, 8, 8), 6);
    // One set of three lines. ijk accesses lines 4 0 2 0 3 4, 4 0 2 0 3 4, 5 1 2 1 3 5, 5 1 2 1 3
    // 5; misses are 4 0 2 3 4, 2 3 4, 5 1 2 3 5, 2 3 5.
    assert_eq!(of(Nest::Ijk, 1, [2; 3], 24, 3, 8), 16);
    // Three sets of two ways hold lines 0 and 3, 1 and 4, 2 and 5: no line is evicted.
    assert_eq!(of(Nest::Ijk, 1, [2; 3], 48, 2, 8), 6);
    // The same sets with one way. Lines of a set evict each other: 4 0 2 3, 0 3, 5 1 2 5, 2 5.
    assert_eq!(of(Nest::Ijk, 1, [2; 3], 24, 1, 8), 12);
    // One line of one element: only C, read right after its write, hits.
    assert_eq!(of(Nest::Kij, 1, [1, 2, 1], 4, 1, 4), 7);
}

#[test]
fn least_recently_used_line_is_evicted() {
    let cache = |ways| Cache { bytes: 4 * ways, ways, line: 4 };
    let misses = |extents, caches: &[Cache]| traffic(Nest::Ijk, 1, extents, Type::F32, caches).unwrap().misses;
    // A row by two columns accesses c0 a0 b0 a1 b2 c0, c1 a0 b1 a1 b3 c1. With four ways, each line
    // is evicted before its next use.
    assert_eq!(misses([1, 2, 2], &[cache(4)]), [12]);
    // Five ways keep c0 and c1 until their writes, but not a0 and a1. Six keep these too.
    assert_eq!(misses([1, 2, 2], &[cache(5)]), [10]);
    assert_eq!(misses([1, 2, 2], &[cache(6)]), [8]);
    // The second level sees the misses of the first.
    assert_eq!(misses([1, 2, 2], &[cache(4), cache(64)]), [12, 8]);
    assert!(misses([1, 2, 2], &[]).is_empty());
}

#[test]
fn tiles_that_fit_the_cache_miss_less() {
    let caches = [Cache { bytes: 8 << 10, ways: 8, line: 64 }];
    let misses = |nest, tile, n| traffic(nest, tile, [n; 3], Type::F32, &caches).unwrap().misses[0];
    // A column of 100 lines exceeds the sets that it maps to; three tiles of 16×16 fit.
    let (ijk, tiled) = (misses(Nest::Ijk, 16, 100), misses(Nest::Tiled, 16, 100));
    assert!(tiled * 6 < ijk, "{tiled} {ijk}");
    assert_eq!(misses(Nest::Split, 16, 100), ijk);
}

#[test]
fn invalid_cache_is_rejected() {
    let good = Cache { bytes: 3 * 64, ways: 3, line: 64 };
    let bad = [
        Cache { ways: 0, ..good },
        Cache { line: 0, ..good },
        Cache { bytes: 0, ..good },
        Cache { bytes: 4 * 64, ..good },
        Cache { line: 2, ..good },
        Cache { ways: usize::MAX, ..good },
    ];
    let run = |cache| traffic(Nest::Ijk, 1, [2; 3], Type::F32, &[cache]);
    assert!(run(good).is_ok());
    for cache in bad {
        assert!(run(cache).unwrap_err().to_string().contains("invalid cache"), "{cache:?}");
    }
}

#[test]
fn time_compares_results_and_reports_rounds() {
    let a = random(20, 30, |bits| bits as i32);
    let b = random(30, 10, |bits| bits as i32);
    let nests = [(Nest::Kij, 1), (Nest::Tiled, 8), (Nest::Ijk, 1)];
    let timings = time(&nests, a.view(), b.view(), Duration::ZERO).unwrap();
    let named: Vec<_> = timings.iter().map(|timing| (timing.nest, timing.tile)).collect();
    assert_eq!(named, nests);
    assert!(timings.iter().all(|t| t.same_bits && t.rounds == 3 && t.min <= t.median && t.min > Duration::ZERO));
    assert!(time(&nests, a.view(), a.view(), Duration::ZERO).is_err());
    assert_eq!(time::<i32>(&[], a.view(), b.view(), Duration::MAX).unwrap(), []);
}
