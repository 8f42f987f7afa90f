//! The race detector against a reference that keeps a whole vector clock for every thread and every access: on random small
//! programs, a race is reported exactly where the reference finds one.

use tegula::interp::{Config, Kind, Severity, run};
use tegula::ir::prelude::*;

use crate::product::Random;

/// Elements of the shared array.
const CELLS: u32 = 3;

/// One step of a straight-line program that all threads run.
#[derive(Clone, Debug)]
enum Step {
    /// The chosen threads of one warp read or write an element, weakly or not.
    Access {
        warp: usize,
        lanes: u32,
        cell: u32,
        does: Does,
    },
    Barrier,
    /// The lanes of the mask, of one warp or of all.
    SyncWarp {
        warp: Option<usize>,
        mask: u32,
    },
    /// The chosen warps come to a named barrier, some of them to wait, some only to arrive.
    Named {
        waits: u32,
        arrives: u32,
    },
    /// A thread publishes; another acquires what is published.
    Order {
        warp: usize,
        lane: u32,
        cell: u32,
        does: Does,
    },
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Does {
    Read,
    Write,
    /// Ordered accesses: to elements of the array, or to flags.
    Load(Order),
    Store(Order),
    Add(Order),
}

impl Does {
    fn reads(self) -> bool {
        matches!(self, Does::Read | Does::Load(_) | Does::Add(_))
    }
    fn writes(self) -> bool {
        matches!(self, Does::Write | Does::Store(_) | Does::Add(_))
    }
    fn ordered(self) -> bool {
        !matches!(self, Does::Read | Does::Write)
    }
    fn acquires(self) -> bool {
        matches!(self, Does::Load(Order::Acquire) | Does::Add(Order::Acquire | Order::AcqRel))
    }
    fn releases(self) -> bool {
        matches!(self, Does::Store(Order::Release) | Does::Add(Order::Release | Order::AcqRel))
    }
}

/// What a program may be made of.
#[derive(Clone, Copy, Debug)]
enum Level {
    /// Barriers and synchronisation of whole warps.
    Coarse,
    /// Also of parts of warps, and named barriers.
    Fine,
    /// Also ordered accesses.
    Ordered,
}

fn lanes(random: &mut Random) -> u32 {
    match random.below(4) {
        0 => u32::MAX,
        1 => 1 << random.below(4) | 1 << random.below(4),
        _ => 1 << random.below(4),
    }
}

fn order(random: &mut Random, of: &[Order]) -> Order {
    of[random.below(of.len())]
}

fn step(random: &mut Random, warps: usize, level: Level) -> Step {
    let warp = random.below(warps);
    let choices = match level {
        Level::Coarse => 8,
        Level::Fine => 11,
        Level::Ordered => 16,
    };
    match random.below(choices) {
        0..5 => {
            let does = if random.chance(2) { Does::Write } else { Does::Read };
            // A store by several lanes to one element races by itself, which says nothing of what went before.
            let lanes = if does == Does::Write { 1 << random.below(4) } else { lanes(random) };
            Step::Access { warp, lanes, cell: random.below(CELLS as usize) as u32, does }
        }
        5 => Step::Barrier,
        6..8 => Step::SyncWarp { warp: (!random.chance(3)).then_some(warp), mask: u32::MAX },
        8..10 => Step::SyncWarp { warp: Some(warp), mask: lanes(random) },
        10 => {
            let waits = 1 << warp | (random.next() as u32 & ((1 << warps) - 1));
            let arrives = random.next() as u32 & ((1 << warps) - 1) & !waits;
            Step::Named { waits, arrives }
        }
        _ => {
            use Order::{AcqRel, Acquire, Relaxed, Release};
            let does = match random.below(5) {
                0 | 1 => Does::Store(order(random, &[Relaxed, Release, Release])),
                2 | 3 => Does::Load(order(random, &[Relaxed, Acquire, Acquire])),
                _ => Does::Add(order(random, &[Relaxed, Acquire, Release, AcqRel])),
            };
            Step::Order { warp, lane: random.below(4) as u32, cell: random.below(CELLS as usize) as u32, does }
        }
    }
}

/// The program as a kernel. In which order its warps run is up to the seed; whether it races is not.
fn build(steps: &[Step], warps: usize) -> Kernel {
    kernel("random", Block::d1(32 * warps as u32), |k| {
        k.grid([k.constant(1), k.constant(1), k.constant(1)]);
        let (cells, y) = (k.shared::<u32>("cells", [CELLS]), k.output::<u32>("y"));
        // Initialised by thread 0, in an order that all know.
        k.when(k.thread_x().eq(0), || (0..CELLS).for_each(|i| cells.store((i,), 0)));
        k.barrier();
        let sum = k.var(0u32);
        for (id, step) in (1..).zip(steps) {
            let of_warp = |warp: usize| k.warp().eq(warp as u32);
            match *step {
                Step::Access { warp, lanes, cell, does } => {
                    let chosen = of_warp(warp) & ((k.constant(lanes) >> k.lane()) & 1).eq(1);
                    k.when(chosen, || match does {
                        Does::Write => cells.store((cell,), k.lane()),
                        _ => sum.set(sum.get() + cells.load((cell,))),
                    });
                }
                Step::Barrier => k.barrier(),
                Step::SyncWarp { warp, mask } => match warp {
                    None => k.sync_warp(mask),
                    Some(warp) => {
                        let part = (k.constant(mask) >> k.lane()) & 1;
                        let chosen = if mask == u32::MAX { of_warp(warp) } else { of_warp(warp) & part.eq(1) };
                        k.when(chosen, || k.sync_warp(mask));
                    }
                },
                // A barrier of its own, so that who runs ahead comes to no other.
                Step::Named { waits, arrives } => {
                    let threads = 32 * (waits | arrives).count_ones();
                    for warp in 0..warps {
                        if waits >> warp & 1 == 1 {
                            k.when(of_warp(warp), || k.named_barrier(id, threads));
                        } else if arrives >> warp & 1 == 1 {
                            k.when(of_warp(warp), || k.named_arrive(id, threads));
                        }
                    }
                }
                Step::Order { warp, lane, cell, does } => {
                    k.when(of_warp(warp) & k.lane().eq(lane), || match does {
                        Does::Store(order) => cells.store_ordered((cell,), 1, order, Scope::Block),
                        Does::Load(order) => sum.set(sum.get() + cells.load_ordered((cell,), order, Scope::Block)),
                        Does::Add(order) => {
                            cells.atomic(AtomicOp::Add, (cell,), 1, order, Scope::Block);
                        }
                        Does::Read | Does::Write => unreachable!("these are plain accesses"),
                    });
                }
            }
        }
        y.store((0, k.thread_x()), sum.get());
    })
}

type Clock = Vec<u32>;

/// The reference: every thread's clock of all threads, and every access there ever was.
struct Reference {
    clocks: Vec<Clock>,
    accesses: Vec<Vec<(usize, Clock, Does)>>,
    published: Vec<Option<Clock>>,
    races: bool,
}

fn join(into: &mut Clock, from: &Clock) {
    into.iter_mut().zip(from).for_each(|(a, b)| *a = (*a).max(*b));
}

impl Reference {
    fn new(threads: usize) -> Self {
        let clocks = (0..threads).map(|t| (0..threads).map(|u| u32::from(t == u)).collect()).collect();
        Reference {
            clocks,
            accesses: vec![Vec::new(); CELLS as usize],
            published: vec![None; CELLS as usize],
            races: false,
        }
    }

    fn access(&mut self, thread: usize, cell: u32, does: Does) {
        let cell = cell as usize;
        let clock = &self.clocks[thread];
        for (other, then, did) in &self.accesses[cell] {
            let conflict = (does.writes() || did.writes()) && !(does.ordered() && did.ordered());
            if *other != thread && conflict && then[*other] > clock[*other] {
                self.races = true;
            }
        }
        self.accesses[cell].push((thread, clock.clone(), does));
        // What it finds there it knows from now on; the access itself comes before.
        if does.acquires()
            && let Some(published) = self.published[cell].clone()
        {
            join(&mut self.clocks[thread], &published);
        }
        if does.ordered() && does.writes() {
            let mut new = does.releases().then(|| self.clocks[thread].clone());
            // What an atomic operation finds, it passes on; a store ends it.
            if does.reads()
                && let Some(old) = self.published[cell].take()
            {
                match &mut new {
                    Some(new) => join(new, &old),
                    None => new = Some(old),
                }
            }
            self.published[cell] = new;
            self.clocks[thread][thread] += 1;
        }
    }

    /// These threads meet; those that only arrive learn nothing.
    fn meet(&mut self, waits: &[usize], arrives: &[usize]) {
        let mut all = vec![0; self.clocks.len()];
        waits.iter().chain(arrives).for_each(|&t| join(&mut all, &self.clocks[t]));
        waits.iter().for_each(|&t| self.clocks[t].clone_from(&all));
        waits.iter().chain(arrives).for_each(|&t| self.clocks[t][t] += 1);
    }

    fn step(&mut self, step: &Step, warps: usize) {
        let of = |warp: usize, mask: u32| (0..32).filter(move |l| mask >> l & 1 == 1).map(move |l| 32 * warp + l);
        let warps_of = |set: u32| (0..warps).filter(move |w| set >> w & 1 == 1).flat_map(|w| of(w, u32::MAX));
        match *step {
            Step::Access { warp, lanes, cell, does } => of(warp, lanes).for_each(|t| self.access(t, cell, does)),
            Step::Barrier => self.meet(&(0..32 * warps).collect::<Vec<_>>(), &[]),
            Step::SyncWarp { warp, mask } => {
                let synced = if let Some(warp) = warp { warp..warp + 1 } else { 0..warps };
                synced.for_each(|w| self.meet(&of(w, mask).collect::<Vec<_>>(), &[]));
            }
            Step::Named { waits, arrives } => {
                self.meet(&warps_of(waits).collect::<Vec<_>>(), &warps_of(arrives).collect::<Vec<_>>());
            }
            Step::Order { warp, lane, cell, does } => self.access(32 * warp + lane as usize, cell, does),
        }
    }
}

/// Runs random programs of one or more warps. Gives how many raced.
fn compare(level: Level, warps: usize, programs: u64) -> u64 {
    let mut racy = 0;
    for seed in 0..programs {
        let random = &mut Random(seed);
        let steps: Vec<_> = (0..2 + random.below(10)).map(|_| step(random, warps, level)).collect();
        let mut reference = Reference::new(32 * warps);
        steps.iter().for_each(|step| reference.step(step, warps));
        let kernel = check(build(&steps, warps)).expect("sound");
        let y = tegula::interp::Buffer::output(Type::U32, row(32 * warps)).unwrap();
        let config = Config { seed, counters: false, ..Config::default() };
        let outcome = run(&kernel, &[(&y).into()], &config).unwrap();
        let found = outcome.findings.iter().filter(|f| f.severity() == Severity::Error);
        let found: Vec<_> = found.inspect(|f| assert_eq!(f.kind, Kind::Race, "{f} in {steps:?}")).collect();
        assert_eq!(!found.is_empty(), reference.races, "seed {seed}, {warps} warps: {found:?} in {steps:?}");
        racy += u64::from(reference.races);
    }
    racy
}

fn row(len: usize) -> tegula::Layout {
    tegula::Layout::row_major(tegula::Shape::new(1, len)).unwrap()
}

/// Whether enough programs raced and enough did not for the comparison to mean something.
fn mixed(level: Level, warps: usize, programs: u64) {
    let racy = compare(level, warps, programs);
    assert!(racy * 10 > programs && racy * 10 < programs * 9, "{racy} of {programs} raced");
}

#[test]
fn coarse_programs_of_one_warp() {
    mixed(Level::Coarse, 1, 2000);
}

#[test]
fn coarse_programs_of_three_warps() {
    mixed(Level::Coarse, 3, 2000);
}

#[test]
fn fine_programs_of_one_warp() {
    mixed(Level::Fine, 1, 2000);
}

#[test]
fn fine_programs_of_three_warps() {
    mixed(Level::Fine, 3, 2000);
}

// Which thread acquires what depends on the order of the run where several warps take part, so one warp it is.
#[test]
fn programs_with_ordered_accesses() {
    mixed(Level::Ordered, 1, 2000);
}
