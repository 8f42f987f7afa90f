//! Arithmetic on facts, and number formats.

use super::facts::Value;
use super::{ErrorKind, Result, syntax};

/// Returns a fact by subject and name.
pub(super) type Facts<'a> = dyn Fn(&str, &str) -> Result<Value> + 'a;

const EXPECTED: &str = "take numbers, NAME.FACT, + - * / and parentheses";
/// The limit of nested parentheses.
const MAX_DEPTH: u32 = 16;

/// The value of an expression; only a single fact can be a text.
pub(super) fn evaluate(text: &str, facts: &Facts<'_>) -> Result<Value> {
    let mut parser = Parser { text, rest: text.trim(), facts, depth: 0 };
    let value = parser.sum()?;
    if !parser.rest.is_empty() {
        return syntax(text, EXPECTED);
    }
    match value {
        Value::Number(number) if !number.is_finite() => Err(ErrorKind::NotANumber(text.trim().into())),
        value => Ok(value),
    }
}

/// The number of an expression.
pub(super) fn number(text: &str, facts: &Facts<'_>) -> Result<f64> {
    of_number(evaluate(text, facts)?, text)
}

fn of_number(value: Value, text: &str) -> Result<f64> {
    match value {
        Value::Number(number) => Ok(number),
        Value::Text(_) => Err(ErrorKind::NotANumber(text.trim().into())),
    }
}

struct Parser<'a> {
    text: &'a str,
    rest: &'a str,
    facts: &'a Facts<'a>,
    depth: u32,
}

impl<'a> Parser<'a> {
    /// Consumes the next character if it is one of `signs`.
    fn sign(&mut self, signs: &[char]) -> Option<char> {
        let sign = self.rest.chars().next().filter(|c| signs.contains(c))?;
        self.rest = self.rest[sign.len_utf8()..].trim_start();
        Some(sign)
    }

    /// Consumes the longest prefix of matching characters.
    fn word(&mut self, matches: impl Fn(char) -> bool) -> &'a str {
        let end = self.rest.find(|c| !matches(c)).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        word
    }

    fn sum(&mut self) -> Result<Value> {
        let mut left = self.product()?;
        while let Some(sign) = self.sign(&['+', '-']) {
            let right = self.product()?;
            left = self.apply(left, right, |a, b| if sign == '+' { a + b } else { a - b })?;
        }
        Ok(left)
    }

    fn product(&mut self) -> Result<Value> {
        let mut left = self.term()?;
        while let Some(sign) = self.sign(&['*', '/']) {
            let right = self.term()?;
            left = self.apply(left, right, |a, b| if sign == '*' { a * b } else { a / b })?;
        }
        Ok(left)
    }

    fn apply(&self, left: Value, right: Value, of: impl Fn(f64, f64) -> f64) -> Result<Value> {
        Ok(Value::Number(of(of_number(left, self.text)?, of_number(right, self.text)?)))
    }

    fn term(&mut self) -> Result<Value> {
        let value = if self.sign(&['(']).is_some() {
            self.depth += 1;
            if self.depth > MAX_DEPTH {
                return syntax(self.text, EXPECTED);
            }
            let value = self.sum()?;
            self.depth -= 1;
            if self.sign(&[')']).is_none() {
                return syntax(self.text, EXPECTED);
            }
            value
        } else if self.rest.starts_with(|c: char| c.is_ascii_digit()) {
            match self.word(|c| c.is_ascii_digit() || c == '.').parse() {
                Ok(number) => Value::Number(number),
                Err(_) => return syntax(self.text, EXPECTED),
            }
        } else {
            let name = self.word(|c| c.is_ascii_alphanumeric() || c == '_');
            let Some(rest) = self.rest.strip_prefix('.').filter(|_| !name.is_empty()) else {
                return syntax(self.text, EXPECTED);
            };
            self.rest = rest;
            (self.facts)(name, self.word(|c| c.is_ascii_alphanumeric() || c == '_'))?
        };
        self.rest = self.rest.trim_start();
        Ok(value)
    }
}

/// Formats a number: integers with commas, others to three digits or the given decimals.
pub(super) fn format_number(number: f64, decimals: Option<usize>) -> String {
    let whole = number.fract() == 0.0 && number.abs() < 1e15;
    let digits = match decimals {
        Some(decimals) => decimals,
        None if whole => 0,
        None => (2.0 - number.abs().log10().floor()).clamp(0.0, 9.0) as usize,
    };
    let text = format!("{:.digits$}", number.abs());
    let (integer, fraction) = text.split_once('.').unwrap_or((&text, ""));
    // Trailing zeros are kept only with explicit decimals.
    let fraction = if decimals.is_none() { fraction.trim_end_matches('0') } else { fraction };
    let grouped: String = integer
        .char_indices()
        .flat_map(|(at, digit)| [(at > 0 && (integer.len() - at) % 3 == 0).then_some(','), Some(digit)])
        .flatten()
        .collect();
    let sign = if number < 0.0 { "−" } else { "" };
    let point = if fraction.is_empty() { "" } else { "." };
    format!("{sign}{grouped}{point}{fraction}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(name: &str, fact: &str) -> Result<Value> {
        match (name, fact) {
            ("a", "x") => Ok(Value::Number(6.0)),
            ("a", "1") => Ok(Value::Number(0.5)),
            ("a", "word") => Ok(Value::Text("six".into())),
            _ => Err(ErrorKind::UnknownName(name.into())),
        }
    }

    #[test]
    fn arithmetic_follows_precedence() {
        let of = |text| number(text, &facts).unwrap();
        assert_eq!([of("1 + 2*3"), of("(1 + 2) * a.x"), of("a.x / 2 / 3 - a.1")], [7.0, 18.0, 0.5]);
        assert!(matches!(evaluate("a.word", &facts), Ok(Value::Text(text)) if text == "six"));
    }

    #[test]
    fn invalid_expression_is_rejected() {
        let nested = "(".repeat(100_000);
        for invalid in ["", "1 +", "a", "a.x b", "(1", "1.2.3", "{", "é", "1 / 0", "a.word + 1", "b.x", &nested] {
            assert!(evaluate(invalid, &facts).is_err(), "{invalid}");
        }
    }

    #[test]
    fn format_number_rounds_to_three_digits() {
        let of = |number| format_number(number, None);
        let numbers = [0.0, 12.0, 1234567.0, 2.5, 1.0 / 3.0, 51.99, 1234.56, -0.00123456];
        assert_eq!(numbers.map(of), ["0", "12", "1,234,567", "2.5", "0.333", "52", "1,235", "−0.00123"]);
        assert_eq!(
            [format_number(2.5, Some(2)), format_number(1234.5, Some(0)), format_number(7.0, Some(1))],
            ["2.50", "1,234", "7.0"]
        );
    }
}
