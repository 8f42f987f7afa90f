//! Prints arithmetic by type.

use tegula_core::element::Type;
use tegula_core::error::Result;

use super::printer::{Printer, Reg, RegisterClass, Requirements};
use super::syntax::{arithmetic_type, bit_type, comparison, memory_type};
use crate::{Binary, Compare, Inst, Operand, Unary};

/// The requirements of arithmetic on a type.
struct ArithmeticRequirements {
    /// Addition, subtraction and multiplication.
    add: Requirements,
    /// Minimum and maximum.
    min: Requirements,
    /// Fused multiply-add, and rounding f32 to the type.
    fma: Requirements,
}

const fn arithmetic_requirements(ty: Type) -> ArithmeticRequirements {
    let (add, min, fma) = match ty {
        Type::BF16 => (Requirements::SM_90, Requirements::SM_80, Requirements::SM_80),
        Type::F16 => (Requirements::PLAIN, Requirements::SM_80, Requirements::PLAIN),
        Type::F64 | Type::F32 => (Requirements::PLAIN, Requirements::PLAIN, Requirements::PLAIN),
        Type::I8 | Type::U8 | Type::I32 | Type::U32 | Type::I64 | Type::U64 | Type::Pred => {
            (Requirements::PLAIN, Requirements::PLAIN, Requirements::PLAIN)
        }
    };
    ArithmeticRequirements { add, min, fma }
}

impl Printer<'_> {
    fn result_of(&mut self, inst: &Inst) -> Reg {
        self.results(inst)[0]
    }

    pub fn unary(&mut self, inst: &Inst, op: Unary, a: Operand) -> Result<()> {
        let ty = self.kernel.operand_type(a);
        let (d, a) = (self.result_of(inst), self.operand(a));
        match (op, ty) {
            (Unary::Not, ty) => self.line(format_args!("not.{} {d}, {a}", bit_type(ty))),
            // Flips the sign bit, which every GPU supports.
            (Unary::Neg, ty) if ty.is_half_float() => self.line(format_args!("xor.b16 {d}, {a}, 0x8000")),
            (Unary::Abs, ty) if ty.is_half_float() => self.line(format_args!("and.b16 {d}, {a}, 0x7fff")),
            (Unary::Neg, Type::U32) => self.line(format_args!("neg.s32 {d}, {a}")),
            (Unary::Neg, Type::U64) => self.line(format_args!("neg.s64 {d}, {a}")),
            (Unary::Abs, Type::U32 | Type::U64) => self.line(format_args!("mov.{} {d}, {a}", bit_type(ty))),
            (Unary::Neg, ty) => self.line(format_args!("neg.{} {d}, {a}", arithmetic_type(ty)?)),
            (Unary::Abs, ty) => self.line(format_args!("abs.{} {d}, {a}", arithmetic_type(ty)?)),
        }
        Ok(())
    }

    pub fn binary(&mut self, inst: &Inst, op: Binary, a: Operand, b: Operand) -> Result<()> {
        let ty = self.kernel.operand_type(a);
        if matches!(op, Binary::Shl | Binary::Shr) {
            return self.shift(inst, op, a, b);
        }
        if op == Binary::Div && ty.is_half_float() {
            return self.divide_half_floats(inst, a, b);
        }
        let (d, a, b) = (self.result_of(inst), self.operand(a), self.operand(b));
        let (round, low) = if ty.is_float() { (".rn", ".rn") } else { ("", ".lo") };
        match op {
            Binary::Add => self.line(format_args!("add{round}.{} {d}, {a}, {b}", arithmetic_type(ty)?)),
            Binary::Sub => self.line(format_args!("sub{round}.{} {d}, {a}, {b}", arithmetic_type(ty)?)),
            Binary::Mul => self.line(format_args!("mul{low}.{} {d}, {a}, {b}", arithmetic_type(ty)?)),
            Binary::Div => self.line(format_args!("div{round}.{} {d}, {a}, {b}", arithmetic_type(ty)?)),
            Binary::Rem => self.line(format_args!("rem.{} {d}, {a}, {b}", arithmetic_type(ty)?)),
            Binary::Min => self.line(format_args!("min.{} {d}, {a}, {b}", arithmetic_type(ty)?)),
            Binary::Max => self.line(format_args!("max.{} {d}, {a}, {b}", arithmetic_type(ty)?)),
            Binary::And => self.line(format_args!("and.{} {d}, {a}, {b}", bit_type(ty))),
            Binary::Or => self.line(format_args!("or.{} {d}, {a}, {b}", bit_type(ty))),
            Binary::Xor => self.line(format_args!("xor.{} {d}, {a}, {b}", bit_type(ty))),
            Binary::Shl | Binary::Shr => {}
        }
        match op {
            Binary::Add | Binary::Sub | Binary::Mul => self.require(arithmetic_requirements(ty).add),
            Binary::Min | Binary::Max => self.require(arithmetic_requirements(ty).min),
            _ => {}
        }
        Ok(())
    }

    /// Prints a shift.
    ///
    /// PTX takes a 32-bit count and clamps it, so a 64-bit count is clamped before it is truncated.
    fn shift(&mut self, inst: &Inst, op: Binary, a: Operand, count: Operand) -> Result<()> {
        let ty = self.kernel.operand_type(a);
        let (d, a) = (self.result_of(inst), self.operand(a));
        let count = match count {
            Operand::Const(_, count) => count.min(64).to_string(),
            Operand::Val(_) if ty.size() == 8 => {
                let (long, short, count) =
                    (self.fresh(RegisterClass::Long), self.fresh(RegisterClass::Word), self.operand(count));
                self.line(format_args!("min.u64 {long}, {count}, 64"));
                self.line(format_args!("cvt.u32.u64 {short}, {long}"));
                short.to_string()
            }
            Operand::Val(_) => self.operand(count),
        };
        match op {
            Binary::Shl => self.line(format_args!("shl.{} {d}, {a}, {count}", bit_type(ty))),
            _ => self.line(format_args!("shr.{} {d}, {a}, {count}", arithmetic_type(ty)?)),
        }
        Ok(())
    }

    /// Divides 16-bit floats in f32.
    ///
    /// The precision of f32 is more than twice theirs, so double rounding is harmless.
    fn divide_half_floats(&mut self, inst: &Inst, a: Operand, b: Operand) -> Result<()> {
        let ty = self.kernel.operand_type(a);
        let (a, b) = (self.widened(a)?, self.widened(b)?);
        let (d, quotient) = (self.result_of(inst), self.fresh(RegisterClass::Float));
        self.line(format_args!("div.rn.f32 {quotient}, {a}, {b}"));
        self.narrow(d, ty, quotient)
    }

    /// Converts a 16-bit float to f32, exactly.
    fn widened(&mut self, a: Operand) -> Result<Reg> {
        let ty = self.kernel.operand_type(a);
        let (wide, a) = (self.fresh(RegisterClass::Float), self.operand(a));
        self.widen(wide, ty, &a)?;
        Ok(wide)
    }

    fn widen(&mut self, wide: Reg, ty: Type, a: &str) -> Result<()> {
        match ty {
            Type::BF16 => self.line(format_args!("mov.b32 {wide}, {{0, {a}}}")),
            _ => self.line(format_args!("cvt.f32.{} {wide}, {a}", arithmetic_type(ty)?)),
        }
        Ok(())
    }

    fn narrow(&mut self, d: Reg, ty: Type, a: Reg) -> Result<()> {
        self.require(arithmetic_requirements(ty).fma);
        self.line(format_args!("cvt.rn.{}.f32 {d}, {a}", arithmetic_type(ty)?));
        Ok(())
    }

    pub fn mul_add(&mut self, inst: &Inst, operands: [Operand; 3]) -> Result<()> {
        let ty = self.kernel.operand_type(operands[0]);
        let (d, [a, b, c]) = (self.result_of(inst), operands.map(|o| self.operand(o)));
        let name = if ty.is_float() { "fma.rn" } else { "mad.lo" };
        self.require(arithmetic_requirements(ty).fma);
        self.line(format_args!("{name}.{} {d}, {a}, {b}, {c}", arithmetic_type(ty)?));
        Ok(())
    }

    pub fn compare(&mut self, d: Reg, how: Compare, a: Operand, b: Operand) -> Result<()> {
        let ty = self.kernel.operand_type(a);
        // True where an operand is NaN: the only comparison with another name for floats.
        let how = if how == Compare::Ne && ty.is_float() { "neu" } else { comparison(how) };
        if ty == Type::BF16 {
            let (a, b) = (self.widened(a)?, self.widened(b)?);
            self.line(format_args!("setp.{how}.f32 {d}, {a}, {b}"));
        } else {
            let (a, b) = (self.operand(a), self.operand(b));
            self.line(format_args!("setp.{how}.{} {d}, {a}, {b}", arithmetic_type(ty)?));
        }
        Ok(())
    }

    pub fn select(&mut self, inst: &Inst, condition: Operand, yes: Operand, no: Operand) {
        let ty = self.kernel.operand_type(yes);
        let (d, condition, yes, no) =
            (self.result_of(inst), self.operand(condition), self.operand(yes), self.operand(no));
        if ty != Type::Pred {
            return self.line(format_args!("selp.{} {d}, {yes}, {no}, {condition}", bit_type(ty)));
        }
        let other = self.fresh(RegisterClass::Pred);
        self.line(format_args!("not.pred {other}, {condition}"));
        self.line(format_args!("and.pred {other}, {other}, {no}"));
        self.line(format_args!("and.pred {d}, {condition}, {yes}"));
        self.line(format_args!("or.pred {d}, {d}, {other}"));
    }

    pub fn bitcast(&mut self, inst: &Inst, a: Operand) {
        let (from, to) = (self.kernel.operand_type(a), self.kernel.value_type(inst.results[0]));
        let (d, a) = (self.result_of(inst), self.register(a));
        match to {
            Type::I8 | Type::U8 if from == Type::Pred => self.line(format_args!("selp.b32 {d}, 1, 0, {a}")),
            Type::Pred if from != Type::Pred => {
                let bit = self.fresh(RegisterClass::Word);
                self.line(format_args!("and.b32 {bit}, {a}, 1"));
                self.line(format_args!("setp.ne.u32 {d}, {bit}, 0"));
            }
            Type::I8 => self.line(format_args!("cvt.s32.s8 {d}, {a}")),
            Type::U8 => self.line(format_args!("cvt.u32.u8 {d}, {a}")),
            Type::F64 | Type::F32 | Type::F16 | Type::BF16 => self.line(format_args!("mov.{} {d}, {a}", bit_type(to))),
            Type::I32 | Type::U32 | Type::I64 | Type::U64 | Type::Pred => {
                self.line(format_args!("mov.{} {d}, {a}", bit_type(to)));
            }
        }
    }

    pub fn convert(&mut self, inst: &Inst, a: Operand) -> Result<()> {
        let (from, to) = (self.kernel.operand_type(a), self.kernel.value_type(inst.results[0]));
        let (d, mut source) = (self.result_of(inst), self.register(a));
        // A value in a longer register is converted from the type of that register.
        let mut name = match from {
            Type::I8 => "s32",
            Type::U8 => "u32",
            ty => arithmetic_type(ty)?,
        };
        if from == Type::BF16 {
            if to == Type::F32 {
                return self.widen(d, from, &source.to_string());
            }
            (source, name) = (self.widened(a)?, "f32");
        }
        if to == Type::BF16 {
            return self.convert_to_bf16(d, from, source, name);
        }
        match (from, to) {
            (from, Type::I8) if from.is_int() => self.line(format_args!("cvt.s32.s8 {d}, {source}")),
            (from, Type::U8) if from.is_int() => self.line(format_args!("cvt.u32.u8 {d}, {source}")),
            (from, to) if from.is_int() && to.is_int() && RegisterClass::of(from) == RegisterClass::of(to) => {
                self.line(format_args!("mov.{} {d}, {source}", bit_type(to)));
            }
            (from, to) if from.is_int() && to.is_int() => {
                self.line(format_args!("cvt.{}.{name} {d}, {source}", arithmetic_type(to)?));
            }
            (_, to) if to.is_int() => self.line(format_args!("cvt.rzi.{}.{name} {d}, {source}", memory_type(to))),
            (from, to) if from.is_float() && to.size() > from.size() => {
                self.line(format_args!("cvt.{}.{name} {d}, {source}", arithmetic_type(to)?));
            }
            (_, to) => self.line(format_args!("cvt.rn.{}.{name} {d}, {source}", arithmetic_type(to)?)),
        }
        Ok(())
    }

    /// Converts to bf16: through f32 where that is exact, else by the conversion of newer GPUs.
    ///
    /// The latter avoids double rounding.
    fn convert_to_bf16(&mut self, d: Reg, from: Type, source: Reg, name: &str) -> Result<()> {
        match from {
            Type::F32 | Type::BF16 => self.narrow(d, Type::BF16, source)?,
            Type::F16 | Type::I8 | Type::U8 => {
                let wide = self.fresh(RegisterClass::Float);
                let round = if from == Type::F16 { "" } else { ".rn" };
                self.line(format_args!("cvt{round}.f32.{name} {wide}, {source}"));
                self.narrow(d, Type::BF16, wide)?;
            }
            Type::F64 | Type::I32 | Type::U32 | Type::I64 | Type::U64 | Type::Pred => {
                self.require(Requirements::SM_90);
                self.line(format_args!("cvt.rn.bf16.{name} {d}, {source}"));
            }
        }
        Ok(())
    }
}
