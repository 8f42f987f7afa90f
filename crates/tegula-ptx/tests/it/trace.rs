//! The trace of a block: its steps, values, costs and findings.

use tegula_core::diagnostic::FindingKind;
use tegula_interp::Counters;
use tegula_ptx::ast::ScalarType;
use tegula_ptx::trace::{RequestKind, Space, Step, Sync, Trace, TraceFilter};
use tegula_ptx::{Argument, Buffer, Config, Launch, Module, Outcome};

/// Reverses the elements of a block of 64 threads through shared memory: `y[63 - i] = x[i]`, as
/// lines 3 to 6 of `k.cu`. Line 6 is inlined from a header.
const REVERSE: &str = r#"
.version 8.0
.target sm_80
.address_size 64
.visible .entry reverse(.param .u64 x, .param .u64 y)
{
    .shared .align 4 .f32 tile[64];
    .reg .b32 %r<8>;
    .reg .f32 %f<3>;
    .reg .b64 %rd<6>;
    .loc 1 3 0
    ld.param.u64 %rd1, [x];
    ld.param.u64 %rd2, [y];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd3, %r1, 4;
    add.s64 %rd4, %rd1, %rd3;
    mov.u32 %r2, tile;
    shl.b32 %r3, %r1, 2;
    add.s32 %r4, %r2, %r3;
    ld.global.f32 %f1, [%rd4];
    st.shared.f32 [%r4], %f1;
    .loc 1 4 0
    BARRIER
    .loc 1 5 0
    sub.s32 %r5, 252, %r3;
    add.s32 %r6, %r2, %r5;
    ld.shared.f32 %f2, [%r6];
    .loc 2 90 0, function_name info, inlined_at 1 6 0
    add.s64 %rd5, %rd2, %rd3;
    st.global.f32 [%rd5], %f2;
    ret;
}
.file 1 "k.cu"
.file 2 "h.cuh"
.section .debug_str { info: .b8 0 }
"#;

fn filter(block: [u32; 3]) -> TraceFilter {
    TraceFilter::new(block, "k.cu")
}

fn trace(barrier: &str, grid: u32, filter: &TraceFilter) -> (Outcome, Trace, Vec<f32>) {
    let module = Module::parse(&REVERSE.replace("BARRIER", barrier)).unwrap();
    let values: Vec<f32> = (0..64).map(|i| i as f32).collect();
    let mut buffers = [Buffer::f32("x", &values), Buffer::uninitialized("y", ScalarType::F32, [64])];
    let launch = Launch::new([grid, 1, 1], [64, 1, 1], vec![Argument::buffer(0), Argument::buffer(1)]);
    let kernel = module.kernel("reverse").unwrap();
    let (outcome, trace) = kernel.trace(&launch, &mut buffers, &Config::default(), filter).unwrap();
    (outcome, trace, buffers[1].to_f32().unwrap())
}

/// Counters without arithmetic, which is not recorded.
fn of_memory(counters: Counters) -> Counters {
    Counters { fma: 0, flops: 0, lane_instructions: 0, ..counters }
}

fn places(trace: &Trace) -> Vec<(u32, u32)> {
    trace.steps.iter().map(|step| (step.warp, trace.line(step.line).line)).collect()
}

fn value(step: &Step, lane: u32) -> f32 {
    let request = step.requests().last().unwrap();
    let data = request.accesses().find(|(of, ..)| *of == lane).unwrap().2;
    f32::from_le_bytes(data.try_into().unwrap())
}

#[test]
fn steps_are_source_lines_of_warps() {
    let (outcome, trace, result) = trace("bar.sync 0;", 1, &filter([0; 3]));
    assert!(outcome.error().is_none() && result[0] == 63.0, "{:?}", outcome.diagnostics);
    assert_eq!(places(&trace), [(0, 3), (0, 4), (1, 3), (1, 4), (0, 5), (0, 6), (1, 5), (1, 6)]);
    assert_eq!((trace.total, trace.full, trace.steps[0].lanes()), (8, false, u32::MAX));
    assert_eq!(trace.line(trace.steps[5].events[0].line).file, "h.cuh");
    let first = &trace.steps[0];
    let kinds: Vec<_> = first
        .requests()
        .map(|request| (request.kind, trace.memories[request.memory as usize].name.as_str(), request.ty))
        .collect();
    assert_eq!(kinds, [(RequestKind::Load, "x", ScalarType::F32), (RequestKind::Store, "tile", ScalarType::F32)]);
    assert_eq!(trace.memories.iter().find(|memory| memory.name == "tile").unwrap().space, Space::Shared);
    // Lane 3 of warp 0 stores x[3], and reads what thread 60 stored.
    assert_eq!([value(first, 3), value(&trace.steps[4], 3), value(&trace.steps[5], 3)], [3.0, 60.0, 60.0]);
}

#[test]
fn counters_of_the_steps_sum_to_those_of_the_launch() {
    let (outcome, trace, _) = trace("bar.sync 0;", 1, &filter([0; 3]));
    assert_eq!(of_memory(trace.counters()), of_memory(outcome.counters));
    assert_eq!((trace.counters().barriers, trace.counters().global_load_sectors), (2, 8));
    assert_eq!(trace.counters().shared_load_wavefronts, 2);
}

#[test]
fn barrier_completes_with_its_last_arrival() {
    let (_, trace, _) = trace("bar.sync 0;", 1, &filter([0; 3]));
    let syncs: Vec<_> = trace.steps.iter().flat_map(|step| &step.events).filter_map(|event| event.sync).collect();
    let arrival = |arrived, completes| Sync::Barrier { id: 0, threads: [arrived, 64], completes };
    assert_eq!(syncs, [arrival(32, false), arrival(64, true)]);
}

#[test]
fn race_is_at_the_step_where_it_occurs() {
    let (outcome, trace, _) = trace("", 1, &filter([0; 3]));
    assert_eq!(outcome.error().map(|error| error.kind), Some(FindingKind::Race));
    let found: Vec<_> = trace.steps.iter().filter(|step| step.findings().next().is_some()).collect();
    // Warp 0 reads before warp 1 writes.
    let kinds = |step: &Step| step.findings().map(|finding| finding.kind).collect::<Vec<_>>();
    assert_eq!((kinds(found[0]), found[0].warp), (vec![FindingKind::Uninitialized], 0));
    assert_eq!((kinds(found[1]), found[1].warp), (vec![FindingKind::Race], 1));
    let lines: Vec<_> = found[1].findings().next().unwrap().lines.iter().map(|line| line.line).collect();
    // Warp 1 then reads what warp 0 wrote.
    assert_eq!((lines, found.len()), (vec![3, 5], 3));
}

#[test]
fn finding_of_a_step_that_is_not_recorded_is_at_no_step() {
    let first = TraceFilter { steps: [0, 1], ..filter([0; 3]) };
    let (outcome, trace, _) = trace("", 1, &first);
    assert!(outcome.diagnostics.len() > 1, "{:?}", outcome.diagnostics);
    assert_eq!(trace.steps.iter().map(|step| step.findings().count()).collect::<Vec<_>>(), [0]);
}

#[test]
fn race_between_blocks_is_at_the_access_to_its_element() {
    for block in [[0, 0, 0], [1, 0, 0]] {
        let (outcome, trace, _) = trace("bar.sync 0;", 2, &filter(block));
        assert_eq!(outcome.error().map(|error| error.kind), Some(FindingKind::Race));
        let found = trace.steps.iter().find(|step| step.findings().next().is_some()).unwrap();
        assert_eq!((trace.line(found.line).line, trace.block), (6, block));
    }
}

#[test]
fn access_out_of_bounds_is_at_its_step() {
    let module = Module::parse(&REVERSE.replace("BARRIER", "bar.sync 0;")).unwrap();
    let mut buffers = [Buffer::f32("x", &[1.0; 60]), Buffer::uninitialized("y", ScalarType::F32, [64])];
    let launch = Launch::new([1, 1, 1], [64, 1, 1], vec![Argument::buffer(0), Argument::buffer(1)]);
    let kernel = module.kernel("reverse").unwrap();
    let (_, trace) = kernel.trace(&launch, &mut buffers, &Config::default(), &filter([0; 3])).unwrap();
    let step = trace.steps.iter().find(|step| step.findings().next().is_some()).unwrap();
    let finding = step.findings().next().unwrap();
    assert_eq!((finding.kind, finding.element.as_deref()), (FindingKind::OutOfBounds, Some("x[60]")));
    assert_eq!((step.warp, step.requests().next().unwrap().lanes), (1, 0x0fff_ffff));
}

#[test]
fn steps_are_limited() {
    let part = TraceFilter { steps: [4, 6], ..filter([0; 3]) };
    let (outcome, some, _) = trace("bar.sync 0;", 1, &part);
    assert!(outcome.completed);
    assert_eq!((some.steps.iter().map(|step| step.number).collect::<Vec<_>>(), some.total), (vec![4, 5], 8));
    // What was stored before is known.
    assert_eq!((some.shared.len(), some.shared[4..8].to_vec()), (256, (4..8).zip(1.0f32.to_le_bytes()).collect()));
    let small = TraceFilter { accesses: 32, ..filter([0; 3]) };
    let (_, full, _) = trace("bar.sync 0;", 1, &small);
    assert!(full.full && full.steps.len() == 1 && full.total == 8, "{}", full.steps.len());
}

#[test]
fn block_outside_the_grid_is_refused() {
    let module = Module::parse(&REVERSE.replace("BARRIER", "")).unwrap();
    let launch = Launch::new([1, 1, 1], [64, 1, 1], vec![Argument::buffer(0), Argument::buffer(0)]);
    let mut buffers = [Buffer::f32("x", &[1.0; 64])];
    let kernel = module.kernel("reverse").unwrap();
    let refused = kernel.trace(&launch, &mut buffers, &Config::default(), &filter([1, 0, 0]));
    assert!(refused.unwrap_err().message.contains("out of range"));
}

/// The trace of one block of a kernel `k` in PTX, with one buffer of 64 words, `x`.
fn trace_of(threads: u32, registers: &str, body: &str) -> (Outcome, Trace) {
    let text = format!(
        ".version 8.0
        .target sm_80
        .address_size 64
        .visible .entry k(.param .u64 x)
        {{
        {registers}
        .reg .b64 %x;
        ld.param.u64 %x, [x];
        {body}
        ret;
        }}"
    );
    let module = Module::parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let values: Vec<f32> = (0..64).map(|i| i as f32).collect();
    let mut buffers = [Buffer::f32("x", &values)];
    let launch = Launch::new([1, 1, 1], [threads, 1, 1], vec![Argument::buffer(0)]);
    let kernel = module.kernel("k").unwrap_or_else(|error| panic!("{error}\n{text}"));
    let filter = TraceFilter::new([0; 3], "");
    kernel.trace(&launch, &mut buffers, &Config::default(), &filter).unwrap()
}

/// Kind, name of the memory, lanes, and the offset and first byte of the last lane, of each
/// request.
fn requests(trace: &Trace) -> Vec<(RequestKind, &str, u32, u64, u8)> {
    let each = trace.steps.iter().flat_map(Step::requests).map(|request| {
        let (_, offset, data) = request.accesses().last().unwrap();
        let memory = &trace.memories[request.memory as usize];
        (request.kind, memory.name.as_str(), request.lanes.count_ones(), offset, data[0])
    });
    each.collect()
}

#[test]
fn local_memory_has_its_own_offsets() {
    let registers = ".local .align 4 .b8 depot[16]; .reg .b32 %r<3>; .reg .b64 %local;";
    let body = "
        mov.u32 %r1, 7;
        st.local.u32 [depot+8], %r1;
        mov.u64 %local, depot;
        cvta.local.u64 %local, %local;
        ld.u32 %r2, [%local+8];
        st.global.u32 [%x+4], %r2;
        ld.local.u32 %r2, [depot+12];";
    let (outcome, trace) = trace_of(1, registers, body);
    let local = |kind| (kind, "local memory", 1, 8, 7);
    assert_eq!(
        requests(&trace),
        [
            local(RequestKind::Store),
            local(RequestKind::Load),
            (RequestKind::Store, "x", 1, 4, 7),
            (RequestKind::Load, "local memory", 1, 12, 0),
        ]
    );
    let finding = outcome.error().unwrap();
    assert_eq!(finding.element.as_deref(), Some("local memory at byte 12"));
    let step = trace.steps.iter().find(|step| step.findings().next().is_some()).unwrap();
    assert_eq!(step.requests().next().unwrap().offsets, [12]);
}

#[test]
fn asynchronous_copies_have_the_values_of_their_source() {
    let registers = ".shared .align 16 .b8 s[64]; .reg .b32 %r<4>;";
    let body = "
        mov.u32 %r1, s;
        cp.async.ca.shared.global [%r1+16], [%x+20], 4;
        mov.u32 %r2, 0;
        cp.async.ca.shared.global [%r1+32], [%x+4], 4, %r2;
        cp.async.commit_group;
        cp.async.wait_group 0;
        ld.shared.u32 %r3, [%r1+16];";
    let (outcome, trace) = trace_of(1, registers, body);
    assert!(outcome.error().is_none(), "{:?}", outcome.diagnostics);
    // x[5] is 5.0, bytes 00 00 a0 40.
    let bytes: Vec<(RequestKind, u64, &[u8])> = trace
        .steps
        .iter()
        .flat_map(Step::requests)
        .map(|request| (request.kind, request.offsets[0], &request.data[..]))
        .collect();
    let five = 5f32.to_le_bytes();
    let expected = [
        (RequestKind::CopyFrom, 20, &five[..]),
        (RequestKind::CopyTo, 16, &five),
        (RequestKind::CopyTo, 32, &[0; 4]),
        (RequestKind::Load, 16, &five),
    ];
    assert_eq!(bytes, expected);
    let syncs: Vec<_> = trace.steps.iter().flat_map(|step| &step.events).filter_map(|event| event.sync).collect();
    assert_eq!(syncs, [Sync::Copies]);
    assert_eq!(of_memory(trace.counters()), of_memory(outcome.counters));
}

#[test]
fn matrix_instructions_have_the_requests_of_their_lanes() {
    let registers = ".shared .align 128 .b8 s[512]; .reg .b32 %r<8>, %c<8>;";
    let body = "
        mov.u32 %r1, %tid.x;
        mov.u32 %r2, s;
        shl.b32 %r3, %r1, 4;
        add.u32 %r3, %r2, %r3;
        st.shared.v4.u32 [%r3], {%r1, %r1, %r1, %r1};
        bar.warp.sync 0xffffffff;
        ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r4}, [%r3];
        mov.u32 %r5, 16;
        wmma.load.a.sync.aligned.row.m16n16k16.shared.f16 {%c0, %c1, %c2, %c3, %c4, %c5, %c6, %c7}, [%r2], %r5;";
    let (outcome, trace) = trace_of(32, registers, body);
    assert!(outcome.error().is_none(), "{:?}", outcome.diagnostics);
    let all = requests(&trace);
    // 32 lanes store 16 bytes each.
    assert_eq!(all[0], (RequestKind::Store, "s", 32, 496, 31));
    // Eight lanes address the rows of one 8×8 matrix of f16.
    assert_eq!(all[1], (RequestKind::Load, "s", 8, 112, 7));
    // Of 16 × 16 elements of f16, each is loaded.
    let loads: Vec<_> = trace.steps.iter().flat_map(Step::requests).skip(2).collect();
    let touched: std::collections::BTreeSet<u64> = loads
        .iter()
        .flat_map(|request| request.offsets.iter().flat_map(|&at| at..at + u64::from(request.bytes)))
        .collect();
    assert!(loads.iter().all(|request| request.kind == RequestKind::Load));
    assert!(touched.into_iter().eq(0..512));
    assert_eq!(of_memory(trace.counters()), of_memory(outcome.counters));
}
