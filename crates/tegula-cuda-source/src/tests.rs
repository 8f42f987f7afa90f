//! Whole programs, as tutorials have them, and what goes wrong with programs.

use std::path::Path;

use super::*;
use crate::scalar_type::ScalarType::{Bf16, F16, F32, F64, S32, U8};

macro_rules! programs {
    ($($name:literal)*) => {
        &[$(($name, include_str!(concat!("programs/", $name, ".cu")))),*]
    };
}

const PROGRAMS: &[(&str, &str)] = programs! {
    "async_copy" "classes" "conditionals" "constant_memory" "cooperative" "device_only" "histogram" "macros"
    "matmul_tiled" "namespaces" "reduce_shuffle" "scan" "softmax" "templates" "thrust_host" "vector_add" "wmma"
};

fn program(name: &str) -> &'static str {
    PROGRAMS.iter().find(|(known, _)| *known == name).map_or("", |(_, text)| text)
}

fn options(kernel: &str) -> CompileOptions {
    CompileOptions { kernel: Some(kernel.to_owned()), ..CompileOptions::default() }
}

fn read(name: &str) -> Vec<KernelSource> {
    kernels(Path::new("a.cu"), program(name), &CompileOptions::default()).unwrap()
}

/// Grid, block and shared memory, `?` for what is not known.
fn configuration(launch: &ProposedLaunch) -> String {
    let axes = |axes: Option<[u32; 3]>| axes.map_or("?".to_owned(), |[x, y, z]| format!("{x},{y},{z}"));
    let shared = launch.shared.map_or("?".to_owned(), |bytes| bytes.to_string());
    format!("{} {} {shared}", axes(launch.grid), axes(launch.block))
}

#[test]
fn kernels_of_programs_have_names_lines_and_launches() {
    let found: Vec<String> = PROGRAMS
        .iter()
        .flat_map(|(program, _)| read(program).into_iter().map(move |kernel| (program, kernel)))
        .map(|(program, kernel)| {
            let launches: Vec<String> = kernel.launches.iter().map(configuration).collect();
            format!("{program}:{} {} [{}]", kernel.line, kernel.name, launches.join("; "))
        })
        .collect();
    let expected = [
        "async_copy:13 copy_async [1,1,1 64,1,1 0]",
        "async_copy:26 to_bf16 [32,1,1 128,1,1 0]",
        "classes:42 fold<Mode::sum, Add> [1,1,1 64,1,1 0]",
        "classes:42 fold<Mode::largest, Largest> [1,1,1 64,1,1 0]",
        "conditionals:49 transpose [128,128,1 32,32,1 0]",
        "conditionals:64 modern [1,1,1 64,1,1 0]",
        "constant_memory:19 stencil [8,1,1 128,1,1 0]",
        "cooperative:21 sum_kernel [256,1,1 256,1,1 1024; 256,1,1 256,1,1 1024]",
        "cooperative:32 halves [1,1,1 32,1,1 0]",
        "device_only:6 saxpy []",
        "histogram:12 histogram [80,1,1 128,1,1 0]",
        "macros:20 add_float [40,1,1 256,1,1 0]",
        "macros:21 mul_int [? 256,1,1 0]",
        "macros:26 vectorized [25,1,1 100,1,1 0]",
        "matmul_tiled:26 matmul [16,32,1 16,16,1 0]",
        "namespaces:7 vision::blur [20,60,1 32,8,1 0]",
        "namespaces:20 vision::v2::invert<unsigned char> [1200,1,1 256,1,1 0]",
        "namespaces:44 a::b::plain_name [1,1,1 1,1,1 0]",
        "namespaces:44 a::b::hidden [1,1,1 1,1,1 0]",
        "namespaces:47 put [1,1,1 32,1,1 0]",
        "namespaces:48 put []",
        "reduce_shuffle:32 reduce [1024,1,1 256,1,1 0]",
        "scan:18 add_sums [5,1,1 1024,1,1 0]",
        "scan:45 scan_block [5,1,1 1024,1,1 0; 5,1,1 1024,1,1 0]",
        "softmax:7 softmax [? 256,1,1 1024]",
        "softmax:35 angles []",
        "templates:6 tiled<16, float> [256,1,1 16,1,1 0]",
        "templates:6 tiled<64, float> [64,1,1 64,1,1 0]",
        "templates:6 tiled<32, double> [128,1,1 32,1,1 0]",
        "templates:16 reduce<512, true> [4,1,1 512,1,1 2048]",
        "templates:16 reduce<256, false> [8,1,1 256,1,1 2048]",
        "templates:31 scale<float> [16,1,1 256,1,1 0]",
        "templates:31 scale<double> [16,1,1 256,1,1 0]",
        "templates:38 fill<int, 16> [1,1,1 16,1,1 0]",
        "templates:38 fill<int, 64> [1,1,1 64,1,1 0]",
        "templates:38 fill<int> [1,1,1 4,1,1 0]",
        "thrust_host:13 apply<Square> [4,1,1 250,1,1 0]",
        "vector_add:7 vectorAdd [196,1,1 256,1,1 0]",
        "wmma:10 wmma_example [1,1,1 128,4,1 0]",
    ];
    for (found, expected) in found.iter().zip(expected) {
        assert_eq!(found, expected);
    }
    assert_eq!(found.len(), expected.len());
}

#[test]
fn kernels_params_follow_types_and_template_arguments() {
    use ParamType::{Pointer, Scalar, Unknown};
    let types = |name: &str, kernel: &str| -> Vec<ParamType> {
        let kernels = read(name);
        choose(Path::new("a.cu"), &kernels, Some(kernel)).unwrap().params.iter().map(|param| param.ty).collect()
    };
    assert_eq!(types("templates", "scale<double>"), [Pointer(Some(F64)), Scalar(F64), Scalar(S32)]);
    assert_eq!(types("templates", "tiled<8 * 2, float>"), [Pointer(Some(F32)), Pointer(Some(F32)), Scalar(S32)]);
    assert_eq!(types("wmma", "wmma_example")[..2], [Pointer(Some(F16)); 2]);
    assert_eq!(types("async_copy", "to_bf16")[1..2], [Pointer(Some(Bf16))]);
    assert_eq!(types("async_copy", "to_bf16")[3..], [Scalar(U8)]);
    assert_eq!(types("macros", "vectorized"), [Pointer(Some(F32)); 2]);
    let fold = types("classes", "fold<Mode::sum,Add>");
    assert_eq!(fold, [Pointer(None), Pointer(Some(F32)), Scalar(S32), Unknown, Unknown, Scalar(S32)]);
}

#[test]
fn kernels_launch_arguments_have_their_values() {
    let kernels = read("matmul_tiled");
    let launch = &kernels[0].launches[0];
    let arguments: Vec<_> = launch.arguments.iter().map(|a| (a.text.as_str(), a.value)).collect();
    assert_eq!((launch.line, launch.text.as_str()), (85, "<<<grid, block>>>"));
    assert_eq!(arguments[2..], [("dC", None), ("M", Some(512.0)), ("N", Some(256.0)), ("K", Some(128.0))]);
    // Macros stay as they are written.
    assert_eq!(read("conditionals")[0].launches[0].text, "<<<dim3(N / 32, N / 32), dim3(32, 32)>>>");
}

#[test]
fn kernels_defines_select_code_and_constants() {
    let options = CompileOptions { defines: vec!["N=64".to_owned()], ..CompileOptions::default() };
    let kernels = kernels(Path::new("a.cu"), program("conditionals"), &options).unwrap();
    assert_eq!(configuration(&kernels[0].launches[0]), "2,2,1 32,32,1 0");
    let old = CompileOptions { arch: "sm_52".to_owned(), ..options };
    let kernels = super::kernels(Path::new("a.cu"), program("conditionals"), &old).unwrap();
    assert_eq!(kernels[1].name, "old");
}

#[test]
fn kernels_in_own_headers_have_their_file() {
    let folder = std::env::temp_dir().join(format!("tegula-cuda-test-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(
        folder.join("k.cuh"),
        "#pragma once\n#include <vector>\n__global__ void k(int* p) { *p = 1; }\nvoid h() {}",
    )
    .unwrap();
    let text = "#include \"k.cuh\"\nint main() { k<<<2, 3>>>(0); }";
    let path = folder.join("main.cu");
    let found = kernels(&path, text, &CompileOptions::default()).unwrap();
    assert_eq!((found[0].file.clone(), found[0].line, found[0].launches[0].line), (folder.join("k.cuh"), 3, 2));
    if let Some(compiled) = with_nvrtc(|| compile(&path, text, &CompileOptions::default())) {
        assert!(compiled.unwrap().ptx.contains("k.cuh"));
    }
    std::fs::remove_dir_all(folder).unwrap();
}

fn error(text: &str, options: &CompileOptions) -> String {
    kernels(Path::new("a.cu"), text, options).unwrap_err().to_string()
}

#[test]
fn kernels_unknown_name_suggests_the_nearest() {
    let text = error(program("namespaces"), &options("vision::blurr"));
    assert!(text.starts_with("unknown kernel \"vision::blurr\" (did you mean vision::blur?); a.cu has "), "{text}");
    assert!(text.contains("a::b::plain_name"), "{text}");
    assert!(!error(program("vector_add"), &options("transpose")).contains("did you mean"));
}

#[test]
fn kernels_template_without_arguments_asks_for_an_instance() {
    assert_eq!(
        error(program("templates"), &options("tiled")),
        "tiled is a template<int BLOCK, typename T>; name an instance, such as --kernel 'tiled<16, float>'"
    );
    let alone = "template <typename T, int N> __global__ void k(T* p) { p[0] = N; }";
    assert!(error(alone, &options("k")).ends_with("such as --kernel 'k<float, 16>'"));
    assert_eq!(
        error(alone, &options("k<float, 1, 2>")),
        "k<float, 1, 2>: too many arguments; k is a template<typename T, int N>"
    );
    let requested = kernels(Path::new("a.cu"), alone, &options("k<double, 4 * 4>")).unwrap();
    assert_eq!(requested[0].name, "k<double, 16>");
    // The only instance needs no arguments.
    assert_eq!(kernels(Path::new("a.cu"), program("namespaces"), &options("invert")).unwrap().len(), 6);
}

#[test]
fn kernels_without_any_is_an_error() {
    assert_eq!(error("int main() {}", &CompileOptions::default()), "a.cu: no kernel found; mark one with __global__");
}

/// Reads a text and takes its host code out.
fn survive(text: &str) {
    let options = CompileOptions::default();
    let source = source::Source::read(Path::new("a.cu"), text, &options, &source::Target::default());
    let _ = source.list(None, &mut |_, _| None);
    let blanked = blank::blank(&source.program, &source.declarations, &[]);
    assert_eq!(blanked.texts[0].len(), text.len());
}

#[test]
fn read_of_any_text_does_not_panic() {
    let mut state = 1u64;
    let mut random = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    let parts = [
        "<",
        ">",
        "(",
        ")",
        "{",
        "}",
        "k<",
        "template<",
        "#if ",
        "\n#endif\n",
        "dim3 a(",
        "::",
        "\\\n",
        "<<<",
        "\"",
        "é",
        "~",
    ];
    for (_, text) in PROGRAMS {
        let places: Vec<usize> = text.char_indices().map(|(at, _)| at).collect();
        for _ in 0..CASES {
            let (from, to) = (places[random(places.len())], places[random(places.len())]);
            let (from, to) = (from.min(to), from.max(to));
            survive(&format!("{}{}{}", &text[..from], parts[random(parts.len())], &text[to..]));
            survive(&format!("{}{}{}", &text[..to], parts[random(parts.len())], &text[from..]));
        }
    }
    for part in parts {
        survive(&part.repeat(3000));
        survive(&format!("__global__ void k() {{}} int main() {{ {} }}", part.repeat(3000)));
    }
}

/// Changed texts of each program.
const CASES: usize = 12;

#[test]
fn choose_takes_names_instances_and_symbols() {
    let kernels = read("namespaces");
    let line = |name: &str| choose(Path::new("a.cu"), &kernels, Some(name)).map(|kernel| kernel.line);
    assert_eq!(line("blur"), Ok(7));
    assert_eq!(line("v2::invert<unsigned char>"), Ok(20));
    assert_eq!(line("invert"), Ok(20));
    assert!(matches!(line("put"), Err(CompileError::Ambiguous { .. })));
    assert!(matches!(line("lur"), Err(CompileError::UnknownKernel { .. })));
    assert!(matches!(choose(Path::new("a.cu"), &kernels, None), Err(CompileError::Ambiguous { .. })));
}

/// Runs a test that needs NVRTC; `None` if it is not there.
fn with_nvrtc<T>(test: impl FnOnce() -> T) -> Option<T> {
    match find::compiler() {
        Ok(find::Compiler::Nvrtc(_)) => Some(test()),
        _ if std::env::var_os("TEGULA_REQUIRE_NVRTC").is_some_and(|value| value == "1") => {
            panic!("TEGULA_REQUIRE_NVRTC=1, but NVRTC was not found")
        }
        _ => {
            eprintln!("skipped: NVRTC not found");
            None
        }
    }
}

/// Lines of the program that have instructions in a kernel's PTX.
fn lines(ptx: &str, symbol: &str) -> Vec<u32> {
    let (_, body) = ptx.split_once(&format!(".entry {symbol}(")).unwrap_or(("", ""));
    let body = body.split("\n}").next().unwrap_or("");
    let locations = body.lines().filter_map(|line| line.trim().strip_prefix(".loc"));
    locations.filter_map(|loc| loc.split_whitespace().nth(1)?.parse().ok()).collect()
}

#[test]
fn compile_programs_with_host_code_as_they_are() {
    with_nvrtc(|| {
        for (name, text) in PROGRAMS {
            let path = format!("dir/{name}.cu");
            let compiled = compile(Path::new(&path), text, &CompileOptions::default());
            let compiled = compiled.unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(compiled.kernels.len(), read(name).len(), "{name}");
            for kernel in &compiled.kernels {
                let symbol = kernel.symbol.as_deref().unwrap_or_else(|| panic!("{name}: {}", kernel.name));
                let lines = lines(&compiled.ptx, symbol);
                let own = kernel.line..=kernel.last_line;
                assert!(lines.iter().any(|line| own.contains(line)), "{name}: {symbol} {own:?} {lines:?}");
            }
            let mut symbols: Vec<_> = compiled.kernels.iter().map(|kernel| kernel.symbol.clone()).collect();
            symbols.sort();
            symbols.dedup();
            assert_eq!(symbols.len(), compiled.kernels.len(), "{name}: each kernel has its own symbol");
            let missing = "dir/histogram.cu: warning: header \"common/missing_helper.h\" (line 6) not found; the include is ignored\n";
            assert_eq!(compiled.log, if *name == "histogram" { missing } else { "" }, "{name}");
            assert!(compiled.ptx.contains(&format!("dir/{name}.cu\"")), "{name}: its file");
        }
    });
}

fn compile_error(text: &str, options: &CompileOptions) -> Option<String> {
    with_nvrtc(|| compile(Path::new("dir/a.cu"), text, options).map(|c| c.ptx).unwrap_err().to_string())
}

#[test]
fn compile_errors_have_their_lines_and_columns() {
    let text = "#include <vector>\nint main() { std::vector<int> v; }\n\n__global__ void k(int* p)\n{\n    *p = undefined;\n}\n";
    let Some(error) = compile_error(text, &CompileOptions::default()) else { return };
    assert!(
        error.starts_with(
            "dir/a.cu(6): error: identifier \"undefined\" is undefined\n      *p = undefined;\n           ^\n"
        ),
        "{error}"
    );
}

#[test]
fn compile_host_names_in_kernels_are_explained() {
    let text = "int size = 3;\nint helper(int x) { return x; }\n__global__ void k(int* p) { *p = helper(size); }";
    let Some(error) = compile_error(text, &CompileOptions::default()) else { return };
    assert!(error.contains("note: helper (line 2) is a host function; mark it __device__"), "{error}");
    assert!(error.contains("note: size (line 1) is a host variable; declare it constexpr or __constant__"), "{error}");
}

#[test]
fn compile_missing_headers_name_their_package() {
    let text = "#include <curand_kernel.h>\n__global__ void k(int* p) { *p = 1; }";
    let Some(compiled) = with_nvrtc(|| compile(Path::new("dir/a.cu"), text, &CompileOptions::default())) else {
        return;
    };
    // Some installations have it.
    if let Err(error) = compiled {
        let text = error.to_string();
        assert!(
            text.starts_with("dir/a.cu:1: header curand_kernel.h not found; run `pip install nvidia-curand"),
            "{text}"
        );
    }
    let own = "#include \"own.h\"\n__global__ void k(int* p) { *p = OWN; }";
    let error = compile_error(own, &CompileOptions::default()).unwrap_or_default();
    assert!(error.ends_with("note: header \"own.h\" (line 1) not found; give its folder with -I"), "{error}");
}

#[test]
fn compile_instances_of_templates_on_request() {
    let text = "namespace n { template <int N, typename T> __global__ void k(T* p) { p[threadIdx.x] = N; } }";
    let compiled = with_nvrtc(|| compile(Path::new("a.cu"), text, &options("k<1 << 4, double>")));
    let Some(compiled) = compiled.map(Result::unwrap) else { return };
    let kernel = &compiled.kernels[0];
    assert_eq!((kernel.name.as_str(), kernel.symbol.as_deref()), ("n::k<16, double>", Some("_ZN1n1kILi16EdEEvPT0_")));
    assert_eq!(demangle("_ZN1n1kILi16EdEEvPT0_").as_deref(), Some("n::k<16, double>"));
    assert_eq!(choose(Path::new("a.cu"), &compiled.kernels, Some("_ZN1n1kILi16EdEEvPT0_")), Ok(kernel));
    let error = compile_error(text, &options("k<16, Missing>")).unwrap_or_default();
    assert_eq!(error, "n::k<16, Missing>: identifier \"Missing\" is undefined; n::k is a template<int N, typename T>");
}

#[test]
fn compile_overloads_have_the_symbols_of_their_lines() {
    let text = "__global__ void put(float* p) { *p = 1; }\n__global__ void put(double* p)\n{\n    *p = 2;\n}\n";
    let Some(compiled) = with_nvrtc(|| compile(Path::new("a.cu"), text, &CompileOptions::default()).unwrap()) else {
        return;
    };
    let symbols: Vec<_> = compiled.kernels.iter().map(|kernel| kernel.symbol.as_deref()).collect();
    assert_eq!(symbols, [Some("_Z3putPf"), Some("_Z3putPd")]);
}

#[test]
fn compile_options_reach_the_compiler() {
    let text = "#if __CUDA_ARCH__ != 900\n#error arch\n#endif\n#if __cplusplus != 202002L\n#error standard\n#endif\n\
                #include <cassert>\n__global__ void k(int* p) { assert(*p); *p = VALUE; }";
    let options = CompileOptions {
        defines: vec!["VALUE=7".to_owned(), "NDEBUG".to_owned()],
        arch: "sm_90".to_owned(),
        standard: Some("c++20".to_owned()),
        ..CompileOptions::default()
    };
    let Some(compiled) = with_nvrtc(|| compile(Path::new("a.cu"), text, &options).unwrap()) else { return };
    assert!(compiled.ptx.contains(".target sm_90") && !compiled.ptx.contains("__assertfail"));
    let unknown = CompileOptions { arch: "sm_1".to_owned(), ..CompileOptions::default() };
    let error = compile_error(text, &unknown).unwrap_or_default();
    assert!(error.starts_with("sm_1: NVRTC ") && error.contains("sm_80"), "{error}");
}

#[test]
fn compile_standard_names_work_in_kernels() {
    let text = "#include <limits>\n#include <type_traits>\n#include <array>\n#include <cstdint>\n\
                template <typename T, std::enable_if_t<std::is_floating_point_v<T>, int> = 0>\n\
                __device__ T top(T a) { return std::max(a, std::numeric_limits<T>::lowest()); }\n\
                __global__ void k(float* p, std::int64_t n) {\n  std::array<int, 3> a{1, 2, 3};\n\
                p[n] = top(p[0]) + a[n] + std::abs(p[1]) + INFINITY + FLT_MAX + INT_MAX + std::numeric_limits<int>::digits;\n}";
    if let Some(compiled) = with_nvrtc(|| compile(Path::new("a.cu"), text, &CompileOptions::default())) {
        assert_eq!(compiled.unwrap().log, "");
    }
}

/// A program that writes fixed PTX to the file after `-o`, in place of a compiler.
#[cfg(unix)]
fn fake_compiler(folder: &Path, script: &str) -> PathBuf {
    use std::os::unix::fs::PermissionsExt;
    std::fs::create_dir_all(folder).unwrap();
    let path = folder.join("nvcc");
    std::fs::write(
        &path,
        format!("#!/bin/sh\nwhile [ $# -gt 2 ]; do [ \"$1\" = -o ] && out=$2; shift; done\nin=$2\n{script}\n"),
    )
    .unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

#[cfg(unix)]
#[test]
fn compile_with_nvcc_finds_symbols_in_its_ptx() {
    let folder = std::env::temp_dir().join(format!("tegula-nvcc-test-{}", std::process::id()));
    // It fails unless it gets the text with its lines and the requested instance.
    let script = "grep -q '^#line 1 \"a.cu\"' $in && grep -q '&k<16>;' $in || exit 1\n\
                  printf '.visible .entry plain(\\n.entry _Z1kILi16ELb1EEvv(\\n.loc 1 2 3\\n' > $out; echo warned >&2";
    let path = fake_compiler(&folder, script);
    let text = "extern \"C\" __global__ void plain() {}\ntemplate <int N, bool b = true> __global__ void k() {}";
    let compiler = find::Compiler::Nvcc(path, "12.4".to_owned());
    let compiled = driver::compile(&compiler, Path::new("a.cu"), text, &options("k<16>")).unwrap();
    let symbols: Vec<_> = compiled.kernels.iter().map(|kernel| kernel.symbol.as_deref()).collect();
    assert_eq!(symbols, [Some("plain"), Some("_Z1kILi16ELb1EEvv")]);
    assert_eq!((compiled.compiler.as_str(), compiled.log.as_str()), ("nvcc 12.4", "warned\n"));

    let path = fake_compiler(&folder, "echo 'a.cu:3:10: fatal error: own.h: No such file or directory' >&2; exit 1");
    let compiler = find::Compiler::Nvcc(path, "12.4".to_owned());
    let error = driver::compile(&compiler, Path::new("a.cu"), text, &CompileOptions::default()).unwrap_err();
    assert_eq!(error.to_string(), "a.cu:3: header own.h not found; give its folder with -I");
    std::fs::remove_dir_all(folder).unwrap();
}
