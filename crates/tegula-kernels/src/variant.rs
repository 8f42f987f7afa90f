//! A kernel of a launch: one that multiplies, or one that helps.

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
    /// Multiplies.
    Gemm(GemmKernel),
    /// Helps those that multiply.
    Helper(HelperKernel),
}

impl Variant {
    /// The kernel of that name, for row-major matrices: one that multiplies ([`GemmKernel::named`])
    /// or a helper ([`HelperKernel::named`]).
    ///
    /// # Errors
    /// [`Error::KernelOption`](tegula_core::Error::KernelOption) that says what names there are.
    pub fn named(name: &str, ty: Type) -> Result<Self> {
        match HelperKernel::named(name, ty) {
            Some(helper) => Ok(Variant::Helper(helper)),
            None => GemmKernel::named(name, ty).map(Variant::Gemm),
        }
    }

    /// The name: of the kernel, its element type and its parameters.
    pub fn name(&self) -> String {
        self.to_string()
    }

    /// Builds the kernel.
    ///
    /// # Errors
    /// [`Error::KernelOption`](tegula_core::Error::KernelOption) for a shape or a type that the
    /// kernel cannot have.
    pub fn build(&self) -> Result<Kernel> {
        match self {
            Variant::Gemm(kernel) => kernel.build(),
            Variant::Helper(helper) => helper.build(),
        }
    }

    /// Builds the kernel for GPUs since Hopper, where launches overlap: one may begin before those
    /// before it have ended, if they allow it and it waits for them itself. Pipelines do both by
    /// themselves, and so does what adds their parts. Passes before them only allow the next to
    /// begin: they are several blocks a multiprocessor, which would begin where there is room, not
    /// evenly.
    ///
    /// # Errors
    /// As [`Variant::build`].
    pub fn build_overlapping(&self) -> Result<Kernel> {
        let kernel = self.build()?;
        Ok(match self {
            Variant::Helper(helper) if helper.comes_first() => kernel.allowing_next(),
            Variant::Gemm(_) | Variant::Helper(_) => kernel,
        })
    }

    /// Element type of A and B, or of what a helper writes.
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
