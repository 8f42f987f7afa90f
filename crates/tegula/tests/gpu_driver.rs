//! The driver engine on a real GPU. Without one each test prints "skipped: no GPU", or fails if
//! `TEGULA_REQUIRE_GPU` is 1.
#![cfg(feature = "cuda")]

use tegula::cuda::{DeviceElement, DeviceMatrix, Function, Gpu, LoadSource, Param};
use tegula::element::{bf16, f16};
use tegula::matrix::{DeviceMemory, Memory};
use tegula::{Error, Layout, Matrix, Result, Shape, View, ViewMut};
use tegula_ir::ptx::Image;

/// The first GPU, with no module loaded. `None` skips the test.
fn gpu() -> Option<Gpu> {
    match Gpu::open(0) {
        Ok(gpu) => Some(gpu),
        Err(error) if std::env::var("TEGULA_REQUIRE_GPU").is_ok_and(|value| value == "1") => panic!("{error}"),
        Err(error @ (Error::NoDriver { .. } | Error::NoSuchGpu { .. })) => {
            eprintln!("skipped: no GPU ({error})");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

const THREADS: u32 = 128;

fn image(entry: &str, text: &str) -> Image {
    Image { entry: entry.into(), text: text.into(), shared_bytes: 0, block: [THREADS, 1, 1], uses_griddep_wait: false }
}

/// y[i] = alpha · x[i] for i < n.
fn scale() -> Image {
    let text = ".version 6.4
.target sm_75
.address_size 64
.visible .entry scale(.param .u64 scale_x, .param .u64 scale_y, .param .u32 scale_n, .param .f32 scale_alpha)
.maxntid 128, 1, 1
{
    .reg .pred %p<1>;
    .reg .b32 %r<5>;
    .reg .f32 %f<3>;
    .reg .b64 %d<6>;
    mov.u32 %r0, %ctaid.x;
    mov.u32 %r1, %ntid.x;
    mov.u32 %r2, %tid.x;
    mad.lo.u32 %r3, %r0, %r1, %r2;
    ld.param.u32 %r4, [scale_n];
    setp.ge.u32 %p0, %r3, %r4;
    @%p0 bra DONE;
    ld.param.u64 %d0, [scale_x];
    ld.param.u64 %d1, [scale_y];
    cvta.to.global.u64 %d2, %d0;
    cvta.to.global.u64 %d3, %d1;
    mul.wide.u32 %d4, %r3, 4;
    add.u64 %d5, %d2, %d4;
    ld.global.f32 %f0, [%d5];
    ld.param.f32 %f1, [scale_alpha];
    mul.rn.f32 %f2, %f0, %f1;
    add.u64 %d5, %d3, %d4;
    st.global.f32 [%d5], %f2;
DONE:
    ret;
}
";
    image("scale", text)
}

/// The line of the multiplication in [`scale`].
const MUL_LINE: &str = "line 26";

/// A block reverses 128 elements in place, through the end of 64 KiB of dynamic shared memory.
fn reverse() -> Image {
    let text = ".version 6.4
.target sm_75
.address_size 64
.extern .shared .align 16 .b8 shared_memory[];
.visible .entry reverse(.param .u64 reverse_x)
.maxntid 128, 1, 1
{
    .reg .b32 %r<6>;
    .reg .b64 %d<4>;
    mov.u32 %r0, %tid.x;
    ld.param.u64 %d0, [reverse_x];
    cvta.to.global.u64 %d1, %d0;
    mul.wide.u32 %d2, %r0, 4;
    add.u64 %d3, %d1, %d2;
    ld.global.u32 %r1, [%d3];
    mov.u32 %r2, shared_memory;
    shl.b32 %r3, %r0, 2;
    add.u32 %r4, %r2, %r3;
    st.shared.u32 [%r4+65024], %r1;
    bar.sync 0;
    sub.u32 %r5, %r2, %r3;
    ld.shared.u32 %r1, [%r5+65532];
    st.global.u32 [%d3], %r1;
    ret;
}
";
    Image { shared_bytes: 64 << 10, ..image("reverse", text) }
}

/// A kernel for compute capability 9.0 only.
fn hopper(directives: &str, body: &str) -> Image {
    let head = ".version 8.0\n.target sm_90a\n.address_size 64";
    image("hopper", &format!("{head}\n.visible .entry hopper()\n{directives}\n{{\n    {body}\n    ret;\n}}\n"))
}

fn memory<'a, T: DeviceElement>(view: View<'a, T>) -> DeviceMemory<'a> {
    match view.memory() {
        Memory::Device(memory) => memory,
        Memory::Host(_) => panic!("expected a GPU matrix"),
    }
}

/// Queues y = alpha · x on `gpu`'s stream, ordered with the home streams of both matrices.
fn launch_scale(gpu: &Gpu, function: &Function, x: View<'_, f32>, y: &ViewMut<'_, f32>, alpha: f32) -> Result<()> {
    let n = x.shape().len()? as u32;
    let (x, y) = (memory(x), memory(y.as_view()));
    let params = [Param::U64(x.address()), Param::U64(y.address()), Param::U32(n), Param::F32(alpha)];
    gpu.submit_in_order(&[x, y], || {
        // SAFETY: these are the kernel's parameters, both matrices hold n elements, and `ordered`
        // orders the kernel with other accesses to them.
        unsafe { gpu.launch(function, [n.div_ceil(THREADS), 1, 1], &params) }
    })
}

fn ramp(rows: usize, cols: usize) -> Matrix<f32> {
    Matrix::from_fn(rows, cols, |r, c| (r * cols + c) as f32).unwrap()
}

/// Whether two matrices hold the same elements, in any layouts.
fn are_equal<T: DeviceElement>(a: View<'_, T>, b: View<'_, T>) -> bool {
    let Shape { rows, cols, .. } = a.shape();
    a.shape() == b.shape() && (0..rows).all(|r| (0..cols).all(|c| a.get(0, r, c) == b.get(0, r, c)))
}

/// Round-trips host matrices of different layouts, through one half of the staging buffer or
/// several.
fn round_trips<T: DeviceElement>(gpu: &Gpu, value: impl Fn(usize) -> T) {
    for (rows, cols) in [(0, 5), (1, 1), (3, 5), (1031, 1201)] {
        let stride = cols + 3;
        let host: Vec<T> = (0..rows * stride + 1).map(&value).collect();
        let (shape, row) = (Shape::new(rows, cols), stride as isize);
        let dense = Layout { shape, offset: 0, strides: [0, cols as isize, 1] };
        let padded = Layout { shape, offset: 1, strides: [0, row, 1] };
        let reversed = Layout { shape, offset: rows * stride, strides: [0, -row, -1] };
        for layout in [dense, padded, padded.transposed(), reversed] {
            let view = View::strided(&host, layout).unwrap();
            let device_matrix = DeviceMatrix::upload(gpu, view).unwrap();
            assert!(are_equal(device_matrix.download().unwrap().view(), view), "{} {layout:?}", T::TYPE);
            let mut into = vec![T::ZERO; host.len()];
            device_matrix.download_into(ViewMut::strided(&mut into, layout).unwrap()).unwrap();
            assert!(are_equal(View::strided(&into, layout).unwrap(), view), "{} {layout:?}", T::TYPE);
        }
    }
}

#[test]
fn matrix_upload_and_download_of_every_type_round_trip() {
    let Some(gpu) = gpu() else { return };
    round_trips(&gpu, |i| i as f64 * 0.5);
    round_trips(&gpu, |i| i as f32 * 0.5);
    round_trips(&gpu, |i| f16::from_f32((i % 2048) as f32));
    round_trips(&gpu, |i| bf16::from_f32((i % 256) as f32));
    round_trips(&gpu, |i| i as i32 - 1000);
    round_trips(&gpu, |i| i as i8);
}

#[test]
fn fill_sets_every_element() {
    fn filled<T: DeviceElement>(gpu: &Gpu, value: T) {
        for len in [0, 1, 1_000_003] {
            let mut matrix = DeviceMatrix::<T>::zeros(gpu, Shape::new(1, len)).unwrap();
            assert!(matrix.download().unwrap().as_slice().iter().all(|x| *x == T::ZERO));
            matrix.fill(value).unwrap();
            assert!(matrix.download().unwrap().as_slice().iter().all(|x| *x == value), "{}", T::TYPE);
        }
    }
    let Some(gpu) = gpu() else { return };
    filled(&gpu, std::f64::consts::PI);
    filled(&gpu, 1.5f32);
    filled(&gpu, f16::from_f32(1.5));
    filled(&gpu, bf16::from_f32(1.5));
    filled(&gpu, 0x0102_0304i32);
    filled(&gpu, -7i8);
}

#[test]
fn launched_kernel_writes_its_result() {
    let Some(gpu) = gpu() else { return };
    let (function, _) = gpu.load(&scale()).unwrap();
    let attributes = function.attributes();
    assert!(attributes.registers > 0 && attributes.local_bytes == 0 && attributes.max_threads >= THREADS);
    assert!(function.blocks_per_multiprocessor().unwrap() > 0);
    let a = ramp(100, 37);
    let x = DeviceMatrix::upload(&gpu, a.view()).unwrap();
    let mut y = DeviceMatrix::uninit(&gpu, x.shape()).unwrap();
    launch_scale(&gpu, &function, x.view(), &y.view_mut(), 3.0).unwrap();
    let result = y.download().unwrap();
    assert!(a.as_slice().iter().zip(result.as_slice()).all(|(x, y)| 3.0 * x == *y));
}

#[test]
fn kernel_with_64_kib_of_shared_memory_runs() {
    let Some(gpu) = gpu() else { return };
    let (function, _) = gpu.load(&reverse()).unwrap();
    let x = DeviceMatrix::upload(&gpu, ramp(1, THREADS as usize).view()).unwrap();
    let params = [Param::U64(x.buffer().address())];
    // SAFETY: the kernel takes the address of 128 elements, which nothing else accesses.
    unsafe { gpu.launch(&function, [1, 1, 1], &params) }.unwrap();
    let expected: Vec<f32> = (0..THREADS).rev().map(|i| i as f32).collect();
    assert_eq!(x.download().unwrap().as_slice(), expected);
    let oversized = Image { shared_bytes: u32::MAX, ..reverse() };
    assert!(matches!(gpu.load(&oversized), Err(Error::Launch { .. })));
}

#[test]
fn invalid_launches_are_errors() {
    let Some(gpu) = gpu() else { return };
    let (function, _) = gpu.load(&scale()).unwrap();
    let params = [Param::U64(0), Param::U64(0), Param::U32(0), Param::F32(0.0)];
    // SAFETY: with n = 0 the kernel accesses no memory; the other launches fail before the driver
    // call.
    let launch = |grid, params: &[Param]| unsafe { gpu.launch(&function, grid, params) };
    launch([1, 1, 1], &params).unwrap();
    launch([1, 0, 1], &params).unwrap();
    assert!(matches!(launch([1, 65_536, 1], &params), Err(Error::Launch { .. })));
    if gpu.info().driver >= (12, 4) {
        assert!(matches!(launch([1, 1, 1], &params[..3]), Err(Error::Launch { .. })));
        let swapped = [params[0], params[2], params[1], params[3]];
        assert!(matches!(launch([1, 1, 1], &swapped), Err(Error::Launch { .. })));
    }
    gpu.synchronize().unwrap();
}

#[test]
fn invalid_ptx_is_an_error_with_its_line() {
    let Some(gpu) = gpu() else { return };
    let broken = Image { text: scale().text.replace("mul.rn.f32", "mull.rn.f32"), ..scale() };
    match gpu.load(&broken) {
        Err(Error::Assemble { kernel, errors, .. }) => {
            assert_eq!(kernel, "scale");
            assert!(errors.contains(MUL_LINE), "{errors}");
        }
        other => panic!("expected Assemble, found {other:?}"),
    }
    let newer = Image { text: scale().text.replace(".version 6.4", ".version 99.0"), ..scale() };
    assert!(matches!(gpu.load(&newer), Err(Error::Assemble { .. })));
}

#[test]
fn kernel_is_loaded_once_per_handle() {
    let Some(gpu) = gpu() else { return };
    let load = |gpu: &Gpu| gpu.load(&scale()).unwrap().1;
    assert_eq!(
        (load(&gpu), load(&gpu), load(&gpu.clone())),
        (LoadSource::Driver, LoadSource::Memory, LoadSource::Memory)
    );
}

#[test]
fn hopper_kernels_are_loaded() {
    let Some(gpu) = gpu() else { return };
    if gpu.info().compute != (9, 0) {
        eprintln!("skipped: not a Hopper GPU");
        return;
    }
    let registers = "setmaxnreg.dec.sync.aligned.u32 40;";
    assert!(gpu.load(&hopper(".maxntid 128, 1, 1\n.minnctapersm 1", registers)).is_ok());
}

#[test]
fn concurrent_loads_of_one_kernel_load_it_once() {
    let Some(gpu) = gpu() else { return };
    let load = || gpu.load(&scale()).unwrap().1;
    let sources: Vec<LoadSource> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(load)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(sources.iter().filter(|source| **source == LoadSource::Driver).count(), 1);
}

#[test]
fn time_of_a_launch_is_positive() {
    let Some(gpu) = gpu() else { return };
    let (function, _) = gpu.load(&scale()).unwrap();
    let x = DeviceMatrix::<f32>::zeros(&gpu, Shape::new(1 << 12, 1 << 12)).unwrap();
    let mut y = DeviceMatrix::uninit(&gpu, x.shape()).unwrap();
    let seconds = gpu.time(|| launch_scale(&gpu, &function, x.view(), &y.view_mut(), 2.0)).unwrap();
    assert!(seconds > 0.0 && seconds < 1.0, "{seconds}");
}

/// x and z have one home stream, y another. The kernels run on both, and x and y are dropped at
/// once.
#[test]
fn work_on_another_stream_is_ordered_with_the_home_stream() {
    let Some(gpu) = gpu() else { return };
    let other = gpu.with_stream(gpu.context().new_stream().unwrap()).unwrap();
    let (function, _) = gpu.load(&scale()).unwrap();
    let a = ramp(2048, 2048);
    for round in 0..8 {
        let x = DeviceMatrix::upload(&gpu, a.view()).unwrap();
        let mut y = DeviceMatrix::uninit(&other, x.shape()).unwrap();
        let mut z = DeviceMatrix::uninit(&gpu, x.shape()).unwrap();
        launch_scale(&other, &function, x.view(), &y.view_mut(), 2.0).unwrap();
        launch_scale(&gpu, &function, y.view(), &z.view_mut(), round as f32).unwrap();
        drop((x, y));
        let z = z.download().unwrap();
        assert!(a.as_slice().iter().zip(z.as_slice()).all(|(a, z)| a * 2.0 * round as f32 == *z), "round {round}");
    }
}

#[test]
fn cudarc_memory_and_streams_are_accepted() {
    let Some(gpu) = gpu() else { return };
    let stream = gpu.context().new_stream().unwrap();
    let x = stream.clone_htod(&vec![1.5f32; 1000]).unwrap();
    let mut y = stream.alloc_zeros::<f32>(1000).unwrap();
    let layout = Layout::row_major(Shape::new(10, 100)).unwrap();
    let (function, _) = gpu.load(&scale()).unwrap();
    assert!(gpu.borrow(x.slice(..999), layout).is_err());
    {
        let x = gpu.borrow(x.as_view(), layout).unwrap();
        let mut y = gpu.borrow_mut(y.as_view_mut(), layout).unwrap();
        launch_scale(&gpu, &function, x.view(), &y.view_mut(), 4.0).unwrap();
    }
    assert_eq!(stream.clone_dtoh(&y).unwrap(), vec![6.0; 1000]);

    let from_context = Gpu::from_context(gpu.context().clone()).unwrap();
    let z = DeviceMatrix::upload(&from_context, ramp(3, 4).view()).unwrap();
    assert_eq!(z.download().unwrap(), ramp(3, 4));
}

#[test]
fn missing_gpus_and_memory_are_errors() {
    let Some(gpu) = gpu() else { return };
    assert!(matches!(Gpu::open(99), Err(Error::NoSuchGpu { ordinal: 99, .. })));
    let petabyte = Shape::new(1 << 24, 1 << 23);
    match DeviceMatrix::<f64>::uninit(&gpu, petabyte) {
        Err(Error::OutOfMemory { bytes, .. }) => assert_eq!(bytes, 1 << 50),
        other => panic!("expected OutOfMemory, found {other:?}"),
    }
    // More than the free memory, but not more than the total: the driver's own error.
    let all = Shape::new(1, gpu.info().memory_bytes as usize);
    assert!(matches!(DeviceMatrix::<i8>::uninit(&gpu, all), Err(Error::OutOfMemory { .. })));
    let small = DeviceMatrix::<i8>::zeros(&gpu, Shape::new(2, 2)).unwrap();
    assert_eq!(small.download().unwrap().as_slice(), [0; 4], "the device works after the error");
}
