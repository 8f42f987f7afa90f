//! Accumulators rounded in registers have the bits of those rounded from memory.

use super::*;

/// Sizes m, n and k: small products, parts of micro-tiles, and packed products of one step of k.
/// With k of 1, exact products of small numbers are subnormal.
const SIZES: [[usize; 3]; 11] = [
    [2, 9, 3],
    [61, 63, 1],
    [61, 63, 64],
    [7, 33, 21],
    [64, 64, 64],
    [130, 200, 100],
    [35, 81, 300],
    [67, 600, 90],
    [700, 600, 1],
    [300, 230, 700],
    [1500, 1450, 1],
];

/// Numbers of the magnitudes 2^-`exponents` to 2^`exponents`, and a row or a column, `of_k`
/// elements `stride` apart, with numbers that are infinite or none.
fn values<T: Scalar>(random: &mut Random, len: usize, exponents: i32, [of_k, stride]: [usize; 2]) -> Vec<T> {
    let value = |i: usize| {
        let bits = random.bits();
        let exponent = (bits & 0xFFFF) as i32 % (2 * exponents + 1) - exponents;
        let magnitude = (1.0 + (bits >> 16 & 0xFFFF) as f64 / 65536.0) * f64::from(exponent).exp2();
        let value = match i.is_multiple_of(stride) && i / stride < of_k {
            true => [f64::INFINITY, f64::NAN, 0.0, magnitude][(bits >> 34 & 3) as usize],
            false => magnitude,
        };
        T::from_bits(T::TYPE.round(if bits >> 33 & 1 == 0 { value } else { -value }))
    };
    (0..len).map(value).collect()
}

/// C with distant columns has the bits of C with adjacent ones; only its accumulators go through
/// memory.
#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
fn accumulators_are_rounded_alike_in_registers_and_from_memory() {
    /// Exponents that leave most results finite, and for a k of 1 some subnormal.
    fn one<T: Element>(exponents: [i32; 2]) {
        for sizes @ [m, n, k] in SIZES {
            let (random, exponents) = (&mut Random(7), exponents[usize::from(k > 1)]);
            let (a, b) = (values::<T>(random, m * k, exponents, [k, 1]), values(random, k * n, exponents, [k, n]));
            let (a, b) = (View::new(&a, m, k).unwrap(), View::new(&b, k, n).unwrap());
            for isa in instruction_sets() {
                let of_columns = |spacing: usize| {
                    let (layout, len) = Style { spacing, ..Style::default() }.layout(Shape::new(m, n));
                    let mut data = vec![T::Out::ONE; len];
                    let c = ViewMut::strided(&mut data, layout).unwrap();
                    let (alpha, beta) = (T::Acc::ONE, T::Acc::ZERO);
                    gemm_with_options::<T>(isa, alpha, a, b, beta, c, EpilogueOperands::default(), None, None, false)
                        .unwrap();
                    let at = |i: usize| layout.offset + i / n * layout.strides[1] as usize + i % n * spacing;
                    (0..m * n).map(|i| data[at(i)]).collect::<Vec<_>>()
                };
                let (adjacent, distant) = (of_columns(1), of_columns(2));
                let is_finite = |x: &&T::Out| <T::Out as Scalar>::TYPE.to_f64(x.to_bits()).is_finite();
                let finite = adjacent.iter().filter(is_finite).count();
                assert!(4 * finite >= m * n, "{isa} {} {sizes:?}", T::TYPE);
                for (i, (adjacent, distant)) in adjacent.into_iter().zip(distant).enumerate() {
                    let place = format!("{isa} {} {sizes:?}, row {}, column {}", T::TYPE, i / n, i % n);
                    assert_eq!(adjacent.to_bits(), distant.to_bits(), "{place}");
                }
            }
        }
    }
    one::<bf16>([75, 55]);
    one::<f16>([12, 4]);
}
