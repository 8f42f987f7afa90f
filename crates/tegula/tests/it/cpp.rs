//! Kernels in CUDA C++, compiled for the CPU and run: the final memory equals the interpreter's,
//! bit for bit.
//!
//! Without a C++ compiler the test is skipped; `TEGULA_REQUIRE_CXX=1` makes that a failure. `CXX`
//! selects the compiler.

use std::env;
use std::path::Path;
use std::process::Command;

use tegula_ir::prelude::*;
use tegula_ir::{Site, check, cpp};
use tegula_kernels::plan::{OperandLayout, Recipe};
use tegula_kernels::{GemmVariant, Plain};

use crate::cpp_cases;
use crate::effort::full;

#[test]
#[ignore = "long; .ci/run runs it"]
fn cuda_cpp_kernels_compute_what_the_interpreter_computes() {
    let compiler = env::var_os("CXX").unwrap_or_else(|| "c++".into());
    if Command::new(&compiler).arg("--version").output().is_err() {
        let required = env::var("TEGULA_REQUIRE_CXX").is_ok_and(|required| required == "1");
        assert!(!required, "{}: not found; TEGULA_REQUIRE_CXX=1 requires a compiler", compiler.display());
        return eprintln!("skipped: {}: compiler not found", compiler.display());
    }
    let folder = tempfile::tempdir().expect("a folder");
    cpp_cases::write(folder.path(), &cpp_cases::small(full())).expect("the folder can be written");
    let options = "-std=c++20 -O1 -ffp-contract=off -Wno-unknown-pragmas -pthread -I host -x c++ driver.cu -o run";
    output(Command::new(&compiler).args(options.split(' ')), folder.path());
    output(&mut Command::new("./run"), folder.path());
}

/// Writes a self-contained folder that checks the kernels in CUDA C++ on a machine with a GPU and
/// nvcc. Run by `cargo xtask cuda FOLDER`.
#[test]
fn folder_for_nvcc_is_written() {
    let Some(folder) = env::var_os("TEGULA_CUDA_FOLDER") else {
        return println!("skipped: without TEGULA_CUDA_FOLDER, which `cargo xtask cuda FOLDER` sets");
    };
    cpp_cases::write(Path::new(&folder), &cpp_cases::large()).expect("the folder can be written");
}

/// Runs a command that must succeed.
fn output(command: &mut Command, folder: &Path) {
    let output = command.current_dir(folder).output().expect("it starts");
    let text = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    let failures: Vec<&str> = text.lines().filter(|line| !line.starts_with("same")).take(40).collect();
    assert!(output.status.success(), "{command:?}: {}\n{}", output.status, failures.join("\n"));
}

fn print(kernel: Kernel) -> cpp::Source {
    cpp::print(&check(kernel).expect("sound")).expect("printable")
}

fn preset(name: &str) -> cpp::Source {
    print(Plain::named(name).and_then(|plain| plain.build()).expect("a preset"))
}

/// The trimmed lines of a source whose site satisfies the predicate.
fn written_at(source: &cpp::Source, predicate: impl Fn(Site) -> bool) -> Vec<&str> {
    let lines = source.text.lines().zip(&source.lines);
    lines.filter(|(_, site)| site.is_some_and(&predicate)).map(|(line, _)| line.trim()).collect()
}

#[test]
fn every_cuda_cpp_line_has_its_site() {
    for name in ["naive", "K1", "K2", "K3", "K4", "K5", "K6"] {
        let source = preset(name);
        assert_eq!(source.text.lines().count(), source.lines.len());
        let body = source.text.lines().position(|line| line.ends_with(") {")).expect("a function") + 1;
        for (at, (line, site)) in source.text.lines().zip(&source.lines).enumerate() {
            let declares = at < body || line.is_empty() || line == "}" || line.contains("__shared__");
            assert_eq!(site.is_none(), declares, "{name}: {line}");
        }
    }
    let k6 = preset("K6");
    let barriers = written_at(&k6, |site| site.location.file().ends_with("tiled.rs") && site.iteration == 0);
    assert_eq!(barriers.iter().filter(|line| **line == "__syncthreads();").count(), 2);
    let stores = written_at(&k6, |site| site.location.file().ends_with("product.rs"));
    assert!(stores.iter().any(|line| line.starts_with("c[")), "{stores:?}");
}

/// K6 accumulates in the source line after the one that loads the operands.
#[test]
fn load_within_an_expression_has_its_site() {
    for (name, spelled) in [("K6", "sum = fmaf("), ("K1", "fmaf(a[")] {
        let source = preset(name);
        assert_eq!(source.reads.len(), source.lines.len());
        let at = source.text.lines().position(|line| line.trim().starts_with(spelled)).expect("a sum");
        let (added, read) = (source.lines[at].expect("a site").location.line(), &source.reads[at]);
        assert!(
            !read.is_empty() && read.iter().all(|location| location.line() + 1 == added),
            "{name}: {added}, {read:?}"
        );
    }
}

/// The loops printed for unrolled code, with the first lines of their bodies.
fn rolled(source: &cpp::Source) -> Vec<(&str, &str)> {
    let lines: Vec<&str> = source.text.lines().map(str::trim).collect();
    let at = lines.iter().enumerate().filter(|(_, line)| **line == "#pragma unroll").map(|(at, _)| at);
    at.map(|at| (lines[at + 1], lines[at + 2])).collect()
}

#[test]
fn unrolled_loops_are_printed_as_loops() {
    let k6 = preset("K6");
    let body = "sum = fmaf(tile_a[ty][p], tile_b[p][tx], sum);";
    assert_eq!(rolled(&k6), [("for (unsigned p = 0; p < 32; ++p) {", body)]);
    assert!(k6.text.contains("const unsigned row = block_row * 32 + ty;"), "{}", k6.text);
}

/// A kernel that stores the result of the closure for each number.
fn unrolled(name: &str, numbers: &[u32], each: impl for<'k> Fn(u32, Val<'k, u32>) -> Val<'k, u32>) -> Kernel {
    kernel(name, Block::d1(32), |k| {
        k.grid([k.constant(1), k.constant(1), k.constant(1)]);
        let (y, x) = (k.output::<u32>("y"), k.thread_x());
        for (at, &number) in numbers.iter().enumerate() {
            y.store((at as u32, x), each(number, x));
        }
    })
}

#[test]
fn only_affine_sequences_are_printed_as_loops() {
    let affine = print(unrolled("affine", &[5, 8, 11, 14], |i, x| x + i));
    let found = rolled(&affine);
    assert_eq!(found.len(), 1, "{}", affine.text);
    assert!(found[0].0.contains("p < 4") && found[0].1.contains("p * 3 + 5"), "{}", affine.text);
    // Squares are not affine, although any two neighbors are.
    let square = print(unrolled("square", &[1, 4, 9, 16], |i, x| x + i));
    assert_eq!(rolled(&square), []);
    assert!(["+ 1;", "+ 4;", "+ 9;", "+ 16;"].iter().all(|copy| square.text.contains(copy)), "{}", square.text);
    let falling = print(unrolled("falling", &[9, 7, 5, 3], |i, x| x + i));
    assert!(rolled(&falling)[0].1.contains("9u - p * 2"), "{}", falling.text);
}

#[test]
fn operations_without_cuda_cpp_form_are_errors_by_name() {
    let aligned = [OperandLayout::new(Order2d::RowMajor, true); 3];
    let blocks = Recipe::named("mma_64x64x32_warp32x32_thread16x8_stages3", Type::F16)
        .expect("there is one")
        .legalize(aligned)
        .kernel;
    let blocks = check(blocks.build().expect("it can be built")).expect("sound");
    let error = cpp::print(&blocks).expect_err("it has no plain form");
    assert!(matches!(error, tegula::Error::NotPrintable { .. }), "{error}");
    let shuffle = kernel("shuffled", Block::d1(32), |k| {
        k.grid([k.constant(1), k.constant(1), k.constant(1)]);
        let y = k.output::<u32>("y");
        y.store((0, k.thread_x()), k.shuffle(Shuffle::Xor, k.thread_x(), 1, FULL_WARP));
    });
    let error = cpp::print(&check(shuffle).expect("sound")).expect_err("it has no plain form").to_string();
    assert!(error.contains("kernel shuffled") && error.contains("shuffles"), "{error}");
}

/// A value read before another thread may change it is read at that point, not at its use.
#[test]
fn reads_stay_before_conflicting_writes() {
    let moved = kernel("moved", Block::d1(32), |k| {
        k.grid([k.constant(1), k.constant(1), k.constant(1)]);
        let (y, tile, x) = (k.output::<u32>("y"), k.shared::<u32>("tile", [32]), k.thread_x());
        tile.store((x,), x);
        k.barrier();
        let (other, count) = (tile.load((x ^ 1,)), k.var(7u32));
        let before = count.get();
        count.set(before + 1);
        k.barrier();
        tile.store((x,), 0u32);
        y.store((0, x), other + before);
        y.store((1, x), count.get());
    });
    let text = print(moved).text;
    let position = |part: &str| text.find(part).unwrap_or_else(|| panic!("{part}: {text}"));
    assert!(position("= tile[col ^ 1]") < position("tile[col] = 0"), "{text}");
    assert!(position("= value;") < position("value = index + 1;"), "{text}");
}
