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
    Gpu(GpuDescription),
}

impl Caps {
    /// Whether the device runs kernels.
    pub fn runs_kernels(&self) -> bool {
        match *self {
            Caps::Cpu => false,
            Caps::Interp => true,
            Caps::Gpu(gpu) => gpu.compute >= MIN_COMPUTE_CAPABILITY,
        }
    }
}

/// The GPU properties that the choice of a kernel depends on, as the driver reports them. The name
/// of the GPU is not among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GpuDescription {
    /// Compute capability, major and minor.
    pub compute: (u32, u32),
    /// SMs.
    pub multiprocessors: u32,
    /// Peak bandwidth of device memory in megabytes (10^6) per second.
    pub memory_bandwidth: u32,
    /// Bytes of the L2 cache.
    pub l2_bytes: u32,
}

impl GpuDescription {
    /// H100 SXM5 with 80 GB.
    pub const H100: GpuDescription =
        GpuDescription { compute: HOPPER, multiprocessors: 132, memory_bandwidth: 3_352_320, l2_bytes: 52_428_800 };
    /// H200 SXM5, on which most costs were measured.
    pub const H200: GpuDescription =
        GpuDescription { compute: HOPPER, multiprocessors: 132, memory_bandwidth: 4_916_736, l2_bytes: 62_914_560 };

    /// Bytes per microsecond that kernels read and write at most: `efficiency` of the peak.
    pub(super) fn memory(&self, efficiency: f64) -> f64 {
        f64::from(self.memory_bandwidth) * efficiency
    }
}
