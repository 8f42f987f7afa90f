//! Checks CUDA C++ and PTX kernels without a GPU.

pub mod alu;
pub mod ast;
