//! How uniform each value is: the widest group of threads in which all hold the same.
//!
//! Beside that, of `u32` values that count threads: `thread_x` and what is added to it, masked off from it or compared with it is not uniform, but where it
//! starts at a multiple of 32 in each warp, `thread_x < 64` is.

use super::bounds::Bounds;
use super::hopper::Hopper;
use super::ops::*;
use super::uniform::Uniform;

/// How uniform every value is, by repeating the walk until nothing changes: variables carry facts around loops.
pub(super) fn infer(kernel: &Kernel) -> Infer<'_> {
    let mut facts = Infer {
        kernel,
        bounds: Bounds::of(kernel),
        values: vec![Uniform::Grid; kernel.values.len()],
        counts: vec![Count::NONE; kernel.values.len()],
        sums: vec![None; kernel.values.len()],
        vars: vec![Uniform::Grid; kernel.vars.len()],
        changed: true,
    };
    while std::mem::take(&mut facts.changed) {
        facts.region(kernel.body(), Uniform::Grid);
    }
    facts
}

/// How a `u32` counts the threads of a warp or warpgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Count {
    /// 32 or 128 where the value is a multiple of that, the same for all of a warp or warpgroup, plus the thread's position in it; 0 where it is not.
    threads: u32,
    /// A power of two up to 128 that the value is a multiple of.
    multiple: u32,
}

impl Count {
    const NONE: Count = Count { threads: 0, multiple: 1 };

    /// The groups that it counts the threads of.
    fn groups(self) -> impl Iterator<Item = u32> {
        [128, 32].into_iter().filter(move |&threads| self.threads >= threads)
    }

    fn of_constant(bits: u64) -> Count {
        Count { threads: 0, multiple: 1 << bits.trailing_zeros().min(7) }
    }
}

/// What is known of the values of a kernel.
pub(super) struct Infer<'a> {
    kernel: &'a Kernel,
    bounds: Bounds,
    pub values: Vec<Uniform>,
    counts: Vec<Count>,
    /// Of values that are sums: what was added.
    sums: Vec<Option<[Operand; 2]>>,
    vars: Vec<Uniform>,
    changed: bool,
}

impl Infer<'_> {
    pub fn operand(&self, operand: Operand) -> Uniform {
        match operand {
            Operand::Const(..) => Uniform::Grid,
            Operand::Val(value) => self.values[value.index()],
        }
    }

    fn count(&self, operand: Operand) -> Count {
        match operand {
            Operand::Const(_, bits) => Count::of_constant(bits),
            Operand::Val(value) => self.counts[value.index()],
        }
    }

    fn widest(&self, op: &Op) -> Uniform {
        let mut least = Uniform::Grid;
        op.for_each_operand(|o| least = least.max(self.operand(o)));
        least
    }

    /// `path` is how uniform the conditions are that led here.
    fn region(&mut self, insts: &[Inst], path: Uniform) {
        for inst in insts {
            let uniform = self.within_block(self.result(&inst.op));
            for value in &inst.results {
                self.raise(value.index(), uniform);
                self.counts[value.index()] = self.counted(&inst.op);
                if let Op::Binary(Binary::Add, a, b) = inst.op {
                    self.sums[value.index()] = Some([a, b]);
                }
            }
            match &inst.op {
                Op::Set(var, value) => self.raise_var(var.index(), self.operand(*value).max(path)),
                // Each lane has its own part of the sums.
                Op::Mma { mma, sums, .. } => vars_of(*mma, *sums).for_each(|var| self.raise_var(var, Uniform::Lane)),
                Op::Hopper(Hopper::Wgmma { wgmma, sums, .. }) => {
                    sums_of(*wgmma, *sums).for_each(|var| self.raise_var(var, Uniform::Lane));
                }
                Op::For { start, end, step, body, .. } => {
                    let path = path.max(self.rounds([*start, *end, *step]));
                    self.region(body, path);
                }
                Op::If { condition, then, otherwise } => {
                    let path = path.max(self.operand(*condition));
                    self.region(then, path);
                    self.region(otherwise, path);
                }
                Op::While { condition, test, body } => {
                    let path = path.max(self.operand(*test));
                    self.region(condition, path);
                    self.region(body, path);
                }
                _ => {}
            }
        }
    }

    fn raise(&mut self, value: usize, uniform: Uniform) {
        self.changed |= uniform > self.values[value];
        self.values[value] = self.values[value].max(uniform);
    }

    fn raise_var(&mut self, var: usize, uniform: Uniform) {
        self.changed |= uniform > self.vars[var];
        self.vars[var] = self.vars[var].max(uniform);
    }

    /// A warp or warpgroup may be all of a block.
    fn within_block(&self, uniform: Uniform) -> Uniform {
        let threads = self.kernel.threads();
        match uniform {
            Uniform::Warp if threads <= 32 => Uniform::Block,
            Uniform::Warpgroup if threads <= 128 => Uniform::Block,
            other => other,
        }
    }

    /// How uniform it is how often a loop runs. A start that differs from thread to thread does not matter where the end is that far from it.
    pub fn rounds(&self, [start, end, step]: [Operand; 3]) -> Uniform {
        let plain = self.operand(start).max(self.operand(end)).max(self.operand(step));
        let far = |added: Option<Operand>| added.map_or(Uniform::Grid, |added| self.operand(added));
        let (starts, ends) = (self.as_sums(start), self.as_sums(end));
        let pairs =
            starts.iter().flat_map(|near| ends.iter().filter(|far| far.0 == near.0).map(move |far| (near.1, far.1)));
        let apart = pairs.map(|(near, end)| far(near).max(far(end)).max(self.operand(step))).min();
        apart.map_or(plain, |apart| plain.min(apart))
    }

    /// The ways to see a value as a base and what was added to that, without wrapping.
    fn as_sums(&self, operand: Operand) -> Vec<(Operand, Option<Operand>)> {
        let mut sums = vec![(operand, None)];
        if let Operand::Val(value) = operand
            && let Some([a, b]) = self.sums[value.index()]
            && self.bounds.most(a).saturating_add(self.bounds.most(b)) <= u64::from(u32::MAX)
        {
            sums.extend([(a, Some(b)), (b, Some(a))]);
        }
        sums
    }

    fn result(&self, op: &Op) -> Uniform {
        match op {
            Op::Special(special) => special_uniform(*special, self.kernel.block),
            Op::Get(var) => self.vars[var.index()],
            Op::Uniform(scope, a) => self.operand(*a).min(*scope),
            // What nobody writes reads the same for all who ask for the same element.
            Op::Load { from: Place::Global { param, .. }, order: Order::Weak, .. } if self.is_input(*param) => {
                self.widest(op)
            }
            Op::Load { .. } | Op::LoadMatrix { .. } | Op::Atomic { .. } => Uniform::Lane,
            Op::Vote { mask, .. } if *mask == u32::MAX => Uniform::Warp,
            Op::Vote { .. } => Uniform::Lane,
            Op::Shuffle { mode: Shuffle::Index, lane, mask, .. } if *mask == u32::MAX => {
                self.operand(*lane).max(Uniform::Warp)
            }
            Op::Shuffle { .. } => Uniform::Lane,
            Op::Compare(how, a, b) => self.widest(op).min(self.compared(*how, *a, *b)),
            Op::Binary(how, a, b) => self.widest(op).min(self.whole_groups(*how, *a, *b)),
            _ => self.widest(op),
        }
    }

    /// Threads that are counted from a multiple of 32 on are all below another multiple, or none is.
    fn compared(&self, how: Compare, a: Operand, b: Operand) -> Uniform {
        let below = |count: Operand, limit: Operand| {
            let limits = |threads: &u32| self.count(limit).multiple.is_multiple_of(*threads);
            let threads = self.count(count).groups().find(limits);
            threads.map_or(Uniform::Lane, |threads| group(threads).max(self.operand(limit)))
        };
        match how {
            Compare::Lt | Compare::Ge => below(a, b),
            Compare::Gt | Compare::Le => below(b, a),
            Compare::Eq | Compare::Ne => Uniform::Lane,
        }
    }

    /// Divided by a multiple of 32, or without their low bits, they are the same throughout a warp.
    fn whole_groups(&self, how: Binary, a: Operand, b: Operand) -> Uniform {
        let Operand::Const(_, b) = b else { return Uniform::Lane };
        let whole = |threads: &u32| match how {
            Binary::Div => b > 0 && b.is_multiple_of(u64::from(*threads)),
            Binary::Shr => (u64::from(threads.trailing_zeros())..32).contains(&b),
            Binary::And => b & u64::from(threads - 1) == 0,
            _ => false,
        };
        self.count(a).groups().find(whole).map_or(Uniform::Lane, group)
    }

    fn counted(&self, op: &Op) -> Count {
        let [x, y, z] = self.kernel.block;
        match op {
            Op::Special(Special::Lane) => Count { threads: 32, multiple: 1 },
            Op::Special(Special::ThreadX) => {
                let whole = |threads: u32| y.saturating_mul(z) <= 1 || x.is_multiple_of(threads);
                let threads = [128, 32].into_iter().find(|&threads| whole(threads)).unwrap_or(0);
                Count { threads, multiple: 1 }
            }
            Op::Binary(Binary::Add, a, b) => {
                let multiple = self.count(*a).multiple.min(self.count(*b).multiple);
                Count { threads: self.shifted(*a, *b).max(self.shifted(*b, *a)), multiple }
            }
            Op::Binary(Binary::Mul, a, b) => {
                let multiple = self.count(*a).multiple.saturating_mul(self.count(*b).multiple).min(128);
                Count { threads: 0, multiple }
            }
            Op::Binary(Binary::Shl, a, Operand::Const(_, by)) if *by < 32 => {
                let multiple = u64::from(self.count(*a).multiple) << by;
                Count { threads: 0, multiple: multiple.min(128) as u32 }
            }
            // The position itself, or one among whole groups.
            Op::Binary(Binary::And, a, Operand::Const(_, mask)) => {
                let keeps = |threads: u32| mask & u64::from(threads - 1) == u64::from(threads - 1);
                let threads = self.count(*a).groups().find(|&threads| keeps(threads));
                Count { threads: threads.unwrap_or(0), ..Count::of_constant(*mask) }
            }
            _ => Count::NONE,
        }
    }

    /// A count of threads, so much further on: by a multiple of the group that all of it agree on.
    fn shifted(&self, count: Operand, by: Operand) -> u32 {
        let whole =
            |threads: &u32| self.count(by).multiple.is_multiple_of(*threads) && self.operand(by) <= group(*threads);
        self.count(count).groups().find(whole).unwrap_or(0)
    }

    fn is_input(&self, param: ParamId) -> bool {
        matches!(self.kernel.params[param.index()].kind, ParamKind::Matrix { access: Access::Read, .. })
    }
}

fn group(threads: u32) -> Uniform {
    if threads == 128 { Uniform::Warpgroup } else { Uniform::Warp }
}

fn special_uniform(special: Special, [x, y, z]: [u32; 3]) -> Uniform {
    // Along an axis whose inner axes fill whole warps (or warpgroups), all lanes hold the same.
    let outer = |inner: u32, extent: u32| match inner {
        _ if extent <= 1 => Uniform::Grid,
        _ if inner.is_multiple_of(128) => Uniform::Warpgroup,
        _ if inner.is_multiple_of(32) => Uniform::Warp,
        _ => Uniform::Lane,
    };
    match special {
        Special::ThreadX if x <= 1 => Uniform::Grid,
        Special::ThreadX | Special::Lane => Uniform::Lane,
        Special::ThreadY => outer(x, y),
        Special::ThreadZ => outer(x.saturating_mul(y), z),
        Special::Warp => Uniform::Warp,
        Special::Warpgroup => Uniform::Warpgroup,
        Special::BlockX | Special::BlockY | Special::BlockZ | Special::ClusterRank => Uniform::Block,
        Special::Cluster => Uniform::Cluster,
        Special::GridX | Special::GridY | Special::GridZ | Special::Multiprocessors => Uniform::Grid,
    }
}
