//! Grouped GEMM: groups of rows, each with its own matrix B, as in layers of experts. This module
//! divides the rows; engines compute the products.

use std::ops::Range;

use tegula_core::host;
use tegula_kernels::plan::{Problem, grouped_kernel, keeps_order};

use super::{Gemm, Report, device_range, refuse_overlap};
use crate::device::Device;
use crate::element::{Accuracy, Element, Scalar};
use crate::epilogue::{Activation, EpilogueOperands};
use crate::error::{Error, Result};
use crate::matrix::{Shape, View, ViewMut};

/// Cᵢ = act(alpha·Aᵢ·Bᵢ + beta·Cᵢ + bias) for each group i of rows. The defaults are alpha 1, beta
/// 0, no bias and no activation.
///
/// A (rows×k) and C (rows×n) hold the rows of all groups, one group after the other. Group i has
/// `sizes[i]` rows, which may be 0, and the matrix i of the batch B (k×n each). Rows after the last
/// group stay unchanged.
///
/// On a GPU of compute capability 9.0, groups of f16 and bf16 are one launch, after a small launch
/// that stores the sizes. This needs A and B aligned to 16 bytes, with row (or column) strides that
/// are multiples of 16 bytes. Otherwise each group is a [`Gemm`].
///
/// Sizes are read before [`run`](Self::run) returns. A captured graph (`cuda::Gpu::capture`) keeps
/// them like alpha and beta: launched again, it multiplies groups of the same sizes.
///
/// ```
/// use tegula::{Device, Grouped, Matrix, Shape};
///
/// // Three rows: the first expert doubles its row, the second swaps the columns of its two rows.
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
#[must_use = "a product is computed by `run`"]
pub struct Grouped<'a, T: Element> {
    product: Gemm<'a, T>,
    sizes: &'a [usize],
}

impl<'a, T: Element> Grouped<'a, T> {
    /// Cᵢ = Aᵢ·Bᵢ, where group i has `sizes[i]` rows of A and C, and the matrix i of B.
    pub fn new(a: View<'a, T>, b: View<'a, T>, c: ViewMut<'a, T::Out>, sizes: &'a [usize]) -> Self {
        Grouped { product: Gemm::new(a, b, c), sizes }
    }

    /// Sets alpha, which scales A·B.
    pub fn alpha(self, alpha: T::Acc) -> Self {
        Grouped { product: self.product.alpha(alpha), ..self }
    }

    /// Sets beta, which scales the previous C.
    pub fn beta(self, beta: T::Acc) -> Self {
        Grouped { product: self.product.beta(beta), ..self }
    }

    /// Sets the bias: a row (1×n), added to every row of C, or a column (rows×1), added to every
    /// column.
    ///
    /// One row serves all groups, or a batch of rows has one for each group.
    pub fn bias(self, bias: View<'a, T::Out>) -> Self {
        Grouped { product: self.product.bias(bias), ..self }
    }

    /// Sets the activation, see [`Gemm::activation`].
    pub fn activation(self, activation: Activation) -> Self {
        Grouped { product: self.product.activation(activation), ..self }
    }

    /// Sets the required accuracy, see [`Gemm::accuracy`].
    pub fn accuracy(self, accuracy: Accuracy) -> Self {
        Grouped { product: self.product.accuracy(accuracy), ..self }
    }

    /// Requires bits of a row of C that do not depend on the other rows or groups, see
    /// [`Gemm::batch_invariant`]. They are those of a [`Gemm`].
    pub fn batch_invariant(self) -> Self {
        Grouped { product: self.product.batch_invariant(), ..self }
    }

    /// Sets the device, see [`Gemm::on`].
    pub fn on(self, device: &Device) -> Self {
        Grouped { product: self.product.on(device), ..self }
    }

    /// Computes the products. On a GPU with C in its memory, the call queues the work and returns
    /// without waiting.
    ///
    /// Where each group is a product of its own, the report is of the largest.
    ///
    /// # Errors
    /// [`Error::Shape`] where the shapes do not match, or the number of sizes differs from the
    /// batch of B. It is also the error for groups with more rows than A, and for a bias of another
    /// shape. Else as for [`Gemm::run`]. C is unchanged where the error is found before the work
    /// begins.
    pub fn run(self) -> Result<Report> {
        let Grouped { product, sizes } = self;
        let (product, rows) = grouped_rows(product, sizes)?;
        let device = match &product.device {
            Some(device) => device.clone(),
            None => Device::for_operands(product.a, product.b, product.c.as_view(), product.epilogue.bias)?,
        };
        let caps = device.caps();
        let all = Problem { batches: sizes.len(), ..product.problem(&caps)? };
        if product.alpha != T::Acc::ZERO
            && let Some(kernel) = grouped_kernel(&all, sizes, &caps)
            && (!product.batch_invariant || keeps_order(&kernel.into(), &all, &caps))
        {
            tracing::debug!(device = %device.name(), ?all, %kernel, "plan chosen");
            return device.run_groups(kernel, product, &rows);
        }
        one_by_one(product, &rows)
            .map(|report| report.unwrap_or(Report { device: device.label(), kernel: "none".into() }))
    }
}

/// The checked product, restricted to rows of groups, and the range of rows of each group.
fn grouped_rows<'a, T: Element>(product: Gemm<'a, T>, sizes: &[usize]) -> Result<(Gemm<'a, T>, Vec<Range<usize>>)> {
    let Gemm { a, b, epilogue, .. } = product;
    let [a_shape, b_shape, c_shape] = [a.shape(), b.shape(), product.c.shape()];
    let refuse = |why| Err(Error::Shape(why));
    if a_shape.cols != b_shape.rows
        || c_shape.rows != a_shape.rows
        || c_shape.cols != b_shape.cols
        || [a_shape.batches, c_shape.batches] != [1; 2]
    {
        return refuse(format!(
            "A is {a_shape}, B {b_shape} and C {c_shape}: A must be one matrix with the rows of all groups, its columns equal to the rows of each \
             matrix of B, and C one matrix with A's rows and B's columns"
        ));
    }
    if b_shape.batches != sizes.len() {
        let (sizes, batches) = (sizes.len(), b_shape.batches);
        return refuse(format!(
            "{sizes} group sizes for {batches} matrices in B; give one size, which may be 0, for each matrix"
        ));
    }
    let mut end = 0usize;
    let mut rows = host::try_vec(&[sizes.len()], || "the rows of each group".into())?;
    for size in sizes {
        let begin = end;
        end = begin.saturating_add(*size);
        rows.push(begin..end);
    }
    if end > a_shape.rows {
        return refuse(format!("the group sizes add up to {end} rows; A has {}", a_shape.rows));
    }
    let refuse_c = |name, range| refuse_overlap(name, range, device_range(product.c.as_view())?);
    refuse_c("A", device_range(a)?)?;
    refuse_c("B", device_range(b)?)?;
    if let Some(bias) = epilogue.bias {
        refuse_c("bias", device_range(bias)?)?;
    }
    if let Some(bias) = epilogue.bias.map(|bias| bias.shape())
        && bias.rows > 1
        && bias.batches > 1
    {
        let column = Shape::new(c_shape.rows, 1);
        return refuse(format!("the bias is {bias}; a column bias must be {column}, one for all groups"));
    }
    let all = Shape { batches: sizes.len(), ..c_shape };
    let epilogue = epilogue.broadcast_to(all, T::TYPE)?;
    let of_rows = |bias: View<'a, T::Out>| if bias.shape().rows == 1 { Ok(bias) } else { bias.rows(..end) };
    let bias = epilogue.bias.map(of_rows).transpose()?;
    // A column may be left with one row, and is then broadcast as a row.
    let epilogue = EpilogueOperands { bias, ..epilogue }.broadcast_to(Shape { rows: end, ..all }, T::TYPE)?;
    Ok((Gemm { a: a.rows(..end)?, c: product.c.rows(..end)?, epilogue, ..product }, rows))
}

/// Runs a product for each nonempty group, and returns the report of the largest.
fn one_by_one<T: Element>(product: Gemm<'_, T>, rows: &[Range<usize>]) -> Result<Option<Report>> {
    let Gemm { alpha, a, b, beta, mut c, epilogue, accuracy, batch_invariant, device, .. } = product;
    // Group sizes differ from call to call: each would be measured.
    let device = device.map(|device| device.without_search());
    let mut largest: Option<(usize, Report)> = None;
    for (group, rows) in rows.iter().enumerate().filter(|(_, rows)| !rows.is_empty()) {
        let bias = epilogue.bias.map(|bias| bias.batches(group..=group)).transpose()?;
        let bias = match bias {
            Some(bias) if bias.shape().rows > 1 => Some(bias.rows(rows.clone())?),
            bias => bias,
        };
        let (b, c) = (b.batches(group..=group)?, c.reborrow().rows(rows.clone())?);
        let epilogue = EpilogueOperands { bias, ..epilogue };
        let product = Gemm::new(a.rows(rows.clone())?, b, c).alpha(alpha).beta(beta).accuracy(accuracy);
        let report = Gemm { epilogue, batch_invariant, device: device.clone(), ..product }.run()?;
        if largest.as_ref().is_none_or(|(size, _)| *size < rows.len()) {
            largest = Some((rows.len(), report));
        }
    }
    Ok(largest.map(|(_, report)| report))
}
