//! Lines of a template and their directives.

use std::collections::HashMap;

use super::expression::{evaluate as value, format_number};
use super::facts::{Subject, Value};
use super::{Error, ErrorKind, Result, figure, syntax};

/// A document and its figures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guide {
    /// Markdown.
    pub text: String,
    /// File names and SVG texts.
    pub figures: Vec<(String, String)>,
}

/// The state of an evaluation.
struct Evaluator<'a> {
    files: &'a dyn Fn(&str) -> Option<String>,
    subjects: HashMap<String, Subject>,
    figures: Vec<(String, String)>,
}

/// Evaluates a template; `files` returns the content of a results file by name.
///
/// # Errors
/// The first line with an error.
pub fn evaluate(template: &str, files: &dyn Fn(&str) -> Option<String>) -> std::result::Result<Guide, Error> {
    let mut evaluator = Evaluator { files, subjects: HashMap::new(), figures: Vec::new() };
    let mut text = String::new();
    for (line, source) in expand(template)? {
        let Some(output) = evaluator.line(&source).map_err(|kind| Error { line, kind })? else { continue };
        // Lines of `let` directives leave no blank lines behind.
        if !output.is_empty() || !text.ends_with("\n\n") {
            text += &output;
            text.push('\n');
        }
    }
    Ok(Guide { text, figures: evaluator.figures })
}

/// The text between the braces of a line that is a single directive.
fn sole_directive(line: &str) -> Option<&str> {
    let inner = line.trim().strip_prefix("{{")?.strip_suffix("}}")?;
    (!inner.contains("{{")).then_some(inner.trim())
}

/// The lines with their numbers; `each` blocks are expanded.
fn expand(template: &str) -> std::result::Result<Vec<(usize, String)>, Error> {
    const EACH: &str = "take {{each NAME in WORD ..}} and, before another, {{end}}";
    let mut all = Vec::new();
    let mut lines = (1..).zip(template.lines());
    while let Some((number, line)) = lines.next() {
        let invalid =
            || Error { line: number, kind: ErrorKind::Syntax { text: line.trim().into(), expected: EACH.into() } };
        let directive = sole_directive(line).unwrap_or_default();
        if directive == "end" {
            return Err(invalid());
        }
        let Some(each) = directive.strip_prefix("each ") else {
            all.push((number, line.to_string()));
            continue;
        };
        let (name, words) = each.split_once(" in ").ok_or_else(invalid)?;
        let mut body = Vec::new();
        loop {
            let (number, line) = lines.next().ok_or_else(invalid)?;
            match sole_directive(line) {
                Some("end") => break,
                Some(inner) if inner.starts_with("each ") => return Err(invalid()),
                _ => body.push((number, line)),
            }
        }
        let name = format!("${}", name.trim());
        for word in words.split_whitespace() {
            all.extend(body.iter().map(|(number, line)| (*number, line.replace(&name, word))));
        }
    }
    Ok(all)
}

impl Evaluator<'_> {
    /// The evaluated line; `None` for a `let` directive.
    fn line(&mut self, line: &str) -> Result<Option<String>> {
        if let Some(named) = sole_directive(line).and_then(|inner| inner.strip_prefix("let ")) {
            let Some((name, subject)) = named.split_once('=') else {
                return syntax(named, "take {{let NAME = SUBJECT}}");
            };
            let subject = Subject::parse(subject.trim(), self.files)?;
            self.subjects.insert(name.trim().into(), subject);
            return Ok(None);
        }
        if let Some(figure) = sole_directive(line).and_then(|inner| inner.strip_prefix("figure ")) {
            return self.figure(figure).map(Some);
        }
        let (mut output, mut rest) = (String::new(), line);
        while let Some((before, from)) = rest.split_once("{{") {
            let Some((inner, after)) = from.split_once("}}") else {
                return syntax(from, "close the braces on the same line");
            };
            output += before;
            output += &self.fact(inner)?;
            rest = after;
        }
        Ok(Some(output + rest))
    }

    fn fact(&self, inner: &str) -> Result<String> {
        let (expression, decimals) = match inner.rsplit_once(':') {
            None => (inner, None),
            Some((expression, decimals)) => match decimals.trim().parse() {
                Ok(decimals @ 0..=9) => (expression, Some(decimals)),
                _ => return syntax(decimals, "take at most 9 decimals"),
            },
        };
        Ok(match value(expression, &|name, fact| self.subject(name)?.fact(name, fact))? {
            Value::Text(text) => text,
            Value::Number(number) => format_number(number, decimals),
        })
    }

    fn subject(&self, name: &str) -> Result<&Subject> {
        self.subjects.get(name).ok_or_else(|| ErrorKind::UnknownName(name.into()))
    }

    fn figure(&mut self, text: &str) -> Result<String> {
        let Some((name, spec)) = text.split_once('=') else {
            return syntax(text, "take {{figure FILE = KIND ..}}");
        };
        let name = name.trim();
        if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-') {
            return syntax(name, "a figure's name has letters, digits and hyphens only");
        }
        let drawing = figure::draw(spec.trim(), &|name| self.subject(name))?;
        let file = format!("{name}.svg");
        let embedded = format!("![{}]({file})", drawing.description);
        self.figures.push((file, drawing.svg));
        Ok(embedded)
    }
}
