//! Checks words and line lengths: `cargo xtask words`.
//!
//! `docs/glossary.md` lists, in two fenced blocks, identifiers and phrases that no file may
//! contain. Besides, Markdown and comments wrap at 100 columns, and nothing unfinished is
//! committed.

mod scan;

use std::fs;
use std::path::Path;

use crate::{Outcome, root};

/// Columns of a line of Markdown or of a comment.
const COLUMNS: usize = 100;
/// Lists the words, so it may contain them.
const GLOSSARY: &str = "docs/glossary.md";
/// Written from a template, whose lines wrap.
const GENERATED: &str = "docs/guide/README.md";
/// Marks of unfinished work, in two parts so that this file has none.
const LEFTOVERS: [[&str; 2]; 8] = [
    ["TO", "DO"],
    ["FIX", "ME"],
    ["XX", "X"],
    ["dbg", "!("],
    ["to", "do!("],
    ["unimplemented", "!("],
    ["<<<<", "<<<"],
    [">>>>", ">>>"],
];

/// The banned words of the glossary.
struct Banned {
    identifiers: Vec<String>,
    /// In lower case.
    phrases: Vec<String>,
}

/// Checks every file of the repository.
pub fn run() -> Outcome {
    let glossary = fs::read_to_string(root().join(GLOSSARY)).map_err(|e| format!("{GLOSSARY}: {e}"))?;
    let banned = Banned::parse(&glossary)?;
    let mut problems = Vec::new();
    for path in sources(&root())? {
        let text = fs::read_to_string(root().join(&path)).map_err(|e| format!("{path}: {e}"))?;
        problems.extend(banned.check(&path, &text));
    }
    if problems.is_empty() {
        return Ok(());
    }
    Err(format!("{}\n{} problems; {GLOSSARY} has the words to use", problems.join("\n"), problems.len()))
}

/// Paths of the Rust and Markdown files below a directory, relative to the root.
fn sources(directory: &Path) -> Result<Vec<String>, String> {
    let failed = |e: std::io::Error| format!("{}: {e}", directory.display());
    let mut paths = Vec::new();
    for entry in fs::read_dir(directory).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let (path, name) = (entry.path(), entry.file_name());
        let name = name.to_string_lossy();
        // Build directories hold other projects' sources.
        if name.starts_with('.') || name == "target" {
            continue;
        }
        if entry.file_type().map_err(failed)?.is_dir() {
            paths.extend(sources(&path)?);
        } else if name.ends_with(".rs") || name.ends_with(".md") {
            let path = path.strip_prefix(root()).unwrap_or(&path);
            paths.push(path.to_string_lossy().replace('\\', "/"));
        }
    }
    paths.sort();
    Ok(paths)
}

impl Banned {
    /// Reads the blocks that begin with ```` ```identifiers ```` and ```` ```phrases ````.
    fn parse(glossary: &str) -> Result<Self, String> {
        let block = |name: &str| {
            let start = format!("```{name}");
            let lines = glossary.lines().skip_while(|line| *line != start).skip(1);
            let lines: Vec<&str> = lines.take_while(|line| !line.starts_with("```")).collect();
            if lines.is_empty() { Err(format!("{GLOSSARY}: no block {start}")) } else { Ok(lines) }
        };
        let words = |line: &&str| line.split_whitespace().map(String::from).collect::<Vec<_>>();
        Ok(Banned {
            identifiers: block("identifiers")?.iter().flat_map(words).collect(),
            phrases: block("phrases")?.iter().map(|line| line.trim().to_lowercase()).collect(),
        })
    }

    /// The problems of a file, each as `path:line: what`.
    fn check(&self, path: &str, text: &str) -> Vec<String> {
        let mut problems = Vec::new();
        let is_markdown = path.ends_with(".md");
        let lines = if is_markdown { scan::markdown(text) } else { scan::rust(text) };
        for (index, (line, parts)) in text.lines().zip(&lines).enumerate() {
            let mut report = |what: String| problems.push(format!("{path}:{}: {what}", index + 1));
            for mark in LEFTOVERS.map(|parts| parts.concat()).iter().filter(|mark| line.contains(mark.as_str())) {
                report(format!("unfinished: {mark}"));
            }
            if parts.wraps && path != GENERATED && line.chars().count() > COLUMNS && !line.contains("://") {
                report(format!("{} columns; the limit is {COLUMNS}", line.chars().count()));
            }
            if path == GLOSSARY {
                continue;
            }
            let identifiers = parts.code.split(|c: char| !c.is_alphanumeric() && c != '_');
            for word in identifiers.filter(|word| self.identifiers.iter().any(|banned| banned == word)) {
                report(format!("identifier `{word}`"));
            }
            let prose = parts.prose.to_lowercase();
            for phrase in self.phrases.iter().filter(|phrase| contains_words(&prose, phrase)) {
                report(format!("\"{phrase}\""));
            }
        }
        problems
    }
}

/// Whether a text contains a phrase that begins and ends at the border of a word.
fn contains_words(text: &str, phrase: &str) -> bool {
    let is_letter = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    text.match_indices(phrase).any(|(at, _)| {
        !is_letter(text[..at].chars().next_back()) && !is_letter(text[at + phrase.len()..].chars().next())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const GLOSSARY: &str = "# Words\n```identifiers\nLie Crew\nfew\n```\n```phrases\nflying teapot\n```\n";

    fn problems(path: &str, text: &str) -> Vec<String> {
        Banned::parse(GLOSSARY).unwrap().check(path, text)
    }

    #[test]
    fn banned_identifier_is_found_in_code_alone() {
        assert_eq!(problems("a.rs", "struct Lie;\n"), ["a.rs:1: identifier `Lie`"]);
        assert!(problems("a.rs", "struct Belie; // Lie\nlet s = \"Lie\";\n").is_empty());
        assert_eq!(problems("a.rs", "/* Lie\n Lie */ fn few() {}\n"), ["a.rs:2: identifier `few`"]);
    }

    #[test]
    fn banned_phrase_is_found_in_comments_messages_and_markdown() {
        assert_eq!(problems("a.rs", "// The Flying teapot.\n"), ["a.rs:1: \"flying teapot\""]);
        assert_eq!(problems("a.rs", "let s = \"a flying teapot\";\n"), ["a.rs:1: \"flying teapot\""]);
        assert_eq!(problems("a.md", "A flying teapot.\n"), ["a.md:1: \"flying teapot\""]);
        assert!(problems("a.md", "Many flying teapots.\n").is_empty());
    }

    #[test]
    fn long_line_is_found_but_in_code_tables_and_addresses() {
        let long = "x ".repeat(60);
        assert_eq!(problems("a.md", &long), ["a.md:1: 120 columns; the limit is 100"]);
        assert_eq!(problems("a.rs", &format!("    // {long}\n")), ["a.rs:1: 127 columns; the limit is 100"]);
        assert!(problems("a.rs", &format!("//! | {long} |")).is_empty());
        for fine in [format!("| {long} |"), format!("```\n{long}\n```"), format!("https://{long}")] {
            assert!(problems("a.md", &fine).is_empty(), "{fine}");
        }
        assert!(problems("a.rs", &format!("let a = \"{long}\";\n")).is_empty());
    }

    #[test]
    fn leftover_is_found() {
        let mark = LEFTOVERS[0].concat();
        assert_eq!(problems("a.rs", &format!("// {mark}: later\n")), [format!("a.rs:1: unfinished: {mark}")]);
    }

    #[test]
    fn glossary_without_its_lists_is_an_error() {
        assert!(Banned::parse("# Words\n").is_err());
    }
}
