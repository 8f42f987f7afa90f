//! The family of kernels whose blocks own a large tile of C: register tiles and Tensor Cores by
//! warp.

use tegula_core::element::{Accuracy, Type};
use tegula_core::epilogue::Epilogue;
use tegula_core::error::Result;
use tegula_ir::{Kernel, Mma, Order2d};

use super::{GemmVariant, KernelFamily, add_new, large, layouts, sources};
use crate::blocked::{Blocked, Core, Schedule};
use crate::helper::{HelperKernel, assembled_epilogues};
use crate::mend::Mend;
use crate::name::{Form, KernelName};
use crate::pack::Packing;
use crate::plan::candidates::{candidates, packed_factors};
use crate::plan::device::GpuDescription;
use crate::plan::problem::{Lie, Problem};
use crate::plan::recipe::{CandidateOf, Meeting, RecipeOf, Split};
use crate::sum::{Adding, Sum};

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

    /// These kernels store rows; a C of columns is a Cᵀ of rows.
    fn fit(recipe: RecipeOf<Self>, lies: [Lie; 3]) -> RecipeOf<Self> {
        let [a, b, c] = lies;
        let swapped = c.order == Order2d::ColMajor;
        let mut lies = if swapped { [b.transposed(), a.transposed(), c.transposed()] } else { lies };
        let packed;
        ([lies[0], lies[1]], packed) = packed_factors(&recipe.kernel, [lies[0], lies[1]], recipe.packed);
        let schedule = recipe.split.schedule();
        let (mut orders, mut vectors) = (lies.map(|lie| lie.order), lies.map(|lie| lie.vectors));
        if schedule == Schedule::Parts {
            // The workspace is row-major, with rows of any length.
            (orders[2], vectors[2]) = (Order2d::RowMajor, false);
        }
        RecipeOf { kernel: Blocked { orders, vectors, schedule, ..recipe.kernel }, swapped, packed, ..recipe }
    }

    fn accuracy(&self) -> Accuracy {
        match self.core {
            Core::Mma(Mma::TF32) => Accuracy::Tf32,
            Core::Register | Core::Dmma(_) | Core::Mma(_) | Core::Limbs => Accuracy::Full,
        }
    }

    fn transposed_operands(&self) -> [bool; 2] {
        self.turned()
    }

    fn packing(&self) -> Packing {
        match self.core {
            Core::Mma(Mma::TF32) => Packing::Tf32,
            Core::Limbs => Packing::Limbs,
            Core::Register | Core::Dmma(_) | Core::Mma(_) => Packing::Same,
        }
    }

    fn meeting(&self, split: Split, k: usize) -> Meeting {
        match split {
            Split::Whole => Meeting::None,
            Split::Parts(_) => Meeting::Sum,
            Split::Workers(_) => Meeting::Mend { steps: k.div_ceil(self.blocking.block[2] as usize) as u32 },
        }
    }

    fn second(&self, split: Split, order: Order2d, elements: usize, epilogue: Epilogue) -> Option<HelperKernel> {
        let ty = self.ty;
        match split {
            Split::Whole => None,
            Split::Parts(parts) => {
                Some(HelperKernel::Sum(Sum { ty, order, adding: Adding::of(parts, elements), epilogue }))
            }
            Split::Workers(_) => Some(HelperKernel::Mend(Mend { ty, order, epilogue })),
        }
    }
}

impl KernelFamily for Blocked {
    const NAMES: &'static [KernelName] = &[
        name(
            "register",
            Type::F32,
            "f32, f64, i32: each thread owns a patch of C in registers, fed by asynchronous copies",
        ),
        name("dmma", Type::F64, "f64 on matrix units"),
        name("mma", Type::F16, "f16, bf16, i8 on matrix units, with sums in 32 bits"),
        name("tf32", Type::F32, "f32 rounded to tf32 on matrix units, where --accuracy tf32 asks for it"),
        name("limbs", Type::I32, "i32 on matrix units, exactly: ten products of bytes for one"),
    ];
    const SOURCES: &'static [(&'static str, &'static str)] =
        sources! { "register.rs" "dmma.rs" "mma.rs" "limbs.rs" "blocked.rs" };

    fn named(name: &str, ty: Type) -> Result<Self> {
        Blocked::named(name, ty)
    }

    /// Blocks copy asynchronously, as GPUs since Ampere can.
    fn candidates(problem: &Problem, gpu: &GpuDescription) -> Vec<CandidateOf<Self>> {
        if gpu.compute < (8, 0) {
            return Vec::new();
        }
        let known = candidates(problem, gpu.multiprocessors).into_iter();
        known.map(|(recipe, time)| CandidateOf { recipe, microseconds: Some(time) }).collect()
    }

    fn listed(ty: Type) -> Vec<String> {
        let mut names = Vec::new();
        for accuracy in [Accuracy::Full, Accuracy::Tf32] {
            for layout in layouts() {
                let recipes = candidates(&large(ty, accuracy, layout), 132).into_iter();
                add_new(&mut names, recipes.map(|(recipe, _)| recipe.kernel.short_name()));
            }
        }
        names
    }

    fn assembled() -> Vec<Self> {
        let mut all = chosen_from();
        let finished = finished(&all);
        add_new(&mut all, finished);
        all
    }
}

const fn name(name: &'static str, ty: Type, description: &'static str) -> KernelName {
    KernelName { name, ty, description, form: Form::Parameters }
}

/// Kernels that plans choose from: every layout, as it is or packed, and split work.
fn chosen_from() -> Vec<Blocked> {
    let (row, col) = (Order2d::RowMajor, Order2d::ColMajor);
    let layouts =
        [(row, row, true), (row, row, false), (col, col, true), (row, col, true), (row, col, false), (col, row, true)];
    let mut all = Vec::new();
    let full = Type::OPERANDS.map(|ty| (ty, Accuracy::Full));
    for (ty, accuracy) in full.into_iter().chain([(Type::F32, Accuracy::Tf32)]) {
        // bf16 differs from f16 by the instruction's name alone, and i32 little more from f32.
        let layouts = match ty {
            Type::BF16 => &layouts[..1],
            Type::I32 => &layouts[..2],
            _ => &layouts[..],
        };
        for (i, &(a, b, vectors)) in layouts.iter().enumerate() {
            let lies = [a, b, row].map(|order| Lie::new(order, vectors));
            // Few enough blocks for split sums, and many enough for shared tiles.
            for side in [256, 4096] {
                let problem = Problem { ty, accuracy, m: side, n: side, k: 4096, batches: 1, lies };
                let recipes = candidates(&problem, 132).into_iter().map(|(recipe, _)| recipe);
                let recipes = recipes.filter(|recipe| recipe.split == Split::Whole || i < 2);
                add_new(&mut all, recipes.map(|recipe| recipe.kernel));
            }
        }
    }
    all
}

/// Few registers are left beside an epilogue: every tile that stores to C has both epilogues where
/// its operands have the layout that it wants; f64, which has fewest left, the first in every
/// layout.
fn finished(all: &[Blocked]) -> Vec<Blocked> {
    // bf16 differs from f16 by the instruction's name alone.
    let whole = |b: &&Blocked| b.ty != Type::BF16 && b.schedule != Schedule::Parts && b.vectors == [true; 3];
    let finished = all.iter().filter(whole).flat_map(|&blocked| {
        let best = blocked.orders[..2] == blocked.wanted();
        let count = if best { 2 } else { usize::from(blocked.ty == Type::F64) };
        assembled_epilogues(blocked.ty).into_iter().take(count).map(move |epilogue| Blocked { epilogue, ..blocked })
    });
    finished.collect()
}
