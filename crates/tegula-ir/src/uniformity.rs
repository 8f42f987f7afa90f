//! Uniformity analysis: for each value, the widest scope in which all threads hold the same value.
//!
//! The analysis also tracks `u32` values that index threads, such as `thread_x` plus an offset,
//! masked or compared. `thread_x` is not uniform, but it starts at a multiple of 32 in each warp,
//! so `thread_x < 64` is uniform within a warp.

use super::bounds::Bounds;
use super::hopper::HopperOp;
use super::ops::*;
use super::uniform::Uniform;

/// Infers the uniformity of all values by a fixed-point iteration: variables carry facts around
/// loops.
pub(super) fn infer(kernel: &Kernel) -> UniformityAnalysis<'_> {
    let mut analysis = UniformityAnalysis {
        kernel,
        bounds: Bounds::of(kernel),
        values: vec![Uniform::Grid; kernel.values.len()],
        indices: vec![ThreadIndex::NONE; kernel.values.len()],
        additions: vec![None; kernel.values.len()],
        vars: vec![Uniform::Grid; kernel.vars.len()],
        changed: true,
    };
    while std::mem::take(&mut analysis.changed) {
        analysis.region(kernel.body(), Uniform::Grid);
    }
    analysis
}

/// How a `u32` value indexes the threads of a warp or warpgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ThreadIndex {
    /// The group size (32 or 128) for which the value is a thread index; 0 where it is none.
    ///
    /// The value is the thread's index in its group, plus a group-uniform multiple of the group
    /// size.
    threads: u32,
    /// A power of two up to 128 that divides the value.
    multiple: u32,
}

impl ThreadIndex {
    const NONE: ThreadIndex = ThreadIndex { threads: 0, multiple: 1 };

    /// The group sizes for which the value is a thread index.
    fn groups(self) -> impl Iterator<Item = u32> {
        [128, 32].into_iter().filter(move |&threads| self.threads >= threads)
    }

    fn of_constant(bits: u64) -> ThreadIndex {
        ThreadIndex { threads: 0, multiple: 1 << bits.trailing_zeros().min(7) }
    }
}

/// The facts about the values of a kernel.
pub(super) struct UniformityAnalysis<'a> {
    kernel: &'a Kernel,
    bounds: Bounds,
    pub values: Vec<Uniform>,
    indices: Vec<ThreadIndex>,
    /// The operands of values that are additions.
    additions: Vec<Option<[Operand; 2]>>,
    vars: Vec<Uniform>,
    changed: bool,
}

impl UniformityAnalysis<'_> {
    pub fn operand(&self, operand: Operand) -> Uniform {
        match operand {
            Operand::Const(..) => Uniform::Grid,
            Operand::Val(value) => self.values[value.index()],
        }
    }

    fn index(&self, operand: Operand) -> ThreadIndex {
        match operand {
            Operand::Const(_, bits) => ThreadIndex::of_constant(bits),
            Operand::Val(value) => self.indices[value.index()],
        }
    }

    fn widest(&self, op: &Op) -> Uniform {
        let mut least = Uniform::Grid;
        op.for_each_operand(|o| least = least.max(self.operand(o)));
        least
    }

    /// Analyzes operations; `path` is the uniformity of the enclosing conditions.
    fn region(&mut self, insts: &[Inst], path: Uniform) {
        for inst in insts {
            let uniform = self.within_block(self.of_op(&inst.op));
            for value in &inst.results {
                self.raise(value.index(), uniform);
                self.indices[value.index()] = self.indexed(&inst.op);
                if let Op::Binary(Binary::Add, a, b) = inst.op {
                    self.additions[value.index()] = Some([a, b]);
                }
            }
            match &inst.op {
                Op::Set(var, value) => self.raise_var(var.index(), self.operand(*value).max(path)),
                // Each lane has its own accumulators.
                Op::Mma { mma, accumulators, .. } => {
                    mma_accumulators(*mma, *accumulators).for_each(|var| self.raise_var(var, Uniform::Lane))
                }
                Op::Hopper(HopperOp::Wgmma { wgmma, accumulators, .. }) => {
                    wgmma_accumulators(*wgmma, *accumulators).for_each(|var| self.raise_var(var, Uniform::Lane));
                }
                Op::For { start, end, step, body, .. } => {
                    let path = path.max(self.trip_count([*start, *end, *step]));
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

    /// Widens a warp or warpgroup scope to the block where the block is a single group.
    fn within_block(&self, uniform: Uniform) -> Uniform {
        let threads = self.kernel.threads();
        match uniform {
            Uniform::Warp if threads <= 32 => Uniform::Block,
            Uniform::Warpgroup if threads <= 128 => Uniform::Block,
            scope => scope,
        }
    }

    /// The uniformity of a loop's trip count.
    ///
    /// A start that differs between threads does not matter where the distance to the end is
    /// uniform.
    pub fn trip_count(&self, [start, end, step]: [Operand; 3]) -> Uniform {
        let of_bounds = self.operand(start).max(self.operand(end)).max(self.operand(step));
        let uniformity = |addend: Option<Operand>| addend.map_or(Uniform::Grid, |addend| self.operand(addend));
        let (starts, ends) = (self.as_additions(start), self.as_additions(end));
        let pairs = starts.iter().flat_map(|s| ends.iter().filter(|e| e.0 == s.0).map(move |e| (s.1, e.1)));
        let of_distance = pairs.map(|(s, e)| uniformity(s).max(uniformity(e)).max(self.operand(step))).min();
        of_distance.map_or(of_bounds, |of_distance| of_bounds.min(of_distance))
    }

    /// The decompositions of a value into a base and an addend, without wrapping.
    fn as_additions(&self, operand: Operand) -> Vec<(Operand, Option<Operand>)> {
        let mut additions = vec![(operand, None)];
        if let Operand::Val(value) = operand
            && let Some([a, b]) = self.additions[value.index()]
            && self.bounds.max(a).saturating_add(self.bounds.max(b)) <= u64::from(u32::MAX)
        {
            additions.extend([(a, Some(b)), (b, Some(a))]);
        }
        additions
    }

    fn of_op(&self, op: &Op) -> Uniform {
        match op {
            Op::SpecialRegister(register) => of_special_register(*register, self.kernel.block),
            Op::Get(var) => self.vars[var.index()],
            Op::Uniform(scope, a) => self.operand(*a).min(*scope),
            // An input is never written: uniform coordinates load uniform values.
            Op::Load { from: MemoryRef::Global { param, .. }, order: MemoryOrder::Weak, .. }
                if self.is_input(*param) =>
            {
                self.widest(op)
            }
            Op::Load { .. } | Op::LoadMatrix { .. } | Op::Atomic { .. } => Uniform::Lane,
            // A ballot has no bits of lanes that the last warp lacks.
            Op::Vote { mode: Vote::Ballot, mask, .. } if *mask == u32::MAX => Uniform::Warp,
            Op::Vote { value, mask, .. } if *mask == u32::MAX => self.operand(*value).min(Uniform::Warp),
            Op::Vote { .. } => Uniform::Lane,
            Op::Shuffle { mode: Shuffle::Index, value, lane, mask } if *mask == u32::MAX => {
                self.operand(*lane).max(Uniform::Warp).min(self.operand(*value))
            }
            // Other lanes hold the same value.
            Op::Shuffle { value, .. } if self.operand(*value) <= Uniform::Warp => self.operand(*value),
            Op::Shuffle { .. } => Uniform::Lane,
            Op::Compare(how, a, b) => self.widest(op).min(self.compared(*how, *a, *b)),
            Op::Binary(how, a, b) => self.widest(op).min(self.whole_groups(*how, *a, *b)),
            _ => self.widest(op),
        }
    }

    /// Thread indices from a multiple of 32 on are either all below another multiple, or none is.
    fn compared(&self, how: Compare, a: Operand, b: Operand) -> Uniform {
        let below = |index: Operand, limit: Operand| {
            let divides = |threads: &u32| self.index(limit).multiple.is_multiple_of(*threads);
            let threads = self.index(index).groups().find(divides);
            threads.map_or(Uniform::Lane, |threads| group(threads).max(self.operand(limit)))
        };
        match how {
            Compare::Lt | Compare::Ge => below(a, b),
            Compare::Gt | Compare::Le => below(b, a),
            Compare::Eq | Compare::Ne => Uniform::Lane,
        }
    }

    /// A thread index divided by a multiple of 32, or without its low bits, is uniform within a
    /// warp.
    fn whole_groups(&self, how: Binary, a: Operand, b: Operand) -> Uniform {
        let Operand::Const(_, b) = b else { return Uniform::Lane };
        let whole = |threads: &u32| match how {
            Binary::Div => b > 0 && b.is_multiple_of(u64::from(*threads)),
            Binary::Shr => (u64::from(threads.trailing_zeros())..32).contains(&b),
            Binary::And => b & u64::from(threads - 1) == 0,
            _ => false,
        };
        self.index(a).groups().find(whole).map_or(Uniform::Lane, group)
    }

    fn indexed(&self, op: &Op) -> ThreadIndex {
        let [x, y, z] = self.kernel.block;
        match op {
            Op::SpecialRegister(SpecialRegister::Lane) => ThreadIndex { threads: 32, multiple: 1 },
            Op::SpecialRegister(SpecialRegister::ThreadX) => {
                let whole = |threads: u32| y.saturating_mul(z) <= 1 || x.is_multiple_of(threads);
                let threads = [128, 32].into_iter().find(|&threads| whole(threads)).unwrap_or(0);
                ThreadIndex { threads, multiple: 1 }
            }
            Op::Binary(Binary::Add, a, b) => {
                let multiple = self.index(*a).multiple.min(self.index(*b).multiple);
                ThreadIndex { threads: self.shifted(*a, *b).max(self.shifted(*b, *a)), multiple }
            }
            Op::Binary(Binary::Mul, a, b) => {
                let multiple = self.index(*a).multiple.saturating_mul(self.index(*b).multiple).min(128);
                ThreadIndex { threads: 0, multiple }
            }
            Op::Binary(Binary::Shl, a, Operand::Const(_, by)) if *by < 32 => {
                let multiple = u64::from(self.index(*a).multiple) << by;
                ThreadIndex { threads: 0, multiple: multiple.min(128) as u32 }
            }
            // The index itself, or the index within whole groups.
            Op::Binary(Binary::And, a, Operand::Const(_, mask)) => {
                let keeps = |threads: u32| mask & u64::from(threads - 1) == u64::from(threads - 1);
                let threads = self.index(*a).groups().find(|&threads| keeps(threads));
                ThreadIndex { threads: threads.unwrap_or(0), ..ThreadIndex::of_constant(*mask) }
            }
            _ => ThreadIndex::NONE,
        }
    }

    /// The group size of a thread index plus a multiple of that size that is uniform in the group.
    fn shifted(&self, index: Operand, by: Operand) -> u32 {
        let whole =
            |threads: &u32| self.index(by).multiple.is_multiple_of(*threads) && self.operand(by) <= group(*threads);
        self.index(index).groups().find(whole).unwrap_or(0)
    }

    fn is_input(&self, param: ParamId) -> bool {
        matches!(self.kernel.params[param.index()].kind, ParamKind::Matrix { access: Access::Read, .. })
    }
}

fn group(threads: u32) -> Uniform {
    if threads == 128 { Uniform::Warpgroup } else { Uniform::Warp }
}

fn of_special_register(register: SpecialRegister, [x, y, z]: [u32; 3]) -> Uniform {
    // The index is uniform in a warp (or warpgroup) where the inner axes fill whole warps
    // (warpgroups).
    let outer = |inner: u32, extent: u32| match inner {
        _ if extent <= 1 => Uniform::Grid,
        _ if inner.is_multiple_of(128) => Uniform::Warpgroup,
        _ if inner.is_multiple_of(32) => Uniform::Warp,
        _ => Uniform::Lane,
    };
    match register {
        SpecialRegister::ThreadX if x <= 1 => Uniform::Grid,
        SpecialRegister::ThreadX | SpecialRegister::Lane => Uniform::Lane,
        SpecialRegister::ThreadY => outer(x, y),
        SpecialRegister::ThreadZ => outer(x.saturating_mul(y), z),
        SpecialRegister::Warp => Uniform::Warp,
        SpecialRegister::Warpgroup => Uniform::Warpgroup,
        SpecialRegister::BlockX | SpecialRegister::BlockY | SpecialRegister::BlockZ | SpecialRegister::ClusterRank => {
            Uniform::Block
        }
        SpecialRegister::Cluster => Uniform::Cluster,
        SpecialRegister::GridX | SpecialRegister::GridY | SpecialRegister::GridZ | SpecialRegister::Multiprocessors => {
            Uniform::Grid
        }
    }
}
