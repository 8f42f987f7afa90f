//! C + A·B with the arithmetic of the Tensor Cores.
//!
//! Hopper has no Tensor Core instruction for some forms, so the assembler expands them. Only two
//! expansions have other roundings:
//!
//! * 8-bit floating-point formats are converted to f16. The products of the lower pair of elements
//!   of each register are summed from zero, then those of the upper pair. C is added last, to the
//!   rounded sum.
//! * `m8n8k4` with f16 becomes multiplications and additions of f32, not on Tensor Cores.

use std::borrow::Cow;

use rustc_apfloat::ieee::Double;
use rustc_apfloat::{Float, Round};
use tegula_core::element::Type;
use tegula_core::lanes::mul_add_f64;
use tegula_interp::TensorCore;
use tegula_interp::tensor_core::{F16, Format, accumulate_blocks, block_length, block_sum, warpgroup};

use super::element::Element;
use super::modifiers::{BitOperation, Rounding};
use super::round::{add_f16, f16_to_f32, f32_to_f16, round_to_f16};

/// The algorithm for C + A·B.
#[derive(Clone, Copy, Debug)]
pub(super) enum Arithmetic {
    /// A chain of fused multiply-adds.
    F64(Rounding),
    /// Tensor Core instructions, each on a block of k.
    Blocks(Blocks),
    /// Multiplications and additions of f32, of four elements; with C and D of f16 in `half`.
    F32 {
        half: bool,
    },
    /// Exact sums of integers.
    Integers {
        saturating: bool,
    },
    Bits(BitOperation),
}

/// Tensor Core instructions, one after the other along k.
#[derive(Clone, Copy, Debug)]
pub(super) struct Blocks {
    pub format: Format,
    /// The type of `format`, if `tegula_interp` has a fast path for it (lines of 16 elements).
    pub fast: Option<Type>,
    /// Extent along k of one instruction of the hardware.
    pub k: usize,
    /// Whether the accumulators are f16 instead of f32.
    pub half: bool,
    /// Whether products of pairs are summed from zero, and C is added last.
    pub from_pairs: bool,
}

/// The product of a matrix instruction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Product {
    pub arithmetic: Arithmetic,
    /// m, n and k; k in parts of a register.
    pub shape: [usize; 3],
    /// The types of C and D; they differ only for f16 and f32.
    pub types: [Element; 2],
}

impl Product {
    /// Computes D from C in place.
    ///
    /// Rows of A and columns of B are contiguous; C is row-major. Each slice can hold several
    /// matrices, one after the other.
    pub fn eval(&self, core: TensorCore, a: &[u64], b: &[u64], c: &mut [u64]) {
        let [m, n, k] = self.shape;
        let half = matches!(self.arithmetic, Arithmetic::Blocks(Blocks { half: true, .. }));
        if self.types[0] == Element::F16 && !half {
            c.iter_mut().for_each(|c| *c = f16_to_f32(*c as u16).into());
        }
        for ((a, b), c) in a.chunks(m * k).zip(b.chunks(n * k)).zip(c.chunks_mut(m * n)) {
            self.multiply(core, a, b, c);
        }
        if self.types[1] == Element::F16 && !half {
            c.iter_mut().for_each(|c| *c = f32_to_f16(*c as u32).into());
        }
    }

    fn multiply(&self, core: TensorCore, a: &[u64], b: &[u64], c: &mut [u64]) {
        match self.arithmetic {
            Arithmetic::F64(Rounding::Nearest) => self.chain(a, b, c),
            Arithmetic::F64(rounding) => self.each(a, b, c, |a, b, c| chain_rounded(rounding, a, b, c)),
            Arithmetic::Blocks(blocks) => self.blocks(blocks, core, a, b, c),
            Arithmetic::F32 { half } => self.each(a, b, c, |a, b, c| dot_f32(half, a, b, c)),
            Arithmetic::Integers { saturating } => self.each(a, b, c, |a, b, c| dot_integers(saturating, a, b, c)),
            Arithmetic::Bits(operation) => self.each(a, b, c, |a, b, c| dot_bits(operation, a, b, c)),
        }
    }

    /// Computes each element from its row of A and its column of B.
    fn each(&self, a: &[u64], b: &[u64], c: &mut [u64], dot: impl Fn(&[u64], &[u64], u64) -> u64) {
        let [_, n, k] = self.shape;
        each(n, k, a, b, c, dot);
    }

    /// Executes the hardware instructions, one after the other along k.
    fn blocks(&self, blocks: Blocks, core: TensorCore, a: &[u64], b: &[u64], c: &mut [u64]) {
        let [_, n, k] = self.shape;
        let mut sums = if blocks.from_pairs { vec![0; c.len()] } else { c.to_vec() };
        for step in 0..k / blocks.k {
            let [a, b] = [a, b].map(|of| blocks.lines(of, k, step));
            match blocks.fast {
                Some(ty) if core == TensorCore::Sm90 && blocks.k == 16 && !blocks.half => {
                    let mut of_step: Vec<u32> = sums.iter().map(|&sum| sum as u32).collect();
                    warpgroup(ty, &a, &b, &mut of_step);
                    sums.iter_mut().zip(of_step).for_each(|(sum, of_step)| *sum = of_step.into());
                }
                _ => each(n, blocks.k, &a, &b, &mut sums, |a, b, sum| blocks.dot(core, a, b, sum)),
            }
        }
        for (c, sum) in c.iter_mut().zip(sums) {
            *c = match (blocks.from_pairs, blocks.half) {
                (false, _) => sum,
                (true, true) => add_f16(sum as u16, *c as u16).into(),
                (true, false) => canonical_f32(f32::from_bits(sum as u32) + f32::from_bits(*c as u32)).into(),
            };
        }
    }

    /// Fused multiply-adds, 32 elements at a time.
    fn chain(&self, a: &[u64], b: &[u64], c: &mut [u64]) {
        let [_, n, k] = self.shape;
        let before = c.to_vec();
        let at = |of: &[u64], index: usize| f64::from_bits(of.get(index).copied().unwrap_or_default());
        for (first, c) in c.chunks_mut(32).enumerate() {
            let mut sums: [f64; 32] = std::array::from_fn(|i| at(c, i));
            for p in 0..k {
                let x = std::array::from_fn(|i| at(a, (32 * first + i) / n * k + p));
                let y = std::array::from_fn(|i| at(b, (32 * first + i) % n * k + p));
                let before = sums;
                mul_add_f64(&x, &y, &before, &mut sums);
            }
            c.iter_mut().zip(sums).for_each(|(c, sum)| *c = sum.to_bits());
        }
        if c.iter().any(|&c| f64::from_bits(c).is_nan()) {
            // A NaN of the host has other bits than one of the GPU, so the slow path is used.
            c.copy_from_slice(&before);
            self.each(a, b, c, |a, b, c| chain_rounded(Rounding::Nearest, a, b, c));
        }
    }

    /// Whether results equal those of the hardware bit for bit.
    ///
    /// All forms were compared with an H100. For an A100, the arithmetic is that of the literature
    /// that `tegula_interp` cites; it has no 8-bit floating-point formats.
    pub fn is_exact(&self, core: TensorCore) -> bool {
        core == TensorCore::Sm90 || !matches!(self.arithmetic, Arithmetic::Blocks(Blocks { from_pairs: true, .. }))
    }
}

/// Fused multiply-adds of one element. A NaN result is the NaN of B, else of C, else of A.
fn chain_rounded(rounding: Rounding, a: &[u64], b: &[u64], c: u64) -> u64 {
    let round = match rounding {
        Rounding::Nearest => Round::NearestTiesToEven,
        Rounding::Zero => Round::TowardZero,
        Rounding::Down => Round::TowardNegative,
        Rounding::Up => Round::TowardPositive,
    };
    let is_nan = |bits: &u64| f64::from_bits(*bits).is_nan();
    let value = |bits: u64| Double::from_bits(bits.into());
    a.iter().zip(b).fold(c, |sum, (&a, &b)| {
        if let Some(nan) = [b, sum, a].into_iter().find(is_nan) {
            return nan | QUIET;
        }
        let sum = value(a).mul_add_r(value(b), value(sum), round).value.to_bits() as u64;
        if is_nan(&sum) { NAN } else { sum }
    })
}

/// The bit that makes a NaN quiet.
const QUIET: u64 = 1 << 51;
/// The NaN of an invalid operation on numbers.
const NAN: u64 = 0xfff8_0000_0000_0000;

/// Computes each element from its row of A and its column of B, of `k` elements.
fn each(n: usize, k: usize, a: &[u64], b: &[u64], c: &mut [u64], dot: impl Fn(&[u64], &[u64], u64) -> u64) {
    for (row, c) in a.chunks(k).zip(c.chunks_mut(n)) {
        for (col, c) in b.chunks(k).zip(c) {
            *c = dot(row, col, *c);
        }
    }
}

impl Blocks {
    /// The elements that hardware instruction `step` reads, from lines of `k` elements.
    fn lines<'a>(&self, of: &'a [u64], k: usize, step: usize) -> Cow<'a, [u64]> {
        if self.k == k {
            return of.into();
        }
        // A part of each line, or one of the two pairs of each register.
        let (period, first, taken) = if self.from_pairs { (4, 2 * step, 2) } else { (k, step * self.k, self.k) };
        of.chunks(period).flat_map(|chunk| chunk.iter().skip(first).take(taken)).copied().collect()
    }

    /// Adds the products of one row and one column.
    fn dot(&self, core: TensorCore, a: &[u64], b: &[u64], sum: u64) -> u64 {
        match self.half {
            true => self.accumulate_half(core, a, b, sum as u16).into(),
            false => accumulate_blocks(core, self.format, a, b, sum as u32).into(),
        }
    }

    /// Adds the products block by block to an f16 accumulator.
    fn accumulate_half(&self, core: TensorCore, a: &[u64], b: &[u64], sum: u16) -> u16 {
        let length = block_length(core, self.format);
        a.chunks(length).zip(b.chunks(length)).fold(sum, |sum, (a, b)| {
            match block_sum(core, self.format, a, b, (F16, sum.into())) {
                Ok((total, exponent)) => round_to_f16(total, exponent),
                Err(special) => f32_to_f16(special),
            }
        })
    }
}

/// The bits of an f32; those of a NaN are the hardware's.
fn canonical_f32(value: f32) -> u32 {
    if value.is_nan() { 0x7fff_ffff } else { value.to_bits() }
}

/// Sums the four products and the accumulator in the order of the assembler's expansion.
fn dot_f32(half: bool, a: &[u64], b: &[u64], c: u64) -> u64 {
    let value = |bits: u64| f32::from_bits(f16_to_f32(bits as u16));
    let chain = |a: &[u64], b: &[u64]| {
        let mut pairs = a.iter().zip(b).map(|(&a, &b)| (value(a), value(b)));
        let first = pairs.next().map_or(0.0, |(a, b)| a * b);
        pairs.fold(first, |sum, (a, b)| a.mul_add(b, sum))
    };
    // With f16 accumulators, C is added between the two pairs.
    let chunk = if half { 2 } else { 4 };
    let sums = a.chunks(chunk).zip(b.chunks(chunk)).map(|(a, b)| chain(a, b));
    canonical_f32(sums.fold(f32::from_bits(c as u32), |sum, of_pair| sum + of_pair)).into()
}

fn dot_integers(saturating: bool, a: &[u64], b: &[u64], c: u64) -> u64 {
    // Operands have at most 8 bits and k is at most 64, so the sum is exact.
    let products = a.iter().zip(b).map(|(&a, &b)| a as i64 * b as i64);
    let sum = i64::from(c as i32) + products.sum::<i64>();
    let result = if saturating { sum.clamp(i32::MIN.into(), i32::MAX.into()) as i32 } else { sum as i32 };
    u64::from(result as u32)
}

fn dot_bits(operation: BitOperation, a: &[u64], b: &[u64], c: u64) -> u64 {
    let count = a.iter().zip(b).map(|(a, b)| match operation {
        BitOperation::Xor => (a ^ b).count_ones(),
        BitOperation::And => (a & b).count_ones(),
    });
    u64::from((c as u32).wrapping_add(count.sum()))
}
