//! Lines and the directives in them.

use std::collections::HashMap;

use super::expression::{evaluate as value, shown};
use super::facts::{Subject, Value};
use super::{Error, Fault, Result, figure, syntax};

/// A document and its figures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guide {
    /// Markdown.
    pub text: String,
    /// Names of files, and SVG.
    pub figures: Vec<(String, String)>,
}

/// What a line of a template becomes: subjects that it names go to `known`.
struct Writer<'a> {
    files: &'a dyn Fn(&str) -> Option<String>,
    known: HashMap<String, Subject>,
    figures: Vec<(String, String)>,
}

/// Evaluates a template. `files` gives out the results that it may ask for, by name.
///
/// # Errors
/// The first line that is not understood, or asks for what there is not.
pub fn evaluate(template: &str, files: &dyn Fn(&str) -> Option<String>) -> std::result::Result<Guide, Error> {
    let mut writer = Writer { files, known: HashMap::new(), figures: Vec::new() };
    let mut text = String::new();
    for (line, of) in repeated(template)? {
        let Some(written) = writer.line(&of).map_err(|fault| Error { line, fault })? else { continue };
        // Lines that only named subjects leave no gap behind.
        if !written.is_empty() || !text.ends_with("\n\n") {
            text += &written;
            text.push('\n');
        }
    }
    Ok(Guide { text, figures: writer.figures })
}

/// What stands between the braces of a line that is one directive and nothing else.
fn alone(line: &str) -> Option<&str> {
    let inner = line.trim().strip_prefix("{{")?.strip_suffix("}}")?;
    (!inner.contains("{{")).then_some(inner.trim())
}

/// The lines with their numbers, those of an `each` as often as it says.
fn repeated(template: &str) -> std::result::Result<Vec<(usize, String)>, Error> {
    const EACH: &str = "take {{each NAME in WORD ..}} and, before another, {{end}}";
    let mut all = Vec::new();
    let mut lines = (1..).zip(template.lines());
    while let Some((number, line)) = lines.next() {
        let refused =
            || Error { line: number, fault: Fault::Syntax { what: line.trim().into(), expected: EACH.into() } };
        let directive = alone(line).unwrap_or_default();
        if directive == "end" {
            return Err(refused());
        }
        let Some(each) = directive.strip_prefix("each ") else {
            all.push((number, line.to_string()));
            continue;
        };
        let (name, words) = each.split_once(" in ").ok_or_else(refused)?;
        let mut body = Vec::new();
        loop {
            let (number, line) = lines.next().ok_or_else(refused)?;
            match alone(line) {
                Some("end") => break,
                Some(inner) if inner.starts_with("each ") => return Err(refused()),
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

impl Writer<'_> {
    /// The line as it is to be read; nothing where it only named a subject.
    fn line(&mut self, line: &str) -> Result<Option<String>> {
        if let Some(named) = alone(line).and_then(|inner| inner.strip_prefix("let ")) {
            let Some((name, subject)) = named.split_once('=') else {
                return syntax(named, "take {{let NAME = SUBJECT}}");
            };
            let subject = Subject::parse(subject.trim(), self.files)?;
            self.known.insert(name.trim().into(), subject);
            return Ok(None);
        }
        if let Some(figure) = alone(line).and_then(|inner| inner.strip_prefix("figure ")) {
            return self.figure(figure).map(Some);
        }
        let (mut written, mut rest) = (String::new(), line);
        while let Some((before, from)) = rest.split_once("{{") {
            let Some((inner, after)) = from.split_once("}}") else {
                return syntax(from, "close the braces on the same line");
            };
            written += before;
            written += &self.fact(inner)?;
            rest = after;
        }
        Ok(Some(written + rest))
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
            Value::Number(number) => shown(number, decimals),
        })
    }

    fn subject(&self, name: &str) -> Result<&Subject> {
        self.known.get(name).ok_or_else(|| Fault::UnknownName(name.into()))
    }

    fn figure(&mut self, what: &str) -> Result<String> {
        let Some((name, what)) = what.split_once('=') else {
            return syntax(what, "take {{figure FILE = KIND ..}}");
        };
        let name = name.trim();
        if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-') {
            return syntax(name, "call a figure by letters, digits and hyphens");
        }
        let drawn = figure::draw(what.trim(), &|name| self.subject(name))?;
        let file = format!("{name}.svg");
        let shown = format!("![{}]({file})", drawn.told);
        self.figures.push((file, drawn.svg));
        Ok(shown)
    }
}
