//! All variants of the built-in kernels that are assembled.

use std::collections::HashSet;

use tegula_ir::ptx::Image;
use tegula_ir::{Kernel, check, ptx};
use tegula_kernels::registry::FAMILIES;
use tegula_kernels::{HelperKernel, Variant};

/// Validates and prints a kernel.
pub fn print(kernel: Kernel) -> Result<Image, String> {
    check(kernel).and_then(|checked| ptx::print(&checked)).map_err(|e| e.to_string())
}

/// The variants to assemble: the selection of each family, and the helper kernels.
pub fn all() -> Vec<Variant> {
    let mut variants: Vec<Variant> = HelperKernel::assembled().into_iter().map(Variant::from).collect();
    for family in FAMILIES {
        let kernels = (family.assembled)();
        assert!(!kernels.is_empty(), "{:?} has no kernels to assemble", family.names[0].name);
        variants.extend(kernels.into_iter().map(Variant::from));
    }
    let mut seen = HashSet::new();
    variants.retain(|variant| seen.insert(*variant));
    variants
}

/// Whether a variant is also assembled for the benchmarked GPU.
pub fn measured(variant: &Variant) -> bool {
    match variant {
        Variant::Gemm(kernel) => kernel.is_measured(),
        Variant::Helper(_) => true,
    }
}
