//! The command line of `tegula explain` on a `.cu` or `.ptx` file.

use std::path::PathBuf;

use clap::{Args, ValueHint};

use super::FileOptions;
use crate::failure::Failure;
use crate::interpreter_options::InterpreterOptions;
use crate::whole_number::whole;

/// Steps that are recorded without `--to`.
pub const STEPS: u64 = 4096;

/// The usage: it is a form of `explain`.
pub const USAGE: &str = "tegula explain [OPTIONS] <FILE>";

/// Examples and notes after help.
pub const EXAMPLES: &str = "\
Examples:
  tegula explain my.cu --grid 4 --block 256 --arg x=f32[1000] --arg n=1000
  tegula explain my.cu                              launch from its host code
  tegula explain my.cu --kernel 'tiled<16>' --blocks 1,2 --warps 0 | less
  tegula explain my.cu --json | jq '.trace.steps[].findings[].message'

The file, its kernel, launch and arguments are given as for check; 'tegula check --help' lists the \
forms of values. One block is recorded. A step is one execution of a source line by a warp, with \
its memory accesses, barriers and errors. Lines that only compute are not steps.

On a terminal the steps are played: → and ← step forward and back, ] and [ go to barriers, e and E \
to errors, w and W select a warp, ? lists all keys, q quits. Elsewhere, or with --plain, they are \
printed as text. The exit code is 0 even if the kernel has an error. With --seeds, the first seed \
with an error is played.

The object of --json is that of 'check --json' for a file, and has trace: block, total (steps of \
the block), full (whether a limit ended it), memories (name, space, type, shape, bytes), and \
steps. A step has number, warp, file, line, lanes (a mask), sync, requests, findings and counters. \
A request has kind, memory (its index in memories), element_bytes, bytes (per lane), lanes, and \
elements and values of the lanes.";

#[derive(Debug, Args)]
pub struct ExplainFileArgs {
    /// A .cu or .ptx file
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub path: PathBuf,
    /// Block to record, along x, y and z
    #[arg(long, value_name = "X[,Y[,Z]]", default_value = "0", value_parser = coordinates)]
    pub blocks: Coordinates,
    /// Show these warps of the block only
    #[arg(long, value_name = "WARP", value_delimiter = ',', value_parser = whole::<u32>(0))]
    pub warps: Option<Vec<u32>>,
    /// The first step to record
    #[arg(long, value_name = "STEP", default_value_t = 0, value_parser = whole::<u64>(0))]
    pub from: u64,
    /// The step after the last one to record [default: 4096 after the first]
    #[arg(long, value_name = "STEP", value_parser = whole::<u64>(1))]
    pub to: Option<u64>,
    #[command(flatten)]
    pub interpreter: InterpreterOptions,
    /// Print text, also on a terminal
    #[arg(long)]
    pub plain: bool,
    /// Print the steps, findings and costs as one JSON object
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub file: FileOptions,
}

/// A block along x, y and z.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Coordinates(pub [u32; 3]);

fn coordinates(text: &str) -> Result<Coordinates, String> {
    let numbers: Option<Vec<u32>> = text.split(',').map(|number| number.parse().ok()).collect();
    match numbers.as_deref() {
        Some(&[x]) => Ok(Coordinates([x, 0, 0])),
        Some(&[x, y]) => Ok(Coordinates([x, y, 0])),
        Some(&[x, y, z]) => Ok(Coordinates([x, y, z])),
        _ => Err("give one block, such as 3 or 0,1".into()),
    }
}

impl ExplainFileArgs {
    /// Refuses combinations of options that exclude each other.
    pub fn check(&self) -> Result<(), Failure> {
        let refuse = |why: String| Err(Failure::Usage(why));
        let [from, to] = self.steps();
        if from >= to {
            return refuse(format!("--from {from} --to {to} selects no steps; give a larger --to"));
        }
        if self.file.compare.is_some() {
            return refuse("--compare applies to check; leave it out".into());
        }
        self.file.check()
    }

    /// The first step to record, and the one after the last.
    pub fn steps(&self) -> [u64; 2] {
        [self.from, self.to.unwrap_or(self.from.saturating_add(STEPS))]
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::super::{Cli, Command};
    use super::*;

    fn explain(line: &str) -> ExplainFileArgs {
        match Cli::try_parse_from(format!("tegula explain-file {line}").split_whitespace()).unwrap().command {
            Command::ExplainFile(args) => *args,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn help_states_the_limit_of_steps() {
        let [from, to] = explain("k.cu --from 7").steps();
        assert_eq!([from, to], [7, 7 + STEPS]);
        let help = <Cli as clap::CommandFactory>::command().find_subcommand_mut("explain-file").unwrap().render_help();
        assert!(help.to_string().contains(&format!("[default: {STEPS} after the first]")), "{help}");
    }

    #[test]
    fn blocks_have_one_to_three_coordinates() {
        assert_eq!(explain("k.cu").blocks, Coordinates([0; 3]));
        assert_eq!(
            ["3", "0,1", "1,2,3"].map(coordinates),
            [[3, 0, 0], [0, 1, 0], [1, 2, 3]].map(|at| Ok(Coordinates(at)))
        );
        assert!(["", "x", "1,2,3,4", "-1"].into_iter().all(|wrong| coordinates(wrong).is_err()));
    }

    #[test]
    fn excluding_options_are_refused() {
        for wrong in ["k.cu --compare cuda:0", "k.cu --from 4 --to 4", "k.cu -o C=-"] {
            assert!(matches!(explain(wrong).check(), Err(Failure::Usage(_))), "{wrong}");
        }
        assert!(explain("k.cu --from 4 --to 5").check().is_ok());
    }
}
