//! The arithmetic of the matrix units, to the bit.
//!
//! NVIDIA documents none of it; it was measured. What is here follows Xie, Xu, Wang, Yang and Yang, "Bit-Accurate Modeling of GPU
//! Matrix Multiply-Accumulate Units" (arXiv 2511.10909), with which Khattak and Mikaitis, "Accurate Models of NVIDIA Tensor Cores"
//! (arXiv 2512.07004), agree:
//!
//! * **f64** is a chain of fused multiply-adds in the order of k that starts from the sum: each rounds to nearest even.
//! * **f16, bf16, tf32** go in blocks along k, each of which adds its products to the sum at once: the products are exact; products
//!   and sum are aligned to the largest exponent among them, where a product has the sum of its factors' exponents even if it is 2 or
//!   more; what falls below so many bits behind the point is cut off; the rest is added exactly, and the result is rounded towards
//!   zero to f32. Subnormals are kept; what is too large becomes infinite. NaN is always the same NaN.
//! * **i8, u8** wrap.
//!
//! How long a block is and how many bits are kept depend on the GPU: [`TensorCore`].

use tegula_core::element::Type;
use tegula_core::lanes::mul_add_f64;
use tegula_ir::Mma;

/// Whose matrix units to stand for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TensorCore {
    /// An A100's.
    Sm80,
    /// An H100's or H200's.
    Sm90,
}

impl TensorCore {
    /// Bytes of an element's worth of products that are added at once: a block is so many bytes of a row of A.
    const fn block_bytes(self) -> usize {
        match self {
            TensorCore::Sm80 => 16,
            TensorCore::Sm90 => 32,
        }
    }

    /// Bits behind the point that alignment keeps.
    const fn kept_bits(self) -> i32 {
        match self {
            TensorCore::Sm80 => 24,
            TensorCore::Sm90 => 25,
        }
    }
}

/// The matrices of one instruction, as bits.
pub(super) struct Matrices {
    /// Row after row.
    pub a: [u64; 16 * 32],
    /// Column after column.
    pub b: [u64; 32 * 8],
    /// Row after row.
    pub sums: [u64; 16 * 8],
}

/// sums += A·B.
pub(super) fn multiply(core: TensorCore, mma: Mma, of: &mut Matrices) {
    match mma {
        Mma::F64M8K4 | Mma::F64K4 | Mma::F64K8 | Mma::F64K16 => chain(mma, of),
        Mma::F16 => each(mma, of, |a, b, sum| blocks(core, HALF, a, b, sum)),
        Mma::BF16 => each(mma, of, |a, b, sum| blocks(core, BRAIN, a, b, sum)),
        Mma::TF32 => each(mma, of, |a, b, sum| blocks(core, TF32, a, b, sum)),
        Mma::I8 => each(mma, of, |a, b, sum| wrapping(|bits| i32::from(bits as i8), a, b, sum)),
        Mma::U8 => each(mma, of, |a, b, sum| wrapping(|bits| i32::from(bits as u8), a, b, sum)),
    }
}

/// Every sum from its row of A and its column of B.
fn each(mma: Mma, Matrices { a, b, sums }: &mut Matrices, f: impl Fn(&[u64], &[u64], u32) -> u32) {
    let [m, n, k] = mma.shape().map(|extent| extent as usize);
    for (i, sum) in sums[..m * n].iter_mut().enumerate() {
        let (row, col) = (i / n, i % n);
        *sum = f(&a[row * k..][..k], &b[col * k..][..k], *sum as u32).into();
    }
}

/// 32 sums at a time.
fn chain(mma: Mma, Matrices { a, b, sums }: &mut Matrices) {
    let [m, n, k] = mma.shape().map(|extent| extent as usize);
    for first in (0..m * n).step_by(32) {
        let mut acc = std::array::from_fn(|i| f64::from_bits(sums[first + i]));
        for p in 0..k {
            let x = std::array::from_fn(|i| f64::from_bits(a[(first + i) / n * k + p]));
            let y = std::array::from_fn(|i| f64::from_bits(b[(first + i) % n * k + p]));
            let before = acc;
            mul_add_f64(&x, &y, &before, &mut acc);
        }
        acc.iter().zip(&mut sums[first..]).for_each(|(x, sum)| *sum = x.to_bits());
    }
}

fn wrapping(value: impl Fn(u64) -> i32, a: &[u64], b: &[u64], sum: u32) -> u32 {
    let products = a.iter().zip(b).map(|(&a, &b)| value(a) * value(b));
    products.fold(sum as i32, i32::wrapping_add) as u32
}

fn blocks(core: TensorCore, format: Format, a: &[u64], b: &[u64], sum: u32) -> u32 {
    let length = core.block_bytes() / format.bytes;
    a.chunks(length).zip(b.chunks(length)).fold(sum, |sum, (a, b)| block(core, format, a, b, sum))
}

/// A floating-point format: the bits of its exponent and behind its point, and those below, which are not looked at.
#[derive(Clone, Copy)]
struct Format {
    exponent: u32,
    fraction: u32,
    unused: u32,
    bytes: usize,
}

const HALF: Format = Format::of(Type::F16);
const BRAIN: Format = Format::of(Type::BF16);
const TF32: Format = Format { fraction: 10, unused: 13, ..SINGLE };
const SINGLE: Format = Format::of(Type::F32);

impl Format {
    /// The format of a type.
    const fn of(ty: Type) -> Format {
        let Some(format) = ty.float_format() else { panic!("only floats have a format") };
        let fraction = format.precision as u32 - 1;
        Format { exponent: 8 * ty.size() as u32 - 1 - fraction, fraction, unused: 0, bytes: ty.size() }
    }
}

/// ±significand · 2^(exponent − fraction), an infinity or NaN.
#[derive(Clone, Copy)]
enum Number {
    Finite { negative: bool, significand: u64, exponent: i32, fraction: i32 },
    Infinite { negative: bool },
    Nan,
}

use Number::{Finite, Infinite, Nan};

impl Number {
    fn read(format: Format, bits: u64) -> Number {
        let bits = bits >> format.unused;
        let (fraction, rest) = (bits & ((1 << format.fraction) - 1), bits >> format.fraction);
        let (exponent, negative) = (rest & ((1 << format.exponent) - 1), rest >> format.exponent & 1 == 1);
        let (highest, bias) = ((1 << format.exponent) - 1, (1 << (format.exponent - 1)) - 1);
        if exponent == highest {
            return if fraction == 0 { Infinite { negative } } else { Nan };
        }
        let significand = fraction | u64::from(exponent != 0) << format.fraction;
        Finite { negative, significand, exponent: exponent.max(1) as i32 - bias, fraction: format.fraction as i32 }
    }

    /// The exact product.
    fn times(self, other: Number) -> Number {
        match (self, other) {
            (Nan, _) | (_, Nan) => Nan,
            (Infinite { .. }, Finite { significand: 0, .. }) | (Finite { significand: 0, .. }, Infinite { .. }) => Nan,
            (Infinite { negative: a }, Infinite { negative: b } | Finite { negative: b, .. })
            | (Finite { negative: a, .. }, Infinite { negative: b }) => Infinite { negative: a != b },
            (
                Finite { negative: a, significand: s, exponent: e, fraction: f },
                Finite { negative: b, significand: t, exponent: g, fraction: h },
            ) => Finite { negative: a != b, significand: s * t, exponent: e + g, fraction: f + h },
        }
    }
}

/// The one NaN that comes out.
const NAN: u32 = 0x7fff_ffff;
const INFINITY: u32 = 0x7f80_0000;
const SIGN: u32 = 0x8000_0000;
/// The exponent of the least normal f32, and of its subnormals. The sum never has a lower one, so neither has the largest.
const LEAST_EXPONENT: i32 = -126;

/// The sum with the products of one block added, all at once.
fn block(core: TensorCore, format: Format, a: &[u64], b: &[u64], sum: u32) -> u32 {
    let products = a.iter().zip(b).map(|(&a, &b)| Number::read(format, a).times(Number::read(format, b)));
    let mut terms = [Number::read(SINGLE, sum.into()); 17];
    let count = 1 + terms[1..].iter_mut().zip(products).map(|(term, product)| *term = product).count();
    let terms = &terms[..count];
    if let Some(special) = infinite(terms) {
        return special;
    }
    let largest = terms.iter().fold(LEAST_EXPONENT, |largest, term| match *term {
        Finite { significand: 1.., exponent, .. } => largest.max(exponent),
        _ => largest,
    });
    let total: i64 = terms.iter().map(|&term| aligned(term, largest, core.kept_bits())).sum();
    towards_zero(total, largest - core.kept_bits())
}

/// sums += A·B of a warpgroup's instruction (`Hopper::Wgmma`): rows of A and columns of B have 16 numbers each, sums go row after row. Its
/// products are added as those of `mma` on the same GPU, all 16 at once.
pub(super) fn warpgroup(ty: Type, a: &[u64], b: &[u64], sums: &mut [u32]) {
    let format = Format::of(ty);
    let lines = |bits: &[u64]| bits.chunks(K).map(|line| Line::read(format, line)).collect::<Vec<_>>();
    let (rows, cols) = (lines(a), lines(b));
    for ((row, x), sums) in rows.iter().zip(a.chunks(K)).zip(sums.chunks_mut(cols.len())) {
        for ((col, y), sum) in cols.iter().zip(b.chunks(K)).zip(sums) {
            *sum = match Number::read(SINGLE, (*sum).into()) {
                Finite { negative, significand, exponent, .. } if !row.special && !col.special => {
                    let of = (if negative { -(significand as i32) } else { significand as i32 }, exponent);
                    row.dot(col, format, of)
                }
                _ => block(TensorCore::Sm90, format, x, y, *sum),
            };
        }
    }
}

/// Numbers along k that a warpgroup multiplies at once.
const K: usize = 16;

/// So many finite numbers, ready to be multiplied: ±significand · 2^(exponent − fraction).
struct Line {
    significands: [i32; K],
    exponents: [i32; K],
    /// Not so finite.
    special: bool,
}

/// An exponent of zero, below those of all products.
const NOTHING: i32 = -4096;

impl Line {
    fn read(format: Format, bits: &[u64]) -> Self {
        let mut line = Line { significands: [0; K], exponents: [NOTHING; K], special: false };
        for (at, &bits) in bits.iter().enumerate() {
            match Number::read(format, bits) {
                Finite { significand: 0, .. } => {}
                Finite { negative, significand, exponent, .. } => {
                    line.significands[at] = if negative { -(significand as i32) } else { significand as i32 };
                    line.exponents[at] = exponent;
                }
                Infinite { .. } | Nan => line.special = true,
            }
        }
        line
    }

    /// What [`block`] computes.
    fn dot(&self, other: &Line, format: Format, (sum, exponent): (i32, i32)) -> u32 {
        const KEPT: i32 = TensorCore::Sm90.kept_bits();
        let exponents: [i32; K] = std::array::from_fn(|i| self.exponents[i] + other.exponents[i]);
        let of_sum = if sum == 0 { LEAST_EXPONENT } else { exponent };
        let largest = exponents.iter().fold(of_sum.max(LEAST_EXPONENT), |largest, &exponent| largest.max(exponent));
        let aligned = |significand: i32, up: i32, exponent: i32| {
            let magnitude = (significand.unsigned_abs() << up) >> (largest - exponent).min(31);
            let sign = significand >> 31;
            (magnitude as i32 ^ sign) - sign
        };
        let up = KEPT - 2 * format.fraction as i32;
        // A product has 27 bits, so eight of them go into 31.
        let (mut low, mut high) = (0, 0);
        for i in 0..K / 2 {
            let j = i + K / 2;
            low += aligned(self.significands[i] * other.significands[i], up, exponents[i]);
            high += aligned(self.significands[j] * other.significands[j], up, exponents[j]);
        }
        let sum = aligned(sum, KEPT - SINGLE.fraction as i32, exponent);
        let total = i64::from(low) + i64::from(high) + i64::from(sum);
        towards_zero(total, largest - KEPT)
    }
}

/// What comes out where a term is infinite or NaN.
fn infinite(terms: &[Number]) -> Option<u32> {
    let has = |sign: bool| terms.iter().any(|term| matches!(term, Infinite { negative } if *negative == sign));
    match (terms.iter().any(|term| matches!(term, Nan)), has(false), has(true)) {
        (false, false, false) => None,
        (false, true, false) => Some(INFINITY),
        (false, false, true) => Some(SIGN | INFINITY),
        _ => Some(NAN),
    }
}

/// A term in units of 2^(largest − kept), cut off towards zero.
fn aligned(term: Number, largest: i32, kept: i32) -> i64 {
    let Finite { negative, significand: significand @ 1.., exponent, fraction } = term else { return 0 };
    let shift = kept - fraction - (largest - exponent);
    let magnitude = match shift {
        0.. => significand << shift,
        _ => significand.checked_shr(shift.unsigned_abs()).unwrap_or(0),
    };
    if negative { -(magnitude as i64) } else { magnitude as i64 }
}

/// total · 2^exponent as f32. Zero has no sign unless it was cut off from something.
fn towards_zero(total: i64, exponent: i32) -> u32 {
    const FRACTION: i32 = 23;
    if total == 0 {
        return 0;
    }
    let (sign, magnitude) = (if total < 0 { SIGN } else { 0 }, total.unsigned_abs());
    let highest = 63 - magnitude.leading_zeros() as i32 + exponent;
    if highest > 127 {
        return sign | INFINITY;
    }
    // The last bit that the result has room for.
    let last = highest.max(LEAST_EXPONENT) - FRACTION;
    let shift = exponent - last;
    let significand = if shift >= 0 { magnitude << shift } else { magnitude >> -shift } as u32;
    // The leading bit of a normal number counts the exponent up by one, that of a subnormal is not there.
    let biased = (highest.max(LEAST_EXPONENT) - LEAST_EXPONENT) as u32;
    sign | ((biased << FRACTION) + significand)
}

/// An f32 to 10 bits behind the point: to nearest, ties away from zero. The meaning of [`tegula_ir::Op::RoundTf32`].
pub(super) fn round_tf32(bits: u32) -> u32 {
    const DROPPED: u32 = 13;
    if bits & !SIGN > INFINITY {
        // The quiet NaN of every day stays as it is on an H200; of others no more is known than that they stay NaN.
        return (bits | 1 << 22) & !((1 << DROPPED) - 1);
    }
    if bits & !SIGN == INFINITY {
        return bits;
    }
    (bits + (1 << (DROPPED - 1))) >> DROPPED << DROPPED
}

#[cfg(test)]
mod tests {
    use tegula_core::element::{bf16, f16};

    use super::*;

    /// One block of f16 products on an sm_90.
    fn f16_block(pairs: &[(f32, f32)], sum: f32) -> f32 {
        let bits = |x: f32| u64::from(f16::from_f32(x).to_bits());
        let a: Vec<u64> = pairs.iter().map(|p| bits(p.0)).collect();
        let b: Vec<u64> = pairs.iter().map(|p| bits(p.1)).collect();
        f32::from_bits(block(TensorCore::Sm90, HALF, &a, &b, sum.to_bits()))
    }

    fn power(exponent: i32) -> f32 {
        2f64.powi(exponent) as f32
    }

    #[test]
    fn exact_sums_are_exact() {
        assert_eq!(f16_block(&[(1.5, 2.0), (-0.25, 4.0)], 10.0), 12.0);
        assert_eq!(f16_block(&[(65504.0, 65504.0)], 0.0), 65504.0 * 65504.0);
        assert_eq!(f16_block(&[(power(-24), power(-24))], 0.0), power(-48));
        assert_eq!(f16_block(&[], -1.0e-44), -1.0e-44);
    }

    #[test]
    fn bits_beyond_the_kept_ones_are_cut_off_before_the_addition() {
        // 1 keeps 25 bits behind the point: two halves of its last bit are nothing, two whole ones are.
        assert_eq!(f16_block(&[(power(-13), power(-13)); 16], 1.0), 1.0);
        assert_eq!(f16_block(&[(power(-13), power(-12)); 4], 1.0), 1.0 + power(-23));
        assert_eq!(f16_block(&[(power(-13), power(-12)); 3], 1.0), 1.0);
        // An sm_80 keeps one bit less.
        let bits = [f16::from_f32(power(-13)), f16::from_f32(power(-12))].map(|x| u64::from(x.to_bits()));
        let old = block(TensorCore::Sm80, HALF, &[bits[0]; 4], &[bits[1]; 4], 1f32.to_bits());
        assert_eq!(f32::from_bits(old), 1.0);
    }

    #[test]
    fn results_round_towards_zero() {
        let below = 1.0 - power(-24);
        assert_eq!(f16_block(&[(-power(-13), power(-12))], 1.0), below);
        assert_eq!(f16_block(&[(power(-13), power(-12))], -1.0), -below);
        assert_eq!(f16_block(&[(power(-13), power(-12)); 7], 1.0), 1.0 + power(-23));
    }

    /// A product of 2 or more has the exponent of its factors: 1.5 · 1.5 counts as one of exponent 0.
    #[test]
    fn products_are_not_normalised_before_they_are_aligned() {
        let small = (power(-13), power(-12));
        assert_eq!(f16_block(&[(1.5, 1.5), (-1.5, 1.5), small], 0.0), power(-25));
        assert_eq!(f16_block(&[(2.0, 1.125), (-2.0, 1.125), small], 0.0), 0.0);
    }

    #[test]
    fn special_numbers_come_out() {
        let (inf, nan) = (f32::INFINITY, f32::NAN);
        assert_eq!(f16_block(&[(inf, -1.0)], 1.0), -inf);
        assert_eq!(f16_block(&[(inf, 0.0)], 1.0).to_bits(), NAN);
        assert_eq!(f16_block(&[(inf, 1.0)], -inf).to_bits(), NAN);
        assert_eq!(f16_block(&[(nan, 1.0)], 1.0).to_bits(), NAN);
        let huge = u64::from(bf16::MAX.to_bits());
        let sums = [[huge, huge ^ 0x8000], [huge, huge]].map(|b| block(TensorCore::Sm90, BRAIN, &[huge; 2], &b, 0));
        assert_eq!(sums.map(f32::from_bits), [0.0, inf]);
        // A zero is no larger for what it is multiplied by.
        assert_eq!(f32::from_bits(block(TensorCore::Sm90, BRAIN, &[0], &[huge], 1)), power(-149));
        let small = u64::from(bf16::from_f32(power(-70)).to_bits());
        let least = block(TensorCore::Sm90, BRAIN, &[small], &[small], 0);
        assert_eq!(f32::from_bits(least), power(-140));
    }

    #[test]
    fn longer_rows_are_added_block_by_block() {
        // 1 + 2^-24 does not outlive the first block of an sm_80; an sm_90 has all in one.
        let half = |x: f32| u64::from(f16::from_f32(x).to_bits());
        let (mut a, mut b) = ([0; 16], [0; 16]);
        for (i, (x, y)) in [(0, (power(-12), power(-12))), (1, (1.0, 1.0)), (8, (-1.0, 1.0))] {
            (a[i], b[i]) = (half(x), half(y));
        }
        let sums = [TensorCore::Sm80, TensorCore::Sm90].map(|core| f32::from_bits(blocks(core, HALF, &a, &b, 0)));
        assert_eq!(sums, [0.0, power(-24)]);
    }

    /// Numbers near each other, far apart, tiny, and no numbers at all.
    #[test]
    fn a_warpgroup_adds_as_blocks_do() {
        let mut state = 1u64;
        let mut random = || {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            state >> 33
        };
        for (ty, format, exponents) in [(Type::F16, HALF, 10), (Type::BF16, BRAIN, 7)] {
            for round in 0..2000 {
                let mut bits = |_| {
                    let bits = random() & 0xffff;
                    // Every other round within a few powers of two of 1.
                    let one = (1u64 << 14) - (1 << exponents);
                    let near = one | bits & ((1 << exponents) - 1) | bits & 0x8000;
                    match round % 4 {
                        0 => bits,
                        1 => near,
                        2 => bits & 0xbfff,
                        _ if bits % 3 == 0 => 0,
                        _ => near,
                    }
                };
                let (a, b): ([u64; 16], [u64; 16]) = (std::array::from_fn(&mut bits), std::array::from_fn(&mut bits));
                let sum = match round % 5 {
                    0 => 0,
                    1 => (random() as u32) & 0x807f_ffff,
                    2 => (random() as u32) & 0x3fff_ffff,
                    _ => (random() << 3) as u32,
                };
                let mut sums = [sum];
                warpgroup(ty, &a, &b, &mut sums);
                assert_eq!(sums[0], blocks(TensorCore::Sm90, format, &a, &b, sum), "{ty} {a:x?} {b:x?} {sum:#x}");
            }
        }
    }

    #[test]
    fn tf32_rounds_ties_away_and_looks_at_no_more() {
        let round = |x: f32| f32::from_bits(round_tf32(x.to_bits()));
        assert_eq!(round(1.0 + power(-11)), 1.0 + power(-10));
        assert_eq!(round(-1.0 - power(-11)), -1.0 - power(-10));
        assert_eq!(round(1.0 + power(-11) - power(-23)), 1.0);
        assert_eq!(round(f32::MAX), f32::INFINITY);
        assert_eq!((round(f32::INFINITY), round(f32::NAN).is_nan()), (f32::INFINITY, true));
        let rough = u64::from((1.0 + power(-11)).to_bits());
        assert_eq!(f32::from_bits(block(TensorCore::Sm90, TF32, &[rough], &[rough], 0)), 1.0);
    }
}
