//! `tegula explain`: a product step by step, as text, in a terminal player, as counts or as a trace
//! file.
//!
//! | file | |
//! |---|---|
//! | `source` | sources of a trace: a kernel on matrices, or a file |
//! | `trace_view` | a trace with derived data: roles, values, names, points |
//! | `describe`, `formula` | a phase in words; an element of C as a dot product |
//! | `plain`, `timeline`, `text` | the text report; a pipeline's timeline; line wrapping |
//! | `player`, `draw`, `grid`, `canvas` | the player's state; its frames; parts of frames |
//! | `terminal` | the player on a terminal |
//! | `file` | a kernel of a `.cu` or `.ptx` file |
//! | `browser` | the HTML page, as a file or served |

mod browser;
mod canvas;
mod describe;
mod draw;
pub mod file;
mod formula;
mod grid;
mod plain;
mod player;
mod source;
mod terminal;
mod text;
mod timeline;
mod trace_view;

use std::io::{IsTerminal, stdin};

use player::Player;
use source::Launch;
use tegula_explain::trace::{Header, Trace};
use tegula_files::ReportFile;
use trace_view::TraceView;

use crate::args::ExplainArgs;
use crate::failure::{Failure, Result};
use crate::output::stdout;
use crate::progress::ProgressDisplay;
use crate::report;

/// The command.
pub fn run(args: &ExplainArgs, progress: &ProgressDisplay) -> Result<()> {
    args.check()?;
    if let Some(file) = &args.html {
        return browser::write(file, args, progress);
    }
    if let Some(port) = args.serve {
        return browser::serve(port, args, progress);
    }
    let trace = match args.files.as_slice() {
        [file] => source::read(file)?,
        _ => {
            // Refuse a file that cannot be written before any work.
            let file = args.trace.as_deref().map(ReportFile::new).transpose()?;
            let launch = Launch::new(args, progress)?;
            if args.json {
                let explained = launch.profile(args, progress)?;
                report::json(&mut stdout()?.lock(), &explained)?;
            }
            match file {
                Some(file) => return write(&file, &launch.trace(args, progress)?, args, progress),
                None if args.json => return Ok(()),
                None => launch.trace(args, progress)?,
            }
        }
    };
    let (block, thread) = chosen(&trace.header, &trace.blocks(), args)?;
    let view = TraceView::new(trace);
    // Concurrent warps of a pipeline have no common phases to play.
    if view.trace.header.pipeline.is_empty() && is_played(args.plain)? {
        return Ok(terminal::play(Player::new(view, block, thread))?);
    }
    Ok(plain::print(&mut stdout()?.lock(), &view, block, thread)?)
}

/// Whether steps are played: on a terminal, unless text is asked for.
fn is_played(plain: bool) -> Result<bool> {
    let is_terminal = stdin().is_terminal() && stdout()?.is_terminal();
    Ok(!plain && is_terminal && std::env::var("TERM").is_ok_and(|term| term != "dumb"))
}

fn write(file: &ReportFile, trace: &Trace, args: &ExplainArgs, progress: &ProgressDisplay) -> Result<()> {
    let mut bytes = Vec::new();
    trace.write(&mut bytes).map_err(|why| Failure::new(why.to_string()))?;
    file.replace(&bytes)?;
    let name = args.trace.as_deref().unwrap_or_else(|| "".as_ref()).display().to_string();
    let (ticks, blocks) = (trace.header.ticks.len(), trace.blocks().len());
    progress.line(format!(
        "{}: {ticks} ticks of {blocks} {}, {} bytes",
        crate::failure::one_line(&name),
        if blocks == 1 { "block" } else { "blocks" },
        bytes.len()
    ));
    Ok(())
}

/// The block and the thread to start with.
fn chosen(header: &Header, blocks: &[[u32; 3]], args: &ExplainArgs) -> Result<([u32; 3], [u32; 3])> {
    let Some(&first) = blocks.first() else {
        return Err(Failure::new("nothing was recorded: the requested blocks, warps or steps never ran"));
    };
    let block = args.block.map_or(first, |at| at.0);
    if !blocks.contains(&block) {
        let [x, y, _] = header.grid;
        let why =
            if (0..3).all(|axis| block[axis] < header.grid[axis]) { "was not recorded" } else { "is out of range" };
        return Err(Failure::new(format!(
            "block {} {why}: the grid has {x}×{y} blocks; block {} was recorded",
            text::at(block),
            text::at(first)
        )));
    }
    let thread = args.thread.map_or([0; 3], |at| at.0);
    let [x, y, _] = header.block;
    if (0..3).any(|axis| thread[axis] >= header.block[axis]) {
        return Err(Failure::new(format!("thread {} is out of range: a block has {x}×{y} threads", text::at(thread))));
    }
    Ok((block, thread))
}
