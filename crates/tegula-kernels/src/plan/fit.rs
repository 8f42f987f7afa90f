//! What a recipe makes of the operands' layouts: the kernel's configuration, workspaces, and the
//! kernels before and after it.

use std::ops::Range;

use tegula_core::element::Type;
use tegula_core::epilogue::Epilogue;
use tegula_core::error::{Error, Result};
use tegula_core::matrix::{Layout, Shape};

use super::problem::Lie;
use super::recipe::{CandidateOf, RecipeOf, Split};
use crate::family::GemmVariant;
use crate::helper::HelperKernel;
use crate::pack::{Pack, PackBoth};
use crate::plain::{Family, Plain};
use crate::registry::GemmKernel;

/// A product as launches of kernels of any family.
pub type Recipe = RecipeOf<GemmKernel>;

/// A recipe of any family that may make a product.
pub type Candidate = CandidateOf<GemmKernel>;

impl<K: GemmVariant> RecipeOf<K> {
    /// The same for matrices that lie so: A, B and C.
    #[must_use]
    pub fn fit(self, lies: [Lie; 3]) -> Self {
        K::fit(self, lies).finished(self.epilogue)
    }

    /// The same with an epilogue, by the rows and columns of C itself.
    #[must_use]
    pub fn finished(self, epilogue: Epilogue) -> Self {
        let recipe = RecipeOf { epilogue, ..self };
        // Nothing happens to parts of sums; the second kernel finishes the whole.
        let epilogue = if let Split::Parts(_) = self.split { Epilogue::NONE } else { recipe.passed_epilogue() };
        RecipeOf { kernel: self.kernel.with_epilogue(epilogue), ..recipe }
    }

    /// The name of what runs.
    pub fn name(&self) -> String {
        self.name_with(&self.kernel.to_string())
    }

    /// The name, given the kernel's.
    pub fn name_with(&self, kernel: &str) -> String {
        let swapped = if self.swapped { "_swapped" } else { "" };
        let packed = match self.packed {
            [false, false] => "",
            [true, false] => "_pa",
            [false, true] => "_pb",
            [true, true] => "_pab",
        };
        match self.split {
            Split::Whole => format!("{kernel}{swapped}{packed}"),
            Split::Parts(parts) => format!("{kernel}_{parts}{swapped}{packed}{}", self.passed_epilogue().suffix()),
            Split::Workers(workers) => format!("{kernel}_w{workers}{swapped}{packed}"),
        }
    }

    /// Where a factor (0 the left one, 1 the right one) lies once it is packed, given its shape as
    /// the kernel takes it; `None` where it is not.
    ///
    /// # Errors
    /// [`Error::Shape`] where its elements cannot be addressed.
    pub(super) fn packed(&self, which: usize, shape: Shape) -> Result<Option<Layout>> {
        if !self.packed[which] {
            return Ok(None);
        }
        let cols = shape.cols.checked_next_multiple_of(self.kernel.packed_columns()).unwrap_or(shape.cols);
        Layout::row_major(Shape { cols, ..shape }).map(Some)
    }

    /// The kernels that pack factors which lie so, to copies of such shapes where there are any,
    /// and which factors each packs: both, if one kernel can, since two launches take longer.
    pub(super) fn packs(
        &self,
        lies: [Lie; 2],
        to: [Option<Shape>; 2],
    ) -> impl Iterator<Item = (HelperKernel, Range<usize>)> + use<K> {
        let [a, b] = lies.map(|from| Pack { ty: self.kernel.ty(), from: from.order, packing: self.kernel.packing() });
        let to = to.map(|shape| shape.filter(|shape| !shape.is_empty()));
        let both = to[0].zip(to[1]).and_then(|(to_a, to_b)| PackBoth::of([a, b], [to_a, to_b]));
        let each = |which: usize, pack: Pack| to[which].map(|_| (HelperKernel::Pack(pack), which..which + 1));
        let packs =
            both.map_or_else(|| [each(0, a), each(1, b)], |both| [Some((HelperKernel::PackBoth(both), 0..2)), None]);
        packs.into_iter().flatten()
    }
}

impl Recipe {
    /// The recipe of a name: a kernel's ([`GemmKernel::named`]), after which `:` and a number may
    /// say in how many parts sums along k are made, or `:w` and a number how many blocks share
    /// the tiles, `:s` that the transpose is made of the transposed factors, and `:pa`, `:pb` or
    /// `:pab` that A, B or both are packed first. [`fit`](Self::fit) it to
    /// how matrices lie.
    ///
    /// # Errors
    /// [`Error::KernelOption`] that says what names there are, or what the kernel cannot do.
    pub fn named(name: &str, ty: Type) -> Result<Self> {
        let mut words = name.split(':');
        let first = words.next().unwrap_or_default();
        if HelperKernel::named(first, ty).is_some() {
            return Err(Error::KernelOption(format!("{name} only helps kernels that multiply")));
        }
        let kernel = GemmKernel::named(first, ty)?;
        let (mut split, mut packed, mut swapped) = (Split::Whole, [false; 2], false);
        for word in words {
            match word {
                "pa" => packed = [true, false],
                "pb" => packed = [false, true],
                "pab" => packed = [true, true],
                "s" => swapped = true,
                _ => split = word.parse()?,
            }
        }
        if !kernel.supports(split, packed, swapped) {
            return Err(Error::KernelOption(format!("{kernel} cannot split its work or pack so, as {name} has it")));
        }
        Ok(Recipe { split, packed, swapped, ..RecipeOf::new(kernel) })
    }

    /// A recipe of the same product that takes no workspace, for these layouts: slower.
    #[must_use]
    pub fn without_workspace(self, lies: [Lie; 3]) -> Self {
        let whole = Recipe { split: Split::Whole, packed: [false; 2], ..self };
        if whole.fit(lies).packed == [false; 2] {
            return whole;
        }
        Recipe { epilogue: self.epilogue, ..Plain::new(Family::Tiled, self.kernel.ty(), 32).into() }
    }
}

#[cfg(test)]
mod tests {
    use tegula_ir::Order2d;
    use tegula_ir::launch::{Bound, DeviceFacts};

    use super::super::launches::{Argument, Operands};
    use super::*;
    use crate::Hopper;

    /// Layouts of all sorts: what a recipe does not pack is what its kernel takes, and what it
    /// packs is, too.
    #[test]
    fn what_is_taken_as_it_lies_fits_the_kernel() {
        let (sizes, pads) = ([1, 8, 40], [0, 1, 8]);
        let layouts = |rows: usize, cols: usize| {
            pads.into_iter().flat_map(move |before| pads.map(|behind| (before, behind))).flat_map(
                move |(before, behind)| {
                    let pitch = |cols: usize| (before + cols + behind) as isize;
                    let row_major = |rows, cols| Layout {
                        shape: Shape { batches: 1, rows, cols },
                        offset: before,
                        strides: [pitch(cols) * rows as isize, pitch(cols), 1],
                    };
                    [row_major(rows, cols), row_major(cols, rows).transposed()]
                },
            )
        };
        let base = 1 << 20;
        for (name, ty) in [
            ("mma_64x64x64_32x32_16x8_3_1_1", Type::F16),
            ("mma_64x64x64_32x32_16x8_3_1_1", Type::I8),
            ("hopper_64x64x64_1_2_1", Type::F16),
            ("hopper_64x64x64_1_2_1:s", Type::BF16),
        ] {
            let recipe = Recipe::named(name, ty).unwrap();
            for (m, k) in sizes.into_iter().flat_map(|m| sizes.map(|k| (m, k))) {
                for a in layouts(m, k) {
                    for b in layouts(k, 8).step_by(5) {
                        let c = Layout::row_major(Shape::new(m, 8)).unwrap();
                        let lie = |layout: &Layout| Lie::of(layout, ty, layout.origin(ty, base));
                        let lies = [lie(&a), lie(&b), Lie::of(&c, Type::F32, base)];
                        let operands = Operands { layouts: [a, b, c], lies, epilogue: Epilogue::NONE };
                        let launches = recipe.launches(&operands).unwrap();
                        let out = ty.output();
                        let matrix =
                            |ty: Type, layout: Layout| Bound::Matrix { ty, layout, address: layout.origin(ty, base) };
                        let bound = |argument: &Argument| match *argument {
                            Argument::A => matrix(ty, launches.layout(0, a)),
                            Argument::B => matrix(ty, launches.layout(1, b)),
                            Argument::C => matrix(out, launches.layout(2, c)),
                            Argument::Workspace(number) => matrix(ty, launches.workspaces[usize::from(number)].layout),
                            _ => Bound::Scalar { ty: ty.accumulator(), bits: 0 },
                        };
                        let main = launches.main();
                        let kernel = main.kernel.build().unwrap();
                        let bound: Vec<Bound> = main.arguments.iter().map(bound).collect();
                        let facts = DeviceFacts { multiprocessors: 132 };
                        kernel.bind(&bound, &facts).unwrap_or_else(|why| panic!("{a:?} {b:?}: {why}"));
                    }
                }
            }
        }
    }

    /// One matrix for the whole batch, and rows that go backwards: read 16 bytes at once as ever,
    /// but the copy engine takes a packed copy.
    #[test]
    fn the_copy_engine_goes_forwards() {
        let shape = Shape { batches: 3, rows: 8, cols: 16 };
        let whole = Layout::row_major(shape).unwrap();
        let broadcast = Layout { strides: [0, 16, 1], ..whole };
        let backwards = Layout { offset: 7 * 16, strides: [128, -16, 1], ..whole };
        for (layout, taken) in [(whole, true), (broadcast, false), (backwards, false)] {
            let lie = Lie::of(&layout, Type::F16, layout.origin(Type::F16, 1 << 20));
            assert!(lie.vectors && lie.forwards == taken);
            let [mma, hopper] = ["mma_64x64x64_32x32_16x8_3_1_1", "hopper_64x64x64_1_2_1"]
                .map(|name| Recipe::named(name, Type::F16).unwrap().fit([lie, Lie::new(Order2d::RowMajor, true), lie]));
            assert_eq!((mma.packed, hopper.packed), ([false; 2], [!taken, false]));
            assert!(matches!(hopper.kernel, GemmKernel::Hopper(Hopper { stores_tiles, .. }) if stores_tiles == taken));
        }
    }
}
