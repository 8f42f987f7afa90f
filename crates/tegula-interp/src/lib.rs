//! The interpreter: it *defines* what the kernel language means, on any machine.
//!
//! It runs a launch, or chosen blocks of one, warp by warp, and finds what is wrong with a kernel on every run rather than by
//! luck: a race is two accesses that nothing orders, whatever order they happened to run in ([`race`](self)); reads of memory
//! that nobody wrote or that a copy is still on its way to, accesses outside a matrix even where the address exists, barriers
//! and waits that never end, loops in which nothing changes any more. Divergent lanes are scheduled independently, and all make progress. It counts what the kernel costs, in all and line by line.
//!
//! | file | |
//! |---|---|
//! | `program` | a kernel as a flat list of instructions |
//! | `lower` | from the structured kernel to that list |
//! | `warp` | runs them, 32 lanes at a time |
//! | `path` | lanes of a warp that part and come together again |
//! | `lanes` | arithmetic on 32 lanes |
//! | `semantics` | arithmetic on one number, where it has corners |
//! | `tensor`, `matrix` | matrix instructions: what they compute, and on what |
//! | `hopper` | what only Hopper has: registers that warps hand over, and of the rest |
//! | `wgmma` | matrix instructions of a warpgroup |
//! | `copy` | tiles on their way |
//! | `barrier` | barriers that count arrivals and bytes |
//! | `cluster` | blocks that reach each other's shared memory |
//! | `agent` | who works beside the threads |
//! | `block` | warps of a block, barriers, blocks of a grid |
//! | `memory`, `access` | matrices and shared arrays; loads and stores |
//! | `race` | what is ordered |
//! | `shadow` | what is remembered of each element of memory |
//! | `history` | accesses that a later one may race with |
//! | `release` | releases, and who acquires them |
//! | `asynchronous` | copies on their way |
//! | `count` | requests, sectors, wavefronts |
//! | `uniform` | values that are asserted to be uniform |
//! | `findings` | collects what is reported |
//! | `observe` | what an observer sees |

mod access;
mod agent;
mod asynchronous;
mod barrier;
mod block;
mod cluster;
mod copy;
mod count;
mod findings;
mod history;
mod hopper;
mod lanes;
mod lower;
mod matrix;
mod memory;
mod observe;
mod path;
mod program;
mod race;
mod release;
mod semantics;
mod shadow;
mod tensor;
mod uniform;
mod warp;
mod wgmma;

pub use count::{BANKS, Counters, METRICS, SECTOR, shared_wavefronts};
pub use memory::{Buffer, footprint};
pub use observe::{Computation, Event, Observer, Place, Request, What};
pub use tegula_core::diagnostic::{Finding, Kind, Severity, Space};
use tegula_core::element::{Scalar, Type};
use tegula_core::error::Result;
use tegula_core::progress::Meter;
use tegula_ir::launch::DeviceFacts;
use tegula_ir::{Checked, Kernel, Site};
pub use tensor::TensorCore;

/// An argument of a launch.
#[derive(Clone, Copy, Debug)]
pub enum Arg<'a> {
    /// A matrix.
    Matrix(&'a Buffer),
    /// A number.
    Scalar {
        /// Its type.
        ty: Type,
        /// Its bits.
        bits: u64,
    },
}

impl<'a> From<&'a Buffer> for Arg<'a> {
    fn from(buffer: &'a Buffer) -> Self {
        Arg::Matrix(buffer)
    }
}

impl Arg<'_> {
    /// Whether both are the same matrix.
    fn is_same(&self, other: &Arg<'_>) -> bool {
        matches!((self, other), (Arg::Matrix(one), Arg::Matrix(other)) if std::ptr::eq(*one, *other))
    }

    /// A number.
    pub fn scalar<T: Scalar>(value: T) -> Self {
        Arg::Scalar { ty: T::TYPE, bits: value.to_bits() }
    }
}

/// How to run.
#[derive(Clone, Debug)]
pub struct Config {
    /// Decides in which order warps run and when asynchronous copies land. With any seed but 0, it
    /// also decides the order of blocks and of the lanes of an atomic instruction, and which lanes
    /// leave a wait first; with 0 these are ascending, and lanes leave a wait together.
    pub seed: u64,
    /// Look for races, uninitialised reads and redundant barriers.
    pub races: bool,
    /// Count.
    pub counters: bool,
    /// Run these blocks only, each along x, y and z; all where `None`. Blocks outside the grid are passed over.
    pub blocks: Option<Vec<[u32; 3]>>,
    /// Spread blocks over the cores of this machine, where the kernel lets them run independently.
    pub parallel: bool,
    /// The device to stand for.
    pub device: DeviceFacts,
    /// Whose matrix instructions to run.
    pub tensor_core: TensorCore,
    /// Instructions that a warp may run before it counts as one that never ends.
    pub steps: u64,
    /// Blocks that are on the device at a time, for kernels whose blocks wait for each other.
    pub resident: u32,
}

impl Default for Config {
    /// Everything on, seed 0, all blocks, an H200's 132 multiprocessors with one block each.
    fn default() -> Self {
        Config {
            seed: 0,
            races: true,
            counters: true,
            blocks: None,
            parallel: true,
            device: DeviceFacts { multiprocessors: 132 },
            tensor_core: TensorCore::Sm90,
            steps: 1 << 28,
            resident: 132,
        }
    }
}

/// What a launch did, besides what it wrote.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Errors first, then notes, each in the order of the source.
    pub findings: Vec<Finding>,
    /// What it cost.
    pub counters: Counters,
    /// What each line cost.
    pub lines: Vec<(Site, Counters)>,
    /// The grid.
    pub grid: [u32; 3],
    /// Blocks that ran.
    pub blocks: u64,
}

impl Outcome {
    /// The first error.
    pub fn error(&self) -> Option<&Finding> {
        self.findings.iter().find(|f| f.severity() == Severity::Error)
    }

    /// The outcome, or its first error.
    ///
    /// # Errors
    /// [`tegula_core::Error::Found`] where the kernel did something wrong.
    pub fn ok(self, kernel: &Kernel) -> Result<Self> {
        match self.error() {
            Some(finding) => {
                Err(tegula_core::Error::Found { kernel: kernel.name().into(), finding: Box::new(finding.clone()) })
            }
            None => Ok(self),
        }
    }
}

/// Runs a kernel.
///
/// # Errors
/// [`tegula_core::Error::Launch`] where the arguments do not fit. What the kernel itself does wrong is in the outcome's findings.
pub fn run(kernel: &Checked<Kernel>, args: &[Arg<'_>], config: &Config) -> Result<Outcome> {
    block::Machine::new(kernel, args, config)?.run(None)
}

/// [`run`] on the whole grid, counting its blocks.
pub fn run_told(
    kernel: &Checked<Kernel>,
    args: &[Arg<'_>],
    config: &Config,
    meter: Option<&Meter<'_>>,
) -> Result<Outcome> {
    block::Machine::new(kernel, args, config)?.told_to(meter).run(None)
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
    block::Machine::new(kernel, args, config)?.run(Some(observer))
}
