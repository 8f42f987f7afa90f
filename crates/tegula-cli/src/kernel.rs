//! Kernel names on the command line: `naive` and `tiled` with options, the presets K1…K6, and
//! families, whose kernels have their configuration in the name.
//!
//! The library resolves names ([`tegula_kernels::Variant::named`]); this module parses them and has
//! the help texts.

use std::ffi::OsStr;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Arg, Command};
use tegula::{Layout, Result, Shape};
use tegula_core::element::Type;
use tegula_kernels::plan::{OperandLayout, Recipe};
use tegula_kernels::registry::FAMILIES;
use tegula_kernels::{GemmKernel, GemmVariant, HelperKernel, KernelName, NameSyntax, upgrade_legacy_name};

use crate::interpreter_options::InterpreterOptions;

/// A kernel or a family, as named on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelArg {
    /// The registry entry, or that of a helper kernel.
    pub entry: KernelName,
    /// The text as given, with the configuration if any.
    text: String,
}

/// The names in the registry, then those of helper kernels.
pub fn names() -> impl Iterator<Item = KernelName> {
    FAMILIES.iter().flat_map(|family| family.names).copied().chain(HelperKernel::NAMES)
}

/// A parser of kernel names.
#[derive(Clone, Debug)]
pub struct KernelParser {
    /// Whether help and completions list helper kernels, which compute no product by themselves.
    helpers: bool,
}

impl KernelParser {
    /// All kernels.
    pub const ALL: KernelParser = KernelParser { helpers: true };

    /// The kernels that compute a product. Helpers are parsed as well, and refused where they are
    /// built.
    pub const PRODUCTS: KernelParser = KernelParser { helpers: false };
}

impl TypedValueParser for KernelParser {
    type Value = KernelArg;

    fn parse_ref(
        &self,
        command: &Command,
        arg: Option<&Arg>,
        value: &OsStr,
    ) -> std::result::Result<KernelArg, clap::Error> {
        KernelArg::parse(value).ok_or_else(|| unknown_value(self, command, arg, value))
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let listed = names().filter(|name| self.helpers || name.syntax != NameSyntax::Helper);
        Some(Box::new(listed.map(|name| PossibleValue::new(name.name).help(name.description))))
    }
}

/// The error of a value that is not among a parser's possible values. It lists these.
pub fn unknown_value(
    parser: &impl TypedValueParser,
    command: &Command,
    arg: Option<&Arg>,
    value: &OsStr,
) -> clap::Error {
    let known = parser.possible_values().into_iter().flatten();
    let refused = PossibleValuesParser::new(known).parse_ref(command, arg, value).err();
    refused.unwrap_or_else(|| clap::Error::new(clap::error::ErrorKind::InvalidValue).with_cmd(command))
}

impl KernelArg {
    /// Parses a name; `None` where it begins with no known name.
    pub fn parse(value: &OsStr) -> Option<Self> {
        let text = value.to_str()?.to_ascii_lowercase();
        let text = upgrade_legacy_name(&text).unwrap_or(text);
        let entry = names().find(|name| match name.syntax {
            NameSyntax::Options { .. } => text.eq_ignore_ascii_case(name.name),
            NameSyntax::Parameters | NameSyntax::Helper => name.matches(&text),
        })?;
        let text = if let NameSyntax::Options { .. } = entry.syntax { entry.name.to_owned() } else { text };
        Some(KernelArg { entry, text })
    }

    /// The name for messages.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether options set the tile and the mapping.
    pub fn takes_options(&self) -> bool {
        matches!(self.entry.syntax, NameSyntax::Options { .. })
    }

    /// The default m, n and k of a check.
    pub fn sizes(&self, kernel: &GemmKernel) -> [usize; 3] {
        let sizes = match self.entry.syntax {
            NameSyntax::Options { side, whole_tiles: true } => [side.next_multiple_of(kernel.tile()[0]); 3],
            NameSyntax::Options { side, .. } => [side; 3],
            NameSyntax::Parameters | NameSyntax::Helper => kernel.check_size(),
        };
        sizes.map(|size| size as usize)
    }

    /// Whether it names a family without a configuration.
    pub fn is_family(&self) -> bool {
        self.entry.syntax == NameSyntax::Parameters && self.text == self.entry.name
    }
}

/// The configurations of a family that plans choose from.
pub fn chosen_from(name: &KernelName, ty: Type) -> Vec<String> {
    let families = FAMILIES.iter().filter(|family| family.names.contains(name));
    let all = families.flat_map(|family| (family.listed)(ty));
    all.filter(|kernel| name.matches(kernel)).collect()
}

/// The configuration that a family's name stands for.
///
/// Of the configurations listed for the type, it is the one whose check does the least work. A type
/// without a list takes the configuration of the family's default type.
pub fn default_configuration(name: &KernelName, ty: Type) -> Result<String> {
    let smallest = |ty: Type| -> Result<Option<String>> {
        let mut best: Option<(u64, String)> = None;
        for kernel in chosen_from(name, ty) {
            let size = Recipe::named(&kernel, ty)?.kernel.check_size();
            let work = size.into_iter().fold(1, |work: u64, side| work.saturating_mul(side.into()));
            if best.as_ref().is_none_or(|(least, _)| work < *least) {
                best = Some((work, kernel));
            }
        }
        Ok(best.map(|(_, kernel)| kernel))
    };
    let found = match smallest(ty)? {
        None if ty != name.ty => smallest(name.ty)?,
        found => found,
    };
    Ok(found.unwrap_or_else(|| name.name.to_owned()))
}

/// The help text of a bug in [`tegula_kernels::INJECTED_BUGS`].
pub fn bug_help(bug: &str) -> &'static str {
    match bug {
        "floor-launch" => "Grid and k loop rounded down, no guards: partial tiles are not computed",
        "no-guards" => "Grid rounded up, no guards: out-of-bounds loads and stores",
        "missing-first-barrier" => "No barrier between loads and products: a race",
        "missing-second-barrier" => "No barrier between products and next loads: a race if k exceeds the tile",
        "extra-barrier" => "A barrier inside the inner loop: correct and slow",
        _ => "",
    }
}

/// A kernel and a problem to check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The kernel and its split, for row-major matrices.
    pub recipe: Recipe,
    pub m: usize,
    pub n: usize,
    pub k: usize,
    pub interpreter: InterpreterOptions,
}

impl Problem {
    /// The problem of row-major matrices of these sizes.
    pub fn new(recipe: Recipe, [m, n, k]: [usize; 3], interpreter: InterpreterOptions) -> Result<Self> {
        let ty = recipe.kernel.ty();
        let out = ty.output();
        let layout = |rows, cols, ty| Ok(OperandLayout::of(&Layout::row_major(Shape::new(rows, cols))?, ty, 0));
        let layouts = [layout(m, k, ty)?, layout(k, n, ty)?, layout(m, n, out)?];
        Ok(Problem { recipe: recipe.legalize(layouts), m, n, k, interpreter })
    }

    /// Multiply-adds of the product.
    pub fn multiply_adds(&self) -> u64 {
        [self.m, self.n, self.k].into_iter().fold(1, |work, side| work.saturating_mul(side as u64))
    }
}

#[cfg(test)]
mod tests {
    use tegula_ir::Order2d;
    use tegula_kernels::{INJECTED_BUGS, PRESETS, Plain, Variant};

    use super::*;

    fn named(name: &str) -> KernelName {
        names().find(|known| known.name == name).expect("a name")
    }

    #[test]
    fn every_preset_and_bug_has_a_description() {
        assert!(names().all(|name| !name.description.is_empty()));
        let plain = names().filter(|name| matches!(name.syntax, NameSyntax::Options { .. }));
        let plain: Vec<_> = plain.map(|name| name.name).collect();
        assert!(plain.iter().all(|name| Plain::named(name).is_ok()));
        assert!(plain[2..] == PRESETS);
        assert!(INJECTED_BUGS.iter().all(|plant| !bug_help(plant).is_empty()));
    }

    #[test]
    fn family_lists_name_kernels_that_build() {
        for name in names().filter(|name| !matches!(name.syntax, NameSyntax::Options { .. })) {
            let kernels = chosen_from(&name, name.ty);
            assert_eq!(kernels.is_empty(), name.syntax == NameSyntax::Helper, "{name:?}");
            for kernel in kernels {
                // Tiles of dmma may need both operands contiguous along k.
                let builds = [Order2d::RowMajor, Order2d::ColMajor].map(|of_b| {
                    let layouts =
                        [Order2d::RowMajor, of_b, Order2d::RowMajor].map(|order| OperandLayout::new(order, true));
                    Recipe::named(&kernel, name.ty).unwrap().legalize(layouts).kernel.build().is_ok()
                });
                assert!(builds.contains(&true), "{kernel}");
                let split = Recipe::named(&format!("{kernel}:3"), name.ty);
                // Tiles of warps are for a short k.
                assert!(name.name == "warp" || split.is_ok(), "{kernel}");
                assert!(split.is_err() || split.unwrap().name().ends_with("_3"));
            }
            assert!(name.syntax == NameSyntax::Parameters || Variant::named(name.name, name.ty).is_ok());
        }
        assert_eq!(chosen_from(&named("register"), Type::F64), Vec::<String>::new());
        assert_ne!(chosen_from(&named("mma"), Type::I8), chosen_from(&named("mma"), Type::F16));
    }
}
