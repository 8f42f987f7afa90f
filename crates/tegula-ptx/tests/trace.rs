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
