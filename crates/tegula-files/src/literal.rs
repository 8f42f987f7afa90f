//! Parser of Python literals, as in headers of `.npy` files.
//!
//! Supported are dictionaries, tuples, lists, strings, integers, `True`, `False` and `None`. The
//! parser is recursive descent with a fixed depth limit. The grammar is that of the Python
//! reference, chapter 2.4. String prefixes, character names, floats and operators do not occur in
//! headers and are left out.

use std::iter::Peekable;
use std::str::Chars;

/// Depth limit of brackets.
///
/// Plain arrays nest to depth two, structured arrays, which are rejected with a specific message, a
/// few levels deeper.
const MAX_DEPTH: usize = 16;

/// A literal.
#[derive(Debug, PartialEq, Eq)]
pub enum Value {
    Dict(Vec<(Value, Value)>),
    /// A tuple or a list.
    Sequence(Vec<Value>),
    String(String),
    /// Sign and digits, of any number.
    Integer(String),
    Boolean(bool),
    None,
}

impl Value {
    /// Parses a text with optional surrounding spaces; `None` if it is not a literal.
    pub fn parse(text: &str) -> Option<Value> {
        let mut parser = Parser(text.chars().peekable());
        let value = parser.value(0)?;
        parser.skip_space();
        parser.0.next().is_none().then_some(value)
    }
}

struct Parser<'a>(Peekable<Chars<'a>>);

impl Parser<'_> {
    fn skip_space(&mut self) {
        while self.0.next_if(char::is_ascii_whitespace).is_some() {}
    }

    /// Skips spaces, and consumes `wanted` if it is next.
    fn takes(&mut self, wanted: char) -> bool {
        self.skip_space();
        self.0.next_if_eq(&wanted).is_some()
    }

    fn value(&mut self, depth: usize) -> Option<Value> {
        self.skip_space();
        match *self.0.peek()? {
            _ if depth >= MAX_DEPTH => None,
            '{' => self.items('{', '}', |parser| parser.pair(depth + 1)).map(|(pairs, _)| Value::Dict(pairs)),
            '[' => self.items('[', ']', |parser| parser.value(depth + 1)).map(|(items, _)| Value::Sequence(items)),
            '(' => {
                let (mut items, comma) = self.items('(', ')', |parser| parser.value(depth + 1))?;
                // Parentheses around one value without a comma are not a tuple.
                if items.len() == 1 && !comma { items.pop() } else { Some(Value::Sequence(items)) }
            }
            '\'' | '"' => self.string().map(Value::String),
            '-' | '+' | '0'..='9' => self.integer().map(Value::Integer),
            _ => self.word(),
        }
    }

    /// Parses items between brackets; returns whether a comma follows the last one.
    fn items<T>(
        &mut self,
        open: char,
        close: char,
        mut item: impl FnMut(&mut Self) -> Option<T>,
    ) -> Option<(Vec<T>, bool)> {
        let (mut items, mut comma) = (Vec::new(), true);
        if !self.takes(open) {
            return None;
        }
        while !self.takes(close) {
            if !comma {
                return None;
            }
            items.push(item(self)?);
            comma = self.takes(',');
        }
        Some((items, comma))
    }

    fn pair(&mut self, depth: usize) -> Option<(Value, Value)> {
        let key = self.value(depth)?;
        if !self.takes(':') {
            return None;
        }
        Some((key, self.value(depth)?))
    }

    fn string(&mut self) -> Option<String> {
        let (quote, mut text) = (self.0.next()?, String::new());
        loop {
            match self.0.next()? {
                c if c == quote => return Some(text),
                '\n' => return None,
                '\\' => text.extend(self.escape()?),
                c => text.push(c),
            }
        }
    }

    /// Parses an escape sequence. As in Python, a backslash before other characters is kept.
    fn escape(&mut self) -> Option<impl Iterator<Item = char> + use<>> {
        let c = self.0.next()?;
        let (before, one) = match c {
            '\\' | '\'' | '"' => (None, c),
            'a' => (None, '\x07'),
            'b' => (None, '\x08'),
            'f' => (None, '\x0c'),
            'n' => (None, '\n'),
            'v' => (None, '\x0b'),
            't' => (None, '\t'),
            'r' => (None, '\r'),
            'x' => (None, self.hexadecimal(2)?),
            'u' => (None, self.hexadecimal(4)?),
            'U' => (None, self.hexadecimal(8)?),
            'N' | '\n' | '0'..='7' => return None,
            _ => (Some('\\'), c),
        };
        Some(before.into_iter().chain([one]))
    }

    fn hexadecimal(&mut self, digits: usize) -> Option<char> {
        let digit = |parser: &mut Self| parser.0.next()?.to_digit(16);
        let code = (0..digits).try_fold(0u32, |code, _| Some(code.checked_mul(16)? + digit(self)?));
        code.and_then(char::from_u32)
    }

    /// Parses an integer; Python 2 appended an `L` to long ones.
    fn integer(&mut self) -> Option<String> {
        let mut text: String = self.0.next_if(|c| matches!(c, '-' | '+')).into_iter().collect();
        let signs = text.len();
        text.extend(std::iter::from_fn(|| self.0.next_if(char::is_ascii_digit)));
        self.0.next_if_eq(&'L');
        (text.len() > signs).then_some(text)
    }

    fn word(&mut self) -> Option<Value> {
        let word: String = std::iter::from_fn(|| self.0.next_if(char::is_ascii_alphanumeric)).collect();
        match word.as_str() {
            "True" => Some(Value::Boolean(true)),
            "False" => Some(Value::Boolean(false)),
            "None" => Some(Value::None),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn integer(digits: &str) -> Value {
        Value::Integer(digits.into())
    }

    fn string(text: &str) -> Value {
        Value::String(text.into())
    }

    #[test]
    fn literal_is_parsed_as_in_python() {
        let two = || vec![integer("1"), integer("-2")];
        for (text, value) in [
            (" 12 ", integer("12")),
            ("12L", integer("12")),
            ("(12)", integer("12")),
            ("(12,)", Value::Sequence(vec![integer("12")])),
            ("()", Value::Sequence(vec![])),
            ("(1, -2)", Value::Sequence(two())),
            ("[1,-2,]", Value::Sequence(two())),
            ("{}", Value::Dict(vec![])),
            (
                "{'a': True, 'b': None,\n}",
                Value::Dict(vec![(string("a"), Value::Boolean(true)), (string("b"), Value::None)]),
            ),
            (r#""it's""#, string("it's")),
            (r"'it\'s\\\n\x41\u00e9\d'", string("it's\\\nAé\\d")),
        ] {
            assert_eq!(Value::parse(text), Some(value), "{text}");
        }
    }

    #[test]
    fn literal_other_text_is_rejected() {
        for text in [
            "",
            "(,)",
            "(1 2)",
            "[1",
            "{1}",
            "{1: }",
            "'a",
            "'a\nb'",
            r"'\x4'",
            r"'\ud800'",
            r"'\N{DASH}'",
            "-",
            "1 2",
            "true",
            "1.5",
        ] {
            assert_eq!(Value::parse(text), None, "{text}");
        }
        let nested = |depth| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(Value::parse(&nested(16)).is_some());
        for depth in [17, 1_000_000] {
            assert_eq!(Value::parse(&nested(depth)), None);
        }
    }
}
