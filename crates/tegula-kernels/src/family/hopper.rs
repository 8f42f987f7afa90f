//! The family of pipelines of warpgroups on Hopper.

use tegula_core::element::{Accuracy, Type};
use tegula_core::epilogue::Epilogue;
use tegula_core::error::Result;
use tegula_core::matrix::Shape;
use tegula_ir::{Kernel, Order2d};

use super::{GemmVariant, KernelFamily, add_new, large, layouts, sources};
use crate::blocked::Schedule;
use crate::helper::{HelperKernel, assembled_epilogues};
use crate::hopper::Hopper;
use crate::name::{Form, KernelName};
use crate::plan::device::{Caps, GpuDescription, HOPPER};
use crate::plan::problem::{Lie, Problem};
use crate::plan::recipe::{CandidateOf, Meeting, RecipeOf, Split};
use crate::plan::{groups, hopper};
use crate::reduce::Reduce;

/// Bytes of a line of the L2 cache.
const LINE: usize = 128;

/// How many blocks share tiles at most: several times as many as a GPU has multiprocessors.
const MOST_WORKERS: u32 = 1024;

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
            Split::Workers(workers) => self.pipeline.split == 1 && workers <= MOST_WORKERS,
            Split::Whole | Split::Parts(_) => true,
        }
    }

    /// Which side has the columns is the recipe's own decision; C may have any layout.
    fn fit(recipe: RecipeOf<Self>, [a, b, c]: [Lie; 3]) -> RecipeOf<Self> {
        let lies = if recipe.swapped { [b.transposed(), a.transposed(), c.transposed()] } else { [a, b, c] };
        let tiles = lies.map(|lie| lie.vectors && lie.forwards);
        let packed = [0, 1].map(|i| recipe.packed[i] || !Hopper::takes(lies[i].order, tiles[i]));
        // What is packed has rows.
        let order = |i: usize| if packed[i] { Order2d::RowMajor } else { lies[i].order };
        let hopper = Hopper { epilogue: recipe.passed_epilogue(), ..recipe.kernel };
        let shares = !matches!(recipe.split, Split::Workers(_)) || hopper.shares_tiles();
        let split = if shares { recipe.split } else { Split::Whole };
        let schedule = split.schedule();
        let parts = schedule == Schedule::Parts;
        let stores_tiles = !parts && tiles[2];
        let orders = [order(0), order(1), if parts { Order2d::RowMajor } else { lies[2].order }];
        RecipeOf { kernel: Hopper { orders, stores_tiles, schedule, ..hopper }, split, packed, ..recipe }
    }

    /// Whole lines of the L2 cache: rows of a tile that began within one would take two.
    fn packed_columns(&self) -> usize {
        LINE / self.ty.size()
    }

    fn workspace(&self, split: Split, c: Shape) -> Option<Shape> {
        match split {
            Split::Whole => None,
            Split::Parts(parts) => Some(self.pipeline.workspace(parts as usize, c)),
            Split::Workers(workers) => Some(self.pipeline.parts(workers as usize)),
        }
    }

    fn meeting(&self, split: Split, _k: usize) -> Meeting {
        match split {
            Split::Whole => Meeting::None,
            Split::Parts(_) => Meeting::Reduce(self.pipeline.fragments()),
            Split::Workers(workers) => Meeting::Flags(self.pipeline.flags(workers as usize)),
        }
    }

    fn second(&self, split: Split, order: Order2d, elements: usize, epilogue: Epilogue) -> Option<HelperKernel> {
        let Split::Parts(parts) = split else { return None };
        let shared = Reduce::shares(parts, elements);
        Some(HelperKernel::Reduce(Reduce { ty: self.ty, order, shared, epilogue }))
    }
}

impl KernelFamily for Hopper {
    const NAMES: &'static [KernelName] = &[KernelName {
        name: "hopper",
        ty: Type::F16,
        description: "f16, bf16 on Hopper's matrix units: some warps have tiles copied, others multiply",
        form: Form::Parameters,
    }];
    const SOURCES: &'static [(&'static str, &'static str)] = sources! { "hopper.rs" };

    fn named(name: &str, ty: Type) -> Result<Self> {
        Hopper::named(name, ty)
    }

    fn candidates(problem: &Problem, gpu: &GpuDescription) -> Vec<CandidateOf<Self>> {
        if gpu.compute != HOPPER {
            return Vec::new();
        }
        let known = hopper::measured(problem, gpu.multiprocessors).into_iter();
        known.map(|(recipe, time)| CandidateOf { recipe, microseconds: Some(time) }).collect()
    }

    fn listed(ty: Type) -> Vec<String> {
        let mut names = Vec::new();
        // Some take no right operand of rows.
        for layout in layouts().filter(|(_, b, _)| *b == Order2d::RowMajor) {
            let recipes = hopper::measured(&large(ty, Accuracy::Full, layout), 132).into_iter();
            let kernels = recipes.filter(|(recipe, _)| !recipe.swapped);
            add_new(&mut names, kernels.map(|(recipe, _)| recipe.kernel.short_name()));
        }
        names
    }

    fn assembled() -> Vec<Self> {
        let mut all = pipelines();
        add_new(&mut all, of_groups());
        all
    }

    /// These load on the GPU that is measured and on no other.
    fn is_measured(&self) -> bool {
        false
    }
}

/// Those that plans choose from: every layout, with C by tiles and by elements, as a whole and in
/// parts; and tiles that blocks share evenly. And some of those by name alone.
fn pipelines() -> Vec<Hopper> {
    let mut all = Vec::new();
    let epilogue = assembled_epilogues(Type::BF16)[0];
    for (a, b) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        for (side, vectors) in [(96, true), (96, false), (4096, true)] {
            let orders = [Order2d::RowMajor, Order2d::ColMajor];
            let lies = [(orders[a], true), (orders[b], true), (Order2d::RowMajor, vectors)]
                .map(|(order, vectors)| Lie::new(order, vectors));
            let (ty, accuracy) = (Type::BF16, Accuracy::Full);
            let problem = Problem { ty, accuracy, m: side, n: side, k: 4096, batches: 1, lies };
            for (recipe, _) in hopper::measured(&problem, 132) {
                let hopper = Hopper::fit(recipe, lies).kernel.with_epilogue(Epilogue::NONE);
                add_new(&mut all, [hopper]);
                // f16 differs by the instruction's name alone.
                if a == b && vectors {
                    add_new(&mut all, [Hopper { ty: Type::F16, ..hopper }]);
                }
                if a != 0 || b != 0 || hopper.schedule != Schedule::Tiles {
                    continue;
                }
                // Of epilogues, the one with most registers.
                add_new(&mut all, [Hopper { epilogue, ..hopper }]);
                let shared = [Epilogue::NONE, epilogue];
                let shared = shared.map(|epilogue| Hopper { epilogue, schedule: Schedule::Balanced, ..hopper });
                add_new(&mut all, shared.into_iter().filter(Hopper::shares_tiles));
            }
        }
    }
    // By name alone: consumers that take turns.
    for name in ["hopper_128x128x64_2_6_1_pp", "hopper_64x256x64_2_4_2_pp"] {
        let named = Hopper::named(name, Type::BF16).into_iter();
        add_new(&mut all, named.flat_map(|hopper| [hopper, Hopper { epilogue, ..hopper }]));
    }
    all
}

/// Those for groups of rows that plans choose, with a B in rows or columns, and of epilogues the
/// one with most registers.
fn of_groups() -> Vec<Hopper> {
    let mut all = Vec::new();
    let (row, accuracy) = (Order2d::RowMajor, Accuracy::Full);
    let caps = Caps::Gpu { compute: HOPPER, multiprocessors: 132 };
    for (size, n) in [16, 64, 100, 256, 1024].into_iter().flat_map(|size| [256, 1024, 4096].map(|n| (size, n))) {
        for (b, stored, ty) in [
            (row, true, Type::BF16),
            (row, true, Type::F16),
            (row, false, Type::BF16),
            (Order2d::ColMajor, true, Type::BF16),
        ] {
            let (sizes, lies) = ([size; 16], [Lie::new(row, true), Lie::new(b, true), Lie::new(row, stored)]);
            let problem = Problem { ty, accuracy, m: 16 * size, n, k: 2048, batches: 16, lies };
            let kernel = groups::of_groups(&problem, &sizes, &caps).into_iter();
            let epilogue = assembled_epilogues(Type::BF16)[0];
            add_new(&mut all, kernel.flat_map(|hopper| [hopper, Hopper { epilogue, ..hopper }]));
        }
    }
    all
}
