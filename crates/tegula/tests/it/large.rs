//! Sizes beyond 32 bits, and grids beyond 65,535 blocks along an axis.

use tegula::{Device, Gemm, Layout, Matrix, Shape, View, ViewMut};

const DEVICES: [fn() -> Device; 2] = [Device::cpu, Device::interp];

/// A matrix whose elements are one element in memory.
fn broadcast<T: tegula::element::Scalar>(one: &[T], rows: usize, cols: usize) -> View<'_, T> {
    View::strided(one, Layout { shape: Shape::new(rows, cols), offset: 0, strides: [0; 3] }).unwrap()
}

#[test]
fn input_of_more_than_2_pow_32_elements_is_accepted() {
    let (one, wide) = ([f32::NAN], 1 << 31);
    let (a, b) = (broadcast(&one, 4, wide), broadcast(&one, wide, 4));
    let mut c = Matrix::from_fn(4, 4, |i, j| (4 * i + j) as f32).unwrap();
    Gemm::new(a, b, c.view_mut()).alpha(0.0).beta(2.0).on(&Device::cpu()).run().unwrap();
    assert_eq!(c.as_slice(), (0..16).map(|x| 2.0 * x as f32).collect::<Vec<_>>());
    // C has no columns, so no work is done.
    let mut c = Matrix::<f32>::zeros(4, 0).unwrap();
    Gemm::new(a, broadcast(&one, wide, 0), c.view_mut()).on(&Device::cpu()).run().unwrap();
}

/// Memory is allocated on first access, so sparse accesses cost nothing.
#[test]
fn offsets_beyond_32_bits_are_correct() {
    const APART: usize = 1 << 32;
    let shape = Shape::new(2, 40);
    let mut far = vec![0i8; APART + 40];
    for i in 0..40 {
        (far[i], far[APART + i]) = (i as i8, 100 - i as i8);
    }
    let a = View::strided(&far, Layout { shape, offset: 0, strides: [0, APART as isize, 1] }).unwrap();
    let dot = |x: &dyn Fn(i32) -> i32, y: &dyn Fn(i32) -> i32| (0..40).map(|i| x(i) * y(i)).sum::<i32>();
    let (x, y): (&dyn Fn(i32) -> i32, &dyn Fn(i32) -> i32) = (&|i| i, &|i| 100 - i);
    let expected = [dot(x, x), dot(x, y), dot(y, x), dot(y, y)];
    for device in DEVICES {
        let mut c = vec![0i32; APART / 4 + 2];
        let apart = Layout { shape: Shape::new(2, 2), offset: 0, strides: [0, (APART / 4) as isize, 1] };
        let into = ViewMut::strided(&mut c, apart).unwrap();
        Gemm::new(a, a.t(), into).on(&device()).run().unwrap();
        assert_eq!([c[0], c[1], c[APART / 4], c[APART / 4 + 1]], expected);
    }
}

#[test]
#[ignore = "long; .ci/run runs it"]
fn grids_beyond_65_535_tiles_and_batches_are_correct() {
    let m = 530_000; // tiles of 8
    let a = Matrix::from_fn(m, 1, |i, _| i as i32).unwrap();
    let three = Matrix::from_vec(1, 1, vec![3i32]).unwrap();
    let batch = Shape { batches: 66_000, rows: 1, cols: 1 };
    let stack = Matrix::from_shape_fn(batch, |b, _, _| b as i32).unwrap();
    for device in DEVICES {
        let mut c = Matrix::zeros(m, 1).unwrap();
        Gemm::new(a.view(), three.view(), c.view_mut()).on(&device()).run().unwrap();
        assert!(c.as_slice().iter().zip(0..).all(|(&c, i)| c == 3 * i));
        let mut c = Matrix::zeros_of_shape(batch).unwrap();
        Gemm::new(stack.view(), three.view(), c.view_mut()).on(&device()).run().unwrap();
        assert!(c.as_slice().iter().zip(0..).all(|(&c, i)| c == 3 * i));
    }
}
