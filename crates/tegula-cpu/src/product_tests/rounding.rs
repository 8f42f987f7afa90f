//! Sums that are rounded in registers have the bits of those that are rounded from memory.

use super::*;

/// Sizes m, n and k: small products, and packed ones with parts of micro-tiles, of one step of k.
const SIZES: [[usize; 3]; 8] = [
    [1, 9, 3],
    [61, 63, 64],
    [7, 33, 21],
    [64, 64, 64],
    [130, 200, 100],
    [35, 81, 300],
    [67, 600, 90],
    [600, 530, 700],
];

/// Values of all magnitudes whose products are numbers of the type, or nearly; a few are infinite
/// or no numbers.
fn values<T: Scalar>(random: &mut Random, len: usize, exponents: i32) -> Vec<T> {
    let value = |_| {
        let bits = random.bits();
        let magnitude = (1.0 + (bits >> 16 & 0xFFFF) as f64 / 65536.0) * f64::from(bits as i32 % exponents).exp2();
        let value = match bits >> 32 & 0xFFF {
            0 => f64::INFINITY,
            1 => f64::NAN,
            _ => magnitude,
        };
        T::from_bits(T::TYPE.round(if bits >> 48 & 1 == 0 { value } else { -value }))
    };
    (0..len).map(value).collect()
}

/// A C of distant columns takes rounded sums from memory.
#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
fn sums_are_rounded_alike_in_registers_and_from_memory() {
    fn one<T: Element>(exponents: i32) {
        for sizes @ [m, n, k] in SIZES {
            let random = &mut Random(7);
            let (a, b) = (values::<T>(random, m * k, exponents), values::<T>(random, k * n, exponents));
            let (a, b) = (View::new(&a, m, k).unwrap(), View::new(&b, k, n).unwrap());
            for isa in instruction_sets() {
                let of_columns = |spacing: usize| {
                    let style = Style { spacing, ..Style::default() };
                    let (layout, len) = style.layout(Shape { batches: 1, rows: m, cols: n });
                    let mut data = vec![T::Out::ONE; len];
                    let c = ViewMut::strided(&mut data, layout).unwrap();
                    let (alpha, beta) = (T::Acc::ONE, T::Acc::ZERO);
                    gemm_with_options::<T>(isa, alpha, a, b, beta, c, EpilogueOperands::default(), None, None, false)
                        .unwrap();
                    let at = |i: usize| layout.offset + (i / n) * layout.strides[1] as usize + i % n * spacing;
                    (0..m * n).map(|i| data[at(i)].to_bits()).collect::<Vec<_>>()
                };
                let (together, apart) = (of_columns(1), of_columns(2));
                for (i, (together, apart)) in together.into_iter().zip(apart).enumerate() {
                    assert_eq!(together, apart, "{isa} {} {sizes:?}, row {}, column {}", T::TYPE, i / n, i % n);
                }
            }
        }
    }
    one::<bf16>(75);
    one::<f16>(14);
}
