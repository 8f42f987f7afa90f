//! Products of groups of rows, each with a matrix B of its own, as layers of experts need them. It knows how rows are divided, not how a product
//! is made.

use std::ops::Range;

use tegula_core::host;
use tegula_kernels::plan::{Problem, of_groups};

use super::{Gemm, Report, refuse_overlap, used};
use crate::device::Device;
use crate::element::{Accuracy, Element, Scalar};
use crate::epilogue::{Activation, Finish};
use crate::error::{Error, Result};
use crate::matrix::{Shape, View, ViewMut};

/// Cᵢ = act(alpha·Aᵢ·Bᵢ + beta·Cᵢ + bias) for each group i of rows, with alpha 1, beta 0, no bias and no activation unless said otherwise.
///
/// A (rows×k) and C (rows×n) hold the rows of all groups, one group after the other; group i has `sizes[i]` of them, which may be 0, and the matrix i
/// of the batch B (k×n each). Where sizes add up to less, the rows behind them are left alone.
///
/// On a GPU of compute capability 9.0, groups of f16 and bf16 are one launch, with a small one before it that brings the sizes, where A and B begin and
/// have their rows (or columns) at multiples of 16 bytes; anything else is a [`Gemm`] for each group. Sizes are read before
/// [`run`](Self::run) returns. A recording (`cuda::Gpu::capture`) has them as it has alpha and beta: launched again, it multiplies groups of
/// the same sizes.
///
/// ```
/// use tegula::{Device, Grouped, Matrix, Shape};
///
/// // Three rows: the first belongs to an expert that doubles, the others to one that swaps.
/// let a = Matrix::from_vec(3, 2, vec![1f32, 2., 3., 4., 5., 6.])?;
/// let experts = [[2f32, 0., 0., 2.], [0., 1., 1., 0.]];
/// let shape = Shape { batches: 2, rows: 2, cols: 2 };
/// let b = Matrix::from_shape_fn(shape, |i, row, col| experts[i][2 * row + col])?;
/// let mut c = Matrix::from_vec(3, 2, vec![0f32; 6])?;
/// Grouped::new(a.view(), b.view(), c.view_mut(), &[1, 2]).on(&Device::cpu()).run()?;
/// assert_eq!(c.as_slice(), [2., 4., 4., 3., 6., 5.]);
/// # Ok::<(), tegula::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "nothing happens before `run`"]
pub struct Grouped<'a, T: Element> {
    product: Gemm<'a, T>,
    sizes: &'a [usize],
}

impl<'a, T: Element> Grouped<'a, T> {
    /// Cᵢ = Aᵢ·Bᵢ, where group i has `sizes[i]` rows of A and C, and the matrix i of B.
    pub fn new(a: View<'a, T>, b: View<'a, T>, c: ViewMut<'a, T::Out>, sizes: &'a [usize]) -> Self {
        Grouped { product: Gemm::new(a, b, c), sizes }
    }

    /// The factor of A·B.
    pub fn alpha(self, alpha: T::Acc) -> Self {
        Grouped { product: self.product.alpha(alpha), ..self }
    }

    /// The factor of what C holds.
    pub fn beta(self, beta: T::Acc) -> Self {
        Grouped { product: self.product.beta(beta), ..self }
    }

    /// A vector to add: a row (1×n), added to every row of C, one for all groups or as a batch one for each; or a column (rows×1), added to every
    /// column of C.
    pub fn bias(self, bias: View<'a, T::Out>) -> Self {
        Grouped { product: self.product.bias(bias), ..self }
    }

    /// The function that is applied last, as by [`Gemm::activation`].
    pub fn activation(self, activation: Activation) -> Self {
        Grouped { product: self.product.activation(activation), ..self }
    }

    /// How exact products have to be, as by [`Gemm::accuracy`].
    pub fn accuracy(self, accuracy: Accuracy) -> Self {
        Grouped { product: self.product.accuracy(accuracy), ..self }
    }

    /// Where to compute, as by [`Gemm::on`].
    pub fn on(self, device: &Device) -> Self {
        Grouped { product: self.product.on(device), ..self }
    }

    /// Computes. On a GPU with C in its memory, the work is queued and not waited for.
    ///
    /// Where groups are multiplied one by one, the report is of the largest.
    ///
    /// # Errors
    /// [`Error::Shape`] where the shapes make no product, there is not a size for each matrix of B, the groups have more rows than A, or the bias
    /// is none of what it may be; else as [`Gemm::run`]. C is as it was where the error is found before the work begins.
    pub fn run(self) -> Result<Report> {
        let Grouped { product, sizes } = self;
        let (product, rows) = used_rows(product, sizes)?;
        let device = match &product.device {
            Some(device) => device.clone(),
            None => Device::holding(product.a, product.b, product.c.as_view(), product.finish.bias)?,
        };
        let caps = device.caps();
        let all = Problem { batches: sizes.len(), ..product.problem(&caps)? };
        if product.alpha != T::Acc::ZERO
            && let Some(kernel) = of_groups(&all, sizes, &caps)
        {
            tracing::debug!(device = %device.name(), ?all, %kernel, "plan chosen");
            return device.run_groups(kernel, product, &rows);
        }
        one_by_one(product, &rows)
            .map(|report| report.unwrap_or(Report { device: device.label(), kernel: "none".into() }))
    }
}

/// The product without the rows that are in no group, checked, and the rows of each group.
fn used_rows<'a, T: Element>(product: Gemm<'a, T>, sizes: &[usize]) -> Result<(Gemm<'a, T>, Vec<Range<usize>>)> {
    let Gemm { a, b, finish, .. } = product;
    let [of_a, of_b, of_c] = [a.shape(), b.shape(), product.c.shape()];
    let refuse = |why| Err(Error::Shape(why));
    if of_a.cols != of_b.rows
        || of_c.rows != of_a.rows
        || of_c.cols != of_b.cols
        || [of_a.batches, of_c.batches] != [1; 2]
    {
        return refuse(format!(
            "A is {of_a}, B {of_b} and C {of_c}: A is one matrix with the rows of all groups and as many columns as each matrix of B has rows, and \
             C one matrix with A's rows and B's columns"
        ));
    }
    if of_b.batches != sizes.len() {
        let (sizes, batches) = (sizes.len(), of_b.batches);
        return refuse(format!(
            "there are {sizes} sizes of groups and {batches} matrices in B; give a size, perhaps 0, for each matrix"
        ));
    }
    let mut end = 0usize;
    let mut rows = host::room(&[sizes.len()], || "the rows of each group".into())?;
    for size in sizes {
        let begin = end;
        end = begin.saturating_add(*size);
        rows.push(begin..end);
    }
    if end > of_a.rows {
        return refuse(format!(
            "the sizes of groups add up to {end} rows, A has {}; give sizes of rows that there are",
            of_a.rows
        ));
    }
    let refuse_c = |name, range| refuse_overlap(name, range, used(product.c.as_view())?);
    refuse_c("A", used(a)?)?;
    refuse_c("B", used(b)?)?;
    if let Some(bias) = finish.bias {
        refuse_c("bias", used(bias)?)?;
    }
    if let Some(bias) = finish.bias.map(|bias| bias.shape())
        && bias.rows > 1
        && bias.batches > 1
    {
        let column = Shape::new(of_c.rows, 1);
        return refuse(format!(
            "the bias is {bias}; a column has a number for each row of C and is one for all groups: {column}"
        ));
    }
    let all = Shape { batches: sizes.len(), ..of_c };
    let finish = finish.for_each_of(all, T::TYPE)?;
    let of_rows = |bias: View<'a, T::Out>| if bias.shape().rows == 1 { Ok(bias) } else { bias.rows(..end) };
    let bias = finish.bias.map(of_rows).transpose()?;
    // Of a column, one row may be left: then it is a row.
    let finish = Finish { bias, ..finish }.for_each_of(Shape { rows: end, ..all }, T::TYPE)?;
    Ok((Gemm { a: a.rows(..end)?, c: product.c.rows(..end)?, finish, ..product }, rows))
}

/// A product for each group that has rows; gives the report of the largest.
fn one_by_one<T: Element>(product: Gemm<'_, T>, rows: &[Range<usize>]) -> Result<Option<Report>> {
    let Gemm { alpha, a, b, beta, mut c, finish, accuracy, device, .. } = product;
    let mut largest: Option<(usize, Report)> = None;
    for (group, rows) in rows.iter().enumerate().filter(|(_, rows)| !rows.is_empty()) {
        let bias = finish.bias.map(|bias| bias.batches(group..=group)).transpose()?;
        let bias = match bias {
            Some(bias) if bias.shape().rows > 1 => Some(bias.rows(rows.clone())?),
            bias => bias,
        };
        let (b, c) = (b.batches(group..=group)?, c.reborrow().rows(rows.clone())?);
        let finish = Finish { bias, ..finish };
        let product = Gemm::new(a.rows(rows.clone())?, b, c).alpha(alpha).beta(beta).accuracy(accuracy);
        let report = Gemm { finish, device: device.clone(), ..product }.run()?;
        if largest.as_ref().is_none_or(|(size, _)| *size < rows.len()) {
            largest = Some((rows.len(), report));
        }
    }
    Ok(largest.map(|(_, report)| report))
}
