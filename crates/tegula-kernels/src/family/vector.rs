//! The family of GEMV and skinny GEMM kernels, for a C of few rows.

use tegula_core::element::{Accuracy, Type};
use tegula_core::epilogue::Epilogue;
use tegula_core::error::Result;
use tegula_ir::{Kernel, Order2d};

use super::{GemmVariant, KernelFamily, add_new, layouts, sources};
use crate::helper::assembled_epilogues;
use crate::name::{KernelName, NameSyntax};
use crate::plan::device::GpuDescription;
use crate::plan::problem::{OperandLayout, Problem};
use crate::plan::recipe::{CandidateOf, RecipeOf, Split};
use crate::plan::skinny;
use crate::vector::Vector;

impl GemmVariant for Vector {
    fn build(&self) -> Result<Kernel> {
        Vector::build(self)
    }

    fn ty(&self) -> Type {
        self.ty
    }

    fn tile(&self) -> [u32; 2] {
        [self.rows, self.columns()]
    }

    fn with_epilogue(self, epilogue: Epilogue) -> Self {
        Vector { epilogue, ..self }
    }

    fn check_size(&self) -> [u32; 3] {
        [self.rows, self.columns(), 2 * self.step()]
    }

    fn supports(&self, split: Split, packed: [bool; 2], _swapped: bool) -> bool {
        !matches!(split, Split::StreamK(_)) && packed == [false; 2]
    }

    /// The recipe decides about the transpose; C may have any layout.
    fn legalize(recipe: RecipeOf<Self>, [a, b, c]: [OperandLayout; 3]) -> RecipeOf<Self> {
        let [a, b, c] = if recipe.swapped { [b.transposed(), a.transposed(), c.transposed()] } else { [a, b, c] };
        let split = recipe.split != Split::Whole;
        let orders = [a.order, b.order, if split { Order2d::RowMajor } else { c.order }];
        RecipeOf { kernel: Vector { orders, aligned_16: b.aligned_16(), split, ..recipe.kernel }, ..recipe }
    }

    fn transposed_operands(&self) -> [bool; 2] {
        [false, self.transposed()]
    }
}

impl KernelFamily for Vector {
    const NAMES: &'static [KernelName] = &[KernelName {
        name: "vector",
        ty: Type::F32,
        description: "Any type, a C of up to 16 rows or columns: reads the large operand once, at memory bandwidth",
        syntax: NameSyntax::Parameters,
    }];
    const SOURCES: &'static [(&'static str, &'static str)] = sources! { "vector.rs" };

    fn named(name: &str, ty: Type) -> Result<Self> {
        Vector::named(name, ty)
    }

    fn candidates(problem: &Problem, gpu: &GpuDescription) -> Vec<CandidateOf<Self>> {
        let known = skinny::candidates(problem, gpu).into_iter();
        let known = known.map(|(recipe, time)| CandidateOf { recipe, microseconds: Some(time) });
        let unknown = skinny::heuristic_candidates(problem, gpu);
        known.chain(unknown.map(|recipe| CandidateOf { recipe, microseconds: None })).collect()
    }

    fn listed(ty: Type) -> Vec<String> {
        let mut names = Vec::new();
        for (_, b, aligned_16) in layouts() {
            let promising = |rows| Vector::shapes(ty, rows, b == Order2d::ColMajor, aligned_16).into_iter().next();
            let kernels = [1, 2, 4, 8, 16].into_iter().filter_map(promising);
            add_new(&mut names, kernels.map(|vector| vector.short_name()));
        }
        names
    }

    /// For each type, number of rows and layout the candidates, and the most promising one.
    fn assembled() -> Vec<Self> {
        let mut all = Vec::new();
        let each = Type::OPERANDS.into_iter().flat_map(|ty| [1, 2, 4, 8, 16].map(|rows| (ty, rows)));
        for ((ty, rows), b) in
            each.flat_map(|each| [Order2d::RowMajor, Order2d::ColMajor, Order2d::Strided].map(|b| (each, b)))
        {
            let orders = [Order2d::RowMajor, b, Order2d::RowMajor];
            for aligned_16 in [false, true].into_iter().take(if b == Order2d::Strided { 1 } else { 2 }) {
                let layouts = orders.map(|order| OperandLayout::new(order, aligned_16 && order != Order2d::Strided));
                let (accuracy, side) = (Accuracy::Full, 4096);
                let problem = Problem { ty, accuracy, m: rows, n: side, k: side, batches: 1, layouts };
                let known = skinny::candidates(&problem, &GpuDescription::H200).into_iter();
                let known = known.map(|(recipe, _)| Self::legalize(recipe, layouts).kernel);
                // Wide types have many candidates; split-K takes about as many registers, and i32
                // as many as f32.
                let is_listed = |kernel: &Vector| ty.size() < 4 || rows == 4 || ty != Type::I32 && !kernel.split;
                add_new(&mut all, known.filter(is_listed));
                let promising = Vector::shapes(ty, rows, b == Order2d::ColMajor, aligned_16).into_iter();
                let promising = promising.take(if matches!(rows, 1 | 4 | 16) { 2 } else { 1 });
                add_new(&mut all, promising.map(|vector| Vector { orders, split: aligned_16, ..vector }));
            }
        }
        // bf16 differs from f16 only in the name of the instruction.
        let with_epilogues = all.iter().filter(|vector| vector.ty != Type::BF16 && vector.rows == 16);
        let with_epilogues: Vec<_> = with_epilogues
            .map(|&vector| Vector { epilogue: assembled_epilogues(vector.ty)[0], split: false, ..vector })
            .collect();
        add_new(&mut all, with_epilogues);
        all
    }
}
