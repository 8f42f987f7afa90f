//! Matrix instructions.

use super::printer::{Class, Needs, Printer, braced};
use crate::{Inst, Mma, Operand, Place, VarId};

impl Printer<'_> {
    pub fn mma(&mut self, mma: Mma, operands: [&[Operand]; 2], sums: VarId) {
        self.need(needs(mma));
        let [a, b] = operands.map(|operands| {
            let registers: Vec<_> = operands.iter().map(|&o| self.register(o)).collect();
            braced(&registers)
        });
        let [.., count] = mma.registers();
        let sums: Vec<_> = (0..count).map(|i| self.var(VarId(sums.0 + i))).collect();
        // One register is a list as well.
        let list = |registers: String| if registers.starts_with('{') { registers } else { format!("{{{registers}}}") };
        let ([m, n, k], (d, ab), sums) = (mma.shape(), types(mma), braced(&sums));
        let (a, b) = (list(a), list(b));
        self.line(format_args!("mma.sync.aligned.m{m}n{n}k{k}.row.col.{d}.{ab}.{ab}.{d} {sums}, {a}, {b}, {sums}"));
    }

    pub fn load_matrix(&mut self, inst: &Inst, from: &Place, count: u32, transposed: bool) {
        // An sm_75 wants valid addresses from lanes whose rows it does not read.
        self.need(if count == 4 { Needs::LDMATRIX } else { Needs::SM_80 });
        let (to, from) = (self.results(inst), self.locate(from));
        let (to, transposed) = (braced(&to), if transposed { ".trans" } else { "" });
        let to = if count == 1 { format!("{{{to}}}") } else { to };
        self.line(format_args!("ldmatrix.sync.aligned.m8n8.x{count}{transposed}.shared.b16 {to}, {from}"));
    }

    pub fn round_tf32(&mut self, inst: &Inst, a: Operand) {
        self.need(Needs::SM_80);
        let (d, a) = (self.results(inst)[0], self.register(a));
        debug_assert_eq!(d.class(), Class::Word);
        self.line(format_args!("cvt.rna.tf32.f32 {d}, {a}"));
    }
}

/// The types of the sums and of A and B.
fn types(mma: Mma) -> (&'static str, &'static str) {
    match mma {
        Mma::F64M8K4 | Mma::F64K4 | Mma::F64K8 | Mma::F64K16 => ("f64", "f64"),
        Mma::F16 => ("f32", "f16"),
        Mma::BF16 => ("f32", "bf16"),
        Mma::TF32 => ("f32", "tf32"),
        Mma::I8 => ("s32", "s8"),
        Mma::U8 => ("s32", "u8"),
    }
}

fn needs(mma: Mma) -> Needs {
    match mma {
        Mma::F64K4 | Mma::F64K8 | Mma::F64K16 => Needs::SM_90,
        Mma::F64M8K4 | Mma::F16 | Mma::BF16 | Mma::TF32 | Mma::I8 | Mma::U8 => Needs::SM_80,
    }
}
