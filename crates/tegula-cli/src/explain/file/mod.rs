//! `tegula explain my.cu`: the steps of one block of a kernel in a file, as text, in a terminal
//! player, or as JSON.
//!
//! | file | |
//! |---|---|
//! | `view` | a trace with derived data: names, types, source lines, shared memory at a step |
//! | `arrays` | types and extents of shared arrays, from the source |
//! | `describe` | the description of a step |
//! | `plain`, `json` | the steps as text, and as an object |
//! | `player`, `draw` | the player's state; its frames |

mod arrays;
mod describe;
mod draw;
mod json;
mod plain;
mod player;
mod view;

use tegula_ptx::trace::{Trace, TraceFilter};
use tegula_ptx::{Config, Outcome};

use self::player::FilePlayer;
use self::view::FileView;
use super::{is_played, terminal};
use crate::args::ExplainFileArgs;
use crate::check_file::Prepared;
use crate::failure::{Failure, Result};
use crate::output::stdout;
use crate::progress::{ProgressDisplay, Unit};
use crate::report;

/// Runs `tegula explain` on a file.
pub fn run(args: &ExplainFileArgs, progress: &ProgressDisplay) -> Result<()> {
    args.check()?;
    let mut prepared = Prepared::new(&args.file, &args.path, progress)?;
    refuse_missing(args, &prepared)?;
    let (outcome, trace) = record(args, &mut prepared, progress)?;
    let mut found = prepared.report(args.interpreter.seeds, &outcome);
    prepared.results(&outcome, &mut found, progress)?;
    let mut view = FileView::new(&prepared, &args.file.defines, trace, found);
    view.warps.clone_from(&args.warps);
    if args.json {
        return Ok(report::json(&mut stdout()?.lock(), &json::Explained::new(&view))?);
    }
    if is_played(args.plain)? {
        return Ok(terminal::play(FilePlayer::new(view))?);
    }
    Ok(plain::print(&mut stdout()?.lock(), &view)?)
}

/// Returns an error for a block or a warp outside of the launch.
fn refuse_missing(args: &ExplainFileArgs, prepared: &Prepared<'_>) -> Result<()> {
    let (grid, block) = (prepared.launch.grid, args.blocks.0);
    let text = |of: [u32; 3]| of.map(|n| n.to_string()).join(",");
    if (0..3).any(|axis| block[axis] >= grid[axis]) {
        return Err(Failure::new(format!("--blocks {}: the grid has {} blocks", text(block), text(grid))));
    }
    let threads = prepared.launch.block.iter().map(|&n| u64::from(n)).product::<u64>();
    let warps = threads.div_ceil(32);
    match args.warps.iter().flatten().find(|&&warp| u64::from(warp) >= warps) {
        Some(warp) => Err(Failure::new(format!("--warps {warp}: a block has {warps} warps, from 0"))),
        None => Ok(()),
    }
}

/// Runs the kernel with each seed until one has an error; without an error, returns the run of the
/// first seed.
fn record(args: &ExplainFileArgs, prepared: &mut Prepared<'_>, progress: &ProgressDisplay) -> Result<(Outcome, Trace)> {
    let _tracing = progress.phase(&format!("tracing {}", prepared.source.signature.kernel), Unit::Products, 0);
    let filter = TraceFilter { steps: args.steps(), ..TraceFilter::new(args.blocks.0, prepared.source.main_file()) };
    let inputs = prepared.buffers.clone();
    let mut first = None;
    for seed in 0..u64::from(args.interpreter.seeds) {
        let mut buffers = inputs.clone();
        let config = Config { seed, steps: args.interpreter.steps, ..Config::default() };
        let recorded = prepared.source.kernel.trace(&prepared.launch, &mut buffers, &config, &filter);
        let (outcome, trace) = recorded.map_err(|error| prepared.failure(&error))?;
        let wrong = outcome.error().is_some();
        if wrong || first.is_none() {
            prepared.buffers = buffers;
            first = Some((outcome, trace));
        }
        if wrong {
            break;
        }
    }
    first.ok_or_else(|| Failure::new("--seeds 0: at least 1 run is needed"))
}
