//! Registers, and arithmetic on the 32 lanes of a warp.
//!
//! Every operation computes all lanes, inactive ones included. Their results are unused, and loops
//! without branches compile to vector instructions.

use std::hash::Hasher;

use rustc_hash::FxHasher;
use tegula_core::element::{Type, bf16, f16};
use tegula_core::lanes as fused;
use tegula_ir::{Binary, Compare, Unary};

use super::semantics::{self, Half};

/// A register index: 32 lanes of 4 bytes, two such registers for 8-byte types, or a predicate.
pub(super) type Reg = u32;

/// 32 lanes of 4 bytes.
#[derive(Clone, Copy, Debug, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, align(64))]
pub(super) struct VectorRegister(pub [u32; 32]);

/// The registers of a warp.
#[derive(Clone, Debug)]
pub(super) struct Registers {
    pub vectors: Vec<VectorRegister>,
    pub predicates: Vec<u32>,
}

/// The lanes in a vector register: all, 4 bytes each, or half, 8 bytes each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RegisterLanes {
    All,
    Low,
    High,
}

type Lanes<T> = [T; 32];

impl Registers {
    pub const fn none() -> Self {
        Registers { vectors: Vec::new(), predicates: Vec::new() }
    }

    #[inline]
    pub fn u32s(&self, reg: Reg) -> Lanes<u32> {
        self.vectors[reg as usize].0
    }

    #[inline]
    pub fn u64s(&self, reg: Reg) -> Lanes<u64> {
        bytemuck::cast([self.vectors[reg as usize], self.vectors[reg as usize + 1]])
    }

    #[inline]
    pub fn put_u32s(&mut self, reg: Reg, lanes: Lanes<u32>) {
        self.vectors[reg as usize].0 = lanes;
    }

    #[inline]
    pub fn put_u64s(&mut self, reg: Reg, lanes: Lanes<u64>) {
        let [low, high] = bytemuck::cast::<Lanes<u64>, [VectorRegister; 2]>(lanes);
        self.vectors[reg as usize] = low;
        self.vectors[reg as usize + 1] = high;
    }

    /// Copies the given lanes of another register file.
    pub fn copy_lanes(&mut self, other: &Registers, lanes: u32, register_lanes: &[RegisterLanes]) {
        if lanes == 0 {
            return;
        }
        for ((vector, source), part) in self.vectors.iter_mut().zip(&other.vectors).zip(register_lanes) {
            let lane = |word: usize| match part {
                RegisterLanes::All => word,
                RegisterLanes::Low => word / 2,
                RegisterLanes::High => 16 + word / 2,
            };
            for word in (0..32).filter(|&word| lanes >> lane(word) & 1 == 1) {
                vector.0[word] = source.0[word];
            }
        }
        for (own, source) in self.predicates.iter_mut().zip(&other.predicates) {
            *own = *own & !lanes | source & lanes;
        }
    }

    /// Hashes all registers and the mask of active lanes.
    pub fn hash(&self, lanes: u32) -> u64 {
        let mut hasher = FxHasher::default();
        hasher.write_u32(lanes);
        hasher.write(bytemuck::cast_slice(&self.vectors));
        hasher.write(bytemuck::cast_slice(&self.predicates));
        hasher.finish()
    }

    /// Reads a register of any type as bits.
    pub fn bits(&self, ty: Type, reg: Reg) -> Lanes<u64> {
        match ty {
            Type::Pred => {
                let mask = self.predicates[reg as usize];
                std::array::from_fn(|lane| u64::from(mask >> lane & 1))
            }
            ty if ty.size() == 8 => self.u64s(reg),
            _ => {
                let lanes = self.u32s(reg);
                std::array::from_fn(|lane| u64::from(lanes[lane]))
            }
        }
    }

    /// Writes a register of any type from bits in register format.
    pub fn put_bits(&mut self, ty: Type, reg: Reg, bits: &Lanes<u64>) {
        match ty {
            Type::Pred => self.predicates[reg as usize] = lanes_where(|lane| bits[lane] & 1 == 1),
            ty if ty.size() == 8 => self.put_u64s(reg, *bits),
            ty if ty.size() == 4 => self.put_u32s(reg, std::array::from_fn(|lane| bits[lane] as u32)),
            _ => self.put_u32s(reg, std::array::from_fn(|lane| semantics::register_bits(ty, bits[lane]))),
        }
    }

    /// Copies a register in the lanes of the mask: dst = a.
    pub fn copy(&mut self, ty: Type, dst: Reg, a: Reg, lanes: u32) {
        match ty {
            Type::Pred => {
                let (old, new) = (self.predicates[dst as usize], self.predicates[a as usize]);
                self.predicates[dst as usize] = old & !lanes | new & lanes;
            }
            ty if ty.size() == 8 => {
                self.copy_vector(dst, a, |lane| lanes >> (lane / 2) & 1 == 1, lanes);
                self.copy_vector(dst + 1, a + 1, |lane| lanes >> (16 + lane / 2) & 1 == 1, lanes);
            }
            _ => self.copy_vector(dst, a, |lane| lanes >> lane & 1 == 1, lanes),
        }
    }

    #[inline]
    fn copy_vector(&mut self, dst: Reg, a: Reg, active: impl Fn(usize) -> bool, lanes: u32) {
        let new = self.vectors[a as usize];
        let old = &mut self.vectors[dst as usize];
        if lanes == u32::MAX {
            *old = new;
            return;
        }
        for lane in 0..32 {
            if active(lane) {
                old.0[lane] = new.0[lane];
            }
        }
    }

    /// The lanes of a register of a type of 4 or 8 bytes.
    #[inline]
    fn lanes<T: bytemuck::Pod>(&self, reg: Reg) -> Lanes<T> {
        if size_of::<T>() == 8 { bytemuck::cast(self.u64s(reg)) } else { bytemuck::cast(self.u32s(reg)) }
    }

    #[inline]
    fn put_lanes<T: bytemuck::Pod>(&mut self, reg: Reg, lanes: Lanes<T>) {
        if size_of::<T>() == 8 {
            self.put_u64s(reg, bytemuck::cast(lanes));
        } else {
            self.put_u32s(reg, bytemuck::cast(lanes));
        }
    }

    #[inline]
    fn map2<T: bytemuck::Pod>(&mut self, [dst, a, b]: [Reg; 3], f: impl Fn(T, T) -> T) {
        let (mut out, b): (Lanes<T>, Lanes<T>) = (self.lanes(a), self.lanes(b));
        for (a, b) in out.iter_mut().zip(&b) {
            *a = f(*a, *b);
        }
        self.put_lanes(dst, out);
    }

    #[inline]
    fn map1<T: bytemuck::Pod>(&mut self, dst: Reg, a: Reg, f: impl Fn(T) -> T) {
        self.map2([dst, a, a], |a, _| f(a));
    }

    pub fn unary(&mut self, op: Unary, ty: Type, dst: Reg, a: Reg) {
        use Unary::{Abs, Neg, Not};
        let (long, sign) = (ty.size() == 8, 1 << ((8 * ty.size() as u32 - 1) % 32));
        match (op, ty) {
            (_, Type::Pred) => self.predicates[dst as usize] = !self.predicates[a as usize],
            (Neg, Type::F32) => self.map1(dst, a, |x: f32| -x),
            (Neg, Type::F64) => self.map1(dst, a, |x: f64| -x),
            (Neg, ty) if ty.is_float() => self.map1(dst, a, |x: u32| x ^ sign),
            (Abs, Type::F32) => self.map1(dst, a, f32::abs),
            (Abs, Type::F64) => self.map1(dst, a, f64::abs),
            (Abs, ty) if ty.is_float() => self.map1(dst, a, |x: u32| x & !sign),
            (Neg, _) if long => self.map1(dst, a, u64::wrapping_neg),
            (Neg, _) => self.map1(dst, a, u32::wrapping_neg),
            (Abs, ty) if ty.is_signed() && long => self.map1(dst, a, i64::wrapping_abs),
            (Abs, ty) if ty.is_signed() => self.map1(dst, a, i32::wrapping_abs),
            (Abs, _) if long => self.map1(dst, a, |x: u64| x),
            (Abs, _) => self.map1(dst, a, |x: u32| x),
            (Not, _) if long => self.map1(dst, a, |x: u64| !x),
            (Not, _) => self.map1(dst, a, |x: u32| !x),
        }
    }

    /// Executes a binary operation; returns the lanes that divided an integer by zero.
    pub fn binary(&mut self, op: Binary, ty: Type, dst: Reg, a: Reg, b: Reg) -> u32 {
        let r = [dst, a, b];
        let by_zero = match (op, ty) {
            (Binary::Div | Binary::Rem, ty) if ty.is_int() && ty.size() < 8 => {
                let divisors = self.u32s(b);
                lanes_where(|lane| divisors[lane] == 0)
            }
            (Binary::Div | Binary::Rem, ty) if ty.is_int() => {
                let divisors = self.u64s(b);
                lanes_where(|lane| divisors[lane] == 0)
            }
            _ => 0,
        };
        match ty {
            Type::F32 => self.map2(r, float32(op)),
            Type::F64 => self.map2(r, float64(op)),
            Type::F16 => self.half::<f16>(op, r),
            Type::BF16 => self.half::<bf16>(op, r),
            Type::I32 => self.i32s(op, r),
            Type::U32 => self.u32_binary(op, r),
            Type::I64 => self.i64s(op, r),
            Type::U64 => self.u64_binary(op, r),
            Type::Pred => self.predicate(op, r),
            // The language has no arithmetic on 8-bit integers.
            Type::I8 | Type::U8 => {}
        }
        by_zero
    }

    fn half<H: Half>(&mut self, op: Binary, r: [Reg; 3]) {
        let f = float32(op);
        self.map2(r, |a: u32, b: u32| semantics::arith16::<H>(a, b, f));
    }

    fn predicate(&mut self, op: Binary, [dst, a, b]: [Reg; 3]) {
        let (a, b) = (self.predicates[a as usize], self.predicates[b as usize]);
        self.predicates[dst as usize] = match op {
            Binary::And => a & b,
            Binary::Or => a | b,
            _ => a ^ b,
        };
    }

    pub fn mul_add(&mut self, ty: Type, [dst, a, b, c]: [Reg; 4]) {
        match ty {
            Type::F32 => {
                let [a, b, c] = [a, b, c].map(|r| bytemuck::cast(self.u32s(r)));
                let mut out = [0f32; 32];
                fused::mul_add_f32(&a, &b, &c, &mut out);
                self.put_u32s(dst, bytemuck::cast(out));
            }
            Type::F64 => {
                let [a, b, c] = [a, b, c].map(|r| bytemuck::cast(self.u64s(r)));
                let mut out = [0f64; 32];
                fused::mul_add_f64(&a, &b, &c, &mut out);
                self.put_u64s(dst, bytemuck::cast(out));
            }
            Type::F16 => self.half_mul_add(semantics::mul_add16::<f16>, [dst, a, b, c]),
            Type::BF16 => self.half_mul_add(semantics::mul_add16::<bf16>, [dst, a, b, c]),
            Type::I64 | Type::U64 => {
                let [a, b, c] = [a, b, c].map(|r| self.u64s(r));
                self.put_u64s(dst, std::array::from_fn(|i| a[i].wrapping_mul(b[i]).wrapping_add(c[i])));
            }
            Type::I8 | Type::U8 | Type::I32 | Type::U32 | Type::Pred => {
                let [a, b, c] = [a, b, c].map(|r| self.u32s(r));
                self.put_u32s(dst, std::array::from_fn(|i| a[i].wrapping_mul(b[i]).wrapping_add(c[i])));
            }
        }
    }

    fn half_mul_add(&mut self, f: fn(u32, u32, u32) -> u32, [dst, a, b, c]: [Reg; 4]) {
        let [a, b, c] = [a, b, c].map(|r| self.u32s(r));
        self.put_u32s(dst, std::array::from_fn(|i| f(a[i], b[i], c[i])));
    }

    pub fn compare(&mut self, cmp: Compare, ty: Type, dst: Reg, a: Reg, b: Reg) {
        let mask = match ty {
            Type::U32 => {
                let (a, b) = (self.u32s(a), self.u32s(b));
                compare_lanes(cmp, &a, &b)
            }
            Type::F32 => {
                let (a, b): (Lanes<f32>, Lanes<f32>) = (bytemuck::cast(self.u32s(a)), bytemuck::cast(self.u32s(b)));
                compare_lanes(cmp, &a, &b)
            }
            _ => {
                let (a, b) = (self.bits(ty, a), self.bits(ty, b));
                lanes_where(|lane| semantics::compare(cmp, ty, a[lane], b[lane]))
            }
        };
        self.predicates[dst as usize] = mask;
    }

    pub fn select(&mut self, ty: Type, condition: u32, [dst, if_true, if_false]: [Reg; 3]) {
        match ty {
            Type::Pred => {
                let (if_true, if_false) = (self.predicates[if_true as usize], self.predicates[if_false as usize]);
                self.predicates[dst as usize] = condition & if_true | !condition & if_false;
            }
            ty if ty.size() == 8 => {
                let (if_true, if_false) = (self.u64s(if_true), self.u64s(if_false));
                self.put_u64s(
                    dst,
                    std::array::from_fn(|i| if condition >> i & 1 == 1 { if_true[i] } else { if_false[i] }),
                );
            }
            _ => {
                let (if_true, if_false) = (self.u32s(if_true), self.u32s(if_false));
                self.put_u32s(
                    dst,
                    std::array::from_fn(|i| if condition >> i & 1 == 1 { if_true[i] } else { if_false[i] }),
                );
            }
        }
    }

    pub fn convert(&mut self, from: Type, to: Type, dst: Reg, a: Reg) {
        let bits = self.bits(from, a).map(|b| semantics::convert(from, to, b));
        self.put_bits(to, dst, &bits);
    }
}

macro_rules! integers {
    ($($name:ident $t:ty;)*) => {
        impl Registers {$(
            fn $name(&mut self, op: Binary, r: [Reg; 3]) {
                let bits = <$t>::BITS as $t;
                match op {
                    Binary::Add => self.map2(r, <$t>::wrapping_add),
                    Binary::Sub => self.map2(r, <$t>::wrapping_sub),
                    Binary::Mul => self.map2(r, <$t>::wrapping_mul),
                    Binary::Div => self.map2(r, |a: $t, b: $t| if b == 0 { 0 } else { a.wrapping_div(b) }),
                    Binary::Rem => self.map2(r, |a: $t, b: $t| if b == 0 { 0 } else { a.wrapping_rem(b) }),
                    Binary::Min => self.map2(r, <$t>::min),
                    Binary::Max => self.map2(r, <$t>::max),
                    Binary::And => self.map2(r, |a: $t, b: $t| a & b),
                    Binary::Or => self.map2(r, |a: $t, b: $t| a | b),
                    Binary::Xor => self.map2(r, |a: $t, b: $t| a ^ b),
                    // A shift count is unsigned, so a negative one exceeds the width.
                    Binary::Shl => self.map2(r, |a: $t, b: $t| if (0..bits).contains(&b) { a << b } else { 0 }),
                    Binary::Shr => {
                        self.map2(r, |a: $t, b: $t| {
                            let (half, rest) = if (0..bits).contains(&b) { (b / 2, b - b / 2) } else { (bits - 1, 1) };
                            (a >> half) >> rest
                        });
                    }
                }
            }
        )*}
    };
}
integers! { i32s i32; u32_binary u32; i64s i64; u64_binary u64; }

fn float32(op: Binary) -> fn(f32, f32) -> f32 {
    match op {
        Binary::Add => |a, b| a + b,
        Binary::Sub => |a, b| a - b,
        Binary::Mul => |a, b| a * b,
        Binary::Div => |a, b| a / b,
        Binary::Min => semantics::min_f32,
        _ => semantics::max_f32,
    }
}

fn float64(op: Binary) -> fn(f64, f64) -> f64 {
    match op {
        Binary::Add => |a, b| a + b,
        Binary::Sub => |a, b| a - b,
        Binary::Mul => |a, b| a * b,
        Binary::Div => |a, b| a / b,
        Binary::Min => semantics::min_f64,
        _ => semantics::max_f64,
    }
}

fn compare_lanes<T: PartialOrd>(cmp: Compare, a: &Lanes<T>, b: &Lanes<T>) -> u32 {
    match cmp {
        Compare::Eq => lanes_where(|i| a[i] == b[i]),
        Compare::Ne => lanes_where(|i| a[i] != b[i]),
        Compare::Lt => lanes_where(|i| a[i] < b[i]),
        Compare::Le => lanes_where(|i| a[i] <= b[i]),
        Compare::Gt => lanes_where(|i| a[i] > b[i]),
        Compare::Ge => lanes_where(|i| a[i] >= b[i]),
    }
}

/// Mask of the lanes for which `f` returns true.
#[inline]
pub(super) fn lanes_where(f: impl Fn(usize) -> bool) -> u32 {
    let mut mask = 0;
    for lane in 0..32 {
        mask |= u32::from(f(lane)) << lane;
    }
    mask
}

/// Iterates over the lanes of a mask.
#[inline]
pub(super) fn active_lanes(mut lanes: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let lane = (lanes != 0).then(|| lanes.trailing_zeros() as usize);
        lanes &= lanes.wrapping_sub(1);
        lane
    })
}
