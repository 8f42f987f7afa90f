//! Which kernel makes the products of groups of rows, each with a matrix B of its own, in one launch: where there are such kernels.
//!
//! A tile counts as whole whether all of its rows are there or not, and as many are made at a time as there are multiprocessors. So large tiles win
//! where groups are large; where they are small, or few, small ones do.

use tegula_ir::Wgmma;

use super::device::{Caps, HOPPER};
use super::limits;
use super::problem::Problem;
use crate::{Hopper, Pipeline, Schedule};

/// Tiles, and the microseconds that a step of one takes while all multiprocessors have theirs copied, from measurements before those of `hopper`.
const PIPELINES: [(Pipeline, f64); 4] = [
    (of([128, 256], 2, 4), 0.712),
    (of([64, 256], 1, 5), 0.483),
    (of([128, 128], 2, 6), 0.415),
    (of([64, 128], 1, 8), 0.290),
];
/// Microseconds until a tile is begun, and until one of 128×256 is stored.
const BEGIN: f64 = 0.126;
const STORE: f64 = 1.81;

const fn of([rows, cols]: [u32; 2], consumers: u32, stages: u32) -> Pipeline {
    Pipeline { tile: [rows, cols, 64], consumers, ping_pong: false, stages, cluster: [1, 1], split: 1, group: 8 }
}

/// The kernel that makes them all at once, if there is one: A has the rows of all groups, the batch is of as many matrices B as there are `sizes`.
pub fn of_groups(problem: &Problem, sizes: &[usize], caps: &Caps) -> Option<Hopper> {
    let Problem { ty, m, n, k, lies: [a, b, c], .. } = *problem;
    let &Caps::Gpu { compute: HOPPER, multiprocessors } = caps else { return None };
    let tiled = [a, b, c].map(|lie| lie.vectors && lie.forwards);
    let taken = Wgmma::multiplies(ty) && Hopper::takes(a.order, tiled[0]) && Hopper::takes(b.order, tiled[1]);
    // Kernels count tiles in 32 bits.
    let countable = m.div_ceil(64).saturating_add(sizes.len()).saturating_mul(n.div_ceil(128)) < 1 << 31;
    if !taken || !countable || m.min(n).min(k) == 0 || limits::check_kernel(problem).is_err() {
        return None;
    }
    let time = |(pipeline, step): &(Pipeline, f64)| {
        let [rows, cols, depth] = pipeline.tile.map(|extent| extent as usize);
        let below: usize = sizes.iter().map(|size| size.div_ceil(rows)).sum();
        let waves = (below * n.div_ceil(cols)).div_ceil(multiprocessors.max(1) as usize);
        let store = STORE * (rows * cols) as f64 / (128.0 * 256.0);
        waves as f64 * (k.div_ceil(depth) as f64 * step + BEGIN + store)
    };
    let (pipeline, _) = PIPELINES.into_iter().min_by(|x, y| time(x).total_cmp(&time(y)))?;
    let (orders, schedule) = ([a.order, b.order, c.order], Schedule::Groups);
    Some(Hopper { orders, stores_tiles: tiled[2], schedule, ..Hopper::new(ty, pipeline) })
}

#[cfg(test)]
mod tests {
    use tegula_core::element::{Accuracy, Type};
    use tegula_ir::Order2d;

    use super::*;
    use crate::plan::Lie;

    const H200: Caps = Caps::Gpu { compute: (9, 0), multiprocessors: 132 };

    fn chosen(ty: Type, sizes: &[usize], [n, k]: [usize; 2], lies: [Lie; 3], caps: &Caps) -> Option<Hopper> {
        let m = sizes.iter().sum();
        of_groups(&Problem { ty, accuracy: Accuracy::Full, m, n, k, batches: sizes.len(), lies }, sizes, caps)
    }

    #[test]
    fn tiles_are_as_large_as_groups() {
        let tile = |sizes: &[usize], n| {
            let lies = [Lie::new(Order2d::RowMajor, true); 3];
            let hopper = chosen(Type::BF16, sizes, [n, 2048], lies, &H200).unwrap();
            assert!(hopper.build().is_ok(), "{hopper}");
            [hopper.pipeline.tile[0], hopper.pipeline.tile[1]]
        };
        assert_eq!(tile(&[1024; 64], 4096), [128, 256]);
        assert_eq!(tile(&[16; 64], 4096), [64, 256]);
        assert_eq!(tile(&[256, 0, 0, 1], 1024), [64, 128]);
    }

    #[test]
    fn others_are_made_one_by_one() {
        let (row, sizes) = (Lie::new(Order2d::RowMajor, true), [100; 4]);
        let one = |ty, lies, caps: &Caps| chosen(ty, &sizes, [256, 256], lies, caps);
        let old = Caps::Gpu { compute: (8, 0), multiprocessors: 108 };
        assert!(one(Type::F16, [row; 3], &H200).is_some());
        assert!(one(Type::F32, [row; 3], &H200).is_none());
        assert!([old, Caps::Interp, Caps::Cpu].iter().all(|caps| one(Type::F16, [row; 3], caps).is_none()));
        let odd = Lie::new(Order2d::RowMajor, false);
        assert!(one(Type::F16, [odd, row, row], &H200).is_none());
        assert!(one(Type::F16, [row, odd, row], &H200).is_none());
        assert!(one(Type::F16, [row, row, odd], &H200).is_some_and(|hopper| !hopper.stores_tiles));
        let turned = Lie::new(Order2d::ColMajor, true);
        assert!(one(Type::F16, [turned, turned, turned], &H200).is_some());
    }
}
