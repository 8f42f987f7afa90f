//! Prints addresses and memory accesses.

use std::fmt::{self, Display};

use super::printer::{AddressPart, Printer, Reg, RegisterClass, Requirements, scope_name, vector_operand};
use super::syntax::{bit_type, memory_type};
use crate::launch::Field;
use crate::{
    Access, ArrayContents, AtomicOp, Axis, Guard, Inst, MemoryOrder, MemoryRef, Operand, Order2d, ParamId, ParamKind,
    Scope, Swizzle, VarId,
};

/// The address of an element in instruction syntax.
pub(super) struct AddressOperand {
    /// `global` or `shared`.
    pub space: &'static str,
    base: String,
    offset: i32,
    size: usize,
}

impl AddressOperand {
    /// The base (a register or a name) and the offset in bytes.
    pub fn parts(&self) -> (&str, i32) {
        (&self.base, self.offset)
    }

    /// The address of the element `index` further on.
    fn element(&self, index: usize) -> AddressOperand {
        let offset = self.offset.wrapping_add((index * self.size) as i32);
        AddressOperand { base: self.base.clone(), offset, ..*self }
    }
}

impl Display for AddressOperand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.offset {
            0 => write!(f, "[{}]", self.base),
            offset => write!(f, "[{}{offset:+}]", self.base),
        }
    }
}

/// Addresses.
impl Printer<'_> {
    pub fn address(&mut self, memory_ref: &MemoryRef) -> AddressOperand {
        let size = self.kernel.element_type(memory_ref).size();
        match *memory_ref {
            MemoryRef::Global { param, batch, row, col } => {
                let base = self.global(param, [batch, row, col]).to_string();
                AddressOperand { space: "global", base, offset: 0, size }
            }
            MemoryRef::Cursor { param, cursor, row, col, .. } => {
                let from = self.cursor(cursor);
                let (from, offset) =
                    [(Axis::Rows, row), (Axis::Cols, col)].into_iter().fold((from, 0), |(from, offset), (axis, by)| {
                        match self.fixed_stride(param, axis) {
                            Some(size) => (from, offset + i64::from(by) * size as i64),
                            None if by == 0 => (from, offset),
                            None => {
                                let (to, stride) = (self.fresh(RegisterClass::Long), self.strides(param, axis, by));
                                self.line(format_args!("add.s64 {to}, {from}, {stride}"));
                                (to, offset)
                            }
                        }
                    });
                AddressOperand { space: "global", base: from.to_string(), offset: offset as i32, size }
            }
            MemoryRef::Shared { array, index, offset, .. } => {
                let start = self.kernel.shared()[array.index()].start;
                if let ArrayContents::Tiles(swizzle) = self.kernel.shared()[array.index()].contents {
                    let (base, offset) = self.swizzled(swizzle, start, index, offset, size as u32);
                    return AddressOperand { space: "shared", base, offset: offset as i32, size };
                }
                // Addresses of shared memory have 32 bits and wrap like indices.
                let bytes = |elements: u32| elements.wrapping_mul(size as u32);
                let (base, fixed) = match index {
                    Operand::Const(_, index) => ("arena".to_string(), bytes((index as u32).wrapping_add(offset))),
                    Operand::Val(_) => (self.shared(index, size).to_string(), bytes(offset)),
                };
                AddressOperand { space: "shared", base, offset: start.wrapping_add(fixed) as i32, size }
            }
        }
    }

    /// The register of an address part, computed at `depth` at its first use.
    pub fn address_part(
        &mut self,
        part: AddressPart,
        depth: usize,
        class: RegisterClass,
        compute: impl FnOnce(&mut Self, Reg),
    ) -> Reg {
        if let Some(&reg) = self.scope_mut(depth).addresses.get(&part) {
            return reg;
        }
        let reg = self.fresh(class);
        compute(self, reg);
        self.scope_mut(depth).addresses.insert(part, reg);
        reg
    }

    /// The start of the block's shared memory.
    pub fn arena(&mut self) -> Reg {
        self.address_part(AddressPart::Arena, 0, RegisterClass::Word, |p, d| {
            p.line_at(0, format_args!("mov.u32 {d}, arena"))
        })
    }

    /// The address of an element of a swizzled array: base and offset. Atoms of 1024 bytes repeat.
    fn swizzled(&mut self, swizzle: Swizzle, start: u32, index: Operand, offset: u32, size: u32) -> (String, u32) {
        let index = match index {
            Operand::Const(_, index) => {
                let bytes = (index as u32).wrapping_add(offset).wrapping_mul(size);
                return ("arena".into(), start.wrapping_add(swizzle.permute(bytes)));
            }
            index => index,
        };
        let bytes = offset.wrapping_mul(size);
        let (in_atom, atoms) = (bytes % 1024, bytes - bytes % 1024);
        let (arena, depth) = (self.arena(), self.depth(index));
        let reg = self.address_part(AddressPart::Swizzled(index, in_atom, size), depth, RegisterClass::Word, |p, d| {
            let (index, chunks) = (p.operand(index), p.fresh(RegisterClass::Word));
            p.line_at(depth, format_args!("mad.lo.u32 {d}, {index}, {size}, {in_atom}"));
            p.line_at(depth, format_args!("shr.u32 {chunks}, {d}, 3"));
            p.line_at(depth, format_args!("and.b32 {chunks}, {chunks}, {}", swizzle.row_bytes() - 16));
            p.line_at(depth, format_args!("xor.b32 {d}, {d}, {chunks}"));
            p.line_at(depth, format_args!("add.u32 {d}, {d}, {arena}"));
        });
        (reg.to_string(), start.wrapping_add(atoms))
    }

    fn shared(&mut self, index: Operand, size: usize) -> Reg {
        let arena = self.arena();
        let depth = self.depth(index);
        self.address_part(AddressPart::Shared(index, size), depth, RegisterClass::Word, |p, d| {
            let index = p.operand(index);
            p.line_at(depth, format_args!("mad.lo.u32 {d}, {index}, {size}, {arena}"));
        })
    }

    /// base + batch · stride + row · stride + col · stride, the outermost coordinates first.
    fn global(&mut self, param: ParamId, [batch, row, col]: [Operand; 3]) -> Reg {
        let mut steps = [(Axis::Batches, batch), (Axis::Rows, row), (Axis::Cols, col)];
        steps.sort_by_key(|(_, at)| self.depth(*at));
        let base = self.param(Field::Address(param));
        let zero = |at: Operand| matches!(at, Operand::Const(_, 0));
        steps.into_iter().filter(|(_, at)| !zero(*at)).fold(base, |from, (axis, at)| {
            let depth = self.depth(at);
            self.address_part(AddressPart::Step(from, param, axis, at), depth, RegisterClass::Long, |p, d| {
                p.step(depth, d, from, param, axis, at);
            })
        })
    }

    /// d = from + at · stride. Coordinates are unsigned 32-bit, strides signed 64-bit.
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
                let (stride, wide) = (self.param(Field::Stride(param, axis)), self.fresh(RegisterClass::Long));
                self.line_at(depth, format_args!("cvt.u64.u32 {wide}, {steps}"));
                self.line_at(depth, format_args!("mad.lo.s64 {d}, {wide}, {stride}, {from}"));
            }
        }
    }

    /// The register of a cursor, which holds its address.
    fn cursor(&mut self, cursor: VarId) -> Reg {
        if let Some(&reg) = self.cursors.get(&cursor) {
            return reg;
        }
        let reg = self.fresh(RegisterClass::Long);
        self.cursors.insert(cursor, reg);
        reg
    }

    pub fn set_cursor(&mut self, cursor: VarId, at: &MemoryRef) {
        let (cursor, at) = (self.cursor(cursor), self.address(at));
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

    /// A multiple of a stride, in bytes.
    fn strides(&mut self, param: ParamId, axis: Axis, count: u32) -> Reg {
        let stride = self.param(Field::Stride(param, axis));
        self.address_part(AddressPart::Strides(param, axis, count), 0, RegisterClass::Long, |p, d| {
            p.line_at(0, format_args!("mul.lo.s64 {d}, {stride}, {count}"));
        })
    }

    /// The stride of an axis in bytes, where the declaration fixes it.
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
        from: &MemoryRef,
        width: u32,
        guard: Guard,
        fill: Operand,
        order: MemoryOrder,
        scope: Scope,
    ) {
        let (to, ty) = (self.results(inst), memory_type(self.kernel.element_type(from)));
        let mode = self.load_mode(from, order, scope);
        let from = self.address(from);
        let ranges = self.predicated_ranges(guard, width);
        if let (Guard::If(_), Operand::Const(_, fill), 2, [(guard, range)]) = (guard, fill, from.size, &ranges[..])
            && (2..=4).contains(&range.len())
        {
            return self.load_pairs(guard, &mode, &to, &from, fill);
        }
        if guard != Guard::Always {
            to.iter().for_each(|&to| self.copy(to, fill));
        }
        for (guard, range) in ranges {
            if range.len() > 4 {
                self.load_packed(&guard, &mode, &to[range], &from, ty);
                continue;
            }
            let (from, vector, to) = (from.element(range.start), vector(range.len()), vector_operand(&to[range]));
            self.line(format_args!("{guard}ld{mode}{vector}.{ty} {to}, {from}"));
        }
    }

    /// Loads more elements than a vector load has registers as 32-bit words, and unpacks them.
    fn load_packed(&mut self, guard: &str, mode: &str, to: &[Reg], from: &AddressOperand, ty: &str) {
        let each = 4 / from.size;
        let words: Vec<Reg> = to.chunks(each).map(|_| self.fresh(RegisterClass::Word)).collect();
        let (vector, registers) = (vector(words.len()), vector_operand(&words));
        self.line(format_args!("{guard}ld{mode}{vector}.b32 {registers}, {from}"));
        for (word, ranges) in words.iter().zip(to.chunks(each)) {
            match ranges {
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

    /// Loads two or four elements of 16 bits as 32-bit words, and unpacks them. The words are
    /// filled where the guard is false, so that unpacking needs no predicate, and packing the
    /// same pairs nothing at all.
    fn load_pairs(&mut self, guard: &str, mode: &str, to: &[Reg], from: &AddressOperand, fill: u64) {
        let words: Vec<Reg> = to.chunks(2).map(|_| self.fresh(RegisterClass::Word)).collect();
        let fill = (fill & 0xffff) << 16 | fill & 0xffff;
        words.iter().for_each(|word| self.line(format_args!("mov.b32 {word}, {fill}")));
        let (vector, registers) = (vector(words.len()), vector_operand(&words));
        self.line(format_args!("{guard}ld{mode}{vector}.b32 {registers}, {from}"));
        for (word, pair) in words.iter().zip(to.chunks(2)) {
            self.line(format_args!("mov.b32 {{{}, {}}}, {word}", pair[0], pair[1]));
        }
    }

    /// The modifiers between `ld` and the type.
    ///
    /// Inputs are loaded through the read-only path, unless the preceding launch may still write
    /// them.
    fn load_mode(&self, from: &MemoryRef, order: MemoryOrder, scope: Scope) -> String {
        match (order, from) {
            (MemoryOrder::Weak, MemoryRef::Global { param, .. } | MemoryRef::Cursor { param, .. }) => {
                if self.is_input(*param) && !self.kernel.uses_griddep_wait() {
                    ".global.nc".into()
                } else {
                    ".global".into()
                }
            }
            (MemoryOrder::Weak, MemoryRef::Shared { .. }) => ".shared".into(),
            (_, MemoryRef::Global { .. } | MemoryRef::Cursor { .. }) => {
                format!(".{}.{}.global", order_name(order), scope_name(scope))
            }
            (_, MemoryRef::Shared { .. }) => format!(".{}.{}.shared", order_name(order), scope_name(scope)),
        }
    }

    fn is_input(&self, param: ParamId) -> bool {
        matches!(self.kernel.params()[param.index()].kind, ParamKind::Matrix { access: Access::Read, .. })
    }

    pub fn store(&mut self, to: &MemoryRef, values: &[Operand], guard: Guard, order: MemoryOrder, scope: Scope) {
        let ty = memory_type(self.kernel.element_type(to));
        let mode = match order {
            MemoryOrder::Weak => String::new(),
            order => format!(".{}.{}", order_name(order), scope_name(scope)),
        };
        let to = self.address(to);
        let values: Vec<String> = values.iter().map(|&v| self.operand(v)).collect();
        for (guard, range) in self.predicated_ranges(guard, values.len() as u32) {
            if range.len() > 4 {
                let words = self.packed_pairs(&values[range]);
                let (vector, words) = (vector(words.len()), vector_operand(&words));
                self.line(format_args!("{guard}st{mode}.{}{vector}.b32 {to}, {words}", to.space));
                continue;
            }
            let (to, vector, values) = (to.element(range.start), vector(range.len()), vector_operand(&values[range]));
            self.line(format_args!("{guard}st{mode}.{}{vector}.{ty} {to}, {values}", to.space));
        }
    }

    /// Words of two elements of 16 bits each.
    fn packed_pairs(&mut self, values: &[String]) -> Vec<Reg> {
        let mut words = Vec::new();
        for pair in values.chunks(2) {
            let word = self.fresh(RegisterClass::Word);
            self.line(format_args!("mov.b32 {word}, {{{}, {}}}", pair[0], pair[1]));
            words.push(word);
        }
        words
    }

    pub fn atomic(
        &mut self,
        inst: &Inst,
        op: AtomicOp,
        at: &MemoryRef,
        value: Operand,
        order: MemoryOrder,
        scope: Scope,
    ) {
        let ty = self.kernel.element_type(at);
        let (d, at, value) = (self.results(inst)[0], self.address(at), self.operand(value));
        let (name, expected) = match op {
            AtomicOp::Add => (format!("add.{}", memory_type(ty)), String::new()),
            AtomicOp::Min => (format!("min.{}", memory_type(ty)), String::new()),
            AtomicOp::Max => (format!("max.{}", memory_type(ty)), String::new()),
            AtomicOp::And => (format!("and.{}", bit_type(ty)), String::new()),
            AtomicOp::Or => (format!("or.{}", bit_type(ty)), String::new()),
            AtomicOp::Xor => (format!("xor.{}", bit_type(ty)), String::new()),
            AtomicOp::Swap => (format!("exch.{}", bit_type(ty)), String::new()),
            AtomicOp::CompareExchange { expected } => (format!("cas.{}", bit_type(ty)), self.operand(expected) + ", "),
        };
        let (order, scope, space) = (order_name(order), scope_name(scope), at.space);
        self.line(format_args!("atom.{order}.{scope}.{space}.{name} {d}, {at}, {expected}{value}"));
    }

    pub fn copy_async(&mut self, to: &MemoryRef, from: &MemoryRef, width: u32, guard: Guard) {
        self.require(Requirements::SM_80);
        let size = self.kernel.element_type(from).size() as u32;
        let (to, from, bytes) = (self.address(to), self.address(from), width * size);
        let cache = if bytes == 16 { "cg" } else { "ca" };
        // Bytes beyond those to read are zero-filled. Where none is read, the address is not used.
        let read = match guard {
            Guard::Always => String::new(),
            Guard::If(holds) => {
                let (holds, read) = (self.operand(holds), self.fresh(RegisterClass::Word));
                self.line(format_args!("selp.b32 {read}, {bytes}, 0, {holds}"));
                format!(", {read}")
            }
            Guard::First(valid) => {
                let (valid, read) = (self.operand(valid), self.fresh(RegisterClass::Word));
                self.line(format_args!("min.u32 {read}, {valid}, {width}"));
                self.line(format_args!("mul.lo.u32 {read}, {read}, {size}"));
                format!(", {read}")
            }
        };
        self.line(format_args!("cp.async.{cache}.shared.global {to}, {from}, {bytes}{read}"));
    }
}

/// The PTX name of an order. Atomic operations are at least relaxed.
fn order_name(order: MemoryOrder) -> &'static str {
    match order {
        MemoryOrder::Weak | MemoryOrder::Relaxed => "relaxed",
        MemoryOrder::Acquire => "acquire",
        MemoryOrder::Release => "release",
        MemoryOrder::AcqRel => "acq_rel",
    }
}

fn vector(width: usize) -> &'static str {
    match width {
        2 => ".v2",
        4 => ".v4",
        _ => "",
    }
}
