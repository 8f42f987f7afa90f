//! `tegula check` on `.ptx` and `.cu` files: arguments, formulas, outputs, costs, and one-line
//! errors.

use std::fs;
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

/// Stores its last three parameters: 64, 32 and 16 bits of any type.
const STORE: &str = "
.version 8.0
.target sm_80
.address_size 64
.visible .entry store(.param .u64 to, .param .u64 a, .param .b32 b, .param .u16 c)
{
    .reg .b16 %rs<2>;
    .reg .b32 %r<2>;
    .reg .b64 %rd<3>;
    ld.param.u64 %rd1, [to];
    ld.param.u64 %rd2, [a];
    ld.param.u32 %r1, [b];
    ld.param.u16 %rs1, [c];
    st.global.u64 [%rd1], %rd2;
    st.global.u32 [%rd1+8], %r1;
    st.global.u16 [%rd1+12], %rs1;
    ret;
}
";

/// The PTX of `columns.cu`, with source lines: uncoalesced loads and bank conflicts.
const COLUMNS: &str = "
.version 8.0
.target sm_80
.address_size 64
.visible .entry columns(.param .u64 columns_param_0, .param .u64 columns_param_1)
{
    .reg .b32 %r<4>;
    .reg .f32 %f<3>;
    .reg .b64 %rd<7>;
    .shared .align 4 .b8 s[4096];
    .loc 1 9 5
    ld.param.u64 %rd1, [columns_param_0];
    ld.param.u64 %rd2, [columns_param_1];
    mov.u32 %r1, %tid.x;
    .loc 1 11 5
    mul.wide.u32 %rd3, %r1, 32;
    add.s64 %rd4, %rd1, %rd3;
    ld.global.f32 %f1, [%rd4];
    shl.b32 %r2, %r1, 7;
    mov.u32 %r3, s;
    add.u32 %r3, %r3, %r2;
    st.shared.f32 [%r3], %f1;
    .loc 1 12 5
    ld.shared.f32 %f2, [%r3];
    mul.wide.u32 %rd5, %r1, 4;
    add.s64 %rd6, %rd2, %rd5;
    st.global.f32 [%rd6], %f2;
    ret;
}
.file 1 \"columns.cu\"
";

const COLUMNS_SOURCE: &str = "// Copies a column.
//
//
//
//
//
//
//
__global__ void columns(const float* x, float* y) {
    __shared__ float s[1024];
    s[32 * threadIdx.x] = x[8 * threadIdx.x];
    y[threadIdx.x] = s[32 * threadIdx.x];
}
";

const COLUMNS_REPORT: &str = "\
columns, grid 1, block 32 (columns.ptx): 3 errors
  error: out-of-bounds: thread 31 of block 0 reads 4 bytes out of bounds: arg0[248], 0 bytes past the end of arg0, which has 248 elements (line 11)
    columns.cu:11 |     s[32 * threadIdx.x] = x[8 * threadIdx.x];
  error: unwritten: 8 of 40 elements of arg1 are never written: arg1[32], arg1[33], arg1[34], …
  error: wrong-result: 30 of 40 elements of arg1 are wrong: arg1[1] is 8 and should be 0; arg1[2] is 16 and should be 0; arg1[3] is 24 and should be 0, …
         global   sectors    shared  wavefronts       bank        thread
 line  requests  /request  requests    /request  conflicts  instructions
columns.cu
    7                                                                    | //
    8                                                                    | //
    9                                                                 96 | __global__ void columns(const float* x, float* y) {
   10                                                                    |     __shared__ float s[1024];
   11         1      31.0         1        32.0         31           192 |     s[32 * threadIdx.x] = x[8 * threadIdx.x];
   12         1       4.0         1        32.0         31           128 |     y[threadIdx.x] = s[32 * threadIdx.x];
   13                                                                    | }
total         2      17.5         2        32.0         62           416
improve first:
  1. line 11: 32.0 wavefronts per request, at best 1.0, which saves 31 of 32 (96 %): pad the rows of the array by an element, or let adjacent lanes access adjacent elements
       s[32 * threadIdx.x] = x[8 * threadIdx.x];
  2. line 12: 32.0 wavefronts per request, at best 1.0, which saves 31 of 32 (96 %): pad the rows of the array by an element, or let adjacent lanes access adjacent elements
       y[threadIdx.x] = s[32 * threadIdx.x];
  3. line 11: 31.0 sectors per request, at best 4.0, which saves 27 of 31 (87 %): let adjacent lanes access adjacent elements
       s[32 * threadIdx.x] = x[8 * threadIdx.x];
";

/// Never ends.
const LOOP: &str = "
.version 8.0
.target sm_80
.address_size 64
.visible .entry loop()
{
    .reg .b32 %r<2>;
    mov.u32 %r1, 0;
again:
    add.s32 %r1, %r1, 1;
    bra again;
}
";

/// Calls itself for ever.
const RECURSION: &str = "
.version 8.0
.target sm_80
.address_size 64
.func deeper()
{
    call deeper;
    ret;
}
.visible .entry recursion()
{
    call deeper;
    ret;
}
";

/// CUDA C++ with its host program.
const PROGRAM: &str = r#"#include <cstdio>

__constant__ float bias[2];

template <typename T>
__global__ void add(const T* a, const T* b, T* c, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        c[i] = a[i] + b[i] + bias[i % 2];
    }
    if (i == 3) printf("i is %d\n", i);
}

__global__ void shift(float* x) {
    x[threadIdx.x] = x[threadIdx.x + 1];
}

int main() {
    add<float><<<4, 32>>>(nullptr, nullptr, nullptr, 100);
    return cudaDeviceSynchronize() != cudaSuccess;
}
"#;

struct Folder(TempDir);

impl Folder {
    fn new() -> Folder {
        let folder = TempDir::new().unwrap();
        let files = [
            ("scale.ptx", SCALE),
            ("affine.ptx", AFFINE),
            ("shift.ptx", SHIFT),
            ("store.ptx", STORE),
            ("loop.ptx", LOOP),
            ("recursion.ptx", RECURSION),
            ("add.cu", PROGRAM),
        ];
        for (name, text) in files {
            fs::write(folder.path().join(name), text).unwrap();
        }
        Folder(folder)
    }

    fn put(&self, name: &str, bytes: impl AsRef<[u8]>) {
        fs::write(self.0.path().join(name), bytes).unwrap();
    }

    /// The last bytes of a file that the program wrote.
    fn last<const N: usize>(&self, name: &str) -> [u8; N] {
        let bytes = fs::read(self.0.path().join(name)).unwrap();
        *bytes.last_chunk().unwrap()
    }

    fn run(&self, line: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_tegula")).arg("check").args(line).current_dir(self.0.path()).output().unwrap()
    }

    /// The object of `--json`, and the exit code.
    fn json(&self, line: &[&str]) -> (Value, i32) {
        let output = self.run(&[line, &["--json"]].concat());
        let said = text(&output.stdout);
        let complained = text(&output.stderr);
        let report =
            serde_json::from_str(&said).unwrap_or_else(|error| panic!("{line:?}: {error}: {said}{complained}"));
        (report, output.status.code().unwrap())
    }

    /// The report of a check without errors.
    fn sound(&self, line: &[&str]) -> Value {
        let (report, code) = self.json(line);
        assert_eq!((code, &report["ok"]), (0, &true.into()), "{line:?}: {report}");
        report
    }

    /// The first finding of a kind, of a check that fails.
    fn finding(&self, line: &[&str], kind: &str) -> Value {
        let (report, code) = self.json(line);
        assert_eq!((code, &report["ok"]), (1, &false.into()), "{line:?}: {report}");
        let found = report["findings"].as_array().unwrap().iter().find(|finding| finding["kind"] == kind);
        found.unwrap_or_else(|| panic!("{line:?}: no {kind} in {report}")).clone()
    }

    /// The one line of an error.
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

/// A line of words without spaces in them.
fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

/// A line of words, and more arguments.
fn with<'a>(line: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&words(line), more].concat()
}

const SCALE_LINE: &str = "scale.ptx --grid 2 --block 64 --arg 1=100 --arg arg2=0.5";

fn npy(descr: &str, shape: &str, bytes: &[u8]) -> Vec<u8> {
    let dict = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n");
    [b"\x93NUMPY\x01\x00", &(dict.len() as u16).to_le_bytes()[..], dict.as_bytes(), bytes].concat()
}

fn floats(all: &[f32]) -> Vec<u8> {
    all.iter().flat_map(|x| x.to_le_bytes()).collect()
}

#[test]
fn memory_forms_are_accepted() {
    let folder = Folder::new();
    let numbers: Vec<f32> = (0..100).map(|i| i as f32).collect();
    folder.put("x.npy", npy("<f4", "(10, 10)", &floats(&numbers)));
    folder.put("d.npy", npy("<f8", "(100,)", &(0..100).flat_map(|i| f64::from(i).to_le_bytes()).collect::<Vec<u8>>()));
    folder.put("x.csv", "1,2\n".repeat(50));
    let list = format!("0=f32:[{}2.5]", "1,".repeat(99));
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
        let report = folder.sound(&with(SCALE_LINE, &["--arg", x, "--expect", "arg0 = arg0 * arg2"]));
        assert_eq!(
            (&report["kernel"], &report["counters"]["global_load_requests"]),
            (&"scale".into(), &4.into()),
            "{x}"
        );
    }
    // Bytes have no element type in PTX.
    let hex = format!("0=hex:{}", "0000803f".repeat(100));
    folder.sound(&with(SCALE_LINE, &["--arg", &hex]));
}

#[test]
fn uninitialized_memory_must_not_be_read() {
    let folder = Folder::new();
    let found = folder.finding(&with(SCALE_LINE, &["--arg", "0=out:f32[100]"]), "uninitialised");
    assert_eq!(
        (&found["space"], &found["name"], &found["index"]),
        (&"global".into(), &"arg0".into(), &serde_json::json!([0]))
    );
    assert_eq!(found["block"], serde_json::json!([0, 0, 0]));
}

#[test]
fn access_out_of_bounds_names_the_element() {
    let folder = Folder::new();
    let found = folder.finding(&with(SCALE_LINE, &["--arg", "0=f32[99]"]), "out-of-bounds");
    assert!(found["message"].as_str().unwrap().contains("arg0[99]"), "{found}");
    // Without .loc lines are those of the PTX.
    assert_eq!(found["source"][0], ":26", "{found}");
}

#[test]
fn numbers_have_the_bits_of_their_type() {
    let folder = Folder::new();
    let stored = |a: &str, b: &str, c: &str| {
        let values = [format!("a={a}"), format!("b={b}"), format!("c={c}")];
        let [a, b, c] = values.each_ref().map(String::as_str);
        folder.sound(&with(
            "store.ptx --grid 1 --block 1 --arg to=zero:u8[14] -o to=out.npy --arg",
            &[a, "--arg", b, "--arg", c],
        ));
        folder.last::<14>("out.npy")
    };
    let expected = |a: u64, b: u32, c: u16| [&a.to_le_bytes()[..], &b.to_le_bytes(), &c.to_le_bytes()].concat();
    assert_eq!(stored("0x10", "2.5", "65535")[..], expected(16, 2.5f32.to_bits(), 65535));
    assert_eq!(stored("-1", "-2", "-1")[..], expected(u64::MAX, (-2i32) as u32, 65535));
    assert_eq!(stored("f64:2", "f32:2", "true")[..], expected(2f64.to_bits(), 2f32.to_bits(), 1));
    assert_eq!(stored("1e3", "4294967295", "f16:1")[..], expected(1000, u32::MAX, 0x3c00));
    assert_eq!(stored("hex:0807060504030201", "hex:01000000", "0b11")[..], expected(0x0102_0304_0506_0708, 1, 3));
}

#[test]
fn structures_and_variables_are_set() {
    let folder = Folder::new();
    let line = "affine.ptx --kernel affine --grid 1 --block 4 --arg 1=f32:[1,2,3,4] --arg 2=zero:f32[4]";
    let formula = ["--expect", "2 = (2.5 * arg1 + weights) * file:mask.csv"];
    folder.put("mask.csv", "0,1,1,0\n");
    for structure in ["0=[2.5,3]", "0={\"n\": 2.5, \"a\": 3}", "0=hex:0000204003000000", "0=[\"f32:2.5\",\"u32:3\"]"] {
        for variable in ["weights=f32:[10,20,30,40]", "weights=range:f32[4]", "_ZN3net7weightsE=f32[2]"] {
            let name = variable.split_once('=').unwrap().0;
            for option in ["--set", "--arg"] {
                let more = ["--arg", structure, option, variable];
                // Two elements leave the others at zero.
                let compare = if variable.ends_with("[2]") || name != "weights" { &[][..] } else { &formula };
                folder.sound(&with(line, &[&more[..], compare].concat()));
            }
        }
    }
    let report = folder.sound(&with(line, &["--arg", "0=[2.5,3]", "--arg", "weights=one:f32[4]"]));
    assert_eq!(report["kernel"], "affine");
}

#[test]
fn aliased_memory_races() {
    let folder = Folder::new();
    let line = "shift.ptx --kernel shift --grid 1 --block 64 --arg";
    folder.sound(&with(line, &["x=i32[65]", "--arg", "y=out:i32[64]"]));
    let race = folder.finding(&with(line, &["x=i32[65]", "--arg", "y=@x"]), "race");
    assert_eq!((race["source"].as_array().unwrap().len(), race["threads"].as_array().unwrap().len()), (2, 2), "{race}");
    assert_eq!((&race["name"], &race["space"]), (&"x".into(), &"global".into()));
}

#[test]
fn wrong_and_unwritten_results_are_found() {
    let folder = Folder::new();
    let line = "affine.ptx --grid 1 --block 4 --arg 0=[1,4] --arg 1=f32:[1,2,3,4] --arg";
    let unwritten = folder.finding(&with(line, &["2=out:f32[2,2]", "--expect", "2 = arg1"]), "unwritten");
    assert_eq!(unwritten["message"], "1 of 4 elements of arg2 are never written: arg2[0][0]");
    assert_eq!((&unwritten["name"], &unwritten["index"]), (&"arg2".into(), &serde_json::json!([0, 0])));
    let wrong = folder.finding(&with(line, &["2=zero:f32[4]", "--expect", "2 = 2 * arg1"]), "wrong-result");
    let expected = "4 of 4 elements of arg2 are wrong: arg2[0] is 0 and should be 2; arg2[1] is 2 and should be 4; \
                    arg2[2] is 3 and should be 6, …";
    assert_eq!(wrong["message"], expected);
    folder.sound(&with(line, &["2=one:f32[4]", "--expect", "2 = 1.001 * arg1", "--tolerance", "1e-3"]));
}

#[test]
fn output_is_written_with_shape_and_type() {
    let folder = Folder::new();
    let line = with(SCALE_LINE, &["--arg", "0=one:f32[20,5]", "-o", "arg0=c.npy", "--output", "0=c.csv"]);
    folder.sound(&line);
    let npy = fs::read(folder.0.path().join("c.npy")).unwrap();
    assert!(String::from_utf8_lossy(&npy).contains("'<f4', 'fortran_order': False, 'shape': (20, 5)"));
    assert_eq!(folder.last::<4>("c.npy"), 0.5f32.to_le_bytes());
    assert_eq!(fs::read_to_string(folder.0.path().join("c.csv")).unwrap().lines().next(), Some("0.5,0.5,0.5,0.5,0.5"));
}

#[test]
fn endless_kernel_stops_at_the_limit() {
    let folder = Folder::new();
    for option in ["--steps", "--step-limit"] {
        let found = folder.finding(&["loop.ptx", "--grid", "1", "--block", "32", option, "1000"], "no-progress");
        assert_eq!(found["severity"], "error");
        let message = "thread 0 of block 0 still runs after 1000 instructions of its warp, the limit; \
            raise it with `--steps` (`Config::steps`) if the kernel ends (line 11 of the PTX)";
        assert_eq!(found["message"], message);
    }
    // Many endless warps, and many seeds, take little more time than one warp.
    for launch in ["--grid 1 --block 1024", "--grid 1000 --block 32"] {
        let (report, _) = folder.json(&words(&format!("loop.ptx {launch} --steps 400000 --seeds 1000")));
        let executed = report["thread_instructions"].as_u64().unwrap();
        assert!((12_000_000..96_000_000).contains(&executed), "{launch}: {executed}");
    }
}

#[test]
fn recursion_stops_at_the_stack_limit() {
    let found = Folder::new().finding(&words("recursion.ptx --grid 2 --block 64"), "stack-overflow");
    let message = "thread 0 of block 0 calls deeper at depth 1024; \
        the stack is limited to 1024 calls and 524288 bytes (line 7 of the PTX)";
    assert_eq!((&found["severity"], &found["message"]), (&"error".into(), &message.into()));
}

#[test]
fn missing_compiler_is_one_line() {
    let folder = Folder::new();
    let run = |set: &[(&str, &str)]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tegula"));
        let command = command.args(["check", "add.cu"]).current_dir(folder.0.path()).env_clear();
        command.env("PATH", "").envs(set.iter().copied()).output().unwrap()
    };
    let wrong = run(&[("TEGULA_NVRTC", "/none/libnvrtc.so")]);
    let said = text(&wrong.stderr);
    assert_eq!((wrong.status.code(), said.lines().count()), (Some(1), 1), "{said}");
    assert!(said.starts_with("error: TEGULA_NVRTC=/none/libnvrtc.so: "), "{said}");
    // A machine can have a compiler at a usual place.
    let none = run(&[]);
    let said = text(&none.stderr);
    let expected = "error: no CUDA compiler found; run `pip install nvidia-cuda-nvrtc";
    if said.contains("no CUDA compiler") {
        assert!(none.status.code() == Some(1) && said.lines().count() == 1 && said.starts_with(expected), "{said}");
    }
}

#[test]
fn seeds_are_counted() {
    let folder = Folder::new();
    assert_eq!(folder.sound(&with(SCALE_LINE, &["--arg", "0=f32[100]", "--seeds", "5"]))["seeds"], 5);
}

#[test]
fn errors_are_one_line() {
    let folder = Folder::new();
    folder.put("broken.ptx", ".version 8.0\n.target sm_80\n.visible .entry k( {\n");
    folder.put("new.ptx", SCALE.replace("mul.f32 %f3", "frobnicate.f32 %f3"));
    folder.put("binary.ptx", b"\x7fELF\0\0");
    folder.put("empty", ".version 8.0\n.target sm_80\n.address_size 64\n");
    folder.put("d.npy", npy("<f8", "(1,)", &[0; 8]));
    let x = ["--arg", "x=i32[9]"];
    let shift = "shift.ptx --kernel shift --grid 1 --block 8";
    let affine = "affine.ptx --grid 1 --block 4 --arg 1=f32[4] --arg 2=f32[4] --arg";
    let scale = "scale.ptx --grid 1 --block 4 --arg 0=f32[4] --arg 1=4 --arg 2=2";
    for (line, expected) in [
        (vec!["none.cu"], "none.cu: file not found"),
        (vec!["binary.ptx"], "binary.ptx: is a binary file; give CUDA C++ or PTX"),
        (vec!["empty"], "empty: no kernel; one is declared with __global__, or .entry in PTX"),
        (vec!["shift.ptx"], "shift.ptx: 2 kernels: shift, nothing; choose one with --kernel"),
        (
            words("shift.ptx --kernel shfit"),
            "shift.ptx: no kernel 'shfit' (did you mean shift?); its kernels are shift, nothing",
        ),
        (words("scale.ptx --block 4"), "scale: scale.ptx has no launch of it; add --grid 4,4, with your numbers"),
        (
            words("scale.ptx"),
            "scale: scale.ptx has no launch of it; add --grid 4,4 and --block 16,16, with your numbers",
        ),
        (
            with(shift, &x),
            "shift: no value of y; add --arg y=VALUE; it takes x: pointer or 64 bits, y: pointer or 64 bits",
        ),
        (
            words(shift),
            "shift: no value of x, y; add --arg x=VALUE; it takes x: pointer or 64 bits, y: pointer or 64 bits",
        ),
        (
            with(shift, &["--arg", "yy=1"]),
            "shift: no parameter 'yy' (did you mean y?); it takes x: pointer or 64 bits, y: pointer or 64 bits",
        ),
        (
            with(scale, &["--arg", "3=1"]),
            "scale: no parameter 3; it has 3, counted from 0; it takes arg0: pointer, arg1: 32-bit integer, arg2: f32",
        ),
        (with(shift, &["--arg", "x=[9]"]), "shift: no value of y"),
        (
            with(shift, &["--arg", "y=1", "--arg", "x=[9]"]),
            "--arg x=[9]: give the element type of x, such as f32[100,70]",
        ),
        (
            with(shift, &["--arg", "y=@z", "--arg", "x=i32[9]"]),
            "--arg y=@z: no argument 'z' with memory; arguments with memory are x",
        ),
        (
            with(shift, &["--arg", "y=1.5", "--arg", "x=i32[9]"]),
            "--arg y=1.5: not a whole number; a float needs a type, such as f32:0.5",
        ),
        (
            with(shift, &["--arg", "y=foo", "--arg", "x=i32[9]"]),
            "--arg y=foo: neither a number, nor an array such as f32[100,70], nor a file",
        ),
        (with(shift, &["--arg", "y=a.npy", "--arg", "x=i32[9]"]), "a.npy: file not found"),
        (
            with(shift, &["--arg", "y=f32[99999999,99999999]", "--arg", "x=i32[9]"]),
            "--arg y=f32[99999999,99999999]: needs",
        ),
        (
            words("scale.ptx --grid 1 --block 4 --arg 0=2 --arg 1=4 --arg 2=2"),
            "--arg arg0=2: arg0 is a pointer; give its memory",
        ),
        (
            words("scale.ptx --grid 1 --block 4 --arg 0=0 --arg 1=f32[4] --arg 2=2"),
            "--arg arg1=f32[4]: arg1 is 32-bit integer; give a number",
        ),
        (
            words("scale.ptx --grid 1 --block 4 --arg 0=0 --arg 1=5000000000 --arg 2=2"),
            "--arg arg1=5000000000: not a value of 32 bits, whose range is -2147483648 to 4294967295",
        ),
        (words("scale.ptx --grid 1 --block 4 --arg 0=0 --arg 1=0.5 --arg 2=2"), "--arg arg1=0.5: not a whole number"),
        (
            words("scale.ptx --grid 1 --block 4 --arg 0=0 --arg 1=f64:1 --arg 2=2"),
            "--arg arg1=f64:1: 8 bytes; arg1 has 4",
        ),
        (
            with(affine, &["0=1"]),
            "--arg arg0=1: arg0 is a structure of 8 bytes; give its fields, such as [1,2.5], or its bytes",
        ),
        (
            with(affine, &["0=[1,2,3]"]),
            "--arg arg0=[1,2,3]: these fields have 12 bytes, the structure has 8; give a field its type",
        ),
        (with(affine, &["0=hex:00"]), "--arg arg0=hex:00: 1 bytes; arg0 has 8"),
        (
            with(affine, &["0=[1,2]", "--set", "weight=f32[4]"]),
            "affine: no variable 'weight' (did you mean weights?); its variables are weights",
        ),
        (with(affine, &["0=[1,2]", "--set", "weights=f32[5]"]), "--set weights=f32[5]: 20 bytes; weights has 16"),
        (
            with(affine, &["0=[1,2]", "--set", "weights=[1,2]"]),
            "--set weights=[1,2]: weights has 16 bytes; give the type of its elements",
        ),
        (
            with(affine, &["0=[1,2]", "--set", "weights=f32:1"]),
            "--set weights=f32:1: weights has 16 bytes, 4 elements of f32; give a list",
        ),
        (
            with(scale, &["-o", "arg1=c.npy"]),
            "-o arg1=c.npy: no argument 'arg1' with memory; arguments with memory are arg0",
        ),
        (with(scale, &["-o", "0=none/c.npy"]), "none/c.npy: cannot be written"),
        (with(scale, &["--expect", "0 = B"]), "--expect '0 = B': no argument 'B'; arguments are arg0, arg1, arg2"),
        (with(scale, &["--expect", "0 = file:none.npy"]), "--expect '0 = file:none.npy': none.npy: file not found"),
        (with(scale, &["--expect", "0 = arg0 @ f"]), "--expect '0 = arg0 @ f': no argument 'f'"),
        (with(scale, &["--expect", "0 = file:d.npy @ arg0"]), "the inner extents, 1 and 4, differ"),
        (
            words("scale.ptx --grid 1,70000 --block 4 --arg 0=0 --arg 1=0 --arg 2=0"),
            "a grid of [1, 70000, 1] blocks; the limits are",
        ),
        (
            words("scale.ptx --grid 1 --block 32,33 --arg 0=0 --arg 1=0 --arg 2=0"),
            "has 1056 threads; the limit is 1024",
        ),
        (
            words("scale.ptx --grid 1 --block 32 --shared 999999 --arg 0=0 --arg 1=0 --arg 2=0"),
            "999999 bytes of shared memory; the limit is 232448",
        ),
        (words("broken.ptx --grid 1 --block 1"), "broken.ptx: line 3, column"),
        (
            words("new.ptx --grid 1 --block 1"),
            "new.ptx: line 27: `frobnicate.f32 %f3, %f2, %f1`: this instruction is not supported",
        ),
    ] {
        let said = folder.fails(&line, 1);
        assert!(said.contains(expected), "{line:?}: {said}\nexpected: {expected}");
    }
}

#[test]
fn usage_errors_have_exit_code_2() {
    let folder = Folder::new();
    for (line, expected) in [
        (words("scale.ptx --grid 0"), "give one to three whole numbers of at least 1"),
        (words("scale.ptx --block 1,2,3,4"), "give one to three whole numbers of at least 1"),
        (words("scale.ptx --arg x"), "give NAME=VALUE"),
        (words("scale.ptx --arg x=f31[2]"), "unknown element type 'f31'; use one of f64, f32, f16"),
        (words("scale.ptx --arg x=out:3"), "give an array after 'out:'"),
        (words("scale.ptx --grid 1 --block 1 --arg 0=0 --arg arg0=0"), "--arg arg0 is given twice"),
        (words("scale.ptx -o C=-"), "-o C=-: the report is on standard output; give C a file"),
        (words("scale.ptx -o C"), "give NAME=FILE"),
        (with("scale.ptx --expect", &["C = A @"]), "a name, a number or '(' is expected at the end"),
        (words("scale.ptx --tolerance 1"), "--expect"),
        (words("scale.ptx --compare cpu"), "give a GPU, such as cuda:0"),
        (words("scale.ptx --arch sm_90"), "--arch applies to CUDA C++, and scale.ptx is PTX; leave it out"),
        (words("scale.ptx --tile 8"), "--tile applies to Tegula's kernels, not to a file; leave it out"),
        (words("K6 --grid 1"), "--grid applies to a .cu or .ptx file, not to K6"),
        (words("exercise-1 --arg x=1"), "--arg applies to a .cu or .ptx file, not to exercise-1"),
    ] {
        let said = folder.fails(&line, 2);
        assert!(said.contains(expected), "{line:?}: {said}");
    }
}

#[test]
fn report_shows_lines_and_what_to_improve() {
    let folder = Folder::new();
    folder.put("columns.ptx", COLUMNS);
    folder.put("columns.cu", COLUMNS_SOURCE);
    let line = words("columns.ptx --grid 1 --block 32 --arg 0=range:f32[8,31] --arg 1=out:f32[40]");
    let output = folder.run(&[&line[..], &["--expect", "1 = 0"]].concat());
    assert_eq!(text(&output.stdout), COLUMNS_REPORT);
    assert_eq!(text(&output.stderr), "error: kernel columns: 3 errors\n");
}

#[test]
fn json_has_documented_names() {
    let folder = Folder::new();
    folder.put("columns.ptx", COLUMNS);
    let report = folder.sound(&words("columns.ptx --grid 1 --block 32 --arg 0=f32[256] --arg 1=out:f32[32] --seeds 2"));
    for (key, expected) in [
        ("file", "\"columns.ptx\""),
        ("kernel", "\"columns\""),
        ("grid", "[1,1,1]"),
        ("block", "[32,1,1]"),
        ("shared", "0"),
        ("launch_line", "null"),
        ("seeds", "2"),
        ("findings", "[]"),
        ("completed", "true"),
        ("compiler", "null"),
        ("approximate", "null"),
        ("seed_dependent", "null"),
        ("output", "\"\""),
        ("compared", "null"),
    ] {
        assert_eq!(report[key].to_string(), expected, "{key}: {report}");
    }
    assert!(report["thread_instructions"].as_u64().unwrap() > 32 * 10);
    let line = report["lines"].as_array().unwrap().iter().find(|line| line["line"] == 11).unwrap();
    assert_eq!((&line["file"], &line["inlined_at"]), (&"columns.cu".into(), &Value::Null));
    assert_eq!((&line["global_load_sectors"], &line["shared_store_wavefronts"]), (&32.into(), &32.into()));
    assert_eq!(report["counters"]["shared_bank_conflicts"], 62);
    let improvement = &report["improvements"][0];
    assert_eq!(
        (&improvement["what"], &improvement["saved"], &improvement["of"]),
        (&"wavefronts".into(), &31.into(), &32.into())
    );
}

/// Whether a compiler of CUDA C++ is found.
fn compiles(folder: &Folder) -> bool {
    let output = folder.run(&words("add.cu --kernel shift --grid 1 --block 1 --arg x=f32[2]"));
    let found = !text(&output.stderr).contains("no CUDA compiler found");
    if !found {
        let required = std::env::var("TEGULA_REQUIRE_NVRTC").is_ok_and(|required| required == "1");
        assert!(!required, "{}", text(&output.stderr));
        eprintln!("skipped: no NVRTC, nvcc or clang here to compile CUDA C++");
    }
    found
}

#[test]
fn program_is_compiled_and_checked() {
    let folder = Folder::new();
    if !compiles(&folder) {
        return;
    }
    // Grid, block and the instance are those of the launch in the program.
    let line = words(
        "add.cu --kernel add<float> --arg a=[100] --arg b=f32[100] --arg c=out:[100] --arg n=100 --set bias=f32:[1,2]",
    );
    folder.put("bias.csv", "1,2,".repeat(49) + "1,2\n");
    let report = folder.sound(&[&line[..], &["--expect", "c = a + b + file:bias.csv"]].concat());
    assert_eq!((report["kernel"].as_str(), report["grid"].to_string().as_str()), (Some("add<float>"), "[4,1,1]"));
    assert_eq!((&report["launch_line"], report["compiler"].is_string()), (&19.into(), true));
    assert!(report["output"].as_str().unwrap().ends_with("i is 3\n"), "{report}");
    let line = report["lines"].as_array().unwrap().iter().find(|line| line["line"] == 9).unwrap();
    assert_eq!((&line["file"], &line["global_store_requests"]), (&"add.cu".into(), &4.into()));
}

#[test]
fn race_in_a_program_has_source_lines() {
    let folder = Folder::new();
    if !compiles(&folder) {
        return;
    }
    let line = words("add.cu --kernel shift --grid 1 --block 64 --arg x=f32[65]");
    let race = folder.finding(&line, "race");
    assert_eq!(race["source"], serde_json::json!(["add.cu:15", "add.cu:15"]));
    let output = folder.run(&line);
    let said = text(&output.stdout);
    assert!(
        said.contains("(line 15)") && said.contains("    add.cu:15 |     x[threadIdx.x] = x[threadIdx.x + 1];"),
        "{said}"
    );
}

#[test]
fn errors_of_programs_are_clear() {
    let folder = Folder::new();
    if !compiles(&folder) {
        return;
    }
    folder.put("wrong.cu", "__global__ void k(float* x) { x[0] = y; }\n");
    let shift = "add.cu --kernel shift --grid 1 --block 64 --arg";
    for (line, expected) in [
        (with(shift, &["x=i32[65]"]), "--arg x=i32[65]: elements of i32; the kernel declares x as f32*"),
        (with(shift, &["x=3"]), "--arg x=3: x is a pointer; give its memory"),
        (words("add.cu --kernel shift --arg x=f32[65]"), "shift: add.cu has no launch of it"),
        (words("add.cu --kernel shitf"), "shift"),
        (words("add.cu"), "--kernel"),
    ] {
        let said = folder.fails(&line, 1);
        assert!(said.contains(expected), "{line:?}: {said}");
    }
    let output = folder.run(&words("wrong.cu --grid 1 --block 1 --arg x=f32[1]"));
    let said = text(&output.stderr);
    assert!(output.status.code() == Some(1) && said.contains("identifier \"y\" is undefined"), "{said}");
    assert!(said.ends_with("error: wrong.cu: the compiler found errors\n"), "{said}");
}
