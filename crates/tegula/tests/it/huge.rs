//! Views of few elements repeated to astronomical shapes: whatever is asked of them is refused, typed and at once, or done.

use tegula::element::{Element, Scalar, Type, with_operand_type};
use tegula::epilogue::Finish;
use tegula::nd::{NdArray, NdGemm, NdLayout, NdView};
use tegula::{Device, Error, Gemm, Grouped, Layout, Matrix, Result, Shape, View, ViewMut};
use tegula_bench::oracle;
use tegula_cpu as cpu;

const MAX: usize = usize::MAX;

fn shape(batches: usize, rows: usize, cols: usize) -> Shape {
    Shape { batches, rows, cols }
}

/// One element as a matrix of any shape.
fn repeated<T: Scalar>(one: &[T; 1], batches: usize, rows: usize, cols: usize) -> Result<View<'_, T>> {
    View::new(one, 1, 1)?.broadcast(shape(batches, rows, cols))
}

fn out_of_memory<R>(result: Result<R>) -> bool {
    matches!(result, Err(Error::OutOfMemory { .. }))
}

fn refused<R>(result: Result<R>) -> bool {
    matches!(result, Err(Error::Shape(_)))
}

#[test]
fn view_with_more_elements_than_can_be_addressed_is_refused() {
    let one = [1f32];
    for (batches, rows, cols) in [(MAX, MAX, MAX), (MAX, 1, 1), (1 << 62, 2, 1), (1 << 21, 1 << 21, 1 << 21)] {
        assert!(refused(repeated(&one, batches, rows, cols)), "{batches} {rows} {cols}");
        let layout = Layout { shape: shape(batches, rows, cols), offset: 0, strides: [0; 3] };
        assert!(refused(View::strided(&one, layout)));
        let extents = vec![batches, rows, cols];
        assert!(refused(NdView::strided(&one, NdLayout { shape: extents, offset: 0, strides: vec![0; 3] })));
    }
    assert!(repeated(&one, 1 << 58, 1, 1).is_ok());
    for (batches, rows, cols) in [(MAX, MAX, 0), (0, MAX, MAX), (MAX, 0, MAX)] {
        let layout = Layout { shape: shape(batches, rows, cols), offset: 0, strides: [0; 3] };
        assert_eq!(View::strided(&one, layout).unwrap().as_slice(), Some(&[][..]));
    }
}

#[test]
fn prepack_of_more_than_memory_is_refused() {
    fn all<T: Element>() {
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
            let result = Gemm::<T>::prepack(repeated(&one, batches, rows, cols).unwrap());
            assert!(out_of_memory(result), "{} {batches}×{rows}×{cols}", T::TYPE);
        }
        assert_eq!(Gemm::<T>::prepack(repeated(&one, MAX >> 1, 0, 1).unwrap()).unwrap().bytes(), 0);
    }
    for ty in Type::OPERANDS {
        with_operand_type!(ty, T => all::<T>(), ty => panic!("no products of {ty}"));
    }
}

/// C has memory, so only k can be beyond all bounds.
#[test]
fn sum_without_end_is_refused() {
    let one = [1f32];
    let (a, b) = (repeated(&one, 1, 1, 1 << 61).unwrap(), repeated(&one, 1, 1 << 61, 1).unwrap());
    for device in [Device::cpu(), Device::interp()] {
        let mut c = [0f32];
        let result = Gemm::new(a, b, ViewMut::new(&mut c, 1, 1).unwrap()).on(&device).run();
        assert!(result.is_err(), "{result:?}");
    }
    let mut c = [2f32];
    assert!(refused(cpu::gemm::<f32>(1.0, a, b, 0.0, ViewMut::new(&mut c, 1, 1).unwrap())));
    cpu::gemm::<f32>(0.0, a, b, 2.0, ViewMut::new(&mut c, 1, 1).unwrap()).unwrap();
    assert_eq!(c, [4.0]);
    assert!(Gemm::new(a, b, ViewMut::new(&mut c, 1, 1).unwrap()).on(&Device::cpu()).explain().is_err());
    let (m, n) = (repeated(&one, 1, 3, 1 << 61).unwrap(), repeated(&one, 1, 1 << 61, 3).unwrap());
    let mut c = [0f32; 9];
    assert!(refused(Gemm::new(m, n, ViewMut::new(&mut c, 3, 3).unwrap()).on(&Device::cpu()).run()));
    let mut c = [0f32; 3];
    let groups = repeated(&one, 2, 1 << 61, 1).unwrap();
    assert!(refused(Grouped::new(m, groups, ViewMut::new(&mut c, 3, 1).unwrap(), &[1, 2]).on(&Device::cpu()).run()));
    assert!(oracle::check::<f32>(1.0, a, b, 0.0, None, View::new(&c[..1], 1, 1).unwrap()).is_err());
}

#[test]
fn batches_that_overflow_only_with_their_sums_are_refused() {
    // Neither A nor B has too many elements, but A for each batch has.
    let one = [1f32];
    let (a, b) = (repeated(&one, 1, 4, 1 << 60).unwrap(), repeated(&one, 4, 1 << 60, 1).unwrap());
    let mut c = Matrix::<f32>::zeros_of_shape(shape(4, 4, 1)).unwrap();
    assert!(refused(Gemm::new(a, b, c.view_mut()).on(&Device::cpu()).run()));
    let nd = |extents: &[usize]| {
        let strides = vec![0; extents.len()];
        NdView::strided(&one, NdLayout { shape: extents.to_vec(), offset: 0, strides }).unwrap()
    };
    let mut c = NdArray::<f32>::zeros(&[8, 4, 3]).unwrap();
    let product = NdGemm::new(nd(&[4, 1 << 58]), nd(&[8, 1 << 58, 3]), c.view_mut());
    assert!(refused(product.on(&Device::cpu()).run()));
}

#[test]
fn empty_sums_of_any_shape_are_refused_or_done() {
    let one = [1f32];
    // Products of nothing that are larger than memory.
    let (a, b) = (repeated(&one, 1, 1 << 31, 0), repeated(&one, 1, 0, 1 << 31));
    let (a, b) = (a.unwrap(), b.unwrap());
    assert!(out_of_memory(tegula::matmul(a, b)));
    assert!(out_of_memory(oracle::product::<f32>(1.0, a, b, 0.0, None)));
    let (a, b) = (repeated(&one, 1, MAX, 0).unwrap(), repeated(&one, 1, 0, MAX).unwrap());
    assert!(refused(tegula::matmul(a, b)));
    assert!(refused(oracle::product::<f32>(1.0, a, b, 0.0, None)));
    assert!(refused(tegula::nd::matmul(NdView::from(a), NdView::from(b))));
}

#[test]
fn reference_larger_than_memory_is_refused() {
    let one = [1f32];
    let view = |batches, rows, cols| repeated(&one, batches, rows, cols).unwrap();
    for (batches, m, n, k) in
        [(1, 1 << 50, 1, 1), (1, 1, 1 << 50, 1), (1 << 50, 1, 1, 1), (1, 1, 1, 1 << 50), (1, 1, 1 << 60, 0)]
    {
        let (a, b, c) = (view(batches, m, k), view(batches, k, n), view(batches, m, n));
        let what = format!("{batches} {m} {n} {k}");
        assert!(out_of_memory(oracle::check::<f32>(1.0, a, b, 0.0, None, c)), "{what}");
        let progress = |_| ();
        let finish = Finish { bias: Some(view(1, 1, n)), ..Finish::default() };
        assert!(oracle::check_finished::<f32>(1.0, a, b, 1.0, Some(c), finish, c, &progress).is_err(), "{what}");
        assert!(out_of_memory(oracle::errors::<f32>(1.0, a, b, 0.0, None, c)), "{what}");
        assert!(out_of_memory(oracle::product::<f32>(1.0, a, b, 0.0, None)), "{what}");
    }
}

#[test]
fn copy_of_a_repeated_view_larger_than_memory_is_refused() {
    let one = [1f32];
    let view = repeated(&one, 1, 1 << 31, 1 << 31).unwrap();
    assert!(out_of_memory(Matrix::from_view(view)));
    assert!(out_of_memory(NdView::from(view).to_array()));
    assert_eq!(view.as_slice(), None);
    assert_eq!(view.row(0, 1 << 30), None);
    assert_eq!(view.get(0, (1 << 31) - 1, (1 << 31) - 1), Some(1.0));
    assert!(view.copy_to_slice((1 << 62) - 1, &mut [0.0; 2]).is_err());
    let mut last = [0.0];
    view.copy_to_slice((1 << 62) - 1, &mut last).unwrap();
    assert_eq!(last, [1.0]);
}

#[test]
fn interpreter_refuses_copies_larger_than_memory() {
    let one = [1f32];
    let (a, b) = (repeated(&one, 1, 1, 1 << 40).unwrap(), repeated(&one, 1, 1 << 40, 1).unwrap());
    let mut c = [0f32];
    let product = Gemm::new(a, b, ViewMut::new(&mut c, 1, 1).unwrap()).on(&Device::interp());
    assert!(product.run().is_err());
}
