//! The explanation as a page for a browser: written to a file, or given out on this machine.

use std::io::Write;
use std::path::Path;

use tegula_explain::page::{Book, Choice, html, pipeline};
use tegula_explain::pipeline::{Costs, Timeline};
use tegula_explain::serve::{LARGEST, Page};
use tegula_files::ReportFile;
use tegula_kernels::GemmKernel;

use super::chosen;
use super::source::Launch;
use super::text::at;
use crate::args::ExplainArgs;
use crate::failure::{Failure, Result};
use crate::output::stdout;
use crate::progress::{Meter, Unit};

/// Writes the page: of a kernel with a pipeline its timeline.
pub fn write(file: &Path, args: &ExplainArgs, meter: &Meter) -> Result<()> {
    if matches!(args.problem(None, None)?.recipe.kernel, GemmKernel::Hopper(_)) {
        return write_pipeline(file, args, meter);
    }
    let choice = choice(args)?;
    // Before any work: a file that cannot be written is refused.
    let to = ReportFile::new(file)?;
    let book = Book::small(choice.plain.ty).opening_with(choice);
    let phase = meter.phase("tracing small products", Unit::Products, book.len() as u64);
    let page = html(&book, &|done| phase.set(done as u64)).map_err(|why| Failure::new(why.to_string()))?;
    to.replace(page.as_bytes())?;
    Ok(())
}

fn write_pipeline(file: &Path, args: &ExplainArgs, meter: &Meter) -> Result<()> {
    let to = ReportFile::new(file)?;
    let trace = Launch::new(args, meter)?.trace(args, meter)?;
    let (block, _) = chosen(&trace.header, &trace.blocks(), args)?;
    let Some(timeline) = Timeline::of(&trace, block, Costs::USUAL) else {
        return Err(Failure::new(format!("block {} has no tiles copied: there is nothing to multiply", at(block))));
    };
    to.replace(pipeline(&trace, block, &timeline).as_bytes())?;
    Ok(())
}

/// Says where the page is, and gives it out until the program is ended.
pub fn serve(port: u16, args: &ExplainArgs) -> Result<()> {
    let page = Page::open(port, choice(args)?).map_err(|why| Failure::new(why.to_string()))?;
    let mut out = stdout()?.lock();
    writeln!(out, "{}", page.url())?;
    out.flush()?;
    drop(out);
    page.run();
    Ok(())
}

/// What the page opens with.
fn choice(args: &ExplainArgs) -> Result<Choice> {
    let problem = args.problem(None, None)?;
    let GemmKernel::Plain(plain) = problem.recipe.kernel else {
        let name = args.kernel.text();
        return Err(Failure::new(format!(
            "a page shows naive, tiled and K1 to K6, or with --html a hopper kernel, not {name}; leave out --html and --serve"
        )));
    };
    let sizes = [problem.m, problem.n, problem.k];
    if sizes.iter().any(|size| !(1..=LARGEST).contains(size)) {
        return Err(Failure::new(format!(
            "a page shows products of 1 to {LARGEST} rows and columns; choose smaller --m, --n and --k"
        )));
    }
    Ok(Choice { plain, sizes })
}
