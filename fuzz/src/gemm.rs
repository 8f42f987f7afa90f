//! Layouts and products: any shapes, offsets and strides are rejected or the product is correct.

use arbitrary::{Arbitrary, Unstructured};
use half::{bf16, f16};
use tegula::element::{Arith, Element, Scalar, Type};
use tegula::nd::{self, NdLayout};
use tegula::{Device, Gemm, Layout, Shape, View, ViewMut};

use crate::bounded;

/// Elements of memory for each matrix.
const LEN: usize = 300;
/// Limit of multiplications that are computed.
const MAX_WORK: u128 = 1 << 14;

// A new operand type requires a case here.
const _: () = assert!(Type::OPERANDS.len() == 6);

#[derive(Arbitrary, Debug)]
enum Case {
    F64(Product),
    F32(Product),
    F16(Product),
    BF16(Product),
    I32(Product),
    I8(Product),
    Nd(Vec<Extent>),
}

/// alpha·A·B + beta·C with small scalars.
#[derive(Arbitrary, Debug)]
struct Product {
    sizes: [u8; 4],
    alpha: i8,
    beta: i8,
    a: Operand,
    b: Operand,
    c: Operand,
}

/// Layout of a matrix, with the right shape or another one.
#[derive(Arbitrary, Debug)]
enum Operand {
    /// Contiguous, with the axes in any order, each possibly reversed.
    Dense { order: u8, reversed: [bool; 3], offset: u8 },
    /// Arbitrary strides.
    Strided { offset: u8, strides: [i8; 3] },
    /// Arbitrary shape, offset and strides.
    Wild { shape: [Extent; 3], offset: usize, strides: [isize; 3] },
}

#[derive(Arbitrary, Clone, Copy, Debug)]
enum Extent {
    Small(u8),
    Large(usize),
}

impl Extent {
    fn get(self) -> usize {
        match self {
            Extent::Small(extent) => (extent % 8).into(),
            Extent::Large(extent) => extent,
        }
    }
}

impl Operand {
    fn layout(&self, shape: Shape) -> Layout {
        let extents = [shape.batches, shape.rows, shape.cols];
        match *self {
            Operand::Dense { order, reversed, offset } => {
                let (mut strides, mut step, mut offset) = ([0; 3], 1, offset as isize % 8);
                for step_axis in 0..3 {
                    let axis = (step_axis + usize::from(order)) % 3;
                    let back = if reversed[axis] { -1 } else { 1 };
                    strides[axis] = back * step;
                    if reversed[axis] {
                        offset += step * (extents[axis] as isize - 1).max(0);
                    }
                    step *= extents[axis].max(1) as isize;
                }
                Layout { shape, offset: offset as usize, strides }
            }
            Operand::Strided { offset, strides } => {
                Layout { shape, offset: offset.into(), strides: strides.map(isize::from) }
            }
            Operand::Wild { shape, offset, strides } => {
                let [batches, rows, cols] = shape.map(Extent::get);
                Layout { shape: Shape { batches, rows, cols }, offset, strides }
            }
        }
    }
}

/// Random products, compared with the plain loop; and shapes of any number of dimensions.
pub fn gemm(data: &[u8]) {
    let Ok(case) = Case::arbitrary_take_rest(Unstructured::new(data)) else { return };
    bounded(|| match case {
        Case::F64(product) => product.check(f64::from),
        Case::F32(product) => product.check(f32::from),
        Case::F16(product) => product.check(f16::from),
        Case::BF16(product) => product.check(bf16::from),
        Case::I32(product) => product.check(i32::from),
        Case::I8(product) => product.check(|x| x),
        Case::Nd(extents) => check_nd(&extents.into_iter().map(Extent::get).collect::<Vec<_>>()),
    });
}

impl Product {
    /// Checks a product of small integers.
    ///
    /// All types represent all sums exactly; only results of 16-bit types are rounded, once.
    fn check<T: Element>(&self, number: fn(i8) -> T) {
        let [batches, m, n, k] = self.sizes.map(|size| usize::from(size % 8));
        let shape = |rows, cols| Shape { batches, rows, cols };
        let (a, b) = (self.a.layout(shape(m, k)), self.b.layout(shape(k, n)));
        let c = self.c.layout(shape(m, n));
        let small = |i: usize, step: usize| ((i * step) % 5) as i8 - 2;
        let a_data: Vec<i8> = (0..LEN).map(|i| small(i, 7)).collect();
        let b_data: Vec<i8> = (0..LEN).map(|i| small(i, 3) + small(i, 11) / 2).collect();
        let c_data: Vec<i64> = (0..LEN).map(|i| small(i, 13).into()).collect();
        let (alpha, beta) = (i64::from(self.alpha % 4), i64::from(self.beta % 4));

        let memory: (Vec<T>, Vec<T>) =
            (a_data.iter().map(|&x| number(x)).collect(), b_data.iter().map(|&x| number(x)).collect());
        let mut result: Vec<T::Out> = c_data.iter().map(|&x| exact::<T>(x)).collect();
        let (Ok(a_view), Ok(b_view)) = (View::strided(&memory.0, a), View::strided(&memory.1, b)) else { return };
        let Ok(c_view) = ViewMut::strided(&mut result, c) else { return };
        if volume(&a, &c) > MAX_WORK {
            return;
        }
        let scaled = Gemm::new(a_view, b_view, c_view).alpha(scalar::<T>(alpha)).beta(scalar::<T>(beta));
        let done = scaled.on(&Device::cpu()).run().is_ok();

        let mut expected = c_data;
        if done {
            plain(&mut expected, [alpha, beta], (&a_data, a), (&b_data, b), c);
        }
        let expected: Vec<T::Out> = expected.into_iter().map(exact::<T>).collect();
        assert_eq!(result, expected, "{a:?} {b:?} {c:?}");
    }
}

/// Number of multiplications of a product with these layouts.
fn volume(a: &Layout, c: &Layout) -> u128 {
    let extents = [c.shape.batches, c.shape.rows, c.shape.cols, a.shape.cols];
    extents.into_iter().fold(1, |volume: u128, extent| volume.saturating_mul(extent as u128))
}

/// Plain loop. Elements outside the layout of C stay unchanged.
fn plain(c_data: &mut [i64], [alpha, beta]: [i64; 2], a: (&[i8], Layout), b: (&[i8], Layout), c: Layout) {
    let element = |(data, layout): (&[i8], Layout), batch: usize, row, col| {
        let batch = if layout.shape.batches == 1 { 0 } else { batch };
        i64::from(data[layout.at(batch, row, col)])
    };
    let Shape { batches, rows, cols } = c.shape;
    if c.shape.is_empty() {
        return;
    }
    for batch in 0..batches {
        for row in 0..rows {
            for col in 0..cols {
                let terms = (0..a.1.shape.cols).map(|p| element(a, batch, row, p) * element(b, batch, p, col));
                let element_c = &mut c_data[c.at(batch, row, col)];
                *element_c = alpha * terms.sum::<i64>() + beta * *element_c;
            }
        }
    }
}

fn scalar<T: Element>(value: i64) -> T::Acc {
    T::Acc::from_f64(value as f64).unwrap_or(T::Acc::ZERO)
}

/// Converts a result to the type of C.
fn exact<T: Element>(value: i64) -> T::Out {
    T::narrow(scalar::<T>(value))
}

/// Checks that a contiguous layout is a bijection without gaps, or is rejected.
fn check_nd(shape: &[usize]) {
    nd::display(shape);
    let (c, fortran) = (NdLayout::row_major(shape), NdLayout::column_major(shape));
    assert_eq!(c.is_ok(), nd::len(shape).is_ok());
    assert_eq!(c.is_ok(), fortran.is_ok());
    let (Ok(c), Ok(fortran), Ok(len)) = (c, fortran, nd::len(shape)) else { return };
    assert_eq!((c.len().ok(), fortran.is_empty()), (Some(len), len == 0));
    for layout in [c, fortran].iter().filter(|_| (1..=4096).contains(&len)) {
        let mut offsets: Vec<isize> = vec![0];
        for (&extent, &stride) in layout.shape.iter().zip(&layout.strides) {
            offsets =
                (0..extent as isize).flat_map(|i| offsets.iter().map(move |offset| offset + i * stride)).collect();
        }
        offsets.sort_unstable();
        assert!(offsets.iter().copied().eq(0..len as isize), "{layout:?}");
    }
}
