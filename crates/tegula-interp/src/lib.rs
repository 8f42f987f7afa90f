//! The interpreter: it runs kernels on any machine, and *defines* the meaning of the kernel
//! language.
//!
//! It runs a launch, or selected blocks of a launch, warp by warp. Its race detector reports a bug
//! on every run, not by chance. A data race is two conflicting accesses without a happens-before
//! order, whatever order they ran in (`race.rs`). It also reports:
//!
//! * reads of uninitialized memory, and of memory with a copy in flight;
//! * out-of-bounds accesses, even where the address exists;
//! * barriers and waits that never complete, and loops without progress.
//!
//! Divergent lanes are scheduled independently, and all of them make progress. The interpreter also
//! counts the costs of a kernel, in total and for each source line.
//!
//! | file | contents |
//! |---|---|
//! | `launch` | arguments, configuration and outcome of a launch |
//! | `program` | the flat program: a list of instructions |
//! | `lower` | lowering from the structured kernel to the flat program |
//! | `warp` | the instruction loop of a warp of 32 lanes |
//! | `path` | divergence and reconvergence of the lanes of a warp |
//! | `lanes` | registers, and arithmetic on 32 lanes |
//! | `semantics` | scalar arithmetic where it has special cases |
//! | `tensor`, `matrix` | Tensor Core arithmetic; fragments of the warp's matrix instructions |
//! | `hopper` | dispatch of Hopper's operations, `setmaxnreg`, `griddepcontrol` |
//! | `hopper_state` | per-block state of Hopper's operations |
//! | `wgmma` | matrix instructions of a warpgroup |
//! | `pending_wgmma` | warpgroup products not accumulated yet |
//! | `copy` | bulk tensor copies (TMA), and stores to other blocks of a cluster |
//! | `bulk` | bulk copies and stores in flight |
//! | `barrier` | mbarriers, named barriers, and the barrier of a cluster |
//! | `arrive` | arrivals at mbarriers, and waits for their phases |
//! | `remote` | operations on another block of the cluster |
//! | `cluster` | the blocks of a cluster, and their operations on each other |
//! | `agent` | asynchronous agents: TMA, `wgmma`, stores, `cp.async` |
//! | `machine` | a kernel with its arguments, ready to run |
//! | `schedule` | scheduling of blocks and warps, barriers of a block |
//! | `block` | the state of a running block |
//! | `partial_outcome` | counts and findings of the blocks of one core |
//! | `random` | pseudorandom choices of a seed |
//! | `memory`, `access` | matrices and shared arrays; loads and stores |
//! | `access_summary` | the blocks that access each element of a matrix |
//! | `race` | vector clocks and the happens-before order |
//! | `shadow` | shadow memory: the state of each element |
//! | `history` | access history: the accesses that a later access may race with |
//! | `release` | releases at an element, and their acquires |
//! | `pending_copies` | `cp.async` copies in flight |
//! | `count` | requests, sectors, wavefronts |
//! | `uniform` | uniformity assertions |
//! | `report` | diagnostics: lanes, elements and findings as text |
//! | `findings` | the findings of a launch, without duplicates |
//! | `observe` | events for an observer |

mod access;
#[allow(missing_docs)]
mod access_summary;
mod agent;
mod arrive;
mod barrier;
mod block;
mod bulk;
mod cluster;
mod copy;
mod count;
mod findings;
#[allow(missing_docs)]
mod history;
mod hopper;
mod hopper_state;
mod lanes;
mod launch;
mod lower;
mod machine;
mod matrix;
mod memory;
mod observe;
mod partial_outcome;
mod path;
mod pending_copies;
mod pending_wgmma;
mod program;
#[allow(missing_docs)]
mod race;
#[allow(missing_docs)]
mod random;
#[allow(missing_docs)]
mod release;
mod remote;
mod report;
mod schedule;
mod semantics;
#[allow(missing_docs)]
mod shadow;
mod tensor;
mod uniform;
mod warp;
mod wgmma;

pub use count::{BANKS, Counters, METRICS, SECTOR_BYTES, shared_wavefronts};
pub use launch::{Arg, Config, Outcome};
pub use memory::{Buffer, footprint};
pub use observe::{Computation, Event, EventKind, Observer, Request, SharedRef};
pub use tegula_core::diagnostic::{Finding, FindingKind, Severity, Space};
use tegula_core::error::Result;
use tegula_core::progress::ProgressMeter;
use tegula_ir::{Checked, Kernel};
pub use tensor::TensorCore;

/// The race detector and the cost rules, for other front ends.
///
/// `tegula-ptx` runs PTX on its own machine, with this happens-before order and these counts.
#[doc(hidden)]
pub mod rules {
    pub use crate::access_summary::{AccessSummary, RacingAccess};
    pub use crate::count::{
        RequestCache, WavefrontCount, atomic_sectors, atomic_wavefronts, l1_bypass_sectors, load_wavefronts, sectors,
        wavefronts,
    };
    pub use crate::race::{
        Access, AccessKind, BlockClocks, ClockView, CurrentAccess, FIRST_AGENT, OrderSource, Race, threads_of,
    };
    pub use crate::random::{mix, next, shuffle};
    pub use crate::release::ElementReleases;
    pub use crate::shadow::{Cell, GlobalShadow, Hazard, Proxy, SameValueWrites, SharedShadow};
}

/// The arithmetic of the Tensor Cores, for other front ends.
#[doc(hidden)]
pub mod tensor_core {
    pub use crate::tensor::{BF16, F16, F32, Format, TF32, accumulate_blocks, block_length, block_sum, warpgroup};
}

/// Runs a kernel.
///
/// # Errors
/// [`tegula_core::Error::Launch`] for arguments that do not fit the kernel. Bugs of the kernel
/// itself are in the outcome's findings.
pub fn run(kernel: &Checked<Kernel>, args: &[Arg<'_>], config: &Config) -> Result<Outcome> {
    machine::Machine::new(kernel, args, config)?.run(None)
}

/// Runs the whole grid like [`run`], and reports the number of finished blocks.
pub fn run_with_progress(
    kernel: &Checked<Kernel>,
    args: &[Arg<'_>],
    config: &Config,
    meter: Option<&ProgressMeter<'_>>,
) -> Result<Outcome> {
    machine::Machine::new(kernel, args, config)?.with_progress(meter).run(None)
}

/// Runs a kernel block by block, and passes each event to an observer.
///
/// If the observer ends the launch early, the outcome covers the part that ran.
///
/// # Errors
/// Those of [`run`].
pub fn observe(
    kernel: &Checked<Kernel>,
    args: &[Arg<'_>],
    config: &Config,
    observer: &mut dyn Observer,
) -> Result<Outcome> {
    machine::Machine::new(kernel, args, config)?.run(Some(observer))
}
