//! The kernel of a launch: a GEMM kernel or a helper.

use std::fmt;

use tegula_core::element::Type;
use tegula_core::error::Result;
use tegula_ir::Kernel;

use crate::family::GemmVariant;
use crate::helper::HelperKernel;
use crate::registry::GemmKernel;

/// A kernel and its configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Variant {
    /// A GEMM kernel.
    Gemm(GemmKernel),
    /// A kernel before or after a GEMM kernel.
    Helper(HelperKernel),
}

impl Variant {
    /// Parses a name, for row-major matrices: of a GEMM kernel ([`GemmKernel::named`]) or a helper
    /// ([`HelperKernel::named`]).
    ///
    /// # Errors
    /// [`Error::KernelOption`](tegula_core::Error::KernelOption) with the known names.
    pub fn named(name: &str, ty: Type) -> Result<Self> {
        match HelperKernel::named(name, ty) {
            Some(helper) => Ok(Variant::Helper(helper)),
            None => GemmKernel::named(name, ty).map(Variant::Gemm),
        }
    }

    /// The name: kernel, element type and parameters.
    pub fn name(&self) -> String {
        self.to_string()
    }

    /// Builds the kernel.
    ///
    /// # Errors
    /// [`Error::KernelOption`](tegula_core::Error::KernelOption) for an invalid configuration, or
    /// an unsupported type.
    pub fn build(&self) -> Result<Kernel> {
        match self {
            Variant::Gemm(kernel) => kernel.build(),
            Variant::Helper(helper) => helper.build(),
        }
    }

    /// Builds the kernel for overlapping launches (programmatic dependent launch, since Hopper).
    ///
    /// A launch may start before earlier ones have ended, if they signal it
    /// (`griddepcontrol.launch_dependents`) and it waits for them (`griddepcontrol.wait`).
    /// Pipelined kernels do both, and so does the reduction of their partial sums. Helper kernels
    /// before them only signal. They have several blocks per SM, which an early start would crowd
    /// on the first SMs to become free.
    ///
    /// # Errors
    /// As [`Variant::build`].
    pub fn build_with_griddep(&self) -> Result<Kernel> {
        let kernel = self.build()?;
        Ok(if self.only_signals() { kernel.with_griddep_launch_dependents() } else { kernel })
    }

    /// Whether the kernel differs for overlapping launches: it signals, but does not wait.
    pub fn only_signals(&self) -> bool {
        matches!(self, Variant::Helper(helper) if helper.runs_before_gemm())
    }

    /// Element type of A and B, or of a helper's output.
    pub fn ty(&self) -> Type {
        match self {
            Variant::Gemm(kernel) => kernel.ty(),
            Variant::Helper(helper) => helper.ty(),
        }
    }

    /// Rows and columns of a tile of C.
    pub fn tile(&self) -> [u32; 2] {
        match self {
            Variant::Gemm(kernel) => kernel.tile(),
            Variant::Helper(helper) => helper.tile(),
        }
    }
}

impl<K: Into<GemmKernel>> From<K> for Variant {
    fn from(kernel: K) -> Self {
        Variant::Gemm(kernel.into())
    }
}

impl From<HelperKernel> for Variant {
    fn from(helper: HelperKernel) -> Self {
        Variant::Helper(helper)
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Variant::Gemm(kernel) => kernel.fmt(f),
            Variant::Helper(helper) => helper.fmt(f),
        }
    }
}
