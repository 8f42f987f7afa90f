//! The choice of a kernel for a grouped GEMM: groups of rows, each with its own matrix B, in one
//! launch.
//!
//! A partial tile costs as much as a whole one, and each SM computes one tile at a time. So large
//! tiles win for large groups, and small tiles for small or few groups.

use tegula_ir::Wgmma;

use super::device::{Caps, HOPPER};
use super::limits;
use super::problem::Problem;
use crate::{Hopper, Pipeline, Schedule};

/// Pipelines, and the microseconds of a k-step while all SMs are busy. Measured before the model of
/// `hopper`.
const PIPELINES: [(Pipeline, f64); 4] = [
    (of([128, 256], 2, 4), 0.712),
    (of([64, 256], 1, 5), 0.483),
    (of([128, 128], 2, 6), 0.415),
    (of([64, 128], 1, 8), 0.290),
];
/// Microseconds until the first k-step of a tile, and of the store of a tile of 128×256.
const TILE_START: f64 = 0.126;
const STORE: f64 = 1.81;

const fn of([rows, cols]: [u32; 2], consumers: u32, stages: u32) -> Pipeline {
    Pipeline {
        tile: [rows, cols, 64],
        consumers,
        ping_pong: false,
        stages,
        cluster: [1, 1],
        cluster_k: 1,
        clipped: false,
        group_m: 8,
    }
}

/// The kernel for a grouped GEMM, if any. A has the rows of all groups, and the batch is the
/// matrices B: one for each of `sizes`, the rows of the groups.
pub fn grouped_kernel(problem: &Problem, sizes: &[usize], caps: &Caps) -> Option<Hopper> {
    let Problem { ty, m, n, k, layouts: [a, b, c], .. } = *problem;
    let Caps::Gpu(gpu) = caps else { return None };
    if gpu.compute != HOPPER {
        return None;
    }
    let tma_compatible = [a, b, c].map(|layout| layout.aligned_16() && layout.tma_compatible);
    let is_supported = Wgmma::supports(ty)
        && Hopper::accepts(a.order, tma_compatible[0])
        && Hopper::accepts(b.order, tma_compatible[1]);
    // Kernels count tiles in 32 bits.
    let countable = m.div_ceil(64).saturating_add(sizes.len()).saturating_mul(n.div_ceil(128)) < 1 << 31;
    if !is_supported || !countable || m.min(n).min(k) == 0 || limits::check_kernel(problem).is_err() {
        return None;
    }
    let time = |(pipeline, step): &(Pipeline, f64)| {
        let [rows, cols, depth] = pipeline.tile.map(|extent| extent as usize);
        let tiles_m: usize = sizes.iter().map(|size| size.div_ceil(rows)).sum();
        let waves = (tiles_m * n.div_ceil(cols)).div_ceil(gpu.multiprocessors.max(1) as usize);
        let store = STORE * (rows * cols) as f64 / (128.0 * 256.0);
        waves as f64 * (k.div_ceil(depth) as f64 * step + TILE_START + store)
    };
    let (pipeline, _) = PIPELINES.into_iter().min_by(|x, y| time(x).total_cmp(&time(y)))?;
    let (orders, schedule) = ([a.order, b.order, c.order], Schedule::Grouped);
    Some(Hopper { orders, tma_store: tma_compatible[2], schedule, ..Hopper::new(ty, pipeline) })
}

#[cfg(test)]
mod tests {
    use tegula_core::element::{Accuracy, Type};
    use tegula_ir::Order2d;

    use super::*;
    use crate::plan::{GpuDescription, OperandLayout};

    const H200: Caps = Caps::Gpu(GpuDescription::H200);

    fn chosen(
        ty: Type,
        sizes: &[usize],
        [n, k]: [usize; 2],
        layouts: [OperandLayout; 3],
        caps: &Caps,
    ) -> Option<Hopper> {
        let m = sizes.iter().sum();
        grouped_kernel(&Problem { ty, accuracy: Accuracy::Full, m, n, k, batches: sizes.len(), layouts }, sizes, caps)
    }

    #[test]
    fn grouped_kernel_tile_follows_the_group_size() {
        let tile = |sizes: &[usize], n| {
            let layouts = [OperandLayout::new(Order2d::RowMajor, true); 3];
            let hopper = chosen(Type::BF16, sizes, [n, 2048], layouts, &H200).unwrap();
            assert!(hopper.build().is_ok(), "{hopper}");
            [hopper.pipeline.tile[0], hopper.pipeline.tile[1]]
        };
        assert_eq!(tile(&[1024; 64], 4096), [128, 256]);
        assert_eq!(tile(&[16; 64], 4096), [64, 256]);
        assert_eq!(tile(&[256, 0, 0, 1], 1024), [64, 128]);
    }

    #[test]
    fn grouped_kernel_rejects_unsupported_problems() {
        let (row, sizes) = (OperandLayout::new(Order2d::RowMajor, true), [100; 4]);
        let one = |ty, layouts, caps: &Caps| chosen(ty, &sizes, [256, 256], layouts, caps);
        let old = Caps::Gpu(GpuDescription { compute: (8, 0), multiprocessors: 108, ..GpuDescription::H200 });
        assert!(one(Type::F16, [row; 3], &H200).is_some());
        assert!(one(Type::F32, [row; 3], &H200).is_none());
        assert!([old, Caps::Interp, Caps::Cpu].iter().all(|caps| one(Type::F16, [row; 3], caps).is_none()));
        let odd = OperandLayout::new(Order2d::RowMajor, false);
        assert!(one(Type::F16, [odd, row, row], &H200).is_none());
        assert!(one(Type::F16, [row, odd, row], &H200).is_none());
        assert!(one(Type::F16, [row, row, odd], &H200).is_some_and(|hopper| !hopper.tma_store));
        let col_major = OperandLayout::new(Order2d::ColMajor, true);
        assert!(one(Type::F16, [col_major, col_major, col_major], &H200).is_some());
    }
}
