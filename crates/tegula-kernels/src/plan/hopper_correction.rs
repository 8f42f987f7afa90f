//! The correction of the predicted times of pipelines, which regression trees have learned.
//!
//! The formula of `hopper_time` has the bounds that are known, but not how they interact: its times
//! of the recipes of a product deviate by 5 %, and the least of a thousand predictions is mostly
//! one that is too low. The trees have the deviations by the features of a recipe, and halve the
//! loss of the choice on products held out.
//!
//! At the power limit clocks fall, by the power that a kernel takes, and other recipes are the
//! fastest. Products that reach it have trees of their own, of long runs.
//!
//! Only candidates near the fastest are corrected, by a limited factor: the others could not become
//! the fastest, and planning is short. `benchmarks/cost/fit_trees.py` fits the trees.

use tegula_ir::Order2d;

use super::device::GpuDescription;
use super::hopper_time::{concurrent_tiles, tiles};
use super::hopper_trees::{SHORT, SUSTAINED, Trees};
use super::problem::Problem;
use super::recipe::{RecipeOf, Split};
use crate::hopper::{Hopper, Pipeline};

/// The feature of a leaf.
#[cfg(test)]
const LEAF: u8 = u8::MAX;
/// The maximum logarithm of the correction.
pub(super) const LIMIT: f64 = 0.12;
/// The ratio to the least predicted time up to which times are corrected. No other candidate could
/// become the fastest, since it exceeds that of the corrected ones.
pub(super) const NEAR: f64 = 1.15;
/// The factor of multicast clusters, of which there are five times as many candidates: the least of
/// more predictions is lower, although none of them is.
pub(super) const CLUSTERS: f64 = 1.01;
/// The fraction of the rate at the power limit from which the trees of long runs predict better.
const SUSTAINED_RATE: f64 = 0.6;
/// The number of features of a recipe.
pub const FEATURES: usize = 20;
/// The maximum number of waves that the trees tell apart.
const MAX_WAVES: f64 = 64.0;

/// The trees for a product, of which the fastest candidate has these predicted microseconds.
pub(super) fn trees(problem: &Problem, gpu: &GpuDescription, least: f64) -> &'static Trees {
    let flops = [problem.m, problem.n, problem.k, problem.batches].iter().fold(2.0, |flops, &one| flops * one as f64);
    if flops > sustained_rate(gpu) * least { &SUSTAINED } else { &SHORT }
}

/// The operations per microsecond from which products have the trees of long runs.
pub(super) fn sustained_rate(gpu: &GpuDescription) -> f64 {
    SUSTAINED_RATE * gpu.power_limited_flops()
}

impl Trees {
    /// The corrected time of a recipe, of its predicted microseconds.
    pub fn corrected(&self, problem: &Problem, recipe: &RecipeOf<Hopper>, gpu: &GpuDescription, time: f64) -> f64 {
        let features = features(problem, recipe, gpu, time);
        let sum: f64 = self.roots.iter().map(|&root| self.value(root, &features)).sum();
        let choices = if recipe.kernel.pipeline.multicast_blocks() > 1 { CLUSTERS } else { 1.0 };
        time * choices * (self.mean + sum).clamp(-LIMIT, LIMIT).exp()
    }

    /// The value of a tree.
    fn value(&self, root: u16, features: &[f64; FEATURES]) -> f64 {
        let mut at = usize::from(root);
        loop {
            let (feature, threshold, next) = self.nodes[at];
            match features.get(usize::from(feature)) {
                Some(&value) if value <= f64::from(threshold) => at += 1,
                Some(_) => at = usize::from(next),
                None => return f64::from(threshold),
            }
        }
    }
}

/// The least corrected time of any recipe of these predicted microseconds.
pub(super) fn least_corrected(time: f64) -> f64 {
    time * (-LIMIT).exp()
}

/// The features of a recipe of this predicted time, in the order that the trees know.
pub(super) fn features(
    problem: &Problem,
    recipe: &RecipeOf<Hopper>,
    gpu: &GpuDescription,
    time: f64,
) -> [f64; FEATURES] {
    let kernel = &recipe.kernel;
    let Pipeline { tile: [rows, cols, depth], cluster: [cluster_m, cluster_n], cluster_k, .. } = kernel.pipeline;
    let splits = if let Split::SplitK(splits) = recipe.split { splits } else { 1 };
    let number = |yes: bool| f64::from(u8::from(yes));
    let [m, n, k, batches] = [problem.m, problem.n, problem.k, problem.batches].map(|extent| extent as f64);
    let extents = if recipe.swapped { [n, m] } else { [m, n] };
    let counts = tiles(problem, kernel.pipeline, recipe.swapped).map(|count| count as f64);
    let work_tiles = counts[0] * counts[1] * batches * f64::from(splits);
    let waves = work_tiles / f64::from(concurrent_tiles(gpu.multiprocessors, kernel.pipeline));
    let k_steps = ((k / f64::from(depth)).ceil() / f64::from(cluster_k * splits)).ceil();
    let bytes = (m * k + k * n + m * n) * batches * problem.ty.size() as f64;
    [
        f64::from(rows),
        f64::from(cols),
        f64::from(cluster_m),
        f64::from(cluster_n),
        f64::from(cluster_k),
        f64::from(splits),
        number(kernel.pipeline.ping_pong),
        number(matches!(recipe.split, Split::StreamK(_))),
        waves.min(MAX_WAVES),
        // The fraction of blocks that are idle in the last wave, of all waves.
        1.0 - waves / waves.ceil().max(1.0),
        k_steps,
        number(kernel.orders[0] == Order2d::RowMajor),
        number(kernel.orders[1] == Order2d::ColMajor),
        f64::from(cols % 64),
        extents[0] / (counts[0] * f64::from(rows)),
        extents[1] / (counts[1] * f64::from(cols)),
        number(kernel.tma_store),
        time,
        // The fractions of the bandwidth of memory, and of 10^6 operations per microsecond.
        bytes / gpu.memory(time),
        2.0 * m * n * k * batches / time / 1e6,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every tree ends, and its next nodes are behind it.
    #[test]
    fn correction_trees_are_trees() {
        for Trees { roots, nodes, .. } in [&SHORT, &SUSTAINED] {
            for (i, &(feature, threshold, next)) in nodes.iter().enumerate() {
                assert!(threshold.is_finite());
                if feature != LEAF {
                    assert!(usize::from(feature) < FEATURES);
                    assert!((i + 2..nodes.len()).contains(&usize::from(next)), "node {i}: {next}");
                }
            }
            assert_eq!(nodes.last().map(|node| node.0), Some(LEAF));
            assert!(roots.iter().all(|&root| usize::from(root) < nodes.len()));
        }
    }

    #[test]
    fn correction_is_limited_and_near_exceeds_it() {
        assert!(NEAR > CLUSTERS * LIMIT.exp());
    }
}
