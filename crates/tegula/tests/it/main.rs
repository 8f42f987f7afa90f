//! The library's tests from outside, in one binary.

mod golden;
mod kernels;
mod refusals;
