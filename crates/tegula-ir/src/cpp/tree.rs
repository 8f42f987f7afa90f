//! Statements and expressions as C++ has them, before they have names.

use std::panic::Location;

use tegula_core::element::Type;

use crate::{Axis, Binary, Compare, ParamId, SharedId, Site, Special, Unary, ValId, VarId};

/// A place in the source.
pub(super) type Place = &'static Location<'static>;

/// Something with a value.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Expr {
    Number(Type, u64),
    /// A constant that [`Stmt::Let`] defines, or a loop's counter.
    Value(ValId),
    Variable(VarId),
    Special(Special),
    Extent(ParamId, Axis),
    Scalar(ParamId),
    /// `first + step · i` in copy `i` of a [`Stmt::Rolled`] of that number.
    Copy {
        rolled: usize,
        first: u32,
        step: u32,
    },
    Unary(Unary, Type, Box<Expr>),
    Binary(Binary, Type, Box<[Expr; 2]>),
    MulAdd(Type, Box<[Expr; 3]>),
    Compare(Compare, Box<[Expr; 2]>),
    /// The second where the first holds, else the third; the other is not evaluated.
    Select(Box<[Expr; 3]>),
    Convert(Type, Type, Box<Expr>),
    Bitcast(Type, Type, Box<Expr>),
    /// An element of a matrix: batch, row, column; and where it is read or written.
    Global(ParamId, Box<[Expr; 3]>, Place),
    /// An element of a shared array, by as many coordinates as it is declared with; and where it is read or written.
    Shared(SharedId, Vec<Expr>, Place),
}

/// A statement and where it was written.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Line {
    pub site: Site,
    pub what: Stmt,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Stmt {
    Let(ValId, Expr),
    /// A variable is declared, with its first value where there is one.
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
        /// Whether the counter may go beyond `u32` before the loop ends.
        overflows: bool,
        body: Vec<Line>,
    },
    If {
        condition: Expr,
        then: Vec<Line>,
        otherwise: Vec<Line>,
    },
    /// Copies of the same statements.
    Rolled {
        number: usize,
        count: u32,
        body: Vec<Line>,
    },
}

impl Expr {
    pub const ZERO: Expr = Expr::Number(Type::U32, 0);

    /// The expressions that it is made of.
    pub fn parts(&self) -> &[Expr] {
        match self {
            Expr::Number(..)
            | Expr::Value(_)
            | Expr::Variable(_)
            | Expr::Special(_)
            | Expr::Extent(..)
            | Expr::Scalar(_)
            | Expr::Copy { .. } => &[],
            Expr::Unary(_, _, a) | Expr::Convert(_, _, a) | Expr::Bitcast(_, _, a) => std::slice::from_ref(a),
            Expr::Binary(_, _, parts) | Expr::Compare(_, parts) => &parts[..],
            Expr::MulAdd(_, parts) | Expr::Select(parts) | Expr::Global(_, parts, _) => &parts[..],
            Expr::Shared(_, at, _) => at,
        }
    }

    fn parts_mut(&mut self) -> &mut [Expr] {
        match self {
            Expr::Number(..)
            | Expr::Value(_)
            | Expr::Variable(_)
            | Expr::Special(_)
            | Expr::Extent(..)
            | Expr::Scalar(_)
            | Expr::Copy { .. } => &mut [],
            Expr::Unary(_, _, a) | Expr::Convert(_, _, a) | Expr::Bitcast(_, _, a) => std::slice::from_mut(a),
            Expr::Binary(_, _, parts) | Expr::Compare(_, parts) => &mut parts[..],
            Expr::MulAdd(_, parts) | Expr::Select(parts) | Expr::Global(_, parts, _) => &mut parts[..],
            Expr::Shared(_, at, _) => at,
        }
    }

    /// Calls `f` with it and all that it is made of.
    pub fn visit(&self, f: &mut dyn FnMut(&Expr)) {
        f(self);
        self.parts().iter().for_each(|part| part.visit(f));
    }

    fn visit_mut(&mut self, f: &mut dyn FnMut(&mut Expr)) {
        f(self);
        self.parts_mut().iter_mut().for_each(|part| part.visit_mut(f));
    }

    pub fn contains(&self, mut what: impl FnMut(&Expr) -> bool) -> bool {
        let mut found = false;
        self.visit(&mut |e| found |= what(e));
        found
    }

    /// Where it was written that memory is read for it.
    pub fn place(&self) -> Option<Place> {
        match self {
            Expr::Global(_, _, place) | Expr::Shared(_, _, place) => Some(place),
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

    /// How much there is to read.
    pub fn size(&self) -> usize {
        let mut size = 0;
        self.visit(&mut |_| size += 1);
        size
    }
}

impl Stmt {
    /// The statement's own expressions; those of statements in it are not.
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

    /// The lists of statements in it.
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

/// Calls `f` with every statement, outer ones first.
pub(super) fn visit(lines: &[Line], f: &mut dyn FnMut(&Line)) {
    for line in lines {
        f(line);
        line.what.bodies().into_iter().for_each(|body| visit(body, f));
    }
}

/// Calls `f` with every expression and all that it is made of, in the order of the text.
pub(super) fn visit_exprs(lines: &[Line], f: &mut dyn FnMut(&Expr)) {
    visit(lines, &mut |line| line.what.exprs().into_iter().for_each(|e| e.visit(f)));
}

/// As [`visit_exprs`], to change them.
pub(super) fn visit_exprs_mut(lines: &mut [Line], f: &mut dyn FnMut(&mut Expr)) {
    for line in lines {
        line.what.exprs_mut().into_iter().for_each(|e| e.visit_mut(f));
        line.what.bodies_mut().into_iter().for_each(|body| visit_exprs_mut(body, f));
    }
}
