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

/// Numbers that no sum holds exactly: xorshift64 (Marsaglia, Xorshift RNGs, J. Stat. Softw. 8, 2003).
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

/// A sum of products as the nests define it.
type Sum<T> = fn(T, T, T) -> T;

fn compare<T: Entry>(number: fn(u64) -> T, add: Sum<T>) {
    let shapes =
        [[1, 1, 1], [2, 2, 2], [4, 4, 4], [3, 5, 7], [1, 9, 33], [16, 1, 5], [33, 17, 1], [17, 34, 40], [32, 32, 32]];
    for [m, n, depth] in shapes {
        let (a, b) = (random(m, depth, number), random(depth, n, number));
        let sum = |i: usize, j: usize| {
            let products = a.as_slice()[i * depth..][..depth].iter().zip(b.as_slice()[j..].iter().step_by(n));
            products.fold(T::ZERO, |sum, (&a, &b)| add(a, b, sum)).to_bits()
        };
        let expected: Vec<u64> = (0..m * n).map(|place| sum(place / n, place % n)).collect();
        for (nest, tile) in Nest::ALL.into_iter().flat_map(|nest| TILES.map(|tile| (nest, tile))) {
            let mut c = random(m, n, number);
            multiply(nest, tile, a.view(), b.view(), c.view_mut()).unwrap();
            let bits: Vec<u64> = c.as_slice().iter().map(|x| x.to_bits()).collect();
            assert_eq!(bits, expected, "{nest}, tile {tile}, {m}×{n}×{depth} {}", T::TYPE);
        }
    }
}

#[test]
fn all_four_give_the_same_bits() {
    let unit = |bits: u64| (bits >> 11) as f64 / (1u64 << 52) as f64 - 1.0;
    let add = |a: f32, b: f32, sum: f32| sum + a * b;
    compare(|bits| ((bits >> 40) as f32 / 8_388_608.0) - 1.0, add);
    compare(unit, |a, b, sum| sum + a * b);
    compare(|bits| bits as i32, |a, b, sum: i32| sum.wrapping_add(a.wrapping_mul(b)));
    // The bits would tell another order, and a fused product.
    let factors = random(2, 40, unit);
    let (a, b) = factors.as_slice().split_at(40);
    let up = a.iter().zip(b).fold(0.0, |sum, (a, b)| sum + a * b);
    assert_ne!(up, a.iter().zip(b).rev().fold(0.0, |sum, (a, b)| sum + a * b));
    assert_ne!(up, a.iter().zip(b).fold(0.0, |sum, (a, b)| a.mul_add(*b, sum)));
}

#[test]
fn empty_products_are_zeros() {
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
fn what_is_no_product_is_refused() {
    let a = Matrix::<f32>::zeros(4, 4);
    let mut c = a.clone();
    let try_with = |tile, a: View<f32>, b: View<f32>, c: ViewMut<f32>| {
        multiply(Nest::Tiled, tile, a, b, c).map_err(|error| error.to_string())
    };
    let refused = |result: Result<(), String>, says: &str| {
        let message = result.unwrap_err();
        assert!(message.contains(says), "{message}");
    };
    let three = a.view().rows(..3).unwrap();
    refused(try_with(0, a.view(), a.view(), c.view_mut()), "take 1 or more");
    refused(try_with(2, a.view(), three, c.view_mut()), "B is 3×4");
    refused(try_with(2, three, a.view(), c.view_mut()), "A is 3×4");
    refused(try_with(2, a.view(), a.view().t(), c.view_mut()), "without gaps");
    refused(try_with(2, a.view(), a.view(), c.view_mut().t()), "without gaps");
    let batch = Layout::row_major(Shape { batches: 2, rows: 2, cols: 2 }).unwrap();
    let two = View::strided(&[0f32; 8], batch).unwrap();
    refused(try_with(2, two, two, ViewMut::strided(&mut [0f32; 8], batch).unwrap()), "one m×k");
    assert!(walk(Nest::Split, 0, [1; 3], |_| {}).is_err());
    assert!(walk(Nest::Ijk, 1, [usize::MAX, 2, 2], |_| {}).is_err());
}

#[test]
fn sources_are_the_functions_that_run() {
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

/// Accesses as `a0 b0 c0 c0=`: a place of A, B and C read, one of C written.
fn told(nest: Nest, tile: usize, extents: [usize; 3]) -> String {
    let mut text = String::new();
    walk(nest, tile, extents, |Access { operand, place, write }| {
        let name = ["a", "b", "c"][operand as usize];
        write!(text, "{name}{place}{} ", if write { "=" } else { "" }).unwrap();
    })
    .unwrap();
    text.trim_end().to_owned()
}

#[test]
fn walks_of_two_by_two_are_those_on_paper() {
    let two = |nest, tile| told(nest, tile, [2; 3]);
    let ijk = "c0 a0 b0 a1 b2 c0= c1 a0 b1 a1 b3 c1= c2 a2 b0 a3 b2 c2= c3 a2 b1 a3 b3 c3=";
    assert_eq!(two(Nest::Ijk, 1), ijk);
    let kij = "c0 a0 b0 c0= c1 b1 c1= c2 a2 b0 c2= c3 b1 c3= c0 a1 b2 c0= c1 b3 c1= c2 a3 b2 c2= c3 b3 c3=";
    assert_eq!(two(Nest::Kij, 1), kij);
    assert_eq!(two(Nest::Tiled, 2), ijk, "one tile is the whole");
    // Two steps along k, so C is read and written twice.
    let wide = "c0 a0 b0 a1 b2 c0= c1 a0 b1 a1 b3 c1= c0 a2 b4 c0= c1 b5 c1=";
    assert_eq!(told(Nest::Tiled, 2, [1, 2, 3]), wide);
}

#[test]
fn splitting_alone_changes_no_access() {
    for extents in [[2, 2, 2], [5, 4, 7], [9, 17, 8]] {
        let ijk = told(Nest::Ijk, 1, extents);
        for tile in TILES {
            assert_eq!(told(Nest::Split, tile, extents), ijk, "tile {tile}, {extents:?}");
        }
    }
    assert_ne!(told(Nest::Tiled, 3, [5, 4, 7]), told(Nest::Ijk, 1, [5, 4, 7]));
}

#[test]
fn c_goes_to_memory_as_often_as_its_loops_say() {
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
fn misses_are_those_on_paper() {
    let of = |nest, tile, extents, bytes, ways, line| {
        traffic(nest, tile, extents, Type::F32, &[Cache { bytes, ways, line }]).unwrap().misses[0]
    };
    // Lines of two elements; A, B and C of 2×2 are lines 0 to 5. All fit: each misses once.
    assert_eq!(of(Nest::Ijk, 1, [2; 3], 64, 8, 8), 6);
    // One set of three lines. ijk goes to lines 4 0 2 0 3 4, 4 0 2 0 3 4, 5 1 2 1 3 5, 5 1 2 1 3 5; what misses is
    // 4 0 2 3 4, 2 3 4, 5 1 2 3 5, 2 3 5.
    assert_eq!(of(Nest::Ijk, 1, [2; 3], 24, 3, 8), 16);
    // Two ways in each of three sets, where lines 0 and 3, 1 and 4, 2 and 5 meet and no third: they all stay.
    assert_eq!(of(Nest::Ijk, 1, [2; 3], 48, 2, 8), 6);
    // The same sets with one way. Lines that meet drive each other out: 4 0 2 3, 0 3, 5 1 2 5, 2 5.
    assert_eq!(of(Nest::Ijk, 1, [2; 3], 24, 1, 8), 12);
    // Nothing is used again soon enough in a cache of one line of one element, but C right after it was written.
    assert_eq!(of(Nest::Kij, 1, [1, 2, 1], 4, 1, 4), 7);
}

#[test]
fn the_line_not_used_for_longest_makes_room() {
    let cache = |ways| Cache { bytes: 4 * ways, ways, line: 4 };
    let misses = |extents, caches: &[Cache]| traffic(Nest::Ijk, 1, extents, Type::F32, caches).unwrap().misses;
    // A row by two columns goes to c0 a0 b0 a1 b2 c0, c1 a0 b1 a1 b3 c1. With four ways, everything is gone before it is used again.
    assert_eq!(misses([1, 2, 2], &[cache(4)]), [12]);
    // Five ways: c0 and c1 stay until they are written, a0 and a1 are gone. Six: these stay too.
    assert_eq!(misses([1, 2, 2], &[cache(5)]), [10]);
    assert_eq!(misses([1, 2, 2], &[cache(6)]), [8]);
    // The second level sees what misses the first.
    assert_eq!(misses([1, 2, 2], &[cache(4), cache(64)]), [12, 8]);
    assert!(misses([1, 2, 2], &[]).is_empty());
}

#[test]
fn tiles_that_fit_save_misses() {
    let caches = [Cache { bytes: 8 << 10, ways: 8, line: 64 }];
    let misses = |nest, tile, n| traffic(nest, tile, [n; 3], Type::F32, &caches).unwrap().misses[0];
    // A column of 100 lines fits in none of the sets it falls into; three tiles of 16×16 do.
    let (ijk, tiled) = (misses(Nest::Ijk, 16, 100), misses(Nest::Tiled, 16, 100));
    assert!(tiled * 6 < ijk, "{tiled} {ijk}");
    assert_eq!(misses(Nest::Split, 16, 100), ijk);
}

#[test]
fn what_is_no_cache_is_refused() {
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
        assert!(run(cache).unwrap_err().to_string().contains("no cache"), "{cache:?}");
    }
}

#[test]
fn nests_take_turns_and_are_compared() {
    let a = random(20, 30, |bits| bits as i32);
    let b = random(30, 10, |bits| bits as i32);
    let nests = [(Nest::Kij, 1), (Nest::Tiled, 8), (Nest::Ijk, 1)];
    let timings = time(&nests, a.view(), b.view(), Duration::ZERO).unwrap();
    let named: Vec<_> = timings.iter().map(|timing| (timing.nest, timing.tile)).collect();
    assert_eq!(named, nests);
    assert!(timings.iter().all(|t| t.same_bits && t.rounds == 3 && t.least <= t.median && t.least > Duration::ZERO));
    assert!(time(&nests, a.view(), a.view(), Duration::ZERO).is_err());
    assert_eq!(time::<i32>(&[], a.view(), b.view(), Duration::MAX).unwrap(), []);
}
