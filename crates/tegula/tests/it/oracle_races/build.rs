//! A program as a kernel.

use std::cell::RefCell;
use std::panic::Location;

use tegula_ir::prelude::*;

use super::program::{
    Array as Which, At, B_ROWS, CELLS, Does, FACTOR_ROWS, FLAGS, MBARRIERS, Node, Part, Program, ROWS, Step, TILE,
    Threads,
};

/// The most steps of a program: each is built by a line of its own here, by which findings say which it was.
pub const MOST_STEPS: usize = 64;

/// Which step each line of this file built.
pub type Lines = Vec<(u32, usize)>;

struct Memory<'k, 'p> {
    k: &'k Builder,
    program: &'p Program,
    shared: [Shared<'k, u32>; 2],
    /// Data, flags, and the data again.
    global: [Global<'k, u32>; 3],
    tiles: Shared<'k, u32>,
    inbox: Shared<'k, u32>,
    rows: Shared<'k, u32>,
    /// Where the program multiplies.
    factors: Option<Shared<'k, bf16>>,
    products: Option<tegula_ir::Array<'k, f32>>,
    /// Where tiles come from, and where they go.
    tensors: [Tensor<'k, u32>; 2],
    mbarriers: Barriers<'k>,
    sum: Var<'k, u32>,
    lines: RefCell<Lines>,
}

/// The program as a kernel of the parameters `g_data`, `g_flags`, `g_alias`, `copied` and `stored`.
pub fn build(program: &Program) -> (Kernel, Lines) {
    let mut lines = Lines::new();
    let kernel = kernel("random", Block::d1(program.threads), |k| {
        k.grid([k.constant(program.blocks), k.constant(1), k.constant(1)]);
        let global = [("g_data", 4), ("g_flags", 1), ("g_alias", 4)]
            .map(|(name, by)| k.matrix(name, Access::ReadWrite, Order2d::RowMajor, by));
        let tiles = Tiles { rows: 1, cols: TILE, swizzle: Swizzle::None };
        let tensors = [("copied", Access::Read), ("stored", Access::ReadWrite)]
            .map(|(name, access)| k.tensor(name, access, Order2d::RowMajor, tiles));
        if program.cluster > 1 {
            k.cluster(program.cluster);
        }
        let m = Memory {
            k,
            program,
            shared: [k.shared("s_data", [CELLS]), k.shared("s_flags", [FLAGS])],
            global,
            factors: program.multiplies().then(|| k.tiles("factors", 1, [FACTOR_ROWS, 16], Swizzle::B32)),
            products: program.multiplies().then(|| k.array(Wgmma { ty: Type::BF16, n: B_ROWS }.sums())),
            inbox: k.inbox("inbox", [2, TILE]),
            rows: k.shared("rows", [ROWS, TILE]),
            tiles: k.tiles("tiles", 2, [1, TILE], Swizzle::None),
            tensors,
            mbarriers: k.barriers("mbarriers", MBARRIERS),
            sum: k.var(0u32),
            lines: RefCell::default(),
        };
        let mut number = 0;
        for node in &program.nodes {
            match node {
                Node::Step(step) => m.step(&mut number, step),
                Node::Loop(times, body) => {
                    let body = |number: &mut usize| body.iter().for_each(|step| m.step(number, step));
                    if times % 2 == 0 {
                        k.for_each(0, *times, |_| body(&mut number));
                    } else {
                        let round = k.var(0u32);
                        let next = || {
                            round.set(round.get() + 1);
                            body(&mut number);
                        };
                        k.while_loop(|| round.get().lt(*times), next);
                    }
                }
            }
        }
        lines = m.lines.take();
    });
    (kernel, lines)
}

impl<'k> Memory<'k, '_> {
    fn step(&self, number: &mut usize, step: &Step) {
        let of_warps = matches!(step.does, Does::SyncWarp | Does::Vote | Does::Shuffle);
        let warps = (0..self.program.warps()).filter(|warp| of_warps && step.by.warps >> warp & 1 == 1);
        for warp in warps {
            // A mask names lanes that there are, and all of a warp only where all come.
            let lanes = step.by.lanes & self.program.lanes(warp);
            self.at_line(*number, Threads { warps: 1 << warp, lanes, ..step.by }, step.does);
        }
        if !of_warps {
            self.at_line(*number, step.by, step.does);
        }
        *number += 1;
    }

    fn guard(&self, by: Threads) -> Pred<'k> {
        let k = self.k;
        let chosen = |set: u32, all: u32, number: Val<'k, u32>| match set & all == all {
            true => k.constant(true),
            false => ((k.constant(set) >> number) & 1).eq(1),
        };
        let all = |count: u32| if count < 32 { (1 << count) - 1 } else { u32::MAX };
        chosen(by.blocks, all(self.program.blocks), k.block_x())
            & chosen(by.warps, all(self.program.warps()), k.warp())
            & chosen(by.lanes, all(self.program.threads.min(32)), k.lane())
    }

    fn at_line(&self, number: usize, by: Threads, does: Does) {
        macro_rules! at {
            () => {
                self.k.when(self.guard(by), || self.perform(number, by, does))
            };
        }
        match number {
            0 => at!(),
            1 => at!(),
            2 => at!(),
            3 => at!(),
            4 => at!(),
            5 => at!(),
            6 => at!(),
            7 => at!(),
            8 => at!(),
            9 => at!(),
            10 => at!(),
            11 => at!(),
            12 => at!(),
            13 => at!(),
            14 => at!(),
            15 => at!(),
            16 => at!(),
            17 => at!(),
            18 => at!(),
            19 => at!(),
            20 => at!(),
            21 => at!(),
            22 => at!(),
            23 => at!(),
            24 => at!(),
            25 => at!(),
            26 => at!(),
            27 => at!(),
            28 => at!(),
            29 => at!(),
            30 => at!(),
            31 => at!(),
            32 => at!(),
            33 => at!(),
            34 => at!(),
            35 => at!(),
            36 => at!(),
            37 => at!(),
            38 => at!(),
            39 => at!(),
            40 => at!(),
            41 => at!(),
            42 => at!(),
            43 => at!(),
            44 => at!(),
            45 => at!(),
            46 => at!(),
            47 => at!(),
            48 => at!(),
            49 => at!(),
            50 => at!(),
            51 => at!(),
            52 => at!(),
            53 => at!(),
            54 => at!(),
            55 => at!(),
            56 => at!(),
            57 => at!(),
            58 => at!(),
            59 => at!(),
            60 => at!(),
            61 => at!(),
            62 => at!(),
            63 => at!(),
            _ => unreachable!("a program has at most {MOST_STEPS} steps"),
        }
    }

    fn index(&self, at: At) -> Val<'k, u32> {
        let element = (self.k.lane() * at.stride + at.first) % (at.array.len() / at.width) * at.width;
        if at.stride == 0 { self.k.constant(at.start(0)) } else { element }
    }

    fn tiled(&self, at: At) -> (Val<'k, u32>, u32, Val<'k, u32>) {
        (self.index(at) / TILE, 0, self.index(at) % TILE)
    }

    fn stored(&self, at: At) -> (Val<'k, u32>, Val<'k, u32>) {
        (self.index(at) / TILE, self.index(at) % TILE)
    }

    #[track_caller]
    fn perform(&self, number: usize, by: Threads, does: Does) {
        self.lines.borrow_mut().push((Location::caller().line(), number));
        let k = self.k;
        let add = |value: Val<'k, u32>| self.sum.set(self.sum.get() + value);
        macro_rules! on {
            ($at:expr, |$memory:ident, $place:ident| $body:expr) => {
                match $at.array {
                    Which::Tiles => {
                        let ($memory, $place) = (self.tiles, self.tiled($at));
                        $body
                    }
                    Which::Stored => {
                        let ($memory, $place) = (self.tensors[1].elements(), self.stored($at));
                        $body
                    }
                    Which::Inbox => {
                        let ($memory, $place) = (self.inbox, self.stored($at));
                        $body
                    }
                    Which::Rows => {
                        let ($memory, $place) = (self.rows, self.stored($at));
                        $body
                    }
                    Which::Factors => unreachable!("accessed by rows"),
                    Which::SharedData | Which::SharedFlags => {
                        let ($memory, $place) = (self.shared[side($at)], (self.index($at),));
                        $body
                    }
                    Which::GlobalData | Which::GlobalFlags | Which::Alias => {
                        let ($memory, $place) = (self.global[side($at)], (0, self.index($at)));
                        $body
                    }
                }
            };
        }
        match does {
            Does::Init => self.init(),
            Does::Read { at, .. } if at.array == Which::Factors => {
                let value = self.factors.expect("a program that multiplies").load((0, self.index(at), 0));
                self.sum.set(self.sum.get() + value.to::<u32>());
            }
            Does::Write { at, value, .. } if at.array == Which::Factors => {
                let value = self.k.constant(bf16::from_f32(value as f32));
                self.factors.expect("a program that multiplies").store((0, self.index(at), 0), value);
            }
            Does::Multiply { shared } => {
                let (factors, wgmma) =
                    (self.factors.expect("one that multiplies"), Wgmma { ty: Type::BF16, n: B_ROWS });
                let (b, sums) = (factors.factor((0, 0, 0), true), self.products.expect("one that multiplies"));
                k.wgmma_fence();
                if shared {
                    k.wgmma(wgmma, factors.factor((0, 0, 0), true), b, sums, false);
                } else {
                    k.wgmma(wgmma, [k.constant(0); 4], b, sums, false);
                }
            }
            Does::CommitProducts => k.wgmma_commit(),
            Does::AwaitProducts(pending) => k.wgmma_wait(pending),
            Does::Read { at, order, scope } => on!(at, |memory, place| self.read(memory, place, at, order, scope)),
            Does::Write { at, value, order, scope } => {
                on!(at, |memory, place| self.write(memory, place, at, value, order, scope))
            }
            Does::Atomic { at, op, value, order, scope } => {
                on!(at, |memory, place| add(memory.atomic(op, place, value, order, scope)))
            }
            Does::Wait { at, compare, values, scope } => {
                let pick = |value, (flag, other)| self.index(at).eq(flag).select(k.constant(other), value);
                let value = (1..FLAGS).zip(values.into_iter().skip(1)).fold(k.constant(values[0]), pick);
                on!(at, |memory, place| memory.wait_until(place, compare, value, scope))
            }
            Does::Fence(scope) => k.fence(scope),
            Does::Copy { to, from } => {
                let guard = match from.part {
                    Part::All => Guard::Always,
                    Part::If(lanes) => self.among(lanes).into(),
                    Part::First(_) => Guard::First(self.valid(from).id()),
                };
                let (to_index, from_index) = ((self.index(to),), (0, self.index(from)));
                self.shared[side(to)].copy_async(to_index, self.global[side(from)], from_index, to.width, guard);
            }
            Does::Commit => k.copy_async_commit(),
            Does::AwaitCopies(pending) => k.copy_async_wait(pending),
            Does::Barrier => k.barrier(),
            Does::Named { id, warps, waits: true } => k.named_barrier(id, 32 * warps.count_ones()),
            Does::Named { id, warps, waits: false } => k.named_arrive(id, 32 * warps.count_ones()),
            Does::SyncWarp => k.sync_warp(by.lanes),
            Does::Vote => add(k.ballot(self.sum.get().gt(7), by.lanes)),
            Does::Shuffle => add(k.shuffle(Shuffle::Index, self.sum.get(), k.lane(), by.lanes)),
            Does::Arrive { mbarrier, rank: None } => self.mbarriers.arrive(mbarrier),
            Does::Arrive { mbarrier, rank: Some(rank) } => self.mbarriers.arrive_at(mbarrier, rank),
            Does::Expect { mbarrier } => self.mbarriers.expect(mbarrier, 4 * TILE),
            Does::CopyTile { tile, mbarrier, multicast } => {
                let blocks = multicast.then(|| k.constant((1 << self.program.cluster) - 1));
                let barrier = (self.mbarriers, k.constant(mbarrier));
                self.tiles.copy_tile_to((tile, 0), self.tensors[0], (tile, 0), barrier, blocks);
            }
            Does::StoreTile { tile, row } => self.tiles.store_tile(tile, self.tensors[1], (row, 0)),
            Does::Send { to, mbarrier, rank } => {
                let (place, barrier, value) = (self.stored(to), (self.mbarriers, k.constant(mbarrier)), k.constant(1));
                match to.width {
                    1 => self.inbox.send(place, [value; 1], rank, barrier),
                    2 => self.inbox.send(place, [value; 2], rank, barrier),
                    _ => self.inbox.send(place, [value; 4], rank, barrier),
                }
            }
            Does::Matrix { at, count, store: true } => match count {
                1 => self.rows.store_matrix(self.stored(at), [k.constant(1); 1], false),
                2 => self.rows.store_matrix(self.stored(at), [k.constant(1); 2], false),
                _ => self.rows.store_matrix(self.stored(at), [k.constant(1); 4], true),
            },
            Does::Matrix { at, count, store: false } => match count {
                1 => add(self.rows.load_matrix::<1>(self.stored(at), false)[0]),
                2 => add(self.rows.load_matrix::<2>(self.stored(at), false)[0]),
                _ => add(self.rows.load_matrix::<4>(self.stored(at), true)[0]),
            },
            Does::CommitStores => k.commit_stores(),
            Does::AwaitStores { pending, read: true } => k.await_reads(pending),
            Does::AwaitStores { pending, read: false } => k.await_stores(pending),
            Does::FenceProxy => k.fence_proxy(),
            Does::ClusterArrive => k.cluster_arrive(),
            Does::ClusterWait => k.cluster_wait(),
            Does::Await { mbarrier, parity } => self.mbarriers.wait(mbarrier, parity),
        }
    }

    #[track_caller]
    fn init(&self) {
        for (array, len) in self.shared.into_iter().zip([CELLS, FLAGS]) {
            for index in 0..len {
                array.store((index,), 0);
            }
        }
        for (tile, col) in (0..2).flat_map(|tile| (0..TILE).map(move |col| (tile, col))) {
            self.tiles.store((tile, 0, col), 0);
            self.inbox.store((tile, col), 0);
        }
        if let Some(factors) = self.factors {
            self.k.for_each(0, FACTOR_ROWS, |row| {
                for col in [0, 4, 8, 12] {
                    factors.store_vec((0, row, col), [self.k.constant(bf16::from_f32(0.0)); 4]);
                }
            });
        }
        for row in 0..ROWS {
            self.rows.store_vec((row, 0), [self.k.constant(0); 4]);
        }
        self.k.fence_proxy();
        for mbarrier in 0..MBARRIERS {
            self.mbarriers.init(mbarrier, self.program.arrivals(mbarrier));
        }
        self.k.fence_init();
    }

    /// Whether the lane is one of these.
    fn among(&self, lanes: u32) -> Pred<'k> {
        ((self.k.constant(lanes) >> self.k.lane()) & 1).eq(1)
    }

    /// Elements that [`Part::First`] lets.
    fn valid(&self, at: At) -> Val<'k, u32> {
        let Part::First(n) = at.part else { return self.k.constant(at.width) };
        (self.k.lane() + n) % (at.width + 1)
    }

    #[track_caller]
    fn read<M: Elements<'k, u32>>(&self, memory: M, place: impl Coord<'k>, at: At, order: Order, scope: Scope) {
        let valid = self.valid(at);
        let values = match (order, at.part, at.width) {
            (Order::Weak, Part::All, 1) => vec![memory.load(place)],
            (Order::Weak, Part::All, 2) => memory.load_vec::<2>(place).to_vec(),
            (Order::Weak, Part::All, _) => memory.load_vec::<4>(place).to_vec(),
            (Order::Weak, Part::If(lanes), 1) => vec![memory.load_or(place, self.among(lanes), 0)],
            (Order::Weak, Part::If(lanes), 2) => memory.load_vec_if::<2>(place, self.among(lanes), 0).to_vec(),
            (Order::Weak, Part::If(lanes), _) => memory.load_vec_if::<4>(place, self.among(lanes), 0).to_vec(),
            (Order::Weak, Part::First(_), 1) => memory.load_vec_or::<1>(place, valid, 0).to_vec(),
            (Order::Weak, Part::First(_), 2) => memory.load_vec_or::<2>(place, valid, 0).to_vec(),
            (Order::Weak, Part::First(_), _) => memory.load_vec_or::<4>(place, valid, 0).to_vec(),
            _ => vec![memory.load_ordered(place, order, scope)],
        };
        for value in values {
            self.sum.set(self.sum.get() + value);
        }
    }

    #[track_caller]
    fn write<M: Elements<'k, u32>>(
        &self,
        memory: M,
        place: impl Coord<'k>,
        at: At,
        value: u32,
        order: Order,
        scope: Scope,
    ) {
        let (value, valid) = (self.k.constant(value), self.valid(at));
        match (order, at.part, at.width) {
            (Order::Weak, Part::All, 1) => memory.store(place, value),
            (Order::Weak, Part::All, 2) => memory.store_vec(place, [value; 2]),
            (Order::Weak, Part::All, _) => memory.store_vec(place, [value; 4]),
            (Order::Weak, Part::If(lanes), 1) => memory.store_if(place, value, self.among(lanes)),
            (Order::Weak, Part::If(lanes), 2) => memory.store_vec_if(place, [value; 2], self.among(lanes)),
            (Order::Weak, Part::If(lanes), _) => memory.store_vec_if(place, [value; 4], self.among(lanes)),
            (Order::Weak, Part::First(_), 1) => memory.store_vec_first(place, [value; 1], valid),
            (Order::Weak, Part::First(_), 2) => memory.store_vec_first(place, [value; 2], valid),
            (Order::Weak, Part::First(_), _) => memory.store_vec_first(place, [value; 4], valid),
            _ => memory.store_ordered(place, value, order, scope),
        }
    }
}

/// 0 for data, 1 for flags, 2 for the data by its other parameter.
fn side(at: At) -> usize {
    match at.array {
        Which::SharedFlags | Which::GlobalFlags => 1,
        Which::Alias => 2,
        _ => 0,
    }
}
