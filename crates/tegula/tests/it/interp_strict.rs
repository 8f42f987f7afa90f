//! Errors that appear on a GPU only for some timings or memory layouts, and unusual kernels that
//! are correct.

use tegula::interpret;
use tegula::{Error, View};
use tegula_interp::{Arg, Buffer, Config, FindingKind, Severity, run};
use tegula_ir::prelude::*;

use super::interp_ops::{assert_finds, assert_result, blocks, empty, errors, for_each_seed, row_of};

/// Time of the overwrite of a copy's source, relative to the wait for the copy.
#[derive(Clone, Copy, PartialEq)]
enum OverwriteTime {
    BySelf,
    ByAnother,
    AfterWait,
}

fn overwritten_source(timing: OverwriteTime) -> Checked<Kernel> {
    blocks(1, 32, |k| {
        let x = k.matrix::<f32>("x", Access::ReadWrite, Order2d::Strided, 1);
        let (tile, t) = (k.shared::<f32>("tile", [32]), k.thread_x());
        tile.copy_async((t,), x, (0, t), 1, Guard::Always);
        k.copy_async_commit();
        match timing {
            OverwriteTime::BySelf => x.store((0, t), 1f32),
            OverwriteTime::ByAnother => {
                k.barrier();
                x.store((0, t ^ 1), 1f32);
            }
            OverwriteTime::AfterWait => {}
        }
        k.copy_async_wait(0);
        k.barrier();
        if timing == OverwriteTime::AfterWait {
            x.store((0, t ^ 1), 1f32);
        }
    })
}

#[test]
fn copy_source_overwritten_before_the_wait_is_a_race() {
    let args = || vec![row_of(&[2f32; 32])];
    assert_finds(FindingKind::Race, &overwritten_source(OverwriteTime::BySelf), args);
    assert_finds(FindingKind::Race, &overwritten_source(OverwriteTime::ByAnother), args);
    assert_result(&overwritten_source(OverwriteTime::AfterWait), args, &[1f32; 32]);
}

fn shuffled(threads: u32, mode: Shuffle, by: u32, mask: u32) -> Checked<Kernel> {
    blocks(1, threads, |k| {
        let y = k.output::<u32>("y");
        let lanes = if mask == FULL_WARP { k.constant(true) } else { k.lane().lt(mask.count_ones()) };
        y.store((0, k.thread_x()), 0u32);
        k.when(lanes, || y.store((0, k.thread_x()), k.shuffle(mode, k.lane(), by, mask)));
    })
}

#[test]
fn shuffles_from_inactive_lanes_are_errors() {
    let args = || vec![empty::<u32>(64)];
    assert_finds(FindingKind::InactiveLane, &shuffled(48, Shuffle::Xor, 16, FULL_WARP), args);
    assert_finds(FindingKind::InactiveLane, &shuffled(32, Shuffle::Index, 20, 0xffff), args);
    assert_finds(FindingKind::InactiveLane, &shuffled(32, Shuffle::Down, 4, 0xff), args);
    for good in [shuffled(48, Shuffle::Xor, 8, FULL_WARP), shuffled(32, Shuffle::Up, 4, 0xff)] {
        for_each_seed(&good, args, |outcome, _| assert_eq!(outcome.error(), None));
    }
}

#[test]
fn every_axis_of_a_shared_array_is_bounded() {
    let reads = |row: u32, col: u32| {
        blocks(1, 8, |k| {
            let (y, s, t) = (k.output::<u32>("y"), k.shared::<u32>("s", [8, 8]), k.thread_x());
            k.for_each(0, 8, |col| s.store((t, col), t));
            k.barrier();
            let col = (y.cols() + col) - y.cols();
            y.store((0, t), s.load((k.constant(row), col)));
        })
    };
    let args = || vec![empty::<u32>(8)];
    assert_finds(FindingKind::OutOfBounds, &reads(3, 8), args);
    assert_result(&reads(3, 7), args, &[3u32; 8]);
    for_each_seed(&reads(3, 8), args, |outcome, _| {
        let message = &errors(outcome)[0].message;
        assert!(message.contains("coordinate 8 along axis 1 of shared array s [8, 8]"), "{message}");
    });
    let rows = blocks(1, 8, |k| {
        let (s, t) = (k.shared::<u32>("s", [2, 2, 8]), k.thread_x());
        s.store((0u32, t, 0u32), t);
    });
    assert_finds(FindingKind::OutOfBounds, &rows, Vec::new);
}

/// Two pairs of warps use one named barrier, with or without a block barrier between the uses.
fn reuse_named_barrier(ordered: bool) -> Checked<Kernel> {
    blocks(1, 128, |k| {
        k.when(k.warp().lt(2), || k.named_barrier(1, 64));
        if ordered {
            k.barrier();
        }
        k.when(k.warp().ge(2), || k.named_barrier(1, 64));
    })
}

#[test]
fn unordered_reuse_of_a_named_barrier_is_found_on_every_schedule() {
    for seed in 0..40 {
        let config = Config { seed, ..Config::default() };
        let outcome = run(&reuse_named_barrier(false), &[], &config).unwrap();
        assert!(
            errors(&outcome).iter().any(|f| f.kind == FindingKind::ArrivalMismatch),
            "seed {seed}: {:?}",
            outcome.findings
        );
        assert_eq!(run(&reuse_named_barrier(true), &[], &config).unwrap().error(), None);
    }
}

#[test]
fn memory_bound_to_two_parameters_is_checked_as_one() {
    for (blocks_of, threads) in [(1, 64), (2, 32)] {
        let kernel = blocks(blocks_of, threads, |k| {
            let (x, y) = (k.input::<u32>("x"), k.output::<u32>("y"));
            let i = k.block_x() * threads + k.thread_x();
            y.store((0, i), x.load((0, i ^ 32)));
        });
        let (one, other) = (row_of(&[7u32; 64]), row_of(&[0u32; 64]));
        let config = Config::default();
        let outcome = run(&kernel, &[Arg::from(&one), Arg::from(&one)], &config).unwrap();
        assert!(outcome.error().is_some_and(|f| f.kind == FindingKind::Race), "{:?}", outcome.findings);
        assert_eq!(run(&kernel, &[Arg::from(&one), Arg::from(&other)], &config).unwrap().error(), None);
    }
}

#[test]
fn loop_with_a_step_of_zero_is_an_error_with_its_line() {
    let line = line!() + 3;
    let kernel = blocks(1, 32, |k| {
        let (x, y) = (k.input::<u32>("x"), k.output::<u32>("y"));
        k.for_step(0, 4, x.load((0, 0)), |i| y.store((0, k.lane()), i));
    });
    let args = |step: u32| move || vec![interpret::input(View::new(&[step], 1, 1).unwrap()).unwrap(), empty::<u32>(32)];
    assert_finds(FindingKind::ZeroStep, &kernel, args(0));
    for_each_seed(&kernel, args(0), |outcome, _| assert_eq!(errors(outcome)[0].source[0].line(), line));
    assert_result(&kernel, args(3), &[3u32; 32]);
}

/// Blocks take work from a queue: one thread fetches the item and broadcasts it through shared
/// memory.
fn work_queue(assert: bool) -> Kernel {
    kernel("queue", Block::d1(64), |k| {
        let (y, next) = (k.output::<u32>("y"), k.matrix::<u32>("next", Access::ReadWrite, Order2d::Strided, 1));
        k.grid([k.constant(3), k.constant(1), k.constant(1)]);
        let (item, t) = (k.shared::<u32>("item", [1]), k.thread_x());
        let current = k.var(0u32);
        let take = || {
            k.barrier();
            k.when(t.eq(0), || {
                item.store((0u32,), next.atomic(AtomicOp::Add, (0, 0), 1u32, MemoryOrder::Relaxed, Scope::Device));
            });
            k.barrier();
            let item = item.load((0u32,));
            current.set(if assert { k.uniform(item) } else { item });
        };
        take();
        k.while_loop(
            || current.get().lt(y.rows()),
            || {
                y.store((current.get(), t), current.get() * 100 + t);
                take();
            },
        );
    })
}

#[test]
fn work_queue_kernel_may_assert_uniformity() {
    let Err(Error::InvalidKernel { faults, .. }) = check(work_queue(false)) else {
        panic!("the loaded item is not uniform")
    };
    assert!(faults[0].message.contains("assert it with `uniform`"), "{}", faults[0].message);
    let kernel = check(work_queue(true)).unwrap();
    let output = || Buffer::output(Type::U32, tegula::Layout::row_major(tegula::Shape::new(7, 64)).unwrap()).unwrap();
    for_each_seed(
        &kernel,
        || vec![output(), row_of(&[0u32])],
        |outcome, buffers| {
            assert_eq!(outcome.error(), None);
            let expected: Vec<u32> = (0..7).flat_map(|item| (0..64).map(move |t| item * 100 + t)).collect();
            assert_eq!(super::interp_ops::values::<u32>(&buffers[0]), expected);
        },
    );
}

#[test]
fn false_assertion_of_uniformity_is_found() {
    let asserts = |by_warp: bool| {
        blocks(1, 64, |k| {
            let y = k.output::<u32>("y");
            let value = if by_warp { k.uniform(k.warp()) } else { k.uniform_in_warp(k.lane() / 31) };
            y.store((0, k.thread_x()), value);
        })
    };
    for by_warp in [true, false] {
        assert_finds(FindingKind::NotUniform, &asserts(by_warp), || vec![empty::<u32>(64)]);
    }
}

#[test]
fn warp_uniform_conditions_are_recognized() {
    let first_warp = blocks(1, 96, |k| {
        let y = k.output::<u32>("y");
        y.store((0, k.thread_x()), 0u32);
        k.when(k.thread_x().lt(32), || k.sync_warp(FULL_WARP));
        k.when(((k.thread_x() + 64) & 127).ge(64), || k.sync_warp(FULL_WARP));
        k.when((k.thread_x() / 64).eq(0), || k.sync_warp(FULL_WARP));
    });
    assert_result(&first_warp, || vec![empty::<u32>(96)], &[0u32; 96]);
    let is_invalid = |below: u32, threads: u32| {
        let kernel = kernel("invalid", Block::d1(threads), |k| {
            k.grid([(); 3].map(|()| k.constant(1)));
            k.when(k.thread_x().lt(below), || k.sync_warp(FULL_WARP));
        });
        check(kernel).is_err()
    };
    assert!(is_invalid(33, 96) && is_invalid(31, 96) && !is_invalid(64, 96));
    // The thread index along x is not warp-uniform where rows are not whole warps.
    let rows = kernel("rows", Block::d2(48, 2), |k| {
        k.grid([(); 3].map(|()| k.constant(1)));
        k.when(k.thread_x().lt(32), || k.sync_warp(FULL_WARP));
    });
    assert!(check(rows).is_err());
    let vote = blocks(1, 32, |k| {
        let y = k.output::<u32>("y");
        y.store((0, k.lane()), 5u32);
        k.when(k.any(k.lane().eq(3), FULL_WARP), || k.barrier());
    });
    assert_result(&vote, || vec![empty::<u32>(32)], &[5u32; 32]);
    // Shuffles and votes keep the uniformity of their value, if it is wider than the warp.
    let exchanged = |of_block: bool| {
        kernel("exchanged", Block::d1(64), |k| {
            k.grid([(); 3].map(|()| k.constant(1)));
            let value = || if of_block { k.block_x() } else { k.warp() };
            k.when(k.shuffle(Shuffle::Index, value(), 3, FULL_WARP).eq(0), || k.barrier());
            k.when(k.shuffle(Shuffle::Xor, value(), 1, FULL_WARP).eq(0), || k.barrier());
            k.when(k.all(value().eq(0), FULL_WARP), || k.barrier());
        })
    };
    check(exchanged(true)).unwrap();
    let Err(Error::InvalidKernel { faults, .. }) = check(exchanged(false)) else { panic!("warps diverge") };
    assert_eq!(faults.len(), 3, "{faults:?}");
    // The last warp has 16 lanes, so the ballots of the two warps differ.
    let ballot = kernel("ballot", Block::d1(48), |k| {
        k.grid([(); 3].map(|()| k.constant(1)));
        k.when(k.ballot(k.block_x().eq(0), FULL_WARP).eq(u32::MAX), || k.barrier());
    });
    assert!(check(ballot).is_err());
    let equal_trip_counts = blocks(1, 64, |k| {
        let (y, t) = (k.output::<u32>("y"), k.thread_x());
        k.for_each(t, t + y.cols(), |_| k.barrier());
        y.store((0, t), t);
    });
    assert_result(&equal_trip_counts, || vec![empty::<u32>(64)], &(0..64).collect::<Vec<u32>>());
    let unequal_trip_counts = kernel("invalid", Block::d1(64), |k| {
        let (y, t) = (k.output::<u32>("y"), k.thread_x());
        k.grid([(); 3].map(|()| k.constant(1)));
        k.for_each(t, y.cols(), |_| k.barrier());
    });
    assert!(check(unequal_trip_counts).is_err());
}

#[test]
fn messages_name_atomics_scopes_and_equal_stores() {
    let message = |kernel: &Checked<Kernel>, args: &dyn Fn() -> Vec<Buffer>, kind: FindingKind| {
        let buffers = args();
        let args: Vec<_> = buffers.iter().map(Arg::from).collect();
        let outcome = run(kernel, &args, &Config::default()).unwrap();
        let found = outcome.findings.iter().find(|f| f.kind == kind);
        found.unwrap_or_else(|| panic!("{:?}", outcome.findings)).message.clone()
    };
    let row = || vec![row_of(&[0u32; 4])];
    let atomic = blocks(2, 32, |k| {
        let x = k.matrix::<u32>("x", Access::ReadWrite, Order2d::Strided, 1);
        k.when(k.thread_x().eq(0), || {
            x.atomic(AtomicOp::Add, (0, 0), 1u32, MemoryOrder::Relaxed, Scope::Block);
        });
    });
    let text = message(&atomic, &row, FindingKind::Race);
    assert!(text.contains("thread [0, 0, 0] reads and writes x[0, 0]"), "{text}");
    assert!(text.contains("the access there has the scope of a block"), "{text}");
    let message_passing = |release: Scope, acquire: Scope| {
        blocks(2, 32, |k| {
            let x = k.matrix::<u32>("x", Access::ReadWrite, Order2d::Strided, 1);
            k.when(k.thread_x().eq(0), || {
                k.if_else(
                    k.block_x().eq(0),
                    || {
                        x.store((0, 1), 5u32);
                        x.store_ordered((0, 0), 1u32, MemoryOrder::Release, release);
                    },
                    || {
                        x.wait_until((0, 0), Compare::Eq, 1u32, acquire);
                        x.store((0, 2), x.load((0, 1)));
                    },
                );
            });
        })
    };
    let buffers = row();
    let args: Vec<_> = buffers.iter().map(Arg::from).collect();
    assert_eq!(run(&message_passing(Scope::Device, Scope::Device), &args, &Config::default()).unwrap().error(), None);
    for (release, acquire) in [(Scope::Block, Scope::Device), (Scope::Device, Scope::Block)] {
        let buffers = row();
        let args: Vec<_> = buffers.iter().map(Arg::from).collect();
        let outcome = run(&message_passing(release, acquire), &args, &Config::default()).unwrap();
        let data = errors(&outcome).into_iter().find(|f| f.index == [0, 1]).expect("a race on the data");
        assert!(
            data.message.contains("the acquire there or the release that it observes has the scope"),
            "{}",
            data.message
        );
    }
    let equal = |value: bool| {
        blocks(1, 32, |k| {
            let y = k.output::<u32>("y");
            y.store((0, 0), if value { k.block_x() } else { k.lane() });
        })
    };
    let text = message(&equal(true), &row, FindingKind::EqualStores);
    assert!(text.contains("several lanes store the same value to y[0, 0]"), "{text}");
    assert_eq!(FindingKind::EqualStores.severity(), Severity::Note);
    assert_result(&equal(true), || vec![empty::<u32>(1)], &[0u32]);
    assert_finds(FindingKind::Race, &equal(false), || vec![empty::<u32>(1)]);
}

#[test]
fn invalid_builder_calls_are_errors_without_panics() {
    let is_invalid = |block: Block, build: for<'k> fn(&'k Builder)| {
        let kernel = kernel("odd", block, |k| {
            k.grid([(); 3].map(|()| k.constant(1)));
            build(k);
        });
        check(kernel).expect_err("refused").to_string()
    };
    let empty_part = is_invalid(Block::d1(32), |k| k.array::<u32>(4).slice(4, 0).at(0).set(1u32));
    assert!(empty_part.contains("register index 0 is out of bounds for an array of 0"), "{empty_part}");
    assert!(is_invalid(Block::d3(1 << 31, 1 << 31, 4), |_| ()).contains("threads"));
    let parameters = is_invalid(Block::d1(32), |k| {
        for i in 0..600 {
            k.scalar::<f64>(&format!("x{i}"));
        }
    });
    assert!(parameters.contains("the parameters need 4800 bytes; the limit of a launch is 4096"), "{parameters}");
    let from_shared = is_invalid(Block::d1(32), |k| {
        let (a, b) = (k.shared::<f32>("a", [32]), k.shared::<f32>("b", [32]));
        a.copy_async((k.lane(),), b, (k.lane(),), 1, Guard::Always);
    });
    assert!(from_shared.contains("must be in global memory"), "{from_shared}");
}

#[test]
fn multiline_names_stay_within_their_comment() {
    let kernel = blocks(1, 32, |k| {
        let (y, s) = (k.output::<u32>("y\n.evil"), k.shared::<u32>("s\n\tbra $nowhere;", [32]));
        k.note("a note\nof two lines");
        s.store((k.lane(),), k.lane());
        y.store((0, k.lane()), s.load((k.lane(),)));
    });
    let text = tegula_ir::ptx::print(&kernel).unwrap().text;
    assert!(
        !text.lines().any(|line| line.trim_start().starts_with("bra $nowhere") || line.starts_with(".evil")),
        "{text}"
    );
    assert!(!text.lines().any(|line| line.starts_with("of two lines")), "{text}");
}

#[test]
fn failed_compare_exchange_releases_nothing() {
    // Element 0 is data, 1 the compared value, 2 a flag set after the comparison.
    let kernel = |expected: u32| {
        blocks(1, 64, |k| {
            let (x, y, t) =
                (k.matrix::<u32>("x", Access::ReadWrite, Order2d::Strided, 1), k.output::<u32>("y"), k.thread_x());
            k.when(t.eq(0), || {
                x.store((0, 0), 1u32);
                let compare = AtomicOp::CompareExchange { expected: k.constant(expected).id() };
                x.atomic(compare, (0, 1), 5, MemoryOrder::Release, Scope::Block);
                x.store_ordered((0, 2), 1u32, MemoryOrder::Relaxed, Scope::Block);
            });
            k.when(t.eq(32), || {
                x.wait_until((0, 2), Compare::Eq, 1u32, Scope::Block);
                let _ = x.load_ordered((0, 1), MemoryOrder::Acquire, Scope::Block);
                y.store((0, 0), x.load((0, 0)));
            });
        })
    };
    let args = || vec![row_of(&[0u32; 3]), empty::<u32>(1)];
    assert_finds(FindingKind::Race, &kernel(7), args);
    for_each_seed(&kernel(0), args, |outcome, _| assert_eq!(outcome.error(), None));
}

#[test]
fn tma_store_unordered_with_a_relaxed_write_is_a_race() {
    let kernel = |synchronized: bool| {
        blocks(1, 64, |k| {
            let tiles = Tiles { rows: 8, cols: 8, swizzle: Swizzle::None, clipped: false };
            let c = k.tensor::<f32>("c", Access::Write, Order2d::RowMajor, tiles);
            let (tile, t) = (k.tiles::<f32>("tile", 1, [8, 8], Swizzle::None), k.thread_x());
            k.when(t.eq(0), || k.for_each(0, 64, |i| tile.store((0u32, i / 8, i % 8), 0f32)));
            k.fence_proxy_async();
            k.barrier();
            k.when(t.eq(1), || {
                tile.store_ordered((0u32, 0u32, 0u32), 1f32, MemoryOrder::Relaxed, Scope::Block);
                k.fence_proxy_async();
            });
            if synchronized {
                k.barrier();
            }
            k.when(t.eq(32), || {
                tile.tma_store(0u32, c, (0u32, 0u32));
                k.bulk_commit_group();
                k.bulk_wait_group(0);
            });
        })
    };
    let args = || vec![row_of(&[0f32; 64])];
    assert_finds(FindingKind::Race, &kernel(false), args);
    for_each_seed(&kernel(true), args, |outcome, _| assert_eq!(outcome.error(), None));
}
