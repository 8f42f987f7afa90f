//! The new value of an atomic operation.

use half::{bf16, f16};

use crate::ast::ScalarType;
use crate::program::AtomicKind;

/// Returns the value that an atomic operation stores; `None` for a failed compare-and-swap.
///
/// All values are bits of type `ty`. `swap` is the second operand of a compare-and-swap.
pub(crate) fn update(kind: AtomicKind, ty: ScalarType, old: u64, value: u64, swap: u64) -> Option<u64> {
    let mask = if ty.size() >= 8 { u64::MAX } else { (1u64 << (8 * ty.size())) - 1 };
    let (old, value) = (old & mask, value & mask);
    if kind == AtomicKind::Cas {
        return (old == value).then_some(swap & mask);
    }
    let new = match kind {
        AtomicKind::And => old & value,
        AtomicKind::Or => old | value,
        AtomicKind::Xor => old ^ value,
        AtomicKind::Exch => value,
        AtomicKind::Add if ty.is_float() => add(ty, old, value),
        AtomicKind::Add => old.wrapping_add(value),
        AtomicKind::Inc => {
            if old >= value {
                0
            } else {
                old + 1
            }
        }
        AtomicKind::Dec => {
            if old == 0 || old > value {
                value
            } else {
                old - 1
            }
        }
        AtomicKind::Min | AtomicKind::Max => extreme(kind == AtomicKind::Max, ty, old, value),
        AtomicKind::Cas => swap,
    };
    Some(new & mask)
}

/// Adds numbers of type `ty`. Floating-point sums are rounded to nearest; subnormals are kept.
fn add(ty: ScalarType, a: u64, b: u64) -> u64 {
    let halves = |add: fn(u16, u16) -> u16| {
        let part = |shift: u32| u64::from(add((a >> shift) as u16, (b >> shift) as u16)) << shift;
        part(0) | part(16)
    };
    let add_f16 = |a: u16, b: u16| (f16::from_bits(a) + f16::from_bits(b)).to_bits();
    let add_bf16 = |a: u16, b: u16| (bf16::from_bits(a) + bf16::from_bits(b)).to_bits();
    match ty {
        ScalarType::F64 => (f64::from_bits(a) + f64::from_bits(b)).to_bits(),
        ScalarType::F16 => u64::from(add_f16(a as u16, b as u16)),
        ScalarType::Bf16 => u64::from(add_bf16(a as u16, b as u16)),
        ScalarType::F16x2 => halves(add_f16),
        ScalarType::Bf16x2 => halves(add_bf16),
        _ => u64::from((f32::from_bits(a as u32) + f32::from_bits(b as u32)).to_bits()),
    }
}

fn extreme(max: bool, ty: ScalarType, a: u64, b: u64) -> u64 {
    let greater = match ty {
        ScalarType::S32 => a as i32 > b as i32,
        ScalarType::S64 => a as i64 > b as i64,
        ScalarType::F32 => f32::from_bits(a as u32) > f32::from_bits(b as u32),
        ScalarType::F64 => f64::from_bits(a) > f64::from_bits(b),
        ScalarType::F16 => f16::from_bits(a as u16) > f16::from_bits(b as u16),
        ScalarType::Bf16 => bf16::from_bits(a as u16) > bf16::from_bits(b as u16),
        _ => a > b,
    };
    if greater == max { a } else { b }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn update_wraps_and_compares_by_type() {
        let of = |kind, ty, old, value| update(kind, ty, old, value, 9);
        assert_eq!(of(AtomicKind::Add, ScalarType::U32, 0xffff_ffff, 2), Some(1));
        assert_eq!(of(AtomicKind::Min, ScalarType::S32, 0xffff_ffff, 2), Some(0xffff_ffff));
        assert_eq!(of(AtomicKind::Max, ScalarType::U32, 0xffff_ffff, 2), Some(0xffff_ffff));
        assert_eq!(of(AtomicKind::Inc, ScalarType::U32, 3, 3), Some(0));
        assert_eq!(of(AtomicKind::Inc, ScalarType::U32, 2, 3), Some(3));
        assert_eq!(of(AtomicKind::Dec, ScalarType::U32, 0, 3), Some(3));
        assert_eq!(of(AtomicKind::Cas, ScalarType::B32, 3, 3), Some(9));
        assert_eq!(of(AtomicKind::Cas, ScalarType::B32, 4, 3), None);
        let sum = of(AtomicKind::Add, ScalarType::F32, u64::from(1.5f32.to_bits()), u64::from(2f32.to_bits()));
        assert_eq!(sum, Some(u64::from(3.5f32.to_bits())));
    }
}
