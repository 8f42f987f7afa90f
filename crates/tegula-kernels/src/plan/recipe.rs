//! How kernels make a product: which kernel, of which of the matrices, in how many parts.

use std::ops::Range;
use std::str::FromStr;

use smallvec::{SmallVec, smallvec};
use tegula_core::element::Type;
use tegula_core::epilogue::Epilogue;
use tegula_core::error::{Error, Result};
use tegula_core::matrix::{Layout, Shape};
use tegula_ir::{Mma, Order2d};

use super::problem::Lie;
use crate::{
    Adding, Blocked, Core, Family, Fragments, Hopper, Mend, Pack, PackBoth, Packing, Plain, Reduce, Schedule, Sum,
    Variant, Vector,
};

/// A product as launches of kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Recipe {
    /// The kernel that multiplies.
    pub kernel: Variant,
    /// Whether it makes Cᵀ = Bᵀ·Aᵀ.
    pub swapped: bool,
    /// How the work is split beyond tiles.
    pub split: Split,
    /// Whether the left and the right factor, as the kernel takes them, are copied first to where it takes them fastest.
    pub packed: [bool; 2],
    /// What happens to sums on their way to C, by the rows and columns of C itself; [`finished`](Recipe::finished) tells the kernels.
    pub epilogue: Epilogue,
}

/// How many blocks of warpgroups share tiles at most: several times as many as a GPU has multiprocessors.
const MOST_WORKERS: u32 = 1024;

/// Bytes of a line of the L2 cache.
const LINE: usize = 128;

/// How the factors lie where the kernel meets them, and which of them are packed: those that are to be, and those that have to be.
pub(super) fn packed_factors(kernel: &Blocked, lies: [Lie; 2], packed: [bool; 2]) -> ([Lie; 2], [bool; 2]) {
    let packed = [0, 1].map(|i| packed[i] || !kernel.takes(i, lies[i].order, lies[i].vectors));
    let lie = |i: usize| if packed[i] { Lie::new(kernel.wanted()[i], true) } else { lies[i] };
    ([lie(0), lie(1)], packed)
}

/// How the work is split. What is split goes to a workspace; [`Launches`](super::Launches) add it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Split {
    /// Not at all.
    Whole,
    /// The sums along k are made in so many parts.
    Parts(u32),
    /// So many blocks share the tiles evenly.
    Workers(u32),
}

/// How what was split meets again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meeting {
    /// Nothing was split: the kernel takes A, B and C.
    None,
    /// The kernel takes A, B and parts; a second one adds these to C.
    Sum,
    /// The same, and the second one is told how parts lie.
    Reduce(Fragments),
    /// The kernel takes A, B, C and parts; a second one, which is told the steps of a tile, adds those of tiles that were shared.
    Mend {
        /// Steps along k of a tile.
        steps: u32,
    },
    /// The kernel takes A, B, C, parts, and so many flags that are zero, by which its blocks tell each other that a part is there. It leaves zeros.
    Flags(usize),
}

impl Meeting {
    /// The numbers that the second kernel takes, of alpha, beta and what makes an argument of a number.
    pub fn numbers<A>(self, [alpha, beta]: [A; 2], of: impl Fn(u32) -> A) -> SmallVec<[A; 4]> {
        match self {
            Meeting::Mend { steps } => smallvec![beta, of(steps)],
            Meeting::Reduce(Fragments { rows, cols }) => smallvec![alpha, beta, of(rows), of(cols)],
            Meeting::None | Meeting::Sum | Meeting::Flags(_) => smallvec![alpha, beta],
        }
    }
}

impl Split {
    /// So many parts; one is the whole.
    pub const fn parts(parts: u32) -> Self {
        if parts > 1 { Split::Parts(parts) } else { Split::Whole }
    }

    const fn schedule(self) -> Schedule {
        match self {
            Split::Whole => Schedule::Tiles,
            Split::Parts(_) => Schedule::Parts,
            Split::Workers(_) => Schedule::Balanced,
        }
    }
}

impl FromStr for Split {
    type Err = Error;

    /// A number of parts, or `w` and one of workers.
    fn from_str(text: &str) -> Result<Self> {
        let (kind, number): (fn(u32) -> Split, _) = match text.strip_prefix('w') {
            Some(workers) => (Split::Workers, workers),
            None => (Split::parts, text),
        };
        let number = number.parse().ok().filter(|&number| number > 0);
        number
            .map(kind)
            .ok_or_else(|| Error::KernelOption(format!("{text:?} is neither a number of parts nor of workers")))
    }
}

impl<V: Into<Variant>> From<V> for Recipe {
    fn from(kernel: V) -> Self {
        let (split, epilogue) = (Split::Whole, Epilogue::NONE);
        Recipe { kernel: kernel.into(), swapped: false, split, packed: [false; 2], epilogue }
    }
}

impl Recipe {
    /// The recipe of a name: a kernel's ([`Variant::named`]), after which `:` and a number may say in how many parts sums along k are made, or
    /// `:w` and a number how many blocks share the tiles, `:s` that the transpose is made of the transposed factors, and `:pa`, `:pb` or `:pab` that A,
    /// B or both are packed first. [`fit`](Self::fit) it to
    /// how matrices lie.
    ///
    /// # Errors
    /// [`Error::KernelOption`] that says what names there are, or what the kernel cannot do.
    pub fn named(name: &str, ty: Type) -> Result<Self> {
        let mut words = name.split(':');
        let kernel = Variant::named(words.next().unwrap_or_default(), ty)?;
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
        let makes = match kernel {
            Variant::Blocked(_) => !swapped,
            Variant::Hopper(hopper) => match split {
                Split::Workers(workers) => hopper.pipeline.split == 1 && workers <= MOST_WORKERS,
                _ => true,
            },
            Variant::Vector(_) => !matches!(split, Split::Workers(_)) && packed == [false; 2],
            Variant::Plain(_) => split == Split::Whole && packed == [false; 2] && !swapped,
            Variant::Sum(_)
            | Variant::Reduce(_)
            | Variant::Mend(_)
            | Variant::Pack(_)
            | Variant::PackBoth(_)
            | Variant::Ends(_) => {
                return Err(Error::KernelOption(format!("{name} only helps kernels that multiply")));
            }
        };
        if !makes {
            return Err(Error::KernelOption(format!("{kernel} cannot split its work or pack so, as {name} has it")));
        }
        Ok(Recipe { split, packed, swapped, ..kernel.into() })
    }

    /// The same for matrices that lie so: A, B and C.
    #[must_use]
    pub fn fit(self, lies: [Lie; 3]) -> Self {
        let fit = match self.kernel {
            Variant::Plain(plain) => {
                Recipe { kernel: Plain { orders: lies.map(|lie| lie.order), ..plain }.into(), ..self }
            }
            Variant::Blocked(blocked) => {
                let [a, b, c] = lies;
                // Kernels of blocks store rows; a C of columns is a Cᵀ of rows.
                let swapped = c.order == Order2d::ColMajor;
                let mut lies = if swapped { [b.transposed(), a.transposed(), c.transposed()] } else { lies };
                let packed;
                ([lies[0], lies[1]], packed) = packed_factors(&blocked, [lies[0], lies[1]], self.packed);
                let schedule = self.split.schedule();
                let (mut orders, mut vectors) = (lies.map(|lie| lie.order), lies.map(|lie| lie.vectors));
                if schedule == Schedule::Parts {
                    // The workspace is row-major, with rows of any length.
                    (orders[2], vectors[2]) = (Order2d::RowMajor, false);
                }
                Recipe { kernel: Blocked { orders, vectors, schedule, ..blocked }.into(), swapped, packed, ..self }
            }
            Variant::Hopper(hopper) => {
                // Which side has the columns is the recipe's own knowledge; C may lie in any way.
                let [a, b, c] = lies;
                let lies = if self.swapped { [b.transposed(), a.transposed(), c.transposed()] } else { lies };
                let tiles = lies.map(|lie| lie.vectors && lie.forwards);
                let packed = [0, 1].map(|i| self.packed[i] || !Hopper::takes(lies[i].order, tiles[i]));
                // What is packed has rows.
                let order = |i: usize| if packed[i] { Order2d::RowMajor } else { lies[i].order };
                let hopper = Hopper { epilogue: self.passed_epilogue(), ..hopper };
                let shares = !matches!(self.split, Split::Workers(_)) || hopper.shares_tiles();
                let split = if shares { self.split } else { Split::Whole };
                let schedule = split.schedule();
                let parts = schedule == Schedule::Parts;
                let stores_tiles = !parts && tiles[2];
                let orders = [order(0), order(1), if parts { Order2d::RowMajor } else { lies[2].order }];
                let kernel = Hopper { orders, stores_tiles, schedule, ..hopper };
                Recipe { kernel: kernel.into(), split, packed, ..self }
            }
            Variant::Vector(vector) => {
                // Which side is the small one is the recipe's own knowledge; C may lie in any way.
                let [a, b, c] = lies;
                let [a, b, c] = if self.swapped { [b.transposed(), a.transposed(), c.transposed()] } else { [a, b, c] };
                let split = self.split != Split::Whole;
                let orders = [a.order, b.order, if split { Order2d::RowMajor } else { c.order }];
                Recipe { kernel: Vector { orders, vectors: b.vectors, split, ..vector }.into(), ..self }
            }
            Variant::Sum(_)
            | Variant::Reduce(_)
            | Variant::Mend(_)
            | Variant::Pack(_)
            | Variant::PackBoth(_)
            | Variant::Ends(_) => self,
        };
        fit.finished(self.epilogue)
    }

    /// The same with an epilogue, by the rows and columns of C itself.
    #[must_use]
    pub fn finished(self, epilogue: Epilogue) -> Self {
        let recipe = Recipe { epilogue, ..self };
        // Nothing happens to parts of sums; the second kernel finishes the whole.
        let epilogue = if let Split::Parts(_) = self.split { Epilogue::NONE } else { recipe.passed_epilogue() };
        let kernel = match self.kernel {
            Variant::Plain(plain) => Plain { epilogue, ..plain }.into(),
            Variant::Blocked(blocked) => Blocked { epilogue, ..blocked }.into(),
            Variant::Hopper(hopper) => Hopper { epilogue, ..hopper }.into(),
            Variant::Vector(vector) => Vector { epilogue, ..vector }.into(),
            other @ (Variant::Sum(_)
            | Variant::Reduce(_)
            | Variant::Mend(_)
            | Variant::Pack(_)
            | Variant::PackBoth(_)
            | Variant::Ends(_)) => other,
        };
        Recipe { kernel, ..recipe }
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

    /// The epilogue as kernels take it, which may make the transpose.
    fn passed_epilogue(&self) -> Epilogue {
        if self.swapped { self.epilogue.transposed() } else { self.epilogue }
    }

    /// The name of what runs.
    pub fn name(&self) -> String {
        self.name_with(&self.kernel.name())
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

    /// Whether the kernel takes A and B, after they were swapped, transposed.
    pub(super) fn turned(&self) -> [bool; 2] {
        match self.kernel {
            Variant::Blocked(blocked) => blocked.turned(),
            Variant::Vector(vector) => [false, vector.turned()],
            Variant::Plain(_)
            | Variant::Hopper(_)
            | Variant::Sum(_)
            | Variant::Reduce(_)
            | Variant::Mend(_)
            | Variant::Pack(_)
            | Variant::PackBoth(_)
            | Variant::Ends(_) => [false; 2],
        }
    }

    /// Whether A and B are packed.
    pub fn packed_operands(&self) -> [bool; 2] {
        let [left, right] = self.packed;
        if self.swapped { [right, left] } else { [left, right] }
    }

    /// Where a factor (0 the left one, 1 the right one) lies once it is packed, given its shape as the kernel takes it; `None` where it is not.
    ///
    /// # Errors
    /// [`Error::Shape`] where its elements cannot be addressed.
    pub(super) fn packed(&self, which: usize, shape: Shape) -> Result<Option<Layout>> {
        if !self.packed[which] {
            return Ok(None);
        }
        let unit = match self.kernel {
            // Rows of whole lines of the L2 cache: a tile's rows that began within one would take two.
            Variant::Hopper(_) => LINE / self.kernel.ty().size(),
            _ => self.packing(Lie::default()).unit(),
        };
        let cols = shape.cols.checked_next_multiple_of(unit).unwrap_or(shape.cols);
        Layout::row_major(Shape { cols, ..shape }).map(Some)
    }

    /// The kernels that pack factors which lie so, to copies of such shapes where there are any, and which factors each packs: both, if one kernel can,
    /// since two launches take longer.
    pub(super) fn packs(
        &self,
        lies: [Lie; 2],
        to: [Option<Shape>; 2],
    ) -> impl Iterator<Item = (Variant, Range<usize>)> + use<> {
        let [a, b] = lies.map(|from| self.packing(from));
        let to = to.map(|shape| shape.filter(|shape| !shape.is_empty()));
        let both = to[0].zip(to[1]).and_then(|(to_a, to_b)| PackBoth::of([a, b], [to_a, to_b]));
        let each = |which: usize, pack: Pack| to[which].map(|_| (pack.into(), which..which + 1));
        let packs = both.map_or_else(|| [each(0, a), each(1, b)], |both| [Some((both.into(), 0..2)), None]);
        packs.into_iter().flatten()
    }

    /// The kernel that packs a factor that lies so as the multiplying kernel takes it.
    fn packing(&self, from: Lie) -> Pack {
        let packing = match self.kernel {
            Variant::Blocked(Blocked { core: Core::Mma(Mma::TF32), .. }) => Packing::Tf32,
            Variant::Blocked(Blocked { core: Core::Limbs, .. }) => Packing::Limbs,
            _ => Packing::Same,
        };
        Pack { ty: self.kernel.ty(), from: from.order, packing }
    }

    /// The shape of the workspace, for a C that lies as the kernel takes it.
    pub(super) fn workspace(&self, c: Shape) -> Option<Shape> {
        match self.split {
            Split::Whole => None,
            Split::Parts(parts) => Some(match self.kernel {
                Variant::Hopper(hopper) => hopper.pipeline.workspace(parts as usize, c),
                _ => Shape { batches: c.batches.saturating_mul(parts as usize), ..c },
            }),
            Split::Workers(workers) => {
                let (workers, [rows, cols]) = (workers as usize, self.kernel.tile().map(|extent| extent as usize));
                Some(match self.kernel {
                    Variant::Hopper(hopper) => hopper.pipeline.parts(workers),
                    _ => Shape { batches: 2 * workers, rows, cols },
                })
            }
        }
    }

    /// The kernel that adds what was split, if there is one, for a C of so many elements that lies so as the kernels take it.
    pub(super) fn second(&self, c: Lie, elements: usize) -> Option<Variant> {
        let (ty, order, epilogue) = (self.kernel.ty(), c.order, self.passed_epilogue());
        match (self.split, self.kernel) {
            (Split::Whole, _) | (Split::Workers(_), Variant::Hopper(_)) => None,
            (Split::Workers(_), _) => Some(Variant::Mend(Mend { ty, order, epilogue })),
            (Split::Parts(parts), Variant::Hopper(_)) => {
                Some(Variant::Reduce(Reduce { ty, order, shared: Reduce::shares(parts, elements), epilogue }))
            }
            (Split::Parts(parts), _) => {
                Some(Variant::Sum(Sum { ty, order, adding: Adding::of(parts, elements), epilogue }))
            }
        }
    }

    /// How what was split meets again, and so what arguments kernels take, for products of that k.
    pub(super) fn meeting(&self, k: usize) -> Meeting {
        match (self.split, self.kernel) {
            (Split::Workers(workers), Variant::Hopper(hopper)) => {
                Meeting::Flags(hopper.pipeline.flags(workers as usize))
            }
            (Split::Workers(_), Variant::Blocked(blocked)) => {
                Meeting::Mend { steps: k.div_ceil(blocked.blocking.block[2] as usize) as u32 }
            }
            (Split::Parts(_), Variant::Hopper(hopper)) => Meeting::Reduce(hopper.pipeline.fragments()),
            (Split::Parts(_), _) => Meeting::Sum,
            _ => Meeting::None,
        }
    }
}

#[cfg(test)]
mod tests {
    use tegula_ir::launch::{Bound, DeviceFacts};

    use super::super::launches::{Argument, Operands};
    use super::*;

    /// Layouts of all sorts: what a recipe does not pack is what its kernel takes, and what it packs is, too.
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

    /// One matrix for the whole batch, and rows that go backwards: read 16 bytes at once as ever, but the copy engine takes a packed copy.
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
            assert!(matches!(hopper.kernel, Variant::Hopper(Hopper { stores_tiles, .. }) if stores_tiles == taken));
        }
    }
}
