//! `tegula tune`.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use tegula::tune::search::TuneEffort;

use super::{DeviceChoice, ProductsArgs, seconds, short, whole};
use crate::failure::Failure;
use crate::shapes::{self, Shape};

pub const EXAMPLES: &str = "\
Examples:
  tegula tune --m 512:4096:512 --dtype f32,f64      cubes of two types
  tegula tune --shapes model.txt --layout nn,nt     the shapes of a model
  tegula tune --random 200 --all --dry-run          evaluate the cost model
  tegula tune --m 4096 --all --json t.json          time every kernel
  tegula tune --calibrate                           measure the GPU

Later products, in any program that uses the library, use the tuned entry for their type, shape and \
layout, else the cost model's choice. Entries are cached for the GPU, driver and version of Tegula \
that they were measured with; those of another are not used, and a corrupt file is reported and \
replaced. A tuned kernel may accumulate in another order than the cost model's choice, so results \
can differ in their last bits.

Sizes and files of shapes are as for bench. The kernels with the best predicted times are timed on \
random matrices, with all split-K and stream-K schedules, as far as --time suffices. The fastest whose \
result agrees with the CPU in sampled elements is kept. With about 8 seconds, the fastest kernels of \
products that may reach the power limit of the GPU are timed at that limit, where the order can \
differ from that of short runs. ratio is the \
speed of the cost model's choice divided by that of the fastest, so 1 where it chose the fastest. A \
kernel used for the first time is assembled by the driver, which takes a tenth of a second or more.

The object of --json has machine, driver, version, seed, command, within_5_percent and rows; a row has dtype, layout, m, n, k, batch, \
candidates, timed, chosen, chosen_tflops, chosen_us, winner (the fastest), winner_tflops, winner_us, \
ratio, glances, finalists and error; glances are the first timings of all timed kernels, each with \
kernel and us, and finalists the last timings of the fastest and the chosen. Times are \
microseconds per call; missing values are null. The file and the cache are replaced \
atomically after each row.

The cost model needs the bandwidth of memory, the clock under load and the power limit of the GPU. \
By default the first two follow from what its driver reports, and the third is that of an H200. \
--calibrate measures them in about 20 \
seconds. It times kernels that are limited by bandwidth, clock or power, and saves the values that \
predict these times best. Later programs use them, like tuned entries. All GPUs of the same name \
and driver share them: calibrate again after a change of the power limit. Its object of --json has \
machine, driver, version, seconds, reported and measured (each memory_bandwidth in MB/s, clock in \
MHz and power_limited_gflops), reported_error and measured_error (mean errors of predicted times, \
as fractions), and rows with dtype, m, n, k, kernel and us.

Environment: TEGULA_CACHE_DIR is the cache directory, in place of $XDG_CACHE_HOME/tegula or ~/.cache/tegula. Exit code 1 also where a \
row could not be measured (not with --calibrate).";

#[derive(Debug, Args)]
pub struct TuneArgs {
    #[command(flatten)]
    pub products: ProductsArgs,
    /// Time this number of random shapes, log-uniformly distributed
    #[arg(long, value_name = "COUNT", allow_negative_numbers = true, value_parser = whole::<usize>(1),
        conflicts_with_all = ["m", "n", "k", "batch", "shapes"])]
    pub random: Option<usize>,
    /// Minimum size of random shapes [default: 64]
    #[arg(long, value_name = "SIZE", allow_negative_numbers = true, value_parser = whole::<u32>(1), requires = "random")]
    pub from: Option<u32>,
    /// Maximum size of random shapes [default: 8192]
    #[arg(long, value_name = "SIZE", allow_negative_numbers = true, value_parser = whole::<u32>(1), requires = "random")]
    pub to: Option<u32>,
    /// auto or cuda:N
    #[arg(long, default_value = "auto", value_hint = ValueHint::Other)]
    pub device: DeviceChoice,
    /// Seed of random shapes and inputs
    #[arg(long, default_value_t = 1, allow_negative_numbers = true, value_parser = whole::<u64>(0))]
    pub seed: u64,
    /// Time at most this number of kernels of a row, the best predicted ones [default: 16]
    #[arg(long, value_name = "COUNT", allow_negative_numbers = true, value_parser = whole::<usize>(1))]
    pub candidates: Option<usize>,
    /// Seconds for a row in all; the cost model's choice is timed in any case [default: 1]
    #[arg(long, value_name = "SECONDS", allow_hyphen_values = true, value_parser = seconds)]
    pub time: Option<f64>,
    /// Time every kernel, for as long as it takes
    #[arg(long, conflicts_with_all = ["candidates", "time"])]
    pub all: bool,
    /// Measure the memory bandwidth, clock and power limit of the GPU for the cost model
    #[arg(long, conflicts_with_all = ["m", "n", "k", "batch", "shapes", "random", "candidates", "time",
        "all", "dtype", "layout", "accuracy", "seed"])]
    pub calibrate: bool,
    /// Do not write the cache
    #[arg(long)]
    pub dry_run: bool,
    /// Write one JSON object to this file, or - for standard output
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub json: Option<PathBuf>,
}

/// The default sizes of random shapes.
const SIZES: [u32; 2] = [64, 8192];

impl TuneArgs {
    /// Refuses combinations of options that exclude each other.
    pub fn check(&self) -> Result<(), Failure> {
        if let DeviceChoice::Cpu | DeviceChoice::Interp = self.device {
            let device = self.device;
            return Err(Failure::Usage(format!("--device {device}: only GPUs are tuned; choose auto or cuda:N")));
        }
        self.products.check()?;
        if let Some(count) = self.random.filter(|count| *count > shapes::MAX_SHAPES) {
            return Err(Failure::Usage(format!("--random {count}: the maximum is {}", shapes::MAX_SHAPES)));
        }
        let [from, to] = self.ends();
        if from > to {
            return Err(Failure::Usage(format!("--from {from} exceeds --to {to}")));
        }
        Ok(())
    }

    /// The shapes to time.
    pub fn shapes(&self) -> Result<Vec<Shape>, Failure> {
        match self.random {
            Some(count) => Ok(shapes::random(count, self.ends(), self.seed)),
            None => self.products.shapes(),
        }
    }

    /// The command that repeats this run, without its output file.
    pub fn command(&self) -> String {
        let products = match self.random {
            Some(count) => {
                let [from, to] = self.ends();
                format!("--random {count} --from {from} --to {to} {}", self.products.kinds())
            }
            None => self.products.to_string(),
        };
        let TuneEffort { seed, candidates, seconds } = self.effort();
        let effort = match self.all {
            true => "--all".into(),
            false => format!("--candidates {candidates} --time {}", short(seconds)),
        };
        let dry_run = if self.dry_run { " --dry-run" } else { "" };
        format!("tegula tune {products} --device {} --seed {seed} {effort}{dry_run}", self.device)
    }

    /// The effort of each row.
    pub fn effort(&self) -> TuneEffort {
        let TuneEffort { candidates, seconds, .. } = TuneEffort::default();
        match self.all {
            true => TuneEffort::all(self.seed),
            false => TuneEffort {
                seed: self.seed,
                candidates: self.candidates.unwrap_or(candidates),
                seconds: self.time.unwrap_or(seconds),
            },
        }
    }

    fn ends(&self) -> [u32; 2] {
        let [from, to] = SIZES;
        [self.from.unwrap_or(from), self.to.unwrap_or(to)]
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Cli, Command};

    fn tune(line: &str) -> Box<TuneArgs> {
        match Cli::try_parse_from(line.split(' ')).unwrap().command {
            Command::Tune(args) => args,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn calibration_takes_no_products() {
        assert!(tune("tegula tune --calibrate --dry-run --json t.json --device cuda:1").calibrate);
        for product in ["--m 5", "--random 3", "--dtype f16", "--all", "--seed 2"] {
            let line = format!("tegula tune --calibrate {product}");
            assert!(Cli::try_parse_from(line.split(' ')).is_err(), "{line}");
        }
    }

    #[test]
    fn tune_command_repeats_the_run_without_output_file() {
        let line = "tegula tune --m 512:1024:512 --k 64 --dtype f32 --layout nt --accuracy tf32 --device cuda:1 --seed 7 --candidates 40 --time 0.5 --dry-run";
        assert_eq!(tune(&format!("{line} --json /there/t.json")).command(), line);
        let all = "tegula tune --m 5 --dtype f32 --layout nn --device auto --seed 1 --all";
        assert_eq!(tune("tegula tune --m 5 --all").effort(), TuneEffort::all(1));
        assert_eq!(tune(all).command(), tune("tegula tune --m 5 --all").command());
        let chance = tune("tegula tune --random 3 --to 100");
        let said = "tegula tune --random 3 --from 64 --to 100 --dtype f32 --layout nn --device auto --seed 1 --candidates 16 --time 1";
        assert_eq!(chance.command(), said);
        assert_eq!(tune(said).shapes().unwrap(), chance.shapes().unwrap());
        assert_eq!(tune("tegula tune --m 5").shapes().unwrap(), [Shape { m: 5, n: 5, k: 5, batch: 1 }]);
    }
}
