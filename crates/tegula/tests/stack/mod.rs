//! Functions of the workspace in a backtrace, and their lengths in the source.

use std::backtrace::Backtrace;
use std::fs;
use std::path::Path;

/// Maximum lines of a function.
const MAX_LINES: usize = 80;

/// A function on the stack.
#[derive(Clone, Debug)]
pub struct Frame {
    pub name: String,
    /// File below `crates`, and a line of the function. Unknown where a signal interrupted it.
    pub at: Option<(String, usize)>,
}

/// Functions of the workspace's libraries on the stack, innermost first, up to `matmul`. Closures
/// and functions of other crates are excluded.
pub fn frames(stack: &Backtrace) -> Vec<Frame> {
    let text = stack.to_string();
    let mut lines = text.lines().map(str::trim_start).peekable();
    let mut frames = Vec::new();
    // `12: execute<f32>`, and on the next line `at ./src/exec.rs:40:16`.
    while let Some(line) = lines.next() {
        let Some((_, name)) = line.split_once(": ").filter(|(number, _)| number.parse::<usize>().is_ok()) else {
            continue;
        };
        let function = function_name(name);
        let at = lines.next_if(|line| line.starts_with("at ")).map(workspace_location);
        // Without debug information a function has a module path and no line.
        let other_crate = at.is_none() && name.contains("::") && !name.trim_start_matches('<').starts_with("tegula");
        if at != Some(None) && !other_crate && !function.is_empty() && !function.contains("closure") {
            frames.push(Frame { name: function, at: at.flatten() });
        }
    }
    let matmul = frames.iter().position(|frame: &Frame| frame.name == "matmul").expect("matmul is on the stack");
    frames.truncate(matmul + 1);
    frames
}

/// The name of a function, without its path and type parameters: `execute` of
/// `tegula::exec::execute::<f32>`, of `<Gemm as Run>::execute` and, where inlined, of
/// `execute<f32>`.
fn function_name(path: &str) -> String {
    let mut depth = 0;
    let is_outside = |c: &char| {
        depth += usize::from(*c == '<');
        let outside = depth == 0;
        depth -= usize::from(*c == '>' && depth > 0);
        outside
    };
    let plain: String = path.chars().filter(is_outside).collect();
    plain.rsplit("::").find(|part| !part.is_empty()).unwrap_or_default().to_owned()
}

/// The file and line of `at PATH:LINE:COLUMN`, if it is in a library of the workspace.
fn workspace_location(at: &str) -> Option<(String, usize)> {
    let mut parts = at.trim_start_matches("at ").rsplitn(3, ':').skip(1);
    let line = parts.next()?.parse().ok()?;
    let path = parts.next()?;
    let path = match path.strip_prefix("./src/") {
        Some(own) => format!("tegula/src/{own}"),
        None => path.split_once("crates/").filter(|(_, path)| path.contains("/src/"))?.1.to_owned(),
    };
    Some((path, line))
}

/// Names of the functions. Panics if one is too long.
pub fn names(frames: &[Frame]) -> Vec<&str> {
    for Frame { name, at } in frames {
        let lines = at.as_ref().map_or(1, |(path, line)| lines(name, path, *line));
        assert!((1..=MAX_LINES).contains(&lines), "{name} in {at:?} has {lines} lines");
    }
    frames.iter().map(|frame| frame.name.as_str()).collect()
}

/// Lines of a function, from `fn` to its closing brace.
fn lines(name: &str, path: &str, line: usize) -> usize {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let text = fs::read_to_string(crates.join(path)).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let (generic, plain) = (format!("fn {name}<"), format!("fn {name}("));
    let begins = |line: &&str| line.contains(&generic) || line.contains(&plain);
    let first =
        lines[..line].iter().rposition(begins).unwrap_or_else(|| panic!("no function {name} before {path}:{line}"));
    let indent = lines[first].len() - lines[first].trim_start().len();
    let end = format!("{}}}", " ".repeat(indent));
    lines[first..].iter().position(|line| *line == end).map_or(usize::MAX, |at| at + 1)
}
