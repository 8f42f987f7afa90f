//! Every recipe that may make a product: what a choice is made among, and what `tegula tune` times.

use super::choose::choose;
use super::device::{Caps, GpuDescription};
use super::fit::Candidate;
use super::problem::Problem;
use crate::plain::{Family, Plain};
use crate::registry::GemmKernel;

/// The recipes that may make a product on a GPU, each once; of those without a cost the likeliest
/// come first. There are none for other devices, nor for what [`choose`](super::choose()) refuses.
pub fn legal(problem: &Problem, caps: &Caps) -> Vec<Candidate> {
    let Caps::Gpu { compute, multiprocessors } = *caps else { return Vec::new() };
    if choose(problem, caps).is_err() {
        return Vec::new();
    }
    let mut all = GemmKernel::candidates(problem, &GpuDescription { compute, multiprocessors });
    if all.is_empty() {
        let plain = [32, 16, 8].map(|tile| Plain::new(Family::Tiled, problem.ty, tile).into());
        all.extend(plain.map(|recipe| Candidate { recipe, microseconds: None }));
    }
    all.iter_mut().for_each(|candidate| candidate.recipe = candidate.recipe.fit(problem.lies));
    let mut seen = rustc_hash::FxHashSet::default();
    all.retain(|candidate| seen.insert(candidate.recipe));
    all
}

#[cfg(test)]
mod tests {
    use tegula_core::element::Type;
    use tegula_ir::Order2d;

    use super::*;
    use crate::plan::{Lie, Plan, choose};

    #[test]
    fn what_is_chosen_is_legal_and_each_has_a_name_of_its_own() {
        let orders = [Order2d::RowMajor, Order2d::ColMajor, Order2d::Strided];
        let sizes = [[1, 1000, 77], [4096, 16, 64], [17, 17, 5000], [300, 300, 300], [4096, 4100, 512], [5, 5, 0]];
        for ty in [Type::F64, Type::F32, Type::F16, Type::I32, Type::I8] {
            for (order, vectors) in orders.into_iter().flat_map(|order| [(order, false), (order, true)]) {
                for ([m, n, k], compute) in sizes.into_iter().flat_map(|size| [(size, (9, 0)), (size, (7, 5))]) {
                    let lies =
                        [Lie::new(order, vectors), Lie::new(Order2d::RowMajor, vectors), Lie::new(order, vectors)];
                    let problem = Problem { ty, accuracy: Default::default(), m, n, k, batches: 1, lies };
                    let caps = Caps::Gpu { compute, multiprocessors: 132 };
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
    fn other_devices_and_refused_products_have_none() {
        let (accuracy, lies) = Default::default();
        let problem = Problem { ty: Type::F32, accuracy, m: 64, n: 64, k: 64, batches: 1, lies };
        for caps in [Caps::Cpu, Caps::Interp, Caps::Gpu { compute: (6, 1), multiprocessors: 20 }] {
            assert!(legal(&problem, &caps).is_empty());
        }
    }
}
