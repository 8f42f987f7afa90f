//! Few elements repeated to any shape: what has more of them than memory, or than a `usize` counts, is refused at once; the rest is right.

use arbitrary::{Arbitrary, Unstructured};
use half::{bf16, f16};
use tegula::element::{Arith, Element, Scalar};
use tegula::epilogue::Finish;
use tegula::nd::{self, NdLayout, NdView};
use tegula::{Device, Error, Gemm, Grouped, Matrix, Result, Shape, View, ViewMut};
use tegula_bench::oracle;

use crate::bounded;

/// Elements and multiplications that are worth the wait.
const SMALL: u128 = 1 << 10;
/// Elements for which no machine has memory.
const VAST: u128 = 1 << 42;
/// Multiplications that are refused.
const ENDLESS: u128 = 1 << 60;

#[derive(Arbitrary, Debug)]
struct Case {
    ty: u8,
    /// Batch, m, n and k.
    sizes: [Extent; 4],
    /// Whether A and B have a matrix for each of the batch.
    batched: [bool; 2],
    transposed: [bool; 2],
    bias: Option<bool>,
    alpha: bool,
}

#[derive(Arbitrary, Clone, Copy, Debug)]
enum Extent {
    Small(u8),
    /// A power of 2, or near one.
    Near(u8, i8),
    Large(usize),
}

impl Extent {
    fn get(self) -> usize {
        match self {
            Extent::Small(extent) => (extent % 8).into(),
            Extent::Near(power, off) => (1usize << (power % 64)).wrapping_add_signed((off % 3).into()),
            Extent::Large(extent) => extent,
        }
    }
}

/// Products, copies and references of one element repeated.
pub fn broadcast(data: &[u8]) {
    let Ok(case) = Case::arbitrary_take_rest(Unstructured::new(data)) else { return };
    bounded(|| match case.ty % 6 {
        0 => case.check::<f64>(1.0),
        1 => case.check::<f32>(1.0),
        2 => case.check(f16::ONE),
        3 => case.check(bf16::ONE),
        4 => case.check(1i32),
        _ => case.check(1i8),
    });
}

/// The product of extents, 0 where one is.
fn count(extents: &[usize]) -> u128 {
    if extents.contains(&0) {
        return 0;
    }
    extents.iter().fold(1, |count: u128, &extent| count.saturating_mul(extent as u128))
}

/// Whether a result is what so many elements, in all that is made, must come to; between the limits it may be either, and is not asked for.
fn judged<R>(elements: u128, make: impl FnOnce() -> Result<R>) -> Option<R> {
    if elements <= SMALL {
        return Some(make().unwrap_or_else(|why| panic!("{elements} elements: {why}")));
    }
    if elements > VAST {
        match make() {
            Err(Error::OutOfMemory { .. } | Error::Shape(_)) => {}
            Err(other) => panic!("{elements} elements: {other}"),
            Ok(_) => panic!("{elements} elements were made"),
        }
    }
    None
}

impl Case {
    fn check<T: Element>(&self, one: T) {
        let [batches, m, n, k] = self.sizes.map(Extent::get);
        let one = [one];
        let view = |batched: bool, transposed: bool, rows, cols| {
            let shape = Shape { batches: if batched { batches } else { 1 }, rows, cols };
            let turned = if transposed { Shape { rows: cols, cols: rows, ..shape } } else { shape };
            let view = View::new(&one, 1, 1).and_then(|view| view.broadcast(turned));
            let elements = count(&[shape.batches, rows, cols]);
            assert_eq!(view.is_ok(), elements <= isize::MAX as u128, "{shape}: {view:?}");
            let extents = vec![shape.batches, rows, cols];
            let nd = NdView::strided(&one, NdLayout { shape: extents, offset: 0, strides: vec![0; 3] });
            assert_eq!(view.is_ok(), nd.is_ok());
            view.ok().map(|view| if transposed { view.t() } else { view })
        };
        let [a_turned, b_turned] = self.transposed;
        let [a_batched, b_batched] = self.batched;
        let (Some(a), Some(b)) = (view(a_batched, a_turned, m, k), view(b_batched, b_turned, k, n)) else { return };

        for matrix in [a, b] {
            let elements = count(&[matrix.shape().batches, matrix.shape().rows, matrix.shape().cols]);
            judged(elements, || Matrix::from_view(matrix));
            judged(elements, || NdView::from(matrix).to_array());
            judged(elements, || Gemm::prepack(matrix));
        }
        let batches = if a_batched || b_batched { batches } else { 1 };
        let c_shape = Shape { batches, rows: m, cols: n };
        let (elements, work) = (count(&[batches, m, n]), count(&[batches, m, n, k]));
        let alpha = if self.alpha { T::Acc::ONE } else { T::Acc::ZERO };
        self.reference(alpha, a, b, c_shape);
        // What is given back is larger than all there is.
        if elements > VAST {
            judged(elements, || tegula::matmul(a, b));
            judged(elements, || nd::matmul(NdView::from(a), NdView::from(b)));
        }
        if elements > SMALL || elements == 0 {
            return;
        }
        let expected = if self.alpha { k } else { 0 };
        let bias = [T::narrow(T::Acc::ONE)];
        let bias_view = self.bias.map(|row| {
            let shape = if row { Shape::new(1, n) } else { Shape::new(m, 1) };
            View::new(&bias, 1, 1).and_then(|bias| bias.broadcast(shape)).expect("a bias of an edge of C")
        });
        let expected = expected as f64 + f64::from(u8::from(bias_view.is_some()));
        let right = T::narrow(T::Acc::from_f64(expected).unwrap_or(T::Acc::ZERO));
        let mut memory = vec![T::Out::ZERO; elements as usize];
        let mut product = |device: &Device| {
            let shape = Shape::new(batches * m, n);
            let layout = tegula::Layout::row_major(c_shape)?;
            assert_eq!(shape.len()?, memory.len());
            let c = ViewMut::strided(&mut memory, layout)?;
            let mut product = Gemm::new(a, b, c).alpha(alpha).on(device);
            if let Some(bias) = bias_view {
                product = product.bias(bias);
            }
            product.run().map(|_| memory.clone())
        };
        if work <= SMALL || !self.alpha {
            let made = product(&Device::cpu());
            // A for each of the batch may be more than can be addressed, where A is not.
            let [of_a, of_b] = [count(&[batches, m, k]), count(&[batches, k, n])];
            assert_eq!(made.is_ok(), of_a.max(of_b) <= isize::MAX as u128, "{made:?}");
            assert!(made.is_err() || made.is_ok_and(|made| made.iter().all(|&x| x == right)));
        } else if work > ENDLESS {
            for device in [Device::cpu(), Device::interp()] {
                let made = product(&device);
                assert!(matches!(made, Err(Error::Shape(_) | Error::OutOfMemory { .. })), "{made:?}");
            }
            self.groups(a, b, c_shape);
        }
    }

    fn reference<T: Element>(&self, alpha: T::Acc, a: View<'_, T>, b: View<'_, T>, c: Shape) {
        let k = a.shape().cols;
        let (Ok(a), Ok(b)) = (
            a.broadcast(Shape { batches: c.batches, ..a.shape() }),
            b.broadcast(Shape { batches: c.batches, ..b.shape() }),
        ) else {
            return;
        };
        let result = [T::Out::ZERO];
        let result = View::new(&result, 1, 1).and_then(|result| result.broadcast(c));
        let elements = count(&[c.batches, c.rows, c.cols]);
        let depth = if self.alpha { k } else { 0 };
        let work = elements.saturating_mul(depth.max(1) as u128);
        // What is made: the reference, or a row of it, and its copy of B.
        let largest = if elements == 0 { 0 } else { elements.max(count(&[depth, c.cols])) };
        // Where a result fits memory it may be allocated before the refusal.
        let fits = |count: u128| (SMALL + 1..=VAST).contains(&count);
        if work <= SMALL || largest > VAST && !fits(elements) {
            judged(largest, || oracle::product(alpha, a, b, T::Acc::ZERO, None));
        }
        let Ok(result) = result else { return };
        let rows = count(&[c.batches, c.rows]);
        let largest = if elements == 0 { 0 } else { rows.max(count(&[depth.max(1), c.cols])) };
        if (work <= SMALL || largest > VAST) && !fits(rows) {
            let finish = Finish::default();
            judged(largest, || oracle::check_finished(alpha, a, b, T::Acc::ONE, Some(result), finish, result, &|_| ()));
            if !fits(elements) {
                judged(elements.max(largest), || oracle::errors(alpha, a, b, T::Acc::ZERO, None, result));
            }
        }
    }

    /// The rows of A in as many groups as there are matrices of B, with a sum that has no end.
    fn groups<T: Element>(&self, a: View<'_, T>, b: View<'_, T>, c: Shape) {
        let (one, endless) = (a.shape().batches == 1, count(&[c.rows, c.cols, a.shape().cols]) > ENDLESS);
        if !one || !endless || b.shape().batches as u128 > SMALL {
            return;
        }
        let mut sizes = vec![0; b.shape().batches];
        let Some(last) = sizes.last_mut() else { return };
        *last = c.rows;
        let mut memory = vec![T::Out::ZERO; c.rows * c.cols];
        let Ok(c) = ViewMut::new(&mut memory, c.rows, c.cols) else { return };
        let made = Grouped::new(a, b, c, &sizes).on(&Device::cpu()).run();
        assert!(made.is_err(), "{made:?}");
    }
}
