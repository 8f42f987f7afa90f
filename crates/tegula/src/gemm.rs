//! GEMM: C = act(alpha·A·B + beta·C + bias). [`Gemm::run`] checks the problem, and engines rely on
//! that.

mod grouped;

use std::borrow::Cow;

pub use grouped::Grouped;
use tegula_core::progress::{Phase, ProgressMeter, ProgressReporter, ProgressSink};
use tegula_cpu::{PackedB, prepack};
use tegula_kernels::plan::{Caps, OperandLayout, Problem};

use crate::device::Device;
use crate::element::{Accuracy, Element, Scalar};
use crate::epilogue::{Activation, EpilogueOperands};
use crate::error::{Error, Result};
use crate::matrix::{Matrix, Memory, Shape, View, ViewMut};

/// A·B in a new host matrix, on the best device: the first GPU, else the CPU.
///
/// A is m×k, B is k×n. Both may be batches of the same length. A single matrix is broadcast to the
/// batch of the other.
///
/// # Errors
/// [`Error::Shape`] where the shapes do not match, [`Error::OutOfMemory`], and errors of the
/// device.
pub fn matmul<'a, T: Element>(a: impl Into<View<'a, T>>, b: impl Into<View<'a, T>>) -> Result<Matrix<T::Out>> {
    let (a, b) = (a.into(), b.into());
    let mut c = Matrix::zeros_of_shape(product_shape(a.shape(), b.shape())?)?;
    Gemm::new(a, b, c.view_mut()).run()?;
    Ok(c)
}

/// C = act(alpha·A·B + beta·C + bias). The defaults are alpha 1, beta 0, no bias and no activation.
///
/// Strides may have any value, so transposes are views. With beta = 0, C is not read and may be
/// uninitialized. With alpha = 0, A and B are not read. Where m, n or the batch is 0, the call does
/// nothing. Where k is 0, C becomes act(beta·C + bias).
///
/// [`plan::limits`](tegula_kernels::plan::limits) lists the limits. Beyond 2³¹ − 1025 along an axis
/// only the CPU multiplies. Matrices may have more than 2³² elements, and batches any length. A
/// product that does not fit in memory is [`Error::OutOfMemory`] before anything is copied or
/// computed.
///
/// ```
/// use tegula::{Device, Gemm, Matrix};
///
/// let a = Matrix::from_vec(2, 2, vec![1i32, 2, 3, 4])?;
/// let mut c = Matrix::from_vec(2, 2, vec![1i32, 1, 1, 1])?;
/// Gemm::new(a.view(), a.view().t(), c.view_mut()).alpha(2).beta(-1).on(&Device::cpu()).run()?;
/// assert_eq!(c.as_slice(), [9, 21, 21, 49]);
/// # Ok::<(), tegula::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "a product is computed by `run`"]
pub struct Gemm<'a, T: Element> {
    pub(crate) alpha: T::Acc,
    pub(crate) a: View<'a, T>,
    pub(crate) b: View<'a, T>,
    pub(crate) beta: T::Acc,
    pub(crate) c: ViewMut<'a, T::Out>,
    pub(crate) epilogue: EpilogueOperands<'a, T::Out>,
    pub(crate) packed_b: Option<&'a PackedB>,
    pub(crate) progress: ProgressReporter<'a>,
    pub(crate) accuracy: Accuracy,
    pub(crate) batch_invariant: bool,
    pub(crate) device: Option<Device>,
}

/// A matrix B with its packed panels for the CPU. Other devices read B itself, as does the CPU
/// where that is faster.
#[derive(Debug)]
pub struct Prepacked<'b, T: Element> {
    b: View<'b, T>,
    packed_b: Option<PackedB>,
}

impl<'b, T: Element> Prepacked<'b, T> {
    /// B itself.
    pub fn view(&self) -> View<'b, T> {
        self.b
    }

    /// Bytes of the packed panels.
    pub fn bytes(&self) -> usize {
        self.packed_b.as_ref().map_or(0, PackedB::bytes)
    }
}

/// The device and kernel that computed a product.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// The device: `cpu`, `cuda:0`, `interp`.
    pub device: Cow<'static, str>,
    /// The kernel.
    pub kernel: Cow<'static, str>,
}

impl<'a, T: Element> Gemm<'a, T> {
    /// C = A·B.
    #[inline]
    pub fn new(a: View<'a, T>, b: View<'a, T>, c: ViewMut<'a, T::Out>) -> Self {
        let (alpha, beta) = (T::Acc::ONE, T::Acc::ZERO);
        let (epilogue, progress) = (EpilogueOperands::default(), ProgressReporter::default());
        let (packed_b, accuracy, batch_invariant, device) = (None, Accuracy::Full, false, None);
        Gemm { alpha, a, b, beta, c, epilogue, packed_b, progress, accuracy, batch_invariant, device }
    }

    /// Packs B for the CPU, for many products with the same B, such as the weights of a layer.
    ///
    /// With a few rows of A packing takes most of the time of a product. Sixteen rows of bf16 are
    /// several times as fast with packed B.
    ///
    /// ```
    /// use tegula::{Device, Gemm, Matrix};
    ///
    /// let w = Matrix::from_vec(2, 2, vec![1f32, 2., 3., 4.])?;
    /// let packed = Gemm::prepack(w.view())?;
    /// for x in [[1f32, 0.], [0., 1.]] {
    ///     let (x, mut y) = (Matrix::from_vec(1, 2, x.to_vec())?, Matrix::zeros(1, 2)?);
    ///     Gemm::with_prepacked(x.view(), &packed, y.view_mut()).on(&Device::cpu()).run()?;
    ///     assert_eq!(y.as_slice(), if x.as_slice()[0] == 1. { [1., 2.] } else { [3., 4.] });
    /// }
    /// # Ok::<(), tegula::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Unsupported`] where B is in GPU memory, or `TEGULA_CPU` is not available on this
    /// CPU; [`Error::OutOfMemory`] where the panels do not fit in memory.
    pub fn prepack(b: View<'a, T>) -> Result<Prepacked<'a, T>> {
        Ok(Prepacked { b, packed_b: prepack(b)? })
    }

    /// C = A·B for a B packed by [`prepack`](Self::prepack).
    #[inline]
    pub fn with_prepacked(a: View<'a, T>, b: &'a Prepacked<'_, T>, c: ViewMut<'a, T::Out>) -> Self {
        Gemm { packed_b: b.packed_b.as_ref(), ..Gemm::new(a, b.b, c) }
    }

    /// Sets alpha, which scales A·B.
    #[inline]
    pub fn alpha(self, alpha: T::Acc) -> Self {
        Gemm { alpha, ..self }
    }

    /// Sets beta, which scales the previous C.
    #[inline]
    pub fn beta(self, beta: T::Acc) -> Self {
        Gemm { beta, ..self }
    }

    /// Sets the bias: a row (1×n), added to every row of C, or a column (m×1), added to every
    /// column.
    ///
    /// One bias serves the whole batch, or a batch of biases has one for each matrix. It has the
    /// type of C, and is added to the accumulators before they are rounded. Strides may have any
    /// value.
    ///
    /// ```
    /// use tegula::{Device, Gemm, Matrix, View};
    /// use tegula::epilogue::Activation;
    ///
    /// let x = Matrix::from_vec(2, 1, vec![1f32, 2.0])?;
    /// let w = Matrix::from_vec(1, 3, vec![1f32, -1.0, 0.0])?;
    /// let (bias, mut y) = ([0.5, 0.5, -3.0], Matrix::from_vec(2, 3, vec![0.0; 6])?);
    /// let layer = Gemm::new(x.view(), w.view(), y.view_mut()).bias(View::new(&bias, 1, 3)?);
    /// layer.activation(Activation::Relu).on(&Device::cpu()).run()?;
    /// assert_eq!(y.as_slice(), [1.5, 0.0, 0.0, 2.5, 0.0, 0.0]);
    /// # Ok::<(), tegula::Error>(())
    /// ```
    #[inline]
    pub fn bias(self, bias: View<'a, T::Out>) -> Self {
        Gemm { epilogue: EpilogueOperands { bias: Some(bias), ..self.epilogue }, ..self }
    }

    /// Sets the activation, applied last, before the result is rounded to the type of C.
    #[inline]
    pub fn activation(self, activation: Activation) -> Self {
        Gemm { epilogue: EpilogueOperands { activation, ..self.epilogue }, ..self }
    }

    /// Sets bias and activation together.
    #[doc(hidden)]
    #[inline]
    pub fn epilogue(self, epilogue: EpilogueOperands<'a, T::Out>) -> Self {
        Gemm { epilogue, ..self }
    }

    /// Sets the required accuracy; the default is full.
    ///
    /// With `Tf32` a GPU may multiply f32 as tf32 on Tensor Cores, with an error of up to
    /// 2⁻¹⁰·|A||B|. The other kernels, the CPU and the interpreter keep full accuracy.
    ///
    /// ```
    /// use tegula::{Accuracy, Gemm, Matrix};
    ///
    /// let a = Matrix::from_vec(2, 2, vec![1f32, 2., 3., 4.])?;
    /// let mut c = Matrix::from_vec(2, 2, vec![0f32; 4])?;
    /// Gemm::new(a.view(), a.view(), c.view_mut()).accuracy(Accuracy::Tf32).run()?;
    /// assert_eq!(c.as_slice(), [7., 10., 15., 22.]);
    /// # Ok::<(), tegula::Error>(())
    /// ```
    #[inline]
    pub fn accuracy(self, accuracy: Accuracy) -> Self {
        Gemm { accuracy, ..self }
    }

    /// Requires bits of a row of C that do not depend on the other rows.
    ///
    /// They depend on that row of A, on B, on the types, n, k, the scalars and the epilogue, and on
    /// nothing else: not on m, the place of the row, the batch, alignment, strides, what else runs,
    /// or which card of an architecture computes them. Devices of different kinds and versions of
    /// Tegula may differ. It costs some speed, and a product without memory for partial sums is
    /// refused.
    ///
    /// ```
    /// use tegula::{Device, Gemm, Matrix};
    ///
    /// let a = Matrix::from_fn(100, 70, |i, j| 1.0 / (1 + i + 3 * j) as f32)?;
    /// let b = Matrix::from_fn(70, 30, |i, j| 1.0 / (2 + i * j) as f32)?;
    /// let (mut all, mut one) = (Matrix::zeros(100, 30)?, Matrix::zeros(1, 30)?);
    /// Gemm::new(a.view(), b.view(), all.view_mut()).batch_invariant().on(&Device::cpu()).run()?;
    /// let row = a.view().rows(42..43)?;
    /// Gemm::new(row, b.view(), one.view_mut()).batch_invariant().on(&Device::cpu()).run()?;
    /// assert_eq!(one.as_slice(), &all.as_slice()[42 * 30..43 * 30]);
    /// # Ok::<(), tegula::Error>(())
    /// ```
    #[inline]
    pub fn batch_invariant(self) -> Self {
        Gemm { batch_invariant: true, ..self }
    }

    /// Sets the device, and for a GPU the stream.
    ///
    /// The default is the GPU that holds C, else A or B, and the home stream of that matrix. Where
    /// all are on the host, it is the best device.
    #[inline]
    pub fn on(self, device: &Device) -> Self {
        Gemm { device: Some(device.clone()), ..self }
    }

    /// Sets the progress sink.
    ///
    /// A GPU reports its multiplication twice: when it begins, and when it is complete, or queued
    /// where C stays on the GPU.
    ///
    /// ```
    /// use std::sync::Mutex;
    /// use tegula::{Device, Gemm, Matrix, Phase, Progress, Shape};
    ///
    /// let (a, mut c) = (Matrix::<f32>::zeros(8, 8)?, Matrix::zeros(8, 8)?);
    /// let last = Mutex::new(None);
    /// let sink = |progress: Progress| *last.lock().unwrap() = Some(progress);
    /// Gemm::new(a.view(), a.view(), c.view_mut()).on(&Device::cpu()).progress(&sink).run()?;
    /// let complete = Progress { phase: Phase::Multiply, done: 512, total: 512 };
    /// assert_eq!(*last.lock().unwrap(), Some(complete));
    /// # Ok::<(), tegula::Error>(())
    /// ```
    #[inline]
    pub fn progress(self, sink: &'a ProgressSink<'a>) -> Self {
        Gemm { progress: ProgressReporter(Some(sink)), ..self }
    }

    /// Checks the problem and normalizes it for the engines.
    ///
    /// Shapes match, A and B are broadcast to the batch of C, and operands that must not be read
    /// are empty. On an error nothing is computed.
    #[inline]
    pub(crate) fn check(&mut self) -> Result<()> {
        let c = self.c.as_view();
        input_operands(&mut self.alpha, &mut self.a, &mut self.b, c)?;
        epilogue_operands::<T>(&mut self.epilogue, c)
    }

    /// Whether the caller has set a device, and with it a stream.
    #[cfg(feature = "cuda")]
    pub(crate) fn has_device(&self) -> bool {
        self.device.is_some()
    }

    /// The part of the problem that a plan depends on.
    #[doc(hidden)]
    pub fn problem(&self, caps: &Caps) -> Result<Problem> {
        problem(self.accuracy, self.a, self.b, self.c.as_view(), caps)
    }

    /// Whether C is alpha·A·B + beta·C and nothing else is asked for.
    #[inline]
    pub(crate) fn is_plain(&self) -> bool {
        let EpilogueOperands { bias, activation } = self.epilogue;
        bias.is_none() && activation == Activation::None && self.packed_b.is_none() && self.progress.0.is_none()
    }

    /// The meter of the multiplication, if a sink is set.
    pub(crate) fn meter(&self) -> Option<ProgressMeter<'a>> {
        self.progress.0?;
        self.progress.meter(Phase::Multiply, self.work())
    }

    /// Number of multiply-adds.
    pub(crate) fn work(&self) -> u128 {
        let Shape { batches, rows, cols } = self.c.shape();
        [batches, rows, cols]
            .into_iter()
            .fold(self.a.shape().cols as u128, |work, extent| work.saturating_mul(extent as u128))
    }
}

/// Checks alpha, A and B, and broadcasts A and B for the engines.
#[inline]
pub(crate) fn input_operands<'a, T: Element>(
    alpha: &mut T::Acc,
    a: &mut View<'a, T>,
    b: &mut View<'a, T>,
    c: View<'_, T::Out>,
) -> Result<()> {
    let expected = product_shape(a.shape(), b.shape())?;
    if c.shape() != expected {
        return Err(wrong_output([a.shape(), b.shape(), expected, c.shape()]));
    }
    let output = device_range(c)?;
    if output.is_some() {
        for (name, input) in [("A", &a), ("B", &b)] {
            refuse_overlap(name, device_range(**input)?, output)?;
        }
    }
    for input in [&mut *a, &mut *b] {
        if input.shape().batches != expected.batches {
            *input = input.broadcast(Shape { batches: expected.batches, ..input.shape() })?;
        }
    }
    if *alpha == T::Acc::ZERO || a.shape().cols == 0 {
        // No multiply-adds: the operands become empty, so that no engine reads them.
        *alpha = T::Acc::ZERO;
        *a = a.cols(..0)?;
        *b = b.rows(..0)?;
    }
    Ok(())
}

#[cold]
fn wrong_output([a, b, expected, c]: [Shape; 4]) -> Error {
    Error::Shape(format!("A is {a} and B is {b}, so C must be {expected}, not {c}"))
}

/// Checks the epilogue for the engines: a bias for each matrix of C, and a supported activation.
#[inline]
pub(crate) fn epilogue_operands<T: Element>(
    epilogue: &mut EpilogueOperands<'_, T::Out>,
    c: View<'_, T::Out>,
) -> Result<()> {
    if let Some(bias) = epilogue.bias {
        refuse_overlap("bias", device_range(bias)?, device_range(c)?)?;
    }
    if epilogue.bias.is_some() || epilogue.activation != Activation::None {
        *epilogue = epilogue.broadcast_to(c.shape(), T::TYPE)?;
    }
    Ok(())
}

/// The GPU addresses that a view uses; `None` on the host, where the borrow checker, or the
/// contract of `from_raw_parts`, rules out overlap with a mutable view.
#[inline]
fn device_range<T: Scalar>(view: View<'_, T>) -> Result<Option<(u128, u128)>> {
    match view.memory() {
        Memory::Device(_) => Ok(address_range(view, view.layout().span()?)),
        Memory::Host(_) => Ok(None),
    }
}

pub(crate) fn problem<T: Element>(
    accuracy: Accuracy,
    a: View<'_, T>,
    b: View<'_, T>,
    c: View<'_, T::Out>,
    caps: &Caps,
) -> Result<Problem> {
    let Shape { batches, rows: m, cols: n } = c.shape();
    let layouts = [operand_layout(a, caps)?, operand_layout(b, caps)?, operand_layout(c, caps)?];
    Ok(Problem { ty: T::TYPE, accuracy: accuracy.of(T::TYPE), m, n, k: a.shape().cols, batches, layouts })
}

/// The layout of the matrix that a kernel reads: on a GPU the copy of a host matrix.
fn operand_layout<T: Scalar>(view: View<'_, T>, caps: &Caps) -> Result<OperandLayout> {
    let layout = view.layout();
    Ok(match (view.memory(), caps) {
        (Memory::Host(_), Caps::Gpu(_)) => OperandLayout::of(&layout.packed()?.to, T::TYPE, 0),
        // The interpreter treats the first element as aligned.
        (Memory::Host(_), _) => OperandLayout::of(&layout, T::TYPE, 0),
        (Memory::Device(memory), _) => OperandLayout::of(&layout, T::TYPE, layout.origin(T::TYPE, memory.address())),
    })
}

/// The GPU addresses of a span of elements; `None` on the host, and for an empty span.
pub(crate) fn address_range<T: Scalar>(view: View<'_, T>, span: Option<(usize, usize)>) -> Option<(u128, u128)> {
    let (Memory::Device(memory), Some((low, high))) = (view.memory(), span) else { return None };
    let byte = |position: usize| u128::from(memory.address()) + position as u128 * T::TYPE.size() as u128;
    Some((byte(low), byte(high + 1)))
}

/// Refuses an output whose addresses overlap those of an input.
pub(crate) fn refuse_overlap(
    input: &'static str,
    range: Option<(u128, u128)>,
    output: Option<(u128, u128)>,
) -> Result<()> {
    match (range, output) {
        (Some((low, high)), Some((c_low, c_high))) if low < c_high && c_low < high => Err(Error::Aliased { input }),
        _ => Ok(()),
    }
}

/// The shape of A·B.
#[inline]
pub(crate) fn product_shape(a: Shape, b: Shape) -> Result<Shape> {
    let batches = if a.batches == 1 { b.batches } else { a.batches };
    if a.cols != b.rows || b.batches != 1 && b.batches != batches {
        return Err(no_product(a, b));
    }
    Ok(Shape { batches, rows: a.rows, cols: b.cols })
}

#[cold]
fn no_product(a: Shape, b: Shape) -> Error {
    Error::Shape(if a.cols != b.rows {
        format!("A is {a} and B is {b}: A's {} columns must equal B's {} rows", a.cols, b.rows)
    } else {
        let (x, y) = (a.batches, b.batches);
        format!("A is a batch of {x} and B of {y}; the batches must have equal length, or length 1")
    })
}

#[cfg(test)]
mod tests {
    use tegula_kernels::plan::choose;

    use super::*;

    fn counting(rows: usize, cols: usize) -> Matrix<i32> {
        Matrix::from_fn(rows, cols, |r, c| (r * cols + c) as i32).unwrap()
    }

    #[test]
    fn shapes_that_do_not_match_are_refused() {
        let (a, b) = (counting(2, 3), counting(2, 3));
        let error = matmul(&a, &b).unwrap_err().to_string();
        assert!(error.contains("3 columns") && error.contains("2 rows"), "{error}");
        let mut c = counting(2, 3);
        let wrong = Gemm::new(a.view(), b.view().t(), c.view_mut()).run();
        assert!(wrong.unwrap_err().to_string().contains("must be 2×2"));
    }

    #[test]
    fn operands_with_a_scalar_of_zero_are_not_read() {
        for device in [Device::cpu(), Device::interp()] {
            let a = Matrix::from_vec(1, 1, vec![f32::NAN]).unwrap();
            let mut c = Matrix::from_vec(1, 1, vec![2f32]).unwrap();
            Gemm::new(a.view(), a.view(), c.view_mut()).alpha(0.0).beta(3.0).on(&device).run().unwrap();
            assert_eq!(c.as_slice(), [6.0]);
            let one = Matrix::from_vec(1, 1, vec![1f32]).unwrap();
            let mut c = Matrix::from_vec(1, 1, vec![f32::NAN]).unwrap();
            Gemm::new(one.view(), one.view(), c.view_mut()).on(&device).run().unwrap();
            assert_eq!(c.as_slice(), [1.0]);
        }
    }

    #[test]
    fn empty_products_are_legal() {
        for device in [Device::cpu(), Device::interp()] {
            for (m, n, k) in [(0, 3, 2), (3, 0, 2), (0, 0, 0), (2, 3, 0)] {
                let (a, b) = (counting(m, k), counting(k, n));
                let mut c = counting(m, n);
                Gemm::new(a.view(), b.view(), c.view_mut()).beta(2).on(&device).run().unwrap();
                assert_eq!(c, Matrix::from_fn(m, n, |i, j| 2 * (i * n + j) as i32).unwrap());
            }
        }
    }

    #[test]
    fn single_matrix_is_broadcast_to_the_batch() {
        let a = Matrix::from_shape_fn(Shape { batches: 3, rows: 2, cols: 2 }, |b, r, c| (4 * b + 2 * r + c) as i32)
            .unwrap();
        let b = counting(2, 2);
        for device in [Device::cpu(), Device::interp()] {
            let mut c = Matrix::zeros_of_shape(Shape { batches: 3, rows: 2, cols: 2 }).unwrap();
            Gemm::new(a.view(), b.view(), c.view_mut()).on(&device).run().unwrap();
            assert_eq!(c.as_slice(), [2, 3, 6, 11, 10, 19, 14, 27, 18, 35, 22, 43]);
        }
    }

    #[test]
    fn alpha_scales_the_whole_sum() {
        // alpha times a partial sum overflows; the whole sum is 0.
        let k = 4096;
        let ends = |x: f32, y: f32| {
            move |p: usize| {
                if p == 0 {
                    x
                } else if p == k - 1 {
                    y
                } else {
                    0.0
                }
            }
        };
        let (row, col) = (ends(1.0, 1.0), ends(3e38, -3e38));
        let a = Matrix::from_fn(1, k, |_, p| row(p)).unwrap();
        let b = Matrix::from_fn(k, 1, |p, _| col(p)).unwrap();
        for device in [Device::cpu(), Device::interp()] {
            let mut c = Matrix::from_vec(1, 1, vec![2f32]).unwrap();
            Gemm::new(a.view(), b.view(), c.view_mut()).alpha(10.0).beta(0.5).on(&device).run().unwrap();
            assert_eq!(c.as_slice(), [1.0]);
        }
    }

    #[test]
    fn device_run_refuses_shapes_that_do_not_match() {
        let (a, mut c) = (counting(4, 4), counting(1, 1));
        for device in [Device::cpu(), Device::interp()] {
            let product = Gemm::new(a.view(), a.view(), c.view_mut());
            let plan = choose(&product.problem(&device.caps()).unwrap(), &device.caps()).unwrap();
            assert!(matches!(device.run(&plan, product), Err(Error::Shape(_))));
        }
    }

    #[test]
    fn rows_without_columns_need_no_memory() {
        let shape = Shape::new(1 << 40, 0);
        let a = Matrix::<f32>::from_shape_fn(shape, |_, _, _| 1.0).unwrap();
        let b = Matrix::<f32>::zeros(0, 0).unwrap();
        for device in [Device::cpu(), Device::interp()] {
            let mut c = Matrix::zeros_of_shape(shape).unwrap();
            Gemm::new(a.view(), b.view(), c.view_mut()).on(&device).run().unwrap();
        }
        let huge = matmul(counting(200_000, 1).view(), counting(2, 200_000).view());
        assert!(matches!(huge, Err(Error::Shape(_))));
    }
}
