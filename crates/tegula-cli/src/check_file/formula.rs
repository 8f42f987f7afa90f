//! Formulas of `--expect`: `C = A @ B`, over the values of arguments before the launch.
//!
//! The syntax is a small subset of NumPy's, parsed by recursive descent. No existing expression
//! crate is used, because they have no arrays and no matrix product.

use tegula_files::ArrayPath;

/// `NAME = EXPRESSION`.
#[derive(Clone, Debug, PartialEq)]
pub struct Formula {
    /// The argument to compare.
    pub name: String,
    pub expression: Expression,
    /// The formula as given.
    pub text: String,
}

/// An expression.
#[derive(Clone, Debug, PartialEq)]
pub enum Expression {
    Integer(i64),
    Real(f64),
    Name(String),
    File(ArrayPath),
    Negation(Box<Expression>),
    Binary(Operator, Box<Expression>, Box<Expression>),
    Call(Function, Vec<Expression>),
}

/// An operator between two operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    Add,
    Subtract,
    Multiply,
    Divide,
    /// `@`, the matrix product.
    MatrixProduct,
}

/// A function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Function {
    Abs,
    CumulativeSum,
    Dot,
    Exp,
    Histogram,
    Log,
    Max,
    Maximum,
    Mean,
    Min,
    Minimum,
    Relu,
    Softmax,
    Sort,
    Sqrt,
    Sum,
    Tanh,
    Transpose,
}

/// Functions by name, with the minimum and maximum number of arguments.
const FUNCTIONS: [(&str, Function, usize, usize); 19] = [
    ("abs", Function::Abs, 1, 1),
    ("cumsum", Function::CumulativeSum, 1, 2),
    ("dot", Function::Dot, 2, 2),
    ("exp", Function::Exp, 1, 1),
    ("histogram", Function::Histogram, 2, 2),
    ("log", Function::Log, 1, 1),
    ("max", Function::Max, 1, 2),
    ("maximum", Function::Maximum, 2, 2),
    ("mean", Function::Mean, 1, 2),
    ("min", Function::Min, 1, 2),
    ("minimum", Function::Minimum, 2, 2),
    ("relu", Function::Relu, 1, 1),
    ("scan", Function::CumulativeSum, 1, 2),
    ("softmax", Function::Softmax, 1, 2),
    ("sort", Function::Sort, 1, 2),
    ("sqrt", Function::Sqrt, 1, 1),
    ("sum", Function::Sum, 1, 2),
    ("tanh", Function::Tanh, 1, 1),
    ("transpose", Function::Transpose, 1, 1),
];

/// Maximum nesting depth.
const DEPTH: usize = 64;

impl Formula {
    /// Parses `NAME = EXPRESSION`.
    ///
    /// # Errors
    /// What was expected, and what was found.
    pub fn parse(text: &str) -> Result<Formula, String> {
        let mut parser = Parser { text, at: 0, depth: 0 };
        let name = parser.name().filter(|_| parser.eat("="));
        let name = name.ok_or("give NAME = EXPRESSION, such as 'C = A @ B'")?.to_owned();
        let expression = parser.sum()?;
        if !parser.rest().is_empty() {
            return Err(parser.expected("an operator or the end"));
        }
        Ok(Formula { name, expression, text: text.trim().into() })
    }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
}

impl<'a> Parser<'a> {
    /// The remaining text, without leading spaces.
    fn rest(&mut self) -> &'a str {
        let rest = &self.text[self.at..];
        let trimmed = rest.trim_start();
        self.at += rest.len() - trimmed.len();
        trimmed
    }

    fn eat(&mut self, symbol: &str) -> bool {
        let found = self.rest().starts_with(symbol);
        self.at += if found { symbol.len() } else { 0 };
        found
    }

    fn expected(&mut self, what: &str) -> String {
        match self.rest() {
            "" => format!("{what} is expected at the end"),
            found => format!("{what} is expected where '{found}' begins"),
        }
    }

    /// A name, or the number of a parameter.
    fn name(&mut self) -> Option<&'a str> {
        let rest = self.rest();
        let len = rest.find(|c: char| !(c.is_alphanumeric() || c == '_' || c == '$')).unwrap_or(rest.len());
        self.at += len;
        (len > 0).then(|| &rest[..len])
    }

    fn sum(&mut self) -> Result<Expression, String> {
        self.operators(&[("+", Operator::Add), ("-", Operator::Subtract)], Self::product)
    }

    fn product(&mut self) -> Result<Expression, String> {
        let operators = [("*", Operator::Multiply), ("/", Operator::Divide), ("@", Operator::MatrixProduct)];
        self.operators(&operators, Self::unary)
    }

    fn operators(
        &mut self,
        operators: &[(&str, Operator)],
        operand: fn(&mut Self) -> Result<Expression, String>,
    ) -> Result<Expression, String> {
        let mut left = operand(self)?;
        while let Some(&(_, operator)) = operators.iter().find(|(symbol, _)| self.eat(symbol)) {
            left = Expression::Binary(operator, Box::new(left), Box::new(operand(self)?));
        }
        Ok(left)
    }

    fn unary(&mut self) -> Result<Expression, String> {
        self.depth += 1;
        if self.depth > DEPTH {
            return Err(format!("the formula is nested deeper than {DEPTH}"));
        }
        let inner = if self.eat("-") { Expression::Negation(Box::new(self.unary()?)) } else { self.postfix()? };
        self.depth -= 1;
        Ok(inner)
    }

    fn postfix(&mut self) -> Result<Expression, String> {
        let mut inner = self.operand()?;
        while self.eat(".T") {
            inner = Expression::Call(Function::Transpose, vec![inner]);
        }
        Ok(inner)
    }

    fn operand(&mut self) -> Result<Expression, String> {
        if self.eat("(") {
            let inner = self.sum()?;
            return if self.eat(")") { Ok(inner) } else { Err(self.expected("')'")) };
        }
        if self.eat("file:") {
            return self.file();
        }
        let rest = self.rest();
        if rest.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
            return self.number(rest);
        }
        let Some(name) = self.name() else { return Err(self.expected("a name, a number or '('")) };
        if self.eat("(") { self.call(name) } else { Ok(Expression::Name(name.into())) }
    }

    /// A path in quotes, or up to a space, a comma or a parenthesis.
    fn file(&mut self) -> Result<Expression, String> {
        let rest = self.rest();
        let quote = rest.chars().next().filter(|c| matches!(c, '"' | '\''));
        let (path, len) = match quote {
            Some(quote) => match rest[1..].split_once(quote) {
                Some((path, _)) => (path, path.len() + 2),
                None => return Err(format!("a closing {quote} is expected at the end")),
            },
            None => {
                let len = rest.find([' ', ',', ')', '(']).unwrap_or(rest.len());
                (&rest[..len], len)
            }
        };
        self.at += len;
        if path.is_empty() {
            Err("a path is expected after 'file:'".into())
        } else {
            Ok(Expression::File(ArrayPath::parse(path)))
        }
    }

    fn number(&mut self, rest: &str) -> Result<Expression, String> {
        let mut end = 0;
        let bytes = rest.as_bytes();
        while let Some(&byte) = bytes.get(end) {
            let sign = matches!(byte, b'+' | b'-') && matches!(bytes[end - 1], b'e' | b'E');
            if !(byte.is_ascii_digit() || matches!(byte, b'.' | b'e' | b'E') || sign) {
                break;
            }
            // The dot of `2.T` is that of a transposition, not a decimal point.
            if byte == b'.' && bytes.get(end + 1) == Some(&b'T') {
                break;
            }
            end += 1;
        }
        let text = &rest[..end];
        let number = match text.parse() {
            Ok(integer) => Some(Expression::Integer(integer)),
            Err(_) => text.parse().ok().map(Expression::Real),
        };
        self.at += end;
        number.ok_or_else(|| format!("'{text}' is not a number"))
    }

    fn call(&mut self, name: &str) -> Result<Expression, String> {
        let mut arguments = Vec::new();
        if !self.eat(")") {
            loop {
                arguments.push(self.sum()?);
                if self.eat(")") {
                    break;
                }
                if !self.eat(",") {
                    return Err(self.expected("',' or ')'"));
                }
            }
        }
        let Some(&(_, function, least, most)) = FUNCTIONS.iter().find(|(known, ..)| *known == name) else {
            let names: Vec<_> = FUNCTIONS.iter().map(|(name, ..)| *name).collect();
            return Err(format!("unknown function '{name}'; use one of {}", names.join(", ")));
        };
        if !(least..=most).contains(&arguments.len()) {
            let wanted = if least == most { least.to_string() } else { format!("{least} or {most}") };
            return Err(format!("{name} takes {wanted} arguments, not {}", arguments.len()));
        }
        Ok(Expression::Call(function, arguments))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expression with all parentheses.
    fn text(expression: &Expression) -> String {
        match expression {
            Expression::Integer(value) => value.to_string(),
            Expression::Real(value) => format!("{value:?}"),
            Expression::Name(name) => name.clone(),
            Expression::File(path) => format!("<{path}>"),
            Expression::Negation(inner) => format!("-{}", text(inner)),
            Expression::Binary(operator, left, right) => format!("({} {operator:?} {})", text(left), text(right)),
            Expression::Call(function, arguments) => {
                format!("{function:?}({})", arguments.iter().map(text).collect::<Vec<_>>().join(", "))
            }
        }
    }

    #[test]
    fn formula_precedence_is_that_of_arithmetic() {
        for (formula, expected) in [
            ("C = A @ B", "(A MatrixProduct B)"),
            ("C=A@B.T+2*C", "((A MatrixProduct Transpose(B)) Add (2 Multiply C))"),
            ("y = -a - b / 1e-3", "(-a Subtract (b Divide 0.001))"),
            ("y = (a + b) * 2.5", "((a Add b) Multiply 2.5)"),
            ("y = softmax(x)", "Softmax(x)"),
            ("y = sum(x, -1) + scan(x)", "(Sum(x, -1) Add CumulativeSum(x))"),
            ("2 = file:dir/c.npy", "<dir/c.npy>"),
            ("y = 2 * file:'a b.npz:w'", "(2 Multiply <a b.npz:w>)"),
            ("y = x.T.T", "Transpose(Transpose(x))"),
        ] {
            assert_eq!(
                Formula::parse(formula).map(|formula| text(&formula.expression)),
                Ok(expected.into()),
                "{formula}"
            );
        }
    }

    #[test]
    fn wrong_formulas_are_refused() {
        for (formula, expected) in [
            ("A @ B", "give NAME = EXPRESSION"),
            ("", "give NAME = EXPRESSION"),
            ("C = A @", "a name, a number or '(' is expected at the end"),
            ("C = A B", "an operator or the end is expected where 'B' begins"),
            ("C = (A", "')' is expected at the end"),
            ("C = foo(A)", "unknown function 'foo'; use one of abs, cumsum"),
            ("C = dot(A)", "dot takes 2 arguments, not 1"),
            ("C = sum(A; 1)", "',' or ')' is expected where '; 1)' begins"),
            ("C = 1.2.3", "'1.2.3' is not a number"),
            ("C = file:", "a path is expected"),
            ("C = 'é", "a name, a number or '(' is expected"),
        ] {
            let error = Formula::parse(formula).unwrap_err();
            assert!(error.contains(expected), "{formula}: {error}");
        }
        for nested in ["(".repeat(100_000), "-".repeat(100_000), "sum(".repeat(100_000)] {
            assert!(Formula::parse(&format!("C = {nested}")).unwrap_err().contains("nested deeper"));
        }
    }
}
