//! The device that a plan is for: its kind and what it can do.

/// The GPU with matrix units of warpgroups; none after it has them.
pub(super) const HOPPER: (u32, u32) = (9, 0);
/// The oldest GPU for which plain kernels are printed.
const OLDEST: (u32, u32) = (7, 5);

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
