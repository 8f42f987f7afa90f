//! How much interpreting is worth: inputs and orders of warps to try, and when a warp counts as endless.

use clap::Args;
use tegula_interp::Config;

use crate::number::whole;

/// Options of what is interpreted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Args)]
pub struct Effort {
    /// How many random inputs and orders of warps to try
    #[arg(long, default_value_t = 1, allow_negative_numbers = true, value_parser = whole::<u32>(1))]
    pub seeds: u32,
    /// Instructions after which a warp that has not ended is reported
    #[arg(long, default_value_t = Config::default().steps, allow_negative_numbers = true, value_parser = whole::<u64>(1))]
    pub steps: u64,
}

impl Effort {
    /// The interpreter's configuration for one of the seeds.
    pub fn config(self, seed: u64) -> Config {
        Config { seed, steps: self.steps, ..Config::default() }
    }
}

impl Default for Effort {
    /// One seed.
    fn default() -> Self {
        Effort { seeds: 1, steps: Config::default().steps }
    }
}
