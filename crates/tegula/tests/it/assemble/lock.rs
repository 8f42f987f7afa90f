//! Assembler results of each PTX text, stored in `tests/assembled.lock`, so that only changed texts
//! are assembled.
//!
//! A line is a kernel's name and GPU, a key, registers per thread, and bytes of shared memory. The
//! key is a hash of what decides these: the assembler's version, its options, and the text without
//! its comments and the kernel's name, so that a renamed kernel is not assembled again. A kernel
//! that spills, has a stack frame, or causes a warning is not written.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::ptxas::{Job, RULES, Resources, options};
use crate::effort::bless;

/// Start of the first line, before the version.
const HEAD: &str = "# ptxas ";

/// The stored results.
#[derive(Debug, PartialEq)]
pub struct Lock {
    /// Version of the assembler.
    pub version: String,
    entries: BTreeMap<String, (String, Resources)>,
    by_key: HashMap<String, Resources>,
}

fn path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/assembled.lock")
}

/// A text by its name and GPU, and by a hash of all inputs of the assembler.
#[derive(Debug)]
pub struct Text {
    label: String,
    key: String,
}

impl Lock {
    /// A lock of this version without results.
    pub fn empty(version: &str) -> Lock {
        Lock { version: version.into(), entries: BTreeMap::new(), by_key: HashMap::new() }
    }

    /// Reads the lock file. Results of other [`RULES`] are discarded.
    ///
    /// # Panics
    /// Panics if it is missing or corrupt, unless it is about to be rewritten.
    pub fn read() -> Lock {
        let text = fs::read_to_string(path()).unwrap_or_default();
        let lock = Lock::parse(&text);
        assert!(lock.is_some() || bless(), "{}: missing or corrupt; run `cargo xtask bless`", path().display());
        lock.unwrap_or_else(|| Lock::empty(""))
    }

    pub fn write(&self) {
        fs::write(path(), self.text()).expect("the lock file can be written");
    }

    fn parse(text: &str) -> Option<Lock> {
        let (head, lines) = text.split_once('\n')?;
        let (version, rules) = head.strip_prefix(HEAD)?.split_once(", rules ")?;
        if rules.parse() != Ok(RULES) {
            return Some(Lock::empty(""));
        }
        let entry = |line: &str| {
            let words: Vec<&str> = line.split(' ').collect();
            let [name, key, registers, shared] = words[..] else { return None };
            let resources = Resources { registers: registers.parse().ok()?, shared_bytes: shared.parse().ok()? };
            Some((name.to_string(), (key.to_string(), resources)))
        };
        let entries: BTreeMap<_, _> = lines.lines().map(entry).collect::<Option<_>>()?;
        let by_key = entries.values().cloned().collect();
        Some(Lock { version: version.into(), entries, by_key })
    }

    fn text(&self) -> String {
        let line = |(name, (key, resources)): (&String, &(String, Resources))| {
            format!("{name} {key} {} {}\n", resources.registers, resources.shared_bytes)
        };
        format!("{HEAD}{}, rules {RULES}\n", self.version) + &self.entries.iter().map(line).collect::<String>()
    }

    /// The key of a job for this lock's assembler.
    pub fn text_of(&self, job: &Job) -> Text {
        let mut hash = Sha256::new();
        for part in [&self.version, &options(job).join(" "), &without_names(&job.text)] {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        // 128 bits suffice, since no text is adversarial.
        let key = hash.finalize().iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        Text { label: format!("{}.{}", job.name, job.target), key }
    }

    /// The stored result of this text.
    pub fn get(&self, text: &Text) -> Option<Resources> {
        self.by_key.get(&text.key).copied()
    }

    /// Stores a result, if present.
    ///
    /// # Panics
    /// Panics if two texts have one name.
    pub fn insert(&mut self, Text { label, key }: Text, resources: Option<Resources>) {
        let Some(resources) = resources else { return };
        self.by_key.insert(key.clone(), resources);
        if let Some((before, _)) = self.entries.insert(label.clone(), (key.clone(), resources)) {
            assert_eq!(before, key, "two texts are named {label}");
        }
    }

    /// Names whose results differ between two locks, or that only one of them has.
    pub fn differences(&self, other: &Lock) -> Vec<String> {
        let names: BTreeSet<&String> = self.entries.keys().chain(other.entries.keys()).collect();
        names.into_iter().filter(|name| self.entries.get(*name) != other.entries.get(*name)).cloned().collect()
    }
}

/// Removes what the result does not depend on: comments and the kernel's name. Parts between them
/// are copied whole, since the tests are not optimized.
fn without_names(text: &str) -> String {
    const ENTRY: &str = ".visible .entry ";
    let mut code = String::with_capacity(text.len() + 1);
    let head = text.find(&format!("\n{ENTRY}")).map_or(0, |end| end + 1);
    push_without_comments(&mut code, &text[..head]);
    match text[head..].strip_prefix(ENTRY).and_then(|entry| entry.split_once('(')) {
        Some((_, body)) => {
            code.extend([ENTRY, "kernel("]);
            push_without_comments(&mut code, body);
        }
        None => push_without_comments(&mut code, &text[head..]),
    }
    if !code.ends_with('\n') {
        code.push('\n');
    }
    code
}

/// Adds the lines that are not comments.
fn push_without_comments(code: &mut String, mut text: &str) {
    while !text.is_empty() {
        let (lines, rest) = if text.starts_with("//") {
            ("", text.split_once('\n').map_or("", |(_, rest)| rest))
        } else {
            text.find("\n//").map_or((text, ""), |end| text.split_at(end + 1))
        };
        *code += lines;
        text = rest;
    }
}

#[test]
fn lock_round_trips_and_keys_depend_on_assembler_inputs() {
    let job = |text: &str, target: &str| Job { name: "k".into(), text: text.into(), target: target.into() };
    let resources = Resources { registers: 24, shared_bytes: 2048 };
    let (mut lock, other) = (Lock::empty("13.0.88"), Lock::empty("13.0.89"));
    let stored = job("text", "sm_90");
    lock.insert(lock.text_of(&stored), Some(resources));
    assert_eq!(Lock::parse(&lock.text()).as_ref(), Some(&lock));
    assert_eq!(lock.get(&lock.text_of(&stored)), Some(resources));
    let named = |name: &str, body: &str| job(&format!("// {name}\n.visible .entry {name}(\n{body}"), "sm_90");
    assert_eq!(lock.text_of(&named("a", "ret")).key, lock.text_of(&named("b", "ret")).key);
    assert_ne!(lock.text_of(&named("a", "ret")).key, lock.text_of(&named("a", "nop")).key);
    assert_eq!(
        without_names("// a\n.x\n// b\n\n.visible .entry k(\n// c\nret"),
        ".x\n\n.visible .entry kernel(\nret\n"
    );
    for text in [lock.text_of(&job("text ", "sm_90")), other.text_of(&stored)] {
        assert_eq!(lock.get(&text), None);
    }
    assert_ne!(lock.text_of(&job("text", "sm_90a")).key, lock.text_of(&stored).key);
    assert_eq!(lock.differences(&other), ["k.sm_90"]);
    assert_eq!(lock.differences(&lock), [""; 0]);
}
