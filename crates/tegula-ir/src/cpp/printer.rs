//! Prints statements and expressions.

use std::collections::BTreeSet;

use tegula_core::element::{Scalar, Type, bf16, f16};

use super::Source;
use super::ast::{Expr, Line, SourceLocation, Stmt, visit_exprs};
use super::names::Names;
use crate::launch::Field;
use crate::{
    Access, Axis, Binary, Compare, GridExtent, Kernel, Order2d, ParamId, ParamKind, Site, SpecialRegister, Unary,
};

/// Operator precedence, loosest first.
mod precedence {
    pub const CONDITIONAL: u8 = 1;
    pub const OR: u8 = 2;
    pub const AND: u8 = 3;
    pub const BIT_OR: u8 = 4;
    pub const BIT_XOR: u8 = 5;
    pub const BIT_AND: u8 = 6;
    pub const EQUALITY: u8 = 7;
    pub const RELATIONAL: u8 = 8;
    pub const SHIFT: u8 = 9;
    pub const ADD: u8 = 10;
    pub const MUL: u8 = 11;
    pub const UNARY: u8 = 12;
    pub const PRIMARY: u8 = 13;
}

/// The line length from which an assignment is split over two lines.
const SPLIT_LENGTH: usize = 110;

/// Prints a kernel.
pub(super) fn write(kernel: &Kernel, body: &[Line], names: &Names) -> Source {
    let mut writer = Writer {
        kernel,
        names,
        exact: exact_products(body),
        helpers: BTreeSet::new(),
        reads: Vec::new(),
        lines: Vec::new(),
    };
    writer.body(body, 1);
    let body_lines = std::mem::take(&mut writer.lines);
    let parameters = parameters(kernel, body);
    writer.comments(&parameters, body_lines.iter().any(|line| line.text.contains("fma")));
    writer.head(&parameters);
    writer.lines.extend(body_lines);
    writer.line(0, "}", None);
    let text = writer.lines.iter().fold(String::new(), |text, line| text + &line.text + "\n");
    let (lines, reads) = writer.lines.into_iter().map(|line| (line.site, line.reads)).unzip();
    Source { entry: names.entry.clone(), text, lines, reads, parameters, block: kernel.block() }
}

/// The float types whose products nvcc might contract with an addition.
fn exact_products(body: &[Line]) -> Vec<Type> {
    let (mut sums, mut products) = (BTreeSet::new(), BTreeSet::new());
    visit_exprs(body, &mut |e| match e {
        Expr::Binary(Binary::Add | Binary::Sub, ty, _) if ty.is_float() => {
            sums.insert(*ty);
        }
        Expr::Binary(Binary::Mul, ty, _) if ty.is_float() => {
            products.insert(*ty);
        }
        _ => {}
    });
    products.intersection(&sums).copied().collect()
}

/// The parameters that the body uses.
fn parameters(kernel: &Kernel, body: &[Line]) -> Vec<Field> {
    let mut used = Vec::new();
    visit_exprs(body, &mut |e| match e {
        Expr::Extent(param, axis) => used.push(Field::Extent(*param, *axis)),
        Expr::Scalar(param) => {
            if let ParamKind::Scalar(ty) = kernel.params()[param.index()].kind {
                used.push(Field::Scalar(*param, ty));
            }
        }
        Expr::Global(param, at, _) => {
            used.push(Field::Address(*param));
            let axes = [Axis::Batches, Axis::Rows, Axis::Cols].into_iter().zip(&at[..]);
            used.extend(axes.filter(|(_, at)| **at != Expr::ZERO).map(|(axis, _)| Field::Stride(*param, axis)));
        }
        _ => {}
    });
    kernel.fields().into_iter().filter(|field| used.contains(field)).collect()
}

struct Writer<'a> {
    kernel: &'a Kernel,
    names: &'a Names,
    exact: Vec<Type>,
    helpers: BTreeSet<&'static str>,
    /// The memory reads of the current statement, until its first line is printed.
    reads: Vec<SourceLocation>,
    lines: Vec<OutputLine>,
}

/// A line of the text.
struct OutputLine {
    text: String,
    site: Option<Site>,
    reads: Vec<SourceLocation>,
}

/// The text before the body.
impl Writer<'_> {
    fn line(&mut self, depth: usize, text: impl AsRef<str>, site: Option<Site>) {
        let text = format!("{}{}", "    ".repeat(depth), text.as_ref());
        let reads = std::mem::take(&mut self.reads);
        let assignment = if depth > 0 && text.len() > SPLIT_LENGTH { text.split_once(" = ") } else { None };
        match assignment {
            Some((to, value)) if !to.contains('(') => {
                self.lines.push(OutputLine { text: format!("{to} ="), site, reads: reads.clone() });
                self.lines.push(OutputLine { text: format!("{}{value}", "    ".repeat(depth + 1)), site, reads });
            }
            _ => self.lines.push(OutputLine { text: text.trim_end().into(), site, reads }),
        }
    }

    fn comments(&mut self, parameters: &[Field], fused: bool) {
        let kernel = self.kernel;
        let mut comments = vec![kernel.name().to_string()];
        comments.extend(kernel.notes().iter().flat_map(|note| note.lines()).map(String::from));
        if let Some(grid) = &kernel.grid {
            let [x, y, z] = grid.each_ref().map(|size| self.size(size, precedence::CONDITIONAL));
            comments.push(String::new());
            comments.push(format!("Grid: ({x}, {y}, {z}) blocks"));
        }
        let [x, y, z] = kernel.block();
        comments.push(format!("Block: ({x}, {y}, {z}) threads, {} bytes of shared memory", kernel.shared_bytes()));
        comments.push(String::new());
        for (index, param) in kernel.params().iter().enumerate() {
            let ParamKind::Matrix { ty, access, .. } = param.kind else { continue };
            let access = match access {
                Access::Read => "is read",
                Access::Write => "is written",
                Access::ReadWrite => "is read and written",
            };
            let param = ParamId(index as u32);
            if let Some(element) = self.element_description(param, parameters) {
                comments.push(format!("{element}: {ty}, {access}"));
            }
        }
        comments.push("Strides count elements.".into());
        if fused || !self.exact.is_empty() {
            let one = if fused { "fma(a, b, c) rounds a * b + c once. " } else { "" };
            comments.push(format!("{one}Compile without --use_fast_math, which rounds otherwise."));
        }
        // User-defined names may contain characters other than ASCII.
        let ascii = |line: &str| line.chars().map(|c| if c.is_ascii_graphic() { c } else { ' ' }).collect::<String>();
        comments.iter().for_each(|comment| self.line(0, format!("// {}", ascii(comment)), None));
    }

    /// The address expression of a matrix element by coordinate names, where the kernel uses it.
    fn element_description(&self, param: ParamId, parameters: &[Field]) -> Option<String> {
        if !parameters.contains(&Field::Address(param)) {
            return None;
        }
        let axes = [(Axis::Batches, "batch"), (Axis::Rows, "row"), (Axis::Cols, "col")];
        let used = axes.map(|(axis, name)| {
            let fixed = fixed(self.kernel, param, axis);
            let used = fixed || parameters.contains(&Field::Stride(param, axis));
            used.then(|| self.strides(param, axis, name.into()))
        });
        let sum = self.in_order(param, used).join(" + ");
        Some(format!("{}[{sum}]", self.names.matrix(param)))
    }

    fn size(&self, size: &GridExtent, minimum: u8) -> String {
        let (text, precedence) = match size {
            GridExtent::Const(n) => (n.to_string(), precedence::PRIMARY),
            GridExtent::Extent(param, axis) => {
                (self.names.field(Field::Extent(*param, *axis)).to_string(), precedence::PRIMARY)
            }
            GridExtent::Multiprocessors => ("multiprocessors".into(), precedence::PRIMARY),
            GridExtent::Binary(op, a, b) => {
                let infix = |sign: &str, precedence: u8| {
                    (format!("{} {sign} {}", self.size(a, precedence), self.size(b, precedence + 1)), precedence)
                };
                let call = |name: &str| {
                    (
                        format!(
                            "{name}({}, {})",
                            self.size(a, precedence::CONDITIONAL),
                            self.size(b, precedence::CONDITIONAL)
                        ),
                        precedence::PRIMARY,
                    )
                };
                match op {
                    Binary::Add => infix("+", precedence::ADD),
                    Binary::Sub => infix("-", precedence::ADD),
                    Binary::Mul => infix("*", precedence::MUL),
                    Binary::Div => infix("/", precedence::MUL),
                    Binary::Min => call("min"),
                    Binary::Max => call("max"),
                    // `Builder::grid` accepts no other operation.
                    _ => call("?"),
                }
            }
        };
        if precedence < minimum { format!("({text})") } else { text }
    }

    fn head(&mut self, parameters: &[Field]) {
        let mut stored: BTreeSet<Type> = self.kernel.shared().iter().map(|array| array.ty).collect();
        stored.extend(self.kernel.params().iter().map(|param| match param.kind {
            ParamKind::Matrix { ty, .. } | ParamKind::Scalar(ty) => ty,
        }));
        stored.into_iter().filter_map(header).for_each(|header| self.line(0, format!("#include <{header}>"), None));
        if !self.helpers.is_empty() {
            self.line(0, "", None);
            self.line(0, "// Modulo 2^32: an int must not overflow, an unsigned may.", None);
        }
        for helper in std::mem::take(&mut self.helpers) {
            self.line(0, helper, None);
        }
        self.line(0, "", None);
        let bounds = match self.kernel.min_blocks() {
            0 => self.kernel.threads().to_string(),
            blocks => format!("{}, {blocks}", self.kernel.threads()),
        };
        self.line(0, format!("extern \"C\" __global__ void __launch_bounds__({bounds})"), None);
        self.signature(parameters);
        let kernel = self.kernel;
        for (array, name) in kernel.shared().iter().zip(&self.names.shared) {
            let dims: String = array.dims.iter().map(|dim| format!("[{dim}]")).collect();
            self.line(1, format!("__shared__ {} {name}{dims};", type_name(array.ty)), None);
        }
        if !kernel.shared().is_empty() {
            self.line(0, "", None);
        }
    }

    /// Prints the parameters: one line for each matrix, and one for the scalars.
    fn signature(&mut self, parameters: &[Field]) {
        let owner = |field: &Field| match *field {
            Field::Address(param) | Field::Tensor(param) | Field::Extent(param, _) | Field::Stride(param, _) => {
                Some(param)
            }
            Field::Scalar(..) => None,
        };
        let mut groups: Vec<String> = Vec::new();
        for group in parameters.chunk_by(|a, b| owner(a) == owner(b)) {
            let declared: Vec<String> = group.iter().map(|&field| self.parameter(field)).collect();
            groups.push(declared.join(", "));
        }
        self.line(0, format!("{}({}", self.names.entry, if groups.is_empty() { ") {" } else { "" }), None);
        let last = groups.len().saturating_sub(1);
        for (index, group) in groups.into_iter().enumerate() {
            self.line(1, format!("{group}{}", if index == last { ") {" } else { "," }), None);
        }
    }

    fn parameter(&self, field: Field) -> String {
        let name = self.names.field(field);
        match field {
            Field::Address(param) => match self.kernel.params()[param.index()].kind {
                ParamKind::Matrix { ty, access: Access::Read, .. } => {
                    format!("const {}* __restrict__ {name}", type_name(ty))
                }
                ParamKind::Matrix { ty, .. } | ParamKind::Scalar(ty) => format!("{}* {name}", type_name(ty)),
            },
            // `lower` rejects tensors.
            Field::Tensor(_) => format!("CUtensorMap {name}"),
            Field::Extent(..) => format!("unsigned {name}"),
            Field::Stride(..) => format!("long long {name}"),
            Field::Scalar(_, ty) => format!("{} {name}", type_name(ty)),
        }
    }
}

/// The source locations of a statement's memory reads, other than its own.
fn reads(line: &Line) -> Vec<SourceLocation> {
    let mut locations = BTreeSet::new();
    line.stmt.exprs().into_iter().for_each(|e| e.visit(&mut |operand| locations.extend(operand.read_location())));
    locations.remove(line.site.location);
    locations.into_iter().collect()
}

/// Statements.
impl Writer<'_> {
    fn body(&mut self, lines: &[Line], depth: usize) {
        lines.iter().for_each(|line| self.statement(line, depth));
    }

    fn statement(&mut self, line: &Line, depth: usize) {
        let (names, site) = (self.names, Some(line.site));
        self.reads = reads(line);
        match &line.stmt {
            Stmt::Let(value, e) => {
                let (ty, e) = (type_name(self.kernel.value_type(*value)), self.whole(e));
                self.line(depth, format!("const {ty} {} = {e};", names.value(*value)), site);
            }
            Stmt::Declare(variable, first) => {
                let ty = type_name(self.kernel.var_type(*variable));
                let first = first.as_ref().map(|e| format!(" = {}", self.whole(e))).unwrap_or_default();
                self.line(depth, format!("{ty} {}{first};", names.variable(*variable)), site);
            }
            Stmt::Set(variable, e) => {
                let e = self.whole(e);
                self.line(depth, format!("{} = {e};", names.variable(*variable)), site);
            }
            Stmt::Store { to, value, guard } => {
                let guard = guard.as_ref().map(|guard| format!("if ({}) ", self.whole(guard))).unwrap_or_default();
                let (to, value) = (self.whole(to), self.whole(value));
                self.line(depth, format!("{guard}{to} = {value};"), site);
            }
            Stmt::Barrier => self.line(depth, "__syncthreads();", site),
            Stmt::For { counter, start, end, step, overflows, body } => {
                let (start, end) = (self.whole(start), self.expr(end, precedence::SHIFT));
                let name = if *overflows { names.wide(*counter) } else { names.value(*counter) };
                let ty = if *overflows { "unsigned long long" } else { "unsigned" };
                let next = match step {
                    Expr::Number(_, 1) => format!("++{name}"),
                    step => format!("{name} += {}", self.whole(step)),
                };
                self.line(depth, format!("for ({ty} {name} = {start}; {name} < {end}; {next}) {{"), site);
                if *overflows {
                    let counter = names.value(*counter);
                    self.line(depth + 1, format!("const unsigned {counter} = (unsigned){name};"), site);
                }
                self.body(body, depth + 1);
                self.line(depth, "}", site);
            }
            Stmt::If { condition, then, otherwise } => {
                let condition = self.whole(condition);
                self.line(depth, format!("if ({condition}) {{"), site);
                self.body(then, depth + 1);
                if !otherwise.is_empty() {
                    self.line(depth, "} else {", site);
                    self.body(otherwise, depth + 1);
                }
                self.line(depth, "}", site);
            }
            Stmt::Rolled { number, count, body } => {
                let name = names.rolled(*number);
                self.line(depth, "#pragma unroll", site);
                self.line(depth, format!("for (unsigned {name} = 0; {name} < {count}; ++{name}) {{"), site);
                self.body(body, depth + 1);
                self.line(depth, "}", site);
            }
        }
    }
}

/// Expressions.
impl Writer<'_> {
    fn whole(&mut self, e: &Expr) -> String {
        self.expr(e, precedence::CONDITIONAL)
    }

    /// An expression, in parentheses where its precedence is too low.
    fn expr(&mut self, e: &Expr, minimum: u8) -> String {
        let (text, precedence) = self.expr_text(e);
        if precedence < minimum { format!("({text})") } else { text }
    }

    fn infix(&mut self, sign: &str, precedence: u8, [a, b]: &[Expr; 2]) -> (String, u8) {
        (format!("{} {sign} {}", self.expr(a, precedence), self.expr(b, precedence + 1)), precedence)
    }

    fn call(&mut self, name: &str, arguments: &[Expr]) -> (String, u8) {
        let arguments: Vec<String> = arguments.iter().map(|e| self.whole(e)).collect();
        (format!("{name}({})", arguments.join(", ")), precedence::PRIMARY)
    }

    fn helper(&mut self, name: &str, helper: &'static str, arguments: &[Expr]) -> (String, u8) {
        self.helpers.insert(helper);
        self.call(name, arguments)
    }

    fn expr_text(&mut self, e: &Expr) -> (String, u8) {
        let names = self.names;
        let name = |name: &str| (name.to_string(), precedence::PRIMARY);
        match e {
            Expr::Number(ty, bits) => number(*ty, *bits),
            Expr::Value(value) => name(names.value(*value)),
            Expr::Variable(variable) => name(names.variable(*variable)),
            Expr::SpecialRegister(special) => name(built_in(*special)),
            Expr::Extent(param, axis) => name(names.field(Field::Extent(*param, *axis))),
            Expr::Scalar(param) => match self.kernel.params()[param.index()].kind {
                ParamKind::Scalar(ty) | ParamKind::Matrix { ty, .. } => name(names.field(Field::Scalar(*param, ty))),
            },
            Expr::Copy { rolled, first, step } => copy(names.rolled(*rolled), *first, *step),
            Expr::Unary(op, ty, a) => match (op, ty) {
                (Unary::Not, Type::Pred) => (format!("!{}", self.expr(a, precedence::UNARY)), precedence::UNARY),
                (Unary::Not, _) => (format!("~{}", self.expr(a, precedence::UNARY)), precedence::UNARY),
                (Unary::Abs, Type::F64) => self.call("fabs", std::slice::from_ref(a)),
                (Unary::Abs, _) => self.call("fabsf", std::slice::from_ref(a)),
                (Unary::Neg, _) => (format!("-{}", self.expr(a, precedence::PRIMARY)), precedence::UNARY),
            },
            Expr::Binary(op, ty, operands) => self.binary(*op, *ty, operands),
            Expr::MulAdd(ty, operands) => match ty {
                Type::F64 => self.call("fma", &operands[..]),
                Type::F32 => self.call("fmaf", &operands[..]),
                Type::I32 => self.helper("wrapping_mul_add", WRAPPING_MUL_ADD, &operands[..]),
                _ => {
                    let [a, b, c] = &**operands;
                    let (a, b) = (self.expr(a, precedence::MUL), self.expr(b, precedence::UNARY));
                    (format!("{a} * {b} + {}", self.expr(c, precedence::MUL)), precedence::ADD)
                }
            },
            Expr::Compare(how, operands) => match how {
                Compare::Eq => self.infix("==", precedence::EQUALITY, operands),
                Compare::Ne => self.infix("!=", precedence::EQUALITY, operands),
                Compare::Lt => self.infix("<", precedence::RELATIONAL, operands),
                Compare::Le => self.infix("<=", precedence::RELATIONAL, operands),
                Compare::Gt => self.infix(">", precedence::RELATIONAL, operands),
                Compare::Ge => self.infix(">=", precedence::RELATIONAL, operands),
            },
            Expr::Select(operands) => {
                let [condition, yes, no] = &**operands;
                let condition = self.expr(condition, precedence::OR);
                let (yes, no) = (self.expr(yes, precedence::OR), self.expr(no, precedence::OR));
                (format!("{condition} ? {yes} : {no}"), precedence::CONDITIONAL)
            }
            Expr::Convert(from, to, a) => {
                let a = std::slice::from_ref(&**a);
                match (from, to) {
                    (Type::F16, _) => self.call("__half2float", a),
                    (Type::BF16, _) => self.call("__bfloat162float", a),
                    (_, Type::F16) => self.call("__float2half_rn", a),
                    (_, Type::BF16) => self.call("__float2bfloat16_rn", a),
                    (_, Type::U64) => {
                        (format!("(unsigned long long){}", self.expr(&a[0], precedence::UNARY)), precedence::UNARY)
                    }
                    (_, to) => self.call(type_name(*to), a),
                }
            }
            Expr::Bitcast(from, to, a) => {
                let operand = std::slice::from_ref(&**a);
                match (from, to) {
                    (Type::F32, _) => self.call("__float_as_uint", operand),
                    (_, Type::F32) => self.call("__uint_as_float", operand),
                    (Type::F64, _) => {
                        let bits = self.call("__double_as_longlong", operand).0;
                        (format!("(unsigned long long){bits}"), precedence::UNARY)
                    }
                    _ => {
                        let bits = self.expr(a, precedence::UNARY);
                        (format!("__longlong_as_double((long long){bits})"), precedence::PRIMARY)
                    }
                }
            }
            Expr::Global(param, at, _) => (self.element(*param, at), precedence::PRIMARY),
            Expr::Shared(array, at, _) => {
                // A flat index into an array of several axes is relative to its first element.
                let dims = &self.kernel.shared()[array.index()].dims;
                let first = if at.len() < dims.len() { "[0]".repeat(dims.len()) } else { String::new() };
                let at: String = at.iter().map(|at| format!("[{}]", self.whole(at))).collect();
                let name = &names.shared[array.index()];
                (
                    if first.is_empty() { format!("{name}{at}") } else { format!("(&{name}{first}){at}") },
                    precedence::PRIMARY,
                )
            }
        }
    }

    fn binary(&mut self, op: Binary, ty: Type, operands: &[Expr; 2]) -> (String, u8) {
        let is_pred = ty == Type::Pred;
        match (op, ty) {
            (Binary::Add, Type::I32) => self.helper("wrapping_add", WRAPPING_ADD, operands),
            (Binary::Sub, Type::I32) => self.helper("wrapping_sub", WRAPPING_SUB, operands),
            (Binary::Mul, Type::I32) => self.helper("wrapping_mul", WRAPPING_MUL, operands),
            (Binary::Mul, Type::F32) if self.exact.contains(&ty) => self.call("__fmul_rn", operands),
            (Binary::Mul, Type::F64) if self.exact.contains(&ty) => self.call("__dmul_rn", operands),
            (Binary::Min, Type::F32) => self.call("fminf", operands),
            (Binary::Max, Type::F32) => self.call("fmaxf", operands),
            (Binary::Min, Type::F64) => self.call("fmin", operands),
            (Binary::Max, Type::F64) => self.call("fmax", operands),
            (Binary::Min, _) => self.call("min", operands),
            (Binary::Max, _) => self.call("max", operands),
            (Binary::Add, _) => self.infix("+", precedence::ADD, operands),
            (Binary::Sub, _) => self.infix("-", precedence::ADD, operands),
            (Binary::Mul, _) => self.infix("*", precedence::MUL, operands),
            (Binary::Div, _) => self.infix("/", precedence::MUL, operands),
            (Binary::Rem, _) => self.infix("%", precedence::MUL, operands),
            (Binary::And, _) if is_pred => self.infix("&&", precedence::AND, operands),
            (Binary::Or, _) if is_pred => self.infix("||", precedence::OR, operands),
            (Binary::Xor, _) if is_pred => self.infix("!=", precedence::EQUALITY, operands),
            (Binary::And, _) => self.infix("&", precedence::BIT_AND, operands),
            (Binary::Or, _) => self.infix("|", precedence::BIT_OR, operands),
            (Binary::Xor, _) => self.infix("^", precedence::BIT_XOR, operands),
            (Binary::Shl, _) => self.infix("<<", precedence::SHIFT, operands),
            (Binary::Shr, _) => self.infix(">>", precedence::SHIFT, operands),
        }
    }

    /// An element of a matrix.
    ///
    /// Coordinates are added in 64 bits, so a sum that must wrap in 32 bits keeps its parentheses.
    fn element(&mut self, param: ParamId, at: &[Expr; 3]) -> String {
        let mut terms = [None, None, None];
        for (term, (axis, at)) in terms.iter_mut().zip([Axis::Batches, Axis::Rows, Axis::Cols].into_iter().zip(at)) {
            if *at == Expr::ZERO {
                continue;
            }
            let minimum = if fixed(self.kernel, param, axis) { precedence::MUL } else { precedence::UNARY };
            let at = self.expr(at, minimum);
            *term = Some(self.strides(param, axis, at));
        }
        let terms = self.in_order(param, terms);
        let sum = if terms.is_empty() { "0".into() } else { terms.join(" + ") };
        format!("{}[{sum}]", self.names.matrix(param))
    }

    fn strides(&self, param: ParamId, axis: Axis, at: String) -> String {
        match fixed(self.kernel, param, axis) {
            true => at,
            false => format!("{at} * {}", self.names.field(Field::Stride(param, axis))),
        }
    }

    /// The terms in order: the batch first, the contiguous axis last.
    fn in_order(&self, param: ParamId, [batch, row, col]: [Option<String>; 3]) -> Vec<String> {
        let ordered = if fixed(self.kernel, param, Axis::Rows) { [batch, col, row] } else { [batch, row, col] };
        ordered.into_iter().flatten().collect()
    }
}

/// Whether the stride of an axis is fixed to 1.
fn fixed(kernel: &Kernel, param: ParamId, axis: Axis) -> bool {
    match kernel.params()[param.index()].kind {
        ParamKind::Matrix { order: Order2d::RowMajor, .. } => axis == Axis::Cols,
        ParamKind::Matrix { order: Order2d::ColMajor, .. } => axis == Axis::Rows,
        ParamKind::Matrix { order: Order2d::Strided, .. } | ParamKind::Scalar(_) => false,
    }
}

const WRAPPING_ADD: &str =
    "static __device__ int wrapping_add(int a, int b) { return int(unsigned(a) + unsigned(b)); }";
const WRAPPING_SUB: &str =
    "static __device__ int wrapping_sub(int a, int b) { return int(unsigned(a) - unsigned(b)); }";
const WRAPPING_MUL: &str =
    "static __device__ int wrapping_mul(int a, int b) { return int(unsigned(a) * unsigned(b)); }";
const WRAPPING_MUL_ADD: &str = "static __device__ int wrapping_mul_add(int a, int b, int c) { return int(unsigned(a) * unsigned(b) + \
    unsigned(c)); }";

fn type_name(ty: Type) -> &'static str {
    match ty {
        Type::F64 => "double",
        Type::F32 => "float",
        Type::F16 => "__half",
        Type::BF16 => "__nv_bfloat16",
        Type::I8 => "signed char",
        Type::U8 => "unsigned char",
        Type::I32 => "int",
        Type::U32 => "unsigned",
        Type::I64 => "long long",
        Type::U64 => "unsigned long long",
        Type::Pred => "bool",
    }
}

/// The CUDA header that declares a type.
fn header(ty: Type) -> Option<&'static str> {
    match ty {
        Type::F16 => Some("cuda_fp16.h"),
        Type::BF16 => Some("cuda_bf16.h"),
        Type::F64 | Type::F32 | Type::I8 | Type::U8 | Type::I32 | Type::U32 | Type::I64 | Type::U64 | Type::Pred => {
            None
        }
    }
}

fn built_in(special: SpecialRegister) -> &'static str {
    match special {
        SpecialRegister::ThreadX => "threadIdx.x",
        SpecialRegister::ThreadY => "threadIdx.y",
        SpecialRegister::ThreadZ => "threadIdx.z",
        SpecialRegister::BlockX => "blockIdx.x",
        SpecialRegister::BlockY => "blockIdx.y",
        SpecialRegister::BlockZ => "blockIdx.z",
        SpecialRegister::GridX => "gridDim.x",
        SpecialRegister::GridY => "gridDim.y",
        SpecialRegister::GridZ => "gridDim.z",
        // Correct for one-dimensional blocks; `lower` rejects these.
        SpecialRegister::Lane => "threadIdx.x % 32",
        SpecialRegister::Warp => "threadIdx.x / 32",
        SpecialRegister::Warpgroup => "threadIdx.x / 128",
        // `lower` rejects these; the last is available to the grid only.
        SpecialRegister::Cluster | SpecialRegister::ClusterRank | SpecialRegister::Multiprocessors => "0",
    }
}

/// `first + step * i`.
fn copy(i: &str, first: u32, step: u32) -> (String, u8) {
    let (times, precedence) = match step {
        1 => (i.to_string(), precedence::PRIMARY),
        step if (step as i32) < 0 => return (format!("{first}u - {i} * {}", step.wrapping_neg()), precedence::ADD),
        step => (format!("{i} * {step}"), precedence::MUL),
    };
    if first == 0 { (times, precedence) } else { (format!("{times} + {first}"), precedence::ADD) }
}

/// A constant, exact to the bit.
fn number(ty: Type, bits: u64) -> (String, u8) {
    let float = |value: f64, text: String, else_bits: String| match value.is_finite() {
        true => (text, value.is_sign_negative()),
        false => (else_bits, false),
    };
    let (text, negative) = match ty {
        Type::F64 => {
            let value = f64::from_bits(bits);
            float(value, format!("{value:?}"), format!("__longlong_as_double({:#x}ll)", bits))
        }
        Type::F32 => {
            let value = f32::from_bits(bits as u32);
            float(value.into(), format!("{value:?}f"), format!("__uint_as_float({:#x}u)", bits as u32))
        }
        Type::F16 => match <f16 as Scalar>::from_bits(bits).to_f32() {
            value if value.is_finite() => (format!("__half({value:?}f)"), false),
            _ => (format!("__ushort_as_half({:#x})", bits as u16), false),
        },
        Type::BF16 => match <bf16 as Scalar>::from_bits(bits).to_f32() {
            value if value.is_finite() => (format!("__nv_bfloat16({value:?}f)"), false),
            _ => (format!("__ushort_as_bfloat16({:#x})", bits as u16), false),
        },
        Type::I8 => ((bits as i8).to_string(), (bits as i8) < 0),
        Type::U8 => ((bits as u8).to_string(), false),
        Type::I32 if bits as u32 == 1 << 31 => ("(-2147483647 - 1)".into(), false),
        Type::I32 => ((bits as i32).to_string(), (bits as i32) < 0),
        Type::U32 if bits > i32::MAX as u64 => (format!("{bits}u"), false),
        Type::U32 => (bits.to_string(), false),
        Type::I64 => (format!("{}ll", bits as i64), (bits as i64) < 0),
        Type::U64 => (format!("{bits}ull"), false),
        Type::Pred => ((if bits & 1 == 1 { "true" } else { "false" }).into(), false),
    };
    (text, if negative { precedence::UNARY } else { precedence::PRIMARY })
}
