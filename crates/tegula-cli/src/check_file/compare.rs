//! Runs PTX on a GPU and compares all results with those of the interpreter.

use tegula_ptx::ast::ScalarType;
use tegula_ptx::{AtomicSums, Buffer, Launch, Outcome};

use super::element::{self, Number};
use super::expect::{display, element_text, format as format_of, index};
use super::report::{Compared, ComparedBuffer, FileReport};
use super::source::Source;
use crate::failure::{Failure, Result};
use crate::progress::ProgressDisplay;
use crate::report::check::Finding;

/// Relative error of approximate results, and error relative to the largest result.
const RELATIVE: f64 = 1e-5;
const OF_LARGEST: f64 = 1e-6;

/// The buffers of a launch, and its outcome in the interpreter.
pub struct Interpreted<'a> {
    /// The buffers before the launch.
    pub before: Vec<Buffer>,
    /// After the run of the interpreter.
    pub after: &'a [Buffer],
    pub outcome: &'a Outcome,
}

/// Runs the launch on a GPU, and adds differences to the report. A kernel with errors is not run,
/// since it could access other memory or make the GPU's context unusable.
///
/// # Errors
/// If the kernel cannot be loaded or run.
pub fn on_gpu(
    ordinal: usize,
    source: &Source,
    launch: &Launch,
    interpreted: Interpreted<'_>,
    report: &mut FileReport,
    (json, progress): (bool, &ProgressDisplay),
) -> Result<()> {
    if !report.ok || !report.completed {
        progress.line(format!("not compared with cuda:{ordinal}: the kernel has errors"));
        return Ok(());
    }
    if json && !report.output.is_empty() {
        let why = "the driver prints the kernel's output on standard output; leave out --json, or the printf";
        return Err(Failure::new(format!("--compare: {why}")));
    }
    let Interpreted { before, after, outcome } = interpreted;
    let allowed = Allowed::of(outcome);
    let (name, changes, on_gpu) = run(ordinal, source, launch, &before)?;
    let each = after.iter().zip(&on_gpu).enumerate();
    let compared: Vec<ComparedBuffer> =
        each.map(|(number, (buffer, bytes))| compare((number, buffer), bytes, &allowed)).collect();
    let different = compared.iter().filter_map(|buffer| {
        let first = buffer.first.as_ref()?;
        let (count, elements, name) = (buffer.different, buffer.elements, &buffer.name);
        let message = format!("{count} of {elements} elements of {name} differ on cuda:{ordinal}: {first}");
        Some(Finding { name: Some(name.clone()), index: None, ..Finding::of_result("gpu-differs", [0, 0], message) })
    });
    report.add(different.collect());
    let (device, by) = (format!("cuda:{ordinal}"), allowed.name());
    report.compared = Some(Compared { device, name, by, changes, buffers: compared });
    Ok(())
}

/// The differences that are none of the kernel's.
struct Allowed<'a> {
    /// Instructions are approximate, or the order of more than atomic additions to buffers counts.
    approximate: bool,
    /// Sums by atomic operations, whose order is that of the threads.
    sums: &'a AtomicSums,
}

impl Allowed<'_> {
    fn of(outcome: &Outcome) -> Allowed<'_> {
        let (sums, approximate) = (&outcome.atomic_sums, outcome.approximate.is_some());
        let by_order = if sums.is_empty() { outcome.seed_dependent.is_some() } else { sums.elsewhere() };
        Allowed { approximate: approximate || by_order, sums }
    }

    fn name(&self) -> &'static str {
        match (self.approximate, self.sums.is_empty()) {
            (true, _) => "approximate",
            (false, false) => "atomic-order",
            (false, true) => "bits",
        }
    }

    /// The largest difference of two values of an element: a number of the buffer, an offset in
    /// bytes, and the largest number of the buffer.
    fn bound(&self, ty: ScalarType, at: (usize, u64), [a, b]: [f64; 2], largest: f64) -> f64 {
        // A rounding of a narrow type may go the other way.
        let relative = RELATIVE.max(2.0 * format_of(ty).0);
        match self.sums.get(at.0, at.1).filter(|sum| sum.ty == ty) {
            Some(sum) if self.approximate => sum.order_bound() + relative * sum.magnitude,
            Some(sum) => sum.order_bound(),
            // Numbers may be computed from sums.
            None if self.approximate || !self.sums.is_empty() => relative * a.abs().max(b.abs()) + OF_LARGEST * largest,
            None => 0.0,
        }
    }
}

/// Compares a buffer of the interpreter, by its number, with its bytes on the GPU.
fn compare((number, buffer): (usize, &Buffer), on_gpu: &[u8], allowed: &Allowed<'_>) -> ComparedBuffer {
    let (ty, size) = (buffer.ty, buffer.ty.size() as usize);
    let decode = |bytes: &[u8]| Number::decode(ty, bytes).to_f64();
    let finite = buffer.bytes.chunks_exact(size).map(|bytes| decode(bytes).abs()).filter(|x| x.is_finite());
    let exact = allowed.name() == "bits" || !ty.is_float();
    let largest = if exact { 0.0 } else { finite.fold(0.0, f64::max) };
    let near = |position: usize, one: &[u8], other: &[u8]| {
        let (a, b) = (decode(one), decode(other));
        let bound = || allowed.bound(ty, (number, (position * size) as u64), [a, b], largest);
        !exact && ((a - b).abs() <= bound() || a.is_nan() && b.is_nan())
    };
    let pairs = buffer.bytes.chunks_exact(size).zip(on_gpu.chunks_exact(size)).enumerate();
    let (mut within, mut different, mut first) = (0, 0, None);
    for (position, (one, other)) in pairs.filter(|(_, (one, other))| one != other) {
        if near(position, one, other) {
            within += 1;
            continue;
        }
        different += 1;
        first.get_or_insert_with(|| {
            let at = element_text(&buffer.name, &index(&buffer.shape, position));
            format!("{at} is {} on the GPU and {} in the interpreter", with_bits(ty, other), with_bits(ty, one))
        });
    }
    ComparedBuffer { name: buffer.name.clone(), elements: buffer.bytes.len() / size, within, different, first }
}

/// A number, with its bits if it is a float.
fn with_bits(ty: ScalarType, bytes: &[u8]) -> String {
    let number = display(ty, Number::decode(ty, bytes));
    if !element::of_memory(ty).is_float() {
        return number;
    }
    let bits: String = bytes.iter().rev().map(|byte| format!("{byte:02x}")).collect();
    format!("{number} (0x{bits})")
}

/// The name of the GPU, the changes of the PTX, and the bytes of all buffers after the launch.
type OnGpu = (String, Vec<String>, Vec<Vec<u8>>);

#[cfg(not(feature = "cuda"))]
fn run(_: usize, _: &Source, _: &Launch, _: &[Buffer]) -> Result<OnGpu> {
    Err(Failure::new("--compare: this program was built without CUDA; build it with the feature cuda"))
}

#[cfg(feature = "cuda")]
fn run(ordinal: usize, source: &Source, launch: &Launch, before: &[Buffer]) -> Result<OnGpu> {
    use tegula::cuda::{ForeignLaunch, ForeignParam, Gpu};
    use tegula_ir::ptx::Image;
    use tegula_ptx::Argument;

    let gpu = Gpu::open(ordinal)?;
    let (text, changes) = adapt(&source.ptx, gpu.info().driver);
    let param = |argument: &Argument| match argument {
        Argument::Buffer { index, offset } => ForeignParam::Buffer { index: *index, offset: *offset },
        Argument::Value(bytes) => ForeignParam::Bytes(bytes.clone()),
    };
    let foreign = ForeignLaunch {
        image: Image {
            entry: source.kernel.name().into(),
            text,
            shared_bytes: launch.shared,
            block: launch.block,
            uses_griddep_wait: false,
        },
        grid: launch.grid,
        params: launch.arguments.iter().map(param).collect(),
        variables: launch.variables.iter().map(|variable| (variable.name.clone(), variable.bytes.clone())).collect(),
    };
    let mut bytes: Vec<Vec<u8>> = before.iter().map(|buffer| buffer.bytes.clone()).collect();
    // SAFETY: the interpreter ran this launch to its end and found no access out of bounds.
    unsafe { gpu.run_foreign(&foreign, &mut bytes)? };
    Ok((gpu.info().name.clone(), changes, bytes))
}

/// Adapts PTX to a driver of a CUDA version, and describes the changes: a lower ISA version if the
/// driver does not support it, and explicit roundings, since the assembler can fuse `mul` and `add`
/// without them.
fn adapt(ptx: &str, driver: (u32, u32)) -> (String, Vec<String>) {
    let mut changes = Vec::new();
    let (text, rounded) = round_explicitly(ptx);
    if rounded > 0 {
        changes.push(format!(
            "{rounded} instructions add, sub and mul are rounded explicitly (.rn), so that none are fused"
        ));
    }
    let newest = isa_of(driver);
    let version = |line: &str| {
        let (major, minor) = line.trim_start().strip_prefix(".version")?.trim().split_once('.')?;
        Some((major.parse::<u32>().ok()?, minor.split(|c: char| !c.is_ascii_digit()).next()?.parse::<u32>().ok()?))
    };
    let line = text.lines().find(|line| version(line).is_some_and(|version| version > newest));
    let Some(line) = line.map(str::to_owned) else { return (text, changes) };
    let lowered = format!(".version {}.{}", newest.0, newest.1);
    let (major, minor) = driver;
    changes.push(format!(
        "{} is lowered to {}.{}, that of the driver, CUDA {major}.{minor}",
        line.trim(),
        newest.0,
        newest.1
    ));
    (text.replacen(&line, &lowered, 1), changes)
}

/// The PTX ISA version of a CUDA version.
///
/// Source: PTX ISA, "Release Notes".
fn isa_of((major, minor): (u32, u32)) -> (u32, u32) {
    const OF_12: [u32; 10] = [0, 1, 2, 3, 4, 5, 5, 6, 7, 8];
    match major {
        12 => (8, OF_12[minor.min(9) as usize]),
        13.. => (major - 4, minor),
        _ => (7, minor),
    }
}

/// Adds `.rn` to each floating-point `add`, `sub` and `mul` without a rounding; returns the PTX and
/// the number of changes.
fn round_explicitly(ptx: &str) -> (String, usize) {
    const FLOATS: [&str; 7] = ["f32", "f64", "f16", "bf16", "f32x2", "f16x2", "bf16x2"];
    let in_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | ':' | '$' | '%');
    let (mut out, mut count) = (String::with_capacity(ptx.len()), 0);
    let mut rest = ptx;
    while !rest.is_empty() {
        let end = rest.find(|c| !in_word(c)).unwrap_or(rest.len());
        let word = &rest[..end];
        let unrounded = ["add.", "sub.", "mul."].iter().find_map(|op| {
            let mut modifiers: Vec<&str> = word.strip_prefix(op)?.split('.').collect();
            let ty = modifiers.pop()?;
            (FLOATS.contains(&ty) && modifiers.iter().all(|modifier| matches!(*modifier, "ftz" | "sat"))).then_some(*op)
        });
        match unrounded {
            Some(op) => {
                count += 1;
                out += op;
                out += "rn.";
                out += &word[op.len()..];
            }
            None => out += word,
        }
        let next = rest[end..].find(in_word).map_or(rest.len(), |len| end + len);
        out += &rest[end..next];
        rest = &rest[next..];
    }
    (out, count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unrounded_arithmetic_is_rounded_explicitly() {
        let ptx = "\tadd.f32 %f1, %f2, %f3;\n@%p mul.ftz.f32 a, b, c;\nadd.rz.f64 d, d, d;\nadd.s32 x;\nred.global.add.f32 [a], b;\nsub.bf16x2 x;{mul.f64 a;}";
        let expected = "\tadd.rn.f32 %f1, %f2, %f3;\n@%p mul.rn.ftz.f32 a, b, c;\nadd.rz.f64 d, d, d;\nadd.s32 x;\nred.global.add.f32 [a], b;\nsub.rn.bf16x2 x;{mul.rn.f64 a;}";
        assert_eq!(round_explicitly(ptx), (expected.into(), 4));
        assert_eq!(round_explicitly(""), (String::new(), 0));
    }

    #[test]
    fn version_is_lowered_to_that_of_the_driver() {
        let (text, changes) = adapt("// é\n.version 9.3\n.target sm_80\n", (12, 8));
        assert_eq!(text, "// é\n.version 8.7\n.target sm_80\n");
        assert_eq!(changes, [".version 9.3 is lowered to 8.7, that of the driver, CUDA 12.8"]);
        assert_eq!(adapt(".version 8.0\n", (12, 0)), (".version 8.0\n".into(), Vec::new()));
        assert_eq!([(11, 8), (12, 6), (12, 9), (13, 0), (13, 1)].map(isa_of), [(7, 8), (8, 5), (8, 8), (9, 0), (9, 1)]);
    }

    #[test]
    fn buffers_are_compared_by_bits_or_values() {
        let sums = AtomicSums::default();
        let [exact, near] = [false, true].map(|approximate| Allowed { approximate, sums: &sums });
        let buffer = Buffer::f32("C", &[1.0, 2.0, 0.0, f32::NAN]);
        let bytes = |all: [f32; 4]| all.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>();
        let other = bytes([1.0, 2.000_001, -0.0, f32::NAN]);
        let by_bits = compare((0, &buffer), &other, &exact);
        assert_eq!((by_bits.elements, by_bits.within, by_bits.different), (4, 0, 2));
        assert_eq!(
            by_bits.first.unwrap(),
            "C[1] is 2.000001 (0x40000004) on the GPU and 2 (0x40000000) in the interpreter"
        );
        let by_value = compare((0, &buffer), &other, &near);
        assert_eq!((by_value.within, by_value.different), (2, 0));
        assert_eq!(compare((0, &buffer), &bytes([1.0, 2.001, 0.0, 0.0]), &near).different, 2);
    }

    #[test]
    fn atomic_sums_may_differ_by_their_order() {
        // Each of 32 threads adds x[i] to y[0]; y[1] is x[0].
        let ptx = "
            .version 8.0
            .target sm_80
            .address_size 64
            .visible .entry sum(.param .u64 x, .param .u64 y)
            {
                .reg .b32 %r<2>;
                .reg .f32 %f<3>;
                .reg .b64 %rd<5>;
                ld.param.u64 %rd1, [x];
                ld.param.u64 %rd2, [y];
                mov.u32 %r1, %tid.x;
                mul.wide.u32 %rd3, %r1, 4;
                add.s64 %rd4, %rd1, %rd3;
                ld.global.f32 %f1, [%rd4];
                red.global.add.f32 [%rd2], %f1;
                ret;
            }";
        let module = tegula_ptx::Module::parse(ptx).unwrap();
        let values: Vec<f32> = (0..32).map(|i| if i % 2 == 0 { 1e3 + i as f32 / 7.0 } else { -1e3 }).collect();
        let mut buffers = [Buffer::f32("x", &values), Buffer::f32("y", &[0.0, 5.0])];
        let arguments = (0..2).map(tegula_ptx::Argument::buffer).collect();
        let launch = Launch::new([1, 1, 1], [32, 1, 1], arguments);
        let kernel = module.kernel("sum").unwrap();
        let outcome = kernel.check(&launch, &mut buffers, &Default::default(), 4).unwrap();
        let allowed = Allowed::of(&outcome);
        assert_eq!(allowed.name(), "atomic-order");
        let y = buffers[1].to_f32().unwrap();
        let different = |sum: f32, rest: f32| {
            let bytes: Vec<u8> = [sum, rest].iter().flat_map(|x| x.to_le_bytes()).collect();
            let compared = compare((1, &buffers[1]), &bytes, &allowed);
            (compared.within, compared.different)
        };
        // The sum of the magnitudes is 32,000: the bound is 2 · 32 · 2⁻²⁴ · 32,000 = 0.12.
        assert_eq!(different(y[0] + 0.1, 5.0), (1, 0));
        assert_eq!(different(y[0] + 0.2, 5.0), (0, 1));
        assert_eq!(different(y[0], 5.01), (0, 1));
    }
}
