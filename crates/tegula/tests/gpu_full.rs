//! A product that does not fit in GPU memory. In a separate process, since it allocates all of that
//! memory. Without a GPU the test is skipped; `TEGULA_REQUIRE_GPU=1` makes that a failure.
#![cfg(feature = "cuda")]

use tegula::cuda::{Buffer, Gpu};
use tegula::{Device, Error, Gemm, Matrix};

#[test]
fn gemm_larger_than_gpu_memory_is_an_error_with_sizes() {
    let gpu = match Gpu::open(0) {
        Ok(gpu) => gpu,
        Err(why) if std::env::var("TEGULA_REQUIRE_GPU").is_ok_and(|value| value == "1") => panic!("no GPU: {why}"),
        Err(why) => return println!("skipped: {why}"),
    };
    let device = Device::from(gpu.clone());
    // Ones in A, B and C: 16 MiB each.
    let n = 2048;
    let a = Matrix::from_fn(n, n, |_, _| 1f32).unwrap();
    let mut c = a.clone();

    // Fill the memory, so that less than one matrix fits.
    let (mut buffers, mut bytes) = (Vec::new(), gpu.info().memory_bytes as usize);
    while bytes > 4 << 20 {
        match Buffer::<i8>::uninit(&gpu, bytes) {
            Ok(buffer) => buffers.push(buffer),
            Err(Error::OutOfMemory { .. }) => bytes /= 2,
            Err(other) => panic!("{other}"),
        }
    }
    let error = Gemm::new(a.view(), a.view(), c.view_mut()).on(&device).run().unwrap_err();
    match &error {
        Error::OutOfMemory { what, bytes, available, .. } => {
            assert_eq!((what.as_str(), *bytes), ("copies of A, B and C", 3 * 4 * (n * n) as u64), "{error}");
            assert!(available.is_some_and(|free| free < *bytes), "{error}");
        }
        other => panic!("expected OutOfMemory, found {other}"),
    }
    assert_eq!(c.as_slice(), a.as_slice(), "C is unchanged");

    drop(buffers);
    Gemm::new(a.view(), a.view(), c.view_mut()).on(&device).run().unwrap();
    assert!(c.as_slice().iter().all(|x| *x == n as f32), "the device works after the error");
}
