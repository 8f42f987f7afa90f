//! The limits on the extents of a product.
//!
//! | | CPU | kernels: a GPU, the interpreter |
//! |---|---|---|
//! | m, n, k, batch | any addressable | [`EXTENT`] each |
//! | elements of a matrix | `isize::MAX` | `isize::MAX` |
//! | tiles along m, batch | any | any |
//! | multiply-adds | 2⁶⁰ | any |
//! | memory | free memory | device memory |
//!
//! * Kernels have 32-bit indices, which may run one tile past the end, and 64-bit strides.
//! * On the CPU a broadcast element counts once for each of its indices.
//! * Beyond the 65,535 blocks of a grid along y and z, each block computes several tiles.
//! * The CPU checks free memory before any copy or computation. Device memory is allocated before
//!   any copy.

use tegula_core::error::{Error, Result};

use super::problem::Problem;

/// The maximum extent of a matrix in a kernel: 2³¹ − 1025.
pub const EXTENT: usize = tegula_ir::launch::MAX_EXTENT;

/// Checks the extents of a product for a kernel.
///
/// # Errors
/// [`Error::Shape`] with the extent that is too large.
pub fn check_kernel(problem: &Problem) -> Result<()> {
    let Problem { m, n, k, batches, .. } = *problem;
    if m == 0 || n == 0 || batches == 0 {
        // Nothing is launched.
        return Ok(());
    }
    match [("m", m), ("n", n), ("k", k), ("the batch", batches)].into_iter().find(|(_, extent)| *extent > EXTENT) {
        None => Ok(()),
        Some((name, extent)) => Err(Error::Shape(format!(
            "{name} is {extent}; the limit of kernels is {EXTENT}. Use the CPU (--device cpu) or split the product"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use tegula_core::element::Type;

    use super::*;
    use crate::plan::{Caps, GpuDescription, choose};

    #[test]
    fn check_kernel_limits_extents_except_on_the_cpu() {
        let problem = |m, n, k, batches| {
            let (accuracy, layouts) = Default::default();
            Problem { ty: Type::F32, accuracy, m, n, k, batches, layouts }
        };
        let large = EXTENT + 1;
        for caps in [Caps::Interp, Caps::Gpu(GpuDescription::H200)] {
            assert!(choose(&problem(EXTENT, 1, EXTENT, 1), &caps).is_ok());
            for (name, sizes) in [
                ("m is", problem(large, 1, 1, 1)),
                ("n is", problem(1, large, 1, 1)),
                ("k is", problem(1, 1, large, 1)),
                ("batch is", problem(1, 1, 1, large)),
            ] {
                let why = choose(&sizes, &caps).unwrap_err().to_string();
                assert!(why.contains(name) && why.contains("2147482624") && why.contains("2147482623"), "{why}");
            }
            assert!(choose(&problem(large, 0, large, large), &caps).is_ok());
        }
        assert!(choose(&problem(large, large, large, large), &Caps::Cpu).is_ok());
    }
}
