//! The warp-level matrix instructions (`mma.sync`): shapes, types and fragment layouts.
//!
//! A warp computes D = A·B + D with A (m×k), B (k×n) and accumulators D (m×n). Each lane holds a
//! *fragment* of each matrix: a number of registers. A register holds one element of 8 bytes, or
//! packed elements of together 4 bytes, the first in the lowest bits. The layouts are those of the
//! PTX ISA, "Matrix Fragments for mma". One rule describes them all ([`Mma::a`], [`Mma::b`],
//! [`Mma::accumulator`]).

use std::fmt;

use tegula_core::element::Type;

/// A matrix instruction of a warp.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mma {
    /// f64, 8×8×4; from sm_80.
    F64M8K4,
    /// f64, 16×8×4; sm_90.
    F64K4,
    /// f64, 16×8×8; sm_90.
    F64K8,
    /// f64, 16×8×16; sm_90.
    F64K16,
    /// f16 with f32 accumulators, 16×8×16; from sm_80.
    F16,
    /// bf16 with f32 accumulators, 16×8×16; from sm_80.
    BF16,
    /// tf32 with f32 accumulators, 16×8×8; from sm_80.
    ///
    /// An element is an f32 whose lowest 13 bits are ignored. Rounding is a separate operation
    /// ([`crate::Val::to_tf32`]).
    TF32,
    /// i8 with wrapping i32 accumulators, 16×8×32; from sm_80.
    I8,
    /// u8 with wrapping i32 accumulators, 16×8×32; from sm_80.
    U8,
}

impl Mma {
    /// Every matrix instruction.
    pub const ALL: [Mma; 9] =
        [Mma::F64M8K4, Mma::F64K4, Mma::F64K8, Mma::F64K16, Mma::F16, Mma::BF16, Mma::TF32, Mma::I8, Mma::U8];

    /// m, n and k.
    pub const fn shape(self) -> [u32; 3] {
        match self {
            Mma::F64M8K4 => [8, 8, 4],
            Mma::F64K4 => [16, 8, 4],
            Mma::F64K8 | Mma::TF32 => [16, 8, 8],
            Mma::F64K16 | Mma::F16 | Mma::BF16 => [16, 8, 16],
            Mma::I8 | Mma::U8 => [16, 8, 32],
        }
    }

    /// The type of the registers of A and B: f64, or u32 with one or more packed elements.
    pub const fn operand_type(self) -> Type {
        if self.is_f64() { Type::F64 } else { Type::U32 }
    }

    /// The type of the accumulators.
    pub const fn accumulator_type(self) -> Type {
        match self {
            Mma::F64M8K4 | Mma::F64K4 | Mma::F64K8 | Mma::F64K16 => Type::F64,
            Mma::F16 | Mma::BF16 | Mma::TF32 => Type::F32,
            Mma::I8 | Mma::U8 => Type::I32,
        }
    }

    /// Elements of A or B in a register.
    pub const fn elements_per_register(self) -> u32 {
        match self {
            Mma::F16 | Mma::BF16 => 2,
            Mma::I8 | Mma::U8 => 4,
            _ => 1,
        }
    }

    /// Registers of A, of B and of the accumulators in each lane.
    pub const fn registers(self) -> [u32; 3] {
        let [m, n, k] = self.shape();
        let lanes = 32 * self.elements_per_register();
        [m * k / lanes, k * n / lanes, m * n / 32]
    }

    /// Multiply-adds of one instruction.
    pub const fn multiply_adds(self) -> u64 {
        let [m, n, k] = self.shape();
        m as u64 * n as u64 * k as u64
    }

    /// Row and column in A of element `part` of a register.
    pub const fn a(self, lane: u32, register: u32, part: u32) -> (u32, u32) {
        let halves = self.shape()[0] / 8;
        (lane / 4 + 8 * (register % halves), self.depth(lane, register / halves, part))
    }

    /// Row and column in B of element `part` of a register.
    pub const fn b(self, lane: u32, register: u32, part: u32) -> (u32, u32) {
        (self.depth(lane, register, part), lane / 4)
    }

    /// Row and column of an accumulator.
    pub const fn accumulator(self, lane: u32, register: u32) -> (u32, u32) {
        (lane / 4 + 8 * (register / 2), 2 * (lane % 4) + register % 2)
    }

    /// The index along k: four lanes with the elements of one register, then the next register.
    const fn depth(self, lane: u32, register: u32, part: u32) -> u32 {
        self.elements_per_register() * (lane % 4 + 4 * register) + part
    }

    const fn is_f64(self) -> bool {
        matches!(self.accumulator_type(), Type::F64)
    }
}

impl fmt::Display for Mma {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [m, n, k] = self.shape();
        let ty = match self {
            Mma::F64M8K4 | Mma::F64K4 | Mma::F64K8 | Mma::F64K16 => "f64",
            Mma::F16 => "f16",
            Mma::BF16 => "bf16",
            Mma::TF32 => "tf32",
            Mma::I8 => "i8",
            Mma::U8 => "u8",
        };
        write!(f, "mma {ty} {m}×{n}×{k}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fragments_cover_each_element_once() {
        for mma in Mma::ALL {
            let [m, n, k] = mma.shape();
            let mut counts = [vec![0; (m * k) as usize], vec![0; (k * n) as usize], vec![0; (m * n) as usize]];
            let [a, b, accumulators] = mma.registers();
            let mut count = |matrix: usize, (row, col): (u32, u32), cols: u32| {
                counts[matrix][(row * cols + col) as usize] += 1;
            };
            for lane in 0..32 {
                for part in 0..mma.elements_per_register() {
                    (0..a).for_each(|r| count(0, mma.a(lane, r, part), k));
                    (0..b).for_each(|r| count(1, mma.b(lane, r, part), n));
                }
                (0..accumulators).for_each(|r| count(2, mma.accumulator(lane, r), n));
            }
            assert!(counts.iter().flatten().all(|&c| c == 1), "{mma}");
        }
    }

    /// Examples from the figures of the PTX ISA.
    #[test]
    fn fragment_layouts_match_the_ptx_isa() {
        assert_eq!([0, 1].map(|part| Mma::F16.a(5, 1, part)), [(9, 2), (9, 3)]);
        assert_eq!([0, 2].map(|r| Mma::F16.a(31, r, 1)), [(7, 7), (7, 15)]);
        assert_eq!(Mma::BF16.b(6, 1, 1), (13, 1));
        assert_eq!([0, 1, 2, 3].map(|r| Mma::TF32.a(7, r, 0)), [(1, 3), (9, 3), (1, 7), (9, 7)]);
        assert_eq!([0, 1].map(|r| Mma::TF32.b(7, r, 0)), [(3, 1), (7, 1)]);
        assert_eq!([0, 1, 2, 3].map(|r| Mma::I8.a(2, r, 3)), [(0, 11), (8, 11), (0, 27), (8, 27)]);
        assert_eq!(Mma::U8.b(9, 1, 2), (22, 2));
        assert_eq!(Mma::F64M8K4.a(30, 0, 0), (7, 2));
        assert_eq!([0, 1, 6, 7].map(|r| Mma::F64K16.a(9, r, 0)), [(2, 1), (10, 1), (2, 13), (10, 13)]);
        assert_eq!(Mma::F64K16.b(9, 3, 0), (13, 2));
        assert_eq!([0, 1, 2, 3].map(|r| Mma::F16.accumulator(9, r)), [(2, 2), (2, 3), (10, 2), (10, 3)]);
        assert_eq!([0, 1].map(|r| Mma::F64M8K4.accumulator(9, r)), [(2, 2), (2, 3)]);
    }
}
