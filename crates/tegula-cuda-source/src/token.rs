//! Tokens of C++, with their positions in the files.

use std::rc::Rc;

/// The kind of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// An identifier or a keyword.
    Name,
    /// A number, with its suffix.
    Number,
    /// A string or character literal, with its quotes.
    Literal,
    /// An operator. `>` is always a single token, because `>>` can close two template lists.
    Operator,
}

/// A token and its range of bytes in the file.
///
/// For a token that results from a macro, the range is that of the outermost invocation.
#[derive(Clone, Debug)]
pub(super) struct Token {
    pub(super) kind: Kind,
    pub(super) text: Rc<str>,
    /// Number of the file.
    pub(super) file: u32,
    pub(super) start: usize,
    pub(super) end: usize,
    /// Line in the file, from 1.
    pub(super) line: u32,
    /// Whether it follows the previous token without a space.
    pub(super) glued: bool,
    /// Whether it is the first on its line.
    pub(super) first: bool,
    /// Whether it results from a macro.
    pub(super) expanded: bool,
    /// Macros that must not be expanded again in it.
    pub(super) hidden: Option<Rc<Hidden>>,
}

/// A list of macro names.
#[derive(Debug)]
pub(super) struct Hidden {
    pub(super) name: Rc<str>,
    pub(super) rest: Option<Rc<Hidden>>,
}

impl Token {
    pub(super) fn is(&self, text: &str) -> bool {
        &*self.text == text && self.kind != Kind::Literal
    }

    pub(super) fn is_name(&self) -> bool {
        self.kind == Kind::Name
    }

    pub(super) fn hides(&self, name: &str) -> bool {
        let mut list = self.hidden.as_deref();
        while let Some(entry) = list {
            if &*entry.name == name {
                return true;
            }
            list = entry.rest.as_deref();
        }
        false
    }
}

/// Operators of more than one character, longest first.
const OPERATORS: [&str; 25] = [
    "<<<", "<<=", "...", "->*", "::", "->", "++", "--", "<<", "<=", ">=", "==", "!=", "&&", "||", "+=", "-=", "*=",
    "/=", "%=", "&=", "|=", "^=", "##", ".*",
];

/// Splits text into tokens. Comments and continued lines are space.
pub(super) fn tokens(text: &str, file: u32) -> Vec<Token> {
    let mut lexer = Lexer { text, at: 0, line: 1 };
    let mut tokens = Vec::new();
    let (mut first, mut glued) = (true, false);
    loop {
        let before = lexer.at;
        first |= lexer.skip_space();
        glued &= lexer.at == before;
        let (start, line) = (lexer.at, lexer.line);
        let Some(kind) = lexer.token() else { return tokens };
        let text = Rc::from(text.get(start..lexer.at).unwrap_or(""));
        tokens.push(Token {
            kind,
            text,
            file,
            start,
            end: lexer.at,
            line,
            glued,
            first,
            expanded: false,
            hidden: None,
        });
        (first, glued) = (false, true);
    }
}

struct Lexer<'a> {
    text: &'a str,
    at: usize,
    line: u32,
}

impl Lexer<'_> {
    fn rest(&self) -> &str {
        self.text.get(self.at..).unwrap_or("")
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn bump(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.at += c.len_utf8();
        self.line += u32::from(c == '\n');
        Some(c)
    }

    fn skip(&mut self, bytes: usize) {
        let end = self.at + bytes;
        while self.at < end && self.bump().is_some() {}
    }

    /// The length in bytes of a line continuation at the current position: backslash, line break.
    fn continuation(&self) -> Option<usize> {
        ["\\\n", "\\\r\n"].iter().find(|end| self.rest().starts_with(**end)).map(|end| end.len())
    }

    /// Skips white space and comments; returns whether a line ended.
    fn skip_space(&mut self) -> bool {
        let mut ended = false;
        while let Some(c) = self.peek() {
            if let Some(bytes) = self.continuation() {
                self.skip(bytes);
            } else if c.is_whitespace() || c == '\u{feff}' {
                ended |= c == '\n';
                self.bump();
            } else if self.rest().starts_with("//") {
                while self.peek().is_some_and(|c| c != '\n') {
                    self.skip(self.continuation().unwrap_or(1));
                }
            } else if self.rest().starts_with("/*") {
                let end = self.rest().get(2..).and_then(|rest| rest.find("*/")).map(|end| end + 4);
                self.skip(end.unwrap_or(self.rest().len()));
            } else {
                break;
            }
        }
        ended
    }

    fn token(&mut self) -> Option<Kind> {
        let c = self.peek()?;
        if c.is_alphabetic() || c == '_' || c == '$' {
            while self.peek().is_some_and(|c| c.is_alphanumeric() || c == '_' || c == '$') {
                self.bump();
            }
            // The prefix of a literal, such as `u8`, is scanned as a name. Only R changes the scan.
            let raw = self.text.get(..self.at).is_some_and(|t| t.ends_with('R')) && self.peek() == Some('"');
            if raw && c != '_' && self.raw_string() {
                return Some(Kind::Literal);
            }
            return Some(Kind::Name);
        }
        let digit_follows = || self.rest().chars().nth(1).is_some_and(|c| c.is_ascii_digit());
        if c.is_ascii_digit() || (c == '.' && digit_follows()) {
            self.number();
            return Some(Kind::Number);
        }
        if c == '"' || c == '\'' {
            self.quoted(c);
            return Some(Kind::Literal);
        }
        match OPERATORS.iter().find(|o| self.rest().starts_with(**o)) {
            Some(operator) => self.skip(operator.len()),
            None => self.skip(1),
        }
        Some(Kind::Operator)
    }

    fn number(&mut self) {
        let mut last = ' ';
        while let Some(c) = self.peek() {
            let sign = (c == '+' || c == '-') && "eEpP".contains(last) && !self.is_hexadecimal(last);
            let separator = c == '\'' && self.rest().chars().nth(1).is_some_and(|c| c.is_ascii_alphanumeric());
            if !(c.is_alphanumeric() || c == '.' || c == '_' || sign || separator) {
                break;
            }
            last = c;
            self.bump();
        }
    }

    /// Whether the number is hexadecimal, so that `e` is a digit: `0xe+1` is a sum.
    fn is_hexadecimal(&self, last: char) -> bool {
        let before = self.text.get(..self.at).unwrap_or("");
        let start = before.rfind(|c: char| !c.is_ascii_alphanumeric() && c != '.').map_or(0, |i| i + 1);
        "eE".contains(last) && before.get(start..).is_some_and(|t| t.starts_with("0x") || t.starts_with("0X"))
    }

    /// Scans a literal up to its quote or the end of the line. Text in `#if 0` can lack the quote.
    fn quoted(&mut self, quote: char) {
        self.bump();
        while let Some(c) = self.peek() {
            if let Some(bytes) = self.continuation() {
                self.skip(bytes);
                continue;
            }
            if c == '\n' {
                return;
            }
            self.bump();
            if c == quote {
                return;
            }
            if c == '\\' && self.peek().is_some_and(|c| c != '\n') {
                self.bump();
            }
        }
    }

    /// Scans a raw string `"delimiter(…)delimiter"`.
    fn raw_string(&mut self) -> bool {
        let Some(open) = self.rest().find('(') else { return false };
        let Some(delimiter) = self.rest().get(1..open).filter(|d| d.len() <= 16) else { return false };
        let close = format!("){delimiter}\"");
        let Some(end) = self.rest().find(&close) else { return false };
        self.skip(end + close.len());
        true
    }
}

/// The index after the bracket that closes the bracket `(`, `[` or `{` at `open`; at most `end`.
pub(super) fn close(tokens: &[Token], open: usize, end: usize) -> usize {
    let mut depth = 0usize;
    for (i, token) in tokens.iter().enumerate().take(end).skip(open) {
        if token.kind != Kind::Operator {
            continue;
        }
        match &*token.text {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return i + 1;
                }
            }
            _ => {}
        }
    }
    end
}

/// The index after the `>` that closes the template list at `open` (`<`); `None` if the statement
/// ends first.
pub(super) fn close_angle(tokens: &[Token], open: usize, end: usize) -> Option<usize> {
    let mut depth = 0usize;
    let mut i = open;
    while i < end {
        let token = tokens.get(i)?;
        if token.kind == Kind::Operator {
            match &*token.text {
                "<" => depth += 1,
                ">" => {
                    depth = depth.checked_sub(1)?;
                    if depth == 0 {
                        return Some(i + 1);
                    }
                }
                "(" | "[" | "{" => {
                    i = close(tokens, i, end);
                    continue;
                }
                ";" | ")" | "]" | "}" => return None,
                _ => {}
            }
        }
        i += 1;
    }
    None
}

/// Splits tokens at commas outside of brackets and template lists.
pub(super) fn split(tokens: &[Token]) -> Vec<&[Token]> {
    let mut parts = Vec::new();
    let (mut start, mut i) = (0, 0);
    while let Some(token) = tokens.get(i) {
        if token.is("(") || token.is("[") || token.is("{") {
            i = close(tokens, i, tokens.len());
            continue;
        }
        let after_name = i > 0 && tokens.get(i - 1).is_some_and(Token::is_name);
        if token.is("<")
            && after_name
            && let Some(after) = close_angle(tokens, i, tokens.len())
        {
            i = after;
            continue;
        }
        if token.is(",") {
            parts.extend(tokens.get(start..i));
            start = i + 1;
        }
        i += 1;
    }
    if start < tokens.len() || start > 0 {
        parts.extend(tokens.get(start..));
    }
    parts
}

/// The text of tokens, with the spaces of the source.
pub(super) fn written(tokens: &[Token]) -> String {
    let mut text = String::new();
    for token in tokens {
        let word = |c: char| c.is_alphanumeric() || c == '_';
        let words = text.ends_with(word) && token.text.starts_with(word);
        if !text.is_empty() && (words || !token.glued) {
            text.push(' ');
        }
        text.push_str(&token.text);
    }
    text
}

/// The text of tokens, with spaces only between two words.
pub(super) fn join(tokens: &[Token]) -> String {
    let mut text = String::new();
    for token in tokens {
        let word = |c: char| c.is_alphanumeric() || c == '_';
        let words = text.ends_with(word) && token.text.starts_with(word);
        let space = words || text.ends_with(',') || (text.ends_with(['*', '&']) && token.text.starts_with(word));
        if space {
            text.push(' ');
        }
        text.push_str(&token.text);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(text: &str) -> Vec<String> {
        tokens(text, 0).iter().map(|t| t.text.to_string()).collect()
    }

    #[test]
    fn tokens_comments_and_continuations_are_space() {
        assert_eq!(texts("a/* b\n */c // d \\\n e\nf\\\ng"), ["a", "c", "f", "g"]);
        let tokens = tokens("a\nb \\\n c\n#d", 0);
        assert_eq!(
            tokens.iter().map(|t| (t.first, t.line)).collect::<Vec<_>>(),
            [(true, 1), (true, 2), (false, 3), (true, 4), (false, 4)]
        );
    }

    #[test]
    fn tokens_literals_are_whole() {
        assert_eq!(texts(r#"f("a\"b;", 'x', '\'')"#), ["f", "(", r#""a\"b;""#, ",", "'x'", ",", r"'\''", ")"]);
        assert_eq!(texts("R\"x(a)\" { )x\" b"), ["R\"x(a)\" { )x\"", "b"]);
        assert_eq!(texts("1'000 1.5e-3f 0xe+1 .5 x.5"), ["1'000", "1.5e-3f", "0xe", "+", "1", ".5", "x", ".5"]);
    }

    #[test]
    fn tokens_unclosed_quote_ends_with_its_line() {
        assert_eq!(texts("don't\nint"), ["don", "'t", "int"]);
        assert_eq!(texts("\"é\\"), ["\"é\\"]);
    }

    #[test]
    fn tokens_launch_and_nested_templates_differ() {
        assert_eq!(
            texts("k<A<B>><<<1,2>>>()"),
            ["k", "<", "A", "<", "B", ">", ">", "<<<", "1", ",", "2", ">", ">", ">", "(", ")"]
        );
        let list = tokens("f<A<B<3>>, (1>2)>(x)", 0);
        assert_eq!(close_angle(&list, 1, list.len()), Some(16));
        assert_eq!(close_angle(&tokens("a<b;c>d", 0), 1, 7), None);
    }

    #[test]
    fn split_keeps_groups_whole() {
        let list = tokens("dim3(1, 2), f<3, 4>(5), a < b, c", 0);
        let parts: Vec<String> = split(&list).iter().map(|part| join(part)).collect();
        assert_eq!(parts, ["dim3(1, 2)", "f<3, 4>(5)", "a<b", "c"]);
        assert!(split(&[]).is_empty());
    }
}
