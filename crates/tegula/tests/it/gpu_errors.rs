//! Errors of the GPU interface: memory and streams of another context, and misaligned addresses.
//! Without a GPU the tests are skipped; `TEGULA_REQUIRE_GPU=1` makes that a failure.
#![cfg(feature = "cuda")]

use tegula::cuda::cudarc::driver::CudaContext;
use tegula::cuda::{self, DeviceMatrix, Gpu};
use tegula::{Device, Error, Gemm, Layout, Result, Shape};

use crate::gpu::gpu;

fn assert_device_mismatch<T: std::fmt::Debug>(result: Result<T>, object: &str, owner: &str) {
    match result {
        Err(error @ Error::DeviceMismatch { .. }) => {
            let expected = format!(
                "{object} belongs to {owner}, but the work runs on cuda:0; copy it to cuda:0, or run on {owner}"
            );
            assert_eq!(error.to_string(), expected);
        }
        other => panic!("expected DeviceMismatch, found {other:?}"),
    }
}

/// Streams, slices and matrices of another context are errors, also in products, and the device
/// works afterwards.
fn check_foreign_context(gpu: &Gpu, other: &std::sync::Arc<CudaContext>, owner: &str) {
    let stream = other.new_stream().unwrap();
    assert_device_mismatch(gpu.with_stream(stream.clone()), "the stream", owner);
    let layout = Layout::row_major(Shape::new(8, 8)).unwrap();
    let mut slice = stream.alloc_zeros::<f32>(64).unwrap();
    assert_device_mismatch(gpu.borrow(slice.as_view(), layout), "the slice", owner);
    assert_device_mismatch(gpu.borrow_mut(slice.as_view_mut(), layout), "the slice", owner);

    let other_gpu = Gpu::from_context(other.clone()).unwrap();
    let remote = DeviceMatrix::<f32>::zeros(&other_gpu, layout.shape).unwrap();
    let local = DeviceMatrix::<f32>::zeros(gpu, layout.shape).unwrap();
    let mut c = DeviceMatrix::<f32>::zeros(gpu, layout.shape).unwrap();
    let device = Device::from(gpu.clone());
    let product = Gemm::new(local.view(), remote.view(), c.view_mut()).on(&device).run();
    assert_device_mismatch(product, "the matrix", owner);
    Gemm::new(local.view(), local.view(), c.view_mut()).on(&device).run().unwrap();
    assert_eq!(c.download().unwrap().as_slice(), [0.0; 64], "the device works after the error");
}

#[test]
fn objects_of_another_context_are_errors() {
    let Some(gpu) = gpu() else { return };
    check_foreign_context(&gpu, &CudaContext::new_non_primary(0, 0).unwrap(), "another context of cuda:0");
}

#[test]
fn objects_of_another_gpu_are_errors() {
    let Some(gpu) = gpu() else { return };
    if cuda::devices().unwrap().len() < 2 {
        println!("skipped: only one GPU found");
        return;
    }
    check_foreign_context(&gpu, &CudaContext::new(1).unwrap(), "cuda:1");
}

#[test]
fn misaligned_address_is_an_error() {
    let Some(gpu) = gpu() else { return };
    let layout = Layout::row_major(Shape::new(2, 3)).unwrap();
    let bytes = gpu.stream().alloc_zeros::<u8>(64).unwrap();
    let assert_misaligned = |error: Error| {
        assert!(matches!(error, Error::Misaligned { .. }), "{error}");
        let text = error.to_string();
        assert!(text.contains("is not a multiple of the 4 bytes of an element of f32"), "{text}");
    };
    let misaligned = bytes.slice(2..26);
    // SAFETY: 24 bytes are 6 elements, and any bits are a valid float.
    let misaligned = unsafe { misaligned.transmute::<f32>(6) }.unwrap();
    assert_misaligned(gpu.borrow(misaligned, layout).unwrap_err());
    let memory = DeviceMatrix::<i8>::zeros(&gpu, Shape::new(1, 64)).unwrap();
    let address = memory.buffer().address();
    // SAFETY: the memory is alive until the end of the test, and nothing else accesses it.
    unsafe {
        assert_misaligned(gpu.view_from_raw::<f32>(address + 1, 6, layout).unwrap_err());
        assert_misaligned(gpu.view_mut_from_raw::<f32>(address + 2, 6, layout).unwrap_err());
        assert!(gpu.view_from_raw::<f32>(address + 4, 6, layout).is_ok());
    }
}
