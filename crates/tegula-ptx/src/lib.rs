//! Checks kernels in PTX or CUDA C++ without a GPU: races, bounds, deadlocks, costs of each line.
//!
//! [`Module::parse`] reads PTX. [`Module::kernel`] lowers one of its kernels, and names what is not
//! supported. [`Kernel::check`] runs a launch on buffers and returns diagnostics with source lines,
//! costs for each line, and what the kernel prints; the results are in the buffers.
//!
//! The kernel runs warp by warp. Races are found by the happens-before order of `tegula-interp`,
//! per byte where accesses are narrow. Costs are counted by its rules, which are those of Nsight
//! Compute. [`cuda`] compiles CUDA C++ to PTX.
//!
//! | file | contents |
//! |---|---|
//! | `ast`, `parse` | the syntax tree of PTX, and its parser |
//! | `kernel`, `launch`, `error` | the public interface: kernels, launches and results, errors |
//! | `lower`, `decode`, `cfg` | from the syntax tree to the program: names, instructions, control flow |
//! | `program` | the program of a warp: instructions with registers |
//! | `alu` | arithmetic on the 32 lanes of a warp |
//! | `matrix`, `matrix_access` | matrix instructions: fragments and products; registers and memory |
//! | `special`, `properties` | special registers; the shadow memory that a program needs |
//! | `machine`, `schedule` | memory and parameters of a launch; the schedule of blocks and warps |
//! | `time_slice` | time slices of warps in long loops |
//! | `block`, `barrier` | the state of a block; its barriers |
//! | `run`, `warp`, `path` | a running warp; its instructions; divergence of its lanes |
//! | `address`, `memory` | addresses and state space windows; bytes with an initialized flag |
//! | `access`, `atomic` | loads, stores and atomic operations: checks, costs, values |
//! | `atomic_sums` | sums of floating-point numbers by atomic operations |
//! | `sync`, `mbarrier`, `mbarrier_state` | barriers and warp-wide instructions; mbarriers |
//! | `copy`, `pending_copies` | `cp.async`, and copies in flight |
//! | `sizes` | strong accesses of different sizes, which race |
//! | `print` | `printf` and `assert` |
//! | `trace`, `recorder`, `record` | the trace of a block: its types; the recorder; its hooks |
//! | `partial`, `report` | counts and findings; diagnostics as text |

mod access;
mod address;
pub mod alu;
pub mod ast;
mod atomic;
mod atomic_sums;
mod barrier;
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
mod mbarrier_state;
mod memory;
pub mod parse;
mod partial;
mod path;
mod pending_copies;
mod print;
mod program;
mod properties;
mod record;
mod recorder;
mod report;
mod run;
mod schedule;
mod sizes;
mod special;
mod sync;
mod time_slice;
pub mod trace;
mod warp;

pub use tegula_cuda_source as cuda;

pub use atomic_sums::{AtomicSum, AtomicSums};
pub use error::{LowerError, PtxError};
pub use kernel::{Kernel, KernelParam, Module};
pub use launch::{Argument, Buffer, Config, Diagnostic, Launch, LaunchError, Outcome, SourceLine, VariableValue};
