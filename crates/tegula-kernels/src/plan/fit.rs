//! Predictions with other costs than the fitted ones, and measurements to compare them with.

use std::collections::HashMap;

use tegula_core::element::Type;
use tegula_ir::Order2d;

use super::blocked_costs::BlockedCosts;
use super::candidates::time_with;
use super::device::{Caps, GpuDescription};
use super::fitted::Constants;
use super::hopper_correction::{CLUSTERS, FEATURES, LIMIT, NEAR, features, sustained_rate};
use super::hopper_costs::HopperCosts;
use super::hopper_time;
use super::legal::legal;
use super::legalize::{Candidate, Recipe};
use super::mma_costs::MmaCosts;
use super::problem::{OperandLayout, Problem};
use super::skinny;
use super::vector_costs::VectorCosts;
use super::warp_costs::WarpCosts;
use super::warp_tiles;
use crate::registry::GemmKernel;

/// The constants of the cost models.
#[derive(Clone, Copy, Debug)]
pub struct Costs {
    hopper: HopperCosts,
    mma: MmaCosts,
    vector: VectorCosts,
    warp: WarpCosts,
    blocked: BlockedCosts,
}

impl Costs {
    /// The fitted values, which plans use.
    pub const FITTED: Costs = Costs {
        hopper: HopperCosts::FITTED,
        mma: MmaCosts::FITTED,
        vector: VectorCosts::FITTED,
        warp: WarpCosts::FITTED,
        blocked: BlockedCosts::FITTED,
    };

    /// Visits the name, with its family, and the value of each constant.
    pub fn visit(&mut self, visitor: &mut dyn FnMut(&str, &mut f64)) {
        self.hopper.visit("", &mut |name, value| visitor(&format!("hopper.{name}"), value));
        self.mma.visit("", &mut |name, value| visitor(&format!("mma.{name}"), value));
        self.vector.visit("", &mut |name, value| visitor(&format!("vector.{name}"), value));
        self.warp.visit("", &mut |name, value| visitor(&format!("warp.{name}"), value));
        self.blocked.visit("", &mut |name, value| visitor(&format!("blocked.{name}"), value));
    }

    /// The predicted microseconds of a recipe; `None` for kernels without costs here.
    pub fn time(&self, problem: &Problem, recipe: &Recipe, gpu: &GpuDescription) -> Option<f64> {
        match recipe.kernel {
            GemmKernel::Hopper(kernel) => Some(hopper_time::time(problem, &recipe.map(|_| kernel), &self.hopper, gpu)),
            GemmKernel::Blocked(kernel) => time_with(problem, &recipe.map(|_| kernel), (&self.blocked, &self.mma), gpu),
            GemmKernel::Vector(kernel) => Some(skinny::time(problem, &recipe.map(|_| kernel), &self.vector, gpu)),
            GemmKernel::WarpTile(kernel) => Some(warp_tiles::time(problem, &recipe.map(|_| kernel), &self.warp, gpu)),
            GemmKernel::Plain(_) => None,
        }
    }
}

/// The constants of the correction of predicted times that a fit of its trees needs: the maximum
/// logarithm, the ratio to the least time up to which times are corrected, the factor of multicast
/// clusters, and the operations per microsecond from which products have the trees of long runs.
pub fn correction_constants() -> [(&'static str, f64); 4] {
    let sustained = sustained_rate(&GpuDescription::H200);
    [("limit", LIMIT), ("near", NEAR), ("clusters", CLUSTERS), ("sustained", sustained)]
}

/// What the trees that correct the predicted time of a pipeline know of its recipe, the fitted
/// prediction included; `None` for other kernels.
pub fn correction_features(problem: &Problem, recipe: &Recipe, gpu: &GpuDescription) -> Option<[f64; FEATURES]> {
    let GemmKernel::Hopper(kernel) = recipe.kernel else { return None };
    let recipe = recipe.map(|_| kernel);
    Some(features(problem, &recipe, gpu, hopper_time::time(problem, &recipe, &HopperCosts::FITTED, gpu)))
}

/// The candidates of a product by the names in measurements. A pipeline may have been measured with
/// another number of stages than the candidate has.
#[derive(Debug)]
pub struct MeasuredRecipes {
    problem: Problem,
    gpu: GpuDescription,
    candidates: HashMap<String, Candidate>,
}

impl MeasuredRecipes {
    /// The candidates of a product on a GPU.
    pub fn of(problem: Problem, gpu: GpuDescription) -> Self {
        let candidates = legal(&problem, &Caps::Gpu(gpu)).into_iter();
        let candidates = candidates.map(|candidate| (without_stages(&candidate.recipe.name()).0, candidate)).collect();
        MeasuredRecipes { problem, gpu, candidates }
    }

    /// The recipe of a name, with its predicted time if it has one; `None` for a recipe that is no
    /// longer a candidate.
    pub fn get(&self, name: &str) -> Option<Candidate> {
        let (name, stages) = without_stages(name);
        let mut candidate = *self.candidates.get(&name)?;
        if let (GemmKernel::Hopper(hopper), Some(stages)) = (&mut candidate.recipe.kernel, stages)
            && hopper.pipeline.stages != stages
        {
            // The prediction may be corrected, so the stages change it in proportion.
            let own = Costs::FITTED.time(&self.problem, &self.candidates[&name].recipe, &self.gpu);
            hopper.pipeline.stages = stages;
            let other = Costs::FITTED.time(&self.problem, &candidate.recipe, &self.gpu);
            candidate.microseconds =
                candidate.microseconds.zip(own.zip(other)).map(|(time, (own, other))| time * other / own);
        }
        Some(candidate)
    }
}

/// A pipeline's name without its stages, and their number; the name of another kernel as it is.
fn without_stages(name: &str) -> (String, Option<u32>) {
    let split = || {
        let (before, rest) = name.strip_prefix("hopper_")?.split_once("_stages")?;
        let (stages, after) = rest.split_at(rest.find('_').unwrap_or(rest.len()));
        Some((format!("hopper_{before}{after}"), stages.parse().ok()))
    };
    split().unwrap_or_else(|| (name.into(), None))
}

/// Parses the product of a measurement and its GPU: `h200 bf16 nt 16 4096 4096`, which is the GPU
/// (`h100` or `h200`), the element type, the layouts of A and B, m, n and k; for a batch also the
/// number of products. C is row-major. A matrix is aligned if its rows, or columns if transposed,
/// are a multiple of 16 bytes.
///
/// `None` for other text.
pub fn parse_product(text: &str) -> Option<(Problem, GpuDescription)> {
    let fields: Vec<&str> = text.split(' ').collect();
    let (gpu, ty, layout, extents) = match fields[..] {
        [gpu, ty, layout, m, n, k] => (gpu, ty, layout, [m, n, k, "1"]),
        [gpu, ty, layout, m, n, k, batches] => (gpu, ty, layout, [m, n, k, batches]),
        _ => return None,
    };
    let gpu = match gpu {
        "h100" => GpuDescription::H100,
        "h200" => GpuDescription::H200,
        _ => return None,
    };
    let ty = Type::OPERANDS.into_iter().find(|known| known.to_string() == ty)?;
    let [m, n, k, batches] = extents.map(|extent| extent.parse::<usize>().ok());
    let (m, n, k, batches) = (m?, n?, k?, batches?);
    let operand = |letter: u8, rows: usize, cols: usize, bytes: usize| {
        let (order, row) = if letter == b't' { (Order2d::ColMajor, rows) } else { (Order2d::RowMajor, cols) };
        let row_bytes = row.checked_mul(bytes).unwrap_or(1);
        let alignment = [16, 8, 4].into_iter().filter(|&aligned| aligned > bytes);
        let alignment = alignment.into_iter().find(|&aligned| row_bytes.is_multiple_of(aligned)).unwrap_or(1) as u8;
        OperandLayout { alignment, ..OperandLayout::new(order, false) }
    };
    let [a, b] = *layout.as_bytes() else { return None };
    let c_bytes = if ty == Type::I8 { 4 } else { ty.size() };
    let layouts = [operand(a, m, k, ty.size()), operand(b, k, n, ty.size()), operand(b'n', m, n, c_bytes)];
    Some((Problem { ty, accuracy: Default::default(), m, n, k, batches, layouts }, gpu))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// Measured recipes of some products on two GPUs, of all families: the product, microseconds
    /// and the name of the recipe.
    const MEASURED: &str = include_str!("measured.txt");
    /// Mean losses of choices that are not exceeded.
    const BETWEEN_FAMILIES: f64 = 0.046;
    const OF_PIPELINES: f64 = 0.02;
    /// The mean logarithm of predicted by measured times of a family on a GPU, and its mean
    /// absolute value.
    const MEAN_ERROR: f64 = 0.06;
    const DEVIATION: f64 = 0.23;

    /// Measured microseconds, predicted microseconds and the family of each recipe of a product;
    /// without those that have no predicted time.
    fn compared() -> BTreeMap<&'static str, Vec<(f64, f64, &'static str)>> {
        let mut products = BTreeMap::<&str, Vec<(f64, &str)>>::new();
        for line in MEASURED.lines() {
            let (rest, name) = line.rsplit_once(' ').unwrap();
            let (product, time) = rest.rsplit_once(' ').unwrap();
            products.entry(product).or_default().push((time.parse().unwrap(), name));
        }
        let compare = |(product, measured): (&'static str, Vec<(f64, &'static str)>)| {
            let (problem, gpu) = parse_product(product).unwrap();
            let recipes = MeasuredRecipes::of(problem, gpu);
            let known = measured.into_iter().filter_map(|(time, name)| {
                let predicted = recipes.get(name)?.microseconds?;
                Some((time, predicted, name.split('_').next()?))
            });
            (product, known.collect())
        };
        products.into_iter().map(compare).collect()
    }

    /// The choice among the measured recipes is nearly the fastest, where two families compete and
    /// where pipelines do.
    #[test]
    fn predicted_times_rank_measured_recipes() {
        let (mut between_families, mut of_pipelines) = (Vec::new(), Vec::new());
        for recipes in compared().values() {
            let Some(chosen) = recipes.iter().min_by(|a, b| a.1.total_cmp(&b.1)) else { continue };
            let best = recipes.iter().map(|(measured, ..)| *measured).fold(f64::INFINITY, f64::min);
            let losses =
                if recipes.iter().any(|one| one.2 != "hopper") { &mut between_families } else { &mut of_pipelines };
            losses.push(chosen.0 / best - 1.0);
        }
        for (losses, count, bound) in [(between_families, 80, BETWEEN_FAMILIES), (of_pipelines, 50, OF_PIPELINES)] {
            let mean = losses.iter().sum::<f64>() / losses.len() as f64;
            let products = losses.len();
            assert!(products > count && mean < bound, "{products} products, mean loss {mean:.4} of {bound}");
        }
    }

    /// Predicted times of each family are in microseconds, on either GPU.
    #[test]
    fn predicted_times_are_near_measured_times() {
        let mut errors = BTreeMap::<(&str, &str), Vec<f64>>::new();
        for (product, recipes) in compared() {
            let gpu = product.split(' ').next().unwrap();
            for (measured, predicted, family) in recipes {
                errors.entry((gpu, family)).or_default().push((predicted / measured).ln());
            }
        }
        assert_eq!(errors.len(), 10, "two GPUs and three families, and four more on one of them");
        for (group, errors) in errors {
            let mean = errors.iter().sum::<f64>() / errors.len() as f64;
            let deviation = errors.iter().map(|error| error.abs()).sum::<f64>() / errors.len() as f64;
            assert!(
                mean.abs() < MEAN_ERROR && deviation < DEVIATION,
                "{group:?}: mean error {mean:.4}, mean deviation {deviation:.4}"
            );
        }
    }
}
