//! Products captured into CUDA graphs. Without a GPU the tests say that they are skipped; `TEGULA_REQUIRE_GPU=1` makes that a failure.
#![cfg(feature = "cuda")]

use std::sync::{Mutex, MutexGuard, PoisonError};

use tegula::cuda::cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};
use tegula::cuda::{DeviceMatrix, Gpu};
use tegula::{Device, Error, Gemm, Matrix, Result, Shape};

/// The first GPU, for one test at a time: a capture in the global mode forbids other threads to load and to allocate.
fn gpu() -> Option<(Gpu, MutexGuard<'static, ()>)> {
    static ALONE: Mutex<()> = Mutex::new(());
    match Gpu::open(0) {
        Ok(gpu) => Some((gpu, ALONE.lock().unwrap_or_else(PoisonError::into_inner))),
        Err(why) if std::env::var("TEGULA_REQUIRE_GPU").is_ok_and(|value| value == "1") => panic!("no GPU: {why}"),
        Err(why) => {
            println!("skipped: {why}");
            None
        }
    }
}

/// Sides that fit no tile.
const SHAPES: [Shape; 3] = [Shape::new(65, 33), Shape::new(33, 41), Shape::new(65, 41)];

fn numbers(shape: Shape, seed: usize) -> Matrix<f32> {
    Matrix::from_shape_fn(shape, |_, r, c| ((r * 7 + c * 13 + seed) % 17) as f32 - 8.0).unwrap()
}

/// C = A·B + C on the GPU, with what the host says of it.
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

    /// [`Product::queue`] with no word of where, which is at the home of C.
    fn queue_at_home(&mut self) -> Result<()> {
        let Product { a, b, c } = self;
        Gemm::new(a.view(), b.view(), c.view_mut()).beta(1.0).run().map(drop)
    }

    /// Puts numbers of this seed into A, B and C where they lie, and gives what C has to become.
    fn fill(&mut self, gpu: &Gpu, seed: usize) -> Matrix<f32> {
        let [a, b, mut c] = SHAPES.map(|shape| numbers(shape, seed));
        for (there, here) in [(&mut self.a, &a), (&mut self.b, &b), (&mut self.c, &c)] {
            copy(gpu, there, here);
        }
        Gemm::new(a.view(), b.view(), c.view_mut()).beta(1.0).on(&Device::cpu()).run().unwrap();
        c
    }
}

/// Copies a host matrix to where a matrix of the GPU lies: 1·`here` by a product with the host's identity.
fn copy(gpu: &Gpu, there: &mut DeviceMatrix<f32>, here: &Matrix<f32>) {
    let rows = here.shape().rows;
    let one = Matrix::from_fn(rows, rows, |r, c| f32::from(u8::from(r == c))).unwrap();
    Gemm::new(one.view(), here.view(), there.view_mut()).on(&Device::from(gpu.clone())).run().unwrap();
}

#[test]
fn a_captured_product_runs_again_on_new_numbers() {
    let Some((gpu, _alone)) = gpu() else { return };
    let mut product = Product::new(&gpu);
    product.queue(&gpu).unwrap();
    // Opens the handle that products take which name none, outside the capture.
    product.queue_at_home().unwrap();
    for placed in [true, false] {
        let queue = || if placed { product.queue(&gpu) } else { product.queue_at_home() };
        let graph = gpu.capture(queue).unwrap();
        for seed in 0..3 {
            let want = product.fill(&gpu, seed);
            // SAFETY: the matrices are alive and where they were, and all work is on one stream.
            unsafe { graph.launch() }.unwrap();
            assert!(product.c.download().unwrap() == want, "seed {seed}, placed: {placed}");
        }
    }
}

#[test]
fn a_second_product_allocates_no_more_than_the_names_of_its_report() {
    let Some((gpu, _alone)) = gpu() else { return };
    let mut product = Product::new(&gpu);
    product.queue(&gpu).unwrap();
    let count = allocation_counter::measure(|| product.queue(&gpu).unwrap()).count_total;
    assert!(count <= 2, "{count} allocations");
}

#[test]
fn a_stream_that_the_caller_captures_takes_products() {
    let Some((gpu, _alone)) = gpu() else { return };
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
        let want = product.fill(&gpu, 5);
        graph.launch().unwrap();
        assert!(product.c.download().unwrap() == want, "{mode:?}");
    }
}

#[test]
fn others_open_the_gpu_while_a_stream_is_captured() {
    let Some((gpu, _alone)) = gpu() else { return };
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
fn what_cannot_be_captured_is_refused_and_does_no_harm() {
    let Some((gpu, _alone)) = gpu() else { return };
    let mut product = Product::new(&gpu);
    product.queue(&gpu).unwrap();
    let refused = |work: &mut dyn FnMut() -> Result<()>, part: &str| match gpu.capture(work) {
        Err(error @ Error::Capture { .. }) => assert!(error.to_string().contains(part), "{error}"),
        other => panic!("expected Capture, found {other:?}"),
    };
    refused(&mut || DeviceMatrix::<f32>::uninit(&gpu, Shape::new(4, 4)).map(drop), "memory is allocated");
    refused(&mut || product.c.download().map(drop), "copied between the host and the GPU");
    let (host, mut out) = (numbers(SHAPES[0], 1), numbers(SHAPES[2], 1));
    let device = Device::from(gpu.clone());
    refused(
        &mut || Gemm::new(host.view(), product.b.view(), out.view_mut()).on(&device).run().map(drop),
        "memory is allocated",
    );
    // A tile and a type that no other test takes.
    let x = DeviceMatrix::<i8>::zeros(&gpu, Shape::new(5, 5)).unwrap();
    let mut y = DeviceMatrix::<i32>::zeros(&gpu, Shape::new(5, 5)).unwrap();
    let mut fresh = || Gemm::new(x.view().t(), x.view().t(), y.view_mut()).on(&device).run().map(drop);
    refused(&mut fresh, "is not loaded yet");
    let default = gpu.with_stream(gpu.context().default_stream()).unwrap();
    assert!(matches!(default.capture(|| Ok(())), Err(Error::Capture { .. })));

    fresh().unwrap();
    let want = product.fill(&gpu, 2);
    product.queue(&gpu).unwrap();
    assert!(product.c.download().unwrap() == want, "the stream is an ordinary one again");
}
