//! The family of kernels whose blocks own a large tile of C: register tiles and Tensor Cores by
//! warp.

use tegula_core::element::{Accuracy, Type};
use tegula_core::epilogue::Epilogue;
use tegula_core::error::Result;
use tegula_ir::{Kernel, Mma, Order2d, Wgmma};

use super::{GemmVariant, KernelFamily, add_new, large_problem, layouts, sources};
use crate::blocked::{Blocked, MathInstruction, Schedule};
use crate::fix_up::FixUp;
use crate::helper::{HelperKernel, assembled_epilogues};
use crate::name::{KernelName, NameSyntax};
use crate::pack::Packing;
use crate::plan::candidates::{candidates, candidates_in_ranges, packed_operands};
use crate::plan::device::{GpuDescription, HOPPER};
use crate::plan::problem::{OperandLayout, Problem};
use crate::plan::recipe::{CandidateOf, RecipeOf, Split, SplitReduction};
use crate::split_k_reduction::{ReductionSchedule, SplitKReduction};

impl GemmVariant for Blocked {
    fn build(&self) -> Result<Kernel> {
        Blocked::build(self)
    }

    fn ty(&self) -> Type {
        self.ty
    }

    fn tile(&self) -> [u32; 2] {
        let [rows, cols, _] = self.blocking.block;
        [rows, cols]
    }

    fn with_epilogue(self, epilogue: Epilogue) -> Self {
        Blocked { epilogue, ..self }
    }

    fn check_size(&self) -> [u32; 3] {
        let [rows, cols, depth] = self.blocking.block;
        [rows, cols, 4 * depth]
    }

    fn supports(&self, _split: Split, _packed: [bool; 2], swapped: bool) -> bool {
        !swapped
    }

    /// Blocked kernels store rows; a column-major C is a row-major Cᵀ.
    fn legalize(recipe: RecipeOf<Self>, layouts: [OperandLayout; 3]) -> RecipeOf<Self> {
        let [a, b, c] = layouts;
        let swapped = c.order == Order2d::ColMajor;
        let mut layouts = if swapped { [b.transposed(), a.transposed(), c.transposed()] } else { layouts };
        let packed;
        ([layouts[0], layouts[1]], packed) = packed_operands(&recipe.kernel, [layouts[0], layouts[1]], recipe.packed);
        let schedule = recipe.split.schedule();
        let (mut orders, mut aligned_16) =
            (layouts.map(|layout| layout.order), layouts.map(|layout| layout.aligned_16()));
        if schedule == Schedule::SplitK {
            // The workspace is row-major, with rows of any length.
            (orders[2], aligned_16[2]) = (Order2d::RowMajor, false);
        }
        RecipeOf { kernel: Blocked { orders, aligned_16, schedule, ..recipe.kernel }, swapped, packed, ..recipe }
    }

    fn accuracy(&self) -> Accuracy {
        match self.instruction {
            MathInstruction::Mma(Mma::TF32) => Accuracy::Tf32,
            MathInstruction::Fma | MathInstruction::Dmma(_) | MathInstruction::Mma(_) | MathInstruction::Limbs => {
                Accuracy::Full
            }
        }
    }

    fn transposed_operands(&self) -> [bool; 2] {
        self.transposed()
    }

    fn packing(&self) -> Packing {
        match self.instruction {
            MathInstruction::Mma(Mma::TF32) => Packing::Tf32,
            MathInstruction::Limbs => Packing::Limbs,
            MathInstruction::Fma | MathInstruction::Dmma(_) | MathInstruction::Mma(_) => Packing::Same,
        }
    }

    fn split_reduction(&self, split: Split, k: usize) -> SplitReduction {
        match split {
            Split::Whole => SplitReduction::None,
            Split::SplitK(_) => SplitReduction::SplitK,
            Split::StreamK(_) => SplitReduction::FixUp { steps: k.div_ceil(self.blocking.block[2] as usize) as u32 },
        }
    }

    fn reduction_kernel(
        &self,
        split: Split,
        order: Order2d,
        elements: usize,
        epilogue: Epilogue,
    ) -> Option<HelperKernel> {
        let ty = self.ty;
        match split {
            Split::Whole => None,
            Split::SplitK(splits) => Some(HelperKernel::SplitKReduction(SplitKReduction {
                ty,
                order,
                schedule: ReductionSchedule::of(splits, elements),
                epilogue,
            })),
            Split::StreamK(_) => Some(HelperKernel::FixUp(FixUp { ty, order, epilogue })),
        }
    }
}

impl KernelFamily for Blocked {
    const NAMES: &'static [KernelName] = &[
        name("register", Type::F32, "f32, f64, i32: register tiling, fed by asynchronous copies"),
        name("dmma", Type::F64, "f64 on Tensor Cores"),
        name("mma", Type::F16, "f16, bf16, i8 on Tensor Cores, with 32-bit accumulators"),
        name("tf32", Type::F32, "f32 rounded to TF32 on Tensor Cores, with --accuracy tf32"),
        name("limbs", Type::I32, "i32 on Tensor Cores, exactly: ten products of bytes for one"),
    ];
    const SOURCES: &'static [(&'static str, &'static str)] =
        sources! { "register.rs" "dmma.rs" "mma.rs" "limbs.rs" "blocked.rs" };

    fn named(name: &str, ty: Type) -> Result<Self> {
        Blocked::named(name, ty)
    }

    /// `cp.async` needs Ampere or later.
    ///
    /// On Hopper `wgmma` was faster than `mma.sync` for all of 250 measured products of 16-bit
    /// types, on two GPUs, so their candidates are without a predicted time.
    fn candidates(problem: &Problem, gpu: &GpuDescription) -> Vec<CandidateOf<Self>> {
        if gpu.compute < (8, 0) {
            return Vec::new();
        }
        let is_timed = !has_pipelines(problem, gpu);
        let known = candidates(problem, gpu).into_iter();
        known.map(|(recipe, time)| CandidateOf { recipe, microseconds: is_timed.then_some(time) }).collect()
    }

    fn candidates_in_ranges(problem: &Problem, gpu: &GpuDescription, ranges: u32) -> Vec<CandidateOf<Self>> {
        if gpu.compute < (8, 0) || has_pipelines(problem, gpu) {
            return Vec::new();
        }
        let known = candidates_in_ranges(problem, gpu, ranges).into_iter();
        known.map(|(recipe, time)| CandidateOf { recipe, microseconds: Some(time) }).collect()
    }

    fn listed(ty: Type) -> Vec<String> {
        let mut names = Vec::new();
        for accuracy in [Accuracy::Full, Accuracy::Tf32] {
            for layout in layouts() {
                let recipes = candidates(&large_problem(ty, accuracy, layout), &GpuDescription::H200).into_iter();
                add_new(&mut names, recipes.map(|(recipe, _)| recipe.kernel.short_name()));
            }
        }
        names
    }

    fn assembled() -> Vec<Self> {
        let mut all = plan_candidates();
        let with_epilogues = with_epilogues(&all);
        add_new(&mut all, with_epilogues);
        all
    }
}

/// Whether `wgmma` pipelines compute the product.
fn has_pipelines(problem: &Problem, gpu: &GpuDescription) -> bool {
    gpu.compute == HOPPER && Wgmma::supports(problem.ty) && problem.m.min(problem.n) > 0
}

const fn name(name: &'static str, ty: Type, description: &'static str) -> KernelName {
    KernelName { name, ty, description, syntax: NameSyntax::Parameters }
}

/// The candidates of plans: every layout, in place or packed, and split work.
fn plan_candidates() -> Vec<Blocked> {
    let (row, col) = (Order2d::RowMajor, Order2d::ColMajor);
    let layouts =
        [(row, row, true), (row, row, false), (col, col, true), (row, col, true), (row, col, false), (col, row, true)];
    let mut all = Vec::new();
    let full = Type::OPERANDS.map(|ty| (ty, Accuracy::Full));
    for (ty, accuracy) in full.into_iter().chain([(Type::F32, Accuracy::Tf32)]) {
        // bf16 differs from f16 only in the name of the instruction, and i32 little more from f32.
        let layouts = match ty {
            Type::BF16 => &layouts[..1],
            Type::I32 => &layouts[..2],
            _ => &layouts[..],
        };
        for (i, &(a, b, aligned_16)) in layouts.iter().enumerate() {
            let layouts = [a, b, row].map(|order| OperandLayout::new(order, aligned_16));
            // Few enough blocks for split-K, and enough for stream-K.
            for side in [256, 4096] {
                let problem = Problem { ty, accuracy, m: side, n: side, k: 4096, batches: 1, layouts };
                let recipes = candidates(&problem, &GpuDescription::H200).into_iter().map(|(recipe, _)| recipe);
                let recipes = recipes.filter(|recipe| recipe.split == Split::Whole || i < 2);
                add_new(&mut all, recipes.map(|recipe| recipe.kernel));
            }
        }
    }
    all
}

/// Configurations with an epilogue, which leaves few registers. Every tile that stores to C has
/// both epilogues with its preferred layout; f64, which has the fewest registers left, the first
/// one in every layout.
fn with_epilogues(all: &[Blocked]) -> Vec<Blocked> {
    // bf16 differs from f16 only in the name of the instruction.
    let is_output = |b: &&Blocked| b.ty != Type::BF16 && b.schedule != Schedule::SplitK && b.aligned_16 == [true; 3];
    let variants = all.iter().filter(is_output).flat_map(|&blocked| {
        let is_preferred = blocked.orders[..2] == blocked.preferred_orders();
        let count = if is_preferred { 2 } else { usize::from(blocked.ty == Type::F64) };
        assembled_epilogues(blocked.ty).into_iter().take(count).map(move |epilogue| Blocked { epilogue, ..blocked })
    });
    variants.collect()
}
