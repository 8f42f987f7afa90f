//! Builds the kernel of a program.

use std::cell::RefCell;
use std::panic::Location;

use tegula_ir::prelude::*;

use super::program::{
    AccessGuard, Array as ProgramArray, B_ROWS, CELLS, ElementRange, FLAGS, MBARRIERS, Node, OPERAND_ROWS, Op, Program,
    ROWS, Step, TILE, Threads,
};

/// Maximum steps of a program. Each step is built by its own source line, which identifies it in
/// findings.
pub const MAX_STEPS: usize = 64;

/// The step that each line of this file built.
pub type Lines = Vec<(u32, usize)>;

struct Memory<'k, 'p> {
    k: &'k Builder,
    program: &'p Program,
    shared: [Shared<'k, u32>; 2],
    /// Data, flags, and the data again.
    global: [Global<'k, u32>; 3],
    tiles: Shared<'k, u32>,
    dsmem: Shared<'k, u32>,
    rows: Shared<'k, u32>,
    /// Present where the program has `wgmma`.
    operands: Option<Shared<'k, bf16>>,
    accumulators: Option<tegula_ir::Array<'k, f32>>,
    /// Source and destination of tiles.
    tensors: [Tensor<'k, u32>; 2],
    mbarriers: Mbarriers<'k>,
    sum: Var<'k, u32>,
    lines: RefCell<Lines>,
}

/// Builds the program as a kernel with the parameters `g_data`, `g_flags`, `g_alias`, `copied` and
/// `stored`.
pub fn build(program: &Program) -> (Kernel, Lines) {
    let mut lines = Lines::new();
    let kernel = kernel("random", Block::d1(program.threads), |k| {
        k.grid([k.constant(program.blocks), k.constant(1), k.constant(1)]);
        let global = [("g_data", 4), ("g_flags", 1), ("g_alias", 4)]
            .map(|(name, aligned)| k.matrix(name, Access::ReadWrite, Order2d::RowMajor, aligned));
        let tiles = Tiles { rows: 1, cols: TILE, swizzle: Swizzle::None, clipped: false };
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
            operands: program.uses_wgmma().then(|| k.tiles("operands", 1, [OPERAND_ROWS, 16], Swizzle::B32)),
            accumulators: program.uses_wgmma().then(|| k.array(Wgmma { ty: Type::BF16, n: B_ROWS }.accumulators())),
            dsmem: k.dsmem_buffer("dsmem", [2, TILE]),
            rows: k.shared("rows", [ROWS, TILE]),
            tiles: k.tiles("tiles", 2, [1, TILE], Swizzle::None),
            tensors,
            mbarriers: k.mbarriers("mbarriers", MBARRIERS),
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
        let of_warps = matches!(step.op, Op::SyncWarp | Op::Vote | Op::Shuffle);
        let warps = (0..self.program.warps()).filter(|warp| of_warps && step.threads.warps >> warp & 1 == 1);
        for warp in warps {
            // A mask names existing lanes, and the full warp only where all its lanes take part.
            let lanes = step.threads.lanes & self.program.lanes(warp);
            self.op_at_line(*number, Threads { warps: 1 << warp, lanes, ..step.threads }, step.op);
        }
        if !of_warps {
            self.op_at_line(*number, step.threads, step.op);
        }
        *number += 1;
    }

    fn guard(&self, threads: Threads) -> Pred<'k> {
        let k = self.k;
        let chosen = |set: u32, all: u32, number: Val<'k, u32>| match set & all == all {
            true => k.constant(true),
            false => ((k.constant(set) >> number) & 1).eq(1),
        };
        let all = |count: u32| if count < 32 { (1 << count) - 1 } else { u32::MAX };
        chosen(threads.blocks, all(self.program.blocks), k.block_x())
            & chosen(threads.warps, all(self.program.warps()), k.warp())
            & chosen(threads.lanes, all(self.program.threads.min(32)), k.lane())
    }

    fn op_at_line(&self, step: usize, threads: Threads, op: Op) {
        macro_rules! at {
            () => {
                self.k.when(self.guard(threads), || self.build_op(step, threads, op))
            };
        }
        match step {
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
            _ => unreachable!("a program has at most {MAX_STEPS} steps"),
        }
    }

    fn index(&self, at: ElementRange) -> Val<'k, u32> {
        let element = (self.k.lane() * at.stride + at.first) % (at.array.len() / at.width) * at.width;
        if at.stride == 0 { self.k.constant(at.start(0)) } else { element }
    }

    fn tile_coord(&self, at: ElementRange) -> (Val<'k, u32>, u32, Val<'k, u32>) {
        (self.index(at) / TILE, 0, self.index(at) % TILE)
    }

    fn row_coord(&self, at: ElementRange) -> (Val<'k, u32>, Val<'k, u32>) {
        (self.index(at) / TILE, self.index(at) % TILE)
    }

    #[track_caller]
    fn build_op(&self, step: usize, threads: Threads, op: Op) {
        self.lines.borrow_mut().push((Location::caller().line(), step));
        let k = self.k;
        let add = |value: Val<'k, u32>| self.sum.set(self.sum.get() + value);
        macro_rules! on {
            ($at:expr, |$memory:ident, $coord:ident| $body:expr) => {
                match $at.array {
                    ProgramArray::Tiles => {
                        let ($memory, $coord) = (self.tiles, self.tile_coord($at));
                        $body
                    }
                    ProgramArray::Stored => {
                        let ($memory, $coord) = (self.tensors[1].elements(), self.row_coord($at));
                        $body
                    }
                    ProgramArray::Dsmem => {
                        let ($memory, $coord) = (self.dsmem, self.row_coord($at));
                        $body
                    }
                    ProgramArray::Rows => {
                        let ($memory, $coord) = (self.rows, self.row_coord($at));
                        $body
                    }
                    ProgramArray::Operands => unreachable!("accessed by rows"),
                    ProgramArray::SharedData | ProgramArray::SharedFlags => {
                        let ($memory, $coord) = (self.shared[array_index($at)], (self.index($at),));
                        $body
                    }
                    ProgramArray::GlobalData | ProgramArray::GlobalFlags | ProgramArray::Alias => {
                        let ($memory, $coord) = (self.global[array_index($at)], (0, self.index($at)));
                        $body
                    }
                }
            };
        }
        match op {
            Op::Init => self.init(),
            Op::Read { at, .. } if at.array == ProgramArray::Operands => {
                let value = self.operands.expect("a program with wgmma").load((0, self.index(at), 0));
                self.sum.set(self.sum.get() + value.to::<u32>());
            }
            Op::Write { at, value, .. } if at.array == ProgramArray::Operands => {
                let value = self.k.constant(bf16::from_f32(value as f32));
                self.operands.expect("a program with wgmma").store((0, self.index(at), 0), value);
            }
            Op::Wgmma { shared } => {
                let (operands, wgmma) =
                    (self.operands.expect("a program with wgmma"), Wgmma { ty: Type::BF16, n: B_ROWS });
                let (b, accumulators) =
                    (operands.wgmma_operand((0, 0, 0), true), self.accumulators.expect("a program with wgmma"));
                k.wgmma_fence();
                if shared {
                    k.wgmma(wgmma, operands.wgmma_operand((0, 0, 0), true), b, accumulators, false);
                } else {
                    k.wgmma(wgmma, [k.constant(0); 4], b, accumulators, false);
                }
            }
            Op::CommitWgmma => k.wgmma_commit_group(),
            Op::WaitWgmma(pending) => k.wgmma_wait_group(pending),
            Op::Read { at, order, scope } => on!(at, |memory, coord| self.read(memory, coord, at, order, scope)),
            Op::Write { at, value, order, scope } => {
                on!(at, |memory, coord| self.write(memory, coord, at, value, order, scope))
            }
            Op::Atomic { at, op, value, order, scope } => {
                on!(at, |memory, coord| add(memory.atomic(op, coord, value, order, scope)))
            }
            Op::WaitFlag { at, compare, values, scope } => {
                let pick = |value, (flag, other)| self.index(at).eq(flag).select(k.constant(other), value);
                let value = (1..FLAGS).zip(values.into_iter().skip(1)).fold(k.constant(values[0]), pick);
                on!(at, |memory, coord| memory.wait_until(coord, compare, value, scope))
            }
            Op::Fence(scope) => k.fence(scope),
            Op::CopyAsync { to, from } => {
                let guard = match from.guard {
                    AccessGuard::All => Guard::Always,
                    AccessGuard::If(lanes) => self.is_lane_in(lanes).into(),
                    AccessGuard::First(_) => Guard::First(self.valid(from).id()),
                };
                let (to_index, from_index) = ((self.index(to),), (0, self.index(from)));
                self.shared[array_index(to)].copy_async(
                    to_index,
                    self.global[array_index(from)],
                    from_index,
                    to.width,
                    guard,
                );
            }
            Op::CommitCopies => k.copy_async_commit(),
            Op::WaitCopies(pending) => k.copy_async_wait(pending),
            Op::Barrier => k.barrier(),
            Op::NamedBarrier { id, warps, waits: true } => k.named_barrier(id, 32 * warps.count_ones()),
            Op::NamedBarrier { id, warps, waits: false } => k.named_barrier_arrive(id, 32 * warps.count_ones()),
            Op::SyncWarp => k.sync_warp(threads.lanes),
            Op::Vote => add(k.ballot(self.sum.get().gt(7), threads.lanes)),
            Op::Shuffle => add(k.shuffle(Shuffle::Index, self.sum.get(), k.lane(), threads.lanes)),
            Op::Arrive { mbarrier, rank: None } => self.mbarriers.arrive(mbarrier),
            Op::Arrive { mbarrier, rank: Some(rank) } => self.mbarriers.arrive_remote(mbarrier, rank),
            Op::ArriveExpectTx { mbarrier } => self.mbarriers.arrive_expect_tx(mbarrier, 4 * TILE),
            Op::TmaLoad { tile, mbarrier, multicast } => {
                let blocks = multicast.then(|| k.constant((1 << self.program.cluster) - 1));
                let barrier = (self.mbarriers, k.constant(mbarrier));
                self.tiles.tma_load_multicast((tile, 0), self.tensors[0], (tile, 0), barrier, blocks);
            }
            Op::TmaStore { tile, row } => self.tiles.tma_store(tile, self.tensors[1], (row, 0)),
            Op::StoreAsync { to, mbarrier, rank } => {
                let (coord, barrier, value) =
                    (self.row_coord(to), (self.mbarriers, k.constant(mbarrier)), k.constant(1));
                match to.width {
                    1 => self.dsmem.store_async(coord, [value; 1], rank, barrier),
                    2 => self.dsmem.store_async(coord, [value; 2], rank, barrier),
                    _ => self.dsmem.store_async(coord, [value; 4], rank, barrier),
                }
            }
            Op::Matrix { at, count, store: true } => match count {
                1 => self.rows.store_matrix(self.row_coord(at), [k.constant(1); 1], false),
                2 => self.rows.store_matrix(self.row_coord(at), [k.constant(1); 2], false),
                _ => self.rows.store_matrix(self.row_coord(at), [k.constant(1); 4], true),
            },
            Op::Matrix { at, count, store: false } => match count {
                1 => add(self.rows.load_matrix::<1>(self.row_coord(at), false)[0]),
                2 => add(self.rows.load_matrix::<2>(self.row_coord(at), false)[0]),
                _ => add(self.rows.load_matrix::<4>(self.row_coord(at), true)[0]),
            },
            Op::CommitStores => k.bulk_commit_group(),
            Op::WaitStores { pending, read: true } => k.bulk_wait_group_read(pending),
            Op::WaitStores { pending, read: false } => k.bulk_wait_group(pending),
            Op::FenceProxy => k.fence_proxy_async(),
            Op::ClusterArrive => k.cluster_arrive(),
            Op::ClusterWait => k.cluster_wait(),
            Op::WaitMbarrier { mbarrier, parity } => self.mbarriers.wait(mbarrier, parity),
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
            self.dsmem.store((tile, col), 0);
        }
        if let Some(operands) = self.operands {
            self.k.for_each(0, OPERAND_ROWS, |row| {
                for col in [0, 4, 8, 12] {
                    operands.store_vec((0, row, col), [self.k.constant(bf16::from_f32(0.0)); 4]);
                }
            });
        }
        for row in 0..ROWS {
            self.rows.store_vec((row, 0), [self.k.constant(0); 4]);
        }
        self.k.fence_proxy_async();
        for mbarrier in 0..MBARRIERS {
            self.mbarriers.init(mbarrier, self.program.arrivals(mbarrier));
        }
        self.k.fence_mbarrier_init();
    }

    /// Whether the current lane is in the mask.
    fn is_lane_in(&self, lanes: u32) -> Pred<'k> {
        ((self.k.constant(lanes) >> self.k.lane()) & 1).eq(1)
    }

    /// Number of elements that [`AccessGuard::First`] admits.
    fn valid(&self, at: ElementRange) -> Val<'k, u32> {
        let AccessGuard::First(n) = at.guard else { return self.k.constant(at.width) };
        (self.k.lane() + n) % (at.width + 1)
    }

    #[track_caller]
    fn read<M: Elements<'k, u32>>(
        &self,
        memory: M,
        coord: impl Coord<'k>,
        at: ElementRange,
        order: MemoryOrder,
        scope: Scope,
    ) {
        let valid = self.valid(at);
        let values = match (order, at.guard, at.width) {
            (MemoryOrder::Weak, AccessGuard::All, 1) => vec![memory.load(coord)],
            (MemoryOrder::Weak, AccessGuard::All, 2) => memory.load_vec::<2>(coord).to_vec(),
            (MemoryOrder::Weak, AccessGuard::All, _) => memory.load_vec::<4>(coord).to_vec(),
            (MemoryOrder::Weak, AccessGuard::If(lanes), 1) => vec![memory.load_or(coord, self.is_lane_in(lanes), 0)],
            (MemoryOrder::Weak, AccessGuard::If(lanes), 2) => {
                memory.load_vec_if::<2>(coord, self.is_lane_in(lanes), 0).to_vec()
            }
            (MemoryOrder::Weak, AccessGuard::If(lanes), _) => {
                memory.load_vec_if::<4>(coord, self.is_lane_in(lanes), 0).to_vec()
            }
            (MemoryOrder::Weak, AccessGuard::First(_), 1) => memory.load_vec_or::<1>(coord, valid, 0).to_vec(),
            (MemoryOrder::Weak, AccessGuard::First(_), 2) => memory.load_vec_or::<2>(coord, valid, 0).to_vec(),
            (MemoryOrder::Weak, AccessGuard::First(_), _) => memory.load_vec_or::<4>(coord, valid, 0).to_vec(),
            _ => vec![memory.load_ordered(coord, order, scope)],
        };
        for value in values {
            self.sum.set(self.sum.get() + value);
        }
    }

    #[track_caller]
    fn write<M: Elements<'k, u32>>(
        &self,
        memory: M,
        coord: impl Coord<'k>,
        at: ElementRange,
        value: u32,
        order: MemoryOrder,
        scope: Scope,
    ) {
        let (value, valid) = (self.k.constant(value), self.valid(at));
        match (order, at.guard, at.width) {
            (MemoryOrder::Weak, AccessGuard::All, 1) => memory.store(coord, value),
            (MemoryOrder::Weak, AccessGuard::All, 2) => memory.store_vec(coord, [value; 2]),
            (MemoryOrder::Weak, AccessGuard::All, _) => memory.store_vec(coord, [value; 4]),
            (MemoryOrder::Weak, AccessGuard::If(lanes), 1) => memory.store_if(coord, value, self.is_lane_in(lanes)),
            (MemoryOrder::Weak, AccessGuard::If(lanes), 2) => {
                memory.store_vec_if(coord, [value; 2], self.is_lane_in(lanes))
            }
            (MemoryOrder::Weak, AccessGuard::If(lanes), _) => {
                memory.store_vec_if(coord, [value; 4], self.is_lane_in(lanes))
            }
            (MemoryOrder::Weak, AccessGuard::First(_), 1) => memory.store_vec_first(coord, [value; 1], valid),
            (MemoryOrder::Weak, AccessGuard::First(_), 2) => memory.store_vec_first(coord, [value; 2], valid),
            (MemoryOrder::Weak, AccessGuard::First(_), _) => memory.store_vec_first(coord, [value; 4], valid),
            _ => memory.store_ordered(coord, value, order, scope),
        }
    }
}

/// Index of the array: 0 for data, 1 for flags, 2 for the alias of the data.
fn array_index(at: ElementRange) -> usize {
    match at.array {
        ProgramArray::SharedFlags | ProgramArray::GlobalFlags => 1,
        ProgramArray::Alias => 2,
        _ => 0,
    }
}
