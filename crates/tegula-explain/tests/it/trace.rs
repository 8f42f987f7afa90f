use tegula_core::element::Type;
use tegula_explain::Error;
use tegula_explain::formula::{Element, stored, terms};
use tegula_explain::profile::PerThread;
use tegula_explain::trace::{Acts, Does, Sample, Trace};
use tegula_kernels::{Barriers, Edges, Family, Mapping, Plain};

use crate::launch::{product, profile, trace};

fn plain(family: Family, tile: u32) -> Plain {
    Plain::new(family, Type::F32, tile)
}

/// The 4×4 product with tiles of 2×2.
fn four() -> Trace {
    trace(plain(Family::Tiled, 2), [4; 3])
}

#[test]
fn a_tiled_product_loads_waits_multiplies_waits_slides_and_stores() {
    use Acts::{Load, Multiply, Slide, Store, Wait};
    let acts: Vec<(Acts, Option<u32>)> = four().header.acts.iter().map(|act| (act.does, act.step)).collect();
    let step = |step| [Load, Wait, Multiply, Wait].map(|does| (does, Some(step)));
    let all = [step(0).to_vec(), vec![(Slide, Some(1))], step(1).to_vec(), vec![(Store, None)]].concat();
    assert_eq!(acts, all);
}

#[test]
fn c00_is_two_partial_sums_of_two_products() {
    let (trace, origin) = (four(), [0; 3]);
    let terms = terms(&trace, origin, origin);
    let element = |matrix, row, col| Some(Element { matrix, at: [0, row, col] });
    for (p, term) in terms.iter().enumerate() {
        assert_eq!(term.factors, [element(0, 0, p as u64), element(1, p as u64, 0)]);
        assert_eq!(term.step, Some(p as u32 / 2));
    }
    let sums: Vec<f32> = terms.iter().map(|term| f32::from_bits(term.sum as u32)).collect();
    assert_eq!(sums, [1., 11., 38., 90.], "1·1 + 2·5 + 3·9 + 4·13");
    let stored = stored(&trace, origin, origin);
    assert_eq!(
        (stored.len(), stored[0].element, stored[0].bits),
        (1, element(2, 0, 0).unwrap(), 90f32.to_bits().into())
    );
}

#[test]
fn the_naive_kernel_has_the_same_formula_without_shared_memory() {
    let naive = trace(plain(Family::Naive, 2), [4; 3]);
    let tiled = four();
    for (block, thread) in [([0; 3], [1, 0, 0]), ([1, 1, 0], [1, 1, 0])] {
        let factors =
            |trace: &Trace| terms(trace, block, thread).into_iter().map(|t| (t.factors, t.sum)).collect::<Vec<_>>();
        assert_eq!(factors(&naive), factors(&tiled));
        assert!(factors(&naive).iter().flat_map(|f| f.0).all(|factor| factor.is_some()));
    }
    assert!(!naive.header.operations.iter().any(|op| matches!(op.does, Does::SharedLoad | Does::Barrier)));
}

#[test]
fn what_lies_beyond_an_edge_is_nobodys_copy() {
    let trace = trace(plain(Family::Tiled, 2), [3, 3, 3]);
    let terms = terms(&trace, [0; 3], [0; 3]);
    let known: Vec<bool> = terms.iter().map(|term| term.factors.iter().all(Option::is_some)).collect();
    assert_eq!(known, [true, true, true, false]);
    assert_eq!(stored(&trace, [1, 1, 0], [1, 1, 0]), [], "row 3 of 3 is not written");
}

#[test]
fn any_type_and_mapping_has_its_formula() {
    for mapping in [Mapping::XCol, Mapping::XRow] {
        for ty in [Type::F64, Type::I32, Type::I8, Type::F16] {
            let trace = trace(Plain { mapping, ..Plain::new(Family::Tiled, ty, 4) }, [5, 6, 7]);
            let (thread, [row, col]) = ([3, 1, 0], if mapping == Mapping::XCol { [1, 3] } else { [3, 1] });
            let terms = terms(&trace, [0; 3], thread);
            let factor = |matrix, row, col| Some(Element { matrix, at: [0, row, col] });
            let expected = (0..8).map(|p| if p < 7 { [factor(0, row, p), factor(1, p, col)] } else { [None; 2] });
            assert!(terms.iter().map(|term| term.factors).eq(expected), "{}", trace.header.kernel);
        }
    }
}

#[test]
fn requests_carry_what_they_cost() {
    let trace = trace(Plain { mapping: Mapping::XRow, ..plain(Family::Tiled, 16) }, [16; 3]);
    let passes = |does| -> Vec<(u32, u32)> {
        let events = trace.events.iter().filter(|event| trace.header.operation(event.moment).does == does);
        events.map(|event| (event.passes, event.conflicts)).collect()
    };
    assert!(passes(Does::GlobalLoad).iter().all(|&cost| cost == (16, 0)));
    assert!(passes(Does::SharedStore).iter().all(|&cost| cost == (8, 7)));
    let counters = trace.header.counters;
    let sum = |does| passes(does).iter().map(|&(passes, _)| u64::from(passes)).sum::<u64>();
    assert_eq!(sum(Does::GlobalLoad), counters.global_load_sectors);
    assert_eq!(sum(Does::SharedLoad), counters.shared_load_wavefronts);
    assert_eq!(sum(Does::SharedStore), counters.shared_store_wavefronts);
    assert_eq!(sum(Does::GlobalStore), counters.global_store_sectors);
}

#[test]
fn a_finding_has_its_moment() {
    let racing = Plain { barriers: Barriers::NoFirst, ..plain(Family::Tiled, 2) };
    let trace = trace(racing, [4; 3]);
    let race = trace.header.findings.iter().find(|finding| finding.kind == "race").unwrap();
    let operation = trace.header.operation(race.moment.unwrap());
    assert_eq!((operation.does, race.threads.len()), (Does::SharedLoad, 2));
    assert_eq!(trace.header.sites[operation.site as usize].line, race.lines[0].1);

    let unguarded = Plain { edges: Edges::Unguarded, ..plain(Family::Tiled, 2) };
    let trace = crate::launch::trace(unguarded, [3; 3]);
    let outside = |does| {
        let moments = trace.header.findings.iter().filter(|f| f.kind == "out-of-bounds").filter_map(|f| f.moment);
        moments.filter(|&moment| trace.header.operation(moment).does == does).count()
    };
    assert_eq!([Does::GlobalLoad, Does::GlobalStore, Does::SharedLoad].map(outside), [2, 1, 0]);
}

#[test]
fn a_file_holds_the_whole_trace_and_nothing_else_is_read() {
    let traces =
        [four(), trace(plain(Family::Naive, 4), [5, 3, 2]), trace(Plain::new(Family::Tiled, Type::I8, 4), [3, 9, 5])];
    for trace in traces {
        let mut bytes = Vec::new();
        trace.write(&mut bytes).unwrap();
        assert_eq!(Trace::read(&bytes[..]).unwrap(), trace);
        for length in 0..bytes.len() {
            assert!(matches!(Trace::read(&bytes[..length]), Err(Error::Unreadable(_))), "{length} bytes");
        }
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x55;
            // Damage may go unnoticed; it may not end the program.
            _ = Trace::read(&damaged[..]);
        }
    }
}

#[test]
fn a_file_that_speaks_of_what_is_not_there_is_not_read() {
    let spoilt: [fn(&mut Trace); 6] = [
        |trace| trace.events[0].elements[0] = 16,
        |trace| trace.events.iter_mut().for_each(|event| event.warp = 32),
        |trace| trace.header.matrices[0].shape = [1, u64::MAX, 3],
        |trace| trace.header.matrices[1].first = u64::MAX,
        |trace| trace.header.matrices[0].before.truncate(15),
        |trace| trace.header.block = [u32::MAX, 2, 1],
    ];
    for (at, spoil) in spoilt.into_iter().enumerate() {
        let (mut trace, mut bytes) = (four(), Vec::new());
        spoil(&mut trace);
        trace.write(&mut bytes).unwrap();
        assert!(matches!(Trace::read(&bytes[..]), Err(Error::Unreadable(_))), "{at}");
    }
}

#[test]
fn some_of_a_launch_can_be_recorded() {
    let product = product(plain(Family::Tiled, 8), [64; 3]);
    let sample = Sample { blocks: Some(vec![[1, 2, 0]]), warps: Some(vec![1]), steps: Some([3, 5]) };
    let trace = product.trace(&sample, usize::MAX).unwrap();
    assert!(trace.events.iter().all(|event| (event.block, event.warp) == ([1, 2, 0], 1)));
    let steps = trace.header.moments.iter().map(|moment| moment.step);
    assert!(steps.clone().all(|step| matches!(step, None | Some(3 | 4))) && steps.clone().any(|step| step == Some(4)));
    // The other warp's stores to shared memory are not recorded, and still known.
    assert!(terms(&trace, [1, 2, 0], [0, 4, 0]).iter().all(|term| term.factors.iter().all(Option::is_some)));
    assert!(matches!(product.trace(&Sample::default(), 1000), Err(Error::TooLong { most: 1000 })));
}

#[test]
fn tiling_halves_the_reads_of_the_smallest_case() {
    let of = |family| profile(plain(family, 2), [4; 3]);
    let (naive, tiled) = (of(Family::Naive), of(Family::Tiled));
    let threads = PerThread { global_loads: 8, global_stores: 1, fma: 4, ..PerThread::default() };
    assert_eq!((naive.per_thread, naive.steps, naive.barriers_per_block), (threads, 4, 0));
    let threads = PerThread { global_loads: 4, shared_stores: 4, shared_loads: 8, ..threads };
    assert_eq!((tiled.per_thread, tiled.steps, tiled.barriers_per_block), (threads, 2, 4));
    assert_eq!(tiled.outcome.grid, [2, 2, 1]);
    let extra = Plain { barriers: Barriers::Extra, ..plain(Family::Tiled, 2) };
    assert_eq!(profile(extra, [4; 3]).barriers_per_block, 6);
    for (tile, k) in [(2, 7), (4, 7), (8, 20), (16, 40)] {
        let profile = profile(plain(Family::Tiled, tile), [tile as usize, tile as usize, k]);
        let (steps, tile) = (k.div_ceil(tile as usize) as u64, u64::from(tile));
        let PerThread { global_loads, shared_loads, .. } = profile.per_thread;
        assert_eq!((profile.steps, global_loads, shared_loads), (steps, 2 * steps, 2 * tile * steps));
        assert_eq!(profile.barriers_per_block, 2 * steps);
    }
}

#[test]
fn a_wrong_result_is_told() {
    let told = |edges, barriers, sizes| {
        let product = product(Plain { edges, barriers, ..plain(Family::Tiled, 2) }, sizes);
        product.profile().unwrap();
        product.wrong()
    };
    assert_eq!(told(Edges::Guarded, Barriers::Both, [5, 6, 7]), None);
    assert_eq!(told(Edges::Floor, Barriers::Both, [4, 4, 4]), None);
    let floor = told(Edges::Floor, Barriers::Both, [5, 4, 5]).unwrap();
    // The last of five products is left out of c[0,0], which is 1·1 + 2·5 + 3·9 + 4·13 + 5·17; row 4 is left out altogether.
    assert_eq!(
        floor,
        "c[0,0] is 90 and should be 175; 16 of 20 elements are wrong. c[4,0] was never written; 4 of 20 elements are missing."
    );
}
