//! Constants: literals and constant expressions.

use super::Result;
use super::cursor::Cursor;

/// Largest depth of parentheses.
const MAX_DEPTH: u32 = 32;

/// A constant.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Constant {
    Integer(i64),
    F32(u32),
    F64(u64),
}

/// The value of an integer literal: decimal, hexadecimal, octal or binary, with an optional `U`.
pub(super) fn integer(text: &str) -> Option<u64> {
    let text = text.strip_suffix(['U', 'u']).unwrap_or(text);
    let digits = |prefixes: [&str; 2]| prefixes.iter().find_map(|prefix| text.strip_prefix(prefix));
    if let Some(hex) = digits(["0x", "0X"]) {
        return u64::from_str_radix(hex, 16).ok();
    }
    if let Some(binary) = digits(["0b", "0B"]) {
        return u64::from_str_radix(binary, 2).ok();
    }
    match text.strip_prefix('0') {
        Some(octal) if !octal.is_empty() => u64::from_str_radix(octal, 8).ok(),
        _ => text.parse().ok(),
    }
}

fn literal(text: &str) -> Option<Constant> {
    let bits = |prefixes: [&str; 2], digits: usize| {
        let hex = prefixes.iter().find_map(|prefix| text.strip_prefix(prefix))?;
        (hex.len() == digits).then(|| u64::from_str_radix(hex, 16).ok())?
    };
    if let Some(bits) = bits(["0f", "0F"], 8) {
        return Some(Constant::F32(bits as u32));
    }
    if let Some(bits) = bits(["0d", "0D"], 16) {
        return Some(Constant::F64(bits));
    }
    if let Some(value) = integer(text) {
        return Some(Constant::Integer(value as i64));
    }
    let is_decimal = text.contains(['.', 'e', 'E']) && text.starts_with(|c: char| c.is_ascii_digit());
    is_decimal.then(|| text.parse::<f64>().ok()).flatten().map(|value| Constant::F64(value.to_bits()))
}

/// Binary operators by precedence, loosest first.
const OPERATORS: [&[&str]; 10] = [
    &["||"],
    &["&&"],
    &["|"],
    &["^"],
    &["&"],
    &["==", "!="],
    &["<=", ">=", "<", ">"],
    &["<<", ">>"],
    &["+", "-"],
    &["*", "/", "%"],
];

impl Cursor<'_> {
    /// A constant expression.
    pub fn constant(&mut self) -> Result<Constant> {
        self.conditional(0)
    }

    fn conditional(&mut self, depth: u32) -> Result<Constant> {
        let condition = self.binary(0, depth)?;
        if !self.eat("?") {
            return Ok(condition);
        }
        let first = self.deeper(depth, Self::conditional)?;
        self.expect(":")?;
        let second = self.deeper(depth, Self::conditional)?;
        Ok(if condition == Constant::Integer(0) { second } else { first })
    }

    fn deeper(&mut self, depth: u32, parse: impl Fn(&mut Self, u32) -> Result<Constant>) -> Result<Constant> {
        if depth >= MAX_DEPTH {
            return Err(self.error("a constant expression is nested too deeply"));
        }
        parse(self, depth + 1)
    }

    fn binary(&mut self, level: usize, depth: u32) -> Result<Constant> {
        let Some(operators) = OPERATORS.get(level) else { return self.unary(depth) };
        let mut value = self.binary(level + 1, depth)?;
        loop {
            let start = self.position();
            let Some(&operator) = operators.iter().find(|operator| self.eat(operator)) else { return Ok(value) };
            // `|` of `p|q` and `&&` are not this operator; neither is `<` of `<<`.
            if matches!((operator, self.peek()), ("|", Some(b'|')) | ("&", Some(b'&')) | ("<", Some(b'<')) | (">", Some(b'>'))) {
                self.reset(start);
                return Ok(value);
            }
            let right = self.binary(level + 1, depth)?;
            value = self.apply(operator, value, right)?;
        }
    }

    fn apply(&self, operator: &str, left: Constant, right: Constant) -> Result<Constant> {
        if let (Constant::F64(a), Constant::F64(b)) = (left, right) {
            let (a, b) = (f64::from_bits(a), f64::from_bits(b));
            let value = match operator {
                "+" => a + b,
                "-" => a - b,
                "*" => a * b,
                "/" => a / b,
                _ => return Err(self.error("this operator needs integers")),
            };
            return Ok(Constant::F64(value.to_bits()));
        }
        let (Constant::Integer(a), Constant::Integer(b)) = (left, right) else {
            return Err(self.error("operands of a constant expression have different types"));
        };
        let shift = b.clamp(0, 63) as u32;
        let value = match operator {
            "+" => a.wrapping_add(b),
            "-" => a.wrapping_sub(b),
            "*" => a.wrapping_mul(b),
            "/" | "%" if b == 0 => return Err(self.error("a constant expression divides by zero")),
            "/" => a.wrapping_div(b),
            "%" => a.wrapping_rem(b),
            "<<" => a << shift,
            ">>" => a >> shift,
            "&" => a & b,
            "|" => a | b,
            "^" => a ^ b,
            "==" => i64::from(a == b),
            "!=" => i64::from(a != b),
            "<" => i64::from(a < b),
            "<=" => i64::from(a <= b),
            ">" => i64::from(a > b),
            ">=" => i64::from(a >= b),
            "&&" => i64::from(a != 0 && b != 0),
            _ => i64::from(a != 0 || b != 0),
        };
        Ok(Constant::Integer(value))
    }

    fn unary(&mut self, depth: u32) -> Result<Constant> {
        for operator in ["-", "+", "~", "!"] {
            if self.eat(operator) {
                let value = self.deeper(depth, Self::unary)?;
                return Ok(match (operator, value) {
                    ("-", Constant::Integer(value)) => Constant::Integer(value.wrapping_neg()),
                    ("-", Constant::F32(bits)) => Constant::F32(bits ^ 1 << 31),
                    ("-", Constant::F64(bits)) => Constant::F64(bits ^ 1 << 63),
                    ("~", Constant::Integer(value)) => Constant::Integer(!value),
                    ("!", Constant::Integer(value)) => Constant::Integer(i64::from(value == 0)),
                    (_, value) => value,
                });
            }
        }
        if self.eat("(") {
            if self.eat(".") {
                // A cast to `.s64` or `.u64`.
                self.word()?;
                self.expect(")")?;
                return self.deeper(depth, Self::unary);
            }
            let value = self.deeper(depth, Self::conditional)?;
            self.expect(")")?;
            return Ok(value);
        }
        let start = self.position();
        let text = self.number_text();
        let value = literal(text);
        if value.is_none() && text == "WARP" {
            // `WARP_SZ` is a name with a value.
            self.reset(start);
            if self.word()? == "WARP_SZ" {
                return Ok(Constant::Integer(32));
            }
        }
        value.ok_or_else(|| {
            self.reset(start);
            self.expected("a number")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> Constant {
        Cursor::new(text).constant().unwrap()
    }

    #[test]
    fn constant_expressions_follow_c() {
        assert_eq!(value("1 + 2 * 3 << 1"), Constant::Integer(14));
        assert_eq!(value("-(4 - 6) == 2 ? 0x10 : 017"), Constant::Integer(16));
        assert_eq!(value("0b101U"), Constant::Integer(5));
        assert_eq!(value("0xffffffffffffffff"), Constant::Integer(-1));
        assert_eq!(value("-0f3F800000"), Constant::F32(0xbf80_0000));
        assert_eq!(value("1.5e2"), Constant::F64(150f64.to_bits()));
        assert_eq!(value("(.s64)WARP_SZ / 2"), Constant::Integer(16));
        assert!(Cursor::new("1 / 0").constant().is_err());
    }
}
