use tegula_core::element::Type;
use tegula_explain::Error;
use tegula_explain::formula::{Element, stored, terms};
use tegula_explain::profile::PerThread;
use tegula_explain::trace::{OperationKind, PhaseKind, Trace, TraceFilter};
use tegula_kernels::{Barriers, Edges, Mapping, Plain, PlainKind};

use crate::launch::{launch, profile, trace};

fn plain(family: PlainKind, tile: u32) -> Plain {
    Plain::new(family, Type::F32, tile)
}

/// The 4×4 product with tiles of 2×2.
fn four() -> Trace {
    trace(plain(PlainKind::Tiled, 2), [4; 3])
}

#[test]
fn phases_of_the_tiled_kernel() {
    use PhaseKind::{Load, Multiply, Slide, Store, Wait};
    let phases: Vec<(PhaseKind, Option<u32>)> =
        four().header.phases.iter().map(|phase| (phase.kind, phase.step)).collect();
    let step = |step| [Load, Wait, Multiply, Wait].map(|kind| (kind, Some(step)));
    let all = [step(0).to_vec(), vec![(Slide, Some(1))], step(1).to_vec(), vec![(Store, None)]].concat();
    assert_eq!(phases, all);
}

#[test]
fn terms_of_c00() {
    let (trace, origin) = (four(), [0; 3]);
    let terms = terms(&trace, origin, origin);
    let element = |matrix, row, col| Some(Element { matrix, at: [0, row, col] });
    for (p, term) in terms.iter().enumerate() {
        assert_eq!(term.operands, [element(0, 0, p as u64), element(1, p as u64, 0)]);
        assert_eq!(term.step, Some(p as u32 / 2));
    }
    let accumulators: Vec<f32> = terms.iter().map(|term| f32::from_bits(term.accumulator as u32)).collect();
    assert_eq!(accumulators, [1., 11., 38., 90.], "1·1 + 2·5 + 3·9 + 4·13");
    let stored = stored(&trace, origin, origin);
    assert_eq!(
        (stored.len(), stored[0].element, stored[0].bits),
        (1, element(2, 0, 0).unwrap(), 90f32.to_bits().into())
    );
}

#[test]
fn naive_kernel_has_the_terms_of_the_tiled_kernel() {
    let naive = trace(plain(PlainKind::Naive, 2), [4; 3]);
    let tiled = four();
    for (block, thread) in [([0; 3], [1, 0, 0]), ([1, 1, 0], [1, 1, 0])] {
        let terms_of = |trace: &Trace| {
            terms(trace, block, thread).into_iter().map(|t| (t.operands, t.accumulator)).collect::<Vec<_>>()
        };
        assert_eq!(terms_of(&naive), terms_of(&tiled));
        assert!(terms_of(&naive).iter().flat_map(|f| f.0).all(|operand| operand.is_some()));
    }
    assert!(
        !naive.header.operations.iter().any(|op| matches!(op.kind, OperationKind::SharedLoad | OperationKind::Barrier))
    );
}

#[test]
fn zero_fill_has_no_origin() {
    let trace = trace(plain(PlainKind::Tiled, 2), [3, 3, 3]);
    let terms = terms(&trace, [0; 3], [0; 3]);
    let known: Vec<bool> = terms.iter().map(|term| term.operands.iter().all(Option::is_some)).collect();
    assert_eq!(known, [true, true, true, false]);
    assert_eq!(stored(&trace, [1, 1, 0], [1, 1, 0]), [], "row 3 of 3 is out of bounds");
}

#[test]
fn terms_of_each_type_and_mapping() {
    for mapping in [Mapping::XCol, Mapping::XRow] {
        for ty in [Type::F64, Type::I32, Type::I8, Type::F16] {
            let trace = trace(Plain { mapping, ..Plain::new(PlainKind::Tiled, ty, 4) }, [5, 6, 7]);
            let (thread, [row, col]) = ([3, 1, 0], if mapping == Mapping::XCol { [1, 3] } else { [3, 1] });
            let terms = terms(&trace, [0; 3], thread);
            let element = |matrix, row, col| Some(Element { matrix, at: [0, row, col] });
            let expected = (0..8).map(|p| if p < 7 { [element(0, row, p), element(1, p, col)] } else { [None; 2] });
            assert!(terms.iter().map(|term| term.operands).eq(expected), "{}", trace.header.kernel);
        }
    }
}

#[test]
fn events_have_sectors_wavefronts_and_conflicts() {
    let trace = trace(Plain { mapping: Mapping::XRow, ..plain(PlainKind::Tiled, 16) }, [16; 3]);
    let transactions = |kind| -> Vec<(u32, u32)> {
        let events = trace.events.iter().filter(|event| trace.header.operation(event.tick).kind == kind);
        events.map(|event| (event.transactions, event.conflicts)).collect()
    };
    assert!(transactions(OperationKind::GlobalLoad).iter().all(|&cost| cost == (16, 0)));
    assert!(transactions(OperationKind::SharedStore).iter().all(|&cost| cost == (8, 7)));
    let counters = trace.header.counters;
    let sum = |kind| transactions(kind).iter().map(|&(count, _)| u64::from(count)).sum::<u64>();
    assert_eq!(sum(OperationKind::GlobalLoad), counters.global_load_sectors);
    assert_eq!(sum(OperationKind::SharedLoad), counters.shared_load_wavefronts);
    assert_eq!(sum(OperationKind::SharedStore), counters.shared_store_wavefronts);
    assert_eq!(sum(OperationKind::GlobalStore), counters.global_store_sectors);
}

#[test]
fn finding_has_its_tick() {
    let racing = Plain { barriers: Barriers::NoFirst, ..plain(PlainKind::Tiled, 2) };
    let trace = trace(racing, [4; 3]);
    let race = trace.header.findings.iter().find(|finding| finding.kind == "race").unwrap();
    let operation = trace.header.operation(race.tick.unwrap());
    assert_eq!((operation.kind, race.threads.len()), (OperationKind::SharedLoad, 2));
    assert_eq!(trace.header.sites[operation.site as usize].line, race.lines[0].1);

    let unguarded = Plain { edges: Edges::Unguarded, ..plain(PlainKind::Tiled, 2) };
    let trace = crate::launch::trace(unguarded, [3; 3]);
    let outside = |kind| {
        let ticks = trace.header.findings.iter().filter(|f| f.kind == "out-of-bounds").filter_map(|f| f.tick);
        ticks.filter(|&tick| trace.header.operation(tick).kind == kind).count()
    };
    assert_eq!(
        [OperationKind::GlobalLoad, OperationKind::GlobalStore, OperationKind::SharedLoad].map(outside),
        [2, 1, 0]
    );
}

#[test]
fn trace_file_round_trips_and_rejects_damage() {
    let traces = [
        four(),
        trace(plain(PlainKind::Naive, 4), [5, 3, 2]),
        trace(Plain::new(PlainKind::Tiled, Type::I8, 4), [3, 9, 5]),
    ];
    for trace in traces {
        let mut bytes = Vec::new();
        trace.write(&mut bytes).unwrap();
        assert_eq!(Trace::read(&bytes[..]).unwrap(), trace);
        for length in 0..bytes.len() {
            assert!(matches!(Trace::read(&bytes[..length]), Err(Error::InvalidTrace(_))), "{length} bytes");
        }
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x55;
            // Damage may go undetected, but must not panic.
            _ = Trace::read(&damaged[..]);
        }
    }
}

#[test]
fn trace_file_with_positions_out_of_range_is_rejected() {
    let corruptions: [fn(&mut Trace); 6] = [
        |trace| trace.events[0].elements[0] = 16,
        |trace| trace.events.iter_mut().for_each(|event| event.warp = 32),
        |trace| trace.header.matrices[0].shape = [1, u64::MAX, 3],
        |trace| trace.header.matrices[1].first_origin = u64::MAX,
        |trace| trace.header.matrices[0].initial.truncate(15),
        |trace| trace.header.block = [u32::MAX, 2, 1],
    ];
    for (at, corrupt) in corruptions.into_iter().enumerate() {
        let (mut trace, mut bytes) = (four(), Vec::new());
        corrupt(&mut trace);
        trace.write(&mut bytes).unwrap();
        assert!(matches!(Trace::read(&bytes[..]), Err(Error::InvalidTrace(_))), "{at}");
    }
}

#[test]
fn filter_selects_blocks_warps_and_steps() {
    let launch = launch(plain(PlainKind::Tiled, 8), [64; 3]);
    let filter = TraceFilter { blocks: Some(vec![[1, 2, 0]]), warps: Some(vec![1]), steps: Some([3, 5]) };
    let trace = launch.trace(&filter, usize::MAX).unwrap();
    assert!(trace.events.iter().all(|event| (event.block, event.warp) == ([1, 2, 0], 1)));
    let steps = trace.header.ticks.iter().map(|tick| tick.step);
    assert!(steps.clone().all(|step| matches!(step, None | Some(3 | 4))) && steps.clone().any(|step| step == Some(4)));
    // Stores of the other warp are not recorded, but provenance includes them.
    assert!(terms(&trace, [1, 2, 0], [0, 4, 0]).iter().all(|term| term.operands.iter().all(Option::is_some)));
    assert!(matches!(launch.trace(&TraceFilter::default(), 1000), Err(Error::TraceTooLarge { limit: 1000 })));
}

#[test]
fn profile_of_naive_and_tiled() {
    let of = |family| profile(plain(family, 2), [4; 3]);
    let (naive, tiled) = (of(PlainKind::Naive), of(PlainKind::Tiled));
    let threads = PerThread { global_loads: 8, global_stores: 1, fma: 4, ..PerThread::default() };
    assert_eq!((naive.per_thread, naive.steps, naive.barriers_per_block), (threads, 4, 0));
    let threads = PerThread { global_loads: 4, shared_stores: 4, shared_loads: 8, ..threads };
    assert_eq!((tiled.per_thread, tiled.steps, tiled.barriers_per_block), (threads, 2, 4));
    assert_eq!(tiled.outcome.grid, [2, 2, 1]);
    let extra = Plain { barriers: Barriers::Extra, ..plain(PlainKind::Tiled, 2) };
    assert_eq!(profile(extra, [4; 3]).barriers_per_block, 6);
    for (tile, k) in [(2, 7), (4, 7), (8, 20), (16, 40)] {
        let profile = profile(plain(PlainKind::Tiled, tile), [tile as usize, tile as usize, k]);
        let (steps, tile) = (k.div_ceil(tile as usize) as u64, u64::from(tile));
        let PerThread { global_loads, shared_loads, .. } = profile.per_thread;
        assert_eq!((profile.steps, global_loads, shared_loads), (steps, 2 * steps, 2 * tile * steps));
        assert_eq!(profile.barriers_per_block, 2 * steps);
    }
}

#[test]
fn result_error_describes_wrong_and_missing_elements() {
    let error = |edges, barriers, sizes| {
        let launch = launch(Plain { edges, barriers, ..plain(PlainKind::Tiled, 2) }, sizes);
        launch.profile().unwrap();
        launch.result_error()
    };
    assert_eq!(error(Edges::Guarded, Barriers::Both, [5, 6, 7]), None);
    assert_eq!(error(Edges::Floor, Barriers::Both, [4, 4, 4]), None);
    let floor = error(Edges::Floor, Barriers::Both, [5, 4, 5]).unwrap();
    // c[0,0] = 1·1 + 2·5 + 3·9 + 4·13 + 5·17 lacks its last product, and row 4 is not computed.
    assert_eq!(
        floor,
        "c[0,0] is 90 and should be 175; 16 of 20 elements are wrong. c[4,0] was never written; 4 of 20 elements are missing."
    );
}
