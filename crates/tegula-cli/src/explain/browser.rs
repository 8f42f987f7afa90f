//! The explanation as an HTML page, written to a file or served on this machine.

use std::io::Write;
use std::path::Path;

use tegula_explain::page::{Catalog, Selection, html, pipeline};
use tegula_explain::pipeline::{Costs, Timeline};
use tegula_explain::serve::{MAX_EXTENT, Server};
use tegula_files::ReportFile;
use tegula_kernels::GemmKernel;

use super::chosen;
use super::source::Launch;
use super::text::at;
use crate::args::ExplainArgs;
use crate::failure::{Failure, Result, one_line};
use crate::output::stdout;
use crate::progress::{ProgressDisplay, Unit};

/// Writes the page; for a kernel with a pipeline, its timeline.
pub fn write(file: &Path, args: &ExplainArgs, progress: &ProgressDisplay) -> Result<()> {
    if matches!(args.problem(None, None)?.recipe.kernel, GemmKernel::Hopper(_)) {
        return write_pipeline(file, args, progress);
    }
    let choice = choice(args)?;
    // Refuse a file that cannot be written before any work.
    let to = ReportFile::new(file)?;
    let book = Catalog::small(choice.plain.ty).starting_with(choice);
    let phase = progress.phase("tracing small products", Unit::Products, book.len() as u64);
    let page = html(&book, &|done| phase.set(done as u64)).map_err(|why| Failure::new(why.to_string()))?;
    drop(phase);
    to.replace(page.as_bytes())?;
    written(&to, file, progress);
    Ok(())
}

/// Logs the path of the file to open.
fn written(to: &ReportFile, file: &Path, progress: &ProgressDisplay) {
    if !to.is_stream() {
        let path = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
        progress.line(format!("wrote {}; open it in a browser", one_line(&path.display().to_string())));
    }
}

fn write_pipeline(file: &Path, args: &ExplainArgs, progress: &ProgressDisplay) -> Result<()> {
    let to = ReportFile::new(file)?;
    let trace = Launch::new(args, progress)?.trace(args, progress)?;
    let (block, _) = chosen(&trace.header, &trace.blocks(), args)?;
    let Some(timeline) = Timeline::of(&trace, block, Costs::DEFAULT) else {
        return Err(Failure::new(format!("block {} copies no tiles: nothing to multiply", at(block))));
    };
    to.replace(pipeline(&trace, block, &timeline).as_bytes())?;
    written(&to, file, progress);
    Ok(())
}

/// Prints the URL and serves the page until the program ends.
pub fn serve(port: u16, args: &ExplainArgs, progress: &ProgressDisplay) -> Result<()> {
    let choice = choice(args)?;
    progress.line("starting the server: tracing the first product …");
    let page = Server::bind(port, choice).map_err(|why| Failure::new(why.to_string()))?;
    let mut out = stdout()?.lock();
    writeln!(out, "{}", page.url())?;
    out.flush()?;
    drop(out);
    page.run();
    Ok(())
}

/// The product that the page opens with.
fn choice(args: &ExplainArgs) -> Result<Selection> {
    let problem = args.problem(None, None)?;
    let GemmKernel::Plain(plain) = problem.recipe.kernel else {
        let name = args.kernel.text();
        return Err(Failure::new(format!(
            "{name}: a page shows naive, tiled and K1 to K6, or with --html a hopper kernel; leave out --html and --serve"
        )));
    };
    let sizes = [problem.m, problem.n, problem.k];
    if sizes.iter().any(|size| !(1..=MAX_EXTENT).contains(size)) {
        return Err(Failure::new(format!(
            "a page shows products of 1 to {MAX_EXTENT} rows and columns; choose smaller --m, --n and --k"
        )));
    }
    Ok(Selection { plain, extents: sizes })
}
