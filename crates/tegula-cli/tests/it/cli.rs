//! The command line: files in, files out, and one-line errors.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

/// A temporary directory, in which the program runs.
struct TestDir(TempDir);

impl TestDir {
    fn new() -> TestDir {
        TestDir(TempDir::new().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn put(&self, name: &str, bytes: &[u8]) -> &TestDir {
        fs::write(self.path(name), bytes).unwrap();
        self
    }

    fn run(&self, line: &str) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tegula"));
        command.current_dir(self.0.path()).args(line.split_whitespace()).output().unwrap()
    }

    /// Runs a command that must succeed; returns standard output.
    fn done(&self, line: &str) -> String {
        let output = self.run(line);
        assert!(output.status.success(), "{line}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    /// Runs a command that must fail with one line on standard error and none on standard output,
    /// and returns that line.
    fn fails(&self, line: &str, code: i32) -> String {
        let output = self.run(line);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{line}: {said}");
        assert!(said.starts_with("error: ") && said.ends_with('\n'), "{line}: {said}");
        assert_eq!(said.lines().count(), 1, "{line}: {said}");
        assert_eq!(text(&output.stdout), "", "{line}");
        said
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.0.path()).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// A `.npy` file, written without the program.
fn npy(version: u8, descr: &str, fortran: bool, shape: &str, data: &[u8]) -> Vec<u8> {
    let order = if fortran { "True" } else { "False" };
    let dict = format!("{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}\n");
    let len = (dict.len() as u32).to_le_bytes();
    let len = if version == 1 { &len[..2] } else { &len[..] };
    [b"\x93NUMPY".as_slice(), &[version, 0], len, dict.as_bytes(), data].concat()
}

fn f32s(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|x| x.to_le_bytes()).collect()
}

/// A 2×3 matrix of f32: 1 2 3 / 4 5 6.
fn two_by_three() -> Vec<u8> {
    npy(1, "'<f4'", false, "(2, 3)", &f32s(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]))
}

/// The 2×2 product of that matrix and its transpose.
const GRAM: [f32; 4] = [14.0, 32.0, 32.0, 77.0];

fn payload(path: &Path) -> Vec<u8> {
    let bytes = fs::read(path).unwrap();
    assert_eq!(&bytes[..8], b"\x93NUMPY\x01\x00");
    let start = 10 + usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    assert_eq!(start % 64, 0, "the data is aligned as NumPy aligns it");
    bytes[start..].to_vec()
}

#[test]
fn product_is_written_and_read_back() {
    let place = TestDir::new();
    place.put("a.npy", &two_by_three());
    assert_eq!(place.done("mul a.npy a.npy --tb -o c.npy"), "");
    assert_eq!(payload(&place.path("c.npy")), f32s(&GRAM));
    place.put("eye.npy", &npy(1, "'<f4'", false, "(2, 2)", &f32s(&[1.0, 0.0, 0.0, 1.0])));
    place.done("mul c.npy eye.npy -o d.npy");
    assert_eq!(fs::read(place.path("c.npy")).unwrap(), fs::read(place.path("d.npy")).unwrap());
    assert_eq!(place.names(), ["a.npy", "c.npy", "d.npy", "eye.npy"]);
}

#[test]
fn npy_variants_are_read_alike() {
    let columns = [1.0f32, 4.0, 2.0, 5.0, 3.0, 6.0];
    let big: Vec<u8> = columns.iter().flat_map(|x| x.to_be_bytes()).collect();
    let files = [
        npy(2, "'<f4'", true, "(2, 3)", &f32s(&columns)),
        npy(3, "'>f4'", true, "(2, 3)", &big),
        npy(1, "'<f4'", true, "[2, 3]", &[f32s(&columns), vec![1, 2, 3]].concat()),
    ];
    for file in files {
        let place = TestDir::new();
        place.put("a.npy", &two_by_three()).put("b.npy", &file);
        place.done("mul a.npy b.npy --tb -o c.npy");
        assert_eq!(payload(&place.path("c.npy")), f32s(&GRAM));
        place.done("mul b.npy b.npy --tb -o c.npy");
        assert_eq!(payload(&place.path("c.npy")), f32s(&GRAM));
    }
}

#[test]
fn alpha_beta_and_c0() {
    let place = TestDir::new();
    place.put("a.npy", &two_by_three());
    place.put("c0.npy", &npy(1, "'<f4'", true, "(2, 2)", &f32s(&[1.0, 2.0, 3.0, 4.0])));
    place.done("mul a.npy a.npy --tb --alpha 2 --beta -1 --c c0.npy -o c.npy --verify");
    assert_eq!(payload(&place.path("c.npy")), f32s(&[27.0, 61.0, 62.0, 150.0]));
    // The output may be an input: everything is read before anything is written.
    place.done("mul a.npy a.npy --tb --beta 1 --c c.npy -o c.npy");
    assert_eq!(payload(&place.path("c.npy")), f32s(&[41.0, 93.0, 94.0, 227.0]));
}

#[test]
fn i8_product_is_i32() {
    let place = TestDir::new();
    place.put("a.npy", &npy(1, "'|i1'", false, "(1, 2)", &[128, 128]));
    place.done("mul a.npy a.npy --tb -o c.npy");
    assert_eq!(payload(&place.path("c.npy")), 32768i32.to_le_bytes());
}

#[test]
fn empty_matrices_multiply() {
    let place = TestDir::new();
    place.put("a.npy", &npy(1, "'<f4'", false, "(2, 0)", &[])).put("b.npy", &npy(1, "'<f4'", false, "(0, 2)", &[]));
    place.done("mul a.npy b.npy -o c.npy --verify");
    assert_eq!(payload(&place.path("c.npy")), f32s(&[0.0; 4]));
    place.done("mul b.npy a.npy -o c.npy --verify");
    assert!(payload(&place.path("c.npy")).is_empty());
}

#[test]
fn cast_converts_types() {
    let place = TestDir::new();
    let double: Vec<u8> = [1.9f64, -1.9, 300.0].iter().flat_map(|x| x.to_le_bytes()).collect();
    place.put("a.npy", &two_by_three()).put("b.npy", &npy(1, "'<f8'", false, "(3, 1)", &double));
    let said = place.fails("mul a.npy b.npy", 1);
    assert!(said.contains("A is f32, B is f64: their types must match; convert with --cast TYPE"), "{said}");
    place.done("mul a.npy b.npy --cast i8 -o c.npy");
    let expected = [1 - 2 + 3 * 127, 4 - 5 + 6 * 127i32].map(i32::to_le_bytes).concat();
    assert_eq!(payload(&place.path("c.npy")), expected);
}

#[test]
fn bfloat16_npy_is_two_raw_bytes() {
    let place = TestDir::new();
    let (one, two) = (0x3f80u16.to_le_bytes(), 0x4000u16.to_le_bytes());
    place.put("a.npy", &npy(1, "'|V2'", false, "(1, 2)", &[one, two].concat()));
    place.done("mul a.npy a.npy --tb -o c.npy");
    assert_eq!(payload(&place.path("c.npy")), 0x40a0u16.to_le_bytes());
    assert!(text(&fs::read(place.path("c.npy")).unwrap()[10..60]).contains("'<V2'"));
}

#[test]
fn mul_without_output_prints_a_preview() {
    let place = TestDir::new();
    place.put("a.npy", &two_by_three());
    let output = place.run("mul a.npy a.npy --tb --device cpu");
    assert_eq!(text(&output.stdout), "2×2 f32\n  14  32\n  32  77\n");
    let line = text(&output.stderr);
    assert!(line.starts_with("2×2 f32 = 2×3 · 3×2 on cpu ("), "{line}");
    assert!(line.trim_end().ends_with("FLOP/s"), "{line}");
}

#[test]
fn json_is_one_object_on_standard_output() {
    let place = TestDir::new();
    place.put("a.npy", &two_by_three());
    let parse = |line| serde_json::from_str::<serde_json::Value>(&place.done(line)).unwrap();
    let figures = parse("mul a.npy a.npy --tb --json --verify");
    assert_eq!((&figures["m"], &figures["n"], &figures["k"]), (&2.into(), &2.into(), &3.into()));
    assert_eq!(figures["dtype"], "f32");
    assert_eq!(figures["r"], 0.0);
    for key in ["device", "kernel", "seconds", "gflops", "bound"] {
        assert!(!figures[key].is_null(), "{key}");
    }
    assert!(parse("mul a.npy a.npy --tb --json").get("r").is_none());
    assert!(parse("devices --json")["devices"].is_array());
}

#[test]
fn tf32_applies_to_f32_with_its_own_bound() {
    let place = TestDir::new();
    place.put("a.npy", &two_by_three());
    for device in ["cpu", "interp"] {
        let line = format!("mul a.npy a.npy --tb --json --verify --accuracy tf32 --device {device}");
        let figures: serde_json::Value = serde_json::from_str(&place.done(&line)).unwrap();
        assert_eq!(
            (&figures["accuracy"], &figures["dtype"], &figures["r"]),
            (&"tf32".into(), &"f32".into(), &0.0.into())
        );
        assert_eq!(figures["bound"], 2.0 + 4.0 * 5.0 / 8192.0);
    }
    let said = place.fails("mul a.npy a.npy --tb --accuracy tf32 --cast f64", 1);
    assert!(said.contains("A is f64") && said.contains("--cast f32"), "{said}");
    assert!(place.fails("mul a.npy a.npy --tb --accuracy half", 2).contains("full, tf32"));
}

#[test]
fn bias_and_activation_are_applied() {
    let place = TestDir::new();
    let floats = |shape: &str, values: &[f32]| npy(1, "'<f4'", false, shape, &f32s(values));
    place.put("a.npy", &two_by_three());
    place.put("row.npy", &floats("(2,)", &[-20.0, 0.5])).put("column.npy", &floats("(2, 1)", &[-20.0, 0.5]));
    let layer = |options: &str| {
        let line = format!("mul a.npy a.npy --tb -o c.npy --verify --json {options}");
        let said: serde_json::Value = serde_json::from_str(&place.done(&line)).unwrap();
        let values =
            payload(&place.path("c.npy")).chunks(4).map(|x| f32::from_le_bytes(x.try_into().unwrap())).collect();
        (said, values)
    };
    for device in ["cpu", "interp"] {
        let layer = |options: &str| -> (serde_json::Value, Vec<f32>) { layer(&format!("{options} --device {device}")) };
        let (said, values) = layer("--bias row.npy --activation relu");
        assert_eq!((&said["epilogue"], values), (&"bias+relu".into(), vec![0.0, 32.5, 12.0, 77.5]));
        assert_eq!((&said["bound"], &said["ok"]), (&6.0.into(), &true.into()));
        let (said, values) = layer("--bias column.npy");
        assert_eq!((&said["epilogue"], values), (&"bias".into(), vec![-6.0, 12.0, 32.5, 77.5]));
        let (said, values) = layer("--activation silu --alpha 0.0625");
        assert_eq!((&said["epilogue"], &said["bound"]), (&"silu".into(), &9.0.into()));
        let silu = |x: f32| x / (1.0 + (-x).exp());
        assert!(values.iter().zip(GRAM).all(|(y, x)| (y - silu(x / 16.0)).abs() <= 1e-6 * y), "{values:?}");
        assert_eq!(layer("").0["epilogue"], "none");
    }
    let object: serde_json::Value =
        serde_json::from_str(&place.done("mul a.npy a.npy --tb --activation gelu --device cpu --json")).unwrap();
    assert_eq!(object["gelu_form"], "tanh");
    for line in ["mul --help", "man mul", "bench --help", "man bench"] {
        assert!(place.done(line).contains("tanh"), "{line} says which GELU it is");
    }
    let line = place.run("mul a.npy a.npy --tb --bias row.npy --activation gelu --device cpu");
    assert!(text(&line.stderr).starts_with("2×2 f32 = 2×3 · 3×2 with bias+gelu on cpu ("), "{}", text(&line.stderr));
    let plan = place.done("mul a.npy a.npy --tb --bias column.npy --explain-plan --device interp");
    assert!(plan.contains("_column_bias\n") && plan.contains("\nbias: 2×1 f32 in host memory"), "{plan}");
    let plan = place.done("mul a.npy a.npy --tb --bias row.npy --explain-plan --json --device cpu");
    assert!(plan.contains("{\"name\":\"bias\",\"dtype\":\"f32\""), "{plan}");
}

#[test]
fn invalid_bias_is_a_one_line_error() {
    let place = TestDir::new();
    let ints = npy(1, "'<i4'", false, "(2,)", &[1i32, 2].map(i32::to_le_bytes).concat());
    place.put("a.npy", &two_by_three()).put("ints.npy", &ints).put("c.npy", b"precious");
    let three = npy(1, "'<f4'", false, "(3,)", &f32s(&[1.0; 3]));
    let whole = npy(1, "'<f4'", false, "(2, 2)", &f32s(&[1.0; 4]));
    place.put("three.npy", &three).put("whole.npy", &whole);
    let cases = [
        ("--bias three.npy", 1, "the bias is 3 and does not broadcast to C, 2×2"),
        ("--bias whole.npy", 1, "the bias is 2×2 and varies along rows and columns; give a row or a column"),
        ("--bias ints.npy", 1, "the bias is i32, C is f32: the bias needs the type of C; convert with --cast f32"),
        ("--bias missing.npy", 1, "missing.npy: file not found"),
        ("--cast i8 --activation gelu", 1, "the activation gelu"),
        ("--activation tanh", 2, "[possible values: none, relu, gelu, silu]"),
        ("--bias - --beta 1 --c -", 2, "standard input holds one array; read --bias from a file"),
    ];
    for (options, code, expected) in cases {
        let said = place.fails(&format!("mul a.npy a.npy --tb -o c.npy {options}"), code);
        assert!(said.contains(expected), "{options}: {said}");
        assert_eq!(fs::read(place.path("c.npy")).unwrap(), b"precious", "{options}");
    }
    place.done("mul a.npy a.npy --tb -o c.npy --bias ints.npy --cast f32");
    let expected = f32s(&[GRAM[0] + 1.0, GRAM[1] + 2.0, GRAM[2] + 1.0, GRAM[3] + 2.0]);
    assert_eq!(payload(&place.path("c.npy")), expected);
}

#[test]
fn invalid_files_are_one_line_errors_and_keep_the_output() {
    let array = |descr: &str, shape: &str, bytes: usize| npy(1, descr, false, shape, &vec![0; bytes]);
    let whole = two_by_three();
    let cases: [(&str, Vec<u8>, &str); 18] = [
        ("empty", vec![], "file is empty"),
        ("magic", b"PK\x03\x04 not an array".to_vec(), "not a .npy file"),
        ("short", whole[..7].to_vec(), "is truncated"),
        ("no length", whole[..9].to_vec(), "is truncated"),
        ("header", whole[..40].to_vec(), "header is truncated: "),
        ("data", whole[..whole.len() - 5].to_vec(), "2×3 f32 needs 24 bytes after the header, found 19"),
        ("version", npy(9, "'<f4'", false, "(2, 3)", &[0; 24]), "version 9.0"),
        ("object", array("'|O'", "(2, 3)", 24), "unsupported dtype: Python objects"),
        ("structured", array("[('x', '<f4'), ('y', '<f4')]", "(2, 3)", 48), "unsupported structured array"),
        ("float128", array("'<f16'", "(2, 3)", 96), "unsupported dtype float128; cast it first"),
        ("fp8", array("'<V1'", "(2, 3)", 6), "8-bit float format"),
        ("text", array("'<U4'", "(2, 3)", 96), "unsupported dtype '<U4' (text)"),
        ("complex", array("'<c8'", "(2, 3)", 48), "unsupported dtype complex64"),
        ("date", array("'<M8[ns]'", "(2, 3)", 48), "unsupported dtype '<M8[ns]'"),
        ("absurd", array("'<f4'", "(1000000000000, 1000000)", 24), "found 24"),
        ("absurder", array("'<f4'", "(18446744073709551615, 3)", 24), "exceeds the address space"),
        ("nested", array(&"(".repeat(9000), "(2, 3)", 24), "header is corrupt: not a dictionary"),
        ("long", [b"\x93NUMPY\x02\x00\xff\xff\xff\xff", &[b' '; 99][..]].concat(), "header of 4294967295 bytes"),
    ];
    for (name, bytes, expected) in cases {
        let place = TestDir::new();
        place.put("bad.npy", &bytes).put("good.npy", &whole).put("c.npy", b"precious");
        for line in ["mul bad.npy good.npy -o c.npy", "mul good.npy bad.npy -o c.npy"] {
            let said = place.fails(line, 1);
            assert!(said.starts_with("error: bad.npy: ") && said.contains(expected), "{name}: {said}");
        }
        assert_eq!(fs::read(place.path("c.npy")).unwrap(), b"precious", "{name}");
        assert_eq!(place.names(), ["bad.npy", "c.npy", "good.npy"], "{name}");
    }
}

#[test]
fn mismatched_operands_are_one_line_errors_and_keep_the_output() {
    let cases = [
        ("mul missing.npy a.npy -o c.npy", 1, "missing.npy: file not found"),
        ("mul dir a.npy -o c.npy", 1, "dir: is a directory; use a .npy"),
        ("mul a.npy/x a.npy -o c.npy", 1, "a.npy/x: cannot be read"),
        ("mul a.npy a.npy -o c.npy", 1, "A's 3 columns must equal B's 2 rows; add --tb"),
        ("mul a.npy a.npy --ta --tb -o c.npy", 1, "leave out --t"),
        ("mul a.npy f64.npy -o c.npy", 1, "A is f32, B is f64: their types must match; convert with --cast TYPE"),
        ("mul a.npy a.npy --tb --beta 1 --c a.npy -o c.npy", 1, "C0 is 2×3, C is 2×2"),
        ("mul a.npy a.npy --ta --beta 1 --c f64.npy -o c.npy", 1, "C0 is f64, C is f32"),
        ("mul a.npy a.npy --tb -o dir", 1, "dir: cannot be written: it is a directory"),
        ("mul a.npy a.npy --tb -o none/c.npy", 1, "none/c.npy: cannot be written: its directory does not exist"),
        ("mul a.npy a.npy --tb -o c.npy/x", 1, "c.npy/x: cannot be written"),
        (
            "mul a.npy a.npy --tb -o read-only.npy",
            1,
            "read-only.npy: cannot be written: the existing file is read-only",
        ),
        ("mul a.npy a.npy --tb -o c.npy --device cuda:99", 1, "no "),
        ("mul a.npy a.npy --tb -o c.npy --device gpu", 2, "choose auto, cpu, cuda:N or interp"),
        ("mul a.npy a.npy --tb -o c.npy --device cuda:x", 2, "choose auto, cpu, cuda:N or interp"),
        ("mul a.npy a.npy --tb -o c.npy --beta 2", 2, "--beta 2 needs C0: add --c FILE"),
        ("mul a.npy a.npy --tb -o c.npy --c a.npy", 2, "--beta"),
        ("mul a.npy a.npy --tb -o c.npy --cast i32 --alpha 1e300", 2, "--alpha 1e300: not a value of i32"),
        ("mul a.npy a.npy --tb -o c.npy --cast i32 --alpha 0.5", 2, "--alpha 0.5: not a value of i32"),
        ("mul a.npy a.npy --tb -o c.npy --cast u8", 2, "u8"),
        ("mul a.npy", 2, "<B>"),
        ("mul a.npy a.npy --tp", 2, "--tp"),
        ("multiply", 2, "multiply"),
        ("check", 2, "<KERNEL>"),
        ("check fast", 2, "K6"),
        ("check tiled --tile 0", 2, "--tile"),
        ("check tiled --tile 64", 1, "64"),
        ("check tiled --tile 33", 1, "tile 33 makes blocks of 1089 threads"),
        ("check naive --plant extra-barrier", 1, "the naive kernel has no barriers"),
        ("check tiled --mapping up", 2, "x-row"),
        ("check tiled --m 99999999999", 1, ""),
        ("check tiled --plant bug", 2, "missing-first-barrier"),
        ("check tiled --seeds 0", 2, "--seeds"),
        ("kernels fast", 2, "K6"),
        ("kernels --ptx", 2, "<NAME>"),
        ("kernels --cuda", 2, "<NAME>"),
        ("kernels K6 --cuda --ptx", 2, "--ptx"),
        ("kernels mma --cuda", 1, "cannot be printed as CUDA C++"),
        ("kernels --sass", 2, "<NAME>"),
        ("kernels K6 --sass --ptx", 2, "--ptx"),
        ("kernels tiled --ptx --tile 64", 1, "64"),
    ];
    let place = TestDir::new();
    let double = npy(1, "'<f8'", false, "(3, 3)", &[0; 72]);
    place.put("a.npy", &two_by_three()).put("f64.npy", &double).put("c.npy", b"precious").put("read-only.npy", b"kept");
    fs::create_dir(place.path("dir")).unwrap();
    set_read_only(&place.path("read-only.npy"));
    let before = place.names();
    for (line, code, expected) in cases {
        let said = place.fails(line, code);
        assert!(said.contains(expected), "{line}: {said}");
        assert_eq!(fs::read(place.path("c.npy")).unwrap(), b"precious", "{line}");
        assert_eq!(place.names(), before, "{line}");
    }
    assert_eq!(fs::read(place.path("read-only.npy")).unwrap(), b"kept");
}

fn set_read_only(path: &Path) {
    let mut permissions = fs::metadata(path).unwrap().permissions();
    permissions.set_readonly(true);
    fs::set_permissions(path, permissions).unwrap();
}

#[cfg(unix)]
#[test]
fn outputs_have_default_permissions() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let place = TestDir::new();
    place.put("a.npy", &two_by_three()).put("ordinary", b"").put("kept.npy", b"");
    place.done("mul a.npy a.npy --tb -o c.npy");
    assert_eq!(mode(&place.path("c.npy")), mode(&place.path("ordinary")));

    fs::set_permissions(place.path("kept.npy"), fs::Permissions::from_mode(0o640)).unwrap();
    symlink("kept.npy", place.path("link.npy")).unwrap();
    place.done("mul a.npy a.npy --tb -o link.npy");
    assert!(place.path("link.npy").is_symlink());
    assert_eq!(mode(&place.path("kept.npy")), 0o640);
    assert_eq!(payload(&place.path("kept.npy")), f32s(&GRAM));
}

#[cfg(unix)]
#[test]
fn pipes_and_devices_are_read_and_written() {
    let place = TestDir::new();
    place.put("a.npy", &two_by_three()).put("cut.npy", &two_by_three()[..90]);
    let run = |file: &str, rest: &str| {
        let line = format!("cat {file} | $TEGULA mul /dev/stdin a.npy --tb {rest}");
        let mut shell = Command::new("sh");
        shell.args(["-c", &line]).env("TEGULA", env!("CARGO_BIN_EXE_tegula")).current_dir(place.0.path());
        shell.output().unwrap()
    };
    let output = run("a.npy", "-o /dev/stdout | tail -c 16");
    assert_eq!(output.stdout, f32s(&GRAM), "{}", text(&output.stderr));
    let output = run("cut.npy", "");
    assert!(
        text(&output.stderr).contains("/dev/stdin: data is truncated: 2×3 f32 needs 24 bytes"),
        "{}",
        text(&output.stderr)
    );
}

#[test]
fn closed_pipe_is_success() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_tegula"));
    let mut child = child.args(["mul", "--help"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(text(&output.stderr), "");
}

#[test]
fn check_runs_packing_kernels() {
    let place = TestDir::new();
    for name in [
        "tf32_64x64x32_warp32x32_thread16x8_stages4_blocks3",
        "register_32x32x32_warp32x32_thread8x4_stages3_slices4_blocks4:pa:2",
    ] {
        let said = place.done(&format!("check {name} --m 21 --n 9 --k 35"));
        assert!(said.contains("_pa") && said.contains("no errors"), "{said}");
    }
}

/// The part that needs a CUDA toolkit is skipped without one; `TEGULA_REQUIRE_PTXAS=1` makes that a
/// failure.
#[test]
fn sass_is_printed_with_its_ptx_lines() {
    let place = TestDir::new();
    let mut without = Command::new(env!("CARGO_BIN_EXE_tegula"));
    without
        .args(["kernels", "K6", "--sass"])
        .env("PATH", "")
        .env("CUDA_HOME", "/none")
        .env("TEGULA_PTXAS", "/none/ptxas");
    let none = without.output().unwrap();
    if !Path::new("/usr/local/cuda/bin/ptxas").exists() {
        assert_eq!(none.status.code(), Some(1));
        assert!(none.stdout.is_empty() && text(&none.stderr).contains("TEGULA_PTXAS"), "{}", text(&none.stderr));
    }
    let done = place.run("kernels K6 --sass=sm_80");
    let required = std::env::var("TEGULA_REQUIRE_PTXAS").is_ok_and(|required| required == "1");
    if !done.status.success() && !required {
        return println!("skipped: {}", text(&done.stderr));
    }
    let sass = text(&done.stdout);
    assert!(sass.starts_with("// tiled_f32_32 for sm_80: ") && sass.contains(" registers"), "{sass}");
    assert!(sass.contains("  FFMA R") && sass.contains("// fma.rn.f32 ") && sass.contains("  LDS.128 R"), "{sass}");
    let refused = place.run("kernels K6 --sass=sm_1");
    assert_eq!(refused.status.code(), Some(1));
    assert!(refused.stdout.is_empty() && text(&refused.stderr).lines().count() == 1, "{}", text(&refused.stderr));
}

#[test]
fn kernels_are_listed_and_described() {
    let place = TestDir::new();
    let list = place.done("kernels");
    let names: Vec<_> = list.lines().map(|line| line.split(' ').next().unwrap()).collect();
    let plain = ["naive", "tiled", "K1", "K2", "K3", "K4", "K5", "K6"];
    let families = ["vector", "warp", "register", "dmma", "mma", "tf32", "limbs", "hopper", "reduce", "fixup", "pack"];
    assert_eq!(names, [&plain[..], &families].concat());
    let mma = place.done("kernels mma --dtype bf16");
    let first = mma.lines().find_map(|line| line.trim().strip_prefix("mma_")).unwrap();
    let one = place.done(&format!("kernels mma_{first} --dtype bf16"));
    assert!(one.contains(&format!("mma_bf16_{first}")) && one.contains("bytes of shared memory"), "{one}");
    assert!(place.done("kernels mma --ptx").contains(".visible .entry mma_f16_"));
    let k3 = place.done("kernels k3 --tile 32");
    assert!(k3.contains("tiled_i32_32_x_row: blocks of 32×32 = 1024 threads, 8192 bytes of shared memory"), "{k3}");
    let ptx = place.done("kernels k6 --ptx --dtype f64");
    assert!(ptx.contains(".visible .entry tiled_f64_32(") && ptx.contains("fma.rn.f64"), "{ptx}");
    let cuda = place.done("kernels k6 --cuda --dtype f64 --tile 8");
    assert!(cuda.contains("\ntiled_f64_8(\n") && cuda.contains("__shared__ double tile_a[8][8];"), "{cuda}");
    let refused = place.run(&format!("kernels mma_{first} --dtype bf16 --cuda"));
    assert_eq!(refused.status.code(), Some(1));
    assert!(refused.stdout.is_empty() && text(&refused.stderr).lines().count() == 1, "{}", text(&refused.stderr));
    assert!(text(&refused.stderr).contains("cannot be printed as CUDA C++"), "{}", text(&refused.stderr));
    assert!(place.done("--help").contains("Examples:"));
    assert!(place.done("--version").starts_with("tegula "));
}

/// Whether the program finds a GPU.
fn has_gpu(place: &TestDir) -> bool {
    let devices: serde_json::Value = serde_json::from_str(&place.done("devices --json")).unwrap();
    devices["devices"].as_array().unwrap().iter().any(|device| device["name"] == "cuda:0")
}

#[test]
fn devices_are_listed_with_reasons_for_missing_ones() {
    let place = TestDir::new();
    let list = place.done("devices");
    assert!(list.starts_with("cpu "), "{list}");
    assert!(list.contains("\ninterp "), "{list}");
    let said = place.put("a.npy", &two_by_three()).run("mul a.npy a.npy --tb");
    let said = text(&said.stderr);
    if has_gpu(&place) {
        assert!(list.contains("compute capability"), "{list}");
        assert!(said.contains(" on cuda:0 ("), "{said}");
    } else {
        assert!(list.contains("\ncuda     no NVIDIA driver: "), "{list}");
        assert!(said.contains(" on cpu ("), "{said}");
        let said = place.fails("mul a.npy a.npy --tb --device cuda:0 -o c.npy", 1);
        assert!(said.contains("no NVIDIA driver") && said.contains("--device cpu"), "{said}");
        assert_eq!(place.names(), ["a.npy"]);
    }
}

#[test]
fn interpreter_and_cpu_agree() {
    let place = TestDir::new();
    let mut state = 1u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state ^ (state >> 15)
    };
    let mut ints = |count: usize| (0..count).flat_map(|_| next().to_le_bytes()).collect::<Vec<_>>();
    place.put("a.npy", &npy(1, "'<i4'", false, "(19, 37)", &ints(19 * 37)));
    place.put("b.npy", &npy(1, "'<i4'", true, "(21, 37)", &ints(21 * 37)));
    place.put("c.npy", &npy(1, "'<i4'", false, "(19, 21)", &ints(19 * 21)));
    for device in ["cpu", "interp"] {
        let line = format!("mul a.npy b.npy --tb --alpha -3 --beta 7 --c c.npy --verify --device {device}");
        let figures = serde_json::from_str::<serde_json::Value>(&place.done(&format!("{line} -o {device}.npy --json")));
        let figures = figures.unwrap();
        assert_eq!((&figures["device"], &figures["r"]), (&device.into(), &0.0.into()));
    }
    assert_eq!(payload(&place.path("cpu.npy")), payload(&place.path("interp.npy")));
}

#[test]
fn nan_and_infinity_propagate() {
    let place = TestDir::new();
    let (nan, inf) = (f32::NAN, f32::INFINITY);
    place.put("a.npy", &npy(1, "'<f4'", false, "(3, 2)", &f32s(&[nan, 1.0, inf, 1.0, 1.0, 1.0])));
    place.put("b.npy", &npy(1, "'<f4'", false, "(2, 3)", &f32s(&[1.0, 0.0, -1.0, 1.0, 1.0, 1.0])));
    place.put("c.npy", &npy(1, "'<f4'", false, "(3, 3)", &f32s(&[nan; 9])));
    for device in ["cpu", "interp"] {
        // beta = 0 reads nothing of C0.
        place.done(&format!("mul a.npy b.npy --beta 0 --c c.npy --verify -o {device}.npy --device {device}"));
        let bytes = payload(&place.path(&format!("{device}.npy")));
        let c: Vec<_> = bytes.chunks(4).map(|x| f32::from_le_bytes(x.try_into().unwrap()).to_string()).collect();
        assert_eq!(c.join(" "), "NaN NaN NaN inf NaN -inf 2 1 0", "{device}");
    }
}

#[test]
#[cfg(target_os = "linux")]
fn failed_log_writes_do_not_fail_a_product() {
    let place = TestDir::new();
    place.put("a.npy", &two_by_three());
    let line = format!("{} mul a.npy a.npy --tb -vv -o c.npy 2>/dev/full", env!("CARGO_BIN_EXE_tegula"));
    let status = Command::new("sh").current_dir(place.0.path()).args(["-c", &line]).status().unwrap();
    assert!(status.success(), "{status}");
    assert_eq!(payload(&place.path("c.npy")), f32s(&GRAM));
}

#[test]
fn output_directory_is_refused_before_work() {
    let place = TestDir::new();
    place.put("a.npy", &two_by_three());
    assert!(place.fails("mul a.npy a.npy --tb -o c.npy/", 1).contains("directory"));
}

#[test]
fn suggested_cast_represents_both_types() {
    let place = TestDir::new();
    for (descr, size) in [("'|i1'", 1), ("'<i4'", 4), ("'<f2'", 2), ("'<f4'", 4), ("'<V2'", 2), ("'<u8'", 8)] {
        let name = descr.trim_matches(|c: char| !c.is_alphanumeric());
        place.put(&format!("{name}.npy"), &npy(1, descr, false, "(1, 1)", &vec![0; size]));
    }
    let cases =
        [("i1 i4", "i32"), ("f2 f4", "f32"), ("V2 f2", "f32"), ("i1 f2", "f32"), ("i4 f2", "f64"), ("u8 i1", "f64")];
    for (pair, expected) in cases {
        let (a, b) = pair.split_once(' ').unwrap();
        let said = place.fails(&format!("mul {a}.npy {b}.npy"), 1);
        assert!(said.contains(&format!("--cast {expected}\n")), "{pair}: {said}");
    }
}
