//! One element broadcast to any shape.
//!
//! Shapes with more elements than memory, or than a `usize` can count, must be rejected at once.
//! Results of other shapes must be correct.

use arbitrary::{Arbitrary, Unstructured};
use half::{bf16, f16};
use tegula::element::{Arith, Element, Scalar};
use tegula::epilogue::EpilogueOperands;
use tegula::nd::{self, NdLayout, NdView};
use tegula::{Device, Error, Gemm, Grouped, Matrix, Result, Shape, View, ViewMut};
use tegula_bench::oracle;

use crate::bounded;

/// Limit of elements and multiplications that are computed.
const MAX_SMALL: u128 = 1 << 10;
/// Elements that exceed the memory of any machine.
const MIN_VAST: u128 = 1 << 42;
/// Multiplications that are rejected.
const MIN_ENDLESS: u128 = 1 << 60;

#[derive(Arbitrary, Debug)]
struct Case {
    ty: u8,
    /// Batch, m, n and k.
    sizes: [Extent; 4],
    /// Whether A and B have one matrix per batch.
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

/// Products, copies and references of one broadcast element.
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

/// Product of extents, 0 if one of them is.
fn count(extents: &[usize]) -> u128 {
    if extents.contains(&0) {
        return 0;
    }
    extents.iter().fold(1, |count: u128, &extent| count.saturating_mul(extent as u128))
}

/// Checks an allocation of `elements`: small ones must succeed, vast ones must fail.
///
/// Others may do either and are not run.
fn check_size<R>(elements: u128, compute: impl FnOnce() -> Result<R>) -> Option<R> {
    if elements <= MAX_SMALL {
        return Some(compute().unwrap_or_else(|why| panic!("{elements} elements: {why}")));
    }
    if elements > MIN_VAST {
        match compute() {
            Err(Error::OutOfMemory { .. } | Error::Shape(_)) => {}
            Err(other) => panic!("{elements} elements: {other}"),
            Ok(_) => panic!("{elements} elements were allocated"),
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
            let stored = if transposed { Shape { rows: cols, cols: rows, ..shape } } else { shape };
            let view = View::new(&one, 1, 1).and_then(|view| view.broadcast(stored));
            let elements = count(&[shape.batches, rows, cols]);
            assert_eq!(view.is_ok(), elements <= isize::MAX as u128, "{shape}: {view:?}");
            let extents = vec![shape.batches, rows, cols];
            let nd = NdView::strided(&one, NdLayout { shape: extents, offset: 0, strides: vec![0; 3] });
            assert_eq!(view.is_ok(), nd.is_ok());
            view.ok().map(|view| if transposed { view.t() } else { view })
        };
        let [a_transposed, b_transposed] = self.transposed;
        let [a_batched, b_batched] = self.batched;
        let (Some(a), Some(b)) = (view(a_batched, a_transposed, m, k), view(b_batched, b_transposed, k, n)) else {
            return;
        };

        for matrix in [a, b] {
            let elements = count(&[matrix.shape().batches, matrix.shape().rows, matrix.shape().cols]);
            check_size(elements, || Matrix::from_view(matrix));
            check_size(elements, || NdView::from(matrix).to_array());
            check_size(elements, || Gemm::prepack(matrix));
        }
        let batches = if a_batched || b_batched { batches } else { 1 };
        let c_shape = Shape { batches, rows: m, cols: n };
        let (elements, work) = (count(&[batches, m, n]), count(&[batches, m, n, k]));
        let alpha = if self.alpha { T::Acc::ONE } else { T::Acc::ZERO };
        self.reference(alpha, a, b, c_shape);
        // The result exceeds all memory.
        if elements > MIN_VAST {
            check_size(elements, || tegula::matmul(a, b));
            check_size(elements, || nd::matmul(NdView::from(a), NdView::from(b)));
        }
        if elements > MAX_SMALL || elements == 0 {
            return;
        }
        let expected = if self.alpha { k } else { 0 };
        let bias = [T::narrow(T::Acc::ONE)];
        let bias_view = self.bias.map(|row| {
            let shape = if row { Shape::new(1, n) } else { Shape::new(m, 1) };
            View::new(&bias, 1, 1).and_then(|bias| bias.broadcast(shape)).expect("a bias of an edge of C")
        });
        let expected = expected as f64 + f64::from(u8::from(bias_view.is_some()));
        let expected_element = T::narrow(T::Acc::from_f64(expected).unwrap_or(T::Acc::ZERO));
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
        if work <= MAX_SMALL || !self.alpha {
            let result = product(&Device::cpu());
            // A broadcast to the batch may exceed the address space although A does not.
            let [of_a, of_b] = [count(&[batches, m, k]), count(&[batches, k, n])];
            assert_eq!(result.is_ok(), of_a.max(of_b) <= isize::MAX as u128, "{result:?}");
            assert!(result.is_err() || result.is_ok_and(|result| result.iter().all(|&x| x == expected_element)));
        } else if work > MIN_ENDLESS {
            for device in [Device::cpu(), Device::interp()] {
                let result = product(&device);
                assert!(matches!(result, Err(Error::Shape(_) | Error::OutOfMemory { .. })), "{result:?}");
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
        // Allocated are the reference, or a report for each tile of it, and its copy of A.
        let largest = if elements == 0 { 0 } else { elements.max(count(&[depth, c.rows])) };
        // If a result fits in memory, it may be allocated before the error.
        let fits_in_memory = |count: u128| (MAX_SMALL + 1..=MIN_VAST).contains(&count);
        if work <= MAX_SMALL || largest > MIN_VAST && !fits_in_memory(elements) {
            check_size(largest, || oracle::reference(alpha, a, b, T::Acc::ZERO, None));
        }
        let Ok(result) = result else { return };
        let rows = count(&[c.batches, c.rows]);
        let largest = if elements == 0 { 0 } else { rows.max(count(&[depth, c.rows])) };
        if (work <= MAX_SMALL || largest > MIN_VAST) && !fits_in_memory(rows) {
            let epilogue = EpilogueOperands::default();
            check_size(largest, || {
                oracle::check_with_epilogue(alpha, a, b, T::Acc::ONE, Some(result), epilogue, result, &|_| ())
            });
            if !fits_in_memory(elements) {
                check_size(elements.max(largest), || oracle::errors(alpha, a, b, T::Acc::ZERO, None, result));
            }
        }
    }

    /// Splits the rows of A into one group per matrix of B, with an endless inner dimension.
    fn groups<T: Element>(&self, a: View<'_, T>, b: View<'_, T>, c: Shape) {
        let (one, endless) = (a.shape().batches == 1, count(&[c.rows, c.cols, a.shape().cols]) > MIN_ENDLESS);
        if !one || !endless || b.shape().batches as u128 > MAX_SMALL {
            return;
        }
        let mut sizes = vec![0; b.shape().batches];
        let Some(last) = sizes.last_mut() else { return };
        *last = c.rows;
        let mut memory = vec![T::Out::ZERO; c.rows * c.cols];
        let Ok(c) = ViewMut::new(&mut memory, c.rows, c.cols) else { return };
        let result = Grouped::new(a, b, c, &sizes).on(&Device::cpu()).run();
        assert!(result.is_err(), "{result:?}");
    }
}
