//! Predictions with other costs than the fitted ones, for a fit.

use super::candidates::mma_time;
use super::device::GpuDescription;
use super::fitted::Constants;
use super::hopper;
use super::hopper_costs::HopperCosts;
use super::legalize::Recipe;
use super::mma_costs::MmaCosts;
use super::problem::Problem;
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
