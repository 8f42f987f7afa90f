use tegula_interp::TensorCore;

use super::*;
use crate::matrix::modifiers::shape_name;

fn words(text: &str) -> Vec<String> {
    text.split('.').map(String::from).collect()
}

fn transfer(text: &str) -> WmmaTransfer {
    match Wmma::decode(&words(text)) {
        Ok(Wmma::Load(transfer) | Wmma::Store(transfer)) => transfer,
        other => panic!("{text}: {other:?}"),
    }
}

/// The memory accesses of a transfer, in bytes: number of the word, byte of the word, lane, offset.
fn bytes(of: &WmmaTransfer, stride: u32) -> Vec<(usize, u32, usize, usize)> {
    let mut bytes = Vec::new();
    let mut first = 0;
    for access in of.accesses() {
        let offsets = access.offsets(stride);
        for lane in (0..32).filter(|lane| access.mask() >> lane & 1 == 1) {
            for byte in 0..access.words * access.word_bytes {
                let word = first + (byte / access.word_bytes) as usize;
                bytes.push((word, byte % access.word_bytes, lane, offsets[lane] as usize + byte as usize));
            }
        }
        first += access.words as usize;
    }
    bytes
}

fn load(from: &WmmaTransfer, stride: u32, memory: &[u8]) -> Vec<Lanes> {
    let count: u32 = from.accesses().iter().map(|access| access.words).sum();
    let mut words = vec![[0; 32]; count as usize];
    for (word, byte, lane, offset) in bytes(from, stride) {
        words[word][lane] |= u64::from(memory[offset]) << (8 * byte);
    }
    let mut registers = vec![[0; 32]; from.registers().count as usize];
    from.load(&words, &mut registers);
    registers
}

fn store(to: &WmmaTransfer, stride: u32, registers: &[Lanes], memory: &mut [u8]) {
    let words = to.store(&registers.iter().collect::<Vec<_>>());
    for (word, byte, lane, offset) in bytes(to, stride) {
        memory[offset] = (words[word][lane] >> (8 * byte)) as u8;
    }
}

/// Small integers in the bits of an element; bits are themselves.
fn encode(element: Element, value: i64) -> u64 {
    match element {
        Element::F64 => (value as f64).to_bits(),
        Element::F32 | Element::Tf32 => (value as f32).to_bits().into(),
        Element::F16 => half::f16::from_f64(value as f64).to_bits().into(),
        Element::Bf16 => half::bf16::from_f64(value as f64).to_bits().into(),
        _ => value as u64 & (u64::MAX >> (64 - element.bits())),
    }
}

/// A matrix in memory, of `lines` rows or columns at a distance.
fn memory(element: Element, stride: u32, lines: usize, value: impl Fn(usize, usize) -> i64) -> Vec<u8> {
    let bits = element.bits() as usize;
    let mut memory = vec![0; stride as usize * lines * bits / 8];
    for line in 0..lines {
        for at in 0..stride as usize {
            let first = (line * stride as usize + at) * bits;
            let encoded = encode(element, value(line, at));
            for bit in 0..bits {
                memory[(first + bit) / 8] |= ((encoded >> bit & 1) as u8) << ((first + bit) % 8);
            }
        }
    }
    memory
}

/// The types of A and B, the shape, and the types of D and C.
fn products() -> Vec<(&'static str, [u32; 3], &'static str, &'static str)> {
    let mut products = Vec::new();
    for shape in [[16, 16, 16], [8, 32, 16], [32, 8, 16]] {
        for (d, c) in [("f32", "f32"), ("f16", "f16"), ("f32", "f16"), ("f16", "f32")] {
            products.push(("f16", shape, d, c));
        }
        products.extend([("bf16", shape, "f32", "f32"), ("s8", shape, "s32", "s32"), ("u8", shape, "s32", "s32")]);
    }
    products.push(("tf32", [16, 16, 8], "f32", "f32"));
    products.push(("f64", [8, 8, 4], "f64", "f64"));
    products.extend(["s4", "u4"].map(|ab| (ab, [8, 8, 32], "s32", "s32")));
    products.push(("b1", [8, 8, 128], "s32", "s32"));
    products
}

/// A pseudorandom small integer of a place in a matrix.
fn value(element: Element, seed: usize, row: usize, col: usize) -> i64 {
    let mixed = (seed + 31 * row + 977 * col).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    match element {
        Element::B1 => (mixed & 1) as i64,
        Element::U8 | Element::U4 => (mixed % 4) as i64,
        _ => (mixed % 7) as i64 - 3,
    }
}

/// Layouts of A, B, C and D, spaces, and leading dimensions.
#[test]
fn loaded_products_that_are_stored_equal_the_matrix_product() {
    for (ab, shape, d, c) in products() {
        let [m, n, k] = shape.map(|extent| extent as usize);
        let [element, of_d, of_c] = [ab, d, c].map(|name| Element::from_name(name).unwrap());
        for case in 0..32 {
            let layout = |bit: usize| if case >> bit & 1 == 0 { "row" } else { "col" };
            let [a_layout, b_layout, c_layout, d_layout] = [0, 1, 2, 3].map(layout);
            if element.bits() < 8 && (a_layout, b_layout) != ("row", "col") {
                continue;
            }
            let name = shape_name(shape);
            let space = ["global.", "shared."][case >> 4];
            let text = |what: &str, layout: &str, ty: &str| format!("{what}.sync.aligned.{layout}.{name}.{space}{ty}");
            let place = |seed: usize, element: Element, layout: &str, rows: usize, cols: usize| {
                let row_major = layout == "row";
                // Padded for one layout, not for the other.
                let stride = if row_major { cols } else { rows + if element.bits() < 8 { 128 } else { 16 } } as u32;
                let lines = if row_major { rows } else { cols };
                let memory = memory(element, stride, lines, |line, at| {
                    let (row, col) = if row_major { (line, at) } else { (at, line) };
                    value(element, seed, row, col)
                });
                (stride, memory)
            };
            let fragment = |what: &str, layout: &str, ty: &str, (stride, memory): (u32, Vec<u8>)| {
                load(&transfer(&text(what, layout, ty)), stride, &memory)
            };
            let a = fragment("load.a", a_layout, ab, place(1, element, a_layout, m, k));
            let b = fragment("load.b", b_layout, ab, place(2, element, b_layout, k, n));
            let of_accumulator = fragment("load.c", c_layout, c, place(3, of_c, c_layout, m, n));
            let product = match ab {
                "f16" => format!("mma.sync.aligned.{a_layout}.{b_layout}.{name}.{d}.{c}"),
                "b1" => format!("mma.xor.popc.sync.aligned.{a_layout}.{b_layout}.{name}.{d}.{ab}.{ab}.{c}"),
                _ => format!("mma.sync.aligned.{a_layout}.{b_layout}.{name}.{d}.{ab}.{ab}.{c}"),
            };
            let Ok(Wmma::Mma(mma)) = Wmma::decode(&words(&product)) else { panic!("{product}") };
            let mut result = vec![[0; 32]; mma.registers()[3].count as usize];
            let [a, b, of_accumulator] =
                [&a, &b, &of_accumulator].map(|registers| registers.iter().collect::<Vec<_>>());
            mma.eval(TensorCore::Sm90, &a, &b, &of_accumulator, &mut result);
            let expected = |row: usize, col: usize| {
                let pairs = (0..k).map(|p| (value(element, 1, row, p), value(element, 2, p, col)));
                let dot: i64 = pairs.map(|(a, b)| if ab == "b1" { a ^ b } else { a * b }).sum();
                value(of_c, 3, row, col) + dot
            };
            let row_major = d_layout == "row";
            let (stride, lines) = if row_major { (n as u32, m) } else { (m as u32 + 16, n) };
            let mut stored = memory(of_d, stride, lines, |_, _| 0);
            store(&transfer(&text("store.d", d_layout, d)), stride, &result, &mut stored);
            let wanted = memory(of_d, stride, lines, |line, at| match (row_major, at < m) {
                (true, _) => expected(line, at),
                (false, true) => expected(at, line),
                (false, false) => 0,
            });
            assert_eq!(stored, wanted, "{product} {space} {c_layout} {d_layout}");
        }
    }
}

/// Every load and store that exists.
fn transfers() -> Vec<(String, u32)> {
    let mut transfers = Vec::new();
    for space in ["global", "shared"] {
        // Loads of u4 are those of s4.
        for (ab, shape, d, c) in products().into_iter().filter(|product| product.0 != "u4") {
            let name = shape_name(shape);
            // A multiple of 16 bytes, and longer than every line.
            let stride = 48
                * match ab {
                    "b1" => 8,
                    "s4" => 2,
                    _ => 1,
                };
            for layout in ["row", "col"] {
                for matrix in ["a", "b"] {
                    let text = format!("load.{matrix}.sync.aligned.{layout}.{name}.{space}.{ab}");
                    if Wmma::decode(&words(&text)).is_ok() {
                        transfers.push((text, stride));
                    }
                }
                transfers.push((format!("load.c.sync.aligned.{layout}.{name}.{space}.{c}"), stride));
                transfers.push((format!("store.d.sync.aligned.{layout}.{name}.{space}.{d}"), stride));
            }
        }
    }
    transfers.sort();
    transfers.dedup();
    transfers
}

/// Fragments loaded by an H100: the offset in memory of each byte of each register, for all loads.
///
/// For all stores, the byte of the registers at each offset.
#[test]
fn fragments_are_those_of_an_h100() {
    let mut loads = Vec::new();
    let mut stores = Vec::new();
    for (text, stride) in transfers() {
        let transfer = transfer(&text);
        let registers = transfer.registers();
        let (count, size) = (registers.count as usize, registers.ty.size() as usize);
        // The low and the high byte of offsets.
        let passes: [Vec<u8>; 2] = [0, 8].map(|shift| {
            let tags = (0..32768).map(|offset| (offset >> shift) as u8);
            if text.starts_with("load") {
                let loaded = load(&transfer, stride, &tags.collect::<Vec<_>>());
                let lanes = (0..32).flat_map(|lane| loaded.iter().map(move |register| register[lane]));
                return lanes.flat_map(|value| value.to_le_bytes().into_iter().take(size)).collect();
            }
            let tags: Vec<_> = tags.take(32 * count * size).collect();
            let mut registers = vec![[0; 32]; count];
            for (at, tag) in tags.into_iter().enumerate() {
                registers[at / size % count][at / size / count] |= u64::from(tag) << (8 * (at % size));
            }
            let mut memory = vec![0xff; 16384];
            store(&transfer, stride, &registers, &mut memory);
            memory
        });
        let all = if text.starts_with("load") { &mut loads } else { &mut stores };
        let [low, high] = passes;
        all.extend(low.into_iter().zip(high).flat_map(|(low, high)| [low, high]));
    }
    let hashes = [loads, stores].map(|bytes| crate::matrix::hardware_tests::hash(bytes.into_iter()));
    assert_eq!(hashes, [0xb41b_2ef8_74ff_4225, 0x4bfd_f20e_3d51_af25]);
}

/// The numbers of accesses and their bytes are those of the assembled instructions.
#[test]
fn accesses_are_those_of_the_assembled_instructions() {
    for (text, count, bytes, as_ldmatrix) in [
        ("load.a.sync.aligned.row.m16n16k16.global.f16", 4, 4, false),
        ("load.a.sync.aligned.col.m16n16k16.global.f16", 4, 4, false),
        ("load.a.sync.aligned.row.m16n16k16.f16", 4, 4, false),
        ("load.a.sync.aligned.row.m16n16k16.shared.f16", 1, 16, true),
        ("load.b.sync.aligned.row.m8n32k16.shared.bf16", 2, 16, true),
        ("load.a.sync.aligned.row.m32n8k16.shared.s8", 2, 16, true),
        ("load.a.sync.aligned.col.m32n8k16.shared.s8", 16, 1, false),
        ("load.b.sync.aligned.col.m8n8k128.shared.b1", 1, 16, true),
        ("load.b.sync.aligned.col.m8n8k32.global.u4", 1, 4, false),
        ("load.a.sync.aligned.row.m16n16k8.shared.tf32", 4, 4, false),
        ("load.a.sync.aligned.row.m8n8k4.global.f64", 1, 8, false),
        ("load.c.sync.aligned.row.m16n16k16.global.f32", 4, 8, false),
        ("load.c.sync.aligned.col.m16n16k16.global.f32", 8, 4, false),
        ("load.c.sync.aligned.row.m8n32k16.global.f32", 8, 4, false),
        ("store.d.sync.aligned.col.m8n32k16.global.s32", 4, 8, false),
        ("store.d.sync.aligned.row.m16n16k16.shared.f16", 4, 4, false),
        ("store.d.sync.aligned.row.m8n8k4.shared.f64", 1, 16, false),
    ] {
        let transfer = transfer(text);
        assert_eq!(transfer.accesses().len(), count, "{text}");
        for access in transfer.accesses() {
            assert_eq!((access.words * access.word_bytes, access.as_ldmatrix), (bytes, as_ldmatrix), "{text}");
        }
    }
    // The rows of an 8×8 matrix after the other: lanes 8 to 15 have the rows 8 to 15 of A.
    let rows = transfer("load.a.sync.aligned.row.m16n16k16.shared.f16").accesses()[0].offsets(24);
    assert_eq!([rows[1], rows[8], rows[16], rows[31]], [48, 8 * 48, 16, 15 * 48 + 16]);
    let two = &transfer("load.a.sync.aligned.row.m8n32k16.shared.f16").accesses()[0].clone();
    assert_eq!(two.mask(), 0xffff);
}

#[test]
fn strides_and_alignments_have_the_defaults_of_the_ptx_isa() {
    for (text, stride, alignment) in [
        ("load.a.sync.aligned.row.m8n32k16.f16", 16, 32),
        ("load.a.sync.aligned.col.m8n32k16.f16", 8, 32),
        ("load.b.sync.aligned.row.m8n32k16.f16", 32, 32),
        ("load.b.sync.aligned.col.m8n32k16.f16", 16, 32),
        ("load.c.sync.aligned.row.m8n32k16.f32", 32, 32),
        ("store.d.sync.aligned.col.m8n32k16.f32", 8, 32),
        ("load.c.sync.aligned.row.m32n8k16.f16", 8, 16),
        ("load.c.sync.aligned.col.m32n8k16.f16", 32, 16),
        ("load.a.sync.aligned.row.m8n8k32.s4", 32, 4),
        ("load.b.sync.aligned.col.m8n8k128.b1", 128, 4),
        ("load.a.sync.aligned.row.m16n16k8.tf32", 8, 16),
        ("load.b.sync.aligned.row.m16n16k8.tf32", 16, 16),
        ("load.a.sync.aligned.row.m8n8k4.f64", 4, 8),
        ("load.b.sync.aligned.row.m8n8k4.f64", 8, 8),
    ] {
        let transfer = transfer(text);
        assert_eq!((transfer.default_stride(), transfer.alignment()), (stride, alignment), "{text}");
    }
}

/// As NVRTC 13 writes the functions of `mma.h`, and as older documents write them.
#[test]
fn spellings_of_compilers_are_decoded() {
    for text in [
        "load.a.sync.aligned.col.m16n16k16.global.u8",
        "load.a.sync.aligned.row.m16n16k16.bf16",
        "load.a.sync.aligned.row.m16n16k16.shared.f16",
        "load.b.sync.aligned.col.m16n16k8.tf32",
        "load.b.sync.aligned.col.m8n8k128.global.b1",
        "load.b.sync.aligned.row.m8n32k16.global.f16",
        "load.c.sync.aligned.row.m8n8k4.f64",
        "load.c.sync.aligned.row.m16n16k16.global.s32",
        "mma.and.popc.sync.aligned.row.col.m8n8k128.s32.b1.b1.s32",
        "mma.xor.popc.sync.aligned.row.col.m8n8k128.s32.b1.b1.s32",
        "mma.sync.aligned.col.row.m16n16k16.s32.u8.u8.s32",
        "mma.sync.aligned.row.col.m16n16k16.s32.s8.s8.s32.satfinite",
        "mma.sync.aligned.row.col.m16n16k16.f32.bf16.bf16.f32",
        "mma.sync.aligned.row.col.m16n16k16.f16.f16",
        "mma.sync.aligned.row.col.m8n8k32.s32.s4.s4.s32",
        "mma.sync.aligned.row.col.m8n8k4.f64.f64.f64.f64.rn",
        "mma.sync.aligned.row.col.m16n16k8.f32.tf32.tf32.f32",
        "store.d.sync.aligned.row.m8n8k128.global.s32",
        "store.d.sync.aligned.col.m16n16k8.f32",
        "store.d.sync.aligned.row.m16n16k16.shared.f32",
        "load.a.sync.aligned.m16n16k16.global.row.f16",
        "mma.sync.m16n16k16.row.col.f32.f32",
        "store.d.sync.m16n16k16.row.f32",
    ] {
        assert!(Wmma::decode(&words(text)).is_ok(), "{text}: {:?}", Wmma::decode(&words(text)));
    }
}

#[test]
fn unsupported_forms_are_named() {
    for (text, part) in [
        ("load.d.sync.aligned.row.m16n16k16.f32", "load.d"),
        ("store.a.sync.aligned.row.m16n16k16.f16", "store.a"),
        ("load", "operation"),
        ("load.a.sync.aligned.row.m16n8k16.f16", "m16n8k16"),
        ("load.a.sync.aligned.row.m16n16k16.f32", "A and B"),
        ("load.c.sync.aligned.row.m16n16k16.bf16", "C and D"),
        ("load.c.sync.aligned.row.m8n8k32.f32", "m8n8k32"),
        ("load.a.sync.aligned.col.m8n8k32.s4", "must be .row"),
        ("load.b.sync.aligned.row.m8n8k128.b1", "must be .col"),
        ("load.a.sync.aligned.m16n16k16.f16", "layout"),
        ("load.a.sync.aligned.row.m16n16k16.e4m3", "e4m3"),
        ("mma.sync.aligned.row.col.m16n16k16.f32.f16.bf16.f32", "together"),
        ("mma.sync.aligned.row.col.m16n16k16.s32.s8.u8.s32", "together"),
        ("mma.sync.aligned.row.col.m16n16k16.f32", "types"),
        ("mma.sync.aligned.m16n16k16.f32.f32", "layouts"),
        ("mma.sync.aligned.row.row.m8n8k32.s32.s4.s4.s32", "must be .col"),
        ("mma.sync.aligned.row.col.m16n16k16.f32.f32.satfinite", "satfinite"),
    ] {
        let error = Wmma::decode(&words(text)).unwrap_err();
        assert!(error.contains(part), "{text}: {error}");
    }
}
