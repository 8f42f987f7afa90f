//! Legalization: adapts a recipe to the layouts of its operands. It sets the configuration of the
//! kernel, and the operands that are packed first.

use std::ops::Range;

use tegula_core::element::Type;
use tegula_core::epilogue::Epilogue;
use tegula_core::error::{Error, Result};
use tegula_core::matrix::{Layout, Shape};

use super::problem::OperandLayout;
use super::recipe::{CandidateOf, RecipeOf, Split};
use crate::family::GemmVariant;
use crate::helper::HelperKernel;
use crate::pack::{Pack, PackBoth};
use crate::plain::{Plain, PlainKind};
use crate::registry::GemmKernel;

/// A recipe with a kernel of any family.
pub type Recipe = RecipeOf<GemmKernel>;

/// A candidate with a kernel of any family.
pub type Candidate = CandidateOf<GemmKernel>;

impl<K: GemmVariant> RecipeOf<K> {
    /// Adapts the recipe to the layouts of A, B and C.
    #[must_use]
    pub fn legalize(self, layouts: [OperandLayout; 3]) -> Self {
        K::legalize(self, layouts).with_epilogue(self.epilogue)
    }

    /// Sets the epilogue of C. If the recipe is swapped, the kernel gets that of Cᵀ.
    #[must_use]
    pub fn with_epilogue(self, epilogue: Epilogue) -> Self {
        let recipe = RecipeOf { epilogue, ..self };
        // Partial sums have no epilogue; the reduction applies it.
        let epilogue = if let Split::SplitK(_) = self.split { Epilogue::NONE } else { recipe.passed_epilogue() };
        RecipeOf { kernel: self.kernel.with_epilogue(epilogue), ..recipe }
    }

    /// The name of the recipe.
    pub fn name(&self) -> String {
        self.name_with(&self.kernel.to_string())
    }

    /// The name of the recipe, given that of its kernel.
    pub fn name_with(&self, kernel: &str) -> String {
        let swapped = if self.swapped { "_swapped" } else { "" };
        let packed = match self.packed {
            [false, false] => "",
            [true, false] => "_packa",
            [false, true] => "_packb",
            [true, true] => "_packab",
        };
        match self.split {
            Split::Whole => format!("{kernel}{swapped}{packed}"),
            Split::SplitK(splits) => format!("{kernel}_{splits}{swapped}{packed}{}", self.passed_epilogue().suffix()),
            Split::StreamK(workers) => format!("{kernel}_w{workers}{swapped}{packed}"),
        }
    }

    /// The layout of a packed operand (0 left, 1 right), given its shape as passed to the kernel;
    /// `None` if it is not packed.
    ///
    /// # Errors
    /// [`Error::Shape`] where its elements cannot be addressed.
    pub(super) fn packed(&self, operand: usize, shape: Shape) -> Result<Option<Layout>> {
        if !self.packed[operand] {
            return Ok(None);
        }
        let cols = shape.cols.checked_next_multiple_of(self.kernel.packed_columns()).unwrap_or(shape.cols);
        Layout::row_major(Shape { cols, ..shape }).map(Some)
    }

    /// The packing kernels, each with the range of operands that it packs.
    ///
    /// They copy operands of these layouts to workspaces of these shapes. One kernel packs both if
    /// it can, since two launches take longer.
    pub(super) fn packs(
        &self,
        layouts: [OperandLayout; 2],
        packed_shapes: [Option<Shape>; 2],
    ) -> impl Iterator<Item = (HelperKernel, Range<usize>)> + use<K> {
        let [a, b] =
            layouts.map(|from| Pack { ty: self.kernel.ty(), from: from.order, packing: self.kernel.packing() });
        let shapes = packed_shapes.map(|shape| shape.filter(|shape| !shape.is_empty()));
        let both = shapes[0].zip(shapes[1]).and_then(|(shape_a, shape_b)| PackBoth::of([a, b], [shape_a, shape_b]));
        let each =
            |operand: usize, pack: Pack| shapes[operand].map(|_| (HelperKernel::Pack(pack), operand..operand + 1));
        let packs =
            both.map_or_else(|| [each(0, a), each(1, b)], |both| [Some((HelperKernel::PackBoth(both), 0..2)), None]);
        packs.into_iter().flatten()
    }
}

impl Recipe {
    /// Parses a name: a kernel's ([`GemmKernel::named`]), then options, each after a colon.
    ///
    /// The options are `splitk4` or `4` (split-K), `streamk132` or `w132` (stream-K with 132
    /// blocks), `swapped` or `s` (Cᵀ = Bᵀ·Aᵀ), and `packa`, `packb` or `packab` (operands that are
    /// packed first). [`legalize`](Self::legalize) adapts the recipe to layouts.
    ///
    /// # Errors
    /// [`Error::KernelOption`] with the known names, or the option that the kernel does not
    /// support.
    pub fn named(name: &str, ty: Type) -> Result<Self> {
        let mut words = name.split(':');
        let first = words.next().unwrap_or_default();
        if HelperKernel::named(first, ty).is_some() {
            return Err(Error::KernelOption(format!("{name} is a helper kernel; a recipe needs a GEMM kernel")));
        }
        let kernel = GemmKernel::named(first, ty)?;
        let (mut split, mut packed, mut swapped) = (Split::Whole, [false; 2], false);
        for word in words {
            match word {
                "packa" | "pa" => packed = [true, false],
                "packb" | "pb" => packed = [false, true],
                "packab" | "pab" => packed = [true, true],
                "swapped" | "s" => swapped = true,
                _ => split = word.parse()?,
            }
        }
        if !kernel.supports(split, packed, swapped) {
            return Err(Error::KernelOption(format!(
                "{kernel} does not support the split, packing or transposition of {name}"
            )));
        }
        Ok(Recipe { split, packed, swapped, ..RecipeOf::new(kernel) })
    }

    /// A slower recipe without a workspace for the same product and layouts.
    #[must_use]
    pub fn without_workspace(self, layouts: [OperandLayout; 3]) -> Self {
        let whole = Recipe { split: Split::Whole, packed: [false; 2], ..self };
        if whole.legalize(layouts).packed == [false; 2] {
            return whole;
        }
        Recipe { epilogue: self.epilogue, ..Plain::new(PlainKind::Tiled, self.kernel.ty(), 32).into() }
    }
}

#[cfg(test)]
mod tests {
    use tegula_ir::Order2d;
    use tegula_ir::launch::{BoundArgument, DeviceProperties};

    use super::super::launches::{Argument, Operands};
    use super::*;
    use crate::Hopper;

    /// For many layouts: the kernel accepts every operand, packed or not.
    #[test]
    fn legalize_operands_bind_to_the_kernel() {
        let (sizes, pads) = ([1, 8, 40], [0, 1, 8]);
        let layouts = |rows: usize, cols: usize| {
            pads.into_iter().flat_map(move |left_pad| pads.map(|right_pad| (left_pad, right_pad))).flat_map(
                move |(left_pad, right_pad)| {
                    let pitch = |cols: usize| (left_pad + cols + right_pad) as isize;
                    let row_major = |rows, cols| Layout {
                        shape: Shape { batches: 1, rows, cols },
                        offset: left_pad,
                        strides: [pitch(cols) * rows as isize, pitch(cols), 1],
                    };
                    [row_major(rows, cols), row_major(cols, rows).transposed()]
                },
            )
        };
        let base = 1 << 20;
        for (name, ty) in [
            ("mma_64x64x64_warp32x32_thread16x8_stages3", Type::F16),
            ("mma_64x64x64_warp32x32_thread16x8_stages3", Type::I8),
            ("hopper_64x64x64_consumers1_stages2", Type::F16),
            ("hopper_64x64x64_consumers1_stages2:s", Type::BF16),
        ] {
            let recipe = Recipe::named(name, ty).unwrap();
            for (m, k) in sizes.into_iter().flat_map(|m| sizes.map(|k| (m, k))) {
                for a in layouts(m, k) {
                    for b in layouts(k, 8).step_by(5) {
                        let c = Layout::row_major(Shape::new(m, 8)).unwrap();
                        let operand_layout = |layout: &Layout| OperandLayout::of(layout, ty, layout.origin(ty, base));
                        let operand_layouts =
                            [operand_layout(&a), operand_layout(&b), OperandLayout::of(&c, Type::F32, base)];
                        let operands = Operands { layouts: [a, b, c], operand_layouts, epilogue: Epilogue::NONE };
                        let launches = recipe.launches(&operands).unwrap();
                        let out = ty.output();
                        let matrix = |ty: Type, layout: Layout| BoundArgument::Matrix {
                            ty,
                            layout,
                            address: layout.origin(ty, base),
                        };
                        let bound = |argument: &Argument| match *argument {
                            Argument::A => matrix(ty, launches.layout(0, a)),
                            Argument::B => matrix(ty, launches.layout(1, b)),
                            Argument::C => matrix(out, launches.layout(2, c)),
                            Argument::Workspace(number) => matrix(ty, launches.workspaces[usize::from(number)].layout),
                            _ => BoundArgument::Scalar { ty: ty.accumulator(), bits: 0 },
                        };
                        let gemm = launches.gemm();
                        let kernel = gemm.kernel.build().unwrap();
                        let bound: Vec<BoundArgument> = gemm.arguments.iter().map(bound).collect();
                        let facts = DeviceProperties { multiprocessors: 132 };
                        kernel.bind(&bound, &facts).unwrap_or_else(|why| panic!("{a:?} {b:?}: {why}"));
                    }
                }
            }
        }
    }

    /// A broadcast batch and reversed rows: 16-byte accesses work, but TMA needs a packed copy.
    #[test]
    fn legalize_packs_for_tma_without_positive_strides() {
        let shape = Shape { batches: 3, rows: 8, cols: 16 };
        let whole = Layout::row_major(shape).unwrap();
        let broadcast = Layout { strides: [0, 16, 1], ..whole };
        let backwards = Layout { offset: 7 * 16, strides: [128, -16, 1], ..whole };
        for (layout, taken) in [(whole, true), (broadcast, false), (backwards, false)] {
            let operand_layout = OperandLayout::of(&layout, Type::F16, layout.origin(Type::F16, 1 << 20));
            assert!(operand_layout.aligned_16() && operand_layout.tma_compatible == taken);
            let [mma, hopper] = ["mma_64x64x64_warp32x32_thread16x8_stages3", "hopper_64x64x64_consumers1_stages2"]
                .map(|name| {
                    Recipe::named(name, Type::F16).unwrap().legalize([
                        operand_layout,
                        OperandLayout::new(Order2d::RowMajor, true),
                        operand_layout,
                    ])
                });
            assert_eq!((mma.packed, hopper.packed), ([false; 2], [!taken, false]));
            assert!(matches!(hopper.kernel, GemmKernel::Hopper(Hopper { tma_store, .. }) if tma_store == taken));
        }
    }
}
