//! A launch: its arguments, how to run it, and what it did.

use tegula_core::diagnostic::{Finding, Severity};
use tegula_core::element::{Scalar, Type};
use tegula_core::error::Result;
use tegula_ir::launch::DeviceFacts;
use tegula_ir::{Kernel, Site};

use super::count::Counters;
use super::memory::Buffer;
use super::tensor::TensorCore;

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
    pub(super) fn is_same(&self, other: &Arg<'_>) -> bool {
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
    /// Run these blocks only, each along x, y and z; all where `None`. Blocks outside the grid are
    /// passed over.
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
