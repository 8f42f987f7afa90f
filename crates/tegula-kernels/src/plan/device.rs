//! The device of a plan and its capabilities.

use tegula_core::element::Type;

/// Hopper's compute capability, the only one with `wgmma`.
pub(crate) const HOPPER: (u32, u32) = (9, 0);
/// The oldest compute capability with kernels.
const MIN_COMPUTE_CAPABILITY: (u32, u32) = (7, 5);

/// The oldest compute capability with instructions for operands of a type.
pub(super) const fn min_compute_capability(ty: Type) -> (u32, u32) {
    match ty {
        Type::BF16 => (8, 0),
        Type::F64 | Type::F32 | Type::F16 | Type::I8 | Type::I32 => MIN_COMPUTE_CAPABILITY,
        // Not operand types.
        Type::U8 | Type::U32 | Type::I64 | Type::U64 | Type::Pred => MIN_COMPUTE_CAPABILITY,
    }
}

/// The device properties that a plan depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Caps {
    /// The CPU.
    Cpu,
    /// The kernel interpreter.
    Interp,
    /// A GPU.
    Gpu {
        /// Compute capability, major and minor.
        compute: (u32, u32),
        /// SMs.
        multiprocessors: u32,
    },
}

impl Caps {
    /// Whether the device runs kernels.
    pub fn runs_kernels(&self) -> bool {
        match *self {
            Caps::Cpu => false,
            Caps::Interp => true,
            Caps::Gpu { compute, .. } => compute >= MIN_COMPUTE_CAPABILITY,
        }
    }
}

/// The GPU properties that the choice of a kernel depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GpuDescription {
    /// Compute capability, major and minor.
    pub compute: (u32, u32),
    /// SMs.
    pub multiprocessors: u32,
}
