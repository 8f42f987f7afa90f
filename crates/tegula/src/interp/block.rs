//! Blocks: their warps, the barriers at which warps meet, and the grid they make up.
//!
//! Blocks that cannot wait for each other run one after the other on each core. Blocks of a kernel that orders accesses between
//! blocks (atomics, acquire, release, `wait_until`) run together, a device full at a time, each making progress in turn.

use rayon::prelude::*;

use super::asynchronous::Flights;
use super::count::{Pattern, Tally, summarise};
use super::finding::{Finding, Findings, Kind, Severity, Space};
use super::lanes::Registers;
use super::lower::{Code, Program, lower};
use super::memory::SharedMemory;
use super::race::{Clocks, GlobalShadow, SharedShadow};
use super::warp::Run;
use super::{Arg, Config, Observer, Outcome};
use crate::error::Result;
use crate::ir::launch::Bound;
use crate::ir::{Access, Checked, Kernel, Order, ParamKind, Site, SiteId};
use crate::progress::Meter;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A kernel with its arguments, ready to run.
pub(super) struct Machine<'a> {
    pub kernel: &'a Kernel,
    pub program: Program,
    pub args: &'a [Arg<'a>],
    pub config: &'a Config,
    pub grid: [u32; 3],
    /// For each parameter that may be written: which block wrote and which blocks read each element, for kernels whose blocks
    /// run independently.
    owners: Vec<Option<Owners>>,
    /// Whether every reader must be remembered, not only three an element.
    every_reader: bool,
    /// Whether blocks may wait for each other.
    cooperative: bool,
    /// Who is told of finished blocks, and how many there are.
    meter: Option<(&'a Meter<'a>, AtomicU64)>,
}

/// The first and the last to write each element, and the first and the last to read it, by block: which they are does not depend
/// on the order in which blocks run. Block + 1 in the high half, site and lane in the low one.
struct Owners(Vec<[AtomicU64; 4]>);

/// What that takes for each element.
pub(super) const OWNERS_BYTES: usize = size_of::<[AtomicU64; 4]>();

/// One side of a race.
#[derive(Clone, Copy)]
pub(super) struct Use {
    pub block: u32,
    pub lane: u16,
    pub site: SiteId,
    pub writes: bool,
}

/// What one core gathers.
#[derive(Default)]
pub(super) struct Gathered {
    pub tallies: Vec<Tally>,
    /// For each instruction its last requests: of shared memory, of global memory.
    pub patterns: Vec<[Pattern; 2]>,
    pub findings: Findings,
    /// For each instruction that is a barrier: whether it ran, and whether it ever ordered anything.
    barriers: Vec<(bool, bool)>,
    blocks: u64,
    /// An observer has seen enough.
    pub stopped: bool,
}

/// A block that is running.
pub(super) struct Running {
    pub id: [u32; 3],
    pub linear: u64,
    pub warps: Vec<Warp>,
    pub shared: SharedMemory,
    pub shadow: SharedShadow,
    pub clocks: Clocks,
    pub flights: Flights,
    pub named: [Named; 16],
    last_barrier: Option<u32>,
    random: u64,
}

/// A named barrier: who has come so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Named {
    pub threads: u32,
    pub arrived: u32,
    pub waiting: Vec<u32>,
    pub known: super::race::Knowledge,
}

/// Why a warp does not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Ready,
    /// At the block's barrier.
    Barrier,
    /// At a named barrier.
    Named(u32),
    /// Waiting for an element of memory to change.
    Polling,
    Done,
}

/// 32 lanes with their registers.
pub(super) struct Warp {
    pub index: u32,
    pub registers: Registers,
    pub pc: usize,
    /// Lanes that run.
    pub mask: u32,
    /// Lanes there are.
    pub existing: u32,
    /// Masks put aside by loops and branches: all lanes that came, and those that go the other way.
    pub stack: Vec<(u32, u32)>,
    /// The loops it is in, outermost first: the position of each, and how often its body was begun before.
    pub loops: Vec<(u32, u32)>,
    pub state: State,
}

impl<'a> Machine<'a> {
    pub fn new(kernel: &'a Checked<Kernel>, args: &'a [Arg<'a>], config: &'a Config) -> Result<Self> {
        let bound: Vec<Bound> = args
            .iter()
            .map(|arg| match *arg {
                Arg::Matrix(buffer) => buffer.bound(),
                Arg::Scalar { ty, bits } => Bound::Scalar { ty, bits },
            })
            .collect();
        let grid = kernel.bind(&bound, &config.device)?;
        for (param, arg) in kernel.params().iter().zip(args) {
            let written = matches!(param.kind, ParamKind::Matrix { access, .. } if access != Access::Read);
            if written && matches!(arg, Arg::Matrix(buffer) if !buffer.is_writable()) {
                let why = format!("parameter {} is written; give it Buffer::output or Buffer::in_out", param.name);
                return Err(crate::Error::Launch { kernel: kernel.name().into(), why });
            }
        }
        let program = lower(kernel);
        let cooperative = program.code.iter().any(waits_for_others);
        let every_reader = cooperative || program.code.iter().any(synchronises_finely);
        let owners = args.iter().map(|arg| match arg {
            Arg::Matrix(buffer) if config.races && !cooperative && buffer.is_writable() => {
                Some(Owners::new(buffer.layout().shape.len().unwrap_or(0)))
            }
            _ => None,
        });
        Ok(Machine {
            kernel,
            program,
            args,
            config,
            grid,
            owners: owners.collect(),
            every_reader,
            cooperative,
            meter: None,
        })
    }

    pub fn told_to(self, meter: Option<&'a Meter<'a>>) -> Self {
        Machine { meter: meter.map(|meter| (meter, AtomicU64::new(0))), ..self }
    }

    pub fn site(&self, pc: usize) -> Site {
        self.kernel.site(self.program.sites[pc])
    }

    pub fn run(&self, observer: Option<&mut dyn Observer>) -> Result<Outcome> {
        let blocks = self.blocks();
        let gathered = if self.cooperative {
            self.together(&blocks, observer)
        } else if self.config.parallel && observer.is_none() && blocks.len() > 1 {
            blocks
                .par_iter()
                .fold(
                    || self.gathered(),
                    |mut gathered, &block| {
                        self.alone(block, &mut gathered, None);
                        gathered
                    },
                )
                .reduce(|| self.gathered(), Gathered::merge)
        } else {
            let mut gathered = self.gathered();
            let mut observer = observer;
            for &block in &blocks {
                self.alone(block, &mut gathered, reborrow(&mut observer));
                if gathered.stopped {
                    break;
                }
            }
            gathered
        };
        Ok(self.outcome(gathered))
    }

    /// The blocks to run, by position in the grid (x fastest).
    fn blocks(&self) -> Vec<u64> {
        let [x, y, z] = self.grid.map(u64::from);
        match &self.config.blocks {
            None => (0..x * y * z).collect(),
            Some(chosen) => {
                let inside = |id: &&[u32; 3]| id.iter().zip(self.grid).all(|(&i, n)| i < n);
                chosen
                    .iter()
                    .filter(inside)
                    .map(|&[i, j, k]| u64::from(i) + x * (u64::from(j) + y * u64::from(k)))
                    .collect()
            }
        }
    }

    fn gathered(&self) -> Gathered {
        let n = self.program.code.len();
        Gathered {
            tallies: vec![Tally::default(); n],
            patterns: vec![[Pattern::NONE; 2]; n],
            barriers: vec![(false, false); n],
            ..Default::default()
        }
    }

    /// Runs one block from start to end.
    fn alone(&self, block: u64, gathered: &mut Gathered, mut observer: Option<&mut dyn Observer>) {
        let mut running = self.start(block);
        let mut global = GlobalShadow::default();
        while self.advance(&mut running, &mut global, gathered, reborrow(&mut observer)) {}
        if !gathered.stopped {
            self.finish(&mut running, gathered);
        }
    }

    /// Runs blocks that may wait for each other: as many as the device holds, each in turn.
    fn together(&self, blocks: &[u64], mut observer: Option<&mut dyn Observer>) -> Gathered {
        let (mut gathered, mut global) = (self.gathered(), GlobalShadow::default());
        let mut waiting = blocks.iter();
        let mut resident: Vec<Running> = Vec::new();
        loop {
            while resident.len() < self.config.resident.max(1) as usize {
                let Some(&block) = waiting.next() else { break };
                resident.push(self.start(block));
            }
            if resident.is_empty() {
                return gathered;
            }
            let mut progress = false;
            for running in &mut resident {
                progress |= self.advance(running, &mut global, &mut gathered, reborrow(&mut observer));
            }
            if gathered.stopped {
                return gathered;
            }
            let before = resident.len();
            resident.retain_mut(|running| {
                let done = running.warps.iter().all(|w| w.state == State::Done);
                if done {
                    self.finish(running, &mut gathered);
                }
                !done
            });
            if !progress && resident.len() == before {
                for running in &mut resident {
                    self.finish(running, &mut gathered);
                }
                return gathered;
            }
        }
    }

    fn start(&self, linear: u64) -> Running {
        let [x, y, _] = self.grid.map(u64::from);
        let id = [linear % x, linear / x % y, linear / x / y].map(|i| i as u32);
        let threads = self.kernel.threads();
        let warps = (0..threads.div_ceil(32)).map(|index| {
            let lanes = (threads - 32 * index).min(32);
            let existing = if lanes == 32 { u32::MAX } else { (1 << lanes) - 1 };
            let registers =
                Registers { lines: self.program.lines.clone(), predicates: self.program.predicates.clone() };
            Warp {
                index,
                registers,
                pc: 0,
                mask: existing,
                existing,
                stack: Vec::new(),
                loops: Vec::new(),
                state: State::Ready,
            }
        });
        let lengths = self.kernel.shared().iter().map(|a| if self.config.races { a.len() } else { 0 });
        Running {
            id,
            linear,
            warps: warps.collect(),
            shared: SharedMemory::new(self.kernel.shared()),
            shadow: SharedShadow::new(lengths),
            clocks: Clocks::new(linear as u32, threads, self.every_reader),
            flights: Flights::new(threads),
            named: Default::default(),
            last_barrier: None,
            random: mix(self.config.seed ^ mix(linear + 1)),
        }
    }

    /// Runs every warp of a block that can run until it cannot, then lets through who has met at a barrier. False where nothing
    /// could run.
    fn advance(
        &self,
        block: &mut Running,
        global: &mut GlobalShadow,
        gathered: &mut Gathered,
        mut observer: Option<&mut dyn Observer>,
    ) -> bool {
        let mut order: Vec<usize> = (0..block.warps.len()).collect();
        for i in (1..order.len()).rev() {
            order.swap(i, block.random(i as u64 + 1) as usize);
        }
        let mut progress = false;
        for warp in order {
            if !matches!(block.warps[warp].state, State::Ready | State::Polling) {
                continue;
            }
            // The warp leaves its block while it runs, so that both can be changed.
            let placeholder =
                Warp { stack: Vec::new(), loops: Vec::new(), registers: Registers::none(), ..block.warps[warp] };
            let mut running = std::mem::replace(&mut block.warps[warp], placeholder);
            let mut run = Run {
                machine: self,
                block,
                global,
                gathered,
                observer: reborrow(&mut observer),
                warp: &mut running,
                request: None,
            };
            progress |= run.until_blocked();
            block.warps[warp] = running;
            if gathered.stopped {
                return false;
            }
        }
        self.release_barrier(block, gathered) || progress
    }

    /// Lets the block go on once every warp is at the barrier.
    fn release_barrier(&self, block: &mut Running, gathered: &mut Gathered) -> bool {
        if !block.warps.iter().all(|w| w.state == State::Barrier) {
            return false;
        }
        block.judge_barrier(gathered);
        block.last_barrier = block.warps.first().map(|w| w.pc as u32);
        block.clocks.barrier();
        for warp in &mut block.warps {
            warp.pc += 1;
            warp.state = State::Ready;
        }
        true
    }

    /// What is to be said about a block that has ended, or never will.
    fn finish(&self, block: &mut Running, gathered: &mut Gathered) {
        block.judge_barrier(gathered);
        gathered.blocks += 1;
        if let Some((meter, finished)) = &self.meter {
            meter.reach(finished.fetch_add(1, Relaxed) + 1, self.grid.into_iter().map(u64::from).product());
        }
        let stuck: Vec<&Warp> = block.warps.iter().filter(|w| w.state != State::Done).collect();
        let Some(first) = stuck.first() else { return };
        let what = match first.state {
            State::Barrier => "at a barrier to which the rest of the block never comes".to_string(),
            State::Named(id) => {
                let Named { threads, arrived, .. } = block.named[id as usize];
                format!("at named barrier {id}: {arrived} of {threads} threads came")
            }
            _ => "for an element of memory that nobody changes any more".to_string(),
        };
        // A warp at a named barrier already stands behind it.
        let site = self.site(first.pc - usize::from(matches!(first.state, State::Named(_))));
        let threads: Vec<_> =
            stuck.iter().map(|w| self.thread(w.index * 32 + w.mask.trailing_zeros().min(31))).collect();
        let finding = || Finding {
            kind: Kind::Deadlock,
            message: format!(
                "block {:?}: warps {:?} wait {what} ({}:{})",
                block.id,
                stuck.iter().map(|w| w.index).collect::<Vec<_>>(),
                site.location.file(),
                site.location.line()
            ),
            block: block.id,
            threads,
            space: None,
            name: String::new(),
            index: Vec::new(),
            source: vec![site.location],
            times: 1,
        };
        gathered.findings.add(Kind::Deadlock, &[site], block.linear, finding);
    }

    /// A thread's position in its block.
    pub fn thread(&self, linear: u32) -> [u32; 3] {
        let [x, y, _] = self.kernel.block();
        [linear % x, linear / x % y, linear / x / y]
    }

    /// A block's position in the grid.
    pub fn block_id(&self, linear: u32) -> [u32; 3] {
        let [x, y, _] = self.grid;
        [linear % x, linear / x % y, linear / x / y]
    }

    /// Notes that a block uses an element of a matrix.
    pub fn own(&self, param: usize, index: usize, block: u64, lane: u16, site: SiteId, write: bool) {
        let Some(Owners(owners)) = &self.owners[param] else { return };
        let me = (block + 1) << 32 | u64::from(site.0 & 0x1f_ffff) << 11 | u64::from(lane & 0x7ff);
        let [first_writer, last_writer, first_reader, last_reader] = &owners[index];
        let (first, last) = if write { (first_writer, last_writer) } else { (first_reader, last_reader) };
        first.fetch_min(me, Relaxed);
        last.fetch_max(me, Relaxed);
    }

    /// Reports elements that one block writes and another one uses: nothing orders blocks that run independently.
    fn races_of_blocks(&self, gathered: &mut Gathered) {
        for (param, owners) in self.owners.iter().enumerate() {
            for (index, uses) in owners.iter().flat_map(|Owners(uses)| uses).enumerate() {
                if let Some([later, earlier]) = conflict_of_blocks(uses.each_ref().map(|u| u.load(Relaxed))) {
                    let sites = [later, earlier].map(|u| self.kernel.site(u.site));
                    let name = self.kernel.params()[param].name.clone();
                    let Arg::Matrix(buffer) = self.args[param] else { continue };
                    let element = || (Space::Global, name, buffer.coordinates(index));
                    let block = u64::from(later.block);
                    gathered.findings.add(Kind::Race, &sites, block, || self.race(element(), later, earlier));
                }
            }
        }
    }

    /// Two uses of one element in no order.
    pub fn race(&self, (space, name, index): (Space, String, Vec<u64>), one: Use, other: Use) -> Finding {
        let (here, there) = (self.block_id(one.block), self.block_id(other.block));
        let threads = [one, other].map(|u| self.thread(u.lane.into()));
        let [site, met] = [one, other].map(|u| self.kernel.site(u.site).location);
        let verb = |u: Use| if u.writes { "writes" } else { "reads" };
        let elsewhere = if here == there { String::new() } else { format!(" of block {there:?}") };
        let message = format!(
            "block {here:?}: thread {:?} {} {name}{index:?} ({}:{}) and thread {:?}{elsewhere} {} it ({}:{}) in no order",
            threads[0],
            verb(one),
            site.file(),
            site.line(),
            threads[1],
            verb(other),
            met.file(),
            met.line(),
        );
        Finding {
            kind: Kind::Race,
            message,
            block: here,
            threads: threads.to_vec(),
            space: Some(space),
            name,
            index,
            source: vec![site, met],
            times: 1,
        }
    }

    fn outcome(&self, mut gathered: Gathered) -> Outcome {
        if self.config.races && !self.cooperative {
            self.races_of_blocks(&mut gathered);
            self.note_redundant_barriers(&mut gathered);
        }
        let (counters, lines) = summarise(&self.program, &gathered.tallies);
        let mut findings = gathered.findings.into_vec();
        findings.sort_by_key(|f| f.severity() == Severity::Note);
        let lines = lines.into_iter().map(|(site, counters)| (self.kernel.site(site), counters)).collect();
        Outcome { findings, counters, lines, grid: self.grid, blocks: gathered.blocks }
    }

    fn note_redundant_barriers(&self, gathered: &mut Gathered) {
        for (pc, &(ran, needed)) in gathered.barriers.iter().enumerate() {
            if !ran || needed {
                continue;
            }
            let site = self.site(pc);
            let times = if site.iteration == 0 { String::new() } else { format!(", time {}", site.iteration + 1) };
            let make = || Finding {
                kind: Kind::RedundantBarrier,
                message: format!(
                    "no access needs this barrier at these sizes ({}:{}{times})",
                    site.location.file(),
                    site.location.line()
                ),
                block: [0; 3],
                threads: Vec::new(),
                space: None,
                name: String::new(),
                index: Vec::new(),
                source: vec![site.location],
                times: 1,
            };
            gathered.findings.add(Kind::RedundantBarrier, &[site], 0, make);
        }
    }
}

fn reborrow<'o>(observer: &'o mut Option<&mut dyn Observer>) -> Option<&'o mut dyn Observer> {
    match observer {
        Some(observer) => Some(&mut **observer),
        None => None,
    }
}

fn waits_for_others(code: &Code) -> bool {
    use super::lower::At::Global;
    matches!(code, Code::Atomic { at: Global { .. }, .. } | Code::WaitUntil { at: Global { .. }, .. })
        || matches!(code, Code::Load { at: Global { .. }, order, .. } | Code::Store { at: Global { .. }, order, .. }
            if *order != Order::Weak)
}

fn synchronises_finely(code: &Code) -> bool {
    match code {
        Code::NamedBarrier { .. } | Code::Fence { .. } | Code::Atomic { .. } | Code::WaitUntil { .. } => true,
        Code::SyncWarp { mask } => *mask != u32::MAX,
        Code::Load { order, .. } | Code::Store { order, .. } => *order != Order::Weak,
        _ => false,
    }
}

impl Owners {
    fn new(len: usize) -> Self {
        let nobody = || [u64::MAX, 0, u64::MAX, 0].map(AtomicU64::new);
        Owners((0..len).map(|_| nobody()).collect())
    }
}

/// Of the first and last writer and the first and last reader of an element: two from different blocks, one of which writes,
/// the one of the later block first.
fn conflict_of_blocks([first, last, first_reader, last_reader]: [u64; 4]) -> Option<[Use; 2]> {
    if last == 0 {
        return None;
    }
    let block = |user: u64| user >> 32;
    let other = if block(first) != block(last) {
        (first, true)
    } else {
        let readers = [last_reader, first_reader].into_iter();
        (readers.filter(|&r| r != 0 && r != u64::MAX).find(|&r| block(r) != block(last))?, false)
    };
    let [a, b] = [(last, true), other].map(|(user, writes)| Use {
        block: block(user) as u32 - 1,
        lane: (user & 0x7ff) as u16,
        site: SiteId((user >> 11 & 0x1f_ffff) as u32),
        writes,
    });
    Some(if a.block > b.block { [a, b] } else { [b, a] })
}

impl Gathered {
    fn merge(mut self, other: Gathered) -> Gathered {
        for (mine, theirs) in self.tallies.iter_mut().zip(other.tallies) {
            *mine += theirs;
        }
        for (mine, theirs) in self.barriers.iter_mut().zip(other.barriers) {
            *mine = (mine.0 | theirs.0, mine.1 | theirs.1);
        }
        self.findings = self.findings.merge(other.findings);
        self.blocks += other.blocks;
        self
    }
}

impl Running {
    /// Notes whether the barrier before this point ordered anything.
    fn judge_barrier(&mut self, gathered: &mut Gathered) {
        if let Some(pc) = self.last_barrier.take() {
            let (ran, needed) = &mut gathered.barriers[pc as usize];
            *ran = true;
            *needed |= self.clocks.barrier_needed;
        }
    }

    /// A number below `limit`, from the seed.
    pub fn random(&mut self, limit: u64) -> u64 {
        self.random = mix(self.random);
        self.random % limit
    }
}

/// A step of the splitmix64 generator (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}
