//! Declarations at namespace scope and in classes.
//!
//! The parser finds the range, the name and the execution space of each declaration. It does not
//! parse expressions and statements.

use std::ops::Range;

use super::token::{Kind as TokenKind, Token, close, close_angle};

/// The kind of a declaration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A function, with or without its body.
    Function,
    Variable,
    /// The definition of a class or structure.
    Class,
    Enum,
    /// `typedef`, `using name = …`, a namespace alias, or a declaration of a class without a body.
    Alias,
    /// `using namespace …` or `using a::b`.
    Using,
    /// `template void f<3>(…);`
    Instantiation,
    /// `static_assert`, `asm`, an unknown macro.
    Other,
}

/// A declaration; all ranges are token indices.
#[derive(Clone, Debug)]
pub(super) struct Declaration {
    pub(super) kind: Kind,
    /// The whole declaration.
    pub(super) range: Range<usize>,
    /// From the end of `template<…>` to the body, the initializer or the semicolon.
    pub(super) head: Range<usize>,
    /// Parameters of the template, without the brackets.
    pub(super) template: Option<Range<usize>>,
    /// Parameters of a function, without the parentheses.
    pub(super) params: Range<usize>,
    /// The tokens between the braces of a function, class or enum.
    pub(super) body: Range<usize>,
    /// The declared names, without qualifiers; several for `int a, b;`.
    pub(super) names: Vec<usize>,
    /// The enclosing namespaces, except anonymous ones.
    pub(super) scope: Vec<String>,
    /// Members of a class.
    pub(super) members: Vec<Declaration>,
}

/// Specifiers that can be followed by parentheses that are not a parameter list.
const ATTRIBUTES: &[&str] = &[
    "decltype",
    "alignas",
    "__align__",
    "__launch_bounds__",
    "__attribute__",
    "__declspec",
    "__cluster_dims__",
    "__block_size__",
    "__maxnreg__",
    "noexcept",
    "throw",
    "explicit",
    "requires",
    "__builtin_align__",
];

/// Maximum nesting depth of namespaces and classes; the parser skips deeper ones.
const DEPTH: usize = 64;

/// Parses all declarations.
pub(super) fn declarations(tokens: &[Token]) -> Vec<Declaration> {
    let mut out = Vec::new();
    scope(tokens, 0..tokens.len(), &mut Vec::new(), 0, &mut out);
    out
}

/// Parses the declarations of a namespace or a class.
fn scope(tokens: &[Token], range: Range<usize>, names: &mut Vec<String>, depth: usize, out: &mut Vec<Declaration>) {
    let is = |i: usize, text: &str| i < range.end && tokens.get(i).is_some_and(|t| t.is(text));
    let mut at = range.start;
    while at < range.end {
        let start = at;
        let access = ["public", "private", "protected"].iter().any(|word| is(at, word)) && is(at + 1, ":");
        let linkage = is(at, "extern") && is(at + 2, "{");
        let namespace = at + usize::from(is(at, "inline"));
        if access {
            at += 2;
        } else if is(at, ";") || is(at, "}") {
            at += 1;
        } else if linkage && depth < DEPTH {
            at = close(tokens, at + 2, range.end);
            scope(tokens, start + 3..at.saturating_sub(1), names, depth + 1, out);
        } else if is(namespace, "namespace")
            && let Some(open) = (namespace..range.end).find(|&i| is(i, "{") || is(i, ";") || is(i, "="))
            && is(open, "{")
            && depth < DEPTH
        {
            at = close(tokens, open, range.end);
            let added: Vec<String> = tokens
                .get(namespace + 1..open)
                .unwrap_or(&[])
                .iter()
                .filter(|t| t.is_name() && !t.is("inline"))
                .map(|t| t.text.to_string())
                .collect();
            let outer = names.len();
            names.extend(added);
            scope(tokens, open + 1..at.saturating_sub(1), names, depth + 1, out);
            names.truncate(outer);
        } else {
            let mut parser = Parser { tokens, end: range.end, at };
            let mut declaration = parser.declaration();
            at = parser.at.max(start + 1);
            declaration.range = start..at;
            declaration.scope.clone_from(names);
            if declaration.kind == Kind::Class && depth < DEPTH {
                scope(tokens, declaration.body.clone(), names, depth + 1, &mut declaration.members);
            }
            out.push(declaration);
        }
    }
}

struct Parser<'a> {
    tokens: &'a [Token],
    end: usize,
    at: usize,
}

impl Parser<'_> {
    fn get(&self, i: usize) -> Option<&Token> {
        self.tokens.get(i).filter(|_| i < self.end)
    }

    fn is(&self, i: usize, text: &str) -> bool {
        self.get(i).is_some_and(|t| t.is(text))
    }

    /// Advances past the next semicolon.
    fn skip_statement(&mut self) {
        while let Some(token) = self.get(self.at) {
            if token.is("(") || token.is("[") || token.is("{") {
                self.at = close(self.tokens, self.at, self.end);
                continue;
            }
            self.at += 1;
            if self.is(self.at - 1, ";") {
                break;
            }
        }
    }

    fn declaration(&mut self) -> Declaration {
        let start = self.at;
        let empty = start..start;
        let mut out = Declaration {
            kind: Kind::Other,
            range: empty.clone(),
            head: empty.clone(),
            template: None,
            params: empty.clone(),
            body: empty,
            names: Vec::new(),
            scope: Vec::new(),
            members: Vec::new(),
        };
        while self.is(self.at, "template") {
            if !self.is(self.at + 1, "<") {
                out.kind = Kind::Instantiation;
                self.at += 1;
                break;
            }
            let after = close_angle(self.tokens, self.at + 1, self.end).unwrap_or(self.at + 2);
            out.template = Some(self.at + 2..after.saturating_sub(1).max(self.at + 2));
            self.at = after;
        }
        if self.is(self.at, "extern") && self.get(self.at + 1).is_some_and(|t| t.kind == TokenKind::Literal) {
            self.at += 2;
        }
        let head = self.at;
        let first = self.get(head).map(|t| t.text.clone()).unwrap_or_default();
        match &*first {
            "static_assert" | "asm" | "__asm__" | "friend" if out.kind == Kind::Other => {
                // A friend may have a body.
                let open = (head..self.end).find(|&i| self.is(i, ";") || self.is(i, "{"));
                match open {
                    Some(open) if self.is(open, "{") => self.at = close(self.tokens, open, self.end),
                    _ => self.skip_statement(),
                }
                out.head = head..self.at;
            }
            "using" | "typedef" | "namespace" => {
                self.skip_statement();
                out.head = head..self.at;
                self.alias(&mut out);
            }
            _ => {
                let instantiation = out.kind == Kind::Instantiation;
                self.general(&mut out);
                if instantiation {
                    out.kind = Kind::Instantiation;
                }
            }
        }
        out
    }

    fn alias(&self, out: &mut Declaration) {
        let head = out.head.clone();
        let assigned = head.clone().find(|&i| self.is(i, "="));
        out.kind = Kind::Alias;
        if !self.is(head.start, "typedef") {
            if let Some(assigned) = assigned {
                out.names =
                    (head.start + 1..assigned).filter(|&i| self.get(i).is_some_and(Token::is_name)).take(1).collect();
            } else {
                out.kind = Kind::Using;
            }
            return;
        }
        // `typedef T (*name)(…);` and `typedef T name[3];`
        let pointer = head.clone().find(|&i| self.is(i, "(") && self.is(i + 1, "*")).map(|i| i + 2);
        let brace = head.clone().find(|&i| self.is(i, "{"));
        let tail = brace.map_or(head.start, |open| close(self.tokens, open, self.end));
        let end = (tail..head.end).find(|&i| self.is(i, "[") || self.is(i, ";")).unwrap_or(head.end);
        let last = (tail..end).rev().find(|&i| self.get(i).is_some_and(Token::is_name));
        out.names = pointer.or(last).into_iter().collect();
        if let Some(open) = brace {
            // `typedef struct { … } name;` has members.
            let word =
                (head.start..open).rev().find(|&i| self.is(i, "struct") || self.is(i, "enum") || self.is(i, "union"));
            out.kind = match word {
                Some(i) if self.is(i, "enum") => Kind::Enum,
                Some(_) => Kind::Class,
                None => Kind::Alias,
            };
            out.body = open + 1..tail.saturating_sub(1);
            out.names
                .extend((head.start..open).filter(|&i| self.is(i, "struct") && !self.is(i + 1, "{")).map(|i| i + 1));
            if out.kind == Kind::Enum {
                self.enumerators(out);
            }
        }
    }

    fn enumerators(&self, out: &mut Declaration) {
        let body = out.body.clone();
        let mut i = body.start;
        let mut expected = true;
        while i < body.end {
            if self.is(i, "(") || self.is(i, "{") {
                i = close(self.tokens, i, body.end);
                continue;
            }
            if expected && self.get(i).is_some_and(Token::is_name) {
                out.names.push(i);
            }
            expected = self.is(i, ",");
            i += 1;
        }
    }

    /// The opening brace of the class or enum that begins at `at`; `None` if it has no body.
    fn class_body(&self, at: usize) -> Option<usize> {
        if !["struct", "class", "union", "enum"].iter().any(|word| self.is(at, word)) {
            return None;
        }
        let mut i = at + 1;
        while let Some(token) = self.get(i) {
            let attribute = i > 0 && ATTRIBUTES.iter().any(|word| self.is(i - 1, word));
            if token.is("{") {
                return Some(i);
            } else if token.is("[") || (token.is("(") && attribute) {
                i = close(self.tokens, i, self.end);
            } else if token.is("<") {
                i = close_angle(self.tokens, i, self.end)?;
            } else if token.is(";") || token.is("(") || token.is("=") || token.is(")") || token.is("}") {
                return None;
            } else {
                i += 1;
            }
        }
        None
    }

    fn general(&mut self, out: &mut Declaration) {
        let head = self.at;
        out.head = head..self.end;
        let mut function = false;
        let mut head_ended = false;
        let end_head = |out: &mut Declaration, at: usize, ended: &mut bool| {
            if !*ended {
                out.head.end = at;
                *ended = true;
            }
        };
        while let Some(token) = self.get(self.at) {
            let at = self.at;
            if !function
                && !head_ended
                && let Some(open) = self.class_body(at)
            {
                self.class_head(out, at, open);
                end_head(out, open, &mut head_ended);
                self.at = close(self.tokens, open, self.end);
                out.body = open + 1..self.at.saturating_sub(1).max(open + 1);
                if out.kind == Kind::Enum {
                    self.enumerators(out);
                }
            } else if token.is(";") {
                end_head(out, at, &mut head_ended);
                self.at += 1;
                break;
            } else if token.is("operator") && !head_ended && !function {
                out.names = vec![at];
                self.at += 1;
                if self.is(self.at, "(") && self.is(self.at + 1, ")") {
                    self.at += 2;
                }
                while self.get(self.at).is_some_and(|t| !t.is("(") && !t.is(";") && !t.is("{")) {
                    self.at += 1;
                }
            } else if token.is("(") {
                self.at = close(self.tokens, at, self.end);
                function |= !head_ended && !function && self.parameters(out, at);
            } else if token.is("[") {
                if !function && !head_ended {
                    self.name_before(out, at);
                }
                self.at = close(self.tokens, at, self.end);
            } else if token.is("<") && !head_ended && self.get(at.wrapping_sub(1)).is_some_and(Token::is_name) {
                self.at = close_angle(self.tokens, at, self.end).unwrap_or(at + 1);
            } else if token.is("{") {
                let body = function && !out.head_assigned(self.tokens);
                self.at = close(self.tokens, at, self.end);
                if body {
                    end_head(out, at, &mut head_ended);
                    out.body = at + 1..self.at.saturating_sub(1).max(at + 1);
                    break;
                }
                if !head_ended {
                    self.name_before(out, at);
                }
                end_head(out, at, &mut head_ended);
            } else if token.is(":") && function && !head_ended {
                // Member initializers of a constructor.
                end_head(out, at, &mut head_ended);
                self.initializers();
                if self.is(self.at, "{") {
                    let open = self.at;
                    self.at = close(self.tokens, open, self.end);
                    out.body = open + 1..self.at.saturating_sub(1).max(open + 1);
                }
                break;
            } else if token.is("=") {
                if !function && !head_ended {
                    self.name_before(out, at);
                }
                end_head(out, at, &mut head_ended);
                self.at += 1;
            } else if token.is(",") {
                if !function && !head_ended {
                    self.name_before(out, at);
                } else if !function {
                    // `int a = 1, b;`: the next name.
                    out.names.extend((at + 1..self.end).find(|&i| self.get(i).is_some_and(Token::is_name)));
                }
                self.at += 1;
            } else if token.is("}") {
                break;
            } else {
                self.at += 1;
            }
        }
        if !head_ended {
            out.head.end = self.at;
        }
        if out.kind == Kind::Class || out.kind == Kind::Enum {
            return;
        }
        if function {
            out.kind = Kind::Function;
        } else {
            let end = out.head.end;
            if out.names.is_empty() {
                self.name_before(out, end);
            }
            let class = ["struct", "class", "union", "enum"].iter().any(|word| self.is(head, word));
            let words = out.head.len();
            out.kind = match (class && words <= 2, out.names.is_empty()) {
                (true, _) => Kind::Alias,
                (_, false) if words > 1 => Kind::Variable,
                _ => Kind::Other,
            };
        }
    }

    fn class_head(&self, out: &mut Declaration, at: usize, open: usize) {
        out.kind = if self.is(at, "enum") { Kind::Enum } else { Kind::Class };
        let mut i = at + 1;
        while i < open {
            let attribute = ATTRIBUTES.iter().any(|word| self.is(i, word));
            if self.is(i, "[") || self.is(i, "(") {
                i = close(self.tokens, i, open);
            } else if self.is(i, ":") {
                break;
            } else {
                let word = self.is(i, "class") || self.is(i, "struct");
                // The last name before the base classes, outside of the arguments of a
                // specialization.
                if self.is(i, "<") {
                    i = close_angle(self.tokens, i, open).unwrap_or(open);
                    continue;
                }
                if self.get(i).is_some_and(Token::is_name) && !attribute && !word && !self.is(i, "final") {
                    out.names = vec![i];
                }
                i += 1;
            }
        }
    }

    /// Whether the parentheses at `open` are the parameter list of a function.
    fn parameters(&self, out: &mut Declaration, open: usize) -> bool {
        let Some(before) = open.checked_sub(1) else { return false };
        if before < out.head.start || ATTRIBUTES.iter().any(|word| self.is(before, word)) {
            return false;
        }
        let params = open + 1..self.at.saturating_sub(1).max(open + 1);
        // `operator…(` was seen before.
        if out.names.first().is_some_and(|&i| self.is(i, "operator")) {
            out.params = params;
            return true;
        }
        if self.is(open + 1, "*") || (self.is(open + 1, "&") && !self.is(open + 2, "&")) {
            // A pointer to a function.
            out.names = vec![open + 2];
            return false;
        }
        // `f<3>(`: the name is before the arguments.
        let mut name = before;
        if self.is(name, ">") {
            let mut depth = 0usize;
            while name > out.head.start {
                depth += usize::from(self.is(name, ">"));
                if self.is(name, "<") {
                    depth = depth.saturating_sub(1);
                    if depth == 0 {
                        break;
                    }
                }
                name -= 1;
            }
            name = name.saturating_sub(1);
        }
        if !self.get(name).is_some_and(Token::is_name) {
            return false;
        }
        out.names = vec![name];
        out.params = params;
        true
    }

    fn name_before(&self, out: &mut Declaration, at: usize) {
        let start = out.head.start;
        if let Some(name) = (start..at).rev().find(|&i| self.get(i).is_some_and(Token::is_name))
            && name > start
            && !out.names.contains(&name)
        {
            out.names.push(name);
        }
    }

    /// Advances past the member initializers `a(1), b{2}`, to the body.
    fn initializers(&mut self) {
        self.at += 1;
        while let Some(token) = self.get(self.at) {
            if token.is("<") {
                self.at = close_angle(self.tokens, self.at, self.end).unwrap_or(self.at + 1);
            } else if token.is("(") || token.is("{") {
                self.at = close(self.tokens, self.at, self.end);
                if !(self.is(self.at, ",") || self.is(self.at, "...")) {
                    return;
                }
            } else if token.is(";") {
                return;
            } else {
                self.at += 1;
            }
        }
    }
}

impl Declaration {
    /// Whether an `=` stands between the parameters and the body, as in `x = f(3){…}`.
    fn head_assigned(&self, tokens: &[Token]) -> bool {
        let operator = self.names.first().and_then(|&i| tokens.get(i)).is_some_and(|t| t.is("operator"));
        !operator && tokens.get(self.head.start..self.params.start).unwrap_or(&[]).iter().any(|t| t.is("="))
    }

    /// Tokens of the head outside of parentheses and template lists, such as `__global__`.
    pub(super) fn words<'a>(&self, tokens: &'a [Token]) -> Vec<&'a Token> {
        let mut words = Vec::new();
        let mut i = self.head.start;
        while i < self.head.end {
            let Some(token) = tokens.get(i) else { break };
            if token.is("(") || token.is("[") || token.is("{") {
                i = close(tokens, i, self.head.end);
                continue;
            }
            if token.is("<") {
                i = close_angle(tokens, i, self.head.end).unwrap_or(i + 1);
                continue;
            }
            words.push(token);
            i += 1;
        }
        words
    }

    /// The first name.
    pub(super) fn name<'a>(&self, tokens: &'a [Token]) -> &'a str {
        self.names.first().and_then(|&i| tokens.get(i)).map_or("", |t| &t.text)
    }

    /// The name with its namespaces: `ns::tiled`.
    pub(super) fn qualified(&self, tokens: &[Token]) -> String {
        let mut name = self.scope.join("::");
        if !name.is_empty() {
            name.push_str("::");
        }
        name + self.name(tokens)
    }
}

#[cfg(test)]
mod tests;
