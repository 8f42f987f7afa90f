//! Sums of floating-point numbers by atomic operations: their rounding depends on the order of the
//! threads.

use half::{bf16, f16};
use rustc_hash::FxHashMap;

use crate::ast::ScalarType;

/// The sums of a launch.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AtomicSums {
    /// By the number of the buffer, and the offset in bytes.
    elements: FxHashMap<(usize, u64), AtomicSum>,
    elsewhere: bool,
}

/// An element to which atomic operations added.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AtomicSum {
    /// Its type.
    pub ty: ScalarType,
    /// Number of additions.
    pub additions: u64,
    /// Sum of the absolute values of the addends and of the element before the launch.
    pub magnitude: f64,
}

impl AtomicSum {
    /// Bound of the difference between two sums of the addends, each in some order.
    ///
    /// With n additions and the unit roundoff u, the error of each is at most (1 + u)ⁿ − 1 times
    /// the magnitude. A GPU may also replace subnormal sums of f32 by zero.
    pub fn order_bound(&self) -> f64 {
        let (unit, flushed) = match self.ty {
            ScalarType::F64 => (f64::EPSILON / 2.0, 0.0),
            ScalarType::F16 => (2f64.powi(-11), 0.0),
            ScalarType::Bf16 => (2f64.powi(-8), 0.0),
            _ => (f64::from(f32::EPSILON) / 2.0, f64::from(f32::MIN_POSITIVE)),
        };
        let additions = self.additions as f64;
        2.0 * ((additions * unit.ln_1p()).exp_m1() * self.magnitude + additions * flushed)
    }
}

impl AtomicSums {
    /// Whether the launch formed no such sum.
    pub fn is_empty(&self) -> bool {
        self.elements.is_empty() && !self.elsewhere
    }

    /// Whether some are not in buffers, but in shared memory or in variables of the module.
    pub fn elsewhere(&self) -> bool {
        self.elsewhere
    }

    /// The sum in a buffer at an offset in bytes.
    pub fn get(&self, buffer: usize, offset: u64) -> Option<&AtomicSum> {
        self.elements.get(&(buffer, offset))
    }

    /// Records an addition to an element of an allocation, or to one in shared memory.
    pub(crate) fn add(&mut self, ty: ScalarType, location: Option<(u32, u64)>, old: u64, addend: u64) {
        let Some((allocation, offset)) = location else {
            self.elsewhere = true;
            return;
        };
        let (ty, parts) = match ty {
            ScalarType::F16x2 => (ScalarType::F16, 2),
            ScalarType::Bf16x2 => (ScalarType::Bf16, 2),
            ty => (ty, 1),
        };
        for part in 0..parts {
            let number = |bits: u64| magnitude(ty, bits >> (16 * part));
            let key = (allocation as usize, offset + 2 * part);
            let sum = self.elements.entry(key).or_insert(AtomicSum { ty, additions: 0, magnitude: number(old) });
            sum.additions += 1;
            sum.magnitude += number(addend);
        }
    }

    pub(crate) fn merge(&mut self, other: AtomicSums) {
        self.elsewhere |= other.elsewhere;
        for (key, sum) in other.elements {
            let known = self.elements.entry(key).or_insert(AtomicSum { additions: 0, magnitude: 0.0, ..sum });
            known.additions += sum.additions;
            known.magnitude += sum.magnitude;
        }
    }

    /// Numbers buffers from 0: before them are the variables of the module.
    pub(crate) fn of_buffers(mut self, variables: usize) -> Self {
        let all = std::mem::take(&mut self.elements);
        for ((allocation, offset), sum) in all {
            match allocation.checked_sub(variables) {
                Some(buffer) => _ = self.elements.insert((buffer, offset), sum),
                None => self.elsewhere = true,
            }
        }
        self
    }
}

fn magnitude(ty: ScalarType, bits: u64) -> f64 {
    let value = match ty {
        ScalarType::F64 => f64::from_bits(bits),
        ScalarType::F16 => f16::from_bits(bits as u16).to_f64(),
        ScalarType::Bf16 => bf16::from_bits(bits as u16).to_f64(),
        _ => f32::from_bits(bits as u32).into(),
    };
    value.abs()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_bound_covers_sums_of_f32_in_any_order() {
        let addends: Vec<f32> = (0..500u32).map(|i| (i.wrapping_mul(0x9e37_79b9) as i32) as f32 / 1e9).collect();
        let mut sums = AtomicSums::default();
        let total = addends.iter().fold(7f32, |old, &x| {
            sums.add(ScalarType::F32, Some((3, 8)), old.to_bits().into(), x.to_bits().into());
            old + x
        });
        let sums = sums.of_buffers(2);
        let sum = sums.get(1, 8).unwrap();
        assert_eq!(sum.additions, 500);
        let exact: f64 = 7.0 + addends.iter().map(|&x| f64::from(x.abs())).sum::<f64>();
        assert!((sum.magnitude - exact).abs() < 1e-9);
        let mut sorted = addends.clone();
        sorted.sort_by(f32::total_cmp);
        let other = sorted.iter().fold(7f32, |old, x| old + x);
        let difference = f64::from(total - other).abs();
        assert!(difference > 0.0 && difference <= sum.order_bound() && sum.order_bound() < 1e-3 * exact);
    }

    #[test]
    fn packed_elements_are_sums_of_their_own() {
        let mut sums = AtomicSums::default();
        let pair = |low: f32, high: f32| {
            u64::from(f16::from_f32(low).to_bits()) | u64::from(f16::from_f32(high).to_bits()) << 16
        };
        sums.add(ScalarType::F16x2, Some((0, 4)), pair(0.0, 0.0), pair(1.0, -2.0));
        let of = |offset| sums.get(0, offset).map(|sum| (sum.ty, sum.magnitude));
        assert_eq!((of(4), of(6)), (Some((ScalarType::F16, 1.0)), Some((ScalarType::F16, 2.0))));
        assert!(!sums.elsewhere() && sums.get(0, 0).is_none());
        sums.add(ScalarType::F32, None, 0, 0);
        assert!(sums.elsewhere());
    }
}
