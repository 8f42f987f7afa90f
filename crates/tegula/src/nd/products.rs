//! Lowering of a product of arrays to batched products of matrices, from layouts to layouts.

use tegula_core::nd::{NdLayout, display};
use tegula_ir::launch::MAX_EXTENT;

use crate::error::{Error, Result};
use crate::matrix::{Layout, Shape};

/// The shape of A·B by the rules [of the module](super).
///
/// # Errors
/// [`Error::Shape`] with both shapes, where an operand has no axis, the inner axes differ, or the
/// stacks do not broadcast.
pub fn product_shape(a: &[usize], b: &[usize]) -> Result<Vec<usize>> {
    let refused = |why: String| Err(Error::Shape(format!("A is {} and B is {}: {why}", named(a), named(b))));
    if a.is_empty() || b.is_empty() {
        return refused("each operand needs at least one axis; use alpha to scale by a number".into());
    }
    let (stack_a, m, k) = left(a);
    let (stack_b, depth, n) = right(b);
    if k != depth {
        return refused(match (a, b) {
            ([_, _], [_, _]) => format!("A's {k} columns must equal B's {depth} rows"),
            (_, [_]) => format!("A's last axis ({k}) must equal the length of B ({depth})"),
            _ => format!("A's last axis ({k}) must equal B's second-last axis ({depth})"),
        });
    }
    let Some(stack) = broadcast(stack_a, stack_b) else {
        let (a, b) = (display(stack_a), display(stack_b));
        return refused(format!(
            "stacks {a} and {b} do not broadcast: aligned at the last axis, extents must be equal or 1"
        ));
    };
    Ok(stack.into_iter().chain(m).chain(n).collect())
}

/// The number of matrix axes of C: one for A's rows unless A is a vector, one for B's columns
/// likewise.
pub fn matrix_axes(a: &[usize], b: &[usize]) -> usize {
    usize::from(a.len() > 1) + usize::from(b.len() > 1)
}

/// The stack, m and k of A.
fn left(a: &[usize]) -> (&[usize], Option<usize>, usize) {
    match *a {
        [ref stack @ .., m, k] => (stack, Some(m), k),
        [k] => (&[], None, k),
        [] => (&[], None, 1),
    }
}

/// The stack, k and n of B.
fn right(b: &[usize]) -> (&[usize], usize, Option<usize>) {
    match *b {
        [ref stack @ .., k, n] => (stack, k, Some(n)),
        [k] => (&[], k, None),
        [] => (&[], 1, None),
    }
}

fn broadcast(a: &[usize], b: &[usize]) -> Option<Vec<usize>> {
    let axes = a.len().max(b.len());
    let extent = |stack: &[usize], axis: usize| (axis + stack.len()).checked_sub(axes).map_or(1, |i| stack[i]);
    let common = |axis| match (extent(a, axis), extent(b, axis)) {
        (x, y) if x == y || y == 1 => Some(x),
        (1, y) => Some(y),
        _ => None,
    };
    (0..axes).map(common).collect()
}

fn named(shape: &[usize]) -> String {
    match *shape {
        [] => "a single number".into(),
        [len] => format!("a vector of {len}"),
        _ => display(shape),
    }
}

/// Batched products of equal shapes and strides, at different offsets in A, B, C and the bias.
#[derive(Clone, Debug, PartialEq)]
pub struct Products {
    /// A, B, C and the bias of the first product.
    first: [Layout; 4],
    /// The loop nest over the products, outermost first.
    loops: Vec<Axis>,
}

/// An axis of the problem: its extent, and its strides in A, B, C and the bias.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Axis {
    extent: usize,
    strides: [isize; 4],
}

const ONE: Axis = Axis { extent: 1, strides: [0; 4] };
const A: usize = 0;
const B: usize = 1;
const C: usize = 2;
const BIAS: usize = 3;

impl Products {
    /// Lowers a product to few batched products. The shapes match, and the bias has the axes of C,
    /// with stride 0 along m or n.
    ///
    /// Two axes collapse into one where the stride of one equals the whole extent of the other, in
    /// A, B, C and the bias. So a stack with one B becomes the rows of a tall product, where the
    /// strides allow. A stack with one A becomes the columns of a wide product. The longest
    /// remaining axis becomes the batch, the others become loops. The order in which an element is
    /// accumulated stays the same.
    pub fn new(a: &NdLayout, b: &NdLayout, c: &NdLayout, bias: Option<&NdLayout>) -> Self {
        let ((_, m, k), (_, _, n)) = (left(&a.shape), right(&b.shape));
        let [a_row, a_k] = matrix_strides(a, m.is_some(), true);
        let [b_k, b_col] = matrix_strides(b, true, n.is_some());
        let [c_row, c_col] = matrix_strides(c, m.is_some(), n.is_some());
        let [bias_row, bias_col] = bias.map_or([0; 2], |bias| matrix_strides(bias, m.is_some(), n.is_some()));
        let mut rows = Axis { extent: m.unwrap_or(1), strides: [a_row, 0, c_row, bias_row] };
        let mut cols = Axis { extent: n.unwrap_or(1), strides: [0, b_col, c_col, bias_col] };
        let mut stack = Vec::new();
        let mut batch = Axis { extent: 0, ..ONE };
        // Where C is empty, other extents may be arbitrarily large, and nothing needs to collapse.
        if !c.is_empty() {
            stack = stack_of(a, b, c, bias);
            while collapse_stack(&mut stack)
                || collapse_into(&mut rows, &mut stack, B, cols)
                || collapse_into(&mut cols, &mut stack, A, rows)
            {}
            let longest = (0..stack.len()).rev().max_by_key(|&i| stack[i].extent);
            batch = longest.map_or(ONE, |i| stack.remove(i));
        }
        let layout = |operand: usize, offset, (rows, row), (cols, col)| {
            let shape = Shape { batches: batch.extent, rows, cols };
            Layout { shape, offset, strides: [batch.strides[operand], row, col] }
        };
        let first = [
            layout(A, a.offset, (rows.extent, rows.strides[A]), (k, a_k)),
            layout(B, b.offset, (k, b_k), (cols.extent, cols.strides[B])),
            layout(C, c.offset, (rows.extent, rows.strides[C]), (cols.extent, cols.strides[C])),
            // A column where it varies along the rows, else a row, which may be constant.
            match bias.map_or(0, |bias| bias.offset) {
                offset if rows.strides[BIAS] != 0 => layout(BIAS, offset, (rows.extent, rows.strides[BIAS]), (1, 0)),
                offset => layout(BIAS, offset, (1, 0), (cols.extent, cols.strides[BIAS])),
            },
        ];
        Products { first, loops: stack }
    }

    /// A, B, C and the bias of the first product.
    pub fn first(&self) -> [Layout; 4] {
        self.first
    }

    /// The number of products.
    pub fn count(&self) -> usize {
        self.loops.iter().map(|axis| axis.extent).product()
    }

    /// A, B, C and the bias of each product.
    pub fn layouts(&self) -> impl Iterator<Item = [Layout; 4]> {
        (0..self.count()).map(|number| {
            let (mut layouts, mut rest) = (self.first, number);
            for axis in self.loops.iter().rev() {
                let step = (rest % axis.extent) as isize;
                rest /= axis.extent;
                for (layout, by) in layouts.iter_mut().zip(axis.strides) {
                    layout.offset = layout.offset.wrapping_add_signed(step.wrapping_mul(by));
                }
            }
            layouts
        })
    }
}

/// The strides of the two matrix axes, 0 for the axis that a vector lacks.
fn matrix_strides(layout: &NdLayout, first: bool, second: bool) -> [isize; 2] {
    let mut strides = layout.strides.iter().rev().copied();
    let mut next = |there: bool| if there { strides.next().unwrap_or(0) } else { 0 };
    let second = next(second);
    [next(first), second]
}

/// The axes of the stack with extents other than 1, outermost first.
fn stack_of(a: &NdLayout, b: &NdLayout, c: &NdLayout, bias: Option<&NdLayout>) -> Vec<Axis> {
    let stacks = [left(&a.shape).0, right(&b.shape).0];
    let axes = stacks[A].len().max(stacks[B].len());
    let stride = |stack: &[usize], layout: &NdLayout, axis: usize| {
        let here = (axis + stack.len()).checked_sub(axes).filter(|&i| stack[i] != 1);
        here.map_or(0, |i| layout.strides[i])
    };
    let axis = |i: usize| {
        let of_bias = bias.map_or(0, |bias| bias.strides[i]);
        Axis { extent: c.shape[i], strides: [stride(stacks[A], a, i), stride(stacks[B], b, i), c.strides[i], of_bias] }
    };
    (0..axes).map(axis).filter(|axis| axis.extent != 1).collect()
}

/// Collapses two axes of the stack into one, and returns whether any two can.
fn collapse_stack(stack: &mut Vec<Axis>) -> bool {
    for i in 0..stack.len() {
        for j in 0..stack.len() {
            if i != j
                && let Some(collapsed) = collapse(stack[i], stack[j])
            {
                stack[i] = collapsed;
                stack.remove(j);
                return true;
            }
        }
    }
    false
}

/// Collapses an axis of the stack into the rows (or columns) of a matrix, and returns whether any
/// can.
///
/// Along that axis the operand `fixed`, which has no rows (or columns), must have stride 0. A bias
/// that varies along `other` must remain a row or a column.
fn collapse_into(side: &mut Axis, stack: &mut Vec<Axis>, fixed: usize, other: Axis) -> bool {
    let collapsed = |axis: Axis| match side.extent {
        _ if axis.strides[fixed] != 0 || axis.strides[BIAS] != 0 && other.strides[BIAS] != 0 => None,
        1 => Some(axis),
        _ => collapse(axis, *side).or_else(|| collapse(*side, axis)),
    };
    // Innermost first: where the matrix has one row, the first axis decides which others can
    // collapse.
    let Some((i, whole)) = (0..stack.len()).rev().find_map(|i| Some((i, collapsed(stack[i])?))) else { return false };
    *side = whole;
    stack.remove(i);
    true
}

/// Collapses two axes into one.
///
/// In A, B, C and the bias the outer stride must equal the inner extent times its stride.
fn collapse(outer: Axis, inner: Axis) -> Option<Axis> {
    let extent = outer.extent.checked_mul(inner.extent).filter(|&extent| extent <= MAX_EXTENT)?;
    let whole = |step: isize| isize::try_from(inner.extent).ok()?.checked_mul(step);
    let follows = outer.strides.iter().zip(inner.strides).all(|(&outer, inner)| whole(inner) == Some(outer));
    follows.then_some(Axis { extent, ..inner })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dense(shapes: [&[usize]; 2]) -> Products {
        let [a, b] = shapes.map(|shape| NdLayout::row_major(shape).unwrap());
        let c = NdLayout::row_major(&product_shape(&a.shape, &b.shape).unwrap()).unwrap();
        Products::new(&a, &b, &c, None)
    }

    /// Number of products, and batch, m, n and k of each.
    fn sizes(products: &Products) -> [usize; 5] {
        let [a, _, c, _] = products.first;
        [products.count(), c.shape.batches, c.shape.rows, c.shape.cols, a.shape.cols]
    }

    #[test]
    fn contiguous_stacks_are_one_product() {
        assert_eq!(sizes(&dense([&[3, 4], &[4, 5]])), [1, 1, 3, 5, 4]);
        assert_eq!(sizes(&dense([&[2, 7, 3, 4], &[2, 7, 4, 5]])), [1, 14, 3, 5, 4]);
        // One B for the stack: one tall product.
        assert_eq!(sizes(&dense([&[2, 7, 3, 4], &[4, 5]])), [1, 1, 42, 5, 4]);
        assert_eq!(sizes(&dense([&[2, 7, 3, 4], &[1, 4, 5]])), [1, 1, 42, 5, 4]);
        assert_eq!(sizes(&dense([&[2, 7, 3, 4], &[4]])), [1, 1, 42, 1, 4]);
        // One A for the stack: not one wide product, since the columns of C are not contiguous,
        // except for a single row of dot products.
        assert_eq!(sizes(&dense([&[3, 4], &[2, 7, 4, 5]])), [1, 14, 3, 5, 4]);
        assert_eq!(sizes(&dense([&[4], &[2, 7, 4, 1]])), [1, 1, 1, 14, 4]);
        // Neither repeats: the longest axis is the batch.
        assert_eq!(sizes(&dense([&[2, 1, 3, 4], &[7, 4, 5]])), [2, 7, 3, 5, 4]);
        assert_eq!(sizes(&dense([&[7, 1, 3, 4], &[2, 4, 5]])), [2, 7, 3, 5, 4]);
        assert_eq!(sizes(&dense([&[4], &[4]])), [1, 1, 1, 1, 4]);
        assert_eq!(sizes(&dense([&[0, 3, 4], &[4, 5]])), [1, 0, 3, 5, 4]);
    }

    #[test]
    fn stack_of_transposed_weights_is_one_wide_product() {
        let x = NdLayout::row_major(&[1, 4]).unwrap();
        let weights = NdLayout::row_major(&[7, 5, 4]).unwrap().transposed();
        let y = NdLayout::row_major(&[7, 1, 5]).unwrap();
        assert_eq!(sizes(&Products::new(&x, &weights, &y, None)), [1, 1, 1, 35, 4]);
    }

    #[test]
    fn vector_with_stride_zero_is_one_product() {
        let x = NdLayout { shape: vec![6, 4], offset: 3, strides: vec![0, 2] };
        let a = NdLayout::row_major(&[6, 2, 4]).unwrap();
        let mut column = x.clone();
        (column.shape, column.strides) = (vec![6, 4, 1], vec![0, 2, 0]);
        let c = NdLayout::row_major(&[6, 2, 1]).unwrap();
        let products = Products::new(&a, &column, &c, None);
        assert_eq!(sizes(&products), [1, 1, 12, 1, 4]);
        assert_eq!(products.first[B].strides, [0, 2, 0]);
    }

    #[test]
    fn axes_along_which_the_bias_varies_stay_separate() {
        let sizes_with = |shapes: [&[usize]; 2], bias: &[usize]| {
            let [a, b] = shapes.map(|shape| NdLayout::row_major(shape).unwrap());
            let c = NdLayout::row_major(&product_shape(&a.shape, &b.shape).unwrap()).unwrap();
            let bias = NdLayout::row_major(bias).unwrap().broadcast(&c.shape).unwrap();
            let products = Products::new(&a, &b, &c, Some(&bias));
            let Shape { batches, rows, cols } = products.first[BIAS].shape;
            (sizes(&products), [batches, rows, cols])
        };
        // One row for all matrices, or a single number, does not prevent it.
        assert_eq!(sizes_with([&[2, 7, 3, 4], &[4, 5]], &[5]), ([1, 1, 42, 5, 4], [1, 1, 5]));
        assert_eq!(sizes_with([&[2, 7, 3, 4], &[4, 5]], &[1]), ([1, 1, 42, 5, 4], [1, 1, 5]));
        // A row for each of seven matrices does: two products of seven.
        assert_eq!(sizes_with([&[2, 7, 3, 4], &[4, 5]], &[7, 1, 5]), ([2, 7, 3, 5, 4], [7, 1, 5]));
        // So does a column, the same for each of fourteen.
        assert_eq!(sizes_with([&[2, 7, 3, 4], &[4, 5]], &[3, 1]), ([1, 14, 3, 5, 4], [14, 3, 1]));
        // Rows of one number each are a column, rows of five are not.
        assert_eq!(sizes_with([&[6, 1, 4], &[4, 5]], &[6, 1, 1]), ([1, 1, 6, 5, 4], [1, 6, 1]));
        assert_eq!(sizes_with([&[6, 1, 4], &[4, 5]], &[6, 1, 5]), ([1, 6, 1, 5, 4], [6, 1, 5]));
        assert_eq!(sizes_with([&[6, 3, 4], &[4]], &[3]), ([1, 6, 3, 1, 4], [6, 3, 1]));
    }

    #[test]
    fn collapsed_axes_stay_within_the_largest_extent() {
        let half = NdLayout { shape: vec![2, 1 << 30, 1], offset: 0, strides: vec![1 << 30, 1, 1] };
        let b = NdLayout::row_major(&[1, 1]).unwrap();
        assert_eq!(sizes(&Products::new(&half, &b, &half, None)), [1, 2, 1 << 30, 1, 1]);
    }
}
