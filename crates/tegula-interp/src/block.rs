//! Blocks: their warps, the barriers at which warps meet, and the grid they make up.
//!
//! Blocks that cannot wait for each other run one after the other on each core. Blocks of a kernel that orders accesses between
//! blocks (atomics, acquire, release, `wait_until`) run together, a device full at a time, each making progress in turn.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use rayon::prelude::*;
use rustc_hash::FxHashMap;
use tegula_core::diagnostic::{Finding, Kind, Severity, Space};
use tegula_core::error::Result;
use tegula_core::progress::Meter;
use tegula_core::threads;
use tegula_ir::launch::Bound;
use tegula_ir::{Access, Checked, Holds, Kernel, Order, ParamKind, Scope, Site, SiteId};

use super::access::Does;
use super::agent::{Agent, Agents, part_elements, tile_elements};
use super::asynchronous::Flights;
use super::cluster::Group;
use super::count::{Pattern, Tally, summarise};
use super::findings::Findings;
use super::hopper::Engine;
use super::lanes::{LineLanes, Registers};
use super::launch::{Arg, Config, Outcome};
use super::lower::lower;
use super::memory::SharedMemory;
use super::observe::Observer;
use super::owners::{Owners, Use};
use super::path::{Frame, Path};
use super::program::{Act, At, Code, Program};
use super::race::{Clocks, Conflict};
use super::shadow::{GlobalShadow, SharedShadow};
use super::uniform::Assertions;
use super::warp::Run;

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
    /// Whether there is anything that only Hopper has, and who works beside the threads then.
    hopper: bool,
    pub agents: Agents,
    /// For each parameter the first that is bound to the same memory.
    pub memory: Vec<usize>,
    /// For each parameter, whether it is printed as read-only and bound to memory that may be
    /// written.
    pub read_only: Vec<bool>,
    /// The scope of each ordered access, and whether it is atomic.
    ordered: FxHashMap<SiteId, (Scope, bool)>,
    /// Elements of each shared array that are remembered together: those of eight rows where only copies and matrix instructions touch them.
    pub granules: Vec<usize>,
    /// Who is told of finished blocks, and how many there are.
    meter: Option<(&'a Meter<'a>, AtomicU64)>,
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
    pub engine: Engine,
    pub named: [Named; 16],
    pub assertions: Assertions,
    last_barrier: Option<u32>,
    random: u64,
    /// Whether the seed varies orders that are natural otherwise ([`Running::vary`]).
    varied: bool,
}

/// A named barrier in one of its uses.
#[derive(Clone, Debug, Default)]
pub(super) struct Named {
    pub threads: u32,
    pub arrived: u32,
    pub waiting: Vec<u32>,
    pub known: super::race::Knowledge,
    /// The arrivals of this use, a thread for each warp, and those of the use before it.
    pub arrivals: Vec<super::race::Access>,
    pub before: Vec<super::race::Access>,
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
    /// At a barrier in shared memory.
    Await,
    /// Waiting for registers.
    Registers,
    /// At the barrier of the cluster.
    Cluster,
    /// At an instruction of the whole warp, for lanes on other paths.
    Converge,
    /// In a loop that has gone round for long, or that nothing changes any more.
    Spinning,
    /// Absorbed by another path, or at the end of the kernel before others of its warp.
    Gone,
    Done,
}

impl State {
    /// Whether the warp itself looks again and again whether it can go on.
    pub fn looks(self) -> bool {
        use State::{Await, Cluster, Converge, Polling, Registers, Spinning};
        matches!(self, Polling | Await | Registers | Cluster | Converge | Spinning)
    }
}

/// Something wrong: in which lines, by whom, about which element, in words that go on after who it was.
#[derive(Debug)]
pub(super) struct Mistake {
    pub kind: Kind,
    pub sites: Vec<SiteId>,
    pub lanes: Vec<u16>,
    pub element: Option<(Space, String, Vec<u64>)>,
    pub message: String,
}

/// How far the warps of a block got in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Progress {
    /// Nothing could run, or changed anything.
    None,
    /// All that ran were loops that went round for long.
    Spun,
    Ran,
}

impl Progress {
    fn or(self, ran: bool) -> Self {
        if ran { Progress::Ran } else { self }
    }
}

/// 32 lanes with their registers: the path at hand, and those that are parked.
pub(super) struct Warp {
    pub index: u32,
    pub registers: Registers,
    pub pc: usize,
    /// Lanes that run.
    pub mask: u32,
    /// Lanes there are.
    pub existing: u32,
    /// Lanes whose registers are here: those that run, those that wait for them at the end of a branch or loop, and those that have still to
    /// run another branch.
    pub carried: u32,
    /// Of the lanes that wait, those whose own wait is over.
    pub satisfied: u32,
    /// The branches and loops it is in.
    pub stack: Vec<Frame>,
    /// The loops it is in, outermost first: the position of each, and how often its body was begun before.
    pub loops: Vec<(u32, u32)>,
    pub state: State,
    pub parked: VecDeque<Path>,
    /// Branches and loops that were opened.
    pub frames: u32,
    /// Instructions that it ran.
    pub steps: u64,
    pub line_lanes: Arc<[LineLanes]>,
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
                return Err(tegula_core::Error::Launch { kernel: kernel.name().into(), why });
            }
        }
        let program = lower(kernel);
        let cooperative = program.code.iter().any(waits_for_others);
        let hopper = program.code.iter().any(|code| matches!(code, Code::Hopper(_)));
        let every_reader = cooperative || hopper || program.code.iter().any(synchronises_finely);
        let granules = granules(kernel, &program);
        let memory: Vec<_> =
            args.iter().map(|arg| args.iter().position(|first| first.is_same(arg)).unwrap_or(0)).collect();
        let owners = args.iter().zip(&memory).enumerate().map(|(param, (arg, &first))| match arg {
            Arg::Matrix(buffer) if config.races && !cooperative && buffer.is_writable() && param == first => {
                Some(Owners::new(buffer.layout().shape.len().unwrap_or(0)))
            }
            _ => None,
        });
        let read_only = kernel.params().iter().zip(args).map(|(param, arg)| {
            let read = matches!(param.kind, ParamKind::Matrix { access: Access::Read, .. });
            let written = matches!(arg, Arg::Matrix(buffer) if buffer.is_writable());
            config.races && read && written && !kernel.starts_early()
        });
        Ok(Machine {
            read_only: read_only.collect(),
            kernel,
            args,
            config,
            grid,
            owners: owners.collect(),
            every_reader,
            cooperative,
            hopper,
            agents: Agents::of(kernel),
            memory,
            ordered: ordered_accesses(&program),
            granules,
            program,
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
        let blocks = self.groups();
        let gathered = if self.cooperative {
            self.together(&blocks, observer)
        } else if self.config.parallel && observer.is_none() && blocks.len() > 1 && threads::count() > 1 {
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

    /// The clusters to run, by the position of their first blocks. A cluster runs whole.
    fn groups(&self) -> Vec<u64> {
        let (blocks, cluster) = (self.blocks(), u64::from(self.kernel.cluster()));
        if cluster == 1 {
            return blocks;
        }
        let mut groups: Vec<_> = blocks.into_iter().map(|block| block / cluster * cluster).collect();
        groups.sort_unstable();
        groups.dedup();
        groups
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

    /// Runs one cluster from start to end.
    fn alone(&self, first: u64, gathered: &mut Gathered, mut observer: Option<&mut dyn Observer>) {
        if gathered.stopped {
            return;
        }
        let mut group = self.start_group(first);
        let mut global = GlobalShadow::default();
        loop {
            let progress = self.advance_group(&mut group, &mut global, gathered, reborrow(&mut observer));
            let released = progress != Progress::Ran && self.release_lanes(&mut group);
            if gathered.stopped || progress == Progress::None && !released {
                break;
            }
        }
        if !gathered.stopped {
            self.finish_group(&mut group, gathered);
        }
    }

    /// Lets lanes go ahead of others that nothing lets on any more. False where there are none.
    fn release_lanes(&self, group: &mut Group) -> bool {
        group.blocks.iter_mut().flat_map(|block| &mut block.warps).any(|warp| warp.release(&self.program.code))
    }

    /// Runs every block of a cluster in turn.
    fn advance_group(
        &self,
        group: &mut Group,
        global: &mut GlobalShadow,
        gathered: &mut Gathered,
        mut observer: Option<&mut dyn Observer>,
    ) -> Progress {
        let mut progress = Progress::None;
        let mut order: Vec<usize> = (0..group.blocks.len()).collect();
        group.blocks[0].vary(&mut order);
        for at in order {
            let block = &mut group.blocks[at];
            progress = progress.max(self.advance(block, global, gathered, reborrow(&mut observer)));
            if gathered.stopped {
                return Progress::None;
            }
        }
        if self.hopper {
            progress.or(self.exchange(group, global, gathered, progress == Progress::Ran))
        } else {
            progress
        }
    }

    /// What is to be said about a cluster that has ended, or never will.
    fn finish_group(&self, group: &mut Group, gathered: &mut Gathered) {
        let ended = group.blocks.iter().all(|block| block.warps.iter().all(|w| w.state == State::Done));
        for block in &mut group.blocks {
            self.finish(block, gathered);
            if self.hopper && ended {
                self.leave_all(block);
                for (whose, mistake) in self.left_behind(block) {
                    self.note(gathered, whose, mistake);
                }
            }
        }
    }

    /// Runs blocks that may wait for each other: as many as the device holds, each in turn.
    fn together(&self, blocks: &[u64], mut observer: Option<&mut dyn Observer>) -> Gathered {
        let (mut gathered, mut global) = (self.gathered(), GlobalShadow::default());
        let mut waiting = blocks.iter();
        let mut resident: Vec<Group> = Vec::new();
        let mut random = mix(self.config.seed);
        loop {
            while resident.len() < (self.config.resident / self.kernel.cluster()).max(1) as usize {
                let Some(&first) = waiting.next() else { break };
                resident.push(self.start_group(first));
            }
            if resident.is_empty() {
                return gathered;
            }
            let mut progress = Progress::None;
            let mut turns: Vec<&mut Group> = resident.iter_mut().collect();
            if self.config.seed != 0 {
                shuffle(&mut turns, &mut random);
            }
            for group in turns {
                progress = progress.max(self.advance_group(group, &mut global, &mut gathered, reborrow(&mut observer)));
            }
            if gathered.stopped {
                return gathered;
            }
            let before = resident.len();
            resident.retain_mut(|group| {
                let done = group.is_done();
                if done {
                    self.finish_group(group, &mut gathered);
                }
                !done
            });
            if progress == Progress::Ran || resident.len() != before {
                continue;
            }
            let released = resident.iter_mut().any(|group| self.release_lanes(group));
            if progress == Progress::None && !released {
                for group in &mut resident {
                    self.finish_group(group, &mut gathered);
                }
                return gathered;
            }
        }
    }

    pub fn start(&self, linear: u64) -> Running {
        let [x, y, _] = self.grid.map(u64::from);
        let id = [linear % x, linear / x % y, linear / x / y].map(|i| i as u32);
        let threads = self.kernel.threads();
        let warps = (0..threads.div_ceil(32)).map(|index| {
            let lanes = (threads - 32 * index).min(32);
            let existing = if lanes == 32 { u32::MAX } else { (1 << lanes) - 1 };
            Warp::new(index, existing, &self.program)
        });
        let lengths = self.kernel.shared().iter().zip(&self.granules).map(|(a, &granule)| match self.config.races {
            true => a.len().div_ceil(granule as u64),
            false => 0,
        });
        Running {
            id,
            linear,
            warps: warps.collect(),
            shared: SharedMemory::new(self.kernel.shared()),
            shadow: SharedShadow::new(lengths),
            clocks: Clocks::new(linear as u32, threads, self.every_reader),
            flights: Flights::new(threads),
            engine: if self.hopper { Engine::new(self.kernel, &self.program, &self.agents) } else { Engine::default() },
            named: Default::default(),
            assertions: Assertions::default(),
            last_barrier: None,
            random: mix(self.config.seed ^ mix(linear + 1)),
            varied: self.config.seed != 0,
        }
    }

    /// Runs every warp of a block that can run until it cannot, then lets through who has met at a barrier.
    fn advance(
        &self,
        block: &mut Running,
        global: &mut GlobalShadow,
        gathered: &mut Gathered,
        mut observer: Option<&mut dyn Observer>,
    ) -> Progress {
        let mut order: Vec<usize> = (0..block.warps.len()).collect();
        shuffle(&mut order, &mut block.random);
        let mut progress = Progress::None;
        for warp in order {
            if !block.engine.coming.is_empty() && block.random(4) == 0 {
                progress = progress.or(self.land_one(block, gathered));
            }
            if !block.warps[warp].can_run() {
                continue;
            }
            // The warp leaves its block while it runs, so that both can be changed.
            let placeholder = block.warps[warp].placeholder();
            let mut running = std::mem::replace(&mut block.warps[warp], placeholder);
            let mut run = Run {
                machine: self,
                block,
                global,
                gathered,
                observer: reborrow(&mut observer),
                warp: &mut running,
                request: None,
                changed: false,
            };
            progress = progress.max(run.until_blocked());
            block.warps[warp] = running;
            if gathered.stopped {
                return Progress::None;
            }
        }
        progress.or(self.release_barrier(block, gathered))
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
        // Each path that waits: its state, its warp, for what, its first thread, and where.
        let mut stuck: Vec<(State, u32, String, [u32; 3], usize)> = Vec::new();
        for warp in 0..block.warps.len() {
            for _ in 0..=block.warps[warp].parked.len() {
                let path = &block.warps[warp];
                if path.state != State::Done {
                    let thread = self.thread(path.index * 32 + path.mask.trailing_zeros().min(31));
                    // A warp at a named barrier already stands behind it.
                    let pc = path.pc - usize::from(matches!(path.state, State::Named(_)));
                    stuck.push((path.state, path.index, self.waits_for(block, path), thread, pc));
                }
                block.warps[warp].switch();
            }
        }
        // Lanes that wait for others of their warp only do so because those wait for something else.
        if stuck.iter().any(|(state, ..)| *state != State::Converge) {
            stuck.retain(|(state, ..)| *state != State::Converge);
        }
        let Some(&(.., first)) = stuck.first() else { return };
        let is = |state: State| stuck.iter().any(|(other, ..)| *other == state);
        let kind = match () {
            () if is(State::Registers) => Kind::RegisterBudget,
            () if is(State::Converge) => Kind::DivergentWarp,
            () if is(State::Spinning) => Kind::NoProgress,
            () => Kind::Deadlock,
        };
        // Those together that wait for the same.
        let mut waits: Vec<(String, Vec<u32>)> = Vec::new();
        for (_, warp, what, ..) in &stuck {
            match waits.iter_mut().find(|(other, _)| other == what) {
                Some((_, warps)) => warps.push(*warp),
                None => waits.push((what.clone(), vec![*warp])),
            }
        }
        let threads: Vec<_> = stuck.iter().map(|&(_, _, _, thread, _)| thread).collect();
        let waits: Vec<_> = waits.iter().map(|(what, warps)| format!("warps {warps:?} {what}")).collect();
        let site = self.site(first);
        let finding = || Finding {
            kind,
            message: format!(
                "block {:?}: {} ({}:{})",
                block.id,
                waits.join("; "),
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
        gathered.findings.add(kind, &[site], block.linear, finding);
    }

    fn waits_for(&self, block: &Running, warp: &Warp) -> String {
        match warp.state {
            State::Barrier => "wait at a barrier to which the rest of the block never comes".into(),
            State::Named(id) => {
                let Named { threads, arrived, .. } = block.named[id as usize];
                format!("wait at named barrier {id}: {arrived} of {threads} threads came")
            }
            State::Await => format!("wait {}", self.awaited(block, warp).unwrap_or_default()),
            State::Registers => match self.program.code.get(warp.pc) {
                Some(Code::Hopper(act)) => match **act {
                    Act::SetRegisters { count, .. } => format!("wait {}", block.engine.wanted(warp.index, count)),
                    _ => String::new(),
                },
                _ => String::new(),
            },
            State::Cluster => "wait at the barrier of the cluster, to which not all of its threads come".into(),
            State::Converge => {
                format!(
                    "wait with lanes {:#010x} at an instruction of the warp to which the other lanes never come",
                    warp.mask
                )
            }
            State::Spinning => "repeat a loop in which nothing changes any more".into(),
            _ => "wait for an element of memory that nobody changes any more".into(),
        }
    }

    /// A lane in words.
    pub fn who(&self, lane: u16) -> String {
        match self.agents.agent(lane) {
            None => format!("thread {:?}", self.thread(lane.into())),
            Some(Agent::Part { array, part }) => {
                let array = &self.kernel.shared()[array];
                format!("a copy to tile {} of {}", part * part_elements(array) / tile_elements(array), array.name)
            }
            Some(Agent::Warp(warp)) => format!("a multiplication of warp {warp}"),
            Some(Agent::Thread(thread) | Agent::Stores(thread)) => {
                format!("a store of a tile by thread {:?}", self.thread(thread.into()))
            }
            Some(Agent::Copies(thread)) => format!("an asynchronous copy of thread {:?}", self.thread(thread.into())),
        }
    }

    /// The space, name and coordinates of an element, and how messages write it.
    pub fn element(&self, space: Space, memory: usize, index: usize) -> ((Space, String, Vec<u64>), String) {
        let (name, at) = match space {
            Space::Shared => {
                let array = &self.kernel.shared()[memory];
                (array.name.clone(), array.coordinates(index as u64))
            }
            Space::Global => {
                let at = match self.args[memory] {
                    Arg::Matrix(buffer) => buffer.coordinates(index),
                    Arg::Scalar { .. } => Vec::new(),
                };
                (self.kernel.params()[memory].name.clone(), at)
            }
        };
        let text = format!("{name}{at:?}");
        ((space, name, at), text)
    }

    /// An access that races with one that an agent has to do with.
    pub fn conflict(
        &self,
        space: Space,
        memory: usize,
        index: usize,
        (site, lane, does): (SiteId, u16, Does),
        Conflict { earlier, earlier_writes, .. }: Conflict,
    ) -> Mistake {
        let (element, text) = self.element(space, memory, index);
        let who = self.who(earlier.lane);
        let verb = |writes| if writes { "writes" } else { "reads" };
        let does = verb(does == Does::Write);
        let (kind, message) = match self.agents.agent(earlier.lane) {
            Some(Agent::Part { .. }) if earlier_writes => {
                (Kind::InFlight, format!("{does} {text} while {who} is on its way; wait for its barrier first"))
            }
            Some(Agent::Part { .. }) => {
                (Kind::Race, format!("{does} {text}, which {who} reads until its barrier has been waited for"))
            }
            Some(Agent::Stores(_)) => {
                (Kind::Race, format!("{does} {text}, which {who} writes, in no order; it writes until `await_stores`"))
            }
            Some(Agent::Copies(_)) => (
                Kind::Race,
                format!(
                    "{does} {text}, which {who} reads, in no order; it reads until the thread has waited for its group"
                ),
            ),
            Some(Agent::Warp(_)) => {
                let advice = "it reads until `wgmma_wait`, and who arrives before says nothing of it";
                (Kind::Race, format!("{does} {text}, which {who} reads, in no order; {advice}"))
            }
            Some(Agent::Thread(_)) => {
                let advice = "it reads until `await_reads`, and who arrives before says nothing of it";
                (Kind::Race, format!("{does} {text}, which {who} reads, in no order; {advice}"))
            }
            None => (Kind::Race, format!("{does} {text}, which {who} {}, in no order", verb(earlier_writes))),
        };
        let (sites, lanes) = (vec![site, SiteId(earlier.site)], vec![lane, earlier.lane]);
        Mistake { kind, sites, lanes, element: Some(element), message }
    }

    pub fn sites(&self, mistake: &Mistake) -> Vec<Site> {
        mistake.sites.iter().map(|&site| self.kernel.site(site)).collect()
    }

    /// A mistake in a block, as it is reported.
    pub fn finding(&self, block: [u32; 3], mistake: Mistake) -> Finding {
        let source: Vec<_> = self.sites(&mistake).iter().map(|site| site.location).collect();
        let Mistake { kind, lanes, element, message, .. } = mistake;
        let places: Vec<_> = source.iter().map(|at| format!("{}:{}", at.file(), at.line())).collect();
        let who = lanes.first().map_or(String::new(), |&lane| format!(", {}", self.who(lane)));
        let threads = lanes.iter().filter_map(|&lane| match self.agents.agent(lane) {
            None => Some(lane.into()),
            Some(Agent::Warp(warp)) => Some(32 * warp),
            Some(Agent::Thread(thread) | Agent::Copies(thread) | Agent::Stores(thread)) => Some(thread.into()),
            Some(Agent::Part { .. }) => None,
        });
        let (space, name, index) = match element {
            Some((space, name, index)) => (Some(space), name, index),
            None => (None, String::new(), Vec::new()),
        };
        Finding {
            kind,
            message: format!("block {block:?}{who}: {message} ({})", places.join(", ")),
            block,
            threads: threads.map(|thread| self.thread(thread)).collect(),
            space,
            name,
            index,
            source,
            times: 1,
        }
    }

    /// Notes a mistake that no warp is at.
    pub fn note(&self, gathered: &mut Gathered, block: u32, mistake: Mistake) {
        let sites = self.sites(&mistake);
        gathered.findings.add(mistake.kind, &sites, block.into(), || self.finding(self.block_id(block), mistake));
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
        let Some(owners) = &self.owners[self.memory[param]] else { return };
        owners.note(index, block, lane, site, write);
    }

    /// Reports elements that one block writes and another one uses: nothing orders blocks that run independently.
    fn races_of_blocks(&self, gathered: &mut Gathered) {
        for (param, owners) in self.owners.iter().enumerate() {
            let conflicts = owners.iter().flat_map(|owners| owners.conflicts(self.kernel.cluster()));
            for (index, [later, earlier]) in conflicts {
                let sites = [later, earlier].map(|u| self.kernel.site(u.site));
                let name = self.kernel.params()[param].name.clone();
                let Arg::Matrix(buffer) = self.args[param] else { continue };
                let element = || (Space::Global, name, buffer.coordinates(index));
                let block = u64::from(later.block);
                gathered.findings.add(Kind::Race, &sites, block, || self.race(element(), later, earlier, None));
            }
        }
    }

    /// Two uses of one element in no order.
    ///
    /// `missed` is where a thread read a release of the other block in vain.
    pub fn race(
        &self,
        (space, name, index): (Space, String, Vec<u64>),
        one: Use,
        other: Use,
        missed: Option<SiteId>,
    ) -> Finding {
        let (here, there) = (self.block_id(one.block), self.block_id(other.block));
        let threads = [one, other].map(|u| self.thread(u.lane.into()));
        let [site, met] = [one, other].map(|u| self.kernel.site(u.site).location);
        let verb = |u: Use| match self.ordered.get(&u.site) {
            Some((_, true)) => "reads and writes",
            _ if u.writes => "writes",
            _ => "reads",
        };
        let elsewhere = if here == there { String::new() } else { format!(" of block {there:?}") };
        let message = format!(
            "block {here:?}: thread {:?} {} {name}{index:?} ({}:{}) and thread {:?}{elsewhere} {} it ({}:{}) in no order{}",
            threads[0],
            verb(one),
            site.file(),
            site.line(),
            threads[1],
            verb(other),
            met.file(),
            met.line(),
            self.narrow_scope(one, other, missed),
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

    /// Why accesses or a release and an acquire that were meant to order two blocks do not.
    fn narrow_scope(&self, one: Use, other: Use, missed: Option<SiteId>) -> String {
        if one.block == other.block {
            return String::new();
        }
        let narrow = |site: &SiteId| matches!(self.ordered.get(site), Some((Scope::Block, _)));
        let ordered = |site: &SiteId| self.ordered.contains_key(site);
        let both = [one.site, other.site];
        let site = both.into_iter().find(narrow).filter(|_| both.iter().all(ordered)).or(missed);
        site.map_or_else(String::new, |site| {
            let at = self.kernel.site(site).location;
            let what = if Some(site) == missed {
                "what is acquired there or the release that it reads"
            } else {
                "the access there"
            };
            format!(
                "; {what} has the scope of a block, which does not reach another block ({}:{}): use Device",
                at.file(),
                at.line()
            )
        })
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
    use At::Global;
    matches!(code, Code::Atomic { at: Global { .. }, .. } | Code::WaitUntil { at: Global { .. }, .. })
        || matches!(code, Code::Load { at: Global { .. }, order, .. } | Code::Store { at: Global { .. }, order, .. }
            if *order != Order::Weak)
}

/// The scope of each site with an ordered access, and whether that is atomic.
fn ordered_accesses(program: &Program) -> FxHashMap<SiteId, (Scope, bool)> {
    let accesses = program.code.iter().zip(&program.sites).filter_map(|(code, &site)| match *code {
        Code::Atomic { scope, .. } => Some((site, (scope, true))),
        Code::Load { order, scope, .. } | Code::Store { order, scope, .. } if order != Order::Weak => {
            Some((site, (scope, false)))
        }
        Code::WaitUntil { scope, .. } => Some((site, (scope, false))),
        _ => None,
    });
    accesses.collect()
}

fn synchronises_finely(code: &Code) -> bool {
    match code {
        Code::NamedBarrier { .. } | Code::Fence { .. } | Code::Atomic { .. } | Code::WaitUntil { .. } => true,
        Code::SyncWarp { mask } => *mask != u32::MAX,
        Code::Load { order, .. } | Code::Store { order, .. } => *order != Order::Weak,
        _ => false,
    }
}

/// How many elements of each shared array are remembered together.
fn granules(kernel: &Kernel, program: &Program) -> Vec<usize> {
    let mut granules: Vec<_> = kernel
        .shared()
        .iter()
        .map(|array| match (array.holds, &array.dims[..]) {
            (Holds::Tiles(_), &[_, rows, _]) if rows % 8 == 0 => part_elements(array) as usize,
            _ => 1,
        })
        .collect();
    for code in &program.code {
        let at = match code {
            Code::Load { at, .. } | Code::Store { at, .. } | Code::Atomic { at, .. } | Code::WaitUntil { at, .. } => at,
            Code::CopyAsync { to, .. } => to,
            Code::LoadMatrix { at, .. } => at,
            Code::Hopper(act) => match &**act {
                Act::StoreMatrix { to, .. } => to,
                _ => continue,
            },
            _ => continue,
        };
        if let At::Shared { array, .. } = at {
            granules[array.index()] = 1;
        }
    }
    granules
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
        self.stopped |= other.stopped;
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
        next(&mut self.random, limit)
    }

    /// Permutes items whose order is undefined. Seed 0 keeps their order.
    ///
    /// A release that is observed by luck in one order, without a wait, is missed in another.
    pub fn vary<T>(&mut self, items: &mut [T]) {
        if self.varied {
            shuffle(items, &mut self.random);
        }
    }

    /// A random part of several lanes, in one of four calls; none with seed 0.
    pub fn some_of(&mut self, lanes: u32) -> Option<u32> {
        if !self.varied || lanes.count_ones() < 2 || self.random(4) != 0 {
            return None;
        }
        let some = lanes & self.random(1 << 32) as u32;
        Some(some).filter(|&some| some != 0 && some != lanes)
    }

    /// Whether lanes whose wait is over continue before the other lanes of their path.
    pub fn splits_wait(&mut self) -> bool {
        self.varied && self.random(2) == 0
    }
}

/// A number below `limit`.
fn next(random: &mut u64, limit: u64) -> u64 {
    *random = mix(*random);
    *random % limit
}

/// Puts items into a random order.
fn shuffle<T>(items: &mut [T], random: &mut u64) {
    for i in (1..items.len()).rev() {
        items.swap(i, next(random, i as u64 + 1) as usize);
    }
}

/// A step of the splitmix64 generator (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}
