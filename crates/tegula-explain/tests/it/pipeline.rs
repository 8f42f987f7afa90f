//! Pipeline timelines against the guarantees of their kernels.

use tegula_core::element::{Type, bf16};
use tegula_core::{Layout, Shape};
use tegula_explain::page;
use tegula_explain::pipeline::{Costs, Row, RowKind, Span, State, Timeline, WaitReason};
use tegula_explain::sample_launch::SampleLaunch;
use tegula_explain::trace::{MAX_VALUES, PipelineEvent, PipelineOp, Trace, TraceFilter, record};
use tegula_interp::{Arg, Buffer, Config};
use tegula_ir::check;
use tegula_ir::launch::DeviceProperties;
use tegula_kernels::{Hopper, Plain, PlainKind};

use crate::full;

const ORIGIN: [u32; 3] = [0; 3];

/// Few and many stages, one to three consumers, clusters with multicast and with split k.
const PIPELINES: [&str; 7] = [
    "hopper_64x64x64_consumers1_stages2",
    "hopper_64x128x64_consumers1_stages3",
    "hopper_128x64x64_consumers2_stages4",
    "hopper_128x128x64_consumers2_stages3_cluster2x1",
    "hopper_192x64x64_consumers3_stages2",
    "hopper_64x64x64_consumers1_stages4_clusterk2",
    "hopper_128x64x64_consumers2_stages2_clusterk4",
];

fn trace(name: &str, sizes: [usize; 3]) -> Trace {
    let kernel = Hopper::named(name, Type::BF16).unwrap();
    SampleLaunch::new(kernel, sizes).unwrap().trace(&TraceFilter::default(), MAX_VALUES).unwrap()
}

/// A trace of matrices of ones on two SMs, so that each block computes several tiles of C.
fn persistent_trace(name: &str, [m, n, k]: [usize; 3], seed: u64) -> Trace {
    let kernel = check(Hopper::named(name, Type::BF16).unwrap().build().unwrap()).unwrap();
    let ones = |rows, cols| Buffer::from_fn(Layout::row_major(Shape::new(rows, cols)).unwrap(), |_, _, _| bf16::ONE);
    let (a, b) = (ones(m, k).unwrap(), ones(k, n).unwrap());
    let c = Buffer::output(Type::BF16, Layout::row_major(Shape::new(m, n)).unwrap()).unwrap();
    let scalars = [1.0f32, 0.0].map(Arg::scalar);
    let args: Vec<Arg<'_>> = [&a, &b, &c].into_iter().map(Arg::from).chain(scalars).collect();
    let config = Config { seed, device: DeviceProperties { multiprocessors: 2 }, ..Config::default() };
    // The filter leaves pipeline operations in, and most others out.
    let filter = TraceFilter { warps: Some(vec![0]), ..TraceFilter::default() };
    record(&kernel, &args, &config, &filter, MAX_VALUES).unwrap()
}

fn timeline(trace: &Trace) -> Timeline {
    Timeline::of(trace, ORIGIN, Costs::DEFAULT).unwrap()
}

/// A row as text, with symbol and number of each column.
fn drawn(row: &Row) -> String {
    let end = row.spans.iter().map(|span| span.columns[1]).max().unwrap_or(0);
    let cell = |column| {
        let span = row.spans.iter().find(|span| (span.columns[0]..span.columns[1]).contains(&column));
        span.map_or("  ".into(), |span| format!("{}{}", span.state.symbol(), span.number))
    };
    format!("{}: {}", row.name, (0..end).map(cell).collect::<Vec<_>>().join(" "))
}

#[test]
fn timeline_of_two_stages_matches_hand_count() {
    let timeline = timeline(&trace("hopper_64x64x64_consumers1_stages2", [64, 64, 256]));
    let rows: Vec<String> = timeline.rows.iter().map(drawn).collect();
    assert_eq!(
        rows,
        [
            "producer: >0 >1 .0 .0 .0 .0 >2 .0 .0 .0 >3",
            "stage 0: ~0 ~0 ~0 ~0 ×0 ×0 ~2 ~2 ~2 ~2 ×2 ×2 -2 -2",
            "stage 1:    ~1 ~1 ~1 ~1 =1 ×1 ×1 -1 -1 ~3 ~3 ~3 ~3 ×3 ×3",
            "consumer: .0 .0 .0 .0 ×0 ×0 ×1 ×1 .0 .0 ×2 ×2 .0 .0 ×3 ×3 .0 .0",
            "stores:                                                 ^0 ^0",
        ]
    );
    let reports: Vec<String> =
        timeline.wait_reports().into_iter().flat_map(|t| [vec![t.activity], t.waits].concat()).collect();
    assert_eq!(
        reports,
        [
            "producer (warp 0) issues copies in 4 of 18 columns",
            "waited 2 of 4 times at empty, 7 columns in total, for the consumer to release the stage",
            "consumer (warps 4 to 7) multiplies in 8 of 18 columns",
            "waited 1 of 1 times, 2 columns in total, for its TMA stores",
            "waited 3 of 4 times at full, 8 columns in total, for copies",
        ]
    );
    assert_eq!(
        (timeline.columns, timeline.deadlocked, timeline.arrays),
        (18, false, vec!["tile_a".into(), "tile_b".into()])
    );
}

#[test]
fn three_stages_hide_the_copies() {
    let waits = |name: &str| {
        let timeline = timeline(&trace(name, [64, 64, 1024]));
        let for_copies = timeline.waits.iter().filter(|wait| wait.reasons == [WaitReason::Copies]);
        for_copies.map(|wait| (wait.count, wait.total, wait.columns)).collect::<Vec<_>>()
    };
    assert_eq!(waits("hopper_64x64x64_consumers1_stages2"), [(15, 16, 32)]);
    // The wait for the first copies remains.
    assert_eq!(waits("hopper_64x64x64_consumers1_stages3"), [(1, 16, 4)]);
    assert_eq!(waits("hopper_64x64x64_consumers1_stages4"), [(1, 16, 4)]);
}

/// The first inconsistency of a timeline of `steps` k-steps; `None` if it has none.
fn inconsistency(timeline: &Timeline, steps: usize) -> Option<String> {
    let overlap = |one: &Span, other: &Span| one.columns[0] < other.columns[1] && other.columns[0] < one.columns[1];
    let mut filled = 0;
    for row in &timeline.rows {
        let of = |state| row.spans.iter().filter(move |span| span.state == state);
        if row.spans.iter().enumerate().any(|(at, span)| row.spans[..at].iter().any(|before| overlap(before, span))) {
            return Some(format!("{}: overlapping spans: {}", row.name, drawn(row)));
        }
        match row.kind {
            RowKind::Stage => {
                filled += of(State::Filling).count();
                for fill in of(State::Filling) {
                    let after =
                        row.spans.iter().find(|span| span.columns[0] >= fill.columns[1] && span.state != State::Full);
                    let multiplied =
                        after.is_some_and(|span| (span.state, span.number) == (State::Multiplying, fill.number));
                    if !multiplied {
                        return Some(format!("{}: k-step {} is not multiplied: {}", row.name, fill.number, drawn(row)));
                    }
                }
            }
            RowKind::Producer | RowKind::Consumer => {
                // Spans have no gaps: only issuing, multiplying, sending and waiting take time.
                let gap = row.spans.windows(2).find(|pair| pair[0].columns[1] != pair[1].columns[0]);
                if gap.is_some() || row.spans.first().is_none_or(|first| first.columns[0] != 0) {
                    return Some(format!("{}: gap between spans: {}", row.name, drawn(row)));
                }
                let work = of(State::Issuing).chain(of(State::Multiplying)).count();
                let waited: u32 = of(State::Waiting).map(Span::length).sum();
                let reported: u32 = timeline.waits.iter().filter(|w| w.row == row.name).map(|wait| wait.columns).sum();
                if work != steps || waited != reported {
                    return Some(format!(
                        "{}: {work} of {steps} k-steps, waited {waited}, reported {reported}",
                        row.name
                    ));
                }
            }
            RowKind::Stores => {}
        }
    }
    (timeline.deadlocked || filled != steps)
        .then(|| format!("{filled} of {steps} fills, deadlocked: {}", timeline.deadlocked))
}

#[test]
fn every_fill_is_multiplied_before_the_next_fill_of_its_stage() {
    // In the quick run every second one.
    let (first, step) = if full() { (0, 1) } else { (1, 2) };
    for name in PIPELINES.into_iter().skip(first).step_by(step) {
        let trace = persistent_trace(name, [400, 264, 496], 3);
        let steps = 8 / name.rsplit_once("_clusterk").map_or(1, |(_, blocks)| blocks.parse().unwrap());
        for block in trace.blocks() {
            let issued = Timeline::of(&trace, block, Costs::DEFAULT).unwrap().rows[0]
                .spans
                .iter()
                .filter(|span| span.state == State::Issuing)
                .count();
            assert!(issued > steps && issued.is_multiple_of(steps), "several tiles of {steps} k-steps: {issued}");
            for costs in [
                Costs::DEFAULT,
                Costs { issue: 2, copy: 9, multiply: 1, store: 5, send: 3 },
                Costs { copy: 1, ..Costs::DEFAULT },
            ] {
                let timeline = Timeline::of(&trace, block, costs).unwrap();
                let wrong = inconsistency(&timeline, issued);
                assert_eq!(wrong, None, "{name}, block {block:?}, {costs:?}");
            }
        }
    }
}

#[test]
fn timeline_without_waits_overwrites_stages() {
    let mut trace = trace("hopper_64x64x64_consumers1_stages2", [64, 64, 512]);
    let array = |name: &str| trace.header.shared.iter().position(|array| array.name == name).unwrap() as u32;
    let [empty, full] = ["empty", "full"].map(array);
    let all = trace.header.pipeline.clone();
    let without = |removed: &dyn Fn(&PipelineOp) -> bool| -> Vec<PipelineEvent> {
        all.iter().filter(|event| !removed(&event.op)).cloned().collect()
    };
    trace.header.pipeline = without(&|op| matches!(op, PipelineOp::Wait { barrier, .. } if barrier[0] == empty));
    let wrong = inconsistency(&timeline(&trace), 8).unwrap();
    assert!(wrong.starts_with("stage 0: overlapping spans"), "{wrong}");
    trace.header.pipeline = without(&|op| matches!(op, PipelineOp::Wait { barrier, .. } if barrier[0] == full));
    let wrong = inconsistency(&timeline(&trace), 8).unwrap();
    assert!(wrong.starts_with("stage 0"), "{wrong}");
    // Without releases the producer waits forever.
    trace.header.pipeline = without(&|op| matches!(op, PipelineOp::Arrive { barrier, .. } if barrier[0] == empty));
    assert!(timeline(&trace).deadlocked);
}

#[test]
fn producer_waits_for_consumers_of_all_blocks_of_the_cluster() {
    let mut trace = trace("hopper_128x128x64_consumers2_stages3_cluster2x1", [256, 128, 512]);
    let timeline = timeline(&trace);
    let of_producer = timeline.waits.iter().find(|wait| wait.row == "producer").unwrap();
    let names =
        ["consumer 0", "consumer 0 of block 1 of the cluster", "consumer 1", "consumer 1 of block 1 of the cluster"];
    assert_eq!(of_producer.reasons, names.map(|name| WaitReason::Row(name.into())));
    // Products of this block do not appear in the timeline of another block.
    trace.header.pipeline.retain(|event| event.block == ORIGIN || !matches!(event.op, PipelineOp::Wgmma { .. }));
    let other = Timeline::of(&trace, [1, 0, 0], Costs::DEFAULT).unwrap();
    assert!(other.rows.iter().flat_map(|row| &row.spans).all(|span| span.state != State::Multiplying));
}

/// The timelines of all blocks of the first cluster.
fn of_cluster(trace: &Trace) -> Vec<Timeline> {
    let of = |block| Timeline::of(trace, [block, 0, 0], Costs::DEFAULT).unwrap();
    (0..trace.header.cluster).map(of).collect()
}

#[test]
fn blocks_that_split_k_wait_for_partial_sums() {
    // Three k-steps: the first block has two, the second one.
    let trace = trace("hopper_64x64x64_consumers1_stages4_clusterk2", [64, 64, 192]);
    let timelines = of_cluster(&trace);
    let rows = |timeline: &Timeline| timeline.rows.iter().map(drawn).collect::<Vec<_>>();
    assert_eq!(
        rows(&timelines[0]),
        [
            "producer: >0 >1",
            "stage 0: ~0 ~0 ~0 ~0 ×0 ×0",
            "stage 1:    ~1 ~1 ~1 ~1 =1 ×1 ×1",
            "consumer: .0 .0 .0 .0 ×0 ×0 ×1 ×1 <0 <0 .0 .0",
            "stores:                               ^0 ^0",
        ]
    );
    assert_eq!(
        rows(&timelines[1]),
        [
            "producer: >0",
            "stage 0: ~0 ~0 ~0 ~0 ×0 ×0",
            "consumer: .0 .0 .0 .0 ×0 ×0 <0 <0 .0 .0 .0 .0",
            "stores:                               ^0 ^0",
        ]
    );
    assert!(timelines[0].terms()[0].contains("the block cycles through 2"));
    assert!(timelines[1].terms()[0].contains("the block uses one"));
    let consumer = timelines[1].wait_reports().pop().unwrap();
    assert_eq!(consumer.activity, "consumer (warps 4 to 7) multiplies in 2 and sends in 2 of 12 columns");
    assert_eq!(
        consumer.waits,
        [
            "waited 1 of 1 times, 2 columns in total, for its TMA stores",
            "waited 1 of 1 times at full, 4 columns in total, for copies",
            "waited 1 of 1 times at came, 2 columns in total, for partial sums of other blocks",
        ]
    );
    assert!(
        timelines.iter().all(|timeline| !timeline.deadlocked && timeline.terms().concat().contains(", sending partial sums 2; all"))
    );
    assert!(page::pipeline(&trace, [1, 0, 0], &timelines[1]).contains("&lt;0</text>"));
}

#[test]
fn block_without_k_steps_sends_and_stores() {
    let trace = trace("hopper_64x64x64_consumers1_stages2_clusterk2", [64, 64, 64]);
    let timeline = &of_cluster(&trace)[1];
    assert_eq!(
        timeline.rows.iter().map(drawn).collect::<Vec<_>>(),
        ["consumer: <0 <0 .0 .0 .0 .0 .0 .0 .0 .0", "stores:                         ^0 ^0"]
    );
    assert!(timeline.terms()[0].starts_with("The block has no k-steps"));
}

/// The first store before its partial sums arrive, or send before the previous tile is reduced.
fn early_store(timelines: &[Timeline]) -> Option<String> {
    let of = |timeline: &Timeline, kind, state| -> Vec<Vec<[u32; 2]>> {
        let rows = timeline.rows.iter().filter(|row| row.kind == kind);
        let spans = |row: &Row| row.spans.iter().filter(|span| span.state == state).map(|span| span.columns).collect();
        rows.map(spans).collect()
    };
    let sends: Vec<_> = timelines.iter().map(|timeline| of(timeline, RowKind::Consumer, State::Sending)).collect();
    for (block, timeline) in timelines.iter().enumerate() {
        for (consumer, stores) in of(timeline, RowKind::Stores, State::Storing).into_iter().enumerate() {
            let own = &sends[block][consumer];
            for tile in 0..own.len() {
                let arrival = sends.iter().map(|sends| sends[consumer][tile][1]).max().unwrap();
                let stored = stores[tile * stores.len() / own.len()][0];
                if stored < arrival {
                    return Some(format!("block {block} stores at {stored}, partial sums arrive at {arrival}"));
                }
                if let Some(next) = own.get(tile + 1).filter(|next| next[0] < arrival) {
                    return Some(format!("block {block} sends at {}, partial sums arrive at {arrival}", next[0]));
                }
            }
        }
    }
    None
}

#[test]
fn stores_follow_the_arrival_of_partial_sums() {
    for name in ["hopper_64x64x64_consumers1_stages4_clusterk2", "hopper_128x64x64_consumers2_stages2_clusterk4"] {
        let mut trace = persistent_trace(name, [256, 128, 320], 1);
        let timelines = of_cluster(&trace);
        let sends = timelines[0].rows.iter().flat_map(|row| &row.spans).filter(|span| span.state == State::Sending);
        assert!(sends.count() > 2, "several tiles");
        assert!(timelines.iter().all(|timeline| !timeline.deadlocked));
        assert_eq!(early_store(&timelines), None, "{name}");
        // Kernels without the wait, a send or 4 bytes of it.
        let all = trace.header.pipeline.clone();
        let came = trace.header.shared.iter().position(|array| array.name == "came").unwrap() as u32;
        let mut without = |removed: &dyn Fn(&PipelineOp) -> bool| -> Vec<Timeline> {
            trace.header.pipeline = all.iter().filter(|event| !removed(&event.op)).cloned().collect();
            of_cluster(&trace)
        };
        let unsynchronized = without(&|op| matches!(op, PipelineOp::Wait { barrier, .. } if barrier[0] == came));
        assert!(early_store(&unsynchronized).is_some(), "{name}");
        let without_send = without(&|op| matches!(op, PipelineOp::DsmemStore { block: 0, .. }));
        assert!(without_send[0].deadlocked, "no partial sums for the first block");
        let mut events = all.clone();
        let bytes = events.iter_mut().find_map(|event| match &mut event.op {
            PipelineOp::DsmemStore { bytes, .. } => Some(bytes),
            _ => None,
        });
        *bytes.unwrap() -= 4;
        trace.header.pipeline = events;
        assert!(of_cluster(&trace)[0].deadlocked, "4 bytes are missing");
    }
}

#[test]
fn terms_explain_numbers() {
    let restarts = |trace: &Trace| timeline(trace).terms().concat().contains("They start over with each tile of C.");
    assert!(!restarts(&trace("hopper_64x64x64_consumers1_stages2", [64, 64, 256])));
    assert!(
        restarts(&persistent_trace("hopper_64x64x64_consumers1_stages2", [64, 192, 256], 0)),
        "two tiles of the first block"
    );
}

#[test]
fn timeline_is_independent_of_the_seed() {
    for name in [
        "hopper_128x64x64_consumers2_stages3",
        "hopper_128x128x64_consumers2_stages2_cluster2x1",
        "hopper_64x64x64_consumers1_stages3_clusterk2",
    ] {
        let of = |seed| timeline(&persistent_trace(name, [256, 256, 320], seed));
        let first = of(0);
        assert!((1..if full() { 6 } else { 2 }).all(|seed| of(seed) == first), "{name}");
    }
}

#[test]
fn filter_keeps_all_pipeline_events() {
    let launch =
        SampleLaunch::new(Hopper::named("hopper_128x64x64_consumers2_stages4", Type::BF16).unwrap(), [128, 64, 512])
            .unwrap();
    let of = |filter: &TraceFilter| timeline(&launch.trace(filter, MAX_VALUES).unwrap());
    let part = TraceFilter { warps: Some(vec![4]), steps: Some([0, 1]), ..TraceFilter::default() };
    assert_eq!(of(&part), of(&TraceFilter::default()));
}

#[test]
fn trace_file_keeps_and_checks_pipeline_events() {
    let trace = trace("hopper_128x128x64_consumers2_stages2_cluster2x1", [256, 128, 256]);
    let written = |trace: &Trace| {
        let mut bytes = Vec::new();
        trace.write(&mut bytes).unwrap();
        Trace::read(bytes.as_slice())
    };
    assert_eq!(written(&trace).unwrap(), trace);
    let is_rejected = |event: PipelineEvent| {
        let mut trace = trace.clone();
        trace.header.pipeline[0] = event;
        written(&trace).is_err()
    };
    let op = PipelineOp::TmaStore { tile: [0, 0] };
    let event = PipelineEvent { block: ORIGIN, warp: 0, iteration: None, op };
    assert!(!is_rejected(event.clone()));
    assert!(is_rejected(PipelineEvent { warp: 32, ..event.clone() }));
    assert!(is_rejected(PipelineEvent { op: PipelineOp::TmaStore { tile: [99, 0] }, ..event.clone() }));
    assert!(is_rejected(PipelineEvent { op: PipelineOp::Wgmma { tiles: vec![[0, 0], [0, 99]] }, ..event }));
    // Cluster sizes out of range do not fail.
    for cluster in [0, 1_000_000] {
        let mut trace = trace.clone();
        trace.header.cluster = cluster;
        assert!(Timeline::of(&trace, ORIGIN, Costs::DEFAULT).is_some());
    }
}

#[test]
fn kernel_without_a_pipeline_has_no_timeline() {
    let trace = crate::launch::trace(Plain::new(PlainKind::Tiled, Type::F32, 2), [4; 3]);
    assert_eq!((trace.header.pipeline.len(), Timeline::of(&trace, ORIGIN, Costs::DEFAULT)), (0, None));
}

#[test]
fn guide_states_the_default_costs() {
    let guide = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide/README.md");
    let guide = std::fs::read_to_string(guide).unwrap().replace('\n', " ");
    let Costs { issue, copy, multiply, store, .. } = Costs::DEFAULT;
    let costs =
        format!("takes {issue}, a copy {copy}, the products of a k-step {multiply}, storing a tile {store}, and");
    assert!(guide.contains(&costs), "{costs}");
}

#[test]
fn page_has_pictures_and_wait_reports() {
    let trace = trace("hopper_64x64x64_consumers1_stages2", [64, 64, 4096]);
    let timeline = timeline(&trace);
    let html = page::pipeline(&trace, ORIGIN, &timeline);
    assert_eq!(html.matches("<svg ").count(), timeline.columns.div_ceil(60) as usize);
    assert!(html.contains(">×63</text>") && html.contains("waited 63 of 64 times at full"));
    assert!(!html.contains("<script"));
    // Placeholders of the template are in capitals.
    assert!(
        !html
            .split("/*")
            .skip(1)
            .any(|after| after.starts_with(|c: char| c.is_ascii_uppercase()) && !after.starts_with("The "))
    );
}
