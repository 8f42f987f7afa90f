//! What an explanation says of memory is what is taken, and what does not fit is refused before anything is. In a process of its own, whose
//! allocations are counted.

use std::time::{Duration, Instant};

use tegula::element::Element;
use tegula::nd::{NdArray, NdGemm};
use tegula::{Device, Error, Gemm, Layout, Matrix, Shape, View};
use tegula_bench::oracle;
use tegula_kernels::plan::explain::Taken;
use tegula_kernels::plan::limits::EXTENT;

/// The most bytes that are allocated at a time on this thread, which is the one that allocates for products.
fn most(work: impl FnOnce()) -> u128 {
    allocation_counter::measure(work).bytes_max.into()
}

/// Explains a product and runs it: what it takes is what was said, and little more for the kernel and the lists of the engines. On a thread of its own, which has kept no
/// memory of products before.
fn as_explained<T: Element>(device: &Device, sizes: [usize; 3], alpha: T::Acc, beta: T::Acc, transposed: bool) -> u128 {
    std::thread::scope(|scope| {
        let explained = scope.spawn(|| explained::<T>(device, sizes, alpha, beta, transposed));
        explained.join().expect("as explained")
    })
}

fn explained<T: Element>(device: &Device, sizes: [usize; 3], alpha: T::Acc, beta: T::Acc, transposed: bool) -> u128 {
    let [m, n, k] = sizes;
    let [a, b] = [(m, k), (k, n)].map(|(rows, cols)| Matrix::<T>::zeros(rows, cols).unwrap());
    let mut c = Matrix::zeros_of_shape(if transposed { Shape::new(n, m) } else { Shape::new(m, n) }).unwrap();
    let c = if transposed { c.view_mut().t() } else { c.view_mut() };
    let product = Gemm::new(a.view(), b.view(), c).alpha(alpha).beta(beta).on(device);
    let (mut said, mut kernel) = (0, String::new());
    let explaining = most(|| {
        let explanation = product.explain().unwrap();
        (said, kernel) = (explanation.host_bytes, explanation.kernel);
    });
    // Nothing is run or copied to explain it.
    assert!(explaining < LITTLE, "{explaining}");
    let taken = most(|| assert_eq!(product.run().unwrap().kernel, kernel));
    assert!(said <= taken && taken < said + LITTLE, "{sizes:?} on {device:?}: {said} said, {taken} taken");
    said
}

/// What a built kernel takes, and the findings, tallies and lists of an interpreter.
const LITTLE: u128 = 400 << 10;

#[test]
fn products_take_what_explanations_say() {
    // Threads are started once, and only where memory is left beside them.
    tegula_core::threads::count();
    for device in [Device::cpu(), Device::interp()] {
        // The threads of the pool are there, and what is made once is made.
        as_explained::<f32>(&device, [200, 200, 4], 1.0, 0.0, false);
        assert!(as_explained::<f64>(&device, [300, 400, 20], 1.0, 0.0, false) > 0);
        as_explained::<f64>(&device, [300, 400, 5], 1.0, 1.0, true);
        as_explained::<tegula::element::f16>(&device, [300, 400, 5], 1.0, 0.0, false);
        as_explained::<i8>(&device, [400, 300, 5], 2, 0, false);
        assert_eq!(as_explained::<f32>(&device, [0, 300, 5], 1.0, 0.0, false), 0);
    }
    let wide = as_explained::<f32>(&Device::cpu(), [300, 400, 1000], 1.0, 0.0, false);
    // Scaled sums of several runs of KC are made beside C.
    assert!(as_explained::<f32>(&Device::cpu(), [300, 400, 1000], 2.0, 0.0, false) > wide);
    assert_eq!(as_explained::<f32>(&Device::cpu(), [300, 400, 1000], 0.0, 2.0, false), 0);
}

fn refused(result: Result<impl Sized, Error>) -> String {
    match result {
        Err(error @ Error::OutOfMemory { available: Some(_), .. }) => {
            let said = error.to_string();
            assert!(said.contains("are free") && !said.contains('\n'), "{said}");
            said
        }
        Err(other) => panic!("refused for another reason: {other}"),
        Ok(_) => panic!("not refused"),
    }
}

#[test]
fn what_does_not_fit_is_refused_with_numbers_and_at_once() {
    let start = Instant::now();
    let taken = most(|| {
        let said = refused(Matrix::<f64>::zeros(1 << 22, 1 << 22));
        assert!(said.contains("128.0 TiB for a 4194304×4194304 matrix of f64 on the host"), "{said}");
        assert!(refused(NdArray::<f32>::zeros(&[1 << 15, 1 << 15, 1 << 15])).contains("128.0 TiB"));
        let row = Matrix::<f32>::zeros(1 << 20, 1).unwrap();
        let wide = View::strided(row.as_slice(), Layout { shape: Shape::new(1, 1 << 30), offset: 0, strides: [0; 3] });
        let stack = Layout { shape: Shape { batches: 1 << 20, rows: 1, cols: 1 << 25 }, offset: 0, strides: [0; 3] };
        let stack = View::strided(row.as_slice(), stack).unwrap();
        refused(tegula::matmul(row.view(), wide.unwrap()));
        // The interpreter has its own copies, in which nothing is repeated.
        let mut c = Matrix::zeros_of_shape(Shape { batches: 1 << 20, rows: 1, cols: 1 }).unwrap();
        let one = View::strided(row.as_slice(), Layout { shape: Shape::new(1 << 25, 1), offset: 0, strides: [0; 3] });
        let product = Gemm::new(stack, one.unwrap(), c.view_mut()).on(&Device::interp());
        assert!(refused(product.run()).contains("256.0 TiB for the interpreter's copies of A, B and C"));
        // So has the reference.
        let tall =
            View::strided(row.as_slice(), Layout { shape: Shape::new(1 << 22, 1 << 23), offset: 0, strides: [0; 3] });
        let (one, wide) = (Matrix::zeros(1, 1 << 22).unwrap(), Shape::new(1, 1 << 23));
        let result = View::strided(row.as_slice(), Layout { shape: wide, offset: 0, strides: [0; 3] }).unwrap();
        refused(oracle::check::<f32>(1.0, one.view(), tall.unwrap(), 0.0, None, result));
    });
    assert!(taken < 64 << 20, "{taken}");
    assert!(start.elapsed() < Duration::from_secs(20));
}

#[test]
fn explanations_say_how_operands_are_taken() {
    let (a, mut c) = (Matrix::<f32>::zeros(50, 40).unwrap(), Matrix::zeros(50, 50).unwrap());
    let on_cpu = Gemm::new(a.view(), a.view().t(), c.view_mut()).on(&Device::cpu()).explain().unwrap();
    assert_eq!(on_cpu.operands.each_ref().map(|x| &x.taken), [&Taken::Packed, &Taken::Packed, &Taken::InPlace]);
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
    assert!(lines.contains("copied to interp, 7.8 KiB as row-major: it lies in host memory"), "{lines}");
    assert!(lines.contains("made on interp and copied back, 9.8 KiB"), "{lines}");
    let nothing = Gemm::new(a.view(), a.view().t(), c.view_mut()).alpha(0.0).beta(2.0).on(&Device::interp());
    let nothing = nothing.explain().unwrap();
    assert_eq!(nothing.operands[0].taken, Taken::Unread);
    assert!(nothing.to_string().contains("copied to interp and back"));
}

#[test]
fn explanations_count_products() {
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
fn explanations_refuse_what_products_refuse() {
    let (a, mut c) = (Matrix::<f32>::zeros(5, 4).unwrap(), Matrix::zeros(5, 5).unwrap());
    assert!(matches!(Gemm::new(a.view(), a.view(), c.view_mut()).explain(), Err(Error::Shape(_))));
    let long = Layout { shape: Shape::new(5, EXTENT + 1), offset: 0, strides: [0; 3] };
    let long = View::strided(a.as_slice(), long).unwrap();
    let mut product = |device| Gemm::new(long, long.t(), c.view_mut()).on(&device).explain();
    assert!(product(Device::interp()).unwrap_err().to_string().contains("k is 2147482624"));
    assert!(product(Device::cpu()).is_ok());
}
