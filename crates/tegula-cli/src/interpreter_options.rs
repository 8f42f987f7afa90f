//! Options of the interpreter: random inputs and warp orders to try, and the instruction limit.

use clap::Args;
use tegula_interp::Config;

use crate::whole_number::whole;

/// Options of an interpreter run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Args)]
pub struct InterpreterOptions {
    /// Number of random inputs and warp orders to try
    #[arg(long, default_value_t = 1, allow_negative_numbers = true, value_parser = whole::<u32>(1))]
    pub seeds: u32,
    /// Maximum instructions of a warp; a kernel that executes more is reported as endless
    #[arg(long, visible_alias = "step-limit", default_value_t = Config::default().steps, allow_negative_numbers = true, value_parser = whole::<u64>(1))]
    pub steps: u64,
}

impl InterpreterOptions {
    /// The interpreter's configuration for a seed.
    pub fn config(self, seed: u64) -> Config {
        Config { seed, steps: self.steps, ..Config::default() }
    }
}

impl Default for InterpreterOptions {
    /// One seed.
    fn default() -> Self {
        InterpreterOptions { seeds: 1, steps: Config::default().steps }
    }
}
