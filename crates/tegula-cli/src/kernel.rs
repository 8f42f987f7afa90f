//! The kernels by name, for the command line: `naive` and `tiled` with their options, the presets K1…K6 that choose them, and the families
//! whose kernels have their shape in their names.
//!
//! What a name stands for is the library's to say ([`Variant::named`]); here is only what help tells of it.

use std::ffi::OsStr;

use clap::builder::{EnumValueParser, PossibleValue, TypedValueParser};
use clap::{Arg, Command, ValueEnum};
use tegula::element::Type;
use tegula::{Accuracy, Layout, Result, Shape};
use tegula_ir::Order2d;
use tegula_kernels::plan::{Caps, Lie, Recipe, candidates};
use tegula_kernels::{Plain, Variant, plan};

use crate::effort::Effort;

/// A kernel, or a family of them, as it is named on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Named {
    /// One that options shape.
    Plain(Name),
    /// One that its name shapes, or without a shape all of the family.
    Shaped(Family, String),
}

/// A plain kernel, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Name {
    /// One thread per element of C, which loops over k in global memory
    Naive,
    /// Each block owns a tile of C and slides along k through shared memory
    Tiled,
    /// naive f32: the baseline, 2k global reads a thread
    #[value(name = "K1")]
    K1,
    /// tiled f64: guards on every load, so any size will do
    #[value(name = "K2")]
    K2,
    /// tiled i32 with x as the row: uncoalesced loads and conflicting shared stores
    #[value(name = "K3")]
    K3,
    /// tiled f32 without guards, rounded down: silently wrong unless the tile divides the size
    #[value(name = "K4")]
    K4,
    /// tiled f32, 2×2 tiles of a 4×4 product, with a barrier inside the inner loop: correct but wasteful
    #[value(name = "K5")]
    K5,
    /// tiled f32, 32×32 tiles, x as the column: the form to start from
    #[value(name = "K6")]
    K6,
}

/// Kernels that share an idea; the rest of a name is how it is shaped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Family {
    /// f32, f64, i32: each thread owns a patch of C in registers, fed by asynchronous copies
    Register,
    /// f64 on matrix units
    Dmma,
    /// f16, bf16, i8 on matrix units, with sums in 32 bits
    Mma,
    /// f16, bf16 on Hopper's matrix units: some warps have tiles copied, others multiply
    Hopper,
    /// f32 rounded to tf32 on matrix units, where --accuracy tf32 asks for it
    Tf32,
    /// i32 on matrix units, exactly: ten products of bytes for one
    Limbs,
    /// Any type, a C of up to 16 rows or columns: the large matrix is read once, at the speed of memory
    Vector,
    /// Second pass where sums along k were made in parts: adds them in order
    Sum,
    /// Second pass where blocks shared tiles: adds the pieces in order
    Mend,
    /// First pass where a kernel cannot take A or B as it lies, or not as fast: copies it
    Pack,
}

/// The names that [`Named`] can have.
#[derive(Clone, Debug)]
pub struct Names;

impl TypedValueParser for Names {
    type Value = Named;

    fn parse_ref(
        &self,
        command: &Command,
        arg: Option<&Arg>,
        value: &OsStr,
    ) -> std::result::Result<Named, clap::Error> {
        let text = value.to_str().unwrap_or_default().to_ascii_lowercase();
        match Family::value_variants().iter().find(|family| text.starts_with(family.as_str())) {
            Some(&family) => Ok(Named::Shaped(family, text)),
            None => EnumValueParser::<Name>::new().parse_ref(command, arg, value).map(Named::Plain),
        }
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let plain = Name::value_variants().iter().filter_map(ValueEnum::to_possible_value);
        Some(Box::new(plain.chain(Family::value_variants().iter().filter_map(ValueEnum::to_possible_value))))
    }
}

impl Named {
    /// The name in messages.
    pub fn text(&self) -> &str {
        match self {
            Named::Plain(name) => name.as_str(),
            Named::Shaped(_, text) => text,
        }
    }

    /// The line that describes it.
    pub fn description(&self) -> String {
        match self {
            Named::Plain(name) => name.description(),
            Named::Shaped(family, _) => family.description(),
        }
    }

    /// The m, n and k that a check takes when none is given: of kernels that have their shape in their names one tile, and a few steps
    /// along k.
    pub fn sizes(&self, kernel: &Variant) -> [usize; 3] {
        let [rows, cols] = kernel.tile();
        let sizes = match (self, kernel) {
            (Named::Plain(name), _) => return [name.size(rows); 3],
            (_, Variant::Vector(vector)) => [rows, cols, 2 * vector.step()],
            (_, Variant::Hopper(hopper)) => [rows, cols, 2 * hopper.pipeline.stages * hopper.pipeline.tile[2]],
            (_, Variant::Blocked(blocked)) => [rows, cols, 4 * blocked.blocking.block[2]],
            _ => [rows, cols, 1],
        };
        sizes.map(|size| size as usize)
    }

    /// The family, where all of it is meant.
    pub fn family(&self) -> Option<Family> {
        match self {
            Named::Shaped(family, text) if *text == family.as_str() && !family.is_one() => Some(*family),
            _ => None,
        }
    }
}

impl Name {
    /// The name in messages.
    pub const fn as_str(self) -> &'static str {
        match self {
            Name::Naive => "naive",
            Name::Tiled => "tiled",
            Name::K1 => "K1",
            Name::K2 => "K2",
            Name::K3 => "K3",
            Name::K4 => "K4",
            Name::K5 => "K5",
            Name::K6 => "K6",
        }
    }

    /// The line that describes it.
    pub fn description(self) -> String {
        help(self)
    }

    /// The kernel without further options.
    pub fn variant(self) -> Result<Plain> {
        Plain::named(self.as_str())
    }

    /// The m, n and k that a check takes when none is given. K4 is right for multiples of its tile only.
    pub const fn size(self, tile: u32) -> usize {
        match self {
            Name::K5 => 4,
            Name::K4 => 64usize.next_multiple_of(tile as usize),
            _ => 64,
        }
    }
}

impl Family {
    /// What names begin with.
    pub const fn as_str(self) -> &'static str {
        match self {
            Family::Register => "register",
            Family::Dmma => "dmma",
            Family::Mma => "mma",
            Family::Hopper => "hopper",
            Family::Tf32 => "tf32",
            Family::Limbs => "limbs",
            Family::Vector => "vector",
            Family::Sum => "sum",
            Family::Mend => "mend",
            Family::Pack => "pack",
        }
    }

    /// The line that describes it.
    pub fn description(self) -> String {
        help(self)
    }

    /// The type that is meant where none is given.
    pub const fn usual_type(self) -> Type {
        match self {
            Family::Register | Family::Tf32 | Family::Vector | Family::Sum | Family::Mend | Family::Pack => Type::F32,
            Family::Dmma => Type::F64,
            Family::Mma | Family::Hopper => Type::F16,
            Family::Limbs => Type::I32,
        }
    }

    /// Whether its name is that of a kernel.
    pub const fn is_one(self) -> bool {
        matches!(self, Family::Sum | Family::Mend | Family::Pack)
    }

    /// The names of its kernels that plans choose from for large products, or of vectors for few rows, however the operands lie.
    pub fn chosen_from(self, ty: Type) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        let mut add = |name: String| {
            if name.starts_with(self.as_str()) && !names.contains(&name) {
                names.push(name);
            }
        };
        let accuracy = if self == Family::Tf32 { Accuracy::Tf32 } else { Accuracy::Full };
        for (a, b, vectors) in layouts() {
            if self == Family::Vector {
                let along_k = b == Order2d::ColMajor;
                let likeliest =
                    |rows| tegula_kernels::Vector::candidates(ty, rows, along_k, vectors).into_iter().next();
                [1, 2, 4, 8, 16].into_iter().filter_map(likeliest).for_each(|vector| add(vector.short_name()));
                continue;
            }
            let lies = [(a, vectors), (b, vectors), (Order2d::RowMajor, vectors)]
                .map(|(order, vectors)| Lie::new(order, vectors));
            let problem = plan::Problem { ty, accuracy, m: 8192, n: 8192, k: 8192, batches: 1, lies };
            for (recipe, _) in candidates(&problem, 132) {
                if let Variant::Blocked(blocked) = recipe.kernel {
                    add(blocked.short_name());
                }
            }
            // Some take no right factor of rows.
            let hopper = Caps::Gpu { compute: (9, 0), multiprocessors: 132 };
            let all = if b == Order2d::RowMajor { plan::legal(&problem, &hopper) } else { Vec::new() };
            for candidate in all {
                if let (Variant::Hopper(hopper), false) = (candidate.recipe.kernel, candidate.recipe.swapped) {
                    add(hopper.short_name());
                }
            }
        }
        names
    }
}

/// Ways in which A and B lie, those of aligned rows first.
fn layouts() -> impl Iterator<Item = (Order2d, Order2d, bool)> {
    let orders = [Order2d::RowMajor, Order2d::ColMajor];
    let both = move |vectors| orders.into_iter().flat_map(move |a| orders.map(|b| (a, b, vectors)));
    [true, false].into_iter().flat_map(both)
}

fn help(value: impl ValueEnum) -> String {
    let value = value.to_possible_value();
    value.and_then(|value| value.get_help().map(ToString::to_string)).unwrap_or_default()
}

/// What a mistake of [`tegula_kernels::PLANTS`] does to a kernel.
pub fn plant_help(plant: &str) -> &'static str {
    match plant {
        "floor-launch" => "Grid and slide rounded down, no guards: the ragged edge is not computed",
        "no-guards" => "Grid rounded up, nothing guarded: reads and writes outside the matrices",
        "missing-first-barrier" => "No barrier between the loads and the products: a race",
        "missing-second-barrier" => "No barrier between the products and the next loads: a race if k is above the tile",
        "extra-barrier" => "A barrier inside the inner loop: correct, and slow",
        _ => "",
    }
}

/// A kernel to check, on a problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// For row-major matrices of these sizes.
    pub recipe: Recipe,
    pub m: usize,
    pub n: usize,
    pub k: usize,
    pub effort: Effort,
}

impl Problem {
    /// Of row-major matrices.
    pub fn new(recipe: Recipe, [m, n, k]: [usize; 3], effort: Effort) -> Result<Self> {
        let ty = recipe.kernel.ty();
        let out = ty.output();
        let lie = |rows, cols, ty| Ok(Lie::of(&Layout::row_major(Shape::new(rows, cols))?, ty, 0));
        let lies = [lie(m, k, ty)?, lie(k, n, ty)?, lie(m, n, out)?];
        Ok(Problem { recipe: recipe.fit(lies), m, n, k, effort })
    }

    /// What a product of this size takes.
    pub fn multiply_adds(&self) -> u64 {
        [self.m, self.n, self.k].into_iter().fold(1, |work, side| work.saturating_mul(side as u64))
    }
}

#[cfg(test)]
mod tests {
    use tegula_kernels::{PLANTS, PRESETS};

    use super::*;

    #[test]
    fn every_kernel_and_every_mistake_of_the_library_is_told_of() {
        assert!(Name::value_variants().iter().all(|name| name.variant().is_ok() && !name.description().is_empty()));
        let names = Name::value_variants().iter().map(|name| name.as_str());
        assert!(names.skip(2).eq(PRESETS.iter().map(|(name, _)| *name)));
        assert!(PLANTS.iter().all(|plant| !plant_help(plant).is_empty()));
    }

    #[test]
    fn every_family_names_kernels_that_there_are() {
        for &family in Family::value_variants() {
            assert!(!family.description().is_empty());
            let (ty, names) = (family.usual_type(), family.chosen_from(family.usual_type()));
            assert_eq!(names.is_empty(), family.is_one(), "{family:?}");
            for name in names {
                let aligned = [Lie::new(Order2d::RowMajor, true); 3];
                let recipe = Recipe::named(&name, ty).unwrap().fit(aligned);
                assert!(recipe.kernel.build().is_ok(), "{name}");
                assert!(Recipe::named(&format!("{name}:3"), ty).unwrap().name().ends_with("_3"));
            }
            assert!(!family.is_one() || Variant::named(family.as_str(), ty).is_ok());
        }
        assert_eq!(Family::Register.chosen_from(Type::F64), Vec::<String>::new());
        assert_ne!(Family::Mma.chosen_from(Type::I8), Family::Mma.chosen_from(Type::F16));
    }
}
