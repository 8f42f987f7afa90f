//! Views of one element broadcast to huge shapes: every operation succeeds, or fails immediately
//! with a typed error.

use tegula::element::{Element, Scalar, Type, with_operand_type};
use tegula::epilogue::EpilogueOperands;
use tegula::nd::{NdArray, NdGemm, NdLayout, NdView};
use tegula::{Device, Error, Gemm, Grouped, Layout, Matrix, Result, Shape, View, ViewMut};
use tegula_bench::oracle;
use tegula_cpu as cpu;

const MAX: usize = usize::MAX;

fn shape(batches: usize, rows: usize, cols: usize) -> Shape {
    Shape { batches, rows, cols }
}

/// One element broadcast to a matrix of any shape.
fn broadcast<T: Scalar>(one: &[T; 1], batches: usize, rows: usize, cols: usize) -> Result<View<'_, T>> {
    View::new(one, 1, 1)?.broadcast(shape(batches, rows, cols))
}

fn is_out_of_memory<R>(result: Result<R>) -> bool {
    matches!(result, Err(Error::OutOfMemory { .. }))
}

fn is_shape_error<R>(result: Result<R>) -> bool {
    matches!(result, Err(Error::Shape(_)))
}

#[test]
fn view_of_unaddressable_size_is_a_shape_error() {
    let one = [1f32];
    for (batches, rows, cols) in [(MAX, MAX, MAX), (MAX, 1, 1), (1 << 62, 2, 1), (1 << 21, 1 << 21, 1 << 21)] {
        assert!(is_shape_error(broadcast(&one, batches, rows, cols)), "{batches} {rows} {cols}");
        let layout = Layout { shape: shape(batches, rows, cols), offset: 0, strides: [0; 3] };
        assert!(is_shape_error(View::strided(&one, layout)));
        let extents = vec![batches, rows, cols];
        assert!(is_shape_error(NdView::strided(&one, NdLayout { shape: extents, offset: 0, strides: vec![0; 3] })));
    }
    assert!(broadcast(&one, 1 << 58, 1, 1).is_ok());
    for (batches, rows, cols) in [(MAX, MAX, 0), (0, MAX, MAX), (MAX, 0, MAX)] {
        let layout = Layout { shape: shape(batches, rows, cols), offset: 0, strides: [0; 3] };
        assert_eq!(View::strided(&one, layout).unwrap().as_slice(), Some(&[][..]));
    }
}

#[test]
fn prepack_larger_than_memory_is_an_error() {
    fn check_type<T: Element>() {
        let one = [T::ZERO];
        for (batches, rows, cols) in [
            (1 << 58, 1, 1),
            (1, 1 << 31, 1 << 31),
            (1, 1 << 62, 1),
            (1, 1, (1 << 62) + 1),
            (1 << 31, 1, 1 << 31),
            (3, 1 << 60, 1),
            (1 << 20, 1 << 20, 1 << 22),
        ] {
            let result = Gemm::<T>::prepack(broadcast(&one, batches, rows, cols).unwrap());
            assert!(is_out_of_memory(result), "{} {batches}×{rows}×{cols}", T::TYPE);
        }
        assert_eq!(Gemm::<T>::prepack(broadcast(&one, MAX >> 1, 0, 1).unwrap()).unwrap().bytes(), 0);
    }
    for ty in Type::OPERANDS {
        with_operand_type!(ty, T => check_type::<T>(), ty => panic!("no products of {ty}"));
    }
}

/// C is in memory, so only k can be huge.
#[test]
fn gemm_with_oversized_k_is_an_error() {
    let one = [1f32];
    let (a, b) = (broadcast(&one, 1, 1, 1 << 61).unwrap(), broadcast(&one, 1, 1 << 61, 1).unwrap());
    for device in [Device::cpu(), Device::interp()] {
        let mut c = [0f32];
        let result = Gemm::new(a, b, ViewMut::new(&mut c, 1, 1).unwrap()).on(&device).run();
        assert!(result.is_err(), "{result:?}");
    }
    let mut c = [2f32];
    assert!(is_shape_error(cpu::gemm::<f32>(1.0, a, b, 0.0, ViewMut::new(&mut c, 1, 1).unwrap())));
    cpu::gemm::<f32>(0.0, a, b, 2.0, ViewMut::new(&mut c, 1, 1).unwrap()).unwrap();
    assert_eq!(c, [4.0]);
    assert!(Gemm::new(a, b, ViewMut::new(&mut c, 1, 1).unwrap()).on(&Device::cpu()).explain().is_err());
    // B that can be read unpacked, so that a cost model would compare both.
    let (row, k) = ([1f32; 100], 1 << 53);
    let b = View::strided(&row, Layout { shape: shape(1, k, 100), offset: 0, strides: [0, 0, 1] }).unwrap();
    let mut c = Matrix::from_fn(1000, 100, |_, _| 2f32).unwrap();
    cpu::gemm::<f32>(0.0, broadcast(&one, 1, 1000, k).unwrap(), b, 2.0, c.view_mut()).unwrap();
    assert!(c.as_slice().iter().all(|x| *x == 4.0));
    let (m, n) = (broadcast(&one, 1, 3, 1 << 61).unwrap(), broadcast(&one, 1, 1 << 61, 3).unwrap());
    let mut c = [0f32; 9];
    assert!(is_shape_error(Gemm::new(m, n, ViewMut::new(&mut c, 3, 3).unwrap()).on(&Device::cpu()).run()));
    let mut c = [0f32; 3];
    let groups = broadcast(&one, 2, 1 << 61, 1).unwrap();
    assert!(is_shape_error(
        Grouped::new(m, groups, ViewMut::new(&mut c, 3, 1).unwrap(), &[1, 2]).on(&Device::cpu()).run()
    ));
    assert!(oracle::check::<f32>(1.0, a, b, 0.0, None, View::new(&c[..1], 1, 1).unwrap()).is_err());
}

#[test]
fn batch_that_overflows_only_after_broadcasting_is_an_error() {
    // Neither A nor B has too many elements, but A broadcast to the batch has.
    let one = [1f32];
    let (a, b) = (broadcast(&one, 1, 4, 1 << 60).unwrap(), broadcast(&one, 4, 1 << 60, 1).unwrap());
    let mut c = Matrix::<f32>::zeros_of_shape(shape(4, 4, 1)).unwrap();
    assert!(is_shape_error(Gemm::new(a, b, c.view_mut()).on(&Device::cpu()).run()));
    let nd = |extents: &[usize]| {
        let strides = vec![0; extents.len()];
        NdView::strided(&one, NdLayout { shape: extents.to_vec(), offset: 0, strides }).unwrap()
    };
    let mut c = NdArray::<f32>::zeros(&[8, 4, 3]).unwrap();
    let product = NdGemm::new(nd(&[4, 1 << 58]), nd(&[8, 1 << 58, 3]), c.view_mut());
    assert!(is_shape_error(product.on(&Device::cpu()).run()));
}

#[test]
fn products_with_k_0_and_oversized_c_are_errors() {
    let one = [1f32];
    // Products with k = 0 whose C is larger than memory.
    let (a, b) = (broadcast(&one, 1, 1 << 31, 0), broadcast(&one, 1, 0, 1 << 31));
    let (a, b) = (a.unwrap(), b.unwrap());
    assert!(is_out_of_memory(tegula::matmul(a, b)));
    assert!(is_out_of_memory(oracle::reference::<f32>(1.0, a, b, 0.0, None)));
    let (a, b) = (broadcast(&one, 1, MAX, 0).unwrap(), broadcast(&one, 1, 0, MAX).unwrap());
    assert!(is_shape_error(tegula::matmul(a, b)));
    assert!(is_shape_error(oracle::reference::<f32>(1.0, a, b, 0.0, None)));
    assert!(is_shape_error(tegula::nd::matmul(NdView::from(a), NdView::from(b))));
}

#[test]
fn reference_larger_than_memory_is_an_error() {
    let one = [1f32];
    let view = |batches, rows, cols| broadcast(&one, batches, rows, cols).unwrap();
    for (batches, m, n, k) in
        [(1, 1 << 50, 1, 1), (1, 1, 1 << 50, 1), (1 << 50, 1, 1, 1), (1, 1, 1, 1 << 50), (1, 1, 1 << 60, 0)]
    {
        let (a, b, c) = (view(batches, m, k), view(batches, k, n), view(batches, m, n));
        let what = format!("{batches} {m} {n} {k}");
        assert!(is_out_of_memory(oracle::check::<f32>(1.0, a, b, 0.0, None, c)), "{what}");
        let progress = |_| ();
        let epilogue = EpilogueOperands { bias: Some(view(1, 1, n)), ..EpilogueOperands::default() };
        assert!(oracle::check_with_epilogue::<f32>(1.0, a, b, 1.0, Some(c), epilogue, c, &progress).is_err(), "{what}");
        assert!(is_out_of_memory(oracle::errors::<f32>(1.0, a, b, 0.0, None, c)), "{what}");
        assert!(is_out_of_memory(oracle::reference::<f32>(1.0, a, b, 0.0, None)), "{what}");
    }
}

#[test]
fn copy_of_a_broadcast_view_larger_than_memory_is_an_error() {
    let one = [1f32];
    let view = broadcast(&one, 1, 1 << 31, 1 << 31).unwrap();
    assert!(is_out_of_memory(Matrix::from_view(view)));
    assert!(is_out_of_memory(NdView::from(view).to_array()));
    assert_eq!(view.as_slice(), None);
    assert_eq!(view.row(0, 1 << 30), None);
    assert_eq!(view.get(0, (1 << 31) - 1, (1 << 31) - 1), Some(1.0));
    assert!(view.copy_to_slice((1 << 62) - 1, &mut [0.0; 2]).is_err());
    let mut last = [0.0];
    view.copy_to_slice((1 << 62) - 1, &mut last).unwrap();
    assert_eq!(last, [1.0]);
}

#[test]
fn interpreter_copies_larger_than_memory_are_an_error() {
    let one = [1f32];
    let (a, b) = (broadcast(&one, 1, 1, 1 << 40).unwrap(), broadcast(&one, 1, 1 << 40, 1).unwrap());
    let mut c = [0f32];
    let product = Gemm::new(a, b, ViewMut::new(&mut c, 1, 1).unwrap()).on(&Device::interp());
    assert!(product.run().is_err());
}
