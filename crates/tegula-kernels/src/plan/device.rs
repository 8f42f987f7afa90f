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

/// The GPU properties that the choice of a kernel depends on: as the driver reports them, or as
/// [measured](super::calibration). The name of the GPU is not among them.
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
    /// Clock of the SMs under load in megahertz.
    pub clock: u32,
    /// Operations of 16-bit Tensor Cores at the power limit in 10^9 per second, if no other part of
    /// the GPU took power.
    pub power_limited_gflops: u32,
}

/// The SM clock under load at which the costs were fitted, in megahertz.
const FITTED_CLOCK: u32 = 1755;
/// The power limit at which the costs were fitted, in 10^9 operations per second.
const FITTED_POWER_LIMIT: u32 = 815_000;
/// The maximum clock of the same GPUs.
const FITTED_MAX_CLOCK: u32 = 1980;

impl GpuDescription {
    /// H100 SXM5 with 80 GB.
    pub const H100: GpuDescription =
        GpuDescription { memory_bandwidth: 3_352_320, l2_bytes: 52_428_800, ..GpuDescription::H200 };
    /// H200 SXM5, on which most costs were measured.
    pub const H200: GpuDescription = GpuDescription {
        compute: HOPPER,
        multiprocessors: 132,
        memory_bandwidth: 4_814_304,
        l2_bytes: 62_914_560,
        clock: FITTED_CLOCK,
        power_limited_gflops: FITTED_POWER_LIMIT,
    };

    /// A description by a GPU's properties: the maximum clock in megahertz, and the others as in
    /// the fields.
    ///
    /// Under load the clock is the same fraction of the maximum as on an H200, and the power limit
    /// is that of an H200; [calibration](super::calibration) measures both. A bandwidth or clock
    /// that the driver does not report (zero) is that of an H100.
    pub fn of(compute: (u32, u32), multiprocessors: u32, memory_bandwidth: u32, l2_bytes: u32, max_clock: u32) -> Self {
        let known = |value: u32, default: u32| if value == 0 { default } else { value };
        let clock = u64::from(max_clock) * u64::from(FITTED_CLOCK) / u64::from(FITTED_MAX_CLOCK);
        GpuDescription {
            compute,
            multiprocessors,
            memory_bandwidth: known(memory_bandwidth, GpuDescription::H100.memory_bandwidth),
            l2_bytes,
            clock: known(clock.try_into().unwrap_or(u32::MAX), FITTED_CLOCK),
            ..GpuDescription::H200
        }
    }

    /// Bytes per microsecond that kernels read and write at most: `efficiency` of the peak.
    pub(super) fn memory(&self, efficiency: f64) -> f64 {
        f64::from(self.memory_bandwidth) * efficiency
    }

    /// The duration of work on an SM, relative to the clock at which the costs were fitted.
    pub(super) fn clock_scale(&self) -> f64 {
        f64::from(FITTED_CLOCK) / f64::from(self.clock)
    }

    /// Clocks of an SM per microsecond.
    pub(super) fn clocks(&self) -> f64 {
        f64::from(self.clock)
    }

    /// Operations of 16-bit Tensor Cores per microsecond at the power limit.
    pub(super) fn power_limited_flops(&self) -> f64 {
        f64::from(self.power_limited_gflops) * 1e3
    }
}
