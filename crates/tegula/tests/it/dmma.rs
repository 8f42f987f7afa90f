//! The f64 kernel on matrix units in the interpreter: small whole numbers, whose products are exact in any order, in every layout.

use tegula::interp::{self, Arg, Buffer, Config, Outcome};
use tegula::ir::{Mma, Order2d, check};
use tegula::kernels::dmma::{Blocking, dmma, takes_transposed};
use tegula::{Layout, Matrix, Shape, View};

/// A small blocking that has all of what a large one has: several warps each way, more than one fragment, more than one slab.
const SMALL: Blocking =
    Blocking { bm: 64, bn: 64, bk: 32, wm: 32, wn: 32, stages: 3, group: 2, blocks: 1, mma: Mma::F64K16 };

/// A number for each element.
fn number(seed: usize, batch: usize, row: usize, col: usize) -> f64 {
    ((row * 7 + col * 5 + row * col + 3 * batch + seed) % 17) as f64 - 8.0
}

/// An operand that is laid out so, with what its rows (or columns) are padded by.
struct Operand {
    elements: Vec<f64>,
    layout: Layout,
}

impl Operand {
    fn new(seed: usize, shape: Shape, order: Order2d, even: bool) -> Self {
        let Shape { batches, rows, cols } = shape;
        let pitch = |extent: usize| if even { extent.next_multiple_of(2) } else { extent | 1 };
        let (row, col, size) = match order {
            Order2d::RowMajor => (pitch(cols), 1, rows * pitch(cols)),
            Order2d::ColMajor => (1, pitch(rows), cols * pitch(rows)),
            Order2d::Strided => (3 * pitch(cols), 3, 3 * rows * pitch(cols)),
        };
        let mut elements = vec![f64::NAN; batches * size];
        for batch in 0..batches {
            for (r, c) in (0..rows).flat_map(|r| (0..cols).map(move |c| (r, c))) {
                elements[batch * size + r * row + c * col] = number(seed, batch, r, c);
            }
        }
        Operand { elements, layout: Layout { shape, offset: 0, strides: [size as isize, row as isize, col as isize] } }
    }

    fn view(&self) -> View<'_, f64> {
        View::strided(&self.elements, self.layout).unwrap()
    }

    /// The operand as a kernel takes it.
    fn passed(&self, order: Order2d, pairs: bool) -> Buffer {
        let Layout { shape: Shape { batches, rows, cols }, offset, strides: [batch, row, col] } = self.layout;
        let turned = Layout { shape: Shape { batches, rows: cols, cols: rows }, offset, strides: [batch, col, row] };
        let layout = if takes_transposed(order, pairs) { turned } else { self.layout };
        Buffer::input(View::strided(&self.elements, layout).unwrap()).unwrap()
    }
}

/// Multiplies in the interpreter and compares every element; what it cost.
fn product(
    blocking: Blocking,
    orders: [Order2d; 3],
    even: [bool; 3],
    [batches, m, n, k]: [usize; 4],
    [alpha, beta]: [f64; 2],
) -> Outcome {
    let case = format!("{blocking:?} {orders:?} {even:?} {batches}·{m}×{n}×{k} {alpha} {beta}");
    let shape = |rows, cols| Shape { batches, rows, cols };
    let a = Operand::new(1, shape(m, k), orders[0], even[0]);
    let b = Operand::new(2, shape(k, n), orders[1], even[1]);
    let c = Operand::new(3, shape(m, n), orders[2], even[2]);
    let kernel = check(dmma(blocking, orders, even)).unwrap();
    let (of_a, of_b) = (a.passed(orders[0], even[0]), b.passed(orders[1], even[1]));
    let of_c = if beta == 0.0 {
        Buffer::output(tegula::element::Type::F64, c.layout).unwrap()
    } else {
        Buffer::in_out(c.view()).unwrap()
    };
    let args = [Arg::from(&of_a), Arg::from(&of_b), Arg::from(&of_c), Arg::scalar(alpha), Arg::scalar(beta)];
    let outcome = interp::run(&kernel, &args, &Config { seed: 5, ..Config::default() }).unwrap();
    assert_eq!(outcome.error().map(ToString::to_string), None, "{case}");
    let out: Matrix<f64> = of_c.to_matrix().unwrap();
    for (batch, i, j) in (0..batches).flat_map(|b| (0..m).flat_map(move |i| (0..n).map(move |j| (b, i, j)))) {
        let sum: f64 = (0..k).map(|p| number(1, batch, i, p) * number(2, batch, p, j)).sum();
        let want = alpha * sum + if beta == 0.0 { 0.0 } else { beta * number(3, batch, i, j) };
        assert_eq!(out.view().get(batch, i, j), Some(want), "{case}: ({batch}, {i}, {j})");
    }
    outcome
}

const ORDERS: [Order2d; 3] = [Order2d::RowMajor, Order2d::ColMajor, Order2d::Strided];

#[test]
fn every_layout_and_alignment_is_right() {
    for (a, b) in ORDERS.into_iter().flat_map(|a| ORDERS.map(|b| (a, b))) {
        for (c, even) in [(Order2d::RowMajor, true), (Order2d::RowMajor, false), (Order2d::ColMajor, false)] {
            let of = |order| even && order != Order2d::Strided;
            product(SMALL, [a, b, c], [of(a), of(b), even], [1, 70, 69, 45], [2.0, -1.0]);
        }
    }
}

#[test]
fn every_size_is_right() {
    let rows = [Order2d::RowMajor; 3];
    for size in [
        [1, 1, 1, 1],
        [1, 1, 130, 5],
        [1, 130, 1, 33],
        [1, 64, 64, 32],
        [3, 17, 31, 100],
        [1, 300, 66, 2],
        [2, 5, 5, 0],
    ] {
        product(SMALL, rows, [true; 3], size, [1.0, 0.0]);
        product(SMALL, rows, [false; 3], size, [-1.0, 0.5]);
    }
}

#[test]
fn every_instruction_is_right() {
    let nn = [Order2d::RowMajor; 3];
    let tt = [Order2d::ColMajor, Order2d::ColMajor, Order2d::RowMajor];
    for mma in [Mma::F64M8K4, Mma::F64K4, Mma::F64K8, Mma::F64K16] {
        for orders in [nn, tt] {
            product(Blocking { mma, ..SMALL }, orders, [true; 3], [1, 65, 66, 50], [1.0, 0.0]);
        }
    }
}

/// What is measured. No shared access has a conflict, and every load from shared memory is 16 bytes wide.
#[test]
fn large_tiles_have_no_bank_conflicts() {
    let large = Blocking { bm: 128, bn: 128, bk: 16, wm: 32, wn: 64, stages: 4, group: 8, blocks: 1, mma: Mma::F64K16 };
    assert!(large.fits() && SMALL.fits());
    for (blocking, size) in [(large, [1, 130, 128, 70]), (SMALL, [1, 128, 128, 64])] {
        for (a, b) in [ORDERS[0], ORDERS[1]].into_iter().flat_map(|a| [ORDERS[0], ORDERS[1]].map(|b| (a, b))) {
            for even in [true, false] {
                let counters = product(blocking, [a, b, Order2d::RowMajor], [even; 3], size, [1.0, 0.0]).counters;
                assert_eq!(counters.shared_bank_conflicts, 0, "{blocking:?} {a:?} {b:?} {even}");
                assert_eq!(counters.shared_load_elements, 64 * counters.shared_load_requests);
            }
        }
    }
}

#[test]
fn flops_are_those_of_whole_tiles() {
    let [m, n, k] = [128, 128, 64];
    let outcome = product(SMALL, [Order2d::RowMajor; 3], [true; 3], [1, m, n, k], [1.0, 0.0]);
    // One multiplication by alpha for each element.
    assert_eq!(outcome.counters.flops, (2 * m * n * k + m * n) as u64);
}
