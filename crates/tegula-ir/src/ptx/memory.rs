//! Addresses and accesses.

use std::fmt::{self, Display};

use super::printer::{Address, Class, Needs, Printer, Reg, braced, scope_name};
use super::spelling::{bits, stored};
use crate::launch::Field;
use crate::{
    Access, AtomicOp, Axis, Guard, Holds, Inst, Operand, Order, Order2d, ParamId, ParamKind, Place, Scope, Swizzle,
    VarId,
};

/// An element, as instructions take it.
pub(super) struct Location {
    /// `global` or `shared`.
    pub space: &'static str,
    base: String,
    offset: i32,
    size: usize,
}

impl Location {
    /// What an address is made of: a register or a name, and bytes.
    pub fn parts(&self) -> (&str, i32) {
        (&self.base, self.offset)
    }

    /// The element `index` further on.
    fn element(&self, index: usize) -> Location {
        let offset = self.offset.wrapping_add((index * self.size) as i32);
        Location { base: self.base.clone(), offset, ..*self }
    }
}

impl Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.offset {
            0 => write!(f, "[{}]", self.base),
            offset => write!(f, "[{}{offset:+}]", self.base),
        }
    }
}

/// Addresses.
impl Printer<'_> {
    pub fn locate(&mut self, place: &Place) -> Location {
        let size = self.kernel.place_type(place).size();
        match *place {
            Place::Global { param, batch, row, col } => {
                let base = self.global(param, [batch, row, col]).to_string();
                Location { space: "global", base, offset: 0, size }
            }
            Place::Cursor { param, cursor, row, col, .. } => {
                let from = self.cursor(cursor);
                let (from, offset) =
                    [(Axis::Rows, row), (Axis::Cols, col)].into_iter().fold((from, 0), |(from, offset), (axis, by)| {
                        match self.fixed_stride(param, axis) {
                            Some(size) => (from, offset + i64::from(by) * size as i64),
                            None if by == 0 => (from, offset),
                            None => {
                                let (to, stride) = (self.fresh(Class::Long), self.strides(param, axis, by));
                                self.line(format_args!("add.s64 {to}, {from}, {stride}"));
                                (to, offset)
                            }
                        }
                    });
                Location { space: "global", base: from.to_string(), offset: offset as i32, size }
            }
            Place::Shared { array, index, offset, .. } => {
                let start = self.kernel.shared()[array.index()].start;
                if let Holds::Tiles(swizzle) = self.kernel.shared()[array.index()].holds {
                    let (base, offset) = self.swizzled(swizzle, start, index, offset, size as u32);
                    return Location { space: "shared", base, offset: offset as i32, size };
                }
                // Addresses of shared memory have 32 bits and wrap as indices do.
                let bytes = |elements: u32| elements.wrapping_mul(size as u32);
                let (base, fixed) = match index {
                    Operand::Const(_, index) => ("arena".to_string(), bytes((index as u32).wrapping_add(offset))),
                    Operand::Val(_) => (self.shared(index, size).to_string(), bytes(offset)),
                };
                Location { space: "shared", base, offset: start.wrapping_add(fixed) as i32, size }
            }
        }
    }

    /// The register that holds a part of an address, computed at `depth` where it is not there yet.
    pub fn part(&mut self, part: Address, depth: usize, class: Class, compute: impl FnOnce(&mut Self, Reg)) -> Reg {
        if let Some(&reg) = self.scope_mut(depth).addresses.get(&part) {
            return reg;
        }
        let reg = self.fresh(class);
        compute(self, reg);
        self.scope_mut(depth).addresses.insert(part, reg);
        reg
    }

    /// Where the block's shared memory starts.
    pub fn arena(&mut self) -> Reg {
        self.part(Address::Arena, 0, Class::Word, |p, d| p.line_at(0, format_args!("mov.u32 {d}, arena")))
    }

    /// Where an element of a swizzled array is: a base, and an offset to add. Atoms of 1024 bytes repeat.
    fn swizzled(&mut self, swizzle: Swizzle, start: u32, index: Operand, offset: u32, size: u32) -> (String, u32) {
        let index = match index {
            Operand::Const(_, index) => {
                let bytes = (index as u32).wrapping_add(offset).wrapping_mul(size);
                return ("arena".into(), start.wrapping_add(swizzle.place(bytes)));
            }
            index => index,
        };
        let bytes = offset.wrapping_mul(size);
        let (within, whole) = (bytes % 1024, bytes - bytes % 1024);
        let (arena, depth) = (self.arena(), self.depth(index));
        let reg = self.part(Address::Swizzled(index, within, size), depth, Class::Word, |p, d| {
            let (index, pieces) = (p.operand(index), p.fresh(Class::Word));
            p.line_at(depth, format_args!("mad.lo.u32 {d}, {index}, {size}, {within}"));
            p.line_at(depth, format_args!("shr.u32 {pieces}, {d}, 3"));
            p.line_at(depth, format_args!("and.b32 {pieces}, {pieces}, {}", swizzle.row_bytes() - 16));
            p.line_at(depth, format_args!("xor.b32 {d}, {d}, {pieces}"));
            p.line_at(depth, format_args!("add.u32 {d}, {d}, {arena}"));
        });
        (reg.to_string(), start.wrapping_add(whole))
    }

    fn shared(&mut self, index: Operand, size: usize) -> Reg {
        let arena = self.arena();
        let depth = self.depth(index);
        self.part(Address::Shared(index, size), depth, Class::Word, |p, d| {
            let index = p.operand(index);
            p.line_at(depth, format_args!("mad.lo.u32 {d}, {index}, {size}, {arena}"));
        })
    }

    /// Base + batch · stride + row · stride + col · stride, the outermost coordinates first.
    fn global(&mut self, param: ParamId, [batch, row, col]: [Operand; 3]) -> Reg {
        let mut steps = [(Axis::Batches, batch), (Axis::Rows, row), (Axis::Cols, col)];
        steps.sort_by_key(|(_, at)| self.depth(*at));
        let base = self.param(Field::Address(param));
        let zero = |at: Operand| matches!(at, Operand::Const(_, 0));
        steps.into_iter().filter(|(_, at)| !zero(*at)).fold(base, |from, (axis, at)| {
            let depth = self.depth(at);
            self.part(Address::Step(from, param, axis, at), depth, Class::Long, |p, d| {
                p.step(depth, d, from, param, axis, at);
            })
        })
    }

    /// d = from + at · stride. Coordinates are 32-bit without sign, strides 64-bit with one.
    fn step(&mut self, depth: usize, d: Reg, from: Reg, param: ParamId, axis: Axis, at: Operand) {
        let steps = self.operand(at);
        match (at, self.fixed_stride(param, axis)) {
            (Operand::Const(_, steps), Some(size)) => {
                self.line_at(depth, format_args!("add.s64 {d}, {from}, {}", steps * size));
            }
            (Operand::Val(_), Some(size)) => {
                self.line_at(depth, format_args!("mad.wide.u32 {d}, {steps}, {size}, {from}"));
            }
            (Operand::Const(..), None) => {
                let stride = self.param(Field::Stride(param, axis));
                self.line_at(depth, format_args!("mad.lo.s64 {d}, {stride}, {steps}, {from}"));
            }
            (Operand::Val(_), None) => {
                let (stride, wide) = (self.param(Field::Stride(param, axis)), self.fresh(Class::Long));
                self.line_at(depth, format_args!("cvt.u64.u32 {wide}, {steps}"));
                self.line_at(depth, format_args!("mad.lo.s64 {d}, {wide}, {stride}, {from}"));
            }
        }
    }

    /// The register of a cursor: the address where it stands.
    fn cursor(&mut self, cursor: VarId) -> Reg {
        if let Some(&reg) = self.cursors.get(&cursor) {
            return reg;
        }
        let reg = self.fresh(Class::Long);
        self.cursors.insert(cursor, reg);
        reg
    }

    pub fn set_cursor(&mut self, cursor: VarId, at: &Place) {
        let (cursor, at) = (self.cursor(cursor), self.locate(at));
        self.line(format_args!("mov.b64 {cursor}, {}", at.base));
    }

    pub fn move_cursor(&mut self, cursor: VarId, param: ParamId, [rows, cols]: [Operand; 2]) {
        let cursor = self.cursor(cursor);
        for (axis, by) in [(Axis::Rows, rows), (Axis::Cols, cols)] {
            match by {
                Operand::Const(_, 0) => {}
                Operand::Const(_, by) => {
                    let by = match self.fixed_stride(param, axis) {
                        Some(size) => (by * size).to_string(),
                        None => self.strides(param, axis, by as u32).to_string(),
                    };
                    self.line(format_args!("add.s64 {cursor}, {cursor}, {by}"));
                }
                Operand::Val(_) => self.step(self.innermost(), cursor, cursor, param, axis, by),
            }
        }
    }

    /// So many strides, in bytes.
    fn strides(&mut self, param: ParamId, axis: Axis, count: u32) -> Reg {
        let stride = self.param(Field::Stride(param, axis));
        self.part(Address::Strides(param, axis, count), 0, Class::Long, |p, d| {
            p.line_at(0, format_args!("mul.lo.s64 {d}, {stride}, {count}"));
        })
    }

    /// The bytes between neighbours along an axis, where the declaration says them.
    fn fixed_stride(&self, param: ParamId, axis: Axis) -> Option<u64> {
        match self.kernel.params()[param.index()].kind {
            ParamKind::Matrix { ty, order: Order2d::RowMajor, .. } if axis == Axis::Cols => Some(ty.size() as u64),
            ParamKind::Matrix { ty, order: Order2d::ColMajor, .. } if axis == Axis::Rows => Some(ty.size() as u64),
            _ => None,
        }
    }
}

/// Accesses.
impl Printer<'_> {
    #[allow(clippy::too_many_arguments, reason = "the fields of one operation")]
    pub fn load(
        &mut self,
        inst: &Inst,
        from: &Place,
        width: u32,
        guard: Guard,
        fill: Operand,
        order: Order,
        scope: Scope,
    ) {
        let (to, ty) = (self.results(inst), stored(self.kernel.place_type(from)));
        let mode = self.load_mode(from, order, scope);
        let from = self.locate(from);
        let parts = self.parts(guard, width);
        if guard != Guard::Always {
            to.iter().for_each(|&to| self.copy(to, fill));
        }
        for (guard, part) in parts {
            if part.len() > 4 {
                self.load_packed(&guard, &mode, &to[part], &from, ty);
                continue;
            }
            let (from, vector, to) = (from.element(part.start), vector(part.len()), braced(&to[part]));
            self.line(format_args!("{guard}ld{mode}{vector}.{ty} {to}, {from}"));
        }
    }

    /// More elements than a load has registers for come as 32-bit words that are taken apart.
    fn load_packed(&mut self, guard: &str, mode: &str, to: &[Reg], from: &Location, ty: &str) {
        let each = 4 / from.size;
        let words: Vec<Reg> = to.chunks(each).map(|_| self.fresh(Class::Word)).collect();
        let (vector, registers) = (vector(words.len()), braced(&words));
        self.line(format_args!("{guard}ld{mode}{vector}.b32 {registers}, {from}"));
        for (word, parts) in words.iter().zip(to.chunks(each)) {
            match parts {
                [low, high] => self.line(format_args!("{guard}mov.b32 {{{low}, {high}}}, {word}")),
                bytes => {
                    let sign = if ty == "s8" { "s32" } else { "u32" };
                    for (at, byte) in (0..).step_by(8).zip(bytes) {
                        self.line(format_args!("{guard}bfe.{sign} {byte}, {word}, {at}, 8"));
                    }
                }
            }
        }
    }

    /// What stands between `ld` and the type. What a launch only reads may go through the read-only path, unless the launch before may still write it.
    fn load_mode(&self, from: &Place, order: Order, scope: Scope) -> String {
        match (order, from) {
            (Order::Weak, Place::Global { param, .. } | Place::Cursor { param, .. }) => {
                if self.is_input(*param) && !self.kernel.starts_early() {
                    ".global.nc".into()
                } else {
                    ".global".into()
                }
            }
            (Order::Weak, Place::Shared { .. }) => ".shared".into(),
            (_, Place::Global { .. } | Place::Cursor { .. }) => {
                format!(".{}.{}.global", order_name(order), scope_name(scope))
            }
            (_, Place::Shared { .. }) => format!(".{}.{}.shared", order_name(order), scope_name(scope)),
        }
    }

    fn is_input(&self, param: ParamId) -> bool {
        matches!(self.kernel.params()[param.index()].kind, ParamKind::Matrix { access: Access::Read, .. })
    }

    pub fn store(&mut self, to: &Place, values: &[Operand], guard: Guard, order: Order, scope: Scope) {
        let ty = stored(self.kernel.place_type(to));
        let mode = match order {
            Order::Weak => String::new(),
            order => format!(".{}.{}", order_name(order), scope_name(scope)),
        };
        let to = self.locate(to);
        let values: Vec<String> = values.iter().map(|&v| self.operand(v)).collect();
        for (guard, part) in self.parts(guard, values.len() as u32) {
            let (to, vector, values) = (to.element(part.start), vector(part.len()), braced(&values[part]));
            self.line(format_args!("{guard}st{mode}.{}{vector}.{ty} {to}, {values}", to.space));
        }
    }

    pub fn atomic(&mut self, inst: &Inst, op: AtomicOp, at: &Place, value: Operand, order: Order, scope: Scope) {
        let ty = self.kernel.place_type(at);
        let (d, at, value) = (self.results(inst)[0], self.locate(at), self.operand(value));
        let (name, expected) = match op {
            AtomicOp::Add => (format!("add.{}", stored(ty)), String::new()),
            AtomicOp::Min => (format!("min.{}", stored(ty)), String::new()),
            AtomicOp::Max => (format!("max.{}", stored(ty)), String::new()),
            AtomicOp::And => (format!("and.{}", bits(ty)), String::new()),
            AtomicOp::Or => (format!("or.{}", bits(ty)), String::new()),
            AtomicOp::Xor => (format!("xor.{}", bits(ty)), String::new()),
            AtomicOp::Exchange => (format!("exch.{}", bits(ty)), String::new()),
            AtomicOp::CompareExchange { expected } => (format!("cas.{}", bits(ty)), self.operand(expected) + ", "),
        };
        let (order, scope, space) = (order_name(order), scope_name(scope), at.space);
        self.line(format_args!("atom.{order}.{scope}.{space}.{name} {d}, {at}, {expected}{value}"));
    }

    pub fn copy_async(&mut self, to: &Place, from: &Place, width: u32, guard: Guard) {
        self.need(Needs::SM_80);
        let size = self.kernel.place_type(from).size() as u32;
        let (to, from, bytes) = (self.locate(to), self.locate(from), width * size);
        let cache = if bytes == 16 { "cg" } else { "ca" };
        // Bytes beyond those to read become zero; where none is to be read, the address is not used.
        let read = match guard {
            Guard::Always => String::new(),
            Guard::If(holds) => {
                let (holds, read) = (self.operand(holds), self.fresh(Class::Word));
                self.line(format_args!("selp.b32 {read}, {bytes}, 0, {holds}"));
                format!(", {read}")
            }
            Guard::First(valid) => {
                let (valid, read) = (self.operand(valid), self.fresh(Class::Word));
                self.line(format_args!("min.u32 {read}, {valid}, {width}"));
                self.line(format_args!("mul.lo.u32 {read}, {read}, {size}"));
                format!(", {read}")
            }
        };
        self.line(format_args!("cp.async.{cache}.shared.global {to}, {from}, {bytes}{read}"));
    }
}

/// An order by name. What computes on memory at once is never less than relaxed.
fn order_name(order: Order) -> &'static str {
    match order {
        Order::Weak | Order::Relaxed => "relaxed",
        Order::Acquire => "acquire",
        Order::Release => "release",
        Order::AcqRel => "acq_rel",
    }
}

fn vector(width: usize) -> &'static str {
    match width {
        2 => ".v2",
        4 => ".v4",
        _ => "",
    }
}
