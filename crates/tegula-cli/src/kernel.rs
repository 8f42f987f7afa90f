//! The kernels by name, for the command line: `naive` and `tiled` with their options, the presets K1…K6 that choose them, and the families
//! whose kernels have their shape in their names.
//!
//! What a name stands for is the library's to say ([`Variant::named`]); here is only what help tells of it.

use std::ffi::OsStr;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Arg, Command};
use tegula::{Layout, Result, Shape};
use tegula_core::element::Type;
use tegula_kernels::plan::{Lie, Recipe};
use tegula_kernels::registry::FAMILIES;
use tegula_kernels::{Form, GemmKernel, GemmVariant, HelperKernel, KernelName};

use crate::effort::Effort;

/// A kernel, or a family of them, as it is named on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// The entry of the registry, or of the helpers.
    pub entry: KernelName,
    /// All that was given: the name, or one with the parameters of the kernel.
    text: String,
}

/// The names of the registry's families, then those of helpers.
pub fn names() -> impl Iterator<Item = KernelName> {
    FAMILIES.iter().flat_map(|family| family.names).copied().chain(HelperKernel::NAMES)
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
        let is_meant = |name: &KernelName| match name.form {
            Form::Options { .. } => text.eq_ignore_ascii_case(name.name),
            Form::Parameters | Form::Helper => name.matches(&text),
        };
        match names().find(is_meant) {
            Some(name @ KernelName { form: Form::Options { .. }, .. }) => Ok(Named::of(name)),
            Some(entry) => Ok(Named { entry, text }),
            None => {
                let whole = names().filter(|name| matches!(name.form, Form::Options { .. }));
                let parser = PossibleValuesParser::new(whole.map(|name| possible(&name)));
                Err(parser.parse_ref(command, arg, value).expect_err("no name is meant"))
            }
        }
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(names().map(|name| possible(&name))))
    }
}

fn possible(name: &KernelName) -> PossibleValue {
    PossibleValue::new(name.name).help(name.description)
}

impl Named {
    fn of(entry: KernelName) -> Self {
        Named { text: entry.name.to_owned(), entry }
    }

    /// The name in messages.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether options set its tile and mapping.
    pub fn takes_options(&self) -> bool {
        matches!(self.entry.form, Form::Options { .. })
    }

    /// The m, n and k that a check takes when none is given.
    pub fn sizes(&self, kernel: &GemmKernel) -> [usize; 3] {
        let sizes = match self.entry.form {
            Form::Options { side, whole_tiles: true } => [side.next_multiple_of(kernel.tile()[0]); 3],
            Form::Options { side, .. } => [side; 3],
            Form::Parameters | Form::Helper => kernel.check_size(),
        };
        sizes.map(|size| size as usize)
    }

    /// Whether all of a family is meant.
    pub fn is_family(&self) -> bool {
        self.entry.form == Form::Parameters && self.text == self.entry.name
    }
}

/// The kernels with a name that plans choose from for large products, in any layout.
pub fn chosen_from(name: &KernelName, ty: Type) -> Vec<String> {
    let families = FAMILIES.iter().filter(|family| family.names.contains(name));
    let all = families.flat_map(|family| (family.listed)(ty));
    all.filter(|kernel| name.matches(kernel)).collect()
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
    use tegula_ir::Order2d;
    use tegula_kernels::{PLANTS, PRESETS, Plain, Variant};

    use super::*;

    fn named(name: &str) -> KernelName {
        names().find(|known| known.name == name).expect("a name")
    }

    #[test]
    fn every_preset_and_every_mistake_of_the_library_is_described() {
        assert!(names().all(|name| !name.description.is_empty()));
        let plain = names().filter(|name| matches!(name.form, Form::Options { .. }));
        let plain: Vec<_> = plain.map(|name| name.name).collect();
        assert!(plain.iter().all(|name| Plain::named(name).is_ok()));
        assert!(plain[2..] == PRESETS);
        assert!(PLANTS.iter().all(|plant| !plant_help(plant).is_empty()));
    }

    #[test]
    fn every_family_names_kernels_that_there_are() {
        for name in names().filter(|name| !matches!(name.form, Form::Options { .. })) {
            let kernels = chosen_from(&name, name.ty);
            assert_eq!(kernels.is_empty(), name.form == Form::Helper, "{name:?}");
            for kernel in kernels {
                let aligned = [Lie::new(Order2d::RowMajor, true); 3];
                let recipe = Recipe::named(&kernel, name.ty).unwrap().fit(aligned);
                assert!(recipe.kernel.build().is_ok(), "{kernel}");
                assert!(Recipe::named(&format!("{kernel}:3"), name.ty).unwrap().name().ends_with("_3"));
            }
            assert!(name.form == Form::Parameters || Variant::named(name.name, name.ty).is_ok());
        }
        assert_eq!(chosen_from(&named("register"), Type::F64), Vec::<String>::new());
        assert_ne!(chosen_from(&named("mma"), Type::I8), chosen_from(&named("mma"), Type::F16));
    }
}
