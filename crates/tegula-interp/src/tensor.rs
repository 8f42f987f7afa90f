//! Bit-exact arithmetic of the Tensor Cores.
//!
//! NVIDIA does not document it; it was measured. The model follows Xie, Xu, Wang, Yang and Yang,
//! "Bit-Accurate Modeling of GPU Matrix Multiply-Accumulate Units" (arXiv 2511.10909). Khattak and
//! Mikaitis, "Accurate Models of NVIDIA Tensor Cores" (arXiv 2512.07004), agree with it:
//!
//! * **f64** is a chain of fused multiply-adds in the order of k, which starts from the
//!   accumulator. Each rounds to nearest even.
//! * **f16, bf16, tf32** are accumulated in blocks along k. The products of a block and the
//!   accumulator are added at once. Products are exact. All terms are aligned to their largest
//!   exponent. The exponent of a product is the sum of its operands' exponents, even if its
//!   significand is 2 or more. Bits below a fixed number of fraction bits are truncated. The
//!   remaining terms are added exactly, and the sum is rounded toward zero to f32. Subnormals are
//!   kept, and overflow gives infinity. Every NaN result has the same bits.
//! * **i8, u8** wrap.
//!
//! The block length and the number of fraction bits depend on the GPU: [`TensorCore`].

use tegula_core::element::Type;
use tegula_core::lanes::mul_add_f64;
use tegula_ir::Mma;

/// GPU generation whose Tensor Core arithmetic is modeled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TensorCore {
    /// A100.
    Sm80,
    /// H100 and H200.
    Sm90,
}

impl TensorCore {
    /// Bytes of a row of A in a block, whose products are added at once.
    const fn block_bytes(self) -> usize {
        match self {
            TensorCore::Sm80 => 16,
            TensorCore::Sm90 => 32,
        }
    }

    /// Fraction bits kept by the alignment.
    const fn kept_bits(self) -> i32 {
        match self {
            TensorCore::Sm80 => 24,
            TensorCore::Sm90 => 25,
        }
    }
}

/// Operands and accumulators of one instruction, as bits.
pub(super) struct Matrices {
    /// In row-major order.
    pub a: [u64; 16 * 32],
    /// In column-major order.
    pub b: [u64; 32 * 8],
    /// In row-major order.
    pub accumulators: [u64; 16 * 8],
}

/// Computes C += A·B.
pub(super) fn multiply(core: TensorCore, mma: Mma, of: &mut Matrices) {
    match mma {
        Mma::F64M8K4 | Mma::F64K4 | Mma::F64K8 | Mma::F64K16 => fma_chain(mma, of),
        Mma::F16 => for_each_accumulator(mma, of, |a, b, sum| accumulate_blocks(core, F16, a, b, sum)),
        Mma::BF16 => for_each_accumulator(mma, of, |a, b, sum| accumulate_blocks(core, BF16, a, b, sum)),
        Mma::TF32 => for_each_accumulator(mma, of, |a, b, sum| accumulate_blocks(core, TF32, a, b, sum)),
        Mma::I8 => {
            for_each_accumulator(mma, of, |a, b, sum| accumulate_wrapping(|bits| i32::from(bits as i8), a, b, sum))
        }
        Mma::U8 => {
            for_each_accumulator(mma, of, |a, b, sum| accumulate_wrapping(|bits| i32::from(bits as u8), a, b, sum))
        }
    }
}

/// Computes every accumulator from its row of A and its column of B.
fn for_each_accumulator(
    mma: Mma,
    Matrices { a, b, accumulators }: &mut Matrices,
    f: impl Fn(&[u64], &[u64], u32) -> u32,
) {
    let [m, n, k] = mma.shape().map(|extent| extent as usize);
    for (i, sum) in accumulators[..m * n].iter_mut().enumerate() {
        let (row, col) = (i / n, i % n);
        *sum = f(&a[row * k..][..k], &b[col * k..][..k], *sum as u32).into();
    }
}

/// Fused multiply-adds of 32 accumulators at a time.
fn fma_chain(mma: Mma, Matrices { a, b, accumulators }: &mut Matrices) {
    let [m, n, k] = mma.shape().map(|extent| extent as usize);
    for first in (0..m * n).step_by(32) {
        let mut acc = std::array::from_fn(|i| f64::from_bits(accumulators[first + i]));
        for p in 0..k {
            let x = std::array::from_fn(|i| f64::from_bits(a[(first + i) / n * k + p]));
            let y = std::array::from_fn(|i| f64::from_bits(b[(first + i) % n * k + p]));
            let before = acc;
            mul_add_f64(&x, &y, &before, &mut acc);
        }
        acc.iter().zip(&mut accumulators[first..]).for_each(|(x, sum)| *sum = x.to_bits());
    }
}

fn accumulate_wrapping(value: impl Fn(u64) -> i32, a: &[u64], b: &[u64], sum: u32) -> u32 {
    let products = a.iter().zip(b).map(|(&a, &b)| value(a) * value(b));
    products.fold(sum as i32, i32::wrapping_add) as u32
}

/// Adds the products of the elements of a row of A and a column of B to an f32 accumulator.
pub fn accumulate_blocks(core: TensorCore, format: Format, a: &[u64], b: &[u64], sum: u32) -> u32 {
    let length = block_length(core, format);
    a.chunks(length).zip(b.chunks(length)).fold(sum, |sum, (a, b)| accumulate_block(core, format, a, b, sum))
}

/// Products that are added at once.
pub const fn block_length(core: TensorCore, format: Format) -> usize {
    core.block_bytes() / format.bytes
}

/// A floating-point format: exponent bits, fraction bits, and lower bits that are ignored.
#[derive(Clone, Copy, Debug)]
pub struct Format {
    exponent: u32,
    fraction: u32,
    unused: u32,
    bytes: usize,
}

/// IEEE half precision.
pub const F16: Format = Format::of(Type::F16);
/// bfloat16.
pub const BF16: Format = Format::of(Type::BF16);
/// An f32 whose lowest 13 bits are ignored.
pub const TF32: Format = Format { fraction: 10, unused: 13, ..F32 };
/// IEEE single precision.
pub const F32: Format = Format::of(Type::F32);

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

/// The NaN of every NaN result.
const NAN: u32 = 0x7fff_ffff;
const INFINITY: u32 = 0x7f80_0000;
const SIGN: u32 = 0x8000_0000;
/// Exponent of the smallest normal f32 and of its subnormals.
const MIN_EXPONENT: i32 = -126;
/// Exponent of an accumulator that is zero, and so the lowest largest exponent.
const MIN_LARGEST: i32 = -133;

/// Adds the products of one block to the accumulator, all at once.
fn accumulate_block(core: TensorCore, format: Format, a: &[u64], b: &[u64], sum: u32) -> u32 {
    match block_sum(core, format, a, b, (F32, sum.into())) {
        Ok((total, exponent)) => round_toward_zero(total, exponent),
        Err(special) => special,
    }
}

/// The sum of an accumulator and the products of one block, not rounded yet: total · 2^exponent.
///
/// A block has at most 16 products. The accumulator is f32, or of a format with fewer exponents.
///
/// # Errors
/// The bits of the f32 result if it is infinite or NaN because a term is.
pub fn block_sum(
    core: TensorCore,
    format: Format,
    a: &[u64],
    b: &[u64],
    (format_of_sum, sum): (Format, u64),
) -> Result<(i64, i32), u32> {
    let products = a.iter().zip(b).map(|(&a, &b)| Number::read(format, a).times(Number::read(format, b)));
    let mut terms = [Number::read(format_of_sum, sum); 17];
    let count = 1 + terms[1..].iter_mut().zip(products).map(|(term, product)| *term = product).count();
    let terms = &terms[..count];
    if let Some(special) = special_result(terms) {
        return Err(special);
    }
    let largest = terms.iter().fold(MIN_LARGEST, |largest, term| match *term {
        Finite { significand: 1.., exponent, .. } => largest.max(exponent),
        _ => largest,
    });
    let total: i64 = terms.iter().map(|&term| aligned(term, largest, core.kept_bits())).sum();
    Ok((total, largest - core.kept_bits()))
}

/// Computes C += A·B of a warpgroup's instruction (`HopperOp::Wgmma`).
///
/// Rows of A and columns of B have 16 elements each; accumulators are in row-major order. The 16
/// products are added at once, as those of `mma` on the same GPU.
pub fn warpgroup(ty: Type, a: &[u64], b: &[u64], accumulators: &mut [u32]) {
    let format = Format::of(ty);
    let lines = |bits: &[u64]| bits.chunks(K).map(|line| OperandLine::read(format, line)).collect::<Vec<_>>();
    let (rows, cols) = (lines(a), lines(b));
    for ((row, x), accumulators) in rows.iter().zip(a.chunks(K)).zip(accumulators.chunks_mut(cols.len())) {
        for ((col, y), sum) in cols.iter().zip(b.chunks(K)).zip(accumulators) {
            *sum = match Number::read(F32, (*sum).into()) {
                Finite { negative, significand, exponent, .. } if !row.special && !col.special => {
                    let of = (if negative { -(significand as i32) } else { significand as i32 }, exponent);
                    row.dot(col, format, of)
                }
                _ => accumulate_block(TensorCore::Sm90, format, x, y, *sum),
            };
        }
    }
}

/// Extent of a warpgroup's instruction along k.
const K: usize = 16;

/// 16 finite values, decoded for multiplication: ±significand · 2^(exponent − fraction).
struct OperandLine {
    significands: [i32; K],
    exponents: [i32; K],
    /// Whether one of them is infinite or NaN.
    special: bool,
}

/// Exponent of zero, below those of all products.
const ZERO_EXPONENT: i32 = -4096;

impl OperandLine {
    fn read(format: Format, bits: &[u64]) -> Self {
        let mut line = OperandLine { significands: [0; K], exponents: [ZERO_EXPONENT; K], special: false };
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

    /// Computes the result of [`block`].
    fn dot(&self, other: &OperandLine, format: Format, (sum, exponent): (i32, i32)) -> u32 {
        const KEPT: i32 = TensorCore::Sm90.kept_bits();
        let exponents: [i32; K] = std::array::from_fn(|i| self.exponents[i] + other.exponents[i]);
        let of_sum = if sum == 0 { MIN_LARGEST } else { exponent };
        let largest = exponents.iter().fold(of_sum, |largest, &exponent| largest.max(exponent));
        let aligned = |significand: i32, up: i32, exponent: i32| {
            let magnitude = (significand.unsigned_abs() << up) >> (largest - exponent).min(31);
            let sign = significand >> 31;
            (magnitude as i32 ^ sign) - sign
        };
        let up = KEPT - 2 * format.fraction as i32;
        // A product has 27 bits, so the sum of eight fits in 31.
        let (mut low, mut high) = (0, 0);
        for i in 0..K / 2 {
            let j = i + K / 2;
            low += aligned(self.significands[i] * other.significands[i], up, exponents[i]);
            high += aligned(self.significands[j] * other.significands[j], up, exponents[j]);
        }
        let sum = aligned(sum, KEPT - F32.fraction as i32, of_sum);
        let total = i64::from(low) + i64::from(high) + i64::from(sum);
        round_toward_zero(total, largest - KEPT)
    }
}

/// The result if a term is infinite or NaN.
fn special_result(terms: &[Number]) -> Option<u32> {
    let has = |sign: bool| terms.iter().any(|term| matches!(term, Infinite { negative } if *negative == sign));
    match (terms.iter().any(|term| matches!(term, Nan)), has(false), has(true)) {
        (false, false, false) => None,
        (false, true, false) => Some(INFINITY),
        (false, false, true) => Some(SIGN | INFINITY),
        _ => Some(NAN),
    }
}

/// A term in units of 2^(largest − kept), truncated toward zero.
fn aligned(term: Number, largest: i32, kept: i32) -> i64 {
    let Finite { negative, significand: significand @ 1.., exponent, fraction } = term else { return 0 };
    let shift = kept - fraction - (largest - exponent);
    let magnitude = match shift {
        0.. => significand << shift,
        _ => significand.checked_shr(shift.unsigned_abs()).unwrap_or(0),
    };
    if negative { -(magnitude as i64) } else { magnitude as i64 }
}

/// Converts total · 2^exponent to f32. Zero is positive, also if it results from truncation.
fn round_toward_zero(total: i64, exponent: i32) -> u32 {
    const FRACTION: i32 = 23;
    if total == 0 {
        return 0;
    }
    let (sign, magnitude) = (if total < 0 { SIGN } else { 0 }, total.unsigned_abs());
    let highest = 63 - magnitude.leading_zeros() as i32 + exponent;
    if highest > 127 {
        return sign | INFINITY;
    }
    // The last bit that the result can hold.
    let last = highest.max(MIN_EXPONENT) - FRACTION;
    let shift = exponent - last;
    let significand = if shift >= 0 { magnitude << shift } else { magnitude >> -shift } as u32;
    if significand == 0 {
        return 0;
    }
    // The leading bit of a normal number adds one to the exponent; a subnormal has none.
    let biased = (highest.max(MIN_EXPONENT) - MIN_EXPONENT) as u32;
    sign | ((biased << FRACTION) + significand)
}

/// Rounds an f32 to 10 fraction bits, to nearest, ties away from zero.
///
/// These are the semantics of [`tegula_ir::Op::RoundTf32`].
pub(super) fn round_tf32(bits: u32) -> u32 {
    const DROPPED: u32 = 13;
    if bits & !SIGN > INFINITY {
        // The default quiet NaN is unchanged on an H200. Of other NaNs it is only known that they
        // stay NaN.
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

    /// One block of f16 products on sm_90.
    fn f16_block(pairs: &[(f32, f32)], sum: f32) -> f32 {
        let bits = |x: f32| u64::from(f16::from_f32(x).to_bits());
        let a: Vec<u64> = pairs.iter().map(|p| bits(p.0)).collect();
        let b: Vec<u64> = pairs.iter().map(|p| bits(p.1)).collect();
        f32::from_bits(accumulate_block(TensorCore::Sm90, F16, &a, &b, sum.to_bits()))
    }

    fn power(exponent: i32) -> f32 {
        2f64.powi(exponent) as f32
    }

    #[test]
    fn block_exact_sum_is_exact() {
        assert_eq!(f16_block(&[(1.5, 2.0), (-0.25, 4.0)], 10.0), 12.0);
        assert_eq!(f16_block(&[(65504.0, 65504.0)], 0.0), 65504.0 * 65504.0);
        assert_eq!(f16_block(&[(power(-24), power(-24))], 0.0), power(-48));
        assert_eq!(f16_block(&[], -1.0e-44), -1.0e-44);
    }

    #[test]
    fn block_bits_below_kept_fraction_are_truncated() {
        // 1 keeps 25 fraction bits: two halves of the last bit are lost, two whole ones are not.
        assert_eq!(f16_block(&[(power(-13), power(-13)); 16], 1.0), 1.0);
        assert_eq!(f16_block(&[(power(-13), power(-12)); 4], 1.0), 1.0 + power(-23));
        assert_eq!(f16_block(&[(power(-13), power(-12)); 3], 1.0), 1.0);
        // sm_80 keeps one bit less.
        let bits = [f16::from_f32(power(-13)), f16::from_f32(power(-12))].map(|x| u64::from(x.to_bits()));
        let old = accumulate_block(TensorCore::Sm80, F16, &[bits[0]; 4], &[bits[1]; 4], 1f32.to_bits());
        assert_eq!(f32::from_bits(old), 1.0);
    }

    #[test]
    fn block_result_rounds_toward_zero() {
        let below = 1.0 - power(-24);
        assert_eq!(f16_block(&[(-power(-13), power(-12))], 1.0), below);
        assert_eq!(f16_block(&[(power(-13), power(-12))], -1.0), -below);
        assert_eq!(f16_block(&[(power(-13), power(-12)); 7], 1.0), 1.0 + power(-23));
    }

    /// A product of 2 or more has the sum of its operands' exponents: 1.5 · 1.5 has exponent 0.
    #[test]
    fn block_products_align_without_normalization() {
        let small = (power(-13), power(-12));
        assert_eq!(f16_block(&[(1.5, 1.5), (-1.5, 1.5), small], 0.0), power(-25));
        assert_eq!(f16_block(&[(2.0, 1.125), (-2.0, 1.125), small], 0.0), 0.0);
    }

    #[test]
    fn block_special_values_propagate() {
        let (inf, nan) = (f32::INFINITY, f32::NAN);
        assert_eq!(f16_block(&[(inf, -1.0)], 1.0), -inf);
        assert_eq!(f16_block(&[(inf, 0.0)], 1.0).to_bits(), NAN);
        assert_eq!(f16_block(&[(inf, 1.0)], -inf).to_bits(), NAN);
        assert_eq!(f16_block(&[(nan, 1.0)], 1.0).to_bits(), NAN);
        let huge = u64::from(bf16::MAX.to_bits());
        let accumulators =
            [[huge, huge ^ 0x8000], [huge, huge]].map(|b| accumulate_block(TensorCore::Sm90, BF16, &[huge; 2], &b, 0));
        assert_eq!(accumulators.map(f32::from_bits), [0.0, inf]);
        // The exponent of a zero product does not depend on the other operand.
        assert_eq!(f32::from_bits(accumulate_block(TensorCore::Sm90, BF16, &[0], &[huge], 1)), power(-149));
        let small = u64::from(bf16::from_f32(power(-70)).to_bits());
        let smallest = accumulate_block(TensorCore::Sm90, BF16, &[small], &[small], 0);
        assert_eq!(f32::from_bits(smallest), power(-140));
    }

    #[test]
    fn sm80_long_rows_accumulate_block_by_block() {
        // 1 + 2^-24 is lost in the first block of sm_80; sm_90 adds all in one block.
        let half = |x: f32| u64::from(f16::from_f32(x).to_bits());
        let (mut a, mut b) = ([0; 16], [0; 16]);
        for (i, (x, y)) in [(0, (power(-12), power(-12))), (1, (1.0, 1.0)), (8, (-1.0, 1.0))] {
            (a[i], b[i]) = (half(x), half(y));
        }
        let accumulators =
            [TensorCore::Sm80, TensorCore::Sm90].map(|core| f32::from_bits(accumulate_blocks(core, F16, &a, &b, 0)));
        assert_eq!(accumulators, [0.0, power(-24)]);
    }

    /// Values of similar and of very different magnitude, tiny values, infinities and NaN.
    #[test]
    fn warpgroup_matches_block_arithmetic() {
        let mut state = 1u64;
        let mut random = || {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            state >> 33
        };
        for (ty, format, exponents) in [(Type::F16, F16, 10), (Type::BF16, BF16, 7)] {
            for round in 0..2000 {
                let mut bits = |_| {
                    let bits = random() & 0xffff;
                    // Every second round within a few powers of two of 1.
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
                let mut accumulators = [sum];
                warpgroup(ty, &a, &b, &mut accumulators);
                assert_eq!(
                    accumulators[0],
                    accumulate_blocks(TensorCore::Sm90, format, &a, &b, sum),
                    "{ty} {a:x?} {b:x?} {sum:#x}"
                );
            }
        }
    }

    #[test]
    fn tf32_ties_round_away_and_low_bits_are_ignored() {
        let round = |x: f32| f32::from_bits(round_tf32(x.to_bits()));
        assert_eq!(round(1.0 + power(-11)), 1.0 + power(-10));
        assert_eq!(round(-1.0 - power(-11)), -1.0 - power(-10));
        assert_eq!(round(1.0 + power(-11) - power(-23)), 1.0);
        assert_eq!(round(f32::MAX), f32::INFINITY);
        assert_eq!((round(f32::INFINITY), round(f32::NAN).is_nan()), (f32::INFINITY, true));
        let rough = u64::from((1.0 + power(-11)).to_bits());
        assert_eq!(f32::from_bits(accumulate_block(TensorCore::Sm90, TF32, &[rough], &[rough], 0)), 1.0);
    }
}
