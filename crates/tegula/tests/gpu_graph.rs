//! Products captured into CUDA graphs. Without a GPU the tests are skipped; `TEGULA_REQUIRE_GPU=1`
//! makes that a failure.
#![cfg(feature = "cuda")]

use std::sync::{Mutex, MutexGuard, PoisonError};

use tegula::cuda::cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};
use tegula::cuda::{DeviceMatrix, Gpu};
use tegula::{Device, Error, Gemm, Matrix, Result, Shape};

/// The first GPU, for one test at a time: capture in global mode forbids other threads to load
/// modules and to allocate.
fn gpu() -> Option<(Gpu, MutexGuard<'static, ()>)> {
    static LOCK: Mutex<()> = Mutex::new(());
    match Gpu::open(0) {
        Ok(gpu) => Some((gpu, LOCK.lock().unwrap_or_else(PoisonError::into_inner))),
        Err(why) if std::env::var("TEGULA_REQUIRE_GPU").is_ok_and(|value| value == "1") => panic!("no GPU: {why}"),
        Err(why) => {
            println!("skipped: {why}");
            None
        }
    }
}

/// Extents that are no multiples of a tile.
const SHAPES: [Shape; 3] = [Shape::new(65, 33), Shape::new(33, 41), Shape::new(65, 41)];

fn values(shape: Shape, seed: usize) -> Matrix<f32> {
    Matrix::from_shape_fn(shape, |_, r, c| ((r * 7 + c * 13 + seed) % 17) as f32 - 8.0).unwrap()
}

/// C = A·B + C on the GPU.
struct Product {
    a: DeviceMatrix<f32>,
    b: DeviceMatrix<f32>,
    c: DeviceMatrix<f32>,
}

impl Product {
    fn new(gpu: &Gpu) -> Self {
        let [a, b, c] = SHAPES.map(|shape| DeviceMatrix::zeros(gpu, shape).unwrap());
        Product { a, b, c }
    }

    fn queue(&mut self, gpu: &Gpu) -> Result<()> {
        let Product { a, b, c } = self;
        Gemm::new(a.view(), b.view(), c.view_mut()).beta(1.0).on(&Device::from(gpu.clone())).run().map(drop)
    }

    /// [`Product::queue`] without a device, which runs on C's home stream.
    fn queue_without_device(&mut self) -> Result<()> {
        let Product { a, b, c } = self;
        Gemm::new(a.view(), b.view(), c.view_mut()).beta(1.0).run().map(drop)
    }

    /// Overwrites A, B and C in place with values of a seed. Returns the expected C.
    fn fill(&mut self, gpu: &Gpu, seed: usize) -> Matrix<f32> {
        let [a, b, mut c] = SHAPES.map(|shape| values(shape, seed));
        for (device_matrix, host_matrix) in [(&mut self.a, &a), (&mut self.b, &b), (&mut self.c, &c)] {
            copy(gpu, device_matrix, host_matrix);
        }
        Gemm::new(a.view(), b.view(), c.view_mut()).beta(1.0).on(&Device::cpu()).run().unwrap();
        c
    }
}

/// Copies a host matrix into an existing GPU matrix, by a product with the identity.
fn copy(gpu: &Gpu, device_matrix: &mut DeviceMatrix<f32>, host_matrix: &Matrix<f32>) {
    let rows = host_matrix.shape().rows;
    let one = Matrix::from_fn(rows, rows, |r, c| f32::from(u8::from(r == c))).unwrap();
    Gemm::new(one.view(), host_matrix.view(), device_matrix.view_mut()).on(&Device::from(gpu.clone())).run().unwrap();
}

#[test]
fn captured_gemm_relaunched_on_new_values_is_correct() {
    let Some((gpu, _lock)) = gpu() else { return };
    let mut product = Product::new(&gpu);
    product.queue(&gpu).unwrap();
    // Opens the default handle outside the capture.
    product.queue_without_device().unwrap();
    for on_device in [true, false] {
        let queue = || if on_device { product.queue(&gpu) } else { product.queue_without_device() };
        let graph = gpu.capture(queue).unwrap();
        for seed in 0..3 {
            let expected = product.fill(&gpu, seed);
            // SAFETY: the matrices are alive and where they were, and all work is on one stream.
            unsafe { graph.launch() }.unwrap();
            assert!(product.c.download().unwrap() == expected, "seed {seed}, on a device: {on_device}");
        }
    }
}

#[test]
fn second_gemm_allocates_only_the_names_of_its_report() {
    let Some((gpu, _lock)) = gpu() else { return };
    let mut product = Product::new(&gpu);
    product.queue(&gpu).unwrap();
    let count = allocation_counter::measure(|| product.queue(&gpu).unwrap()).count_total;
    assert!(count <= 2, "{count} allocations");
}

#[test]
fn gemm_on_a_stream_under_capture_is_recorded() {
    let Some((gpu, _lock)) = gpu() else { return };
    for mode in [
        CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL,
        CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
        CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED,
    ] {
        let gpu = gpu.with_stream(gpu.context().new_stream().unwrap()).unwrap();
        let mut product = Product::new(&gpu);
        product.queue(&gpu).unwrap();
        gpu.stream().begin_capture(mode).unwrap();
        let queued = product.queue(&gpu);
        let graph = gpu.stream().end_capture(CUgraphInstantiate_flags(0)).unwrap().unwrap();
        queued.unwrap();
        let expected = product.fill(&gpu, 5);
        graph.launch().unwrap();
        assert!(product.c.download().unwrap() == expected, "{mode:?}");
    }
}

#[test]
fn gpu_open_on_another_thread_during_capture_succeeds() {
    let Some((gpu, _lock)) = gpu() else { return };
    let mut product = Product::new(&gpu);
    product.queue(&gpu).unwrap();
    let graph = gpu.capture(|| {
        let opened = std::thread::scope(|scope| scope.spawn(|| Gpu::open(gpu.ordinal()).map(drop)).join());
        opened.expect("a thread that does not panic")?;
        product.queue(&gpu)
    });
    graph.unwrap();
}

#[test]
fn uncapturable_work_is_an_error_and_leaves_the_stream_usable() {
    let Some((gpu, _lock)) = gpu() else { return };
    let mut product = Product::new(&gpu);
    product.queue(&gpu).unwrap();
    let assert_capture_error = |work: &mut dyn FnMut() -> Result<()>, part: &str| match gpu.capture(work) {
        Err(error @ Error::Capture { .. }) => assert!(error.to_string().contains(part), "{error}"),
        other => panic!("expected Capture, found {other:?}"),
    };
    assert_capture_error(&mut || DeviceMatrix::<f32>::uninit(&gpu, Shape::new(4, 4)).map(drop), "memory is allocated");
    assert_capture_error(&mut || product.c.download().map(drop), "copied between the host and the GPU");
    let (host, mut out) = (values(SHAPES[0], 1), values(SHAPES[2], 1));
    let device = Device::from(gpu.clone());
    assert_capture_error(
        &mut || Gemm::new(host.view(), product.b.view(), out.view_mut()).on(&device).run().map(drop),
        "memory is allocated",
    );
    // A type and layout of a kernel that no other test loads.
    let x = DeviceMatrix::<i8>::zeros(&gpu, Shape::new(5, 5)).unwrap();
    let mut y = DeviceMatrix::<i32>::zeros(&gpu, Shape::new(5, 5)).unwrap();
    let mut fresh = || Gemm::new(x.view().t(), x.view().t(), y.view_mut()).on(&device).run().map(drop);
    assert_capture_error(&mut fresh, "is not loaded yet");
    let default = gpu.with_stream(gpu.context().default_stream()).unwrap();
    assert!(matches!(default.capture(|| Ok(())), Err(Error::Capture { .. })));

    fresh().unwrap();
    let expected = product.fill(&gpu, 2);
    product.queue(&gpu).unwrap();
    assert!(product.c.download().unwrap() == expected, "the stream works after the error");
}
