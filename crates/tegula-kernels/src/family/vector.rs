//! The family of kernels for a C of few rows.

use tegula_core::element::{Accuracy, Type};
use tegula_core::epilogue::Epilogue;
use tegula_core::error::Result;
use tegula_ir::{Kernel, Order2d, Wgmma};

use super::{GemmVariant, KernelFamily, add_new, layouts, sources};
use crate::helper::assembled_epilogues;
use crate::name::{Form, KernelName};
use crate::plan::device::{GpuDescription, HOPPER};
use crate::plan::few;
use crate::plan::problem::{Lie, Problem};
use crate::plan::recipe::{CandidateOf, RecipeOf, Split};
use crate::vector::Vector;

impl GemmVariant for Vector {
    fn build(&self) -> Result<Kernel> {
        Vector::build(self)
    }

    fn ty(&self) -> Type {
        self.ty
    }

    fn tile(&self) -> [u32; 2] {
        [self.few, self.columns()]
    }

    fn with_epilogue(self, epilogue: Epilogue) -> Self {
        Vector { epilogue, ..self }
    }

    fn check_size(&self) -> [u32; 3] {
        [self.few, self.columns(), 2 * self.step()]
    }

    fn supports(&self, split: Split, packed: [bool; 2], _swapped: bool) -> bool {
        !matches!(split, Split::Workers(_)) && packed == [false; 2]
    }

    /// Which side has few rows is the recipe's own decision; C may have any layout.
    fn fit(recipe: RecipeOf<Self>, [a, b, c]: [Lie; 3]) -> RecipeOf<Self> {
        let [a, b, c] = if recipe.swapped { [b.transposed(), a.transposed(), c.transposed()] } else { [a, b, c] };
        let split = recipe.split != Split::Whole;
        let orders = [a.order, b.order, if split { Order2d::RowMajor } else { c.order }];
        RecipeOf { kernel: Vector { orders, vectors: b.vectors, split, ..recipe.kernel }, ..recipe }
    }

    fn transposed_operands(&self) -> [bool; 2] {
        [false, self.turned()]
    }
}

impl KernelFamily for Vector {
    const NAMES: &'static [KernelName] = &[KernelName {
        name: "vector",
        ty: Type::F32,
        description: "Any type, a C of up to 16 rows or columns: the large matrix is read once, at the speed of memory",
        form: Form::Parameters,
    }];
    const SOURCES: &'static [(&'static str, &'static str)] = sources! { "vector.rs" };

    fn named(name: &str, ty: Type) -> Result<Self> {
        Vector::named(name, ty)
    }

    fn candidates(problem: &Problem, gpu: &GpuDescription) -> Vec<CandidateOf<Self>> {
        let known = few::measured(problem, gpu.multiprocessors).into_iter();
        let known = known.map(|(recipe, time)| CandidateOf { recipe, microseconds: Some(time) });
        let unknown = few::likeliest(problem, gpu.multiprocessors);
        known.chain(unknown.map(|recipe| CandidateOf { recipe, microseconds: None })).collect()
    }

    /// Nothing else reads the large operand once. Pipelines on Hopper were measured to be faster.
    fn preferred(problem: &Problem, gpu: &GpuDescription) -> Option<RecipeOf<Self>> {
        let is_pipelined = gpu.compute == HOPPER && Wgmma::multiplies(problem.ty);
        let is_known = is_pipelined && problem.m.min(problem.n) > 0;
        if is_known || !few::measured(problem, gpu.multiprocessors).is_empty() {
            return None;
        }
        few::likeliest(problem, gpu.multiprocessors).next()
    }

    fn listed(ty: Type) -> Vec<String> {
        let mut names = Vec::new();
        for (_, b, vectors) in layouts() {
            let likeliest = |rows| Vector::shapes(ty, rows, b == Order2d::ColMajor, vectors).into_iter().next();
            let kernels = [1, 2, 4, 8, 16].into_iter().filter_map(likeliest);
            add_new(&mut names, kernels.map(|vector| vector.short_name()));
        }
        names
    }

    /// For each type, number of rows and layout those that plans choose by their cost, and the
    /// likeliest.
    fn assembled() -> Vec<Self> {
        let mut all = Vec::new();
        let each = Type::OPERANDS.into_iter().flat_map(|ty| [1, 2, 4, 8, 16].map(|rows| (ty, rows)));
        for ((ty, rows), b) in
            each.flat_map(|each| [Order2d::RowMajor, Order2d::ColMajor, Order2d::Strided].map(|b| (each, b)))
        {
            let orders = [Order2d::RowMajor, b, Order2d::RowMajor];
            for vectors in [false, true].into_iter().take(if b == Order2d::Strided { 1 } else { 2 }) {
                let lies = orders.map(|order| Lie::new(order, vectors && order != Order2d::Strided));
                let (accuracy, side) = (Accuracy::Full, 4096);
                let problem = Problem { ty, accuracy, m: rows, n: side, k: side, batches: 1, lies };
                let known = few::measured(&problem, 132).into_iter();
                add_new(&mut all, known.map(|(recipe, _)| Self::fit(recipe, lies).kernel));
                let likeliest = Vector::shapes(ty, rows, b == Order2d::ColMajor, vectors).into_iter();
                let likeliest = likeliest.take(if matches!(rows, 1 | 4 | 16) { 2 } else { 1 });
                add_new(&mut all, likeliest.map(|vector| Vector { orders, split: vectors, ..vector }));
            }
        }
        // bf16 differs from f16 by the instruction's name alone.
        let finished = all.iter().filter(|vector| vector.ty != Type::BF16 && vector.few == 16);
        let finished: Vec<_> = finished
            .map(|&vector| Vector { epilogue: assembled_epilogues(vector.ty)[0], split: false, ..vector })
            .collect();
        add_new(&mut all, finished);
        all
    }
}
