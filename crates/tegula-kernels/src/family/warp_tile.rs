//! The family of warp kernels: each warp computes a tile from registers, in batches of small
//! products.

use tegula_core::element::{Accuracy, Type};
use tegula_core::epilogue::Epilogue;
use tegula_core::error::Result;
use tegula_ir::{Kernel, Order2d};

use super::{GemmVariant, KernelFamily, add_new, layouts, sources};
use crate::helper::assembled_epilogues;
use crate::name::{KernelName, NameSyntax};
use crate::plan::device::GpuDescription;
use crate::plan::problem::{MAX_ALIGNMENT, OperandLayout, Problem};
use crate::plan::recipe::{CandidateOf, RecipeOf, Split};
use crate::plan::warp_tiles;
use crate::warp_tile::{SLAB, WarpTile};

impl GemmVariant for WarpTile {
    fn build(&self) -> Result<Kernel> {
        WarpTile::build(self)
    }

    fn ty(&self) -> Type {
        self.ty
    }

    fn tile(&self) -> [u32; 2] {
        self.block
    }

    fn with_epilogue(self, epilogue: Epilogue) -> Self {
        WarpTile { epilogue, ..self }
    }

    fn check_size(&self) -> [u32; 3] {
        let [rows, cols] = self.block;
        [rows, cols, 2 * self.load_depth * SLAB]
    }

    fn supports(&self, split: Split, packed: [bool; 2], swapped: bool) -> bool {
        split == Split::Whole && packed == [false; 2] && !swapped
    }

    /// These kernels store rows; a column-major C is a row-major Cᵀ.
    fn legalize(recipe: RecipeOf<Self>, [a, b, c]: [OperandLayout; 3]) -> RecipeOf<Self> {
        let swapped = c.order == Order2d::ColMajor;
        let layouts = if swapped { [b.transposed(), a.transposed(), c.transposed()] } else { [a, b, c] };
        let kernel = WarpTile { orders: layouts.map(|layout| layout.order), ..recipe.kernel };
        let widths = layouts.map(|layout| layout.vector_width(kernel.ty));
        RecipeOf { kernel: kernel.with_widths(widths), swapped, ..recipe }
    }

    fn transposed_operands(&self) -> [bool; 2] {
        self.transposed()
    }
}

impl KernelFamily for WarpTile {
    const NAMES: &'static [KernelName] = &[KernelName {
        name: "warp",
        ty: Type::F16,
        description: "f16, bf16, f64, batches of small products: each warp loads a tile's operands to registers",
        syntax: NameSyntax::Parameters,
    }];
    const SOURCES: &'static [(&'static str, &'static str)] = sources! { "warp_tile.rs" };

    fn named(name: &str, ty: Type) -> Result<Self> {
        WarpTile::named(name, ty)
    }

    fn candidates(problem: &Problem, gpu: &GpuDescription) -> Vec<CandidateOf<Self>> {
        let known = warp_tiles::candidates(problem, gpu).into_iter();
        known.map(|(recipe, time)| CandidateOf { recipe, microseconds: Some(time) }).collect()
    }

    /// `mma.sync` adds 16 products at once, as `wgmma` does.
    fn candidates_in_ranges(problem: &Problem, gpu: &GpuDescription, ranges: u32) -> Vec<CandidateOf<Self>> {
        if ranges == 1 { Self::candidates(problem, gpu) } else { Vec::new() }
    }

    fn listed(ty: Type) -> Vec<String> {
        let mut names = Vec::new();
        for problem in small_problems(ty) {
            let known = warp_tiles::candidates(&problem, &GpuDescription::H200).into_iter();
            add_new(&mut names, known.map(|(recipe, _)| recipe.kernel.short_name()));
        }
        names
    }

    fn assembled() -> Vec<Self> {
        let mut all = Vec::new();
        // bf16 differs from f16 only in the name of the instruction.
        for problem in [Type::F16, Type::F64].into_iter().flat_map(small_problems) {
            let known = warp_tiles::candidates(&problem, &GpuDescription::H200).into_iter();
            add_new(&mut all, known.map(|(recipe, _)| recipe.kernel));
        }
        let with_epilogues = all.iter().filter(|kernel| kernel.products == 1 && kernel.load_depth == 2);
        let with_epilogues: Vec<_> = with_epilogues
            .flat_map(|&kernel| assembled_epilogues(kernel.ty).map(|epilogue| WarpTile { epilogue, ..kernel }))
            .collect();
        add_new(&mut all, with_epilogues);
        all
    }
}

/// Batches of products of several sizes, in all layouts.
fn small_problems(ty: Type) -> impl Iterator<Item = Problem> {
    let aligned = |order, alignment| OperandLayout { alignment, ..OperandLayout::new(order, false) };
    let of_16 = layouts().map(move |(a, b, aligned_16)| {
        [a, b, Order2d::RowMajor].map(|order| aligned(order, if aligned_16 { MAX_ALIGNMENT } else { 1 }))
    });
    let all = of_16.chain([[aligned(Order2d::RowMajor, 4); 3]]);
    let sides = [16, 64, 256];
    let problem = move |layouts, side| {
        let (accuracy, m, n, k, batches) = (Accuracy::Full, side, side, side, 1000);
        Problem { ty, accuracy, m, n, k, batches, layouts }
    };
    all.flat_map(move |layouts| sides.map(|side| problem(layouts, side)))
}
