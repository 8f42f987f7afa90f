//! The library's tests from outside, in one binary.

mod golden;
mod gpu;
mod kernels;
mod refusals;
