//! Litmus tests: small kernels in PTX, and what the checker must report for each.
//!
//! A comment such as `// W` names the line of an instruction. Each kernel runs with several seeds.

use std::collections::BTreeSet;

use tegula_core::diagnostic::{FindingKind, Severity};
use tegula_ptx::ast::ScalarType;
use tegula_ptx::{Argument, Buffer, Config, Launch, Module, Outcome};

const SEEDS: u64 = 16;

/// What precedes the body of each kernel: its registers, and shared memory that is zero.
const PROLOGUE: &str = "
.version 8.0
.target sm_80
.address_size 64
.visible .entry kernel(.param .u64 p_data, .param .u64 p_flags)
{
.reg .pred %p, %q;
.reg .b32 %t, %c, %lane, %a, %b, %v, %x, %one;
.reg .b64 %data, %flags, %addr, %wide, %state;
.shared .align 16 .b8 s[64];
.shared .align 8 .b64 mbarrier;
ld.param.u64 %data, [p_data];
ld.param.u64 %flags, [p_flags];
mov.u32 %t, %tid.x;
mov.u32 %c, %ctaid.x;
mov.u32 %lane, %laneid;
mov.u32 %one, 1;
setp.ge.u32 %p, %t, 16;
@%p bra INITIALIZED;
shl.b32 %a, %t, 2;
mov.u32 %b, s;
add.u32 %a, %a, %b;
mov.u32 %x, 0;
st.shared.u32 [%a], %x;
INITIALIZED:
bar.sync 0;
";

/// A pair of named lines that a diagnostic names, or one line and an empty name.
type Expected = (FindingKind, &'static str, &'static str);

fn race(one: &'static str, other: &'static str) -> Expected {
    (FindingKind::Race, one, other)
}

/// Runs a kernel with a seed; returns the outcome, the data buffer, and the name of each line.
fn run([blocks, threads]: [u32; 2], body: &str, seed: u64) -> (Outcome, Vec<u32>, Vec<String>) {
    let text = format!("{PROLOGUE}{body}\nret;\n}}\n");
    let module = Module::parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let kernel = module.kernel("kernel").unwrap_or_else(|error| panic!("{error}\n{text}"));
    let zeros = |name: &str| Buffer::new(name, ScalarType::U32, [64], vec![0; 256]);
    let mut buffers = [zeros("data"), zeros("flags")];
    let launch = Launch::new([blocks, 1, 1], [threads, 1, 1], vec![Argument::buffer(0), Argument::buffer(1)]);
    let config = Config { seed, counters: false, parallel: false, steps: 1 << 18, ..Config::default() };
    let outcome = kernel.run(&launch, &mut buffers, &config).expect("a launch");
    let data =
        buffers[0].bytes.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().expect("a word"))).collect();
    let names = text.lines().map(|line| line.split_once("// ").map_or("", |(_, name)| name).to_string()).collect();
    (outcome, data, names)
}

/// Holds a kernel to exactly these errors, over all seeds; each seed has one if there are any.
fn check(name: &str, launch: [u32; 2], body: &str, expected: &[Expected]) {
    check_words(name, launch, body, expected, &[]);
}

/// The same, and to the first words of the data buffer.
fn check_words(name: &str, launch: [u32; 2], body: &str, expected: &[Expected], words: &[u32]) {
    let sorted =
        |one: &str, other: &str| if one < other { (one.into(), other.into()) } else { (other.into(), one.into()) };
    let expected: BTreeSet<(FindingKind, (String, String))> =
        expected.iter().map(|&(kind, one, other)| (kind, sorted(one, other))).collect();
    let mut all = BTreeSet::new();
    for seed in 0..SEEDS {
        let (outcome, data, names) = run(launch, body, seed);
        let errors: Vec<_> = outcome.diagnostics.iter().filter(|found| found.severity() == Severity::Error).collect();
        for error in &errors {
            let of = |at: usize| error.lines.get(at).map_or("", |line| &names[line.line as usize - 1]);
            let found = (error.kind, sorted(of(0), of(1)));
            assert!(expected.contains(&found), "{name}, seed {seed}: {error}");
            all.insert(found);
        }
        assert_eq!(errors.is_empty(), expected.is_empty(), "{name}, seed {seed}: {:#?}", outcome.diagnostics);
        assert_eq!(&data[..words.len()], words, "{name}, seed {seed}");
    }
    assert_eq!(all, expected, "{name}");
}

/// Holds a kernel to no error, and to the first words of the data buffer.
fn computes(name: &str, launch: [u32; 2], body: &str, words: &[u32]) {
    check_words(name, launch, body, &[], words);
}

/// Message passing from thread 0 of block 0 to thread 0 of the last block.
///
/// `publish` follows the write of `data[0]`, `acquire` precedes its read; the flag is `flags[0]`.
fn message(publish: &str, acquire: &str) -> String {
    format!(
        "
        setp.ne.u32 %p, %t, 0;
        @%p bra DONE;
        setp.ne.u32 %p, %c, 0;
        @%p bra READ;
        st.global.u32 [%data], 7; // W
        {publish}
        bra DONE;
        READ:
        {acquire}
        ld.global.u32 %v, [%data]; // R
        st.global.u32 [%data+4], %v;
        DONE:"
    )
}

/// A loop that waits for `flags[0]`, with a load.
fn spin(load: &str) -> String {
    format!("SPIN: {load}.global.u32 %x, [%flags]; // L\nsetp.eq.u32 %q, %x, 0;\n@%q bra SPIN;")
}

#[test]
fn message_with_release_and_acquire_is_ordered() {
    let flag = "st.release.gpu.global.u32 [%flags], 1;";
    computes("release", [2, 32], &message(flag, &spin("ld.acquire.gpu")), &[7, 7]);
    let flag = "red.release.sys.global.add.u32 [%flags], 1;";
    computes("reduction", [2, 32], &message(flag, &spin("ld.acquire.sys")), &[7, 7]);
    let flag = "atom.acq_rel.gpu.global.exch.b32 %x, [%flags], 1;";
    computes("exchange", [2, 32], &message(flag, &spin("ld.acquire.gpu")), &[7, 7]);
}

#[test]
fn message_with_a_relaxed_half_races() {
    let (release, relaxed) = ("st.release.gpu.global.u32 [%flags], 1;", "st.relaxed.gpu.global.u32 [%flags], 1;");
    check("relaxed store", [2, 32], &message(relaxed, &spin("ld.acquire.gpu")), &[race("W", "R")]);
    check("relaxed load", [2, 32], &message(release, &spin("ld.relaxed.gpu")), &[race("W", "R")]);
    check(
        "volatile",
        [2, 32],
        &message("st.volatile.global.u32 [%flags], 1;", &spin("ld.volatile")),
        &[race("W", "R")],
    );
}

#[test]
fn message_with_fences_is_ordered() {
    for fence in ["fence.acq_rel.gpu;", "fence.sc.sys;", "membar.gl;", "membar.sys;"] {
        let publish = format!("{fence} st.volatile.global.u32 [%flags], 1;");
        let acquire = spin("ld.volatile") + fence;
        computes(fence, [2, 32], &message(&publish, &acquire), &[7, 7]);
        check("no second fence", [2, 32], &message(&publish, &spin("ld.volatile")), &[race("W", "R")]);
        check("no first fence", [2, 32], &message("st.volatile.global.u32 [%flags], 1;", &acquire), &[race("W", "R")]);
    }
    let one_sided = |first: &str, second: &str| {
        message(&format!("{first} st.relaxed.gpu.global.u32 [%flags], 1;"), &(spin("ld.relaxed.gpu") + second))
    };
    computes("one-sided fences", [2, 32], &one_sided("fence.release.gpu;", "fence.acquire.gpu;"), &[7, 7]);
    check("acquire before", [2, 32], &one_sided("fence.acquire.gpu;", "fence.acquire.gpu;"), &[race("W", "R")]);
    check("release after", [2, 32], &one_sided("fence.release.gpu;", "fence.release.gpu;"), &[race("W", "R")]);
}

#[test]
fn message_with_a_narrow_scope_races_between_blocks() {
    let publish = "membar.cta; st.volatile.global.u32 [%flags], 1;";
    check("fence of a block", [2, 32], &message(publish, &(spin("ld.volatile") + "membar.gl;")), &[race("W", "R")]);
    let publish = "st.release.cta.global.u32 [%flags], 1; // F";
    let narrow = message(publish, &spin("ld.acquire.gpu"));
    check("release of a block", [2, 32], &narrow, &[race("W", "R"), race("F", "L")]);
    let publish = "st.release.gpu.global.u32 [%flags], 1; // F";
    let narrow = message(publish, &spin("ld.acquire.cta"));
    check("acquire of a block", [2, 32], &narrow, &[race("W", "R"), race("F", "L")]);
}

/// All threads of the grid store; the last block adds up.
fn last_block(fence: &str) -> String {
    format!(
        "
        mad.lo.u32 %a, %c, 32, %t;
        mul.wide.u32 %wide, %a, 4;
        add.u64 %addr, %data, %wide;
        add.u32 %x, %a, 1;
        st.global.u32 [%addr], %x; // W
        bar.sync 0;
        setp.ne.u32 %p, %t, 0;
        @%p bra WAIT;
        {fence}
        atom.global.add.u32 %x, [%flags], 1;
        {fence}
        st.shared.u32 [s], %x;
        WAIT:
        bar.sync 0;
        ld.shared.u32 %x, [s];
        setp.ne.u32 %p, %x, 1;
        @%p bra DONE;
        xor.b32 %a, %t, 63;
        mul.wide.u32 %wide, %a, 4;
        add.u64 %addr, %data, %wide;
        ld.global.u32 %v, [%addr]; // R
        mul.wide.u32 %wide, %t, 4;
        add.u64 %addr, %data, %wide;
        ld.global.u32 %x, [%addr]; // R
        red.shared.add.u32 [s+4], %v;
        red.shared.add.u32 [s+4], %x;
        bar.sync 0;
        @%p bra DONE;
        setp.ne.u32 %p, %t, 0;
        @%p bra DONE;
        ld.shared.u32 %v, [s+4];
        st.global.u32 [%flags+4], %v;
        DONE:"
    )
}

#[test]
fn last_block_needs_its_fence() {
    check("last block", [2, 32], &last_block("membar.gl;"), &[]);
    check("last block without a fence", [2, 32], &last_block(""), &[race("W", "R")]);
    check("last block with a narrow fence", [2, 32], &last_block("membar.cta;"), &[race("W", "R")]);
}

#[test]
fn reduction_and_fence_acquire_nothing() {
    let body =
        |observe: &str| message("membar.gl; red.global.add.u32 [%flags], 1;", &(spin("ld.relaxed.gpu") + observe));
    check("reduction", [2, 32], &body("RETRY: red.global.add.u32 [%flags], 1;"), &[race("W", "R")]);
    computes("atomic operation", [2, 32], &body("atom.global.add.u32 %x, [%flags], 1; membar.gl;"), &[7, 7]);
    // The spin observes the flag, but the read that a fence follows is that of the reduction.
    let body = message("membar.gl; red.global.add.u32 [%flags], 1;", "red.global.add.u32 [%flags+4], 1; membar.gl;");
    check("another flag", [2, 32], &body, &[race("W", "R")]);
    // The reduction observes the flag on some seeds, and forms no acquire pattern with the fence.
    let observe = |instruction: &str| message("membar.gl; red.global.add.u32 [%flags], 1;", instruction);
    check("fence", [2, 32], &observe("red.global.add.u32 [%flags], 1; membar.gl;"), &[race("W", "R")]);
    let (outcome, ..) = run([2, 32], &observe("atom.global.add.u32 %x, [%flags], 1; membar.gl;"), 0);
    assert!(outcome.error().is_none(), "the first seed observes the flag");
}

#[test]
fn release_continues_through_strong_writes_of_its_thread() {
    let publish = |between: &str| {
        format!("st.release.gpu.global.u32 [%flags], 1; {between}\nst.relaxed.gpu.global.u32 [%flags], 2;")
    };
    let acquire = "SPIN: ld.acquire.gpu.global.u32 %x, [%flags];\nsetp.ne.u32 %q, %x, 2;\n@%q bra SPIN;";
    computes("strong write", [2, 32], &message(&publish(""), acquire), &[7, 7]);
    // It releases what precedes the release, and not what precedes the write.
    let (later, read) = ("st.global.u32 [%data+8], 3; // V", "\nld.global.u32 %x, [%data+8]; // O");
    let after = message(&publish(later), &(acquire.to_string() + read));
    check("write after the release", [2, 32], &after, &[race("V", "O")]);
    // A weak write ends the pattern. On the first seed, no poll observes the value before it.
    let (outcome, _, names) = run([2, 32], &message(&publish("").replace("st.relaxed.gpu", "st"), acquire), 0);
    let lines = outcome.diagnostics.iter().map(|found| found.lines.iter().map(|line| line.line as usize - 1));
    let mut pairs = lines.map(|lines| lines.map(|line| &names[line][..]).collect::<BTreeSet<_>>());
    assert!(pairs.any(|pair| pair == ["R", "W"].into()), "{:#?}", outcome.diagnostics);
}

#[test]
fn observed_release_is_acquired_later() {
    let (release, overwrite) = ("st.release.gpu.global.u32 [%flags], 1;", "st.relaxed.gpu.global.u32 [%flags], 2;");
    let body = |acquire: &str| message(release, &(spin("ld.relaxed.gpu") + overwrite + acquire));
    computes("acquire of the flag", [2, 32], &body("ld.acquire.gpu.global.u32 %x, [%flags];"), &[7, 7]);
    computes("fence", [2, 32], &body("fence.acq_rel.gpu;"), &[7, 7]);
    check("acquire of another flag", [2, 32], &body("ld.acquire.gpu.global.u32 %x, [%flags+4];"), &[race("W", "R")]);
    check("no acquire", [2, 32], &body("ld.relaxed.gpu.global.u32 %x, [%flags];"), &[race("W", "R")]);
}

#[test]
fn mbarrier_test_acquires_the_phase_that_it_finds_complete() {
    // Thread 0 stores and arrives; thread 32 tests once, or waits, and loads.
    let body = |arrivals: u32, test: &str| {
        format!(
            "
            setp.ne.u32 %p, %t, 0;
            @!%p mbarrier.init.shared.b64 [mbarrier], {arrivals};
            bar.sync 0;
            @%p bra TEST;
            st.shared.u32 [s], 5; // W
            mbarrier.arrive.shared.b64 %state, [mbarrier];
            TEST:
            setp.ne.u32 %p, %t, 32;
            @%p bra DONE;
            {test}
            ld.shared.u32 %v, [s]; // R
            DONE:"
        )
    };
    let wait = "SPIN: mbarrier.test_wait.parity.shared.b64 %q, [mbarrier], 0;\n@!%q bra SPIN;";
    check("phase 0, complete", [1, 64], &body(1, wait), &[]);
    // The test of the other parity is true before the phase completes, and false after it.
    let other = "mbarrier.test_wait.parity.shared.b64 %q, [mbarrier], 1;";
    check("phase 0, tested for the other parity", [1, 64], &body(1, other), &[race("W", "R")]);
    check("phase 0, with an arrival of two", [1, 64], &body(2, other), &[race("W", "R")]);
    let once = wait.replace("@!%q bra SPIN;", "");
    check("phase 0, tested and not complete", [1, 64], &body(2, &once), &[race("W", "R")]);
}

#[test]
fn failed_comparison_releases_nothing() {
    let publish = "atom.release.gpu.global.cas.b32 %x, [%flags], 9, 1; st.relaxed.gpu.global.u32 [%flags], 1;";
    check("failed", [2, 32], &message(publish, &spin("ld.acquire.gpu")), &[race("W", "R")]);
    let publish = "atom.release.gpu.global.cas.b32 %x, [%flags], 0, 1;";
    computes("successful", [2, 32], &message(publish, &spin("ld.acquire.gpu")), &[7, 7]);
}

/// Each thread increments `data[0]` under a lock; the loop ends before the section.
fn spin_lock(acquire: &str, release: &str) -> String {
    format!(
        "
        SPIN:
        {acquire}.global.cas.b32 %x, [%flags], 0, 1;
        setp.ne.u32 %q, %x, 0;
        @%q bra SPIN;
        ld.global.u32 %v, [%data]; // R
        add.u32 %v, %v, 1;
        st.global.u32 [%data], %v; // W
        {release}"
    )
}

#[test]
fn spin_lock_orders_its_sections() {
    let (acquire, release) = ("atom.acquire.gpu", "st.release.gpu.global.u32 [%flags], 0;");
    computes("lock between blocks", [4, 1], &spin_lock(acquire, release), &[4]);
    let exchange = "membar.gl; atom.global.exch.b32 %x, [%flags], 0;";
    computes("lock with a fence", [4, 1], &spin_lock(acquire, exchange), &[4]);
    let races = [race("W", "R"), race("W", "W")];
    let relaxed = spin_lock("atom.relaxed.gpu", release);
    check("lock without an acquire", [4, 1], &relaxed, &races);
    let relaxed = spin_lock(acquire, "atom.global.exch.b32 %x, [%flags], 0;");
    check("lock without a release", [4, 1], &relaxed, &races);
}

#[test]
fn lock_within_a_warp_makes_progress() {
    let (acquire, release) = ("atom.acquire.cta", "st.release.cta.global.u32 [%flags], 0;");
    // Eight lanes of each warp: a loop that more lanes wait in takes long. The full run has all.
    let full = std::env::var("TEGULA_FULL").is_ok_and(|full| full == "1");
    let (lanes, sum) = if full { (32, 40) } else { (8, 16) };
    let after = format!("setp.ge.u32 %q, %lane, {lanes}; @%q exit;{}", spin_lock(acquire, release));
    computes("section after the loop", [1, 40], &after, &[sum]);
    let inside = "
        mov.u32 %b, 0;
        SPIN:
        atom.acquire.gpu.global.cas.b32 %x, [%flags], 0, 1;
        setp.ne.u32 %q, %x, 0;
        @%q bra NEXT;
        ld.global.u32 %v, [%data];
        add.u32 %v, %v, 1;
        st.global.u32 [%data], %v;
        st.release.gpu.global.u32 [%flags], 0;
        mov.u32 %b, 1;
        NEXT:
        setp.eq.u32 %q, %b, 0;
        @%q bra SPIN;";
    computes("section in the loop", [2, 40], inside, &[80]);
    // A barrier after the section gathers the lanes again.
    computes("barrier after the section", [1, 40], &(after + "bar.sync 0;"), &[sum]);
}

/// A reduction of 32 lanes in shared memory.
fn warp_reduction(qualifier: &str, sync: &str) -> String {
    let mut body = format!(
        "shl.b32 %a, %t, 2; mov.u32 %b, s; add.u32 %a, %a, %b;\nst{qualifier}.shared.u32 [%a], 1; // W\n{sync}"
    );
    for step in [8, 4, 2, 1] {
        body += &format!(
            "
            setp.ge.u32 %p, %t, {step};
            @!%p ld{qualifier}.shared.u32 %v, [%a+{}]; // R{step}
            @!%p ld{qualifier}.shared.u32 %x, [%a]; // O{step}
            @!%p add.u32 %x, %x, %v;
            @!%p st{qualifier}.shared.u32 [%a], %x; // S{step}
            {sync}",
            4 * step
        );
    }
    body + "@!%p st.global.u32 [%data], %x;"
}

#[test]
fn warp_reduction_needs_warp_synchronization() {
    computes("synchronized", [1, 16], &warp_reduction("", "bar.warp.sync 0xffffffff;"), &[16]);
    let races = [race("W", "R8"), race("S8", "R4"), race("S4", "R2"), race("S2", "R1")];
    check("unsynchronized", [1, 16], &warp_reduction("", ""), &races);
    // Lanes that no mask has are not ordered.
    let masked = warp_reduction("", "bar.warp.sync 0xffff;");
    computes("mask of the lanes", [1, 16], &masked, &[16]);
    // Volatile accesses are ordered loosely; but lanes need not run in lockstep.
    check("volatile", [1, 16], &warp_reduction(".volatile", ""), &races);
    computes("volatile, synchronized", [1, 16], &warp_reduction(".volatile", "bar.warp.sync 0xffffffff;"), &[16]);
}

#[test]
fn volatile_access_races_within_a_warp_unless_it_polls() {
    let body = |read: &str| {
        format!(
            "
            setp.eq.u32 %p, %t, 0;
            @%p st.volatile.shared.u32 [s], 5; // W
            setp.ne.u32 %p, %t, 9;
            @%p bra DONE;
            {read}
            st.global.u32 [%data], %v;
            DONE:"
        )
    };
    let poll = "SPIN: ld.volatile.shared.u32 %v, [s];\nsetp.eq.u32 %q, %v, 0;\n@%q bra SPIN;";
    computes("poll", [1, 32], &body(poll), &[5]);
    let again = "SPIN: mov.u32 %a, s;\nshl.b32 %b, %one, 2;\nadd.u32 %x, %a, %b;\n\
                 ld.volatile.shared.u32 %v, [%x+-4];\nsetp.eq.u32 %q, %v, 0;\n@%q bra SPIN;";
    computes("poll whose address is computed in the loop", [1, 32], &body(again), &[5]);
    check("read", [1, 32], &body("ld.volatile.shared.u32 %v, [s]; // R"), &[race("W", "R")]);
    let other_warp = "
        setp.eq.u32 %p, %t, 1;
        @%p st.volatile.shared.u32 [s], 5;
        setp.eq.u32 %p, %t, 33;
        @%p st.volatile.shared.u32 [s], 5; // W
        setp.eq.u32 %p, %t, 32;
        @%p ld.volatile.shared.u32 %v, [s]; // R";
    check("another warp wrote it too", [1, 64], other_warp, &[race("W", "R")]);
    // The loop has an end of its own: it waits for nothing.
    let sum = "
        mov.u32 %a, s;
        add.u32 %b, %a, 8;
        SUM: ld.volatile.shared.u32 %v, [%a]; // R
        add.u32 %a, %a, 4;
        setp.lt.u32 %q, %a, %b;
        @%q bra SUM;";
    check("sum", [1, 32], &body(sum), &[race("W", "R")]);
}

#[test]
fn warp_synchronization_orders_the_lanes_of_its_mask_alone() {
    let body = |mask: &str, reader: u32| {
        format!(
            "
            setp.eq.u32 %p, %t, 0;
            @%p st.shared.u32 [s], 5; // W
            mov.u32 %x, {mask};
            shr.u32 %a, %x, %lane;
            and.b32 %a, %a, 1;
            setp.ne.u32 %q, %a, 0;
            @%q bar.warp.sync {mask};
            setp.eq.u32 %p, %t, {reader};
            @%p ld.shared.u32 %v, [s]; // R"
        )
    };
    check("both in the mask", [1, 32], &body("0x21", 5), &[]);
    check("reader not in the mask", [1, 32], &body("0x21", 4), &[race("W", "R")]);
    check("writer not in the mask", [1, 32], &body("0x22", 5), &[race("W", "R")]);
    check("another warp", [1, 64], &body("0xffffffff", 37), &[race("W", "R")]);
    // A lane that has ended takes part if the mask names it.
    let ended = |mask: &str| {
        format!(
            "
            setp.eq.u32 %p, %t, 0;
            @%p bra END;
            bar.warp.sync {mask};
            setp.eq.u32 %p, %t, 5;
            @%p ld.shared.u32 %v, [s]; // R
            bra DONE;
            END:
            st.shared.u32 [s], 5; // W
            exit;
            DONE:"
        )
    };
    check("ended lane in the mask", [1, 32], &ended("0xffffffff"), &[]);
    check("ended lane not in the mask", [1, 32], &ended("0xfffffffe"), &[race("W", "R")]);
}

#[test]
fn guarded_exchange_waits_for_lanes_on_other_paths() {
    // Lanes 0 and 5 take a lock one after the other; the other lanes skip the exchange.
    let exchange = |instruction: &str| {
        format!(
            "
            mov.u32 %x, 0x21;
            shr.u32 %b, %x, %lane;
            and.b32 %b, %b, 1;
            setp.ne.u32 %p, %b, 0;
            @!%p bra TAKEN;
            SPIN: atom.acquire.cta.shared.cas.b32 %v, [s], 0, 1;
            setp.ne.u32 %q, %v, 0;
            @%q bra SPIN;
            TAKEN:
            @%p st.release.cta.shared.u32 [s], 0;
            mov.u32 %x, 0;
            @%p {instruction}
            setp.eq.u32 %q, %t, 5;
            @%q st.global.u32 [%data], %x;"
        )
    };
    computes("vote", [1, 32], &exchange("vote.sync.ballot.b32 %x, %p, 0x21;"), &[0x21]);
    computes("shuffle", [1, 32], &exchange("shfl.sync.idx.b32 %x, %c, 0, 31, 0x21;"), &[0]);
    computes("reduction", [1, 32], &exchange("redux.sync.add.u32 %x, %t, 0x21;"), &[5]);
    computes("synchronization", [1, 32], &exchange("bar.warp.sync 0x21;"), &[0]);
    let off = "setp.ne.u32 %p, %t, 1; @%p vote.sync.ballot.b32 %x, %p, 0x23; // V\nbar.sync 0;";
    check("predicated off", [1, 32], off, &[(FindingKind::DivergentWarp, "V", "")]);
    let ended = "
        setp.eq.u32 %p, %t, 1;
        @!%p bra GO;
        exit;
        GO:
        setp.lt.u32 %p, %t, 8;
        @%p vote.sync.ballot.b32 %x, %p, 0xff;
        setp.eq.u32 %q, %t, 0;
        @%q st.global.u32 [%data], %x;";
    computes("ended lane", [1, 32], ended, &[0xfd]);
}

#[test]
fn shuffles_and_votes_order_no_memory() {
    for exchange in
        ["shfl.sync.idx.b32 %v, %t, 0, 31, 0xffffffff;", "vote.sync.all.pred %q, %p, 0xffffffff;", "membar.gl;"]
    {
        let body = format!(
            "setp.eq.u32 %p, %t, 0;\n@%p st.shared.u32 [s], 5; // W\n{exchange}\nsetp.eq.u32 %p, %t, 9;\n@%p ld.shared.u32 %v, [s]; // R\n"
        );
        check(exchange, [1, 32], &body, &[race("W", "R")]);
    }
}

#[test]
fn bytes_of_one_word_do_not_race() {
    let bytes = "
        cvt.u64.u32 %wide, %t;
        add.u64 %addr, %data, %wide;
        st.global.u8 [%addr], %t; // W";
    computes("bytes", [1, 64], bytes, &[0x0302_0100, 0x0706_0504]);
    let overlapping = format!("{bytes}\nsetp.eq.u32 %p, %t, 40;\n@%p ld.global.u32 %v, [%data+8]; // R\n");
    check("a word of bytes", [1, 64], &overlapping, &[race("W", "R")]);
    let halves = "
        setp.ne.u32 %p, %t, 0;
        @!%p st.shared.u64 [s+8], %wide; // W
        @%p ld.shared.u16 %x, [s+14]; // R";
    check("the last half of eight bytes", [1, 2], halves, &[race("W", "R")]);
    let vectors = "
        setp.ne.u32 %p, %t, 0;
        @!%p st.shared.v4.u32 [s], {%t, %t, %t, %t}; // W
        @%p ld.shared.v2.u32 {%a, %b}, [s+16]; // R";
    check("neighboring vectors", [1, 40], vectors, &[]);
}

#[test]
fn strong_accesses_of_different_sizes_race() {
    let body = |first: &str, second: &str| format!("setp.ne.u32 %p, %t, 0;\n@!%p {first}; // W\n@%p {second}; // R\n");
    let (word, wide) = ("st.relaxed.gpu.global.u32 [%data+4], %t", "st.relaxed.gpu.global.u64 [%data+8], %wide");
    check("one size", [1, 33], &body(word, "ld.relaxed.gpu.global.u32 %v, [%data+4]"), &[]);
    check("neighbors", [1, 33], &body(wide, "ld.relaxed.gpu.global.u32 %v, [%data+4]"), &[]);
    check("two sizes", [1, 33], &body(wide, "ld.relaxed.gpu.global.u32 %v, [%data+12]"), &[race("W", "R")]);
    check("atomic operations", [1, 33], &body(wide, "red.global.add.u32 [%data+8], %one"), &[race("W", "R")]);
    check(
        "reads",
        [1, 33],
        &body("ld.relaxed.gpu.global.u64 %wide, [%data]", "ld.relaxed.gpu.global.u32 %v, [%data]"),
        &[],
    );
}

#[test]
fn stores_of_one_value_by_one_instruction_are_no_race() {
    computes("one value", [1, 32], "st.global.u32 [%data], 5;", &[5]);
    check("two values", [1, 32], "st.global.u32 [%data], %t; // W", &[race("W", "W")]);
    check("two warps", [1, 64], "st.global.u32 [%data], 5; // W", &[race("W", "W")]);
    check("two blocks", [2, 32], "st.global.u32 [%data], 5; // W", &[race("W", "W")]);
}

/// Thread 0 copies 16 bytes to shared memory, and thread 40 reads them.
fn copy(before: &str, after: &str) -> String {
    format!(
        "
        setp.ne.u32 %p, %t, 0;
        @%p bra ISSUED;
        cp.async.cg.shared.global [s], [%data], 16; // C
        {before}
        ISSUED:
        bar.sync 0;
        {after}
        setp.eq.u32 %p, %t, 40;
        @%p ld.shared.u32 %v, [s+4]; // R"
    )
}

#[test]
fn copy_is_ordered_by_a_wait_and_a_barrier() {
    check("wait", [1, 64], &copy("cp.async.wait_all;", ""), &[]);
    check("group", [1, 64], &copy("cp.async.commit_group; cp.async.wait_group 0;", ""), &[]);
    let in_flight = [(FindingKind::InFlight, "R", "C"), race("R", "C")];
    let early = |name: &str, body: &str| {
        for seed in 0..SEEDS {
            let (outcome, _, names) = run([1, 64], body, seed);
            let error = outcome.error().unwrap_or_else(|| panic!("{name}, seed {seed}"));
            let lines: BTreeSet<&str> = error.lines.iter().map(|line| &names[line.line as usize - 1][..]).collect();
            let known = in_flight.iter().any(|(kind, ..)| *kind == error.kind);
            assert!(known && lines == ["C", "R"].into(), "{name}, seed {seed}: {error}");
        }
    };
    early("no wait", &copy("cp.async.commit_group;", ""));
    early("wait for an earlier group", &copy("cp.async.commit_group; cp.async.wait_group 1;", ""));
    early("no group", &copy("cp.async.wait_group 0;", ""));
    early("wait of another thread", &copy("cp.async.commit_group;", "cp.async.wait_all;").replace("bar.sync 0;", ""));
    early("wait after the barrier", &copy("", "@!%p cp.async.wait_all;"));
}

#[test]
fn copy_reads_its_source_until_the_wait() {
    let body = |wait_first: bool| {
        let (before, after) = if wait_first { ("cp.async.wait_all;", "") } else { ("", "cp.async.wait_all;") };
        format!("cp.async.ca.shared.global [s], [%data], 4; // C\n{before}\nst.global.u32 [%data], 1; // W\n{after}")
    };
    check("source after the wait", [1, 1], &body(true), &[]);
    check("source before the wait", [1, 1], &body(false), &[race("W", "C")]);
}

#[test]
fn copy_arrives_at_an_mbarrier() {
    let body = |first: &str, last: &str| {
        format!(
            "
            setp.ne.u32 %p, %t, 0;
            @!%p mbarrier.init.shared.b64 [mbarrier], 1;
            bar.sync 0;
            @%p bra WAIT;
            {first}
            cp.async.ca.shared.global [s], [%data], 4; // C
            cp.async.mbarrier.arrive.noinc.shared.b64 [mbarrier];
            {last}
            WAIT:
            setp.ne.u32 %p, %t, 40;
            @%p bra DONE;
            SPIN: mbarrier.try_wait.parity.shared.b64 %q, [mbarrier], 0;
            @!%q bra SPIN;
            ld.shared.u32 %v, [s]; // R
            ld.shared.u32 %v, [s+8]; // O
            DONE:"
        )
    };
    check("copy", [1, 64], &body("", ""), &[]);
    check("store before the copy", [1, 64], &body("st.shared.u32 [s+8], 1; // W", ""), &[]);
    // The arrival follows the copies of the thread, and none of its other operations.
    check("store after the copy", [1, 64], &body("", "st.shared.u32 [s+8], 1; // W"), &[race("W", "O")]);
    let between = body("", "").replace("cp.async.mbarrier", "st.shared.u32 [s+8], 1; // W\ncp.async.mbarrier");
    check("store between copy and arrival", [1, 64], &between, &[race("W", "O")]);
    let own = body("", "ld.shared.u32 %v, [s]; // E");
    check("early read of the own thread", [1, 64], &own, &[race("E", "C")]);
}

#[test]
fn barrier_in_divergent_flow_is_an_error() {
    let body = "setp.ge.u32 %p, %t, 16;\n@%p bra SKIP;\nbar.sync 0; // B\nSKIP: add.u32 %x, %x, 1; // S\n";
    for seed in 0..SEEDS {
        let (outcome, _, names) = run([1, 32], body, seed);
        let error = outcome.error().expect("an error");
        assert_eq!((error.kind, &names[error.lines[0].line as usize - 1][..]), (FindingKind::ArrivalMismatch, "B"));
    }
    let both = "
        and.b32 %a, %t, 1;
        setp.ne.u32 %p, %a, 0;
        st.shared.u8 [%b], %t; // W
        @%p bra ODD;
        barrier.sync 0;
        bra JOINED;
        ODD: barrier.sync 0;
        JOINED: ld.shared.u8 %v, [s+9]; // R";
    let both = format!("mov.u32 %b, s; add.u32 %b, %b, %t;\n{both}");
    check("two instructions", [1, 40], &both, &[]);
    // Threads that have ended do not count.
    check("ended lanes", [1, 40], "setp.eq.u32 %p, %t, 3; @%p ret; bar.sync 0; bar.sync 0;", &[]);
    check("ended warp", [1, 40], "setp.ge.u32 %p, %t, 32; @%p exit; bar.sync 0; bar.sync 0;", &[]);
    let ended = "
        setp.ne.u32 %p, %t, 3;
        @%p bra GO;
        st.shared.u32 [s], 1; // W
        exit;
        GO: bar.sync 0;
        ld.shared.u32 %v, [s]; // R";
    check("store of an ended thread", [1, 40], ended, &[]);
}

#[test]
fn named_barrier_counts_warps() {
    // The second warp has eight lanes and counts as 32 threads.
    let body = |producer: &str| {
        format!(
            "
            setp.ge.u32 %p, %t, 32;
            @%p bra CONSUMER;
            shl.b32 %a, %t, 1;
            mov.u32 %b, s;
            add.u32 %a, %a, %b;
            st.shared.u16 [%a], %t; // W
            {producer}
            bra DONE;
            CONSUMER:
            bar.sync 1, 64;
            ld.shared.u16 %v, [s+10]; // R
            DONE:"
        )
    };
    check("arrival", [1, 40], &body("bar.arrive 1, 64;"), &[]);
    check("wait", [1, 40], &body("bar.sync 1, 64;"), &[]);
    check(
        "write after the arrival",
        [1, 40],
        &body("bar.arrive 1, 64;\nst.shared.u16 [s+10], %t; // W2").replace("// W2", "// V"),
        &[race("V", "R"), race("V", "V"), race("V", "W")],
    );
}

#[test]
fn waiting_for_ever_is_an_error() {
    let kind = |launch, body: &str| run(launch, body, 0).0.error().map(|error| error.kind);
    let short = "setp.ge.u32 %p, %t, 32; @%p bra DONE; bar.sync 1, 64; DONE:";
    assert_eq!(kind([1, 64], short), Some(FindingKind::Deadlock));
    assert_eq!(kind([1, 32], &spin("ld.acquire.gpu")), Some(FindingKind::NoProgress));
    let crossed = "
        mul.wide.u32 %wide, %c, 4;
        add.u64 %addr, %flags, %wide;
        xor.b32 %a, %c, 1;
        mul.wide.u32 %wide, %a, 4;
        add.u64 %wide, %flags, %wide;
        SPIN: ld.acquire.gpu.global.u32 %x, [%wide];
        setp.eq.u32 %q, %x, 0;
        @%q bra SPIN;
        st.release.gpu.global.u32 [%addr], 1;";
    assert_eq!(kind([2, 1], crossed), Some(FindingKind::NoProgress));
    let lane = "setp.eq.u32 %p, %t, 3; @%p bra DONE; bar.warp.sync 0xffffffff; DONE: bar.warp.sync 0xf0;";
    assert!(kind([1, 32], lane).is_some());
}

#[test]
fn causality_passes_through_threads_and_scopes() {
    // Block 0 to thread 0 of block 1 by the device, and on to thread 40 within the block.
    let body = |hop: &str, last: &str| {
        format!(
            "
            setp.eq.u32 %p, %t, 0;
            setp.eq.u32 %q, %c, 0;
            @!%q bra SECOND;
            @%p st.global.u32 [%data], 7; // W
            @%p st.release.gpu.global.u32 [%flags], 1;
            bra DONE;
            SECOND:
            @!%p bra THIRD;
            {}
            {hop}
            THIRD:
            {last}
            setp.eq.u32 %p, %t, 40;
            @%p ld.global.u32 %v, [%data]; // R
            DONE:",
            spin("ld.acquire.gpu").replace("%q", "%p")
        )
    };
    check("barrier", [2, 64], &body("", "bar.sync 0;"), &[]);
    let wait = "SPIN2: ld.acquire.cta.shared.u32 %x, [s]; setp.eq.u32 %p, %x, 0; @%p bra SPIN2;";
    check("release of a block", [2, 64], &body("st.release.cta.shared.u32 [s], 1;", wait), &[]);
    check("relaxed", [2, 64], &body("st.relaxed.cta.shared.u32 [s], 1;", wait), &[race("W", "R")]);
    check("nothing", [2, 64], &body("", ""), &[race("W", "R")]);
}

#[test]
fn observed_write_precedes_its_observer_alone() {
    let publish = "st.relaxed.gpu.global.u32 [%flags], 1; // F";
    let flag = message(publish, &(spin("ld.relaxed.gpu") + "\nst.global.u32 [%flags], 2;"));
    check("the flag itself", [2, 32], &flag, &[race("W", "R")]);
    // Narrow accesses elsewhere change nothing.
    let bytes = flag + "\nsetp.eq.u32 %p, %t, 5;\n@%p ld.global.u8 %v, [%data+200];\n";
    check("the flag in a kernel with bytes", [2, 32], &bytes, &[race("W", "R")]);
}

#[test]
fn release_continues_through_atomic_operations() {
    let body = |second: &str| {
        format!(
            "
            setp.eq.u32 %p, %c, 0;
            @%p st.global.u32 [%data], 7; // W
            @%p st.release.gpu.global.u32 [%flags], 1;
            @%p bra DONE;
            setp.eq.u32 %p, %c, 2;
            @%p bra THIRD;
            {}
            {second}
            bra DONE;
            THIRD:
            SPIN2: ld.acquire.gpu.global.u32 %x, [%flags]; setp.lt.u32 %p, %x, 2; @%p bra SPIN2;
            ld.global.u32 %v, [%data]; // R
            DONE:",
            spin("ld.relaxed.gpu")
        )
    };
    check("relaxed addition", [3, 1], &body("red.relaxed.gpu.global.add.u32 [%flags], 1;"), &[]);
    check("release", [3, 1], &body("fence.acq_rel.gpu; st.relaxed.gpu.global.u32 [%flags], 2;"), &[]);
    // A poll may see the first value and acquire it; a seed where none does shows the race.
    let found = (0..SEEDS).filter(|&seed| {
        let (outcome, ..) = run([3, 1], &body("st.relaxed.gpu.global.u32 [%flags], 2;"), seed);
        outcome.error().is_some_and(|error| error.kind == FindingKind::Race)
    });
    assert!(found.count() > 0, "a relaxed store ends the release sequence");
}
