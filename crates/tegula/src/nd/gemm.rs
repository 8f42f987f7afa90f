//! The problem: C = act(alpha·A·B + beta·C + bias) on N-dimensional arrays, handed to [`Gemm`] one product after the other.

use tegula_core::nd::{NdArray, NdView, NdViewMut, display};
use tegula_core::progress::{Audience, Listener, Progress};
use tegula_kernels::plan::Explanation;

use super::finish::NdFinish;
use super::products::{Products, matrix_axes, product_shape};
use crate::device::Device;
use crate::element::{Accuracy, Element, Scalar};
use crate::epilogue::Activation;
use crate::error::{Error, Result};
use crate::exec::explain;
use crate::gemm::{Gemm, Report, addresses, refuse_overlap};

/// A·B in a new array on the host, on the best device present: the first GPU, else the CPU. Shapes as [above](super).
///
/// # Errors
/// [`Error::Shape`] where the shapes make no product, [`Error::OutOfMemory`], and what the device says.
pub fn matmul<'a, T: Element>(a: impl Into<NdView<'a, T>>, b: impl Into<NdView<'a, T>>) -> Result<NdArray<T::Out>> {
    let (a, b) = (a.into(), b.into());
    let mut c = NdArray::zeros(&product_shape(a.shape(), b.shape())?)?;
    NdGemm::new(a, b, c.view_mut()).run()?;
    Ok(c)
}

/// C = act(alpha·A·B + beta·C + bias) on arrays of any number of axes, with alpha 1, beta 0, no bias and no activation unless said otherwise.
///
/// Shapes are [above](super); C has the result's, it is not broadcast. For the rest all is as with [`Gemm`]: any strides will do, with
/// beta = 0 C is not read, with alpha = 0 A and B are not. No operand is copied to give it another shape: where one batch of matrices is
/// not enough to describe the work, it is done as several products, of which each, on a GPU, takes its own share of what lies on the host
/// there and back. [`explain`](Self::explain) tells how many they are.
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
#[must_use = "nothing happens before `run`"]
pub struct NdGemm<'a, T: Element> {
    alpha: T::Acc,
    a: NdView<'a, T>,
    b: NdView<'a, T>,
    beta: T::Acc,
    c: NdViewMut<'a, T::Out>,
    finish: NdFinish<'a, T::Out>,
    audience: Audience<'a>,
    accuracy: Accuracy,
    device: Option<Device>,
}

impl<'a, T: Element> NdGemm<'a, T> {
    /// C = A·B.
    pub fn new(a: NdView<'a, T>, b: NdView<'a, T>, c: NdViewMut<'a, T::Out>) -> Self {
        let (alpha, beta) = (T::Acc::ONE, T::Acc::ZERO);
        let (finish, audience) = (NdFinish::default(), Audience::default());
        NdGemm { alpha, a, b, beta, c, finish, audience, accuracy: Accuracy::Full, device: None }
    }

    /// The factor of A·B.
    pub fn alpha(self, alpha: T::Acc) -> Self {
        NdGemm { alpha, ..self }
    }

    /// The factor of what C holds.
    pub fn beta(self, beta: T::Acc) -> Self {
        NdGemm { beta, ..self }
    }

    /// What to add to each matrix of C: an array that broadcasts to C, of n numbers, m×1 numbers, or stacks of such, see [`Gemm::bias`].
    ///
    /// ```
    /// use tegula::nd::{NdArray, NdGemm};
    ///
    /// let (a, b) = (NdArray::from_vec(&[2, 1, 1], vec![1i32, 2])?, NdArray::from_vec(&[1, 3], vec![1i32, 2, 3])?);
    /// let (bias, mut c) = (NdArray::from_vec(&[3], vec![-3i32, 0, 7])?, NdArray::zeros(&[2, 1, 3])?);
    /// NdGemm::new(a.view(), b.view(), c.view_mut()).bias(bias.view()).run()?;
    /// assert_eq!(c.as_slice(), [-2, 2, 10, -1, 4, 13]);
    /// # Ok::<(), tegula::Error>(())
    /// ```
    pub fn bias(self, bias: NdView<'a, T::Out>) -> Self {
        NdGemm { finish: NdFinish { bias: Some(bias), ..self.finish }, ..self }
    }

    /// The function that is applied last, see [`Gemm::activation`].
    pub fn activation(self, activation: Activation) -> Self {
        NdGemm { finish: NdFinish { activation, ..self.finish }, ..self }
    }

    /// How exact the product has to be, see [`Gemm::accuracy`].
    pub fn accuracy(self, accuracy: Accuracy) -> Self {
        NdGemm { accuracy, ..self }
    }

    /// Where to compute. Without this, where the arrays lie, or on the best device present.
    pub fn on(self, device: &Device) -> Self {
        NdGemm { device: Some(device.clone()), ..self }
    }

    /// Who is told how far the work has come, see [`Gemm::progress`]. Totals are those of all products; where there are several, their
    /// phases alternate.
    pub fn progress(self, listener: &'a Listener<'a>) -> Self {
        NdGemm { audience: Audience(Some(listener)), ..self }
    }

    /// Computes.
    ///
    /// # Errors
    /// As [`Gemm::run`]. Where a device fails in the middle of several products, part of C is done.
    pub fn run(mut self) -> Result<Report> {
        let products = self.products()?;
        let (count, listener) = (products.count() as u64, self.audience.0);
        let mut report = None;
        for ([a, b, c, bias], number) in products.layouts().zip(0..) {
            // Every product has the same share of the whole.
            let share = move |p: Progress| {
                listener.iter().for_each(|tell| tell(p.of_parts(number, count)));
            };
            let (a, b) = (self.a.matrices(a), self.b.matrices(b));
            let product = Gemm::new(a, b, self.c.matrices(c)).alpha(self.alpha).beta(self.beta);
            let mut product = product.accuracy(self.accuracy);
            product.finish = self.finish.matrices(bias);
            if listener.is_some() {
                product = product.progress(&share);
            }
            if let Some(device) = &self.device {
                product = product.on(device);
            }
            report = Some(product.run()?);
        }
        report.ok_or_else(|| Error::Shape("a product of nothing".into()))
    }

    /// What [`run`](Self::run) would do, without doing any of it, see [`Gemm::explain`]. Sizes, copies and memory are those of one product.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn explain(&self) -> Result<Explanation> {
        let products = self.products()?;
        let ([a, b, c, bias], view) = (products.first(), self.c.as_view());
        let given = [self.a.matrices(a), self.b.matrices(b)];
        let (c, factors, finish) = (view.matrices(c), [self.alpha, self.beta], self.finish.matrices(bias));
        let mut explanation = explain(self.device.as_ref(), self.accuracy, given, c, factors, finish, None)?;
        explanation.products = products.count();
        for (operand, layout) in explanation.operands.iter_mut().zip([self.a.layout(), self.b.layout(), view.layout()])
        {
            (operand.shape, operand.strides) = (layout.shape.clone(), layout.strides.clone());
        }
        if let (Some(operand), Some(bias)) = (&mut explanation.bias, &self.finish.bias) {
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
        let output = addresses(c.memory(), c.layout().span()?);
        refuse_overlap("A", addresses(self.a.memory(), span(&self.a)?), output)?;
        refuse_overlap("B", addresses(self.b.memory(), span(&self.b)?), output)?;
        if let Some(bias) = &self.finish.bias {
            refuse_overlap("bias", addresses(bias.memory(), bias.layout().span()?), output)?;
        }
        let bias = self.finish.layout(&expected, matrix_axes(self.a.shape(), self.b.shape()))?;
        Ok(Products::new(self.a.layout(), self.b.layout(), self.c.layout(), bias.as_ref()))
    }
}
