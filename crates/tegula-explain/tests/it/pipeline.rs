//! What the timeline of a pipeline says, against what its kernel promises.

use tegula_core::element::{Type, bf16};
use tegula_core::{Layout, Shape};
use tegula_explain::page;
use tegula_explain::pipeline::{Costs, Kind, Row, Span, State, Timeline, Whom};
use tegula_explain::product::Product;
use tegula_explain::trace::{Deed, Doing, MOST, Sample, Trace, record};
use tegula_interp::{Arg, Buffer, Config};
use tegula_ir::check;
use tegula_ir::launch::DeviceFacts;
use tegula_kernels::{Family, Hopper, Plain};

const ORIGIN: [u32; 3] = [0; 3];

/// Few stages and many, one consumer and two, alone and in a cluster that shares B or k.
const PIPELINES: [&str; 7] = [
    "hopper_64x64x64_1_2_1",
    "hopper_64x128x64_1_3_1",
    "hopper_128x64x64_2_4_1",
    "hopper_128x128x64_2_3_2",
    "hopper_192x64x64_3_2_1",
    "hopper_64x64x64_1_4_1_k2",
    "hopper_128x64x64_2_2_1_k4",
];

fn trace(name: &str, sizes: [usize; 3]) -> Trace {
    let kernel = Hopper::named(name, Type::BF16).unwrap();
    Product::new(kernel, sizes).unwrap().trace(&Sample::default(), MOST).unwrap()
}

/// The same of ones, with this seed and on so few multiprocessors that blocks make several tiles of C.
fn on_few(name: &str, [m, n, k]: [usize; 3], seed: u64) -> Trace {
    let kernel = check(Hopper::named(name, Type::BF16).unwrap().build().unwrap()).unwrap();
    let ones = |rows, cols| Buffer::from_fn(Layout::row_major(Shape::new(rows, cols)).unwrap(), |_, _, _| bf16::ONE);
    let (a, b) = (ones(m, k).unwrap(), ones(k, n).unwrap());
    let c = Buffer::output(Type::BF16, Layout::row_major(Shape::new(m, n)).unwrap()).unwrap();
    let scalars = [1.0f32, 0.0].map(Arg::scalar);
    let args: Vec<Arg<'_>> = [&a, &b, &c].into_iter().map(Arg::from).chain(scalars).collect();
    let config = Config { seed, device: DeviceFacts { multiprocessors: 2 }, ..Config::default() };
    // Of a pipeline all is recorded; what else warps compute is much.
    let sample = Sample { warps: Some(vec![0]), ..Sample::default() };
    record(&kernel, &args, &config, &sample, MOST).unwrap()
}

fn timeline(trace: &Trace) -> Timeline {
    Timeline::of(trace, ORIGIN, Costs::USUAL).unwrap()
}

/// A row as text, a column each two characters.
fn drawn(row: &Row) -> String {
    let end = row.spans.iter().map(|span| span.columns[1]).max().unwrap_or(0);
    let cell = |column| {
        let span = row.spans.iter().find(|span| (span.columns[0]..span.columns[1]).contains(&column));
        span.map_or("  ".into(), |span| format!("{}{}", span.state.mark(), span.number))
    };
    format!("{}: {}", row.name, (0..end).map(cell).collect::<Vec<_>>().join(" "))
}

#[test]
fn two_stages_fill_and_drain_in_turn() {
    let timeline = timeline(&trace("hopper_64x64x64_1_2_1", [64, 64, 256]));
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
    let told: Vec<String> = timeline.who_waited().into_iter().flat_map(|t| [vec![t.busy], t.waits].concat()).collect();
    assert_eq!(
        told,
        [
            "producer (warp 0) asks in 4 of 18 columns",
            "waited 2 of 4 times at empty, 7 columns in all, for the consumer to hand the stage back",
            "consumer (warps 4 to 7) multiplies in 8 of 18 columns",
            "waited 1 of 1 times, 2 columns in all, for tiles of sums to be stored",
            "waited 3 of 4 times at full, 8 columns in all, for copies to come",
        ]
    );
    assert_eq!(
        (timeline.columns, timeline.stuck, timeline.arrays),
        (18, false, vec!["tile_a".into(), "tile_b".into()])
    );
}

#[test]
fn enough_stages_hide_the_copies() {
    let waits = |name: &str| {
        let timeline = timeline(&trace(name, [64, 64, 1024]));
        let for_copies = timeline.waits.iter().filter(|wait| wait.of == [Whom::Copies]);
        for_copies.map(|wait| (wait.times, wait.all, wait.columns)).collect::<Vec<_>>()
    };
    assert_eq!(waits("hopper_64x64x64_1_2_1"), [(15, 16, 32)]);
    // The first copies come to nobody sooner.
    assert_eq!(waits("hopper_64x64x64_1_3_1"), [(1, 16, 4)]);
    assert_eq!(waits("hopper_64x64x64_1_4_1"), [(1, 16, 4)]);
}

/// What is wrong with a timeline of so many k-steps in all.
fn broken(timeline: &Timeline, steps: usize) -> Option<String> {
    let overlap = |one: &Span, other: &Span| one.columns[0] < other.columns[1] && other.columns[0] < one.columns[1];
    let mut filled = 0;
    for row in &timeline.rows {
        let of = |state| row.spans.iter().filter(move |span| span.state == state);
        if row.spans.iter().enumerate().any(|(at, span)| row.spans[..at].iter().any(|before| overlap(before, span))) {
            return Some(format!("{} does two things at once: {}", row.name, drawn(row)));
        }
        match row.kind {
            Kind::Stage => {
                filled += of(State::Filling).count();
                for fill in of(State::Filling) {
                    let after =
                        row.spans.iter().find(|span| span.columns[0] >= fill.columns[1] && span.state != State::Full);
                    let drained =
                        after.is_some_and(|span| (span.state, span.number) == (State::Multiplying, fill.number));
                    if !drained {
                        return Some(format!(
                            "{} is filled with {} for nothing: {}",
                            row.name,
                            fill.number,
                            drawn(row)
                        ));
                    }
                }
            }
            Kind::Producer | Kind::Consumer => {
                // Nothing but asking, multiplying, sending and waiting takes time.
                let gap = row.spans.windows(2).find(|pair| pair[0].columns[1] != pair[1].columns[0]);
                if gap.is_some() || row.spans.first().is_none_or(|first| first.columns[0] != 0) {
                    return Some(format!("{} neither works nor waits: {}", row.name, drawn(row)));
                }
                let work = of(State::Asking).chain(of(State::Multiplying)).count();
                let waited: u32 = of(State::Waiting).map(Span::length).sum();
                let told: u32 = timeline.waits.iter().filter(|w| w.who == row.name).map(|wait| wait.columns).sum();
                if work != steps || waited != told {
                    return Some(format!("{} has {work} of {steps} steps, waited {waited} and says {told}", row.name));
                }
            }
            Kind::Stores => {}
        }
    }
    (timeline.stuck || filled != steps).then(|| format!("{filled} of {steps} fills, stuck: {}", timeline.stuck))
}

#[test]
fn no_stage_is_filled_while_it_is_multiplied_and_all_that_is_filled_is_drained() {
    for name in PIPELINES {
        let trace = on_few(name, [400, 264, 496], 3);
        let steps = 8 / name.rsplit_once("_k").map_or(1, |(_, blocks)| blocks.parse().unwrap());
        for block in trace.blocks() {
            let asked = Timeline::of(&trace, block, Costs::USUAL).unwrap().rows[0]
                .spans
                .iter()
                .filter(|span| span.state == State::Asking)
                .count();
            assert!(asked > steps && asked.is_multiple_of(steps), "several tiles of {steps} k-steps: {asked}");
            for costs in [
                Costs::USUAL,
                Costs { ask: 2, copy: 9, multiply: 1, store: 5, send: 3 },
                Costs { copy: 1, ..Costs::USUAL },
            ] {
                let timeline = Timeline::of(&trace, block, costs).unwrap();
                let wrong = broken(&timeline, asked);
                assert_eq!(wrong, None, "{name}, block {block:?}, {costs:?}");
            }
        }
    }
}

#[test]
fn without_waits_a_stage_is_filled_while_it_is_multiplied() {
    let mut trace = trace("hopper_64x64x64_1_2_1", [64, 64, 512]);
    let array = |name: &str| trace.header.shared.iter().position(|array| array.name == name).unwrap() as u32;
    let [empty, full] = ["empty", "full"].map(array);
    let all = trace.header.deeds.clone();
    let without =
        |gone: &dyn Fn(&Doing) -> bool| -> Vec<Deed> { all.iter().filter(|deed| !gone(&deed.does)).cloned().collect() };
    trace.header.deeds = without(&|does| matches!(does, Doing::Await { barrier, .. } if barrier[0] == empty));
    let wrong = broken(&timeline(&trace), 8).unwrap();
    assert!(wrong.starts_with("stage 0 does two things at once"), "{wrong}");
    trace.header.deeds = without(&|does| matches!(does, Doing::Await { barrier, .. } if barrier[0] == full));
    let wrong = broken(&timeline(&trace), 8).unwrap();
    assert!(wrong.starts_with("stage 0"), "{wrong}");
    // Nobody hands a stage back: the producer waits for ever.
    trace.header.deeds = without(&|does| matches!(does, Doing::Arrive { barrier, .. } if barrier[0] == empty));
    assert!(timeline(&trace).stuck);
}

#[test]
fn blocks_of_a_cluster_wait_for_each_other() {
    let mut trace = trace("hopper_128x128x64_2_3_2", [256, 128, 512]);
    let timeline = timeline(&trace);
    let of_producer = timeline.waits.iter().find(|wait| wait.who == "producer").unwrap();
    let names =
        ["consumer 0", "consumer 0 of block 1 of the cluster", "consumer 1", "consumer 1 of block 1 of the cluster"];
    assert_eq!(of_producer.of, names.map(|name| Whom::Row(name.into())));
    // What the other block multiplies is in its own memory.
    trace.header.deeds.retain(|deed| deed.block == ORIGIN || !matches!(deed.does, Doing::Multiply { .. }));
    let other = Timeline::of(&trace, [1, 0, 0], Costs::USUAL).unwrap();
    assert!(other.rows.iter().flat_map(|row| &row.spans).all(|span| span.state != State::Multiplying));
}

/// The timelines of all blocks of the first cluster.
fn of_cluster(trace: &Trace) -> Vec<Timeline> {
    let of = |block| Timeline::of(trace, [block, 0, 0], Costs::USUAL).unwrap();
    (0..trace.header.cluster).map(of).collect()
}

#[test]
fn blocks_that_share_k_wait_for_each_others_sums() {
    // Three steps: the first block has two, the second one.
    let trace = trace("hopper_64x64x64_1_4_1_k2", [64, 64, 192]);
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
    assert!(timelines[0].terms()[0].contains("there are 2, used in turn"));
    assert!(timelines[1].terms()[0].contains("the block uses one"));
    let consumer = timelines[1].who_waited().pop().unwrap();
    assert_eq!(consumer.busy, "consumer (warps 4 to 7) multiplies in 2, and sends in 2, of 12 columns");
    assert_eq!(
        consumer.waits,
        [
            "waited 1 of 1 times, 2 columns in all, for tiles of sums to be stored",
            "waited 1 of 1 times at full, 4 columns in all, for copies to come",
            "waited 1 of 1 times at came, 2 columns in all, for the other blocks' sums",
        ]
    );
    assert!(
        timelines.iter().all(|timeline| !timeline.stuck && timeline.terms().concat().contains(", to send sums 2; all"))
    );
    assert!(page::pipeline(&trace, [1, 0, 0], &timelines[1]).contains("&lt;0</text>"));
}

#[test]
fn blocks_without_a_step_of_their_own_send_and_store() {
    let trace = trace("hopper_64x64x64_1_2_1_k2", [64, 64, 64]);
    let timeline = &of_cluster(&trace)[1];
    assert_eq!(
        timeline.rows.iter().map(drawn).collect::<Vec<_>>(),
        ["consumer: <0 <0 .0 .0 .0 .0 .0 .0 .0 .0", "stores:                         ^0 ^0"]
    );
    assert!(timeline.terms()[0].starts_with("The block has no k-steps"));
}

/// What is stored before all sums have come, or sent before those before have been read.
fn early(timelines: &[Timeline]) -> Option<String> {
    let of = |timeline: &Timeline, kind, state| -> Vec<Vec<[u32; 2]>> {
        let rows = timeline.rows.iter().filter(|row| row.kind == kind);
        let spans = |row: &Row| row.spans.iter().filter(|span| span.state == state).map(|span| span.columns).collect();
        rows.map(spans).collect()
    };
    let sends: Vec<_> = timelines.iter().map(|timeline| of(timeline, Kind::Consumer, State::Sending)).collect();
    for (block, timeline) in timelines.iter().enumerate() {
        for (consumer, stores) in of(timeline, Kind::Stores, State::Storing).into_iter().enumerate() {
            let own = &sends[block][consumer];
            for tile in 0..own.len() {
                let come = sends.iter().map(|sends| sends[consumer][tile][1]).max().unwrap();
                let stored = stores[tile * stores.len() / own.len()][0];
                if stored < come {
                    return Some(format!("block {block} stores at {stored}, sums come at {come}"));
                }
                if let Some(next) = own.get(tile + 1).filter(|next| next[0] < come) {
                    return Some(format!("block {block} sends at {}, sums come at {come}", next[0]));
                }
            }
        }
    }
    None
}

#[test]
fn nothing_is_stored_before_its_sums_have_come() {
    for name in ["hopper_64x64x64_1_4_1_k2", "hopper_128x64x64_2_2_1_k4"] {
        let mut trace = on_few(name, [256, 128, 320], 1);
        let timelines = of_cluster(&trace);
        let sends = timelines[0].rows.iter().flat_map(|row| &row.spans).filter(|span| span.state == State::Sending);
        assert!(sends.count() > 2, "several tiles");
        assert!(timelines.iter().all(|timeline| !timeline.stuck));
        assert_eq!(early(&timelines), None, "{name}");
        // The same of kernels that are wrong.
        let all = trace.header.deeds.clone();
        let came = trace.header.shared.iter().position(|array| array.name == "came").unwrap() as u32;
        let mut without = |gone: &dyn Fn(&Doing) -> bool| -> Vec<Timeline> {
            trace.header.deeds = all.iter().filter(|deed| !gone(&deed.does)).cloned().collect();
            of_cluster(&trace)
        };
        let hasty = without(&|does| matches!(does, Doing::Await { barrier, .. } if barrier[0] == came));
        assert!(early(&hasty).is_some(), "{name}");
        let silent = without(&|does| matches!(does, Doing::Send { block: 0, .. }));
        assert!(silent[0].stuck, "nobody sends to the first block");
        let mut deeds = all.clone();
        let bytes = deeds.iter_mut().find_map(|deed| match &mut deed.does {
            Doing::Send { bytes, .. } => Some(bytes),
            _ => None,
        });
        *bytes.unwrap() -= 4;
        trace.header.deeds = deeds;
        assert!(of_cluster(&trace)[0].stuck, "a number is missing");
    }
}

#[test]
fn terms_say_what_numbers_count() {
    let again = |trace: &Trace| timeline(trace).terms().concat().contains("They begin again with each tile of C.");
    assert!(!again(&trace("hopper_64x64x64_1_2_1", [64, 64, 256])));
    assert!(again(&on_few("hopper_64x64x64_1_2_1", [64, 192, 256], 0)), "two tiles of the first block");
}

#[test]
fn the_timeline_is_the_same_for_every_seed() {
    for name in ["hopper_128x64x64_2_3_1", "hopper_128x128x64_2_2_2", "hopper_64x64x64_1_3_1_k2"] {
        let of = |seed| timeline(&on_few(name, [256, 256, 320], seed));
        let first = of(0);
        assert!((1..6).all(|seed| of(seed) == first), "{name}");
    }
}

#[test]
fn samples_leave_out_nothing_of_a_pipeline() {
    let product = Product::new(Hopper::named("hopper_128x64x64_2_4_1", Type::BF16).unwrap(), [128, 64, 512]).unwrap();
    let of = |sample: &Sample| timeline(&product.trace(sample, MOST).unwrap());
    let part = Sample { warps: Some(vec![4]), steps: Some([0, 1]), ..Sample::default() };
    assert_eq!(of(&part), of(&Sample::default()));
}

#[test]
fn files_keep_it_and_are_checked() {
    let trace = trace("hopper_128x128x64_2_2_2", [256, 128, 256]);
    let written = |trace: &Trace| {
        let mut bytes = Vec::new();
        trace.write(&mut bytes).unwrap();
        Trace::read(bytes.as_slice())
    };
    assert_eq!(written(&trace).unwrap(), trace);
    let spoiled = |deed: Deed| {
        let mut trace = trace.clone();
        trace.header.deeds[0] = deed;
        written(&trace).is_err()
    };
    let does = Doing::Store { tile: [0, 0] };
    let deed = Deed { block: ORIGIN, warp: 0, turn: None, does };
    assert!(!spoiled(deed.clone()));
    assert!(spoiled(Deed { warp: 32, ..deed.clone() }));
    assert!(spoiled(Deed { does: Doing::Store { tile: [99, 0] }, ..deed.clone() }));
    assert!(spoiled(Deed { does: Doing::Multiply { tiles: vec![[0, 0], [0, 99]] }, ..deed }));
    // Whoever reads a cluster of none, or of a million, draws what there is.
    for cluster in [0, 1_000_000] {
        let mut trace = trace.clone();
        trace.header.cluster = cluster;
        assert!(Timeline::of(&trace, ORIGIN, Costs::USUAL).is_some());
    }
}

#[test]
fn kernels_without_a_pipeline_have_no_timeline() {
    let trace = crate::launch::trace(Plain::new(Family::Tiled, Type::F32, 2), [4; 3]);
    assert_eq!((trace.header.deeds.len(), Timeline::of(&trace, ORIGIN, Costs::USUAL)), (0, None));
}

#[test]
fn the_guide_says_what_takes_how_long() {
    let guide = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide/README.md");
    let guide = std::fs::read_to_string(guide).unwrap().replace('\n', " ");
    let Costs { ask, copy, multiply, store, .. } = Costs::USUAL;
    let told =
        format!("takes {ask}, the copies {copy}, the products of a k-step {multiply}, storing a tile {store}, and");
    assert!(guide.contains(&told), "{told}");
}

#[test]
fn a_page_has_the_picture_and_the_words() {
    let trace = trace("hopper_64x64x64_1_2_1", [64, 64, 4096]);
    let timeline = timeline(&trace);
    let html = page::pipeline(&trace, ORIGIN, &timeline);
    assert_eq!(html.matches("<svg ").count(), timeline.columns.div_ceil(60) as usize);
    assert!(html.contains(">×63</text>") && html.contains("waited 63 of 64 times at full"));
    assert!(!html.contains("<script"));
    // What stands for parts of the page is in capitals.
    assert!(
        !html
            .split("/*")
            .skip(1)
            .any(|after| after.starts_with(|c: char| c.is_ascii_uppercase()) && !after.starts_with("The "))
    );
}
