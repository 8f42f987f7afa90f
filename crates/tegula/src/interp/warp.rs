//! A warp that runs: one instruction after the other for all its lanes, until it must wait.

use super::block::{Gathered, Machine, Mistake, Running, State, Warp};
use super::finding::{Finding, Kind, Space};
use super::lanes::mask;
use super::lower::{Code, Reg};
use super::race::{GlobalShadow, lanes_of};
use super::tensor::round_tf32;
use super::{Arg, Computation, Event, Observer, Request, What};
use crate::element::Type;
use crate::ir::{Axis, ParamId, Shuffle, Site, SiteId, Special, Vote};

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
}

impl Run<'_, '_> {
    /// Runs until the warp waits or ends. False where it could not run a single instruction.
    pub fn until_blocked(&mut self) -> bool {
        let machine = self.machine;
        let looked = self.warp.state.looks();
        let mut ran = false;
        self.warp.state = State::Ready;
        loop {
            let Some(code) = machine.program.code.get(self.warp.pc) else {
                self.warp.state = State::Done;
                return true;
            };
            if machine.config.counters {
                let tally = &mut self.gathered.tallies[self.warp.pc];
                tally.warps += 1;
                tally.lanes += u64::from(self.warp.mask.count_ones());
            }
            let goes_on = self.step(code);
            if self.gathered.stopped {
                return false;
            }
            if !goes_on {
                let looks = self.warp.state.looks();
                // A look that must be repeated is one wait, however often the interpreter looks.
                if let Some(tally) =
                    self.gathered.tallies.get_mut(self.warp.pc).filter(|_| looks && machine.config.counters)
                {
                    tally.warps -= 1;
                    tally.lanes -= u64::from(self.warp.mask.count_ones());
                }
                // One that failed again is no progress.
                return ran || !(looks && looked);
            }
            ran = true;
        }
    }

    /// Runs one instruction. False where the warp waits.
    fn step(&mut self, code: &Code) -> bool {
        let pc = self.warp.pc;
        match *code {
            Code::For { .. }
            | Code::Next { .. }
            | Code::If { .. }
            | Code::Else { .. }
            | Code::While
            | Code::Test { .. }
            | Code::Jump { .. }
            | Code::End => {
                self.control(code);
                return true;
            }
            Code::Barrier => {
                self.observe(What::Barrier { id: 0, threads: self.machine.kernel.threads(), waits: true });
                self.warp.state = State::Barrier;
                return false;
            }
            Code::NamedBarrier { id, threads, wait } => {
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
                if self.all_of(pc, mask) {
                    self.block.clocks.sync_warp(self.warp.index, mask, self.warp.existing);
                }
            }
            Code::Shuffle { mode, dst, value, lane, mask } => self.shuffle(pc, mode, [dst, value, lane], mask),
            Code::Vote { mode, dst, value, mask } => self.vote(pc, mode, dst, value, mask),
            Code::Mma { mma, ref fragments } => self.mma(pc, mma, fragments),
            Code::LoadMatrix { ty, dst, count, at, transposed } => {
                self.load_matrix(pc, ty, &dst[..count as usize], at, transposed);
            }
            Code::Hopper(ref act) => {
                if !self.act(pc, act) {
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
        let warp = &mut *self.warp;
        let next = warp.pc + 1;
        warp.pc = match *code {
            Code::For { counter, start, end, exit } => {
                warp.registers.copy(Type::U32, counter, start, warp.mask);
                let inside = warp.mask & warp.below(counter, end);
                if inside != 0 {
                    warp.stack.push((warp.mask, 0));
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
                    warp.pop();
                    next
                }
            }
            Code::If { condition, otherwise } => {
                let holds = warp.registers.predicates[condition as usize] & warp.mask;
                warp.stack.push((warp.mask, warp.mask & !holds));
                warp.mask = holds;
                if holds != 0 { next } else { otherwise as usize }
            }
            Code::Else { end } => {
                warp.mask = warp.stack.last().map_or(0, |frame| frame.1);
                if warp.mask != 0 { next } else { end as usize }
            }
            Code::While => {
                warp.stack.push((warp.mask, 0));
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
                warp.pop();
                next
            }
        };
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
        self.all_of(pc, mask);
        let (values, lanes) = (self.warp.registers.u32s(value), self.warp.registers.u32s(lane));
        let out = std::array::from_fn(|own| {
            let (own, operand) = (own as u32, lanes[own]);
            let from = match mode {
                Shuffle::Index => operand % 32,
                Shuffle::Xor => (own ^ operand) % 32,
                Shuffle::Up => own.checked_sub(operand).unwrap_or(own),
                Shuffle::Down => own.checked_add(operand).filter(|&l| l < 32).unwrap_or(own),
            };
            values[from as usize]
        });
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

    fn pop(&mut self) {
        if let Some((lanes, _)) = self.stack.pop() {
            self.mask = lanes;
        }
    }
}
