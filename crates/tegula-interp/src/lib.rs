//! The interpreter: it *defines* what the kernel language means, on any machine.
//!
//! It runs a launch, or chosen blocks of one, warp by warp, and finds what is wrong with a kernel on every run rather than by
//! luck: a race is two accesses that nothing orders, whatever order they happened to run in ([`race`](self)); reads of memory
//! that nobody wrote or that a copy is still on its way to, accesses outside a matrix even where the address exists, barriers
//! and waits that never end, loops in which nothing changes any more. Divergent lanes are scheduled independently, and all make progress. It counts what the kernel costs, in all and line by line.
//!
//! | file | |
//! |---|---|
//! | `launch` | arguments of a launch, how to run it, and what it did |
//! | `program` | a kernel as a flat list of instructions |
//! | `lower` | from the structured kernel to that list |
//! | `warp` | runs them, 32 lanes at a time |
//! | `path` | lanes of a warp that part and come together again |
//! | `lanes` | arithmetic on 32 lanes |
//! | `semantics` | arithmetic on one number, where it has corners |
//! | `tensor`, `matrix` | matrix instructions: what they compute, and on what |
//! | `hopper` | Hopper's operations: their dispatch, and registers that warps hand over |
//! | `engine` | what a block keeps for the operations of Hopper |
//! | `wgmma` | matrix instructions of a warpgroup |
//! | `product` | products of these that were not added yet |
//! | `copy` | tiles on their way |
//! | `bulk` | copies and stores of tiles that have not landed |
//! | `barrier` | the barriers of a block: in shared memory, named, of its cluster |
//! | `arrive` | arrivals at barriers in shared memory, and waits for their phases |
//! | `remote` | operations on another block of the cluster |
//! | `cluster` | blocks that reach each other's shared memory |
//! | `agent` | who works beside the threads |
//! | `machine` | a kernel with its arguments, ready to run |
//! | `schedule` | blocks of a grid, their warps, and barriers of a block |
//! | `block` | the state of a block that runs |
//! | `gathered` | counts and findings of the blocks that ran |
//! | `random` | the choices of a seed |
//! | `memory`, `access` | matrices and shared arrays; loads and stores |
//! | `owners` | which blocks use each element of a matrix |
//! | `race` | what is ordered |
//! | `shadow` | what is remembered of each element of memory |
//! | `history` | accesses that a later one may race with |
//! | `release` | releases, and who acquires them |
//! | `asynchronous` | copies on their way |
//! | `count` | requests, sectors, wavefronts |
//! | `uniform` | values that are asserted to be uniform |
//! | `report` | lanes, elements and mistakes in words |
//! | `findings` | collects what is reported |
//! | `observe` | what an observer sees |

mod access;
mod agent;
mod arrive;
mod asynchronous;
mod barrier;
mod block;
mod bulk;
mod cluster;
mod copy;
mod count;
mod engine;
mod findings;
mod gathered;
mod history;
mod hopper;
mod lanes;
mod launch;
mod lower;
mod machine;
mod matrix;
mod memory;
mod observe;
mod owners;
mod path;
mod product;
mod program;
mod race;
mod random;
mod release;
mod remote;
mod report;
mod schedule;
mod semantics;
mod shadow;
mod tensor;
mod uniform;
mod warp;
mod wgmma;

pub use count::{BANKS, Counters, METRICS, SECTOR, shared_wavefronts};
pub use launch::{Arg, Config, Outcome};
pub use memory::{Buffer, footprint};
pub use observe::{Computation, Event, Observer, Place, Request, What};
pub use tegula_core::diagnostic::{Finding, Kind, Severity, Space};
use tegula_core::error::Result;
use tegula_core::progress::Meter;
use tegula_ir::{Checked, Kernel};
pub use tensor::TensorCore;

/// Runs a kernel.
///
/// # Errors
/// [`tegula_core::Error::Launch`] where the arguments do not fit. What the kernel itself does wrong is in the outcome's findings.
pub fn run(kernel: &Checked<Kernel>, args: &[Arg<'_>], config: &Config) -> Result<Outcome> {
    machine::Machine::new(kernel, args, config)?.run(None)
}

/// [`run`] on the whole grid, counting its blocks.
pub fn run_told(
    kernel: &Checked<Kernel>,
    args: &[Arg<'_>],
    config: &Config,
    meter: Option<&Meter<'_>>,
) -> Result<Outcome> {
    machine::Machine::new(kernel, args, config)?.told_to(meter).run(None)
}

/// Runs a kernel, one block after the other, under an observer's eyes. Where the observer ends the launch early, the outcome is of what
/// ran.
///
/// # Errors
/// As [`run`].
pub fn observe(
    kernel: &Checked<Kernel>,
    args: &[Arg<'_>],
    config: &Config,
    observer: &mut dyn Observer,
) -> Result<Outcome> {
    machine::Machine::new(kernel, args, config)?.run(Some(observer))
}
