//! N-dimensional products against plain loops, on random shapes and strides; and the rules for
//! shapes.

use tegula::element::{Element, Scalar};
use tegula::nd::{NdArray, NdGemm, NdLayout, NdView, NdViewMut, matmul, product_shape};
use tegula::{Device, Error, Matrix};

use crate::effort::seeds;
use crate::product::{Random, Sample};

type Axes = &'static [usize];

/// Result shapes of `numpy.matmul`, or `None` for an error.
const SHAPES: [(Axes, Axes, Option<Axes>); 34] = [
    (&[2, 3], &[3, 4], Some(&[2, 4])),
    (&[3], &[3], Some(&[])),
    (&[2, 3], &[3], Some(&[2])),
    (&[3], &[3, 4], Some(&[4])),
    (&[5, 2, 3], &[3], Some(&[5, 2])),
    (&[3], &[5, 3, 4], Some(&[5, 4])),
    (&[5, 2, 3], &[3, 4], Some(&[5, 2, 4])),
    (&[2, 3], &[5, 3, 4], Some(&[5, 2, 4])),
    (&[5, 2, 3], &[5, 3, 4], Some(&[5, 2, 4])),
    (&[1, 2, 3], &[5, 3, 4], Some(&[5, 2, 4])),
    (&[5, 2, 3], &[1, 3, 4], Some(&[5, 2, 4])),
    (&[7, 1, 2, 3], &[5, 3, 4], Some(&[7, 5, 2, 4])),
    (&[7, 1, 2, 3], &[1, 5, 3, 4], Some(&[7, 5, 2, 4])),
    (&[6, 7, 1, 2, 3], &[6, 1, 5, 3, 4], Some(&[6, 7, 5, 2, 4])),
    (&[1, 1], &[1, 1], Some(&[1, 1])),
    (&[1], &[1, 1], Some(&[1])),
    (&[0, 3], &[3, 4], Some(&[0, 4])),
    (&[2, 0], &[0, 4], Some(&[2, 4])),
    (&[0], &[0], Some(&[])),
    (&[0, 2, 3], &[3, 4], Some(&[0, 2, 4])),
    (&[0, 2, 3], &[1, 3, 4], Some(&[0, 2, 4])),
    (&[1, 2, 3], &[0, 3, 4], Some(&[0, 2, 4])),
    (&[], &[3], None),
    (&[3], &[], None),
    (&[], &[], None),
    (&[2, 3], &[4, 5], None),
    (&[3], &[4], None),
    (&[2, 3], &[2], None),
    (&[2], &[3, 2], None),
    (&[3, 1], &[3], None),
    (&[5, 2, 3], &[6, 3, 4], None),
    (&[5, 7, 2, 3], &[5, 3, 4], None),
    (&[0, 2, 3], &[5, 3, 4], None),
    (&[2, 1], &[0, 4], None),
];

#[test]
fn product_shapes_equal_numpy() {
    for (a, b, expected) in SHAPES {
        let shape = product_shape(a, b);
        match (&shape, expected) {
            (Ok(shape), Some(expected)) => assert_eq!(shape, expected, "{a:?} @ {b:?}"),
            (Err(Error::Shape(_)), None) => {}
            _ => panic!("{a:?} @ {b:?}: {shape:?}, expected {expected:?}"),
        }
        // The product has this shape.
        if let Some(expected) = expected {
            let [a, b] = [a, b].map(|shape| NdArray::<f32>::zeros(shape).unwrap());
            assert_eq!(matmul(&a, &b).unwrap().shape(), expected);
        }
    }
}

#[test]
fn shape_errors_name_both_shapes() {
    let message = |a: &[usize], b: &[usize]| product_shape(a, b).unwrap_err().to_string();
    assert_eq!(message(&[2, 3], &[4, 5]), "A is 2×3 and B is 4×5: A's 3 columns must equal B's 4 rows");
    assert_eq!(
        message(&[2, 3], &[4]),
        "A is 2×3 and B is a vector of 4: A's last axis (3) must equal the length of B (4)"
    );
    let stacks = message(&[5, 2, 3], &[6, 3, 4]);
    assert!(stacks.contains("5×2×3") && stacks.contains("6×3×4") && stacks.contains("do not broadcast"), "{stacks}");
    assert!(message(&[], &[4]).contains("a single number"));
    let (a, mut c) = (NdArray::<i32>::zeros(&[2, 2]).unwrap(), NdArray::zeros(&[4]).unwrap());
    let message = NdGemm::new(a.view(), a.view(), c.view_mut()).run().unwrap_err().to_string();
    assert_eq!(message, "A is 2×2 and B is 2×2, so C must be 2×2, not 4");
}

#[test]
fn vector_axes_are_dropped_and_transposing_them_is_a_no_op() {
    let x = NdArray::from_vec(&[3], vec![1i32, 2, 3]).unwrap();
    let dot = matmul(x.view().t(), &x).unwrap();
    assert_eq!((dot.shape(), dot.as_slice()), (&[][..], &[14][..]));
    let m = Matrix::from_fn(2, 3, |r, c| (10 * r + c) as i32).unwrap();
    assert_eq!(matmul(&m, &x).unwrap().as_slice(), [8, 68]);
    assert_eq!(matmul(&x, NdView::from(&m).t()).unwrap().as_slice(), [8, 68]);
}

/// An array with arbitrary strides in a larger memory.
struct StridedArray<T> {
    memory: Vec<T>,
    layout: NdLayout,
}

impl<T: Scalar> StridedArray<T> {
    /// Axes in any order, with gaps and negative strides; axes of inputs may be broadcast.
    fn random(shape: &[usize], random: &mut Random, input: bool, mut element: impl FnMut(&mut Random) -> T) -> Self {
        let mut order: Vec<usize> = (0..shape.len()).rev().collect();
        if random.chance(2) {
            order.sort_by_cached_key(|_| random.next());
        }
        let plain = random.chance(3);
        let (mut strides, mut offset, mut span) = (vec![0isize; shape.len()], random.below(3), 1);
        for axis in order {
            if input && !plain && random.chance(5) {
                continue;
            }
            let gap = if plain || random.chance(2) { 0 } else { random.below(3) };
            strides[axis] = (span + gap) as isize;
            let reach = shape[axis].saturating_sub(1) * (span + gap);
            if !plain && random.chance(4) {
                strides[axis] = -strides[axis];
                offset += reach;
            }
            span += reach + gap;
        }
        let memory = (0..offset + span).map(|_| element(random)).collect();
        StridedArray { memory, layout: NdLayout { shape: shape.to_vec(), offset, strides } }
    }

    fn view(&self) -> NdView<'_, T> {
        NdView::strided(&self.memory, self.layout.clone()).unwrap()
    }
}

/// Random valid shapes: stacks of up to three axes; either operand may be a vector.
fn shapes(random: &mut Random, largest: usize) -> [Vec<usize>; 2] {
    let mut extent = |limit| if random.chance(12) { 0 } else { 1 + random.below(limit) };
    let [m, n, k] = [extent(largest), extent(largest), extent(largest)];
    let stack: Vec<usize> = (0..random.below(4)).map(|_| random.below(4).max(usize::from(!random.chance(6)))).collect();
    let side = |random: &mut Random, matrix: [usize; 2], vector: usize| {
        if random.chance(6) {
            return vec![vector];
        }
        let from = if random.chance(2) { 0 } else { random.below(stack.len() + 1) };
        let kept = stack[from..].iter().map(|&extent| if random.chance(4) { 1 } else { extent });
        kept.chain(matrix).collect()
    };
    [side(random, [m, k], k), side(random, [k, n], k)]
}

/// Every index of a shape, the last axis fastest.
fn indices(shape: &[usize]) -> impl Iterator<Item = Vec<usize>> {
    let count = shape.iter().product();
    (0..count).map(move |mut number: usize| {
        let mut index = vec![0; shape.len()];
        for (i, extent) in index.iter_mut().zip(shape).rev() {
            (*i, number) = (number % extent, number / extent);
        }
        index
    })
}

/// The index of an operand for an index of the result: its stack's axes, broadcast, and then its
/// own.
fn operand(shape: &[usize], stack: &[usize], matrix_index: &[usize]) -> Vec<usize> {
    let axes = shape.len() - matrix_index.len();
    let stack = stack[stack.len() - axes..].iter().zip(shape).map(|(&i, &extent)| if extent == 1 { 0 } else { i });
    stack.chain(matrix_index.iter().copied()).collect()
}

/// One element by the definition.
fn sum<T: Sample>(a: &NdView<T>, b: &NdView<T>, index: &[usize]) -> T::Acc {
    let (matrix_a, matrix_b) = (a.shape().len() > 1, b.shape().len() > 1);
    let (rest, col) = index.split_at(index.len() - usize::from(matrix_b));
    let (stack, row) = rest.split_at(rest.len() - usize::from(matrix_a));
    (0..*a.shape().last().unwrap()).fold(T::Acc::ZERO, |sum, p| {
        let x = a.get(&operand(a.shape(), stack, &[row, &[p]].concat())).unwrap();
        let y = b.get(&operand(b.shape(), stack, &[&[p], col].concat())).unwrap();
        T::fused(x.widen(), y.widen(), sum)
    })
}

/// Compares one random product with plain loops. Memory between the elements of C must be
/// unchanged.
fn compare<T: Sample>(device: &Device, random: &mut Random, largest: usize) {
    let [a, b] = shapes(random, largest);
    let shape = product_shape(&a, &b).unwrap();
    let [a, b] = [a, b].map(|shape| StridedArray::random(&shape, random, true, T::element));
    let mut c = StridedArray::random(&shape, random, false, T::result);
    let (alpha, beta) = (T::scalar(random), T::scalar(random));
    let mut expected = c.memory.clone();
    for index in indices(&shape) {
        let position = c.layout.at(&index).unwrap();
        let scaled = T::fused(alpha, sum(&a.view(), &b.view(), &index), T::Acc::ZERO);
        expected[position] = T::narrow(T::fused(beta, T::widen_out(c.memory[position]), scaled));
    }
    let into = NdViewMut::strided(&mut c.memory, c.layout.clone()).unwrap();
    NdGemm::new(a.view(), b.view(), into).alpha(alpha).beta(beta).on(device).run().unwrap();
    let layouts = (&a.layout, &b.layout, &c.layout);
    assert_eq!(c.memory, expected, "{layouts:?}, alpha {alpha:?}, beta {beta:?}");
}

#[test]
fn random_nd_products_on_the_cpu_are_correct() {
    let random = &mut Random(1);
    for _ in 0..seeds(1000, 3000) {
        compare::<i32>(&Device::cpu(), random, 9);
        compare::<i8>(&Device::cpu(), random, 16);
    }
}

#[test]
fn random_nd_products_in_the_interpreter_are_correct() {
    let random = &mut Random(2);
    for _ in 0..seeds(20, 60) {
        compare::<i32>(&Device::interp(), random, 5);
        // The interpreter's kernels accumulate in the order of the loops above, so floats are equal
        // bit for bit.
        compare::<f32>(&Device::interp(), random, 5);
    }
}

/// A stack times one matrix is one tall product, with the bits of separate products.
#[test]
fn stack_merged_into_one_product_has_equal_bits() {
    let random = &mut Random(3);
    let mut array = |shape: &[usize]| {
        let data = (0..shape.iter().product()).map(|_| f32::element(random)).collect();
        NdArray::from_vec(shape, data).unwrap()
    };
    let (a, b) = (array(&[3, 5, 37, 300]), array(&[300, 29]));
    let stacked = matmul_on(&Device::cpu(), &a.view(), &b.view());
    for (i, one) in a.as_slice().chunks(37 * 300).enumerate() {
        let one = NdView::new(one, &[37, 300]).unwrap();
        let alone = matmul_on(&Device::cpu(), &one, &b.view());
        let bits = |x: &[f32]| x.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(alone.as_slice()), bits(&stacked.as_slice()[i * 37 * 29..][..37 * 29]));
    }
}

fn matmul_on<T: Element>(device: &Device, a: &NdView<T>, b: &NdView<T>) -> NdArray<T::Out> {
    let mut c = NdArray::zeros(&product_shape(a.shape(), b.shape()).unwrap()).unwrap();
    NdGemm::new(a.clone(), b.clone(), c.view_mut()).on(device).run().unwrap();
    c
}
