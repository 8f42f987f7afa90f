//! `tegula check` on `.ptx` and `.cu` files: arguments, formulas, outputs, costs, and one-line
//! errors.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

/// `x[i] = factor * x[i]` for i < n; x has `.ptr`.
const SCALE: &str = "
.version 8.0
.target sm_80
.address_size 64
.visible .entry scale(
    .param .u64 .ptr .global .align 4 scale_param_0,
    .param .u32 scale_param_1,
    .param .f32 scale_param_2
)
{
    .reg .pred %p<2>;
    .reg .b32 %r<6>;
    .reg .f32 %f<4>;
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [scale_param_0];
    ld.param.u32 %r1, [scale_param_1];
    ld.param.f32 %f1, [scale_param_2];
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %tid.x;
    mad.lo.s32 %r5, %r2, %r3, %r4;
    setp.ge.s32 %p1, %r5, %r1;
    @%p1 bra done;
    mul.wide.s32 %rd2, %r5, 4;
    add.s64 %rd3, %rd1, %rd2;
    ld.global.f32 %f2, [%rd3];
    mul.f32 %f3, %f2, %f1;
    st.global.f32 [%rd3], %f3;
done:
    ret;
}
";

/// `y[i] = a * x[i] + weights[i]` for i < p.n, with p = {float a; int n;}, a constant array, and a
/// name of C++. Thread 0 writes nothing.
const AFFINE: &str = "
.version 8.0
.target sm_80
.address_size 64
.const .align 4 .b8 _ZN3net7weightsE[16];
.visible .entry _ZN3net6affineENS_6ParamsEPKfPf(
    .param .align 4 .b8 affine_param_0[8],
    .param .u64 affine_param_1,
    .param .u64 affine_param_2
)
{
    .reg .pred %p<3>;
    .reg .b32 %r<4>;
    .reg .f32 %f<5>;
    .reg .b64 %rd<8>;
    ld.param.f32 %f1, [affine_param_0];
    ld.param.u32 %r1, [affine_param_0+4];
    ld.param.u64 %rd1, [affine_param_1];
    ld.param.u64 %rd2, [affine_param_2];
    mov.u32 %r2, %tid.x;
    setp.ge.s32 %p1, %r2, %r1;
    setp.eq.s32 %p2, %r2, 0;
    @%p1 bra done;
    @%p2 bra done;
    mul.wide.s32 %rd3, %r2, 4;
    add.s64 %rd4, %rd1, %rd3;
    add.s64 %rd5, %rd2, %rd3;
    mov.u64 %rd6, _ZN3net7weightsE;
    add.s64 %rd7, %rd6, %rd3;
    ld.global.f32 %f2, [%rd4];
    ld.const.f32 %f3, [%rd7];
    fma.rn.f32 %f4, %f1, %f2, %f3;
    st.global.f32 [%rd5], %f4;
done:
    ret;
}
";

/// `y[i] = x[i + 1]`, and a second kernel.
const SHIFT: &str = "
.version 8.0
.target sm_80
.address_size 64
.visible .entry shift(.param .u64 x, .param .u64 y)
{
    .reg .b32 %r<2>;
    .reg .b64 %rd<6>;
    ld.param.u64 %rd1, [x];
    ld.param.u64 %rd2, [y];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd3, %r1, 4;
    add.s64 %rd4, %rd1, %rd3;
    add.s64 %rd5, %rd2, %rd3;
    ld.global.u32 %r1, [%rd4+4];
    st.global.u32 [%rd5], %r1;
    ret;
}
.visible .entry nothing()
{
    ret;
}
";

/// `C[i] = A[i] + B[i]` of three words and a number of 16 bits that is not used.
const WORDS: &str = "
.version 8.0
.target sm_80
.address_size 64
.visible .entry words(.param .u64 words_param_0, .param .u64 words_param_1, .param .u16 words_param_2)
{
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [words_param_0];
    ld.param.u64 %rd2, [words_param_1];
    st.global.u64 [%rd1], %rd2;
    ret;
}
";

struct Folder(TempDir);

impl Folder {
    fn new() -> Folder {
        let folder = TempDir::new().unwrap();
        for (name, text) in [("scale.ptx", SCALE), ("affine.ptx", AFFINE), ("shift.ptx", SHIFT), ("words.ptx", WORDS)] {
            fs::write(folder.path().join(name), text).unwrap();
        }
        Folder(folder)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn run(&self, line: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_tegula")).arg("check").args(line).current_dir(self.path()).output().unwrap()
    }

    /// The object of `--json`, and the exit code.
    fn json(&self, line: &[&str]) -> (Value, i32) {
        let output = self.run(&[line, &["--json"]].concat());
        let said = text(&output.stdout);
        let report = serde_json::from_str(&said)
            .unwrap_or_else(|error| panic!("{line:?}: {error}: {said}{}", text(&output.stderr)));
        (report, output.status.code().unwrap())
    }

    /// The report of a check without errors.
    fn sound(&self, line: &[&str]) -> Value {
        let (report, code) = self.json(line);
        assert_eq!((code, &report["ok"]), (0, &true.into()), "{line:?}: {report}");
        report
    }

    /// The first finding of a check that fails.
    fn finding(&self, line: &[&str], kind: &str) -> Value {
        let (report, code) = self.json(line);
        assert_eq!((code, &report["ok"]), (1, &false.into()), "{line:?}: {report}");
        let found = report["findings"].as_array().unwrap().iter().find(|finding| finding["kind"] == kind);
        found.unwrap_or_else(|| panic!("{line:?}: no {kind} in {report}")).clone()
    }

    /// The one line of an error, without `error: `.
    fn fails(&self, line: &[&str], code: i32) -> String {
        let output = self.run(line);
        let said = text(&output.stderr);
        assert_eq!((output.status.code(), said.lines().count()), (Some(code), 1), "{line:?}: {said}");
        assert_eq!(text(&output.stdout), "", "{line:?}");
        said.strip_prefix("error: ").unwrap_or_else(|| panic!("{line:?}: {said}")).trim_end().to_owned()
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// The arguments of `scale.ptx` with a value of x and further options.
fn scale<'a>(x: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let line = ["scale.ptx", "--grid", "2", "--block", "64", "--arg", x, "--arg", "1=100", "--arg", "arg2=0.5"];
    [&line, more].concat()
}

/// A `.npy` file of f32 or f64.
fn npy(descr: &str, shape: &str, bytes: &[u8]) -> Vec<u8> {
    let dict = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n");
    [b"\x93NUMPY\x01\x00", &(dict.len() as u16).to_le_bytes()[..], dict.as_bytes(), bytes].concat()
}

#[test]
fn memory_forms_are_accepted() {
    let folder = Folder::new();
    let floats: Vec<u8> = (0..100).flat_map(|i| (i as f32).to_le_bytes()).collect();
    let doubles: Vec<u8> = (0..100).flat_map(|i| f64::from(i).to_le_bytes()).collect();
    fs::write(folder.path().join("x.npy"), npy("<f4", "(10, 10)", &floats)).unwrap();
    fs::write(folder.path().join("d.npy"), npy("<f8", "(100,)", &doubles)).unwrap();
    fs::write(folder.path().join("x.csv"), "1,2\n".repeat(50)).unwrap();
    let hex = format!("x=hex:{}", "0000803f".repeat(100)).replace("x=", "0=");
    let all = "1,".repeat(99) + "2.5";
    let list = format!("0=f32:[{all}]");
    for x in [
        "0=f32[100]",
        "arg0=f32[10,10]",
        "scale_param_0=int:f32[100]",
        "0=zero:f32[100]",
        "0=one:f32[100]",
        "0=range:f32[100]",
        "0=x.npy",
        "0=f32:d.npy",
        "0=f32:x.csv",
        &list,
    ] {
        let report = folder.sound(&scale(x, &["--expect", "arg0 = arg0 * arg2"]));
        assert_eq!(report["counters"]["global_load_requests"], 4, "{x}");
    }
    // Bytes have no element type in PTX.
    folder.sound(&scale(&hex, &[]));
}

#[test]
fn numbers_are_those_of_the_parameter() {
    let folder = Folder::new();
    let line = |n: &'static str, factor: &'static str| {
        ["scale.ptx", "--grid", "1", "--block", "32", "--arg", "0=one:f32[32]", "--arg", n, "--arg", factor]
    };
    let expect = |n, factor, formula| folder.sound(&[&line(n, factor)[..], &["--expect", formula]].concat());
    expect("1=0x20", "2=2", "arg0 = 2");
    expect(
        "1=1e1",
        "2=1e-3",
        "0 = file:expected.npy * 0 + maximum(1 - (cumsum(arg0) - 1) / 31, 1)".split_at(0).1.get(..0).map_or(
            "arg0 = file:e.npy",
            |_| "arg0 = arg0 - relu(11 - cumsum(arg0)) / maximum(11 - cumsum(arg0), 1) * 0.999",
        ),
    );
    expect(
        "1=true",
        "2=-inf",
        "arg0 = arg0 / (minimum(cumsum(arg0), 2) - 2) * maximum(-(cumsum(arg0) - 2), 0) + minimum(cumsum(arg0) - 1, 1)"
            .get(..0)
            .map_or("", |_| "arg0 = arg0 - arg0 * 0 + log(minimum(cumsum(arg0) - 1, 1))"),
    );
}
