//! The AST of CUDA C++: statements and expressions, before values have names.

use std::panic::Location;

use tegula_core::element::Type;

use crate::{Axis, Binary, Compare, ParamId, SharedId, Site, SpecialRegister, Unary, ValId, VarId};

/// A source location.
pub(super) type SourceLocation = &'static Location<'static>;

/// An expression.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Expr {
    Number(Type, u64),
    /// A constant that [`Stmt::Let`] defines, or the counter of a loop.
    Value(ValId),
    Variable(VarId),
    SpecialRegister(SpecialRegister),
    Extent(ParamId, Axis),
    Scalar(ParamId),
    /// `first + step · i` in iteration `i` of the [`Stmt::Rolled`] with that number.
    Copy {
        rolled: usize,
        first: u32,
        step: u32,
    },
    Unary(Unary, Type, Box<Expr>),
    Binary(Binary, Type, Box<[Expr; 2]>),
    MulAdd(Type, Box<[Expr; 3]>),
    Compare(Compare, Box<[Expr; 2]>),
    /// `condition ? yes : no`; only the selected operand is evaluated.
    Select(Box<[Expr; 3]>),
    Convert(Type, Type, Box<Expr>),
    Bitcast(Type, Type, Box<Expr>),
    /// An element of a matrix (batch, row, column), with the source location of the access.
    Global(ParamId, Box<[Expr; 3]>, SourceLocation),
    /// An element of a shared array by its coordinates, with the source location of the access.
    Shared(SharedId, Vec<Expr>, SourceLocation),
}

/// A statement with its source location.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Line {
    pub site: Site,
    pub stmt: Stmt,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Stmt {
    Let(ValId, Expr),
    /// The declaration of a variable, with its initial value if known.
    Declare(VarId, Option<Expr>),
    Set(VarId, Expr),
    Store {
        to: Expr,
        value: Expr,
        guard: Option<Expr>,
    },
    Barrier,
    For {
        counter: ValId,
        start: Expr,
        end: Expr,
        step: Expr,
        /// Whether the counter may exceed `u32` before the loop ends.
        overflows: bool,
        body: Vec<Line>,
    },
    If {
        condition: Expr,
        then: Vec<Line>,
        otherwise: Vec<Line>,
    },
    /// A rerolled loop.
    Rolled {
        number: usize,
        count: u32,
        body: Vec<Line>,
    },
}

impl Expr {
    pub const ZERO: Expr = Expr::Number(Type::U32, 0);

    /// The operands.
    pub fn operands(&self) -> &[Expr] {
        match self {
            Expr::Number(..)
            | Expr::Value(_)
            | Expr::Variable(_)
            | Expr::SpecialRegister(_)
            | Expr::Extent(..)
            | Expr::Scalar(_)
            | Expr::Copy { .. } => &[],
            Expr::Unary(_, _, a) | Expr::Convert(_, _, a) | Expr::Bitcast(_, _, a) => std::slice::from_ref(a),
            Expr::Binary(_, _, operands) | Expr::Compare(_, operands) => &operands[..],
            Expr::MulAdd(_, operands) | Expr::Select(operands) | Expr::Global(_, operands, _) => &operands[..],
            Expr::Shared(_, at, _) => at,
        }
    }

    fn operands_mut(&mut self) -> &mut [Expr] {
        match self {
            Expr::Number(..)
            | Expr::Value(_)
            | Expr::Variable(_)
            | Expr::SpecialRegister(_)
            | Expr::Extent(..)
            | Expr::Scalar(_)
            | Expr::Copy { .. } => &mut [],
            Expr::Unary(_, _, a) | Expr::Convert(_, _, a) | Expr::Bitcast(_, _, a) => std::slice::from_mut(a),
            Expr::Binary(_, _, operands) | Expr::Compare(_, operands) => &mut operands[..],
            Expr::MulAdd(_, operands) | Expr::Select(operands) | Expr::Global(_, operands, _) => &mut operands[..],
            Expr::Shared(_, at, _) => at,
        }
    }

    /// Calls `f` with the expression and all its subexpressions.
    pub fn visit(&self, f: &mut dyn FnMut(&Expr)) {
        f(self);
        self.operands().iter().for_each(|operand| operand.visit(f));
    }

    fn visit_mut(&mut self, f: &mut dyn FnMut(&mut Expr)) {
        f(self);
        self.operands_mut().iter_mut().for_each(|operand| operand.visit_mut(f));
    }

    pub fn contains(&self, mut predicate: impl FnMut(&Expr) -> bool) -> bool {
        let mut found = false;
        self.visit(&mut |e| found |= predicate(e));
        found
    }

    /// The source location of its memory read, if it is one.
    pub fn read_location(&self) -> Option<SourceLocation> {
        match self {
            Expr::Global(_, _, location) | Expr::Shared(_, _, location) => Some(location),
            _ => None,
        }
    }

    pub fn reads(&self, var: VarId) -> bool {
        self.contains(|e| *e == Expr::Variable(var))
    }

    pub fn reads_memory(&self) -> bool {
        self.contains(|e| matches!(e, Expr::Global(..) | Expr::Shared(..)))
    }

    /// Whether its value depends on when it is evaluated.
    pub fn changes(&self) -> bool {
        self.contains(|e| matches!(e, Expr::Variable(_) | Expr::Global(..) | Expr::Shared(..)))
    }

    /// The number of nodes.
    pub fn size(&self) -> usize {
        let mut size = 0;
        self.visit(&mut |_| size += 1);
        size
    }
}

impl Stmt {
    /// The statement's own expressions, without those of nested statements.
    pub fn exprs(&self) -> Vec<&Expr> {
        match self {
            Stmt::Let(_, e) | Stmt::Set(_, e) | Stmt::Declare(_, Some(e)) | Stmt::If { condition: e, .. } => vec![e],
            Stmt::Store { to, value, guard } => [to, value].into_iter().chain(guard).collect(),
            Stmt::For { start, end, step, .. } => vec![start, end, step],
            Stmt::Declare(_, None) | Stmt::Barrier | Stmt::Rolled { .. } => Vec::new(),
        }
    }

    fn exprs_mut(&mut self) -> Vec<&mut Expr> {
        match self {
            Stmt::Let(_, e) | Stmt::Set(_, e) | Stmt::Declare(_, Some(e)) | Stmt::If { condition: e, .. } => vec![e],
            Stmt::Store { to, value, guard } => [to, value].into_iter().chain(guard).collect(),
            Stmt::For { start, end, step, .. } => vec![start, end, step],
            Stmt::Declare(_, None) | Stmt::Barrier | Stmt::Rolled { .. } => Vec::new(),
        }
    }

    /// The nested lists of statements.
    pub fn bodies(&self) -> Vec<&Vec<Line>> {
        match self {
            Stmt::For { body, .. } | Stmt::Rolled { body, .. } => vec![body],
            Stmt::If { then, otherwise, .. } => vec![then, otherwise],
            Stmt::Let(..) | Stmt::Declare(..) | Stmt::Set(..) | Stmt::Store { .. } | Stmt::Barrier => Vec::new(),
        }
    }

    pub fn bodies_mut(&mut self) -> Vec<&mut Vec<Line>> {
        match self {
            Stmt::For { body, .. } | Stmt::Rolled { body, .. } => vec![body],
            Stmt::If { then, otherwise, .. } => vec![then, otherwise],
            Stmt::Let(..) | Stmt::Declare(..) | Stmt::Set(..) | Stmt::Store { .. } | Stmt::Barrier => Vec::new(),
        }
    }
}

/// Calls `f` with every statement, outer statements first.
pub(super) fn visit(lines: &[Line], f: &mut dyn FnMut(&Line)) {
    for line in lines {
        f(line);
        line.stmt.bodies().into_iter().for_each(|body| visit(body, f));
    }
}

/// Calls `f` with every expression and subexpression, in the order of the text.
pub(super) fn visit_exprs(lines: &[Line], f: &mut dyn FnMut(&Expr)) {
    visit(lines, &mut |line| line.stmt.exprs().into_iter().for_each(|e| e.visit(f)));
}

/// [`visit_exprs`] with mutable access.
pub(super) fn visit_exprs_mut(lines: &mut [Line], f: &mut dyn FnMut(&mut Expr)) {
    for line in lines {
        line.stmt.exprs_mut().into_iter().for_each(|e| e.visit_mut(f));
        line.stmt.bodies_mut().into_iter().for_each(|body| visit_exprs_mut(body, f));
    }
}
