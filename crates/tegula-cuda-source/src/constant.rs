//! Constant expressions: in `#if`, in template arguments, and in `<<<grid, block>>>`.

use super::token::{Kind, Token, close, close_angle, split};
use super::types;

/// A constant.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Value {
    Integer(i64),
    Real(f64),
    /// A `dim3`; omitted axes are 1.
    Dim([i64; 3]),
}

impl Value {
    fn real(self) -> Option<f64> {
        match self {
            Value::Integer(value) => Some(value as f64),
            Value::Real(value) => Some(value),
            Value::Dim(_) => None,
        }
    }

    pub(super) fn integer(self) -> Option<i64> {
        match self {
            Value::Integer(value) => Some(value),
            // An integer that is initialized with a floating-point number truncates it.
            Value::Real(value) if value.abs() < 9e18 => Some(value as i64),
            _ => None,
        }
    }

    fn is_true(self) -> Option<bool> {
        self.real().map(|value| value != 0.0)
    }
}

/// Resolves the names in an expression.
pub(super) trait Names {
    /// The value of a variable.
    fn value(&self, name: &str) -> Option<Value>;

    /// The value of a call.
    fn call(&self, _name: &str, _arguments: &[Option<Value>], _depth: u32) -> Option<Value> {
        None
    }

    /// The size of a type in bytes.
    fn size_of(&self, ty: &[Token]) -> Option<i64> {
        types::size_of(ty)
    }
}

/// Names in `#if`: a name that is not a macro is 0.
pub(super) struct Zero;

impl Names for Zero {
    fn value(&self, name: &str) -> Option<Value> {
        Some(Value::Integer(i64::from(name == "true")))
    }
}

/// Maximum nesting depth; a deeper expression is treated as not constant.
const DEPTH: u32 = 64;

/// Evaluates an expression; `None` if it is not constant.
pub(super) fn evaluate(tokens: &[Token], names: &dyn Names) -> Option<Value> {
    evaluate_at(tokens, names, 0)
}

/// [`evaluate`] at a nesting depth.
pub(super) fn evaluate_at(tokens: &[Token], names: &dyn Names, depth: u32) -> Option<Value> {
    let mut parser = Parser { tokens, at: 0, names, depth };
    let value = parser.ternary()?;
    (parser.at == tokens.len()).then_some(value)
}

/// Binary operators by precedence, lowest first.
const BINARY: [&[&str]; 10] = [
    &["||"],
    &["&&"],
    &["|"],
    &["^"],
    &["&"],
    &["==", "!="],
    &["<", ">", "<=", ">="],
    &["<<", ">>"],
    &["+", "-"],
    &["*", "/", "%"],
];

struct Parser<'a> {
    tokens: &'a [Token],
    at: usize,
    names: &'a dyn Names,
    depth: u32,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<&'a Token> {
        self.tokens.get(self.at)
    }

    /// The tokens between the current bracket and its closing bracket; advances past the latter.
    fn group(&mut self) -> Option<&'a [Token]> {
        let end = close(self.tokens, self.at, self.tokens.len());
        let inner = self.tokens.get(self.at + 1..end.checked_sub(1)?)?;
        self.at = end;
        Some(inner)
    }

    fn ternary(&mut self) -> Option<Value> {
        self.depth += 1;
        if self.depth > DEPTH {
            return None;
        }
        let start = self.at;
        let condition = self.binary(0);
        let question = match condition {
            Some(_) => self.at,
            None => self.find("?", start)?,
        };
        if !self.tokens.get(question).is_some_and(|t| t.is("?")) {
            self.depth -= 1;
            return condition;
        }
        let colon = self.find(":", question + 1)?;
        let yes = self.tokens.get(question + 1..colon)?;
        let no = self.tokens.get(colon + 1..)?;
        self.at = self.tokens.len();
        let chosen = match condition.and_then(Value::is_true) {
            Some(true) => yes,
            Some(false) => no,
            // Unknown condition: the branch without `argv` is taken, as it has the default value.
            None if mentions_arguments(yes) => no,
            None if mentions_arguments(no) => yes,
            None => return None,
        };
        self.depth -= 1;
        evaluate_at(chosen, self.names, self.depth)
    }

    /// The position of the next token `text`, outside of brackets and nested conditionals.
    fn find(&self, text: &str, from: usize) -> Option<usize> {
        let (mut i, mut nested) = (from, 0);
        while let Some(token) = self.tokens.get(i) {
            if token.is("(") || token.is("[") || token.is("{") {
                i = close(self.tokens, i, self.tokens.len());
                continue;
            }
            if token.is(text) && nested == 0 {
                return Some(i);
            }
            nested += usize::from(token.is("?"));
            nested = nested.saturating_sub(usize::from(token.is(":")));
            i += 1;
        }
        None
    }

    fn operator(&self, level: usize) -> Option<(&'static str, usize)> {
        let token = self.peek()?;
        let next = self.tokens.get(self.at + 1);
        let next_glued = |text: &str| next.is_some_and(|t| t.glued && t.is(text));
        // The lexer splits `>=` and `>>`, so they are joined here.
        let (text, length) = match &*token.text {
            ">" if next_glued(">") => (">>", 2),
            ">" if next_glued("=") => (">=", 2),
            text => (text, 1),
        };
        if token.kind != Kind::Operator {
            return None;
        }
        let known = BINARY.get(level)?.iter().find(|o| **o == text)?;
        Some((known, length))
    }

    fn binary(&mut self, level: usize) -> Option<Value> {
        if level == BINARY.len() {
            return self.unary();
        }
        let mut left = self.binary(level + 1)?;
        while let Some((operator, length)) = self.operator(level) {
            self.at += length;
            let right = self.binary(level + 1)?;
            left = apply(operator, left, right)?;
        }
        Some(left)
    }

    fn unary(&mut self) -> Option<Value> {
        self.depth += 1;
        if self.depth > DEPTH {
            return None;
        }
        let value = self.unary_inner();
        self.depth -= 1;
        value
    }

    fn unary_inner(&mut self) -> Option<Value> {
        let token = self.peek()?;
        if token.kind == Kind::Operator {
            self.at += 1;
            return match &*token.text {
                "+" => self.unary(),
                "-" => match self.unary()? {
                    Value::Integer(value) => Some(Value::Integer(value.checked_neg()?)),
                    Value::Real(value) => Some(Value::Real(-value)),
                    Value::Dim(_) => None,
                },
                "!" => Some(Value::Integer(i64::from(!self.unary()?.is_true()?))),
                "~" => Some(Value::Integer(!self.unary()?.integer()?)),
                "::" => self.unary(),
                "(" => {
                    self.at -= 1;
                    self.parenthesized()
                }
                "{" => {
                    self.at -= 1;
                    let inner = self.group()?;
                    self.dim(inner)
                }
                _ => None,
            };
        }
        self.at += 1;
        match token.kind {
            Kind::Number => number(&token.text),
            Kind::Literal => character(&token.text),
            _ => self.name(token),
        }
    }

    /// A parenthesized expression, or a cast.
    fn parenthesized(&mut self) -> Option<Value> {
        let inner = self.group()?;
        if let Some(conversion) = conversion(inner) {
            return conversion(self.unary()?);
        }
        let value = evaluate_at(inner, self.names, self.depth)?;
        self.member(value)
    }

    fn name(&mut self, token: &Token) -> Option<Value> {
        let mut name = token;
        // Namespace qualifiers are skipped.
        while self.peek().is_some_and(|t| t.is("::")) {
            self.at += 1;
            name = self.peek().filter(|t| t.is_name())?;
            self.at += 1;
        }
        match &*name.text {
            "sizeof" => {
                let inner = self.group()?;
                return self.names.size_of(inner).map(Value::Integer);
            }
            "static_cast" => {
                let end = close_angle(self.tokens, self.at, self.tokens.len())?;
                let ty = self.tokens.get(self.at + 1..end - 1)?;
                self.at = end;
                let inner = self.group()?;
                return conversion(ty)?(evaluate_at(inner, self.names, self.depth)?);
            }
            _ => {}
        }
        // `std::max<int>(a, b)`
        if self.peek().is_some_and(|t| t.is("<"))
            && let Some(end) = close_angle(self.tokens, self.at, self.tokens.len())
            && self.tokens.get(end).is_some_and(|t| t.is("("))
        {
            self.at = end;
        }
        if !self.peek().is_some_and(|t| t.is("(") || t.is("{")) {
            let value = self.names.value(&name.text)?;
            return self.member(value);
        }
        let words_before = name_run(self.tokens, self.at);
        let inner = self.group()?;
        if &*name.text == "dim3" {
            let value = self.dim(inner)?;
            return self.member(value);
        }
        if let Some(conversion) = conversion(words_before) {
            return conversion(evaluate_at(inner, self.names, self.depth)?);
        }
        let arguments: Vec<_> =
            split(inner).into_iter().map(|part| evaluate_at(part, self.names, self.depth)).collect();
        builtin(&name.text, &arguments).or_else(|| self.names.call(&name.text, &arguments, self.depth))
    }

    fn dim(&self, inner: &[Token]) -> Option<Value> {
        let mut axes = [1; 3];
        let parts = split(inner);
        if parts.len() > 3 {
            return None;
        }
        for (axis, part) in axes.iter_mut().zip(parts) {
            match evaluate_at(part, self.names, self.depth)? {
                Value::Dim(copied) => return Some(Value::Dim(copied)),
                value => *axis = value.integer()?,
            }
        }
        Some(Value::Dim(axes))
    }

    /// `.x`, `.y` or `.z` after a `dim3`.
    fn member(&mut self, value: Value) -> Option<Value> {
        if !self.peek().is_some_and(|t| t.is(".")) {
            return Some(value);
        }
        let Value::Dim(axes) = value else { return None };
        let axis = self.tokens.get(self.at + 1)?;
        self.at += 2;
        ["x", "y", "z"].iter().zip(axes).find(|(name, _)| axis.is(name)).map(|(_, value)| Value::Integer(value))
    }
}

/// Whether an expression depends on the command line: it has `argc`, `argv` or `atoi`.
pub(super) fn mentions_arguments(tokens: &[Token]) -> bool {
    tokens.iter().any(|t| t.is("argv") || t.is("atoi") || t.is("argc"))
}

/// The tokens of the type name before an opening bracket.
fn name_run(tokens: &[Token], open: usize) -> &[Token] {
    tokens.get(open.saturating_sub(1)..open).unwrap_or(&[])
}

/// The conversion to an arithmetic type.
fn conversion(ty: &[Token]) -> Option<fn(Value) -> Option<Value>> {
    let scalar = types::arithmetic(ty)?;
    Some(if scalar.is_float() {
        |value| value.real().map(Value::Real)
    } else {
        |value| value.integer().map(Value::Integer)
    })
}

fn apply(operator: &str, left: Value, right: Value) -> Option<Value> {
    if let (Value::Integer(a), Value::Integer(b)) = (left, right) {
        let shift = || u32::try_from(b).ok().filter(|b| *b < 64);
        let value = match operator {
            "||" => i64::from(a != 0 || b != 0),
            "&&" => i64::from(a != 0 && b != 0),
            "|" => a | b,
            "^" => a ^ b,
            "&" => a & b,
            "<<" => a.checked_shl(shift()?)?,
            ">>" => a.checked_shr(shift()?)?,
            "+" => a.checked_add(b)?,
            "-" => a.checked_sub(b)?,
            "*" => a.checked_mul(b)?,
            "/" => a.checked_div(b)?,
            "%" => a.checked_rem(b)?,
            _ => i64::from(compare(operator, a, b)?),
        };
        return Some(Value::Integer(value));
    }
    let (a, b) = (left.real()?, right.real()?);
    Some(match operator {
        "+" => Value::Real(a + b),
        "-" => Value::Real(a - b),
        "*" => Value::Real(a * b),
        "/" => Value::Real(a / b),
        _ => Value::Integer(i64::from(compare(operator, a, b)?)),
    })
}

fn compare<T: PartialOrd>(operator: &str, a: T, b: T) -> Option<bool> {
    Some(match operator {
        "==" => a == b,
        "!=" => a != b,
        "<" => a < b,
        ">" => a > b,
        "<=" => a <= b,
        ">=" => a >= b,
        _ => return None,
    })
}

/// Evaluates a function of the standard library that is common in launch configurations.
fn builtin(name: &str, arguments: &[Option<Value>]) -> Option<Value> {
    match (name, arguments) {
        ("min" | "max", [Some(a), Some(b)]) => {
            let less = match (a, b) {
                (Value::Integer(a), Value::Integer(b)) => a < b,
                _ => a.real()? < b.real()?,
            };
            Some(if less == (name == "min") { *a } else { *b })
        }
        ("ceil" | "ceilf", [Some(a)]) => Some(Value::Real(a.real()?.ceil())),
        ("floor" | "floorf", [Some(a)]) => Some(Value::Real(a.real()?.floor())),
        ("sqrt" | "sqrtf", [Some(a)]) => Some(Value::Real(a.real()?.sqrt())),
        _ => None,
    }
}

/// The value of a number literal with its suffix.
fn number(text: &str) -> Option<Value> {
    let text = text.replace('\'', "").to_ascii_lowercase();
    let radix = match text.get(..2) {
        Some("0x") => 16,
        Some("0b") => 2,
        _ if text.starts_with('0') && text.len() > 1 => 8,
        _ => 10,
    };
    if radix != 16 && (text.contains('.') || text.contains('e')) {
        return text.trim_end_matches(['f', 'l']).parse().ok().map(Value::Real);
    }
    let digits = text.trim_end_matches(['u', 'l', 'z']);
    if radix == 8
        && let Some(value) = digits.strip_suffix('f')
    {
        return value.parse().ok().map(Value::Real);
    }
    let digits = match radix {
        16 | 2 => digits.get(2..)?,
        8 if digits == "0" => "0",
        _ => digits,
    };
    u64::from_str_radix(digits, radix).ok().map(|value| Value::Integer(value as i64))
}

/// The value of an ASCII character literal, for `#if 'a' == 97`.
fn character(text: &str) -> Option<Value> {
    match text.as_bytes() {
        [b'\'', c, b'\''] => Some(Value::Integer(i64::from(*c))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::token::tokens;
    use super::*;

    struct Known;

    impl Names for Known {
        fn value(&self, name: &str) -> Option<Value> {
            match name {
                "N" => Some(Value::Integer(1000)),
                "block" => Some(Value::Dim([16, 8, 1])),
                _ => None,
            }
        }
    }

    fn integer(text: &str) -> Option<i64> {
        evaluate(&tokens(text, 0), &Known).and_then(Value::integer)
    }

    #[test]
    fn evaluate_integer_expressions_follow_c() {
        for (text, value) in [
            ("1 + 2 * 3", 7),
            ("(N + 255) / 256", 4),
            ("1 << 10 >> 2", 256),
            ("-7 / 2 + -7 % 2", -4),
            ("N > 5 && N >= 1000 ? 1 : 2", 1),
            ("0x10 + 0b11 + 010 + 1'000u + 5ULL", 16 + 3 + 8 + 1000 + 5),
            ("sizeof(float) * sizeof(double)", 32),
            ("sizeof(unsigned long long) + sizeof(float4)", 24),
            ("static_cast<int>(7.9) + (int)3.5f + int(2.5)", 12),
            ("(unsigned int)N / 3", 333),
            ("std::max(3, N) + std::min<int>(4, 5)", 1004),
            ("ceil(N / 256.0)", 4),
            ("(N - 1) / block.x + 1", 63),
            ("~0 & 5", 5),
            ("'a' == 97", 1),
            ("1 ? 2 : 0 ? 3 : 4", 2),
        ] {
            assert_eq!(integer(text), Some(value), "{text}");
        }
    }

    #[test]
    fn evaluate_dim3_fills_with_ones() {
        let dim = |text: &str| evaluate(&tokens(text, 0), &Known);
        assert_eq!(dim("dim3(N / 10, 2)"), Some(Value::Dim([100, 2, 1])));
        assert_eq!(dim("dim3{4}"), Some(Value::Dim([4, 1, 1])));
        assert_eq!(dim("{1, 2, 3}"), Some(Value::Dim([1, 2, 3])));
        assert_eq!(dim("dim3(1, 2, 3, 4)"), None);
    }

    #[test]
    fn evaluate_default_of_an_option_is_used() {
        assert_eq!(integer("argc > 1 ? atoi(argv[1]) : 512"), Some(512));
        assert_eq!(integer("(argc > 1) ? atoi(argv[1]) : N"), Some(1000));
    }

    #[test]
    fn evaluate_unknown_or_undefined_is_none() {
        for text in ["M + 1", "1 / 0", "1 << 64", "N[3]", "", "1 +", "f(3)", "9223372036854775807 + 1", "(", "? :"] {
            assert_eq!(integer(text), None, "{text}");
        }
        let nested = format!("{}1{}", "(".repeat(10_000), ")".repeat(10_000));
        assert_eq!(integer(&nested), None);
        assert_eq!(integer(&"-".repeat(100_000)), None);
        assert_eq!(integer(&"0 ? 1 : ".repeat(10_000)), None);
    }
}
