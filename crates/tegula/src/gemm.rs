//! The problem: C = act(alpha·A·B + beta·C + bias). What [`Gemm::run`] refuses, no engine has to look for again.

mod grouped;

use std::borrow::Cow;

pub use grouped::Grouped;
use tegula_core::progress::{Audience, Listener};
use tegula_cpu::{Panels, prepack};
use tegula_kernels::plan::{Caps, Lie, Problem};

use crate::device::Device;
use crate::element::{Accuracy, Element, Scalar};
use crate::epilogue::{Activation, Finish};
use crate::error::{Error, Result};
use crate::matrix::{Matrix, Memory, Shape, View, ViewMut};

/// A·B in a new matrix on the host, on the best device present: the first GPU, else the CPU.
///
/// A is m×k, B is k×n; both may be batches of the same length, or one of them a single matrix used for all.
///
/// # Errors
/// [`Error::Shape`] where the shapes make no product, [`Error::OutOfMemory`], and what the device says.
pub fn matmul<'a, T: Element>(a: impl Into<View<'a, T>>, b: impl Into<View<'a, T>>) -> Result<Matrix<T::Out>> {
    let (a, b) = (a.into(), b.into());
    let mut c = Matrix::zeros_of_shape(product_shape(a.shape(), b.shape())?)?;
    Gemm::new(a, b, c.view_mut()).run()?;
    Ok(c)
}

/// C = act(alpha·A·B + beta·C + bias), with alpha 1, beta 0, no bias and no activation unless said otherwise.
///
/// Any strides will do, so transposes are views. With beta = 0, C is not read and may hold anything; with alpha = 0, A and B are
/// not read. Where m, n or the batch is 0 nothing happens; where k is 0, C becomes act(beta·C + bias).
///
/// How large a product may be is said in [`plan::limits`](tegula_kernels::plan::limits): beyond 2³¹ − 1025 along an axis only the CPU multiplies;
/// matrices may have more than 2³² elements, and batches and grids any number of members. What does not fit in memory is
/// [`Error::OutOfMemory`] before anything is copied or computed.
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
#[must_use = "nothing happens before `run`"]
pub struct Gemm<'a, T: Element> {
    pub(crate) alpha: T::Acc,
    pub(crate) a: View<'a, T>,
    pub(crate) b: View<'a, T>,
    pub(crate) beta: T::Acc,
    pub(crate) c: ViewMut<'a, T::Out>,
    pub(crate) finish: Finish<'a, T::Out>,
    pub(crate) panels: Option<&'a Panels>,
    pub(crate) audience: Audience<'a>,
    pub(crate) accuracy: Accuracy,
    pub(crate) device: Option<Device>,
}

/// A matrix B, and a copy of it in the order in which the CPU's kernels read it. Where they would rather read B itself, and on other devices, that is what is read.
#[derive(Debug)]
pub struct Prepacked<'b, T: Element> {
    b: View<'b, T>,
    panels: Option<Panels>,
}

impl<'b, T: Element> Prepacked<'b, T> {
    /// B as it was given.
    pub fn view(&self) -> View<'b, T> {
        self.b
    }

    /// Bytes that the copy takes.
    pub fn bytes(&self) -> usize {
        self.panels.as_ref().map_or(0, Panels::bytes)
    }
}

/// How a product was made.
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
    pub fn new(a: View<'a, T>, b: View<'a, T>, c: ViewMut<'a, T::Out>) -> Self {
        let (alpha, beta) = (T::Acc::ONE, T::Acc::ZERO);
        let (finish, audience) = (Finish::default(), Audience::default());
        Gemm { alpha, a, b, beta, c, finish, panels: None, audience, accuracy: Accuracy::Full, device: None }
    }

    /// Packs B for the CPU, for products of which it is the second factor again and again, as the weights of a layer are. With a few rows of A
    /// packing takes most of the time of a product: sixteen rows of bf16 are multiplied several times as fast.
    ///
    /// ```
    /// use tegula::{Device, Gemm, Matrix};
    ///
    /// let w = Matrix::from_vec(2, 2, vec![1f32, 2., 3., 4.])?;
    /// let packed = Gemm::prepack(w.view())?;
    /// for x in [[1f32, 0.], [0., 1.]] {
    ///     let (x, mut y) = (Matrix::from_vec(1, 2, x.to_vec())?, Matrix::from_vec(1, 2, vec![0f32; 2])?);
    ///     Gemm::with_prepacked(x.view(), &packed, y.view_mut()).on(&Device::cpu()).run()?;
    ///     assert_eq!(y.as_slice(), if x.as_slice()[0] == 1. { [1., 2.] } else { [3., 4.] });
    /// }
    /// # Ok::<(), tegula::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Unsupported`] where B lies on a GPU or `TEGULA_CPU` names an instruction set that this machine lacks; [`Error::OutOfMemory`] where
    /// there is no room for the copy.
    pub fn prepack(b: View<'a, T>) -> Result<Prepacked<'a, T>> {
        Ok(Prepacked { b, panels: prepack(b)? })
    }

    /// C = A·B for a B that [`prepack`](Self::prepack) has packed.
    pub fn with_prepacked(a: View<'a, T>, b: &'a Prepacked<'_, T>, c: ViewMut<'a, T::Out>) -> Self {
        Gemm { panels: b.panels.as_ref(), ..Gemm::new(a, b.b, c) }
    }

    /// The factor of A·B.
    pub fn alpha(self, alpha: T::Acc) -> Self {
        Gemm { alpha, ..self }
    }

    /// The factor of what C holds.
    pub fn beta(self, beta: T::Acc) -> Self {
        Gemm { beta, ..self }
    }

    /// A vector to add: a row (1×n), added to every row of C, or a column (m×1), added to every column; for all matrices of a batch, or as
    /// many of them. It is added to the sums before they are rounded to the type of C, which is its own. Any strides will do.
    ///
    /// ```
    /// use tegula::{Device, Gemm, Matrix, View};
    /// use tegula::epilogue::Activation;
    ///
    /// let (x, w) = (Matrix::from_vec(2, 1, vec![1f32, 2.0])?, Matrix::from_vec(1, 3, vec![1f32, -1.0, 0.0])?);
    /// let (bias, mut y) = ([0.5, 0.5, -3.0], Matrix::from_vec(2, 3, vec![0.0; 6])?);
    /// let layer = Gemm::new(x.view(), w.view(), y.view_mut()).bias(View::new(&bias, 1, 3)?).activation(Activation::Relu);
    /// layer.on(&Device::cpu()).run()?;
    /// assert_eq!(y.as_slice(), [1.5, 0.0, 0.0, 2.5, 0.0, 0.0]);
    /// # Ok::<(), tegula::Error>(())
    /// ```
    pub fn bias(self, bias: View<'a, T::Out>) -> Self {
        Gemm { finish: Finish { bias: Some(bias), ..self.finish }, ..self }
    }

    /// The function that is applied last, before the result is rounded to the type of C.
    pub fn activation(self, activation: Activation) -> Self {
        Gemm { finish: Finish { activation, ..self.finish }, ..self }
    }

    /// Bias and activation together.
    #[doc(hidden)]
    pub fn epilogue(self, finish: Finish<'a, T::Out>) -> Self {
        Gemm { finish, ..self }
    }

    /// How exact the product has to be: in full unless said otherwise. A GPU may then multiply f32 in tf32, by matrix units, with an error
    /// of up to 2⁻¹⁰·|A||B|; what it multiplies otherwise, and the CPU and the interpreter, are as exact as ever.
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
    pub fn accuracy(self, accuracy: Accuracy) -> Self {
        Gemm { accuracy, ..self }
    }

    /// Where to compute, and for a GPU on which stream. Without this, where the matrices lie: on the GPU that C lies on, else A or B, on
    /// the stream that is its home; or where all lie on the host, on the best device present.
    pub fn on(self, device: &Device) -> Self {
        Gemm { device: Some(device.clone()), ..self }
    }

    /// Who is told how far the work has come. A GPU multiplies in one go: that phase is told when it begins and when it is over, or where C
    /// stays on the GPU, queued.
    ///
    /// ```
    /// use std::sync::Mutex;
    /// use tegula::{Device, Gemm, Matrix, Phase, Progress, Shape};
    ///
    /// let (a, mut c) = (Matrix::<f32>::zeros(8, 8)?, Matrix::zeros(8, 8)?);
    /// let last = Mutex::new(None);
    /// let listener = |progress: Progress| *last.lock().unwrap() = Some(progress);
    /// Gemm::new(a.view(), a.view(), c.view_mut()).on(&Device::cpu()).progress(&listener).run()?;
    /// assert_eq!(*last.lock().unwrap(), Some(Progress { phase: Phase::Multiply, done: 512, total: 512 }));
    /// # Ok::<(), tegula::Error>(())
    /// ```
    pub fn progress(self, listener: &'a Listener<'a>) -> Self {
        Gemm { audience: Audience(Some(listener)), ..self }
    }

    /// Makes the problem one that engines may rely on: shapes fit, A and B have C's batch, and what must not be read is gone. Left as it was where it is refused.
    pub(crate) fn check(&mut self) -> Result<()> {
        let c = self.c.as_view();
        let inputs = inputs(self.alpha, self.a, self.b, c)?;
        self.finish = finish::<T>(self.finish, c)?;
        (self.alpha, self.a, self.b) = inputs;
        Ok(())
    }

    /// Whether the caller has named a device, and with it a stream.
    #[cfg(feature = "cuda")]
    pub(crate) fn is_placed(&self) -> bool {
        self.device.is_some()
    }

    /// The problem as far as a plan depends on it.
    #[doc(hidden)]
    pub fn problem(&self, caps: &Caps) -> Result<Problem> {
        problem(self.accuracy, self.a, self.b, self.c.as_view(), caps)
    }

    /// Multiply-adds.
    pub(crate) fn work(&self) -> u128 {
        let Shape { batches, rows, cols } = self.c.shape();
        [batches, rows, cols]
            .into_iter()
            .fold(self.a.shape().cols as u128, |work, extent| work.saturating_mul(extent as u128))
    }
}

/// alpha, A and B as engines may rely on them.
pub(crate) fn inputs<'a, T: Element>(
    mut alpha: T::Acc,
    mut a: View<'a, T>,
    mut b: View<'a, T>,
    c: View<'_, T::Out>,
) -> Result<(T::Acc, View<'a, T>, View<'a, T>)> {
    let expected = product_shape(a.shape(), b.shape())?;
    if c.shape() != expected {
        let (a, b, c) = (a.shape(), b.shape(), c.shape());
        return Err(Error::Shape(format!("A is {a} and B is {b}, so C must be {expected}, not {c}")));
    }
    for (name, input) in [("A", a), ("B", b)] {
        refuse_overlap(name, used(input)?, used(c)?)?;
    }
    a = a.broadcast(Shape { batches: expected.batches, ..a.shape() })?;
    b = b.broadcast(Shape { batches: expected.batches, ..b.shape() })?;
    if alpha == T::Acc::ZERO || a.shape().cols == 0 {
        // No products: sums of nothing, whatever A and B hold and alpha is.
        alpha = T::Acc::ZERO;
        a = a.cols(..0)?;
        b = b.rows(..0)?;
    }
    Ok((alpha, a, b))
}

/// What is done last, as engines may rely on it: a bias for each matrix of C, and an activation that there is.
pub(crate) fn finish<'a, T: Element>(last: Finish<'a, T::Out>, c: View<'_, T::Out>) -> Result<Finish<'a, T::Out>> {
    if let Some(bias) = last.bias {
        refuse_overlap("bias", used(bias)?, used(c)?)?;
    }
    last.for_each_of(c.shape(), T::TYPE)
}

/// The device addresses that a view uses. On the host a view to write through is borrowed alone, which `from_raw_parts` makes its caller promise.
fn used<T: Scalar>(view: View<'_, T>) -> Result<Option<(u128, u128)>> {
    match view.memory() {
        Memory::Device(_) => Ok(addresses(view, view.layout().span()?)),
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
    let lies = [lie_there(a, caps)?, lie_there(b, caps)?, lie_there(c, caps)?];
    Ok(Problem { ty: T::TYPE, accuracy: accuracy.of(T::TYPE), m, n, k: a.shape().cols, batches, lies })
}

/// How the matrix lies where a kernel meets it: a GPU has a copy of what lies on the host.
fn lie_there<T: Scalar>(view: View<'_, T>, caps: &Caps) -> Result<Lie> {
    let layout = view.layout();
    Ok(match (view.memory(), caps) {
        (Memory::Host(_), Caps::Gpu { .. }) => Lie::of(&layout.packed()?.to, T::TYPE, 0),
        // The interpreter pretends that the first element is aligned.
        (Memory::Host(_), _) => Lie::of(&layout, T::TYPE, 0),
        (Memory::Device(memory), _) => Lie::of(&layout, T::TYPE, layout.origin(T::TYPE, memory.address())),
    })
}

/// The device addresses that a view uses, or `None` on the host, where memory that overlaps cannot be borrowed so, and for an empty one.
pub(crate) fn addresses<T: Scalar>(view: View<'_, T>, span: Option<(usize, usize)>) -> Option<(u128, u128)> {
    let (Memory::Device(memory), Some((low, high))) = (view.memory(), span) else { return None };
    let byte = |position: usize| u128::from(memory.address()) + position as u128 * T::TYPE.size() as u128;
    Some((byte(low), byte(high + 1)))
}

/// Refuses an output among the addresses of an input.
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
pub(crate) fn product_shape(a: Shape, b: Shape) -> Result<Shape> {
    if a.cols != b.rows {
        return Err(Error::Shape(format!(
            "A is {a} and B is {b}: A's {} columns must be as many as B's {} rows",
            a.cols, b.rows
        )));
    }
    Ok(Shape { batches: batches_of(a, b)?, rows: a.rows, cols: b.cols })
}

fn batches_of(a: Shape, b: Shape) -> Result<usize> {
    match (a.batches, b.batches) {
        (x, y) if x == y => Ok(x),
        (1, y) => Ok(y),
        (x, 1) => Ok(x),
        (x, y) => {
            Err(Error::Shape(format!("A is a batch of {x} and B of {y}; they must agree, or one be a single matrix")))
        }
    }
}

#[cfg(test)]
mod tests {
    use tegula_kernels::plan::choose;

    use super::*;

    fn counting(rows: usize, cols: usize) -> Matrix<i32> {
        Matrix::from_fn(rows, cols, |r, c| (r * cols + c) as i32).unwrap()
    }

    #[test]
    fn shapes_must_make_a_product() {
        let (a, b) = (counting(2, 3), counting(2, 3));
        let error = matmul(&a, &b).unwrap_err().to_string();
        assert!(error.contains("3 columns") && error.contains("2 rows"), "{error}");
        let mut c = counting(2, 3);
        let wrong = Gemm::new(a.view(), b.view().t(), c.view_mut()).run();
        assert!(wrong.unwrap_err().to_string().contains("must be 2×2"));
    }

    #[test]
    fn nothing_is_read_that_must_not_be() {
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
    fn one_matrix_serves_a_whole_batch() {
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
        // Parts of the sum times alpha overflow; the whole is 0.
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
    fn executors_refuse_what_is_no_product() {
        let (a, mut c) = (counting(4, 4), counting(1, 1));
        for device in [Device::cpu(), Device::interp()] {
            let product = Gemm::new(a.view(), a.view(), c.view_mut());
            let plan = choose(&product.problem(&device.caps()).unwrap(), &device.caps()).unwrap();
            assert!(matches!(device.run(&plan, product), Err(Error::Shape(_))));
        }
    }

    #[test]
    fn rows_without_columns_cost_nothing() {
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
