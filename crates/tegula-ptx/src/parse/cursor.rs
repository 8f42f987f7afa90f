//! The token stream of the parser: the current token, and functions that consume tokens.

use super::token::{Kind, Lexer, Token, integer};
use super::{ParseError, Result};

/// The token stream of a PTX text.
#[derive(Debug)]
pub(super) struct Cursor<'a> {
    lexer: Lexer<'a>,
    token: Token<'a>,
    /// The `.file` directives read so far: number and path.
    pub files: Vec<(u32, String)>,
}

impl<'a> Cursor<'a> {
    pub fn new(text: &'a str) -> Self {
        let mut lexer = Lexer::new(text);
        let token = lexer.token();
        Cursor { lexer, token, files: Vec::new() }
    }

    /// The current token.
    pub fn token(&self) -> Token<'a> {
        self.token
    }

    /// The token after the current one.
    pub fn following(&self) -> Token<'a> {
        self.lexer.clone().token()
    }

    /// Consumes and returns the current token.
    pub fn advance(&mut self) -> Token<'a> {
        std::mem::replace(&mut self.token, self.lexer.token())
    }

    pub fn is(&self, kind: Kind) -> bool {
        self.token.kind == kind
    }

    pub fn is_symbol(&self, symbol: &str) -> bool {
        self.is(Kind::Symbol) && self.token.text == symbol
    }

    /// Whether the current token is a name: a word other than the constant `WARP_SZ`.
    pub fn is_name(&self) -> bool {
        self.is(Kind::Word) && self.token.text != "WARP_SZ"
    }

    /// Consumes the symbol if it is the current token; returns whether it was.
    pub fn eat(&mut self, symbol: &str) -> bool {
        let here = self.is_symbol(symbol);
        if here {
            self.advance();
        }
        here
    }

    /// Consumes a directive or a modifier if it is the current token; returns it without its dot.
    pub fn eat_dotted(&mut self) -> Option<&'a str> {
        self.is(Kind::Dotted).then(|| self.advance().text)
    }

    /// Consumes a required symbol.
    pub fn expect(&mut self, symbol: &str) -> Result<()> {
        self.expect_as(symbol, "")
    }

    /// Consumes a required symbol. `role` follows it in the error message: `" after the name"`.
    pub fn expect_as(&mut self, symbol: &str, role: &str) -> Result<()> {
        if self.eat(symbol) { Ok(()) } else { Err(self.unexpected(&format!("\"{symbol}\"{role}"))) }
    }

    /// Consumes a required word; `what` describes it in the error message.
    pub fn word(&mut self, what: &str) -> Result<&'a str> {
        if self.is(Kind::Word) { Ok(self.advance().text) } else { Err(self.unexpected(what)) }
    }

    /// Consumes a required unsigned integer below 2³²; `what` describes it in the error message.
    pub fn unsigned(&mut self, what: &str) -> Result<u32> {
        let value = if self.is(Kind::Number) { integer(self.token.text) } else { None };
        let value = value.and_then(|value| u32::try_from(value).ok());
        let value = value.ok_or_else(|| self.unexpected(what))?;
        self.advance();
        Ok(value)
    }

    /// Consumes a required quoted string, and returns its text with escapes replaced.
    pub fn quoted(&mut self) -> Result<String> {
        if !self.is(Kind::Quoted) {
            return Err(self.unexpected("a string in quotes"));
        }
        let text = self.advance().text;
        let mut characters = text.get(1..text.len() - 1).unwrap_or("").chars();
        let mut string = String::with_capacity(text.len());
        while let Some(character) = characters.next() {
            string.extend(if character == '\\' { characters.next() } else { Some(character) });
        }
        Ok(string)
    }

    /// Consumes a list of items separated by commas, and the symbol that closes it.
    pub fn list_until<T>(&mut self, close: &str, mut item: impl FnMut(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        let mut items = Vec::new();
        while !self.eat(close) {
            if !items.is_empty() && !self.eat(",") {
                return Err(self.unexpected(&format!("\",\" or \"{close}\"")));
            }
            items.push(item(self)?);
        }
        Ok(items)
    }

    /// Consumes all tokens up to and including the next semicolon.
    pub fn skip_to_semicolon(&mut self) -> Result<()> {
        while !self.is_symbol(";") && !self.is_broken() {
            self.advance();
        }
        self.expect(";")
    }

    /// Consumes a pair of brackets and all tokens between them, nested brackets included.
    pub fn skip_brackets(&mut self, open: &str, close: &str) -> Result<()> {
        self.expect(open)?;
        let mut depth = 1u64;
        while depth > 0 {
            if self.is_broken() {
                return Err(self.unexpected(&format!("\"{close}\"")));
            }
            depth += u64::from(self.is_symbol(open));
            depth -= u64::from(self.is_symbol(close));
            self.advance();
        }
        Ok(())
    }

    /// Whether the text ends here, or an unterminated comment or string begins here.
    fn is_broken(&self) -> bool {
        matches!(self.token.kind, Kind::End | Kind::Unterminated)
    }

    /// An error at the current token.
    pub fn error(&self, message: impl Into<String>) -> ParseError {
        self.error_at(self.token, message)
    }

    /// An error at a token.
    pub fn error_at(&self, token: Token<'_>, message: impl Into<String>) -> ParseError {
        ParseError { line: token.line, column: self.lexer.column(token.at), message: message.into() }
    }

    /// The error for an unexpected current token; `expected` describes the valid ones.
    pub fn unexpected(&self, expected: &str) -> ParseError {
        self.unexpected_at(self.token, expected)
    }

    /// The error for an unexpected token; `expected` describes the valid ones.
    pub fn unexpected_at(&self, token: Token<'_>, expected: &str) -> ParseError {
        let found = match token.kind {
            Kind::End => "the end of the text".into(),
            Kind::Unterminated => "an unterminated comment or string".into(),
            Kind::Quoted => "a string".into(),
            Kind::Dotted => format!("\".{}\"", shortened(token.text)),
            _ => format!("\"{}\"", shortened(token.text)),
        };
        self.error_at(token, format!("expected {expected}, found {found}"))
    }

    /// The error for an unsupported directive.
    pub fn unknown_directive(&self, token: Token<'_>) -> ParseError {
        self.error_at(token, format!("directive .{} is not supported", shortened(token.text)))
    }
}

/// The text of a token for a message, truncated to `MAX_TEXT` characters, without control
/// characters.
fn shortened(text: &str) -> String {
    /// Longest text that is not truncated, in characters.
    const MAX_TEXT: usize = 40;
    let mut short = String::new();
    for c in text.chars().take(MAX_TEXT) {
        if c.is_control() { short.extend(c.escape_debug()) } else { short.push(c) }
    }
    if text.chars().nth(MAX_TEXT).is_some() {
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_strings_lose_their_escapes() {
        assert_eq!(Cursor::new(r#""a \"b\" \\ c""#).quoted().as_deref(), Ok(r#"a "b" \ c"#));
        assert_eq!(Cursor::new("\"\"").quoted().as_deref(), Ok(""));
    }

    #[test]
    fn brackets_that_nest_are_skipped_together() {
        let mut cursor = Cursor::new("{ a { \"}\" } } b");
        assert!(cursor.skip_brackets("{", "}").is_ok() && cursor.token().text == "b");
        let error = Cursor::new("{ { }").skip_brackets("{", "}").unwrap_err();
        assert_eq!(error.message, "expected \"}\", found the end of the text");
    }
}
