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
