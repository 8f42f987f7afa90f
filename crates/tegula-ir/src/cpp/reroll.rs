//! Loop rerolling: statements that an unrolled Rust loop left behind become a loop again.
//!
//! Copies are adjacent statements from the same source locations that differ in constants only.
//! Each constant advances by a fixed step from copy to copy. The first two copies determine the
//! steps. The copies are then expanded from the resulting body and compared with the originals.

use tegula_core::element::Type;

use super::ast::{Expr, Line, Stmt, visit, visit_exprs, visit_exprs_mut};
use crate::ValId;

/// Rerolls every list of statements, inner lists first.
pub(super) fn reroll(lines: Vec<Line>) -> Vec<Line> {
    reroll_list(lines, &mut 0)
}

fn reroll_list(mut lines: Vec<Line>, rolled: &mut usize) -> Vec<Line> {
    for body in lines.iter_mut().flat_map(|line| line.stmt.bodies_mut()) {
        *body = reroll_list(std::mem::take(body), rolled);
    }
    let mut result = Vec::new();
    let mut rest = &lines[..];
    while !rest.is_empty() {
        let (length, line) = copies_of(rest, *rolled).unwrap_or((1, None));
        match line {
            Some(line) => {
                result.push(line);
                *rolled += 1;
            }
            None => result.extend_from_slice(&rest[..length]),
        }
        rest = &rest[length..];
    }
    result
}

/// The number of statements in the copies at the start of a list, and their loop if they form one.
///
/// All copies form the loop, or none.
fn copies_of(lines: &[Line], number: usize) -> Option<(usize, Option<Line>)> {
    let (period, count) = (1..=lines.len() / 2).find_map(|period| {
        if !same_location(&lines[0], &lines[period]) {
            return None;
        }
        let first = skeleton(&lines[..period]);
        let count = lines.chunks(period).take_while(|copy| copy.len() == period && skeleton(copy) == first).count();
        (count > 1).then_some((period, count))
    })?;
    let (copies, rest) = lines.split_at(count * period);
    let body =
        if uses(rest, &defined(copies)) { None } else { body(&copies.chunks(period).collect::<Vec<_>>(), number) };
    let site = lines[0].site;
    Some((copies.len(), body.map(|body| Line { site, stmt: Stmt::Rolled { number, count: count as u32, body } })))
}

fn same_location(a: &Line, b: &Line) -> bool {
    a.site.location == b.site.location
}

/// The loop body of two or more copies.
fn body(copies: &[&[Line]], number: usize) -> Option<Vec<Line>> {
    let (first, second) = (constants(copies[0]), constants(copies[1]));
    let mut body = copies[0].to_vec();
    let mut steps = first.iter().zip(&second).map(|(&first, &second)| (first, second.wrapping_sub(first)));
    visit_constants(&mut body, &mut |e| {
        if let Some((first, step)) = steps.next()
            && step != 0
        {
            *e = Expr::Copy { rolled: number, first, step };
        }
    });
    let matches = |(i, copy): (usize, &&[Line])| comparable(&copy_of(&body, number, i as u32)) == comparable(copy);
    copies.iter().enumerate().all(matches).then_some(body)
}

/// Copy number `i` of a body.
fn copy_of(body: &[Line], number: usize, i: u32) -> Vec<Line> {
    let mut copy = body.to_vec();
    visit_exprs_mut(&mut copy, &mut |e| {
        if let Expr::Copy { rolled, first, step } = *e
            && rolled == number
        {
            *e = Expr::Number(Type::U32, first.wrapping_add(step.wrapping_mul(i)).into());
        }
    });
    copy
}

/// Statements with the constants that may differ set to 0.
fn skeleton(lines: &[Line]) -> Vec<Line> {
    let mut lines = comparable(lines);
    visit_constants(&mut lines, &mut |e| *e = Expr::ZERO);
    lines
}

fn constants(lines: &[Line]) -> Vec<u32> {
    let (mut lines, mut constants) = (lines.to_vec(), Vec::new());
    visit_constants(&mut lines, &mut |e| {
        if let Expr::Number(_, bits) = e {
            constants.push(*bits as u32);
        }
    });
    constants
}

fn visit_constants(lines: &mut [Line], f: &mut dyn FnMut(&mut Expr)) {
    visit_exprs_mut(lines, &mut |e| {
        if matches!(e, Expr::Number(Type::U32, _)) {
            f(e);
        }
    });
}

/// Statements in a canonical form: without visit counts, and with renumbered local values.
fn comparable(lines: &[Line]) -> Vec<Line> {
    let (defined, mut lines) = (defined(lines), lines.to_vec());
    // Values defined outside keep their ids, which are smaller than these.
    let number = |value: ValId| {
        defined.iter().position(|other| *other == value).map(|at| ValId(u32::MAX - at as u32)).unwrap_or(value)
    };
    canonicalize(&mut lines, &number);
    visit_exprs_mut(&mut lines, &mut |e| {
        if let Expr::Value(value) = e {
            *value = number(*value);
        }
    });
    lines
}

fn canonicalize(lines: &mut [Line], number: &impl Fn(ValId) -> ValId) {
    for line in lines {
        line.site.iteration = 0;
        if let Stmt::Let(value, _) | Stmt::For { counter: value, .. } = &mut line.stmt {
            *value = number(*value);
        }
        line.stmt.bodies_mut().into_iter().for_each(|body| canonicalize(body, number));
    }
}

/// The values that statements define, in order.
fn defined(lines: &[Line]) -> Vec<ValId> {
    let mut values = Vec::new();
    visit(lines, &mut |line| match line.stmt {
        Stmt::Let(value, _) | Stmt::For { counter: value, .. } => values.push(value),
        _ => {}
    });
    values
}

fn uses(lines: &[Line], values: &[ValId]) -> bool {
    let mut used = false;
    visit_exprs(lines, &mut |e| used |= matches!(e, Expr::Value(value) if values.contains(value)));
    used
}
