//! An N-dimensional product as products of matrices: shapes and layouts in, layouts out.

use tegula_core::nd::{NdLayout, display};
use tegula_ir::launch::MAX_EXTENT;

use crate::error::{Error, Result};
use crate::matrix::{Layout, Shape};

/// The shape of A·B by the rules [above](super).
///
/// # Errors
/// [`Error::Shape`] naming both shapes, where an operand has no axis, their inner axes differ or their stacks do not broadcast.
pub fn product_shape(a: &[usize], b: &[usize]) -> Result<Vec<usize>> {
    let refused = |why: String| Err(Error::Shape(format!("A is {} and B is {}: {why}", named(a), named(b))));
    if a.is_empty() || b.is_empty() {
        return refused("a product takes at least one axis of each; alpha scales by a number".into());
    }
    let (stack_a, m, k) = left(a);
    let (stack_b, depth, n) = right(b);
    if k != depth {
        return refused(match (a, b) {
            ([_, _], [_, _]) => format!("A's {k} columns must be as many as B's {depth} rows"),
            (_, [_]) => format!("A's last axis ({k}) must be as long as B ({depth})"),
            _ => format!("A's last axis ({k}) must be as long as B's second-last axis ({depth})"),
        });
    }
    let Some(stack) = broadcast(stack_a, stack_b) else {
        let (a, b) = (display(stack_a), display(stack_b));
        return refused(format!(
            "stacks of {a} and {b} do not broadcast; aligned at the last, extents must agree or be 1"
        ));
    };
    Ok(stack.into_iter().chain(m).chain(n).collect())
}

/// How many of the axes of C are A's rows and B's columns.
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

/// Products of (batches of) matrices that lie alike, at different places of A, B, C and a bias.
#[derive(Clone, Debug, PartialEq)]
pub struct Products {
    /// A, B, C and the bias of the first.
    first: [Layout; 4],
    /// From one to the next, outermost first.
    loops: Vec<Axis>,
}

/// An axis of the problem: its extent, and how far one step moves in A, in B, in C and in the bias.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Axis {
    extent: usize,
    steps: [isize; 4],
}

const ONE: Axis = Axis { extent: 1, steps: [0; 4] };
const A: usize = 0;
const B: usize = 1;
const C: usize = 2;
const BIAS: usize = 3;

impl Products {
    /// The fewest that this finds, for operands whose shapes make a product, and a bias that has the axes of C, along m or n with stride 0.
    ///
    /// Axes along which one step is as far as the whole of another, in A, B, C and the bias alike, are one axis. So a stack whose B is the same
    /// throughout becomes the rows of one tall product, or the columns of a wide one, where A (or B) and C lie so; what is left is the
    /// batch, as long as can be, and loops. An element is the same sum in the same order in all of these.
    pub fn new(a: &NdLayout, b: &NdLayout, c: &NdLayout, bias: Option<&NdLayout>) -> Self {
        let ((_, m, k), (_, _, n)) = (left(&a.shape), right(&b.shape));
        let [a_row, a_k] = ends(a, m.is_some(), true);
        let [b_k, b_col] = ends(b, true, n.is_some());
        let [c_row, c_col] = ends(c, m.is_some(), n.is_some());
        let [bias_row, bias_col] = bias.map_or([0; 2], |bias| ends(bias, m.is_some(), n.is_some()));
        let mut rows = Axis { extent: m.unwrap_or(1), steps: [a_row, 0, c_row, bias_row] };
        let mut cols = Axis { extent: n.unwrap_or(1), steps: [0, b_col, c_col, bias_col] };
        let mut stack = Vec::new();
        let mut batch = Axis { extent: 0, ..ONE };
        // Where C is empty, other extents may be beyond all bounds; there is nothing to find.
        if !c.is_empty() {
            stack = stack_of(a, b, c, bias);
            while join_two(&mut stack)
                || absorb(&mut rows, &mut stack, B, cols)
                || absorb(&mut cols, &mut stack, A, rows)
            {}
            let longest = (0..stack.len()).rev().max_by_key(|&i| stack[i].extent);
            batch = longest.map_or(ONE, |i| stack.remove(i));
        }
        let layout = |operand: usize, offset, (rows, row), (cols, col)| {
            let shape = Shape { batches: batch.extent, rows, cols };
            Layout { shape, offset, strides: [batch.steps[operand], row, col] }
        };
        let first = [
            layout(A, a.offset, (rows.extent, rows.steps[A]), (k, a_k)),
            layout(B, b.offset, (k, b_k), (cols.extent, cols.steps[B])),
            layout(C, c.offset, (rows.extent, rows.steps[C]), (cols.extent, cols.steps[C])),
            // A column where it varies from row to row, else a row, if only of the same number.
            match bias.map_or(0, |bias| bias.offset) {
                offset if rows.steps[BIAS] != 0 => layout(BIAS, offset, (rows.extent, rows.steps[BIAS]), (1, 0)),
                offset => layout(BIAS, offset, (1, 0), (cols.extent, cols.steps[BIAS])),
            },
        ];
        Products { first, loops: stack }
    }

    /// A, B, C and the bias of the first.
    pub fn first(&self) -> [Layout; 4] {
        self.first
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.loops.iter().map(|axis| axis.extent).product()
    }

    /// A, B, C and the bias of each.
    pub fn layouts(&self) -> impl Iterator<Item = [Layout; 4]> {
        (0..self.count()).map(|number| {
            let (mut layouts, mut rest) = (self.first, number);
            for axis in self.loops.iter().rev() {
                let step = (rest % axis.extent) as isize;
                rest /= axis.extent;
                for (layout, by) in layouts.iter_mut().zip(axis.steps) {
                    layout.offset = layout.offset.wrapping_add_signed(step.wrapping_mul(by));
                }
            }
            layouts
        })
    }
}

/// The strides of the two axes of a matrix, 0 for one that a vector lacks.
fn ends(layout: &NdLayout, first: bool, second: bool) -> [isize; 2] {
    let mut strides = layout.strides.iter().rev().copied();
    let mut next = |there: bool| if there { strides.next().unwrap_or(0) } else { 0 };
    let second = next(second);
    [next(first), second]
}

/// The axes of the stack that are longer than 1, outermost first.
fn stack_of(a: &NdLayout, b: &NdLayout, c: &NdLayout, bias: Option<&NdLayout>) -> Vec<Axis> {
    let stacks = [left(&a.shape).0, right(&b.shape).0];
    let axes = stacks[A].len().max(stacks[B].len());
    let stride = |stack: &[usize], layout: &NdLayout, axis: usize| {
        let here = (axis + stack.len()).checked_sub(axes).filter(|&i| stack[i] != 1);
        here.map_or(0, |i| layout.strides[i])
    };
    let axis = |i: usize| {
        let of_bias = bias.map_or(0, |bias| bias.strides[i]);
        Axis { extent: c.shape[i], steps: [stride(stacks[A], a, i), stride(stacks[B], b, i), c.strides[i], of_bias] }
    };
    (0..axes).map(axis).filter(|axis| axis.extent != 1).collect()
}

/// Makes one axis of two of the stack, if it finds two that are one.
fn join_two(stack: &mut Vec<Axis>) -> bool {
    for i in 0..stack.len() {
        for j in 0..stack.len() {
            if i != j
                && let Some(joined) = join(stack[i], stack[j])
            {
                stack[i] = joined;
                stack.remove(j);
                return true;
            }
        }
    }
    false
}

/// Makes an axis of the stack a part of the rows (or columns) of a matrix, if it finds one that lets `still`, which has no such rows (or
/// columns), stay where it is. A bias that varies along the `other` side is to stay a row or a column.
fn absorb(side: &mut Axis, stack: &mut Vec<Axis>, still: usize, other: Axis) -> bool {
    let joined = |axis: Axis| match side.extent {
        _ if axis.steps[still] != 0 || axis.steps[BIAS] != 0 && other.steps[BIAS] != 0 => None,
        1 => Some(axis),
        _ => join(axis, *side).or_else(|| join(*side, axis)),
    };
    // The innermost first: where the matrix has one row, whatever comes first decides what else can join.
    let Some((i, whole)) = (0..stack.len()).rev().find_map(|i| Some((i, joined(stack[i])?))) else { return false };
    *side = whole;
    stack.remove(i);
    true
}

/// Two axes as one, where a step of the outer is as far as the whole of the inner, in A, B, C and the bias alike.
fn join(outer: Axis, inner: Axis) -> Option<Axis> {
    let extent = outer.extent.checked_mul(inner.extent).filter(|&extent| extent <= MAX_EXTENT)?;
    let whole = |step: isize| isize::try_from(inner.extent).ok()?.checked_mul(step);
    let follows = outer.steps.iter().zip(inner.steps).all(|(&outer, inner)| whole(inner) == Some(outer));
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
    fn stacks_that_lie_together_are_one_product() {
        assert_eq!(sizes(&dense([&[3, 4], &[4, 5]])), [1, 1, 3, 5, 4]);
        assert_eq!(sizes(&dense([&[2, 7, 3, 4], &[2, 7, 4, 5]])), [1, 14, 3, 5, 4]);
        // B is the same throughout: one tall product.
        assert_eq!(sizes(&dense([&[2, 7, 3, 4], &[4, 5]])), [1, 1, 42, 5, 4]);
        assert_eq!(sizes(&dense([&[2, 7, 3, 4], &[1, 4, 5]])), [1, 1, 42, 5, 4]);
        assert_eq!(sizes(&dense([&[2, 7, 3, 4], &[4]])), [1, 1, 42, 1, 4]);
        // A is: not one wide product, since C's columns do not lie together, but for a single row of dots.
        assert_eq!(sizes(&dense([&[3, 4], &[2, 7, 4, 5]])), [1, 14, 3, 5, 4]);
        assert_eq!(sizes(&dense([&[4], &[2, 7, 4, 1]])), [1, 1, 1, 14, 4]);
        // Neither: the longest axis is the batch.
        assert_eq!(sizes(&dense([&[2, 1, 3, 4], &[7, 4, 5]])), [2, 7, 3, 5, 4]);
        assert_eq!(sizes(&dense([&[7, 1, 3, 4], &[2, 4, 5]])), [2, 7, 3, 5, 4]);
        assert_eq!(sizes(&dense([&[4], &[4]])), [1, 1, 1, 1, 4]);
        assert_eq!(sizes(&dense([&[0, 3, 4], &[4, 5]])), [1, 0, 3, 5, 4]);
    }

    #[test]
    fn a_stack_of_weights_transposed_is_one_wide_product() {
        let x = NdLayout::row_major(&[1, 4]).unwrap();
        let weights = NdLayout::row_major(&[7, 5, 4]).unwrap().transposed();
        let y = NdLayout::row_major(&[7, 1, 5]).unwrap();
        assert_eq!(sizes(&Products::new(&x, &weights, &y, None)), [1, 1, 1, 35, 4]);
    }

    #[test]
    fn a_vector_that_is_repeated_in_memory_is_found() {
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
    fn a_bias_keeps_apart_what_it_tells_apart() {
        let sizes_with = |shapes: [&[usize]; 2], bias: &[usize]| {
            let [a, b] = shapes.map(|shape| NdLayout::row_major(shape).unwrap());
            let c = NdLayout::row_major(&product_shape(&a.shape, &b.shape).unwrap()).unwrap();
            let bias = NdLayout::row_major(bias).unwrap().broadcast(&c.shape).unwrap();
            let products = Products::new(&a, &b, &c, Some(&bias));
            let Shape { batches, rows, cols } = products.first[BIAS].shape;
            (sizes(&products), [batches, rows, cols])
        };
        // One row for all is no hindrance, nor a single number.
        assert_eq!(sizes_with([&[2, 7, 3, 4], &[4, 5]], &[5]), ([1, 1, 42, 5, 4], [1, 1, 5]));
        assert_eq!(sizes_with([&[2, 7, 3, 4], &[4, 5]], &[1]), ([1, 1, 42, 5, 4], [1, 1, 5]));
        // A row for each of seven is: two products of seven.
        assert_eq!(sizes_with([&[2, 7, 3, 4], &[4, 5]], &[7, 1, 5]), ([2, 7, 3, 5, 4], [7, 1, 5]));
        // So is a column, which is the same in each of fourteen.
        assert_eq!(sizes_with([&[2, 7, 3, 4], &[4, 5]], &[3, 1]), ([1, 14, 3, 5, 4], [14, 3, 1]));
        // The rows of one number each are a column, those of five each are not.
        assert_eq!(sizes_with([&[6, 1, 4], &[4, 5]], &[6, 1, 1]), ([1, 1, 6, 5, 4], [1, 6, 1]));
        assert_eq!(sizes_with([&[6, 1, 4], &[4, 5]], &[6, 1, 5]), ([1, 6, 1, 5, 4], [6, 1, 5]));
        assert_eq!(sizes_with([&[6, 3, 4], &[4]], &[3]), ([1, 6, 3, 1, 4], [6, 3, 1]));
    }

    #[test]
    fn no_axis_grows_beyond_what_kernels_index() {
        let half = NdLayout { shape: vec![2, 1 << 30, 1], offset: 0, strides: vec![1 << 30, 1, 1] };
        let b = NdLayout::row_major(&[1, 1]).unwrap();
        assert_eq!(sizes(&Products::new(&half, &b, &half, None)), [1, 2, 1 << 30, 1, 1]);
    }
}
