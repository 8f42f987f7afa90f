//! Checks CUDA C++ and PTX kernels without a GPU.

mod access;
mod address;
pub mod alu;
pub mod ast;
mod atomic;
mod block;
mod cfg;
mod copy;
mod decode;
mod error;
mod kernel;
mod launch;
mod lower;
mod machine;
pub mod matrix;
mod matrix_access;
mod mbarrier;
mod memory;
pub mod syntax;
mod partial;
mod path;
mod print;
mod program;
mod report;
mod sync;
mod warp;

pub use error::{LowerError, PtxError};
pub use kernel::{Kernel, KernelParam, Module};
pub use launch::{Argument, Buffer, Config, Diagnostic, Launch, LaunchError, Outcome, SourceLine, VariableValue};
