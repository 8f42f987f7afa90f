//! N-dimensional products against plain loops, on random shapes and strides; and which shapes make a product.

use tegula::element::{Element, Scalar};
use tegula::nd::{NdArray, NdGemm, NdLayout, NdView, NdViewMut, matmul, product_shape};
use tegula::{Device, Error, Matrix};

use crate::product::{Random, Sample};

type Axes = &'static [usize];

/// What `numpy.matmul` makes of shapes: the result's, or `None` where it refuses.
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
fn shapes_are_those_of_numpy() {
    for (a, b, expected) in SHAPES {
        let shape = product_shape(a, b);
        match (&shape, expected) {
            (Ok(shape), Some(expected)) => assert_eq!(shape, expected, "{a:?} @ {b:?}"),
            (Err(Error::Shape(_)), None) => {}
            _ => panic!("{a:?} @ {b:?} is {shape:?}, not {expected:?}"),
        }
        // And the product has it.
        if let Some(expected) = expected {
            let [a, b] = [a, b].map(|shape| NdArray::<f32>::zeros(shape).unwrap());
            assert_eq!(matmul(&a, &b).unwrap().shape(), expected);
        }
    }
}

#[test]
fn refusals_name_both_shapes() {
    let why = |a: &[usize], b: &[usize]| product_shape(a, b).unwrap_err().to_string();
    assert_eq!(why(&[2, 3], &[4, 5]), "A is 2×3 and B is 4×5: A's 3 columns must be as many as B's 4 rows");
    assert_eq!(why(&[2, 3], &[4]), "A is 2×3 and B is a vector of 4: A's last axis (3) must be as long as B (4)");
    let stacks = why(&[5, 2, 3], &[6, 3, 4]);
    assert!(stacks.contains("5×2×3") && stacks.contains("6×3×4") && stacks.contains("do not broadcast"), "{stacks}");
    assert!(why(&[], &[4]).contains("a single number"));
    let (a, mut c) = (NdArray::<i32>::zeros(&[2, 2]).unwrap(), NdArray::zeros(&[4]).unwrap());
    let wrong = NdGemm::new(a.view(), a.view(), c.view_mut()).run().unwrap_err().to_string();
    assert_eq!(wrong, "A is 2×2 and B is 2×2, so C must be 2×2, not 4");
}

#[test]
fn vectors_lose_their_axis_and_are_their_own_transpose() {
    let x = NdArray::from_vec(&[3], vec![1i32, 2, 3]).unwrap();
    let dot = matmul(x.view().t(), &x).unwrap();
    assert_eq!((dot.shape(), dot.as_slice()), (&[][..], &[14][..]));
    let m = Matrix::from_fn(2, 3, |r, c| (10 * r + c) as i32).unwrap();
    assert_eq!(matmul(&m, &x).unwrap().as_slice(), [8, 68]);
    assert_eq!(matmul(&x, NdView::from(&m).t()).unwrap().as_slice(), [8, 68]);
}

/// An array somewhere in memory that is larger.
struct Lying<T> {
    memory: Vec<T>,
    layout: NdLayout,
}

impl<T: Scalar> Lying<T> {
    /// Axes in any order in memory, with gaps, backwards, and where it is an input, some repeated.
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
        Lying { memory, layout: NdLayout { shape: shape.to_vec(), offset, strides } }
    }

    fn view(&self) -> NdView<'_, T> {
        NdView::strided(&self.memory, self.layout.clone()).unwrap()
    }
}

/// Shapes that make a product: stacks of up to three axes, either operand perhaps a vector.
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

/// The index of an operand for an index of the result: its stack's axes, broadcast, and then its own.
fn operand(shape: &[usize], stack: &[usize], own: &[usize]) -> Vec<usize> {
    let axes = shape.len() - own.len();
    let stack = stack[stack.len() - axes..].iter().zip(shape).map(|(&i, &extent)| if extent == 1 { 0 } else { i });
    stack.chain(own.iter().copied()).collect()
}

/// One element, as the definition says.
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

/// Compares one random product with plain loops. What lies between the elements of C must stay as it was.
fn compare<T: Sample>(device: &Device, random: &mut Random, largest: usize) {
    let [a, b] = shapes(random, largest);
    let shape = product_shape(&a, &b).unwrap();
    let [a, b] = [a, b].map(|shape| Lying::random(&shape, random, true, T::element));
    let mut c = Lying::random(&shape, random, false, T::result);
    let (alpha, beta) = (T::factor(random), T::factor(random));
    let mut expected = c.memory.clone();
    for index in indices(&shape) {
        let position = c.layout.at(&index).unwrap();
        let scaled = T::fused(alpha, sum(&a.view(), &b.view(), &index), T::Acc::ZERO);
        expected[position] = T::narrow(T::fused(beta, T::widen_out(c.memory[position]), scaled));
    }
    let into = NdViewMut::strided(&mut c.memory, c.layout.clone()).unwrap();
    NdGemm::new(a.view(), b.view(), into).alpha(alpha).beta(beta).on(device).run().unwrap();
    let lying = (&a.layout, &b.layout, &c.layout);
    assert_eq!(c.memory, expected, "{lying:?}, alpha {alpha:?}, beta {beta:?}");
}

#[test]
fn random_products_on_the_cpu() {
    let random = &mut Random(1);
    for _ in 0..3000 {
        compare::<i32>(&Device::cpu(), random, 9);
        compare::<i8>(&Device::cpu(), random, 16);
    }
}

#[test]
fn random_products_in_the_interpreter() {
    let random = &mut Random(2);
    for _ in 0..60 {
        compare::<i32>(&Device::interp(), random, 5);
        // The interpreter's kernels add as the loops above do, so floats agree to the bit.
        compare::<f32>(&Device::interp(), random, 5);
    }
}

/// A stack against one matrix is one tall product; its bits are those of a product for each.
#[test]
fn tall_products_have_the_same_bits() {
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
