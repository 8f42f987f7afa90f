//! Slices that are indexed as matrices: `a[[i, k]]`.

use std::ops::{Index, IndexMut};

/// A row-major matrix to read.
#[derive(Clone, Copy)]
pub struct Rows<'a, T> {
    pub elements: &'a [T],
    pub cols: usize,
}

/// A row-major matrix to change.
pub struct RowsMut<'a, T> {
    pub elements: &'a mut [T],
    pub cols: usize,
}

/// One comparison an element, with the length of the whole slice: a column that is too large is seen in debug builds only.
#[inline(always)]
fn place([row, col]: [usize; 2], cols: usize) -> usize {
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
        &self.elements[place(at, self.cols)]
    }
}

impl<T> Index<[usize; 2]> for RowsMut<'_, T> {
    type Output = T;
    #[inline(always)]
    fn index(&self, at: [usize; 2]) -> &T {
        &self.elements[place(at, self.cols)]
    }
}

impl<T> IndexMut<[usize; 2]> for RowsMut<'_, T> {
    #[inline(always)]
    fn index_mut(&mut self, at: [usize; 2]) -> &mut T {
        &mut self.elements[place(at, self.cols)]
    }
}
