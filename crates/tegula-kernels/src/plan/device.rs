//! The device that a plan is for: its kind and what it can do.

use tegula_core::element::Type;

/// The GPU with matrix units of warpgroups; none after it has them.
pub(crate) const HOPPER: (u32, u32) = (9, 0);
/// The oldest GPU for which plain kernels are printed.
const OLDEST: (u32, u32) = (7, 5);

/// The oldest GPU whose instructions take operands of a type.
pub(super) const fn oldest(ty: Type) -> (u32, u32) {
    match ty {
        Type::BF16 => (8, 0),
        Type::F64 | Type::F32 | Type::F16 | Type::I8 | Type::I32 => OLDEST,
        // Products have no such operands.
        Type::U8 | Type::U32 | Type::I64 | Type::U64 | Type::Pred => OLDEST,
    }
}

/// What a device can do, as far as a plan depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Caps {
    /// The processor.
    Cpu,
    /// The interpreter.
    Interp,
    /// A GPU of this compute capability.
    Gpu {
        /// Major and minor.
        compute: (u32, u32),
        /// Multiprocessors.
        multiprocessors: u32,
    },
}

impl Caps {
    /// Whether kernels run there.
    pub fn runs_kernels(&self) -> bool {
        match *self {
            Caps::Cpu => false,
            Caps::Interp => true,
            Caps::Gpu { compute, .. } => compute >= OLDEST,
        }
    }
}

/// A GPU, as far as the choice of a kernel depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GpuDescription {
    /// Compute capability, major and minor.
    pub compute: (u32, u32),
    /// Multiprocessors.
    pub multiprocessors: u32,
}
