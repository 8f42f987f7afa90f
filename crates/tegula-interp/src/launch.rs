//! A launch: arguments, configuration, outcome.

use tegula_core::diagnostic::{Finding, Severity};
use tegula_core::element::{Scalar, Type};
use tegula_core::error::Result;
use tegula_ir::launch::DeviceProperties;
use tegula_ir::{Kernel, Site};

use super::count::Counters;
use super::memory::Buffer;
use super::tensor::TensorCore;

/// An argument of a launch.
#[derive(Clone, Copy, Debug)]
pub enum Arg<'a> {
    /// A matrix.
    Matrix(&'a Buffer),
    /// A scalar.
    Scalar {
        /// Type of the scalar.
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
    /// Whether both arguments are the same matrix.
    pub(super) fn is_same(&self, other: &Arg<'_>) -> bool {
        matches!((self, other), (Arg::Matrix(one), Arg::Matrix(other)) if std::ptr::eq(*one, *other))
    }

    /// A scalar argument.
    pub fn scalar<T: Scalar>(value: T) -> Self {
        Arg::Scalar { ty: T::TYPE, bits: value.to_bits() }
    }
}

/// Configuration of a run.
#[derive(Clone, Debug)]
pub struct Config {
    /// Selects the order of warps and the completion times of asynchronous copies.
    ///
    /// A seed other than 0 also permutes blocks and the lanes of atomic instructions, and selects
    /// the lanes that leave a wait first. With seed 0 these are in ascending order, and all lanes
    /// leave a wait together.
    pub seed: u64,
    /// Detect races, uninitialized reads and redundant barriers.
    pub races: bool,
    /// Count requests, transactions and instructions.
    pub counters: bool,
    /// Run only these blocks, each along x, y and z; `None` runs all.
    ///
    /// Blocks outside the grid are ignored.
    pub blocks: Option<Vec<[u32; 3]>>,
    /// Run blocks on all cores of the host, where the blocks of the kernel are independent.
    pub parallel: bool,
    /// The modeled device.
    pub device: DeviceProperties,
    /// The GPU generation whose Tensor Core arithmetic is modeled.
    pub tensor_core: TensorCore,
    /// Limit of instructions for a warp; beyond it, the kernel is taken as nonterminating.
    pub steps: u64,
    /// Number of resident blocks, for kernels whose blocks wait for each other.
    pub resident: u32,
}

impl Default for Config {
    /// All checks, seed 0, all blocks, an H200: 132 SMs with one block each.
    fn default() -> Self {
        Config {
            seed: 0,
            races: true,
            counters: true,
            blocks: None,
            parallel: true,
            device: DeviceProperties { multiprocessors: 132 },
            tensor_core: TensorCore::Sm90,
            steps: 1 << 26,
            resident: 132,
        }
    }
}

/// Outcome of a launch, besides its memory writes.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Errors first, then notes, each in source order.
    pub findings: Vec<Finding>,
    /// Cost of the launch.
    pub counters: Counters,
    /// Cost of each source line.
    pub lines: Vec<(Site, Counters)>,
    /// Blocks of the grid along x, y and z.
    pub grid: [u32; 3],
    /// Number of blocks that ran.
    pub blocks: u64,
}

impl Outcome {
    /// Returns the first error.
    pub fn error(&self) -> Option<&Finding> {
        self.findings.iter().find(|f| f.severity() == Severity::Error)
    }

    /// Returns the outcome, or its first error as an [`Err`].
    ///
    /// # Errors
    /// [`tegula_core::Error::Finding`] if a finding is an error.
    pub fn ok(self, kernel: &Kernel) -> Result<Self> {
        match self.error() {
            Some(finding) => {
                Err(tegula_core::Error::Finding { kernel: kernel.name().into(), finding: Box::new(finding.clone()) })
            }
            None => Ok(self),
        }
    }
}
