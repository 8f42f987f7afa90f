//! Results of matrix instructions on an H100, whatever their operands.
//!
//! Each instruction ran on operands of the pseudorandom sequence below. The table has the hash of
//! D. Programs were compiled by NVRTC 13.0 for sm_90.

use tegula_interp::TensorCore;

use super::element::Element;
use super::mma::Mma;
use super::wmma::Wmma;
use crate::alu::Lanes;

/// Kinds of values that alternate from warp to warp.
const KINDS: u64 = 11;

/// Kinds of values from this one on have results near or below the smallest normal number.
const TINY: u64 = 9;

/// FNV-1a.
pub(super) fn hash(bytes: impl Iterator<Item = u8>) -> u64 {
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

/// Number `index` of a pseudorandom sequence (SplitMix64).
fn random(seed: u64, index: u64) -> u64 {
    let mut x = seed.wrapping_add(index).wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

/// Exponent bits, fraction bits, and half of the exponent of a result that underflows.
fn format(element: Element) -> Option<(u32, u32, i64)> {
    match element {
        Element::F16 => Some((5, 10, -12)),
        Element::Bf16 => Some((8, 7, -74)),
        Element::Tf32 | Element::F32 => Some((8, 23, -74)),
        Element::F64 => Some((11, 52, -537)),
        Element::E4m3 => Some((4, 3, -12)),
        Element::E5m2 => Some((5, 2, -12)),
        _ => None,
    }
}

/// The registers of A (0), B (1) or C (2) in one warp.
fn operand(name: &str, which: u64, element: Element, count: u32, warp: u64) -> Vec<Lanes> {
    let floats = format(element);
    // Registers of packed integers are random as a whole.
    let parts = if floats.is_some() { u64::from(element.parts()) } else { 1 };
    let seed = hash(name.bytes()).wrapping_add(which << 40);
    let count = u64::from(count);
    (0..count)
        .map(|register| {
            std::array::from_fn(|lane| {
                let first = ((warp * 32 + lane as u64) * count + register) * parts;
                (0..parts).fold(0, |bits, part| {
                    let r = random(seed, first + part);
                    let value = match floats {
                        Some(format) => float(format, r, warp, which),
                        None => integer(element, r, warp % KINDS % 4),
                    };
                    bits | value << (part * u64::from(element.part_bits()))
                })
            })
        })
        .collect()
}

fn integer(element: Element, r: u64, kind: u64) -> u64 {
    let small = r & 0xfff;
    match kind {
        1 if element == Element::S32 => 0x7fff_ffff - small,
        2 if element == Element::S32 => 0x8000_0000 + small,
        3 if element == Element::S32 => small,
        _ => r & 0xffff_ffff,
    }
}

fn float((exponent, fraction, tiny): (u32, u32, i64), r: u64, warp: u64, which: u64) -> u64 {
    let (bias, top) = ((1i64 << (exponent - 1)) - 1, (1i64 << exponent) - 1);
    let (sign, digits, choice) = (r >> 63, r & ((1 << fraction) - 1), (r >> 53 & 1023) as i64);
    let (negative, infinity) = (1u64 << (exponent + fraction), (top as u64) << fraction);
    let sign = sign * negative;
    let make = |e: i64, digits: u64| sign | ((bias + e).clamp(0, top - 1) as u64) << fraction | digits;
    let near = |n: i64| choice % (2 * n + 1) - n;
    let tiny = tiny - if warp / KINDS % 2 == 1 { tiny / 9 } else { 0 };
    match (warp % KINDS, choice % 32) {
        // Any bits.
        (0, _) => r & (negative | (negative - 1)),
        (1, _) => make(near(3), digits),
        (2, _) => make(near(8), digits),
        // Short significands.
        (3, _) => make(near(2), digits & !((1 << (fraction / 2)) - 1)),
        // Subnormals and their neighbors.
        (4, _) => make(choice % 4 - bias, digits),
        // Any magnitude.
        (5, _) => make(choice % top - bias, digits),
        (6, _) if choice % 4 == 0 => 0,
        // Products of similar magnitude.
        (7, _) => make((choice % 15 - 7) * [1, -1, 1][which as usize] - [0, 0, 6][which as usize], digits),
        // Zeros, infinities, NaN, the smallest and the largest value.
        (8, 0) => 0,
        (8, 1) => negative,
        (8, 2) => infinity,
        (8, 3) => negative | infinity,
        (8, 4) => infinity | 1 << (fraction - 1) | digits >> 1,
        (8, 5) => sign | infinity | digits | 1,
        (8, 6) => 1,
        (8, 7) => infinity - 1,
        // Results that underflow, with accumulators that are zero and subnormal.
        (9, _) if which == 2 => sign,
        (10, _) if which == 2 => sign | digits >> (choice % i64::from(fraction)),
        (9 | 10, _) => make(tiny + choice % 5 - 2, digits),
        _ => make(near(3), digits),
    }
}

/// A product by its full name, and the types of A, B and C.
fn decode(name: &str) -> (Mma, [Element; 3]) {
    let words: Vec<String> = name.split('.').map(String::from).collect();
    let mma = match words[0].as_str() {
        "mma" => Mma::decode(&words[1..]),
        _ => Wmma::decode(&words[1..]).and_then(|wmma| match wmma {
            Wmma::Mma(mma) => Ok(*mma),
            _ => Err("no product".into()),
        }),
    };
    let elements: Vec<_> = words.iter().filter_map(|word| Element::from_name(word)).collect();
    let elements = match *elements.as_slice() {
        [_, c] => [Element::F16, Element::F16, c],
        [_, a, b, c] => [a, b, c],
        _ => panic!("{name}: types"),
    };
    (mma.unwrap_or_else(|error| panic!("{name}: {error}")), elements)
}

/// D of one warp.
fn result(name: &str, core: TensorCore, warp: u64) -> Vec<Lanes> {
    let (mma, elements) = decode(name);
    let [a, b, c, d] = mma.registers().map(|registers| registers.count);
    let operands = [a, b, c];
    let [a, b, c] = [0, 1, 2].map(|which| operand(name, which as u64, elements[which], operands[which], warp));
    let [a, b, c] = [&a, &b, &c].map(|registers| registers.iter().collect::<Vec<_>>());
    let mut result = vec![[0; 32]; d as usize];
    mma.eval(core, &a, &b, &c, &mut result);
    result
}

/// Hash of D in the first warps with normal or with tiny results.
fn hash_of_results(name: &str, tiny: bool) -> u64 {
    let (mma, _) = decode(name);
    let bytes = mma.registers()[3].ty.size() as usize;
    let results = (0..2 * KINDS).filter(|warp| (warp % KINDS >= TINY) == tiny).map(|warp| {
        let registers = result(name, TensorCore::Sm90, warp);
        let lanes = (0..32).flat_map(|lane| registers.iter().map(move |register| register[lane]));
        lanes.flat_map(|value| value.to_le_bytes().into_iter().take(bytes)).collect::<Vec<_>>()
    });
    hash(results.flatten())
}

#[test]
fn products_have_the_bits_of_an_h100() {
    for (name, expected, of_tiny) in RESULTS {
        assert_eq!(hash_of_results(name, false), expected, "{name}");
        assert_eq!(hash_of_results(name, true), of_tiny, "{name}, tiny results");
    }
}

/// Instructions, and hashes of their normal and of their tiny results.
const RESULTS: [(&str, u64, u64); 143] = [
    ("mma.sync.aligned.m16n8k128.row.col.s32.b1.b1.s32.and.popc", 0xb7f389ba1e275e0a, 0x3c503d07782e9521),
    ("mma.sync.aligned.m16n8k128.row.col.s32.b1.b1.s32.xor.popc", 0x547137cbb0e66642, 0x95e752e4d4c563c1),
    ("mma.sync.aligned.m16n8k16.row.col.f16.e4m3.e4m3.f16", 0x89c01e60737bec5a, 0xb70f631a3ef14c50),
    ("mma.sync.aligned.m16n8k16.row.col.f16.e4m3.e5m2.f16", 0xa41ee975a114e12f, 0x0283315dc0c97367),
    ("mma.sync.aligned.m16n8k16.row.col.f16.e5m2.e4m3.f16", 0x637805cade3b2393, 0x1ab6bdd6d3018d42),
    ("mma.sync.aligned.m16n8k16.row.col.f16.e5m2.e5m2.f16", 0x45231058496d4da3, 0x79fc3b834d01a500),
    ("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16", 0x4ff04cc22d66ceaf, 0xa9a05aaca19824a6),
    ("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", 0xd3d7d3dac2b684a8, 0xb0a65e1673b74761),
    ("mma.sync.aligned.m16n8k16.row.col.f32.e4m3.e4m3.f32", 0xdc60ddd313a79fe9, 0xff0c59836f9fb3a8),
    ("mma.sync.aligned.m16n8k16.row.col.f32.e4m3.e5m2.f32", 0xeead73e0a9742ea3, 0x4841b803dbf6503b),
    ("mma.sync.aligned.m16n8k16.row.col.f32.e5m2.e4m3.f32", 0xe5dc487f2da76281, 0xd9c1c0e5947e4ffb),
    ("mma.sync.aligned.m16n8k16.row.col.f32.e5m2.e5m2.f32", 0x1b416d6884cfb442, 0x15b450b9a9bfefe8),
    ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", 0x17c5a8c68878d6f6, 0x675eb6ece487d531),
    ("mma.sync.aligned.m16n8k16.row.col.f64.f64.f64.f64", 0x8472f2b7a2aa48f6, 0x775981d9a90f3316),
    ("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32", 0x140eddaa23be57e2, 0xc48b5dfa0174c043),
    ("mma.sync.aligned.m16n8k16.row.col.s32.s8.u8.s32", 0x898fd1893aa06bfc, 0x7a4d0b39e3e86ffd),
    ("mma.sync.aligned.m16n8k16.row.col.s32.u8.s8.s32", 0x2b2ca51dc66c1624, 0x544978b27d36908d),
    ("mma.sync.aligned.m16n8k16.row.col.s32.u8.u8.s32", 0xcf26a47eb70afefd, 0x44d6ac3e465ca458),
    ("mma.sync.aligned.m16n8k16.row.col.satfinite.s32.s8.s8.s32", 0xd822f8dc82285579, 0x665ecde1d4a84e38),
    ("mma.sync.aligned.m16n8k16.row.col.satfinite.s32.s8.u8.s32", 0x6520cac02da09040, 0x496dfa44a74eaff0),
    ("mma.sync.aligned.m16n8k16.row.col.satfinite.s32.u8.s8.s32", 0x052516fe01bbb50f, 0x10fa52cd7f362628),
    ("mma.sync.aligned.m16n8k16.row.col.satfinite.s32.u8.u8.s32", 0xcdcec7364ffa84de, 0xa6f796690fa10e41),
    ("mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.and.popc", 0x3afefb4cc29c0357, 0x20e2bf46b8c8b681),
    ("mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.xor.popc", 0x9d8de78ab8691e1c, 0x6305d1886af63970),
    ("mma.sync.aligned.m16n8k32.row.col.f16.e4m3.e4m3.f16", 0x462f3f859513ce53, 0xa12b89f9115113c2),
    ("mma.sync.aligned.m16n8k32.row.col.f16.e4m3.e5m2.f16", 0xc594f4e34719103b, 0xf4b3bc6db6ce0a19),
    ("mma.sync.aligned.m16n8k32.row.col.f16.e5m2.e4m3.f16", 0xa9ed06e1db74ff5e, 0xb2ae82dbb9b8d5e9),
    ("mma.sync.aligned.m16n8k32.row.col.f16.e5m2.e5m2.f16", 0x77e159d5f9c258c9, 0x74ee2007b7c31aec),
    ("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32", 0x70c753498e95ff0d, 0xbfae4e779ea04a4b),
    ("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e5m2.f32", 0xa2cd97d6ffda423f, 0x2610950bf4261b85),
    ("mma.sync.aligned.m16n8k32.row.col.f32.e5m2.e4m3.f32", 0x0aa5dfc9d6c68701, 0x9818ae6001225111),
    ("mma.sync.aligned.m16n8k32.row.col.f32.e5m2.e5m2.f32", 0x6999713405a0b3c6, 0xfab3000cee6eec4e),
    ("mma.sync.aligned.m16n8k32.row.col.s32.s4.s4.s32", 0x2ee5dfb1b004b31f, 0x295e259fbb46bf68),
    ("mma.sync.aligned.m16n8k32.row.col.s32.s4.u4.s32", 0x11e05f6e7a02f38b, 0x416a99d53555f8b0),
    ("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32", 0x1735aa675cf91987, 0x935672f5966e5fa3),
    ("mma.sync.aligned.m16n8k32.row.col.s32.s8.u8.s32", 0xd3fbed3ee005c8f1, 0x6d5256887a7f3740),
    ("mma.sync.aligned.m16n8k32.row.col.s32.u4.s4.s32", 0x1b86e5a4e4acad9d, 0x01b4bdeb8cfd47ca),
    ("mma.sync.aligned.m16n8k32.row.col.s32.u4.u4.s32", 0xc12ba44de5fe00dd, 0xf17107ae79a4eebd),
    ("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32", 0x7e2de51a8d418a5b, 0x8727771d4643afb7),
    ("mma.sync.aligned.m16n8k32.row.col.s32.u8.u8.s32", 0x29d3d8c2d824da0c, 0x9807dfe80e075869),
    ("mma.sync.aligned.m16n8k32.row.col.satfinite.s32.s4.s4.s32", 0x77095ae0eee43f70, 0x23fdd17714245846),
    ("mma.sync.aligned.m16n8k32.row.col.satfinite.s32.s4.u4.s32", 0x7f4aa9e46711a021, 0xb8e914f3395a2171),
    ("mma.sync.aligned.m16n8k32.row.col.satfinite.s32.s8.s8.s32", 0xf3e991b3ca521465, 0xee598ca2be1f078c),
    ("mma.sync.aligned.m16n8k32.row.col.satfinite.s32.s8.u8.s32", 0x20827099681bec2e, 0xd47e06d7ef5c656e),
    ("mma.sync.aligned.m16n8k32.row.col.satfinite.s32.u4.s4.s32", 0x1ca1a714140355eb, 0x25d179ae2eda9f13),
    ("mma.sync.aligned.m16n8k32.row.col.satfinite.s32.u4.u4.s32", 0xdab93dce0026b469, 0x1fb8e6e4717000bc),
    ("mma.sync.aligned.m16n8k32.row.col.satfinite.s32.u8.s8.s32", 0xdc4f974ea212627b, 0x526d90b90fe91968),
    ("mma.sync.aligned.m16n8k32.row.col.satfinite.s32.u8.u8.s32", 0x6527a3dd15740bc3, 0x712a363761b7b186),
    ("mma.sync.aligned.m16n8k4.row.col.f32.tf32.tf32.f32", 0x53cdf64c150b52de, 0x4c9badfc5a404380),
    ("mma.sync.aligned.m16n8k4.row.col.f64.f64.f64.f64", 0x8582c32d88f83d32, 0x069e5f7f10422602),
    ("mma.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32", 0xf375c2823b884cc3, 0x9888523ff6e73f3a),
    ("mma.sync.aligned.m16n8k64.row.col.s32.s4.u4.s32", 0x105827f8457a3454, 0xf58ec11f7557e144),
    ("mma.sync.aligned.m16n8k64.row.col.s32.u4.s4.s32", 0x6d2d529fd8692e84, 0x278a75aac8a9776e),
    ("mma.sync.aligned.m16n8k64.row.col.s32.u4.u4.s32", 0xa565c9f1ad11dc92, 0x5854a494ccc21dbd),
    ("mma.sync.aligned.m16n8k64.row.col.satfinite.s32.s4.s4.s32", 0xbbba7c8a24a535b3, 0xb1e7b96c331c05e3),
    ("mma.sync.aligned.m16n8k64.row.col.satfinite.s32.s4.u4.s32", 0xeec4c3937e4cc0dd, 0xde7a59c6870995ab),
    ("mma.sync.aligned.m16n8k64.row.col.satfinite.s32.u4.s4.s32", 0xd58aec4404587aa8, 0xaa0c2d26f03ffdc2),
    ("mma.sync.aligned.m16n8k64.row.col.satfinite.s32.u4.u4.s32", 0xdb900cbdc8d1b2d6, 0x8705926ee2019060),
    ("mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16", 0x2d0627ab0a687f54, 0x326a2801bd2bc031),
    ("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32", 0xe13d81adfc9f04ff, 0xdcc30269f20619e5),
    ("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32", 0xe30bb50f0c070d10, 0x62f194a34a654513),
    ("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", 0x0801be28221c3a9f, 0x65ef6ceec611f9c8),
    ("mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64", 0x203f6cc7ad37286c, 0x2001c5c6ee135573),
    ("mma.sync.aligned.m8n8k128.row.col.s32.b1.b1.s32.and.popc", 0xcacb6d893f7d2713, 0x48a19ddce4c96833),
    ("mma.sync.aligned.m8n8k128.row.col.s32.b1.b1.s32.xor.popc", 0xdfd12eeb64f7feba, 0x69ccfd1bf62ce153),
    ("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32", 0xd22d068cd4e5af0f, 0xd2c1708fb5dbd0c3),
    ("mma.sync.aligned.m8n8k16.row.col.s32.s8.u8.s32", 0x1caab5dd00d1f54d, 0xdd4bc2d9c5280fcc),
    ("mma.sync.aligned.m8n8k16.row.col.s32.u8.s8.s32", 0x39b1511f7bc0dd6f, 0x188a6cd2f189347c),
    ("mma.sync.aligned.m8n8k16.row.col.s32.u8.u8.s32", 0xa3e686d519275353, 0x44a09cd824956da3),
    ("mma.sync.aligned.m8n8k16.row.col.satfinite.s32.s8.s8.s32", 0x1cc83c1cc620e82a, 0xd4e24133876923af),
    ("mma.sync.aligned.m8n8k16.row.col.satfinite.s32.s8.u8.s32", 0x9bf654a96d979301, 0xbfe3688d0622b129),
    ("mma.sync.aligned.m8n8k16.row.col.satfinite.s32.u8.s8.s32", 0x5dcf034a2f6604aa, 0x708c5dfef84c5c6b),
    ("mma.sync.aligned.m8n8k16.row.col.satfinite.s32.u8.u8.s32", 0xed84a5596cb37101, 0x4f7b000726e0f3f7),
    ("mma.sync.aligned.m8n8k32.row.col.s32.s4.s4.s32", 0xc9ae7ca2f392e3f3, 0xe04a962cbf15dea2),
    ("mma.sync.aligned.m8n8k32.row.col.s32.s4.u4.s32", 0xa94b2df7e6604140, 0x33c4774b50df4319),
    ("mma.sync.aligned.m8n8k32.row.col.s32.u4.s4.s32", 0x47c7578ab3c2fd2e, 0x2b287fe0a344a0de),
    ("mma.sync.aligned.m8n8k32.row.col.s32.u4.u4.s32", 0x3d3e31c5ddc0bb2f, 0x7e0c9ab322f6570f),
    ("mma.sync.aligned.m8n8k32.row.col.satfinite.s32.s4.s4.s32", 0x84fdeff431d00e24, 0x0e202dd41abc010a),
    ("mma.sync.aligned.m8n8k32.row.col.satfinite.s32.s4.u4.s32", 0x113df315690bc83a, 0xa64646fab7550782),
    ("mma.sync.aligned.m8n8k32.row.col.satfinite.s32.u4.s4.s32", 0x430d2f76f76cfc55, 0x5144be3c5138742a),
    ("mma.sync.aligned.m8n8k32.row.col.satfinite.s32.u4.u4.s32", 0xfd68d8458a4219cf, 0x65a828a60362a5f0),
    ("mma.sync.aligned.m8n8k4.col.col.f16.f16.f16.f16", 0x8b80260c49018c4b, 0x2a9e2aedba42a32a),
    ("mma.sync.aligned.m8n8k4.col.col.f32.f16.f16.f16", 0xf65bb75fce95a67e, 0x4c8cfad593842d8e),
    ("mma.sync.aligned.m8n8k4.col.col.f32.f16.f16.f32", 0x3e3bbf06034bddf5, 0x607b0e8f55e8385d),
    ("mma.sync.aligned.m8n8k4.col.row.f16.f16.f16.f16", 0x33158a114d20dee7, 0x727f308ea9166acb),
    ("mma.sync.aligned.m8n8k4.col.row.f32.f16.f16.f16", 0x05d42ab6cc9418c0, 0x2c38e0ee518acdc8),
    ("mma.sync.aligned.m8n8k4.col.row.f32.f16.f16.f32", 0x6dd440baaf9cbdd5, 0xe621bc5a01a3bfd8),
    ("mma.sync.aligned.m8n8k4.row.col.f16.f16.f16.f16", 0xdb9e63e58ff4b722, 0x413cc889e13caa3d),
    ("mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f16", 0x026397c4d1d29357, 0x441cc3b7b0aa71c6),
    ("mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32", 0xcb3b7c93d3c486a4, 0x4a7f21ca4df9a220),
    ("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64", 0xca814182754a120b, 0x09082d504e5aa43e),
    ("mma.sync.aligned.m8n8k4.row.row.f16.f16.f16.f16", 0xd554a28a3dacb238, 0xd04068ffc54867d0),
    ("mma.sync.aligned.m8n8k4.row.row.f32.f16.f16.f16", 0x48f847fac0706e67, 0x207c024969c08bbb),
    ("mma.sync.aligned.m8n8k4.row.row.f32.f16.f16.f32", 0x969b88a6fff514d3, 0x455046c8d0a27498),
    ("wmma.mma.and.popc.sync.aligned.row.col.m8n8k128.s32.b1.b1.s32", 0xcbfcdbb0fbb33b9c, 0xd8f67e8591c78318),
    ("wmma.mma.sync.aligned.col.row.m16n16k16.f16.f16", 0x50141762e8b0b000, 0x92611a9e4bb9e01f),
    ("wmma.mma.sync.aligned.col.row.m16n16k16.f16.f32", 0x3e7d65c97fbd6cb6, 0x7b9cbdd905c46bd2),
    ("wmma.mma.sync.aligned.col.row.m16n16k16.f32.bf16.bf16.f32", 0x966d9784f05b7459, 0xa2520f945b0afbc0),
    ("wmma.mma.sync.aligned.col.row.m16n16k16.f32.f16", 0xf57a27d8836deafb, 0xf859ff9dd3b82d6d),
    ("wmma.mma.sync.aligned.col.row.m16n16k16.f32.f32", 0xf515dacfadb67591, 0x6fba5d0f09be5209),
    ("wmma.mma.sync.aligned.col.row.m16n16k16.s32.s8.s8.s32", 0x84db12b2813c7eef, 0x3b749a6c9b96d7ab),
    ("wmma.mma.sync.aligned.col.row.m16n16k16.s32.s8.s8.s32.satfinite", 0xacaaace2787ef6fb, 0x0c699688bf05cda4),
    ("wmma.mma.sync.aligned.col.row.m16n16k16.s32.u8.u8.s32", 0x1d113d3a8eda8193, 0x13276f281eb48c5e),
    ("wmma.mma.sync.aligned.col.row.m16n16k16.s32.u8.u8.s32.satfinite", 0xf198f45bfb24efae, 0xad38f3fb871237a9),
    ("wmma.mma.sync.aligned.col.row.m16n16k8.f32.tf32.tf32.f32", 0xe506fe6c86e55629, 0xee1595aff0610fac),
    ("wmma.mma.sync.aligned.row.col.m16n16k16.f16.f16", 0x8c931a83eecd703a, 0xa5237dd2f2be5b51),
    ("wmma.mma.sync.aligned.row.col.m16n16k16.f16.f32", 0x3df6e1e6f7915bca, 0x36651b3de1dee85c),
    ("wmma.mma.sync.aligned.row.col.m16n16k16.f32.bf16.bf16.f32", 0x2e92f1ef1778b197, 0xae8e2553edb2b274),
    ("wmma.mma.sync.aligned.row.col.m16n16k16.f32.f16", 0x89400a346d2e7ac7, 0x8bba1f9f6549debb),
    ("wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32", 0x21a3e4a4330febb6, 0xc6884019b66864cc),
    ("wmma.mma.sync.aligned.row.col.m16n16k16.s32.s8.s8.s32", 0x44c85484a73caa65, 0xb01b9414aaf44a0a),
    ("wmma.mma.sync.aligned.row.col.m16n16k16.s32.s8.s8.s32.satfinite", 0x6e05dfd3d4630897, 0xdd78bdcc78ef6532),
    ("wmma.mma.sync.aligned.row.col.m16n16k16.s32.u8.u8.s32", 0x3e6ddccb02f1923f, 0xc914571c8e6c10d7),
    ("wmma.mma.sync.aligned.row.col.m16n16k16.s32.u8.u8.s32.satfinite", 0x1675772c2a812d03, 0x84971f5b3e62d5f4),
    ("wmma.mma.sync.aligned.row.col.m16n16k8.f32.tf32.tf32.f32", 0xbc7fa7014211eb01, 0xde08a1620b4d34b8),
    ("wmma.mma.sync.aligned.row.col.m32n8k16.f16.f16", 0xb78e2d6740270ea8, 0x581fc1a9d7bc119f),
    ("wmma.mma.sync.aligned.row.col.m32n8k16.f16.f32", 0xfcd80b452dc50fe7, 0xdbee5f55b36536b4),
    ("wmma.mma.sync.aligned.row.col.m32n8k16.f32.bf16.bf16.f32", 0x2c814878ffc7fa98, 0x71784a18d9c5d24f),
    ("wmma.mma.sync.aligned.row.col.m32n8k16.f32.f16", 0x8cc73a25309f80d9, 0x44687ef5d6ed9304),
    ("wmma.mma.sync.aligned.row.col.m32n8k16.f32.f32", 0x7e5a3b4c3bfe2156, 0xc7f1e282ad83524f),
    ("wmma.mma.sync.aligned.row.col.m32n8k16.s32.s8.s8.s32", 0x074897c2b6553822, 0x5207c8eef36739b5),
    ("wmma.mma.sync.aligned.row.col.m32n8k16.s32.s8.s8.s32.satfinite", 0xa0a9ec184919ddf1, 0xb36dc832bbc8d349),
    ("wmma.mma.sync.aligned.row.col.m32n8k16.s32.u8.u8.s32", 0x04a9534639ab37f8, 0x02e30d7d0d3752d1),
    ("wmma.mma.sync.aligned.row.col.m32n8k16.s32.u8.u8.s32.satfinite", 0xb94b561928855768, 0xda903b420c9ad5ca),
    ("wmma.mma.sync.aligned.row.col.m8n32k16.f16.f16", 0xc58b2d66cf76b016, 0x65783ef86db44da7),
    ("wmma.mma.sync.aligned.row.col.m8n32k16.f16.f32", 0xe2089ef8bb44c155, 0x28c676a861bedf5d),
    ("wmma.mma.sync.aligned.row.col.m8n32k16.f32.bf16.bf16.f32", 0x8c78011c0c51f632, 0x076b2c05a3a53341),
    ("wmma.mma.sync.aligned.row.col.m8n32k16.f32.f16", 0x01f585eb7b01e95d, 0xd937135f9fa1f3f9),
    ("wmma.mma.sync.aligned.row.col.m8n32k16.f32.f32", 0xf73b67d3c86564e0, 0xea03a4ffc220a866),
    ("wmma.mma.sync.aligned.row.col.m8n32k16.s32.s8.s8.s32", 0xbd28040171d7392f, 0xde7c2aa601e454de),
    ("wmma.mma.sync.aligned.row.col.m8n32k16.s32.s8.s8.s32.satfinite", 0xc64130c7b74b7fe1, 0x8ff0e0651f2af1c4),
    ("wmma.mma.sync.aligned.row.col.m8n32k16.s32.u8.u8.s32", 0xc36f6d2921e2bd89, 0x641b997068c79e42),
    ("wmma.mma.sync.aligned.row.col.m8n32k16.s32.u8.u8.s32.satfinite", 0x3747b9c6ca8c8306, 0x2c875c64ff224705),
    ("wmma.mma.sync.aligned.row.col.m8n8k32.s32.s4.s4.s32", 0xe5d165826ee78da6, 0x361a43c10a3068ce),
    ("wmma.mma.sync.aligned.row.col.m8n8k32.s32.s4.s4.s32.satfinite", 0x5d8fe14c8cb34ae3, 0x07158b03dfc5c251),
    ("wmma.mma.sync.aligned.row.col.m8n8k32.s32.u4.u4.s32", 0x02762775b4d963ce, 0xb2669c85e5973eb4),
    ("wmma.mma.sync.aligned.row.col.m8n8k32.s32.u4.u4.s32.satfinite", 0x845cc766b45a2a3f, 0x750ec346c960e69f),
    ("wmma.mma.sync.aligned.row.col.m8n8k4.f64.f64.f64.f64", 0x1eb7821bf1d03d64, 0x697c07a73dae2831),
    ("wmma.mma.sync.aligned.row.col.m8n8k4.rm.f64.f64.f64.f64", 0xf953b1a1d7e938d8, 0x8407f356beffcec5),
    ("wmma.mma.sync.aligned.row.col.m8n8k4.rn.f64.f64.f64.f64", 0x6d3df72d495f7a38, 0x992efb2d0f0a9045),
    ("wmma.mma.sync.aligned.row.col.m8n8k4.rp.f64.f64.f64.f64", 0xef439b9b865bf0fe, 0x5cf8ab1e5a37c3e9),
    ("wmma.mma.sync.aligned.row.col.m8n8k4.rz.f64.f64.f64.f64", 0x16a614fb52ec9550, 0xe4f2cf6cf4076db3),
    ("wmma.mma.xor.popc.sync.aligned.row.col.m8n8k128.s32.b1.b1.s32", 0x293859c12e2f6e13, 0x32ba30d18411d2f9),
];
