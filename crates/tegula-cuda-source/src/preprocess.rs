//! The preprocessor: conditionals, macros and the headers of the program.
//!
//! Its output is used only to find declarations and launches. The compiler gets the original text
//! with its directives.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::constant::{Zero, evaluate};
use super::token::{Hidden, Kind, Token, close, split, tokens};

/// A file of the program.
#[derive(Clone, Debug)]
pub(super) struct SourceFile {
    /// Its path: as given, or relative to the file that includes it.
    pub(super) path: PathBuf,
    pub(super) text: String,
    /// Its active `#include` directives.
    pub(super) includes: Vec<Include>,
    /// The directives of the file.
    pub(super) directives: Vec<Directive>,
}

/// A directive's range of bytes.
#[derive(Clone, Debug)]
pub(super) struct Directive {
    pub(super) start: usize,
    pub(super) end: usize,
    /// Whether it is a conditional or defines a macro, so that blanking keeps it.
    pub(super) structural: bool,
}

/// An `#include`.
#[derive(Clone, Debug)]
pub(super) struct Include {
    /// As written, without quotes or brackets.
    pub(super) name: String,
    pub(super) line: u32,
    /// Range of the name with its quotes or brackets, in bytes of the file.
    pub(super) start: usize,
    pub(super) end: usize,
    /// The file of the program that it includes; `None` for a header of CUDA, of the standard
    /// library, or one that is not found.
    pub(super) file: Option<u32>,
}

/// Files and tokens after preprocessing.
#[derive(Debug)]
pub(super) struct Preprocessed {
    pub(super) files: Vec<SourceFile>,
    pub(super) tokens: Vec<Token>,
}

/// Limits of files, nesting and macro expansion.
const FILES: usize = 256;
const TOKENS: usize = 1_000_000;
const INCLUDE_DEPTH: u32 = 32;
const HIDDEN: usize = 200;
const NESTED: u32 = 32;

/// Headers that the compiler reads itself even if they are written with quotes.
const LIBRARIES: [&str; 9] =
    ["cuda/", "cub/", "thrust/", "nv/", "cutlass/", "cute/", "cooperative_groups/", "cuda_", "nvtx3/"];

/// Preprocesses a program. `defines` are `NAME` or `NAME=VALUE`; `read` gives the text of a path.
pub(super) fn preprocess(
    path: &Path,
    text: &str,
    defines: &[String],
    folders: &[PathBuf],
    read: &dyn Fn(&Path) -> Option<String>,
) -> Preprocessed {
    let mut preprocessor = Preprocessor {
        files: Vec::new(),
        macros: FxHashMap::default(),
        once: FxHashSet::default(),
        tokens: Vec::new(),
        steps: 0,
        folders,
        read,
    };
    for define in defines {
        let (name, value) = define.split_once('=').unwrap_or((define, "1"));
        preprocessor.define(&tokens(&format!("{name} {value}"), u32::MAX));
    }
    let file = preprocessor.add(path.to_owned(), text.to_owned());
    preprocessor.file(file, 0);
    Preprocessed { files: preprocessor.files, tokens: preprocessor.tokens }
}

#[derive(Debug)]
struct Macro {
    /// Parameters; `None` for an object-like macro.
    params: Option<Vec<Rc<str>>>,
    /// Whether the last parameter is variadic.
    variadic: bool,
    body: Vec<Token>,
}

struct Preprocessor<'a> {
    files: Vec<SourceFile>,
    macros: FxHashMap<Rc<str>, Rc<Macro>>,
    once: FxHashSet<u32>,
    tokens: Vec<Token>,
    steps: usize,
    folders: &'a [PathBuf],
    read: &'a dyn Fn(&Path) -> Option<String>,
}

/// One `#if` … `#endif`.
struct Conditional {
    outer: bool,
    active: bool,
    taken: bool,
}

impl Preprocessor<'_> {
    fn add(&mut self, path: PathBuf, text: String) -> u32 {
        // A byte order mark is replaced by spaces of the same length.
        let text = match text.strip_prefix('\u{feff}') {
            Some(rest) => format!("   {rest}"),
            None => text,
        };
        let known = self.files.iter().position(|file| file.path == path);
        let index = known.unwrap_or(self.files.len());
        if known.is_none() {
            self.files.push(SourceFile { path, text, includes: Vec::new(), directives: Vec::new() });
        }
        index as u32
    }

    fn file(&mut self, file: u32, depth: u32) {
        let Some(text) = self.files.get(file as usize).map(|f| f.text.clone()) else { return };
        let list = tokens(&text, file);
        let mut conditionals: Vec<Conditional> = Vec::new();
        let mut at = 0;
        while let Some(token) = list.get(at) {
            let next = |from: usize, stop: &dyn Fn(&Token) -> bool| {
                list.iter().skip(from).position(|t| t.first && stop(t)).map_or(list.len(), |n| from + n)
            };
            let active = conditionals.last().is_none_or(|c| c.active);
            if !(token.first && token.is("#")) {
                let end = next(at + 1, &|t| t.is("#"));
                if active && let Some(run) = list.get(at..end) {
                    let expanded = self.expand(run, 0);
                    if self.tokens.len() + expanded.len() < TOKENS {
                        self.tokens.extend(expanded);
                    }
                }
                at = end;
                continue;
            }
            let end = next(at + 1, &|_| true);
            let line = list.get(at + 1..end).unwrap_or(&[]);
            at = end;
            let (name, rest) = match line.split_first() {
                Some((name, rest)) => (name, rest),
                None => continue,
            };
            let structural = matches!(
                &*name.text,
                "if" | "ifdef" | "ifndef" | "elif" | "else" | "endif" | "define" | "undef" | "elifdef" | "elifndef"
            );
            let end = line.last().map_or(token.end, |t| t.end);
            if let Some(file) = self.files.get_mut(file as usize) {
                file.directives.push(Directive { start: token.start, end, structural });
            }
            match &*name.text {
                "if" | "ifdef" | "ifndef" => {
                    let taken = active && self.condition(&name.text, rest);
                    conditionals.push(Conditional { outer: active, active: taken, taken });
                }
                "elif" | "elifdef" | "elifndef" | "else" => {
                    let Some(open) = conditionals.last() else { continue };
                    let candidate = open.outer && !open.taken;
                    let word = name.text.strip_prefix("el").unwrap_or("");
                    let chosen = candidate && (&*name.text == "else" || self.condition(word, rest));
                    if let Some(open) = conditionals.last_mut() {
                        open.active = chosen;
                        open.taken |= chosen;
                    }
                }
                "endif" => drop(conditionals.pop()),
                _ if !active => {}
                "define" => self.define(rest),
                "undef" => {
                    if let Some(name) = rest.first() {
                        self.macros.remove(&name.text);
                    }
                }
                "include" => self.include(file, &text, rest, depth),
                "pragma" if rest.first().is_some_and(|t| t.is("once")) => drop(self.once.insert(file)),
                _ => {}
            }
        }
    }

    fn condition(&mut self, directive: &str, rest: &[Token]) -> bool {
        let defined = |name: Option<&Token>| name.is_some_and(|name| self.macros.contains_key(&name.text));
        match directive {
            "ifdef" => return defined(rest.first()),
            "ifndef" => return !defined(rest.first()),
            _ => {}
        }
        let mut line = Vec::new();
        let mut at = 0;
        while let Some(token) = rest.get(at) {
            at += 1;
            let group = rest.get(at).is_some_and(|t| t.is("("));
            let value = if token.is("defined") {
                let name = rest.get(at + usize::from(group));
                at += if group { 3 } else { 1 };
                defined(name)
            } else if token.is("__has_include") && group {
                at = close(rest, at, rest.len());
                false
            } else {
                line.push(token.clone());
                continue;
            };
            line.push(Token { kind: Kind::Number, text: if value { "1" } else { "0" }.into(), ..token.clone() });
        }
        let line = self.expand(&line, 0);
        evaluate(&line, &Zero).and_then(|value| value.integer()).is_some_and(|value| value != 0)
    }

    fn define(&mut self, line: &[Token]) {
        let Some((name, rest)) = line.split_first() else { return };
        let mut definition = Macro { params: None, variadic: false, body: rest.to_vec() };
        if rest.first().is_some_and(|t| t.is("(") && t.glued) {
            let end = close(rest, 0, rest.len());
            let mut params: Vec<Rc<str>> = Vec::new();
            for param in split(rest.get(1..end.saturating_sub(1)).unwrap_or(&[])) {
                definition.variadic |= param.iter().any(|t| t.is("..."));
                let name = param.iter().find(|t| t.is_name()).map_or("__VA_ARGS__".into(), |t| t.text.clone());
                params.push(name);
            }
            definition.params = Some(params);
            definition.body = rest.get(end..).unwrap_or(&[]).to_vec();
        }
        self.macros.insert(name.text.clone(), Rc::new(definition));
    }

    fn include(&mut self, file: u32, text: &str, rest: &[Token], depth: u32) {
        let Some(first) = rest.first() else { return };
        // The header name can be a macro.
        let expanded = if first.is_name() { self.expand(rest, 0) } else { Vec::new() };
        let written =
            |t: &Token| if t.kind == Kind::Literal { t.text.trim_matches('"').to_owned() } else { String::new() };
        let (name, quoted, end) = match first.kind {
            Kind::Literal => (written(first), true, first.end),
            Kind::Name => match expanded.first() {
                Some(literal) if literal.kind == Kind::Literal => (written(literal), true, first.end),
                _ => return,
            },
            _ => {
                let Some(closing) = rest.iter().find(|t| t.is(">")) else { return };
                (text.get(first.end..closing.start).unwrap_or("").trim().to_owned(), false, closing.end)
            }
        };
        let target = if quoted { self.find(file, &name) } else { None };
        let include = Include { name, line: first.line, start: first.start, end, file: target };
        if let Some(file) = self.files.get_mut(file as usize) {
            file.includes.push(include);
        }
        if let Some(target) = target
            && depth < INCLUDE_DEPTH
            && !self.once.contains(&target)
            && self.tokens.len() < TOKENS
        {
            self.file(target, depth + 1);
        }
    }

    /// The number of the file for an `#include "name"`; `None` if it is not a file of the program.
    fn find(&mut self, file: u32, name: &str) -> Option<u32> {
        if LIBRARIES.iter().any(|library| name.starts_with(library)) || super::headers::is_standard(name) {
            return None;
        }
        let beside = self.files.get(file as usize)?.path.parent()?.to_owned();
        for folder in std::iter::once(&beside).chain(self.folders) {
            let path = folder.join(name);
            if let Some(known) = self.files.iter().position(|file| file.path == path) {
                return Some(known as u32);
            }
            if self.files.len() < FILES
                && let Some(text) = (self.read)(&path)
            {
                return Some(self.add(path, text));
            }
        }
        None
    }

    /// Expands the macros in a run of tokens.
    fn expand(&mut self, run: &[Token], nested: u32) -> Vec<Token> {
        if nested > NESTED {
            return run.to_vec();
        }
        let mut stack: Vec<Token> = run.iter().rev().cloned().collect();
        let mut out = Vec::new();
        while let Some(token) = stack.pop() {
            let definition = match self.macros.get(&token.text) {
                Some(definition) if token.is_name() && !token.hides(&token.text) && self.steps < TOKENS => {
                    definition.clone()
                }
                _ => {
                    out.push(token);
                    continue;
                }
            };
            let mut origin = token.clone();
            origin.expanded = true;
            let depth = std::iter::successors(token.hidden.as_deref(), |h| h.rest.as_deref()).take(HIDDEN).count();
            if depth == HIDDEN {
                out.push(token);
                continue;
            }
            let hidden = Rc::new(Hidden { name: token.text.clone(), rest: token.hidden.clone() });
            let body = match &definition.params {
                None => substitute(&definition, &[], &[]),
                Some(_) => {
                    let Some(arguments) = arguments(&mut stack, &mut origin, &mut self.steps) else {
                        out.push(token);
                        continue;
                    };
                    let expanded: Vec<Vec<Token>> = arguments.iter().map(|a| self.expand(a, nested + 1)).collect();
                    substitute(&definition, &arguments, &expanded)
                }
            };
            self.steps += body.len();
            for mut made in body.into_iter().rev() {
                made.file = origin.file;
                made.start = origin.start;
                made.end = origin.end;
                made.line = origin.line;
                made.expanded = true;
                made.hidden = Some(hidden.clone());
                stack.push(made);
            }
        }
        out
    }
}

/// Takes the arguments of an invocation from the stack; `None` if no `(` follows.
fn arguments(stack: &mut Vec<Token>, origin: &mut Token, steps: &mut usize) -> Option<Vec<Vec<Token>>> {
    if !stack.last()?.is("(") {
        return None;
    }
    let mut depth = 0usize;
    let mut arguments = vec![Vec::new()];
    // An invocation without a closing parenthesis is not expanded.
    let balanced = stack.iter().rev().any(|t| {
        *steps += 1;
        depth += usize::from(t.is("("));
        depth -= usize::from(t.is(")") && depth > 0);
        depth == 0
    });
    if !balanced {
        return None;
    }
    depth = 0;
    while let Some(token) = stack.pop() {
        if token.file == origin.file && token.end > origin.end {
            origin.end = token.end;
        }
        if token.is("(") {
            depth += 1;
            if depth == 1 {
                continue;
            }
        } else if token.is(")") {
            depth -= 1;
            if depth == 0 {
                break;
            }
        } else if token.is(",") && depth == 1 {
            arguments.push(Vec::new());
            continue;
        }
        arguments.last_mut()?.push(token);
    }
    Some(arguments)
}

/// Substitutes arguments in the body of a macro: beside `#` and `##` as written, else expanded.
fn substitute(definition: &Macro, written: &[Vec<Token>], expanded: &[Vec<Token>]) -> Vec<Token> {
    let params = definition.params.as_deref().unwrap_or(&[]);
    let argument = |token: &Token, lists: &[Vec<Token>]| -> Option<Vec<Token>> {
        let index = params.iter().position(|p| token.is_name() && **p == *token.text)?;
        if definition.variadic && index + 1 == params.len() {
            let comma = Token { kind: Kind::Operator, text: ",".into(), ..token.clone() };
            return Some(lists.get(index..).unwrap_or(&[]).join(&[comma][..]));
        }
        Some(lists.get(index).cloned().unwrap_or_default())
    };
    let body = &definition.body;
    let mut out: Vec<Token> = Vec::new();
    let mut at = 0;
    while let Some(token) = body.get(at) {
        let next = body.get(at + 1);
        if token.is("#")
            && let Some(list) = next.and_then(|next| argument(next, written))
        {
            let text = super::token::join(&list).replace('\\', "\\\\").replace('"', "\\\"");
            out.push(Token { kind: Kind::Literal, text: format!("\"{text}\"").into(), ..token.clone() });
            at += 2;
        } else if token.is("##") {
            let right = next.and_then(|next| argument(next, written)).or_else(|| next.map(|t| vec![t.clone()]));
            let mut right = right.unwrap_or_default().into_iter();
            if let (Some(left), Some(first)) = (out.last_mut(), right.next()) {
                left.text = format!("{}{}", left.text, first.text).into();
                left.hidden = None;
            }
            out.extend(right);
            at += 2;
        } else {
            let pasted = next.is_some_and(|t| t.is("##"));
            match argument(token, if pasted { written } else { expanded }) {
                Some(list) => out.extend(list),
                None => out.push(token.clone()),
            }
            at += 1;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::token::join;
    use super::*;

    fn run(text: &str, defines: &[&str]) -> String {
        let defines: Vec<String> = defines.iter().map(|d| (*d).to_owned()).collect();
        let read = |path: &Path| match path.to_str()? {
            "dir/own.h" => Some("#pragma once\nint own;\n#include \"sub/deep.h\"\n".to_owned()),
            "dir/sub/deep.h" => Some("int deep; ".to_owned()),
            "dir/self.h" => Some("#include \"self.h\"\nx".to_owned()),
            _ => None,
        };
        join(&preprocess(Path::new("dir/a.cu"), text, &defines, &[], &read).tokens)
    }

    #[test]
    fn preprocess_conditionals_select_one_branch() {
        let text = "#if A > 1 && defined(B)\none\n#elif !defined C\ntwo\n#else\nthree\n#endif\n";
        assert_eq!(run(text, &["A=2", "B"]), "one");
        assert_eq!(run(text, &["A=2"]), "two");
        assert_eq!(run(text, &["C"]), "three");
        assert_eq!(run("#if 0\ndon't { \n#if 1\nx\n#endif\n#else\ny\n#endif\nz", &[]), "y z");
        assert_eq!(run("#ifndef A\nx\n#endif", &["A"]), "");
    }

    #[test]
    fn preprocess_macros_expand_as_in_c() {
        assert_eq!(run("#define N 4\n#define SQ(x) ((x)*(x))\nSQ(N + 1)", &[]), "((4+1)*(4+1))");
        assert_eq!(run("#define A B\n#define B A\nA", &[]), "A");
        assert_eq!(run("#define CAT(a, b) a##b\n#define S(x) #x\nCAT(k, 3) S(a + \"b\")", &[]), "k3\"a+\\\"b\\\"\"");
        assert_eq!(run("#define F(x, ...) g(x, __VA_ARGS__)\nF(1, 2, 3)", &[]), "g(1, 2, 3)");
        assert_eq!(run("#define F(x) x\nF F (3) F(F)(2)", &[]), "F 3 F(2)");
        assert_eq!(run("#define T \\\n  5\nT", &[]), "5");
        assert_eq!(run("#define E(x)\nE(1) a E(", &[]), "a E(");
    }

    #[test]
    fn preprocess_expanded_tokens_have_the_range_of_the_invocation() {
        let text = "#define K(name) void name() {}\nint a; K(\n f) int b;";
        let out = preprocess(Path::new("a.cu"), text, &[], &[], &|_| None);
        let start = text.find("K(\n").unwrap();
        for token in out.tokens.iter().filter(|t| t.expanded) {
            assert_eq!((token.start, token.end, token.line), (start, start + 6, 2), "{}", token.text);
        }
        assert_eq!(out.tokens.iter().filter(|t| t.expanded).count(), 6);
    }

    #[test]
    fn preprocess_own_headers_are_read_once_with_pragma_once() {
        assert_eq!(run("#include \"own.h\"\n#include \"own.h\"\n#include <vector>\nx", &[]), "int own;int deep;x");
        assert_eq!(run("#include \"self.h\"", &[]).matches('x').count(), 32);
    }

    #[test]
    fn preprocess_exponential_macros_are_cut_off() {
        let mut text = String::from("#define M0 x x\n");
        for i in 1..60 {
            text += &format!("#define M{i} M{} M{}\n", i - 1, i - 1);
        }
        let out = preprocess(Path::new("a.cu"), &(text + "M59"), &[], &[], &|_| None);
        assert!(out.tokens.len() <= TOKENS);
    }
}
