//! How large a product may be.
//!
//! | | on the CPU | in kernels: a GPU, the interpreter |
//! |---|---|---|
//! | m, n, k, batch | any whose elements can be addressed | [`EXTENT`] each: indices are 32-bit and may run one tile past the end |
//! | elements of a matrix | `isize::MAX`, repeated ones counted as often as they are | `isize::MAX`: strides are 64-bit |
//! | tiles along m, matrices of the batch | any | any: beyond the 65,535 blocks that a grid has along y and z, each block takes several |
//! | multiply-adds | 2⁶⁰ | any |
//! | memory | what is free, asked before anything is copied or computed | what the device gives, taken before anything is copied |

use tegula_core::error::{Error, Result};

use super::problem::Problem;

/// The greatest extent of a matrix in a kernel: 2³¹ − 1025.
pub const EXTENT: usize = tegula_ir::launch::MAX_EXTENT;

/// Checks the extents of a product that a kernel is to make.
///
/// # Errors
/// [`Error::Shape`] naming the extent that is too large.
pub fn check_kernel(problem: &Problem) -> Result<()> {
    let Problem { m, n, k, batches, .. } = *problem;
    if m == 0 || n == 0 || batches == 0 {
        // Nothing is launched.
        return Ok(());
    }
    match [("m", m), ("n", n), ("k", k), ("the batch", batches)].into_iter().find(|(_, extent)| *extent > EXTENT) {
        None => Ok(()),
        Some((name, extent)) => Err(Error::Shape(format!(
            "{name} is {extent}, kernels index up to {EXTENT}; use the CPU (--device cpu) or multiply in parts"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use tegula_core::element::Type;

    use super::*;
    use crate::plan::{Caps, choose};

    #[test]
    fn kernels_have_limits_and_the_cpu_has_not() {
        let problem = |m, n, k, batches| {
            let (accuracy, lies) = Default::default();
            Problem { ty: Type::F32, accuracy, m, n, k, batches, lies }
        };
        let large = EXTENT + 1;
        for caps in [Caps::Interp, Caps::Gpu { compute: (9, 0), multiprocessors: 132 }] {
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
