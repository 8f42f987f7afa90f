//! What a GPU refuses: memory and streams of somewhere else, addresses between elements. Without a GPU the tests say that they are
//! skipped; `TEGULA_REQUIRE_GPU=1` makes that a failure.
#![cfg(feature = "cuda")]

use tegula::cuda::cudarc::driver::CudaContext;
use tegula::cuda::{self, DeviceMatrix, Gpu};
use tegula::{Device, Error, Gemm, Layout, Result, Shape};

use crate::gpu::gpu;

fn elsewhere<T: std::fmt::Debug>(result: Result<T>, what: &str, owner: &str) {
    match result {
        Err(error @ Error::Elsewhere { .. }) => {
            let expected = format!(
                "{what} belongs to {owner}, the work runs on cuda:0; move it there or run the work where it is"
            );
            assert_eq!(error.to_string(), expected);
        }
        other => panic!("expected Elsewhere, found {other:?}"),
    }
}

/// Streams, slices and matrices of another context are refused, also by products, and do no harm.
fn refuse_other(gpu: &Gpu, other: &std::sync::Arc<CudaContext>, owner: &str) {
    let stream = other.new_stream().unwrap();
    elsewhere(gpu.with_stream(stream.clone()), "the stream", owner);
    let layout = Layout::row_major(Shape::new(8, 8)).unwrap();
    let mut slice = stream.alloc_zeros::<f32>(64).unwrap();
    elsewhere(gpu.borrow(slice.as_view(), layout), "the slice", owner);
    elsewhere(gpu.borrow_mut(slice.as_view_mut(), layout), "the slice", owner);

    let there = Gpu::from_context(other.clone()).unwrap();
    let far = DeviceMatrix::<f32>::zeros(&there, layout.shape).unwrap();
    let near = DeviceMatrix::<f32>::zeros(gpu, layout.shape).unwrap();
    let mut c = DeviceMatrix::<f32>::zeros(gpu, layout.shape).unwrap();
    let device = Device::from(gpu.clone());
    let product = Gemm::new(near.view(), far.view(), c.view_mut()).on(&device).run();
    elsewhere(product, "the matrix", owner);
    Gemm::new(near.view(), near.view(), c.view_mut()).on(&device).run().unwrap();
    assert_eq!(c.download().unwrap().as_slice(), [0.0; 64], "a refusal does no harm");
}

#[test]
fn what_belongs_to_another_context_is_refused() {
    let Some(gpu) = gpu() else { return };
    refuse_other(&gpu, &CudaContext::new_non_primary(0, 0).unwrap(), "another context of cuda:0");
}

#[test]
fn what_belongs_to_another_gpu_is_refused() {
    let Some(gpu) = gpu() else { return };
    if cuda::devices().unwrap().len() < 2 {
        println!("skipped: there is one GPU");
        return;
    }
    refuse_other(&gpu, &CudaContext::new(1).unwrap(), "cuda:1");
}

#[test]
fn an_address_between_elements_is_refused() {
    let Some(gpu) = gpu() else { return };
    let layout = Layout::row_major(Shape::new(2, 3)).unwrap();
    let bytes = gpu.stream().alloc_zeros::<u8>(64).unwrap();
    let refused = |error: Error| {
        assert!(matches!(error, Error::Misaligned { .. }), "{error}");
        let text = error.to_string();
        assert!(text.contains("is not a multiple of the 4 bytes of an element of f32"), "{text}");
    };
    let odd = bytes.slice(2..26);
    // SAFETY: 24 bytes are 6 elements, and all bits are a float.
    let odd = unsafe { odd.transmute::<f32>(6) }.unwrap();
    refused(gpu.borrow(odd, layout).unwrap_err());
    let memory = DeviceMatrix::<i8>::zeros(&gpu, Shape::new(1, 64)).unwrap();
    let address = memory.buffer().address();
    // SAFETY: the memory lives to the end of the test, and nothing else uses it.
    unsafe {
        refused(gpu.view_from_raw::<f32>(address + 1, 6, layout).unwrap_err());
        refused(gpu.view_mut_from_raw::<f32>(address + 2, 6, layout).unwrap_err());
        assert!(gpu.view_from_raw::<f32>(address + 4, 6, layout).is_ok());
    }
}
