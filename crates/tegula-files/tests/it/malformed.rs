//! Malformed files: each is rejected with one line, by a process with limited memory.
#![cfg(unix)]

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output};

use tegula_files::{ArrayPath, ReadOptions, read};

use crate::common::{self, floats, npy, one_line, safetensors};

/// Entry of a zip archive: claimed fields and actual content.
struct Entry {
    name: &'static [u8],
    flags: u16,
    method: u16,
    crc: u32,
    packed: Vec<u8>,
    /// Claimed compressed and uncompressed size; values beyond 4 bytes go to a zip64 field.
    claims: (u64, u64),
}

impl Entry {
    fn stored(name: &'static [u8], content: &[u8]) -> Entry {
        let claims = (content.len() as u64, content.len() as u64);
        Entry { name, flags: 0, method: 0, crc: crc(content), packed: content.to_vec(), claims }
    }

    fn deflated(name: &'static [u8], content: &[u8]) -> Entry {
        let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::best());
        encoder.write_all(content).unwrap();
        let packed = encoder.finish().unwrap();
        Entry { method: 8, claims: (packed.len() as u64, content.len() as u64), packed, ..Entry::stored(name, content) }
    }

    /// Fields that both headers share.
    fn fields(&self) -> Vec<u8> {
        let short = |size: u64| u32::try_from(size).unwrap_or(u32::MAX).to_le_bytes();
        let start = [20u16, self.flags, self.method, 0, 0].map(u16::to_le_bytes).concat();
        let lengths = [self.name.len() as u16, self.zip64().len() as u16].map(u16::to_le_bytes).concat();
        [&start, &self.crc.to_le_bytes()[..], &short(self.claims.0), &short(self.claims.1), &lengths].concat()
    }

    fn zip64(&self) -> Vec<u8> {
        let sizes = [self.claims.1, self.claims.0].into_iter().filter(|&size| size >= u64::from(u32::MAX));
        let sizes: Vec<u8> = sizes.flat_map(u64::to_le_bytes).collect();
        let head = [1u16.to_le_bytes(), (sizes.len() as u16).to_le_bytes()].concat();
        if sizes.is_empty() { sizes } else { [head, sizes].concat() }
    }
}

fn crc(content: &[u8]) -> u32 {
    let mut crc = flate2::Crc::new();
    crc.update(content);
    crc.sum()
}

/// Builds a zip archive from the claims of its entries.
fn zip(entries: &[Entry]) -> Vec<u8> {
    let (mut archive, mut directory) = (Vec::new(), Vec::new());
    for entry in entries {
        let (offset, fields, zip64) = (archive.len() as u32, entry.fields(), entry.zip64());
        archive.extend([b"PK\x03\x04", &fields[..], entry.name, &zip64, &entry.packed].concat());
        // Version made by, then the fields; comment, disk, and attributes are empty.
        let middle = [&[20, 0], &fields[..], &[0; 10], &offset.to_le_bytes()].concat();
        directory.extend([b"PK\x01\x02", &middle[..], entry.name, &zip64].concat());
    }
    let (count, start) = ((entries.len() as u16).to_le_bytes(), archive.len() as u32);
    let end = [&[0; 4], &count[..], &count, &(directory.len() as u32).to_le_bytes(), &start.to_le_bytes(), &[0; 2]];
    [&archive[..], &directory, b"PK\x05\x06", &end.concat()].concat()
}

fn array() -> Vec<u8> {
    npy("'<f4'", "(2, 3)", &floats(6))
}

/// Converts a file in a process limited to 256 MiB of address space.
fn attempt(folder: &Path, file: &str, name: &str, content: &[u8]) -> Output {
    fs::write(folder.join(file), content).unwrap();
    let script = "ulimit -v 262144; exec \"$0\" \"$1\" out.npy";
    let mut shell = Command::new("sh");
    shell.args(["-c", script]).arg(common::convert()).arg(format!("{file}{name}")).current_dir(folder);
    shell.output().unwrap()
}

fn error_message(file: &str, name: &str, content: &[u8]) -> String {
    let folder = common::scratch();
    let stderr = one_line(&attempt(folder.path(), file, name, content));
    assert_eq!(common::names(folder.path()), [file], "{stderr}");
    assert!(stderr.starts_with(&format!("error: {file}: ")), "{stderr}");
    stderr
}

#[test]
fn npz_corrupt_entry_is_rejected() {
    let stored = || Entry::stored(b"w.npy", &array());
    let deflated = || Entry::deflated(b"w.npy", &array());
    let large = Entry::deflated(b"w.npy", &npy("'|i1'", "(1073741824,)", &vec![0; 1 << 26]));
    let shorter = npy("'<f4'", "(2, 3)", &floats(5));
    let longer = npy("'<f4'", "(2, 3)", &floats(7));
    let cases: Vec<(&str, Vec<u8>, &str)> = vec![
        ("empty", vec![], "not a zip archive"),
        ("not zip", array(), "not a zip archive"),
        ("cut", zip(&[stored()])[..200].to_vec(), "not a .npz file or archive is corrupt"),
        ("no arrays", zip(&[Entry::stored(b"readme.txt", b"hello")]), "contains no arrays"),
        ("bomb", zip(&[Entry { claims: (64, 1 << 40), ..deflated() }]), "1099511627776 bytes are compressed to 64"),
        ("claims all", zip(&[Entry { claims: (u64::MAX, u64::MAX), ..deflated() }]), "offset overflows"),
        ("claims half", zip(&[Entry { claims: (1 << 63, 1 << 63), ..stored() }]), "claims 9223372036854775808 bytes"),
        (
            "claims more",
            zip(&[Entry { claims: (1 << 20, 1 << 20), ..stored() }]),
            "claims 1048576 bytes, more than the file",
        ),
        ("two sizes", zip(&[Entry { claims: (152, 151), ..stored() }]), "152 bytes for 151 uncompressed bytes"),
        ("encrypted", zip(&[Entry { flags: 1, ..deflated() }]), "encryption is not supported"),
        ("encrypted, stored", zip(&[Entry { flags: 1, ..stored() }]), "encryption is not supported"),
        ("bzip2", zip(&[Entry { method: 12, ..deflated() }]), "save it again with np.savez_compressed"),
        ("checksum", zip(&[Entry { crc: 1, ..deflated() }]), "entry is corrupt: Invalid checksum"),
        ("no deflate", zip(&[Entry { packed: vec![0xff; 90], claims: (90, 152), ..deflated() }]), "cannot be read"),
        (
            "size below the array's",
            zip(&[Entry { claims: (deflated().claims.0, 140), ..deflated() }]),
            "data is truncated: 2×3 f32 needs 24 bytes",
        ),
        ("array cut", zip(&[Entry::deflated(b"w.npy", &shorter)]), "24 bytes after the header, found 20"),
        (
            "array cut, wrong size",
            zip(&[Entry {
                claims: (Entry::deflated(b"", &shorter).claims.0, 152),
                ..Entry::deflated(b"w.npy", &shorter)
            }]),
            "found 20",
        ),
        ("bytes after the array", zip(&[Entry::deflated(b"w.npy", &longer)]), "bytes follow the array"),
        (
            "larger than claimed",
            zip(&[large]),
            "data is truncated: 1073741824 i8 needs 1073741824 bytes after the header, found 67108864",
        ),
        ("two of a name", zip(&[stored(), stored()]), "duplicate array names"),
        (
            "names",
            zip(&[Entry::stored(b"../../x.npy", &array()), Entry::stored(b"/etc/passwd\n\x1b[2J.npy", &array())]),
            "contains 2 arrays; append one name, such as ':../../x': ../../x, /etc/passwd\\n\\u{1b}[2J",
        ),
        ("a bad name", zip(&[Entry::stored(b"\n.npy", b"no array")]), "array '\\n': not a .npy file"),
    ];
    for (what, content, expected) in cases {
        let stderr = error_message("bad.npz", "", &content);
        assert!(stderr.contains(expected), "{what}: {stderr}");
    }
    let many: Vec<Entry> = [b"a.npy", b"b.npy", b"c.npy"].map(|name| Entry::stored(name, &array())).into();
    assert!(
        error_message("bad.npz", ":d\r", &zip(&many)).contains("array 'd\\r' not found; the file contains a, b, c")
    );
}

#[test]
fn npz_corrupt_directory_is_rejected() {
    let good = zip(&[Entry::stored(b"w.npy", &array())]);
    let end = good.len() - 22;
    let with = |at: usize, bytes: &[u8]| {
        let mut bad = good.clone();
        bad[end + at..][..bytes.len()].copy_from_slice(bytes);
        bad
    };
    let huge = (1u64 << 40).to_le_bytes();
    let end64 = [
        b"PK\x06\x06",
        &44u64.to_le_bytes()[..],
        &[45, 0, 45, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        &huge,
        &huge,
        &huge,
        &huge,
        b"PK\x06\x07\0\0\0\0",
        &(end as u64).to_le_bytes(),
        &[1, 0, 0, 0],
    ];
    let short_end = [b"PK\x05\x06\0\0\0\0", &[0xff; 12][..], &[0; 2]].concat();
    // Entries, the size of the directory, both and its offset; then all of them as zip64. An
    // archive that can be read may be.
    let cases = [
        with(8, &[0xff, 0x7f, 0xff, 0x7f]),
        with(12, &[0xff, 0xff, 0xff, 0x7f]),
        with(8, &[0xfe, 0xff, 0xfe, 0xff, 0xff, 0xff, 0xff, 0x7f, 0xff, 0xff, 0xff, 0x7f]),
        [&good[..end], &end64.concat(), &short_end].concat(),
    ];
    for (case, content) in cases.iter().enumerate() {
        let folder = common::scratch();
        let output = attempt(folder.path(), "bad.npz", "", content);
        assert!(output.status.success() && case == 1 || one_line(&output).starts_with("error: bad.npz: "), "{case}");
    }
}

#[test]
fn safetensors_corrupt_header_is_rejected() {
    let one = |dtype: &str, shape: &str, start: u64, end: u64| {
        format!(r#""w":{{"dtype":"{dtype}","shape":{shape},"data_offsets":[{start},{end}]}}"#)
    };
    let two = |start: u64| {
        let second = one("F32", "[1]", start, start + 4).replace("\"w\"", "\"v\"");
        format!("{{{},{second}}}", one("F32", "[1]", 0, 4))
    };
    let cases: Vec<(&str, Vec<u8>, &str)> = vec![
        ("empty", vec![], "header not found"),
        ("short", vec![0; 7], "header not found"),
        ("header of 2^60", [&(1u64 << 60).to_le_bytes()[..], b"{}"].concat(), "header of 1152921504606846976 bytes"),
        ("header cut", [&90u64.to_le_bytes()[..], b"{}"].concat(), "90 bytes are needed, found 2"),
        ("no JSON", safetensors("{]", &[]), "header is corrupt"),
        ("no text", [&2u64.to_le_bytes()[..], b"\xff\xfe"].concat(), "header is corrupt"),
        ("nested", safetensors(&"[".repeat(100_000), &[]), "header is corrupt"),
        ("no arrays", safetensors("{}", &[]), "contains no arrays"),
        ("overlap", safetensors(&two(2), &[0; 8]), "header is corrupt: invalid offset"),
        ("gap", safetensors(&two(6), &[0; 12]), "header is corrupt: invalid offset"),
        (
            "beyond the file",
            safetensors(&format!("{{{}}}", one("F32", "[4]", 0, 16)), &[0; 12]),
            "arrays need 16 bytes after the header, found 12",
        ),
        ("more than the arrays", safetensors(&two(4), &[0; 12]), "8 bytes after the header, found 12"),
        ("backwards", safetensors(&format!("{{{}}}", one("F32", "[1]", 4, 0)), &[0; 4]), "header is corrupt"),
        (
            "2^63",
            safetensors(&format!("{{{}}}", one("U8", "[9223372036854775808]", 0, 1 << 63)), &[0; 4]),
            "header is corrupt: overflow",
        ),
        (
            "2^60",
            safetensors(&format!("{{{}}}", one("U8", "[1152921504606846976]", 0, 1 << 60)), &[0; 4]),
            "arrays need 1152921504606846976 bytes",
        ),
        (
            "2^126",
            safetensors(&format!("{{{}}}", one("U8", "[9223372036854775808,9223372036854775808]", 0, 4)), &[0; 4]),
            "header is corrupt: overflow",
        ),
        ("negative", safetensors(&format!("{{{}}}", one("U8", "[-1]", 0, 4)), &[0; 4]), "header is corrupt"),
        (
            "unknown type",
            safetensors(&format!("{{{}}}", one("F\\n7", "[1]", 0, 4)), &[0; 4]),
            "unknown variant `F\\n7`",
        ),
        (
            "complex",
            safetensors(&format!("{{{}}}", one("C64", "[1]", 0, 8)), &[0; 8]),
            "array 'w': unsupported dtype C64",
        ),
        ("two", safetensors(&two(4), &[0; 8]), "contains 2 arrays; append one name, such as ':w': w, v"),
    ];
    for (what, content, expected) in cases {
        let stderr = error_message("bad.safetensors", "", &content);
        assert!(stderr.contains(expected), "{what}: {stderr}");
    }
}

#[test]
fn read_beyond_the_memory_limit_is_rejected() {
    let folder = common::scratch();
    let rejected = |file: &str, content: &[u8]| {
        let path = folder.path().join(file);
        fs::write(&path, content).unwrap();
        let options = ReadOptions { memory_limit: 1 << 20, ..ReadOptions::default() };
        read(&ArrayPath::parse(path), &options).unwrap_err().message
    };
    let large = vec![0; (1 << 20) + 1];
    let both = "1048577 bytes are needed, the limit is 1048576";
    let stderr = rejected("bomb.npz", &zip(&[Entry::deflated(b"w.npy", &npy("'|i1'", "(1048577,)", &large))]));
    assert!(stderr.contains(both), "{stderr}");
    // An even header and one byte leave the elements unaligned, so that they must be copied.
    let header = r#"{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"w":{"dtype":"I16","shape":[524289],"data_offsets":[1,1048579]}}"#;
    let padded = format!("{header:<0$}", header.len().next_multiple_of(2));
    fs::write(folder.path().join("odd.safetensors"), safetensors(&padded, &vec![0; 1_048_579])).unwrap();
    let array_path = ArrayPath::parse(folder.path().join("odd.safetensors:w"));
    let stderr =
        read(&array_path, &ReadOptions { memory_limit: 1 << 20, ..ReadOptions::default() }).unwrap_err().message;
    assert!(
        stderr.contains("array 'w': does not fit in memory: 1048578 bytes are needed, the limit is 1048576"),
        "{stderr}"
    );
    let stderr = rejected("swapped.npy", &npy("'>i2'", "(524289,)", &vec![0; 1_048_578]));
    assert!(stderr.contains("1048578 bytes are needed, the limit is 1048576"), "{stderr}");
}

#[test]
fn read_with_a_corrupt_byte_does_not_panic() {
    let folder = common::scratch();
    let zipped = zip(&[Entry::deflated(b"w.npy", &array()), Entry::stored(b"v.npy", &array())]);
    let header = r#"{"w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}}"#;
    for (name, good) in [("a.npz", zipped), ("a.safetensors", safetensors(header, &floats(6)))] {
        let path = folder.path().join(name);
        let array_path = ArrayPath::File { path: path.clone(), name: Some("w".into()) };
        fs::write(&path, &good).unwrap();
        read(&array_path, &ReadOptions::default()).unwrap();
        let changed = (0..good.len()).flat_map(|at| [0, 1, 0x41, 0x7f, 0x80, 0xff].map(|byte| (at, byte)));
        let shortened = (0..good.len()).map(|len| good[..len].to_vec());
        let all = changed.map(|(at, byte)| {
            let mut bad = good.clone();
            bad[at] = byte;
            bad
        });
        for bad in all.chain(shortened) {
            fs::write(&path, &bad).unwrap();
            if let Err(error) = read(&array_path, &ReadOptions { memory_limit: 1 << 20, ..ReadOptions::default() }) {
                assert!(!error.to_string().contains(char::is_control), "{error}");
            }
        }
    }
}
