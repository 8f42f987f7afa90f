//! Constant folding of integers and predicates.
//!
//! Constants are evaluated, identity operands are removed, and multiplications and divisions by
//! powers of two become shifts.

use tegula_core::element::Type;

use super::ops::{Binary, Compare, Op, Operand, Unary};

/// The simplified form of an operation.
pub(crate) enum Simplified {
    /// An existing value.
    Operand(Operand),
    /// An operation to append.
    Op(Op),
}

/// Simplifies a pure operation with a result of type `ty`.
pub(crate) fn simplify(op: Op, ty: Type) -> Simplified {
    let operand = match op {
        Op::Unary(op, Operand::Const(of, a)) => unary(op, of, a),
        Op::Binary(op, Operand::Const(of, a), Operand::Const(_, b)) => {
            binary(op, of, a, b).map(|bits| Operand::Const(of, bits))
        }
        Op::Binary(op, a, Operand::Const(of, b)) => return with_constant(op, a, of, b),
        Op::Binary(op, Operand::Const(of, a), b) if is_commutative(op) => return with_constant(op, b, of, a),
        Op::Compare(how, Operand::Const(of, a), Operand::Const(_, b)) => compare(how, of, a, b),
        Op::Select(Operand::Const(_, condition), yes, no) => Some(if condition == 1 { yes } else { no }),
        Op::Convert(Operand::Const(Type::U32, a)) => match ty {
            Type::I32 | Type::U64 | Type::I64 => Some(Operand::Const(ty, a)),
            _ => None,
        },
        _ => None,
    };
    operand.map_or(Simplified::Op(op), Simplified::Operand)
}

fn is_commutative(op: Binary) -> bool {
    use Binary::*;
    matches!(op, Add | Mul | Min | Max | And | Or | Xor)
}

/// Simplifies an operation with a constant right operand.
fn with_constant(op: Binary, a: Operand, ty: Type, b: u64) -> Simplified {
    use Binary::*;
    let same = Simplified::Operand(a);
    let constant = |bits| Simplified::Operand(Operand::Const(ty, bits));
    let rebuilt = |op, bits| Simplified::Op(Op::Binary(op, a, Operand::Const(ty, bits)));
    if ty.is_float() {
        return rebuilt(op, b);
    }
    let unsigned = matches!(ty, Type::U32 | Type::U64);
    match (op, b) {
        (Add | Sub | Or | Xor | Shl | Shr, 0) | (Mul | Div, 1) => same,
        (Mul | And, 0) => constant(0),
        (And, 1) if ty == Type::Pred => same,
        (Or, 1) if ty == Type::Pred => constant(1),
        (Mul, b) if b.is_power_of_two() => rebuilt(Shl, b.trailing_zeros().into()),
        (Div, b) if unsigned && b.is_power_of_two() => rebuilt(Shr, b.trailing_zeros().into()),
        (Rem, b) if unsigned && b.is_power_of_two() => rebuilt(And, b - 1),
        _ => rebuilt(op, b),
    }
}

fn unary(op: Unary, ty: Type, a: u64) -> Option<Operand> {
    let bits = match (op, ty) {
        (Unary::Not, Type::Pred) => a ^ 1,
        (Unary::Not, Type::U32 | Type::I32) => u64::from(!(a as u32)),
        (Unary::Neg, Type::U32 | Type::I32) => u64::from((a as u32).wrapping_neg()),
        _ => return None,
    };
    Some(Operand::Const(ty, bits))
}

/// Evaluates an integer or predicate operation; `None` where it is not folded.
fn binary(op: Binary, ty: Type, a: u64, b: u64) -> Option<u64> {
    use Binary::*;
    match ty {
        Type::U32 => {
            let (a, b) = (a as u32, b as u32);
            let result = match op {
                Add => a.wrapping_add(b),
                Sub => a.wrapping_sub(b),
                Mul => a.wrapping_mul(b),
                Div => a.checked_div(b)?,
                Rem => a.checked_rem(b)?,
                Min => a.min(b),
                Max => a.max(b),
                And => a & b,
                Or => a | b,
                Xor => a ^ b,
                Shl => a.checked_shl(b).unwrap_or(0),
                Shr => a.checked_shr(b).unwrap_or(0),
            };
            Some(u64::from(result))
        }
        Type::Pred => match op {
            And => Some(a & b),
            Or => Some(a | b),
            Xor => Some(a ^ b),
            _ => None,
        },
        _ => None,
    }
}

fn compare(how: Compare, ty: Type, a: u64, b: u64) -> Option<Operand> {
    if ty != Type::U32 {
        return None;
    }
    let holds = match how {
        Compare::Eq => a == b,
        Compare::Ne => a != b,
        Compare::Lt => a < b,
        Compare::Le => a <= b,
        Compare::Gt => a > b,
        Compare::Ge => a >= b,
    };
    Some(Operand::Const(Type::Pred, u64::from(holds)))
}
