//! A launch: buffers, arguments, configuration, outcome.

use std::fmt;

use tegula_core::diagnostic::{FindingKind, Severity};
use tegula_interp::Counters;

use crate::ast::ScalarType;
use crate::atomic_sums::AtomicSums;

/// A buffer in global memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Buffer {
    /// Name in messages.
    pub name: String,
    /// Type of an element.
    pub ty: ScalarType,
    /// Extents of a row-major array, outermost first.
    pub shape: Vec<u64>,
    /// The elements, little-endian. A launch writes its results here.
    pub bytes: Vec<u8>,
    /// Whether the bytes are initialized before the launch.
    pub initialized: bool,
}

impl Buffer {
    /// A buffer of initialized elements.
    pub fn new(name: impl Into<String>, ty: ScalarType, shape: impl Into<Vec<u64>>, bytes: Vec<u8>) -> Self {
        Buffer { name: name.into(), ty, shape: shape.into(), bytes, initialized: true }
    }

    /// A vector of initialized `f32` elements.
    pub fn f32(name: impl Into<String>, values: &[f32]) -> Self {
        let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        Buffer::new(name, ScalarType::F32, [values.len() as u64], bytes)
    }

    /// An uninitialized buffer: a read before a write is an error.
    pub fn uninitialized(name: impl Into<String>, ty: ScalarType, shape: impl Into<Vec<u64>>) -> Self {
        let shape: Vec<u64> = shape.into();
        let elements = shape.iter().fold(1u64, |n, &extent| n.saturating_mul(extent));
        let bytes = vec![0; elements.saturating_mul(u64::from(ty.size())) as usize];
        Buffer { initialized: false, ..Buffer::new(name, ty, shape, bytes) }
    }

    /// The elements as `f32`, if that is their type.
    pub fn to_f32(&self) -> Option<Vec<f32>> {
        let value = |bytes: &[u8]| f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        (self.ty == ScalarType::F32).then(|| self.bytes.chunks_exact(4).map(value).collect())
    }
}

/// An argument of a kernel.
#[derive(Clone, Debug, PartialEq)]
pub enum Argument {
    /// The address of a buffer, plus an offset.
    Buffer {
        /// Index into the buffers of the launch.
        index: usize,
        /// Bytes added to the address.
        offset: i64,
    },
    /// The bytes of a scalar or of a structure, little-endian.
    Value(Vec<u8>),
}

impl Argument {
    /// The address of a buffer.
    pub fn buffer(index: usize) -> Self {
        Argument::Buffer { index, offset: 0 }
    }

    /// A 32-bit integer.
    pub fn i32(value: i32) -> Self {
        Argument::Value(value.to_le_bytes().to_vec())
    }

    /// A 32-bit floating-point number.
    pub fn f32(value: f32) -> Self {
        Argument::Value(value.to_le_bytes().to_vec())
    }
}

/// A value to set in a `__device__` or `__constant__` variable.
#[derive(Clone, Debug, PartialEq)]
pub struct VariableValue {
    /// Name of the variable in the PTX.
    pub name: String,
    /// The first bytes of the variable. The remaining bytes keep their initial value.
    pub bytes: Vec<u8>,
}

/// A launch of a kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct Launch {
    /// Blocks along x, y and z.
    pub grid: [u32; 3],
    /// Threads of a block along x, y and z.
    pub block: [u32; 3],
    /// Bytes of dynamic shared memory.
    pub shared: u32,
    /// One argument for each parameter, in order.
    pub arguments: Vec<Argument>,
    /// Variables of the module that are set before the launch.
    pub variables: Vec<VariableValue>,
}

impl Launch {
    /// A launch without dynamic shared memory.
    pub fn new(grid: [u32; 3], block: [u32; 3], arguments: Vec<Argument>) -> Self {
        Launch { grid, block, shared: 0, arguments, variables: Vec::new() }
    }
}

/// Configuration of a run.
#[derive(Clone, Debug)]
pub struct Config {
    /// Selects the schedule: the order of blocks, warps and atomic operations, and the time at
    /// which asynchronous copies complete. Seed 0 is the natural order.
    pub seed: u64,
    /// Detect races and uninitialized reads.
    pub checks: bool,
    /// Count requests, sectors, wavefronts and instructions.
    pub counters: bool,
    /// Run independent blocks on all cores of the host.
    pub parallel: bool,
    /// Maximum number of instructions of a warp. A kernel that exceeds it is reported as endless,
    /// and the run ends.
    pub steps: u64,
    /// SMs of the modeled GPU. They limit the number of resident blocks, which can wait for each
    /// other.
    pub multiprocessors: u32,
}

impl Default for Config {
    /// All checks, seed 0, an H200: 132 SMs.
    fn default() -> Self {
        Config { seed: 0, checks: true, counters: true, parallel: true, steps: 1 << 26, multiprocessors: 132 }
    }
}

/// A line of a source file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceLine {
    /// Path of the file as in the PTX (`.file`); empty for a line of the PTX text.
    pub file: String,
    /// Line, from 1.
    pub line: u32,
    /// The line of the call, if the code was inlined.
    pub inlined_at: Option<Box<SourceLine>>,
}

impl SourceLine {
    /// The line of `file` to which this line is attributed: the line itself, or the innermost
    /// inlined call in `file`. If neither is in `file`, the line itself.
    pub fn in_file(&self, file: &str) -> &SourceLine {
        let mut calls = std::iter::successors(Some(self), |line| line.inlined_at.as_deref());
        calls.find(|line| line.file == file).unwrap_or(self)
    }
}

impl fmt::Display for SourceLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.file.as_str() {
            "" => write!(f, "line {} of the PTX", self.line)?,
            file => write!(f, "{file}:{}", self.line)?,
        }
        // Only the outermost call, which is in the kernel; calls between are mostly in headers.
        let calls = std::iter::successors(self.inlined_at.as_deref(), |call| call.inlined_at.as_deref());
        match calls.last() {
            Some(call) if call.file == self.file => write!(f, " (inlined at line {})", call.line),
            Some(call) => write!(f, " (inlined at {}:{})", call.file, call.line),
            None => Ok(()),
        }
    }
}

/// An error in the kernel, or a note about it.
#[derive(Clone, Debug, PartialEq)]
pub struct Diagnostic {
    /// Its kind, which determines its severity.
    pub kind: FindingKind,
    /// What happened, with values, and what to do.
    pub message: String,
    /// The block of the first occurrence.
    pub block: [u32; 3],
    /// The threads involved in the first occurrence, as coordinates x, y and z.
    pub threads: Vec<[u32; 3]>,
    /// The memory element, such as `C[70]`, if the diagnostic is about one.
    pub element: Option<String>,
    /// Source lines: that of the access, then that of the other access of a race.
    pub lines: Vec<SourceLine>,
    /// Number of occurrences.
    pub times: u64,
}

impl Diagnostic {
    /// Its severity.
    pub fn severity(&self) -> Severity {
        self.kind.severity()
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind.name(), self.message)
    }
}

/// Outcome of a launch, besides its results in the buffers.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Errors, then notes; each sorted by kind and line.
    pub diagnostics: Vec<Diagnostic>,
    /// Cost of the launch.
    pub counters: Counters,
    /// Cost of each source line.
    pub lines: Vec<(SourceLine, Counters)>,
    /// Output of `printf`; each line begins with block and thread.
    pub output: String,
    /// Number of thread instructions executed, with moves and control flow. The field
    /// `lane_instructions` of the counters is without them.
    pub thread_instructions: u64,
    /// Whether all blocks ran to their end.
    pub completed: bool,
    /// The first buffer whose results depend on the seed, and the offset of a seed with another
    /// result; set by [`Kernel::check`](crate::Kernel::check).
    pub seed_dependent: Option<(String, u64)>,
    /// Sums by atomic operations, whose bits depend on the order of the threads.
    pub atomic_sums: AtomicSums,
    /// The first instruction whose result can differ from the hardware's in its last bits.
    pub approximate: Option<String>,
}

impl Outcome {
    /// The first error.
    pub fn error(&self) -> Option<&Diagnostic> {
        self.diagnostics.iter().find(|diagnostic| diagnostic.severity() == Severity::Error)
    }
}

/// The reason why a launch cannot run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kernel}: {message}")]
pub struct LaunchError {
    /// The kernel.
    pub kernel: String,
    /// What is wrong, the value, and the limit.
    pub message: String,
}
