//! The self-contained HTML page: traces of small launches, kernel text and the viewer.
//!
//! `page.html` is the markup, `style.css` the style, and the `.js` files the viewer, one view or
//! concept a file. They are concatenated here, without a build step. The page reads traces in the
//! format of [`crate::trace`], and nothing else about a launch.
//!
//! Kernels with a pipeline have a separate page, [`pipeline`].

mod catalog;
mod code;
mod ladder;
mod nests;
mod parallel;
mod pipeline;

pub use catalog::{Catalog, Selection};
pub use pipeline::pipeline;

use crate::error::Result;

/// The limit of m, n and k that a page requests and a server accepts.
pub const MAX_EXTENT: usize = 64;

const TEMPLATE: &str = include_str!("page.html");
const STYLE: &str = include_str!("style.css");

/// The scripts, in the order of their concatenation.
const SCRIPTS: [&str; 13] = [
    include_str!("trace.js"),
    include_str!("model.js"),
    include_str!("text.js"),
    include_str!("matrices.js"),
    include_str!("threads.js"),
    include_str!("memory.js"),
    include_str!("code.js"),
    include_str!("cost.js"),
    include_str!("roof.js"),
    include_str!("compare.js"),
    include_str!("loops.js"),
    include_str!("findings.js"),
    include_str!("app.js"),
];

/// The HTML of a page; `progress` gets the number of launches traced so far.
///
/// # Errors
/// A launch that cannot be traced.
pub fn html(catalog: &Catalog, progress: &dyn Fn(usize)) -> Result<String> {
    let script: String = SCRIPTS.concat();
    let (catalog, traces) = catalog.packed(progress)?;
    let element = |(number, trace)| format!("<script type=\"text/plain\" id=\"trace-{number}\">{trace}</script>\n");
    let traces: String = (0..).zip(traces).map(element).collect();
    Ok(TEMPLATE
        .replace("/*STYLE*/", STYLE)
        .replace("/*SCRIPT*/", &script)
        .replace("/*CATALOG*/", &catalog)
        .replace("/*TRACES*/", &traces))
}

#[cfg(test)]
mod tests {
    use tegula_core::element::Type;

    use super::*;

    #[test]
    fn scripts_read_every_type() {
        let (trace, app) = (SCRIPTS[0], SCRIPTS[12]);
        let list = |text: &str, begin: &str, end: char| -> String {
            let list = text.split_once(begin).and_then(|(_, rest)| rest.split_once(end)).expect("a list");
            list.0.chars().filter(|c| !c.is_whitespace() && *c != '"').collect()
        };
        let (sizes, offered) = (list(trace, "const SIZES = {", '}'), list(app, "dtype: [", ']'));
        let mut sizes: Vec<_> = sizes.split(',').collect();
        let mut all: Vec<_> = Type::ALL.iter().map(|ty| format!("{ty}:{}", ty.size())).collect();
        sizes.sort_unstable();
        all.sort_unstable();
        assert_eq!(sizes, all, "trace.js");
        assert!(Type::ALL.iter().all(|ty| trace.contains(&format!("case \"{ty}\":"))), "numberAt in trace.js");
        let mut offered: Vec<_> = offered.split(',').collect();
        let mut operands = Type::OPERANDS.map(Type::name);
        offered.sort_unstable();
        operands.sort_unstable();
        assert_eq!(offered, operands, "app.js");
    }
}
