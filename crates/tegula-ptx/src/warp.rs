//! Execution of a warp: the instruction loop of a path, which runs until the path waits or ends.

use std::sync::atomic::Ordering::Relaxed;

use tegula_core::diagnostic::FindingKind;

use crate::address::{self, FUNCTION_WINDOW};
use crate::alu::{Arithmetic, Lanes};
use crate::ast::StateSpace;
use crate::path::{Call, Path, State};
use crate::program::{Callee, LaneMask, NO_JOIN, Op, Reg, SINK, Slot, Special};
use crate::report::Report;
use crate::run::{Flow, Run, lanes, lanes_where};

/// The state of a path in an earlier iteration of a loop: position, and hash of registers.
type Snapshot = (u32, u64);

/// Backward jumps of a path before it is first checked for progress, and before it must yield.
const FIRST_CHECK: u32 = 64;
const YIELD_AFTER: u32 = 1 << 14;
/// Maximum call depth, and maximum local memory of a thread in bytes.
const MAX_CALLS: usize = 1024;
const MAX_LOCAL: u32 = 1 << 19;

impl Run<'_, '_> {
    /// Runs each path of the warp until it waits or ends; returns whether anything changed.
    pub fn run(&mut self) -> bool {
        let mut progress = false;
        // The number of paths to run. It grows when a path splits.
        let mut left = self.warp.paths.len();
        while left > 0 {
            left -= 1;
            let Some(path) = self.warp.paths.pop_front() else { break };
            // These paths are released elsewhere: at joins, or when a barrier completes.
            if matches!(path.state, State::Joining | State::Barrier(_)) {
                self.warp.paths.push_back(path);
                continue;
            }
            let before = self.warp.paths.len() + 1;
            progress |= self.run_path(path);
            if self.partial.stopped {
                return false;
            }
            left = (left + self.warp.paths.len().saturating_sub(before)).min(self.warp.paths.len());
        }
        progress
    }

    /// Runs a path until it waits, yields or ends; returns whether anything changed.
    fn run_path(&mut self, mut path: Path) -> bool {
        let machine = self.machine;
        let waited = path.state;
        path.state = State::Ready;
        let (mut ran, mut jumps, first_step) = (false, 0, self.warp.steps);
        let mut before: Option<(u32, u64)> = None;
        // The state in which a spinning path yielded. If it yields in the same state again, it made
        // no progress.
        let parked = (waited == State::Spinning).then(|| (path.pc, self.hash(&path)));
        (self.changed, self.progressed) = (false, false);
        loop {
            let Some(instruction) = machine.program.code.get(path.pc as usize) else {
                self.warp.end_lanes(&path.joins, path.mask);
                return true;
            };
            if instruction.joins && !self.warp.arrive_at_joins(&mut path) {
                self.warp.park_at_join(path);
                return true;
            }
            self.warp.steps += 1;
            if self.warp.steps > machine.config.steps {
                self.report_step_limit(&path);
                return false;
            }
            (self.pc, self.mask) = (path.pc, path.mask);
            self.active = self.guarded(path.mask, instruction.guard);
            let (pc, counted) = (path.pc as usize, self.active);
            let recorded = self.begin_record();
            let flow = self.step(&mut path, &instruction.op);
            if let Some(before) = &recorded {
                self.record((pc as u32, counted | self.active, path.mask), before, &flow);
            }
            if self.partial.stopped {
                return false;
            }
            if !matches!(flow, Flow::Wait(State::Converge | State::Spinning | State::PartialBarrier(_))) {
                let counts = &mut self.partial.counts[pc];
                counts.warps += 1;
                counts.lanes += u64::from(counted.count_ones());
            }
            match flow {
                Flow::Next => path.pc += 1,
                Flow::Continue => {}
                Flow::Jump(to) => {
                    let backward = to <= path.pc;
                    path.pc = to;
                    if backward {
                        jumps += 1;
                        if let Some(progress) = self.yields(&path, (jumps, first_step), (parked, &mut before)) {
                            path.state = State::Spinning;
                            self.warp.paths.push_back(path);
                            return progress;
                        }
                    }
                }
                Flow::Ended => return true,
                Flow::Wait(state) => {
                    path.state = state;
                    self.warp.paths.push_back(path);
                    // A path that still waits for the same event made no progress.
                    return ran || state != waited;
                }
            }
            ran = true;
        }
    }

    /// Decides at a backward jump whether the path must yield: `None`, or whether it made progress.
    fn yields(
        &mut self,
        path: &Path,
        (jumps, first_step): (u32, u64),
        (parked, before): (Option<Snapshot>, &mut Option<Snapshot>),
    ) -> Option<bool> {
        if jumps < FIRST_CHECK {
            return None;
        }
        if jumps >= YIELD_AFTER {
            let steps = self.warp.steps;
            return self.partial.slices.end(steps, steps - first_step).then_some(true);
        }
        match before.take() {
            Some((pc, registers)) if pc == path.pc => {
                let repeats = !self.changed && registers == self.hash(path);
                repeats.then_some(self.progressed || parked != Some((pc, registers)))
            }
            // The hash is expensive, so it is computed after 64, 128, 256, … jumps.
            _ if jumps.is_power_of_two() => {
                self.progressed |= std::mem::take(&mut self.changed);
                *before = Some((path.pc, self.hash(path)));
                None
            }
            other => {
                *before = other;
                None
            }
        }
    }

    /// The lanes of a mask whose guard is true.
    pub fn guarded(&self, mask: u32, guard: Option<(Reg, bool)>) -> u32 {
        let Some((reg, negated)) = guard else { return mask };
        let guard = &self.warp.registers[reg as usize];
        mask & lanes_where(|lane| (guard[lane] != 0) != negated)
    }

    /// A hash of the mask of a path and of all registers of its lanes.
    fn hash(&self, path: &Path) -> u64 {
        use std::hash::{Hash, Hasher};
        let mut hasher = rustc_hash::FxHasher::default();
        path.mask.hash(&mut hasher);
        for registers in &self.warp.registers {
            lanes(path.mask).for_each(|lane| registers[lane].hash(&mut hasher));
        }
        hasher.finish()
    }

    fn report_step_limit(&mut self, path: &Path) {
        let limit = self.machine.config.steps;
        (self.pc, self.mask) = (path.pc, path.mask);
        let message = format!(
            "still runs after {limit} instructions of its warp, the limit; raise it with `--steps` (`Config::steps`) if the kernel ends"
        );
        self.report(Report::new(FindingKind::NoProgress, message).lanes(path.mask & path.mask.wrapping_neg()));
        self.machine.endless.fetch_min(self.block.linear, Relaxed);
        self.partial.stopped = true;
        self.partial.completed = false;
    }

    /// Executes one instruction for the active lanes of a path.
    fn step(&mut self, path: &mut Path, op: &Op) -> Flow {
        match op {
            Op::Arithmetic { arithmetic, dst, sources, carries } => {
                self.arithmetic(arithmetic, *dst, sources, *carries);
                Flow::Next
            }
            Op::Move { dst, src } => {
                let value = self.warp.registers[*src as usize];
                self.put(*dst, &value);
                Flow::Next
            }
            Op::Special { dst, register } => {
                let value = self.special(*register);
                self.put(*dst, &value);
                Flow::Next
            }
            Op::Pack { dst, parts, bits } => {
                let mut value = [0; 32];
                let mask = (1u64 << bits) - 1;
                for (at, &part) in parts.iter().enumerate() {
                    let part = &self.warp.registers[part as usize];
                    (0..32).for_each(|lane| value[lane] |= (part[lane] & mask) << (bits * at as u32));
                }
                self.put(*dst, &value);
                Flow::Next
            }
            Op::Unpack { parts, src, bits } => {
                let value = self.warp.registers[*src as usize];
                let mask = (1u64 << bits) - 1;
                for (at, &part) in parts.iter().enumerate() {
                    let part_of = std::array::from_fn(|lane| value[lane] >> (bits * at as u32) & mask);
                    self.put(part, &part_of);
                }
                Flow::Next
            }
            Op::FrameAddress { dst, offset, window } => {
                self.put(*dst, &[window + u64::from(path.frame + offset); 32]);
                Flow::Next
            }
            Op::ConvertAddress { dst, src, window, to_generic } => {
                let value = self.warp.registers[*src as usize];
                let sign = if *to_generic { *window } else { window.wrapping_neg() };
                let converted = std::array::from_fn(|lane| value[lane].wrapping_add(sign));
                self.put(*dst, &converted);
                Flow::Next
            }
            Op::IsSpace { dst, src, space } => {
                let value = self.warp.registers[*src as usize];
                let is_in = |address| match space {
                    StateSpace::Const => self.is_constant(address),
                    StateSpace::Global => address::is_in(StateSpace::Global, address) && !self.is_constant(address),
                    space => address::is_in(*space, address),
                };
                let result = std::array::from_fn(|lane| u64::from(is_in(value[lane])));
                self.put(*dst, &result);
                Flow::Next
            }
            Op::Load(transfer) => self.then_next(|run| run.load(path.frame, transfer)),
            Op::Store(transfer) => self.then_next(|run| run.store(path.frame, transfer)),
            Op::Atomic(atomic) => self.then_next(|run| run.atomic(path.frame, atomic)),
            Op::CopyAsync { to, from, bytes, source_bytes, ignore, bypass } => {
                self.then_next(|run| run.copy_async(path.frame, (to, from), *bytes, (*source_bytes, *ignore), *bypass))
            }
            Op::CopyAsyncCommit => self.then_next(Self::commit_copies),
            Op::CopyAsyncWait { pending } => self.then_next(|run| run.wait_copies(*pending)),
            Op::Barrier(barrier) => self.barrier(path, barrier),
            Op::WarpSync { mask } => self.sync_warp(path, *mask),
            Op::Fence { scope, acquires, releases } => self.then_next(|run| run.fence(*scope, (*acquires, *releases))),
            Op::WarpWide(wide) => self.warp_wide(path, wide),
            Op::ActiveMask { dst } => {
                self.put(*dst, &[u64::from(self.active); 32]);
                Flow::Next
            }
            Op::Mbarrier { op, dst, address, state, count } => {
                self.mbarrier(path.frame, *op, *dst, address, (*state, *count))
            }
            Op::Mma { .. }
            | Op::WmmaLoad { .. }
            | Op::WmmaStore { .. }
            | Op::LdMatrix { .. }
            | Op::StMatrix { .. }
            | Op::MovMatrix { .. } => match self.converge(path, u32::MAX) {
                Some(wait) => wait,
                None => self.then_next(|run| run.matrix(path.frame, op)),
            },
            Op::Branch { target, join } => self.branch(path, *target, *join),
            Op::BranchIndexed { index, targets, join } => self.branch_indexed(path, *index, targets, *join),
            Op::Call { callee, arguments, returns: _ } => self.call(path, callee, arguments),
            Op::Return => self.return_from(path),
            Op::Exit => self.exit(path),
            Op::Trap => {
                if self.active != 0 {
                    let message = "executes `trap`, which ends the launch with an error".into();
                    self.report(Report::new(FindingKind::Trap, message).lanes(self.active));
                    (self.partial.stopped, self.partial.completed) = (true, false);
                }
                Flow::Next
            }
            Op::Print { format, arguments, dst } => {
                self.then_next(|run| run.print(path.frame, *format, *arguments, *dst))
            }
            Op::AssertFail { arguments } => self.then_next(|run| run.assert_fail(path.frame, arguments)),
            Op::Nop => Flow::Next,
        }
    }

    fn arithmetic(&mut self, arithmetic: &Arithmetic, dst: [Reg; 2], sources: &[Reg], carries: bool) {
        let registers = &self.warp.registers;
        let mut operands: [&Lanes; 4] = [&registers[0]; 4];
        operands.iter_mut().zip(sources).for_each(|(to, &reg)| *to = &registers[reg as usize]);
        let operands = &operands[..sources.len().min(4)];
        let results = arithmetic.eval(operands, self.warp.carry, self.active, &mut self.values);
        let [first, second] = self.values;
        self.put(dst[0], &first);
        if dst[1] != SINK {
            self.put(dst[1], &second);
        }
        if carries {
            self.warp.carry = self.warp.carry & !self.active | results.carry & self.active;
        }
        let divided = results.divided_by_zero & self.active;
        if divided != 0 {
            let message = "divides an integer by zero; the result is undefined".into();
            self.report(Report::new(FindingKind::DivisionByZero, message).lanes(divided));
        }
    }

    fn then_next(&mut self, act: impl FnOnce(&mut Self)) -> Flow {
        if self.active != 0 {
            act(self);
        }
        Flow::Next
    }

    fn is_constant(&self, address: u64) -> bool {
        match address::locate(None, address, self.machine.allocations.len() as u32) {
            address::Location::Global { allocation, .. } => self.machine.allocations[allocation as usize].constant,
            _ => false,
        }
    }

    fn special(&self, register: Special) -> Lanes {
        let machine = self.machine;
        let first = self.warp.index * 32;
        let per_lane = |of: &dyn Fn(u32) -> u32| std::array::from_fn(|lane| u64::from(of(lane as u32)));
        let all = |value: u32| [u64::from(value); 32];
        match register {
            Special::Tid(axis) => per_lane(&|lane| machine.thread(first + lane)[axis]),
            Special::NTid(axis) => all(machine.launch.block[axis]),
            Special::CtaId(axis) => all(self.block.id[axis]),
            Special::NCtaId(axis) => all(machine.launch.grid[axis]),
            Special::Lane => per_lane(&|lane| lane),
            Special::Warp => all(self.warp.index),
            Special::NWarp => all(64),
            Special::SmId => all((self.block.linear % 132) as u32),
            Special::NSmId => all(132),
            Special::GridId => all(1),
            Special::LaneMask(mask) => per_lane(&|lane| {
                let own = 1u32 << lane;
                match mask {
                    LaneMask::Eq => own,
                    LaneMask::Lt => own - 1,
                    LaneMask::Le => own | (own - 1),
                    LaneMask::Gt => !(own | (own - 1)),
                    LaneMask::Ge => !(own - 1),
                }
            }),
            // Logical time: the number of instructions that the warp has executed.
            Special::Clock | Special::GlobalTimer => [self.warp.steps; 32],
            Special::DynamicSharedBytes => all(machine.launch.shared),
            Special::TotalSharedBytes => all(machine.shared_bytes),
            Special::Constant(value) => [value; 32],
        }
    }

    fn branch(&mut self, path: &mut Path, target: u32, join: u32) -> Flow {
        if self.active == 0 {
            return Flow::Next;
        }
        if self.active == path.mask {
            return Flow::Jump(target);
        }
        if join != NO_JOIN {
            self.warp.open_join(path, join);
        }
        // The lanes that do not branch are a new path, which runs later.
        let mut other = Path { mask: path.mask & !self.active, ..path.clone() };
        other.pc += 1;
        path.mask = self.active;
        self.warp.paths.push_front(other);
        Flow::Jump(target)
    }

    fn branch_indexed(&mut self, path: &mut Path, index: Reg, targets: &[u32], join: u32) -> Flow {
        let indices = *self.register(index);
        let first = self.active.trailing_zeros() as usize;
        if self.active == 0 {
            return Flow::Next;
        }
        let out_of_range = lanes_where(|lane| indices[lane] >= targets.len() as u64) & self.active;
        if out_of_range != 0 {
            let lane = out_of_range.trailing_zeros() as usize;
            let message = format!("branches to target {} of {}", indices[lane], targets.len());
            self.report(Report::new(FindingKind::OutOfBounds, message).lanes(out_of_range));
            (self.partial.stopped, self.partial.completed) = (true, false);
            return Flow::Next;
        }
        let same = lanes_where(|lane| indices[lane] == indices[first]) & self.active;
        if same != path.mask {
            if join != NO_JOIN {
                self.warp.open_join(path, join);
            }
            // The other lanes are a new path, which executes the branch again.
            let mut other = Path { mask: path.mask & !same, ..path.clone() };
            if self.active == same {
                other.pc += 1;
            }
            path.mask = same;
            self.warp.paths.push_front(other);
        }
        Flow::Jump(targets[indices[first] as usize])
    }

    fn call(&mut self, path: &mut Path, callee: &Callee, arguments: &[Slot]) -> Flow {
        if self.active == 0 {
            return Flow::Next;
        }
        let number = match *callee {
            Callee::Function(number) => {
                if self.active != path.mask {
                    return self.split_call(path, self.active);
                }
                number
            }
            Callee::Indirect(reg) => {
                let addresses = *self.register(reg);
                let first = self.active.trailing_zeros() as usize;
                let same = lanes_where(|lane| addresses[lane] == addresses[first]) & self.active;
                if same != path.mask {
                    return self.split_call(path, same);
                }
                let number = addresses[first].wrapping_sub(FUNCTION_WINDOW) / 16;
                let known = self.machine.program.functions.get(number as usize);
                if known.is_none_or(|function| function.params.len() != arguments.len()) {
                    let message =
                        format!("calls address {:#x}, which is not a function of this type", addresses[first]);
                    self.report(Report::new(FindingKind::OutOfBounds, message).lanes(same));
                    (self.partial.stopped, self.partial.completed) = (true, false);
                    return Flow::Next;
                }
                number as u32
            }
        };
        let function = &self.machine.program.functions[number as usize];
        let caller = &self.machine.program.functions[path.function as usize];
        let frame = path.frame + caller.frame;
        if path.calls.len() >= MAX_CALLS || frame + function.frame > MAX_LOCAL {
            let message = format!(
                "calls {} at depth {}; the stack is limited to {MAX_CALLS} calls and {MAX_LOCAL} bytes",
                function.name,
                path.calls.len()
            );
            self.report(Report::new(FindingKind::StackOverflow, message).lanes(self.active));
            (self.partial.stopped, self.partial.completed) = (true, false);
            return Flow::Next;
        }
        let active = path.calls.iter().any(|call| call.function == number) || path.function == number;
        let saved = (function.recursive && active).then(|| {
            let range = function.registers.start as usize..function.registers.end as usize;
            std::rc::Rc::new((function.registers.start, self.warp.registers[range].to_vec()))
        });
        for lane in lanes(path.mask) {
            self.warp.local[lane].reserve((frame + function.frame) as usize);
            self.warp.local[lane].forget_from(frame as usize);
        }
        for (from, to) in arguments.iter().zip(&function.params) {
            self.copy_slot(path.mask, (path.frame, *from), (frame, *to));
        }
        self.warp.open_join(path, path.pc + 1);
        path.calls.push(Call { pc: path.pc, function: path.function, frame: path.frame, saved });
        (path.function, path.frame, path.pc) = (number, frame, function.entry);
        Flow::Continue
    }

    /// Splits a path at a call: `lanes` execute it now, the others execute or skip it later.
    fn split_call(&mut self, path: &mut Path, lanes: u32) -> Flow {
        self.warp.open_join(path, path.pc + 1);
        let mut other = Path { mask: path.mask & !lanes, ..path.clone() };
        if self.active == lanes {
            other.pc += 1;
        }
        path.mask = lanes;
        self.warp.paths.push_front(other);
        Flow::Continue
    }

    /// Copies an argument or a result between two frames.
    fn copy_slot(&mut self, mask: u32, (from_frame, from): (u32, Slot), (to_frame, to): (u32, Slot)) {
        for lane in lanes(mask) {
            match (from, to) {
                (Slot::Register(from), Slot::Register(to)) => {
                    self.warp.registers[to as usize][lane] = self.warp.registers[from as usize][lane];
                }
                (Slot::Frame(from, bytes), Slot::Frame(to, room)) => {
                    let local = &mut self.warp.local[lane];
                    let (from, to) = ((from_frame + from) as usize, (to_frame + to) as usize);
                    local.copy_within(from, to, bytes.min(room) as usize);
                }
                (Slot::Register(from), Slot::Frame(to, room)) => {
                    let bits = self.warp.registers[from as usize][lane];
                    self.warp.local[lane].store((to_frame + to) as usize, room.min(8), bits);
                }
                (Slot::Frame(from, bytes), Slot::Register(to)) => {
                    let bits = self.warp.local[lane].load((from_frame + from) as usize, bytes.min(8));
                    self.warp.registers[to as usize][lane] = bits;
                }
            }
        }
    }

    fn return_from(&mut self, path: &mut Path) -> Flow {
        if self.active == 0 {
            return Flow::Next;
        }
        if self.active != path.mask {
            let mut other = Path { mask: path.mask & !self.active, ..path.clone() };
            other.pc += 1;
            path.mask = self.active;
            self.warp.paths.push_front(other);
        }
        let Some(call) = path.calls.pop() else {
            self.warp.end_lanes(&path.joins, path.mask);
            return Flow::Ended;
        };
        let machine = self.machine;
        if let Op::Call { returns, .. } = &machine.program.code[call.pc as usize].op {
            let function = &machine.program.functions[path.function as usize];
            // Results are read before the saved registers of a recursive call are restored.
            let results: Vec<(Slot, Slot)> = function.returns.iter().copied().zip(returns.iter().copied()).collect();
            let in_registers: Vec<Option<Lanes>> = results
                .iter()
                .map(|(from, _)| if let Slot::Register(reg) = from { Some(*self.register(*reg)) } else { None })
                .collect();
            if let Some(saved) = &call.saved {
                for (at, values) in saved.1.iter().enumerate() {
                    let register = &mut self.warp.registers[saved.0 as usize + at];
                    lanes(path.mask).for_each(|lane| register[lane] = values[lane]);
                }
            }
            for ((from, to), value) in results.into_iter().zip(in_registers) {
                match (value, to) {
                    (Some(value), Slot::Register(to)) => {
                        let register = &mut self.warp.registers[to as usize];
                        lanes(path.mask).for_each(|lane| register[lane] = value[lane]);
                    }
                    _ => self.copy_slot(path.mask, (path.frame, from), (call.frame, to)),
                }
            }
        }
        (path.function, path.frame, path.pc) = (call.function, call.frame, call.pc + 1);
        Flow::Continue
    }

    fn exit(&mut self, path: &mut Path) -> Flow {
        if self.active == 0 {
            return Flow::Next;
        }
        self.warp.end_lanes(&path.joins, self.active);
        path.mask &= !self.active;
        if path.mask == 0 { Flow::Ended } else { Flow::Next }
    }
}
