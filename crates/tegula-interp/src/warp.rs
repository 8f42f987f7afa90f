//! A warp that runs: one instruction after the other for all its lanes, until it must wait.

use tegula_core::diagnostic::{Finding, Kind, Space};
use tegula_core::element::Type;
use tegula_ir::{Axis, ParamId, Shuffle, Site, SiteId, Special, Vote};

use super::block::{Progress, Running};
use super::gathered::Gathered;
use super::lanes::{self, Reg, mask};
use super::launch::Arg;
use super::machine::Machine;
use super::observe::{Computation, Event, Observer, Request, What};
use super::path::{Path, State, Warp};
use super::program::Code;
use super::race::{Eyes, Now, lanes_of};
use super::report::Mistake;
use super::shadow::GlobalShadow;
use super::tensor::round_tf32;

/// A warp with all it can touch.
pub(super) struct Run<'r, 'm> {
    pub machine: &'r Machine<'m>,
    pub block: &'r mut Running,
    pub global: &'r mut GlobalShadow,
    pub gathered: &'r mut Gathered,
    pub observer: Option<&'r mut dyn Observer>,
    pub warp: &'r mut Warp,
    /// What the access at hand costs, where that was counted.
    pub request: Option<Request>,
    /// Whether anything but registers changed since this was last set to false.
    pub changed: bool,
}

/// Rounds of `while` loops after which a path looks whether anything changes in them.
const LOOK: u32 = 64;
/// Rounds of `while` loops after which other paths, warps and blocks have their turn.
const TURN: u32 = 1 << 14;

/// A `while` loop as it was a round before: where it begins, and its lanes and registers.
type Snapshot = (usize, u64);

impl Run<'_, '_> {
    /// Runs each path of the warp until it waits or ends.
    pub fn until_blocked(&mut self) -> Progress {
        let code = &self.machine.program.code;
        let mut progress = Progress::None;
        let mut left = 1 + self.warp.parked.len();
        while left > 0 {
            if self.warp.state == State::Ready || self.warp.state.looks() {
                progress = progress.max(self.run_path());
            }
            if self.gathered.stopped {
                return Progress::None;
            }
            let waits = matches!(self.warp.state, State::Polling | State::Await);
            let split = waits && self.block.splits_wait() && self.warp.split_wait(code);
            let forked = self.warp.state != State::Gone && self.warp.fork(code);
            left = left - 1 + usize::from(split) + usize::from(forked);
            self.warp.switch();
        }
        progress
    }

    /// Runs until the path waits or ends.
    fn run_path(&mut self) -> Progress {
        let machine = self.machine;
        let looked = self.warp.state.looks();
        let (mut ran, mut rounds, mut before) = (false, 0, None);
        self.warp.state = State::Ready;
        loop {
            let Some(code) = machine.program.code.get(self.warp.pc) else {
                self.warp.state = if self.warp.parked.is_empty() { State::Done } else { State::Gone };
                return Progress::Ran;
            };
            self.warp.steps += 1;
            if self.warp.steps > machine.config.steps {
                self.out_of_steps();
                return Progress::None;
            }
            let (pc, lanes) = (self.warp.pc, u64::from(self.warp.mask.count_ones()));
            if machine.config.counters {
                let tally = &mut self.gathered.tallies[pc];
                tally.warps += 1;
                tally.lanes += lanes;
            }
            let goes_on = self.step(code);
            if self.gathered.stopped {
                return Progress::None;
            }
            if self.warp.state == State::Gone {
                return Progress::Ran;
            }
            if !goes_on {
                let looks = self.warp.state.looks();
                // A look that must be repeated is one wait, however often the interpreter looks.
                if looks && machine.config.counters {
                    let tally = &mut self.gathered.tallies[pc];
                    tally.warps -= 1;
                    tally.lanes -= lanes;
                }
                // One that failed again is no progress.
                return if ran || !(looks && looked) { Progress::Ran } else { Progress::None };
            }
            ran = true;
            if let Code::Jump { .. } = code
                && let Some(progress) = self.went_round(&mut rounds, &mut before)
            {
                self.warp.state = State::Spinning;
                return progress;
            }
        }
    }

    /// Counts a round of a `while` loop. Gives how far the path got where others have their turn.
    fn went_round(&mut self, rounds: &mut u32, before: &mut Option<Snapshot>) -> Option<Progress> {
        *rounds += 1;
        if *rounds < LOOK {
            return None;
        }
        if *rounds >= TURN {
            return Some(Progress::Spun);
        }
        let pc = self.warp.pc;
        match before.take() {
            Some((at, registers)) if at == pc => {
                (!self.changed && registers == self.warp.registers.hash(self.warp.mask)).then_some(Progress::None)
            }
            // Looking takes time: it is done after 64, 128, 256, … rounds.
            _ if rounds.is_power_of_two() => {
                self.changed = false;
                *before = Some((pc, self.warp.registers.hash(self.warp.mask)));
                None
            }
            other => {
                *before = other;
                None
            }
        }
    }

    fn out_of_steps(&mut self) {
        let (pc, limit) = (self.warp.pc, self.machine.config.steps);
        let thread = self.warp.index * 32 + self.warp.mask.trailing_zeros() % 32;
        let message = format!("the warp has run {limit} instructions and has not ended; the limit is an option");
        self.report(Kind::NoProgress, pc, &[thread], None, message);
        self.gathered.stopped = true;
    }

    /// Runs one instruction. False where the warp waits.
    fn step(&mut self, code: &Code) -> bool {
        let pc = self.warp.pc;
        match *code {
            Code::For { .. }
            | Code::Next { .. }
            | Code::If { .. }
            | Code::Else { .. }
            | Code::While { .. }
            | Code::Test { .. }
            | Code::Jump { .. }
            | Code::End => {
                self.control(code);
                return true;
            }
            Code::Barrier => {
                if !self.converged(u32::MAX) {
                    return false;
                }
                self.observe(What::Barrier { id: 0, threads: self.machine.kernel.threads(), waits: true });
                self.warp.state = State::Barrier;
                return false;
            }
            Code::NamedBarrier { id, threads, wait } => {
                if !self.converged(u32::MAX) {
                    return false;
                }
                let id = self.warp.registers.u32s(id)[self.warp.mask.trailing_zeros() as usize % 32];
                self.observe(What::Barrier { id, threads, waits: wait });
                self.warp.pc += 1;
                if !(1..=15).contains(&id) {
                    let (thread, message) =
                        (self.warp.index * 32, format!("there is no named barrier {id}; 1 to 15 are"));
                    self.report(Kind::ArrivalMismatch, pc, &[thread], None, message);
                    return true;
                }
                return !self.arrive(pc, id, threads, wait);
            }
            Code::WaitUntil { ty, at, how, value, scope } => {
                if !self.wait_until(ty, at, how, value, scope) {
                    self.warp.state = State::Polling;
                    return false;
                }
            }
            Code::Load { ty, ref dst, at, only, fill, order, scope } => {
                self.load(ty, dst, at, only, fill, (order, scope));
            }
            Code::Store { ty, values, width, at, only, order, scope } => {
                self.store(ty, &values[..width as usize], at, only, (order, scope));
            }
            Code::Atomic { op, ty, dst, at, value, expected, order, scope } => {
                self.atomic(op, ty, [dst, value, expected], at, (order, scope));
            }
            Code::CopyAsync { ty, to, from, width, only } => self.copy_async(ty, to, from, width, only),
            Code::Commit => self.lanes().for_each(|lane| self.block.flights.commit(lane)),
            Code::WaitGroups { pending } => {
                self.land(pending);
                self.observe(What::Wait(pending));
            }
            Code::Fence { scope } => self.lanes().for_each(|lane| self.block.clocks.fence(lane, scope)),
            Code::SyncWarp { mask } => {
                if !self.sync_warp(mask) {
                    self.warp.state = State::Converge;
                    return false;
                }
            }
            Code::Shuffle { mask, .. } | Code::Vote { mask, .. } if !self.converged(mask) => return false,
            Code::Mma { .. } | Code::LoadMatrix { .. } | Code::Uniform { .. } if !self.converged(u32::MAX) => {
                return false;
            }
            Code::Shuffle { mode, dst, value, lane, mask } => self.shuffle(pc, mode, [dst, value, lane], mask),
            Code::Vote { mode, dst, value, mask } => self.vote(pc, mode, dst, value, mask),
            Code::Mma { mma, ref fragments } => self.mma(pc, mma, fragments),
            Code::LoadMatrix { ty, dst, count, at, transposed } => {
                self.load_matrix(pc, ty, &dst[..count as usize], at, transposed);
            }
            Code::Uniform { scope, ty, dst, a } => self.assert_uniform(pc, scope, ty, dst, a),
            Code::Hopper(ref act) => {
                self.changed = true;
                if act.is_of_whole_warps() && !self.converged(u32::MAX) || !self.act(pc, act) {
                    return false;
                }
            }
            Code::TakeSum { a, .. } => {
                self.use_sum(a);
                self.compute(code);
            }
            Code::PutSum { dst, .. } => {
                self.use_sum(dst);
                self.compute(code);
            }
            _ => self.compute(code),
        }
        self.warp.pc += 1;
        true
    }

    /// The lanes that run, as positions in the block.
    pub fn lanes(&self) -> impl Iterator<Item = u16> + use<> {
        lanes_of(self.warp.index, self.warp.mask)
    }

    fn control(&mut self, code: &Code) {
        if let Code::For { start, end, step, .. } = *code {
            self.check_step(start, end, step);
        }
        let (warp, program) = (&mut *self.warp, &self.machine.program.code);
        let next = warp.pc + 1;
        warp.pc = match *code {
            Code::For { counter, start, end, exit, .. } => {
                warp.registers.copy(Type::U32, counter, start, warp.mask);
                let inside = warp.mask & warp.below(counter, end);
                if inside != 0 {
                    warp.enter(warp.mask, 0);
                    warp.loops.push((warp.pc as u32, 0));
                    warp.mask = inside;
                    next
                } else {
                    exit as usize
                }
            }
            Code::Next { counter, end, step, body } => {
                let (old, steps) = (warp.registers.u32s(counter), warp.registers.u32s(step));
                let new: [u32; 32] = std::array::from_fn(|i| old[i].wrapping_add(steps[i]));
                warp.registers.put_u32s(counter, new);
                warp.mask &= warp.below(counter, end) & mask(|i| new[i] > old[i]);
                if warp.mask != 0 {
                    warp.again();
                    body as usize
                } else {
                    warp.loops.pop();
                    warp.leave();
                    next
                }
            }
            Code::If { condition, otherwise } => {
                let holds = warp.registers.predicates[condition as usize] & warp.mask;
                // Lanes without another branch wait at the end of this one.
                let other = matches!(program[otherwise as usize], Code::Else { end } if end > otherwise + 1);
                warp.enter(warp.mask, if other { warp.mask & !holds } else { 0 });
                warp.mask = holds;
                if holds != 0 { next } else { otherwise as usize }
            }
            Code::Else { end } => {
                warp.mask = warp.stack.last_mut().map_or(0, |frame| std::mem::take(&mut frame.otherwise));
                if warp.mask != 0 { next } else { end as usize }
            }
            Code::While { .. } => {
                warp.enter(warp.mask, 0);
                warp.loops.push((warp.pc as u32, 0));
                next
            }
            Code::Test { condition, exit } => {
                warp.mask &= warp.registers.predicates[condition as usize];
                if warp.mask != 0 {
                    next
                } else {
                    warp.loops.pop();
                    exit as usize
                }
            }
            // Only `while` jumps, and back.
            Code::Jump { to } => {
                warp.again();
                to as usize
            }
            _ => {
                warp.leave();
                next
            }
        };
    }

    fn check_step(&mut self, start: Reg, end: Reg, step: Reg) {
        let steps = self.warp.registers.u32s(step);
        let lanes = self.warp.mask & self.warp.below(start, end) & mask(|lane| steps[lane] == 0);
        if lanes == 0 {
            return;
        }
        let (pc, thread) = (self.warp.pc, self.warp.index * 32 + lanes.trailing_zeros());
        let message = "a loop has a step of 0 and would never end; it is left after one round".into();
        self.report(Kind::ZeroStep, pc, &[thread], None, message);
    }

    /// Instructions that only compute.
    fn compute(&mut self, code: &Code) {
        use Computation::{Convert, Move, MulAdd, Other};
        let registers = &mut self.warp.registers;
        match *code {
            Code::Special { dst, what } => {
                let lanes = self.special(what);
                self.warp.registers.put_u32s(dst, lanes);
                self.computed(Other, Type::U32, dst, &[]);
            }
            Code::Extent { dst, param, axis } => {
                let extent = self.extent(param, axis);
                self.warp.registers.put_u32s(dst, [extent; 32]);
                self.computed(Other, Type::U32, dst, &[]);
            }
            Code::Scalar { dst, ty, param } => {
                if let Arg::Scalar { bits, .. } = self.machine.args[param.index()] {
                    registers.put_bits(ty, dst, &[bits; 32]);
                }
                self.computed(Other, ty, dst, &[]);
            }
            Code::Unary { op, ty, dst, a } => {
                registers.unary(op, ty, dst, a);
                self.computed(Computation::Unary(op), ty, dst, &[a]);
            }
            Code::Binary { op, ty, dst, a, b } => {
                let by_zero = registers.binary(op, ty, dst, a, b) & self.warp.mask;
                if by_zero != 0 {
                    self.divided_by_zero(by_zero);
                }
                self.computed(Computation::Binary(op), ty, dst, &[a, b]);
            }
            Code::MulAdd { ty, dst, a, b, c } => {
                registers.mul_add(ty, [dst, a, b, c]);
                self.computed(MulAdd, ty, dst, &[a, b, c]);
            }
            Code::Compare { how, ty, dst, a, b } => {
                registers.compare(how, ty, dst, a, b);
                self.computed(Other, Type::Pred, dst, &[]);
            }
            Code::Select { ty, dst, condition, yes, no } => {
                let condition = registers.predicates[condition as usize];
                registers.select(ty, condition, [dst, yes, no]);
                self.computed(Other, ty, dst, &[]);
            }
            Code::Convert { from, to, dst, a } => {
                registers.convert(from, to, dst, a);
                self.computed(Convert, to, dst, &[a]);
            }
            Code::RoundTf32 { dst, a } => {
                let rounded = registers.u32s(a).map(round_tf32);
                registers.put_u32s(dst, rounded);
                self.computed(Convert, Type::U32, dst, &[a]);
            }
            Code::Pack { dst, a, b } => {
                let (low, high) = (registers.u32s(a), registers.u32s(b));
                registers.put_u32s(dst, std::array::from_fn(|lane| low[lane] & 0xffff | high[lane] << 16));
                self.computed(Other, Type::U32, dst, &[]);
            }
            Code::TakeSum { dst, a } => {
                registers.copy(Type::F32, dst, a, u32::MAX);
                self.computed(Move, Type::F32, dst, &[a]);
            }
            Code::PutSum { dst, a } => {
                registers.copy(Type::F32, dst, a, self.warp.mask);
                self.computed(Move, Type::F32, dst, &[a]);
            }
            Code::Copy { ty, dst, a } => {
                registers.copy(ty, dst, a, u32::MAX);
                self.computed(Move, ty, dst, &[a]);
            }
            Code::Set { ty, dst, a } => {
                registers.copy(ty, dst, a, self.warp.mask);
                self.computed(Move, ty, dst, &[a]);
            }
            Code::Advance { dst, a, b } => {
                let (a, b, mut sums) = (registers.u32s(a), registers.u32s(b), registers.u32s(dst));
                for lane in (0..32).filter(|lane| self.warp.mask >> lane & 1 == 1) {
                    sums[lane] = a[lane].saturating_add(b[lane]);
                }
                registers.put_u32s(dst, sums);
            }
            _ => {}
        }
    }

    /// Tells an observer of results.
    pub fn computed(&mut self, how: Computation, ty: Type, into: Reg, from: &[Reg]) {
        if self.observer.is_some() {
            let bits = self.warp.registers.bits(ty, into);
            self.observe(What::Compute { how, ty, into, from, bits: &bits });
        }
    }

    fn special(&self, what: Special) -> [u32; 32] {
        let first = self.warp.index * 32;
        let threads: [[u32; 3]; 32] = std::array::from_fn(|lane| self.machine.thread(first + lane as u32));
        let ([x, y, z], [gx, gy, gz]) = (self.block.id, self.machine.grid);
        match what {
            Special::ThreadX => threads.map(|t| t[0]),
            Special::ThreadY => threads.map(|t| t[1]),
            Special::ThreadZ => threads.map(|t| t[2]),
            Special::BlockX => [x; 32],
            Special::BlockY => [y; 32],
            Special::BlockZ => [z; 32],
            Special::GridX => [gx; 32],
            Special::GridY => [gy; 32],
            Special::GridZ => [gz; 32],
            Special::Lane => std::array::from_fn(|lane| lane as u32),
            Special::Warp => [self.warp.index; 32],
            Special::Warpgroup => [self.warp.index / 4; 32],
            Special::Cluster => [x / self.machine.kernel.cluster(); 32],
            Special::ClusterRank => [x % self.machine.kernel.cluster(); 32],
            Special::Multiprocessors => [0; 32],
        }
    }

    fn extent(&self, param: ParamId, axis: Axis) -> u32 {
        let Arg::Matrix(buffer) = self.machine.args[param.index()] else { return 0 };
        let shape = buffer.layout().shape;
        // Extents were checked to fit when the arguments were bound.
        (match axis {
            Axis::Batches => shape.batches,
            Axis::Rows => shape.rows,
            Axis::Cols => shape.cols,
        }) as u32
    }

    /// Whether all lanes of the mask are on this path. Where some are on others, the path waits for them here, and goes on as one with them.
    fn converged(&mut self, mask: u32) -> bool {
        let mask = mask & self.warp.existing;
        if mask & !self.warp.mask == 0 || self.warp.parked.is_empty() {
            return true;
        }
        self.warp.converge();
        if mask & !self.warp.mask == 0 || self.warp.parked.is_empty() {
            return true;
        }
        self.warp.state = State::Converge;
        false
    }

    /// Synchronises the lanes of a mask, which may come on several paths, each from an instruction of its own. False where some have not come.
    fn sync_warp(&mut self, mask: u32) -> bool {
        let warp = &mut *self.warp;
        let code = &self.machine.program.code;
        let expected = mask & warp.existing;
        let waits = |pc: usize| matches!(code.get(pc), Some(Code::SyncWarp { mask: other }) if *other == mask);
        let came = |path: &&mut Path| path.state == State::Converge && waits(path.pc);
        let all = warp.parked.iter_mut().filter(came).fold(warp.mask, |all, path| all | path.mask);
        if warp.mask & !expected != 0 {
            self.all_of(self.warp.pc, mask);
            return true;
        }
        if all != expected {
            return false;
        }
        for path in warp.parked.iter_mut().filter(came) {
            path.state = State::Ready;
            path.pc += 1;
        }
        self.block.clocks.sync_warp(warp.index, mask, warp.existing);
        true
    }

    /// Whether exactly the lanes of the mask came.
    pub fn all_of(&mut self, pc: usize, mask: u32) -> bool {
        let (expected, came) = (mask & self.warp.existing, self.warp.mask);
        if came == expected {
            return true;
        }
        let astray = (came ^ expected).trailing_zeros();
        let message = format!("lanes {came:#010x} came to a warp-wide operation for lanes {expected:#010x}");
        self.report(Kind::DivergentWarp, pc, &[self.warp.index * 32 + astray], None, message);
        false
    }

    fn shuffle(&mut self, pc: usize, mode: Shuffle, [dst, value, lane]: [Reg; 3], mask: u32) {
        let complete = self.all_of(pc, mask);
        let (values, lanes) = (self.warp.registers.u32s(value), self.warp.registers.u32s(lane));
        let from: [u32; 32] = std::array::from_fn(|own| {
            let (own, operand) = (own as u32, lanes[own]);
            match mode {
                Shuffle::Index => operand % 32,
                Shuffle::Xor => (own ^ operand) % 32,
                Shuffle::Up => own.checked_sub(operand).unwrap_or(own),
                Shuffle::Down => own.checked_add(operand).filter(|&l| l < 32).unwrap_or(own),
            }
        });
        let taking_part = mask & self.warp.mask;
        let astray = taking_part & lanes::mask(|own| taking_part >> from[own] & 1 == 0);
        if complete && astray != 0 {
            let own = astray.trailing_zeros();
            let source = from[own as usize];
            let why = if self.warp.existing >> source & 1 == 0 { "does not exist" } else { "takes no part" };
            let message = format!("lane {own} shuffles from lane {source}, which {why}: the value is undefined");
            self.report(Kind::InactiveLane, pc, &[self.warp.index * 32 + own], None, message);
        }
        let out = std::array::from_fn(|own| values[from[own] as usize]);
        self.warp.registers.put_u32s(dst, out);
        self.computed(Computation::Other, Type::U32, dst, &[]);
    }

    fn vote(&mut self, pc: usize, mode: Vote, dst: Reg, value: Reg, mask: u32) {
        self.all_of(pc, mask);
        let voters = mask & self.warp.mask;
        let yes = self.warp.registers.predicates[value as usize] & voters;
        match mode {
            Vote::All => self.warp.registers.predicates[dst as usize] = if yes == voters { u32::MAX } else { 0 },
            Vote::Any => self.warp.registers.predicates[dst as usize] = if yes != 0 { u32::MAX } else { 0 },
            Vote::Ballot => self.warp.registers.put_u32s(dst, [yes; 32]),
        }
        let ty = if mode == Vote::Ballot { Type::U32 } else { Type::Pred };
        self.computed(Computation::Other, ty, dst, &[]);
    }

    /// Comes to a named barrier. True where the warp waits there.
    fn arrive(&mut self, pc: usize, id: u32, threads: u32, wait: bool) -> bool {
        let now = self.now(self.warp.mask.trailing_zeros() as usize % 32, None);
        self.check_reuse(pc, id, now);
        let known = self.block.clocks.release_lanes(self.warp.index, self.warp.mask);
        let barrier = &mut self.block.named[id as usize];
        if barrier.arrived > 0 && barrier.threads != threads {
            let message =
                format!("named barrier {id} for {threads} threads, where others came for {}", barrier.threads);
            let thread = self.warp.index * 32;
            self.report(Kind::ArrivalMismatch, pc, &[thread], None, message);
            return false;
        }
        barrier.threads = threads;
        barrier.arrived += 32;
        barrier.known.join(&known);
        barrier.arrivals.push(now.access());
        if wait {
            barrier.waiting.push(self.warp.index);
        }
        if barrier.arrived < threads {
            if wait {
                self.warp.state = State::Named(id);
            }
            return wait;
        }
        let barrier = std::mem::take(barrier);
        self.block.named[id as usize].before = barrier.arrivals;
        for warp in barrier.waiting {
            let lanes = if warp == self.warp.index {
                self.warp.mask
            } else {
                self.block.warps[warp as usize].state = State::Ready;
                self.block.warps[warp as usize].mask
            };
            self.block.clocks.acquire_lanes(warp, lanes, &barrier.known);
        }
        false
    }

    /// An arrival counts for the next use of a named barrier only if all arrivals of the last one surely came before it.
    fn check_reuse(&mut self, pc: usize, id: u32, now: Now) {
        if !self.machine.config.races {
            return;
        }
        let Running { clocks, named, .. } = &mut *self.block;
        let unordered = named[id as usize].before.iter().find(|before| !clocks.seen_by(&Eyes::Thread(now), before));
        if let Some(&before) = unordered {
            let (thread, at) =
                (self.machine.thread(before.lane.into()), self.machine.kernel.site(SiteId(before.site)).location);
            let message = format!(
                "uses named barrier {id} again in no order with its last use, to which thread {thread:?} comes ({}:{}): either arrival may count for the other's use",
                at.file(),
                at.line()
            );
            self.report(Kind::ArrivalMismatch, pc, &[now.lane.into(), before.lane.into()], None, message);
        }
    }

    fn divided_by_zero(&mut self, lanes: u32) {
        let thread = self.warp.index * 32 + lanes.trailing_zeros();
        let pc = self.warp.pc;
        self.report(Kind::DivisionByZero, pc, &[thread], None, "an integer is divided by zero".into());
    }

    /// Notes a finding about threads of this block and, where it is about memory, one element.
    pub fn report(
        &mut self,
        kind: Kind,
        pc: usize,
        threads: &[u32],
        element: Option<(Space, String, Vec<u64>)>,
        message: String,
    ) {
        let site = self.machine.site(pc);
        let threads: Vec<_> = threads.iter().map(|&t| self.machine.thread(t)).collect();
        let block = self.block.id;
        let make = || {
            let (file, line) = (site.location.file(), site.location.line());
            let (space, name, index) = match element {
                Some((space, name, index)) => (Some(space), name, index),
                None => (None, String::new(), Vec::new()),
            };
            Finding {
                kind,
                message: format!("block {block:?}, thread {:?}: {message} ({file}:{line})", threads[0]),
                block,
                threads,
                space,
                name,
                index,
                source: vec![site.location],
                times: 1,
            }
        };
        self.found(kind, &[site], make);
    }

    /// Notes a mistake of this block.
    pub fn mistake(&mut self, mistake: Mistake) {
        let (machine, id) = (self.machine, self.block.id);
        let sites = machine.sites(&mistake);
        self.found(mistake.kind, &sites, || machine.finding(id, mistake));
    }

    /// Where the instruction at hand was written.
    pub fn site(&self) -> SiteId {
        self.machine.program.sites[self.warp.pc]
    }

    /// A lane's position in the block.
    pub fn thread(&self, lane: usize) -> u16 {
        (self.warp.index * 32) as u16 + lane as u16
    }

    /// Notes a finding, and tells an observer if it is new.
    pub fn found(&mut self, kind: Kind, sites: &[Site], make: impl FnOnce() -> Finding) {
        let new = self.gathered.findings.add(kind, sites, self.block.linear, make);
        if let (Some(finding), true) = (new, self.observer.is_some()) {
            let finding = finding.clone();
            self.observe(What::Found(&finding));
        }
    }

    pub fn observe(&mut self, what: What<'_>) {
        let Some(observer) = &mut self.observer else { return };
        let Warp { index: warp, pc, mask: lanes, ref loops, .. } = *self.warp;
        let slide = loops.iter().rfind(|(at, _)| self.machine.program.slides[*at as usize]);
        let event = Event {
            block: self.block.id,
            warp,
            lanes,
            site: self.machine.site(pc),
            operation: pc as u32,
            loops,
            step: slide.map(|&(_, times)| times),
            what,
        };
        self.gathered.stopped |= observer.event(&event).is_break();
    }
}

impl Warp {
    /// Lanes in which one `u32` is less than another.
    fn below(&self, a: Reg, b: Reg) -> u32 {
        let (a, b) = (self.registers.u32s(a), self.registers.u32s(b));
        mask(|i| a[i] < b[i])
    }

    /// The body of the innermost loop begins once more.
    fn again(&mut self) {
        if let Some((_, times)) = self.loops.last_mut() {
            *times = times.saturating_add(1);
        }
    }
}
