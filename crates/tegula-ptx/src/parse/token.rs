//! Tokens of PTX text.

/// The kind of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A name or an opcode: `%r1`, `$L_2`, `ld`.
    Word,
    /// A directive or a modifier, which begins with a dot: `.reg`, `.shared::cta`, `.8x8`.
    Dotted,
    /// A number, without sign.
    Number,
    /// A string in quotes.
    Quoted,
    /// Punctuation or an operator.
    Symbol,
    /// A character that begins no token.
    Unknown,
    /// A comment or a string without an end.
    Unterminated,
    /// The end of the text.
    End,
}

/// A token.
#[derive(Clone, Copy, Debug)]
pub(super) struct Token<'a> {
    pub kind: Kind,
    /// The text, without the dot of a [`Kind::Dotted`], with the quotes of a [`Kind::Quoted`].
    pub text: &'a str,
    /// Offset of its first byte in the text of the module.
    pub at: usize,
    /// Line, from 1.
    pub line: u32,
}

const SYMBOLS: &[u8] = b"{}()[],;:@!|&^~+-*/%<>=?";
const LONG_SYMBOLS: [&[u8]; 8] = [b"<<", b">>", b"<=", b">=", b"==", b"!=", b"&&", b"||"];

/// Splits a text into tokens.
#[derive(Clone, Debug)]
pub(super) struct Lexer<'a> {
    text: &'a str,
    at: usize,
    line: u32,
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$')
}

impl<'a> Lexer<'a> {
    pub fn new(text: &'a str) -> Self {
        Lexer { text, at: 0, line: 1 }
    }

    /// Column of a byte, from 1.
    pub fn column(&self, at: usize) -> u32 {
        let before = self.text.get(..at).unwrap_or(self.text);
        let line = before.rsplit('\n').next().unwrap_or("");
        line.chars().count() as u32 + 1
    }

    /// The next token. At the end of the text, it is always [`Kind::End`].
    pub fn token(&mut self) -> Token<'a> {
        let terminated = self.skip_blank();
        let (at, line) = (self.at, self.line);
        let kind = if terminated { self.scan() } else { Kind::Unterminated };
        let start = at + usize::from(kind == Kind::Dotted);
        Token { kind, text: self.text.get(start..self.at).unwrap_or(""), at, line }
    }

    /// Advances past a token, and returns its kind.
    fn scan(&mut self) -> Kind {
        let Some(first) = self.byte(0) else { return Kind::End };
        let second = self.byte(1).unwrap_or(0);
        match first {
            b'%' if !is_word(second) => self.pass(1, Kind::Symbol),
            b'a'..=b'z' | b'A'..=b'Z' | b'_' | b'$' | b'%' => {
                self.at += 1;
                self.pass_while(is_word, Kind::Word)
            }
            b'.' if is_word(second) => {
                self.at += 1;
                self.pass_while(is_word, Kind::Dotted);
                while self.rest().starts_with(b"::") && self.byte(2).is_some_and(is_word) {
                    self.at += 2;
                    self.pass_while(is_word, Kind::Dotted);
                    // `.sp::2:4`
                    if self.byte(0) == Some(b':') && self.byte(1).is_some_and(|byte| byte.is_ascii_digit()) {
                        self.at += 1;
                        self.pass_while(is_word, Kind::Dotted);
                    }
                }
                Kind::Dotted
            }
            b'0'..=b'9' => self.number(),
            b'"' => self.quoted(),
            _ if LONG_SYMBOLS.contains(&[first, second].as_slice()) => self.pass(2, Kind::Symbol),
            _ if SYMBOLS.contains(&first) => self.pass(1, Kind::Symbol),
            _ => {
                let length = self.text.get(self.at..).and_then(|rest| rest.chars().next()).map_or(1, char::len_utf8);
                self.pass(length, Kind::Unknown)
            }
        }
    }

    /// Scans an integer with its prefix and suffix, `0f…`, `0d…`, or a decimal number.
    fn number(&mut self) -> Kind {
        let start = self.at;
        self.pass_while(is_word, Kind::Number);
        let bytes = self.text.as_bytes();
        let is_decimal = |end: usize| {
            bytes
                .get(start..end)
                .is_some_and(|text| text.iter().all(|byte| byte.is_ascii_digit() || matches!(byte, b'e' | b'E')))
        };
        if !is_decimal(self.at) {
            return Kind::Number;
        }
        if self.byte(0) == Some(b'.') {
            self.at += 1;
            self.pass_while(is_word, Kind::Number);
        }
        if matches!(bytes.get(self.at - 1), Some(b'e' | b'E')) && matches!(self.byte(0), Some(b'+' | b'-')) {
            self.at += 1;
            self.pass_while(is_word, Kind::Number);
        }
        Kind::Number
    }

    /// Scans a string on one line, up to its closing quote. A backslash escapes a quote.
    fn quoted(&mut self) -> Kind {
        self.at += 1;
        loop {
            match self.byte(0) {
                None | Some(b'\n') => return Kind::Unterminated,
                Some(b'"') => return self.pass(1, Kind::Quoted),
                Some(b'\\') if self.byte(1).is_some_and(|byte| byte != b'\n') => self.at += 2,
                Some(_) => self.at += 1,
            }
        }
    }

    /// Skips white space, comments and preprocessor lines. Returns false at an unterminated
    /// comment.
    fn skip_blank(&mut self) -> bool {
        loop {
            match (self.byte(0), self.byte(1)) {
                (Some(b'\n'), _) => {
                    self.line += 1;
                    self.at += 1;
                }
                (Some(b' ' | b'\t' | b'\r' | 0x0b | 0x0c | 0), _) => self.at += 1,
                (Some(b'/'), Some(b'/')) => {
                    self.pass_while(|byte| byte != b'\n', Kind::End);
                }
                (Some(b'#'), _) if self.column(self.at) == 1 => {
                    self.pass_while(|byte| byte != b'\n', Kind::End);
                }
                (Some(b'/'), Some(b'*')) => {
                    let comment = self.rest();
                    let Some(length) = comment[2..].windows(2).position(|pair| pair == b"*/") else {
                        return false;
                    };
                    self.line += comment[..length + 2].iter().filter(|&&byte| byte == b'\n').count() as u32;
                    self.at += length + 4;
                }
                _ => return true,
            }
        }
    }

    /// The bytes from the current position to the end.
    fn rest(&self) -> &'a [u8] {
        self.text.as_bytes().get(self.at..).unwrap_or(&[])
    }

    fn byte(&self, ahead: usize) -> Option<u8> {
        self.text.as_bytes().get(self.at + ahead).copied()
    }

    fn pass(&mut self, bytes: usize, kind: Kind) -> Kind {
        self.at += bytes;
        kind
    }

    fn pass_while(&mut self, condition: impl Fn(u8) -> bool, kind: Kind) -> Kind {
        let rest = self.rest();
        self.at += rest.iter().position(|&byte| !condition(byte)).unwrap_or(rest.len());
        kind
    }
}

/// The value of an integer literal: decimal, hexadecimal, octal or binary, with an optional `U`.
pub(super) fn integer(text: &str) -> Option<u64> {
    let text = text.strip_suffix('U').unwrap_or(text);
    let (radix, digits) = match text.get(..2) {
        Some("0x" | "0X") => (16, &text[2..]),
        Some("0b" | "0B") => (2, &text[2..]),
        Some(_) if text.starts_with('0') => (8, text),
        _ => (10, text),
    };
    u64::from_str_radix(digits, radix).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(text: &str) -> Vec<(Kind, &str)> {
        let mut lexer = Lexer::new(text);
        let tokens = std::iter::from_fn(|| Some(lexer.token()).filter(|token| token.kind != Kind::End));
        tokens.take(100).map(|token| (token.kind, token.text)).collect()
    }

    #[test]
    fn words_keep_what_belongs_to_them() {
        use Kind::*;
        let expected = [(Word, "ld"), (Dotted, "global"), (Dotted, "L2::128B"), (Word, "%rd1"), (Symbol, ";")];
        assert_eq!(tokens("ld.global.L2::128B %rd1;"), expected);
        assert_eq!(tokens("$L__BB0_2: _"), [(Word, "$L__BB0_2"), (Symbol, ":"), (Word, "_")]);
        assert_eq!(tokens(".sp::2:4 .x:5"), [(Dotted, "sp::2:4"), (Dotted, "x"), (Symbol, ":"), (Number, "5")]);
        assert_eq!(tokens("7 % 5%r"), [(Number, "7"), (Symbol, "%"), (Number, "5"), (Word, "%r")]);
    }

    #[test]
    fn numbers_end_where_their_form_does() {
        use Kind::*;
        assert_eq!(tokens("8.5 1e+5-2"), [(Number, "8.5"), (Number, "1e+5"), (Symbol, "-"), (Number, "2")]);
        assert_eq!(tokens("0x1E+2"), [(Number, "0x1E"), (Symbol, "+"), (Number, "2")]);
        assert_eq!(tokens("5.;.5"), [(Number, "5."), (Symbol, ";"), (Dotted, "5")]);
    }

    #[test]
    fn space_and_comments_are_passed_with_their_lines() {
        let mut lexer = Lexer::new("\n#line 5\n a // b\n/* c\n\n*/\r\n\td");
        let (first, second) = (lexer.token(), lexer.token());
        assert_eq!((first.text, first.line, lexer.column(first.at)), ("a", 3, 2));
        assert_eq!((second.text, second.line, lexer.column(second.at)), ("d", 7, 2));
        assert_eq!(lexer.token().kind, Kind::End);
        assert_eq!(lexer.token().kind, Kind::End);
    }

    #[test]
    fn broken_tokens_are_marked() {
        use Kind::*;
        assert_eq!(tokens("é # `"), [(Unknown, "é"), (Unknown, "#"), (Unknown, "`")]);
        assert_eq!(tokens(r#""a\"b" "c"#), [(Quoted, r#""a\"b""#), (Unterminated, "\"c")]);
        assert_eq!(tokens("\"a\\")[0].0, Unterminated);
        // The position stays where the comment begins.
        assert_eq!(tokens("a /* b").len(), 100);
        assert_eq!(tokens("/*/")[0].0, Unterminated);
    }
}
