//! Prints the matrix instructions of a warp.

use super::printer::{Printer, RegisterClass, Requirements, vector_operand};
use crate::{Inst, MemoryRef, Mma, Operand, VarId};

impl Printer<'_> {
    pub fn mma(&mut self, mma: Mma, operands: [&[Operand]; 2], accumulators: VarId) {
        self.require(requirements(mma));
        let [a, b] = operands.map(|operands| {
            let registers: Vec<_> = operands.iter().map(|&o| self.register(o)).collect();
            vector_operand(&registers)
        });
        let [.., count] = mma.registers();
        let sums: Vec<_> = (0..count).map(|i| self.var(VarId(accumulators.0 + i))).collect();
        // A single register needs braces as well.
        let list = |registers: String| if registers.starts_with('{') { registers } else { format!("{{{registers}}}") };
        let ([m, n, k], (d, ab), sums) = (mma.shape(), types(mma), vector_operand(&sums));
        let (a, b) = (list(a), list(b));
        self.line(format_args!("mma.sync.aligned.m{m}n{n}k{k}.row.col.{d}.{ab}.{ab}.{d} {sums}, {a}, {b}, {sums}"));
    }

    pub fn load_matrix(&mut self, inst: &Inst, from: &MemoryRef, count: u32, transposed: bool) {
        // An sm_75 requires valid addresses also from lanes whose rows it does not read.
        self.require(if count == 4 { Requirements::LDMATRIX } else { Requirements::SM_80 });
        let (to, from) = (self.results(inst), self.address(from));
        let (to, transposed) = (vector_operand(&to), if transposed { ".trans" } else { "" });
        let to = if count == 1 { format!("{{{to}}}") } else { to };
        self.line(format_args!("ldmatrix.sync.aligned.m8n8.x{count}{transposed}.shared.b16 {to}, {from}"));
    }

    pub fn round_tf32(&mut self, inst: &Inst, a: Operand) {
        self.require(Requirements::SM_80);
        let (d, a) = (self.results(inst)[0], self.register(a));
        assert_eq!(d.class(), RegisterClass::Word);
        self.line(format_args!("cvt.rna.tf32.f32 {d}, {a}"));
    }
}

/// The types of the accumulators, and of A and B.
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

fn requirements(mma: Mma) -> Requirements {
    match mma {
        Mma::F64K4 | Mma::F64K8 | Mma::F64K16 => Requirements::SM_90,
        Mma::F64M8K4 | Mma::F16 | Mma::BF16 | Mma::TF32 | Mma::I8 | Mma::U8 => Requirements::SM_80,
    }
}
