//! The functions of the workspace on the stack, read from a backtrace, and how long they are in their source.

use std::backtrace::Backtrace;
use std::fs;
use std::path::Path;

/// Lines of a function at most.
const LINES: usize = 80;

/// A function on the stack.
#[derive(Clone, Debug)]
pub struct Frame {
    pub name: String,
    /// Its file, below `crates`, and a line within it. Where a signal interrupts a function the line is not known.
    pub at: Option<(String, usize)>,
}

/// Functions of the workspace's libraries on the stack, innermost first, up to `matmul`. Closures are left out, and what other
/// crates do.
pub fn frames(stack: &Backtrace) -> Vec<Frame> {
    let text = stack.to_string();
    let mut lines = text.lines().map(str::trim_start).peekable();
    let mut frames = Vec::new();
    // `12: execute<f32>`, and on the next line `at ./src/exec.rs:40:16`.
    while let Some(line) = lines.next() {
        let Some((_, name)) = line.split_once(": ").filter(|(number, _)| number.parse::<usize>().is_ok()) else {
            continue;
        };
        // Inlined functions are named without their path and with their types.
        let function = name.split('<').next().unwrap_or(name).rsplit("::").next().unwrap_or(name);
        let at = lines.next_if(|line| line.starts_with("at ")).map(of_workspace);
        // Without debug information a function has a path of modules and no line.
        let other_crate = at.is_none() && name.contains("::") && !name.trim_start_matches('<').starts_with("tegula");
        if at != Some(None) && !other_crate && !function.is_empty() && !function.contains("closure") {
            frames.push(Frame { name: function.to_owned(), at: at.flatten() });
        }
    }
    let matmul = frames.iter().position(|frame: &Frame| frame.name == "matmul").expect("matmul is on the stack");
    frames.truncate(matmul + 1);
    frames
}

/// The file and line of `at PATH:LINE:COLUMN`, if it is a library of the workspace.
fn of_workspace(at: &str) -> Option<(String, usize)> {
    let mut parts = at.trim_start_matches("at ").rsplitn(3, ':').skip(1);
    let line = parts.next()?.parse().ok()?;
    let path = parts.next()?;
    let path = match path.strip_prefix("./src/") {
        Some(own) => format!("tegula/src/{own}"),
        None => path.split_once("crates/").filter(|(_, path)| path.contains("/src/"))?.1.to_owned(),
    };
    Some((path, line))
}

/// Their names, after no function was found to be too long.
pub fn names(frames: &[Frame]) -> Vec<&str> {
    for Frame { name, at } in frames {
        let lines = at.as_ref().map_or(1, |(path, line)| lines(name, path, *line));
        assert!((1..=LINES).contains(&lines), "{name} in {at:?} has {lines} lines");
    }
    frames.iter().map(|frame| frame.name.as_str()).collect()
}

/// Lines of a function, from `fn` to the brace that closes it.
fn lines(name: &str, path: &str, line: usize) -> usize {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let text = fs::read_to_string(crates.join(path)).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let (generic, plain) = (format!("fn {name}<"), format!("fn {name}("));
    let begins = |line: &&str| line.contains(&generic) || line.contains(&plain);
    let first =
        lines[..line].iter().rposition(begins).unwrap_or_else(|| panic!("no function {name} before {path}:{line}"));
    let margin = lines[first].len() - lines[first].trim_start().len();
    let end = format!("{}}}", " ".repeat(margin));
    lines[first..].iter().position(|line| *line == end).map_or(usize::MAX, |at| at + 1)
}
