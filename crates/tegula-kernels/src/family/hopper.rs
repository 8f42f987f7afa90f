//! The family of `wgmma` pipelines on Hopper.

use tegula_core::element::{Accuracy, Type};
use tegula_core::epilogue::Epilogue;
use tegula_core::error::Result;
use tegula_core::matrix::Shape;
use tegula_ir::{Kernel, Order2d};

use super::{GemmVariant, KernelFamily, add_new, large_problem, layouts, sources};
use crate::blocked::Schedule;
use crate::fragment_reduction::FragmentReduction;
use crate::helper::{HelperKernel, assembled_epilogues};
use crate::hopper::Hopper;
use crate::name::{KernelName, NameSyntax};
use crate::plan::device::{Caps, GpuDescription, HOPPER};
use crate::plan::problem::{OperandLayout, Problem};
use crate::plan::recipe::{CandidateOf, RecipeOf, Split, SplitReduction};
use crate::plan::{groups, hopper};

/// Bytes of a line of the L2 cache.
const LINE: usize = 128;

/// The maximum number of stream-K blocks: several times the SMs of a GPU.
const MAX_WORKERS: u32 = 1024;

impl GemmVariant for Hopper {
    fn build(&self) -> Result<Kernel> {
        Hopper::build(self)
    }

    fn ty(&self) -> Type {
        self.ty
    }

    fn tile(&self) -> [u32; 2] {
        let [rows, cols, _] = self.pipeline.tile;
        [rows, cols]
    }

    fn with_epilogue(self, epilogue: Epilogue) -> Self {
        Hopper { epilogue, ..self }
    }

    fn check_size(&self) -> [u32; 3] {
        let [rows, cols, depth] = self.pipeline.tile;
        [rows, cols, 2 * self.pipeline.stages * depth]
    }

    fn supports(&self, split: Split, _packed: [bool; 2], _swapped: bool) -> bool {
        match split {
            Split::StreamK(workers) => self.pipeline.cluster_k == 1 && workers <= MAX_WORKERS,
            Split::Whole | Split::SplitK(_) => true,
        }
    }

    /// The recipe decides about the transpose; C may have any layout.
    fn legalize(recipe: RecipeOf<Self>, [a, b, c]: [OperandLayout; 3]) -> RecipeOf<Self> {
        let layouts = if recipe.swapped { [b.transposed(), a.transposed(), c.transposed()] } else { [a, b, c] };
        let tma_compatible = layouts.map(|layout| layout.aligned_16() && layout.tma_compatible);
        let packed = [0, 1].map(|i| recipe.packed[i] || !Hopper::accepts(layouts[i].order, tma_compatible[i]));
        // Packed operands are row-major.
        let order = |i: usize| if packed[i] { Order2d::RowMajor } else { layouts[i].order };
        let hopper = Hopper { epilogue: recipe.passed_epilogue(), ..recipe.kernel };
        let is_supported = !matches!(recipe.split, Split::StreamK(_)) || hopper.supports_stream_k();
        let split = if is_supported { recipe.split } else { Split::Whole };
        let schedule = split.schedule();
        let is_partial = schedule == Schedule::SplitK;
        let tma_store = !is_partial && tma_compatible[2];
        let orders = [order(0), order(1), if is_partial { Order2d::RowMajor } else { layouts[2].order }];
        RecipeOf { kernel: Hopper { orders, tma_store, schedule, ..hopper }, split, packed, ..recipe }
    }

    /// Whole lines of the L2 cache: an unaligned row of a tile would touch two.
    fn packed_columns(&self) -> usize {
        LINE / self.ty.size()
    }

    fn workspace(&self, split: Split, c: Shape) -> Option<Shape> {
        match split {
            Split::Whole => None,
            Split::SplitK(splits) => Some(self.pipeline.workspace(splits as usize, c)),
            Split::StreamK(workers) => Some(self.pipeline.stream_k_workspace(workers as usize)),
        }
    }

    fn split_reduction(&self, split: Split, _k: usize) -> SplitReduction {
        match split {
            Split::Whole => SplitReduction::None,
            Split::SplitK(_) => SplitReduction::Fragments(self.pipeline.fragment_layout()),
            Split::StreamK(workers) => SplitReduction::InKernel(self.pipeline.stream_k_flags(workers as usize)),
        }
    }

    fn reduction_kernel(
        &self,
        split: Split,
        order: Order2d,
        elements: usize,
        epilogue: Epilogue,
    ) -> Option<HelperKernel> {
        let Split::SplitK(splits) = split else { return None };
        let cooperative = FragmentReduction::is_cooperative(splits, elements);
        Some(HelperKernel::FragmentReduction(FragmentReduction { ty: self.ty, order, cooperative, epilogue }))
    }
}

impl KernelFamily for Hopper {
    const NAMES: &'static [KernelName] = &[KernelName {
        name: "hopper",
        ty: Type::F16,
        description: "f16, bf16 on Hopper's Tensor Cores: warp-specialized TMA and wgmma pipelines",
        syntax: NameSyntax::Parameters,
    }];
    const SOURCES: &'static [(&'static str, &'static str)] = sources! { "hopper.rs" };

    fn named(name: &str, ty: Type) -> Result<Self> {
        Hopper::named(name, ty)
    }

    fn candidates(problem: &Problem, gpu: &GpuDescription) -> Vec<CandidateOf<Self>> {
        if gpu.compute != HOPPER {
            return Vec::new();
        }
        let known = hopper::candidates(problem, gpu).into_iter();
        known.map(|(recipe, time)| CandidateOf { recipe, microseconds: Some(time) }).collect()
    }

    fn fastest(problem: &Problem, gpu: &GpuDescription) -> Option<CandidateOf<Self>> {
        let known = if gpu.compute == HOPPER { hopper::fastest(problem, gpu) } else { None };
        known.map(|(recipe, time)| CandidateOf { recipe, microseconds: Some(time) })
    }

    fn candidates_in_ranges(problem: &Problem, gpu: &GpuDescription, ranges: u32) -> Vec<CandidateOf<Self>> {
        if gpu.compute != HOPPER {
            return Vec::new();
        }
        let known = hopper::candidates_in_ranges(problem, gpu, ranges).into_iter();
        known.map(|(recipe, time)| CandidateOf { recipe, microseconds: Some(time) }).collect()
    }

    fn listed(ty: Type) -> Vec<String> {
        let mut names = Vec::new();
        // Some candidates accept no row-major right operand.
        for layout in layouts().filter(|(_, b, _)| *b == Order2d::RowMajor) {
            let recipes =
                hopper::candidates(&large_problem(ty, Accuracy::Full, layout), &GpuDescription::H200).into_iter();
            let kernels = recipes.filter(|(recipe, _)| !recipe.swapped);
            add_new(&mut names, kernels.map(|(recipe, _)| recipe.kernel.short_name()));
        }
        names
    }

    fn assembled() -> Vec<Self> {
        let mut all = pipelines();
        add_new(&mut all, grouped_kernel());
        all
    }

    /// They load only on Hopper, so none is assembled for another GPU.
    fn is_measured(&self) -> bool {
        false
    }
}

/// The candidates of plans: every layout, C stored by TMA and by elements, with and without
/// split-K, and stream-K. And some configurations that are selected by name only.
fn pipelines() -> Vec<Hopper> {
    let mut all = Vec::new();
    let epilogue = assembled_epilogues(Type::BF16)[0];
    for (a, b) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        for (side, aligned_16) in [(16, true), (16, false), (96, true), (96, false), (4096, true)] {
            let orders = [Order2d::RowMajor, Order2d::ColMajor];
            let layouts = [(orders[a], true), (orders[b], true), (Order2d::RowMajor, aligned_16)]
                .map(|(order, aligned_16)| OperandLayout::new(order, aligned_16));
            let (ty, accuracy) = (Type::BF16, Accuracy::Full);
            let problem = Problem { ty, accuracy, m: side, n: side, k: 4096, batches: 1, layouts };
            for (recipe, _) in hopper::candidates(&problem, &GpuDescription::H200) {
                let hopper = Hopper::legalize(recipe, layouts).kernel.with_epilogue(Epilogue::NONE);
                add_new(&mut all, [hopper]);
                // f16 differs only in the name of the instruction.
                if a == b && aligned_16 {
                    add_new(&mut all, [Hopper { ty: Type::F16, ..hopper }]);
                }
                if a != 0 || b != 0 || hopper.schedule != Schedule::DataParallel {
                    continue;
                }
                // The epilogue with the most registers.
                add_new(&mut all, [Hopper { epilogue, ..hopper }]);
                let stream_k = [Epilogue::NONE, epilogue];
                let stream_k = stream_k.map(|epilogue| Hopper { epilogue, schedule: Schedule::StreamK, ..hopper });
                add_new(&mut all, stream_k.into_iter().filter(Hopper::supports_stream_k));
            }
        }
    }
    // By name only: the ping-pong schedule of 64 rows.
    let named = Hopper::named("hopper_64x256x64_consumers2_stages4_cluster2x1_pingpong", Type::BF16).into_iter();
    add_new(&mut all, named.flat_map(|hopper| [hopper, Hopper { epilogue, ..hopper }]));
    all
}

/// The candidates of grouped GEMMs, with a row-major or column-major B, and the epilogue with the
/// most registers.
fn grouped_kernel() -> Vec<Hopper> {
    let mut all = Vec::new();
    let (row, accuracy) = (Order2d::RowMajor, Accuracy::Full);
    let caps = Caps::Gpu(GpuDescription::H200);
    for (size, n) in [16, 64, 100, 256, 1024].into_iter().flat_map(|size| [256, 1024, 4096].map(|n| (size, n))) {
        for (b, stored, ty) in [
            (row, true, Type::BF16),
            (row, true, Type::F16),
            (row, false, Type::BF16),
            (Order2d::ColMajor, true, Type::BF16),
        ] {
            let (sizes, layouts) = (
                [size; 16],
                [OperandLayout::new(row, true), OperandLayout::new(b, true), OperandLayout::new(row, stored)],
            );
            let problem = Problem { ty, accuracy, m: 16 * size, n, k: 2048, batches: 16, layouts };
            let kernel = groups::grouped_kernel(&problem, &sizes, &caps).into_iter();
            let epilogue = assembled_epilogues(Type::BF16)[0];
            add_new(&mut all, kernel.flat_map(|hopper| [hopper, Hopper { epilogue, ..hopper }]));
        }
    }
    all
}
