//! GEMM on arrays of any number of axes, as a sequence of [`Gemm`]s.
//!
//! It computes C = act(alpha·A·B + beta·C + bias).

use tegula_core::nd::{NdArray, NdView, NdViewMut, display};
use tegula_core::progress::{Progress, ProgressReporter, ProgressSink};
use tegula_kernels::plan::Explanation;

use super::epilogue::NdEpilogueOperands;
use super::products::{Products, matrix_axes, product_shape};
use crate::device::Device;
use crate::element::{Accuracy, Element, Scalar};
use crate::epilogue::Activation;
use crate::error::{Error, Result};
use crate::exec::explain;
use crate::gemm::{Gemm, Report, address_range, refuse_overlap};

/// A·B in a new host array, on the best device: the first GPU, else the CPU. Shapes follow the
/// rules [of the module](super).
///
/// # Errors
/// [`Error::Shape`] where the shapes do not match, [`Error::OutOfMemory`], and errors of the
/// device.
pub fn matmul<'a, T: Element>(a: impl Into<NdView<'a, T>>, b: impl Into<NdView<'a, T>>) -> Result<NdArray<T::Out>> {
    let (a, b) = (a.into(), b.into());
    let mut c = NdArray::zeros(&product_shape(a.shape(), b.shape())?)?;
    NdGemm::new(a, b, c.view_mut()).run()?;
    Ok(c)
}

/// C = act(alpha·A·B + beta·C + bias) on arrays of any number of axes. The defaults are alpha 1,
/// beta 0, no bias and no activation.
///
/// Shapes follow the rules [of the module](super). C has the shape of the result, and is not
/// broadcast. Otherwise it behaves like [`Gemm`]: strides may have any value; with beta = 0, C is
/// not read; with alpha = 0, A and B are not read.
///
/// No operand is copied to change its shape. Where one batch of matrices cannot describe the work,
/// it becomes several products, each with its own copies of host operands to a GPU and back.
/// [`explain`](Self::explain) reports their number.
///
/// ```
/// use tegula::Device;
/// use tegula::nd::{NdArray, NdGemm};
///
/// let a = NdArray::from_vec(&[2, 2, 1], vec![1i32, 2, 3, 4])?;
/// let mut c = NdArray::from_vec(&[2, 2, 2], vec![1i32; 8])?;
/// NdGemm::new(a.view(), a.view().t(), c.view_mut()).beta(-1).on(&Device::cpu()).run()?;
/// assert_eq!(c.as_slice(), [0, 1, 1, 3, 8, 11, 11, 15]);
/// # Ok::<(), tegula::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "a product is computed by `run`"]
pub struct NdGemm<'a, T: Element> {
    alpha: T::Acc,
    a: NdView<'a, T>,
    b: NdView<'a, T>,
    beta: T::Acc,
    c: NdViewMut<'a, T::Out>,
    epilogue: NdEpilogueOperands<'a, T::Out>,
    progress: ProgressReporter<'a>,
    accuracy: Accuracy,
    batch_invariant: bool,
    device: Option<Device>,
}

impl<'a, T: Element> NdGemm<'a, T> {
    /// C = A·B.
    pub fn new(a: NdView<'a, T>, b: NdView<'a, T>, c: NdViewMut<'a, T::Out>) -> Self {
        let (alpha, beta) = (T::Acc::ONE, T::Acc::ZERO);
        let (epilogue, progress) = (NdEpilogueOperands::default(), ProgressReporter::default());
        let (accuracy, batch_invariant, device) = (Accuracy::Full, false, None);
        NdGemm { alpha, a, b, beta, c, epilogue, progress, accuracy, batch_invariant, device }
    }

    /// Sets alpha, which scales A·B.
    pub fn alpha(self, alpha: T::Acc) -> Self {
        NdGemm { alpha, ..self }
    }

    /// Sets beta, which scales the previous C.
    pub fn beta(self, beta: T::Acc) -> Self {
        NdGemm { beta, ..self }
    }

    /// Sets the bias, an array that broadcasts to C, see [`Gemm::bias`].
    ///
    /// Its shape is n, m×1, or stacks of these.
    ///
    /// ```
    /// use tegula::nd::{NdArray, NdGemm};
    ///
    /// let a = NdArray::from_vec(&[2, 1, 1], vec![1i32, 2])?;
    /// let b = NdArray::from_vec(&[1, 3], vec![1i32, 2, 3])?;
    /// let bias = NdArray::from_vec(&[3], vec![-3i32, 0, 7])?;
    /// let mut c = NdArray::zeros(&[2, 1, 3])?;
    /// NdGemm::new(a.view(), b.view(), c.view_mut()).bias(bias.view()).run()?;
    /// assert_eq!(c.as_slice(), [-2, 2, 10, -1, 4, 13]);
    /// # Ok::<(), tegula::Error>(())
    /// ```
    pub fn bias(self, bias: NdView<'a, T::Out>) -> Self {
        NdGemm { epilogue: NdEpilogueOperands { bias: Some(bias), ..self.epilogue }, ..self }
    }

    /// Sets the activation, see [`Gemm::activation`].
    pub fn activation(self, activation: Activation) -> Self {
        NdGemm { epilogue: NdEpilogueOperands { activation, ..self.epilogue }, ..self }
    }

    /// Sets the required accuracy, see [`Gemm::accuracy`].
    pub fn accuracy(self, accuracy: Accuracy) -> Self {
        NdGemm { accuracy, ..self }
    }

    /// Requires bits of a row of C that do not depend on the other rows, see
    /// [`Gemm::batch_invariant`].
    pub fn batch_invariant(self) -> Self {
        NdGemm { batch_invariant: true, ..self }
    }

    /// Sets the device. The default is the GPU that holds the arrays, else the best device.
    pub fn on(self, device: &Device) -> Self {
        NdGemm { device: Some(device.clone()), ..self }
    }

    /// Sets the progress sink, see [`Gemm::progress`]. Totals are those of all products; the phases
    /// of several products alternate.
    pub fn progress(self, sink: &'a ProgressSink<'a>) -> Self {
        NdGemm { progress: ProgressReporter(Some(sink)), ..self }
    }

    /// Computes the product.
    ///
    /// # Errors
    /// As for [`Gemm::run`]. If a device fails between products, part of C is written.
    pub fn run(mut self) -> Result<Report> {
        let products = self.products()?;
        let (count, sink) = (products.count() as u64, self.progress.0);
        let mut report = None;
        for ([a, b, c, bias], number) in products.layouts().zip(0..) {
            // Every product is the same part of the total.
            let report_part = move |p: Progress| {
                sink.iter().for_each(|sink| sink(p.of_parts(number, count)));
            };
            let (a, b) = (self.a.matrices(a), self.b.matrices(b));
            let product = Gemm::new(a, b, self.c.matrices(c)).alpha(self.alpha).beta(self.beta);
            let mut product = product.accuracy(self.accuracy);
            product.epilogue = self.epilogue.matrices(bias);
            product.batch_invariant = self.batch_invariant;
            if sink.is_some() {
                product = product.progress(&report_part);
            }
            if let Some(device) = &self.device {
                product = product.on(device);
            }
            report = Some(product.run()?);
        }
        report.ok_or_else(|| Error::Shape("an empty sequence of products".into()))
    }

    /// Explains what [`run`](Self::run) would do, see [`Gemm::explain`]. Sizes, copies and memory
    /// are those of one product.
    ///
    /// # Errors
    /// As for [`run`](Self::run).
    pub fn explain(&self) -> Result<Explanation> {
        let products = self.products()?;
        let ([a, b, c, bias], view) = (products.first(), self.c.as_view());
        let inputs = [self.a.matrices(a), self.b.matrices(b)];
        let (c, scalars, epilogue) = (view.matrices(c), [self.alpha, self.beta], self.epilogue.matrices(bias));
        let mut explanation =
            explain(self.device.as_ref(), (self.accuracy, self.batch_invariant), inputs, c, scalars, epilogue, None)?;
        explanation.products = products.count();
        for (operand, layout) in explanation.operands.iter_mut().zip([self.a.layout(), self.b.layout(), view.layout()])
        {
            (operand.shape, operand.strides) = (layout.shape.clone(), layout.strides.clone());
        }
        if let (Some(operand), Some(bias)) = (&mut explanation.bias, &self.epilogue.bias) {
            (operand.shape, operand.strides) = (bias.layout().shape.clone(), bias.layout().strides.clone());
        }
        Ok(explanation)
    }

    fn products(&self) -> Result<Products> {
        let expected = product_shape(self.a.shape(), self.b.shape())?;
        if self.c.shape() != expected {
            let [a, b, expected, c] = [self.a.shape(), self.b.shape(), &expected, self.c.shape()].map(display);
            return Err(Error::Shape(format!("A is {a} and B is {b}, so C must be {expected}, not {c}")));
        }
        let (c, span) = (self.c.as_view(), |view: &NdView<'_, T>| view.layout().span());
        let output = address_range(c.memory(), c.layout().span()?);
        refuse_overlap("A", address_range(self.a.memory(), span(&self.a)?), output)?;
        refuse_overlap("B", address_range(self.b.memory(), span(&self.b)?), output)?;
        if let Some(bias) = &self.epilogue.bias {
            refuse_overlap("bias", address_range(bias.memory(), bias.layout().span()?), output)?;
        }
        let bias = self.epilogue.layout(&expected, matrix_axes(self.a.shape(), self.b.shape()))?;
        Ok(Products::new(self.a.layout(), self.b.layout(), self.c.layout(), bias.as_ref()))
    }
}
