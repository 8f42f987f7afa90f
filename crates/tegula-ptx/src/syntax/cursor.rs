//! A position in PTX text, and the smallest pieces from it on.

use super::{ParseError, Result};

/// A position in the text.
#[derive(Clone, Debug)]
pub(super) struct Cursor<'a> {
    text: &'a str,
    at: usize,
    line: u32,
    line_start: usize,
}

/// A position to return to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Position(usize, u32, usize);

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | b'%') || byte >= 0x80
}

impl<'a> Cursor<'a> {
    pub fn new(text: &'a str) -> Self {
        let mut cursor = Cursor { text, at: 0, line: 1, line_start: 0 };
        cursor.skip_space();
        cursor
    }

    pub fn position(&self) -> Position {
        Position(self.at, self.line, self.line_start)
    }

    pub fn reset(&mut self, position: Position) {
        (self.at, self.line, self.line_start) = (position.0, position.1, position.2);
    }

    pub fn line(&self) -> u32 {
        self.line
    }

    pub fn is_at_end(&self) -> bool {
        self.at >= self.text.len()
    }

    /// The byte at the position.
    pub fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn byte(&self, ahead: usize) -> Option<u8> {
        self.text.as_bytes().get(self.at + ahead).copied()
    }

    /// Passes one byte, and the space after it.
    pub fn bump(&mut self) {
        self.pass(1);
        self.skip_space();
    }

    fn pass(&mut self, bytes: usize) {
        for _ in 0..bytes {
            if self.peek() == Some(b'\n') {
                self.line += 1;
                self.line_start = self.at + 1;
            }
            self.at = (self.at + 1).min(self.text.len());
        }
    }

    /// Passes space and comments.
    fn skip_space(&mut self) {
        loop {
            match (self.peek(), self.byte(1)) {
                (Some(b' ' | b'\t' | b'\r' | b'\n' | 0x0c | 0), _) => self.pass(1),
                (Some(b'/'), Some(b'/')) => {
                    while !matches!(self.peek(), Some(b'\n') | None) {
                        self.pass(1);
                    }
                }
                (Some(b'/'), Some(b'*')) => {
                    self.pass(2);
                    while !self.is_at_end() && (self.peek(), self.byte(1)) != (Some(b'*'), Some(b'/')) {
                        self.pass(1);
                    }
                    self.pass(2);
                }
                _ => return,
            }
        }
    }

    pub fn error(&self, message: &str) -> ParseError {
        let before = self.text.get(self.line_start..self.at).unwrap_or("");
        ParseError { line: self.line, column: before.chars().count() as u32 + 1, message: message.into() }
    }

    pub fn expected(&self, what: &str) -> ParseError {
        let found = match self.text.get(self.at..).and_then(|rest| rest.chars().next()) {
            Some(c) => format!("\"{c}\""),
            None => "the end of the text".into(),
        };
        self.error(&format!("expected {what}, found {found}"))
    }

    /// Passes a piece of punctuation if it is here.
    pub fn eat(&mut self, punctuation: &str) -> bool {
        let here = self.text.as_bytes().get(self.at..).is_some_and(|rest| rest.starts_with(punctuation.as_bytes()));
        if here {
            self.pass(punctuation.len());
            self.skip_space();
        }
        here
    }

    pub fn expect(&mut self, punctuation: &str) -> Result<()> {
        if self.eat(punctuation) { Ok(()) } else { Err(self.expected(&format!("\"{punctuation}\""))) }
    }

    /// Passes bytes that satisfy a condition, and returns them.
    fn take_while(&mut self, condition: impl Fn(u8) -> bool) -> &'a str {
        let rest = &self.text.as_bytes()[self.at.min(self.text.len())..];
        let len = rest.iter().position(|&byte| !condition(byte)).unwrap_or(rest.len());
        let taken = self.text.get(self.at..self.at + len).unwrap_or("");
        self.at += len;
        taken
    }

    /// A name: letters, digits, `_`, `$`, `%`.
    pub fn word(&mut self) -> Result<&'a str> {
        let word = self.take_while(is_word);
        if word.is_empty() {
            return Err(self.expected("a name"));
        }
        self.skip_space();
        Ok(word)
    }

    /// A name that may have a component: `%tid.x`, `v.y`.
    pub fn dotted_word(&mut self) -> Result<&'a str> {
        let start = self.at;
        let first = self.take_while(is_word);
        if first.is_empty() {
            return Err(self.expected("an operand"));
        }
        while self.peek() == Some(b'.') && self.byte(1).is_some_and(|byte| byte.is_ascii_alphabetic()) {
            self.at += 1;
            self.take_while(is_word);
        }
        let word = self.text.get(start..self.at).unwrap_or("");
        self.skip_space();
        Ok(word)
    }

    /// The modifiers of an instruction: `.rn.f32`, without the first dot; `::` stays.
    pub fn modifiers(&mut self) -> Vec<String> {
        let mut modifiers = Vec::new();
        while self.peek() == Some(b'.') && self.byte(1).is_some_and(is_word) {
            self.at += 1;
            modifiers.push(self.take_while(|byte| is_word(byte) || byte == b':').to_string());
        }
        self.skip_space();
        modifiers
    }

    /// The opcode of an instruction: its modifiers follow at once.
    pub fn opcode(&mut self) -> Result<&'a str> {
        let word = self.take_while(is_word);
        if word.is_empty() {
            return Err(self.expected("an instruction"));
        }
        Ok(word)
    }

    /// Digits and letters of a number, without sign.
    pub fn number_text(&mut self) -> &'a str {
        let text = self.take_while(|byte| byte.is_ascii_alphanumeric());
        // A fraction, and the sign of an exponent.
        if !text.starts_with("0x") && !text.starts_with("0X") && self.peek() == Some(b'.') && self.byte(1).is_some_and(|b| b.is_ascii_digit()) {
            let start = self.at - text.len();
            self.at += 1;
            let fraction = self.take_while(|byte| byte.is_ascii_alphanumeric());
            if fraction.ends_with(['e', 'E']) && matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
                self.take_while(|byte| byte.is_ascii_digit());
            }
            let whole = self.text.get(start..self.at).unwrap_or("");
            self.skip_space();
            return whole;
        }
        self.skip_space();
        text
    }

    /// A non-negative integer.
    pub fn integer(&mut self) -> Result<u64> {
        let start = self.position();
        let text = self.take_while(|byte| byte.is_ascii_alphanumeric());
        let value = super::constant::integer(text);
        if value.is_none() {
            self.reset(start);
            return Err(self.expected("an integer"));
        }
        self.skip_space();
        Ok(value.unwrap_or(0))
    }

    /// A string in quotes.
    pub fn string(&mut self) -> Result<String> {
        if self.peek() != Some(b'"') {
            return Err(self.expected("a string in quotes"));
        }
        self.pass(1);
        let mut bytes = Vec::new();
        loop {
            match self.peek() {
                None | Some(b'\n') => return Err(self.error("a string without end")),
                Some(b'"') => break,
                Some(b'\\') => {
                    self.pass(1);
                    bytes.extend(self.peek());
                }
                Some(byte) => bytes.push(byte),
            }
            self.pass(1);
        }
        self.bump();
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    pub fn skip_to_semicolon(&mut self) -> Result<()> {
        while !matches!(self.peek(), Some(b';') | None) {
            if self.peek() == Some(b'"') { self.string().map(|_| ())? } else { self.bump() }
        }
        self.expect(";")
    }

    pub fn skip_parentheses(&mut self) -> Result<()> {
        self.skip_nested(b'(', b')')
    }

    pub fn skip_braces(&mut self) -> Result<()> {
        self.skip_nested(b'{', b'}')
    }

    fn skip_nested(&mut self, open: u8, close: u8) -> Result<()> {
        let mut depth = 0u32;
        loop {
            match self.peek() {
                None => return Err(self.expected(&format!("\"{}\"", char::from(close)))),
                Some(b'"') => {
                    self.string()?;
                    continue;
                }
                Some(byte) if byte == open => depth += 1,
                Some(byte) if byte == close => depth = depth.saturating_sub(1),
                Some(_) => {}
            }
            self.bump();
            if depth == 0 {
                return Ok(());
            }
        }
    }
}
