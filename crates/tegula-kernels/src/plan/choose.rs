//! The choice of a [`Plan`] for a problem and a device.

use tegula_core::error::{Error, Result};

use super::device::{Caps, GpuDescription, min_compute_capability};
use super::legalize::Recipe;
use super::limits;
use super::problem::Problem;
use crate::plain::{Plain, PlainKind};
use crate::registry::GemmKernel;

/// The plan of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Plan {
    /// The CPU product.
    Cpu,
    /// The kernels of a recipe, for a GPU or the interpreter.
    Gpu(Recipe),
}

/// Chooses a plan from the families in the [registry](crate::registry).
///
/// The least predicted time decides, or the family's order if no time can be predicted. The
/// interpreter, and a GPU for which no family has candidates, get a plain kernel, whose only choice
/// is the tile.
///
/// On an H200 (all three types of the tiling articles, 1024³ to 8192³) tile 32 is 7 to 15 % faster
/// than 16 throughout. A tile mostly out of bounds wastes threads. So the tile is the smallest of
/// 8, 16 and 32 that covers the shorter side of C, or 32 for longer sides.
///
/// # Errors
/// [`Error::Unsupported`] for a GPU older than the kernels need, [`Error::Shape`] beyond their
/// [limits].
pub fn choose(problem: &Problem, caps: &Caps) -> Result<Plan> {
    check(problem, caps)?;
    if *caps == Caps::Cpu {
        return Ok(Plan::Cpu);
    }
    let side = problem.m.min(problem.n);
    let tile = if side > 16 {
        32
    } else if side > 8 {
        16
    } else {
        8
    };
    let fastest = match *caps {
        Caps::Gpu(gpu) => GemmKernel::fastest(problem, &gpu),
        _ => None,
    };
    let plain = || Plain::new(PlainKind::Tiled, problem.ty, tile).into();
    let recipe = fastest.map_or_else(plain, |candidate| candidate.recipe);
    // Plain and heuristic recipes are not adapted to the layouts yet.
    Ok(Plan::Gpu(recipe.legalize(problem.layouts)))
}

/// Checks that the device has kernels for the problem.
///
/// # Errors
/// As [`choose`].
pub(super) fn check(problem: &Problem, caps: &Caps) -> Result<()> {
    match *caps {
        Caps::Cpu => Ok(()),
        Caps::Gpu(GpuDescription { compute, .. }) if !caps.runs_kernels() => Err(Error::Unsupported {
            what: "a product".into(),
            ty: problem.ty,
            device: format!("a GPU of compute capability {}.{} (7.5 is the oldest)", compute.0, compute.1),
        }),
        Caps::Gpu(GpuDescription { compute, .. }) if compute < min_compute_capability(problem.ty) => {
            let (ty, min) = (problem.ty, min_compute_capability(problem.ty));
            let needs = format!("({ty} needs {}.{})", min.0, min.1);
            let device = format!("a GPU of compute capability {}.{} {needs}", compute.0, compute.1);
            Err(Error::Unsupported { what: "a product".into(), ty, device })
        }
        Caps::Gpu(_) | Caps::Interp => limits::check_kernel(problem),
    }
}

#[cfg(test)]
mod tests {
    use tegula_core::element::{Accuracy, Type};
    use tegula_ir::Order2d;

    use super::super::candidates::candidates;
    use super::super::problem::OperandLayout;
    use super::*;
    use crate::GemmVariant;

    #[test]
    fn choose_without_candidates_covers_the_shorter_side_of_c() {
        let layouts = [OperandLayout::new(Order2d::RowMajor, true); 3];
        let tile = |m, n| {
            let (ty, accuracy) = (Type::F16, Accuracy::Full);
            let problem = Problem { ty, accuracy, m, n, k: 64, batches: 1, layouts };
            match choose(
                &problem,
                &Caps::Gpu(GpuDescription { compute: (7, 5), multiprocessors: 40, ..GpuDescription::H200 }),
            )
            .unwrap()
            {
                Plan::Gpu(recipe) => recipe.kernel.tile(),
                Plan::Cpu => [0; 2],
            }
        };
        assert_eq!((tile(4096, 4096), tile(17, 4096)), ([32; 2], [32; 2]));
        assert_eq!((tile(16, 4096)[0], tile(4096, 1)[0]), (16, 1));
        let (ty, accuracy) = (Type::F32, Accuracy::Full);
        let problem = Problem { ty, accuracy, m: 1, n: 1, k: 1, batches: 1, layouts };
        assert_eq!(choose(&problem, &Caps::Cpu).unwrap(), Plan::Cpu);
        assert!(
            choose(
                &problem,
                &Caps::Gpu(GpuDescription { compute: (6, 1), multiprocessors: 20, ..GpuDescription::H200 })
            )
            .is_err()
        );
    }

    #[test]
    fn choose_tf32_only_on_request() {
        let chosen = |ty, accuracy, side, aligned_16| {
            let layouts = [OperandLayout::new(Order2d::RowMajor, aligned_16); 3];
            let problem = Problem { ty, accuracy, m: side, n: side, k: 4096, batches: 1, layouts };
            let all = candidates(&problem, &GpuDescription::H200);
            assert!(accuracy == Accuracy::Tf32 || all.iter().all(|(recipe, _)| !recipe.name().contains("tf32")));
            match choose(&problem, &Caps::Gpu(GpuDescription::H200)).unwrap() {
                Plan::Gpu(recipe) => recipe.name().starts_with("tf32_f32_"),
                Plan::Cpu => false,
            }
        };
        for side in [8, 100, 1024, 8192] {
            assert!(!chosen(Type::F32, Accuracy::Full, side, true));
            assert_eq!(chosen(Type::F32, Accuracy::Tf32, side, true), side >= 1024, "{side}");
            chosen(Type::F32, Accuracy::Tf32, side, false);
            assert!(!chosen(Type::F16, Accuracy::Full, side, true));
        }
    }

    #[test]
    fn choose_large_squares_take_the_fastest_measured_tiles() {
        for (ty, side, fastest) in [
            (Type::F64, 2048, "dmma16x16_f64_128x128x32_"),
            (Type::F64, 4096, "dmma16x16_f64_128x128x32_"),
            (Type::F32, 2048, "register_f32_128x256x8_"),
            (Type::F32, 4096, "register_f32_128x256x8_"),
            (Type::F16, 2048, "hopper_f16_128x256x64_consumers2_stages4_raster16"),
            (Type::F16, 8192, "hopper_f16_128x168x64_consumers2_stages5_pingpong_"),
            (Type::I32, 8192, "limbs_i32_64x128x32_"),
        ] {
            let layouts = [OperandLayout::new(Order2d::RowMajor, true); 3];
            let problem = Problem { ty, accuracy: Accuracy::Full, m: side, n: side, k: side, batches: 1, layouts };
            match choose(&problem, &Caps::Gpu(GpuDescription::H200)).unwrap() {
                Plan::Gpu(recipe) => assert!(recipe.name().starts_with(fastest), "{}", recipe.name()),
                Plan::Cpu => panic!("a GPU runs kernels"),
            }
        }
    }
}
