//! Helpers for tests: they evaluate an instruction on scalars, and generate operands.

use super::{Arithmetic, Lanes, Results};

/// Decodes an instruction such as `add.sat.s32`.
pub(super) fn decode(spelling: &str, sources: usize) -> Option<Result<Arithmetic, String>> {
    let mut words = spelling.split('.');
    let opcode = words.next().unwrap_or_default();
    let modifiers: Vec<String> = words.map(String::from).collect();
    Arithmetic::decode(opcode, &modifiers, sources)
}

/// Evaluates an instruction with the same operands in all lanes.
pub(super) fn eval_full(spelling: &str, sources: &[u64], carry: bool) -> ([u64; 2], Results) {
    let instruction = decode(spelling, sources.len()).expect(spelling).unwrap_or_else(|e| panic!("{spelling}: {e}"));
    let lanes: Vec<Lanes> = sources.iter().map(|&value| [value; 32]).collect();
    let lanes: Vec<&Lanes> = lanes.iter().collect();
    let mut values = [[u64::MAX; 32]; 2];
    let results = instruction.eval(&lanes, if carry { u32::MAX } else { 0 }, u32::MAX, &mut values);
    assert!(values.iter().all(|lanes| lanes.iter().all(|lane| *lane == lanes[0])), "{spelling}: lanes differ");
    (values.map(|lanes| lanes[0]), results)
}

/// The first destination of an instruction.
pub(super) fn eval(spelling: &str, sources: &[u64]) -> u64 {
    eval_full(spelling, sources, false).0[0]
}

/// Checks an instruction against a function, on all given operands, different ones in each lane.
pub(super) fn check<const N: usize>(spelling: &str, operands: &[[u64; N]], expected: impl Fn([u64; N]) -> u64) {
    let instruction = decode(spelling, N).expect(spelling).unwrap_or_else(|e| panic!("{spelling}: {e}"));
    for chunk in operands.chunks(32) {
        let lanes: [Lanes; N] = std::array::from_fn(|n| std::array::from_fn(|lane| chunk[lane % chunk.len()][n]));
        let mut values = [[0; 32]; 2];
        instruction.eval(&lanes.each_ref(), 0, u32::MAX, &mut values);
        for (operands, value) in chunk.iter().zip(&values[0]) {
            let expected = expected(*operands);
            assert_eq!(*value, expected, "{spelling} of {operands:x?}: {value:#x}, expected {expected:#x}");
        }
    }
}

/// Random numbers (xorshift).
pub(super) struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.next() as usize % of.len()]
    }
}

const INTEGERS: [u64; 16] =
    [0, 1, 2, 7, 31, 32, 33, 63, 64, 0x7f, 0x80, 0xff, 0x7fff, 0x8000, 0x7fff_ffff, 0x7fff_ffff_ffff_ffff];

/// Operands of an integer instruction: random, small, and those at the ends of ranges.
pub(super) fn integers<const N: usize>(count: usize) -> Vec<[u64; N]> {
    let mut random = Random(0x9e37_79b9);
    let mut one = || match random.next() % 4 {
        0 => random.next(),
        1 => random.next() >> (random.next() % 64),
        2 => random.pick(&INTEGERS),
        _ => !random.pick(&INTEGERS),
    };
    (0..count).map(|_| std::array::from_fn(|_| one())).collect()
}

/// Bits of floating-point operands of a type of `width` bits, of them `exponent` of the exponent:
/// random, of similar exponents, and special values.
pub(super) fn floats<const N: usize>(width: u32, exponent: u32, count: usize) -> Vec<[u64; N]> {
    let mut random = Random(0x1234_5678_9abc);
    let fraction = width - exponent - 1;
    let mask = u64::MAX >> (64 - width);
    let one = ((1u64 << (exponent - 1)) - 1) << fraction;
    let infinity = ((1u64 << exponent) - 1) << fraction;
    let special = [
        0,
        1,
        2,
        1 << fraction,
        (1 << fraction) - 1,
        one,
        one + 1,
        one - 1,
        infinity,
        infinity - 1,
        infinity | 1,
        mask >> 1,
    ];
    let mut value = |center: u64| {
        let sign = random.next() & 1 << (width - 1);
        let bits = match random.next() % 5 {
            0 => random.next() & mask >> 1,
            1 => random.pick(&special),
            // Few bits, so that ties happen.
            2 => center + ((random.next() % 24) << fraction) + ((random.next() % 16) << (fraction - 4)),
            _ => center + ((random.next() % 24) << fraction) + (random.next() & ((1 << fraction) - 1)),
        };
        sign | bits.min(mask >> 1)
    };
    let mut centers = Random(77);
    (0..count)
        .map(|_| {
            let center = (centers.next() % (1 << exponent)) << fraction;
            std::array::from_fn(|_| value(center))
        })
        .collect()
}
