//! The kept inputs still hold what the targets check.

use std::fs;
use std::path::Path;

use tegula_fuzz::TARGETS;

#[test]
fn kept_inputs_break_nothing() {
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

/// Random shapes, as many as `TEGULA_CASES` says; libFuzzer looks for others.
#[test]
fn broadcast_of_random_bytes_breaks_nothing() {
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
