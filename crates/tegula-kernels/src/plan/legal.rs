//! The legal candidates for a product, which `tegula tune` times.

use super::choose::choose;
use super::device::Caps;
use super::legalize::Candidate;
use super::problem::Problem;
use crate::plain::{Plain, PlainKind};
use crate::registry::GemmKernel;

/// The distinct legal recipes for a product on a GPU. Those without a predicted time are ordered by
/// promise. Empty for other devices, and for problems that [`choose`](super::choose()) rejects.
pub fn legal(problem: &Problem, caps: &Caps) -> Vec<Candidate> {
    let Caps::Gpu(gpu) = caps else { return Vec::new() };
    if choose(problem, caps).is_err() {
        return Vec::new();
    }
    let mut all = GemmKernel::candidates(problem, gpu);
    if all.is_empty() {
        let plain = [32, 16, 8].map(|tile| Plain::new(PlainKind::Tiled, problem.ty, tile).into());
        all.extend(plain.map(|recipe| Candidate { recipe, microseconds: None }));
    }
    all.iter_mut().for_each(|candidate| candidate.recipe = candidate.recipe.legalize(problem.layouts));
    let mut seen = rustc_hash::FxHashSet::default();
    all.retain(|candidate| seen.insert(candidate.recipe));
    all
}

#[cfg(test)]
mod tests {
    use tegula_core::element::Type;
    use tegula_ir::Order2d;

    use super::*;
    use crate::plan::{GpuDescription, OperandLayout, Plan, choose};

    #[test]
    fn legal_contains_the_choice_and_names_are_unique() {
        let orders = [Order2d::RowMajor, Order2d::ColMajor, Order2d::Strided];
        let sizes = [[1, 1000, 77], [4096, 16, 64], [17, 17, 5000], [300, 300, 300], [4096, 4100, 512], [5, 5, 0]];
        for ty in [Type::F64, Type::F32, Type::F16, Type::I32, Type::I8] {
            for (order, aligned_16) in orders.into_iter().flat_map(|order| [(order, false), (order, true)]) {
                for ([m, n, k], compute) in sizes.into_iter().flat_map(|size| [(size, (9, 0)), (size, (7, 5))]) {
                    let layouts = [
                        OperandLayout::new(order, aligned_16),
                        OperandLayout::new(Order2d::RowMajor, aligned_16),
                        OperandLayout::new(order, aligned_16),
                    ];
                    let problem = Problem { ty, accuracy: Default::default(), m, n, k, batches: 1, layouts };
                    let caps = Caps::Gpu(GpuDescription { compute, ..GpuDescription::H200 });
                    let all = legal(&problem, &caps);
                    let Plan::Gpu(chosen) = choose(&problem, &caps).unwrap() else { panic!("a GPU runs kernels") };
                    assert!(all.iter().any(|candidate| candidate.recipe == chosen), "{problem:?}: {chosen:?}");
                    let mut names: Vec<_> = all.iter().map(|candidate| candidate.recipe.name()).collect();
                    names.sort();
                    assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{problem:?}: {names:?}");
                }
            }
        }
    }

    #[test]
    fn legal_is_empty_for_other_devices_and_rejected_products() {
        let (accuracy, layouts) = Default::default();
        let problem = Problem { ty: Type::F32, accuracy, m: 64, n: 64, k: 64, batches: 1, layouts };
        for caps in [
            Caps::Cpu,
            Caps::Interp,
            Caps::Gpu(GpuDescription { compute: (6, 1), multiprocessors: 20, ..GpuDescription::H200 }),
        ] {
            assert!(legal(&problem, &caps).is_empty());
        }
    }
}
