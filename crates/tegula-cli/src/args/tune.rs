//! `tegula tune`.

use std::path::PathBuf;

use clap::{Args, ValueHint};

use super::{DeviceChoice, ProductsArgs, seconds, short, whole};
use crate::failure::Failure;
use crate::shapes::{self, Shape};

pub const EXAMPLES: &str = "\
Examples:
  tegula tune --m 512:4096:512 --dtype f32,f64      cubes of two types
  tegula tune --shapes model.txt --layout nn,nt     the products of a model
  tegula tune --random 200 --seed 1 --dry-run       how good is the cost model?
  tegula tune --m 4096 --all --json t.json          time every kernel there is

Products that come later, from any program that uses the library, take the winner where one is kept for their type, shape and layout, and else \
what the cost model chooses. Winners are kept for the GPU, driver and version of Tegula that they were measured with; those of another are not \
used, and a file that is corrupt is said to be and made anew. A winner may add in another order than the cost model's choice, so results can differ in their \
last bits.

Sizes and files of shapes are those of bench; so are inputs. All kernels that may make a product are timed, with all splits of its sums, but \
for those that the cost model takes to be more than twice as slow as its best. ratio is the speed of its choice by the winner's, so 1 where it \
has chosen the fastest. A kernel that was never used here is assembled first, which takes the driver a tenth of a second or more.

The object of --json has machine, driver, version, seed, command, within_5_percent and rows; a row has dtype, layout, m, n, k, batch, \
candidates, timed, chosen, chosen_tflops, chosen_us, winner, winner_tflops, winner_us, ratio, glances and error; glances are all that \
were timed, each with its kernel and us, as they looked at first. Times are microseconds of a call; what there is not \
is null. The file and the winners are written anew after each row, always whole.

Environment: TEGULA_CACHE_DIR is where winners are kept, in place of $XDG_CACHE_HOME/tegula or ~/.cache/tegula. Exit code 1 also where a \
row could not be measured.";

#[derive(Debug, Args)]
pub struct TuneArgs {
    #[command(flatten)]
    pub products: ProductsArgs,
    /// Take so many shapes by chance, sizes of all magnitudes alike
    #[arg(long, value_name = "COUNT", allow_negative_numbers = true, value_parser = whole::<usize>(1),
        conflicts_with_all = ["m", "n", "k", "batch", "shapes"])]
    pub random: Option<usize>,
    /// The least size of those by chance [default: 64]
    #[arg(long, value_name = "SIZE", allow_negative_numbers = true, value_parser = whole::<u32>(1), requires = "random")]
    pub from: Option<u32>,
    /// The greatest size of those by chance [default: 8192]
    #[arg(long, value_name = "SIZE", allow_negative_numbers = true, value_parser = whole::<u32>(1), requires = "random")]
    pub to: Option<u32>,
    /// auto or cuda:N
    #[arg(long, default_value = "auto", value_hint = ValueHint::Other)]
    pub device: DeviceChoice,
    /// Where shapes by chance and the inputs come from
    #[arg(long, default_value_t = 1, allow_negative_numbers = true, value_parser = whole::<u64>(0))]
    pub seed: u64,
    /// Time for the turns of the best few of a row; long calls take what a few rounds need
    #[arg(long, value_name = "SECONDS", default_value_t = 0.2, allow_hyphen_values = true, value_parser = seconds)]
    pub time: f64,
    /// Time also what the cost model takes to be hopeless
    #[arg(long)]
    pub all: bool,
    /// Keep no winners
    #[arg(long)]
    pub dry_run: bool,
    /// Write one JSON object to this file, or - for standard output
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub json: Option<PathBuf>,
}

/// The sizes of shapes by chance, unless said otherwise.
const SIZES: [u32; 2] = [64, 8192];

impl TuneArgs {
    /// What no single option can tell is wrong.
    pub fn check(&self) -> Result<(), Failure> {
        if let DeviceChoice::Cpu | DeviceChoice::Interp = self.device {
            let device = self.device;
            return Err(Failure::Usage(format!(
                "kernels are tuned for a GPU, and --device is {device}; choose auto or cuda:N"
            )));
        }
        self.products.check()?;
        if let Some(count) = self.random.filter(|count| *count > shapes::MOST) {
            return Err(Failure::Usage(format!("--random {count} is too many; {} is the most", shapes::MOST)));
        }
        let [from, to] = self.ends();
        if from > to {
            return Err(Failure::Usage(format!("--from {from} is more than --to {to}")));
        }
        Ok(())
    }

    /// The shapes that are asked for.
    pub fn shapes(&self) -> Result<Vec<Shape>, Failure> {
        match self.random {
            Some(count) => Ok(shapes::random(count, self.ends(), self.seed)),
            None => self.products.shapes(),
        }
    }

    /// The line that says this run again, but for the file that it writes.
    pub fn command(&self) -> String {
        let products = match self.random {
            Some(count) => {
                let [from, to] = self.ends();
                format!("--random {count} --from {from} --to {to} {}", self.products.kinds())
            }
            None => self.products.to_string(),
        };
        let flags = [(" --all", self.all), (" --dry-run", self.dry_run)];
        let flags: String = flags.into_iter().filter_map(|(flag, given)| given.then_some(flag)).collect();
        let (device, seed, time) = (self.device, self.seed, short(self.time));
        format!("tegula tune {products} --device {device} --seed {seed} --time {time}{flags}")
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
    fn a_run_is_said_again_without_its_file() {
        let line = "tegula tune --m 512:1024:512 --k 64 --dtype f32 --layout nt --accuracy tf32 --device cuda:1 --seed 7 --time 0.5 --all --dry-run";
        assert_eq!(tune(&format!("{line} --json /there/t.json")).command(), line);
        let chance = tune("tegula tune --random 3 --to 100");
        let said =
            "tegula tune --random 3 --from 64 --to 100 --dtype f32 --layout nn --device auto --seed 1 --time 0.2";
        assert_eq!(chance.command(), said);
        assert_eq!(tune(said).shapes().unwrap(), chance.shapes().unwrap());
        assert_eq!(tune("tegula tune --m 5").shapes().unwrap(), [Shape { m: 5, n: 5, k: 5, batch: 1 }]);
    }
}
