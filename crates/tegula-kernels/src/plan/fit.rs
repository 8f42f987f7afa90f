//! Predictions with other costs than the fitted ones, and measurements to compare them with.

use tegula_core::element::Type;
use tegula_ir::Order2d;

use super::candidates::mma_time;
use super::device::GpuDescription;
use super::fitted::Constants;
use super::hopper;
use super::hopper_costs::HopperCosts;
use super::legalize::Recipe;
use super::mma_costs::MmaCosts;
use super::problem::{OperandLayout, Problem};
use super::skinny::vector_time;
use super::vector_costs::VectorCosts;
use crate::registry::GemmKernel;

/// The constants of the cost models.
#[derive(Clone, Copy, Debug)]
pub struct Costs {
    hopper: HopperCosts,
    mma: MmaCosts,
    vector: VectorCosts,
}

impl Costs {
    /// The fitted values, which plans use.
    pub const FITTED: Costs = Costs { hopper: HopperCosts::FITTED, mma: MmaCosts::FITTED, vector: VectorCosts::FITTED };

    /// Visits the name, with its family, and the value of each constant.
    pub fn visit(&mut self, visitor: &mut dyn FnMut(&str, &mut f64)) {
        self.hopper.visit("", &mut |name, value| visitor(&format!("hopper.{name}"), value));
        self.mma.visit("", &mut |name, value| visitor(&format!("mma.{name}"), value));
        self.vector.visit("", &mut |name, value| visitor(&format!("vector.{name}"), value));
    }

    /// The predicted microseconds of a recipe; `None` for kernels without costs here.
    pub fn time(&self, problem: &Problem, recipe: &Recipe, gpu: &GpuDescription) -> Option<f64> {
        match recipe.kernel {
            GemmKernel::Hopper(kernel) => Some(hopper::time(problem, &recipe.map(|_| kernel), &self.hopper, gpu)),
            GemmKernel::Blocked(kernel) => mma_time(problem, &recipe.map(|_| kernel), &self.mma, gpu),
            GemmKernel::Vector(kernel) => Some(vector_time(problem, &recipe.map(|_| kernel), &self.vector, gpu)),
            GemmKernel::Plain(_) => None,
        }
    }
}

/// Parses the product of a measurement and its GPU: `h200 bf16 nt 16 4096 4096`, which is the GPU
/// (`h100` or `h200`), the element type, the layouts of A and B, m, n and k. C is row-major. A matrix
/// is aligned if its rows, or columns if transposed, are a multiple of 16 bytes.
///
/// `None` for other text.
pub fn parse_product(text: &str) -> Option<(Problem, GpuDescription)> {
    let fields: Vec<&str> = text.split(' ').collect();
    let [gpu, ty, layout, m, n, k] = fields[..] else { return None };
    let gpu = match gpu {
        "h100" => GpuDescription::H100,
        "h200" => GpuDescription::H200,
        _ => return None,
    };
    let ty = Type::OPERANDS.into_iter().find(|known| known.to_string() == ty)?;
    let [m, n, k]: [usize; 3] = [m.parse().ok()?, n.parse().ok()?, k.parse().ok()?];
    let operand = |letter: u8, rows: usize, cols: usize, bytes: usize| {
        let (order, row) = if letter == b't' { (Order2d::ColMajor, rows) } else { (Order2d::RowMajor, cols) };
        OperandLayout::new(order, row.checked_mul(bytes).is_some_and(|bytes| bytes.is_multiple_of(16)))
    };
    let [a, b] = *layout.as_bytes() else { return None };
    let c_bytes = if ty == Type::I8 { 4 } else { ty.size() };
    let layouts = [operand(a, m, k, ty.size()), operand(b, k, n, ty.size()), operand(b'n', m, n, c_bytes)];
    Some((Problem { ty, accuracy: Default::default(), m, n, k, batches: 1, layouts }, gpu))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::plan::{Caps, legal};

    /// Measured recipes of some products on two GPUs, of all families: the product, microseconds
    /// and the name of the recipe.
    const MEASURED: &str = include_str!("measured.txt");

    /// The times of all families are comparable: among the measured recipes of a product, the one
    /// with the least predicted time is nearly the fastest.
    #[test]
    fn predicted_times_rank_measured_recipes() {
        let mut products = BTreeMap::<&str, Vec<(f64, &str)>>::new();
        for line in MEASURED.lines() {
            let (rest, name) = line.rsplit_once(' ').unwrap();
            let (product, time) = rest.rsplit_once(' ').unwrap();
            products.entry(product).or_default().push((time.parse().unwrap(), name));
        }
        let mut losses = Vec::new();
        for (product, measured) in &products {
            let (problem, gpu) = parse_product(product).unwrap();
            let candidates = legal(&problem, &Caps::Gpu(gpu)).into_iter();
            let predicted: BTreeMap<String, f64> =
                candidates.filter_map(|candidate| Some((candidate.recipe.name(), candidate.microseconds?))).collect();
            let known = measured.iter().filter_map(|(time, name)| Some((*time, *predicted.get(*name)?)));
            let Some((chosen, _)) = known.min_by(|a, b| a.1.total_cmp(&b.1)) else { continue };
            let best = measured.iter().map(|(time, _)| *time).fold(f64::INFINITY, f64::min);
            losses.push((chosen / best - 1.0, product));
        }
        losses.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mean = losses.iter().map(|(loss, _)| loss).sum::<f64>() / losses.len() as f64;
        let within = losses.iter().filter(|(loss, _)| *loss < 0.15).count() as f64 / losses.len() as f64;
        assert!(losses.len() > 80, "{} of {} products have candidates", losses.len(), products.len());
        assert!(mean < 0.06 && within > 0.9, "mean loss {mean:.3}, within 15 %: {within:.2}; {losses:.3?}");
    }
}
