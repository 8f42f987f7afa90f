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
