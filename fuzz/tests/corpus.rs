//! Runs all targets on the inputs in the corpus.

use std::fs;
use std::path::Path;

use tegula_fuzz::TARGETS;

#[test]
fn corpus_inputs_pass() {
    for (name, target) in TARGETS {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name);
        let inputs: Vec<_> = fs::read_dir(&folder).expect("a corpus").map(|entry| entry.unwrap().path()).collect();
        assert!(!inputs.is_empty(), "{} is empty", folder.display());
        for input in inputs {
            println!("{}", input.display());
            target(&fs::read(&input).unwrap());
        }
    }
}

/// Random shapes, of which `TEGULA_CASES` sets the number; libFuzzer searches for others.
#[test]
fn broadcast_random_bytes_pass() {
    let cases = std::env::var("TEGULA_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(2000);
    let mut state = 1u64;
    for _ in 0..cases {
        let bytes: Vec<u8> = std::iter::repeat_with(|| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        })
        .take(64)
        .collect();
        tegula_fuzz::broadcast(&bytes);
    }
}

/// Texts with random bytes replaced, removed or repeated; libFuzzer searches for others.
#[test]
fn ptx_mutated_texts_pass() {
    let cases = std::env::var("TEGULA_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(300);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/ptx");
    let texts: Vec<Vec<u8>> =
        fs::read_dir(&folder).unwrap().map(|entry| fs::read(entry.unwrap().path()).unwrap()).collect();
    let mut state = 7u64;
    let mut random = |limit: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % limit
    };
    for case in 0..cases {
        let mut text = texts[case % texts.len()].clone();
        for _ in 0..1 + random(3) {
            let (at, from) = (random(text.len()), random(text.len()));
            match random(4) {
                0 => text[at] = text[from],
                1 => drop(text.remove(at)),
                2 => text[at] = b"0123456789abc.;,{}[]()%@!-"[random(26)],
                _ => {
                    let piece: Vec<u8> = text[from..].iter().take(1 + random(12)).copied().collect();
                    text.splice(at..at, piece);
                }
            }
        }
        tegula_fuzz::ptx(&text);
    }
}
