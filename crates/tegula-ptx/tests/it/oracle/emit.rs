//! Writes a program as PTX.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::execute::{FACTOR, UNUSED, constant};
use super::program::{
    Array, AtomicKind, DATA_BYTES, FLAGS, FenceKind, Guard, MBARRIERS, Node, Op, Order, Program, Scope, Step, Strength,
    Target, Threads, Value,
};

/// The PTX of a program.
pub struct Emitted {
    pub text: String,
    /// The step of each line that accesses memory or synchronizes.
    pub lines: BTreeMap<u32, usize>,
}

/// A branch that is still open: steps can join it.
struct Region {
    threads: Threads,
    if_last: Option<u32>,
    number: u32,
    in_else: bool,
}

struct Emitter {
    text: String,
    line: u32,
    lines: BTreeMap<u32, usize>,
    labels: u32,
    region: Option<Region>,
    /// Predicate of the instruction, such as `@%p1 `.
    guard: String,
}

/// Loaded values are added to a sum: `sum · 31 + value`.
pub fn add_to_sum(sum: u64, value: u64) -> u64 {
    sum.wrapping_mul(31).wrapping_add(value)
}

/// Writes a program; the values that `observable` steps load become a sum for each thread.
pub fn emit(program: &Program, observable: &[bool]) -> Emitted {
    let mut emitter =
        Emitter { text: String::new(), line: 1, lines: BTreeMap::new(), labels: 0, region: None, guard: String::new() };
    emitter.prologue(program);
    let mut first = 0;
    for node in &program.nodes {
        match node {
            Node::Step(step) => {
                emitter.step(program, first, step, observable);
                first += 1;
            }
            Node::Loop(times, body) => {
                emitter.close();
                emitter.labels += 1;
                let label = emitter.labels;
                emitter.put("mov.u32 %count, 0;");
                emitter.label(&format!("LOOP_{label}"));
                for (at, step) in (first..).zip(body) {
                    emitter.step(program, at, step, observable);
                }
                first += body.len();
                emitter.close();
                emitter.put("add.u32 %count, %count, 1;");
                emitter.put(&format!("setp.lt.u32 %again, %count, {times};"));
                emitter.put(&format!("@%again bra LOOP_{label};"));
            }
        }
    }
    emitter.close();
    emitter.put("st.global.u64 [%sum_at], %sum;");
    emitter.put("ret;");
    emitter.put("}");
    Emitted { text: emitter.text, lines: emitter.lines }
}

impl Emitter {
    fn put(&mut self, text: &str) {
        self.text += text;
        self.text += "\n";
        self.line += 1 + text.matches('\n').count() as u32;
    }

    fn label(&mut self, name: &str) {
        self.put(&format!("{name}:"));
    }

    /// Writes the instruction that a step stands for, with its predicate.
    fn instruction(&mut self, step: usize, text: &str) {
        self.lines.insert(self.line, step);
        let guard = self.guard.clone();
        self.put(&format!("{guard}{text}"));
    }

    fn prologue(&mut self, program: &Program) {
        self.put(".version 8.0");
        self.put(".target sm_80");
        self.put(".address_size 64");
        self.put(".visible .entry kernel(");
        self.put(".param .u64 p_data, .param .u64 p_flags, .param .u64 p_input, .param .u64 p_sums)");
        self.put("{");
        self.put(".reg .pred %p, %q, %again, %h;");
        self.put(".reg .b32 %lane, %warp, %thread, %cta, %count, %t, %u, %x, %a, %v32, %w32, %flag;");
        self.put(".reg .b64 %gid, %g, %value, %e<4>, %d<4>, %sum, %sum_at, %data, %flags, %input, %generic_data;");
        self.put(".reg .b64 %generic_flags, %addr, %x64, %from, %state;");
        self.put(&format!(".reg .b32 %ticket<{FLAGS}>;"));
        self.put(&format!(".shared .align 16 .b8 s_data[{DATA_BYTES}];"));
        self.put(&format!(".shared .align 16 .b8 s_flags[{}];", 4 * FLAGS));
        self.put(&format!(".shared .align 8 .b8 s_mbarriers[{}];", 8 * MBARRIERS));
        self.put("mov.u32 %lane, %laneid;");
        self.put("mov.u32 %thread, %tid.x;");
        self.put("mov.u32 %cta, %ctaid.x;");
        self.put("shr.u32 %warp, %thread, 5;");
        self.put("mov.u32 %t, %ntid.x;");
        self.put("mad.lo.u32 %t, %cta, %t, %thread;");
        self.put("cvt.u64.u32 %gid, %t;");
        for (name, parameter) in [("data", "p_data"), ("flags", "p_flags"), ("input", "p_input")] {
            if name != "input" {
                self.put(&format!("ld.param.u64 %generic_{name}, [{parameter}];"));
                self.put(&format!("cvta.to.global.u64 %{name}, %generic_{name};"));
            } else {
                self.put(&format!("ld.param.u64 %{name}, [{parameter}];"));
                self.put(&format!("cvta.to.global.u64 %{name}, %{name};"));
            }
        }
        self.put("ld.param.u64 %sum_at, [p_sums];");
        self.put("shl.b64 %g, %gid, 3;");
        self.put("add.u64 %sum_at, %sum_at, %g;");
        self.put("cvta.to.global.u64 %sum_at, %sum_at;");
        self.put("mov.u64 %sum, 0;");
        for flag in 0..FLAGS {
            self.put(&format!("mov.u32 %ticket{flag}, 0xffffffff;"));
        }
        // One thread initializes shared memory.
        self.put("setp.ne.u32 %p, %thread, 0;");
        self.put("@%p bra STARTED;");
        for word in 0..DATA_BYTES / 4 {
            let byte = |at| u32::from(super::memory::initial(Array::SharedData, 4 * word + at)) << (8 * at);
            self.put(&format!("st.shared.u32 [s_data+{}], {:#x};", 4 * word, (0..4).map(byte).sum::<u32>()));
        }
        for flag in 0..FLAGS {
            self.put(&format!("st.shared.u32 [s_flags+{}], 0;", 4 * flag));
        }
        let used = |mbarrier: &u32| {
            let uses = |step: &Step| match step.op {
                Op::Arrive { mbarrier: at, .. } | Op::CopyArrive { mbarrier: at, .. } => at == *mbarrier,
                _ => false,
            };
            program.steps().any(uses)
        };
        for mbarrier in (0..MBARRIERS).filter(used) {
            let count = program.arrivals(mbarrier);
            self.put(&format!("mbarrier.init.shared.b64 [s_mbarriers+{}], {count};", 8 * mbarrier));
        }
        self.label("STARTED");
        self.put("bar.sync 0;");
    }

    /// Ends an open branch.
    fn close(&mut self) {
        if let Some(Region { number, in_else, .. }) = self.region.take() {
            if !in_else {
                self.label(&format!("ELSE_{number}"));
            }
            self.label(&format!("END_{number}"));
        }
    }

    /// Sets a predicate to whether the thread is one of these, and returns its name.
    fn predicate(&mut self, threads: Threads, if_last: Option<u32>) -> Option<&'static str> {
        let parts = [("%cta", threads.blocks), ("%warp", threads.warps), ("%lane", threads.lanes)];
        let parts: Vec<_> = parts.into_iter().filter(|&(_, mask)| mask != u32::MAX).collect();
        for (at, (register, mask)) in parts.iter().enumerate() {
            let target = if at == 0 { "%t" } else { "%u" };
            self.put(&format!("mov.u32 {target}, {mask:#x};"));
            self.put(&format!("shr.u32 {target}, {target}, {register};"));
            if at > 0 {
                self.put("and.b32 %t, %t, %u;");
            }
        }
        if parts.is_empty() && if_last.is_none() {
            return None;
        }
        if parts.is_empty() {
            self.put("mov.u32 %t, 1;");
        }
        self.put("and.b32 %t, %t, 1;");
        self.put("setp.ne.u32 %p, %t, 0;");
        if let Some(flag) = if_last {
            self.put(&format!("setp.eq.and.u32 %p, %ticket{flag}, 1, %p;"));
        }
        Some("%p")
    }

    fn step(&mut self, program: &Program, at: usize, step: &Step, observable: &[bool]) {
        // Whole warps execute these together.
        let whole_warps = matches!(step.op, Op::Barrier { .. } | Op::Named { .. });
        let is_loop = matches!(step.op, Op::Wait { .. } | Op::Lock { .. } | Op::WaitMbarrier { .. } | Op::Exit);
        let joins = match (&self.region, step.guard) {
            (Some(region), Guard::Same) => (region.threads, region.if_last) == (step.threads, step.if_last),
            (Some(region), Guard::Else) => !region.in_else && !intersect(region.threads, step.threads),
            _ => false,
        };
        self.guard.clear();
        if joins && !whole_warps {
            if step.guard == Guard::Else {
                let number = self.region.as_ref().map_or(0, |region| region.number);
                self.put(&format!("bra END_{number};"));
                self.label(&format!("ELSE_{number}"));
                if let Some(p) = self.predicate(step.threads, step.if_last) {
                    self.put(&format!("@!{p} bra END_{number};"));
                }
                self.region = Some(Region { threads: step.threads, if_last: step.if_last, number, in_else: true });
            }
        } else {
            self.close();
            if let Some(p) = self.predicate(step.threads, step.if_last) {
                if whole_warps || !is_loop && step.guard == Guard::Predicate {
                    self.guard = format!("@{p} ");
                } else {
                    self.labels += 1;
                    let number = self.labels;
                    self.put(&format!("@!{p} bra ELSE_{number};"));
                    self.region = Some(Region { threads: step.threads, if_last: step.if_last, number, in_else: false });
                }
            }
        }
        self.op(program, at, step, observable.get(at).copied().unwrap_or(false));
        self.guard.clear();
    }

    /// Computes an address; returns the space and the operand.
    fn address(&mut self, place: Target, bytes: u32, register: &str) -> (&'static str, String) {
        let shared = place.array.is_shared();
        let (symbol, generic_base) = match place.array {
            Array::SharedData => ("s_data", ""),
            Array::SharedFlags => ("s_flags", ""),
            Array::GlobalData => ("%data", "%generic_data"),
            Array::GlobalFlags => ("%flags", "%generic_flags"),
            Array::Input => ("%input", "%input"),
        };
        let space = match (place.generic, shared) {
            (true, _) => "",
            (false, true) => ".shared",
            (false, false) => ".global",
        };
        let fixed = place.stride == 0;
        if fixed && !(place.generic && shared) {
            let base = if place.generic { generic_base } else { symbol };
            return (space, format!("[{base}+{}]", place.first % place.units(bytes) * bytes));
        }
        let x = if place.by_thread { "%thread" } else { "%lane" };
        self.put(&format!("mad.lo.u32 %x, {x}, {}, {};", place.stride, place.first));
        self.put(&format!("and.b32 %x, %x, {};", place.units(bytes) - 1));
        self.put(&format!("shl.b32 %x, %x, {};", bytes.trailing_zeros()));
        if shared && !place.generic {
            self.put(&format!("mov.u32 %a, {symbol};"));
            self.put("add.u32 %a, %a, %x;");
            return (space, "[%a]".into());
        }
        self.put("cvt.u64.u32 %x64, %x;");
        if shared {
            self.put(&format!("mov.u64 {register}, {symbol};"));
            self.put(&format!("add.u64 {register}, {register}, %x64;"));
            self.put(&format!("cvta.shared.u64 {register}, {register};"));
        } else {
            let base = if place.generic { generic_base } else { symbol };
            self.put(&format!("add.u64 {register}, {base}, %x64;"));
        }
        (space, format!("[{register}]"))
    }

    /// The values that a thread stores.
    fn values(&mut self, value: Value, step: usize, vector: u32) {
        match value {
            Value::Const(value) => self.put(&format!("mov.u64 %e0, {value};")),
            Value::PerStep => self.put(&format!("mov.u64 %e0, {:#x};", constant(step))),
            Value::PerThread => {
                self.put(&format!("mov.u64 %value, {:#x};", constant(step)));
                self.put(&format!("mad.lo.u64 %e0, %gid, {FACTOR:#x}, %value;"));
            }
        }
        for element in 1..vector {
            self.put(&format!("add.u64 %e{element}, %e0, {element};"));
        }
    }

    fn add_to_sum(&mut self, register: &str) {
        let guard = self.guard.clone();
        self.put(&format!("{guard}mad.lo.u64 %sum, %sum, 31, {register};"));
    }

    fn op(&mut self, program: &Program, at: usize, step: &Step, observable: bool) {
        match step.op {
            Op::Load { at: place, width, vector, strength } => {
                let (space, operand) = self.address(place, width * vector, "%addr");
                let (order, ty) = (access_order(strength), 8 * width);
                let (suffix, registers) = registers("%d", vector);
                self.instruction(at, &format!("ld{order}{space}{suffix}.u{ty} {registers}, {operand};"));
                for element in 0..if observable { vector } else { 0 } {
                    self.add_to_sum(&format!("%d{element}"));
                }
            }
            Op::Store { at: place, width, vector, strength, value } => {
                self.values(value, at, vector);
                let (space, operand) = self.address(place, width * vector, "%addr");
                let (order, ty) = (access_order(strength), 8 * width);
                let (suffix, registers) = registers("%e", vector);
                self.instruction(at, &format!("st{order}{space}{suffix}.u{ty} {operand}, {registers};"));
            }
            Op::Atomic { at: place, width, kind, strength, value, returns } => {
                self.values(value, at, 1);
                self.put("cvt.u32.u64 %v32, %e0;");
                let (space, operand) = self.address(place, width, "%addr");
                let ty = match kind {
                    AtomicKind::Add | AtomicKind::Max | AtomicKind::Min => format!("u{}", 8 * width),
                    _ => format!("b{}", 8 * width),
                };
                let (old, value) = if width == 8 { ("%d0", "%e0") } else { ("%w32", "%v32") };
                let compare = if kind == AtomicKind::FailingCas { format!("{UNUSED}, ") } else { String::new() };
                let order = format!(".{}.{}", strength.order.name(), strength.scope.name());
                let (name, operands) = match returns {
                    true => ("atom", format!("{old}, {operand}, {compare}{value}")),
                    false => ("red", format!("{operand}, {value}")),
                };
                self.instruction(at, &format!("{name}{order}{space}.{}.{ty} {operands};", kind.name()));
                if observable && returns {
                    if width == 4 {
                        let guard = self.guard.clone();
                        self.put(&format!("{guard}cvt.u64.u32 %d0, %w32;"));
                    }
                    self.add_to_sum("%d0");
                }
            }
            Op::Fence { kind, scope } => {
                let text = match (kind, scope) {
                    (FenceKind::AcqRel, _) => format!("fence.acq_rel.{};", scope.name()),
                    (FenceKind::Sc, _) => format!("fence.sc.{};", scope.name()),
                    (FenceKind::Acquire, _) => format!("fence.acquire.{};", scope.name()),
                    (FenceKind::Release, _) => format!("fence.release.{};", scope.name()),
                    (FenceKind::Membar, Scope::Block) => "membar.cta;".into(),
                    (FenceKind::Membar, Scope::Device) => "membar.gl;".into(),
                    (FenceKind::Membar, Scope::System) => "membar.sys;".into(),
                };
                self.instruction(at, &text);
            }
            Op::Barrier { split } if !split || !self.guard.is_empty() => self.instruction(at, "bar.sync 0;"),
            Op::Barrier { .. } => {
                self.labels += 1;
                let label = self.labels;
                self.put("and.b32 %t, %lane, 1;");
                self.put("setp.ne.u32 %h, %t, 0;");
                self.put(&format!("@%h bra ODD_{label};"));
                self.instruction(at, "barrier.sync 0;");
                self.put(&format!("bra BOTH_{label};"));
                self.label(&format!("ODD_{label}"));
                self.instruction(at, "barrier.sync 0;");
                self.label(&format!("BOTH_{label}"));
            }
            Op::Named { id, warps, waits } => {
                let count = 32 * (warps & ((1 << program.warps()) - 1)).count_ones();
                let name = if waits { "sync" } else { "arrive" };
                self.instruction(at, &format!("bar.{name} {id}, {count};"));
            }
            Op::WarpSync { mask } => self.instruction(at, &format!("bar.warp.sync {mask:#x};")),
            Op::Shuffle => {
                let mask = step.threads.lanes;
                self.instruction(at, &format!("shfl.sync.idx.b32 %w32, %lane, %lane, 31, {mask:#x};"));
            }
            Op::Vote => self.instruction(at, &format!("vote.sync.all.pred %h, %p, {:#x};", step.threads.lanes)),
            Op::Copy { to, from, bytes, read } => {
                let (_, source) = self.address(from, bytes, "%from");
                let (_, target) = self.address(to, bytes, "%addr");
                let cache = if bytes == 16 { "cg" } else { "ca" };
                let size = if read == bytes { String::new() } else { format!(", {read}") };
                self.instruction(at, &format!("cp.async.{cache}.shared.global {target}, {source}, {bytes}{size};"));
            }
            Op::Commit => self.instruction(at, "cp.async.commit_group;"),
            Op::WaitCopies(None) => self.instruction(at, "cp.async.wait_all;"),
            Op::WaitCopies(Some(pending)) => self.instruction(at, &format!("cp.async.wait_group {pending};")),
            Op::Wait { flag, value, strength } => {
                let (space, operand) = self.address(flag, 4, "%addr");
                let (order, label) = (access_order(strength), self.next_label());
                self.label(&format!("SPIN_{label}"));
                self.instruction(at, &format!("ld{order}{space}.u32 %flag, {operand};"));
                self.put(&format!("setp.lt.u32 %q, %flag, {value};"));
                self.put(&format!("@%q bra SPIN_{label};"));
            }
            Op::Lock { flag, strength } => {
                let (space, operand) = self.address(flag, 4, "%addr");
                let order = format!(".{}.{}", strength.order.name(), strength.scope.name());
                let label = self.next_label();
                self.label(&format!("SPIN_{label}"));
                self.instruction(at, &format!("atom{order}{space}.cas.b32 %flag, {operand}, 0, 1;"));
                self.put("setp.ne.u32 %q, %flag, 0;");
                self.put(&format!("@%q bra SPIN_{label};"));
            }
            Op::Ticket { flag, count, strength } => {
                let (space, operand) = self.address(flag, 4, "%addr");
                let order = format!(".{}.{}", strength.order.name(), strength.scope.name());
                let (guard, ticket) = (self.guard.clone(), format!("%ticket{}", flag.first));
                self.instruction(at, &format!("atom{order}{space}.add.u32 %flag, {operand}, 1;"));
                self.put(&format!("{guard}setp.eq.u32 %q, %flag, {};", count - 1));
                self.put(&format!("{guard}selp.u32 {ticket}, 1, 0, %q;"));
            }
            Op::Arrive { mbarrier, .. } => {
                self.instruction(at, &format!("mbarrier.arrive.shared.b64 %state, [s_mbarriers+{}];", 8 * mbarrier));
            }
            Op::CopyArrive { mbarrier, .. } => {
                let operand = format!("[s_mbarriers+{}]", 8 * mbarrier);
                self.instruction(at, &format!("cp.async.mbarrier.arrive.noinc.shared.b64 {operand};"));
            }
            Op::WaitMbarrier { mbarrier, phase } => {
                let (label, operand) = (self.next_label(), format!("[s_mbarriers+{}]", 8 * mbarrier));
                self.label(&format!("SPIN_{label}"));
                let name = if at.is_multiple_of(2) { "try_wait" } else { "test_wait" };
                self.instruction(at, &format!("mbarrier.{name}.parity.shared.b64 %q, {operand}, {};", phase % 2));
                self.put(&format!("@!%q bra SPIN_{label};"));
            }
            Op::Exit => {
                self.put("st.global.u64 [%sum_at], %sum;");
                self.instruction(at, "exit;");
            }
        }
    }

    fn next_label(&mut self) -> u32 {
        self.labels += 1;
        self.labels
    }
}

fn intersect(one: Threads, other: Threads) -> bool {
    one.blocks & other.blocks != 0 && one.warps & other.warps != 0 && one.lanes & other.lanes != 0
}

fn access_order(strength: Strength) -> String {
    match strength.order {
        Order::Weak => String::new(),
        Order::Volatile => ".volatile".into(),
        order => format!(".{}.{}", order.name(), strength.scope.name()),
    }
}

fn registers(prefix: &str, vector: u32) -> (String, String) {
    if vector == 1 {
        return (String::new(), format!("{prefix}0"));
    }
    let all: Vec<String> = (0..vector).map(|element| format!("{prefix}{element}")).collect();
    let mut suffix = String::new();
    let _ = write!(suffix, ".v{vector}");
    (suffix, format!("{{{}}}", all.join(", ")))
}
