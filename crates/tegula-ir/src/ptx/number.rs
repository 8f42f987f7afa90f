//! Arithmetic on each type.

use tegula_core::element::Type;
use tegula_core::error::Result;

use super::printer::{Class, Needs, Printer, Reg};
use super::spelling::{bits, number, relation, stored};
use crate::{Binary, Compare, Inst, Operand, Unary};

/// What arithmetic on a type demands of the GPU.
struct Requirements {
    /// Sums, differences and products.
    add: Needs,
    /// The lesser and the greater.
    min: Needs,
    /// Fused multiply-adds, and rounding f32 to the type.
    fma: Needs,
}

const fn requirements(ty: Type) -> Requirements {
    let (add, min, fma) = match ty {
        Type::BF16 => (Needs::SM_90, Needs::SM_80, Needs::SM_80),
        Type::F16 => (Needs::PLAIN, Needs::SM_80, Needs::PLAIN),
        Type::F64 | Type::F32 => (Needs::PLAIN, Needs::PLAIN, Needs::PLAIN),
        Type::I8 | Type::U8 | Type::I32 | Type::U32 | Type::I64 | Type::U64 | Type::Pred => {
            (Needs::PLAIN, Needs::PLAIN, Needs::PLAIN)
        }
    };
    Requirements { add, min, fma }
}

impl Printer<'_> {
    fn result_of(&mut self, inst: &Inst) -> Reg {
        self.results(inst)[0]
    }

    pub fn unary(&mut self, inst: &Inst, op: Unary, a: Operand) -> Result<()> {
        let ty = self.kernel.operand_type(a);
        let (d, a) = (self.result_of(inst), self.operand(a));
        match (op, ty) {
            (Unary::Not, ty) => self.line(format_args!("not.{} {d}, {a}", bits(ty))),
            // The sign is a bit: no GPU is too old for that.
            (Unary::Neg, ty) if ty.is_half_float() => self.line(format_args!("xor.b16 {d}, {a}, 0x8000")),
            (Unary::Abs, ty) if ty.is_half_float() => self.line(format_args!("and.b16 {d}, {a}, 0x7fff")),
            (Unary::Neg, Type::U32) => self.line(format_args!("neg.s32 {d}, {a}")),
            (Unary::Neg, Type::U64) => self.line(format_args!("neg.s64 {d}, {a}")),
            (Unary::Abs, Type::U32 | Type::U64) => self.line(format_args!("mov.{} {d}, {a}", bits(ty))),
            (Unary::Neg, ty) => self.line(format_args!("neg.{} {d}, {a}", number(ty)?)),
            (Unary::Abs, ty) => self.line(format_args!("abs.{} {d}, {a}", number(ty)?)),
        }
        Ok(())
    }

    pub fn binary(&mut self, inst: &Inst, op: Binary, a: Operand, b: Operand) -> Result<()> {
        let ty = self.kernel.operand_type(a);
        if matches!(op, Binary::Shl | Binary::Shr) {
            return self.shift(inst, op, a, b);
        }
        if op == Binary::Div && ty.is_half_float() {
            return self.divide_halves(inst, a, b);
        }
        let (d, a, b) = (self.result_of(inst), self.operand(a), self.operand(b));
        let (round, low) = if ty.is_float() { (".rn", ".rn") } else { ("", ".lo") };
        match op {
            Binary::Add => self.line(format_args!("add{round}.{} {d}, {a}, {b}", number(ty)?)),
            Binary::Sub => self.line(format_args!("sub{round}.{} {d}, {a}, {b}", number(ty)?)),
            Binary::Mul => self.line(format_args!("mul{low}.{} {d}, {a}, {b}", number(ty)?)),
            Binary::Div => self.line(format_args!("div{round}.{} {d}, {a}, {b}", number(ty)?)),
            Binary::Rem => self.line(format_args!("rem.{} {d}, {a}, {b}", number(ty)?)),
            Binary::Min => self.line(format_args!("min.{} {d}, {a}, {b}", number(ty)?)),
            Binary::Max => self.line(format_args!("max.{} {d}, {a}, {b}", number(ty)?)),
            Binary::And => self.line(format_args!("and.{} {d}, {a}, {b}", bits(ty))),
            Binary::Or => self.line(format_args!("or.{} {d}, {a}, {b}", bits(ty))),
            Binary::Xor => self.line(format_args!("xor.{} {d}, {a}, {b}", bits(ty))),
            Binary::Shl | Binary::Shr => {}
        }
        match op {
            Binary::Add | Binary::Sub | Binary::Mul => self.need(requirements(ty).add),
            Binary::Min | Binary::Max => self.need(requirements(ty).min),
            _ => {}
        }
        Ok(())
    }

    /// Shifts take a 32-bit count and clamp it, so a longer count is clamped before it is shortened.
    fn shift(&mut self, inst: &Inst, op: Binary, a: Operand, count: Operand) -> Result<()> {
        let ty = self.kernel.operand_type(a);
        let (d, a) = (self.result_of(inst), self.operand(a));
        let count = match count {
            Operand::Const(_, count) => count.min(64).to_string(),
            Operand::Val(_) if ty.size() == 8 => {
                let (long, short, count) = (self.fresh(Class::Long), self.fresh(Class::Word), self.operand(count));
                self.line(format_args!("min.u64 {long}, {count}, 64"));
                self.line(format_args!("cvt.u32.u64 {short}, {long}"));
                short.to_string()
            }
            Operand::Val(_) => self.operand(count),
        };
        match op {
            Binary::Shl => self.line(format_args!("shl.{} {d}, {a}, {count}", bits(ty))),
            _ => self.line(format_args!("shr.{} {d}, {a}, {count}", number(ty)?)),
        }
        Ok(())
    }

    /// f32 has more than twice their precision, so that rounding twice is rounding once.
    fn divide_halves(&mut self, inst: &Inst, a: Operand, b: Operand) -> Result<()> {
        let ty = self.kernel.operand_type(a);
        let (a, b) = (self.widened(a)?, self.widened(b)?);
        let (d, quotient) = (self.result_of(inst), self.fresh(Class::Float));
        self.line(format_args!("div.rn.f32 {quotient}, {a}, {b}"));
        self.narrow(d, ty, quotient)
    }

    /// A 16-bit float as f32, exactly.
    fn widened(&mut self, a: Operand) -> Result<Reg> {
        let ty = self.kernel.operand_type(a);
        let (wide, a) = (self.fresh(Class::Float), self.operand(a));
        self.widen(wide, ty, &a)?;
        Ok(wide)
    }

    fn widen(&mut self, wide: Reg, ty: Type, a: &str) -> Result<()> {
        match ty {
            Type::BF16 => self.line(format_args!("mov.b32 {wide}, {{0, {a}}}")),
            _ => self.line(format_args!("cvt.f32.{} {wide}, {a}", number(ty)?)),
        }
        Ok(())
    }

    fn narrow(&mut self, d: Reg, ty: Type, a: Reg) -> Result<()> {
        self.need(requirements(ty).fma);
        self.line(format_args!("cvt.rn.{}.f32 {d}, {a}", number(ty)?));
        Ok(())
    }

    pub fn mul_add(&mut self, inst: &Inst, operands: [Operand; 3]) -> Result<()> {
        let ty = self.kernel.operand_type(operands[0]);
        let (d, [a, b, c]) = (self.result_of(inst), operands.map(|o| self.operand(o)));
        let name = if ty.is_float() { "fma.rn" } else { "mad.lo" };
        self.need(requirements(ty).fma);
        self.line(format_args!("{name}.{} {d}, {a}, {b}, {c}", number(ty)?));
        Ok(())
    }

    pub fn compare(&mut self, d: Reg, how: Compare, a: Operand, b: Operand) -> Result<()> {
        let ty = self.kernel.operand_type(a);
        // True where an operand is NaN: the one relation that is spelled differently for floats.
        let how = if how == Compare::Ne && ty.is_float() { "neu" } else { relation(how) };
        if ty == Type::BF16 {
            let (a, b) = (self.widened(a)?, self.widened(b)?);
            self.line(format_args!("setp.{how}.f32 {d}, {a}, {b}"));
        } else {
            let (a, b) = (self.operand(a), self.operand(b));
            self.line(format_args!("setp.{how}.{} {d}, {a}, {b}", number(ty)?));
        }
        Ok(())
    }

    pub fn select(&mut self, inst: &Inst, condition: Operand, yes: Operand, no: Operand) {
        let ty = self.kernel.operand_type(yes);
        let (d, condition, yes, no) =
            (self.result_of(inst), self.operand(condition), self.operand(yes), self.operand(no));
        if ty != Type::Pred {
            return self.line(format_args!("selp.{} {d}, {yes}, {no}, {condition}", bits(ty)));
        }
        let other = self.fresh(Class::Pred);
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
                let bit = self.fresh(Class::Word);
                self.line(format_args!("and.b32 {bit}, {a}, 1"));
                self.line(format_args!("setp.ne.u32 {d}, {bit}, 0"));
            }
            Type::I8 => self.line(format_args!("cvt.s32.s8 {d}, {a}")),
            Type::U8 => self.line(format_args!("cvt.u32.u8 {d}, {a}")),
            Type::F64 | Type::F32 | Type::F16 | Type::BF16 => self.line(format_args!("mov.{} {d}, {a}", bits(to))),
            Type::I32 | Type::U32 | Type::I64 | Type::U64 | Type::Pred => {
                self.line(format_args!("mov.{} {d}, {a}", bits(to)));
            }
        }
    }

    pub fn convert(&mut self, inst: &Inst, a: Operand) -> Result<()> {
        let (from, to) = (self.kernel.operand_type(a), self.kernel.value_type(inst.results[0]));
        let (d, mut source) = (self.result_of(inst), self.register(a));
        // What lives in a longer register is a number of that length; the conversion shortens it.
        let mut name = match from {
            Type::I8 => "s32",
            Type::U8 => "u32",
            ty => number(ty)?,
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
            (from, to) if from.is_int() && to.is_int() && Class::of(from) == Class::of(to) => {
                self.line(format_args!("mov.{} {d}, {source}", bits(to)));
            }
            (from, to) if from.is_int() && to.is_int() => {
                self.line(format_args!("cvt.{}.{name} {d}, {source}", number(to)?));
            }
            (_, to) if to.is_int() => self.line(format_args!("cvt.rzi.{}.{name} {d}, {source}", stored(to))),
            (from, to) if from.is_float() && to.size() > from.size() => {
                self.line(format_args!("cvt.{}.{name} {d}, {source}", number(to)?));
            }
            (_, to) => self.line(format_args!("cvt.rn.{}.{name} {d}, {source}", number(to)?)),
        }
        Ok(())
    }

    /// What f32 holds exactly goes by way of f32; the rest would be rounded twice, and needs the conversion of newer GPUs.
    fn convert_to_bf16(&mut self, d: Reg, from: Type, source: Reg, name: &str) -> Result<()> {
        match from {
            Type::F32 | Type::BF16 => self.narrow(d, Type::BF16, source)?,
            Type::F16 | Type::I8 | Type::U8 => {
                let wide = self.fresh(Class::Float);
                let round = if from == Type::F16 { "" } else { ".rn" };
                self.line(format_args!("cvt{round}.f32.{name} {wide}, {source}"));
                self.narrow(d, Type::BF16, wide)?;
            }
            Type::F64 | Type::I32 | Type::U32 | Type::I64 | Type::U64 | Type::Pred => {
                self.need(Needs::SM_90);
                self.line(format_args!("cvt.rn.bf16.{name} {d}, {source}"));
            }
        }
        Ok(())
    }
}
