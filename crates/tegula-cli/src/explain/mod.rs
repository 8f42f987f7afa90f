//! `tegula explain`: a small multiplication, act by act; as text, as a player in the terminal, as figures, as a trace to keep.
//!
//! | file | |
//! |---|---|
//! | `source` | where the trace comes from: a kernel on matrices, or a file |
//! | `stage` | a trace with what is needed to tell of it |
//! | `words`, `sum` | an act in words; an element of C as a sum |
//! | `plain`, `timeline`, `text` | the story as text; what a pipeline does when; lines and coordinates |
//! | `player`, `draw`, `grid`, `canvas` | where the player is; the picture of that; what pictures are made of |
//! | `terminal` | the player on a terminal: all that knows one |
//! | `browser` | the page, as a file or given out |

mod browser;
mod canvas;
mod draw;
mod grid;
mod plain;
mod player;
mod source;
mod stage;
mod sum;
mod terminal;
mod text;
mod timeline;
mod words;

use std::io::{IsTerminal, stdin};

use player::Player;
use source::Launch;
use stage::Stage;
use tegula_explain::trace::{Header, Trace};
use tegula_files::ReportFile;

use crate::args::ExplainArgs;
use crate::failure::{Failure, Result};
use crate::output::stdout;
use crate::progress::Meter;
use crate::report;

/// The command.
pub fn run(args: &ExplainArgs, meter: &Meter) -> Result<()> {
    args.check()?;
    if let Some(file) = &args.html {
        return browser::write(file, args, meter);
    }
    if let Some(port) = args.serve {
        return browser::serve(port, args);
    }
    let trace = match args.files.as_slice() {
        [file] => source::read(file)?,
        _ => {
            // Before any work: a file that cannot be written is refused.
            let file = args.trace.as_deref().map(ReportFile::new).transpose()?;
            let launch = Launch::new(args, meter)?;
            if args.json {
                let explained = launch.profile(args, meter)?;
                report::json(&mut stdout()?.lock(), &explained)?;
            }
            match file {
                Some(file) => return write(&file, &launch.trace(args, meter)?, args, meter),
                None if args.json => return Ok(()),
                None => launch.trace(args, meter)?,
            }
        }
    };
    let (block, thread) = chosen(&trace.header, &trace.blocks(), args)?;
    let stage = Stage::new(trace);
    let terminal = stdin().is_terminal() && stdout()?.is_terminal() && std::env::var("TERM").is_ok_and(|t| t != "dumb");
    // What happens at once in a pipeline cannot be played act by act.
    if terminal && !args.plain && stage.trace.header.deeds.is_empty() {
        return Ok(terminal::play(Player::new(stage, block, thread))?);
    }
    Ok(plain::print(&mut stdout()?.lock(), &stage, block, thread)?)
}

fn write(file: &ReportFile, trace: &Trace, args: &ExplainArgs, meter: &Meter) -> Result<()> {
    let mut bytes = Vec::new();
    trace.write(&mut bytes).map_err(|why| Failure::new(why.to_string()))?;
    file.replace(&bytes)?;
    let name = args.trace.as_deref().unwrap_or_else(|| "".as_ref()).display().to_string();
    let (moments, blocks) = (trace.header.moments.len(), trace.blocks().len());
    meter.line(format!(
        "{}: {moments} moments of {blocks} {}, {} bytes",
        crate::failure::one_line(&name),
        if blocks == 1 { "block" } else { "blocks" },
        bytes.len()
    ));
    Ok(())
}

/// The block and the thread to begin with.
fn chosen(header: &Header, blocks: &[[u32; 3]], args: &ExplainArgs) -> Result<([u32; 3], [u32; 3])> {
    let Some(&first) = blocks.first() else {
        return Err(Failure::new("nothing was recorded: no block, warp or step that was asked for ever ran"));
    };
    let block = args.block.map_or(first, |at| at.0);
    if !blocks.contains(&block) {
        let [x, y, _] = header.grid;
        let why = if (0..3).all(|axis| block[axis] < header.grid[axis]) { "was not recorded" } else { "is not there" };
        return Err(Failure::new(format!(
            "block {} {why}: the grid has {x}×{y} blocks, of which {} is one that was recorded",
            text::at(block),
            text::at(first)
        )));
    }
    let thread = args.thread.map_or([0; 3], |at| at.0);
    let [x, y, _] = header.block;
    if (0..3).any(|axis| thread[axis] >= header.block[axis]) {
        return Err(Failure::new(format!("thread {} is not there: a block has {x}×{y} threads", text::at(thread))));
    }
    Ok((block, thread))
}
