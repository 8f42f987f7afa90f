//! Execution of a warp: one instruction after the other for all its lanes, until it must wait.
//!
//! A divergent warp runs path by path. A path is a divergent subset of its lanes (a warp split), as
//! the module `path` describes.

use tegula_core::diagnostic::{Finding, FindingKind, Space};
use tegula_core::element::Type;
use tegula_ir::{Axis, ParamId, Shuffle, Site, SiteId, SpecialRegister, Vote};

use super::block::{BlockState, Progress};
use super::lanes::{self, Reg, lanes_where};
use super::launch::Arg;
use super::machine::Machine;
use super::observe::{Computation, Event, EventKind, Observer, Request};
use super::partial_outcome::PartialOutcome;
use super::path::{Path, State, Warp};
use super::program::Instruction;
use super::race::{CurrentAccess, OrderSource, threads_of};
use super::report::Diagnostic;
use super::shadow::GlobalShadow;
use super::tensor::round_tf32;

/// A warp with the state that it can access.
pub(super) struct WarpContext<'r, 'm> {
    pub machine: &'r Machine<'m>,
    pub block: &'r mut BlockState,
    pub global: &'r mut GlobalShadow,
    pub partial: &'r mut PartialOutcome,
    pub observer: Option<&'r mut dyn Observer>,
    pub warp: &'r mut Warp,
    /// Cost of the current access, if it was counted.
    pub request: Option<Request>,
    /// Whether any state but registers changed since this was last reset.
    pub changed: bool,
}

/// Iterations of `while` loops before a path first checks for progress.
const FIRST_CHECK: u32 = 64;
/// Iterations of `while` loops before other paths, warps and blocks run.
const YIELD_AFTER: u32 = 1 << 14;

/// State of a `while` loop in an earlier iteration: its position, and a hash of lanes and
/// registers.
type LoopSnapshot = (usize, u64);

impl WarpContext<'_, '_> {
    /// Runs each path of the warp until it waits or ends.
    pub fn run_until_blocked(&mut self) -> Progress {
        let code = &self.machine.program.code;
        let mut progress = Progress::None;
        // Paths still to run; every path that splits off is one more.
        let mut paths_left = 1 + self.warp.parked.len();
        while paths_left > 0 {
            if self.warp.state == State::Ready || self.warp.state.polls() {
                progress = progress.max(self.run_path());
            }
            if self.partial.stopped {
                return Progress::None;
            }
            let is_waiting = matches!(self.warp.state, State::Polling | State::Mbarrier);
            let split = is_waiting && self.block.splits_wait_at_random() && self.warp.split_off_satisfied(code);
            let forked = self.warp.state != State::Retired && self.warp.fork_else_path(code);
            paths_left = paths_left - 1 + usize::from(split) + usize::from(forked);
            self.warp.switch_path();
        }
        progress
    }

    /// Runs the current path until it waits or ends.
    fn run_path(&mut self) -> Progress {
        let machine = self.machine;
        let polled = self.warp.state.polls();
        let (mut ran, mut iterations, mut before) = (false, 0, None);
        self.warp.state = State::Ready;
        loop {
            let Some(code) = machine.program.code.get(self.warp.pc) else {
                self.warp.state = if self.warp.parked.is_empty() { State::Done } else { State::Retired };
                return Progress::Ran;
            };
            self.warp.steps += 1;
            if self.warp.steps > machine.config.steps {
                self.report_step_limit();
                return Progress::None;
            }
            let (pc, lanes) = (self.warp.pc, u64::from(self.warp.mask.count_ones()));
            if machine.config.counters {
                let counts = &mut self.partial.instruction_counts[pc];
                counts.warps += 1;
                counts.lanes += lanes;
            }
            let continues = self.step(code);
            if self.partial.stopped {
                return Progress::None;
            }
            if self.warp.state == State::Retired {
                return Progress::Ran;
            }
            if !continues {
                let polls = self.warp.state.polls();
                // Polling counts as one wait, however often the interpreter polls.
                if polls && machine.config.counters {
                    let counts = &mut self.partial.instruction_counts[pc];
                    counts.warps -= 1;
                    counts.lanes -= lanes;
                }
                // A repeated failure is no progress.
                return if ran || !(polls && polled) { Progress::Ran } else { Progress::None };
            }
            ran = true;
            if let Instruction::Jump { .. } = code
                && let Some(progress) = self.count_iteration(&mut iterations, &mut before)
            {
                self.warp.state = State::Spinning;
                return progress;
            }
        }
    }

    /// Counts an iteration of a `while` loop; returns the progress if other paths should run.
    fn count_iteration(&mut self, iterations: &mut u32, before: &mut Option<LoopSnapshot>) -> Option<Progress> {
        *iterations += 1;
        if *iterations < FIRST_CHECK {
            return None;
        }
        if *iterations >= YIELD_AFTER {
            return Some(Progress::Spun);
        }
        let pc = self.warp.pc;
        match before.take() {
            Some((at, registers)) if at == pc => {
                (!self.changed && registers == self.warp.registers.hash(self.warp.mask)).then_some(Progress::None)
            }
            // The check takes time: it runs after 64, 128, 256, … iterations.
            _ if iterations.is_power_of_two() => {
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

    fn report_step_limit(&mut self) {
        let (pc, limit) = (self.warp.pc, self.machine.config.steps);
        let thread = self.warp.index * 32 + self.warp.mask.trailing_zeros() % 32;
        let message = format!("the warp has run {limit} instructions without ending; the limit is `Config::steps`");
        self.report(FindingKind::NoProgress, pc, &[thread], None, message);
        self.partial.stopped = true;
    }

    /// Executes one instruction; false if the warp must wait.
    fn step(&mut self, code: &Instruction) -> bool {
        let pc = self.warp.pc;
        match *code {
            Instruction::For { .. }
            | Instruction::Next { .. }
            | Instruction::If { .. }
            | Instruction::Else { .. }
            | Instruction::While { .. }
            | Instruction::Test { .. }
            | Instruction::Jump { .. }
            | Instruction::End => {
                self.control(code);
                return true;
            }
            // `pc` stays here until the barrier completes and its position is recorded.
            Instruction::Barrier => {
                if !self.try_reconverge(u32::MAX) {
                    return false;
                }
                self.observe(EventKind::Barrier { id: 0, threads: self.machine.kernel.threads(), waits: true });
                self.warp.state = State::Barrier;
                return false;
            }
            Instruction::NamedBarrier { id, threads, wait } => {
                if !self.try_reconverge(u32::MAX) {
                    return false;
                }
                let id = self.warp.registers.u32s(id)[self.warp.mask.trailing_zeros() as usize % 32];
                self.observe(EventKind::Barrier { id, threads, waits: wait });
                self.warp.pc += 1;
                if !(1..=15).contains(&id) {
                    let (thread, message) =
                        (self.warp.index * 32, format!("named barrier {id} is invalid; valid numbers are 1 to 15"));
                    self.report(FindingKind::ArrivalMismatch, pc, &[thread], None, message);
                    return true;
                }
                return !self.arrive(pc, id, threads, wait);
            }
            Instruction::WaitUntil { ty, at, cmp, value, scope } => {
                if !self.wait_until(ty, at, cmp, value, scope) {
                    self.warp.state = State::Polling;
                    return false;
                }
            }
            Instruction::Load { ty, ref dst, at, guard, fill, order, scope } => {
                self.load(ty, dst, at, guard, fill, (order, scope));
            }
            Instruction::Store { ty, ref values, at, guard, order, scope } => {
                self.store(ty, values, at, guard, (order, scope));
            }
            Instruction::Atomic { op, ty, dst, at, value, expected, order, scope } => {
                self.atomic(op, ty, [dst, value, expected], at, (order, scope));
            }
            Instruction::CopyAsync { ty, to, from, width, guard } => self.copy_async(ty, to, from, width, guard),
            Instruction::CopyAsyncCommit => {
                self.active_threads().for_each(|lane| self.block.pending_copies.commit(lane))
            }
            Instruction::CopyAsyncWait { pending } => {
                self.wait_copies(pending);
                self.observe(EventKind::CopyAsyncWait(pending));
            }
            Instruction::Fence { scope } => self.active_threads().for_each(|lane| self.block.clocks.fence(lane, scope)),
            Instruction::SyncWarp { mask } => {
                if !self.sync_warp(mask) {
                    self.warp.state = State::Converge;
                    return false;
                }
            }
            Instruction::Shuffle { mask, .. } | Instruction::Vote { mask, .. } if !self.try_reconverge(mask) => {
                return false;
            }
            Instruction::Mma { .. } | Instruction::LoadMatrix { .. } | Instruction::Uniform { .. }
                if !self.try_reconverge(u32::MAX) =>
            {
                return false;
            }
            Instruction::Shuffle { mode, dst, value, lane, mask } => self.shuffle(pc, mode, [dst, value, lane], mask),
            Instruction::Vote { mode, dst, value, mask } => self.vote(pc, mode, dst, value, mask),
            Instruction::Mma { mma, ref fragments } => self.mma(pc, mma, fragments),
            Instruction::LoadMatrix { ty, dst, count, at, transposed } => {
                self.load_matrix(pc, ty, &dst[..count as usize], at, transposed);
            }
            Instruction::Uniform { scope, ty, dst, a } => self.assert_uniform(pc, scope, ty, dst, a),
            Instruction::Hopper(ref op) => {
                self.changed = true;
                if op.is_warp_wide() && !self.try_reconverge(u32::MAX) || !self.execute_hopper(pc, op) {
                    return false;
                }
            }
            Instruction::ReadAccumulator { a, .. } => {
                self.use_accumulator(a);
                self.compute(code);
            }
            Instruction::WriteAccumulator { dst, .. } => {
                self.use_accumulator(dst);
                self.compute(code);
            }
            _ => self.compute(code),
        }
        self.warp.pc += 1;
        true
    }

    /// The threads of the active lanes, as indices in the block.
    pub fn active_threads(&self) -> impl Iterator<Item = u16> + use<> {
        threads_of(self.warp.index, self.warp.mask)
    }

    fn control(&mut self, code: &Instruction) {
        if let Instruction::For { start, end, step, .. } = *code {
            self.check_step(start, end, step);
        }
        let (warp, program) = (&mut *self.warp, &self.machine.program.code);
        let next = warp.pc + 1;
        warp.pc = match *code {
            Instruction::For { counter, start, end, exit, .. } => {
                warp.registers.copy(Type::U32, counter, start, warp.mask);
                let inside = warp.mask & warp.below(counter, end);
                if inside != 0 {
                    warp.push_frame(warp.mask, 0);
                    warp.loops.push((warp.pc as u32, 0));
                    warp.mask = inside;
                    next
                } else {
                    exit as usize
                }
            }
            Instruction::Next { counter, end, step, body } => {
                let (old, steps) = (warp.registers.u32s(counter), warp.registers.u32s(step));
                let new: [u32; 32] = std::array::from_fn(|i| old[i].wrapping_add(steps[i]));
                warp.registers.put_u32s(counter, new);
                warp.mask &= warp.below(counter, end) & lanes_where(|i| new[i] > old[i]);
                if warp.mask != 0 {
                    warp.next_iteration();
                    body as usize
                } else {
                    warp.loops.pop();
                    warp.reconverge();
                    next
                }
            }
            Instruction::If { condition, else_target } => {
                let then_lanes = warp.registers.predicates[condition as usize] & warp.mask;
                // Lanes without an else body wait for reconvergence.
                let has_else =
                    matches!(program[else_target as usize], Instruction::Else { end } if end > else_target + 1);
                warp.push_frame(warp.mask, if has_else { warp.mask & !then_lanes } else { 0 });
                warp.mask = then_lanes;
                if then_lanes != 0 { next } else { else_target as usize }
            }
            Instruction::Else { end } => {
                warp.mask = warp.stack.last_mut().map_or(0, |frame| std::mem::take(&mut frame.else_lanes));
                if warp.mask != 0 { next } else { end as usize }
            }
            Instruction::While { .. } => {
                warp.push_frame(warp.mask, 0);
                warp.loops.push((warp.pc as u32, 0));
                next
            }
            Instruction::Test { condition, exit } => {
                warp.mask &= warp.registers.predicates[condition as usize];
                if warp.mask != 0 {
                    next
                } else {
                    warp.loops.pop();
                    exit as usize
                }
            }
            // Only `while` loops jump, and backward.
            Instruction::Jump { to } => {
                warp.next_iteration();
                to as usize
            }
            _ => {
                warp.reconverge();
                next
            }
        };
    }

    fn check_step(&mut self, start: Reg, end: Reg, step: Reg) {
        let steps = self.warp.registers.u32s(step);
        let lanes = self.warp.mask & self.warp.below(start, end) & lanes_where(|lane| steps[lane] == 0);
        if lanes == 0 {
            return;
        }
        let (pc, thread) = (self.warp.pc, self.warp.index * 32 + lanes.trailing_zeros());
        let message = "a loop with a step of 0 does not terminate; it is left after one iteration".into();
        self.report(FindingKind::ZeroStep, pc, &[thread], None, message);
    }

    /// Executes instructions that only compute.
    fn compute(&mut self, code: &Instruction) {
        use Computation::{Convert, Move, MulAdd, Other};
        let registers = &mut self.warp.registers;
        match *code {
            Instruction::SpecialRegister { dst, register } => {
                let lanes = self.special(register);
                self.warp.registers.put_u32s(dst, lanes);
                self.observe_result(Other, Type::U32, dst, &[]);
            }
            Instruction::Extent { dst, param, axis } => {
                let extent = self.extent(param, axis);
                self.warp.registers.put_u32s(dst, [extent; 32]);
                self.observe_result(Other, Type::U32, dst, &[]);
            }
            Instruction::Scalar { dst, ty, param } => {
                if let Arg::Scalar { bits, .. } = self.machine.args[param.index()] {
                    registers.put_bits(ty, dst, &[bits; 32]);
                }
                self.observe_result(Other, ty, dst, &[]);
            }
            Instruction::Unary { op, ty, dst, a } => {
                registers.unary(op, ty, dst, a);
                self.observe_result(Computation::Unary(op), ty, dst, &[a]);
            }
            Instruction::Binary { op, ty, dst, a, b } => {
                let by_zero = registers.binary(op, ty, dst, a, b) & self.warp.mask;
                if by_zero != 0 {
                    self.divided_by_zero(by_zero);
                }
                self.observe_result(Computation::Binary(op), ty, dst, &[a, b]);
            }
            Instruction::MulAdd { ty, dst, a, b, c } => {
                registers.mul_add(ty, [dst, a, b, c]);
                self.observe_result(MulAdd, ty, dst, &[a, b, c]);
            }
            Instruction::Compare { cmp, ty, dst, a, b } => {
                registers.compare(cmp, ty, dst, a, b);
                self.observe_result(Other, Type::Pred, dst, &[]);
            }
            Instruction::Select { ty, dst, condition, if_true, if_false } => {
                let condition = registers.predicates[condition as usize];
                registers.select(ty, condition, [dst, if_true, if_false]);
                self.observe_result(Other, ty, dst, &[]);
            }
            Instruction::Convert { from, to, dst, a } => {
                registers.convert(from, to, dst, a);
                self.observe_result(Convert, to, dst, &[a]);
            }
            Instruction::RoundTf32 { dst, a } => {
                let rounded = registers.u32s(a).map(round_tf32);
                registers.put_u32s(dst, rounded);
                self.observe_result(Convert, Type::U32, dst, &[a]);
            }
            Instruction::Pack { dst, a, b } => {
                let (low, high) = (registers.u32s(a), registers.u32s(b));
                registers.put_u32s(dst, std::array::from_fn(|lane| low[lane] & 0xffff | high[lane] << 16));
                self.observe_result(Other, Type::U32, dst, &[]);
            }
            Instruction::ReadAccumulator { dst, a } => {
                registers.copy(Type::F32, dst, a, u32::MAX);
                self.observe_result(Move, Type::F32, dst, &[a]);
            }
            Instruction::WriteAccumulator { dst, a } => {
                registers.copy(Type::F32, dst, a, self.warp.mask);
                self.observe_result(Move, Type::F32, dst, &[a]);
            }
            Instruction::Copy { ty, dst, a } => {
                registers.copy(ty, dst, a, u32::MAX);
                self.observe_result(Move, ty, dst, &[a]);
            }
            Instruction::Set { ty, dst, a } => {
                registers.copy(ty, dst, a, self.warp.mask);
                self.observe_result(Move, ty, dst, &[a]);
            }
            Instruction::AddSaturating { dst, a, b } => {
                let (a, b, mut sums) = (registers.u32s(a), registers.u32s(b), registers.u32s(dst));
                for lane in (0..32).filter(|lane| self.warp.mask >> lane & 1 == 1) {
                    sums[lane] = a[lane].saturating_add(b[lane]);
                }
                registers.put_u32s(dst, sums);
            }
            _ => {}
        }
    }

    /// Passes results to the observer.
    pub fn observe_result(&mut self, op: Computation, ty: Type, dst: Reg, src: &[Reg]) {
        if self.observer.is_some() {
            let bits = self.warp.registers.bits(ty, dst);
            self.observe(EventKind::Compute { op, ty, dst, src, bits: &bits });
        }
    }

    fn special(&self, register: SpecialRegister) -> [u32; 32] {
        let first = self.warp.index * 32;
        let threads: [[u32; 3]; 32] = std::array::from_fn(|lane| self.machine.thread(first + lane as u32));
        let ([x, y, z], [gx, gy, gz]) = (self.block.id, self.machine.grid);
        match register {
            SpecialRegister::ThreadX => threads.map(|t| t[0]),
            SpecialRegister::ThreadY => threads.map(|t| t[1]),
            SpecialRegister::ThreadZ => threads.map(|t| t[2]),
            SpecialRegister::BlockX => [x; 32],
            SpecialRegister::BlockY => [y; 32],
            SpecialRegister::BlockZ => [z; 32],
            SpecialRegister::GridX => [gx; 32],
            SpecialRegister::GridY => [gy; 32],
            SpecialRegister::GridZ => [gz; 32],
            SpecialRegister::Lane => std::array::from_fn(|lane| lane as u32),
            SpecialRegister::Warp => [self.warp.index; 32],
            SpecialRegister::Warpgroup => [self.warp.index / 4; 32],
            SpecialRegister::Cluster => [x / self.machine.kernel.cluster(); 32],
            SpecialRegister::ClusterRank => [x % self.machine.kernel.cluster(); 32],
            // Unused: the checker accepts it in grid extents alone, which a launch evaluates.
            SpecialRegister::Multiprocessors => [0; 32],
        }
    }

    fn extent(&self, param: ParamId, axis: Axis) -> u32 {
        let Arg::Matrix(buffer) = self.machine.args[param.index()] else { return 0 };
        let shape = buffer.layout().shape;
        // Binding the arguments checked that extents fit.
        (match axis {
            Axis::Batches => shape.batches,
            Axis::Rows => shape.rows,
            Axis::Cols => shape.cols,
        }) as u32
    }

    /// Merges the paths that wait here; true if all lanes of the mask are now on this path.
    ///
    /// Otherwise this path waits here for the paths of the missing lanes.
    fn try_reconverge(&mut self, mask: u32) -> bool {
        let mask = mask & self.warp.existing_lanes;
        if mask & !self.warp.mask == 0 || self.warp.parked.is_empty() {
            return true;
        }
        self.warp.merge_waiting_paths();
        if mask & !self.warp.mask == 0 || self.warp.parked.is_empty() {
            return true;
        }
        self.warp.state = State::Converge;
        false
    }

    /// Synchronizes the lanes of a mask; false if some have not arrived.
    ///
    /// They may arrive on several paths, each at an instruction of its own.
    fn sync_warp(&mut self, mask: u32) -> bool {
        let warp = &mut *self.warp;
        let code = &self.machine.program.code;
        let expected = mask & warp.existing_lanes;
        let waits_here =
            |pc: usize| matches!(code.get(pc), Some(Instruction::SyncWarp { mask: other }) if *other == mask);
        let arrived = |path: &&mut Path| path.state == State::Converge && waits_here(path.pc);
        let all = warp.parked.iter_mut().filter(arrived).fold(warp.mask, |all, path| all | path.mask);
        if warp.mask & !expected != 0 {
            self.check_participants(self.warp.pc, mask);
            return true;
        }
        if all != expected {
            return false;
        }
        for path in warp.parked.iter_mut().filter(arrived) {
            path.state = State::Ready;
            path.pc += 1;
        }
        self.block.clocks.sync_warp(warp.index, mask);
        true
    }

    /// Checks that the active lanes are exactly those of the mask; reports divergence.
    pub fn check_participants(&mut self, pc: usize, mask: u32) -> bool {
        let (expected, arrived) = (mask & self.warp.existing_lanes, self.warp.mask);
        if arrived == expected {
            return true;
        }
        let unexpected = (arrived ^ expected).trailing_zeros();
        let message = format!("lanes {arrived:#010x} reach a warp-wide operation for lanes {expected:#010x}");
        self.report(FindingKind::DivergentWarp, pc, &[self.warp.index * 32 + unexpected], None, message);
        false
    }

    fn shuffle(&mut self, pc: usize, mode: Shuffle, [dst, value, lane]: [Reg; 3], mask: u32) {
        let complete = self.check_participants(pc, mask);
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
        let participants = mask & self.warp.mask;
        let unexpected = participants & lanes::lanes_where(|own| participants >> from[own] & 1 == 0);
        if complete && unexpected != 0 {
            let own = unexpected.trailing_zeros();
            let source = from[own as usize];
            let why = if self.warp.existing_lanes >> source & 1 == 0 { "does not exist" } else { "is inactive" };
            let message = format!("lane {own} shuffles from lane {source}, which {why}: the value is undefined");
            self.report(FindingKind::InactiveLane, pc, &[self.warp.index * 32 + own], None, message);
        }
        let out = std::array::from_fn(|own| values[from[own] as usize]);
        self.warp.registers.put_u32s(dst, out);
        self.observe_result(Computation::Other, Type::U32, dst, &[]);
    }

    fn vote(&mut self, pc: usize, mode: Vote, dst: Reg, value: Reg, mask: u32) {
        self.check_participants(pc, mask);
        let voters = mask & self.warp.mask;
        let votes = self.warp.registers.predicates[value as usize] & voters;
        match mode {
            Vote::All => self.warp.registers.predicates[dst as usize] = if votes == voters { u32::MAX } else { 0 },
            Vote::Any => self.warp.registers.predicates[dst as usize] = if votes != 0 { u32::MAX } else { 0 },
            Vote::Ballot => self.warp.registers.put_u32s(dst, [votes; 32]),
        }
        let ty = if mode == Vote::Ballot { Type::U32 } else { Type::Pred };
        self.observe_result(Computation::Other, ty, dst, &[]);
    }

    /// Arrives at a named barrier; true if the warp waits there.
    fn arrive(&mut self, pc: usize, id: u32, threads: u32, wait: bool) -> bool {
        let now = self.now(self.warp.mask.trailing_zeros() as usize % 32, None);
        self.check_reuse(pc, id, now);
        let view = self.block.clocks.release_lanes(self.warp.index, self.warp.mask);
        let barrier = &mut self.block.named[id as usize];
        if barrier.arrived > 0 && barrier.threads != threads {
            let message = format!(
                "arrives at named barrier {id} for {threads} threads; earlier arrivals are for {}",
                barrier.threads
            );
            let thread = self.warp.index * 32;
            self.report(FindingKind::ArrivalMismatch, pc, &[thread], None, message);
            return false;
        }
        barrier.threads = threads;
        barrier.arrived += 32;
        barrier.view.join(&view);
        barrier.arrivals.push(now.access());
        if wait {
            barrier.waiting.push(self.warp.index);
        }
        if barrier.arrived < threads {
            if wait {
                self.warp.state = State::NamedBarrier(id);
            }
            return wait;
        }
        let barrier = std::mem::take(barrier);
        self.block.named[id as usize].previous_arrivals = barrier.arrivals;
        for warp in barrier.waiting {
            let lanes = if warp == self.warp.index {
                self.warp.mask
            } else {
                self.block.warps[warp as usize].state = State::Ready;
                self.block.warps[warp as usize].mask
            };
            self.block.clocks.acquire_lanes(warp, lanes, &barrier.view);
        }
        false
    }

    /// Reports a reuse of a named barrier that is not ordered after all arrivals of its last use.
    fn check_reuse(&mut self, pc: usize, id: u32, now: CurrentAccess) {
        if !self.machine.config.races {
            return;
        }
        let BlockState { clocks, named, .. } = &mut *self.block;
        let unordered = named[id as usize]
            .previous_arrivals
            .iter()
            .find(|before| !clocks.precedes(&OrderSource::Thread(now), before));
        if let Some(&before) = unordered {
            let (thread, at) =
                (self.machine.thread(before.lane.into()), self.machine.kernel.site(SiteId(before.site)).location);
            let message = format!(
                "uses named barrier {id} again, unordered with the arrival of thread {thread:?} at its last use ({}:{}); either arrival may count for the other's use",
                at.file(),
                at.line()
            );
            self.report(FindingKind::ArrivalMismatch, pc, &[now.lane.into(), before.lane.into()], None, message);
        }
    }

    fn divided_by_zero(&mut self, lanes: u32) {
        let thread = self.warp.index * 32 + lanes.trailing_zeros();
        let pc = self.warp.pc;
        self.report(FindingKind::DivisionByZero, pc, &[thread], None, "an integer is divided by zero".into());
    }

    /// Records a finding about threads of this block, and possibly an element of memory.
    pub fn report(
        &mut self,
        kind: FindingKind,
        pc: usize,
        threads: &[u32],
        element: Option<(Space, String, Vec<u64>)>,
        message: String,
    ) {
        let site = self.machine.site(pc);
        let threads: Vec<_> = threads.iter().map(|&t| self.machine.thread(t)).collect();
        let block = self.block.id;
        let new_finding = || {
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
        self.record_finding(kind, &[site], new_finding);
    }

    /// Records a diagnostic of this block.
    pub fn report_diagnostic(&mut self, diagnostic: Diagnostic) {
        let (machine, id) = (self.machine, self.block.id);
        let sites = machine.sites(&diagnostic);
        self.record_finding(diagnostic.kind, &sites, || machine.finding(id, diagnostic));
    }

    /// Source location of the current instruction.
    pub fn site(&self) -> SiteId {
        self.machine.program.sites[self.warp.pc]
    }

    /// Index of a lane's thread in the block.
    pub fn thread(&self, lane: usize) -> u16 {
        (self.warp.index * 32) as u16 + lane as u16
    }

    /// Records a finding, and passes it to the observer if it is new.
    pub fn record_finding(&mut self, kind: FindingKind, sites: &[Site], new_finding: impl FnOnce() -> Finding) {
        let new = self.partial.findings.add(kind, sites, self.block.linear, new_finding);
        if let (Some(finding), true) = (new, self.observer.is_some()) {
            let finding = finding.clone();
            self.observe(EventKind::Finding(&finding));
        }
    }

    pub fn observe(&mut self, kind: EventKind<'_>) {
        let Some(observer) = &mut self.observer else { return };
        let Warp { index: warp, pc, mask: lanes, ref loops, .. } = *self.warp;
        let main_loop = loops.iter().rfind(|(at, _)| self.machine.program.main_loops[*at as usize]);
        let event = Event {
            block: self.block.id,
            warp,
            lanes,
            site: self.machine.site(pc),
            operation: pc as u32,
            loops,
            step: main_loop.map(|&(_, iteration)| iteration),
            kind,
        };
        self.partial.stopped |= observer.event(&event).is_break();
    }
}

impl Warp {
    /// Mask of the lanes in which one `u32` is less than another.
    fn below(&self, a: Reg, b: Reg) -> u32 {
        let (a, b) = (self.registers.u32s(a), self.registers.u32s(b));
        lanes_where(|i| a[i] < b[i])
    }

    /// Starts the next iteration of the innermost loop.
    fn next_iteration(&mut self) {
        if let Some((_, iteration)) = self.loops.last_mut() {
            *iteration = iteration.saturating_add(1);
        }
    }
}
