use super::*;
use crate::matrix::element::Element::*;

fn words(text: &str) -> Vec<String> {
    text.split('.').map(String::from).collect()
}

fn decode(text: &str) -> Mma {
    Mma::decode(&words(text)).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// Row and column of element i of a lane.
type Position = fn(u32, u32) -> (u32, u32);

/// The group of four lanes, and the lane in it.
fn group(lane: u32) -> (u32, u32) {
    (lane >> 2, lane % 4)
}

/// "Matrix Fragments" of the PTX ISA: A and B of each shape, by the bits of an element.
const ISA: [([u32; 3], u32, Position, Position); 21] = [
    ([8, 8, 4], 64, |l, _| group(l), |l, _| (l % 4, l >> 2)),
    ([16, 8, 4], 64, |l, i| (l / 4 + 8 * i, l % 4), |l, _| (l % 4, l >> 2)),
    ([16, 8, 4], 32, |l, i| (l / 4 + 8 * i, l % 4), |l, _| (l % 4, l >> 2)),
    ([16, 8, 8], 64, a_of_four, |l, i| (l % 4 + 4 * i, l >> 2)),
    ([16, 8, 8], 32, a_of_four, |l, i| (l % 4 + 4 * i, l >> 2)),
    (
        [16, 8, 16],
        64,
        |l, i| if i % 2 == 0 { (l / 4, i * 2 + l % 4) } else { (l / 4 + 8, i * 2 - 2 + l % 4) },
        |l, i| (l % 4 + 4 * i, l >> 2),
    ),
    (
        [16, 8, 8],
        16,
        |l, i| (if i < 2 { l / 4 } else { l / 4 + 8 }, l % 4 * 2 + (i & 1)),
        |l, i| (l % 4 * 2 + i, l >> 2),
    ),
    (
        [16, 8, 16],
        16,
        |l, i| {
            let row = if i < 2 || (4..6).contains(&i) { l / 4 } else { l / 4 + 8 };
            (row, l % 4 * 2 + (i & 1) + if i < 4 { 0 } else { 8 })
        },
        |l, i| (l % 4 * 2 + (i & 1) + if i < 2 { 0 } else { 8 }, l >> 2),
    ),
    ([8, 8, 16], 8, |l, i| (l / 4, l % 4 * 4 + i), |l, i| (l % 4 * 4 + i, l >> 2)),
    (
        [16, 8, 16],
        8,
        |l, i| (if i < 4 { l / 4 } else { l / 4 + 8 }, l % 4 * 4 + (i & 3)),
        |l, i| (l % 4 * 4 + i, l >> 2),
    ),
    (
        [16, 8, 32],
        8,
        |l, i| {
            let row = if i < 4 || (8..12).contains(&i) { l / 4 } else { l / 4 + 8 };
            (row, l % 4 * 4 + (i & 3) + if i < 8 { 0 } else { 16 })
        },
        |l, i| (l % 4 * 4 + (i & 3) + if i < 4 { 0 } else { 16 }, l >> 2),
    ),
    ([8, 8, 32], 4, |l, i| (l / 4, l % 4 * 8 + i), |l, i| (l % 4 * 8 + i, l >> 2)),
    (
        [16, 8, 32],
        4,
        |l, i| (if i < 8 { l / 4 } else { l / 4 + 8 }, l % 4 * 8 + (i & 7)),
        |l, i| (l % 4 * 8 + i, l >> 2),
    ),
    (
        [16, 8, 64],
        4,
        |l, i| {
            let row = if i < 8 || (16..24).contains(&i) { l / 4 } else { l / 4 + 8 };
            (row, l % 4 * 8 + (i & 7) + if i < 16 { 0 } else { 32 })
        },
        |l, i| (l % 4 * 8 + (i & 7) + if i < 8 { 0 } else { 32 }, l >> 2),
    ),
    ([8, 8, 128], 1, |l, i| (l / 4, l % 4 * 32 + i), |l, i| (l % 4 * 32 + i, l >> 2)),
    (
        [16, 8, 128],
        1,
        |l, i| (if i < 32 { l / 4 } else { l / 4 + 8 }, l % 4 * 32 + (i & 31)),
        |l, i| (l % 4 * 32 + i, l >> 2),
    ),
    (
        [16, 8, 256],
        1,
        |l, i| {
            let row = if i < 32 || (64..96).contains(&i) { l / 4 } else { l / 4 + 8 };
            (row, l % 4 * 32 + (i & 31) + if i < 64 { 0 } else { 128 })
        },
        |l, i| (l % 4 * 32 + (i & 31) + if i < 32 { 0 } else { 128 }, l >> 2),
    ),
    // `m8n8k4` with f16: row-major and column-major A with column-major and row-major B, of the
    // first product.
    ([8, 8, 4], 16, |l, i| (in_quarter(l), i), |l, i| (i, in_quarter(l))),
    ([8, 8, 4], 16, |l, i| (in_quarter(l), i), |l, i| (l % 4, if l < 16 { i } else { i + 4 })),
    ([8, 8, 4], 16, |l, i| (i + if l < 16 { 0 } else { 4 }, l % 4), |l, i| (i, in_quarter(l))),
    ([8, 8, 4], 16, |l, i| (i + if l < 16 { 0 } else { 4 }, l % 4), |l, i| (l % 4, if l < 16 { i } else { i + 4 })),
];

fn a_of_four(lane: u32, i: u32) -> (u32, u32) {
    let (g, t) = group(lane);
    (if i == 0 || i == 2 { g } else { g + 8 }, if i < 2 { t } else { t + 4 })
}

fn in_quarter(lane: u32) -> u32 {
    if lane < 16 { lane % 4 } else { lane % 4 + 4 }
}

/// Row and column of an accumulator.
fn accumulator(quarters: bool, element: Element, lane: u32, i: u32) -> (u32, u32) {
    let (g, t) = group(lane);
    match (quarters, element) {
        (false, _) => (if i < 2 { g } else { g + 8 }, t * 2 + (i & 1)),
        (true, F16) => (in_quarter(lane), i),
        (true, _) => {
            let x = (lane & 1) + (i & 2);
            (if lane < 16 { x } else { x + 4 }, (i & 4) + (lane & 2) + (i & 1))
        }
    }
}

/// Every form, by its modifiers.
fn forms() -> Vec<String> {
    let mut forms = Vec::new();
    let mut add = |shapes: &[&str], layouts: &[&str], types: &[&str]| {
        for shape in shapes {
            for layout in layouts {
                forms.extend(types.iter().map(|types| format!("sync.aligned.{shape}.{layout}.{types}")));
            }
        }
    };
    let fixed = ["row.col"];
    add(&["m8n8k4", "m16n8k4", "m16n8k8", "m16n8k16"], &fixed, &["f64.f64.f64.f64", "f64.f64.f64.f64.rz"]);
    add(&["m16n8k8", "m16n8k16"], &fixed, &["f32.f16.f16.f32", "f16.f16.f16.f16", "f32.bf16.bf16.f32"]);
    add(&["m16n8k4", "m16n8k8"], &fixed, &["f32.tf32.tf32.f32"]);
    let volta = ["f32.f16.f16.f32", "f16.f16.f16.f16", "f32.f16.f16.f16"];
    add(&["m8n8k4"], &["row.col", "row.row", "col.col", "col.row"], &volta);
    for (a, b) in [("e4m3", "e4m3"), ("e4m3", "e5m2"), ("e5m2", "e4m3"), ("e5m2", "e5m2")] {
        for c in ["f32", "f16"] {
            add(&["m16n8k16", "m16n8k32"], &fixed, &[&format!("{c}.{a}.{b}.{c}")]);
        }
    }
    for (a, b) in [("s", "s"), ("s", "u"), ("u", "s"), ("u", "u")] {
        for saturating in ["", "satfinite."] {
            let types = |bits| format!("{saturating}s32.{a}{bits}.{b}{bits}.s32");
            add(&["m8n8k16", "m16n8k16", "m16n8k32"], &fixed, &[&types(8)]);
            add(&["m8n8k32", "m16n8k32", "m16n8k64"], &fixed, &[&types(4)]);
        }
    }
    add(&["m8n8k128", "m16n8k128", "m16n8k256"], &fixed, &["s32.b1.b1.s32.xor.popc", "s32.b1.b1.s32.and.popc"]);
    forms
}

/// The places of A and B of a form.
fn places(form: &str, mma: &Mma) -> (Position, Position, u32) {
    let [a, ..] = mma.fragments.each_ref().map(Fragment::element);
    let modifiers = Modifiers::parse(&words(form)).unwrap();
    let mut known = ISA.iter().filter(|(shape, bits, ..)| (*shape, *bits) == (modifiers.shape, a.bits()));
    let volta = 2 * usize::from(modifiers.layouts[0] == Layout::Col) + usize::from(modifiers.layouts[1] == Layout::Row);
    let quarters = modifiers.shape == [8, 8, 4] && a == F16;
    let (_, _, of_a, of_b) = known.nth(if quarters { volta } else { 0 }).expect(form);
    (*of_a, *of_b, if quarters { 4 } else { 1 })
}

#[test]
fn fragments_are_those_of_the_ptx_isa() {
    for form in forms() {
        let mma = decode(&form);
        let (of_a, of_b, products) = places(&form, &mma);
        let [m, n, k] = mma.product.shape.map(|extent| extent as u32);
        let [a, b, c, d] = &mma.fragments;
        let per_part = a.element().per_part();
        let parts = |fragment: &Fragment| fragment.registers() * fragment.element().parts();
        for lane in 0..32 {
            let product = if products == 4 { lane % 16 / 4 } else { 0 };
            for i in 0..parts(a) {
                let (row, col) = of_a(lane, i * per_part);
                let expected = product * m * k + row * k + col / per_part;
                assert_eq!(a.position(lane as usize, i as usize), expected as usize, "{form}: A {lane} {i}");
            }
            for i in 0..parts(b) {
                let (row, col) = of_b(lane, i * per_part);
                let expected = product * n * k + col * k + row / per_part;
                assert_eq!(b.position(lane as usize, i as usize), expected as usize, "{form}: B {lane} {i}");
            }
            for fragment in [c, d] {
                for i in 0..parts(fragment) {
                    let (row, col) = accumulator(products == 4, fragment.element(), lane, i);
                    let expected = product * m * n + row * n + col;
                    assert_eq!(fragment.position(lane as usize, i as usize), expected as usize, "{form}: C {lane} {i}");
                }
            }
        }
        let registers = mma.registers().map(|registers| registers.count);
        assert_eq!(registers[0] * 32 * a.element().parts(), products * m * k, "{form}");
        assert_eq!(registers[1] * 32 * b.element().parts(), products * n * k, "{form}");
    }
}

/// A part that holds a small integer, or bits.
fn encode(element: Element, value: i64) -> u64 {
    use half::{bf16, f16};
    match element {
        F64 => (value as f64).to_bits(),
        F32 | Tf32 => u64::from((value as f32).to_bits()),
        F16 => u64::from(f16::from_f64(value as f64).to_bits()),
        Bf16 => u64::from(bf16::from_f64(value as f64).to_bits()),
        E5m2 => u64::from(f16::from_f64(value as f64).to_bits() >> 8),
        E4m3 => {
            let f16 = f16::from_f64(value as f64).to_bits();
            u64::from(f16 >> 8 & 0x80 | if value == 0 { 0 } else { ((f16 & 0x7fff) - (8 << 10)) >> 7 })
        }
        S32 | B1 => u64::from(value as u32),
        S8 | U8 => u64::from(value as u8),
        S4 | U4 => value as u64 & 15,
    }
}

/// Products of small integers are exact in every type and every order.
#[test]
fn products_of_small_integers_are_exact() {
    let mut state = 1u64;
    let mut random = |below: i64| {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (state >> 33) as i64 % below
    };
    for form in forms() {
        let mma = decode(&form);
        let (m, n, k) = mma.product.shape.into();
        let elements = mma.fragments.each_ref().map(Fragment::element);
        let mut value = |element: Element| match element {
            B1 => random(1 << 31) * 2 + random(2),
            U8 | U4 => random(4),
            _ => random(7) - 3,
        };
        let mut matrix = |at: usize| (0..mma.fragments[at].size()).map(|_| value(elements[at])).collect::<Vec<_>>();
        let [a, b, c] = [0, 1, 2].map(&mut matrix);
        let registers = |at: usize, matrix: &[i64]| {
            let bits: Vec<_> = matrix.iter().map(|&value| encode(elements[at], value)).collect();
            let mut registers = vec![[0; 32]; mma.registers()[at].count as usize];
            mma.fragments[at].scatter(&bits, &mut registers);
            registers
        };
        let [of_a, of_b, of_c] = [registers(0, &a), registers(1, &b), registers(2, &c)];
        let expected: Vec<i64> = (0..c.len())
            .map(|at| {
                let (product, row, col) = (at / (m * n), at / n % m, at % n);
                let pairs = (0..k).map(|p| (a[(product * m + row) * k + p], b[(product * n + col) * k + p]));
                let dot: i64 = pairs
                    .map(|(a, b)| match () {
                        _ if elements[0] != B1 => a * b,
                        _ if form.contains("xor") => (a ^ b).count_ones().into(),
                        _ => (a & b).count_ones().into(),
                    })
                    .sum();
                c[at] + dot
            })
            .collect();
        for core in [TensorCore::Sm80, TensorCore::Sm90] {
            let mut d = vec![[0; 32]; mma.registers()[3].count as usize];
            let [a, b, c] = [&of_a, &of_b, &of_c].map(|registers| registers.iter().collect::<Vec<_>>());
            mma.eval(core, &a, &b, &c, &mut d);
            assert_eq!(d, registers(3, &expected), "{form} {core:?}");
        }
        let multiply_adds = c.len() as u64 * k as u64 * u64::from(elements[0].per_part());
        assert_eq!(mma.multiply_adds(), multiply_adds);
    }
}

#[test]
fn integers_wrap_or_saturate() {
    for (saturating, expected) in [("", 0x8000_0000 + 16 * 127 * 127 - 1), ("satfinite.", 0x7fff_ffff)] {
        let mma = decode(&format!("sync.aligned.m8n8k16.row.col.{saturating}s32.s8.s8.s32"));
        let (ones, large) = ([0x7f7f_7f7f; 32], [0x7fff_ffff; 32]);
        let mut d = [[0; 32]; 2];
        mma.eval(TensorCore::Sm90, &[&ones], &[&ones], &[&large; 2], &mut d);
        assert_eq!(d, [[expected; 32]; 2]);
    }
}

#[test]
fn f64_rounds_as_it_is_written() {
    // 1 + 2^-60, rounded four ways.
    let [one, tiny] = [1f64, 2f64.powi(-60)].map(|x| [x.to_bits(); 32]);
    let above = 1f64.next_up();
    for (rounding, expected) in [("", 1.0), (".rn", 1.0), (".rz", 1.0), (".rm", 1.0), (".rp", above)] {
        let mma = decode(&format!("sync.aligned.m8n8k4.row.col{rounding}.f64.f64.f64.f64"));
        let mut d = [[0; 32]; 2];
        mma.eval(TensorCore::Sm90, &[&tiny], &[&one], &[&one; 2], &mut d);
        // Four additions, each rounded.
        let expected = if expected > 1.0 { above.next_up().next_up().next_up() } else { expected };
        assert_eq!(f64::from_bits(d[0][0]), expected, "{rounding}");
    }
}

#[test]
fn operands_of_the_wrong_number_of_registers_do_not_panic() {
    let mma = decode("sync.aligned.m16n8k16.row.col.f32.f16.f16.f32");
    mma.eval(TensorCore::Sm90, &[], &[], &[], &mut []);
    mma.eval(TensorCore::Sm90, &[&[1; 32]; 9], &[&[1; 32]; 9], &[&[1; 32]; 9], &mut [[0; 32]; 9]);
}

#[test]
fn registers_have_the_types_of_the_ptx_isa() {
    let types = |text| decode(text).registers().map(|registers| (registers.count, registers.ty.name()));
    assert_eq!(
        types("sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"),
        [(4, "b32"), (2, "b32"), (4, "f32"), (4, "f32")]
    );
    assert_eq!(
        types("sync.aligned.m16n8k16.row.col.f16.f16.f16.f16"),
        [(4, "b32"), (2, "b32"), (2, "b32"), (2, "b32")]
    );
    assert_eq!(types("sync.aligned.m16n8k8.row.col.f64.f64.f64.f64"), [(4, "f64"), (2, "f64"), (4, "f64"), (4, "f64")]);
    assert_eq!(types("sync.aligned.m8n8k4.col.row.f32.f16.f16.f16"), [(2, "b32"), (2, "b32"), (4, "b32"), (8, "f32")]);
    assert_eq!(
        types("sync.aligned.m8n8k128.row.col.s32.b1.b1.s32.xor.popc"),
        [(1, "b32"), (1, "b32"), (2, "s32"), (2, "s32")]
    );
}

#[test]
fn unsupported_forms_are_named() {
    for (text, part) in [
        ("sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32", "mma.sp"),
        ("sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32", "mma.sp"),
        ("sync.aligned.m16n8k32.row.col.f32.f16.f16.f32", "m16n8k32"),
        ("sync.aligned.m8n8k4.row.col.f32.bf16.bf16.f32", "m8n8k4"),
        ("sync.aligned.m16n8k32.row.col.kind::f8f6f4.f32.e3m2.e2m3.f32", "kind::f8f6f4"),
        ("sync.aligned.m16n8k16.row.row.f32.f16.f16.f32", "row.col"),
        ("sync.aligned.m16n8k16.f32.f16.f16.f32", "layouts"),
        ("sync.aligned.m16n8k16.row.col.f32.f16.f16.f16", "together"),
        ("sync.aligned.m8n8k4.row.col.f16.f16.f16.f32", "together"),
        ("sync.aligned.m16n8k16.row.col.f32.f16.bf16.f32", "bf16"),
        ("sync.aligned.m16n8k16.row.col.f16.bf16.bf16.f16", "accumulators"),
        ("sync.aligned.m16n8k16.row.col.f32.f16.f16", "four types"),
        ("sync.aligned.m16n8k16.row.col.satfinite.f32.f16.f16.f32", "satfinite"),
        ("sync.aligned.m16n8k16.row.col.rz.f32.f16.f16.f32", "rounding"),
        ("sync.aligned.m8n8k128.row.col.s32.b1.b1.s32", "popc"),
        ("sync.aligned.m16n8k16.row.col.s32.s32.s32.s32", "s32"),
    ] {
        let error = Mma::decode(&words(text)).unwrap_err();
        assert!(error.contains(part), "{text}: {error}");
    }
}
