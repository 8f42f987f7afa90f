//! The kernels by name: `naive` and `tiled` with their options, and the presets K1…K6 that choose them.

use std::fmt;

use clap::ValueEnum;
use tegula::element::Type;

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
    /// tiled f32, any tile, x as the column: the form to start from
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
    pub fn variant(self) -> Variant {
        let plain = Variant {
            name: self,
            source: Source::Tiled,
            tile: 16,
            mapping: Mapping::XCol,
            dtype: Type::F32,
            plants: Vec::new(),
        };
        match self {
            Name::Naive | Name::K1 => Variant { source: Source::Naive, ..plain },
            Name::Tiled | Name::K6 => plain,
            Name::K2 => Variant { dtype: Type::F64, ..plain },
            Name::K3 => Variant { dtype: Type::I32, mapping: Mapping::XRow, ..plain },
            Name::K4 => Variant { plants: vec![Plant::FloorLaunch], ..plain },
            Name::K5 => Variant { tile: 2, plants: vec![Plant::ExtraBarrier], ..plain },
        }
    }

    /// The m, n and k that a check takes when none is given.
    pub const fn size(self) -> usize {
        if matches!(self, Name::K5) { 4 } else { 64 }
    }
}

/// Which of the two kernel sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Source {
    Naive,
    Tiled,
}

/// What a thread's x chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Mapping {
    /// x is the column: neighbours in a warp read neighbours in memory
    XCol,
    /// x is the row: neighbours in a warp read a whole row apart
    XRow,
}

/// A mistake put into a kernel, for the checker to find.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Plant {
    /// Grid and slide rounded down, no guards: the ragged edge is not computed
    FloorLaunch,
    /// Grid rounded up, loads not guarded: reads outside the matrices
    NoGuards,
    /// No barrier between the loads and the products: a race
    MissingFirstBarrier,
    /// No barrier between the products and the next loads: a race when k is larger than the tile
    MissingSecondBarrier,
    /// A barrier inside the inner loop: correct, and slow
    ExtraBarrier,
}

/// Everything that shapes a kernel. No sizes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variant {
    pub name: Name,
    pub source: Source,
    pub tile: u32,
    pub mapping: Mapping,
    pub dtype: Type,
    pub plants: Vec<Plant>,
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Variant { source, tile, mapping, dtype, plants, .. } = self;
        write!(f, "{} --tile {tile} --mapping {} --dtype {dtype}", option(source), option(mapping))?;
        plants.iter().try_for_each(|plant| write!(f, " --plant {}", option(plant)))
    }
}

/// A value as it is written on the command line.
fn option(value: &impl ValueEnum) -> String {
    value.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

/// A kernel to check, on a problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub kernel: Variant,
    pub m: usize,
    pub n: usize,
    pub k: usize,
    /// How many orders of warps, and how many random inputs, to try.
    pub seeds: u32,
}
