//! The state of a kernel under construction: regions, values, source locations and faults.

use std::cell::RefCell;
use std::panic::Location;

use rustc_hash::FxHashMap;
use tegula_core::diagnostic::{Fault, FaultKind};
use tegula_core::element::Type;

use super::ops::*;

/// The dimensions of a block, in threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block([u32; 3]);

impl Block {
    /// A one-dimensional block.
    pub const fn d1(x: u32) -> Self {
        Block([x, 1, 1])
    }

    /// A two-dimensional block; `x` is the fastest axis.
    pub const fn d2(x: u32, y: u32) -> Self {
        Block([x, y, 1])
    }

    /// A three-dimensional block; `x` is the fastest axis.
    pub const fn d3(x: u32, y: u32, z: u32) -> Self {
        Block([x, y, z])
    }
}

/// Collects the operations of one kernel. Created by [`kernel`].
pub struct Builder {
    pub(super) state: RefCell<State>,
}

pub(super) struct State {
    pub(super) kernel: Kernel,
    pub(super) regions: Vec<Region>,
    /// The definition of each pure value, from which constants are split off and grids are derived.
    definitions: Vec<Option<Op>>,
    sites: FxHashMap<Site, SiteId>,
}

/// An open list of operations, with the values that it defines.
#[derive(Default)]
pub(super) struct Region {
    pub(super) insts: Vec<Inst>,
    pub(super) known: FxHashMap<(Op, Type), ValId>,
    visits: FxHashMap<&'static Location<'static>, u32>,
}

/// Builds a kernel: calls `build` once and returns the recorded operations.
///
/// `name` becomes the name of the PTX entry; characters other than letters, digits and `_` are
/// replaced. The result is unchecked: pass it to [`check()`](crate::check()).
pub fn kernel(name: &str, block: Block, build: impl for<'k> FnOnce(&'k Builder)) -> Kernel {
    let builder = empty(name, block);
    build(&builder);
    finished(builder)
}

fn empty(name: &str, block: Block) -> Builder {
    let name = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    let kernel = Kernel {
        name,
        notes: Vec::new(),
        block: block.0,
        grid: None,
        min_blocks: 0,
        cluster: 1,
        griddep_wait: false,
        params: Vec::new(),
        shared: Vec::new(),
        coordinates: vec![Box::new([])],
        vars: Vec::new(),
        values: Vec::new(),
        sites: Vec::new(),
        body: Vec::new(),
        faults: Vec::new(),
    };
    let state =
        State { kernel, regions: vec![Region::default()], definitions: Vec::new(), sites: FxHashMap::default() };
    Builder { state: RefCell::new(state) }
}

fn finished(builder: Builder) -> Kernel {
    builder.state.into_inner().finish()
}

impl State {
    fn finish(mut self) -> Kernel {
        let mut body = self.regions.pop().map(|r| r.insts).unwrap_or_default();
        let mut used = vec![false; self.kernel.values.len()];
        eliminate_dead_code(&mut body, &mut used);
        self.kernel.body = body;
        self.kernel
    }

    fn site(&mut self, location: &'static Location<'static>) -> SiteId {
        let region = self.regions.last_mut().expect("the outermost region stays open while a kernel is built");
        let visits = region.visits.entry(location).or_insert(0);
        let site = Site { location, iteration: *visits };
        *visits += 1;
        let next = SiteId(self.kernel.sites.len() as u32);
        let id = *self.sites.entry(site).or_insert(next);
        if id == next {
            self.kernel.sites.push(site);
        }
        id
    }

    pub(super) fn value(&mut self, ty: Type, definition: Option<Op>) -> ValId {
        self.kernel.values.push(ty);
        self.definitions.push(definition);
        ValId(self.kernel.values.len() as u32 - 1)
    }

    pub(super) fn push(&mut self, op: Op, results: Vec<ValId>, location: &'static Location<'static>) {
        let site = self.site(location);
        let region = self.regions.last_mut().expect("the outermost region stays open while a kernel is built");
        region.insts.push(Inst { op, results, site });
    }

    /// Converts the value computed for an axis of the grid to an expression.
    pub(super) fn grid_extent(&self, operand: Operand) -> Option<GridExtent> {
        let value = match operand {
            Operand::Const(_, bits) => return Some(GridExtent::Const(bits as u32)),
            Operand::Val(value) => value,
        };
        match self.definitions[value.index()].as_ref()? {
            Op::Extent(param, axis) => Some(GridExtent::Extent(*param, *axis)),
            Op::SpecialRegister(SpecialRegister::Multiprocessors) => Some(GridExtent::Multiprocessors),
            Op::Binary(Binary::Shr, a, Operand::Const(_, shift)) => {
                let divisor = 1u32.checked_shl(*shift as u32)?;
                Some(GridExtent::Binary(
                    Binary::Div,
                    Box::new(self.grid_extent(*a)?),
                    Box::new(GridExtent::Const(divisor)),
                ))
            }
            Op::Binary(Binary::Shl, a, Operand::Const(_, shift)) => {
                let multiplier = 1u32.checked_shl(*shift as u32)?;
                Some(GridExtent::Binary(
                    Binary::Mul,
                    Box::new(self.grid_extent(*a)?),
                    Box::new(GridExtent::Const(multiplier)),
                ))
            }
            Op::Binary(
                op @ (Binary::Add | Binary::Sub | Binary::Mul | Binary::Div | Binary::Min | Binary::Max),
                a,
                b,
            ) => Some(GridExtent::Binary(*op, Box::new(self.grid_extent(*a)?), Box::new(self.grid_extent(*b)?))),
            _ => None,
        }
    }

    pub(super) fn fault(&mut self, kind: FaultKind, message: String, location: &'static Location<'static>) {
        self.kernel.faults.push(Fault { kind, message, source: Some(location) });
    }
}

/// Operations that need no handle.
impl Builder {
    #[track_caller]
    pub(crate) fn fault(&self, kind: FaultKind, message: String) {
        self.state.borrow_mut().fault(kind, message, Location::caller());
    }

    /// Appends an operation without a result.
    #[track_caller]
    pub(crate) fn effect(&self, op: Op) {
        self.state.borrow_mut().push(op, Vec::new(), Location::caller());
    }

    #[track_caller]
    pub(super) fn param(&self, name: &str, kind: ParamKind) -> ParamId {
        let mut state = self.state.borrow_mut();
        let id = ParamId(state.kernel.params.len() as u32);
        if state.kernel.params.iter().any(|p| p.name == name) {
            let message = format!("two parameters have the name {name}");
            state.fault(FaultKind::Launch, message, Location::caller());
        }
        state.kernel.params.push(Param { name: name.into(), kind });
        id
    }

    pub(super) fn set_griddep_wait(&self) {
        self.state.borrow_mut().kernel.griddep_wait = true;
    }

    pub(super) fn set_cluster(&self, blocks: u32) {
        self.state.borrow_mut().kernel.cluster = blocks;
    }

    /// Splits a `u32` into a dynamic part and a constant to add.
    pub(super) fn split(&self, operand: Operand) -> (Operand, u32) {
        let value = match operand {
            Operand::Const(_, bits) => return (Operand::Const(Type::U32, 0), bits as u32),
            Operand::Val(value) => value,
        };
        match self.state.borrow().definitions[value.index()] {
            Some(Op::Binary(Binary::Add, x, Operand::Const(_, bits))) => (x, bits as u32),
            _ => (operand, 0),
        }
    }
}

/// Removes pure operations without uses, from the last to the first, with operands that become
/// unused.
fn eliminate_dead_code(insts: &mut Vec<Inst>, used: &mut [bool]) {
    let mut kept = Vec::with_capacity(insts.len());
    while let Some(mut inst) = insts.pop() {
        let removable = inst.op.is_pure() || matches!(inst.op, Op::Get(_));
        if removable && inst.results.iter().all(|r| !used[r.index()]) {
            continue;
        }
        inst.op.for_each_operand(|operand| {
            if let Operand::Val(value) = operand {
                used[value.index()] = true;
            }
        });
        match &mut inst.op {
            Op::For { body, .. } => eliminate_dead_code(body, used),
            Op::If { then, otherwise, .. } => {
                eliminate_dead_code(otherwise, used);
                eliminate_dead_code(then, used);
            }
            Op::While { condition, body, .. } => {
                eliminate_dead_code(body, used);
                eliminate_dead_code(condition, used);
            }
            _ => {}
        }
        kept.push(inst);
    }
    kept.reverse();
    *insts = kept;
}
