//! The command line of `tegula explain`.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use tegula::element::Type;
use tegula_explain::trace::Sample;

use super::{VariantArgs, both_standard, is_standard, whole};
use crate::effort::Effort;
use crate::failure::Failure;
use crate::kernel::{Named, Names, Problem};

/// What help ends with.
pub const EXAMPLES: &str = "\
Examples:
  tegula explain                                    4×4 in tiles of 2×2, played
  tegula explain a.npy b.npy --thread 1,0           your own numbers
  tegula explain --kernel naive | less              the story as text
  tegula explain --plant missing-first-barrier      a race, and where it happens
  tegula explain --m 256 --n 256 --k 256 --json     what each thread does
  tegula explain --m 999 --blocks 5,0 --trace b.trace
  tegula explain b.trace                            play what was kept
  tegula explain --kernel hopper_128x64x64_2_4_1    a pipeline and its waits
  tegula explain --html tiles.html                  a page for a browser
  tegula explain --serve                            one that runs new choices

On a terminal the multiplication is played: → and ← go on and back, ] and [ by whole acts, ? tells of all keys, q ends. Elsewhere, or with \
--plain, it is told as text. A and B are as for mul, but two-dimensional; without files A and B are 1, 2, 3 … row after row, from 1 again after 100. \
A kernel with a mistake in it is played like any other, and the exit code is 0.

Of a kernel with a pipeline, as those of the family hopper, a timeline tells which step along k each stage of shared memory holds when, and who waited \
for whom. A column of it is a unit of logical time: to ask for copies takes 1, the copies 4, the products of a step 2, to store a tile 2, to send sums to other \
blocks 2, all else nothing. Since its warps do different things at once, such a kernel is told as text, and not played.

The object of --json has kernel, m, n, k, grid, block, steps, per_thread (global_loads, global_stores, shared_loads, shared_stores, fma: each the \
greatest of any thread), barriers_per_block, and counters and findings as check --json has them. With --blocks these are of the blocks that ran. Of kernels that pack or split their work the \
multiplying kernel is explained.";

#[derive(Debug, Args)]
#[command(mut_arg("tile", |tile| tile.help(
    "Of naive and tiled: side of the tile, and of the block of threads [default: 2; of products beyond 8, 16 and 32: 4, 8 and 16; K1 to K4: 16; K5: 2; K6: 32]"
)))]
#[command(mut_arg("dtype", |dtype| dtype.visible_alias("cast")))]
#[command(mut_arg("dtype", |dtype| dtype.help(
    "Type of A and B [default: that of the files, else f32; K2: f64; K3: i32; dmma: f64; mma and hopper: f16; limbs: i32]"
)))]
pub struct ExplainArgs {
    /// A and B: matrices in files, as for mul; or one trace that --trace wrote
    #[arg(value_name = "A B | TRACE", num_args = 0..=2, value_hint = ValueHint::FilePath)]
    pub files: Vec<PathBuf>,
    /// The kernel: naive, tiled, a preset K1 to K6, or a kernel with its shape in its name
    #[arg(long, value_name = "NAME", default_value = "tiled", ignore_case = true, value_parser = Names)]
    pub kernel: Named,
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
    /// The block to begin with, along x and y [default: the first]
    #[arg(long, value_name = "X,Y", value_parser = At::parse)]
    pub block: Option<At>,
    /// The thread of the block to begin with
    #[arg(long, value_name = "X,Y", value_parser = At::parse)]
    pub thread: Option<At>,
    /// Run these blocks only
    #[arg(long, value_name = "X,Y", value_delimiter = ';', value_parser = At::parse)]
    pub blocks: Option<Vec<At>>,
    /// Record these warps of a block only
    #[arg(long, value_name = "WARP", value_delimiter = ',', value_parser = whole::<u32>(0))]
    pub warps: Option<Vec<u32>>,
    /// Record these steps along k only, the second one left out
    #[arg(long, value_name = "FROM:TO", value_parser = steps)]
    pub steps: Option<[u32; 2]>,
    /// Write what happens to this file, to be played later; - for standard output
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub trace: Option<PathBuf>,
    /// Tell it as text, also on a terminal
    #[arg(long)]
    pub plain: bool,
    /// Print what threads do and what it costs as one JSON object
    #[arg(long)]
    pub json: bool,
    /// Write a page for a browser that holds every tile, mapping and mistake of small products; of a hopper kernel, its timeline
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with_all = ["files", "trace", "json", "plain", "serve"])]
    pub html: Option<PathBuf>,
    /// Give such a page out to browsers on this machine, and run what is chosen there; without a port at any that is free
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
            _ => Err("give X,Y, such as 0,1".into()),
        }
    }
}

fn steps(text: &str) -> Result<[u32; 2], String> {
    let ends = text.split_once(':').and_then(|(from, to)| Some([from.parse().ok()?, to.parse().ok()?]));
    ends.filter(|[from, to]| from < to).ok_or_else(|| "give FROM:TO, such as 0:4".into())
}

impl ExplainArgs {
    /// What no single option can tell is wrong.
    pub fn check(&self) -> Result<(), Failure> {
        let refuse = |why: &str| Err(Failure::Usage(why.into()));
        let sizes = self.m.is_some() || self.n.is_some() || self.k.is_some();
        let other = self.options.given().next().is_some() || self.kernel.text() != "tiled" || self.ta || self.tb;
        let sampled = self.blocks.is_some() || self.warps.is_some() || self.steps.is_some();
        match self.files.len() {
            1 if sizes || other || sampled || self.json || self.trace.is_some() => refuse(
                "a trace is played as it was recorded: beside one file there are --block, --thread and --plain only; give A and B to run a kernel on them",
            ),
            _ if self.json && is_standard(self.trace.as_ref()) => Err(both_standard("--json", "--trace")),
            2 if sizes => refuse("the files say what m, n and k are; leave --m, --n and --k out"),
            _ => Ok(()),
        }
    }

    /// What is recorded.
    pub fn sample(&self) -> Sample {
        Sample {
            blocks: self.blocks.as_ref().map(|blocks| blocks.iter().map(|at| at.0).collect()),
            warps: self.warps.clone(),
            steps: self.steps,
        }
    }

    /// The problem asked for; of the files' type and sizes, where there are files.
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
        Problem::new(recipe, sizes, Effort::default())
    }
}

/// The side of tiles that shows most of a product of these sizes: a few tiles along each side.
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
    use tegula_kernels::{Family, GemmVariant, Plain};

    use super::super::{Cli, Command};
    use super::*;

    fn explain(line: &str) -> ExplainArgs {
        match Cli::try_parse_from(format!("tegula explain {line}").split_whitespace()).unwrap().command {
            Command::Explain(args) => *args,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn small_products_have_small_tiles() {
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
        assert_eq!(files.recipe.kernel, Plain::new(Family::Tiled, Type::I32, 2).into());
    }

    #[test]
    fn samples_are_parsed() {
        let sample = explain("--blocks 1,2;3,4,5 --warps 0,2 --steps 3:5").sample();
        assert_eq!(sample.blocks, Some(vec![[1, 2, 0], [3, 4, 5]]));
        assert_eq!((sample.warps, sample.steps), (Some(vec![0, 2]), Some([3, 5])));
        for wrong in ["--blocks 1", "--blocks a,b", "--steps 4", "--steps 4:4", "--thread 1,2,3,4", "a b c"] {
            let line = format!("tegula explain {wrong}");
            assert!(Cli::try_parse_from(line.split(' ')).is_err(), "{wrong}");
        }
    }

    #[test]
    fn help_says_what_a_column_is() {
        let Costs { ask, copy, multiply, store, send } = Costs::USUAL;
        let told = format!(
            "takes {ask}, the copies {copy}, the products of a step {multiply}, to store a tile {store}, to send sums to other blocks {send}, all"
        );
        assert!(EXAMPLES.contains(&told), "{told}");
    }

    #[test]
    fn what_cannot_go_together_is_refused() {
        for wrong in ["x.trace --tile 4", "x.trace --json", "x.trace --blocks 0,0", "a b --m 4", "x --kernel naive"] {
            assert!(matches!(explain(wrong).check(), Err(Failure::Usage(_))), "{wrong}");
        }
        assert!(explain("x.trace --block 1,0 --plain").check().is_ok());
    }
}
