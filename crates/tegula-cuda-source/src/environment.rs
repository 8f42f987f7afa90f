//! Constant propagation in host code: values and types of variables, from assignments in order.

use std::cell::Cell;
use std::ops::Range;
use std::rc::Rc;

use rustc_hash::FxHashMap;

use super::constant::{Names, Value, evaluate, evaluate_at, mentions_arguments};
use super::declaration::{Declaration, Kind};
use super::token::{Token, close};
use super::types::{self, Types};

/// Functions whose body is one `return` statement: parameters and expression, by name.
pub(super) type Functions = FxHashMap<String, (Vec<Rc<str>>, Vec<Token>)>;

/// Values and types of the variables at a position in a function.
#[derive(Clone, Debug)]
pub(super) struct Environment<'a> {
    variables: FxHashMap<Rc<str>, Option<Value>>,
    /// Declared types of variables, such as `float *`.
    declared: FxHashMap<Rc<str>, Vec<Token>>,
    functions: &'a Functions,
    pub(super) types: Types,
    /// Remaining number of calls that are evaluated, which bounds recursion.
    calls: Rc<Cell<u32>>,
}

/// Maximum number of calls that are evaluated in one program.
const CALLS: u32 = 1000;

/// Maximum number of tokens of an expression.
const EXPRESSION: usize = 4096;

impl Names for Environment<'_> {
    fn value(&self, name: &str) -> Option<Value> {
        match name {
            "true" => Some(Value::Integer(1)),
            "false" => Some(Value::Integer(0)),
            _ => self.variables.get(name).copied().flatten(),
        }
    }

    fn call(&self, name: &str, arguments: &[Option<Value>], depth: u32) -> Option<Value> {
        let (params, body) = self.functions.get(name)?;
        if params.len() != arguments.len() || self.calls.get() == 0 {
            return None;
        }
        self.calls.set(self.calls.get() - 1);
        let mut inner = self.clone();
        for (param, argument) in params.iter().zip(arguments) {
            inner.variables.insert(param.clone(), *argument);
        }
        evaluate_at(body, &inner, depth + 1)
    }

    fn size_of(&self, ty: &[Token]) -> Option<i64> {
        self.types.size_of(ty)
    }
}

/// Collects the functions whose body is one `return` statement.
pub(super) fn functions(tokens: &[Token], declarations: &[Declaration]) -> Functions {
    let mut functions = Functions::default();
    for declaration in declarations.iter().filter(|d| d.kind == Kind::Function) {
        let body = tokens.get(declaration.body.clone()).unwrap_or(&[]);
        let [first, expression @ .., last] = body else { continue };
        if first.is("return") && last.is(";") && !expression.iter().any(|t| t.is(";")) {
            let params = param_names(tokens, declaration);
            functions.insert(declaration.name(tokens).to_owned(), (params, expression.to_vec()));
        }
    }
    functions
}

/// Names of a function's parameters.
pub(super) fn param_names(tokens: &[Token], declaration: &Declaration) -> Vec<Rc<str>> {
    let params = tokens.get(declaration.params.clone()).unwrap_or(&[]);
    super::token::split(params)
        .into_iter()
        .map(|param| param.iter().rev().find(|t| t.is_name()).map_or("".into(), |t| t.text.clone()))
        .collect()
}

impl<'a> Environment<'a> {
    /// The variables at namespace scope.
    pub(super) fn global(
        tokens: &[Token],
        declarations: &[Declaration],
        functions: &'a Functions,
        types: &Types,
    ) -> Self {
        let mut environment = Self {
            variables: FxHashMap::default(),
            declared: FxHashMap::default(),
            functions,
            types: types.clone(),
            calls: Rc::new(Cell::new(CALLS)),
        };
        for declaration in declarations {
            // `int M(7);` is parsed as a prototype.
            let first = tokens.get(declaration.params.start);
            let number = first.is_some_and(|t| t.text.starts_with(|c: char| c.is_ascii_digit()));
            if declaration.kind == Kind::Variable || (declaration.kind == Kind::Function && number) {
                environment.read(tokens, declaration.range.clone(), &mut |_, _| {});
            } else if declaration.kind == Kind::Enum {
                environment.enumerators(tokens, declaration);
            }
        }
        environment
    }

    fn enumerators(&mut self, tokens: &[Token], declaration: &Declaration) {
        let mut next = Some(0i64);
        for &name in declaration.names.iter().filter(|name| declaration.body.contains(name)) {
            let Some(token) = tokens.get(name) else { continue };
            if tokens.get(name + 1).is_some_and(|t| t.is("=")) {
                let end = expression_end(tokens, name + 2, declaration.body.end);
                let value = tokens.get(name + 2..end).and_then(|list| evaluate(list, self));
                next = value.and_then(Value::integer);
            }
            self.variables.insert(token.text.clone(), next.map(Value::Integer));
            next = next.and_then(|value| value.checked_add(1));
        }
    }

    /// Enters a function: its parameters hide global variables, and have no known value.
    pub(super) fn enter(&mut self, tokens: &[Token], declaration: &Declaration) {
        let params = tokens.get(declaration.params.clone()).unwrap_or(&[]);
        for param in super::token::split(params) {
            if let Some((name, ty)) = param.split_last().filter(|(name, _)| name.is_name()) {
                self.variables.insert(name.text.clone(), None);
                self.declared.insert(name.text.clone(), ty.to_vec());
            }
        }
    }

    /// Sets the value of a name, such as that of a template argument.
    pub(super) fn set(&mut self, name: &str, value: Option<Value>) {
        self.variables.insert(name.into(), value);
    }

    /// Whether a variable of this name exists and has no known value.
    pub(super) fn is_unknown(&self, name: &str) -> bool {
        self.variables.get(name).is_some_and(Option::is_none)
    }

    /// The type of an expression that is a variable or a number.
    pub(super) fn type_of(&self, expression: &[Token]) -> Option<Vec<Token>> {
        let [token] = expression else { return None };
        if let Some(declared) = self.declared.get(&token.text) {
            return Some(declared.clone());
        }
        let number = token.text.starts_with(|c: char| c.is_ascii_digit());
        let word = match number {
            true if token.text.contains('.') && token.text.ends_with(['f', 'F']) => "float",
            true if token.text.contains('.') => "double",
            true if token.text.bytes().all(|b| b.is_ascii_digit()) => "int",
            _ => return None,
        };
        Some(vec![Token { text: word.into(), kind: super::token::Kind::Name, ..token.clone() }])
    }

    /// Reads statements in order. `visit` is called for each token, with the environment before it.
    pub(super) fn read(&mut self, tokens: &[Token], range: Range<usize>, visit: &mut dyn FnMut(&Self, usize)) {
        // The type of the declaration that is being read.
        let mut base: Option<Vec<Token>> = None;
        for at in range.clone() {
            let get = |i: usize| tokens.get(i).filter(|_| range.contains(&i));
            let Some(token) = get(at) else { continue };
            visit(self, at);
            if token.is(";") || token.is("{") || token.is("}") {
                base = None;
            }
            let (Some(next), true) = (get(at + 1), token.is_name()) else { continue };
            // `using real = float;`
            if token.is("using") && get(at + 2).is_some_and(|t| t.is("=")) {
                let list = tokens.get(at + 3..expression_end(tokens, at + 3, range.end)).unwrap_or(&[]);
                self.types.aliases.insert(next.text.to_string(), list.to_vec());
            }
            let before = at.checked_sub(1).and_then(get);
            let is_before = |text: &str| before.is_some_and(|t| t.is(text));
            if is_before(".") {
                self.assign_member(tokens, at, range.end);
                continue;
            }
            if is_before("->") || is_before("::") || next.is("::") {
                continue;
            }
            let stars = (range.start..at).rev().take_while(|&i| get(i).is_some_and(|t| t.is("*"))).count();
            let ends = ["=", ";", ",", "(", "{", "[", ":", ")"].iter().any(|text| next.is(text));
            let ty = if ends { declared_type(tokens, range.start, at - stars) } else { &[] };
            let continues = base.is_some() && get((at - stars).wrapping_sub(1)).is_some_and(|t| t.is(","));
            if !ty.is_empty() {
                base = Some(ty.to_vec());
            }
            let declares = !ty.is_empty() || continues;
            let end = at + 2;
            let group = next.is("(") || next.is("{");
            if declares && let Some(base) = base.as_mut().filter(|b| !b.is_empty()) {
                let star = get(at - 1).filter(|t| t.is("*")).cloned();
                let full = base.iter().cloned().chain(std::iter::repeat_n(star, stars).flatten()).collect();
                self.declared.insert(token.text.clone(), full);
            }
            let declared = base.clone().filter(|_| declares && stars == 0);
            if next.is("=") {
                let stop = expression_end(tokens, end, range.end);
                let list = tokens.get(end..stop).unwrap_or(&[]);
                let value = self.convert(declared.as_deref(), evaluate(list, self));
                // An assignment from `argv` keeps the default value.
                let optional = value.is_none() && mentions_arguments(list) && self.value(&token.text).is_some();
                if !optional {
                    self.variables.insert(token.text.clone(), value);
                }
            } else if group && let Some(ty) = declared {
                let stop = close(tokens, at + 1, range.end);
                let list = tokens.get(end..stop.saturating_sub(1)).unwrap_or(&[]);
                if is_dim3(&ty) {
                    let whole = tokens.get(at + 1..stop).unwrap_or(&[]);
                    let value = match whole.split_first() {
                        // `dim3 grid(a, b)` is evaluated as `dim3(a, b)`.
                        Some((open, _)) => {
                            let name = Token { text: "dim3".into(), ..token.clone() };
                            let brackets = [&[name, open.clone()][..], whole.get(1..).unwrap_or(&[])].concat();
                            evaluate(&brackets, self)
                        }
                        None => None,
                    };
                    self.variables.insert(token.text.clone(), value);
                } else if types::arithmetic(&ty).is_some() {
                    let value = self.convert(Some(&ty), evaluate(list, self));
                    self.variables.insert(token.text.clone(), value);
                }
            } else if declares {
                let dim = declared.as_deref().is_some_and(is_dim3);
                self.variables.insert(token.text.clone(), dim.then_some(Value::Dim([1; 3])));
            } else if is_changed(before, next) || self.is_address(tokens, at, range.start) {
                self.variables.insert(token.text.clone(), None);
            }
        }
    }

    /// Converts a value to the declared type: `int x = 3.5` is 3.
    fn convert(&self, ty: Option<&[Token]>, value: Option<Value>) -> Option<Value> {
        let integer = ty.and_then(types::arithmetic).is_some_and(|scalar| !scalar.is_float());
        match value {
            Some(Value::Real(_)) if integer => value.and_then(Value::integer).map(Value::Integer),
            // `dim3 grid = 5;`
            Some(Value::Integer(x)) if ty.is_some_and(is_dim3) => Some(Value::Dim([x, 1, 1])),
            _ => value,
        }
    }

    /// Evaluates an assignment to a member: `grid.x = …;`.
    fn assign_member(&mut self, tokens: &[Token], at: usize, end: usize) {
        let assigned = tokens.get(at + 1).is_some_and(|t| t.is("="));
        let Some(name) = at.checked_sub(2).and_then(|i| tokens.get(i)).filter(|t| t.is_name()) else { return };
        let Some(Some(Value::Dim(mut axes))) = self.variables.get(&name.text).copied() else { return };
        let Some(axis) = ["x", "y", "z"].iter().position(|axis| tokens.get(at).is_some_and(|t| t.is(axis))) else {
            return;
        };
        if assigned {
            let stop = expression_end(tokens, at + 2, end);
            let value = tokens.get(at + 2..stop).and_then(|list| evaluate(list, self)).and_then(Value::integer);
            if let (Some(slot), Some(value)) = (axes.get_mut(axis), value) {
                *slot = value;
            }
            self.variables.insert(name.text.clone(), value.map(|_| Value::Dim(axes)));
        } else if tokens.get(at + 1).is_some_and(|t| is_changed(None, t)) {
            self.variables.insert(name.text.clone(), None);
        }
    }

    /// Whether the address of a name is passed to a function, which may then change it.
    fn is_address(&self, tokens: &[Token], at: usize, start: usize) -> bool {
        let is = |back: usize, text: &str| {
            at.checked_sub(back).filter(|&i| i >= start).and_then(|i| tokens.get(i)).is_some_and(|t| t.is(text))
        };
        is(1, "&") && (is(2, "(") || is(2, ",") || is(2, ")"))
    }
}

fn is_dim3(ty: &[Token]) -> bool {
    ty.iter().any(|t| t.is("dim3"))
}

/// Whether the tokens around a variable change its value: `++x`, `x += 1`.
fn is_changed(before: Option<&Token>, next: &Token) -> bool {
    let step = |t: &Token| t.is("++") || t.is("--");
    let compound =
        next.text.len() > 1 && next.text.ends_with('=') && !["==", "!=", "<=", ">="].iter().any(|o| next.is(o));
    before.is_some_and(step) || step(next) || compound
}

/// The end of an expression: a comma or a semicolon outside of groups.
pub(super) fn expression_end(tokens: &[Token], from: usize, end: usize) -> usize {
    let end = end.min(from.saturating_add(EXPRESSION));
    let mut i = from;
    while i < end {
        let Some(token) = tokens.get(i) else { return end };
        if token.is("(") || token.is("[") || token.is("{") {
            i = close(tokens, i, end);
            continue;
        }
        if [",", ";", ")", "}", "]"].iter().any(|text| token.is(text)) {
            return i;
        }
        i += 1;
    }
    end
}

/// The type before a declared name; empty without a type.
fn declared_type(tokens: &[Token], start: usize, end: usize) -> &[Token] {
    let mut first = end;
    let mut depth = 0usize;
    while first > start {
        let Some(token) = tokens.get(first - 1) else { break };
        let part = if token.is(">") {
            depth += 1;
            true
        } else if token.is("<") && depth > 0 {
            depth -= 1;
            true
        } else {
            depth > 0 && !token.is(";") && !token.is("{") || token.is_name() || token.is("::")
        };
        if !part || end - first > 64 {
            break;
        }
        first -= 1;
    }
    let words = tokens.get(first..end).unwrap_or(&[]);
    let statement = ["return", "else", "case", "goto", "new", "delete", "throw", "do", "sizeof", "using", "namespace"];
    let before = |back: usize, list: &[&str]| {
        let token = first.checked_sub(back).filter(|&i| i >= start).and_then(|i| tokens.get(i));
        token.is_none_or(|token| list.iter().any(|text| token.is(text)))
    };
    let begins =
        before(1, &[";", "{", "}", ":"]) || (before(1, &["("]) && before(2, &["for", "if", "while", "switch"]));
    let wrong = !begins || words.first().is_none_or(|t| !t.is_name() || statement.iter().any(|word| t.is(word)));
    if wrong || words.last().is_some_and(|t| t.is("::")) { &[] } else { words }
}

#[cfg(test)]
mod tests {
    use super::super::declaration::declarations;
    use super::super::token::{join, tokens};
    use super::*;

    fn after(text: &str, names: &[&str]) -> Vec<Option<Value>> {
        let tokens = tokens(text, 0);
        let declarations = declarations(&tokens);
        let functions = functions(&tokens, &declarations);
        let mut environment = Environment::global(&tokens, &declarations, &functions, &Types::default());
        let main = declarations.iter().find(|d| d.name(&tokens) == "main").unwrap();
        environment.enter(&tokens, main);
        environment.read(&tokens, main.body.clone(), &mut |_, _| {});
        names.iter().map(|name| environment.value(name)).collect()
    }

    fn integers(text: &str, names: &[&str]) -> Vec<Option<i64>> {
        after(text, names).into_iter().map(|value| value.and_then(Value::integer)).collect()
    }

    #[test]
    fn read_constants_of_all_scopes() {
        let text = "const int N = 1 << 10; int M(7); enum { A = 3, B }; inline int up(int a, int b) { return (a + b - 1) / b; }\n\
                    int main(int argc, char** argv) { int n = N, m = n * 2; const size_t s{m + 1}; auto blocks = up(n, 256);\n\
                    unsigned k(3); float f = 2.5f; int g = 7 / 2.0; int u; }";
        assert_eq!(
            integers(text, &["N", "M", "A", "B", "n", "m", "s", "blocks", "k", "g", "u"]),
            [
                Some(1024),
                Some(7),
                Some(3),
                Some(4),
                Some(1024),
                Some(2048),
                Some(2049),
                Some(4),
                Some(3),
                Some(3),
                None
            ]
        );
        assert_eq!(after(text, &["f"]), [Some(Value::Real(2.5))]);
    }

    #[test]
    fn read_dim3_in_all_forms() {
        let text = "int main() { dim3 a(16, 16), b(4); dim3 c{1, 2, 3}; dim3 d = dim3(8); dim3 e; e.x = 5; e.y = a.x / 2;\n\
                    const dim3 f = {7, 6}; dim3 g = 9; }";
        let dim = |x, y, z| Some(Value::Dim([x, y, z]));
        assert_eq!(
            after(text, &["a", "b", "c", "d", "e", "f", "g"]),
            [dim(16, 16, 1), dim(4, 1, 1), dim(1, 2, 3), dim(8, 1, 1), dim(5, 8, 1), dim(7, 6, 1), dim(9, 1, 1)]
        );
    }

    #[test]
    fn read_changed_variables_are_unknown() {
        let text = "int q = 1; int main(int q) { int a = 1; a++; int b = 2; b *= 2; int c = 3; get(&c); int d = read();\n\
                    int e = 5; if (argc > 1) e = atoi(argv[1]); int f = 6; f = read(); int g = 1; g = g + 1;\n\
                    for (int i = 0; i < 3; ++i) {} }";
        assert_eq!(
            integers(text, &["a", "b", "c", "d", "e", "f", "g", "i", "q"]),
            [None, None, None, None, Some(5), None, Some(2), None, None]
        );
    }

    #[test]
    fn type_of_variables_is_as_declared() {
        let text = "int main(int n) { const float *a, *b = 0; double c; std::vector<int> v(3); x = a * b; }";
        let tokens = tokens(text, 0);
        let declarations = declarations(&tokens);
        let functions = Functions::default();
        let mut environment = Environment::global(&tokens, &declarations, &functions, &Types::default());
        environment.enter(&tokens, &declarations[0]);
        environment.read(&tokens, declarations[0].body.clone(), &mut |_, _| {});
        let ty = |name: &str| {
            let list = super::super::token::tokens(name, 0);
            environment.type_of(&list).map(|ty| join(&ty))
        };
        let expected = [
            Some("const float*"),
            Some("const float*"),
            Some("double"),
            Some("std::vector<int>"),
            Some("int"),
            Some("float"),
            None,
        ];
        assert_eq!(["a", "b", "c", "v", "n", "1.f", "z"].map(ty), expected.map(|e| e.map(str::to_owned)));
    }
}
