//! The explanation as one page for a browser, which holds all it needs: the traces of many small products, the text of their kernels,
//! and the program that shows them.
//!
//! `page.html` is the frame, `style.css` how it looks, and the `.js` files what it does, one idea a file: they are put together here and
//! need no build step. The page reads traces as [`crate::trace`] writes them, and nothing else about a launch.
//!
//! Kernels with a pipeline have a page of their own, [`pipeline`].

mod book;
mod code;
mod cores;
mod ladder;
mod nests;
mod pipeline;

pub use book::{Book, Choice};
pub use pipeline::pipeline;

use crate::error::Result;

/// The greatest m, n and k that a page asks for, and is given.
pub const LARGEST: usize = 64;

const FRAME: &str = include_str!("page.html");
const STYLE: &str = include_str!("style.css");

/// The program, in the order in which it is put together.
const PROGRAM: [&str; 13] = [
    include_str!("trace.js"),
    include_str!("scene.js"),
    include_str!("words.js"),
    include_str!("matrices.js"),
    include_str!("threads.js"),
    include_str!("memory.js"),
    include_str!("code.js"),
    include_str!("cost.js"),
    include_str!("roof.js"),
    include_str!("compare.js"),
    include_str!("loops.js"),
    include_str!("mistakes.js"),
    include_str!("app.js"),
];

/// The page, whole. `told` is told how many of the book's products are in it.
///
/// # Errors
/// Where a product of the book could not be traced.
pub fn html(book: &Book, told: &dyn Fn(usize)) -> Result<String> {
    let program: String = PROGRAM.concat();
    let (book, traces) = book.packed(told)?;
    let element = |(number, trace)| format!("<script type=\"text/plain\" id=\"trace-{number}\">{trace}</script>\n");
    let traces: String = (0..).zip(traces).map(element).collect();
    Ok(FRAME
        .replace("/*STYLE*/", STYLE)
        .replace("/*PROGRAM*/", &program)
        .replace("/*BOOK*/", &book)
        .replace("/*TRACES*/", &traces))
}

#[cfg(test)]
mod tests {
    use tegula_core::element::Type;

    use super::*;

    #[test]
    fn program_knows_every_type() {
        let (trace, app) = (PROGRAM[0], PROGRAM[12]);
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
