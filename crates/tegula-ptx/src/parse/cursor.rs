//! A position in PTX text: the token there, and the smallest steps from it on.

use super::token::{Kind, Lexer, Token, integer};
use super::{ParseError, Result};

/// A position in the text.
#[derive(Debug)]
pub(super) struct Cursor<'a> {
    lexer: Lexer<'a>,
    token: Token<'a>,
    /// The files of the `.file` directives so far.
    pub files: Vec<(u32, String)>,
}

impl<'a> Cursor<'a> {
    pub fn new(text: &'a str) -> Self {
        let mut lexer = Lexer::new(text);
        let token = lexer.token();
        Cursor { lexer, token, files: Vec::new() }
    }

    /// The token here.
    pub fn token(&self) -> Token<'a> {
        self.token
    }

    /// The token after the one here.
    pub fn following(&self) -> Token<'a> {
        self.lexer.clone().token()
    }

    /// Passes the token, and returns it.
    pub fn advance(&mut self) -> Token<'a> {
        std::mem::replace(&mut self.token, self.lexer.token())
    }

    pub fn is(&self, kind: Kind) -> bool {
        self.token.kind == kind
    }

    pub fn is_symbol(&self, symbol: &str) -> bool {
        self.is(Kind::Symbol) && self.token.text == symbol
    }

    /// Whether a word is here that names something, rather than the constant `WARP_SZ`.
    pub fn is_name(&self) -> bool {
        self.is(Kind::Word) && self.token.text != "WARP_SZ"
    }

    /// Passes a symbol if it is here.
    pub fn eat(&mut self, symbol: &str) -> bool {
        let here = self.is_symbol(symbol);
        if here {
            self.advance();
        }
        here
    }

    /// Passes a directive or a modifier, if one is here, and returns it without its dot.
    pub fn eat_dotted(&mut self) -> Option<&'a str> {
        self.is(Kind::Dotted).then(|| self.advance().text)
    }

    /// Passes a symbol that must be here.
    pub fn expect(&mut self, symbol: &str) -> Result<()> {
        self.expect_as(symbol, "")
    }

    /// Passes a symbol that must be here; `role` describes it in the error: `" after the name"`.
    pub fn expect_as(&mut self, symbol: &str, role: &str) -> Result<()> {
        if self.eat(symbol) { Ok(()) } else { Err(self.unexpected(&format!("\"{symbol}\"{role}"))) }
    }

    /// Passes a word that must be here; `what` describes it in the error.
    pub fn word(&mut self, what: &str) -> Result<&'a str> {
        if self.is(Kind::Word) { Ok(self.advance().text) } else { Err(self.unexpected(what)) }
    }

    /// Passes an unsigned integer that must be here.
    pub fn unsigned(&mut self, what: &str) -> Result<u32> {
        let value = if self.is(Kind::Number) { integer(self.token.text) } else { None };
        let value = value.and_then(|value| u32::try_from(value).ok());
        let value = value.ok_or_else(|| self.unexpected(what))?;
        self.advance();
        Ok(value)
    }

    /// Passes a string in quotes that must be here.
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

    /// Passes items that commas separate, up to a closing symbol.
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

    /// Passes everything up to a semicolon, and the semicolon.
    pub fn skip_to_semicolon(&mut self) -> Result<()> {
        while !self.is_symbol(";") && !self.is_broken() {
            self.advance();
        }
        self.expect(";")
    }

    /// Passes everything between brackets, which nest, and the brackets.
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

    /// Whether the rest of the text has no tokens.
    fn is_broken(&self) -> bool {
        matches!(self.token.kind, Kind::End | Kind::Unterminated)
    }

    /// An error at the token here.
    pub fn error(&self, message: impl Into<String>) -> ParseError {
        self.error_at(self.token, message)
    }

    /// An error at a token.
    pub fn error_at(&self, token: Token<'_>, message: impl Into<String>) -> ParseError {
        ParseError { line: token.line, column: self.lexer.column(token.at), message: message.into() }
    }

    /// The error that something else is expected here.
    pub fn unexpected(&self, expected: &str) -> ParseError {
        self.unexpected_at(self.token, expected)
    }

    /// The error that something else is expected in place of a token.
    pub fn unexpected_at(&self, token: Token<'_>, expected: &str) -> ParseError {
        let found = match token.kind {
            Kind::End => "the end of the text".into(),
            Kind::Unterminated => "a comment or a string that has no end".into(),
            Kind::Quoted => "a string".into(),
            Kind::Dotted => format!("\".{}\"", shortened(token.text)),
            _ => format!("\"{}\"", shortened(token.text)),
        };
        self.error_at(token, format!("expected {expected}, found {found}"))
    }

    /// The error that a directive is unknown.
    pub fn unknown_directive(&self, token: Token<'_>) -> ParseError {
        self.error_at(token, format!("directive .{} is not supported", shortened(token.text)))
    }
}

/// The text of a token for a message.
fn shortened(text: &str) -> String {
    /// Longest text that is shown whole, in characters.
    const MAX_TEXT: usize = 40;
    match text.char_indices().nth(MAX_TEXT) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or("")),
        None => text.into(),
    }
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
