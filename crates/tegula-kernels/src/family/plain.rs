//! The family of plain kernels, with one thread per element of C.

use tegula_core::element::Type;
use tegula_core::epilogue::Epilogue;
use tegula_core::error::Result;
use tegula_ir::{Kernel, Order2d};

use super::{GemmVariant, KernelFamily, sources};
use crate::helper::assembled_epilogues;
use crate::name::{KernelName, NameSyntax};
use crate::plain::{Barriers, Edges, Mapping, Plain, PlainKind};
use crate::plan::device::GpuDescription;
use crate::plan::problem::{OperandLayout, Problem};
use crate::plan::recipe::{CandidateOf, RecipeOf, Split};

impl GemmVariant for Plain {
    fn build(&self) -> Result<Kernel> {
        Plain::build(self)
    }

    fn ty(&self) -> Type {
        self.ty
    }

    fn tile(&self) -> [u32; 2] {
        [self.tile; 2]
    }

    fn with_epilogue(self, epilogue: Epilogue) -> Self {
        Plain { epilogue, ..self }
    }

    fn check_size(&self) -> [u32; 3] {
        [64; 3]
    }

    fn supports(&self, split: Split, packed: [bool; 2], swapped: bool) -> bool {
        split == Split::Whole && packed == [false; 2] && !swapped
    }

    fn legalize(recipe: RecipeOf<Self>, layouts: [OperandLayout; 3]) -> RecipeOf<Self> {
        RecipeOf { kernel: Plain { orders: layouts.map(|layout| layout.order), ..recipe.kernel }, ..recipe }
    }
}

impl KernelFamily for Plain {
    const NAMES: &'static [KernelName] = &[
        name("naive", Type::F32, "One thread per element of C, which loops over k in global memory"),
        name("tiled", Type::F32, "Each block computes a tile of C in steps along k through shared memory"),
        name("K1", Type::F32, "naive f32: the baseline, 2k global loads per thread"),
        name("K2", Type::F64, "tiled f64: guards on every load, so every size is supported"),
        name("K3", Type::I32, "tiled i32 with x as the row: uncoalesced loads and conflicting shared stores"),
        KernelName {
            syntax: NameSyntax::Options { side: 64, whole_tiles: true },
            ..name(
                "K4",
                Type::F32,
                "tiled f32 without guards, rounded down: silently wrong unless the tile divides the size",
            )
        },
        KernelName {
            syntax: NameSyntax::Options { side: 4, whole_tiles: false },
            ..name(
                "K5",
                Type::F32,
                "tiled f32, 2×2 tiles of a 4×4 product, with a barrier inside the inner loop: correct but wasteful",
            )
        },
        name("K6", Type::F32, "tiled f32, 32×32 tiles, x as the column: the form to start from"),
    ];
    const SOURCES: &'static [(&'static str, &'static str)] = sources! { "naive.rs" "tiled.rs" };

    fn named(name: &str, ty: Type) -> Result<Self> {
        Ok(Plain { ty, ..Plain::named(name)? })
    }

    /// Plans use plain kernels only if no other family has a candidate.
    fn candidates(_problem: &Problem, _gpu: &GpuDescription) -> Vec<CandidateOf<Self>> {
        Vec::new()
    }

    fn listed(_ty: Type) -> Vec<String> {
        Vec::new()
    }

    /// All types, tiles, mappings and orders of correct kernels, and all edges and barriers in
    /// row-major order.
    fn assembled() -> Vec<Self> {
        let orders = [Order2d::RowMajor, Order2d::ColMajor, Order2d::Strided];
        let mut all = Vec::new();
        for (family, ty) in
            [PlainKind::Naive, PlainKind::Tiled].into_iter().flat_map(|family| Type::OPERANDS.map(|ty| (family, ty)))
        {
            for (tile, mapping) in
                [2, 4, 8, 16, 32].into_iter().flat_map(|tile| [(tile, Mapping::XCol), (tile, Mapping::XRow)])
            {
                let plain = Plain { mapping, ..Plain::new(family, ty, tile) };
                all.extend(orders.map(|order| Plain { orders: [order; 3], ..plain }));
                all.extend([Edges::Floor, Edges::Unguarded].map(|edges| Plain { edges, ..plain }));
                if family == PlainKind::Tiled {
                    let barriers = [Barriers::NoFirst, Barriers::NoSecond, Barriers::Extra];
                    all.extend(barriers.map(|barriers| Plain { barriers, ..plain }));
                }
            }
            // bf16 differs from f16 only in the name of the instruction.
            if ty != Type::BF16 {
                all.extend(assembled_epilogues(ty).map(|epilogue| Plain { epilogue, ..Plain::new(family, ty, 32) }));
            }
        }
        all
    }

    fn is_measured(&self) -> bool {
        let plain = Plain::new(self.kind, self.ty, self.tile);
        let has_epilogue = !self.epilogue.is_none();
        self.tile >= 16 && (has_epilogue || *self == plain || *self == Plain { mapping: Mapping::XRow, ..plain })
    }
}

const fn name(name: &'static str, ty: Type, description: &'static str) -> KernelName {
    KernelName { name, ty, description, syntax: NameSyntax::Options { side: 64, whole_tiles: false } }
}
