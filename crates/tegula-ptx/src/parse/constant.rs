//! Constants: literals and constant expressions.
//!
//! Source: PTX ISA 9.0, "Constants". Where the manual is silent, the rules are those of `ptxas`.

use std::cmp::Ordering;

use super::Result;
use super::cursor::Cursor;
use super::token::{Kind, integer};

/// Largest depth of parentheses and unary operators in an expression.
const MAX_DEPTH: u32 = 32;

/// A constant. Integer expressions are evaluated in 64 bits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Constant {
    Signed(i64),
    Unsigned(u64),
    /// The bits of a single-precision number, which cannot be an operand of an operator.
    F32(u32),
    F64(f64),
}

/// The value of a number token; `None` if it is malformed or out of range.
fn literal(text: &str) -> Option<Constant> {
    let bits = |digits: usize| {
        let hexadecimal = text.get(2..)?;
        (hexadecimal.len() == digits).then(|| u64::from_str_radix(hexadecimal, 16).ok())?
    };
    match text.get(..2) {
        Some("0f" | "0F") => return bits(8).map(|bits| Constant::F32(bits as u32)),
        Some("0d" | "0D") => return bits(16).map(|bits| Constant::F64(f64::from_bits(bits))),
        _ => {}
    }
    if let Some(value) = integer(text) {
        let signed = if text.ends_with('U') { None } else { i64::try_from(value).ok() };
        return Some(signed.map_or(Constant::Unsigned(value), Constant::Signed));
    }
    let is_decimal = text.contains(['.', 'e', 'E']) && !text.starts_with("0x");
    let value: Option<f64> = if is_decimal { text.parse().ok() } else { None };
    value.filter(|value| value.is_finite()).map(Constant::F64)
}

/// Symbols that can begin an operand: unary operators, and the parenthesis.
const UNARY: [&str; 5] = ["-", "+", "~", "!", "("];

/// Binary operators with their precedence; those with larger numbers are applied first.
const OPERATORS: [(&str, u32); 18] = [
    ("||", 1),
    ("&&", 2),
    ("|", 3),
    ("^", 4),
    ("&", 5),
    ("==", 6),
    ("!=", 6),
    ("<", 7),
    (">", 7),
    ("<=", 7),
    (">=", 7),
    ("<<", 8),
    (">>", 8),
    ("+", 9),
    ("-", 9),
    ("*", 10),
    ("/", 10),
    ("%", 10),
];

impl Cursor<'_> {
    /// Parses a constant expression.
    pub fn constant(&mut self) -> Result<Constant> {
        self.conditional(0)
    }

    /// Parses a constant expression that must be an integer, and returns its 64 bits.
    pub fn integer_constant(&mut self, what: &str) -> Result<i64> {
        let start = self.token();
        match self.constant()? {
            Constant::Signed(value) => Ok(value),
            Constant::Unsigned(value) => Ok(value as i64),
            _ => Err(self.error_at(start, format!("{what} must be an integer"))),
        }
    }

    /// Whether the current token can begin a constant expression.
    pub fn begins_constant(&self) -> bool {
        match self.token().kind {
            Kind::Number | Kind::Word | Kind::Dotted => true,
            Kind::Symbol => UNARY.contains(&self.token().text),
            _ => false,
        }
    }

    fn conditional(&mut self, depth: u32) -> Result<Constant> {
        let start = self.token();
        let condition = self.binary(1, depth)?;
        if !self.is_symbol("?") {
            return Ok(condition);
        }
        let Some(condition) = condition.as_integer() else {
            return Err(self.error_at(start, "the condition must be an integer"));
        };
        self.deepen(depth)?;
        self.advance();
        let first = self.conditional(depth + 1)?;
        self.expect(":")?;
        let second = self.conditional(depth + 1)?;
        Ok(if condition.1 != 0 { first } else { second })
    }

    fn binary(&mut self, weakest: u32, depth: u32) -> Result<Constant> {
        let mut left = self.unary(depth)?;
        while self.is(Kind::Symbol) {
            let token = self.token();
            let Some(&(operator, precedence)) = OPERATORS.iter().find(|(operator, _)| *operator == token.text) else {
                break;
            };
            if precedence < weakest {
                break;
            }
            self.advance();
            let right = self.binary(precedence + 1, depth)?;
            left = apply(operator, left, right).map_err(|message| self.error_at(token, message))?;
        }
        Ok(left)
    }

    fn unary(&mut self, depth: u32) -> Result<Constant> {
        let token = self.token();
        if token.kind != Kind::Symbol || !UNARY.contains(&token.text) {
            return self.primary();
        }
        self.deepen(depth)?;
        self.advance();
        if token.text != "(" {
            let value = self.unary(depth + 1)?;
            return negate(token.text, value)
                .ok_or_else(|| self.error_at(token, format!("\"{}\" does not take this operand", token.text)));
        }
        let Some(cast) = self.eat_dotted() else {
            let value = self.conditional(depth + 1)?;
            self.expect(")")?;
            return Ok(value);
        };
        self.expect(")")?;
        match (cast, self.unary(depth + 1)?.as_integer()) {
            ("s64", Some((_, bits))) => Ok(Constant::Signed(bits)),
            ("u64", Some((_, bits))) => Ok(Constant::Unsigned(bits as u64)),
            _ => Err(self.error_at(token, "a cast must convert an integer to .s64 or .u64")),
        }
    }

    fn primary(&mut self) -> Result<Constant> {
        let token = self.token();
        let value = match token.kind {
            Kind::Number => literal(token.text),
            // `.5`
            Kind::Dotted if token.text.starts_with(|first: char| first.is_ascii_digit()) => {
                literal(&format!("0.{}", token.text))
            }
            Kind::Word if token.text == "WARP_SZ" => Some(Constant::Signed(32)),
            _ => return Err(self.unexpected("a number")),
        };
        let value = value.ok_or_else(|| self.unexpected("a well-formed number that fits in 64 bits"))?;
        self.advance();
        Ok(value)
    }

    fn deepen(&self, depth: u32) -> Result<()> {
        if depth < MAX_DEPTH {
            return Ok(());
        }
        Err(self.error(format!("a constant expression is nested deeper than {MAX_DEPTH}")))
    }
}

impl Constant {
    /// Whether it is signed, and its bits; `None` unless it is an integer.
    fn as_integer(self) -> Option<(bool, i64)> {
        match self {
            Constant::Signed(value) => Some((true, value)),
            Constant::Unsigned(value) => Some((false, value as i64)),
            _ => None,
        }
    }
}

/// Applies a unary operator; `None` if the operand has the wrong type.
fn negate(operator: &str, value: Constant) -> Option<Constant> {
    Some(match (operator, value) {
        ("+", Constant::Signed(_) | Constant::Unsigned(_) | Constant::F64(_)) => value,
        ("-", Constant::Signed(value)) => Constant::Signed(value.wrapping_neg()),
        ("-", Constant::Unsigned(value)) => Constant::Unsigned(value.wrapping_neg()),
        ("-", Constant::F64(value)) => Constant::F64(-value),
        ("~", value) => Constant::Unsigned(!value.as_integer()?.1 as u64),
        ("!", value) => Constant::Signed(i64::from(value.as_integer()?.1 == 0)),
        _ => return None,
    })
}

/// Applies a binary operator, or returns the reason why it cannot.
fn apply(operator: &str, left: Constant, right: Constant) -> std::result::Result<Constant, &'static str> {
    let truth = |value: bool| Ok(Constant::Signed(i64::from(value)));
    if let (Constant::F64(a), Constant::F64(b)) = (left, right) {
        return match operator {
            "+" => Ok(Constant::F64(a + b)),
            "-" => Ok(Constant::F64(a - b)),
            "*" => Ok(Constant::F64(a * b)),
            "/" => Ok(Constant::F64(a / b)),
            _ => match comparison(operator, a.partial_cmp(&b)) {
                Some(value) => truth(value),
                None => Err("this operator takes integers"),
            },
        };
    }
    let (Some((left_signed, a)), Some((right_signed, b))) = (left.as_integer(), right.as_integer()) else {
        return Err("the operands must both be integers, or both be decimal floating-point numbers");
    };
    let (unsigned_a, unsigned_b) = (a as u64, b as u64);
    let signed = left_signed && right_signed;
    let of = |signed: bool, bits: i64| if signed { Constant::Signed(bits) } else { Constant::Unsigned(bits as u64) };
    Ok(match operator {
        "+" => of(signed, a.wrapping_add(b)),
        "-" => of(signed, a.wrapping_sub(b)),
        "*" => of(signed, a.wrapping_mul(b)),
        "&" => of(signed, a & b),
        "|" => of(signed, a | b),
        "^" => of(signed, a ^ b),
        "/" | "%" if b == 0 => return Err("a constant expression divides by zero"),
        "/" if signed => Constant::Signed(a.wrapping_div(b)),
        "/" => Constant::Unsigned(unsigned_a / unsigned_b),
        "%" => Constant::Unsigned(unsigned_a % unsigned_b),
        // Shift counts are taken modulo 64. The result has the type of the left operand.
        "<<" => of(left_signed, a.wrapping_shl(b as u32)),
        ">>" if left_signed => Constant::Signed(a.wrapping_shr(b as u32)),
        ">>" => Constant::Unsigned(unsigned_a.wrapping_shr(b as u32)),
        "&&" => return truth(a != 0 && b != 0),
        "||" => return truth(a != 0 || b != 0),
        _ => {
            let order = if signed { a.cmp(&b) } else { unsigned_a.cmp(&unsigned_b) };
            return truth(comparison(operator, Some(order)).unwrap_or(false));
        }
    })
}

/// The result of a comparison; `None` if the operator is not a comparison.
fn comparison(operator: &str, order: Option<Ordering>) -> Option<bool> {
    Some(match operator {
        "==" => order == Some(Ordering::Equal),
        "!=" => order != Some(Ordering::Equal),
        "<" => order == Some(Ordering::Less),
        ">" => order == Some(Ordering::Greater),
        "<=" => matches!(order, Some(Ordering::Less | Ordering::Equal)),
        ">=" => matches!(order, Some(Ordering::Greater | Ordering::Equal)),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> Result<Constant> {
        let mut cursor = Cursor::new(text);
        let value = cursor.constant()?;
        assert!(cursor.is(Kind::End), "{text}");
        Ok(value)
    }

    #[test]
    fn literals_of_every_form_are_read() {
        for (text, expected) in [
            ("0", Constant::Signed(0)),
            ("0x1Fu".trim_end_matches('u'), Constant::Signed(31)),
            ("0XffU", Constant::Unsigned(255)),
            ("017", Constant::Signed(15)),
            ("0b101", Constant::Signed(5)),
            ("9223372036854775808", Constant::Unsigned(1 << 63)),
            ("0f3F800000", Constant::F32(0x3f80_0000)),
            ("0d3FF0000000000000", Constant::F64(1.0)),
            ("1.5e+2", Constant::F64(150.0)),
            ("1e5", Constant::F64(1e5)),
            ("5.", Constant::F64(5.0)),
            (".5", Constant::F64(0.5)),
            ("WARP_SZ", Constant::Signed(32)),
        ] {
            assert_eq!(value(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn literals_that_are_malformed_or_too_large_are_rejected() {
        for text in
            ["0x", "08", "0b12", "12u", "18446744073709551616", "0f3F80", "0f+F800000", "1e400", "1e", "0x1.5", "x"]
        {
            let mut cursor = Cursor::new(text);
            assert!(cursor.constant().is_err() || !cursor.is(Kind::End), "{text}");
        }
    }

    /// The values are those that `ptxas` stores.
    #[test]
    fn expressions_have_the_values_of_the_assembler() {
        for (text, bits) in [
            ("1 + 2 * 3 << 1 | 1 ^ 3 & 2", 15),
            ("1 == 1 < 2", 1),
            ("5 & 3 == 3", 1),
            ("1 || 0 && 0", 1),
            ("1 ? 2 : 0 ? 3 : 4", 2),
            ("- - 3", 3),
            ("-~3", 4),
            ("-7 / 2", -3),
            ("7 % -3", 7),
            ("-7 >> 1", -4),
            ("-7U >> 1", 0x7fff_ffff_ffff_fffc),
            ("1 << 65", 2),
            ("1 << -1", i64::MIN),
            ("-1 < 1U", 0),
            ("-1 < 1", 1),
            ("~0 >> 60", 15),
            ("(1 & 3) - 2 < 0", 1),
            ("(1U & 3) - 2 < 0", 0),
            ("(1 << 1U) - 4 < 0", 1),
            ("(1 ? -1 : 1U) < 0", 1),
            ("(.s64)0xFFFFFFFFFFFFFFFF / 2", 0),
            ("(.u64)-1 / 2", i64::MAX),
            ("-9223372036854775808 / -1", 0),
            ("1.0 < 2.0", 1),
        ] {
            assert_eq!(Cursor::new(text).integer_constant("x"), Ok(bits), "{text}");
        }
        assert_eq!(value("1.0 + -2.0 * 0.5"), Ok(Constant::F64(0.0)));
    }

    #[test]
    fn expressions_without_a_value_are_rejected() {
        for text in
            ["1 / 0", "5 % 0", "1.0 + 1", "1.5 && 1", "!1.0", "-0f3F800000", "0f3F800000 + 1.0", "(.s32)1", "1 +"]
        {
            assert!(value(text).is_err(), "{text}");
        }
        let error = value("2 * (3 / 0)").unwrap_err();
        assert_eq!((error.column, error.message.as_str()), (8, "a constant expression divides by zero"));
    }

    #[test]
    fn expressions_nested_deeply_are_rejected() {
        for nesting in ["(", "-", "1 ? ", "1 ? 2 : ", "(.s64)"] {
            let error = value(&nesting.repeat(10_000)).unwrap_err();
            assert!(error.message.contains("nested deeper"), "{nesting}: {error}");
        }
    }
}
