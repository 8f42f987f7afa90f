//! Slices with matrix indexing: `a[[i, k]]`.

use std::ops::{Index, IndexMut};

/// A read-only row-major matrix.
#[derive(Clone, Copy)]
pub struct Rows<'a, T> {
    pub elements: &'a [T],
    pub cols: usize,
}

/// A mutable row-major matrix.
pub struct RowsMut<'a, T> {
    pub elements: &'a mut [T],
    pub cols: usize,
}

/// The linear index of an element.
///
/// The slice checks it against its whole length; a column out of range is caught in debug builds
/// only.
#[inline(always)]
fn linear_index([row, col]: [usize; 2], cols: usize) -> usize {
    debug_assert!(col < cols, "column {col} of {cols}");
    row * cols + col
}

impl<'a, T> Rows<'a, T> {
    #[inline(always)]
    pub fn row(&self, row: usize) -> &'a [T] {
        &self.elements[row * self.cols..][..self.cols]
    }
}

impl<T> RowsMut<'_, T> {
    #[inline(always)]
    pub fn row(&mut self, row: usize) -> &mut [T] {
        &mut self.elements[row * self.cols..][..self.cols]
    }
}

impl<T> Index<[usize; 2]> for Rows<'_, T> {
    type Output = T;
    #[inline(always)]
    fn index(&self, at: [usize; 2]) -> &T {
        &self.elements[linear_index(at, self.cols)]
    }
}

impl<T> Index<[usize; 2]> for RowsMut<'_, T> {
    type Output = T;
    #[inline(always)]
    fn index(&self, at: [usize; 2]) -> &T {
        &self.elements[linear_index(at, self.cols)]
    }
}

impl<T> IndexMut<[usize; 2]> for RowsMut<'_, T> {
    #[inline(always)]
    fn index_mut(&mut self, at: [usize; 2]) -> &mut T {
        &mut self.elements[linear_index(at, self.cols)]
    }
}
