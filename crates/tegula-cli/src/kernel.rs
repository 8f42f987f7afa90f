//! The kernels by name, for the command line: `naive` and `tiled` with their options, and the presets K1…K6 that choose them.
//!
//! What a name stands for is the library's to say ([`Plain::named`]); here is only what help tells of it.

use clap::ValueEnum;
use tegula::Result;
use tegula::kernels::Plain;

/// A kernel as it is named on the command line.
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
        let value = self.to_possible_value();
        value.and_then(|value| value.get_help().map(ToString::to_string)).unwrap_or_default()
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

/// What a mistake of [`tegula::kernels::PLANTS`] does to a kernel.
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
    pub kernel: Plain,
    pub m: usize,
    pub n: usize,
    pub k: usize,
    /// How many orders of warps, and how many random inputs, to try.
    pub seeds: u32,
}

impl Problem {
    /// What a product of this size takes.
    pub fn multiply_adds(&self) -> u64 {
        [self.m, self.n, self.k].into_iter().fold(1, |work, side| work.saturating_mul(side as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tegula::kernels::{PLANTS, PRESETS};

    #[test]
    fn every_kernel_and_every_mistake_of_the_library_is_told_of() {
        assert!(Name::value_variants().iter().all(|name| name.variant().is_ok() && !name.description().is_empty()));
        let names = Name::value_variants().iter().map(|name| name.as_str());
        assert!(names.skip(2).eq(PRESETS.iter().map(|(name, _)| *name)));
        assert!(PLANTS.iter().all(|plant| !plant_help(plant).is_empty()));
    }
}
