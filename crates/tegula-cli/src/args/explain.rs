//! The command line of `tegula explain`.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use tegula::element::Type;
use tegula_explain::trace::TraceFilter;

use super::{VariantArgs, both_standard, is_standard, whole};
use crate::failure::Failure;
use crate::interpreter_options::InterpreterOptions;
use crate::kernel::{KernelArg, KernelParser, Problem};

/// Examples and notes after help.
pub const EXAMPLES: &str = "\
Examples:
  tegula explain                                    4×4 in tiles of 2×2, played
  tegula explain a.npy b.npy --thread 1,0           your own numbers
  tegula explain --kernel naive | less              as text
  tegula explain --inject missing-first-barrier     a race, and where it occurs
  tegula explain --m 256 --n 256 --k 256 --json     counts per thread
  tegula explain --m 999 --blocks 5,0 --trace b.trace
  tegula explain b.trace                            play a recorded trace
  tegula explain --kernel hopper_128x64x64_consumers2_stages4   a pipeline
  tegula explain --html tiles.html                  a page for a browser
  tegula explain --serve                            a page that runs new choices
  tegula explain my.cu --help                       a CUDA C++ kernel, in a file

A .cu or .ptx file is explained with the options of 'tegula check' on it; 'tegula explain my.cu --help' \
lists them.

On a terminal the product is played: → and ← step forward and back, ] and [ by phases, ? lists all \
keys, q quits. Elsewhere, or with --plain, it is printed as text. A and B are as for mul, but \
two-dimensional; without files they are 1, 2, 3 … row by row, from 1 again after 100. A kernel with \
a bug is played like any other, and the exit code is 0. A trace of all blocks that is too large has \
one block instead, that of --block or the first.

A kernel with a pipeline, such as the hopper family, has a timeline: the step along k that each \
stage of shared memory holds, and the waits. A column is a unit of logical time: issuing a copy \
takes 1, the copy 4, the products of a step 2, storing a tile 2, sending accumulators to other \
blocks 2, all else 0. Since its warps run concurrently, such a kernel is printed as text and not \
played.

The object of --json has kernel, m, n, k, grid, block, steps, per_thread (global_loads, \
global_stores, shared_loads, shared_stores, fma: the maximum over threads of each), \
barriers_per_block, and counters and findings as in check --json. With --blocks they cover the \
blocks that ran. For kernels that pack operands or split their work, the GEMM kernel is explained.";

#[derive(Debug, Args)]
#[command(mut_arg("tile", |tile| tile.help(
    "Of naive and tiled: side of the tile, and of the block of threads [default: 2; of products beyond 8, 16 and 32: 4, 8 and 16; K1 to K4: 16; K5: 2; K6: 32]"
)))]
#[command(mut_arg("dtype", |dtype| dtype.visible_alias("cast")))]
#[command(mut_arg("dtype", |dtype| dtype.help(
    "Type of A and B [default: that of the files, else f32; K2: f64; K3: i32; dmma: f64; mma and hopper: f16; limbs: i32]"
)))]
pub struct ExplainArgs {
    /// A and B: matrices in files, as for mul; or one trace file of --trace
    #[arg(value_name = "A B | TRACE", num_args = 0..=2, value_hint = ValueHint::FilePath)]
    pub files: Vec<PathBuf>,
    /// The kernel: naive, tiled, a preset K1 to K6, a family for its default configuration, or a
    /// configuration
    #[arg(long, value_name = "NAME", default_value = "tiled", ignore_case = true, value_parser = KernelParser::PRODUCTS)]
    pub kernel: KernelArg,
    /// Rows of A and C [default: 4; K1 to K6 and other kernels: as for check]
    #[arg(long, allow_negative_numbers = true, value_parser = whole::<usize>(0))]
    pub m: Option<usize>,
    /// Columns of B and C [default: as for --m]
    #[arg(long, allow_negative_numbers = true, value_parser = whole::<usize>(0))]
    pub n: Option<usize>,
    /// Columns of A, rows of B [default: as for --m]
    #[arg(long, allow_negative_numbers = true, value_parser = whole::<usize>(0))]
    pub k: Option<usize>,
    /// Transpose A
    #[arg(long, requires = "files")]
    pub ta: bool,
    /// Transpose B
    #[arg(long, requires = "files")]
    pub tb: bool,
    #[command(flatten)]
    pub options: VariantArgs,
    /// Block to start with, along x and y [default: the first]
    #[arg(long, value_name = "X,Y", value_parser = At::parse)]
    pub block: Option<At>,
    /// Thread of the block to start with
    #[arg(long, value_name = "X,Y", value_parser = At::parse)]
    pub thread: Option<At>,
    /// Run and record these blocks only [default: all; one block if all are too many]
    #[arg(long, value_name = "X,Y", value_delimiter = ';', value_parser = At::parse)]
    pub blocks: Option<Vec<At>>,
    /// Record these warps of each block only
    #[arg(long, value_name = "WARP", value_delimiter = ',', value_parser = whole::<u32>(0))]
    pub warps: Option<Vec<u32>>,
    /// Record these steps along k only, without TO
    #[arg(long, value_name = "FROM:TO", value_parser = steps)]
    pub steps: Option<[u32; 2]>,
    /// Write the trace to this file, to play it later; - for standard output
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub trace: Option<PathBuf>,
    /// Print text, also on a terminal
    #[arg(long)]
    pub plain: bool,
    /// Print counts per thread and costs as one JSON object
    #[arg(long)]
    pub json: bool,
    /// Write an HTML page with every tile, mapping and bug of small products; for a hopper kernel,
    /// its timeline
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with_all = ["files", "trace", "json", "plain", "serve"])]
    pub html: Option<PathBuf>,
    /// Serve such a page on this machine and run what is chosen there [default port: any free one]
    #[arg(long, value_name = "PORT", num_args = 0..=1, default_missing_value = "0", conflicts_with_all = ["files", "trace", "json", "plain"])]
    pub serve: Option<u16>,
}

/// A block or a thread along x, y and z.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct At(pub [u32; 3]);

impl At {
    fn parse(text: &str) -> Result<At, String> {
        let numbers: Option<Vec<u32>> = text.split(',').map(|number| number.parse().ok()).collect();
        match numbers.as_deref() {
            Some(&[x, y]) => Ok(At([x, y, 0])),
            Some(&[x, y, z]) => Ok(At([x, y, z])),
            _ => Err("not X,Y, such as 0,1".into()),
        }
    }
}

fn steps(text: &str) -> Result<[u32; 2], String> {
    let ends = text.split_once(':').and_then(|(from, to)| Some([from.parse().ok()?, to.parse().ok()?]));
    ends.filter(|[from, to]| from < to).ok_or_else(|| "not FROM:TO, such as 0:4".into())
}

impl ExplainArgs {
    /// Refuses combinations of options that exclude each other.
    pub fn check(&self) -> Result<(), Failure> {
        let refuse = |why: &str| Err(Failure::Usage(why.into()));
        let sizes = self.m.is_some() || self.n.is_some() || self.k.is_some();
        let other = self.options.given().next().is_some() || self.kernel.text() != "tiled" || self.ta || self.tb;
        let sampled = self.blocks.is_some() || self.warps.is_some() || self.steps.is_some();
        match self.files.len() {
            1 if sizes || other || sampled || self.json || self.trace.is_some() => {
                refuse("a trace file allows --block, --thread and --plain only; give A and B to run a kernel")
            }
            _ if self.json && is_standard(self.trace.as_ref()) => Err(both_standard("--json", "--trace")),
            2 if sizes => refuse("the files determine m, n and k; leave out --m, --n and --k"),
            _ => Ok(()),
        }
    }

    /// The part of the launch to record.
    pub fn sample(&self) -> TraceFilter {
        TraceFilter {
            blocks: self.blocks.as_ref().map(|blocks| blocks.iter().map(|at| at.0).collect()),
            warps: self.warps.clone(),
            steps: self.steps,
        }
    }

    /// The problem, with the type and sizes of the files, if given.
    pub fn problem(&self, ty: Option<Type>, sizes: Option<[usize; 3]>) -> tegula::Result<Problem> {
        let mut options = VariantArgs { dtype: self.options.dtype.or(ty), ..self.options.clone() };
        let simple = matches!(self.kernel.text(), "naive" | "tiled");
        let asked = [self.m, self.n, self.k];
        let simple_sizes = sizes.unwrap_or(asked.map(|size| size.unwrap_or(4)));
        if simple {
            options.tile = options.tile.or(Some(tile(simple_sizes)));
        }
        let recipe = options.recipe(&self.kernel)?;
        let usual = if simple { simple_sizes } else { self.kernel.sizes(&recipe.kernel) };
        let sizes = sizes.unwrap_or([0, 1, 2].map(|side| asked[side].unwrap_or(usual[side])));
        Problem::new(recipe, sizes, InterpreterOptions::default())
    }
}

/// The tile side that suits a product of these sizes: a few tiles along each side.
fn tile(sizes: [usize; 3]) -> u32 {
    match sizes.into_iter().max() {
        Some(33..) => 16,
        Some(17..) => 8,
        Some(9..) => 4,
        _ => 2,
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use tegula_explain::pipeline::Costs;
    use tegula_kernels::{GemmVariant, Plain, PlainKind};

    use super::super::{Cli, Command};
    use super::*;

    fn explain(line: &str) -> ExplainArgs {
        match Cli::try_parse_from(format!("tegula explain {line}").split_whitespace()).unwrap().command {
            Command::Explain(args) => *args,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn small_product_has_small_tiles() {
        let of = |line| {
            let problem = explain(line).problem(None, None).unwrap();
            (problem.recipe.kernel.tile()[0], [problem.m, problem.n, problem.k])
        };
        assert_eq!(of(""), (2, [4; 3]));
        assert_eq!(of("--m 9 --n 3"), (4, [9, 3, 4]));
        assert_eq!(of("--m 256 --n 256 --k 256 --kernel naive"), (16, [256; 3]));
        assert_eq!(of("--kernel K6"), (32, [64; 3]));
        assert_eq!(of("--kernel k5 --k 6"), (2, [4, 4, 6]));
        assert_eq!(of("--tile 8"), (8, [4; 3]));
        let files = explain("a b").problem(Some(Type::I32), Some([2, 3, 4])).unwrap();
        assert_eq!(files.recipe.kernel, Plain::new(PlainKind::Tiled, Type::I32, 2).into());
    }

    #[test]
    fn sample_options_are_parsed() {
        let sample = explain("--blocks 1,2;3,4,5 --warps 0,2 --steps 3:5").sample();
        assert_eq!(sample.blocks, Some(vec![[1, 2, 0], [3, 4, 5]]));
        assert_eq!((sample.warps, sample.steps), (Some(vec![0, 2]), Some([3, 5])));
        for wrong in ["--blocks 1", "--blocks a,b", "--steps 4", "--steps 4:4", "--thread 1,2,3,4", "a b c"] {
            let line = format!("tegula explain {wrong}");
            assert!(Cli::try_parse_from(line.split(' ')).is_err(), "{wrong}");
        }
    }

    #[test]
    fn help_states_timeline_costs() {
        let Costs { issue, copy, multiply, store, send } = Costs::DEFAULT;
        let costs = format!(
            "issuing a copy takes {issue}, the copy {copy}, the products of a step {multiply}, storing a tile {store}, \
             sending accumulators to other blocks {send}, all else 0"
        );
        assert!(EXAMPLES.contains(&costs), "{costs}");
    }

    #[test]
    fn excluding_options_are_refused() {
        for wrong in ["x.trace --tile 4", "x.trace --json", "x.trace --blocks 0,0", "a b --m 4", "x --kernel naive"] {
            assert!(matches!(explain(wrong).check(), Err(Failure::Usage(_))), "{wrong}");
        }
        assert!(explain("x.trace --block 1,0 --plain").check().is_ok());
    }
}
