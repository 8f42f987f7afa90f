//! Memory in explanations equals the memory of runs, and oversized requests fail before they
//! allocate. In a separate process, whose allocations are counted.

use std::time::{Duration, Instant};

use tegula::element::Element;
use tegula::nd::{NdArray, NdGemm};
use tegula::{Device, Error, Gemm, Layout, Matrix, Shape, View};
use tegula_bench::oracle;
use tegula_kernels::plan::explain::OperandHandling;
use tegula_kernels::plan::limits::EXTENT;

/// Peak bytes allocated on this thread, which allocates for products.
fn peak_bytes(work: impl FnOnce()) -> u128 {
    allocation_counter::measure(work).bytes_max.into()
}

/// Explains a product and runs it. The memory of the run is as explained, plus a small overhead for
/// the kernel and the lists of the engines. Runs on a new thread, which keeps no memory of earlier
/// products.
fn check_explained<T: Element>(
    device: &Device,
    sizes: [usize; 3],
    alpha: T::Acc,
    beta: T::Acc,
    transposed: bool,
) -> u128 {
    std::thread::scope(|scope| {
        let explained = scope.spawn(|| explained::<T>(device, sizes, alpha, beta, transposed));
        explained.join().expect("the explanation matches the run")
    })
}

fn explained<T: Element>(device: &Device, sizes: [usize; 3], alpha: T::Acc, beta: T::Acc, transposed: bool) -> u128 {
    let [m, n, k] = sizes;
    let [a, b] = [(m, k), (k, n)].map(|(rows, cols)| Matrix::<T>::zeros(rows, cols).unwrap());
    let mut c = Matrix::zeros_of_shape(if transposed { Shape::new(n, m) } else { Shape::new(m, n) }).unwrap();
    let c = if transposed { c.view_mut().t() } else { c.view_mut() };
    let product = Gemm::new(a.view(), b.view(), c).alpha(alpha).beta(beta).on(device);
    let (mut reported, mut kernel) = (0, String::new());
    let explain_bytes = peak_bytes(|| {
        let explanation = product.explain().unwrap();
        (reported, kernel) = (explanation.host_bytes, explanation.kernel);
    });
    // An explanation runs and copies nothing.
    assert!(explain_bytes < OVERHEAD, "{explain_bytes}");
    let used = peak_bytes(|| assert_eq!(product.run().unwrap().kernel, kernel));
    assert!(
        reported <= used && used < reported + OVERHEAD,
        "{sizes:?} on {device:?}: {reported} reported, {used} used"
    );
    reported
}

/// Bytes for a built kernel, and the findings, counters and lists of the interpreter.
const OVERHEAD: u128 = 400 << 10;

#[test]
fn gemm_memory_equals_explained_memory() {
    // Threads start once, those of rayon and those of products, and only if memory remains for
    // them.
    tegula_core::threads::count();
    let square = Matrix::<f32>::zeros(300, 300).unwrap();
    tegula::matmul(&square, &square).unwrap();
    for (device, is_cpu) in [(Device::cpu(), true), (Device::interp(), false)] {
        // Warm up the thread pool and one-time allocations.
        check_explained::<f32>(&device, [200, 200, 4], 1.0, 0.0, false);
        // Several threads of a CPU read both operands unpacked, and need no memory.
        assert!(check_explained::<f64>(&device, [300, 400, 20], 1.0, 0.0, false) > 0 || is_cpu);
        check_explained::<f64>(&device, [300, 400, 5], 1.0, 1.0, true);
        check_explained::<tegula::element::f16>(&device, [300, 400, 5], 1.0, 0.0, false);
        check_explained::<i8>(&device, [400, 300, 5], 2, 0, false);
        assert_eq!(check_explained::<f32>(&device, [0, 300, 5], 1.0, 0.0, false), 0);
    }
    let wide = check_explained::<f32>(&Device::cpu(), [300, 400, 1000], 1.0, 0.0, false);
    assert!(wide > 0);
    // With alpha other than 1 and several KC blocks, partial sums have a buffer besides C.
    assert!(check_explained::<f32>(&Device::cpu(), [300, 400, 1000], 2.0, 0.0, false) > wide);
    assert_eq!(check_explained::<f32>(&Device::cpu(), [300, 400, 1000], 0.0, 2.0, false), 0);
}

fn out_of_memory_message(result: Result<impl Sized, Error>) -> String {
    match result {
        Err(error @ Error::OutOfMemory { available: Some(_), .. }) => {
            let reported = error.to_string();
            assert!(reported.contains("are free") && !reported.contains('\n'), "{reported}");
            reported
        }
        Err(other) => panic!("expected OutOfMemory, found {other}"),
        Ok(_) => panic!("expected OutOfMemory, found success"),
    }
}

#[test]
fn oversized_request_is_an_immediate_error_with_sizes() {
    let start = Instant::now();
    let used = peak_bytes(|| {
        let reported = out_of_memory_message(Matrix::<f64>::zeros(1 << 22, 1 << 22));
        assert!(reported.contains("128.0 TiB for a 4194304×4194304 matrix of f64 on the host"), "{reported}");
        assert!(out_of_memory_message(NdArray::<f32>::zeros(&[1 << 15, 1 << 15, 1 << 15])).contains("128.0 TiB"));
        let row = Matrix::<f32>::zeros(1 << 20, 1).unwrap();
        let wide = View::strided(row.as_slice(), Layout { shape: Shape::new(1, 1 << 30), offset: 0, strides: [0; 3] });
        let stack = Layout { shape: Shape { batches: 1 << 20, rows: 1, cols: 1 << 25 }, offset: 0, strides: [0; 3] };
        let stack = View::strided(row.as_slice(), stack).unwrap();
        out_of_memory_message(tegula::matmul(row.view(), wide.unwrap()));
        // The interpreter copies operands densely, without broadcasting.
        let mut c = Matrix::zeros_of_shape(Shape { batches: 1 << 20, rows: 1, cols: 1 }).unwrap();
        let one = View::strided(row.as_slice(), Layout { shape: Shape::new(1 << 25, 1), offset: 0, strides: [0; 3] });
        let product = Gemm::new(stack, one.unwrap(), c.view_mut()).on(&Device::interp());
        assert!(out_of_memory_message(product.run()).contains("256.0 TiB for the interpreter's copies of A, B and C"));
        // The reference copies A densely.
        let tall =
            View::strided(row.as_slice(), Layout { shape: Shape::new(1 << 23, 1 << 22), offset: 0, strides: [0; 3] });
        let (one, column) = (Matrix::zeros(1 << 22, 1).unwrap(), Shape::new(1 << 23, 1));
        let result = View::strided(row.as_slice(), Layout { shape: column, offset: 0, strides: [0; 3] }).unwrap();
        out_of_memory_message(oracle::check::<f32>(1.0, tall.unwrap(), one.view(), 0.0, None, result));
    });
    assert!(used < 64 << 20, "{used}");
    assert!(start.elapsed() < Duration::from_secs(20));
}

#[test]
fn explanation_reports_operand_handling() {
    let (a, mut c) = (Matrix::<f32>::zeros(50, 40).unwrap(), Matrix::zeros(50, 50).unwrap());
    let on_cpu = Gemm::new(a.view(), a.view().t(), c.view_mut()).on(&Device::cpu()).explain().unwrap();
    assert_eq!(
        on_cpu.operands.each_ref().map(|x| &x.handling),
        [&OperandHandling::Packed, &OperandHandling::Packed, &OperandHandling::InPlace]
    );
    let lines = on_cpu.to_string();
    assert!(
        lines.contains("\nA: 50×40 f32 in host memory, row-major, strides [40, 1]: packed block by block\n"),
        "{lines}"
    );
    assert!(lines.contains("\nB: 40×50 f32 in host memory, column-major, strides [1, 40]: packed"), "{lines}");

    let on_interp = Gemm::new(a.view(), a.view().t(), c.view_mut()).on(&Device::interp()).explain().unwrap();
    let launch = on_interp.launch.unwrap();
    assert_eq!((launch.tile, launch.grid, launch.block), ([32; 2], [2, 2, 1], [32, 32, 1]));
    let lines = on_interp.to_string();
    assert!(lines.contains("copied to interp, 7.8 KiB, row-major"), "{lines}");
    assert!(lines.contains("written on interp and copied back, 9.8 KiB"), "{lines}");
    let nothing = Gemm::new(a.view(), a.view().t(), c.view_mut()).alpha(0.0).beta(2.0).on(&Device::interp());
    let nothing = nothing.explain().unwrap();
    assert_eq!(nothing.operands[0].handling, OperandHandling::Unread);
    assert!(nothing.to_string().contains("copied to interp and back"));
}

#[test]
fn explanation_counts_products() {
    let [a, b] = [[2, 1, 3, 4].as_slice(), &[7, 4, 5]].map(|shape| NdArray::<f32>::zeros(shape).unwrap());
    let mut c = NdArray::zeros(&[2, 7, 3, 5]).unwrap();
    let explanation = NdGemm::new(a.view(), b.view(), c.view_mut()).on(&Device::cpu()).explain().unwrap();
    assert_eq!((explanation.products, explanation.batches, explanation.m), (2, 7, 3));
    assert_eq!(explanation.operands[2].shape, [2, 7, 3, 5]);
    assert!(explanation.to_string().contains("2 products, each: a batch of 7, m = 3, n = 5, k = 4"));
    let mut c = NdArray::zeros(&[2, 1, 3]).unwrap();
    let x = NdArray::<f32>::zeros(&[4]).unwrap();
    let explanation = NdGemm::new(a.view(), x.view(), c.view_mut()).on(&Device::cpu()).explain().unwrap();
    assert_eq!((explanation.products, explanation.batches, explanation.m, explanation.n), (1, 1, 6, 1));
}

#[test]
fn explanation_of_an_invalid_gemm_is_an_error() {
    let (a, mut c) = (Matrix::<f32>::zeros(5, 4).unwrap(), Matrix::zeros(5, 5).unwrap());
    assert!(matches!(Gemm::new(a.view(), a.view(), c.view_mut()).explain(), Err(Error::Shape(_))));
    let long = Layout { shape: Shape::new(5, EXTENT + 1), offset: 0, strides: [0; 3] };
    let long = View::strided(a.as_slice(), long).unwrap();
    let mut product = |device| Gemm::new(long, long.t(), c.view_mut()).on(&device).explain();
    assert!(product(Device::interp()).unwrap_err().to_string().contains("k is 2147482624"));
    assert!(product(Device::cpu()).is_ok());
}
